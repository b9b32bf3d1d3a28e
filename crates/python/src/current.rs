//! The current stream, which `offload` sets for the length of a block.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::error::Result;
use crate::stream::Stream;

/// The streams of open `offload` blocks. A context of Python holds them, so tasks of an event loop have their own.
static OPEN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Whether a block was ever entered.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// The variable of [`OPEN`]: a tuple of pairs of a number and a `Stream`, in the order of the blocks.
fn open(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    let made = OPEN.get_or_try_init(py, || {
        let keywords = PyDict::new(py);
        keywords.set_item("default", PyTuple::empty(py))?;
        let variable = py.import("contextvars")?.getattr("ContextVar")?;
        variable.call(("device_runtime.offload",), Some(&keywords)).map(Bound::unbind)
    });
    Ok(made?.bind(py))
}

/// The blocks, each with its number.
pub(crate) type Open<'py> = Vec<(u64, Bound<'py, Stream>)>;

/// The open blocks.
pub(crate) fn opened(py: Python<'_>) -> PyResult<Open<'_>> {
    open(py)?.call_method0(intern!(py, "get"))?.extract()
}

/// Replaces the open blocks.
pub(crate) fn set_open(py: Python<'_>, blocks: Open<'_>) -> PyResult<()> {
    IS_USED.store(true, Relaxed);
    open(py)?.call_method1("set", (PyTuple::new(py, blocks)?,)).map(drop)
}

/// The current stream, or `None` for the host.
pub(crate) fn here(py: Python<'_>) -> Result<Option<runtime::Stream>> {
    if !IS_USED.load(Relaxed) {
        return Ok(None);
    }
    Ok(opened(py)?.last().map(|(_, stream)| stream.get().0.clone()))
}
