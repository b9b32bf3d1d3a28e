//! How loops are spread over cores.
#![expect(unsafe_code, reason = "declares what code that shares out bytes by loop index relies on")]

use std::fmt;

use runtime_core::ParallelFor;

/// A [`ParallelFor`] that is known to keep its word, so that bytes can be shared out by index.
#[derive(Clone, Copy)]
pub struct Cores<'a>(&'a ParallelFor<'a>);

impl<'a> Cores<'a> {
    /// The calling thread alone.
    pub const SERIAL: Cores<'static> = Cores(&serial);

    /// The cores that `parallel` spreads loops over.
    ///
    /// # Safety
    ///
    /// `parallel(count, f)` calls `f` once with each index below `count` and with nothing else, and all calls have
    /// ended when it returns or unwinds.
    pub unsafe fn new(parallel: &'a ParallelFor<'a>) -> Self {
        Self(parallel)
    }

    /// The loop itself.
    pub fn parallel(self) -> &'a ParallelFor<'a> {
        self.0
    }

    /// Calls `f` once with each index below `count`; returns when all calls have.
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
