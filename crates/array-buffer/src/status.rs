//! The status of a part.

use coherence::Reduce;

/// The status of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartStatus {
    /// Never written.
    Uninitialized,
    /// Readable.
    Valid,
    /// An out-of-date ghost part; an exchange or a write must fill it.
    Stale,
    /// A ghost part whose contributions wait for a reduction.
    Pending(Reduce),
    /// Lost, because a writer failed.
    Poisoned,
    /// Held by a guard or an exchange, which may have been forgotten (`mem::forget`).
    InUse,
}
