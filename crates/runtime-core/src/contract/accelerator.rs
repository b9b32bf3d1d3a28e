//! Devices with memory, streams and kernels.

use std::any::Any;

use super::{
    CommonRuntime, Counters, DeviceEvent, DeviceModule, DeviceStream, GraphCapture, MemoryAdoption,
    MemoryPool, Monitor, NativeInterop, PeerAccess, RegionCopyAbility, UnifiedMemory,
};
use crate::{NativeHandle, Result};

/// A device with its own memory, streams, events and kernels.
///
/// The later accessors return abilities that a device may lack. An accessor that returns `Some` *must* return an object
/// that supports the ability in full, and *must* return the same result for as long as the device is open.
///
/// # Safety
///
/// Objects *must* be what they claim to be. Memory has the length it reports. The pointers of
/// [`DeviceMemory::host_ptr`] and [`DevicePinned::ptr`] stay valid and do not move until the object is passed to its
/// `free`. Enqueued work touches exactly the bytes named. A `free` *must not* return memory to the system before all
/// work enqueued on the streams in `after` is done.
///
/// Bytes of memory and of pinned memory *must* be initialised from the start, with unspecified values. The host sees
/// these bytes through [`DeviceMemory::host_ptr`] and [`DevicePinned::ptr`], through copies, and as slices in kernels
/// that are Rust functions. Reading uninitialised bytes there would be undefined behaviour. A device that takes its
/// memory from the host's allocator requests zeroed memory, or fills it.
///
/// `Ok` from [`CommonRuntime::synchronize`] guarantees for every stream what `Ok` from [`DeviceStream::synchronize`]
/// guarantees for one.
pub unsafe trait AcceleratorDevice: CommonRuntime {
    /// Allocates `bytes` of device memory, never 0, at a multiple of
    /// [`Limits::allocation_alignment`](crate::Limits::allocation_alignment), initialised with unspecified values.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, after which the device *must* still be usable.
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>>;

    /// Frees memory once all work enqueued on the streams in `after` is done. *Must not* block the host where the
    /// driver can avoid it, and *must not* panic. A failure is kept for the next `synchronize`.
    ///
    /// # Safety
    ///
    /// `memory` was made by this device. All work on it is done when all work enqueued on the streams in `after` is
    /// done: the work was enqueued on these streams, or on streams that one of them waits for. Streams may belong to
    /// other devices of this backend if a peer copy ran there.
    unsafe fn memory_free(&self, memory: Box<dyn DeviceMemory>, after: &[&dyn DeviceStream]);

    /// Allocates `bytes` of page-locked host memory, never 0, aligned to at least 64 bytes, initialised with
    /// unspecified values. Options that the device does not support are ignored.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    fn pinned_allocate(
        &self,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Box<dyn DevicePinned>>;

    /// Frees pinned memory, as [`memory_free`](Self::memory_free) does.
    ///
    /// # Safety
    ///
    /// As [`memory_free`](Self::memory_free).
    unsafe fn pinned_free(&self, memory: Box<dyn DevicePinned>, after: &[&dyn DeviceStream]);

    /// Unloads a module once the streams in `after` are done, as [`memory_free`](Self::memory_free) does for memory.
    ///
    /// # Safety
    ///
    /// As [`memory_free`](Self::memory_free). The kernels of the module are already dropped.
    unsafe fn module_unload(&self, module: Box<dyn DeviceModule>, after: &[&dyn DeviceStream]);

    /// Creates an in-order stream that is not ordered with any other stream. When a stream is dropped, its enqueued
    /// work *must* run to completion.
    ///
    /// # Errors
    ///
    /// Errors of the driver. Options arrive checked against [`Limits`](crate::Limits).
    fn stream_create(&self, options: &StreamOptions) -> Result<Box<dyn DeviceStream>>;

    /// Creates an event. The elapsed time between two `timing` events can be measured.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn event_create(&self, timing: bool) -> Result<Box<dyn DeviceEvent>>;

    /// The vendor's handle of the device or context.
    fn native(&self) -> NativeHandle;

    /// Whether a launch may require all blocks to be resident at once.
    fn cooperative_launch(&self) -> bool;

    /// Region copies by the device.
    fn region_copy(&self) -> Option<&dyn RegionCopyAbility>;

    /// Work captured once and launched many times.
    fn graphs(&self) -> Option<&dyn GraphCapture>;

    /// Copies from other devices of this backend without the host.
    fn peer(&self) -> Option<&dyn PeerAccess>;

    /// Memory that host and device both address.
    fn unified_memory(&self) -> Option<&dyn UnifiedMemory>;

    /// Adoption of memory that was allocated elsewhere.
    fn memory_adoption(&self) -> Option<&dyn MemoryAdoption>;

    /// Use of streams, events and addresses that other libraries own.
    fn interop(&self) -> Option<&dyn NativeInterop>;

    /// The pool that memory comes from.
    fn memory_pool(&self) -> Option<&dyn MemoryPool>;

    /// Free memory and utilisation.
    fn monitor(&self) -> Option<&dyn Monitor>;

    /// Event counters.
    fn counters(&self) -> Option<&dyn Counters>;
}

/// Device memory.
///
/// # Safety
///
/// See [`AcceleratorDevice`].
#[expect(clippy::len_without_is_empty, reason = "memory of no bytes is never asked for")]
pub unsafe trait DeviceMemory: Any + Send + Sync {
    /// Size in bytes.
    fn len(&self) -> usize;

    /// The address at which the host can access the memory, if it can. The address is fixed for the object's life; the
    /// memory there is initialised, readable and writable for [`len`](Self::len) bytes.
    fn host_ptr(&self) -> Option<*mut u8>;

    /// The vendor's handle: an address, or a memory object. Memories that live at the same time have different handles,
    /// unless they were adopted from the same handle. Equal handles mean the same bytes.
    fn native(&self) -> NativeHandle;
}

/// Page-locked host memory.
///
/// # Safety
///
/// See [`AcceleratorDevice`].
#[expect(clippy::len_without_is_empty, reason = "memory of no bytes is never asked for")]
pub unsafe trait DevicePinned: Any + Send + Sync {
    /// Size in bytes.
    fn len(&self) -> usize;

    /// The address of the memory. It is fixed for the object's life; the host can read and write `len` initialised
    /// bytes there.
    fn ptr(&self) -> *mut u8;
}

/// How a stream is created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// A larger number is more urgent; 0 is the default. Limited by
    /// [`Limits::priorities`](crate::Limits::priorities).
    pub priority: i32,
}

/// How pinned memory is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedOptions {
    /// Bypasses the host's caches: copies to the device may be faster, but the host reads this memory very slowly. Use
    /// it for memory that the host writes sequentially and does not read. Devices without such memory return ordinary
    /// pinned memory.
    pub write_combined: bool,
}
