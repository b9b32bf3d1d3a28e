//! What leaves a device first.

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
    /// Its priority, which is not [`Priority::Keep`].
    pub priority: Priority,
    /// Whether its values exist nowhere else, so that they must be copied to the host first.
    pub must_copy: bool,
}

/// Chooses what leaves a device to make room.
pub trait Policy: Send + Sync + 'static {
    /// Returns the index of the part that leaves. There is at least one candidate.
    fn choose(&self, candidates: &[Candidate]) -> usize;
}

/// Parts of low priority leave first; among equals, those whose values are elsewhere; among equals, those that were used
/// least recently. This is the default policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastRecentlyUsed;

impl Policy for LeastRecentlyUsed {
    fn choose(&self, candidates: &[Candidate]) -> usize {
        let order = |of: &&Candidate| (of.priority, of.must_copy, of.last_use);
        let first = candidates.iter().min_by_key(order);
        first.and_then(|first| candidates.iter().position(|of| of == first)).unwrap_or(0)
    }
}
