//! Devices with memory, streams and kernels.

use std::any::Any;
use std::fmt;

use super::{
    Abilities, CommonRuntime, DeviceEvent, DeviceGraph, DeviceModule, DeviceRegions, DeviceStream,
};
use crate::{Error, ModuleImage, NativeHandle, Result};

/// A device with its own memory, streams, events and kernels.
///
/// # Safety
///
/// Objects *must* be what they claim to be. Memory has the length it reports. The pointers of
/// [`DeviceMemory::host_ptr`] and [`DevicePinned::ptr`] stay valid and do not move until the object is released.
/// Enqueued work touches exactly the bytes named. [`release`](Self::release) *must not* return memory to the system
/// before all work enqueued on the streams in `after` is done.
///
/// Bytes of memory and of pinned memory *must* be initialised from the start, with unspecified values. The host sees
/// these bytes through [`DeviceMemory::host_ptr`] and [`DevicePinned::ptr`], through copies, and as slices in kernels
/// that are Rust functions. Reading uninitialised bytes there would be undefined behaviour. A device that takes its
/// memory from the host's allocator requests zeroed memory, or fills it.
///
/// `Ok` from [`synchronize`](Self::synchronize) guarantees for every stream what `Ok` from
/// [`DeviceStream::synchronize`] guarantees for one.
pub unsafe trait AcceleratorDevice: CommonRuntime {
    /// The abilities that this device has beyond the other methods of this trait. *Must* be the same at every call. The
    /// front asks often, so this only collects references. Each object *must* support its ability in full.
    fn abilities(&self) -> Abilities<'_>;

    /// The vendor's handle of the device or context.
    fn native(&self) -> NativeHandle;

    /// Loads code. The front passes only formats listed in [`DeviceInfo::formats`](crate::DeviceInfo::formats).
    ///
    /// # Errors
    ///
    /// `InvalidModule` with the compiler's or loader's log if the code is not accepted.
    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>>;

    /// Allocates `bytes` of device memory, never 0, at a multiple of
    /// [`Limits::allocation_alignment`](crate::Limits::allocation_alignment), initialised with unspecified values.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, after which the device *must* still be usable.
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>>;

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

    /// Creates an in-order stream that is not ordered with any other stream. When a stream is dropped, its enqueued
    /// work *must* run to completion.
    ///
    /// # Errors
    ///
    /// Errors of the driver. Options arrive checked against [`Limits`](crate::Limits).
    fn stream_create(&self, options: &StreamOptions) -> Result<Box<dyn DeviceStream>>;

    /// Creates an event. The elapsed time between two [`timing`](EventOptions::timing) events can be measured.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn event_create(&self, options: &EventOptions) -> Result<Box<dyn DeviceEvent>>;

    /// Releases an object once all work enqueued on the streams in `after` is done. *Must not* block the host where the
    /// driver can avoid it, and *must not* panic. A failure is kept for [`take_failure`](Self::take_failure).
    ///
    /// # Safety
    ///
    /// This device made the object. All work on it is done when all work enqueued on the streams in `after` is done:
    /// the work was enqueued on these streams, or on streams that one of them waits for. The streams belong to this
    /// device, or to other devices of this backend if a peer copy ran there. A module's kernels are already dropped. A
    /// graph is released before the objects that its work uses.
    unsafe fn release(&self, object: Released, after: &[&dyn DeviceStream]);

    /// Blocks until all work enqueued on any stream of this device is done, and the objects passed to
    /// [`release`](Self::release) before are released. In a destructor that a release runs, it need not wait for other
    /// releases.
    ///
    /// # Errors
    ///
    /// As [`DeviceStream::synchronize`].
    fn synchronize(&self) -> Result<()>;

    /// Takes the first failure of asynchronous work on any stream, or of a release, that was not taken before. The
    /// front calls it after [`synchronize`](Self::synchronize), as it calls [`DeviceStream::take_failure`].
    fn take_failure(&self) -> Option<Error>;
}

/// An object that a device made and gets back: see [`AcceleratorDevice::release`].
///
/// This list is complete. A device either treats every object alike or matches each of them by name, without a
/// wildcard. The objects of an ability that is added to the contract later are released by that ability.
pub enum Released {
    /// Memory: allocated, unified or adopted.
    Memory(Box<dyn DeviceMemory>),
    /// Pinned memory that this device allocated.
    Pinned(Box<dyn DevicePinned>),
    /// A module.
    Module(Box<dyn DeviceModule>),
    /// A prepared region program.
    Regions(Box<dyn DeviceRegions>),
    /// A graph.
    Graph(Box<dyn DeviceGraph>),
}

impl fmt::Debug for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Pinned(_) => "Pinned",
            Self::Module(_) => "Module",
            Self::Regions(_) => "Regions",
            Self::Graph(_) => "Graph",
        })
    }
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
///
/// ```
/// # use runtime_core::StreamOptions;
/// let options = StreamOptions::default().with_priority(1);
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// A larger number is more urgent; 0 is the default. Limited by
    /// [`Limits::priorities`](crate::Limits::priorities).
    pub priority: i32,
}

impl StreamOptions {
    /// Sets the priority.
    #[must_use]
    pub const fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}

/// How an event is created.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventOptions {
    /// Whether the elapsed time between this event and others can be measured.
    pub timing: bool,
}

impl EventOptions {
    /// Sets whether elapsed times can be measured.
    #[must_use]
    pub const fn with_timing(mut self, timing: bool) -> Self {
        self.timing = timing;
        self
    }
}

/// How pinned memory is allocated.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedOptions {
    /// Bypasses the host's caches: copies to the device may be faster, but the host reads this memory very slowly. Use
    /// it for memory that the host writes sequentially and does not read. Devices without such memory return ordinary
    /// pinned memory.
    pub write_combined: bool,
}

impl PinnedOptions {
    /// Sets whether the memory bypasses the host's caches.
    #[must_use]
    pub const fn with_write_combined(mut self, write_combined: bool) -> Self {
        self.write_combined = write_combined;
        self
    }
}
