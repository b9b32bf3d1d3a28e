//! Mutexes: how they are locked, and one that is held while Python code runs, which may call back.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use runtime::{Error, ErrorKind, Result};

/// Locks a mutex whose data is consistent even after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mutex that reports when a thread would wait for itself.
#[derive(Default)]
pub(crate) struct CallbackMutex<T> {
    value: Mutex<T>,
    holder: Mutex<Option<ThreadId>>,
}

impl<T> CallbackMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), holder: Mutex::default() }
    }

    /// Blocks while another thread has the lock, so the caller must let other Python threads run.
    ///
    /// # Errors
    ///
    /// `Conflict` if this thread has the lock.
    pub(crate) fn lock(&self, operation: &'static str) -> Result<CallbackGuard<'_, T>> {
        let this_thread = thread::current().id();
        if *lock(&self.holder) == Some(this_thread) {
            let message = "a call that is not over has called this code";
            return Err(Error::new(ErrorKind::Conflict, operation, message));
        }
        let value = lock(&self.value);
        *lock(&self.holder) = Some(this_thread);
        Ok(CallbackGuard { value, holder: &self.holder })
    }

    /// Locks for a time in which no Python code runs. Blocks until no thread has the lock.
    pub(crate) fn wait(&self) -> MutexGuard<'_, T> {
        lock(&self.value)
    }
}

/// The lock of a [`CallbackMutex`].
pub(crate) struct CallbackGuard<'a, T> {
    value: MutexGuard<'a, T>,
    holder: &'a Mutex<Option<ThreadId>>,
}

impl<T> Deref for CallbackGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for CallbackGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for CallbackGuard<'_, T> {
    fn drop(&mut self) {
        // Before the value is unlocked: the next holder enters itself.
        *lock(self.holder) = None;
    }
}
