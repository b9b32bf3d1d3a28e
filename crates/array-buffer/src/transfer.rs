//! Copies the bytes of one part between replicas, and fills parts.
#![expect(unsafe_code, reason = "the host's replica is read and written by part")]

use std::iter;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::vec;

use coherence::{HOST, Lane, PartId, PartSet, Reduce, ReplicaId, Set};
use runtime_core::{
    Combine, DType, Element, Error, Event, Layout, Memory, MemoryView, MemoryViewMut, Pinned,
    RegionCopy, RegionPlan, RegionSide, Result, Slot, Stream, Support,
};

use crate::partition::Partition;
use crate::storage::{Storage, zeroed};
use crate::worker::{PieceOf, Progress, Worker};

/// The size of a pinned buffer in bytes.
const PIECE_BYTES: usize = 2 << 20;

/// Pinned memory and plans, which the transfers of one array reuse.
pub(crate) struct Transfers<T: Element> {
    pinned: Vec<(ReplicaId, [Pinned<T>; 2])>,
    plans: Vec<(Key, RegionPlan)>,
    /// The latest direct copies of a part on a lane.
    ends: Vec<((PartId, Lane), Copies)>,
    /// What prefetches of ordinary host memory need.
    prepared: Option<Box<Prepared>>,
}

#[derive(Default)]
struct Prepared {
    /// The threads that prepare copies.
    workers: Vec<Arc<Worker>>,
    /// Copies that a thread prepares, until they are known to need the host's memory no longer.
    jobs: Vec<Job>,
}

/// Copies that a thread prepares for a lane.
struct Job {
    lane: Lane,
    at_host: AtHost,
    progress: Arc<Progress>,
}

/// What copies do with the host's replica.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtHost {
    Nothing,
    Read,
    Write,
}

/// Copies from and to the host's replica.
enum Copies {
    /// They are being enqueued, or that failed.
    Unknown,
    /// The stream's copies from and to page-locked memory, up to an event.
    Until(Event),
    /// Copies that a thread prepares, and whether they write the host's replica.
    Prepared(Arc<Progress>, bool),
    /// They need the host's replica no longer. Whether they wrote it.
    Over(bool),
}

/// What the host waits for.
pub(crate) enum Awaited {
    Nothing,
    Until(Event),
    Job(Arc<Progress>),
    /// A stream, and copies that a thread prepares for it.
    Stream(Vec<Arc<Progress>>),
}

/// A part of a replica, and the task of a plan for it.
type Key = (ReplicaId, PartId, Shape);

/// The task of a region plan for a part. Slot 0 is the array, slot 1 the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Copies from the array to a contiguous row.
    Gather,
    /// Copies from a contiguous row to the array.
    Scatter,
    /// Copies one element to all elements of the part.
    Fill,
}

/// One end of a copy: a replica, and the stream that works on it.
pub(crate) struct End<'a> {
    pub(crate) at: ReplicaId,
    pub(crate) stream: &'a Stream,
}

/// A part to copy or fill.
pub(crate) struct Piece<'a, T: Element> {
    pub(crate) storage: &'a Storage<T>,
    pub(crate) partition: &'a Partition,
    pub(crate) part: PartId,
}

impl<T: Element> Piece<'_, T> {
    fn ranges(&self) -> &[Range<usize>] {
        self.partition.ranges(self.part.into())
    }

    pub(crate) fn len(&self) -> usize {
        self.partition.len(self.part)
    }

    /// The part as a contiguous row of a replica's memory, if it is contiguous there.
    fn row(&self, at: ReplicaId) -> Option<Range<usize>> {
        if self.storage.divided(at).is_some() {
            return Some(0..self.len());
        }
        let mut runs = self.partition.runs(self.part);
        let first = runs.next().unwrap_or(0..0);
        runs.next().is_none().then_some(first)
    }

    /// The contiguous runs of the part in the host's replica, and where each is in a replica's memory.
    fn runs(&self, at: ReplicaId) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let is_own = self.storage.divided(at).is_some();
        let place =
            move |(run, own): (Range<usize>, _)| (run.clone(), if is_own { own } else { run });
        self.partition.packed_runs(self.part).map(place)
    }

    fn view(&self, at: ReplicaId, row: Range<usize>) -> Result<MemoryView<'_, T>> {
        match self.storage.divided(at) {
            Some(divided) => divided.memory(self.part)?.view().slice(row),
            None => self.storage.view(at)?.slice(row),
        }
    }

    fn view_mut(&self, at: ReplicaId, row: Range<usize>) -> Result<MemoryViewMut<'_, T>> {
        match self.storage.divided(at) {
            Some(divided) => divided.view_mut(self.part)?.slice(row),
            None => self.storage.view_mut(at)?.slice(row),
        }
    }

    /// The part in the array's memory, for slot 0 of a region plan.
    fn side(&self) -> RegionSide {
        side_of::<T>(self.partition, self.ranges())
    }

    fn plan(&self, shape: Shape) -> RegionCopy {
        let extents: Vec<usize> = self.ranges().iter().map(Range::len).collect();
        let size = if shape == Shape::Fill { 0 } else { T::DTYPE.size() };
        let strides = self.partition.own_strides(self.part);
        let strides = strides.iter().map(|stride| (stride * size).cast_signed()).collect();
        let row = RegionSide { slot: 1, offset: 0, strides };
        let (source, destination) = match shape {
            Shape::Gather => (self.side(), row),
            Shape::Scatter | Shape::Fill => (row, self.side()),
        };
        RegionCopy {
            dtype: T::DTYPE,
            extents,
            source,
            destination,
            negate: false,
            combine: Combine::Replace,
        }
    }
}

impl<T: Element> Transfers<T> {
    pub(crate) fn new() -> Self {
        Self { pinned: Vec::new(), plans: Vec::new(), ends: Vec::new(), prepared: None }
    }

    /// Drops the pinned memory and plans of a replica's device.
    pub(crate) fn evict(&mut self, at: ReplicaId) {
        self.pinned.retain(|(of, _)| *of != at);
        self.plans.retain(|((of, _, _), _)| *of != at);
        if let Some(Prepared { workers, jobs }) = self.prepared.as_deref_mut()
            && jobs.iter().all(|job| job.progress.is_over())
        {
            // Those of other devices are found again.
            workers.clear();
        }
    }

    /// Blocks until the copies that a thread prepares for a lane need the host's memory no longer, and drops what its
    /// stream needs for them.
    pub(crate) fn forget(&mut self, lane: Lane, stream: &Stream) -> Result<()> {
        self.finish(Some(lane))?;
        if let Some(known) = self.prepared.as_deref_mut() {
            known.workers.retain(|worker| !worker.is_of(stream));
        }
        Ok(())
    }

    /// Drops what is known of parts, which have other numbers from now on. The host has waited for all direct copies.
    pub(crate) fn forget_parts(&mut self) {
        self.plans.clear();
        self.ends.clear();
    }

    /// Copies between a device and the host's replica, which is page-locked for the device, on the device's stream.
    /// Does not block.
    pub(crate) fn direct(
        &mut self,
        piece: &Piece<'_, T>,
        (from, to): (ReplicaId, ReplicaId),
        (lane, stream): (Lane, &Stream),
    ) -> Result<()> {
        let end = match self.begin(piece.part, lane) {
            Copies::Until(end) if end.device().is_same(stream.device()) => end,
            _ => stream.device().event_create(false)?,
        };
        let host = piece.storage.page_locked()?;
        for (run, place) in piece.runs(if to == HOST { from } else { to }) {
            if to == HOST {
                // SAFETY: the state orders the copies of a part with each other and with the host.
                let target = unsafe { host.slice_mut_unordered(run) }?;
                piece.view(from, place)?.copy_to_pinned(stream, target)?;
            } else {
                // SAFETY: as above.
                let source = unsafe { host.slice_unordered(run) }?;
                piece.view_mut(to, place)?.copy_from_pinned(stream, source)?;
            }
        }
        stream.record(&end)?;
        self.end(piece.part, lane, Copies::Until(end));
        Ok(())
    }

    /// Begins direct copies of a part on a lane. Returns the ones before.
    fn begin(&mut self, part: PartId, lane: Lane) -> Copies {
        match self.ends.iter_mut().find(|(of, _)| *of == (part, lane)) {
            Some((_, copies)) => mem::replace(copies, Copies::Unknown),
            None => {
                self.ends.push(((part, lane), Copies::Unknown));
                Copies::Unknown
            }
        }
    }

    fn end(&mut self, part: PartId, lane: Lane, now: Copies) {
        if let Some((_, copies)) = self.ends.iter_mut().find(|(of, _)| *of == (part, lane)) {
            *copies = now;
        }
    }

    /// Copies between a device and the host's replica, which is ordinary memory, on the device's stream. A thread
    /// prepares the copies. Does not block.
    pub(crate) fn prepared(
        &mut self,
        piece: &Piece<'_, T>,
        (from, to): (ReplicaId, ReplicaId),
        (lane, stream): (Lane, &Stream),
    ) -> Result<()> {
        self.begin(piece.part, lane);
        if piece.len() == 0 {
            self.end(piece.part, lane, Copies::Over(to == HOST));
            return Ok(());
        }
        let worker = self.worker(stream);
        let device = End { at: if to == HOST { from } else { to }, stream };
        let host = piece.storage.host_rows(piece.partition, piece.part)?;
        let mut rows = Rows::new(piece, &device)?;
        let jobs = &mut self.prepared.get_or_insert_default().jobs;
        jobs.retain(|job| !job.progress.is_over());
        // Streams wait for each other on their devices, but the host's memory is read by a thread.
        let written = jobs.iter().filter(|job| job.at_host == AtHost::Write && job.lane != lane);
        let before = written.map(|job| Arc::clone(&job.progress)).collect();
        let mut job = None;
        let done = if to == HOST {
            rows.gather(self, piece, &device)?;
            worker.download(stream, host, &mut job, |memory| rows.fill(piece, &device, memory))
        } else {
            let enqueue = |memory: &PieceOf<'_>| rows.empty(piece, &device, memory);
            worker.upload(stream, host, before, &mut job, enqueue)
        };
        let writes = to == HOST;
        let jobs = &mut self.prepared.get_or_insert_default().jobs;
        // Also if enqueueing has failed: the thread does what was enqueued.
        let at_host = if writes { AtHost::Write } else { AtHost::Read };
        jobs.extend(job.clone().map(|progress| Job { lane, at_host, progress }));
        done?;
        if to != HOST {
            rows.scatter(self, piece, &device)?;
        }
        let copies = job.map_or(Copies::Over(writes), |job| Copies::Prepared(job, writes));
        self.end(piece.part, lane, copies);
        Ok(())
    }

    /// Copies between devices that do not reach each other, through pinned memory of both: a thread copies from one to
    /// the other, and the target's stream waits for it. Does not block.
    pub(crate) fn relay(
        &mut self,
        piece: &Piece<'_, T>,
        from: &End<'_>,
        (lane, to): (Lane, &End<'_>),
    ) -> Result<()> {
        if piece.len() == 0 {
            return Ok(());
        }
        let (source, target) = (self.worker(from.stream), self.worker(to.stream));
        let (mut out, mut into) = (Rows::new(piece, from)?, Rows::new(piece, to)?);
        out.gather(self, piece, from)?;
        let mut job = None;
        let done = source.relay(
            (from.stream, |memory: &PieceOf<'_>| out.fill(piece, from, memory)),
            (&target, to.stream, |memory: &PieceOf<'_>| into.empty(piece, to, memory)),
            piece.len() * size_of::<T>(),
            &mut job,
        );
        let jobs = &mut self.prepared.get_or_insert_default().jobs;
        jobs.retain(|job| !job.progress.is_over());
        let at_host = AtHost::Nothing;
        jobs.extend(job.map(|progress| Job { lane, at_host, progress }));
        done?;
        into.scatter(self, piece, to)
    }

    fn worker(&mut self, stream: &Stream) -> Arc<Worker> {
        let workers = &mut self.prepared.get_or_insert_default().workers;
        if let Some(worker) = workers.iter().find(|worker| worker.is_of(stream)) {
            return Arc::clone(worker);
        }
        let worker = Worker::of(stream);
        workers.push(Arc::clone(&worker));
        worker
    }

    /// Waits until the direct copies of a part that were enqueued on a lane need the host's replica no longer, and for
    /// no later work. Returns whether the copies may have written it: failures of the lane then matter to its values.
    pub(crate) fn see(&mut self, part: PartId, (lane, stream): (Lane, &Stream)) -> Result<bool> {
        let known = self.ends.iter_mut().find(|(of, _)| *of == (part, lane));
        match known.map(|(_, copies)| copies) {
            Some(Copies::Until(end)) => end.wait().map(|()| true),
            Some(copies @ Copies::Prepared(..)) => {
                let Copies::Prepared(job, writes) = &*copies else { return Ok(true) };
                let (done, writes) = (job.wait(), *writes);
                if !done.as_ref().is_err_and(Error::is_refused_wait) {
                    *copies = Copies::Over(writes);
                }
                done.map(|()| writes)
            }
            Some(Copies::Over(writes)) => Ok(*writes),
            Some(Copies::Unknown) | None => {
                self.finish(Some(lane))?;
                stream.synchronize().map(|()| true)
            }
        }
    }

    /// What the host waits for that [`see`](Self::see) would wait for; or, without a part, a wait for a lane.
    pub(crate) fn awaited(&self, part: Option<PartId>, lane: Lane) -> Awaited {
        let known = self.ends.iter().find(|(of, _)| Some(of.0) == part && of.1 == lane);
        match known.map(|(_, copies)| copies) {
            Some(Copies::Until(end)) => Awaited::Until(end.clone()),
            Some(Copies::Prepared(job, _)) => Awaited::Job(Arc::clone(job)),
            Some(Copies::Over(_)) => Awaited::Nothing,
            Some(Copies::Unknown) | None => {
                let jobs = self.jobs().into_iter().filter(|(of, _)| *of == lane);
                Awaited::Stream(jobs.map(|(_, job)| job).collect())
            }
        }
    }

    /// Takes what copies of parts between replicas use, for copies that are made without the lock.
    pub(crate) fn lend(&mut self, places: Set, parts: PartSet) -> Self {
        let mut lent = Self::new();
        for at in places.iter() {
            if let Some(index) = self.pinned.iter().position(|(of, _)| *of == at) {
                lent.pinned.push(self.pinned.swap_remove(index));
            }
        }
        let is_lent = |plan: &mut (Key, RegionPlan)| parts.contains(plan.0.1);
        lent.plans = self.plans.extract_if(.., is_lent).collect();
        lent
    }

    /// The reverse of `lend`.
    pub(crate) fn give_back(&mut self, lent: Self) {
        self.pinned.extend(lent.pinned);
        self.plans.extend(lent.plans);
    }

    /// The copies that a thread prepares for each lane, as far as they may still need the host's memory.
    pub(crate) fn jobs(&self) -> Vec<(Lane, Arc<Progress>)> {
        let jobs = self.prepared.iter().flat_map(|known| &known.jobs);
        jobs.map(|job| (job.lane, Arc::clone(&job.progress))).collect()
    }

    /// Blocks until the copies that a thread prepares for a lane are no longer held up by it, or else until all copies
    /// need the host's memory no longer. The only error is that of a kernel that would wait for itself.
    pub(crate) fn finish(&mut self, lane: Option<Lane>) -> Result<()> {
        let Some(Prepared { jobs, .. }) = self.prepared.as_deref_mut() else { return Ok(()) };
        let concerns = |job: &&Job| match lane {
            Some(lane) => lane == job.lane,
            None => job.at_host != AtHost::Nothing,
        };
        for job in jobs.iter().filter(concerns) {
            job.progress.wait_for_end()?;
        }
        jobs.retain(|job| !job.progress.is_over());
        Ok(())
    }

    /// Copies between devices that reach each other. Does not block.
    pub(crate) fn between_peers(
        &mut self,
        piece: &Piece<'_, T>,
        from: &End<'_>,
        to: &End<'_>,
    ) -> Result<()> {
        let rows = (piece.row(from.at), piece.row(to.at));
        let native = [from, to].iter().all(|end| copies_regions(end.stream));
        if !native && (rows.0.is_none() || rows.1.is_none()) {
            let mut runs = piece.runs(from.at).zip(piece.runs(to.at));
            return runs.try_for_each(|((_, from_run), (_, to_run))| {
                let source = piece.view(from.at, from_run)?;
                piece.view_mut(to.at, to_run)?.copy_from_device(to.stream, &source, from.stream)
            });
        }
        let packed;
        let source = match rows.0 {
            Some(row) => piece.view(from.at, row)?,
            None => {
                let mut memory = from.stream.device().memory_allocate::<T>(piece.len())?;
                self.run(piece, Shape::Gather, from, &mut memory)?;
                packed = memory;
                packed.view()
            }
        };
        if let Some(row) = rows.1 {
            return piece.view_mut(to.at, row)?.copy_from_device(to.stream, &source, from.stream);
        }
        let mut arrived = to.stream.device().memory_allocate::<T>(piece.len())?;
        arrived.view_mut().copy_from_device(to.stream, &source, from.stream)?;
        self.run(piece, Shape::Scatter, to, &mut arrived)
    }

    /// Copies from the host's replica to a device. Blocks until the host's elements are read. If the part is longer
    /// than the two pinned buffers, or if they are in use, the call waits until the device has copied their contents.
    pub(crate) fn upload(&mut self, piece: &Piece<'_, T>, to: &End<'_>) -> Result<()> {
        let mut runs = Runs::new(piece);
        let mut upload = self.begin_upload(piece, to)?;
        let mut send = || {
            while upload.left > 0 {
                let room = upload.room()?;
                let len = room.len();
                // SAFETY: the state lets no access write the part in the host's replica while it is copied.
                runs.fill(room, |start, out| unsafe { piece.storage.read_host(start, out) })?;
                upload.send(len)?;
            }
            Ok(())
        };
        let sent = send();
        self.end_upload(upload, sent)
    }

    /// Copies from a device to the host's replica. Blocks until the copy is finished.
    pub(crate) fn download(&mut self, piece: &Piece<'_, T>, from: &End<'_>) -> Result<()> {
        let mut runs = Runs::new(piece);
        self.read_device(piece, from, |values| {
            // SAFETY: the state lets no access use the part in the host's replica while it is copied.
            runs.empty(values, |start, values| unsafe { piece.storage.write_host(start, values) })
        })
    }

    /// Copies between devices that do not reach each other, through pinned buffers of both: one device fills its
    /// buffers while the other empties its own. Blocks until the source is read, and then as `upload` does.
    pub(crate) fn through_host(
        &mut self,
        piece: &Piece<'_, T>,
        from: &End<'_>,
        to: &End<'_>,
    ) -> Result<()> {
        let mut upload = self.begin_upload(piece, to)?;
        let read = self.read_device(piece, from, |mut values| {
            while !values.is_empty() {
                let room = upload.room()?;
                let (now, later) = values.split_at(values.len().min(room.len()));
                room[..now.len()].copy_from_slice(now);
                upload.send(now.len())?;
                values = later;
            }
            Ok(())
        });
        self.end_upload(upload, read)
    }

    /// Fills a part with the neutral value of `op`.
    pub(crate) fn fill(&mut self, piece: &Piece<'_, T>, to: &End<'_>, op: Reduce) -> Result<()> {
        let value = neutral::<T>(op);
        if let Some(row) = piece.row(to.at) {
            return piece.view_mut(to.at, row)?.fill(to.stream, value);
        }
        if !copies_regions(to.stream) {
            let mut runs = piece.partition.runs(piece.part);
            return runs.try_for_each(|run| piece.view_mut(to.at, run)?.fill(to.stream, value));
        }
        let mut one = to.stream.device().memory_allocate::<T>(1)?;
        one.fill(to.stream, value)?;
        self.run(piece, Shape::Fill, to, &mut one)
    }

    /// Fills a part of the host's replica with the neutral value of `op`.
    pub(crate) fn fill_host(piece: &Piece<'_, T>, op: Reduce) -> Result<()> {
        let value = neutral::<T>(op);
        let mut runs = piece.partition.runs(piece.part);
        runs.try_for_each(|run| {
            // SAFETY: the state has given the part to the access that fills it.
            unsafe { piece.storage.write_host(run.start, &vec![value; run.len()]) }
        })
    }

    /// Reads a part in order, through two pinned buffers: the device fills one while the host empties the other.
    fn read_device(
        &mut self,
        piece: &Piece<'_, T>,
        from: &End<'_>,
        mut take: impl FnMut(&[T]) -> Result<()>,
    ) -> Result<()> {
        let packed;
        let source = match piece.row(from.at) {
            Some(row) => piece.view(from.at, row)?,
            None if copies_regions(from.stream) => {
                let mut memory = from.stream.device().memory_allocate::<T>(piece.len())?;
                self.run(piece, Shape::Gather, from, &mut memory)?;
                packed = memory;
                packed.view()
            }
            None => {
                return piece
                    .partition
                    .runs(piece.part)
                    .try_for_each(|run| take(&piece.view(from.at, run)?.to_vec(from.stream)?));
            }
        };
        let mut pinned = self.take_pinned(from, source.len())?;
        let read = read_through(&mut pinned, &source, from.stream, take);
        self.pinned.push((from.at, pinned));
        read
    }

    /// Prepares to write a part in order.
    fn begin_upload<'a>(
        &mut self,
        piece: &'a Piece<'_, T>,
        to: &'a End<'_>,
    ) -> Result<Upload<'a, T>> {
        let is_row = piece.row(to.at).is_some();
        let is_packed = !is_row && copies_regions(to.stream);
        let packed = if is_packed {
            Some(to.stream.device().memory_allocate::<T>(piece.len())?)
        } else {
            None
        };
        let buffers = if is_row || is_packed {
            Buffers::Pinned(self.take_pinned(to, piece.len())?)
        } else {
            let longest = piece.partition.runs(piece.part).map(|run| run.len()).max();
            Buffers::Plain(zeroed(longest.unwrap_or(0))?)
        };
        let runs = Runs::new(piece);
        Ok(Upload { piece, to, packed, runs, buffers, sent: 0, left: piece.len(), turn: 0 })
    }

    /// Gives the buffers back after an upload that succeeded or failed.
    fn end_upload(&mut self, upload: Upload<'_, T>, sent: Result<()>) -> Result<()> {
        let Upload { piece, to, packed, buffers, .. } = upload;
        if let Buffers::Pinned(pinned) = buffers {
            // Kept for the next copy.
            self.pinned.push((to.at, pinned));
        }
        sent?;
        match packed {
            Some(mut packed) => self.run(piece, Shape::Scatter, to, &mut packed),
            None => Ok(()),
        }
    }

    /// Enqueues a region copy between a part and `other`.
    fn run(
        &mut self,
        piece: &Piece<'_, T>,
        shape: Shape,
        end: &End<'_>,
        other: &mut Memory<T>,
    ) -> Result<()> {
        let key = (end.at, piece.part, shape);
        let index = match self.plans.iter().position(|(of, _)| *of == key) {
            Some(index) => index,
            None => {
                let plan = end.stream.device().plan_regions(&[piece.plan(shape)])?;
                self.plans.push((key, plan));
                self.plans.len() - 1
            }
        };
        let bind = match shape {
            Shape::Gather => [piece.storage.view(end.at)?.into(), Slot::from(other.view_mut())],
            Shape::Scatter | Shape::Fill => {
                [Slot::from(piece.storage.view_mut(end.at)?), other.view().into()]
            }
        };
        let mut bind = bind;
        self.plans[index].1.execute(end.stream, &mut bind)
    }

    /// Takes two pinned buffers of the same size, for copies of `len` elements from or to a device.
    fn take_pinned(&mut self, end: &End<'_>, len: usize) -> Result<[Pinned<T>; 2]> {
        let wanted = len.min(PIECE_BYTES / size_of::<T>());
        let known = self.pinned.iter().position(|(of, _)| *of == end.at);
        if let Some(index) = known {
            let both = self.pinned.swap_remove(index).1;
            if both[0].len() >= wanted {
                return Ok(both);
            }
        }
        let device = end.stream.device();
        Ok([device.pinned_allocate(wanted)?, device.pinned_allocate(wanted)?])
    }
}

/// A part on a device as rows, for copies in pieces from or to pinned memory.
struct Rows<T: Element> {
    /// The part as one row, if it has gaps in the device's memory and the device copies regions.
    packed: Option<Memory<T>>,
    /// Otherwise its rows.
    places: Runs<vec::IntoIter<Range<usize>>>,
}

impl<T: Element> Rows<T> {
    fn new(piece: &Piece<'_, T>, end: &End<'_>) -> Result<Self> {
        let packed = match piece.row(end.at) {
            None if copies_regions(end.stream) => {
                Some(end.stream.device().memory_allocate(piece.len())?)
            }
            _ => None,
        };
        let places: Vec<Range<usize>> = match &packed {
            Some(packed) => iter::once(0..packed.len()).collect(),
            None => piece.runs(end.at).map(|(_, place)| place).collect(),
        };
        Ok(Self { packed, places: Runs { runs: places.into_iter(), now: 0..0 } })
    }

    /// Copies the part to the packed row, if there is one.
    fn gather(&mut self, by: &mut Transfers<T>, of: &Piece<'_, T>, end: &End<'_>) -> Result<()> {
        self.packed.as_mut().map_or(Ok(()), |packed| by.run(of, Shape::Gather, end, packed))
    }

    /// The reverse of `gather`.
    fn scatter(&mut self, by: &mut Transfers<T>, of: &Piece<'_, T>, end: &End<'_>) -> Result<()> {
        self.packed.as_mut().map_or(Ok(()), |packed| by.run(of, Shape::Scatter, end, packed))
    }

    /// Enqueues copies of the next elements to pinned memory, which they fill.
    fn fill(&mut self, of: &Piece<'_, T>, end: &End<'_>, memory: &PieceOf<'_>) -> Result<()> {
        let Self { packed, places } = self;
        places.cut(memory.bytes / size_of::<T>(), |place, at| {
            let view = match packed {
                Some(packed) => packed.view().slice(place)?,
                None => of.view(end.at, place)?,
            };
            let len = view.len() * size_of::<T>();
            let bytes = view.reinterpret(0, &Layout::row(DType::U8, len)?)?.typed::<u8>()?;
            let at = at * size_of::<T>();
            // SAFETY: the worker orders the copies from and to its memory.
            let target = unsafe { memory.pinned.slice_mut_unordered(at..at + len) }?;
            bytes.copy_to_pinned(end.stream, target)
        })
    }

    /// Enqueues copies of all elements in pinned memory to the next elements.
    fn empty(&mut self, of: &Piece<'_, T>, end: &End<'_>, memory: &PieceOf<'_>) -> Result<()> {
        let Self { packed, places } = self;
        places.cut(memory.bytes / size_of::<T>(), |place, at| {
            let view = match packed {
                Some(packed) => packed.view_mut().slice(place)?,
                None => of.view_mut(end.at, place)?,
            };
            let len = view.len() * size_of::<T>();
            let mut bytes = view.reinterpret(0, &Layout::row(DType::U8, len)?)?.typed::<u8>()?;
            let at = at * size_of::<T>();
            // SAFETY: as above.
            let source = unsafe { memory.pinned.slice_unordered(at..at + len) }?;
            bytes.copy_from_pinned(end.stream, source)
        })
    }
}

/// Reads a row in order, through two pinned buffers: the device fills one while the host empties the other.
fn read_through<T: Element>(
    pinned: &mut [Pinned<T>; 2],
    source: &MemoryView<'_, T>,
    stream: &Stream,
    mut take: impl FnMut(&[T]) -> Result<()>,
) -> Result<()> {
    let pieces: Vec<Range<usize>> = cut(source.len(), pinned[0].len()).collect();
    let enqueue = |piece: &Range<usize>, pinned: &mut Pinned<T>| {
        // An upload on another stream may still read the buffer.
        pinned.as_mut_slice()?;
        source.slice(piece.clone())?.copy_to_pinned(stream, pinned)
    };
    if let Some(first) = pieces.first() {
        enqueue(first, &mut pinned[0])?;
    }
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(next) = pieces.get(index + 1) {
            enqueue(next, &mut pinned[(index + 1) % 2])?;
        } else {
            // Only the stream reports whether a copy has failed.
            stream.synchronize()?;
        }
        take(&pinned[index % 2].as_slice()?[..piece.len()])?;
    }
    Ok(())
}

/// A part that is written in order, piece by piece.
struct Upload<'a, T: Element> {
    piece: &'a Piece<'a, T>,
    to: &'a End<'a>,
    /// The part as a row on the device, if it has gaps in the array's memory there.
    packed: Option<Memory<T>>,
    runs: Runs<Box<dyn Iterator<Item = Range<usize>> + 'a>>,
    buffers: Buffers<T>,
    /// The elements that were sent, and those that are left.
    sent: usize,
    left: usize,
    /// The number of pieces that were sent.
    turn: usize,
}

enum Buffers<T: Element> {
    /// Two buffers: the host fills one while the device empties the other.
    Pinned([Pinned<T>; 2]),
    /// Room for one run. Sending it blocks.
    Plain(Vec<T>),
}

impl<T: Element> Upload<'_, T> {
    /// Room for the next elements, at least one if any are left. Waits until the device has emptied it.
    fn room(&mut self) -> Result<&mut [T]> {
        let all = match &mut self.buffers {
            Buffers::Pinned(pinned) => pinned[self.turn % 2].as_mut_slice()?,
            Buffers::Plain(row) => {
                let len = self.runs.rest();
                &mut row[..len]
            }
        };
        let len = all.len().min(self.left);
        Ok(&mut all[..len])
    }

    /// Enqueues the copy of the first elements of the room.
    fn send(&mut self, len: usize) -> Result<()> {
        let stream = self.to.stream;
        let mut target = match &mut self.packed {
            Some(packed) => packed.view_mut().slice(self.sent..self.sent + len)?,
            None => {
                let row = match self.piece.row(self.to.at) {
                    Some(row) => row.start + self.sent..row.start + self.sent + len,
                    None => self.runs.next(len),
                };
                self.piece.view_mut(self.to.at, row)?
            }
        };
        match &self.buffers {
            Buffers::Pinned(pinned) => target.copy_from_pinned(stream, &pinned[self.turn % 2])?,
            Buffers::Plain(row) => target.copy_from_slice(stream, &row[..len])?,
        }
        self.sent += len;
        self.left -= len;
        self.turn += 1;
        Ok(())
    }
}

/// Walks the contiguous runs of a part, in pieces of any length.
struct Runs<I> {
    runs: I,
    now: Range<usize>,
}

impl<'a> Runs<Box<dyn Iterator<Item = Range<usize>> + 'a>> {
    fn new<T: Element>(piece: &'a Piece<'_, T>) -> Self {
        Self { runs: Box::new(piece.partition.runs(piece.part)), now: 0..0 }
    }
}

impl<I: Iterator<Item = Range<usize>>> Runs<I> {
    /// The length of the rest of the current run, or of the next run.
    fn rest(&mut self) -> usize {
        while self.now.is_empty() {
            match self.runs.next() {
                Some(run) => self.now = run,
                None => return 0,
            }
        }
        self.now.len()
    }

    /// The rest of the current run, or the next run; at most `most` elements.
    fn next(&mut self, most: usize) -> Range<usize> {
        if self.rest() == 0 {
            return 0..0;
        }
        let start = self.now.start;
        self.now.start += most.min(self.now.len());
        start..self.now.start
    }

    /// Walks the next `len` elements: calls `each` with a contiguous range, and the number of elements before it.
    fn cut(
        &mut self,
        len: usize,
        mut each: impl FnMut(Range<usize>, usize) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < len {
            let run = self.next(len - done);
            if run.is_empty() {
                break;
            }
            done += run.len();
            each(run.clone(), done - run.len())?;
        }
        Ok(())
    }

    fn fill<T>(
        &mut self,
        mut out: &mut [T],
        read: impl Fn(usize, &mut [T]) -> Result<()>,
    ) -> Result<()> {
        while !out.is_empty() {
            let run = self.next(out.len());
            if run.is_empty() {
                break;
            }
            let (now, later) = out.split_at_mut(run.len());
            read(run.start, now)?;
            out = later;
        }
        Ok(())
    }

    fn empty<T>(
        &mut self,
        mut values: &[T],
        write: impl Fn(usize, &[T]) -> Result<()>,
    ) -> Result<()> {
        while !values.is_empty() {
            let run = self.next(values.len());
            if run.is_empty() {
                break;
            }
            let (now, later) = values.split_at(run.len());
            write(run.start, now)?;
            values = later;
        }
        Ok(())
    }
}

/// A box of an array, for slot 0 of a region plan that is bound to the whole array.
pub(crate) fn side_of<T: Element>(array: &Partition, ranges: &[Range<usize>]) -> RegionSide {
    let size = T::DTYPE.size();
    let places = || ranges.iter().zip(array.strides());
    let offset: usize = places().map(|(range, stride)| range.start * stride).sum();
    let strides = places().map(|(_, stride)| (stride * size).cast_signed()).collect();
    RegionSide { slot: 0, offset: offset * size, strides }
}

fn cut(len: usize, piece: usize) -> impl Iterator<Item = Range<usize>> {
    let piece = piece.max(1);
    (0..len.div_ceil(piece)).map(move |index| index * piece..len.min((index + 1) * piece))
}

fn copies_regions(stream: &Stream) -> bool {
    stream.device().capabilities().region_copy == Support::Native
}

/// The neutral value of `op`. Types without an order have no neutral value for minimum and maximum; such reductions are
/// refused earlier.
fn neutral<T: Element>(op: Reduce) -> T {
    let mut value = T::zeroed();
    let bytes = runtime_core::bytemuck::bytes_of_mut(&mut value);
    let least = op == Reduce::Max;
    let top = match (op, T::DTYPE) {
        (Reduce::Sum | Reduce::Replace, _) => return value,
        (_, DType::U8 | DType::U16 | DType::U32 | DType::U64) => {
            bytes.fill(if least { 0 } else { 0xFF });
            return value;
        }
        (_, DType::I8 | DType::I16 | DType::I32 | DType::I64) => {
            bytes.fill(if least { 0 } else { 0xFF });
            if least { 0x80 } else { 0x7F }
        }
        // Infinities: all bits of the exponent, none of the fraction.
        (_, DType::F16) => fraction(bytes, 0x7C, 0, least),
        (_, DType::BF16) => fraction(bytes, 0x7F, 0x80, least),
        (_, DType::F32) => fraction(bytes, 0x7F, 0x80, least),
        (_, DType::F64) => fraction(bytes, 0x7F, 0xF0, least),
        (_, DType::Bool | DType::C64 | DType::C128 | DType::Record(_)) => return value,
    };
    let last = if cfg!(target_endian = "little") { bytes.len() - 1 } else { 0 };
    bytes[last] = top;
    value
}

/// Sets the byte below the highest one, and returns the highest.
fn fraction(bytes: &mut [u8], high: u8, next: u8, negative: bool) -> u8 {
    let second = if cfg!(target_endian = "little") { bytes.len() - 2 } else { 1 };
    bytes[second] = next;
    if negative { high | 0x80 } else { high }
}

#[cfg(test)]
mod tests {
    use runtime_core::{bf16, f16};

    use super::*;

    #[test]
    fn neutral_values_are_the_extremes() {
        use Reduce::{Max, Min, Sum};
        assert_eq!((neutral::<i32>(Min), neutral::<i32>(Max)), (i32::MAX, i32::MIN));
        assert_eq!((neutral::<i8>(Min), neutral::<i8>(Max)), (i8::MAX, i8::MIN));
        assert_eq!((neutral::<u64>(Min), neutral::<u64>(Max)), (u64::MAX, u64::MIN));
        assert_eq!((neutral::<f32>(Min), neutral::<f32>(Max)), (f32::INFINITY, f32::NEG_INFINITY));
        assert_eq!((neutral::<f64>(Min), neutral::<f64>(Max)), (f64::INFINITY, f64::NEG_INFINITY));
        assert_eq!((neutral::<f16>(Min), neutral::<f16>(Max)), (f16::INFINITY, f16::NEG_INFINITY));
        let extremes = (bf16::INFINITY, bf16::NEG_INFINITY);
        assert_eq!((neutral::<bf16>(Min), neutral::<bf16>(Max)), extremes);
        assert_eq!(neutral::<f64>(Sum), 0.0);
    }
}
