//! Images of stencils that are not made here.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use backend_host::HostDevice;
use runtime_core::{Device, ImageFormat, ModuleImage};
use stencil::{ErrorKind, Grid, InOut, stencil};

#[stencil]
fn double(t: InOut<f64, 1>) {
    t.set(2.0 * t.at(0));
}

#[test]
fn images_that_are_made_here_are_refused() {
    let device = Device::new(HostDevice::new(0)).unwrap();
    let grid = Grid::cartesian([8]).build(&device).unwrap();
    let text = ModuleImage::source(ImageFormat::OpenClC, "");
    let error = grid.add_image(double::STENCIL, text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("OpenCL C for stencil double"), "{error}");
    // Others are for the devices that load them.
    grid.add_image(double::STENCIL, ModuleImage::binary(ImageFormat::Elf, vec![0])).unwrap();
    let mut t = grid.field("t").filled(1.5).unwrap();
    double(&mut t).run(&device.default_stream()).unwrap();
    assert_eq!(t.read_host().unwrap()[[7]], 3.0);
}
