use runtime_core::{Memory, MemoryView, Pinned, Stream};

fn misuse(floats: &mut Memory<f32>, doubles: &Memory<f64>, pinned: &Pinned<f64>, stream: &Stream) {
    let _: Vec<f64> = floats.view().to_vec(stream).unwrap();
    let _: MemoryView<'_, f64> = floats.view();
    let _ = floats.view_mut().fill(stream, 1.0_f64);
    let _ = floats.view_mut().copy_from(stream, &doubles.view());
    let _ = floats.view_mut().copy_from_pinned(stream, pinned);
}

fn main() {}
