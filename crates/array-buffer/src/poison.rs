//! How accesses end, and reasons why the values of a part are lost.

use std::fmt;

use coherence::{Access, Reduce};

/// How an access ends, for the parts that its guard held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The written values become the array's.
    Commit,
    /// Nothing was written.
    Keep,
    /// The values are lost.
    Abort(Poison),
}

impl Verdict {
    /// The verdict for a guard of `access` that is dropped or committed. The values are lost if a panic began while the
    /// guard lived, if an operation failed, or if a write that must overwrite everything wrote nothing. `is_empty` says
    /// whether there was nothing to write.
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

    /// The same verdict, unless ghosts are refreshed (`is_refreshed`): then an access that wrote nothing ends as one
    /// that did, since other ranks may have written in theirs. The old values, or the neutral ones, are right.
    #[inline]
    pub(crate) fn collective(self, access: Access, is_refreshed: impl FnOnce() -> bool) -> Self {
        match (self, access) {
            (Self::Keep, Access::Accumulate(Reduce::Replace)) => self,
            (Self::Keep, _) if is_refreshed() => Self::Commit,
            _ => self,
        }
    }
}

/// The position of an element in an array, small because there is one for each part. Address spaces have 2⁴⁸ bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position([u16; 3]);

impl Position {
    pub(crate) fn new(element: usize) -> Self {
        let [a, b, c, d, e, f, ..] = (element as u64).to_le_bytes();
        Self([[a, b], [c, d], [e, f]].map(u16::from_le_bytes))
    }

    pub(crate) fn get(self) -> usize {
        self.0.iter().rev().fold(0, |all, digit| all << 16 | usize::from(*digit))
    }
}

/// How the last writer of a poisoned part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poison {
    /// The access was never ended.
    Forgotten,
    /// A panic began while the guard lived.
    Panic,
    /// An operation could not be enqueued.
    Operation,
    /// An overwriting guard wrote nothing.
    NothingWritten,
    /// The check of the write found an element that it left out.
    Unwritten(Position),
    /// The user aborted the access.
    Aborted,
    /// An exchange ended before it had handled every part.
    Unfinished,
    /// Enqueued work, the writer's own or that of a copy, failed when it ran.
    Work,
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unwritten(_) => "an element was not written",
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
