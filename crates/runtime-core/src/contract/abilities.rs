//! Abilities that a device may lack. Each ability is a complete object.

use std::any::Any;

use super::{AcceleratorDevice, DeviceMemory, DeviceStream};
use crate::{NativeHandle, RegionProgram, Result};

/// Region copies on the device itself.
///
/// # Safety
///
/// An execution touches exactly the bytes that the program names, in stream order, phase after phase.
pub unsafe trait RegionCopyAbility {
    /// Prepares a checked program to run many times, for instance by uploading its descriptors.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, or another error of the driver.
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>>;

    /// Enqueues one execution of all copies, except those that read or write a slot without memory.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    ///
    /// # Safety
    ///
    /// `stream`, `regions` and every memory belong to this device. `slots` agree with the program's
    /// [`slots`](RegionProgram::slots): there are as many, and each bound memory is long enough and aligned. One
    /// allocation may be bound to several slots. The bytes that the program touches through a slot that it writes are
    /// touched through no other slot.
    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()>;

    /// Releases descriptors once the streams in `after` are done, as [`memory_free`](AcceleratorDevice::memory_free)
    /// does.
    ///
    /// # Safety
    ///
    /// As [`memory_free`](AcceleratorDevice::memory_free).
    unsafe fn release(&self, regions: Box<dyn DeviceRegions>, after: &[&dyn DeviceStream]);
}

/// A region program prepared for a device.
pub trait DeviceRegions: Any + Send + Sync {
    /// The number of launches, or equivalent enqueues, that one execution makes. One launch may cover several phases.
    fn launches(&self) -> usize;
}

/// Memory bound to one slot of a region program for one execution.
#[derive(Clone, Copy)]
pub struct RawSlot<'a> {
    /// The allocation. `None` if the program needs no byte of the slot, or if the copies that use the slot are left
    /// out.
    pub memory: Option<&'a dyn DeviceMemory>,
    /// Byte offset of the bound view's start.
    pub offset: usize,
    /// Bytes of the bound view.
    pub bytes: usize,
    /// Identifies a split of the memory into a box and the rest, unless it is 0. Of the executions that bind the memory
    /// under the same number, those that write it write only outside the box, and the others read only the box. One
    /// writer and any number of readers therefore touch disjoint bytes. Devices that lock memory while they work on it
    /// use this.
    pub split: u64,
}

impl std::fmt::Debug for RawSlot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {}", self.bytes, self.offset)
    }
}

/// Copies from other devices of the same backend without the host. The accessor is `Some` only if at least one other
/// device is reachable.
///
/// # Safety
///
/// A copy touches exactly the bytes named, in the order of the stream it is enqueued on.
pub unsafe trait PeerAccess {
    /// Whether this device can copy from `other`, and whether each of the two can wait for the other's events. `other`
    /// may be a device of any backend; *must* return `false` for unknown devices.
    fn reaches(&self, other: &dyn AcceleratorDevice) -> bool;

    /// Enqueues a copy of `bytes` from memory of `peer` to memory of this device.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    ///
    /// # Safety
    ///
    /// `peer` is reachable from this device. `stream` belongs to this device. Both ranges lie inside their memories.
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

/// Memory that both the host and the device can address.
pub trait UnifiedMemory {
    /// Allocates memory whose [`host_ptr`](DeviceMemory::host_ptr) is `Some`. Otherwise as
    /// [`memory_allocate`](AcceleratorDevice::memory_allocate): it is initialised in the same way, and freed by the
    /// same [`memory_free`](AcceleratorDevice::memory_free).
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>>;
}

/// Adoption of memory that was allocated elsewhere.
pub trait MemoryAdoption {
    /// Adopts the `bytes` at `handle`. [`memory_free`](AcceleratorDevice::memory_free) drops `owner` instead of
    /// freeing, once the streams it waits for are done. It drops `owner` in the calling thread or in a thread that no
    /// stream needs, because the owner's destructor may wait for any stream and for the device.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle belongs to another interface or is of another kind.
    ///
    /// # Safety
    ///
    /// The handle names `bytes` of initialised memory that this device can address. The memory is valid until `owner`
    /// is dropped. All other use of it is ordered with the work of this device.
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

    /// Returns unused memory to the driver or system until at most `keep_bytes` are reserved beyond those in use.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn trim(&self, keep_bytes: usize) -> Result<()>;
}

/// Free memory and utilisation.
pub trait Monitor {
    /// The current load of the device.
    ///
    /// # Errors
    ///
    /// Errors of the driver or of the monitoring library.
    fn load(&self) -> Result<DeviceLoad>;
}

/// The current load of a device, as far as the device reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceLoad {
    /// Bytes of memory that are free.
    pub memory_free: Option<u64>,
    /// Bytes of memory in use by any program.
    pub memory_used: Option<u64>,
    /// Fraction of recent time in which the processor was busy, 0 to 1.
    pub processor_busy: Option<f32>,
    /// Fraction of recent time in which the memory was busy, 0 to 1.
    pub memory_busy: Option<f32>,
}

/// Event counters.
pub trait Counters {
    /// The names that [`open`](Self::open) accepts.
    fn names(&self) -> Vec<String>;

    /// Starts counting the named events. The result may outlive the device.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` naming an unknown counter, or the greatest number of counters that can be open at once.
    fn open(&self, names: &[&str]) -> Result<Box<dyn CounterSet>>;
}

/// Counters that are counting.
pub trait CounterSet: Send {
    /// Writes the current value of each counter, in the order in which they were named. Values never decrease.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn read(&mut self, values: &mut [u64]) -> Result<()>;
}
