//! Forks of a process that has opened a device. A fork has no thread but the one that made it, so drivers would wait
//! for
//! ever there, and so would threads of ranks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use runtime::{Error, ErrorKind, Result};

/// Whether something was made that does not survive a fork.
static IS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether this process is a fork of one that had made it.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// Records that something is made that does not survive a fork.
///
/// # Errors
///
/// As [`check`].
pub(crate) fn enter(operation: &'static str) -> Result<()> {
    check(operation)?;
    IS_IN_USE.store(true, Relaxed);
    Ok(())
}

/// Refuses an operation in a fork of the process that opened a device.
///
/// # Errors
///
/// `Unsupported`.
#[inline]
pub(crate) fn check(operation: &'static str) -> Result<()> {
    if IS_BROKEN.load(Relaxed) { Err(broken(operation)) } else { Ok(()) }
}

/// Whether this process is such a fork.
pub(crate) fn is_broken() -> bool {
    IS_BROKEN.load(Relaxed)
}

#[cold]
fn broken(operation: &'static str) -> Error {
    let message = "this process was forked from one that had opened a device: start processes by \
        multiprocessing.set_start_method(\"spawn\"), or open devices after the fork";
    Error::new(ErrorKind::Unsupported, operation, message)
}

#[pyfunction]
fn after_in_child() {
    IS_BROKEN.fetch_or(IS_IN_USE.load(Relaxed), Relaxed);
}

/// Makes forks known here.
pub(crate) fn set_up(py: Python<'_>) -> PyResult<()> {
    // Only Unix has forks.
    if let Some(register) = py.import("os")?.getattr_opt("register_at_fork")? {
        let after = PyDict::new(py);
        after.set_item("after_in_child", wrap_pyfunction!(after_in_child, py)?)?;
        register.call((), Some(&after))?;
    }
    Ok(())
}
