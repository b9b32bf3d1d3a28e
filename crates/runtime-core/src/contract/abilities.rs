//! Abilities a device may lack. Each is a complete object.

use std::any::Any;

use super::{AcceleratorDevice, DeviceMemory, DeviceStream};
use crate::{NativeHandle, RegionProgram, Result};

/// Region copies by the device itself.
///
/// # Safety
///
/// An execution touches exactly the bytes the program names, in stream order, phase after phase.
pub unsafe trait RegionCopyAbility {
    /// Makes a checked program ready to run many times, uploading its descriptors for instance.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, or what the driver reports.
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>>;

    /// Enqueues one execution, of all copies but those that read or write a slot without memory.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    ///
    /// # Safety
    ///
    /// `stream`, `regions` and every memory belong to this device; `slots` agree with the program's
    /// [`slots`](RegionProgram::slots): as many, and those that have memory long enough and aligned. One allocation may be in
    /// several; what the program touches through a slot that it writes, it touches through no other.
    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()>;

    /// Gives descriptors back once the streams in `after` are done, as
    /// [`memory_free`](AcceleratorDevice::memory_free) does.
    ///
    /// # Safety
    ///
    /// As [`memory_free`](AcceleratorDevice::memory_free).
    unsafe fn release(&self, regions: Box<dyn DeviceRegions>, after: &[&dyn DeviceStream]);
}

/// A region program made ready for a device.
pub trait DeviceRegions: Any + Send + Sync {
    /// Launches, or equivalent enqueues, that one execution takes. One may cover several phases.
    fn launches(&self) -> usize;
}

/// Memory bound to one slot of a region program for one execution.
#[derive(Clone, Copy)]
pub struct RawSlot<'a> {
    /// The allocation; `None` where the program needs no byte of the slot, or where copies that do are left out.
    pub memory: Option<&'a dyn DeviceMemory>,
    /// Byte offset of the bound view's start.
    pub offset: usize,
    /// Bytes of the bound view.
    pub bytes: usize,
    /// Unless 0, the number of a split of the memory into a box and what is around it. Of the executions that bind it
    /// under one number, those that write it write nothing of the box, and the others read nothing else: one of the
    /// former and any of the latter touch bytes apart. For devices that lock memory while they work on it.
    pub split: u64,
}

impl std::fmt::Debug for RawSlot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {}", self.bytes, self.offset)
    }
}

/// Copies from other devices of the same backend without the host. The accessor is `Some` only where another device is
/// really reached.
///
/// # Safety
///
/// A copy touches exactly the bytes named, in the order of the stream it is enqueued on.
pub unsafe trait PeerAccess {
    /// Whether this device can copy from `other`, and each can wait for the other's events. `other` may be a device
    /// of any backend; *must* answer `false` for what it does not know.
    fn reaches(&self, other: &dyn AcceleratorDevice) -> bool;

    /// Enqueues a copy of `bytes` from memory of `peer` to memory of this device.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    ///
    /// # Safety
    ///
    /// `peer` is reached; `stream` belongs to this device; both ranges lie inside their memories.
    #[expect(
        clippy::too_many_arguments,
        reason = "two ends of a copy and the stream that orders it"
    )]
    unsafe fn memory_copy(
        &self,
        stream: &dyn DeviceStream,
        peer: &dyn AcceleratorDevice,
        src: &dyn DeviceMemory,
        src_offset: usize,
        dst: &dyn DeviceMemory,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<()>;
}

/// Memory that host and device both address.
pub trait UnifiedMemory {
    /// Allocates memory whose [`host_ptr`](DeviceMemory::host_ptr) is `Some`; otherwise as
    /// [`memory_allocate`](AcceleratorDevice::memory_allocate), initialised likewise, and given back by the same
    /// [`memory_free`](AcceleratorDevice::memory_free).
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>>;
}

/// Adoption of memory that somebody else allocated.
pub trait MemoryAdoption {
    /// Takes up the `bytes` at `handle`. [`memory_free`](AcceleratorDevice::memory_free) drops `owner` instead of
    /// freeing, once the streams it waits for are done: in the calling thread or in one that no stream needs, since the
    /// owner's destructor may wait for any stream and for the device.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle is not of this device's interface or kind.
    ///
    /// # Safety
    ///
    /// The handle names `bytes` of initialised memory that this device can address, valid until `owner` is dropped,
    /// and that nobody else uses without ordering.
    unsafe fn adopt(
        &self,
        handle: NativeHandle,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Box<dyn DeviceMemory>>;
}

/// The pool that memory comes from.
pub trait MemoryPool {
    /// Bytes taken from the driver or system, in use or kept for later.
    fn reserved_bytes(&self) -> usize;

    /// Bytes in use by live memory.
    fn used_bytes(&self) -> usize;

    /// Gives unused memory back until at most `keep_bytes` are reserved beyond what is used.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn trim(&self, keep_bytes: usize) -> Result<()>;
}

/// Free memory and utilisation.
pub trait Monitor {
    /// What the device is doing now.
    ///
    /// # Errors
    ///
    /// What the driver or monitoring library reports.
    fn load(&self) -> Result<DeviceLoad>;
}

/// What a device is doing now, as far as it can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceLoad {
    /// Bytes of memory that are free.
    pub memory_free: Option<u64>,
    /// Bytes of memory in use, by anybody.
    pub memory_used: Option<u64>,
    /// Share of the time that the processor was busy lately, 0 to 1.
    pub processor_busy: Option<f32>,
    /// Share of the time that the memory was busy lately, 0 to 1.
    pub memory_busy: Option<f32>,
}

/// Event counters.
pub trait Counters {
    /// Names that [`open`](Self::open) takes.
    fn names(&self) -> Vec<String>;

    /// Starts counting the named events. The result may outlive the device.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` naming an unknown counter, or the most that can be open at once.
    fn open(&self, names: &[&str]) -> Result<Box<dyn CounterSet>>;
}

/// Counters that are counting.
pub trait CounterSet: Send {
    /// Writes the present value of each counter, in the order they were named. Values only grow.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn read(&mut self, values: &mut [u64]) -> Result<()>;
}
