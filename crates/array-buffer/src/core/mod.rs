//! The storage and state of one array. Carries out what the transition function decides.
#![expect(unsafe_code, reason = "reads the host's replica, which the state guards")]

mod carry_out;
mod complete;
mod exclusive;
mod home;
mod in_progress;
mod refresh;
mod registered;
mod repartition;
mod resident;
mod running;
mod unify;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coherence::{
    Access, Action, Bytes, Exchange, HOST, Health, LANES, Lane, PartId, PartSet, PartState, Paths,
    REPLICAS, Reduce, Refusal, ReplicaId, Role, Set, Who, plan, readable,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use runtime_core::{
    Device, DeviceKind, Element, Error, ErrorKind, Layout, MemoryView, MemoryViewMut, Result,
    Stream, StreamOptions, Support, reported_failures,
};
use smallvec::SmallVec;

pub(crate) use exclusive::Exclusive;

use in_progress::{Away, Running};
use registered::Refreshing;

use crate::Home;
use crate::call_site::{At, CallSite};
use crate::memory_budget::{Membership, Priority, Room, RoomCause};
use crate::mirror::{CHECKS, HOME, Mirror};
use crate::partition::{Partition, Ranges, layout_of};
use crate::pattern;
use crate::poison::{Poison, Verdict};
use crate::report::{AccessSite, Ledger, TransferReport};
use crate::status::PartStatus;
use crate::storage::{Hold, Storage, User};
use crate::transfer::Transfers;

/// Exclusive accesses look for idle streams when fewer lanes than this are left.
const ROOM: usize = 16;
/// The most streams that copy from one device.
const COPIERS: usize = 4;

/// The data that an array's handles and guards share.
pub(crate) struct Core<T: Element, D> {
    pub(crate) shape: D,
    pub(crate) partition: Partition,
    /// The layout of a replica with memory for the whole array, in any partition.
    pub(crate) layout: Layout,
    pub(crate) storage: Storage<T>,
    pub(crate) mirror: Mirror,
    version: AtomicU64,
    refreshing: Refreshing<Run<T, D>>,
    state: Mutex<State<T>>,
    /// Signalled when a call has made its copies, which it makes without the lock.
    copied: Condvar,
}

struct State<T: Element> {
    parts: Vec<PartState>,
    paths: Paths,
    /// The device of each replica. The host's replica has one if a device works in host memory.
    devices: Vec<Option<Device>>,
    /// Streams by lane. After the lanes come streams that a constant array no longer tracks in a lane; read guards on
    /// them may still be alive.
    lanes: Vec<TrackedStream>,
    /// Lanes that are no longer in use.
    free: Set,
    /// The lanes that copy from devices.
    copiers: Vec<(ReplicaId, Lane)>,
    constant: bool,
    /// The memory budgets of replicas.
    budgets: Box<[(ReplicaId, Arc<Membership>)]>,
    /// The place to which each committed write is copied.
    home: Option<Box<Home>>,
    transfers: Transfers<T>,
    /// The last writer of each part.
    writers: Vec<Writer>,
    /// Counts the changes of each part's state.
    changes: Vec<u64>,
    /// What calls use at the moment that do not hold the lock.
    away: Vec<Away>,
    /// Copies that may not have ended.
    running: Vec<Running>,
    ledger: Ledger,
}

/// The last writer of a part; `None` means the call that made the array.
#[derive(Clone, Copy)]
struct Writer {
    site: Option<AccessSite>,
    /// How the writer ended, for a poisoned part.
    poison: Poison,
}

/// A stream, and the number of its failures that the array has processed.
#[derive(Clone)]
pub(crate) struct TrackedStream {
    stream: Stream,
    failures: u64,
}

impl TrackedStream {
    fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone(), failures: stream.failures() }
    }

    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Whether a failure was reported, to any caller, that the array has not processed yet.
    fn has_failed(&self) -> bool {
        self.stream.failures() != self.failures
    }

    /// Refuses a stream whose failure was reported to another caller.
    fn check(&self) -> Result<()> {
        if !self.has_failed() {
            return Ok(());
        }
        let stream = &self.stream;
        let message = format!("work on {stream:?} has failed, and its failure was reported before");
        Err(Error::new(ErrorKind::DeviceFault, "array", message).on(stream.device().id()))
    }

    /// Waits for all enqueued work. Its failure is an error, even if it was reported to another caller.
    fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()?;
        self.check()
    }
}

/// What is done with the states of all parts after an action: see [`Core::act_then`].
pub(crate) type Then<'a> = dyn FnMut(ReplicaId, &[PartState], &mut [PartState]) + 'a;

/// Runs one exchange of an array, from its begin to its end.
pub(crate) type Run<T, D> =
    dyn FnMut(&Core<T, D>, &Stream, Exchange, CallSite) -> Result<()> + Send;

/// A request for parts: who makes it, and why.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) set: &'a PartSet,
    /// `None` for the host.
    pub(crate) stream: Option<&'a Stream>,
    pub(crate) access: &'static str,
    pub(crate) call_site: CallSite,
    /// Whether it may refresh ghosts: it borrows the whole array, so no other access writes meanwhile, and no guard has
    /// read ghosts that a write has made stale since.
    pub(crate) may_refresh: bool,
    /// Whether a thread may prepare copies between the host and devices, so that the caller does not wait.
    pub(crate) defers: bool,
}

impl<'a> Request<'a> {
    /// A request that may neither refresh ghosts nor defer copies.
    pub(crate) fn new(
        set: &'a PartSet,
        stream: Option<&'a Stream>,
        access: &'static str,
        call_site: CallSite,
    ) -> Self {
        Self { set, stream, access, call_site, may_refresh: false, defers: false }
    }
}

impl<T: Element, D> Core<T, D> {
    pub(crate) fn new(shape: D, partition: Partition) -> Result<Self> {
        let parts: Vec<PartState> = partition.roles().map(PartState::new).collect();
        let mirror = Mirror::new(parts.len());
        mirror.set_extra(CHECKS, pattern::is_default());
        let paths = Paths {
            host: Set::one(HOST),
            peers: [Set::EMPTY; REPLICAS],
            lanes: [0; REPLICAS],
            locked: None,
            direct: PartSet::EMPTY,
            workers: Set::EMPTY,
            relays: Set::EMPTY,
            places: [HOST; LANES],
        };
        Ok(Self {
            layout: partition.layout::<T>()?,
            storage: Storage::new(&partition)?,
            mirror,
            version: AtomicU64::new(0),
            refreshing: Refreshing::new(),
            state: Mutex::new(State {
                writers: vec![Writer::new(None); parts.len()],
                changes: vec![0; parts.len()],
                away: Vec::new(),
                running: Vec::new(),
                parts,
                paths,
                devices: vec![None],
                lanes: Vec::new(),
                free: Set::EMPTY,
                copiers: Vec::new(),
                constant: false,
                budgets: Box::default(),
                home: None,
                transfers: Transfers::new(),
                ledger: Ledger::default(),
            }),
            copied: Condvar::new(),
            shape,
            partition,
        })
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn report(&self) -> TransferReport {
        let state = self.lock();
        state.ledger.report(|at| place(&state.devices, at))
    }

    /// The number of bytes of bookkeeping for this array, without its elements.
    pub(crate) fn bookkeeping_bytes(&self) -> usize {
        let state = self.lock();
        size_of::<Self>()
            + self.mirror.heap_bytes()
            + self.refreshing.heap_bytes()
            + self.partition.heap_bytes()
            + state.parts.capacity() * size_of::<PartState>()
            + state.devices.capacity() * size_of::<Option<Device>>()
            + state.lanes.capacity() * size_of::<TrackedStream>()
            + state.writers.capacity() * size_of::<Writer>()
            + state.changes.capacity() * size_of::<u64>()
            + state.running.capacity() * size_of::<Running>()
    }

    /// Whether all values are valid on the device, or on the host.
    pub(crate) fn is_valid_on(&self, device: Option<&Device>) -> bool {
        let state = self.lock();
        let at = match device {
            None => Some(HOST),
            Some(device) => state.replica(device),
        };
        let valid = |at| move |part: &PartState| part.valid.contains(at);
        at.is_some_and(|at| state.parts.iter().all(valid(at)))
    }

    /// The parts that can be read.
    pub(crate) fn readable(&self) -> PartSet {
        let state = self.lock();
        let all = self.partition.all().set;
        all.iter().filter(|part| readable(&state.parts, *part).is_none()).collect()
    }

    /// The pending reduction, if any.
    pub(crate) fn pending(&self) -> Option<Reduce> {
        self.lock().parts.iter().find_map(|part| part.pending)
    }

    /// The status of a part.
    pub(crate) fn status(&self, part: usize) -> PartStatus {
        let state = self.lock();
        let Some(known) = state.parts.get(part) else { return PartStatus::Uninitialized };
        match (known.health, known.pending) {
            (Health::Uninit, _) => PartStatus::Uninitialized,
            (Health::Poisoned, _) => PartStatus::Poisoned,
            (Health::Writing { .. } | Health::Exchanging { .. }, _) => PartStatus::InUse,
            (Health::Good, Some(op)) => PartStatus::Pending(op),
            (Health::Good, None) if known.valid.is_empty() => PartStatus::Stale,
            (Health::Good, None) => PartStatus::Valid,
        }
    }

    /// The stream that copies from a device that has all of the parts, or else from a device that has some. `None` if
    /// the host has all of them.
    pub(crate) fn common_stream(&self, set: PartSet) -> Option<Stream> {
        let state = self.lock();
        let valid = || set.iter().map(|part| state.parts[usize::from(part)].valid);
        let common = valid().fold(Set::below(REPLICAS), Set::and);
        let any = if common.is_empty() { valid().fold(common, Set::union) } else { common };
        let at = any.iter().find(|at| *at != HOST).filter(|_| !common.contains(HOST))?;
        Some(state.copy_stream(at))
    }

    /// A copy of the host's values of some parts, in the order of the array.
    pub(crate) fn host_copy(&self, set: PartSet) -> Result<Vec<T>> {
        let runs = set.iter().flat_map(|part| self.partition.runs(part));
        // SAFETY: the caller borrows the array to read these parts, so no access writes them.
        unsafe { self.storage.host_copy(runs) }
    }

    /// The box that the parts tile in a replica, bound to a stream.
    // Views are large. Each path makes its result in place, and in one call.
    #[inline]
    pub(crate) fn view(
        &self,
        set: &PartSet,
        at: ReplicaId,
        stream: &Stream,
    ) -> Result<MemoryView<'_, T>> {
        if self.storage.divided(at).is_some() {
            return self.own_view(set, at, stream);
        }
        let whole = self.storage.view(at)?.with_layout(0, &self.layout)?;
        if self.partition.is_all(set) {
            return whole.on_stream(stream);
        }
        whole.region(&self.hull(*set)?)?.on_stream(stream)
    }

    /// The memory of a part that has memory of its own.
    #[cold]
    fn own_view(&self, set: &PartSet, at: ReplicaId, stream: &Stream) -> Result<MemoryView<'_, T>> {
        let layout = self.own_layout(alone(*set)?)?;
        self.span(set, at)?.with_layout(0, &layout)?.on_stream(stream)
    }

    /// As `view`, to write.
    #[inline]
    pub(crate) fn view_mut(&self, set: &PartSet, at: ReplicaId) -> Result<MemoryViewMut<'_, T>> {
        if self.storage.divided(at).is_some() {
            return self.own_view_mut(set, at);
        }
        let whole = self.storage.view_mut(at)?.with_layout(0, &self.layout)?;
        if self.partition.is_all(set) { Ok(whole) } else { whole.region(&self.hull(*set)?) }
    }

    /// As `own_view`, to write.
    #[cold]
    fn own_view_mut(&self, set: &PartSet, at: ReplicaId) -> Result<MemoryViewMut<'_, T>> {
        let layout = self.own_layout(alone(*set)?)?;
        self.span_mut(set, at)?.with_layout(0, &layout)
    }

    /// The layout of a part that has memory of its own.
    fn own_layout(&self, part: PartId) -> Result<Layout> {
        layout_of::<T>(&self.partition.extents(part), &self.partition.own_strides(part))
    }

    /// All elements of a replica from the first to the last of the parts.
    pub(crate) fn span(&self, set: &PartSet, at: ReplicaId) -> Result<MemoryView<'_, T>> {
        match self.storage.divided(at) {
            Some(divided) => Ok(divided.memory(alone(*set)?)?.view()),
            None => self.storage.view(at)?.slice(self.partition.span(*set)),
        }
    }

    /// As `span`, to write.
    pub(crate) fn span_mut(&self, set: &PartSet, at: ReplicaId) -> Result<MemoryViewMut<'_, T>> {
        match self.storage.divided(at) {
            Some(divided) => divided.view_mut(alone(*set)?),
            None => self.storage.view_mut(at)?.slice(self.partition.span(*set)),
        }
    }

    /// The ranges of the box that the parts tile.
    fn hull(&self, set: PartSet) -> Result<Ranges> {
        match self.partition.hull(set) {
            (ranges, true) => Ok(ranges),
            _ => {
                let message = format!("parts {set:?} tile no box; take each by itself");
                Err(Error::new(ErrorKind::InvalidArgument, "view", message))
            }
        }
    }

    /// Blocks until all streams that were used have finished. The streams report their own failures. Returns the
    /// outcome of each wait.
    pub(crate) fn drain(&self) -> Vec<Result<()>> {
        let (lanes, jobs) = {
            let state = self.lock();
            (state.lanes.clone(), state.transfers.jobs())
        };
        let mut drained: Vec<_> = jobs.iter().map(|(_, job)| job.wait()).collect();
        let wait = |stream: &Stream| match stream.record_event().and_then(|end| end.wait()) {
            Err(error) if !error.is_refused_wait() => stream.synchronize(),
            done => done,
        };
        for (lane, known) in lanes.iter().enumerate() {
            // Copies that a kernel must not wait for hold the stream up.
            let holds = |((of, _), done): (&(Lane, _), &Result<()>)| {
                usize::from(*of) == lane && done.as_ref().is_err_and(Error::is_refused_wait)
            };
            if !jobs.iter().zip(&drained).any(holds) {
                drained.push(wait(&known.stream));
            }
        }
        drained
    }

    /// Returns the replica of a stream's device; adds it if it is new.
    pub(crate) fn introduce(&self, stream: &Stream) -> Result<ReplicaId> {
        let mut state = self.lock();
        let (_, at) = state.lane(stream, &self.mirror)?;
        Ok(at)
    }

    /// The streams whose failure would make the values of the parts at a replica doubtful. `None` if these values are
    /// no longer valid, because such a failure was reported.
    pub(crate) fn origins(&self, set: PartSet, at: ReplicaId) -> Option<Vec<TrackedStream>> {
        let state = self.lock();
        let parts = || set.iter().map(|part| &state.parts[usize::from(part)]);
        let lanes = parts().map(|part| part.bytes(at).sources()).fold(Set::EMPTY, Set::union);
        let origins = lanes.iter().map(|lane| state.lanes[usize::from(lane)].clone());
        parts().all(|part| part.valid.contains(at)).then(|| origins.collect())
    }

    /// As `read`, and returns the streams whose failure would make the values doubtful.
    pub(crate) fn read_with_origins(
        &self,
        request: &Request<'_>,
    ) -> Result<(ReplicaId, Vec<TrackedStream>)> {
        loop {
            let (at, _) = self.read(request)?;
            if let Some(origins) = self.origins(*request.set, at) {
                return Ok((at, origins));
            }
        }
    }

    /// Brings parts up to date on a stream, and waits until the work of other streams that the values came through is
    /// done.
    pub(crate) fn see_origins(&self, request: &Request<'_>) -> Result<()> {
        let (_, origins) = self.read_with_origins(request)?;
        let others = origins.iter().filter(|known| request.stream != Some(&known.stream));
        others.into_iter().try_for_each(|known| {
            known.stream.record_event()?.wait()?;
            known.stream.check()?;
            known.check()
        })
    }

    /// Makes the values already at a replica the array's values; for arrays under construction. `set` contains all
    /// owned parts; ghosts outside `set` become stale. All bytes of the replica count as written by `by`, also those
    /// without values. The values came through `origins`.
    pub(crate) fn begin_with(
        &self,
        set: PartSet,
        at: ReplicaId,
        by: Option<&Stream>,
        origins: &[TrackedStream],
    ) -> Result<()> {
        let mut state = self.lock();
        let by = match by {
            Some(stream) => Some(state.lane(stream, &self.mirror)?.0),
            None => None,
        };
        let mut through = Set::EMPTY;
        for known in origins {
            let (lane, _) = state.lane(&known.stream, &self.mirror)?;
            state.lanes[usize::from(lane)].failures = known.failures;
            if by != Some(lane) {
                through.insert(lane);
            }
        }
        let write = Action::Acquire { at, by, access: Access::Write };
        for parts in [self.partition.all().set, self.partition.ghosts().set.and(set)] {
            for action in [write, Action::Commit] {
                // A new state refuses nothing and needs no waits.
                if let Ok(plan) = plan(&state.parts, parts, action, &state.paths) {
                    state.parts = plan.next;
                }
            }
        }
        for part in set.iter() {
            state.parts[usize::from(part)].bytes_mut(at).origins = through;
        }
        // A failure may have been reported since the origins were looked up.
        state.process_failures();
        self.mirror.show(&mut state.parts);
        Ok(())
    }

    /// Brings parts up to date and registers the access. Returns the replica, and what keeps their memory there if the
    /// parts have memory of their own.
    #[inline]
    pub(crate) fn read(&self, request: &Request<'_>) -> Result<(ReplicaId, Option<Hold>)> {
        let hit = match request.stream {
            _ if !self.mirror.includes(reported_failures()) => None,
            Some(stream) => self.mirror.read(request.set, stream.id()),
            None => self.mirror.read_host(request.set).then_some(HOST),
        };
        match hit {
            // No parts are valid everywhere, also where there is no memory.
            Some(at) if !request.set.is_empty() => Ok((at, None)),
            _ => self.act(request, |at, by| Action::Read { at, by }),
        }
    }

    /// Takes parts for writing. Returns the replica, and whether the guard is recorded in the mirror only.
    #[inline(always)]
    pub(crate) fn acquire(
        &self,
        request: &Request<'_>,
        access: Access,
        alone: bool,
    ) -> Result<(ReplicaId, bool, Option<Hold>)> {
        let at = match request.stream {
            Some(stream) => self.mirror.lane(stream.id()).map(|(lane, at)| (at, Some(lane))),
            None => Some((HOST, None)),
        };
        if let Some((at, who)) = at
            && self.acquire_quickly(request, (at, who), access, alone)
        {
            return Ok((at, true, None));
        }
        let (at, hold) = self.act(request, |at, by| Action::Acquire { at, by, access })?;
        Ok((at, false, hold))
    }

    /// Carries out an action in the place of the request. Returns the replica, and, for an access, what keeps the
    /// memory of parts there that have memory of their own.
    #[cold]
    pub(crate) fn act(
        &self,
        request: &Request<'_>,
        action: impl Fn(ReplicaId, Who) -> Action,
    ) -> Result<(ReplicaId, Option<Hold>)> {
        self.act_then(request, action, None)
    }

    /// As `act`. `then` gets the replica, and the states of all parts before the action and after it.
    pub(crate) fn act_then(
        &self,
        request: &Request<'_>,
        action: impl Fn(ReplicaId, Who) -> Action,
        then: Option<&mut Then<'_>>,
    ) -> Result<(ReplicaId, Option<Hold>)> {
        let mut rooms: Vec<Room<T>> = Vec::new();
        let mut is_first = true;
        let mut looks_ahead = true;
        let mut waited = 0;
        loop {
            let mut state = self.lock();
            let (at, by) = match request.stream {
                None => (HOST, None),
                Some(stream) => {
                    let (lane, at) = state.lane(stream, &self.mirror)?;
                    (at, Some(lane))
                }
            };
            let action = action(at, by);
            if !state.running.is_empty() && !matches!(action, Action::Prefetch { .. }) {
                let is_exchange = matches!(action, Action::Begin { .. });
                let set = if is_exchange { self.partition.all().set } else { *request.set };
                self.check_copies(&mut state, set)?;
            }
            if self.needs_refresh(&state, request, action).is_some() {
                drop(state);
                self.refresh(request, action)?;
                continue;
            }
            let divided = self.storage.divided(at);
            if let (Some(divided), Some(stream)) = (divided, request.stream) {
                let needed = state.needed(*request.set, action);
                let missing: PartSet =
                    needed.iter().filter(|part| !divided.has_memory(*part)).collect();
                let got: PartSet = rooms.iter().map(|room| room.part).collect();
                let budget = state.budget(at)?;
                let Request { access, call_site, .. } = *request;
                let cause = RoomCause { access, call_site, is_charged: is_charged(action) };
                if std::mem::take(&mut is_first) {
                    let overwrites =
                        matches!(action, Action::Acquire { access: Access::Write, .. });
                    let is_prefetch = matches!(action, Action::Prefetch { .. });
                    let bytes = |part| self.bytes(part);
                    looks_ahead = budget.touch(needed, !overwrites, is_prefetch, bytes);
                    if !missing.is_empty() || looks_ahead {
                        // A refused access frees no memory.
                        self.plan(&state, request, action, is_charged(action))?;
                    }
                }
                if missing.and(got) != missing {
                    drop(state);
                    // A part that had memory has left meanwhile, if there are rooms.
                    budget.give_back(std::mem::take(&mut rooms));
                    let lens: SmallVec<[_; 8]> =
                        needed.iter().map(|part| (part, self.partition.len(part))).collect();
                    let waits = Cell::new(0);
                    rooms = budget.rooms(&lens, missing, cause, &waits)?;
                    waited += waits.get();
                    continue;
                }
                if std::mem::take(&mut looks_ahead) {
                    drop(state);
                    budget.look_ahead(needed, cause);
                    continue;
                }
                for room in rooms.drain(..).filter(|room| !divided.has_memory(room.part)) {
                    divided.set(room.part, budget.settle(room));
                }
                // Work of parts that had the memory before may still use it.
                let fresh =
                    |part: &PartId| *state.parts[usize::from(*part)].bytes(at) == Bytes::default();
                needed
                    .iter()
                    .filter(fresh)
                    .try_for_each(|part| divided.wait_for_others(part, stream))?;
            }
            if let Action::Acquire { .. } = action {
                state.wait_for_forgotten(by)?;
            }
            let (place, is_charged) = (Some(at), is_charged(action));
            let prepared = self.prepare(&mut state, request, action, place, is_charged)?;
            let Some(prepared) = prepared else { continue };
            let before = then.is_some().then(|| state.parts.clone());
            let done = self.complete(&mut state, request, action, prepared, place, is_charged);
            if request.defers {
                state.ledger.add_waits(waited);
            }
            if let (Ok(()), Some(before), Some(then)) = (&done, before, then) {
                then(at, &before, &mut state.parts);
            }
            let hold = match (&done, divided, action) {
                (Ok(()), Some(divided), _) if !matches!(action, Action::Prefetch { .. }) => {
                    let Request { access, call_site, .. } = *request;
                    let user = User { what: "a guard", access, call_site };
                    Some(divided.hold(state.needed(*request.set, action), user))
                }
                _ => None,
            };
            self.mirror.show(&mut state.parts);
            return done.map(|()| (at, hold));
        }
    }

    /// Sets what else writes do. The array is borrowed exclusively.
    fn set_extra(&self, extra: u8, on: bool) {
        let mut state = self.lock();
        self.mirror.set_extra(extra, on);
        self.mirror.show(&mut state.parts);
    }

    /// Whether only the borrower of an array that is borrowed exclusively uses its state.
    #[inline]
    pub(crate) fn is_private(&self) -> bool {
        self.mirror.is_private()
    }

    /// Refuses a device where the memory of the array is not one piece in its order.
    pub(crate) fn check_whole(&self, device: &Device) -> Result<()> {
        let at = self.lock().replica(device);
        if at.and_then(|at| self.storage.divided(at)).is_none() {
            return Ok(());
        }
        alone(self.partition.all().set)?;
        if self.partition.memory_len::<T>()? == self.partition.volume() {
            return Ok(());
        }
        let strides = self.partition.strides();
        let message =
            format!("strides {strides:?} have gaps, and memory under a memory budget has none");
        Err(Error::new(ErrorKind::InvalidArgument, "view", message).on(device.id()))
    }

    /// The strides of the array in the memory of a replica.
    pub(crate) fn strides(&self, at: ReplicaId) -> SmallVec<[usize; 4]> {
        match (self.storage.divided(at), alone(self.partition.all().set)) {
            (Some(_), Ok(part)) => self.partition.own_strides(part),
            _ => self.partition.strides().into(),
        }
    }

    /// Sets how long parts stay on a device with a memory budget.
    pub(crate) fn set_priority(
        &self,
        device: &Device,
        set: PartSet,
        priority: Priority,
    ) -> Result<()> {
        let state = self.lock();
        let known = state.replica(device).and_then(|at| state.budget(at).ok());
        let Some(budget) = known else {
            let message = format!("the array has no memory budget for {}", device.id());
            return Err(Error::new(ErrorKind::InvalidArgument, "set_priority", message));
        };
        budget.set_priority(set, priority, |part| self.bytes(part))
    }

    /// As `acquire`, on the host. Returns whether the guard is recorded in the mirror only.
    #[inline(always)]
    pub(crate) fn acquire_host(
        &self,
        request: &Request<'_>,
        access: Access,
        alone: bool,
    ) -> Result<bool> {
        if self.acquire_quickly(request, (HOST, None), access, alone) {
            return Ok(true);
        }
        self.act(request, |at, by| Action::Acquire { at, by, access }).map(|_| false)
    }

    /// Takes parts for writing if that needs no action.
    #[inline(always)]
    fn acquire_quickly(
        &self,
        request: &Request<'_>,
        (at, who): (ReplicaId, Who),
        access: Access,
        alone: bool,
    ) -> bool {
        !request.set.is_empty()
            && self.mirror.includes(reported_failures())
            && self.mirror.write(request.set, at, who, access, request.call_site, alone)
    }

    /// Ends a write guard. `alone` is the value with which the guard was taken.
    #[inline]
    pub(crate) fn end(&self, set: &PartSet, quick: bool, alone: bool, end: Verdict) -> Result<()> {
        if set.is_empty() {
            return Ok(());
        }
        let mut left = *set;
        if quick && !matches!(end, Verdict::Abort(_)) && self.mirror.includes(reported_failures()) {
            let Some(moved) = self.mirror.release_all(set, alone) else {
                match end {
                    Verdict::Commit if alone => {
                        let version = self.version.load(Ordering::Relaxed) + 1;
                        self.version.store(version, Ordering::Release);
                    }
                    Verdict::Commit => {
                        self.version.fetch_add(1, Ordering::AcqRel);
                    }
                    _ => {}
                }
                return Ok(());
            };
            left = moved;
        }
        let (action, poison) = match end {
            Verdict::Commit => (Action::Commit, Poison::Work),
            // The old values may have been lost meanwhile.
            Verdict::Keep => (Action::Keep, Poison::Work),
            Verdict::Abort(poison) => (Action::Abort, poison),
        };
        self.end_slowly(left, action, poison, left != *set)
    }

    #[cold]
    fn end_slowly(&self, set: PartSet, end: Action, poison: Poison, others: bool) -> Result<()> {
        let mut state = self.lock();
        let done = plan(&state.parts, set, end, &state.paths)
            .map_err(|why| state.refused(why, "commit", None, &self.partition))?;
        if done.committed || (others && end == Action::Commit) {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        state.replace(done.next, poison);
        self.mirror.show(&mut state.parts);
        Ok(())
    }

    /// Ends an exchange: as failed if there is a reason, else as successful.
    pub(crate) fn end_exchange(&self, failed: Option<Poison>) -> Result<()> {
        let end = if failed.is_some() { Action::Fail } else { Action::End };
        let all = self.partition.all().set;
        self.end_slowly(all, end, failed.unwrap_or(Poison::Work), false)?;
        if failed.is_none() && self.mirror.has_extra(HOME) {
            self.write_through(all)
        } else {
            Ok(())
        }
    }

    /// Ends an exchange that has done nothing. The parts are as before.
    pub(crate) fn withdraw_exchange(&self) -> Result<()> {
        self.end_slowly(self.partition.all().set, Action::Withdraw, Poison::Work, false)
    }

    /// Brings parts up to date without an access. On the host it waits for them, unless its replica is page-locked.
    pub(crate) fn prefetch(&self, request: &Request<'_>) -> Result<()> {
        self.act(request, |at, by| Action::Prefetch { at, by })?;
        let state = self.lock();
        let is_shared = state.devices[usize::from(HOST)].is_some();
        if request.stream.is_some() || state.paths.locked.is_some() || request.defers && !is_shared
        {
            return Ok(());
        }
        drop(state);
        // A device that works in host memory may still be writing the values there.
        self.read(request).map(drop)
    }

    /// Locks the state. It then includes every guard that was taken in the mirror, and all reported failures.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.include_all(self.state.lock())
    }

    /// As `lock`, for the borrower of an array that is borrowed exclusively. No call for another array with the same
    /// memory budget copies parts meanwhile, or goes on with what it has planned before.
    fn lock_alone(&self) -> MutexGuard<'_, State<T>> {
        let mut state = self.state.lock();
        while state.is_copying() {
            self.copied.wait(&mut state);
        }
        state.changed(self.partition.all().set);
        self.include_all(state)
    }

    fn include_all<'a>(&self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.include(&mut state);
        state
    }

    fn include(&self, state: &mut State<T>) {
        let (taken, failures) = (self.mirror.take_up(&mut state.parts), reported_failures());
        let is_current = self.mirror.includes(failures);
        if !is_current {
            state.process_failures();
        }
        if taken || !is_current {
            self.mirror.show(&mut state.parts);
        }
        if !is_current {
            self.mirror.include(failures);
        }
    }
}

impl Writer {
    fn new(site: Option<AccessSite>) -> Self {
        Self { site, poison: Poison::Forgotten }
    }
}

impl<T: Element> State<T> {
    /// How bytes are copied for a request.
    fn paths_of(&self, request: &Request<'_>) -> Paths {
        if !request.defers {
            return Paths { workers: Set::EMPTY, relays: Set::EMPTY, ..self.paths };
        }
        let is_ordinary = self.paths.locked.is_none() && self.devices[usize::from(HOST)].is_none();
        if is_ordinary { self.paths } else { Paths { workers: Set::EMPTY, ..self.paths } }
    }

    /// Forgets the access records of a lane that is idle and gets no more work.
    fn forget(&mut self, lane: Lane) -> Result<()> {
        let stream = self.lanes[usize::from(lane)].stream.clone();
        self.transfers.forget(lane, &stream)?;
        let all = PartSet::below(self.parts.len());
        if let Ok(plan) = plan(&self.parts, all, Action::Forget { lane }, &self.paths) {
            self.parts = plan.next;
        }
        self.changed(all);
        self.forget_running(lane);
        Ok(())
    }

    /// The budget for the memory of a replica.
    fn budget(&self, at: ReplicaId) -> Result<Arc<Membership>> {
        let known = self.budgets.iter().find(|(of, _)| *of == at);
        known.map(|(_, budget)| Arc::clone(budget)).ok_or_else(|| {
            let message = format!("no memory budget for {}", place(&self.devices, at));
            Error::new(ErrorKind::InvalidArgument, "array", message)
        })
    }

    /// The parts that need memory in the place of an action on `set`.
    fn needed(&self, set: PartSet, action: Action) -> PartSet {
        let concerned = |part: &PartState| match action {
            Action::Begin { exchange: Exchange::Reduce, .. } => {
                part.role == Role::Owned || part.pending.is_some()
            }
            _ => true,
        };
        match action {
            Action::Read { .. } | Action::Acquire { .. } | Action::Prefetch { .. } => set,
            Action::Begin { .. } => {
                let all = (0..=PartId::MAX).zip(&self.parts).filter(|(_, part)| concerned(part));
                all.map(|(part, _)| part).collect()
            }
            _ => PartSet::EMPTY,
        }
    }

    /// Replaces the parts. Parts that are newly poisoned get the reason `poison`.
    fn replace(&mut self, next: Vec<PartState>, poison: Poison) {
        for (part, (old, new)) in self.parts.iter().zip(&next).enumerate() {
            if new.health == Health::Poisoned && old.health != Health::Poisoned {
                self.writers[part].poison = poison;
            }
            self.changes[part] += u64::from(old != new);
        }
        self.parts = next;
    }

    /// The states of these parts have changed, or the lanes and devices that they name.
    fn changed(&mut self, set: PartSet) {
        set.iter().for_each(|part| self.changes[usize::from(part)] += 1);
    }

    /// Processes failures that were reported to other callers.
    fn process_failures(&mut self) {
        for lane in Set::below(self.lanes.len().min(LANES)).iter() {
            if self.lanes[usize::from(lane)].has_failed() {
                self.lose(lane);
            }
        }
    }

    /// Processes a failure on a lane: the values that it wrote are doubtful.
    fn lose(&mut self, lane: Lane) {
        let known = &mut self.lanes[usize::from(lane)];
        known.failures = known.stream.failures();
        let all = PartSet::below(self.parts.len());
        // What a call has enqueued without the lock is not in the state yet, and may have failed.
        self.changed(all);
        if let Ok(plan) = plan(&self.parts, all, Action::Lost { lane }, &self.paths) {
            self.replace(plan.next, Poison::Work);
        }
    }

    /// Processes a wait for a lane that failed, or panicked without an error.
    fn waited(&mut self, on: Lane, error: Option<&Error>) {
        if error.is_some_and(Error::is_refused_wait) {
            return;
        }
        self.lose(on);
        if error.is_none_or(|error| error.kind() != ErrorKind::DeviceLost) {
            return;
        }
        // A lost device does no more work, so nothing needs to wait for its streams.
        let device = self.lanes[usize::from(on)].stream.device().clone();
        for lane in Set::below(self.lanes.len().min(LANES)).iter() {
            if self.lanes[usize::from(lane)].stream.device().is_same(&device) {
                self.lose(lane);
                // A kernel cannot wait for itself. A later access does it.
                let _forgotten = self.forget(lane);
            }
        }
    }

    /// The stream that copies from and to a device for no stream in particular.
    fn copy_stream(&self, at: ReplicaId) -> Stream {
        self.lanes[usize::from(self.paths.lanes[usize::from(at)])].stream.clone()
    }

    fn replica(&self, device: &Device) -> Option<ReplicaId> {
        let same =
            |known: &Option<Device>| known.as_ref().is_some_and(|known| known.is_same(device));
        self.devices.iter().position(same).and_then(|at| u8::try_from(at).ok())
    }

    /// Returns the replica of a device; adds it if it is new.
    fn replica_or_new(&mut self, device: &Device, mirror: &Mirror) -> Result<ReplicaId> {
        match self.replica(device) {
            Some(at) => Ok(at),
            None => self.add_device(device, mirror),
        }
    }

    /// Returns the lane and replica of a stream; adds them if they are new.
    fn lane(&mut self, stream: &Stream, mirror: &Mirror) -> Result<(Lane, ReplicaId)> {
        if let Some(known) = mirror.lane(stream.id()) {
            return Ok(known);
        }
        if stream.is_capturing() {
            // As any operation that a capture refuses, this ends it.
            let _ = stream.is_done();
            let message =
                "arrays cannot be captured: a launch of a graph could not check their state";
            let refused = Error::new(ErrorKind::InvalidArgument, "array", message);
            return Err(refused.on(stream.device().id()));
        }
        let at = self.replica_or_new(stream.device(), mirror)?;
        match mirror.lane(stream.id()) {
            Some(known) => Ok(known),
            None => Ok((self.add_lane(stream, at, mirror)?, at)),
        }
    }

    fn add_lane(&mut self, stream: &Stream, at: ReplicaId, mirror: &Mirror) -> Result<Lane> {
        if self.is_full() && self.constant {
            self.forget_idle(mirror)?;
        }
        if self.is_full() {
            self.free_copier(mirror)?;
        }
        let free = self.free.first();
        if self.is_full() {
            let until = match self.constant {
                true => "they are idle",
                false => "an exclusive access finds them idle",
            };
            let message =
                format!("a {}th stream; an array remembers {LANES} until {until}", LANES + 1);
            return Err(Error::new(ErrorKind::LimitExceeded, "array", message));
        }
        let lane = free.unwrap_or(self.lanes.len().to_le_bytes()[0]);
        if !mirror.set_lane(lane, stream.id(), at) {
            let message = format!("{stream:?} is already among the array's streams");
            return Err(Error::new(ErrorKind::Conflict, "array", message));
        }
        self.free.remove(lane);
        match self.lanes.get_mut(usize::from(lane)) {
            Some(known) => *known = TrackedStream::new(stream),
            None => self.lanes.push(TrackedStream::new(stream)),
        }
        self.paths.places[usize::from(lane)] = at;
        mirror.set_crowded(self.is_crowded());
        Ok(lane)
    }

    fn add_device(&mut self, device: &Device, mirror: &Mirror) -> Result<ReplicaId> {
        // One device may work in the host's own memory.
        let shares = device.info().kind == DeviceKind::Host
            && device.unified_memory().is_some()
            && device.capabilities().memory_adoption == Support::Native
            && self.paths.locked.is_none()
            && self.devices[usize::from(HOST)].is_none();
        if shares {
            self.end_direct_copies(mirror)?;
        }
        let at = if shares { usize::from(HOST) } else { self.devices.len() };
        if at == REPLICAS {
            let message =
                format!("a replica on {}; an array has {REPLICAS}, with the host's", device.id());
            return Err(Error::new(ErrorKind::LimitExceeded, "array", message));
        }
        let at = at.to_le_bytes()[0];
        let lane = self.add_copier(device, at, mirror)?;
        match self.devices.get_mut(usize::from(at)) {
            Some(host) => *host = Some(device.clone()),
            None => self.devices.push(Some(device.clone())),
        }
        self.paths.lanes[usize::from(at)] = lane;
        if shares {
            // Plans copy in other ways from now on.
            self.changed(PartSet::below(self.parts.len()));
        }
        if at != HOST && device.capabilities().gates == Support::Native {
            self.paths.workers.insert(at);
            self.paths.relays.insert(at);
        }
        for (other, known) in (0..).zip(&self.devices) {
            let Some(known) = known.as_ref().filter(|_| other != at) else { continue };
            if known.reaches(device) && device.reaches(known) {
                self.paths.peers[usize::from(at)].insert(other);
                self.paths.peers[usize::from(other)].insert(at);
            }
        }
        Ok(at)
    }

    /// Adds a stream that copies from a device.
    fn add_copier(&mut self, device: &Device, at: ReplicaId, mirror: &Mirror) -> Result<Lane> {
        let stream = device.stream_create(&StreamOptions::default())?;
        let lane = self.add_lane(&stream, at, mirror)?;
        self.copiers.push((at, lane));
        Ok(lane)
    }

    /// Lets another stream copy from a device, if the present one is busy. A copy that is enqueued behind one that
    /// waits would wait for the same. Returns whether there is another stream.
    fn choose_copier(&mut self, at: ReplicaId, mirror: &Mirror) -> bool {
        let is_idle = |lane: Lane| {
            matches!(self.lanes[usize::from(lane)].stream.is_done(), Ok(true) | Err(_))
        };
        if is_idle(self.paths.lanes[usize::from(at)]) {
            return false;
        }
        let mut all = self.copiers.iter().filter(|(of, _)| *of == at).map(|(_, lane)| *lane);
        let idle = all.clone().find(|lane| is_idle(*lane));
        let chosen = match (idle, self.devices[usize::from(at)].clone()) {
            (Some(lane), _) => Some(lane),
            (None, Some(device)) if all.clone().count() < COPIERS && !self.is_crowded() => {
                self.add_copier(&device, at, mirror).ok()
            }
            // The one after the present one.
            _ => {
                let present = self.paths.lanes[usize::from(at)];
                let next = all.clone().skip_while(|lane| *lane != present).nth(1);
                next.or(all.next()).filter(|lane| *lane != present)
            }
        };
        if let Some(lane) = chosen {
            self.paths.lanes[usize::from(at)] = lane;
        }
        chosen.is_some()
    }

    /// Waits for the direct copies from and to the host's replica. Other lanes than those of a device that works there
    /// use it no longer, unless the error is that of a kernel that would wait for itself. After other errors, the
    /// values that are lost are known.
    fn end_direct_copies(&mut self, mirror: &Mirror) -> Result<()> {
        self.transfers.finish(None)?;
        let mut ended = Ok(());
        for part in PartSet::below(self.parts.len()).iter() {
            let Bytes { writer, readers, origins } = *self.parts[usize::from(part)].bytes(HOST);
            let copies = |lane: &Lane| self.paths.only_copies(*lane);
            let writer = writer.filter(copies);
            let used: Set = readers.iter().filter(copies).chain(writer).collect();
            // The copies came after the work of the origins.
            let sources: Set = writer.iter().flat_map(|_| origins.iter()).chain(writer).collect();
            for lane in used.union(sources).iter() {
                let known = self.lanes[usize::from(lane)].clone();
                let seen = match used.contains(lane) {
                    true => self.transfers.see(part, (lane, &known.stream)).map(drop),
                    false => Ok(()),
                };
                let is_source = sources.contains(lane);
                let check = || known.stream.check().and_then(|()| known.check());
                if let Err(error) = seen.and_then(|()| if is_source { check() } else { Ok(()) }) {
                    self.waited(lane, Some(&error));
                    if error.is_refused_wait() {
                        mirror.show(&mut self.parts);
                        return Err(error);
                    }
                    ended = ended.and(Err(error));
                }
            }
            let bytes = self.parts[usize::from(part)].bytes_mut(HOST);
            used.iter().for_each(|lane| bytes.readers.remove(lane));
            if writer.is_some() {
                (bytes.writer, bytes.origins) = (None, Set::EMPTY);
            }
        }
        mirror.show(&mut self.parts);
        ended
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.lanes.len() >= LANES && self.free == Set::EMPTY
    }

    /// Whether so few lanes are left that exclusive accesses look for idle streams.
    #[inline]
    fn is_crowded(&self) -> bool {
        self.lanes.len().min(LANES) - self.free.len() > LANES - ROOM
    }

    /// Stops tracking idle streams, except those for copies. A constant array, which notes them behind all lanes, calls
    /// it only if all lanes are in use.
    fn forget_idle(&mut self, mirror: &Mirror) -> Result<()> {
        if self.constant && !self.is_full() {
            return Ok(());
        }
        let settled = self.forget_settled(mirror);
        mirror.set_crowded(self.is_crowded());
        mirror.publish(&self.parts);
        settled
    }

    fn forget_settled(&mut self, mirror: &Mirror) -> Result<()> {
        let kept = self.copiers.iter().map(|(_, lane)| *lane).collect::<Set>().union(self.free);
        let lanes = Set::below(self.lanes.len().min(LANES));
        for lane in lanes.without(kept).iter() {
            let is_free = self.free_lane(lane, mirror)?;
            let idle = &self.lanes[usize::from(lane)];
            let mut noted = self.lanes.iter().skip(LANES);
            if is_free && self.constant && !noted.any(|known| known.stream == idle.stream) {
                self.lanes.push(idle.clone());
            }
        }
        Ok(())
    }

    /// Frees a lane if its stream is idle. Returns whether it is.
    fn free_lane(&mut self, lane: Lane, mirror: &Mirror) -> Result<bool> {
        let is_away = self.away.iter().any(|away| away.lanes.contains(lane));
        if is_away || !matches!(self.lanes[usize::from(lane)].stream.is_done(), Ok(true)) {
            return Ok(false);
        }
        // The stream is idle, so this does not block. It is the last chance to learn whether its writes have failed.
        let wrote = |part: &PartState| part.bytes.iter().any(|b| b.sources().contains(lane));
        if self.parts.iter().any(wrote)
            && let Err(error) = self.lanes[usize::from(lane)].synchronize()
        {
            self.lose(lane);
            return Err(error);
        }
        self.forget(lane)?;
        self.free.insert(lane);
        mirror.clear_lane(lane);
        Ok(true)
    }

    /// Frees the lane of an idle stream that copies, of a device that has another one.
    fn free_copier(&mut self, mirror: &Mirror) -> Result<()> {
        for index in 0..self.copiers.len() {
            let (at, lane) = self.copiers[index];
            if self.paths.lanes[usize::from(at)] != lane && self.free_lane(lane, mirror)? {
                self.copiers.swap_remove(index);
                // Before another stream gets the lane.
                mirror.publish(&self.parts);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes a writer wait for readers whose lanes were dropped. A constant array has a writer only when it ends.
    fn wait_for_forgotten(&self, who: Who) -> Result<()> {
        self.lanes.iter().skip(LANES).try_for_each(|known| match who {
            None => known.stream.synchronize(),
            Some(who) => self.lanes[usize::from(who)].stream.wait(&known.stream.record_event()?),
        })
    }

    /// Describes the last writer of a part, and what happened to it.
    fn last_writer(&self, part: PartId, partition: &Partition) -> String {
        let poison = self.writers[usize::from(part)].poison;
        let poison = match self.parts[usize::from(part)].health {
            // While the guard is alive, no other access can reach this.
            Health::Writing { .. } => Poison::Forgotten,
            _ => poison,
        };
        let poison = match poison {
            Poison::Unwritten(element) => {
                format!("element {:?} was not written", partition.index(element.get()))
            }
            _ => poison.to_string(),
        };
        match self.written_by(part) {
            None => format!("after it was made: {poison}"),
            Some(writer) => format!("{writer}: {poison}"),
        }
    }

    /// Names the access that wrote a part last. `None` if the array was made with its values.
    fn written_by(&self, part: PartId) -> Option<String> {
        let AccessSite { at, access, call_site } = self.writers[usize::from(part)].site?;
        Some(format!("by the {access} on {}{}", place(&self.devices, at), At(call_site)))
    }

    /// Returns the error for a refusal.
    fn refused(
        &self,
        why: Refusal,
        operation: &'static str,
        call_site: Option<CallSite>,
        partition: &Partition,
    ) -> Error {
        let at = call_site.map(|call_site| At(call_site).to_string()).filter(|at| !at.is_empty());
        let access = at.map_or(String::new(), |at| format!(" (access{at})"));
        let (kind, message) = match why {
            Refusal::Uninit(part) => {
                (ErrorKind::Uninitialized, format!("part {part} was never written"))
            }
            Refusal::Poisoned(part) => {
                let remedy = match self.parts[usize::from(part)].role {
                    Role::Owned => "overwrite it as a whole",
                    Role::Ghost => {
                        "exchange (a read does it after `mark_stale`), or overwrite it as a whole"
                    }
                };
                let lost = self.last_writer(part, partition);
                (ErrorKind::Poisoned, format!("part {part} was lost {lost}; {remedy}"))
            }
            Refusal::Stale(part) if self.parts[usize::from(part)].role == Role::Owned => (
                ErrorKind::Stale,
                format!("part {part} has values in no place; overwrite it as a whole"),
            ),
            Refusal::Stale(part) => (
                ErrorKind::Stale,
                format!("ghost part {part} is older than the owned values; exchange"),
            ),
            Refusal::Pending(part, op) => (
                ErrorKind::Stale,
                format!(
                    "part {part} waits for a {op} reduction; exchange, or overwrite all owned parts"
                ),
            ),
            Refusal::Exchanging(part) => {
                (ErrorKind::Conflict, format!("an exchange of part {part} was never ended"))
            }
            Refusal::NothingPending => {
                (ErrorKind::InvalidArgument, "no reduction is pending".to_owned())
            }
            Refusal::LastReplica(part) => (
                ErrorKind::Conflict,
                format!("part {part} is nowhere else; prefetch it to a device first"),
            ),
            Refusal::InUse(part) => (ErrorKind::Conflict, format!("part {part} is in use")),
            Refusal::NotWriting(part) => {
                (ErrorKind::Poisoned, format!("part {part} was lost while it was written"))
            }
        };
        Error::new(kind, operation, message + &access)
    }
}

/// Whether copies of an action count for limits on transfers. Explicit transfers do not.
fn is_charged(action: Action) -> bool {
    !matches!(action, Action::Prefetch { .. } | Action::Evict { .. })
}

/// The only part of the set.
fn alone(set: PartSet) -> Result<PartId> {
    match set.first() {
        Some(part) if set.len() == 1 => Ok(part),
        _ => {
            let message = format!(
                "parts {set:?} have separate memory under a memory budget; take each by itself"
            );
            Err(Error::new(ErrorKind::InvalidArgument, "view", message))
        }
    }
}

/// The name of a replica in reports.
fn place(devices: &[Option<Device>], at: ReplicaId) -> String {
    match devices.get(usize::from(at)) {
        Some(Some(device)) if at != HOST => device.id().to_string(),
        _ => "host".to_owned(),
    }
}

/// Refuses reductions that the element type does not support.
pub(crate) fn check_reduce<T: Element>(op: Reduce) -> Result<()> {
    let admitted = match op {
        Reduce::Sum => T::DTYPE.admits_sum(),
        Reduce::Min | Reduce::Max => T::DTYPE.admits_order(),
        Reduce::Replace => true,
    };
    if admitted {
        return Ok(());
    }
    let message = format!("a {op} reduction of {}", T::DTYPE);
    Err(Error::new(ErrorKind::InvalidArgument, "accumulate", message))
}
