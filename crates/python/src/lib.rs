//! The extension module of the Python package `device_runtime`: a thin skin over the facade.
//!
//! Nothing is implemented here. Each class holds an object of `runtime` and turns arguments and errors; whatever may block lets
//! other Python threads run. What users read is the documentation of the classes, in `python/device_runtime/_native.pyi` and the
//! package's README.
#![deny(unsafe_code)]

mod array;
mod buffer;
mod device;
mod dtype;
mod error;
mod halo;
mod module;
mod pinned;
mod protocol;
mod stream;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what no panic leaves half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what may block in a destructor, which may have been called from Python or not, while other Python threads run.
#[expect(unsafe_code, reason = "asks whether Python knows the thread")]
fn detached(f: impl FnOnce() + Send) {
    let mut work = Some(f);
    // SAFETY: may be called on any thread at any time, and looks at the thread's own state alone.
    let thread = unsafe { pyo3::ffi::PyGILState_GetThisThreadState() };
    // One that Python does not know keeps nobody from running, and need not wait for who does.
    if !thread.is_null() {
        pyo3::Python::try_attach(|py| work.take().map(|work| py.detach(work)));
    }
    // Or there is no interpreter any more.
    if let Some(work) = work {
        work();
    }
}

/// What the package `device_runtime` is made of.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array::DeviceArray;
    #[pymodule_export]
    use crate::buffer::{ArrayAccess, ArrayBuffer, Offload, TransferBudget, TransferReport, here};
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
        // Lines of this crate say nothing to who uses Python.
        runtime::array::hide_sites();
        // Not by `add`, which would export it.
        module.setattr("__version__", env!("CARGO_PKG_VERSION"))?;
        runtime::interchange::wait_within(|wait| crate::detached(wait));
        crate::error::add_to(module)
    }
}
