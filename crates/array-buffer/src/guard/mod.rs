//! Guards: an array's parts, lent to a stream or to the host.

mod device;
mod host;

pub(crate) use device::StreamRef;
pub use device::{ReadGuard, WriteGuard};
pub use host::{HostReadGuard, HostWriteGuard};

use runtime_core::{Element, Error, ErrorKind, Result, WriteReport};

use crate::coherence::{Access, Set};
use crate::core::Core;
use crate::poison::{Poison, Verdict};

/// Parts taken for writing. Ends the access as what became of it demands, on drop at the latest.
struct Held<'b, T: Element, D> {
    core: &'b Core<T, D>,
    set: Set,
    access: Access,
    /// Noted in the mirror alone.
    quick: bool,
    /// The array is borrowed exclusively as long as the guard lives.
    alone: bool,
    /// The thread was panicking already, so that a panic is not this guard's.
    panicking: bool,
    wrote: bool,
    failed: bool,
    /// It has a pattern where it has no values.
    patterned: bool,
    /// What became of operations through views.
    report: WriteReport,
    ended: bool,
}

impl<'b, T: Element, D> Held<'b, T, D> {
    #[inline]
    fn new(core: &'b Core<T, D>, set: Set, access: Access, quick: bool, alone: bool) -> Self {
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
            report: WriteReport::new(),
            ended: false,
        }
    }

    #[inline]
    fn wrote(&self) -> bool {
        self.wrote || self.report.wrote()
    }

    /// Whether there is nothing that could be written.
    fn is_empty(&self) -> bool {
        self.set.iter().all(|part| self.core.partition.len(part) == 0)
    }

    #[inline]
    fn failed(&self) -> bool {
        self.failed || self.report.failed()
    }

    /// What becomes of the access.
    #[inline]
    fn verdict(&self) -> Verdict {
        let panicked = std::thread::panicking() && !self.panicking;
        let failed = self.patterned || self.failed();
        Verdict::new(self.access, panicked, failed, self.wrote(), || self.is_empty())
    }

    #[inline]
    fn end(&mut self, verdict: Verdict) -> Result<()> {
        self.ended = true;
        self.core.end(self.set, self.quick, self.alone, verdict)
    }

    fn commit(mut self) -> Result<()> {
        let verdict = self.verdict();
        self.end(verdict)?;
        let Verdict::Abort(why) = verdict else { return Ok(()) };
        let message = format!("{why}; parts {:?} are poisoned", self.set);
        Err(Error::new(ErrorKind::Poisoned, "commit", message))
    }

    fn abort(mut self) {
        // It cannot be refused: the guard holds the parts, or they are lost already.
        let _poisoned = self.end(Verdict::Abort(Poison::Aborted));
    }

    /// The parts in `set`, and the others.
    fn split(mut self, set: Set) -> (Self, Self) {
        self.ended = true;
        let half = |set| {
            let mut half = Self::new(self.core, set, self.access, self.quick, false);
            half.panicking = self.panicking;
            half.wrote = self.wrote();
            half.failed = self.failed();
            half.patterned = self.patterned;
            half
        };
        (half(self.set.and(set)), half(self.set.without(set)))
    }
}

impl<T: Element, D> Drop for Held<'_, T, D> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            // Who wants to know calls `commit`; a part that is lost says so when it is read.
            let _ended = self.end(self.verdict());
        }
    }
}
