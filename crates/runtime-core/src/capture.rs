//! Captures: streams that keep work enqueued on them for a graph.
#![expect(unsafe_code, reason = "implements the contract's stream by handing enqueues on")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::contract::{DeviceEvent, DeviceKernel, DeviceStream, MemoryAt, PinnedAt, RawArg};
use crate::pinned::PinnedBlock;
use crate::statistics::Counts;
use crate::sync::lock;
use crate::uses::Used;
use crate::{Error, ErrorKind, Launch, NativeHandle, Result};

/// A capture, from its start until it becomes a graph, fails or is abandoned.
pub(crate) struct Capture {
    state: Mutex<State>,
    native: NativeHandle,
    /// The counts of one launch of the graph.
    counts: Counts,
}

struct State {
    /// The backend's stream. `None` once an operation was refused or failed, and after the end of the capture.
    stream: Option<Box<dyn DeviceStream>>,
    kept: UsedObjects,
}

/// The objects that captured work uses, each once and sorted by address. The graph keeps them alive.
#[derive(Default)]
pub(crate) struct UsedObjects {
    pub(crate) used: BTreeMap<usize, Arc<dyn Used>>,
    /// Pinned memory, and whether captured work writes it.
    pub(crate) pinned: BTreeMap<usize, (Arc<PinnedBlock>, bool)>,
}

impl State {
    /// Ends the capture. Returns the backend's stream, unless the capture had already ended, and the kept objects. Drop
    /// them without the lock, because the owners of kept objects may need it.
    fn end(&mut self) -> (Option<Box<dyn DeviceStream>>, UsedObjects) {
        (self.stream.take(), std::mem::take(&mut self.kept))
    }
}

impl Capture {
    pub(crate) fn new(stream: Box<dyn DeviceStream>) -> Arc<Self> {
        let native = stream.native();
        let state = State { stream: Some(stream), kept: UsedObjects::default() };
        Arc::new(Self { state: Mutex::new(state), native, counts: Counts::default() })
    }

    /// Captures the work that `enqueue` enqueues on the backend's stream. A failure or a panic ends the capture,
    /// because a graph without that operation would be wrong.
    pub(crate) fn enqueue<R>(
        &self,
        enqueue: impl FnOnce(&dyn DeviceStream) -> Result<R>,
    ) -> Result<R> {
        let mut state = self.lock();
        let Some(stream) = state.stream.take() else {
            return Err(over("enqueue"));
        };
        let done = enqueue(&*stream);
        let ended = if done.is_ok() {
            state.stream = Some(stream);
            None
        } else {
            Some((stream, state.end()))
        };
        drop(state);
        drop(ended);
        done
    }

    /// Ends the capture because of an operation that cannot be captured.
    pub(crate) fn refuse(&self, operation: &'static str) -> Error {
        let (stream, _kept) = self.lock().end();
        if stream.is_none() {
            return over(operation);
        }
        let message = "cannot be captured: nothing that a capture has enqueued runs before its graph is launched";
        Error::new(ErrorKind::InvalidArgument, operation, message)
    }

    /// Keeps an object that captured work uses and that a caller borrows for this call. After the end of the capture
    /// nothing is kept.
    pub(crate) fn keep(&self, used: Option<Arc<dyn Used>>) {
        let mut state = self.lock();
        if let Some(used) = used
            && state.stream.is_some()
        {
            state.kept.used.insert(Arc::as_ptr(&used).addr(), used);
        }
    }

    pub(crate) fn keep_pinned(&self, block: &Arc<PinnedBlock>, writes: bool) {
        let mut state = self.lock();
        if state.stream.is_some() {
            let kept = state.kept.pinned.entry(Arc::as_ptr(block).addr());
            kept.or_insert_with(|| (Arc::clone(block), false)).1 |= writes;
        }
    }

    /// Ends the capture. Returns the backend's stream, unless an operation failed, and the objects that the graph
    /// keeps.
    pub(crate) fn finish(&self) -> (Option<Box<dyn DeviceStream>>, UsedObjects) {
        self.lock().end()
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cold]
fn over(operation: &'static str) -> Error {
    let message = "the stream's capture is over, or has ended with an operation that failed";
    Error::new(ErrorKind::InvalidArgument, operation, message)
}

/// The stream of a capture, as the front's types use it. It passes enqueues on and refuses other operations.
pub(crate) struct CaptureStream(pub(crate) Arc<Capture>);

// SAFETY: enqueues are passed on unchanged, and nothing else is done.
unsafe impl DeviceStream for CaptureStream {
    unsafe fn memory_copy(&self, src: MemoryAt<'_>, dst: MemoryAt<'_>, bytes: usize) -> Result<()> {
        // SAFETY: the caller guarantees the ranges.
        self.0.enqueue(|to| unsafe { to.memory_copy(src, dst, bytes) })
    }

    unsafe fn memory_copy_to(&self, _: MemoryAt<'_>, _: &[u8]) -> Result<()> {
        Err(self.0.refuse("copy_from_slice"))
    }

    unsafe fn memory_copy_from(&self, _: MemoryAt<'_>, _: &mut [u8]) -> Result<()> {
        Err(self.0.refuse("copy_to_slice"))
    }

    unsafe fn pinned_copy_to(
        &self,
        src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller guarantees the ranges.
        self.0.enqueue(|to| unsafe { to.pinned_copy_to(src, dst, bytes) })
    }

    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller guarantees the ranges.
        self.0.enqueue(|to| unsafe { to.pinned_copy_from(src, dst, bytes) })
    }

    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()> {
        // SAFETY: the caller guarantees the range.
        self.0.enqueue(|to| unsafe { to.memory_fill(dst, bytes, pattern) })
    }

    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        // SAFETY: the caller guarantees the kernel and its arguments.
        self.0.enqueue(|to| unsafe { to.launch(kernel, launch, args) })
    }

    fn record(&self, _: &dyn DeviceEvent) -> Result<()> {
        Err(self.0.refuse("record"))
    }

    fn wait(&self, _: &dyn DeviceEvent) -> Result<()> {
        Err(self.0.refuse("wait"))
    }

    fn query(&self) -> Result<bool> {
        Err(self.0.refuse("is_done"))
    }

    fn synchronize(&self) -> Result<()> {
        Err(self.0.refuse("synchronize"))
    }

    fn take_failure(&self) -> Option<Error> {
        None
    }

    fn native(&self) -> NativeHandle {
        self.0.native
    }
}
