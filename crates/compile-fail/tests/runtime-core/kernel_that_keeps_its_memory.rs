use runtime_core::{Grid, HostModule};

fn keeps(_: &Grid<'_>, data: &'static [f32]) {
    std::thread::spawn(move || data.len());
}

fn main() {
    let _ = HostModule::new().with("keeps", keeps);
}
