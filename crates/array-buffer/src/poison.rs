//! How accesses end, and why the values of a part are lost.

use std::fmt;

use crate::coherence::Access;

/// What becomes of what a guard held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the array's.
    Commit,
    /// Nothing was written.
    Keep,
    /// It is lost.
    Abort(Poison),
}

impl Verdict {
    /// That of a guard of `access` that is dropped or committed. It is lost on a panic begun under the guard, on a failed
    /// operation, or if a write that must overwrite everything has written nothing; `is_empty` says that there was nothing.
    #[inline]
    pub(crate) fn new(
        access: Access,
        panicked: bool,
        failed: bool,
        wrote: bool,
        is_empty: impl FnOnce() -> bool,
    ) -> Self {
        match access {
            _ if panicked => Self::Abort(Poison::Panic),
            _ if failed => Self::Abort(Poison::Operation),
            _ if wrote => Self::Commit,
            Access::Write if is_empty() => Self::Commit,
            Access::Write => Self::Abort(Poison::NothingWritten),
            _ => Self::Keep,
        }
    }
}

/// What became of the last writer of a poisoned part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poison {
    /// Nothing ended the access.
    Forgotten,
    /// A panic began while the guard was out.
    Panic,
    /// An operation could not be enqueued.
    Operation,
    /// All had to be written.
    NothingWritten,
    /// The user says so.
    Aborted,
    /// An exchange ended before it had served every part.
    Unfinished,
    /// Enqueued work, the writer's own or that of a copy, failed when it ran.
    Work,
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forgotten => "its guard was forgotten",
            Self::Panic => "a panic began under its guard",
            Self::Operation => "an operation failed",
            Self::NothingWritten => "nothing was written",
            Self::Aborted => "it was aborted",
            Self::Unfinished => "it was not finished",
            Self::Work => "work on a stream failed",
        })
    }
}
