//! Guards, which lend an array's parts to a stream or to the host.

mod device;
mod host;

pub(crate) use device::StreamRef;
pub use device::{ReadGuard, WriteGuard};
pub use host::{HostReadGuard, HostWriteGuard};

use coherence::{Access, PartSet};
use runtime_core::{Element, Error, ErrorKind, Result, WriteReport};

use crate::core::{Core, check_reduce};
use crate::poison::{Poison, Verdict};

/// The name of an access in reports and errors.
fn name(access: Access) -> &'static str {
    match access {
        Access::ReadWrite => "read_write",
        Access::Write => "write",
        Access::Accumulate(_) => "accumulate",
    }
}

/// Refuses to accumulate elements that do not support the operation.
#[inline(always)]
fn check_access<T: Element>(access: Access) -> Result<()> {
    match access {
        Access::Accumulate(op) => check_reduce::<T>(op),
        Access::ReadWrite | Access::Write => Ok(()),
    }
}

/// Parts held for writing. Ends the access, at the latest when it is dropped; the verdict says how.
struct WriteAccess<'b, T: Element, D> {
    core: &'b Core<T, D>,
    set: PartSet,
    access: Access,
    /// The guard is recorded in the mirror only.
    quick: bool,
    /// The array is borrowed exclusively while the guard lives.
    alone: bool,
    /// The thread was already panicking when the guard was taken; such a panic does not poison the parts.
    panicking: bool,
    wrote: bool,
    failed: bool,
    /// The memory has a pattern where it has no values.
    patterned: bool,
    /// The end of the write checks that it is complete.
    checked: bool,
    /// The end of the write does more than usual.
    extras: bool,
    /// The outcome of operations through views.
    report: WriteReport,
    ended: bool,
}

impl<'b, T: Element, D> WriteAccess<'b, T, D> {
    #[inline]
    fn new(core: &'b Core<T, D>, set: PartSet, access: Access, quick: bool, alone: bool) -> Self {
        Self {
            core,
            set,
            access,
            quick,
            alone,
            panicking: std::thread::panicking(),
            wrote: false,
            failed: false,
            patterned: false,
            checked: false,
            extras: false,
            report: WriteReport::new(),
            ended: false,
        }
    }

    /// Does what the array wants of a write that begins, and not in the mirror.
    #[cold]
    fn begin_extras(&mut self) -> Result<()> {
        self.extras = self.core.has_extras();
        if self.access != Access::Write || !self.core.checks_writes() {
            return Ok(());
        }
        self.checked = true;
        self.core.begin_check(self.set)
    }

    #[inline]
    fn wrote(&self) -> bool {
        self.wrote || self.report.wrote()
    }

    /// Whether the parts have no elements to write.
    fn is_empty(&self) -> bool {
        self.set.iter().all(|part| self.core.partition.len(part) == 0)
    }

    #[inline]
    fn failed(&self) -> bool {
        self.failed || self.report.failed()
    }

    /// How the access ends.
    #[inline]
    fn verdict(&self) -> Verdict {
        let panicked = std::thread::panicking() && !self.panicking;
        Verdict::new(self.access, panicked, self.failed(), self.wrote(), || self.is_empty())
    }

    #[inline]
    fn end(&mut self, verdict: Verdict) -> Result<()> {
        self.ended = true;
        self.core.end(&self.set, self.quick, self.alone, verdict)
    }

    /// Ends the access as its verdict says, and returns the verdict.
    #[inline]
    fn finish(&mut self) -> Result<Verdict> {
        if self.extras {
            return self.finish_with_extras();
        }
        let verdict = self.verdict();
        self.end(verdict).map(|()| verdict)
    }

    #[cold]
    fn finish_with_extras(&mut self) -> Result<Verdict> {
        self.failed |= self.patterned;
        let verdict = self.verdict().collective(self.access, || self.core.is_refreshed());
        let (core, set, is_checked) = (self.core, self.set, self.checked);
        core.finish(set, is_checked, verdict, |verdict| self.end(verdict))
    }

    fn commit(mut self) -> Result<()> {
        let why = match self.finish()? {
            Verdict::Abort(Poison::Unwritten(_)) => {
                return Err(self.core.lost_by_writer(self.set));
            }
            Verdict::Abort(why) => why,
            Verdict::Commit | Verdict::Keep => return Ok(()),
        };
        let message = format!("{why}; parts {:?} are poisoned", self.set);
        Err(Error::new(ErrorKind::Poisoned, "commit", message))
    }

    fn abort(mut self) {
        // This cannot be refused: the guard holds the parts, or they are already lost.
        let _poisoned = self.end(Verdict::Abort(Poison::Aborted));
    }

    /// Splits off the parts in `set`; the second result holds the others.
    fn split(mut self, set: PartSet) -> (Self, Self) {
        self.ended = true;
        let half = |set| {
            let mut half = Self::new(self.core, set, self.access, self.quick, false);
            half.panicking = self.panicking;
            half.wrote = self.wrote();
            half.failed = self.failed();
            half.patterned = self.patterned;
            half.checked = self.checked;
            half.extras = self.extras;
            half
        };
        (half(self.set.and(set)), half(self.set.without(set)))
    }
}

impl<T: Element, D> Drop for WriteAccess<'_, T, D> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            // For the result, the caller uses `commit`. Reading a lost part reports the loss.
            let _ended = self.finish();
        }
    }
}
