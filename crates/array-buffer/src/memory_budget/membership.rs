//! The part that an array takes in a budget, and the memory that it gets.

use std::cell::Cell;
use std::sync::Weak;
use std::thread;
use std::time::{Duration, Instant};

use coherence::{PartId, PartSet, ReplicaId};
use runtime_core::{Element, Error, ErrorKind, Result};

use super::budget::{
    Account, Idle, InTransit, MemoryBudget, Resident, RoomCause, Wanted, bytes_of,
};
use super::ledger::Owner;
use super::policy::Priority;
use crate::storage::{Before, PartMemory};

/// How long an access waits for calls in other threads that use all parts that could leave.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_micros(200);

/// The part that an array takes in a budget.
pub(crate) struct Membership {
    pub(super) budget: MemoryBudget,
    pub(super) owner: Owner,
}

impl Membership {
    pub(crate) fn is_of(&self, budget: &MemoryBudget) -> bool {
        self.budget.is_same(budget)
    }

    /// Gets memory for the `missing` ones of the `needed` parts, each given with its number of elements. Other parts
    /// may leave the device. Counts in `waits` how often that holds up the caller. Call it without the lock of an
    /// array.
    pub(crate) fn rooms<T: Element>(
        &self,
        needed: &[(PartId, usize)],
        missing: PartSet,
        cause: RoomCause,
        waits: &Cell<u64>,
    ) -> Result<Vec<Room<T>>> {
        let set = needed.iter().map(|(part, _)| *part).collect();
        let all = needed.iter().map(|(_, len)| bytes_of::<T>(*len)).fold(0, u64::saturating_add);
        let wanted =
            |part| Wanted { owner: self.owner, part, needed: set, held: 0, bytes: 0, cause, waits };
        if let Some(limit) = self.budget.limit().filter(|limit| all > *limit) {
            let message =
                format!("{all} bytes for parts {set:?}: memory budget with limit {limit}");
            let error = wanted(0).error(ErrorKind::OutOfMemory, message);
            return Err(error.on(self.budget.device().id()));
        }
        let began = Instant::now();
        let mut is_first = true;
        'again: loop {
            let mut rooms = Vec::new();
            for (part, len) in needed.iter().filter(|(part, _)| missing.contains(*part)) {
                let bytes = bytes_of::<T>(*len);
                let wanted = Wanted { held: rooms.len(), bytes, ..wanted(*part) };
                match self.room(&wanted, *len)? {
                    Some(room) => rooms.push(room),
                    None if began.elapsed() < PATIENCE => {
                        // Two accesses that kept a share of the memory would wait for each other.
                        self.give_back(rooms);
                        if std::mem::replace(&mut is_first, false) {
                            self.budget.count_wait(waits);
                        }
                        thread::sleep(PAUSE);
                        continue 'again;
                    }
                    None => return Err(self.budget.full(&wanted)),
                }
            }
            return Ok(rooms);
        }
    }

    /// Gets memory for a part with `len` elements. `None` if calls in other threads use all that could leave.
    fn room<T: Element>(&self, wanted: &Wanted<'_>, len: usize) -> Result<Option<Room<T>>> {
        let (budget, part) = (&self.budget, wanted.part);
        let reserved = loop {
            match budget.reserve::<T>(len) {
                Ok(Reserved::Memory(memory, reserved)) => {
                    return Ok(Some(Room { part, memory, reserved }));
                }
                Ok(Reserved::Bytes(reserved)) => break reserved,
                Err(Full) => match budget.evict_one(wanted) {
                    Ok(true) => {}
                    Ok(false) => return Ok(None),
                    // The last parts left by themselves, after the refusal.
                    Err(_) if budget.account().ledger.fits(wanted.bytes) => return Ok(None),
                    Err(error) => return Err(error),
                },
            }
        };
        // The reservation itself is in transit.
        let wanted = Wanted { held: wanted.held + 1, ..*wanted };
        loop {
            match budget.device().memory_allocate::<T>(len) {
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    self.budget.note_refusal(wanted.bytes);
                    if !budget.free_idle(wanted.waits)?
                        && !budget.evict_one(&wanted).map_err(|full| full.with_source(error))?
                    {
                        return Ok(None);
                    }
                }
                allocated => {
                    let memory = PartMemory::new(allocated?, Before::new());
                    return Ok(Some(Room { part, memory, reserved }));
                }
            }
        }
    }

    /// Lets other accesses use memory that no part has got.
    pub(crate) fn give_back<T: Element>(&self, rooms: Vec<Room<T>>) {
        for Room { memory, mut reserved, .. } in rooms {
            // The memory stays in the account. It becomes idle before it is no longer in transit.
            let _kept = std::mem::take(&mut reserved.bytes);
            self.budget.account().idle.push(Idle::new(memory));
        }
    }

    /// As `room`, but lets no part leave. `None` if there is no memory.
    pub(crate) fn free_room<T: Element>(
        &self,
        part: PartId,
        len: usize,
    ) -> Result<Option<Room<T>>> {
        let (memory, reserved) = match self.budget.reserve::<T>(len) {
            Ok(Reserved::Memory(memory, reserved)) => (memory, reserved),
            Ok(Reserved::Bytes(reserved)) => match self.budget.device().memory_allocate(len) {
                Ok(memory) => (PartMemory::new(memory, Before::new()), reserved),
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    self.budget.note_refusal(bytes_of::<T>(len));
                    return Ok(None);
                }
                Err(error) => return Err(error),
            },
            Err(Full) => return Ok(None),
        };
        Ok(Some(Room { part, memory, reserved }))
    }

    /// Begins copies that a repeated step needs later. An access on `needed` parts is about to begin.
    pub(crate) fn look_ahead(&self, needed: PartSet, cause: RoomCause) {
        self.budget.look_ahead(self.owner, needed, cause);
    }

    /// The part has the memory from now on. Returns it.
    pub(crate) fn settle<T: Element>(&self, room: Room<T>) -> PartMemory<T> {
        let Room { part, memory, mut reserved } = room;
        let bytes = std::mem::take(&mut reserved.bytes);
        self.budget.account().ledger.settle((self.owner, part), bytes);
        memory
    }

    /// The part has no memory any more, which goes to the budget.
    pub(crate) fn leave(&self, part: PartId) {
        self.budget.account().ledger.leave((self.owner, part));
    }

    /// The part's memory was freed.
    pub(crate) fn free(&self, part: PartId) {
        let mut account = self.budget.account();
        let bytes = account.ledger.leave((self.owner, part));
        account.ledger.release(bytes);
    }

    /// The parts of these sizes are used, or only prefetched; `reads` says whether their values are needed. Returns
    /// whether a step is repeated.
    pub(crate) fn touch(
        &self,
        parts: PartSet,
        reads: bool,
        is_prefetch: bool,
        bytes: impl Fn(PartId) -> usize,
    ) -> bool {
        let mut account = self.budget.account();
        let bytes = |part| bytes(part) as u64;
        account.ledger.touch(self.owner, parts, reads, is_prefetch, bytes);
        account.ahead.is_some()
    }

    pub(crate) fn set_priority(
        &self,
        parts: PartSet,
        priority: Priority,
        bytes: impl Fn(PartId) -> usize,
    ) -> Result<()> {
        let mut account = self.budget.account();
        let bytes = |part| bytes(part) as u64;
        let set = account.ledger.set_priority(self.owner, parts, priority, bytes);
        set.map_err(|kept| {
            let limit = account.ledger.limit().unwrap_or_default();
            let message = format!("{kept} bytes to keep under a memory budget of {limit}");
            let error = Error::new(ErrorKind::LimitExceeded, "set_priority", message);
            error.on(self.budget.device().id())
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut account = self.budget.account();
        account.arrays.remove(&self.owner);
        account.ledger.forget(self.owner);
    }
}

impl MemoryBudget {
    /// Lets an array take part.
    pub(crate) fn join(&self, array: Weak<dyn Resident>, at: ReplicaId) -> Membership {
        let mut account = self.account();
        let owner = account.next;
        account.next += 1;
        account.arrays.insert(owner, (array, at));
        Membership { budget: self.clone(), owner }
    }

    /// Memory for `len` elements that other parts have left, or the right to allocate as much.
    fn reserve<T: Element>(&self, len: usize) -> Result<Reserved<T>, Full> {
        let bytes = bytes_of::<T>(len);
        let reserved = |account: &mut Account| Reservation {
            budget: self.clone(),
            bytes,
            _in_transit: account.begin_transit(self),
        };
        loop {
            let mut account = self.account();
            if let Some(memory) = account.take_idle::<T>(len) {
                return Ok(Reserved::Memory(memory, reserved(&mut account)));
            }
            if account.ledger.reserve(bytes) {
                return Ok(Reserved::Bytes(reserved(&mut account)));
            }
            let Some(idle) = account.idle.pop() else { return Err(Full) };
            account.ledger.release(idle.bytes);
            // Freed without the lock.
            drop(account);
            drop(idle);
        }
    }
}

/// Memory for a part, which the budget has reserved.
pub(crate) struct Room<T: Element> {
    pub(crate) part: PartId,
    memory: PartMemory<T>,
    reserved: Reservation,
}

struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
    _in_transit: InTransit,
}

enum Reserved<T: Element> {
    Memory(PartMemory<T>, Reservation),
    Bytes(Reservation),
}

/// The limit is reached.
struct Full;

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.account().ledger.release(self.bytes);
    }
}
