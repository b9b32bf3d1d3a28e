//! The account of a budget: which part has how much memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coherence::{PartId, PartSet};

use super::policy::{Candidate, Priority};

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
    /// Parts that were prefetched and not used since.
    prefetched: BTreeSet<Key>,
    /// Priorities other than the default.
    priorities: BTreeMap<Key, (Priority, u64)>,
    /// The uses since a recording began.
    recorded: Option<Vec<Use>>,
    /// A step that is repeated.
    repeated: Option<Repeated>,
}

/// A use of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(super) key: Key,
    pub(super) bytes: u64,
    /// Whether it needs the values: it does not only overwrite them.
    pub(super) reads: bool,
    /// The number of the access.
    pub(super) access: usize,
}

/// The uses of parts in a step that is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Repeated {
    uses: Arc<[Use]>,
    /// The indices of the uses of each part.
    of: Arc<BTreeMap<Key, Vec<usize>>>,
    /// The index of the use that is expected next.
    next: usize,
}

impl Repeated {
    fn new(uses: Arc<[Use]>) -> Self {
        let mut of: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (index, Use { key, .. }) in uses.iter().enumerate() {
            of.entry(*key).or_default().push(index);
        }
        Self { uses, of: Arc::new(of), next: 0 }
    }

    /// The number of uses before the part's next use.
    fn next_use(&self, key: Key) -> Option<usize> {
        let uses = self.of.get(&key)?;
        let later = uses.get(uses.partition_point(|index| *index < self.next));
        match (later, uses.first()) {
            (Some(index), _) => Some(index - self.next),
            (None, first) => first.map(|index| index + self.uses.len() - self.next),
        }
    }

    /// Whether the use after `ahead` others needs the values of its part. Otherwise it overwrites them.
    fn reads(&self, ahead: usize) -> bool {
        self.uses[(self.next + ahead) % self.uses.len()].reads
    }

    /// The part was used. Uses that the step expected before it were left out.
    fn use_now(&mut self, key: Key) {
        if let Some(ahead) = self.next_use(key) {
            self.next = (self.next + ahead + 1) % self.uses.len();
        }
    }
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

    /// Whether memory can be reserved.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| self.used.saturating_add(bytes) <= limit)
    }

    /// Reserves memory, if it fits.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.fits(bytes);
        if fits {
            self.used = self.used.saturating_add(bytes);
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
        self.prefetched.remove(&key);
        self.resident.remove(&key).map_or(0, |gone| gone.bytes)
    }

    /// The parts were used, or only prefetched. `bytes` returns their sizes.
    pub(crate) fn touch(
        &mut self,
        owner: Owner,
        parts: PartSet,
        reads: bool,
        is_prefetch: bool,
        bytes: impl Fn(PartId) -> u64,
    ) {
        let last = self.recorded.as_ref().and_then(|uses| uses.last());
        let access = last.map_or(0, |last| last.access + 1);
        for part in parts.iter() {
            self.clock += 1;
            if let Some(recorded) = &mut self.recorded {
                recorded.push(Use { key: (owner, part), bytes: bytes(part), reads, access });
            }
            if let Some(repeated) = &mut self.repeated {
                repeated.use_now((owner, part));
            }
            match is_prefetch {
                true => self.prefetched.insert((owner, part)),
                false => self.prefetched.remove(&(owner, part)),
            };
            if let Some(resident) = self.resident.get_mut(&(owner, part)) {
                resident.last_use = self.clock;
            }
        }
    }

    /// Changes the priority of parts. Returns the bytes that would then be kept, if they are too many; then it changes
    /// nothing.
    pub(crate) fn set_priority(
        &mut self,
        owner: Owner,
        parts: PartSet,
        priority: Priority,
        bytes: impl Fn(PartId) -> u64,
    ) -> Result<(), u64> {
        if priority == Priority::Keep {
            let is_other = |key: &Key| key.0 != owner || !parts.contains(key.1);
            let kept = self
                .priorities
                .iter()
                .filter(|(key, (of, _))| *of == Priority::Keep && is_other(key));
            let kept = kept.map(|(_, (_, bytes))| *bytes).chain(parts.iter().map(&bytes));
            let kept = kept.fold(0, u64::saturating_add);
            if self.limit.is_some_and(|limit| kept > limit) {
                return Err(kept);
            }
        }
        self.priorities.extend(parts.iter().map(|part| ((owner, part), (priority, bytes(part)))));
        Ok(())
    }

    /// Begins or ends a recording of uses. Returns the uses that were recorded.
    pub(crate) fn record(&mut self, begins: bool) -> Option<Vec<Use>> {
        std::mem::replace(&mut self.recorded, begins.then(Vec::new))
    }

    /// Expects the uses of a step, again and again, or no longer.
    pub(crate) fn repeat(&mut self, uses: Option<Arc<[Use]>>) {
        self.repeated = uses.map(Repeated::new);
    }

    /// The number of uses before the part's values are needed, or before they are overwritten.
    fn next(&self, key: Key) -> [Option<u64>; 2] {
        let Some(repeated) = &self.repeated else { return [None; 2] };
        let next = repeated.next_use(key);
        [true, false].map(|reads| {
            let ahead = next.filter(|ahead| repeated.reads(*ahead) == reads);
            ahead.map(|uses| uses as u64)
        })
    }

    /// A copy in which the future can be tried, with the `limit` in place of no limit, less `spare` bytes.
    pub(super) fn trial(&self, limit: Option<u64>, spare: u64) -> Self {
        let Self { used, clock, .. } = *self;
        Self {
            limit: self.limit.or(limit).map(|limit| limit.saturating_sub(spare)),
            used,
            clock,
            resident: self.resident.clone(),
            prefetched: self.prefetched.clone(),
            priorities: self.priorities.clone(),
            recorded: None,
            repeated: self.repeated.clone(),
        }
    }

    pub(super) fn has_memory(&self, key: Key) -> bool {
        self.resident.contains_key(&key)
    }

    /// The number of uses in the step.
    pub(super) fn expected_len(&self) -> usize {
        self.repeated.as_ref().map_or(0, |repeated| repeated.uses.len())
    }

    /// The uses of the next access of the step.
    pub(super) fn expected_access(&self) -> Vec<Use> {
        let Some(Repeated { uses, next, .. }) = &self.repeated else { return Vec::new() };
        let Some(Use { access, .. }) = uses.get(*next) else { return Vec::new() };
        uses[*next..].iter().take_while(|of| of.access == *access).copied().collect()
    }

    /// The size of the largest part that the step uses.
    pub(super) fn expected_largest(&self) -> u64 {
        let uses = self.repeated.iter().flat_map(|repeated| repeated.uses.iter());
        uses.map(|of| of.bytes).max().unwrap_or(0)
    }

    /// The bytes of the largest access of the step.
    pub(super) fn expected_most(&self) -> u64 {
        let uses = self
            .repeated
            .iter()
            .flat_map(|repeated| repeated.uses.chunk_by(|a, b| a.access == b.access));
        uses.map(|of| of.iter().fold(0_u64, |sum, of| sum.saturating_add(of.bytes)))
            .max()
            .unwrap_or(0)
    }

    /// The size of a part that the step uses.
    pub(super) fn expected_bytes(&self, key: Key) -> u64 {
        let Some(Repeated { uses, of, .. }) = &self.repeated else { return 0 };
        of.get(&key).and_then(|at| at.first()).map_or(0, |at| uses[*at].bytes)
    }

    /// The array is gone, and its memory with it.
    pub(crate) fn forget(&mut self, owner: Owner) {
        let of = |key: &Key| key.0 == owner;
        self.used -=
            self.resident.iter().filter(|(key, _)| of(key)).map(|(_, r)| r.bytes).sum::<u64>();
        self.resident.retain(|key, _| !of(key));
        self.priorities.retain(|key, _| !of(key));
        self.prefetched.retain(|key| !of(key));
    }

    /// The parts that have memory, their bytes, and whether they are kept.
    pub(crate) fn residents(&self) -> impl Iterator<Item = (Key, u64, bool)> {
        self.resident.iter().map(|(key, resident)| {
            let priority = self.priorities.get(key).map(|(of, _)| *of);
            (*key, resident.bytes, priority == Some(Priority::Keep))
        })
    }

    /// The parts that may leave to make room for `needed` parts of `owner`. It is not yet known whether they must be
    /// copied.
    pub(crate) fn candidates(&self, owner: Owner, needed: PartSet) -> Vec<(Key, Candidate)> {
        let all = self.resident.iter().map(|(key, resident)| {
            let priority = self.priorities.get(key).map_or(Priority::Normal, |(of, _)| *of);
            let Resident { bytes, last_use } = *resident;
            let [next_use, next_write] = self.next(*key);
            // A part that was prefetched and is never used leaves, too. The clock counts a use at most three times.
            let age = self.clock.saturating_sub(last_use);
            let is_prefetched =
                self.prefetched.contains(key) && age <= 6 * self.resident.len() as u64;
            let must_copy = false;
            let next = Candidate {
                bytes,
                last_use,
                next_use,
                next_write,
                priority,
                must_copy,
                is_prefetched,
            };
            (*key, next)
        });
        let may_leave = |(key, of): &(Key, Candidate)| {
            of.priority != Priority::Keep
                && of.bytes > 0
                && !(key.0 == owner && needed.contains(key.1))
        };
        all.filter(may_leave).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const LIMIT: u64 = 3;
    /// The parts of two arrays, and the bytes of each.
    const PARTS: [(Key, u64); 4] = [((0, 0), 1), ((0, 1), 2), ((1, 0), 1), ((1, 1), 3)];

    /// What a budget does with its account, and what it knows beside it.
    #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    struct Model {
        reserved: Vec<Key>,
        resident: Vec<Key>,
        /// Bytes of memory that no part uses.
        idle: Vec<u64>,
        kept: BTreeSet<Key>,
    }

    fn bytes(key: Key) -> u64 {
        PARTS.iter().find(|(of, _)| *of == key).map_or(0, |(_, bytes)| *bytes)
    }

    /// All states that follow.
    fn next(ledger: &Ledger, model: &Model) -> Vec<(Ledger, Model)> {
        let mut all = Vec::new();
        let mut go = |change: &dyn Fn(&mut Ledger, &mut Model) -> bool| {
            let mut next = (ledger.clone(), model.clone());
            if change(&mut next.0, &mut next.1) {
                all.push(next);
            }
        };
        for (key, size) in PARTS {
            let is_resident = model.resident.contains(&key);
            let is_reserved = model.reserved.contains(&key);
            if !is_resident && !is_reserved {
                go(&|ledger, model| {
                    let fits = ledger.used() + size <= LIMIT;
                    assert_eq!(ledger.reserve(size), fits);
                    model.reserved.push(key);
                    fits
                });
                go(&|_, model| {
                    // Memory that other parts have left keeps its bytes in the account.
                    let found = model.idle.iter().position(|idle| *idle == size);
                    model.reserved.push(key);
                    found.map(|index| model.idle.swap_remove(index)).is_some()
                });
            }
            if is_reserved {
                for settles in [true, false] {
                    go(&|ledger, model| {
                        model.reserved.retain(|of| *of != key);
                        if settles {
                            ledger.settle(key, size);
                            model.resident.push(key);
                        } else {
                            ledger.release(size);
                        }
                        true
                    });
                }
            }
            if is_resident {
                go(&|ledger, model| {
                    assert_eq!(ledger.leave(key), size);
                    model.resident.retain(|of| *of != key);
                    model.idle.push(size);
                    true
                });
                go(&|ledger, model| {
                    ledger.touch(key.0, PartSet::one(key.1), true, false, |_| size);
                    // In the order of their last use.
                    model.resident.retain(|of| *of != key);
                    model.resident.push(key);
                    true
                });
            }
            for priority in [Priority::Keep, Priority::Normal] {
                go(&|ledger, model| {
                    model.kept.remove(&key);
                    let kept = model.kept.iter().map(|of| bytes(*of)).sum::<u64>() + size;
                    let is_kept = priority == Priority::Keep;
                    let fits = !is_kept || kept <= LIMIT;
                    let part = PartSet::one(key.1);
                    let set = ledger.set_priority(key.0, part, priority, |_| size);
                    assert_eq!(set, if fits { Ok(()) } else { Err(kept) });
                    if is_kept {
                        model.kept.insert(key);
                    }
                    fits
                });
            }
        }
        if let Some(size) = model.idle.last() {
            go(&|ledger, model| {
                ledger.release(*size);
                model.idle.pop().is_some()
            });
        }
        go(&|ledger, model| {
            // An array is dropped while no access asks for its memory.
            ledger.forget(1);
            model.resident.retain(|key| key.0 != 1);
            model.kept.retain(|key| key.0 != 1);
            model.reserved.iter().all(|key| key.0 != 1)
        });
        all
    }

    fn check(ledger: &Ledger, model: &Model) {
        let parts = model.resident.iter().chain(&model.reserved).map(|key| bytes(*key));
        let used: u64 = parts.chain(model.idle.iter().copied()).sum();
        assert_eq!(ledger.used(), used, "{model:?}");
        assert!(used <= LIMIT, "{model:?}");
        for needed in [PartSet::EMPTY, PartSet::one(0), PartSet::one(1), PartSet::below(2)] {
            for owner in 0..2 {
                let mut offered = ledger.candidates(owner, needed);
                offered.sort_by_key(|(_, of)| of.last_use);
                let offered: Vec<Key> = offered.iter().map(|(key, _)| *key).collect();
                let may_leave = |key: &&Key| {
                    !(model.kept.contains(key) || key.0 == owner && needed.contains(key.1))
                };
                let expected: Vec<Key> = model.resident.iter().filter(may_leave).copied().collect();
                assert_eq!(offered, expected, "{model:?}");
            }
        }
    }

    #[test]
    fn the_account_is_right_in_every_state() {
        let first = (Ledger::new(Some(LIMIT)), Model::default());
        let mut seen = BTreeSet::from([first.1.clone()]);
        let mut queue = VecDeque::from([first]);
        while let Some((ledger, model)) = queue.pop_front() {
            for (ledger, mut model) in next(&ledger, &model) {
                check(&ledger, &model);
                model.idle.sort_unstable();
                model.reserved.sort_unstable();
                if seen.insert(model.clone()) {
                    queue.push_back((ledger, model));
                }
            }
        }
        assert_eq!(seen.len(), 392);
    }
}
