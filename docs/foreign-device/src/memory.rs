//! Memory: a vector behind a lock, and page-locked memory: a fixed block of host memory.

use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runtime_core::bytemuck::cast_slice_mut;
use runtime_core::contract::{DeviceMemory, DevicePinned};
use runtime_core::{NativeHandle, NativeKind};

/// Shared with the work that was enqueued on it, so that freeing is dropping.
#[derive(Clone)]
pub(crate) struct Memory(pub(crate) Arc<Storage>);

pub(crate) struct Storage {
    words: Mutex<Vec<u128>>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Storage { words: Mutex::new(vec![0; bytes.div_ceil(16)]), bytes }))
    }
}

impl Storage {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<u128>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        f(cast_slice_mut(&mut self.lock()))
    }
}

// SAFETY: the length is that of the vector, and there is no host pointer to vouch for.
unsafe impl DeviceMemory for Memory {
    fn len(&self) -> usize {
        self.0.bytes
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        None
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: "foreign", kind: NativeKind::Object, raw: Arc::as_ptr(&self.0).addr() }
    }
}

/// Sixty-four bytes at the alignment that pinned memory promises.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

#[derive(Clone)]
pub(crate) struct Pinned {
    lines: Arc<[UnsafeCell<Line>]>,
    bytes: usize,
}

// SAFETY: the front orders accesses to pinned memory: the host's by waiting, those of two streams by events.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn new(bytes: usize) -> Self {
        let lines = (0..bytes.div_ceil(64)).map(|_| UnsafeCell::new(Line([0; 64])));
        Self { lines: lines.collect(), bytes }
    }
}

// SAFETY: the block holds `bytes` and stays in place while any clone lives.
unsafe impl DevicePinned for Pinned {
    fn len(&self) -> usize {
        self.bytes
    }

    fn ptr(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.lines.as_ptr()).cast()
    }
}
