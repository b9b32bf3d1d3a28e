//! Changes an array on a device, and looks at it too often.
use runtime::array::ArrayBuffer;
use runtime::{Grid, HostModule, Launch, args, registry};

fn double(_: &Grid<'_>, x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x *= 2.0);
}

fn main() -> runtime::Result<()> {
    let device = registry().open_default("sim:0")?;
    let stream = device.default_stream();
    let double = device.module_load(&HostModule::new().with("double", double))?.kernel("double")?;

    let mut array = ArrayBuffer::from_vec(vec![1.0; 1000], 1000)?;
    for _ in 0..3 {
        let mut x = array.read_write(&stream)?; // copies to the device, the first time
        double.launch_checked(&stream, &Launch::cover(1000, 256), args![x.view_mut()?])?;
        x.commit()?;
        println!("now {}", array.read_host()?[0]); // copies back, each time
    }
    println!("{}", array.transfers());
    Ok(())
}
