//! Memory of host devices: blocks that the host also addresses.
#![expect(
    unsafe_code,
    reason = "implements the contract's unsafe memory traits and adopts foreign memory"
)]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backend_support::{Block, Span};
use runtime_core::contract::{DeviceMemory, DevicePinned, MemoryAt, MemoryPool, PinnedAt, own};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Result};

/// Memory, pinned or not, of any host device.
#[derive(Debug)]
pub(crate) struct HostMemory(Arc<Block>);

// SAFETY: a block has its length and stays in place until it is no longer used.
unsafe impl DeviceMemory for HostMemory {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        Some(self.0.pointer().as_ptr())
    }

    fn native(&self) -> NativeHandle {
        let raw = self.0.pointer().as_ptr().expose_provenance();
        NativeHandle { api: "host", kind: NativeKind::Pointer, raw }
    }
}

// SAFETY: as above.
unsafe impl DevicePinned for HostMemory {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn ptr(&self) -> *mut u8 {
        self.0.pointer().as_ptr()
    }
}

impl HostMemory {
    /// Memory of `bytes` bytes at a pointer handle of another owner.
    ///
    /// # Safety
    ///
    /// As [`MemoryAdoption::adopt`](runtime_core::contract::MemoryAdoption::adopt).
    pub(crate) unsafe fn adopt(
        handle: NativeHandle,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let pointer = std::ptr::with_exposed_provenance_mut(handle.raw);
        let pointer = match NonNull::new(pointer) {
            Some(pointer) if handle.api == "host" && handle.kind == NativeKind::Pointer => pointer,
            _ => {
                let message = format!("{handle:?} is no host pointer");
                return Err(Error::new(ErrorKind::InvalidArgument, "memory_adopt", message));
            }
        };
        // SAFETY: the caller guarantees the bytes and the owner.
        Ok(Self(unsafe { Block::adopt(pointer, bytes, owner) }))
    }

    /// The host memory of `bytes` bytes at `first`.
    ///
    /// # Safety
    ///
    /// As [`HostRegistration::register`](runtime_core::contract::HostRegistration::register).
    pub(crate) unsafe fn registered(first: NonNull<u8>, bytes: usize) -> Self {
        // SAFETY: the caller guarantees the bytes, which stay until the registration ends.
        Self(unsafe { Block::adopt(first, bytes, Box::new(())) })
    }

    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.0
    }
}

/// The block behind memory of a host device.
pub(crate) fn block(memory: &dyn DeviceMemory) -> Result<&Arc<Block>> {
    Ok(own::<HostMemory>(memory, "memory")?.block())
}

/// A part of memory of a host device.
pub(crate) fn span(at: MemoryAt<'_>, bytes: usize) -> Result<Span> {
    Span::new(block(at.object)?, at.offset, bytes)
}

/// A part of pinned memory of a host device.
pub(crate) fn pinned_span(at: PinnedAt<'_>, bytes: usize) -> Result<Span> {
    Span::new(own::<HostMemory>(at.object, "memory")?.block(), at.offset, bytes)
}

/// The system's allocator, with accounting of the bytes in use. Nothing is cached.
#[derive(Debug)]
pub(crate) struct Heap {
    used: Arc<AtomicUsize>,
    most: usize,
}

/// A number of bytes that is accounted as used while this lives.
struct Charge {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Heap {
    /// A heap that refuses allocations of more than `most` bytes, which the system might grant without having the
    /// memory.
    pub(crate) fn new(most: usize) -> Self {
        Self { used: Arc::default(), most }
    }

    /// Allocates `bytes` zeroed bytes. They use physical memory once they are touched.
    pub(crate) fn allocate(&self, operation: &'static str, bytes: usize) -> Result<HostMemory> {
        let refused = || {
            let message = format!("{bytes} bytes; the machine has {}", self.most);
            Error::new(ErrorKind::OutOfMemory, operation, message).with_driver("ENOMEM", 12)
        };
        if bytes > self.most {
            return Err(refused());
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge { used: Arc::clone(&self.used), bytes };
        Block::zeroed(bytes, Some(Box::new(charge))).map(HostMemory).ok_or_else(refused)
    }
}

impl MemoryPool for Heap {
    fn reserved_bytes(&self) -> usize {
        self.used_bytes()
    }

    fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn trim(&self, _keep_bytes: usize) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_follows_the_blocks() {
        let heap = Heap::new(1 << 40);
        let memory = heap.allocate("test", 1000).unwrap();
        let span = Span::new(memory.block(), 0, 10).unwrap();
        drop(memory);
        assert_eq!(heap.used_bytes(), 1000);
        drop(span);
        assert_eq!((heap.used_bytes(), heap.reserved_bytes()), (0, 0));
    }

    #[test]
    fn too_much_is_out_of_memory_and_charges_nothing() {
        for most in [usize::MAX, 1 << 20] {
            let heap = Heap::new(most);
            let error = heap.allocate("test", isize::MAX as usize / 2).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert_eq!(error.driver().unwrap().to_string(), "ENOMEM (12)");
            assert_eq!(heap.used_bytes(), 0);
        }
    }

    #[test]
    fn only_host_pointers_are_adopted() {
        let wrong = [
            NativeHandle { api: "cuda", kind: NativeKind::Pointer, raw: 4096 },
            NativeHandle { api: "host", kind: NativeKind::Stream, raw: 4096 },
            NativeHandle { api: "host", kind: NativeKind::Pointer, raw: 0 },
        ];
        for handle in wrong {
            // SAFETY: refused before the address is used.
            let error = unsafe { HostMemory::adopt(handle, 8, Box::new(())) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }
}
