//! Fills of memory.
#![expect(unsafe_code, reason = "enqueues fills through the library")]

use backend_support::Fill;
use runtime_core::Result;

use crate::api::Api;
use crate::stream::Stream;
use crate::vendor::Vendor;

const OPERATION: &str = "memory_fill";

impl<V: Vendor> Stream<V> {
    /// Enqueues a fill of the `bytes` bytes from an address on.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of this device. It consists of whole patterns and is aligned for them.
    pub(crate) unsafe fn fill(&self, to: u64, bytes: usize, fill: Fill) -> Result<()> {
        if let Fill::Pattern(words) = fill {
            // SAFETY: the caller guarantees the range.
            return unsafe { V::fill_pattern(self, to, bytes, words) };
        }
        self.enqueue(OPERATION, "a fill", |api, stream| match fill {
            // SAFETY: the caller guarantees the range.
            Fill::Bytes(value) => unsafe { api.fill_8(to, value, bytes, stream) },
            // SAFETY: as above.
            Fill::Halves(value) => unsafe { api.fill_16(to, value, bytes / 2, stream) },
            // SAFETY: as above.
            Fill::Words(value) | Fill::Pattern([value, ..]) => unsafe {
                api.fill_32(to, value, bytes / 4, stream)
            },
        })
    }
}
