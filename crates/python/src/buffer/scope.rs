//! Settings of a thread for the length of a block: its current device, and limits on transfers.

use std::cell::RefCell;
use std::sync::Mutex;

use pyo3::prelude::*;
use runtime::array::{self as buffers, Direction};
use runtime::{Error, ErrorKind};

use super::Place;
use crate::error::{Failure, Result};
use crate::stream::Stream;

thread_local! {
    /// The settings of this thread's open blocks, by number. They cannot leave their thread.
    static BLOCKS: RefCell<Vec<(u64, BlockMemory)>> = const { RefCell::new(Vec::new()) };
}

enum BlockMemory {
    Offload(#[expect(dead_code, reason = "it is held only to be dropped")] buffers::Offload),
    Budget(buffers::TransferBudget),
}

/// The open block of a context manager.
#[derive(Default)]
struct Block(Mutex<Option<u64>>);

impl Block {
    fn enter(&self, held: BlockMemory) -> Result<()> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let mut block = crate::lock(&self.0);
        if block.is_some() {
            return Err(
                Error::new(ErrorKind::Conflict, "with", "the block was entered already").into()
            );
        }
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        BLOCKS.with_borrow_mut(|blocks| blocks.push((number, held)));
        *block = Some(number);
        Ok(())
    }

    fn leave(&self) -> Result<BlockMemory> {
        let mut block = crate::lock(&self.0);
        let held = BLOCKS.with_borrow_mut(|blocks| {
            let place = blocks.iter().position(|(known, _)| Some(*known) == *block)?;
            Some(blocks.remove(place).1)
        });
        let held = held.ok_or_else(|| {
            let message = "the block was not entered by this thread";
            Error::new(ErrorKind::Conflict, "with", message)
        })?;
        *block = None;
        Ok(held)
    }
}

/// The current stream of this thread, or None for the host.
#[pyfunction]
pub(crate) fn here() -> Option<Stream> {
    buffers::here().map(Stream)
}

/// Makes a stream, or the default stream of a device, the current stream of this thread for a ``with`` block.
///
/// Accesses to ArrayBuffers, and operations on DeviceArrays, use the current stream if they name no stream. Blocks
/// nest. Entering and leaving a block copies and frees nothing.
#[pyclass(frozen, name = "offload", module = "device_runtime")]
pub(crate) struct Offload {
    stream: runtime::Stream,
    block: Block,
}

#[pymethods]
impl Offload {
    #[new]
    fn new(to: &Bound<'_, PyAny>) -> Result<Self> {
        match Place::new(Some(to))? {
            Place::Stream(stream) => Ok(Self { stream, block: Block::default() }),
            Place::Host => {
                Err(Failure::invalid("offload", "the host; there are streams and devices"))
            }
        }
    }

    fn __enter__(&self) -> Result<Stream> {
        self.block.enter(BlockMemory::Offload(buffers::offload(&self.stream)))?;
        Ok(Stream(self.stream.clone()))
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) -> Result<()> {
        self.block.leave().map(drop)
    }
}

/// Limits the bytes that accesses to ArrayBuffers in this thread may move during a ``with`` block. An access beyond the
/// limit raises LimitExceededError, and nothing has moved. ``direction`` is any, to_host or to_device. Prefetches do
/// not count.
#[pyclass(frozen, name = "transfer_budget", module = "device_runtime")]
pub(crate) struct TransferBudget {
    bytes: u64,
    direction: Direction,
    block: Block,
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
        Ok(Self { bytes, direction, block: Block::default(), used: Mutex::default() })
    }

    /// The number of bytes that were moved during the block.
    #[getter]
    fn used(&self) -> u64 {
        *crate::lock(&self.used)
    }

    fn __enter__(slf: Py<Self>) -> Result<Py<Self>> {
        let own = slf.get();
        own.block
            .enter(BlockMemory::Budget(buffers::TransferBudget::bytes(own.bytes, own.direction)))?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) -> Result<()> {
        if let BlockMemory::Budget(budget) = self.block.leave()? {
            *crate::lock(&self.used) = budget.used();
        }
        Ok(())
    }
}
