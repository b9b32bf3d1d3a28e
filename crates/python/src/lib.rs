//! The extension module of the Python package `device_runtime`: a thin layer over the facade.
//!
//! It implements nothing itself. Each class holds an object of `runtime` and converts arguments and errors. Calls that
//! may block let other Python threads run. Python users read the class docstrings, which are the doc comments of the
//! classes here, and the package's README.
#![deny(unsafe_code)]

mod array;
mod buffer;
mod current;
mod detach;
mod device;
mod dtype;
mod error;
mod fork;
mod halo;
mod module;
mod mutex;
mod pinned;
mod protocol;
mod release;
mod stream;
mod wait;
mod words;

use self::detach::detached;
use self::mutex::lock;

/// The contents of the package `device_runtime`.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array::DeviceArray;
    #[pymodule_export]
    use crate::buffer::{
        ArrayAccess, ArrayBuffer, Offload, TransferBudget, TransferReport, current_stream,
    };
    #[pymodule_export]
    use crate::device::{Device, DeviceInfo, backends, devices};
    #[pymodule_export]
    use crate::halo::{Communicator, Dim, FieldSpec, HaloExchange, Progress, Quantity, Topology};
    #[pymodule_export]
    use crate::module::{Kernel, Module};
    #[pymodule_export]
    use crate::pinned::PinnedArray;
    #[pymodule_export]
    use crate::stream::{Event, Stream, Timer};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Source lines of this crate mean nothing to Python users.
        runtime::array::hide_call_sites();
        // `add` would export it.
        module.setattr("__version__", env!("CARGO_PKG_VERSION"))?;
        runtime::interchange::wait_within(|wait| crate::detached(wait));
        crate::release::set_up(module.py())?;
        crate::wait::set_up();
        crate::fork::set_up(module.py())?;
        crate::error::add_to(module)
    }
}
