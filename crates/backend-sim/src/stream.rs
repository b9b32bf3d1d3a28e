//! Streams of simulated devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe stream trait")]

use std::fmt;
use std::sync::{Arc, Mutex};

use backend_support::{Cores, Function, HostLaunch, Queue, Span, Work, lock};
use runtime_core::contract::{
    DeviceEvent, DeviceKernel, DeviceStream, MemoryAt, PinnedAt, RawArg, own,
};
use runtime_core::{Error, Launch, NativeHandle, NativeKind, Result};

use crate::counts::{SimCounts, add_traffic};
use crate::event::SimEvent;
use crate::fault::Operation;
use crate::link::Way;
use crate::memory::{block, pinned_span, span};
use crate::open_device::OpenDevice;
use crate::timing::Lane;

/// A stream on a lane. Other streams that were made from its handle may share the lane.
#[derive(Debug)]
pub(crate) struct SimStream {
    lane: Arc<Lane>,
    device: Arc<OpenDevice>,
    /// The captured work, if this is a capture's stream. It does not run.
    capture: Option<Mutex<Vec<Captured>>>,
}

/// Work of a graph.
pub(crate) struct Captured {
    operation: Operation,
    /// The direction of a copy between host and device.
    way: Option<Way>,
    work: Work,
    count: Box<dyn Fn(&mut SimCounts) + Send + Sync>,
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.operation, self.work)
    }
}

impl SimStream {
    pub(crate) fn new(queue: Queue, device: &Arc<OpenDevice>) -> Self {
        let lane = Arc::new(Lane { queue, timing: device.next_timing() });
        device.lanes.note(Arc::as_ptr(&lane).addr(), &lane);
        Self::on(lane, device)
    }

    /// A stream on a lane.
    pub(crate) fn on(lane: Arc<Lane>, device: &Arc<OpenDevice>) -> Self {
        Self { lane, device: Arc::clone(device), capture: None }
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.lane.queue
    }

    /// The same stream, but it captures enqueued work.
    pub(crate) fn capturing(self) -> Self {
        Self { capture: Some(Mutex::default()), ..self }
    }

    /// Takes the work captured so far.
    pub(crate) fn captured(&self) -> Vec<Captured> {
        let Some(capture) = &self.capture else { return Vec::new() };
        std::mem::take(&mut *lock(capture))
    }

    /// Enqueues captured work as one task, which ends at the first failure. Fails at once if that is planned for a part
    /// of it.
    pub(crate) fn launch_graph(&self, graph: &Arc<[Captured]>) -> Result<()> {
        self.device.check("launch")?;
        let fates = graph
            .iter()
            .map(|step| Ok((self.device.begin(step.operation)?, self.lane.timing.draw())))
            .collect::<Result<Vec<_>>>()?;
        let (device, steps) = (Arc::clone(&self.device), Arc::clone(graph));
        self.lane.queue.submit(move || {
            steps.iter().zip(fates).try_for_each(|(step, (fate, pause))| {
                pause.take();
                device.carry_out(fate, || perform(&device, step.way, &step.work))
            })
        })?;
        self.device.tally.add(|counts| graph.iter().for_each(|step| (step.count)(counts)));
        Ok(())
    }

    /// Enqueues work, unless it is planned to fail at once. `count` counts the enqueued work. Captured work is counted,
    /// and fails, at each launch.
    pub(crate) fn enqueue(
        &self,
        operation: Operation,
        work: Work,
        count: impl Fn(&mut SimCounts) + Send + Sync + 'static,
    ) -> Result<()> {
        self.enqueue_over(operation, None, work, count)
    }

    fn enqueue_over(
        &self,
        operation: Operation,
        way: Option<Way>,
        work: Work,
        count: impl Fn(&mut SimCounts) + Send + Sync + 'static,
    ) -> Result<()> {
        if let Some(capture) = &self.capture {
            self.device.check("enqueue")?;
            let captured = Captured { operation, way, work, count: Box::new(count) };
            lock(capture).push(captured);
            return Ok(());
        }
        let fate = self.device.begin(operation)?;
        let (device, pause) = (Arc::clone(&self.device), self.lane.timing.draw());
        self.lane.queue.submit(move || {
            pause.take();
            device.carry_out(fate, || perform(&device, way, &work))
        })?;
        self.device.tally.add(count);
        Ok(())
    }

    fn enqueue_copy(
        &self,
        way: Option<Way>,
        src: Span,
        dst: Span,
        count: impl Fn(&mut SimCounts) + Send + Sync + 'static,
    ) -> Result<()> {
        self.enqueue_over(Operation::Copy, way, Work::Copy { src, dst }, count)
    }

    /// Copies bytes over the link in this thread when its turn comes.
    fn copy_now(&self, way: Way, bytes: usize, copy: impl FnOnce() -> Result<()>) -> Result<()> {
        let fate = self.device.begin(Operation::Copy)?;
        let pause = self.lane.timing.draw();
        let _turn = self.lane.queue.turn()?;
        pause.take();
        self.device.carry_out(fate, || self.device.link.carry(Some(way), bytes, copy))?;
        self.device.check("copy")
    }
}

fn perform(device: &OpenDevice, way: Option<Way>, work: &Work) -> Result<()> {
    let bytes = if way.is_some() { work.bytes() } else { 0 };
    device.link.carry(way, bytes, || work.hold().perform(Cores::SERIAL))
}

/// The queues of streams of simulated devices.
pub(crate) fn queues<'a>(streams: &'a [&'a dyn DeviceStream]) -> impl Iterator<Item = &'a Queue> {
    let own = |stream: &&'a dyn DeviceStream| own::<SimStream>(*stream, "release").ok();
    streams.iter().filter_map(own).map(|stream| &stream.lane.queue)
}

// SAFETY: spans lie inside their blocks, work touches only its spans, a queue runs it in order, and blocking copies no
// longer use their slice when they return.
unsafe impl DeviceStream for SimStream {
    unsafe fn memory_copy(&self, src: MemoryAt<'_>, dst: MemoryAt<'_>, bytes: usize) -> Result<()> {
        let (src, dst) = (span(src, bytes)?, span(dst, bytes)?);
        self.enqueue_copy(None, src, dst, move |counts| add_traffic(&mut counts.on_device, bytes))
    }

    unsafe fn memory_copy_to(&self, dst: MemoryAt<'_>, src: &[u8]) -> Result<()> {
        let dst = span(dst, src.len())?;
        self.copy_now(Way::ToDevice, src.len(), || dst.copy_in(src, Cores::SERIAL))?;
        self.device.tally.add(|counts| add_traffic(&mut counts.to_device, src.len()));
        Ok(())
    }

    unsafe fn memory_copy_from(&self, src: MemoryAt<'_>, dst: &mut [u8]) -> Result<()> {
        let src = span(src, dst.len())?;
        self.copy_now(Way::FromDevice, src.len(), || src.copy_out(dst, Cores::SERIAL))?;
        self.device.tally.add(|counts| add_traffic(&mut counts.from_device, src.len()));
        Ok(())
    }

    unsafe fn pinned_copy_to(
        &self,
        src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (src, dst) = (pinned_span(src, bytes)?, span(dst, bytes)?);
        let way = Some(Way::ToDevice);
        self.enqueue_copy(way, src, dst, move |counts| add_traffic(&mut counts.to_device, bytes))
    }

    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (src, dst) = (span(src, bytes)?, pinned_span(dst, bytes)?);
        let way = Some(Way::FromDevice);
        self.enqueue_copy(way, src, dst, move |counts| add_traffic(&mut counts.from_device, bytes))
    }

    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()> {
        let work = Work::fill(span(dst, bytes)?, pattern);
        self.enqueue(Operation::Copy, work, move |counts| add_traffic(&mut counts.on_device, bytes))
    }

    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let function = own::<Function>(kernel, "launch")?;
        let work = Work::Launch(HostLaunch::new(function.kernel(), launch, args, block)?);
        self.enqueue(Operation::Launch, work, |counts| counts.launches += 1)
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        self.device.check("record")?;
        own::<SimEvent>(event, "record")?.event.record(&self.lane.queue)?;
        self.device.tally.add(|counts| counts.records += 1);
        Ok(())
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<()> {
        self.device.check("wait")?;
        own::<SimEvent>(event, "wait")?.event.hold_up(&self.lane.queue)?;
        self.device.tally.add(|counts| counts.waits += 1);
        Ok(())
    }

    fn query(&self) -> Result<bool> {
        self.device.check("query")?;
        Ok(self.lane.queue.is_idle())
    }

    fn synchronize(&self) -> Result<()> {
        self.device.tally.add(|counts| counts.synchronizations += 1);
        self.lane.queue.synchronize()?;
        self.device.check("synchronize")
    }

    fn take_failure(&self) -> Option<Error> {
        self.lane.queue.take_failure()
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: "sim", kind: NativeKind::Stream, raw: Arc::as_ptr(&self.lane).addr() }
    }
}
