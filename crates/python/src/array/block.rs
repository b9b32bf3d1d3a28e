//! Memory that several arrays show, and the streams that work on it.
#![expect(unsafe_code, reason = "arrays of one memory are written although they share it")]

use std::sync::Mutex;

use runtime::{Device, Layout, Memory, MemoryView, MemoryViewMut, Result, Stream};

/// Memory of a device, shared by the arrays that show parts of it.
pub(crate) struct Block {
    memory: Memory<u8>,
    /// Those that may have unfinished work on it.
    streams: Mutex<Vec<Stream>>,
}

/// Beyond this many streams, those that are done are forgotten.
const PRUNE_AT: usize = 4;

impl Block {
    pub(crate) fn new(memory: Memory<u8>) -> Self {
        Self { memory, streams: Mutex::default() }
    }

    pub(crate) fn device(&self) -> &Device {
        self.memory.device()
    }

    pub(crate) fn memory(&self) -> &Memory<u8> {
        &self.memory
    }

    /// The elements of `layout` whose element `[0, …, 0]` lies at byte `origin`, to read.
    pub(crate) fn view(&self, origin: usize, layout: &Layout) -> Result<MemoryView<'_>> {
        self.memory.view().with_layout(origin, layout)
    }

    /// The same elements, to write.
    pub(crate) fn view_mut(&self, origin: usize, layout: &Layout) -> Result<MemoryViewMut<'_>> {
        // SAFETY: this crate makes no slice of the memory. Who has its address outside orders accesses with this one's work,
        // which the documentation of the protocols asks for.
        unsafe { self.memory.view_mut_shared() }.with_layout(origin, layout)
    }

    /// Notes that work on the memory was enqueued.
    pub(crate) fn used_on(&self, stream: &Stream) {
        let mut streams = crate::lock(&self.streams);
        if streams.contains(stream) {
            return;
        }
        if streams.len() >= PRUNE_AT {
            streams.retain(|stream| !matches!(stream.is_done(), Ok(true)));
        }
        streams.push(stream.clone());
    }

    /// The streams that may have unfinished work on it.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        let mut streams = crate::lock(&self.streams);
        streams.retain(|stream| !matches!(stream.is_done(), Ok(true)));
        streams.clone()
    }
}
