//! The device against the contract's rules, with either kind of pool.
#![cfg(feature = "hip")]

use backend_hip::HipDriver;
use runtime_core::{Device, Driver, Result};

fn open(index: usize, options: &str) -> Result<Device> {
    HipDriver::new().open(&format!("hip:{index}{options}").parse()?)
}

/// As a device is used by default.
mod defaults {
    conformance::accelerator! {
        name: "hip",
        open: |index| super::open(index, ""),
        kernels: conformance::kernels::hip_c(),
    }
}

/// Plain allocations instead of the runtime's pools.
mod cached {
    conformance::accelerator! {
        name: "hip, pool=cache",
        open: |index| super::open(index, "?pool=cache"),
        kernels: conformance::kernels::hip_c(),
    }
}
