//! An array that several owners share under a lock.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use ndarray::Dimension;
use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};
use parking_lot::{Mutex, RawRwLock, RwLock};
use runtime_core::{Element, Error, ErrorKind, Result, interrupt};

use crate::ArrayBuffer;
use crate::call_site::{At, CallSite};

/// An array with a lock and any number of owners, for threads, and for languages without borrowing.
///
/// Guards own a share of the array and lend the [`ArrayBuffer`]. The caller gives a timeout for waiting. The error
/// names the holder of the array. A thread that would wait for itself gets an error at once. The thread that took a
/// guard counts as its holder, also after the guard was moved to another thread.
///
/// ```
/// use std::time::Duration;
/// use array_buffer::{ArrayBuffer, ErrorKind, SharedArrayBuffer};
///
/// let shared = SharedArrayBuffer::new(ArrayBuffer::from_vec(vec![1, 2], 2)?);
/// let reader = shared.read(Duration::ZERO)?;
/// let error = shared.write(Duration::from_secs(1)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Conflict);
/// assert!(error.message().contains("held for reading"), "{error}");
/// drop(reader);
/// shared.write(Duration::ZERO)?.write_host()?.fill(3);
/// # Ok::<(), array_buffer::Error>(())
/// ```
pub struct SharedArrayBuffer<T: Element, D: Dimension> {
    lock: Arc<RwLock<ArrayBuffer<T, D>>>,
    holders: Arc<Mutex<Holders>>,
}

#[derive(Default)]
struct Holders {
    next: u64,
    list: Vec<Holder>,
}

/// A holder of the array.
struct Holder {
    id: u64,
    thread: ThreadId,
    /// The name given to `freeze`, or the name of the thread, if it has one.
    name: Option<String>,
    writes: bool,
    frozen: bool,
    call_site: CallSite,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.frozen, self.writes) {
            (true, _) => "frozen",
            (false, true) => "held for writing",
            (false, false) => "held for reading",
        };
        let at = At(self.call_site);
        match &self.name {
            Some(name) if self.frozen => write!(f, "{how} by {name}{at}"),
            _ if self.thread == thread::current().id() => write!(f, "{how} by this thread{at}"),
            Some(name) => write!(f, "{how} by thread {name:?}{at}"),
            None => write!(f, "{how} by another thread{at}"),
        }
    }
}

/// An entry in the list of holders, removed on drop.
struct Entry {
    id: u64,
    holders: Arc<Mutex<Holders>>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.holders.lock().list.retain(|holder| holder.id != self.id);
    }
}

/// The array, locked for reading; writers are kept out.
pub struct SharedRead<T: Element, D: Dimension> {
    // Dropped before the lock is released, so errors name only current holders.
    _entry: Entry,
    guard: ArcRwLockReadGuard<RawRwLock, ArrayBuffer<T, D>>,
}

/// The array, locked for reading and writing.
pub struct SharedWrite<T: Element, D: Dimension> {
    _entry: Entry,
    guard: ArcRwLockWriteGuard<RawRwLock, ArrayBuffer<T, D>>,
}

impl<T: Element, D: Dimension> SharedArrayBuffer<T, D> {
    /// Wraps an array for sharing.
    pub fn new(array: ArrayBuffer<T, D>) -> Self {
        Self { lock: Arc::new(RwLock::new(array)), holders: Arc::default() }
    }

    /// Locks the array for reading. Waits at most `timeout` for a writer.
    ///
    /// # Errors
    ///
    /// `Timeout`; it names the holder. `Conflict` at once if this thread took the array for writing.
    #[track_caller]
    pub fn read(&self, timeout: Duration) -> Result<SharedRead<T, D>> {
        self.take_read(timeout, None, Location::caller())
    }

    /// Locks the array for reading. While the result lives, writers are refused at once; the error names `who`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn freeze(&self, who: impl Into<String>, timeout: Duration) -> Result<SharedRead<T, D>> {
        self.take_read(timeout, Some(who.into()), Location::caller())
    }

    /// Locks the array for reading and writing. Waits at most `timeout` for other holders.
    ///
    /// # Errors
    ///
    /// `Timeout`; it names the holders. `Conflict` at once if the array is [frozen](Self::freeze), or if this thread
    /// took it.
    #[track_caller]
    pub fn write(&self, timeout: Duration) -> Result<SharedWrite<T, D>> {
        let call_site = Location::caller();
        self.refuse_if(|holder| holder.frozen || holder.thread == thread::current().id())?;
        let guard = interrupt::in_steps(timeout, |step| self.lock.try_write_arc_for(step))?
            .ok_or_else(|| self.late(timeout))?;
        Ok(SharedWrite { _entry: self.enter(None, true, call_site), guard })
    }

    fn take_read(
        &self,
        timeout: Duration,
        frozen: Option<String>,
        call_site: CallSite,
    ) -> Result<SharedRead<T, D>> {
        self.refuse_if(|holder| holder.writes && holder.thread == thread::current().id())?;
        // Recursive: a thread that already reads must not wait behind a writer that waits for it.
        let guard =
            interrupt::in_steps(timeout, |step| self.lock.try_read_arc_recursive_for(step))?
                .ok_or_else(|| self.late(timeout))?;
        Ok(SharedRead { _entry: self.enter(frozen, false, call_site), guard })
    }

    fn enter(&self, frozen: Option<String>, writes: bool, call_site: CallSite) -> Entry {
        let current = thread::current();
        let mut holders = self.holders.lock();
        holders.next += 1;
        let id = holders.next;
        let is_frozen = frozen.is_some();
        let name = frozen.or_else(|| current.name().map(str::to_owned));
        let thread = current.id();
        holders.list.push(Holder { id, thread, name, writes, frozen: is_frozen, call_site });
        Entry { id, holders: Arc::clone(&self.holders) }
    }

    fn refuse_if(&self, conflicts: impl Fn(&Holder) -> bool) -> Result<()> {
        match self.holders.lock().list.iter().find(|holder| conflicts(holder)) {
            None => Ok(()),
            Some(holder) => {
                Err(Error::new(ErrorKind::Conflict, "shared array", format!("it is {holder}")))
            }
        }
    }

    fn late(&self, timeout: Duration) -> Error {
        let mut names: Vec<String> =
            self.holders.lock().list.iter().map(Holder::to_string).collect();
        if names.is_empty() {
            // The list changes after the lock is taken, and before it is released.
            names.push("held by a thread that has just taken it, or is giving it back".to_owned());
        }
        let message = format!("after {timeout:?} it is still {}", names.join(", "));
        Error::new(ErrorKind::Timeout, "shared array", message)
    }
}

impl<T: Element, D: Dimension> Clone for SharedArrayBuffer<T, D> {
    fn clone(&self) -> Self {
        Self { lock: Arc::clone(&self.lock), holders: Arc::clone(&self.holders) }
    }
}

impl<T: Element, D: Dimension> Deref for SharedRead<T, D> {
    type Target = ArrayBuffer<T, D>;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl<T: Element, D: Dimension> Deref for SharedWrite<T, D> {
    type Target = ArrayBuffer<T, D>;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl<T: Element, D: Dimension> DerefMut for SharedWrite<T, D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.guard
    }
}

impl<T: Element, D: Dimension> fmt::Debug for SharedArrayBuffer<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedArrayBuffer({} holders)", self.holders.lock().list.len())
    }
}

impl<T: Element, D: Dimension> fmt::Debug for SharedRead<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Element, D: Dimension> fmt::Debug for SharedWrite<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_while_the_list_of_holders_changes_is_a_whole_sentence() {
        let shared = SharedArrayBuffer::new(ArrayBuffer::from_vec(vec![1], 1).unwrap());
        let error = shared.late(Duration::ZERO);
        assert!(error.message().ends_with("giving it back"), "{error}");
    }
}
