//! Accesses that own a handle of an array. They are for memory that is lent to foreign code (code outside this
//! runtime), which may return it at any time and on any thread.

use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

use coherence::{Access, ReplicaId};
use ndarray::Dimension;
use runtime_core::{
    Device, Element, Error, ErrorKind, MemoryView, MemoryViewMut, Result, Stream, WriteReport,
};
use smallvec::SmallVec;

use crate::core::{Request, TrackedStream};
use crate::poison::{Poison, Verdict};
use crate::storage::Hold;
use crate::{ArrayBuffer, PartStatus, SharedArrayBuffer, SharedRead, SharedWrite, TransferReport};

/// Holds the values of a whole array, on a device or on the host, for reading or for reading and writing. Dropping the
/// lease releases them. It may be dropped on any thread.
///
/// The array cannot track what foreign code does with the memory. So the code that lends the memory must report foreign
/// writes with [`mark_written`](Self::mark_written), and must keep the lease until the foreign work is finished. The
/// array tracks writes that this runtime makes through [`view_mut_shared`](Self::view_mut_shared).
///
/// The thread that took the lease counts as its holder. If that thread requests the array in a conflicting way
/// meanwhile, it gets an error at once.
///
/// Dropping a lease ends it as a [`WriteGuard`](crate::WriteGuard) ends: the drop commits what was written. It poisons
/// the array instead if a panic that began while the lease lived causes the drop, if an operation failed, or if the
/// lease was taken to overwrite and nothing was written. The exception for a second panic is the same. A forgotten
/// lease (`mem::forget`) holds the array forever.
///
/// A lease may belong to the owner of [adopted](Device::memory_adopt) memory. If the destructor of such an owner uses
/// the same array, it must drop the lease first; otherwise it gets `Conflict` or `Timeout`. This is not possible if the
/// lease belongs to the owner of other adopted memory that the destructor drops: such an owner is dropped only after
/// the destructor returns (see [`Owner`](runtime_core::Owner)). The destructor then always gets the error.
pub struct Lease<T: Element, D: Dimension> {
    lock: Lock<T, D>,
    stream: Option<Stream>,
    at: ReplicaId,
    strides: SmallVec<[usize; 4]>,
    /// The write is recorded in the mirror only.
    quick: bool,
    /// The kind of write access; `None` for reading.
    access: Option<Access>,
    wrote: bool,
    /// The outcome of operations through views.
    report: WriteReport,
    /// The end of the write checks that it is complete.
    checked: bool,
    panicking: bool,
    ended: bool,
    _hold: Option<Hold>,
}

/// The location of the values of a [`Lease`].
#[derive(Debug)]
pub enum Leased<'a, T> {
    /// On the host, starting at this element, with these [strides](Lease::strides).
    Host(NonNull<T>),
    /// In device memory; the view is bound to the lease's stream.
    Device(MemoryView<'a, T>),
}

enum Lock<T: Element, D: Dimension> {
    Read(SharedRead<T, D>),
    Write(SharedWrite<T, D>),
}

impl<T: Element, D: Dimension> Lock<T, D> {
    /// Ends the access; nothing is left to end for a reader.
    fn end(&self, quick: bool, verdict: Verdict) -> Result<()> {
        match self {
            Self::Read(_) => Ok(()),
            Self::Write(array) => {
                let all = array.core.partition.all().set;
                array.core.end(&all, quick, array.core.is_private(), verdict)
            }
        }
    }

    fn array(&self) -> &ArrayBuffer<T, D> {
        match self {
            Self::Read(array) => array,
            Self::Write(array) => array,
        }
    }
}

impl<T: Element, D: Dimension> SharedArrayBuffer<T, D> {
    /// Holds the values for reading. With a stream, they are valid there for work enqueued from now on; without a
    /// stream, they are valid on the host. Waits at most `timeout` for a writer.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read) and [`ArrayBuffer::read`].
    #[track_caller]
    pub fn lease_read(&self, stream: Option<&Stream>, timeout: Duration) -> Result<Lease<T, D>> {
        let lock = self.read(timeout)?;
        let (at, hold) = lock.core.read(&request(&lock, stream, "read", Location::caller()))?;
        Ok(Lease::new(Lock::Read(lock), stream, at, false, None, hold))
    }

    /// As [`lease_read`](Self::lease_read), for reading and writing. Waits at most `timeout` for other holders.
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

    /// As [`lease_read`](Self::lease_read), for overwriting: nothing is copied, and the caller must write every
    /// element.
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
        lock.exclusive().forget_idle_if_crowded()?;
        let request = request(&lock, stream, name, Location::caller());
        let (at, quick, hold) = lock.core.acquire(&request, access, lock.core.is_private())?;
        let mut lease = Lease::new(Lock::Write(lock), stream, at, quick, Some(access), hold);
        let core = &lease.lock.array().core;
        if access == Access::Write && core.checks_writes() {
            core.begin_check(core.partition.all().set)?;
            lease.checked = true;
        }
        Ok(lease)
    }
}

fn request<'a, T: Element, D: Dimension>(
    array: &'a ArrayBuffer<T, D>,
    stream: Option<&'a Stream>,
    access: &'static str,
    call_site: &'static Location<'static>,
) -> Request<'a> {
    Request { may_refresh: true, ..Request::new(array.all(), stream, access, call_site) }
}

impl<T: Element, D: Dimension> Lease<T, D> {
    fn new(
        lock: Lock<T, D>,
        stream: Option<&Stream>,
        at: ReplicaId,
        quick: bool,
        access: Option<Access>,
        hold: Option<Hold>,
    ) -> Self {
        let panicking = std::thread::panicking();
        let stream = stream.cloned();
        let report = WriteReport::new();
        Self {
            strides: lock.array().core.strides(at),
            lock,
            stream,
            at,
            quick,
            access,
            wrote: false,
            report,
            checked: false,
            panicking,
            ended: false,
            _hold: hold.map(|hold| hold.by("a lease")),
        }
    }

    /// Whether the values may be written.
    pub fn is_writable(&self) -> bool {
        matches!(self.lock, Lock::Write(_))
    }

    /// The stream on which the values are used; `None` on the host.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// The device on which the values are; `None` on the host.
    pub fn device(&self) -> Option<&Device> {
        self.stream.as_ref().map(Stream::device)
    }

    /// The streams, apart from the lease's own, through which the values came. The lease's stream comes after their
    /// work, but only they report whether it has failed: the values are good once all of them have been synchronised
    /// without an error. On the host, and for a lease to overwrite, there are none. Never blocks.
    ///
    /// # Errors
    ///
    /// `Poisoned` if such a failure was reported since the lease was taken.
    pub fn origins(&self) -> Result<Vec<Stream>> {
        let Some(stream) = self.stream.as_ref().filter(|_| self.access != Some(Access::Write))
        else {
            return Ok(Vec::new());
        };
        let array = self.lock.array();
        let Some(origins) = array.core.origins(*array.all(), self.at) else {
            let message = "work on the values has failed since the lease was taken";
            let error = Error::new(ErrorKind::Poisoned, "origins", message);
            return Err(error.on(stream.device().id()));
        };
        let others = origins.into_iter().map(TrackedStream::into_stream);
        Ok(others.filter(|origin| origin != stream).collect())
    }

    /// The extents of the array.
    pub fn shape(&self) -> &[usize] {
        self.lock.array().shape()
    }

    /// For each dimension, the distance of neighbours in memory, in elements. Under a
    /// [memory budget](ArrayBuffer::set_memory_budget), values on its device have no gaps between rows.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// As [`ArrayBuffer::version`]. Writes under the lease are not counted yet.
    pub fn version(&self) -> u64 {
        self.lock.array().version()
    }

    /// As [`ArrayBuffer::status`] of the first part; `InUse` while the values are held for writing.
    pub fn status(&self) -> PartStatus {
        if self.is_writable() { PartStatus::InUse } else { self.lock.array().status(0) }
    }

    /// As [`ArrayBuffer::transfers`].
    pub fn transfers(&self) -> TransferReport {
        self.lock.array().transfers()
    }

    /// As [`ArrayBuffer::is_valid_on`]; `None` means the host.
    pub fn is_valid_on(&self, device: Option<&Device>) -> bool {
        self.lock.array().core.is_valid_on(device)
    }

    /// Returns the location of the values.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an array of several parts that have separate memory there, under a
    /// [memory budget](ArrayBuffer::set_memory_budget).
    pub fn values(&self) -> Result<Leased<'_, T>> {
        let core = &self.lock.array().core;
        let Some(stream) = &self.stream else {
            return core.storage.host_ptr().map(Leased::Host);
        };
        Ok(Leased::Device(core.view(&core.partition.all().set, self.at, stream)?))
    }

    /// The values in device memory, to read and write. The view is bound to the lease's stream.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the lease is for reading only, or is on the host.
    ///
    /// # Safety
    ///
    /// Code that has the memory's address does not access the same elements while this view, or work that was enqueued
    /// through it, uses them.
    #[expect(unsafe_code, reason = "others may know the address")]
    pub unsafe fn view_mut_shared(&self) -> Result<MemoryViewMut<'_, T>> {
        let Some(stream) = self.stream.as_ref().filter(|_| self.is_writable()) else {
            let message = format!("{self:?}; a lease to write on a device is needed");
            return Err(Error::new(ErrorKind::InvalidArgument, "lease", message));
        };
        let core = &self.lock.array().core;
        let view = core.view_mut(&core.partition.all().set, self.at)?;
        view.on_stream(stream)?.reporting_to(&self.report)
    }

    /// Declares that the values were written. They become the values of the array when the lease ends. Does nothing if
    /// the lease is for reading only.
    pub fn mark_written(&mut self) {
        self.wrote = self.is_writable();
    }

    /// Ends the lease as dropping does, and returns an error if the values were not committed.
    ///
    /// # Errors
    ///
    /// `Poisoned` if an operation failed, or if the lease was taken to overwrite and nothing was written. `Poisoned`
    /// also if earlier work on these values failed and they are lost.
    pub fn commit(mut self) -> Result<()> {
        let why = match self.finish()? {
            Verdict::Abort(Poison::Unwritten(_)) => {
                let core = &self.lock.array().core;
                return Err(core.lost_by_writer(core.partition.all().set));
            }
            Verdict::Abort(why) => why,
            Verdict::Commit | Verdict::Keep => return Ok(()),
        };
        let message = format!("{why}; the array is poisoned");
        Err(Error::new(ErrorKind::Poisoned, "commit", message))
    }

    /// Ends the lease. If it was for writing, the values are poisoned.
    pub fn abort(mut self) {
        // This cannot be refused: the lease holds the array.
        let _poisoned = self.end(Verdict::Abort(Poison::Aborted));
    }

    /// How the access ends.
    fn verdict(&self) -> Verdict {
        let Some(access) = self.access else { return Verdict::Keep };
        let panicked = std::thread::panicking() && !self.panicking;
        let (failed, wrote) = (self.report.failed(), self.wrote || self.report.wrote());
        let verdict =
            Verdict::new(access, panicked, failed, wrote, || self.lock.array().is_empty());
        verdict.collective(access, || self.lock.array().core.is_refreshed())
    }

    /// Ends the access as its verdict says, and returns the verdict.
    fn finish(&mut self) -> Result<Verdict> {
        let verdict = self.verdict();
        let Self { lock, quick, checked, ended, .. } = self;
        let array = lock.array();
        array.core.finish(*array.all(), *checked, verdict, |verdict| {
            *ended = true;
            lock.end(*quick, verdict)
        })
    }

    fn end(&mut self, verdict: Verdict) -> Result<()> {
        self.ended = true;
        self.lock.end(self.quick, verdict)
    }
}

impl<T: Element, D: Dimension> Drop for Lease<T, D> {
    fn drop(&mut self) {
        if !self.ended {
            // For the result, the caller uses `commit`. Reading a lost array reports the loss.
            let _ended = self.finish();
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
