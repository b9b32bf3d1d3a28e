//! What the next accesses of a repeated step will do with the memory under a budget.

use std::collections::BTreeSet;

use coherence::PartSet;

use super::ledger::{Key, Ledger, Owner, Use};
use super::policy::{Candidate, Policy};

/// What happens to a part, in the order in which it will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The part leaves.
    Leaves {
        key: Key,
        /// Whether an access uses it first.
        is_used: bool,
    },
    /// The part gets memory.
    Comes {
        key: Key,
        /// Whether its values are needed. Otherwise they are overwritten.
        reads: bool,
        /// The number of the access in the step.
        access: usize,
    },
}

impl Ledger {
    /// What the next `window` accesses that need values will do, and the overwrites between them, which end the forecast
    /// if they are four times as many. The access at hand
    /// uses `needed` parts of `owner`, for which the memory is reserved. The policy chooses among candidates as it will
    /// when memory is needed; `must_copy` says which of them have values that exist nowhere else.
    pub(super) fn forecast(
        &mut self,
        (owner, needed): (Owner, PartSet),
        window: usize,
        policy: &dyn Policy,
        must_copy: impl Fn(Key) -> bool,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let mut used: BTreeSet<Key> = needed.iter().map(|part| (owner, part)).collect();
        for key in &used {
            if !self.has_memory(*key) {
                self.settle(*key, self.expected_bytes(*key));
            }
        }
        // The parts of the access at hand have been used.
        let mut changed = BTreeSet::new();
        let (mut accesses, mut reading, mut overwriting) = (0, 0, 0);
        while accesses < self.expected_len() {
            let uses: Vec<Use> = self.expected_access();
            let Some(&Use { key: (owner, _), reads, access, .. }) = uses.first() else { break };
            accesses += uses.len();
            *(if reads { &mut reading } else { &mut overwriting }) += 1;
            if reading > window || overwriting > window.saturating_mul(4) {
                break;
            }
            let set: PartSet = uses.iter().map(|of| of.key.1).collect();
            self.touch(owner, set, reads, false, |_| 0);
            for Use { key, bytes, .. } in uses {
                while !self.has_memory(key) && !self.reserve(bytes) {
                    let mut offered = self.candidates(owner, set);
                    for (key, of) in &mut offered {
                        of.must_copy = changed.contains(key) || must_copy(*key);
                    }
                    let candidates: Vec<Candidate> = offered.iter().map(|(_, of)| *of).collect();
                    if candidates.is_empty() {
                        return events;
                    }
                    let chosen = policy.choose(&candidates);
                    let Some((leaving, _)) = offered.get(chosen) else { return events };
                    let freed = self.leave(*leaving);
                    self.release(freed);
                    changed.remove(leaving);
                    events.push(Event::Leaves { key: *leaving, is_used: used.contains(leaving) });
                }
                if !self.has_memory(key) {
                    self.settle(key, bytes);
                    events.push(Event::Comes { key, reads, access });
                }
                used.insert(key);
                if !reads {
                    changed.insert(key);
                }
            }
        }
        events
    }

    /// How many bytes of the limit may stay free for copies ahead, so that the step copies at most an eighth more than
    /// without them.
    pub(super) fn spare(&self, policy: &dyn Policy) -> u64 {
        let bytes = |event: Event| match event {
            Event::Leaves { key, .. } | Event::Comes { key, reads: true, .. } => {
                self.expected_bytes(key)
            }
            Event::Comes { .. } => 0,
        };
        // The first pass begins with what is on the device now.
        let copied = |spare: u64| {
            let mut trial = self.trial(None, spare);
            let mut pass = || trial.forecast((0, PartSet::EMPTY), usize::MAX, policy, |_| false);
            pass();
            pass().into_iter().map(bytes).fold(0, u64::saturating_add)
        };
        let (limit, all) = (self.limit().unwrap_or(0), copied(0));
        let fits = |spare: &u64| {
            let left = limit.checked_sub(*spare).filter(|left| *left >= self.expected_most());
            left.is_some() && copied(*spare) <= all.saturating_add(all / 8)
        };
        let largest = self.expected_largest();
        [2, 1].map(|parts: u64| parts.saturating_mul(largest)).into_iter().find(fits).unwrap_or(0)
    }
}
