//! Accesses that own their share of an array: for memory that is lent to other people's code, which gives it back whenever,
//! and on whichever thread, it likes.

use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

use ndarray::Dimension;
use runtime_core::{
    Device, Element, Error, ErrorKind, MemoryView, MemoryViewMut, Result, Stream, WriteReport,
};

use crate::coherence::{Access, ReplicaId};
use crate::core::Request;
use crate::poison::{Poison, Verdict};
use crate::{ArrayBuffer, PartStatus, SharedArrayBuffer, SharedRead, SharedWrite, TransferReport};

/// The values of a whole array, held to be read, or to be read and written, on a device or on the host, until this is
/// dropped, on any thread.
///
/// Of what others do with the memory nothing is seen. So whoever lends it to them says that it was
/// [written](Self::mark_written), and lets go of the lease only when that work is over. What this runtime writes, through
/// [`view_mut_shared`](Self::view_mut_shared), is seen.
///
/// It counts as held by the thread that took it, which is told so at once if it asks for the array meanwhile.
///
/// A lease that is dropped ends as a guard does: it commits what was written, and poisons the array if a panic that began
/// under it drops it, if an operation failed, or if it was taken to overwrite and nothing was written. One that is forgotten
/// holds the array for ever.
pub struct Lease<T: Element, D: Dimension> {
    lock: Lock<T, D>,
    stream: Option<Stream>,
    at: ReplicaId,
    /// Noted in the mirror alone.
    quick: bool,
    /// How it may be written.
    access: Option<Access>,
    wrote: bool,
    /// What became of operations through views.
    report: WriteReport,
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
        let at = lock.core.read(&request(&lock, stream, "read", Location::caller()))?;
        Ok(Lease::new(Lock::Read(lock), stream, at, false, None))
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
        self.lease_to_write(stream, Access::ReadWrite, "read_write", timeout)
    }

    /// As [`lease_read`](Self::lease_read), to be overwritten: nothing is copied, and all of it must be written.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write) and [`ArrayBuffer::write`].
    #[track_caller]
    pub fn lease_write(&self, stream: Option<&Stream>, timeout: Duration) -> Result<Lease<T, D>> {
        self.lease_to_write(stream, Access::Write, "write", timeout)
    }

    #[track_caller]
    fn lease_to_write(
        &self,
        stream: Option<&Stream>,
        access: Access,
        name: &'static str,
        timeout: Duration,
    ) -> Result<Lease<T, D>> {
        let mut lock = self.write(timeout)?;
        lock.core.tidy()?;
        let request = request(&lock, stream, name, Location::caller());
        let (at, quick) = lock.core.acquire(&request, access, true)?;
        Ok(Lease::new(Lock::Write(lock), stream, at, quick, Some(access)))
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
    fn new(
        lock: Lock<T, D>,
        stream: Option<&Stream>,
        at: ReplicaId,
        quick: bool,
        access: Option<Access>,
    ) -> Self {
        let panicking = std::thread::panicking();
        let stream = stream.cloned();
        let report = WriteReport::new();
        Self { lock, stream, at, quick, access, wrote: false, report, panicking, ended: false }
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

    /// As [`ArrayBuffer::version`]: without what is written under the lease.
    pub fn version(&self) -> u64 {
        self.lock.array().version()
    }

    /// As [`ArrayBuffer::status`]; `InUse` while the values are held to be written.
    pub fn status(&self) -> PartStatus {
        if self.is_writable() { PartStatus::InUse } else { self.lock.array().status(0) }
    }

    /// As [`ArrayBuffer::transfers`].
    pub fn transfers(&self) -> TransferReport {
        self.lock.array().transfers()
    }

    /// As [`ArrayBuffer::is_valid_on`]; `None` is the host.
    pub fn is_valid_on(&self, device: Option<&Device>) -> bool {
        self.lock.array().core.is_valid_on(device)
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
        Ok(Leased::Device(view.on_stream(stream)?))
    }

    /// The values in memory of the device, to read and write; the view is bound to the lease's stream.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if they are only to be read, or are on the host.
    ///
    /// # Safety
    ///
    /// Whoever has the memory's address does not touch the same elements while this view, or what was enqueued through it, is
    /// in use.
    #[expect(unsafe_code, reason = "others may know the address")]
    pub unsafe fn view_mut_shared(&self) -> Result<MemoryViewMut<'_>> {
        let Some(stream) = self.stream.as_ref().filter(|_| self.is_writable()) else {
            let message = format!("{self:?}; a lease to write on a device is needed");
            return Err(Error::new(ErrorKind::InvalidArgument, "lease", message));
        };
        let core = &self.lock.array().core;
        let view = core.storage.view_mut(self.at)?.reshape(core.partition.shape())?;
        view.on_stream(stream)?.reporting_to(&self.report)
    }

    /// Says that the values are written: they are the array's once the lease ends. Without effect on values that are only
    /// read.
    pub fn mark_written(&mut self) {
        self.wrote = self.is_writable();
    }

    /// Ends the lease as dropping it does, and says whether the values are the array's now.
    ///
    /// # Errors
    ///
    /// `Poisoned` if an operation failed or nothing was written that had to be; earlier work on these values may have failed
    /// too.
    pub fn commit(mut self) -> Result<()> {
        let verdict = self.verdict();
        self.end(verdict)?;
        let Verdict::Abort(why) = verdict else { return Ok(()) };
        let message = format!("{why}; the array is poisoned");
        Err(Error::new(ErrorKind::Poisoned, "commit", message))
    }

    /// Ends the lease, with the values poisoned if they were to be written.
    pub fn abort(mut self) {
        // It cannot be refused: the lease holds the array.
        let _poisoned = self.end(Verdict::Abort(Poison::Aborted));
    }

    /// What becomes of the access.
    fn verdict(&self) -> Verdict {
        let Some(access) = self.access else { return Verdict::Keep };
        let panicked = std::thread::panicking() && !self.panicking;
        let (failed, wrote) = (self.report.failed(), self.wrote || self.report.wrote());
        Verdict::new(access, panicked, failed, wrote, || self.lock.array().is_empty())
    }

    fn end(&mut self, verdict: Verdict) -> Result<()> {
        self.ended = true;
        match &self.lock {
            Lock::Read(_) => Ok(()),
            Lock::Write(array) => {
                let all = array.core.partition.all().0;
                array.core.end(all, self.quick, true, verdict)
            }
        }
    }
}

impl<T: Element, D: Dimension> Drop for Lease<T, D> {
    fn drop(&mut self) {
        if !self.ended {
            // Who wants to know calls `commit`; an array that is lost says so when it is read.
            let _ended = self.end(self.verdict());
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
