//! The conformance rules on the device, with every kind of memory.
#![cfg(feature = "opencl")]

use std::env;
use std::sync::LazyLock;

use backend_opencl::OpenClBackend;
use runtime_core::{Backend, Device, Result};

/// The platform under test, as a word of a selector. By default, the first platform.
const PLATFORM: &str = "OPENCL_TEST_PLATFORM";

/// One for the whole process, so its devices share a context.
static DRIVER: LazyLock<OpenClBackend> = LazyLock::new(OpenClBackend::new);

fn open(index: usize, options: &str) -> Result<Device> {
    let selector = match env::var(PLATFORM) {
        Ok(platform) if !platform.is_empty() => format!("opencl:{platform}:{index}{options}"),
        _ => format!("opencl:{index}{options}"),
    };
    DRIVER.open(&selector.parse()?)
}

/// The default configuration of a CPU.
mod defaults {
    conformance::accelerator! {
        name: "opencl",
        open: |index| super::open(index, ""),
        kernels: conformance::kernels::opencl_c(),
        abilities: [Gates, Interop, MemoryAdoption, Parameters],
    }
}

/// The other kind of memory (by address, if the device supports it), and region copies as on a GPU.
mod others {
    use runtime_core::ErrorKind;

    conformance::accelerator! {
        name: "opencl, memory=svm, regions=lanes",
        open: |index| match super::open(index, "?memory=svm&regions=lanes") {
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                super::open(index, "?memory=buffer&regions=lanes")
            }
            device => device,
        },
        kernels: conformance::kernels::opencl_c(),
        abilities: [Gates, Interop, MemoryAdoption, Parameters],
    }
}
