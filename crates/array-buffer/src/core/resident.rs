//! What other arrays with the same memory budget ask of an array.

use coherence::{Action, Bytes, HOST, Health, PartId, PartSet, ReplicaId, Set, readable};
use runtime_core::{Element, Error, Result, Stream};

use super::{Core, Request, State};
use crate::budget;
use crate::memory_budget::{Idle, Left, Resident, RoomCause, Standing};
use crate::report::AccessSite;
use crate::storage::{Before, Divided, PartMemory, User};

impl<T: Element, D: Send + Sync> Resident for Core<T, D> {
    fn standing(&self, part: PartId, at: ReplicaId) -> Standing {
        let (Some(divided), Some(state)) = (self.storage.divided(at), self.state.try_lock()) else {
            return Standing::Busy;
        };
        let state = self.include_all(state);
        let known = &state.parts[usize::from(part)];
        if !divided.has_memory(part) || state.is_away(part) {
            return Standing::Busy;
        }
        if divided.is_held(part) || known.user() == Some(at) {
            return Standing::Held;
        }
        Standing::Free { must_copy: known.health == Health::Good && known.valid == Set::one(at) }
    }

    fn user(&self, part: PartId, at: ReplicaId) -> Option<User> {
        self.storage.divided(at)?.user(part)
    }

    fn fetch(&self, part: PartId, at: ReplicaId, on: &Stream, cause: RoomCause) -> Result<bool> {
        let (Some(divided), Some(state)) = (self.storage.divided(at), self.state.try_lock()) else {
            return Ok(true);
        };
        let mut state = self.include_all(state);
        let known = &state.parts[usize::from(part)];
        let is_needed = known.valid.contains(HOST) && !known.valid.contains(at);
        if !is_needed
            || state.is_away(part)
            || !state.paths.copies_alone(part, at)
            || state.is_full()
        {
            return Ok(true);
        }
        let budget = state.budget(at)?;
        if !divided.has_memory(part) {
            let Some(room) = budget.free_room(part, self.partition.len(part))? else {
                return Ok(false);
            };
            divided.set(part, budget.settle(room));
        }
        divided.wait_for_others(part, on)?;
        self.copy_ahead(&mut state, part, at, on, cause).map(|()| true)
    }

    fn write_back(&self, part: PartId, at: ReplicaId, on: &Stream, cause: RoomCause) -> Result<()> {
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        let mut state = self.include_all(state);
        let known = &state.parts[usize::from(part)];
        let is_needed = known.valid == Set::one(at) && known.health == Health::Good;
        let is_away = state.is_away(part);
        if !is_needed || is_away || !state.paths.copies_alone(part, at) || state.is_full() {
            return Ok(());
        }
        let only_writer = known.bytes(at).readers.is_empty();
        self.copy_ahead(&mut state, part, HOST, on, cause)?;
        // The copy waits for the writer's stream as it is now. A guard may enqueue more there.
        if let Some(divided) = self.storage.divided(at).filter(|known| !known.is_held(part))
            && only_writer
            && state.parts[usize::from(part)].valid.contains(HOST)
        {
            divided.set_copied(part, Some(on.record_event()?));
        }
        Ok(())
    }

    fn make_room(&self, part: PartId, at: ReplicaId, cause: RoomCause) -> Result<Option<Left>> {
        let (Some(divided), Some(state)) = (self.storage.divided(at), self.state.try_lock()) else {
            return Ok(None);
        };
        let mut state = self.include_all(state);
        let RoomCause { access, call_site, is_charged } = cause;
        let set = PartSet::one(part);
        let request = Request::new(&set, None, "make room", call_site);
        let action = Action::MakeRoom { at };
        let bytes = self.bytes(part);
        let about = |error: Error| {
            error.about(format_args!("freeing {} for another access", self.named(part)))
        };
        let prepared = loop {
            let is_used = state.parts[usize::from(part)].user() == Some(at);
            let is_busy = divided.is_held(part) || state.is_away(part);
            if is_used || is_busy || !divided.has_memory(part) {
                return Ok(None);
            }
            // Guards may be taken while it waits.
            let prepared = self.prepare(&mut state, &request, action, None, is_charged);
            if let Some(prepared) = prepared.map_err(about)? {
                break prepared;
            }
        };
        let waited = prepared.has_waited();
        let budget = state.budget(at)?;
        let is_used = *state.parts[usize::from(part)].bytes(at) != Bytes::default();
        // Before the part leaves, so that an error changes nothing. The host waits for a copy that is still to be made.
        let ends = state.ends_of_use(part, at, divided).map_err(about)?;
        let done = self.complete(&mut state, &request, action, prepared, None, is_charged);
        self.mirror.show(&mut state.parts);
        done.map_err(about)?;
        budget.leave(part);
        state.ledger.add_eviction(bytes, AccessSite { at, access, call_site });
        // SAFETY: no guard uses the part there, nor does a reader. New ones need the state's lock.
        let known = unsafe { divided.take(part) };
        Ok(known.map(|PartMemory { memory, before, .. }| {
            let before = if is_used { ends } else { before };
            Left { memory: Idle::new(PartMemory::new(memory, before)), waited }
        }))
    }
}

impl<T: Element> State<T> {
    /// The ends of all work on a part's bytes in a replica on a device.
    fn ends_of_use(&self, part: PartId, at: ReplicaId, divided: &Divided<T>) -> Result<Before> {
        if let Some(end) = divided.copied(part) {
            return Ok(Before::from_iter([end]));
        }
        // The writer's stream may have read since, which has no record.
        let &Bytes { writer, readers, .. } = self.parts[usize::from(part)].bytes(at);
        let used = readers.union(writer.map_or(Set::EMPTY, Set::one));
        used.iter().map(|lane| self.lanes[usize::from(lane)].stream.record_event()).collect()
    }
}

impl<T: Element, D> Core<T, D> {
    /// Begins to copy a part between the host and a device, on a stream of the device.
    fn copy_ahead(
        &self,
        state: &mut State<T>,
        part: PartId,
        to: ReplicaId,
        on: &Stream,
        cause: RoomCause,
    ) -> Result<()> {
        let (lane, _) = state.lane(on, &self.mirror)?;
        let RoomCause { call_site, is_charged, .. } = cause;
        let (set, access) = (PartSet::one(part), "copy ahead");
        let request = Request::new(&set, Some(on), access, call_site);
        let action = Action::Prefetch { at: to, by: Some(lane) };
        let bytes = self.bytes(part);
        let copy = std::iter::once((bytes, to == HOST));
        let is_allowed = !is_charged || budget::check(copy, request.access, call_site).is_ok();
        if !is_allowed || readable(&state.parts, part).is_some() {
            // The access itself will say why.
            return Ok(());
        }
        let done = self.carry_out(state, &request, action, Some(to), is_charged);
        self.mirror.show(&mut state.parts);
        done
    }
}
