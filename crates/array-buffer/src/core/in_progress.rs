//! What is in progress while no call holds the lock of the state.

use coherence::{PartSet, Set};
use runtime_core::Event;

/// What a call uses while it does not hold the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Away {
    pub(super) parts: PartSet,
    /// The lanes of its plan.
    pub(super) lanes: Set,
    /// Whether it copies some of the parts. Otherwise it only waits.
    pub(super) copies: bool,
}

/// A copy that was enqueued on streams.
pub(super) struct Running {
    /// The part, or all parts that the array has got since.
    pub(super) parts: PartSet,
    /// The lanes that read and write.
    pub(super) lanes: Set,
    pub(super) end: Event,
}
