//! The outcome of the writes through a view.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Result;

/// The outcome of the writes through a view, for the lender of the view.
#[derive(Debug, Default)]
pub struct WriteReport {
    wrote: AtomicBool,
    failed: AtomicBool,
}

impl WriteReport {
    /// A report of no writes.
    #[inline]
    pub const fn new() -> Self {
        Self { wrote: AtomicBool::new(false), failed: AtomicBool::new(false) }
    }

    /// Whether an operation that writes elements was enqueued through the view. An operation on no element is none.
    #[inline]
    pub fn wrote(&self) -> bool {
        self.wrote.load(Ordering::Acquire)
    }

    /// Whether enqueueing such an operation failed or panicked. The bytes may then be wrong.
    #[inline]
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Stores that a write was enqueued or failed.
    pub(crate) fn note(&self, enqueued: bool) {
        let flag = if enqueued { &self.wrote } else { &self.failed };
        flag.store(true, Ordering::Release);
    }
}

/// Enqueues a write and reports to its lenders whether it was enqueued or failed. A panic counts as a failure.
#[inline]
pub(crate) fn reported(note: impl Fn(bool), enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
    struct Panicked<F: Fn(bool)>(F);
    impl<F: Fn(bool)> Drop for Panicked<F> {
        fn drop(&mut self) {
            (self.0)(false);
        }
    }
    let panicked = Panicked(note);
    let done = enqueue();
    (panicked.0)(done.is_ok());
    mem::forget(panicked);
    done
}
