//! Abilities: optional features of a device. Most have a trait of their own.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use super::{
    AcceleratorDevice, DeviceMemory, DevicePinned, DeviceStream, GraphCapture, MemoryAt,
    NativeInterop, Occupancy,
};
use crate::{NativeHandle, RegionProgram, Result};

/// Declares a set of abilities: a builder that starts from none, and a getter for each.
macro_rules! abilities {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$ability_doc:meta])* $ability:ident: $trait:ident, $with:ident;)*
        }
        $(and { $(#[$flag_doc:meta])* $flag:ident, $with_flag:ident; })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        pub struct $name<'a> {
            $($ability: Option<&'a dyn $trait>,)*
            $($flag: bool,)?
        }

        impl<'a> $name<'a> {
            /// No ability.
            pub const fn none() -> Self {
                Self { $($ability: None,)* $($flag: false,)? }
            }

            $(
                #[doc = concat!("Adds the ability [`", stringify!($ability), "`](Self::", stringify!($ability), ").")]
                #[must_use]
                pub const fn $with(mut self, ability: &'a dyn $trait) -> Self {
                    self.$ability = Some(ability);
                    self
                }

                $(#[$ability_doc])*
                #[inline]
                pub const fn $ability(&self) -> Option<&'a dyn $trait> {
                    self.$ability
                }
            )*

            $(
                #[doc = concat!("Adds the ability [`", stringify!($flag), "`](Self::", stringify!($flag), ").")]
                #[must_use]
                pub const fn $with_flag(mut self) -> Self {
                    self.$flag = true;
                    self
                }

                $(#[$flag_doc])*
                #[inline]
                pub const fn $flag(&self) -> bool {
                    self.$flag
                }
            )?
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let there = [
                    $((stringify!($ability), self.$ability.is_some()),)*
                    $((stringify!($flag), self.$flag),)?
                ];
                let names = there.iter().filter(|(_, there)| *there).map(|(name, _)| name);
                f.debug_set().entries(names).finish()
            }
        }
    };
}

abilities! {
    /// The abilities of a device. A backend adds those that the device has:
    ///
    /// ```
    /// use runtime_core::contract::{Abilities, MemoryPool, Monitor};
    ///
    /// fn abilities<D: MemoryPool + Monitor>(device: &D) -> Abilities<'_> {
    ///     Abilities::none().with_memory_pool(device).with_monitor(device)
    /// }
    /// ```
    ///
    /// An ability that is added to the contract later is absent from a device that does not know it.
    Abilities {
        /// Region copies and indexed copies by the device.
        region_copy: RegionCopyAbility, with_region_copy;
        /// Copies from other devices of this backend without the host.
        peer: PeerAccess, with_peer;
        /// Work captured once and launched many times.
        graphs: GraphCapture, with_graphs;
        /// Memory that host and device both address.
        unified_memory: UnifiedMemory, with_unified_memory;
        /// Adoption of memory that was allocated elsewhere.
        memory_adoption: MemoryAdoption, with_memory_adoption;
        /// Page-locking of host memory that the program allocated.
        host_registration: HostRegistration, with_host_registration;
        /// Points at which streams wait for the host.
        gates: Gates, with_gates;
        /// Use of streams, events and addresses that other libraries own.
        interop: NativeInterop, with_interop;
        /// The pool that memory comes from.
        memory_pool: MemoryPool, with_memory_pool;
        /// Free memory and utilisation.
        monitor: Monitor, with_monitor;
        /// Event counters.
        counters: Counters, with_counters;
    }
    and {
        /// Launches that require all blocks to be resident at once. [`DeviceStream::launch`] gets such launches only if
        /// the device has this ability.
        cooperative_launch, with_cooperative_launch;
    }
}

abilities! {
    /// The abilities of an [`EmbeddedDevice`](super::EmbeddedDevice), built like [`Abilities`].
    EmbeddedAbilities {
        /// Event counters.
        counters: Counters, with_counters;
    }
}

abilities! {
    /// The abilities of a [`DeviceKernel`](super::DeviceKernel), built like [`Abilities`].
    KernelAbilities {
        /// How blocks of the kernel fill the device. Absent if the driver does not report it or blocks do not matter.
        occupancy: Occupancy, with_occupancy;
    }
}

/// Region copies and indexed copies on the device itself. A program has both kinds: see
/// [`RegionPhase`](crate::RegionPhase).
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
}

/// A region program prepared for a device.
pub trait DeviceRegions: Any + Send + Sync {
    /// The number of launches, or equivalent enqueues, that one execution makes. If it depends on the memory that is
    /// bound, it is that of the latest execution, or at first that of an execution with memory that the device
    /// allocated. One launch may cover several phases.
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

impl fmt::Debug for RawSlot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.bytes, self.offset)
    }
}

/// Copies from other devices of the same backend without the host. A device has the ability only if at least one other
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
    unsafe fn memory_copy(
        &self,
        stream: &dyn DeviceStream,
        peer: &dyn AcceleratorDevice,
        src: MemoryAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()>;
}

/// Memory that both the host and the device can address. Both may use different elements at the same time, without
/// calls of the driver.
pub trait UnifiedMemory {
    /// Allocates memory whose [`host_ptr`](DeviceMemory::host_ptr) is `Some`. Otherwise as
    /// [`memory_allocate`](AcceleratorDevice::memory_allocate): it is initialised and released in the same way.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>>;
}

/// Adoption of memory that was allocated elsewhere.
pub trait MemoryAdoption {
    /// Adopts the `bytes` at `handle`. [`release`](AcceleratorDevice::release) drops `owner` instead of freeing, once
    /// the streams it waits for are done. It drops `owner` in the calling thread or in a thread that no stream needs,
    /// because the owner's destructor may wait for any stream and for the device.
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

/// Page-locking of host memory that the program allocated.
///
/// # Safety
///
/// The device touches registered memory only in copies that name it, and not at all once the registration has ended.
pub unsafe trait HostRegistration {
    /// Page-locks `bytes` bytes, never 0, from `first` on. The result *is* this memory: [`DevicePinned::ptr`] returns
    /// `first`. `first` may have any alignment.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the driver cannot lock as much. `Conflict`, naming both ranges, if a page of the memory is
    /// registered already and the driver registers a page only once. After an error the memory is not registered.
    ///
    /// # Safety
    ///
    /// The bytes are initialised. They stay until [`unregister`](Self::unregister) drops the owner. All other use of
    /// them is ordered with the copies from and to them.
    unsafe fn register(&self, first: NonNull<u8>, bytes: usize) -> Result<Box<dyn DevicePinned>>;

    /// Ends a registration once all work enqueued on the streams in `after` is done, and then drops `owner`. If there
    /// are no such streams, the registration has ended when this returns. *Must not* block the host otherwise, and
    /// *must not* panic.
    ///
    /// If the driver fails to end the registration, `owner` is never dropped: the driver would take other memory at
    /// the same address for the registered memory. The failure is kept for
    /// [`take_failure`](AcceleratorDevice::take_failure).
    ///
    /// # Safety
    ///
    /// As [`release`](AcceleratorDevice::release). This ability registered the memory. `owner` keeps it.
    unsafe fn unregister(
        &self,
        memory: Box<dyn DevicePinned>,
        after: &[&dyn DeviceStream],
        owner: Box<dyn Any + Send + Sync>,
    );
}

/// Points at which streams wait for the host.
///
/// # Safety
///
/// Work that is enqueued behind a closed gate touches no byte. What the host wrote before it opened the gate is visible
/// to this work.
pub unsafe trait Gates {
    /// Creates a closed gate.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn create(&self) -> Result<Box<dyn DeviceGate>>;
}

/// A point at which streams wait for the host. It is dropped only after it was opened or failed, but possibly before the
/// streams have passed it.
pub trait DeviceGate: Any + Send + Sync {
    /// Makes work enqueued on `stream` from now on wait, on the device, until the gate [opens](Self::open) or
    /// [fails](Self::fail). *Must not* block. An open gate delays nothing. A gate that has failed fails the stream.
    ///
    /// The work behind it may hold up other streams too, but not work that was enqueued before this call.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn hold_up(&self, stream: &dyn DeviceStream) -> Result<()>;

    /// Opens the gate, for good. Any thread may call this, once. *Must not* block, and *must not* panic.
    fn open(&self);

    /// Opens the gate because the host cannot do what the work behind it waits for. For each stream that it holds up, a
    /// `DeviceFault` is kept for [`take_failure`](DeviceStream::take_failure), as after a failure of work: what is
    /// enqueued behind the gate still ends. Any thread may call this, once and instead of [`open`](Self::open). *Must
    /// not* block, and *must not* panic.
    fn fail(&self);
}

/// The pool that memory comes from.
pub trait MemoryPool {
    /// Bytes taken from the driver or system, in use or kept for later.
    fn reserved_bytes(&self) -> usize;

    /// Bytes in use by live memory.
    fn used_bytes(&self) -> usize;

    /// Returns unused memory to the driver or system until at most `keep_bytes` are reserved beyond those in use, as
    /// far as it goes: drivers take memory in blocks (recent NVIDIA GPUs in blocks of 32 MiB), return whole blocks
    /// only, and keep the blocks that are in use in part.
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

/// The current load of a device, as far as the device reports it: [`Default`] reports nothing.
#[non_exhaustive]
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

impl DeviceLoad {
    /// Sets the bytes of memory that are free and in use.
    #[must_use]
    pub fn with_memory(
        mut self,
        free: impl Into<Option<u64>>,
        used: impl Into<Option<u64>>,
    ) -> Self {
        (self.memory_free, self.memory_used) = (free.into(), used.into());
        self
    }

    /// Sets the fractions of recent time in which the processor and the memory were busy.
    #[must_use]
    pub fn with_busy(
        mut self,
        processor: impl Into<Option<f32>>,
        memory: impl Into<Option<f32>>,
    ) -> Self {
        (self.processor_busy, self.memory_busy) = (processor.into(), memory.into());
        self
    }
}

/// Event counters.
pub trait Counters {
    /// The names that [`open`](Self::open) accepts.
    fn names(&self) -> Vec<String>;

    /// Starts counting the named events. The result may outlive the device, and can then still be read.
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
