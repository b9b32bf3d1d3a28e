//! Accesses that own their share of an array: for memory that is lent to other people's code, which gives it back whenever,
//! and on whichever thread, it likes.

use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

use ndarray::Dimension;
use runtime_core::{Device, Element, MemoryView, Result, Stream};

use crate::coherence::{Access, Action, ReplicaId};
use crate::core::Request;
use crate::{ArrayBuffer, SharedArrayBuffer, SharedRead, SharedWrite};

/// The values of a whole array, held to be read, or to be read and written, on a device or on the host, until this is
/// dropped, on any thread.
///
/// Of what uses the memory nothing is seen. So whoever lends it says that it was [written](Self::mark_written), and lets
/// go of the lease only when that work is over.
///
/// A lease that is dropped commits what was written, as a guard does, and poisons the array on a panic begun under it. One
/// that is forgotten holds the array for ever.
pub struct Lease<T: Element, D: Dimension> {
    lock: Lock<T, D>,
    stream: Option<Stream>,
    at: ReplicaId,
    /// Noted in the mirror alone.
    quick: bool,
    wrote: bool,
    panicking: bool,
    ended: bool,
}

/// Where the values of a [`Lease`] are, in row-major order.
#[derive(Debug)]
pub enum Leased<'a, T> {
    /// On the host, from this element on.
    Host(NonNull<T>),
    /// In memory of a device; the view is bound to the lease's stream.
    Device(MemoryView<'a>),
}

enum Lock<T: Element, D: Dimension> {
    Read(SharedRead<T, D>),
    Write(SharedWrite<T, D>),
}

impl<T: Element, D: Dimension> Lock<T, D> {
    fn array(&self) -> &ArrayBuffer<T, D> {
        match self {
            Self::Read(array) => array,
            Self::Write(array) => array,
        }
    }
}

impl<T: Element, D: Dimension> SharedArrayBuffer<T, D> {
    /// Holds the values to be read: on the stream, for what is enqueued there from now on; or on the host, if there is none.
    /// Waits for a writer for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read) and [`ArrayBuffer::read`].
    #[track_caller]
    pub fn lease_read(&self, stream: Option<&Stream>, timeout: Duration) -> Result<Lease<T, D>> {
        let lock = self.read(timeout)?;
        let at = lock.core.read(&request(&lock, stream, "lease", Location::caller()))?;
        Ok(Lease::new(Lock::Read(lock), stream, at, false))
    }

    /// As [`lease_read`](Self::lease_read), to be read and written. Waits for others for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write) and [`ArrayBuffer::read_write`].
    #[track_caller]
    pub fn lease_read_write(
        &self,
        stream: Option<&Stream>,
        timeout: Duration,
    ) -> Result<Lease<T, D>> {
        let mut lock = self.write(timeout)?;
        lock.core.tidy();
        let request = request(&lock, stream, "lease", Location::caller());
        let (at, quick) = lock.core.acquire(&request, Access::ReadWrite, true)?;
        Ok(Lease::new(Lock::Write(lock), stream, at, quick))
    }
}

fn request<'a, T: Element, D: Dimension>(
    array: &ArrayBuffer<T, D>,
    stream: Option<&'a Stream>,
    access: &'static str,
    site: &'static Location<'static>,
) -> Request<'a> {
    Request { set: array.core.partition.all().0, stream, access, site }
}

impl<T: Element, D: Dimension> Lease<T, D> {
    fn new(lock: Lock<T, D>, stream: Option<&Stream>, at: ReplicaId, quick: bool) -> Self {
        let panicking = std::thread::panicking();
        let stream = stream.cloned();
        Self { lock, stream, at, quick, wrote: false, panicking, ended: false }
    }

    /// Whether the values may be written.
    pub fn is_writable(&self) -> bool {
        matches!(self.lock, Lock::Write(_))
    }

    /// The stream for whose work the values are there; `None` on the host.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// The device where they are; `None` on the host.
    pub fn device(&self) -> Option<&Device> {
        self.stream.as_ref().map(Stream::device)
    }

    /// Elements along each dimension.
    pub fn shape(&self) -> &[usize] {
        self.lock.array().shape()
    }

    /// Where the values are.
    ///
    /// # Errors
    ///
    /// None that a lease can have.
    pub fn values(&self) -> Result<Leased<'_, T>> {
        let core = &self.lock.array().core;
        let Some(stream) = &self.stream else {
            return core.storage.host_ptr().map(Leased::Host);
        };
        let view = core.storage.view(self.at)?.reshape(core.partition.shape())?;
        Ok(Leased::Device(view.on_stream(stream)))
    }

    /// Says that the values are written: they are the array's once the lease ends. Without effect on values that are only
    /// read.
    pub fn mark_written(&mut self) {
        self.wrote = self.is_writable();
    }

    /// Ends the lease, with the values poisoned if they were to be written.
    pub fn abort(mut self) {
        self.end(Action::Abort);
    }

    fn end(&mut self, action: Action) {
        self.ended = true;
        if let Lock::Write(array) = &self.lock {
            let all = array.core.partition.all().0;
            // A part that is lost says so when it is read.
            let _ended = array.core.end(all, self.quick, true, action);
        }
    }
}

impl<T: Element, D: Dimension> Drop for Lease<T, D> {
    fn drop(&mut self) {
        if !self.ended {
            let panics = std::thread::panicking() && !self.panicking;
            self.end(match (panics, self.wrote) {
                (true, _) => Action::Abort,
                (false, true) => Action::Commit,
                (false, false) => Action::Keep,
            });
        }
    }
}

impl<T: Element, D: Dimension> fmt::Debug for Lease<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_writable() { "to write" } else { "to read" };
        match self.device() {
            Some(device) => write!(f, "Lease({how} on {})", device.id()),
            None => write!(f, "Lease({how} on the host)"),
        }
    }
}
