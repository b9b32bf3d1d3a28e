//! The transition function: the steps that an action needs, their order, and the state afterwards.

use super::fast_path::{first_hindrance, hindrance, pending};
use super::set::{PartSet, Set};
use super::state::{
    Access, Bytes, HOST, Health, Lane, PartId, PartState, Paths, Reduce, Refusal, ReplicaId, Role,
    Who,
};

/// A request to the transition function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read at a replica.
    Read {
        /// The replica.
        at: ReplicaId,
        /// The user.
        by: Who,
    },
    /// A write guard for a replica.
    Acquire {
        /// The replica.
        at: ReplicaId,
        /// The user.
        by: Who,
        /// The kind of the write.
        access: Access,
    },
    /// The write guard's work is enqueued.
    Commit,
    /// The write guard was not used.
    Keep,
    /// The write guard's work failed.
    Abort,
    /// Make bytes valid at a replica, without an access. If this is the host's replica and page-locked, `by` may be the
    /// stream of its device that copies.
    Prefetch {
        /// The replica.
        at: ReplicaId,
        /// The user.
        by: Who,
    },
    /// Free the memory of parts in a replica. No guard is alive.
    Evict {
        /// The replica.
        at: ReplicaId,
    },
    /// As `Evict`, while guards may be alive.
    MakeRoom {
        /// The replica.
        at: ReplicaId,
    },
    /// Begin an exchange between owned and ghost parts. Applies to all parts.
    Begin {
        /// The replica.
        at: ReplicaId,
        /// The user.
        by: Who,
        /// The direction.
        exchange: Exchange,
    },
    /// The exchange's work is enqueued.
    End,
    /// The exchange's work failed.
    Fail,
    /// The exchange has done nothing.
    Withdraw,
    /// Ghost parts are older than owned values that have changed elsewhere. Applies to all parts.
    Outdate,
    /// A lane reported the failure of work enqueued earlier. Applies to all parts.
    Lost {
        /// The lane.
        lane: Lane,
    },
    /// A lane is idle and gets no more work. Applies to all parts.
    Forget {
        /// The lane.
        lane: Lane,
    },
}

/// The direction of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exchange {
    /// Owned values fill ghost parts.
    Broadcast,
    /// Contributions of ghost parts are combined with owned values.
    Reduce,
}

impl Exchange {
    /// Its name in reports and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
        }
    }
}

/// One thing to do. The order of steps matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `who` waits for everything enqueued on `on` so far.
    Wait {
        /// The user that waits.
        who: Who,
        /// The lane that it waits for.
        on: Lane,
    },
    /// The host waits until the copies of a part that were enqueued on `on` so far need its replica no longer. If they
    /// write it, the host then also knows whether work on `origins` has failed that the copied values came through.
    See {
        /// The part.
        part: PartId,
        /// The lane that copies.
        on: Lane,
        /// Earlier lanes of the copied values.
        origins: Set,
    },
    /// A part's bytes are copied.
    Copy {
        /// The part.
        part: PartId,
        /// The replica that is read.
        from: ReplicaId,
        /// The replica that is written.
        to: ReplicaId,
        /// The user that reads.
        reads: Who,
        /// The user that writes.
        writes: Who,
    },
    /// A part is filled with the neutral value of `op`.
    Fill {
        /// The part.
        part: PartId,
        /// The replica that is filled.
        at: ReplicaId,
        /// The user that fills it.
        by: Who,
        /// The operation whose neutral value it gets.
        op: Reduce,
    },
}

/// The steps to carry out, and the state once they are enqueued.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parts that the action is about.
    used: PartSet,
    /// The parts that the action is about, and those whose states it changes.
    pub set: PartSet,
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// The state of each part, once the steps are enqueued.
    pub next: Vec<PartState>,
    /// Owned values have changed, so the version increases.
    pub committed: bool,
}

/// Plans `action` on the parts in `set`. The given state stays as it is.
///
/// # Errors
///
/// A [`Refusal`] if the state of the parts does not allow the action.
pub fn plan(
    parts: &[PartState],
    set: PartSet,
    action: Action,
    paths: &Paths,
) -> Result<Plan, Refusal> {
    let paths = &paths.during(parts, set, action);
    let set = if let Action::Begin { .. } = action { PartSet::below(parts.len()) } else { set };
    let mut draft =
        Draft { parts: parts.to_vec(), set, steps: Vec::new(), paths, committed: false };
    match action {
        Action::Read { at, by } => draft.read(set, at, by)?,
        Action::Acquire { at, by, access } => draft.acquire(set, at, by, access)?,
        Action::Commit => draft.commit(set)?,
        Action::Keep => draft.keep(set)?,
        Action::Abort => draft.abort(set)?,
        Action::Prefetch { at, by } => draft.prefetch(set, at, by)?,
        Action::Evict { at } => draft.evict(set, at)?,
        Action::MakeRoom { at } => draft.make_room(set, at)?,
        Action::Begin { at, by, exchange } => draft.begin(at, by, exchange)?,
        Action::End => draft.end(),
        Action::Fail => draft.fail(),
        Action::Withdraw => draft.withdraw(),
        Action::Outdate => draft.outdate_ghosts(),
        Action::Lost { lane } => draft.lost(lane),
        Action::Forget { lane } => draft.forget(lane),
    }
    let Draft { parts: mut next, steps, committed, .. } = draft;
    next.iter_mut().for_each(forget_origins);
    let changed =
        (0..=PartId::MAX).zip(parts.iter().zip(&next)).filter(|(_, (old, new))| old != new);
    let changed = changed.map(|(part, _)| part).collect::<PartSet>();
    Ok(Plan { used: set, set: set.union(changed), steps, next, committed })
}

impl Paths {
    /// How bytes are copied for an action. Only a prefetch asks for copies that a thread prepares, and only if no lane
    /// of another device would have to be waited for that uses the host's bytes: a lane cannot wait for lanes that its
    /// device does not reach.
    pub fn during(&self, parts: &[PartState], set: PartSet, action: Action) -> Self {
        let Action::Prefetch { at, .. } = action else {
            return Self { workers: Set::EMPTY, relays: Set::EMPTY, ..*self };
        };
        let waits = |device: ReplicaId, lane: Lane| {
            let of = self.places[usize::from(lane)];
            of == device || self.peers[usize::from(device)].contains(of)
        };
        let can_copy = |device: &ReplicaId| {
            set.iter().all(|part| {
                let Bytes { writer, readers, .. } = *parts[usize::from(part)].bytes(HOST);
                let readers = if at == HOST { readers } else { Set::EMPTY };
                readers.iter().chain(writer).all(|lane| waits(*device, lane))
            })
        };
        let asked = if at == HOST { self.workers } else { self.workers.and(Set::one(at)) };
        Self { workers: asked.iter().filter(can_copy).collect(), ..*self }
    }
}

/// Records a write guard that was given out where [`owner`](super::owner) says that this needs no action.
#[inline]
pub fn take_up(part: &mut PartState, access: Access) {
    // A failure that was reported meanwhile has poisoned the part. It would have poisoned a part with a guard, too.
    if let (Health::Good, Some(at)) = (part.health, part.valid.first()) {
        part.health = Health::Writing { at, access, outdated: false };
    }
}

/// Records that an exchange at a replica keeps the bytes that a ghost part had there `before`, where it writes no
/// others. Returns whether these had values.
pub fn keep(part: &mut PartState, before: &PartState, at: ReplicaId) -> bool {
    let bytes = part.bytes_mut(at);
    let origins = bytes.origins.union(before.bytes(at).sources());
    mark_written(bytes, bytes.writer, origins);
    before.health == Health::Good
}

impl Plan {
    /// Records that the host has waited for all work on a lane, in the states of the parts that the action is about.
    pub fn see(&self, parts: &mut [PartState], on: Lane) {
        for part in self.used.iter() {
            let state = &mut parts[usize::from(part)];
            // The record of a guard stands for its later work, too.
            if state.health == Health::Good {
                state.bytes.iter_mut().for_each(|bytes| see_lane(bytes, on));
            }
        }
    }

    /// The state after the last of some `steps` of this plan has failed: as before, plus the access records of work
    /// that was, or may have been, enqueued. Values whose writers the host has seen finish do not depend on these any
    /// more.
    pub fn interrupted(&self, before: &[PartState], steps: &[Step]) -> Vec<PartState> {
        let mut parts = before.to_vec();
        for (index, step) in steps.iter().enumerate() {
            match *step {
                Step::Wait { who: None, on } if index + 1 < steps.len() => {
                    self.see(&mut parts, on);
                }
                Step::Wait { .. } | Step::See { .. } => {}
                Step::Copy { part, from, to, reads, writes } => {
                    let state = &mut parts[usize::from(part)];
                    mark_read(state.bytes_mut(from), reads);
                    mark_added(state.bytes_mut(to), writes);
                }
                Step::Fill { part, at, by, .. } => {
                    let state = &mut parts[usize::from(part)];
                    if matches!(state.health, Health::Writing { .. }) {
                        // The guard was forgotten, or the part could not be filled.
                        poison(state);
                    }
                    state.valid.remove(at);
                    mark_added(state.bytes_mut(at), by);
                    forget_origins(state);
                }
            }
        }
        parts
    }
}

struct Draft<'a> {
    parts: Vec<PartState>,
    /// The parts that the action is about.
    set: PartSet,
    steps: Vec<Step>,
    paths: &'a Paths,
    committed: bool,
}

impl Draft<'_> {
    fn read(&mut self, set: PartSet, at: ReplicaId, by: Who) -> Result<(), Refusal> {
        self.check_readable(set)?;
        self.bring(set, at, by);
        self.use_to_read(set, at, by);
        Ok(())
    }

    fn prefetch(&mut self, set: PartSet, at: ReplicaId, by: Who) -> Result<(), Refusal> {
        self.check_readable(set)?;
        self.bring(set, at, by);
        Ok(())
    }

    fn acquire(
        &mut self,
        set: PartSet,
        at: ReplicaId,
        by: Who,
        access: Access,
    ) -> Result<(), Refusal> {
        match access {
            Access::ReadWrite => {
                self.check_readable(set)?;
                self.bring(set, at, by);
                self.use_to_change(set, at, by);
            }
            Access::Write => {
                self.drop_pending(set)?;
                self.use_to_write(set, at, by);
            }
            Access::Accumulate(op) => {
                self.check_accumulable(set, op)?;
                let fresh = self.of(Role::Ghost).without(self.pending()).and(set);
                self.bring(set.without(fresh), at, by);
                self.use_to_change(set.without(fresh), at, by);
                self.use_to_write(fresh, at, by);
                self.fill(fresh, at, by, op);
            }
        }
        for part in set.iter() {
            self.part(part).health = Health::Writing { at, access, outdated: false };
        }
        Ok(())
    }

    /// Fills fresh ghost parts with the neutral value of the contributions, if there is one.
    fn fill(&mut self, set: PartSet, at: ReplicaId, by: Who, op: Reduce) {
        for part in set.iter() {
            self.part(part).valid = Set::EMPTY;
            if op != Reduce::Replace {
                self.steps.push(Step::Fill { part, at, by, op });
            }
        }
    }

    fn commit(&mut self, set: PartSet) -> Result<(), Refusal> {
        let mut owned = false;
        for part in set.iter() {
            let (at, access, outdated) = self.writing(part)?;
            let state = self.part(part);
            state.health = Health::Good;
            state.valid = if outdated { Set::EMPTY } else { Set::one(at) };
            owned |= state.role == Role::Owned;
            if let (Role::Ghost, Access::Accumulate(op)) = (state.role, access) {
                // Contributions do not depend on the owned values.
                state.valid = Set::one(at);
                state.pending = Some(op);
            }
        }
        if owned {
            self.outdate_ghosts();
            self.committed = true;
        }
        Ok(())
    }

    fn keep(&mut self, set: PartSet) -> Result<(), Refusal> {
        for part in set.iter() {
            let (_, access, outdated) = self.writing(part)?;
            let state = self.part(part);
            if outdated && access == Access::ReadWrite {
                state.valid = Set::EMPTY;
            }
            let needed = state.role == Role::Owned || state.pending.is_some();
            let gone = needed && state.valid.is_empty();
            state.health = Health::Good;
            if access == Access::Write || gone {
                poison(state);
            }
        }
        Ok(())
    }

    fn abort(&mut self, set: PartSet) -> Result<(), Refusal> {
        for part in set.iter() {
            self.writing(part)?;
            poison(self.part(part));
        }
        Ok(())
    }

    fn make_room(&mut self, set: PartSet, at: ReplicaId) -> Result<(), Refusal> {
        let in_use = |part: &u8| self.parts[usize::from(*part)].user() == Some(at);
        if let Some(part) = set.iter().find(in_use) {
            return Err(Refusal::InUse(part));
        }
        self.evict(set, at)
    }

    fn evict(&mut self, set: PartSet, at: ReplicaId) -> Result<(), Refusal> {
        let last = |part: &u8| {
            let state = &self.parts[usize::from(*part)];
            state.valid == Set::one(at) && state.health == Health::Good
        };
        let moved: PartSet = set.iter().filter(last).collect();
        match moved.first() {
            Some(part) if at == HOST => return Err(Refusal::LastReplica(part)),
            _ => self.bring(moved, HOST, None),
        }
        moved.iter().for_each(|part| self.wait_to_read(part, HOST, None));
        for part in set.without(moved).iter() {
            if let Some(kept) = self.doubtful_without(part, at) {
                self.wait_to_read(part, kept, None);
            }
        }
        for part in set.iter() {
            let state = self.part(part);
            // The guard was forgotten.
            if state.user() == Some(at) {
                poison(state);
            }
            state.valid.remove(at);
            // New memory has no work on it.
            *state.bytes_mut(at) = Bytes::default();
        }
        Ok(())
    }

    /// The replica that keeps a part's values when `at` loses them, if all such replicas depend on work that the values
    /// at `at` do not depend on, such as the copy from `at`. This work may still fail.
    fn doubtful_without(&self, part: PartId, at: ReplicaId) -> Option<ReplicaId> {
        let state = &self.parts[usize::from(part)];
        if !state.valid.contains(at) || state.health != Health::Good {
            return None;
        }
        let known = state.bytes(at).sources();
        let mut others = state.valid.without(Set::one(at)).iter();
        let safe = |other: ReplicaId| state.bytes(other).sources().is_subset(known);
        if others.clone().any(safe) { None } else { others.next() }
    }

    fn begin(&mut self, at: ReplicaId, by: Who, exchange: Exchange) -> Result<(), Refusal> {
        match exchange {
            Exchange::Broadcast => self.begin_broadcast(at, by),
            Exchange::Reduce => self.begin_reduce(at, by),
        }
    }

    fn begin_broadcast(&mut self, at: ReplicaId, by: Who) -> Result<(), Refusal> {
        self.check_readable(self.of(Role::Owned))?;
        self.bring(self.of(Role::Owned), at, by);
        self.use_to_read(self.of(Role::Owned), at, by);
        self.use_to_write(self.of(Role::Ghost), at, by);
        self.combine(self.of(Role::Owned), self.of(Role::Ghost), at);
        self.exchange(self.of(Role::Ghost), at, false);
        Ok(())
    }

    fn begin_reduce(&mut self, at: ReplicaId, by: Who) -> Result<(), Refusal> {
        let Some(op) = pending(&self.parts) else { return Err(Refusal::NothingPending) };
        self.check_accumulable(self.all(), op)?;
        let contributions = self.pending();
        self.bring(self.of(Role::Owned).union(contributions), at, by);
        self.use_to_change(self.of(Role::Owned), at, by);
        self.use_to_read(contributions, at, by);
        self.combine(contributions, self.of(Role::Owned), at);
        self.exchange(self.of(Role::Owned).union(contributions), at, true);
        Ok(())
    }

    fn exchange(&mut self, set: PartSet, at: ReplicaId, reduce: bool) {
        for part in set.iter() {
            self.part(part).health = Health::Exchanging { at, reduce, outdated: false };
        }
    }

    fn end(&mut self) {
        let mut reduced = false;
        for state in &mut self.parts {
            let Health::Exchanging { at, reduce, outdated } = state.health else { continue };
            reduced |= reduce;
            state.health = Health::Good;
            state.pending = None;
            state.valid = if outdated { Set::EMPTY } else { Set::one(at) };
        }
        if reduced {
            self.outdate_ghosts();
            self.committed = true;
        }
    }

    fn fail(&mut self) {
        for state in &mut self.parts {
            if matches!(state.health, Health::Exchanging { .. }) {
                poison(state);
            }
        }
    }

    fn withdraw(&mut self) {
        for state in &mut self.parts {
            let Health::Exchanging { outdated, .. } = state.health else { continue };
            state.health = Health::Good;
            if outdated && state.pending.is_none() {
                state.valid = Set::EMPTY;
            }
        }
    }

    fn lost(&mut self, lane: Lane) {
        for state in &mut self.parts {
            let doubtful = |at: &ReplicaId| state.bytes(*at).sources().contains(lane);
            let left: Set = state.valid.iter().filter(|at| !doubtful(at)).collect();
            let gone = match state.health {
                Health::Good => left != state.valid && left.is_empty(),
                Health::Writing { at, .. } | Health::Exchanging { at, .. } => doubtful(&at),
                Health::Uninit | Health::Poisoned => false,
            };
            state.valid = left;
            if gone {
                poison(state);
            }
        }
    }

    fn forget(&mut self, lane: Lane) {
        for bytes in self.parts.iter_mut().flat_map(|state| state.bytes.iter_mut()) {
            bytes.readers.remove(lane);
            bytes.origins.remove(lane);
            if bytes.writer == Some(lane) {
                bytes.writer = None;
            }
        }
    }

    /// Makes `at` valid by copying the parts that are not valid there.
    fn bring(&mut self, set: PartSet, at: ReplicaId, by: Who) {
        let source = |part: PartId| self.source(part, at);
        let copies: Vec<(PartId, ReplicaId)> =
            set.iter().filter_map(|part| source(part).map(|from| (part, from))).collect();
        // The host learns whether writers have failed before it copies their values on.
        for &(part, from) in
            copies.iter().filter(|(part, from)| self.paths.staged(*part, *from, at))
        {
            self.wait_to_read(part, from, None);
        }
        for (part, from) in copies {
            let source = *self.bytes(part, from);
            let (reads, writes) = self.paths.copiers(part, (from, at), by);
            let staged = self.paths.staged(part, from, at);
            if reads.is_some() {
                self.wait_to_read(part, from, reads);
            }
            self.wait_to_write(part, at, writes);
            self.steps.push(Step::Copy { part, from, to: at, reads, writes });
            // If bytes go through the host, the host has seen the work that produced them finish, and the read, too.
            let mut origins = Set::EMPTY;
            if !staged {
                mark_read(self.bytes(part, from), reads);
                origins = source.sources();
                origins.extend(reads);
            }
            mark_written(self.bytes(part, at), writes, origins);
            self.part(part).valid.insert(at);
        }
    }

    fn use_to_read(&mut self, set: PartSet, at: ReplicaId, by: Who) {
        for part in set.iter() {
            self.wait_to_read(part, at, by);
            mark_read(self.bytes(part, at), by);
        }
    }

    /// The user overwrites all values.
    fn use_to_write(&mut self, set: PartSet, at: ReplicaId, by: Who) {
        for part in set.iter() {
            self.wait_to_write(part, at, by);
            mark_written(self.bytes(part, at), by, Set::EMPTY);
        }
    }

    /// The user changes values; the new values depend on the old ones.
    fn use_to_change(&mut self, set: PartSet, at: ReplicaId, by: Who) {
        for part in set.iter() {
            if by.is_none() {
                self.wait_to_read(part, at, None);
            }
            self.wait_to_write(part, at, by);
            let origins = self.bytes(part, at).sources();
            mark_written(self.bytes(part, at), by, origins);
        }
    }

    /// Records that values of `into` depend on values of `from`. The readers of `from` have waited for them.
    fn combine(&mut self, from: PartSet, into: PartSet, at: ReplicaId) {
        let sources = from.iter().map(|part| self.parts[usize::from(part)].bytes(at).sources());
        let sources = sources.fold(Set::EMPTY, Set::union);
        for part in into.iter() {
            let bytes = self.bytes(part, at);
            mark_written(bytes, bytes.writer, bytes.origins.union(sources));
        }
    }

    /// The best valid replica to copy from, if `at` needs a copy: a peer, else one that is copied directly, else the
    /// host's, else any.
    fn source(&self, part: PartId, at: ReplicaId) -> Option<ReplicaId> {
        let valid = self.parts[usize::from(part)].valid;
        if valid.contains(at) {
            return None;
        }
        let peers = valid.and(self.paths.peers[usize::from(at)]);
        let direct = valid.iter().find(|from| self.paths.is_direct(part, *from, at));
        let host = valid.and(self.paths.host);
        peers.first().or(direct).or(host.first()).or(valid.first())
    }

    /// Makes `who` wait for the writer of a replica's bytes. The host also waits for earlier writers, to learn whether
    /// they have failed.
    fn wait_to_read(&mut self, part: PartId, at: ReplicaId, who: Who) {
        if let (None, HOST) = (who, at) {
            let Bytes { writer, readers, origins } = *self.bytes(part, at);
            if let Some(on) = writer.filter(|on| self.paths.only_copies(*on)) {
                self.steps.push(Step::See { part, on, origins });
                *self.bytes(part, at) = Bytes { readers, ..Bytes::default() };
            }
        }
        if who.is_none() {
            let origins = self.bytes(part, at).origins;
            origins.iter().for_each(|origin| self.wait(None, origin));
        }
        let bytes = *self.bytes(part, at);
        let Some(writer) = bytes.writer else { return };
        if who == Some(writer) || who.is_some_and(|lane| bytes.readers.contains(lane)) {
            return;
        }
        self.wait(who, writer);
        if who.is_none() {
            // The write is finished for every user, but other work may still read on that lane.
            *self.bytes(part, at) = seen_by_host(bytes, writer);
        }
    }

    /// Makes `who` wait for all users of a replica's bytes.
    fn wait_to_write(&mut self, part: PartId, at: ReplicaId, who: Who) {
        let bytes = *self.bytes(part, at);
        let users = bytes.readers.union(bytes.writer.map_or(Set::EMPTY, Set::one));
        for on in users.iter().filter(|user| who != Some(*user)) {
            if who.is_none() && at == HOST && self.paths.only_copies(on) {
                self.steps.push(Step::See { part, on, origins: Set::EMPTY });
            } else {
                self.wait(who, on);
            }
        }
    }

    /// Adds a wait, unless an equal one is planned and nothing was enqueued on `on` since.
    fn wait(&mut self, who: Who, on: Lane) {
        let wait = Step::Wait { who, on };
        let uses = |step: &Step| match *step {
            Step::Wait { .. } | Step::See { .. } => false,
            Step::Copy { part, from, to, reads, writes } => {
                // The host has seen that the source of a copy through it was read.
                let seen = who.is_none() && self.paths.staged(part, from, to);
                reads == Some(on) && !seen || writes == Some(on)
            }
            Step::Fill { by, .. } => by == Some(on),
        };
        let fresh =
            self.steps.iter().rev().take_while(|step| !uses(step)).any(|step| *step == wait);
        if !fresh {
            self.steps.push(wait);
        }
        if who.is_none() {
            // The host would now know of a failure on this lane. Values of other parts may have come through it since.
            for part in self.set.iter() {
                self.part(part).bytes.iter_mut().for_each(|bytes| bytes.origins.remove(on));
            }
        }
    }

    /// Drops pending contributions if all owned values are overwritten. An overwrite of only some of them is refused.
    fn drop_pending(&mut self, set: PartSet) -> Result<(), Refusal> {
        let Some(op) = pending(&self.parts) else { return Ok(()) };
        if !self.of(Role::Owned).is_subset(set) {
            return Err(Refusal::Pending(set.first().unwrap_or(0), op));
        }
        let held = |part: &u8| {
            let state = &self.parts[usize::from(*part)];
            state.pending.is_some() && matches!(state.health, Health::Writing { .. })
        };
        if let Some(part) = self.all().without(set).iter().find(held) {
            return Err(Refusal::Pending(part, op));
        }
        for state in self.parts.iter_mut().filter(|state| state.pending.is_some()) {
            state.pending = None;
            state.valid = Set::EMPTY;
        }
        Ok(())
    }

    /// Contributions can go to parts that have values, and to ghost parts that wait for the same reduction.
    fn check_accumulable(&self, set: PartSet, op: Reduce) -> Result<(), Refusal> {
        let open = self.all().without(set).iter().find_map(|part| {
            let state = &self.parts[usize::from(part)];
            match state.health {
                // Its contributions will be pending.
                Health::Writing { access: Access::Accumulate(other), .. } => {
                    Some(other).filter(|_| state.role == Role::Ghost)
                }
                _ => None,
            }
        });
        let pending = pending(&self.parts);
        if let Some(other) = pending.or(open).filter(|other| *other != op) {
            return Err(Refusal::Pending(set.first().unwrap_or(0), other));
        }
        for part in set.iter() {
            let state = &self.parts[usize::from(part)];
            match hindrance(state, part, pending) {
                None | Some(Refusal::Pending(..)) => {}
                Some(Refusal::Exchanging(_)) => return Err(Refusal::Exchanging(part)),
                // A ghost part is filled anew whatever it holds, unless it holds contributions.
                Some(_) if state.role == Role::Ghost && state.pending.is_none() => {}
                Some(refusal) => return Err(refusal),
            }
        }
        Ok(())
    }

    fn check_readable(&self, set: PartSet) -> Result<(), Refusal> {
        first_hindrance(&self.parts, set).map_or(Ok(()), Err)
    }

    fn outdate_ghosts(&mut self) {
        for state in self.parts.iter_mut().filter(|state| state.role == Role::Ghost) {
            match &mut state.health {
                Health::Writing { outdated, .. } | Health::Exchanging { outdated, .. } => {
                    *outdated = true;
                }
                _ if state.pending.is_some() => {}
                health => {
                    *health = Health::Good;
                    state.valid = Set::EMPTY;
                }
            }
        }
    }

    fn writing(&self, part: PartId) -> Result<(ReplicaId, Access, bool), Refusal> {
        match self.parts[usize::from(part)].health {
            Health::Writing { at, access, outdated } => Ok((at, access, outdated)),
            _ => Err(Refusal::NotWriting(part)),
        }
    }

    /// The ghost parts with contributions.
    fn pending(&self) -> PartSet {
        let has = |part: &u8| self.parts[usize::from(*part)].pending.is_some();
        self.all().iter().filter(has).collect()
    }

    fn all(&self) -> PartSet {
        PartSet::below(self.parts.len())
    }

    fn of(&self, role: Role) -> PartSet {
        let has = |part: &u8| self.parts[usize::from(*part)].role == role;
        self.all().iter().filter(has).collect()
    }

    fn part(&mut self, part: PartId) -> &mut PartState {
        &mut self.parts[usize::from(part)]
    }

    fn bytes(&mut self, part: PartId, at: ReplicaId) -> &mut Bytes {
        self.part(part).bytes_mut(at)
    }
}

/// Poisons a part. Lost contributions stay pending, because the owned values are incomplete without them.
fn poison(state: &mut PartState) {
    state.health = Health::Poisoned;
    state.valid = Set::EMPTY;
}

/// Records a read that comes after the writer.
fn mark_read(bytes: &mut Bytes, who: Who) {
    if let Some(lane) = who.filter(|lane| bytes.writer != Some(*lane)) {
        bytes.readers.insert(lane);
    }
}

/// Records a write that comes after everything else. Its values came through `origins`.
fn mark_written(bytes: &mut Bytes, who: Who, mut origins: Set) {
    who.iter().for_each(|lane| origins.remove(*lane));
    *bytes = Bytes { writer: who, readers: Set::EMPTY, origins };
}

/// Clears the origins of replicas that have no values.
pub(super) fn forget_origins(state: &mut PartState) {
    let held = state.valid.union(state.user().map_or(Set::EMPTY, Set::one));
    for (_, bytes) in (0..).zip(state.bytes.iter_mut()).filter(|(at, _)| !held.contains(*at)) {
        bytes.origins = Set::EMPTY;
    }
}

/// Records a write that may or may not have been enqueued. Its lane has already waited for the earlier writer.
fn mark_added(bytes: &mut Bytes, who: Who) {
    let Some(lane) = who else { return };
    bytes.writer = Some(lane);
    // The writer is never among the readers.
    bytes.readers.remove(lane);
}

/// Records that the host has waited for all work on a lane.
fn see_lane(bytes: &mut Bytes, on: Lane) {
    bytes.origins.remove(on);
    if bytes.writer == Some(on) {
        *bytes = seen_by_host(*bytes, on);
    }
}

/// The access records that remain after the host has waited for the writer.
fn seen_by_host(bytes: Bytes, writer: Lane) -> Bytes {
    let mut readers = bytes.readers;
    readers.insert(writer);
    Bytes { writer: None, readers, ..bytes }
}
