//! Distribution of loops over cores.
#![expect(unsafe_code, reason = "declares what code that shares out bytes by loop index relies on")]

use std::fmt;

use runtime_core::ParallelFor;

/// A [`ParallelFor`] that is guaranteed to call each index once, so that bytes can be divided by index.
#[derive(Clone, Copy)]
pub struct Cores<'a>(&'a ParallelFor<'a>);

impl<'a> Cores<'a> {
    /// Only the calling thread.
    pub const SERIAL: Cores<'static> = Cores(&serial);

    /// The cores that `parallel` spreads loops over.
    ///
    /// # Safety
    ///
    /// `parallel(count, f)` calls `f` once with each index below `count` and with no other index. All calls have ended
    /// when it returns or unwinds.
    pub unsafe fn new(parallel: &'a ParallelFor<'a>) -> Self {
        Self(parallel)
    }

    /// The loop itself.
    pub fn parallel(self) -> &'a ParallelFor<'a> {
        self.0
    }

    /// Calls `f` once with each index below `count`. Returns when all calls have returned.
    pub fn for_each(self, count: usize, f: &(dyn Fn(usize) + Sync)) {
        match count {
            0 => {}
            1 => f(0),
            _ => (self.0)(count, f),
        }
    }
}

impl fmt::Debug for Cores<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cores").finish_non_exhaustive()
    }
}

fn serial(count: usize, f: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(f);
}
