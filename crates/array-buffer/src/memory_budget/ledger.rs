//! The account of a budget: which part has how much memory.

use std::collections::BTreeMap;

use super::policy::{Candidate, Priority};
use crate::coherence::{PartId, Set};

/// The number of an array within one budget.
pub(crate) type Owner = u64;
/// A part of an array with this budget.
pub(crate) type Key = (Owner, PartId);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    limit: Option<u64>,
    /// The memory of all parts, all reservations, and memory that no part uses any more.
    used: u64,
    /// Counts uses.
    clock: u64,
    /// Parts that have memory.
    resident: BTreeMap<Key, Resident>,
    /// Priorities other than the default.
    priorities: BTreeMap<Key, (Priority, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resident {
    bytes: u64,
    last_use: u64,
}

impl Ledger {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Reserves memory, if it fits.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        let used = self.used.saturating_add(bytes);
        let fits = self.limit.is_none_or(|limit| used <= limit);
        if fits {
            self.used = used;
        }
        fits
    }

    /// Ends a reservation, or the use of memory that no part has.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    /// The part now has memory that was reserved.
    pub(crate) fn settle(&mut self, key: Key, bytes: u64) {
        self.clock += 1;
        self.resident.insert(key, Resident { bytes, last_use: self.clock });
    }

    /// The part has no memory any more. The memory stays in the account until it is released.
    pub(crate) fn leave(&mut self, key: Key) -> u64 {
        self.resident.remove(&key).map_or(0, |gone| gone.bytes)
    }

    /// The parts were used.
    pub(crate) fn touch(&mut self, owner: Owner, parts: Set) {
        for part in parts.iter() {
            self.clock += 1;
            if let Some(resident) = self.resident.get_mut(&(owner, part)) {
                resident.last_use = self.clock;
            }
        }
    }

    /// Changes the priority of a part. Returns the bytes that would then be kept, if they are too many.
    pub(crate) fn set_priority(
        &mut self,
        key: Key,
        priority: Priority,
        bytes: u64,
    ) -> Result<(), u64> {
        if priority == Priority::Keep {
            let others = self.priorities.iter().filter(|(of, _)| **of != key);
            let kept = others.filter(|(_, (of, _))| *of == Priority::Keep);
            let kept = kept.map(|(_, (_, bytes))| *bytes).sum::<u64>() + bytes;
            if self.limit.is_some_and(|limit| kept > limit) {
                return Err(kept);
            }
        }
        self.priorities.insert(key, (priority, bytes));
        Ok(())
    }

    /// The array is gone, and its memory with it.
    pub(crate) fn forget(&mut self, owner: Owner) {
        let of = |key: &Key| key.0 == owner;
        self.used -=
            self.resident.iter().filter(|(key, _)| of(key)).map(|(_, r)| r.bytes).sum::<u64>();
        self.resident.retain(|key, _| !of(key));
        self.priorities.retain(|key, _| !of(key));
    }

    /// The parts that may leave to make room for `needed` parts of `owner`. It is not yet known whether they must be
    /// copied.
    pub(crate) fn candidates(&self, owner: Owner, needed: Set) -> Vec<(Key, Candidate)> {
        let all = self.resident.iter().map(|(key, resident)| {
            let priority = self.priorities.get(key).map_or(Priority::Normal, |(of, _)| *of);
            let Resident { bytes, last_use } = *resident;
            (*key, Candidate { bytes, last_use, priority, must_copy: false })
        });
        let may_leave = |(key, of): &(Key, Candidate)| {
            of.priority != Priority::Keep
                && of.bytes > 0
                && !(key.0 == owner && needed.contains(key.1))
        };
        all.filter(may_leave).collect()
    }
}
