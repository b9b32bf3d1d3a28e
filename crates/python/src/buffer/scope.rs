//! Settings for the length of a block: the current stream, and limits on transfers.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;
use runtime::array::{self as buffers, Direction};
use runtime::{Error, ErrorKind};

use super::Place;
use crate::current::{here, opened, set_open};
use crate::error::{Failure, Result};
use crate::stream::Stream;

/// Numbers a block that is entered.
///
/// # Errors
///
/// `Conflict` if it was entered already.
fn enter(block: &Mutex<Option<u64>>) -> Result<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut block = crate::lock(block);
    if block.is_some() {
        return Err(Error::new(ErrorKind::Conflict, "with", "the block was entered already").into());
    }
    Ok(*block.insert(NEXT.fetch_add(1, Relaxed)))
}

#[cold]
fn not_entered(by: &str) -> Error {
    let message = format!("the block was not entered by this {by}");
    Error::new(ErrorKind::Conflict, "with", message)
}

thread_local! {
    /// The budgets of this thread's open blocks, by number. They cannot leave their thread.
    static BUDGETS: RefCell<Vec<(u64, buffers::TransferBudget)>> = const { RefCell::new(Vec::new()) };
}

/// The current stream of this thread or task, or None for the host.
#[pyfunction]
#[pyo3(name = "here")]
pub(crate) fn current_stream(py: Python<'_>) -> Result<Option<Stream>> {
    Ok(here(py)?.map(Stream))
}

/// Makes a stream, or the default stream of a device, the current stream for a ``with`` block.
///
/// Accesses to ArrayBuffers, and operations on DeviceArrays, use the current stream if they name no stream. Blocks
/// nest. Entering and leaving a block copies and frees nothing. Each thread has its own current stream, and so has each
/// task of an event loop: another task that runs while the block awaits does not see it. A task that is started in the
/// block begins with the block's stream.
#[pyclass(frozen, weakref, name = "offload", module = "device_runtime")]
pub(crate) struct Offload {
    stream: runtime::Stream,
    /// The number of the open block.
    number: Mutex<Option<u64>>,
}

#[pymethods]
impl Offload {
    #[new]
    fn new(to: &Bound<'_, PyAny>) -> Result<Self> {
        match Place::new(to.py(), Some(to))? {
            Place::Stream(stream) => Ok(Self { stream, number: Mutex::default() }),
            Place::Host => {
                Err(Failure::invalid("offload", "the host; there are streams and devices"))
            }
        }
    }

    fn __enter__(&self, py: Python<'_>) -> Result<Stream> {
        let number = enter(&self.number)?;
        let mut blocks = opened(py)?;
        blocks.push((number, Bound::new(py, Stream(self.stream.clone()))?));
        set_open(py, blocks)?;
        Ok(Stream(self.stream.clone()))
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> Result<()> {
        let number = *crate::lock(&self.number);
        let mut blocks = opened(py)?;
        let place = blocks.iter().position(|(known, _)| Some(*known) == number);
        blocks.remove(place.ok_or_else(|| not_entered("thread or task"))?);
        set_open(py, blocks)?;
        *crate::lock(&self.number) = None;
        Ok(())
    }
}

/// Limits the bytes that accesses to ArrayBuffers in this thread may move during a ``with`` block. An access beyond the
/// limit raises LimitExceededError, and nothing has moved. ``direction`` is any, to_host or to_device. Prefetches do
/// not count.
#[pyclass(frozen, weakref, name = "transfer_budget", module = "device_runtime")]
pub(crate) struct TransferBudget {
    bytes: u64,
    direction: Direction,
    /// The number of the open block.
    number: Mutex<Option<u64>>,
    used: Mutex<u64>,
}

#[pymethods]
impl TransferBudget {
    #[new]
    #[pyo3(signature = (bytes = 0, direction = "any"))]
    fn new(bytes: u64, direction: &str) -> Result<Self> {
        let direction = match direction {
            "any" => Direction::Any,
            "to_host" => Direction::ToHost,
            "to_device" => Direction::ToDevice,
            other => {
                let message = format!("direction {other:?}; there are any, to_host and to_device");
                return Err(Failure::invalid("transfer_budget", message));
            }
        };
        Ok(Self { bytes, direction, number: Mutex::default(), used: Mutex::default() })
    }

    /// The number of bytes that were moved during the block.
    #[getter]
    fn used(&self) -> u64 {
        *crate::lock(&self.used)
    }

    fn __enter__(slf: Py<Self>) -> Result<Py<Self>> {
        let own = slf.get();
        let number = enter(&own.number)?;
        let budget = buffers::TransferBudget::bytes(own.bytes, own.direction);
        BUDGETS.with_borrow_mut(|budgets| budgets.push((number, budget)));
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) -> Result<()> {
        let mut number = crate::lock(&self.number);
        let budget = BUDGETS.with_borrow_mut(|budgets| {
            let place = budgets.iter().position(|(known, _)| Some(*known) == *number)?;
            Some(budgets.remove(place).1)
        });
        *crate::lock(&self.used) = budget.ok_or_else(|| not_entered("thread"))?.used();
        *number = None;
        Ok(())
    }
}
