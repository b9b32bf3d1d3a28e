//! Device memory of an embedded accelerator, and host memory that is pinned in name only.
#![expect(unsafe_code, reason = "implements the contract's unsafe memory traits")]

use std::sync::Arc;

use backend_support::{Block, Span};
use runtime_core::contract::{DeviceMemory, DevicePinned, MemoryAt, PinnedAt, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use super::heap::Range;

/// Device memory. Work in flight holds the range, so dropping this does not free it early.
#[derive(Debug)]
pub(crate) struct EmbeddedMemory {
    pub(crate) range: Arc<Range>,
    len: usize,
}

impl EmbeddedMemory {
    pub(crate) fn new(range: Range, len: usize) -> Self {
        Self { range: Arc::new(range), len }
    }
}

// SAFETY: a range keeps its length while it is held, and no other range contains any of its bytes.
unsafe impl DeviceMemory for EmbeddedMemory {
    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        None
    }

    fn native(&self) -> NativeHandle {
        let raw = usize::try_from(self.range.address).unwrap_or(usize::MAX);
        NativeHandle { api: "embedded", kind: NativeKind::Pointer, raw }
    }
}

/// Host memory for copies that run while the host continues.
#[derive(Debug)]
pub(crate) struct EmbeddedPinned(pub(crate) Arc<Block>);

// SAFETY: a block keeps its length and address until its last user is gone; it is aligned to at least 64 bytes.
unsafe impl DevicePinned for EmbeddedPinned {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn ptr(&self) -> *mut u8 {
        self.0.pointer().as_ptr()
    }
}

/// A part of device memory that work accesses.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Held while the work may run.
    _range: Arc<Range>,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// A part of memory of an embedded device.
pub(crate) fn part(at: MemoryAt<'_>, bytes: usize) -> Result<Part> {
    let range = &own::<EmbeddedMemory>(at.object, "memory")?.range;
    Ok(Part { _range: Arc::clone(range), address: range.address + at.offset as u64, bytes })
}

/// A part of pinned memory of an embedded device.
pub(crate) fn pinned_span(at: PinnedAt<'_>, bytes: usize) -> Result<Span> {
    Span::new(&own::<EmbeddedPinned>(at.object, "memory")?.0, at.offset, bytes)
}
