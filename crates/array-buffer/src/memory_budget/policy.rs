//! What leaves a device first.

use std::cmp::Reverse;

/// How long parts stay on a device when memory is needed there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// They leave first.
    Low,
    /// They leave before those of high priority.
    #[default]
    Normal,
    /// They leave last.
    High,
    /// They stay until the priority changes.
    Keep,
}

/// A part whose memory can be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The size of its memory.
    pub bytes: u64,
    /// When it was used last: greater than that of all parts that were used earlier.
    pub last_use: u64,
    /// While a [recorded step](super::MemoryBudget::repeat) is repeated: the number of uses of parts before the values
    /// of this part are needed. `None` if they are not needed in the step, or are overwritten first.
    pub next_use: Option<u64>,
    /// While a recorded step is repeated: the number of uses of parts before this part is overwritten. `None` if it is
    /// not used in the step, or if its values are needed first.
    pub next_write: Option<u64>,
    /// Its priority, which is not [`Priority::Keep`].
    pub priority: Priority,
    /// Whether its values exist nowhere else, so that they must be copied to the host first.
    pub must_copy: bool,
    /// Whether it was prefetched not long ago, and not used since.
    pub is_prefetched: bool,
}

/// Chooses what leaves a device to make room.
pub trait Policy: Send + Sync + 'static {
    /// Returns the index of the part that leaves. There is at least one candidate.
    fn choose(&self, candidates: &[Candidate]) -> usize;
}

/// Parts of low priority leave first. Among equals, the part leaves first whose values a [recorded
/// step](super::MemoryBudget::repeat) needs last; and among parts whose values it overwrites before it needs them, that
/// which it overwrites last. If no step is repeated, the order is that of [`LeastRecentlyUsed`].
/// This is the default policy. While a step is repeated whose parts have one size, no policy moves fewer parts to the
/// device (Belady, IBM Systems Journal 5, 1966).
#[derive(Clone, Copy, Debug, Default)]
pub struct LatestNextUse;

impl Policy for LatestNextUse {
    fn choose(&self, candidates: &[Candidate]) -> usize {
        let later = |uses: Option<u64>| Reverse(uses.unwrap_or(u64::MAX));
        first(candidates, |of| {
            let (next_use, next_write) = (later(of.next_use), later(of.next_write));
            (of.priority, next_use, of.is_prefetched, of.must_copy, next_write, of.last_use)
        })
    }
}

/// Parts of low priority leave first. Among equals, parts that were prefetched and not used since leave last. Among
/// equals, parts whose values are elsewhere leave first; among equals, those that were used least recently.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastRecentlyUsed;

impl Policy for LeastRecentlyUsed {
    fn choose(&self, candidates: &[Candidate]) -> usize {
        first(candidates, |of| (of.priority, of.is_prefetched, of.must_copy, of.last_use))
    }
}

/// The index of the candidate that is first in an order.
fn first<K: Ord>(candidates: &[Candidate], order: impl Fn(&Candidate) -> K) -> usize {
    let first = candidates.iter().enumerate().min_by_key(|(_, of)| order(of));
    first.map_or(0, |(index, _)| index)
}
