//! Streams of host devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe stream trait")]

use std::sync::{Arc, Mutex};

use backend_support::{Cores, Function, HostLaunch, Move, Queue, Work, lock};
use runtime_core::contract::{
    DeviceEvent, DeviceKernel, DeviceStream, MemoryAt, PinnedAt, RawArg, own,
};
use runtime_core::{Error, Launch, NativeHandle, NativeKind, Result};

use crate::cores::CorePool;
use crate::event::HostEvent;
use crate::memory::{block, pinned_span, span};

/// Work of at most this many bytes takes a few microseconds. Handing it to another thread takes longer.
const INLINE_BYTES: usize = 32 << 10;

/// A stream: its queue, and the cores that large work is distributed over.
///
/// Copies and fills of up to [`INLINE_BYTES`] run in the calling thread if the stream is idle and no other operation
/// holds the memory. Copies that block also run in the calling thread. Everything else runs on the stream's own thread.
#[derive(Debug)]
pub(crate) struct HostStream {
    queue: Queue,
    cores: Arc<CorePool>,
    /// The captured work, if this is a capture's stream. It does not run.
    capture: Option<Mutex<Vec<Work>>>,
}

impl HostStream {
    pub(crate) fn new(queue: Queue, cores: &Arc<CorePool>) -> Self {
        Self { queue, cores: Arc::clone(cores), capture: None }
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The same stream, but it captures enqueued work.
    pub(crate) fn capturing(self) -> Self {
        Self { capture: Some(Mutex::default()), ..self }
    }

    /// Takes the work captured so far.
    pub(crate) fn captured(&self) -> Vec<Work> {
        let Some(capture) = &self.capture else { return Vec::new() };
        std::mem::take(&mut *lock(capture))
    }

    /// Enqueues captured work as one task, which ends at the first failure.
    pub(crate) fn launch_graph(&self, graph: &Arc<[Work]>) -> Result<()> {
        let (cores, graph) = (Arc::clone(&self.cores), Arc::clone(graph));
        self.queue.submit(move || graph.iter().try_for_each(|work| cores.perform(work)))
    }

    pub(crate) fn enqueue(&self, work: Work) -> Result<()> {
        if let Some(capture) = &self.capture {
            lock(capture).push(work);
            return Ok(());
        }
        let small = !matches!(work, Work::Launch(_)) && work.bytes() <= INLINE_BYTES;
        if small
            && let Some(turn) = self.queue.try_turn()
            && let Some(held) = work.try_hold()
        {
            turn.run(|| held.perform(Cores::SERIAL));
            return Ok(());
        }
        let cores = Arc::clone(&self.cores);
        match work {
            Work::Launch(_) => self.queue.submit(move || cores.perform(&work)),
            work => self.queue.submit_move(Moving { work, cores }),
        }
    }
}

/// Work that moves bytes.
struct Moving {
    work: Work,
    cores: Arc<CorePool>,
}

impl Move for Moving {
    fn run(&self) -> Result<()> {
        self.cores.perform(&self.work)
    }

    fn try_run(&self) -> Option<Result<()>> {
        let held = self.work.try_hold()?;
        Some(self.cores.with(|cores| held.perform(cores)))
    }
}

/// The queues of streams of host devices.
pub(crate) fn queues<'a>(streams: &'a [&'a dyn DeviceStream]) -> impl Iterator<Item = &'a Queue> {
    let own = |stream: &&'a dyn DeviceStream| own::<HostStream>(*stream, "release").ok();
    streams.iter().filter_map(own).map(|stream| &stream.queue)
}

// SAFETY: spans lie inside their blocks, work touches only its spans, a queue runs it in order, and blocking copies no
// longer use their slice when they return.
unsafe impl DeviceStream for HostStream {
    unsafe fn memory_copy(&self, src: MemoryAt<'_>, dst: MemoryAt<'_>, bytes: usize) -> Result<()> {
        let (src, dst) = (span(src, bytes)?, span(dst, bytes)?);
        self.enqueue(Work::Copy { src, dst })
    }

    unsafe fn memory_copy_to(&self, dst: MemoryAt<'_>, src: &[u8]) -> Result<()> {
        let dst = span(dst, src.len())?;
        let _turn = self.queue.turn()?;
        self.cores.with(|cores| dst.copy_in(src, cores))
    }

    unsafe fn memory_copy_from(&self, src: MemoryAt<'_>, dst: &mut [u8]) -> Result<()> {
        let src = span(src, dst.len())?;
        let _turn = self.queue.turn()?;
        self.cores.with(|cores| src.copy_out(dst, cores))
    }

    unsafe fn pinned_copy_to(
        &self,
        src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (src, dst) = (pinned_span(src, bytes)?, span(dst, bytes)?);
        self.enqueue(Work::Copy { src, dst })
    }

    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (src, dst) = (span(src, bytes)?, pinned_span(dst, bytes)?);
        self.enqueue(Work::Copy { src, dst })
    }

    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()> {
        self.enqueue(Work::fill(span(dst, bytes)?, pattern))
    }

    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let function = own::<Function>(kernel, "launch")?;
        self.enqueue(Work::Launch(HostLaunch::new(function.kernel(), launch, args, block)?))
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        own::<HostEvent>(event, "record")?.0.record(&self.queue)
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<()> {
        own::<HostEvent>(event, "wait")?.0.hold_up(&self.queue)
    }

    fn query(&self) -> Result<bool> {
        Ok(self.queue.is_idle())
    }

    fn synchronize(&self) -> Result<()> {
        self.queue.synchronize()
    }

    fn take_failure(&self) -> Option<Error> {
        self.queue.take_failure()
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: "host", kind: NativeKind::Stream, raw: self.queue.address() }
    }
}
