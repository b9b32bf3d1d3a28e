//! Streams and events.

use std::any::Any;
use std::time::Duration;

use super::{DeviceKernel, DeviceMemory, DevicePinned, RawArg};
use crate::{Launch, NativeHandle, Result};

/// An in-order queue of work.
///
/// What is enqueued on one stream runs in that order; nothing orders two streams but events. Enqueueing *must not*
/// wait for the work, except where a method says that it is done on return. Several threads may enqueue at once.
///
/// Unordered operations of two streams on the same bytes leave them unspecified. That *must not* be undefined
/// behaviour: a device whose memory is host memory locks each allocation while it works on it.
///
/// A failure found while enqueued work runs is kept and reported by `synchronize`; work enqueued behind it still ends, by
/// running or, until the failure is reported, by being left out. Marks of events are reached all the same.
///
/// # Safety
///
/// Enqueued work touches exactly the bytes named, and a method that is done on return is done with the host slice
/// even when it fails. [`synchronize`](Self::synchronize) returning `Ok` and [`query`](Self::query) answering `true` mean
/// that everything enqueued before touches no byte any more, and that its writes are visible to this thread: what follows
/// reads and writes the memory on the host, or gives it back.
pub unsafe trait DeviceStream: Any + Send + Sync {
    /// Enqueues a copy within the device. The ranges do not overlap.
    ///
    /// # Errors
    ///
    /// What the driver reports, as for every enqueue.
    ///
    /// # Safety
    ///
    /// Both ranges lie inside memories of this device.
    unsafe fn memory_copy(
        &self,
        src: &dyn DeviceMemory,
        src_offset: usize,
        dst: &dyn DeviceMemory,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<()>;

    /// Copies host bytes to the device in stream order; done with `src` on return, whether or not it is page-locked.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of this device.
    unsafe fn memory_copy_to(
        &self,
        dst: &dyn DeviceMemory,
        offset: usize,
        src: &[u8],
    ) -> Result<()>;

    /// Copies device bytes to the host in stream order; `dst` is filled on return.
    ///
    /// # Errors
    ///
    /// What the driver reports; *must* report a failure of earlier work on this stream, which makes the bytes doubtful,
    /// as [`synchronize`](Self::synchronize) would. It is reported by one of the two, once, and unless it is a
    /// `DeviceFault` or `DeviceLost` it *must* say so by [`Error::of_earlier_work`](crate::Error::of_earlier_work):
    /// whoever enqueued that work hears of it so, and not of the copy's own failures.
    ///
    /// # Safety
    ///
    /// As [`memory_copy_to`](Self::memory_copy_to).
    unsafe fn memory_copy_from(
        &self,
        src: &dyn DeviceMemory,
        offset: usize,
        dst: &mut [u8],
    ) -> Result<()>;

    /// Enqueues a copy from pinned memory to the device.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    ///
    /// # Safety
    ///
    /// Both ranges lie inside objects of this device. The pinned memory lives until the copy has run. Until then the host
    /// does not write it, and copies and graphs of other streams that do are ordered before or after this one.
    unsafe fn pinned_copy_to(
        &self,
        src: &dyn DevicePinned,
        src_offset: usize,
        dst: &dyn DeviceMemory,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues a copy from the device to pinned memory.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    ///
    /// # Safety
    ///
    /// Both ranges lie inside objects of this device. The pinned memory lives until the copy has run. Until then the host
    /// does not touch it, and copies and graphs of other streams that do are ordered before or after this one.
    unsafe fn pinned_copy_from(
        &self,
        src: &dyn DeviceMemory,
        src_offset: usize,
        dst: &dyn DevicePinned,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues filling a range with a pattern of 1, 2, 4, 8 or 16 bytes. `offset` and `bytes` are multiples of the
    /// pattern's alignment and length.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of this device.
    unsafe fn memory_fill(
        &self,
        dst: &dyn DeviceMemory,
        offset: usize,
        bytes: usize,
        pattern: &[u8],
    ) -> Result<()>;

    /// Enqueues a kernel. Values are copied before this returns.
    ///
    /// Memory arguments may share an allocation. An element of an argument that is written is no element of another
    /// argument: the front's views to write are borrowed exclusively. Views may interleave, so the bytes from `start` on of
    /// two arguments may overlap, unless both are `dense`; a kernel that is a Rust function gets dense arguments alone.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    ///
    /// # Safety
    ///
    /// The kernel belongs to this device and touches only what the arguments name, which lies inside memories of this
    /// device.
    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()>;

    /// Marks the end of everything enqueued so far, replacing the event's earlier mark.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn record(&self, event: &dyn DeviceEvent) -> Result<()>;

    /// Lets what is enqueued from here on wait, on the device, for the event's latest mark. An event that was never
    /// recorded holds nothing up. The event may belong to a device that [`PeerAccess`](super::PeerAccess) reaches.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn wait(&self, event: &dyn DeviceEvent) -> Result<()>;

    /// Whether everything enqueued so far is done, or has failed and is at rest; never blocks.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or what the driver reports; nothing is known of the work then. Failures of the work itself are left
    /// to [`synchronize`](Self::synchronize).
    fn query(&self) -> Result<bool>;

    /// Blocks until everything enqueued so far is done.
    ///
    /// # Errors
    ///
    /// The first failure of work on this stream that was not reported before, `DeviceFault` or `DeviceLost` among
    /// them.
    fn synchronize(&self) -> Result<()>;

    /// The vendor's handle.
    fn native(&self) -> NativeHandle;
}

/// A mark in a stream.
///
/// # Safety
///
/// `wait` returning `Ok` and `query` answering `true` mean that the work before the latest mark is done, and that its
/// writes are visible to this thread.
pub unsafe trait DeviceEvent: Any + Send + Sync {
    /// Blocks until the work before the latest mark is done; returns at once if there is no mark.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or what the driver reports.
    fn wait(&self) -> Result<()>;

    /// Whether the work before the latest mark is done; `true` if there is no mark.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    fn query(&self) -> Result<bool>;

    /// Time on the device from `earlier` to this one. Both are timing events of this device, recorded, and done.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration>;

    /// The vendor's handle.
    fn native(&self) -> NativeHandle;
}
