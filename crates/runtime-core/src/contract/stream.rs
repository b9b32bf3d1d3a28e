//! Streams and events.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use super::{DeviceKernel, DeviceMemory, DevicePinned, RawArg};
use crate::{Error, Launch, NativeHandle, Result};

/// Where a copy or fill starts in an object of the device.
pub struct At<'a, T: ?Sized> {
    /// The memory.
    pub object: &'a T,
    /// Bytes from its start.
    pub offset: usize,
}

/// Where a copy or fill starts in device memory.
pub type MemoryAt<'a> = At<'a, dyn DeviceMemory>;

/// Where a copy starts in pinned memory.
pub type PinnedAt<'a> = At<'a, dyn DevicePinned>;

impl<'a, T: ?Sized> At<'a, T> {
    /// `offset` bytes from the start of `object`.
    pub fn new(object: &'a T, offset: usize) -> Self {
        Self { object, offset }
    }
}

impl<T: ?Sized> Clone for At<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for At<'_, T> {}

impl<T: ?Sized> fmt::Debug for At<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("At").field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// An in-order queue of work.
///
/// Work enqueued on one stream runs in that order. Only events order two streams. Enqueueing *must not* wait for the
/// work, except where a method is documented as done on return. Several threads may enqueue at once.
///
/// After unordered operations of two streams on the same bytes, the bytes are unspecified. That *must not* be undefined
/// behaviour: a device whose memory is host memory locks each allocation while it works on it.
///
/// A failure that occurs while enqueued work runs is kept until [`take_failure`](Self::take_failure) returns it. Work
/// enqueued behind it still ends: it runs or, until the failure is taken, is skipped. Recorded points are reached in
/// either case. A driver may let work fail as well that waits for such a point on another stream.
///
/// # Safety
///
/// Enqueued work touches exactly the bytes named. A method that is done on return no longer uses the host slice, even
/// when the method fails. When [`synchronize`](Self::synchronize) returns `Ok` or [`query`](Self::query) returns
/// `true`, the work enqueued before does not touch any byte any more, and its writes are visible to this thread: the
/// caller may then read and write the memory on the host, or free it.
pub unsafe trait DeviceStream: Any + Send + Sync {
    /// Enqueues a copy within the device. The ranges do not overlap.
    ///
    /// # Errors
    ///
    /// Errors of the driver, as for every enqueue.
    ///
    /// # Safety
    ///
    /// Both ranges lie inside memories of this device.
    unsafe fn memory_copy(&self, src: MemoryAt<'_>, dst: MemoryAt<'_>, bytes: usize) -> Result<()>;

    /// Copies host bytes to the device in stream order. `src` is no longer used on return, whether or not it is
    /// page-locked.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of this device.
    unsafe fn memory_copy_to(&self, dst: MemoryAt<'_>, src: &[u8]) -> Result<()>;

    /// Copies device bytes to the host in stream order. `dst` is filled on return. If earlier work on this stream
    /// failed, the bytes may be wrong: the front then [takes the failure](Self::take_failure).
    ///
    /// # Errors
    ///
    /// Errors of the driver. As for [`synchronize`](Self::synchronize), an error that this method returns does not
    /// take the place of a failure of earlier work.
    ///
    /// # Safety
    ///
    /// As [`memory_copy_to`](Self::memory_copy_to).
    unsafe fn memory_copy_from(&self, src: MemoryAt<'_>, dst: &mut [u8]) -> Result<()>;

    /// Enqueues a copy from pinned memory to the device.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    ///
    /// # Safety
    ///
    /// Both ranges lie inside objects of this device. The pinned memory lives until the copy has run. Until then the
    /// host does not write to it, and copies and graphs of other streams that write to it are ordered before or after
    /// this copy.
    unsafe fn pinned_copy_to(
        &self,
        src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues a copy from the device to pinned memory.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    ///
    /// # Safety
    ///
    /// Both ranges lie inside objects of this device. The pinned memory lives until the copy has run. Until then the
    /// host does not access it, and copies and graphs of other streams that access it are ordered before or after this
    /// copy.
    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues a fill of a range with a pattern of 1, 2, 4, 8 or 16 bytes. `dst.offset` is a multiple of the pattern's
    /// alignment, and `bytes` is a multiple of its length.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of this device.
    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()>;

    /// Enqueues a kernel. Values are copied before this returns.
    ///
    /// Memory arguments may share an allocation. No element of an argument that the kernel writes is also an element of
    /// another argument, because the front borrows views for writing exclusively. Views may interleave, so the byte
    /// ranges (`bytes` from `start` on) of two arguments may overlap unless both are `dense`. A kernel that is a Rust
    /// function gets only dense arguments.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    ///
    /// # Safety
    ///
    /// The kernel belongs to this device. It touches only the memory that the arguments name, which lies inside
    /// memories of this device.
    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()>;

    /// Records the end of all work enqueued so far in the event. This point replaces the one recorded earlier.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn record(&self, event: &dyn DeviceEvent) -> Result<()>;

    /// Makes work enqueued from now on wait, on the device, for the event's latest point. An event that was never
    /// recorded delays nothing. The event may belong to a device that [`PeerAccess`](super::PeerAccess) reaches.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn wait(&self, event: &dyn DeviceEvent) -> Result<()>;

    /// Whether all work enqueued so far is done, or has failed and no longer runs. Never blocks.
    ///
    /// # Errors
    ///
    /// `DeviceLost` or another error of the driver; the state of the work is then unknown. Failures of the work itself
    /// are returned by [`take_failure`](Self::take_failure).
    fn query(&self) -> Result<bool>;

    /// Blocks until all work enqueued so far is done, or has failed and no longer runs.
    ///
    /// # Errors
    ///
    /// `DeviceFault`, `DeviceLost` or another error of the driver. *Must not* return a failure of work that a later
    /// call would not meet again: such a failure is kept for [`take_failure`](Self::take_failure).
    fn synchronize(&self) -> Result<()>;

    /// Takes the first failure of work on this stream that was not taken before. If an event is reached, the failures
    /// of the work before it are found. The front calls it after [`synchronize`](Self::synchronize) and
    /// [`memory_copy_from`](Self::memory_copy_from), and counts the failure before another thread can find that none is
    /// left. It holds a lock meanwhile: the method *must not* block, and *must not* run code of the program.
    ///
    /// `None` also while the driver reports a failure to every later call of this stream.
    fn take_failure(&self) -> Option<Error>;

    /// The vendor's handle.
    fn native(&self) -> NativeHandle;
}

/// A recorded point in a stream.
///
/// # Safety
///
/// When `wait` returns `Ok` or `query` returns `true`, the work before the latest recorded point is done, and its
/// writes are visible to this thread.
pub unsafe trait DeviceEvent: Any + Send + Sync {
    /// Blocks until the work before the latest recorded point is done. Returns at once if the event was never recorded.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or another error of the driver.
    fn wait(&self) -> Result<()>;

    /// The caller is about to wait with a time limit. If threads of the host run the device's work, this one may run
    /// some of the work before the latest recorded point: work that no thread has begun, that waits for nothing, and
    /// that takes no longer than moving its bytes. Other devices return at once.
    fn assist(&self);

    /// Whether the work before the latest recorded point is done. `true` if the event was never recorded.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    fn query(&self) -> Result<bool>;

    /// The time on the device from `earlier` to this event. Both are timing events of this device, recorded and done.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration>;

    /// The vendor's handle.
    fn native(&self) -> NativeHandle;
}
