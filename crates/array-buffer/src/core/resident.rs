//! What other arrays with the same memory budget ask of an array.

use coherence::{Action, HOST, Health, PartId, ReplicaId, Set, readable};
use runtime_core::{Element, Result, Stream};

use super::{Core, Request, State};
use crate::budget;
use crate::memory_budget::{Idle, Resident, RoomCause, Standing};
use crate::report::AccessSite;

impl<T: Element, D: Send + Sync> Resident for Core<T, D> {
    fn standing(&self, part: PartId, at: ReplicaId) -> Standing {
        let (Some(divided), Some(state)) = (self.storage.divided(at), self.state.try_lock()) else {
            return Standing::Busy;
        };
        let state = self.include_all(state);
        let known = &state.parts[usize::from(part)];
        if !divided.has_memory(part) {
            return Standing::Busy;
        }
        if divided.is_held(part) || known.user() == Some(at) {
            return Standing::Held;
        }
        Standing::Free { must_copy: known.health == Health::Good && known.valid == Set::one(at) }
    }

    fn fetch(&self, part: PartId, at: ReplicaId, on: &Stream, cause: RoomCause) -> Result<bool> {
        let (Some(divided), Some(state)) = (self.storage.divided(at), self.state.try_lock()) else {
            return Ok(true);
        };
        let mut state = self.include_all(state);
        let known = &state.parts[usize::from(part)];
        let is_needed = known.valid.contains(HOST) && !known.valid.contains(at);
        if !is_needed || !state.paths.copies_alone(part, at) || state.is_full() {
            return Ok(true);
        }
        let budget = state.budget(at)?;
        if !divided.has_memory(part) {
            let Some(room) = budget.free_room(part, self.partition.len(part))? else {
                return Ok(false);
            };
            divided.set(part, budget.settle(room));
        }
        divided.memory(part)?.order_before(on)?;
        self.copy_ahead(&mut state, part, at, on, cause).map(|()| true)
    }

    fn write_back(&self, part: PartId, at: ReplicaId, on: &Stream, cause: RoomCause) -> Result<()> {
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        let mut state = self.include_all(state);
        let known = &state.parts[usize::from(part)];
        let is_needed = known.valid == Set::one(at) && known.health == Health::Good;
        if !is_needed || !state.paths.copies_alone(part, at) || state.is_full() {
            return Ok(());
        }
        self.copy_ahead(&mut state, part, HOST, on, cause)
    }

    fn make_room(&self, part: PartId, at: ReplicaId, cause: RoomCause) -> Result<Option<Idle>> {
        let (Some(divided), Some(state)) = (self.storage.divided(at), self.state.try_lock()) else {
            return Ok(None);
        };
        let mut state = self.include_all(state);
        let is_used = state.parts[usize::from(part)].user() == Some(at);
        if is_used || divided.is_held(part) || !divided.has_memory(part) {
            return Ok(None);
        }
        let RoomCause { access, call_site, is_charged } = cause;
        let set = Set::one(part);
        let request = Request::new(set, None, "make room", call_site);
        let budget = state.budget(at)?;
        let action = Action::MakeRoom { at };
        let done = self.carry_out(&mut state, &request, action, None, is_charged);
        self.mirror.show(&mut state.parts);
        let bytes = self.partition.len(part) * size_of::<T>();
        done.map_err(|error| {
            error.about(format_args!("freeing the {bytes} bytes of part {part} for another access"))
        })?;
        budget.leave(part);
        state.ledger.add_eviction(bytes, AccessSite { at, access, call_site });
        // SAFETY: no guard uses the part there, nor does a reader. New ones need the state's lock.
        Ok(unsafe { divided.take(part) }.map(Idle::new))
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
        let (set, access) = (Set::one(part), "copy ahead");
        let request = Request::new(set, Some(on), access, call_site);
        let action = Action::Prefetch { at: to, by: Some(lane) };
        let bytes = self.partition.len(part) * size_of::<T>();
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
