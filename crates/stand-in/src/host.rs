//! Mapped memory: memory that the host and devices can address, and reserved addresses that must not be accessed.
#![expect(unsafe_code, reason = "maps memory, and reads memory of the program")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one access for each width of a cell")]

use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::code::{Code, Result};

/// A mapping of host memory, or memory of the program.
#[derive(Debug)]
pub(crate) struct Host {
    start: NonNull<u8>,
    len: usize,
    is_mapped: bool,
}

// SAFETY: it is only accessed through atomics, on any thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Host {
    /// Maps new memory, which is zero.
    pub(crate) fn map(len: usize) -> Result<Self> {
        Self::new(len, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)
    }

    /// Reserves addresses, without memory. Accessing them ends the process.
    pub(crate) fn reserve(len: usize) -> Result<Self> {
        Self::new(len, ProtFlags::PROT_NONE)
    }

    fn new(len: usize, access: ProtFlags) -> Result<Self> {
        let bytes = NonZero::new(len).ok_or(Code::INVALID_VALUE)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: the system chooses the address, so no other mapping is replaced.
        let start = unsafe { mmap_anonymous(None, bytes, access, flags) };
        let start = start.map_err(|_| Code::OUT_OF_MEMORY)?.cast();
        Ok(Self { start, len, is_mapped: true })
    }

    /// Memory of the program.
    ///
    /// # Safety
    ///
    /// The memory outlives the result. It is only used in the order of the work on it.
    pub(crate) unsafe fn of(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, is_mapped: false }
    }

    pub(crate) fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// An aligned cell of `width` bytes.
    fn cell(&self, at: usize, width: usize) -> *mut u8 {
        assert!(at + width <= self.len, "bytes {at} to {} of {}", at + width, self.len);
        let cell = self.start.as_ptr().wrapping_add(at);
        assert!(cell.addr().is_multiple_of(width), "an unaligned cell");
        cell
    }

    pub(crate) fn load(&self, at: usize, width: usize) -> u64 {
        let cell = self.cell(at, width);
        // SAFETY: the cell is aligned and inside the mapping, which lives as long as `self`.
        unsafe {
            match width {
                1 => AtomicU8::from_ptr(cell).load(Relaxed).into(),
                2 => AtomicU16::from_ptr(cell.cast()).load(Relaxed).into(),
                4 => AtomicU32::from_ptr(cell.cast()).load(Relaxed).into(),
                _ => AtomicU64::from_ptr(cell.cast()).load(Relaxed),
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a cell takes the low bytes")]
    pub(crate) fn store(&self, at: usize, width: usize, value: u64) {
        let cell = self.cell(at, width);
        // SAFETY: as for loads.
        unsafe {
            match width {
                1 => AtomicU8::from_ptr(cell).store(value as u8, Relaxed),
                2 => AtomicU16::from_ptr(cell.cast()).store(value as u16, Relaxed),
                4 => AtomicU32::from_ptr(cell.cast()).store(value as u32, Relaxed),
                _ => AtomicU64::from_ptr(cell.cast()).store(value, Relaxed),
            }
        }
    }

    /// Replaces the old value of 4 or 8 bytes. If the value is another one, returns it.
    #[expect(clippy::cast_possible_truncation, reason = "a cell takes the low bytes")]
    pub(crate) fn exchange(&self, at: usize, width: usize, old: u64, new: u64) -> Result<(), u64> {
        let cell = self.cell(at, width);
        if width == 4 {
            // SAFETY: as for loads.
            let cell = unsafe { AtomicU32::from_ptr(cell.cast()) };
            let result = cell.compare_exchange(old as u32, new as u32, Relaxed, Relaxed);
            result.map(drop).map_err(u64::from)
        } else {
            // SAFETY: as for loads.
            let cell = unsafe { AtomicU64::from_ptr(cell.cast()) };
            cell.compare_exchange(old, new, Relaxed, Relaxed).map(drop)
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.is_mapped {
            return;
        }
        // SAFETY: the mapping was made for this value, and nothing else refers to it from here on.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()), "a mapping of {} bytes", self.len);
    }
}

/// Copies bytes of the program.
///
/// # Safety
///
/// The bytes can be read, and are not written meanwhile.
pub(crate) unsafe fn stage(from: *const u8, len: usize) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(len);
    // SAFETY: the caller guarantees the source, and the vector has room.
    unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
    // SAFETY: these bytes were just written.
    unsafe { bytes.set_len(len) };
    bytes.into_boxed_slice()
}
