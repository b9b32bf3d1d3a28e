//! One replica for the host and a device, in unified memory.
#![expect(unsafe_code, reason = "the host's elements move")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use coherence::{Action, HOST, ReplicaId};
use runtime_core::{Device, Element, Error, ErrorKind, Result};

use super::exclusive::Exclusive;
use super::{Request, State, place};
use crate::call_site::CallSite;
use crate::mirror::Mirror;

impl<T: Element, D> Exclusive<'_, T, D> {
    /// Lets the device work in the host's replica from now on, in unified memory.
    pub(crate) fn unify(self, device: &Device, call_site: CallSite) -> Result<()> {
        let core = self.0;
        self.forget_idle_if_crowded()?;
        let mut state = core.lock_alone();
        let refuse = |kind, message| Err(Error::new(kind, "unify", message).on(device.id()));
        if state.replica(device) == Some(HOST) {
            return Ok(());
        }
        if let Some(shares) = &state.devices[usize::from(HOST)] {
            let message = format!("{} works in the host's memory already", shares.id());
            return refuse(ErrorKind::Conflict, message);
        }
        if let Some(locked) = state.paths.locked {
            let locked = place(&state.devices, locked);
            return refuse(ErrorKind::Conflict, format!("page-locked for {locked} already"));
        }
        if core.storage.is_foreign() {
            let message = "the host's elements belong to another owner".to_owned();
            return refuse(ErrorKind::Conflict, message);
        }
        let Some(unified) = device.unified_memory() else {
            let message = "the device has no memory that host and device may use at the same time";
            return refuse(ErrorKind::Unsupported, message.to_owned());
        };
        let at = state.replica_or_new(device, &core.mirror)?;
        // It works in the host's own memory.
        if at == HOST {
            return Ok(());
        }
        if state.budget(at).is_ok() {
            let message = "the array has a memory budget there".to_owned();
            return refuse(ErrorKind::Conflict, message);
        }
        state.end_direct_copies(&core.mirror)?;
        let memory = unified.allocate(core.storage.len())?;
        let is_needed = state.parts.iter().any(|part| part.valid.contains(HOST));
        // SAFETY: no guard is alive, and other code uses the storage under the state's lock.
        unsafe { core.storage.begin_unify(memory, is_needed) };
        let set = core.partition.all().set;
        let request = Request::new(&set, None, "unify", call_site);
        // A log subscriber, for instance, may panic.
        let evicted = catch_unwind(AssertUnwindSafe(|| {
            core.carry_out(&mut state, &request, Action::Evict { at }, None, false)
        }));
        let is_done = matches!(evicted, Ok(Ok(())));
        // SAFETY: as above. Copies to the host's replica are done when they return.
        unsafe { core.storage.end_unify(is_done) };
        if is_done {
            state.transfers.evict(at);
            // SAFETY: as above.
            unsafe { core.storage.evict(at) };
            state.move_to_host(at, device, &core.mirror);
        }
        core.mirror.show(&mut state.parts);
        evicted.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<T: Element> State<T> {
    /// Lets a device work in the host's replica. Its own replica has no memory any more, and only gives past transfers
    /// a name.
    fn move_to_host(&mut self, from: ReplicaId, device: &Device, mirror: &Mirror) {
        let (host, old) = (usize::from(HOST), usize::from(from));
        self.devices[host] = Some(device.clone());
        self.paths.lanes[host] = self.paths.lanes[old];
        self.copiers.iter_mut().filter(|(at, _)| *at == from).for_each(|(at, _)| *at = HOST);
        self.paths.peers[host] = std::mem::take(&mut self.paths.peers[old]);
        for peers in self.paths.peers.iter_mut().filter(|peers| peers.contains(from)) {
            peers.remove(from);
            peers.insert(HOST);
        }
        self.paths.places.iter_mut().filter(|at| **at == from).for_each(|at| *at = HOST);
        mirror.move_lanes(from, HOST);
    }
}
