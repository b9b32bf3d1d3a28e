//! The device against the contract's rules, with either kind of pool and either kind of code.
#![cfg(feature = "cuda")]

use backend_cuda::CudaBackend;
use runtime_core::{Backend, Device, Result};

fn open(index: usize, options: &str) -> Result<Device> {
    CudaBackend::new().open(&format!("cuda:{index}{options}").parse()?)
}

/// As a device is used by default.
mod defaults {
    conformance::accelerator! {
        name: "cuda",
        open: |index| super::open(index, ""),
        kernels: conformance::kernels::cuda_c(),
        abilities: [
            CooperativeLaunch, Fault, Graphs, HostRegistration, Interop, MemoryAdoption, MemoryPool, Monitor, Parameters, RegionCopy,
        ],
    }
}

/// Plain allocations instead of the driver's pools, and PTX that was compiled before.
mod others {
    use runtime_core::{ImageFormat, ModuleBundle};

    conformance::accelerator! {
        name: "cuda, pool=cache, gates=on",
        open: |index| super::open(index, "?pool=cache&gates=on"),
        kernels: {
            let all = conformance::kernels::cuda_c();
            let ptx = all.images().iter().find(|image| image.format() == ImageFormat::Ptx);
            ModuleBundle::new().with(ptx.expect("the bundle has PTX").clone())
        },
        abilities: [
            CooperativeLaunch, Fault, Gates, Graphs, HostRegistration, Interop, MemoryAdoption, MemoryPool, Monitor, Parameters, RegionCopy,
        ],
    }
}
