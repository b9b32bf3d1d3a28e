//! Kernels that panic with whatever they like.

use std::panic::panic_any;
use std::time::Duration;

use foreign_device::ForeignDevice;
use runtime_core::{Device, ErrorKind, Grid, HostModule, Launch, Result};

/// Panics again when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_of_any_payload_ends_the_kernel_and_not_the_stream() -> Result<()> {
    let device = Device::new(ForeignDevice::new(0))?;
    let stream = device.default_stream();
    let panics = HostModule::new().with("panics", |grid: &Grid<'_>| {
        if !grid.launch().is_empty() {
            panic_any(Bomb);
        }
    });
    let panics = device.module_load(&panics)?.kernel("panics")?;
    // SAFETY: the kernel has no arguments.
    unsafe { panics.launch(&stream, &Launch::cover(1, 1), &[]) }?;
    let error = stream.synchronize_for(Duration::from_secs(10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
    assert_eq!(device.memory_from_slice(&stream, &[1_u8; 4])?.to_vec(&stream)?, [1; 4]);
    Ok(())
}

#[test]
fn a_panic_of_what_a_kernel_owns_is_no_failure_of_the_device() -> Result<()> {
    let device = Device::new(ForeignDevice::new(0))?;
    let bomb = Bomb;
    let owns = HostModule::new().with("owns", move |_: &Grid<'_>| {
        let _ = &bomb;
    });
    let module = device.module_load(&owns)?;
    drop(owns);
    drop(module);
    device.synchronize()
}
