//! Devices for tests.
#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::env;
use std::io::{Write, stderr};
use std::time::Duration;

use backend_cuda::CudaBackend;
use backend_hip::HipBackend;
use backend_host::HostDevice;
use backend_opencl::OpenClBackend;
use backend_sim::{SimConfig, SimDevice};
use runtime_core::{Backend, Device, ErrorKind, NativeKind, Support};

/// Whether one launch of the device makes all copies of a plan. OpenCL buffers are launch arguments, and have no
/// addresses.
pub(crate) fn copies_in_one_launch(device: &Device) -> bool {
    let handle = device.memory_allocate::<u8>(1).unwrap().native().unwrap();
    let copies_regions = device.capabilities().region_copy == Support::Native;
    copies_regions && handle.kind == NativeKind::Pointer
}

pub(crate) fn host() -> Device {
    Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap()
}

pub(crate) fn sim(seed: u64) -> Device {
    Device::new(SimDevice::new(0, config(seed))).unwrap()
}

pub(crate) fn emulated() -> Device {
    Device::new(SimDevice::new(0, config(5).region_copies(false))).unwrap()
}

fn config(seed: u64) -> SimConfig {
    SimConfig::new().seed(seed).jitter(Duration::from_micros(100))
}

/// The first OpenCL device, or the device named by the environment.
pub(crate) fn opencl(memory: &str) -> Option<Device> {
    let platform = env::var("OPENCL_TEST_PLATFORM").unwrap_or_default();
    let words = if platform.is_empty() { String::new() } else { format!("{platform}:") };
    found(&OpenClBackend::new(), &format!("opencl:{words}0?memory={memory}"))
}

pub(crate) fn cuda() -> Option<Device> {
    found(&CudaBackend::new(), "cuda:0")
}

pub(crate) fn hip() -> Option<Device> {
    found(&HipBackend::new(), "hip:0")
}

/// Opens a device. Returns `None`, and prints why, if there is none.
fn found(backend: &dyn Backend, selector: &str) -> Option<Device> {
    match backend.open(&selector.parse().unwrap()) {
        Ok(device) => Some(device),
        Err(error)
            if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InvalidArgument) =>
        {
            // Not by `eprintln!`, which the test harness hides when the test passes.
            drop(writeln!(stderr(), "skipped: {error}"));
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// One test for each rule and each device.
#[macro_export]
macro_rules! on_all_devices {
    ($($rule:ident),* $(,)?) => {
        mod host { $(#[test] fn $rule() { super::$rule(&super::devices::host()); })* }
        mod sim { $(#[test] fn $rule() { super::$rule(&super::devices::sim(7)); })* }
        mod emulated { $(#[test] fn $rule() { super::$rule(&super::devices::emulated()); })* }
        on_all_devices! { opencl_buffers (super::devices::opencl("buffer")) $($rule)* }
        on_all_devices! { opencl_addresses (super::devices::opencl("svm")) $($rule)* }
        on_all_devices! { cuda (super::devices::cuda()) $($rule)* }
        on_all_devices! { hip (super::devices::hip()) $($rule)* }
    };
    ($name:ident ($device:expr) $($rule:ident)*) => {
        mod $name {
            $(#[test] fn $rule() {
                if let Some(device) = $device {
                    super::$rule(&device);
                }
            })*
        }
    };
}
