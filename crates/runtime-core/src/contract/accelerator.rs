//! Devices with memory, streams and kernels.

use std::any::Any;

use super::{
    CommonRuntime, Counters, DeviceEvent, DeviceModule, DeviceStream, GraphCapture, MemoryAdoption,
    MemoryPool, Monitor, NativeInterop, PeerAccess, RegionCopyAbility, UnifiedMemory,
};
use crate::{NativeHandle, Result};

/// A device with its own memory, streams, events and kernels.
///
/// The second half are abilities a device may lack. An accessor that answers `Some` *must* return an object that
/// works in full, and *must* give the same answer for as long as the device is open.
///
/// # Safety
///
/// Objects *must* be what they say: memory has the length it reports, [`DeviceMemory::host_ptr`] and
/// [`DevicePinned::ptr`] stay valid and in place until the object is given to its `free`, and enqueued work touches
/// exactly the bytes named. A `free` *must not* return memory to the system before everything enqueued on the streams in
/// `after` is done.
///
/// Bytes of memory and of pinned memory *must* be initialised from the start, their values unspecified: the host sees
/// them by [`DeviceMemory::host_ptr`] and [`DevicePinned::ptr`], by copies, and as slices in kernels that are Rust
/// functions, and reading uninitialised bytes is undefined behaviour there. A device whose memory is taken from the
/// host's allocator has it zeroed, or fills it.
///
/// [`CommonRuntime::synchronize`] returning `Ok` means of every stream what it means of [one](DeviceStream).
pub unsafe trait AcceleratorDevice: CommonRuntime {
    /// Allocates `bytes` of device memory, never 0, at a multiple of
    /// [`Limits::allocation_alignment`](crate::Limits::allocation_alignment), initialised with unspecified values.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, after which the device *must* still be usable.
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>>;

    /// Gives memory back once everything enqueued on the streams in `after` is done. *Must not* block the host where
    /// the driver can avoid it, and *must not* panic: a failure is kept for the next `synchronize`.
    ///
    /// # Safety
    ///
    /// `memory` was made by this device, and all work on it is done when everything enqueued on the streams in `after` is:
    /// it was enqueued there, or on streams that one of them waits for. Streams may belong to other devices of this backend
    /// if a peer copy ran there.
    unsafe fn memory_free(&self, memory: Box<dyn DeviceMemory>, after: &[&dyn DeviceStream]);

    /// Allocates `bytes` of page-locked host memory, never 0, aligned to at least 64 bytes, initialised with unspecified
    /// values. Options that the device has no use for are ignored.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    fn pinned_allocate(
        &self,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Box<dyn DevicePinned>>;

    /// Gives pinned memory back, as [`memory_free`](Self::memory_free) does.
    ///
    /// # Safety
    ///
    /// As [`memory_free`](Self::memory_free).
    unsafe fn pinned_free(&self, memory: Box<dyn DevicePinned>, after: &[&dyn DeviceStream]);

    /// Unloads a module, as [`memory_free`](Self::memory_free) gives memory back.
    ///
    /// # Safety
    ///
    /// As [`memory_free`](Self::memory_free); its kernels are dropped.
    unsafe fn module_unload(&self, module: Box<dyn DeviceModule>, after: &[&dyn DeviceStream]);

    /// Creates an in-order stream that is ordered with no other. Dropping a stream *must* let its enqueued work run
    /// to the end.
    ///
    /// # Errors
    ///
    /// What the driver reports. Options arrive checked against [`Limits`](crate::Limits).
    fn stream_create(&self, options: &StreamOptions) -> Result<Box<dyn DeviceStream>>;

    /// Creates an event; `timing` events can be compared for elapsed time.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn event_create(&self, timing: bool) -> Result<Box<dyn DeviceEvent>>;

    /// The vendor's handle of the device or context.
    fn native(&self) -> NativeHandle;

    /// Whether launches may ask that all blocks be resident at once.
    fn cooperative_launch(&self) -> bool;

    /// Region copies by the device.
    fn region_copy(&self) -> Option<&dyn RegionCopyAbility>;

    /// Work captured once and launched many times.
    fn graphs(&self) -> Option<&dyn GraphCapture>;

    /// Copies from other devices of this backend without the host.
    fn peer(&self) -> Option<&dyn PeerAccess>;

    /// Memory that host and device both address.
    fn unified_memory(&self) -> Option<&dyn UnifiedMemory>;

    /// Adoption of memory that somebody else allocated.
    fn memory_adoption(&self) -> Option<&dyn MemoryAdoption>;

    /// Use of streams, events and addresses that others own.
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

    /// Where the host can address the memory, if it can; fixed for the object's life, and then initialised, readable and
    /// writable for [`len`](Self::len) bytes.
    fn host_ptr(&self) -> Option<*mut u8>;

    /// The vendor's handle: an address, or a memory object. Memories that live at the same time have different ones, unless
    /// they were adopted from one: equal handles mean the same bytes.
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

    /// Where it lies; fixed for the object's life, initialised, readable and writable by the host for `len` bytes.
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
    /// Past the host's caches: copies to the device may be faster, and the host reads it very slowly. For memory that
    /// the host writes from one end to the other and does not read. Devices without such memory give ordinary pinned
    /// memory.
    pub write_combined: bool,
}
