//! Page-locked memory through which small host slices go: they are copied here, and the driver takes them from here while
//! the caller goes on.

use std::sync::Arc;

use crate::context::{Mark, RawStream};
use crate::pinned::CudaPinned;

/// Pieces of the ring; one is reused when the copies out of it are over.
const SEGMENTS: usize = 4;
/// Most bytes of a slice that goes through here: beyond, copying twice costs more than waiting once.
pub(crate) const MOST_STAGED: usize = 64 << 10;
/// Bytes of the ring.
pub(crate) const RING_BYTES: usize = SEGMENTS * MOST_STAGED;
/// What pieces begin at multiples of.
const ALIGNMENT: usize = 64;

/// A ring of pieces for the copies of one stream.
#[derive(Debug)]
pub(crate) struct Staging {
    memory: CudaPinned,
    segment: usize,
    used: usize,
    /// The ends of the copies out of each segment, once it was left.
    ends: [Option<Mark>; SEGMENTS],
}

impl Staging {
    /// A ring in memory of [`RING_BYTES`].
    pub(crate) fn new(memory: CudaPinned) -> Self {
        Self { memory, segment: 0, used: 0, ends: Default::default() }
    }

    /// Room for `bytes`, at most [`MOST_STAGED`], for one copy on `stream`. Waits for a copy only where the ring is full.
    pub(crate) fn room(&mut self, stream: &Arc<RawStream>, bytes: usize) -> Result<*mut u8, u32> {
        if self.used + bytes > MOST_STAGED {
            self.ends[self.segment] = Some(stream.mark()?);
            self.segment = (self.segment + 1) % SEGMENTS;
            self.used = 0;
            if let Some(end) = self.ends[self.segment].take() {
                end.wait();
            }
        }
        let at = self.segment * MOST_STAGED + self.used;
        self.used = (self.used + bytes).next_multiple_of(ALIGNMENT);
        Ok(self.memory.address().map_addr(|address| address + at))
    }

    pub(crate) fn into_memory(self) -> CudaPinned {
        self.memory
    }
}
