//! The outcome of the writes through a view.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::Result;

/// The outcome of the writes through a view, for the lender of the view.
#[derive(Debug, Default)]
pub struct WriteReport {
    wrote: AtomicBool,
    /// The number of failures, and of writes that have begun and not ended.
    failures: AtomicUsize,
}

impl WriteReport {
    /// A report of no writes.
    #[inline]
    pub const fn new() -> Self {
        Self { wrote: AtomicBool::new(false), failures: AtomicUsize::new(0) }
    }

    /// Whether an operation that writes elements was enqueued through the view. An operation on no element is none.
    #[inline]
    pub fn wrote(&self) -> bool {
        self.wrote.load(Ordering::Acquire)
    }

    /// Whether enqueueing such an operation failed or panicked, or a [write of several
    /// operations](crate::MemoryViewMut::begin_write) has not ended. The bytes may then be wrong.
    #[inline]
    pub fn failed(&self) -> bool {
        self.failures.load(Ordering::Acquire) > 0
    }

    /// Stores that a write was enqueued or failed.
    pub(crate) fn note(&self, enqueued: bool) {
        if enqueued {
            self.wrote.store(true, Ordering::Release);
        } else {
            self.failures.fetch_add(1, Ordering::Release);
        }
    }
}

/// A write of several operations that has begun, made by
/// [`MemoryViewMut::begin_write`](crate::MemoryViewMut::begin_write).
///
/// The lender of the view counts the write as failed until [`end`](Self::end). If this value is dropped or forgotten
/// before, it counts as failed for ever.
#[must_use = "the write counts as failed until end()"]
#[derive(Debug)]
pub struct UnfinishedWrite<'a>(Option<&'a WriteReport>);

impl<'a> UnfinishedWrite<'a> {
    pub(super) fn begin(report: Option<&'a WriteReport>) -> Self {
        if let Some(report) = report {
            report.note(false);
        }
        Self(report)
    }

    /// Reports that all operations of the write were enqueued.
    pub fn end(self) {
        if let Some(report) = self.0 {
            report.failures.fetch_sub(1, Ordering::Release);
        }
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
