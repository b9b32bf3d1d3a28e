//! Filling memory.
#![expect(unsafe_code, reason = "enqueues fills through the runtime")]

use backend_support::Fill;
use runtime_core::Result;

use crate::context::pointer;
use crate::stream::HipStream;

const OPERATION: &str = "memory_fill";

impl HipStream {
    /// Enqueues filling `bytes` from an address on.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of this device, and is made of whole patterns at aligned places.
    pub(crate) unsafe fn fill(&self, to: u64, bytes: usize, fill: Fill) -> Result<()> {
        if let Fill::Pattern(words) = fill {
            // SAFETY: the caller vouches for the range.
            return unsafe { self.fill_pattern(to, bytes, words) };
        }
        let to = pointer(to);
        self.enqueue(OPERATION, "a fill", |hip, stream| match fill {
            // SAFETY: the caller vouches for the range.
            Fill::Bytes(value) => unsafe { (hip.hipMemsetD8Async)(to, value, bytes, stream) },
            // SAFETY: as above.
            Fill::Halves(value) => unsafe { (hip.hipMemsetD16Async)(to, value, bytes / 2, stream) },
            // SAFETY: as above.
            Fill::Words(value) | Fill::Pattern([value, ..]) => unsafe {
                (hip.hipMemsetD32Async)(to, value.cast_signed(), bytes / 4, stream)
            },
        })
    }

    /// Fills the first words one by one, and then as many again by a copy of what is there, until all are: a kernel would
    /// need a compiler.
    ///
    /// # Safety
    ///
    /// As [`fill`](Self::fill).
    unsafe fn fill_pattern(&self, to: u64, bytes: usize, words: [u32; 4]) -> Result<()> {
        for (word, at) in words.into_iter().zip((0..bytes).step_by(size_of::<u32>())) {
            let to = pointer(to + at as u64);
            self.enqueue(OPERATION, "a fill", |hip, stream| {
                // SAFETY: the caller vouches for the range, in which the word is.
                unsafe { (hip.hipMemsetD32Async)(to, word.cast_signed(), 1, stream) }
            })?;
        }
        let mut there = bytes.min(size_of_val(&words));
        while there < bytes {
            let count = there.min(bytes - there);
            let (from, to) = (pointer(to), pointer(to + there as u64));
            self.enqueue(OPERATION, "a fill", |hip, stream| {
                // SAFETY: as above; the ranges do not overlap.
                unsafe { (hip.hipMemcpyDtoDAsync)(to, from, count, stream) }
            })?;
            there += count;
        }
        Ok(())
    }
}
