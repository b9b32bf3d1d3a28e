//! The device against the contract's rules, on every kind of memory.
#![cfg(feature = "opencl")]

use std::env;
use std::sync::LazyLock;

use backend_opencl::OpenClDriver;
use runtime_core::{Device, Driver, Result};

/// Which platform is tested: a word of a selector. Without it, the first one.
const PLATFORM: &str = "OPENCL_TEST_PLATFORM";

/// One for the process, so that its devices are in one context.
static DRIVER: LazyLock<OpenClDriver> = LazyLock::new(OpenClDriver::new);

fn open(index: usize, options: &str) -> Result<Device> {
    let selector = match env::var(PLATFORM) {
        Ok(platform) if !platform.is_empty() => format!("opencl:{platform}:{index}{options}"),
        _ => format!("opencl:{index}{options}"),
    };
    DRIVER.open(&selector.parse()?)
}

conformance::accelerator! {
    name: "opencl",
    open: |index| open(index, ""),
    kernels: conformance::kernels::opencl_c(),
}
