//! Locking a mutex although a thread that held it panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even if a thread panicked while it held the lock: every critical section of this crate leaves its data
/// consistent.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
