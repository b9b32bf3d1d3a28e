//! What needs an array that is borrowed exclusively.

use std::sync::{Arc, Weak};

use coherence::{Action, HOST, PartId, PartSet, ReplicaId};
use ndarray::{Array, Dimension};
use runtime_core::{Device, Element, Error, ErrorKind, Memory, Result, Stream};

use super::{Core, Request, Run, alone, place};
use crate::Partition;
use crate::call_site::CallSite;
use crate::memory_budget::{MemoryBudget, Resident};

/// The greatest number of rows of a part that are copied one by one from and to page-locked memory. A part with more
/// rows goes through a contiguous copy.
const DIRECT_RUNS: usize = 64;

/// A core whose array is borrowed exclusively, so that no guard is alive.
pub(crate) struct Exclusive<'a, T: Element, D>(pub(super) &'a Core<T, D>);

impl<'a, T: Element, D> Exclusive<'a, T, D> {
    /// `core` belongs to the borrowed array.
    pub(crate) fn new(core: &'a mut Arc<Core<T, D>>) -> Self {
        Self(core)
    }

    /// A core that nothing else refers to.
    pub(crate) fn of(core: &'a mut Core<T, D>) -> Self {
        Self(core)
    }

    /// Makes the array constant. There are no more writes, so the access records of readers no longer matter. A refresh
    /// would write.
    pub(crate) fn freeze(self) {
        self.0.lock().constant = true;
        self.0.register(None);
    }

    /// Registers what refreshes ghosts on a stream.
    pub(crate) fn register(self, stream: &Stream, run: Box<Run<T, D>>) -> Result<()> {
        self.0.introduce(stream)?;
        self.0.register(Some((stream.clone(), run)));
        Ok(())
    }

    /// Ghosts are not refreshed from now on.
    pub(crate) fn unregister(self) {
        self.0.register(None);
    }

    /// Makes all ghosts stale.
    pub(crate) fn outdate(self) {
        self.0.outdate();
    }

    /// Frees a replica's memory.
    pub(crate) fn evict(self, device: Option<&Device>, call_site: CallSite) -> Result<()> {
        let core = self.0;
        let mut state = core.lock_alone();
        let at = match device.map(|device| state.replica(device)) {
            None => HOST,
            // A device in host memory has no memory of its own.
            Some(None | Some(HOST)) => return Ok(()),
            Some(Some(at)) => at,
        };
        let set = core.partition.all().set;
        let request = Request::new(&set, None, "evict", call_site);
        if at == HOST && state.devices[usize::from(HOST)].is_some() {
            let message = "host memory that a device works in";
            return Err(Error::new(ErrorKind::Conflict, "evict", message));
        }
        let done = core.carry_out(&mut state, &request, Action::Evict { at }, None, false);
        core.mirror.show(&mut state.parts);
        done?;
        state.transfers.evict(at);
        if let (Some(divided), Ok(budget)) = (core.storage.divided(at), state.budget(at)) {
            for part in set.iter().filter(|part| divided.has_memory(*part)) {
                // SAFETY: no guard is alive, and other code uses the storage under the state's lock.
                drop(unsafe { divided.take(part) });
                budget.free(part);
            }
        }
        // SAFETY: as above.
        unsafe { core.storage.evict(at) };
        Ok(())
    }

    /// Gives each part memory of its own on the budget's device, within the budget. `array` is the core.
    pub(crate) fn set_memory_budget(
        self,
        budget: &MemoryBudget,
        array: Weak<dyn Resident>,
    ) -> Result<()> {
        let (core, device) = (self.0, budget.device());
        self.forget_idle_if_crowded()?;
        let mut state = core.lock_alone();
        let at = state.replica_or_new(device, &core.mirror)?;
        // A device that works in host memory has no memory of its own.
        if at == HOST {
            return Ok(());
        }
        let conflict = |message: String| {
            let error = Error::new(ErrorKind::Conflict, "set_memory_budget", message);
            Err(error.on(device.id()))
        };
        match state.budget(at) {
            Ok(known) if known.is_of(budget) => return Ok(()),
            Ok(_) => return conflict("the array has another memory budget there".to_owned()),
            Err(_) => {}
        }
        if core.storage.has_memory(at) {
            return conflict("the array has memory there; evict it first".to_owned());
        }
        core.storage.divide(at, state.parts.len());
        core.mirror.hide(at);
        let joined = (at, Arc::new(budget.join(array, at)));
        state.budgets = std::mem::take(&mut state.budgets).into_iter().chain([joined]).collect();
        core.mirror.show(&mut state.parts);
        Ok(())
    }

    /// Keeps the host's replica in memory that is page-locked for `device` from now on.
    pub(crate) fn page_lock(self, device: &Device) -> Result<()> {
        let core = self.0;
        self.forget_idle_if_crowded()?;
        let mut state = core.lock_alone();
        if let Some(known) = state.paths.locked {
            if state.replica(device) == Some(known) {
                return Ok(());
            }
            let message = format!("page-locked for {} already", place(&state.devices, known));
            return Err(Error::new(ErrorKind::Conflict, "page_lock", message).on(device.id()));
        }
        let at = state.replica_or_new(device, &core.mirror)?;
        // A device that works in host memory needs no copies.
        if at == HOST {
            return Ok(());
        }
        if let Some(shares) = &state.devices[usize::from(HOST)] {
            let message = format!("{} works in the host's memory", shares.id());
            return Err(Error::new(ErrorKind::Conflict, "page_lock", message).on(device.id()));
        }
        state.end_direct_copies(&core.mirror)?;
        // SAFETY: no guard is alive, and other code uses the storage under the state's lock.
        unsafe { core.storage.page_lock(device) }?;
        (state.paths.locked, state.paths.direct) = (Some(at), direct_parts(&core.partition));
        Ok(())
    }

    /// Stops tracking idle streams if there is no room for more. Guards on these streams must not be alive.
    ///
    /// # Errors
    ///
    /// The failure of a stream that wrote values; these values are lost.
    #[inline]
    pub(crate) fn forget_idle_if_crowded(self) -> Result<()> {
        if self.0.mirror.is_crowded() {
            return self.0.lock().forget_idle(&self.0.mirror);
        }
        Ok(())
    }

    /// Moves the host's elements out. The host has just taken all parts for writing.
    pub(crate) fn take_array(self) -> Result<Array<T, D>>
    where
        D: Dimension,
    {
        let _state = self.0.lock_alone();
        // SAFETY: no guard is alive, other code uses the storage under the state's lock, and the host has waited.
        unsafe { self.0.storage.take_array(&self.0.shape, &self.0.partition) }
    }

    /// Moves a device's memory out. A stream has just taken all parts for writing.
    pub(crate) fn take_memory(self, at: ReplicaId) -> Result<Memory<T>> {
        let state = self.0.lock_alone();
        if let (Some(divided), Ok(budget)) = (self.0.storage.divided(at), state.budget(at)) {
            let part = alone(self.0.partition.all().set)?;
            divided.memory(part)?;
            budget.free(part);
            // SAFETY: no guard is alive, other code uses the storage under the state's lock, and the part has memory.
            if let Some(known) = unsafe { divided.take(part) } {
                return Ok(known.memory);
            }
        }
        // SAFETY: as above.
        unsafe { self.0.storage.take_memory(at) }
    }
}

/// The parts that are copied from and to page-locked memory row by row.
pub(super) fn direct_parts(partition: &Partition) -> PartSet {
    let is_direct = |part: &PartId| partition.runs(*part).nth(DIRECT_RUNS).is_none();
    partition.all().set.iter().filter(is_direct).collect()
}
