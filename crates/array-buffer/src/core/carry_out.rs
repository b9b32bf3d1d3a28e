//! Carries out an action: first what holds the host up, without the lock of the state, then everything else.
//!
//! While a call waits for streams or copies through the host, other calls use the state. The call goes on only if they
//! have not changed the states of its parts. Otherwise it plans again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use coherence::{
    Action, HOST, Lane, PartId, PartSet, Paths, Plan, Refusal, ReplicaId, Set, Step, plan,
};
use parking_lot::MutexGuard;
use runtime_core::{Element, Error, ErrorKind, Result, Stream};
use smallvec::SmallVec;

use super::in_progress::Away;
use super::{Core, Request, State, TrackedStream, Writer, place};
use crate::budget;
use crate::report::AccessSite;
use crate::transfer::{Awaited, End, Piece, Transfers};

/// How long a call waits for the copies of another one before it asks whether these wait for itself.
const PATIENCE: Duration = Duration::from_millis(20);

/// A plan whose host waits and copies through the host are done.
pub(super) struct Prepared {
    plan: Plan,
    paths: Paths,
    /// Whether the host has waited for streams or copies.
    waited: bool,
    /// The lanes whose work the host has waited for.
    seen: Set,
    /// The number of first steps of which the waits of streams and the copies through the host are done.
    copied: usize,
    /// The lanes of the plan.
    lanes: Set,
}

/// A wait of the host that a plan needs.
struct Waiting {
    on: Lane,
    /// The part whose copies the host waits for, instead of the whole lane.
    part: Option<PartId>,
    stream: TrackedStream,
    awaited: Awaited,
}

impl Prepared {
    fn new(plan: Plan, paths: Paths, action: Action) -> Self {
        let user = match action {
            Action::Read { by, .. }
            | Action::Acquire { by, .. }
            | Action::Prefetch { by, .. }
            | Action::Begin { by, .. } => by,
            _ => None,
        };
        let used = plan.steps.iter().flat_map(|step| match *step {
            Step::Wait { who, on } => [who, Some(on)],
            Step::See { on, .. } => [Some(on), None],
            Step::Copy { reads, writes, .. } => [reads, writes],
            Step::Fill { by, .. } => [by, None],
        });
        let lanes = used.flatten().chain(user).collect();
        Self { plan, paths, waited: false, seen: Set::EMPTY, copied: 0, lanes }
    }

    /// Whether the host was held up.
    pub(super) fn has_waited(&self) -> bool {
        self.waited || self.copied > 0
    }

    /// Whether a step is done.
    fn has_done(&self, index: usize) -> bool {
        match self.plan.steps[index] {
            Step::Wait { who: None, on } => {
                let uses = |step: &Step| match *step {
                    Step::Copy { reads, writes, .. } => [reads, writes].contains(&Some(on)),
                    Step::Fill { by, .. } => by == Some(on),
                    Step::Wait { .. } | Step::See { .. } => false,
                };
                self.seen.contains(on) && !self.plan.steps[..index].iter().any(uses)
            }
            Step::See { .. } => false,
            step => index < self.copied && is_part_of_copying(&self.paths, &step),
        }
    }
}

/// Whether a step is a copy through the host, or a wait of a stream, for which the stream's order is enough.
fn is_part_of_copying(paths: &Paths, step: &Step) -> bool {
    matches!(step, Step::Wait { who: Some(_), .. }) || is_through_host(paths, step)
}

fn is_through_host(paths: &Paths, step: &Step) -> bool {
    matches!(*step, Step::Copy { part, from, to, .. } if paths.staged(part, from, to))
}

impl<T: Element> State<T> {
    /// Whether a call that does not hold the lock uses a part.
    pub(super) fn is_away(&self, part: PartId) -> bool {
        self.away.iter().any(|away| away.parts.contains(part))
    }

    /// Whether a call copies parts without the lock.
    pub(super) fn is_copying(&self) -> bool {
        self.away.iter().any(|away| away.copies)
    }

    /// The call that copies one of these parts.
    fn copying(&self, set: PartSet) -> Option<Away> {
        let copies = |away: &&Away| away.copies && !away.parts.and(set).is_empty();
        self.away.iter().find(copies).copied()
    }

    fn changes(&self, set: PartSet) -> SmallVec<[u64; 8]> {
        set.iter().map(|part| self.changes[usize::from(part)]).collect()
    }

    fn waits(&self, steps: &[Step]) -> SmallVec<[Waiting; 4]> {
        let wait = |step: &Step| {
            let (on, part) = match *step {
                Step::Wait { who: None, on } => (on, None),
                Step::See { part, on, .. } => (on, Some(part)),
                _ => return None,
            };
            let stream = self.lanes[usize::from(on)].clone();
            Some(Waiting { on, part, stream, awaited: self.transfers.awaited(part, on) })
        };
        steps.iter().filter_map(wait).collect()
    }
}

impl Waiting {
    fn wait(&self) -> Result<()> {
        match &self.awaited {
            Awaited::Nothing => Ok(()),
            Awaited::Until(end) => end.wait(),
            Awaited::Job(job) => job.wait(),
            Awaited::Stream(jobs) => {
                // A kernel is refused to wait for copies that a thread makes after its end.
                jobs.iter().try_for_each(|job| job.wait_for_end())?;
                self.stream.synchronize()
            }
        }
    }
}

impl<T: Element, D> Core<T, D> {
    /// Plans an action and carries it out with the lock. Its copies count for limits on transfers if it `is_charged`.
    /// On an error, validity is as before.
    pub(super) fn carry_out(
        &self,
        state: &mut State<T>,
        request: &Request<'_>,
        action: Action,
        at: Option<ReplicaId>,
        is_charged: bool,
    ) -> Result<()> {
        let prepared = loop {
            let (plan, paths) = self.plan_copies(state, request, action, is_charged)?;
            if self.ensure_all(state, &plan, at)? {
                break Prepared::new(plan, paths, action);
            }
        };
        self.complete(state, request, action, prepared, at, is_charged)
    }

    /// Plans an action, and does without the lock what holds the host up. `None` if other calls have changed the states
    /// of its parts meanwhile. Then plan again.
    pub(super) fn prepare(
        &self,
        state: &mut MutexGuard<'_, State<T>>,
        request: &Request<'_>,
        action: Action,
        at: Option<ReplicaId>,
        is_charged: bool,
    ) -> Result<Option<Prepared>> {
        let (plan, paths) = self.plan_copies(state, request, action, is_charged)?;
        if !self.ensure_all(state, &plan, at)? {
            return Ok(None);
        }
        let mut prepared = Prepared::new(plan, paths, action);
        if !self.wait_unlocked(state, &mut prepared)? {
            return Ok(None);
        }
        // After the waits: a copy changes no state before it is made.
        if let Some(away) = state.copying(prepared.plan.set) {
            self.wait_for_copies(state, away)?;
            return Ok(None);
        }
        if !self.copy_unlocked(state, request, &mut prepared, is_charged)? {
            return Ok(None);
        }
        Ok(Some(prepared))
    }

    /// Waits for a call that copies parts.
    fn wait_for_copies(&self, state: &mut MutexGuard<'_, State<T>>, away: Away) -> Result<()> {
        while state.away.contains(&away) {
            if !self.copied.wait_for(state, PATIENCE).timed_out() {
                continue;
            }
            // The copies may wait for a kernel. If that kernel is this call's caller, it is refused this wait.
            let lanes = away.lanes.iter().map(|lane| state.lanes[usize::from(lane)].stream.clone());
            let lanes: SmallVec<[Stream; 4]> = lanes.collect();
            let wait = || {
                let end = |stream: &Stream| stream.record_event().and_then(|end| end.wait()).err();
                lanes.iter().filter_map(end).find(Error::is_refused_wait)
            };
            let refused = MutexGuard::unlocked(state, wait);
            self.include(state);
            if let Some(refused) = refused {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Does `work` without the lock. Returns its result, and whether the states of the parts are as before.
    fn unlocked<R>(
        &self,
        state: &mut MutexGuard<'_, State<T>>,
        set: PartSet,
        away: Away,
        work: impl FnOnce() -> R,
    ) -> (R, bool) {
        let changes = state.changes(set);
        state.away.push(away);
        let done = MutexGuard::unlocked(state, || catch_unwind(AssertUnwindSafe(work)));
        if let Some(index) = state.away.iter().position(|known| *known == away) {
            state.away.swap_remove(index);
        }
        if away.copies {
            self.copied.notify_all();
        }
        self.include(state);
        let is_same = state.changes(set) == changes;
        match done {
            Ok(done) => (done, is_same),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Waits for streams and copies.
    fn wait_unlocked(
        &self,
        state: &mut MutexGuard<'_, State<T>>,
        prepared: &mut Prepared,
    ) -> Result<bool> {
        let waits = state.waits(&prepared.plan.steps);
        if waits.is_empty() {
            return Ok(true);
        }
        let away = Away { parts: prepared.plan.set, lanes: prepared.lanes, copies: false };
        let wait = || waits.iter().find_map(|wait| Some((wait, wait.wait().err()?)));
        let (failed, is_same) = self.unlocked(state, prepared.plan.set, away, wait);
        if let Some((Waiting { on, part, stream, .. }, error)) = failed {
            let error = match part {
                Some(part) => error.about(format_args!("copying {}", self.named(*part))),
                None => self.name_writer(state, prepared.plan.set, *on, error),
            };
            // Another stream may have got the lane meanwhile.
            if state.lanes[usize::from(*on)].stream == stream.stream {
                state.waited(*on, Some(&error));
                self.mirror.show(&mut state.parts);
            }
            return Err(error);
        }
        let lanes = waits.iter().filter(|wait| matches!(wait.awaited, Awaited::Stream(_)));
        prepared.seen = lanes.map(|wait| wait.on).collect();
        prepared.waited = true;
        Ok(is_same)
    }

    /// Makes the copies through the host.
    fn copy_unlocked(
        &self,
        state: &mut MutexGuard<'_, State<T>>,
        request: &Request<'_>,
        prepared: &mut Prepared,
        is_charged: bool,
    ) -> Result<bool> {
        let Prepared { plan, paths, lanes: used, .. } = prepared;
        let copies = || plan.steps.iter().filter(|step| is_through_host(paths, step));
        let Some(last) = plan.steps.iter().rposition(|step| is_through_host(paths, step)) else {
            return Ok(true);
        };
        // A failure of the copies does not make these values doubtful.
        prepared.seen.iter().for_each(|lane| plan.see(&mut state.parts, lane));
        let of = |step: &Step| match *step {
            Step::Copy { part, from, to, .. } => Some((part, [from, to])),
            _ => None,
        };
        let parts: PartSet = copies().filter_map(of).map(|(part, _)| part).collect();
        let places: Set = copies().filter_map(of).flat_map(|(_, ends)| ends).collect();
        let first = plan.steps[..=last].iter();
        let steps: Vec<Step> =
            first.filter(|step| is_part_of_copying(paths, step)).copied().collect();
        let lanes = state.lanes.clone();
        let mut transfers = state.transfers.lend(places, parts);
        let mut done = 0;
        // Also those that are copied later, with the lock.
        let away = Away { parts: plan.set, lanes: *used, copies: true };
        let (outcome, is_same) = self.unlocked(state, plan.set, away, || {
            // A log subscriber, for instance, may panic after work was enqueued.
            catch_unwind(AssertUnwindSafe(|| {
                steps.iter().try_for_each(|step| {
                    self.enqueue(&lanes, &mut transfers, paths, step)?;
                    done += 1;
                    Ok(())
                })
            }))
        });
        state.transfers.give_back(transfers);
        for step in &steps[..done] {
            self.note(state, request, paths, step, is_charged);
        }
        if let (Ok(Ok(())), true) = (&outcome, is_same) {
            prepared.copied = last + 1;
            return Ok(true);
        }
        let begun = steps.len().min(done + 1);
        state.parts = plan.interrupted(&state.parts, &steps[..begun]);
        state.changed(plan.set);
        state.process_failures();
        self.mirror.show(&mut state.parts);
        match outcome {
            Ok(done) => done.map(|()| false),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Carries out what is left of a plan.
    pub(super) fn complete(
        &self,
        state: &mut State<T>,
        request: &Request<'_>,
        action: Action,
        prepared: Prepared,
        at: Option<ReplicaId>,
        is_charged: bool,
    ) -> Result<()> {
        self.run(state, request, &prepared, is_charged)?;
        let mut plan = prepared.plan;
        if plan.committed {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        if let Action::Acquire { .. } | Action::Begin { .. } = action {
            let Request { access, call_site, .. } = *request;
            for part in request.set.iter() {
                let site = at.map(|at| AccessSite { at, access, call_site });
                state.writers[usize::from(part)] = Writer::new(site);
                self.mirror.set_site(part, request.call_site);
            }
        }
        // Other parts may have changed since.
        for part in plan.set.iter().map(usize::from) {
            std::mem::swap(&mut state.parts[part], &mut plan.next[part]);
        }
        state.changed(plan.set);
        if !state.running.is_empty() {
            self.show_running(state);
        }
        Ok(())
    }

    /// Plans an action, with copies to the host on streams that are not busy.
    fn plan_copies(
        &self,
        state: &mut State<T>,
        request: &Request<'_>,
        action: Action,
        is_charged: bool,
    ) -> Result<(Plan, Paths)> {
        let mut plan = self.plan(state, request, action, is_charged)?;
        let lanes = &state.paths.lanes;
        let source = |step: &Step| match *step {
            Step::Copy { from, to: HOST, reads: Some(lane), .. } => {
                Some(from).filter(|from| lanes[usize::from(*from)] == lane)
            }
            _ => None,
        };
        let sources: Set = plan.steps.iter().filter_map(source).collect();
        let mut is_same = true;
        for from in sources.iter() {
            is_same &= !state.choose_copier(from, &self.mirror);
        }
        if !is_same {
            plan = self.plan(state, request, action, is_charged)?;
        }
        let paths = state.paths_of(request).during(&state.parts, *request.set, action);
        Ok((plan, paths))
    }

    /// Plans an action. Limits on transfers allow its copies if it `is_charged`.
    pub(super) fn plan(
        &self,
        state: &State<T>,
        request: &Request<'_>,
        action: Action,
        is_charged: bool,
    ) -> Result<Plan> {
        let paths = state.paths_of(request);
        let plan = plan(&state.parts, *request.set, action, &paths).map_err(|why| {
            let error =
                state.refused(why, request.access, Some(request.call_site), &self.partition);
            let is_access = !matches!(action, Action::Begin { .. });
            match why {
                Refusal::Stale(_) | Refusal::Pending(..) if is_access && self.is_refreshed() => {
                    error.about("parts that were split off are not refreshed")
                }
                _ => error,
            }
        })?;
        if is_charged {
            let copies = plan.steps.iter().filter_map(|step| match step {
                Step::Copy { part, to, .. } => Some((self.bytes(*part), *to == HOST)),
                _ => None,
            });
            budget::check(copies, request.access, request.call_site)?;
        }
        Ok(plan)
    }

    /// The size of a part.
    pub(super) fn bytes(&self, part: PartId) -> usize {
        self.partition.len(part) * size_of::<T>()
    }

    /// Makes the replicas that a plan needs. `false` if bytes are copied in another way than planned.
    fn ensure_all(&self, state: &mut State<T>, plan: &Plan, at: Option<ReplicaId>) -> Result<bool> {
        let places = plan.steps.iter().filter_map(|step| match step {
            Step::Copy { from, to, .. } => Some([*from, *to]),
            _ => None,
        });
        for place in places.flatten().chain(at) {
            self.ensure(state, place)?;
        }
        if state.paths.locked.is_some() && self.storage.is_ordinary() {
            // The device could not lock as much memory when the host's replica was made.
            state.paths.locked = None;
            state.changed(self.partition.all().set);
            return Ok(false);
        }
        Ok(true)
    }

    fn ensure(&self, state: &State<T>, at: ReplicaId) -> Result<()> {
        // The parts have memory of their own, which the access has asked for.
        if self.storage.divided(at).is_some() {
            return Ok(());
        }
        let device = state.devices.get(usize::from(at)).and_then(Option::as_ref);
        let lock = state.paths.locked.and_then(|at| state.devices[usize::from(at)].as_ref());
        self.storage.ensure(at, device, lock).map_err(|error| {
            if error.kind() != ErrorKind::OutOfMemory {
                return error;
            }
            let others =
                "evict this or another array from the device, or from the host, to make room";
            let message = format!("{}; {others}", error.message());
            let place = device.map(|device| device.id().clone());
            let full = Error::new(ErrorKind::OutOfMemory, "array", message).with_source(error);
            match place {
                Some(id) => full.on(&id),
                None => full,
            }
        })
    }

    /// Carries out the steps of a plan that are not done, whose copies count for budgets if it `is_charged`.
    fn run(
        &self,
        state: &mut State<T>,
        request: &Request<'_>,
        prepared: &Prepared,
        is_charged: bool,
    ) -> Result<()> {
        let Prepared { plan, paths, .. } = prepared;
        for (index, step) in plan.steps.iter().enumerate() {
            if prepared.has_done(index) {
                continue;
            }
            // A log subscriber, for instance, may panic after work was enqueued.
            let done = catch_unwind(AssertUnwindSafe(|| {
                self.step(state, paths, step)?;
                state.note_running(paths, step)?;
                self.note(state, request, paths, step, is_charged);
                Ok(())
            }));
            if matches!(done, Ok(Ok(()))) {
                continue;
            }
            state.parts = plan.interrupted(&state.parts, &plan.steps[..=index]);
            state.changed(plan.set);
            let done = done.map(|done| match *step {
                Step::Wait { who: None, on } => {
                    done.map_err(|error| self.name_writer(state, plan.set, on, error))
                }
                _ => done,
            });
            if let Step::Wait { who: None, on } = *step {
                state.waited(on, done.as_ref().ok().and_then(|done| done.as_ref().err()));
            }
            state.process_failures();
            return done.unwrap_or_else(|panic| {
                self.mirror.show(&mut state.parts);
                resume_unwind(panic)
            });
        }
        Ok(())
    }

    fn step(&self, state: &mut State<T>, paths: &Paths, step: &Step) -> Result<()> {
        let State { lanes, transfers, .. } = state;
        match *step {
            Step::Wait { who: None, on } => {
                // A kernel is refused to wait for copies that a thread makes after its end.
                transfers.finish(Some(on))?;
                lanes[usize::from(on)].synchronize()
            }
            Step::See { part, on, origins } => {
                match transfers.see(part, (on, &lanes[usize::from(on)].stream)) {
                    Ok(true) => {}
                    // The host's values do not come from there.
                    Ok(false) => return Ok(()),
                    Err(error) => {
                        state.waited(on, Some(&error));
                        return Err(error.about(format_args!("copying {}", self.named(part))));
                    }
                }
                // The work that the copies wait for is done as well.
                let check = |lane| {
                    let known = &lanes[usize::from(lane)];
                    known.stream.check().and_then(|()| known.check())
                };
                let checked = origins.union(Set::one(on)).iter().try_for_each(check);
                checked.map_err(|error| error.about(format_args!("copying {}", self.named(part))))
            }
            _ => self.enqueue(lanes, transfers, paths, step),
        }
    }

    /// Does a step that works on streams. Blocks only to copy through the host.
    fn enqueue(
        &self,
        lanes: &[TrackedStream],
        transfers: &mut Transfers<T>,
        paths: &Paths,
        step: &Step,
    ) -> Result<()> {
        let end = |at, lane: Option<Lane>| {
            lane.map(|lane| End { at, stream: &lanes[usize::from(lane)].stream })
        };
        let piece = |part| Piece { storage: &self.storage, partition: &self.partition, part };
        match *step {
            Step::Wait { who: None, .. } | Step::See { .. } => Ok(()),
            Step::Wait { who: Some(who), on } => {
                let event = lanes[usize::from(on)].stream.record_event()?;
                lanes[usize::from(who)].stream.wait(&event)
            }
            Step::Fill { part, at, by, op } => match end(at, by) {
                None => Transfers::fill_host(&piece(part), op),
                Some(to) => transfers.fill(&piece(part), &to, op),
            },
            Step::Copy { part, from, to, reads, writes } => {
                for divided in [from, to].into_iter().filter_map(|at| self.storage.divided(at)) {
                    divided.set_copied(part, None);
                }
                let piece = piece(part);
                let copied = match (end(from, reads), end(to, writes)) {
                    (Some(End { stream, .. }), _) if paths.is_direct(part, from, to) => {
                        let by = (reads.unwrap_or_default(), stream);
                        if self.storage.is_ordinary() {
                            transfers.prepared(&piece, (from, to), by)
                        } else {
                            transfers.direct(&piece, (from, to), by)
                        }
                    }
                    (Some(source), Some(target)) if paths.relayed(from, to) => {
                        transfers.relay(&piece, &source, (writes.unwrap_or_default(), &target))
                    }
                    (Some(source), Some(target)) if !paths.staged(part, from, to) => {
                        transfers.between_peers(&piece, &source, &target)
                    }
                    (Some(source), Some(target)) => {
                        transfers.through_host(&piece, &source, &target)
                    }
                    (None, Some(target)) => transfers.upload(&piece, &target),
                    (Some(source), None) => transfers.download(&piece, &source),
                    // The host has only one replica.
                    (None, None) => Ok(()),
                };
                // A copy has several steps. If another caller received a failure between them, earlier steps may have
                // been skipped, and later ones not.
                let used = [reads, writes].into_iter().flatten();
                let check =
                    || used.into_iter().try_for_each(|lane| lanes[usize::from(lane)].check());
                copied.and_then(|()| check()).map_err(|error| {
                    let place = |at, lane: Option<Lane>| match lane {
                        Some(lane) if at != HOST => {
                            lanes[usize::from(lane)].stream.device().id().to_string()
                        }
                        _ => "host".to_owned(),
                    };
                    let (from, to) = (place(from, reads), place(to, writes));
                    error.about(format_args!("copying {} from {from} to {to}", self.named(part)))
                })
            }
        }
    }

    /// Adds to the failure of a stream's work which part it concerns, and who wrote that. The failure is not yet
    /// processed.
    fn name_writer(&self, state: &State<T>, set: PartSet, on: Lane, failure: Error) -> Error {
        let depends = |part: &PartId| {
            let mut bytes = state.parts[usize::from(*part)].bytes.iter();
            bytes.any(|bytes| bytes.sources().contains(on))
        };
        let written = set.iter().find(depends).filter(|_| !failure.is_refused_wait());
        match written.map(|part| (self.named(part), state.written_by(part))) {
            Some((part, Some(writer))) => failure.about(format_args!("{part}, written {writer}")),
            Some((part, None)) => failure.about(part),
            None => failure,
        }
    }

    /// A part in errors.
    pub(super) fn named(&self, part: PartId) -> String {
        let (bytes, shape) = (self.bytes(part), self.partition.shape());
        format!("the {bytes} bytes of part {part} of an array of {} {shape:?}", T::DTYPE)
    }

    /// Records a copy that was made.
    fn note(
        &self,
        state: &mut State<T>,
        request: &Request<'_>,
        paths: &Paths,
        step: &Step,
        is_charged: bool,
    ) {
        let Step::Copy { part, from, to, .. } = *step else { return };
        let State { writers, ledger, devices, .. } = state;
        let site = AccessSite { at: to, access: request.access, call_site: request.call_site };
        if request.defers && paths.staged(part, from, to) {
            ledger.add_waits(1);
        }
        let name = |at| place(devices, at);
        ledger.add((from, to), self.bytes(part), site, writers[usize::from(part)].site, name);
        if is_charged {
            budget::charge(self.bytes(part), to == HOST);
        }
    }
}
