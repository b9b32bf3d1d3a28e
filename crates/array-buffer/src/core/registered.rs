//! What refreshes the ghosts of an array.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use runtime_core::Stream;

use crate::call_site::CallSite;

/// What refreshes the ghosts of an array, if anything does.
pub(super) struct Refreshing<R: ?Sized>(Mutex<Option<Arc<Registered<R>>>>);

pub(super) struct Registered<R: ?Sized> {
    pub(super) stream: Stream,
    /// Locked while a refresh runs.
    pub(super) run: Mutex<Box<R>>,
    /// The thread that runs a refresh.
    pub(super) runner: Mutex<Option<ThreadId>>,
    /// The version of the array, less the number of its collective operations.
    pub(super) base: AtomicU64,
    /// The latest local write, until the ghosts are marked as stale.
    pub(super) local: Mutex<Option<CallSite>>,
}

impl<R: ?Sized> Refreshing<R> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The number of heap bytes, without those of the closure.
    pub(super) fn heap_bytes(&self) -> usize {
        self.get().map_or(0, |known| size_of_val(&*known))
    }

    pub(super) fn get(&self) -> Option<Arc<Registered<R>>> {
        self.0.lock().clone()
    }

    pub(super) fn set(&self, registered: Option<Registered<R>>) {
        let earlier = mem::replace(&mut *self.0.lock(), registered.map(Arc::new));
        // Not under the lock: what was registered may use the array when it is dropped.
        drop(earlier);
    }
}

impl<R: ?Sized> Registered<R> {
    /// An array of this `version` registers `run`.
    pub(super) fn new(stream: Stream, run: Box<R>, version: u64) -> Self {
        let (run, runner, local) = (Mutex::new(run), Mutex::new(None), Mutex::new(None));
        Self { stream, run, runner, base: AtomicU64::new(version), local }
    }
}

/// The thread that runs a refresh, for as long as it does.
pub(super) struct Runner<'a>(&'a Mutex<Option<ThreadId>>);

impl<'a> Runner<'a> {
    pub(super) fn enter(runner: &'a Mutex<Option<ThreadId>>) -> Self {
        *runner.lock() = Some(thread::current().id());
        Self(runner)
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
