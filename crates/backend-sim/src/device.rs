//! The device: its identity, the outcome of its operations, and creation of its objects.
#![expect(unsafe_code, reason = "implements the contract's unsafe device trait")]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use backend_support::{Block, Identity, Queues, functions_load};
use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceLoad, DeviceMemory,
    DeviceModule, DevicePinned, DeviceStream, EventOptions, HostRegistration, MemoryAdoption,
    MemoryPool, Monitor, PinnedOptions, Released, StreamOptions, UnifiedMemory,
};
use runtime_core::{
    Device, DeviceId, DeviceInfo, DeviceKind, Error, ImageFormat, Limits, ModuleImage,
    NativeHandle, NativeKind, Result,
};

use crate::codes;
use crate::counts::SimCounters;
use crate::event::SimEvent;
use crate::memory::{SimMemory, block};
use crate::open_device::{Group, OpenDevice};
use crate::stream::{SimStream, queues};
use crate::{Fault, SimConfig, SimCounts};

/// A simulated accelerator. The [crate documentation](crate) describes its behaviour.
#[derive(Debug)]
pub struct SimDevice {
    info: DeviceInfo,
    queues: Queues,
    counters: SimCounters,
    shared: Arc<OpenDevice>,
}

impl SimDevice {
    /// The device `sim:index`, which reaches no other device. For devices that do, use a
    /// [`SimBackend`](crate::SimBackend).
    pub fn new(index: usize, config: SimConfig) -> Self {
        Self::in_group(index, config, &Arc::default())
    }

    pub(crate) fn in_group(index: usize, config: SimConfig, group: &Arc<Group>) -> Self {
        let id = DeviceId::new("sim", index);
        let shared = OpenDevice::new(index, config, group);
        Self {
            info: info(&id, &shared.config),
            queues: Queues::new(Identity { device: id, fault: codes::LAUNCH_FAILED }),
            counters: SimCounters(Arc::clone(&shared.tally)),
            shared: Arc::new(shared),
        }
    }

    /// A handle that stays usable after the device was moved into a [`Device`].
    pub fn handle(&self) -> SimHandle {
        SimHandle(Arc::clone(&self.shared))
    }

    pub(crate) fn shared(&self) -> &Arc<OpenDevice> {
        &self.shared
    }

    pub(crate) fn new_stream(&self) -> SimStream {
        SimStream::new(self.queues.create(), &self.shared)
    }
}

/// Observes and manipulates a simulated device. Cheap to clone. Does not keep the device open.
#[derive(Clone, Debug)]
pub struct SimHandle(Arc<OpenDevice>);

impl SimHandle {
    /// The handle of an opened device, if the device is simulated.
    pub fn of(device: &Device) -> Option<Self> {
        device.backend::<SimDevice>().map(SimDevice::handle)
    }

    /// The counts of the device's operations so far.
    pub fn counts(&self) -> SimCounts {
        self.0.tally.counts()
    }

    /// Plans another fault. Its number counts from the opening of the device. If that operation has passed, the fault
    /// does not occur.
    pub fn inject(&self, fault: Fault) {
        self.0.faults.add(fault);
    }

    /// Loses the device now.
    pub fn lose(&self) {
        self.0.lose();
    }

    /// Whether the device is lost.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Bytes of device memory in use.
    pub fn used_bytes(&self) -> usize {
        self.0.pool.used()
    }
}

/// Larger than any simulated memory. The pool refuses allocations for which the device has no room.
const MAX_ALLOCATION: usize = isize::MAX.unsigned_abs() / 2;

pub(crate) fn info(id: &DeviceId, config: &SimConfig) -> DeviceInfo {
    let grid = [i32::MAX.unsigned_abs(), 65535, 65535];
    let limits = Limits::new(MAX_ALLOCATION, grid, [1024, 1024, 64], 1024)
        .with_allocation_alignment(Block::ALIGN)
        .with_max_shared_bytes(48 << 10)
        .with_max_arguments(128, 4096);
    DeviceInfo::new(id.clone(), DeviceKind::Simulated, "Simulated accelerator", limits)
        .with_vendor(env!("CARGO_PKG_NAME"))
        .with_architecture("sim")
        .with_driver_version(env!("CARGO_PKG_VERSION"))
        .with_memory_bytes(config.memory_bytes as u64)
        .with_formats([ImageFormat::HostFunctions])
}

impl CommonRuntime for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

// SAFETY: memory is a block of the requested length that stays in place. Enqueued work holds its blocks, so a release,
// which only drops the device's reference, cannot free them too early.
unsafe impl AcceleratorDevice for SimDevice {
    fn abilities(&self) -> Abilities<'_> {
        let config = &self.shared.config;
        let mut abilities = Abilities::none()
            .with_memory_adoption(self)
            .with_interop(self)
            .with_memory_pool(self)
            .with_monitor(self)
            .with_counters(&self.counters);
        if config.registration {
            abilities = abilities.with_host_registration(self);
        }
        if config.gates {
            abilities = abilities.with_gates(self);
        }
        if config.region_copies {
            abilities = abilities.with_region_copy(self);
        }
        if config.graphs {
            abilities = abilities.with_graphs(self);
        }
        if config.unified {
            abilities = abilities.with_unified_memory(self);
        }
        if config.peers {
            abilities = abilities.with_peer(self);
        }
        abilities
    }

    fn native(&self) -> NativeHandle {
        let raw = Arc::as_ptr(&self.shared).addr();
        NativeHandle { api: "sim", kind: NativeKind::Context, raw }
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        self.shared.check("module_load")?;
        functions_load(image)
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(self.shared.allocate(bytes)?))
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(self.shared.allocate_pinned(bytes)?))
    }

    fn stream_create(&self, _: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        self.shared.check("stream_create")?;
        Ok(Box::new(self.new_stream()))
    }

    fn event_create(&self, _: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        self.shared.check("event_create")?;
        self.shared.tally.add(|counts| counts.events += 1);
        Ok(Box::new(SimEvent::new(&self.shared)))
    }

    unsafe fn release(&self, object: Released, after: &[&dyn DeviceStream]) {
        match object {
            Released::Memory(memory) if block(&*memory).is_ok_and(|block| block.is_adopted()) => {
                self.queues.retire(Box::new(memory), queues(after));
            }
            Released::Module(module) => self.queues.retire(Box::new(module), queues(after)),
            Released::Memory(_)
            | Released::Pinned(_)
            | Released::Regions(_)
            | Released::Graph(_) => self.queues.release(object),
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.shared.tally.add(|counts| counts.synchronizations += 1);
        self.queues.synchronize()?;
        self.shared.check("synchronize")
    }

    fn take_failure(&self) -> Option<Error> {
        self.queues.take_failure()
    }
}

// SAFETY: work touches the memory only when it runs, and its streams are done before the registration ends.
unsafe impl HostRegistration for SimDevice {
    unsafe fn register(&self, first: NonNull<u8>, bytes: usize) -> Result<Box<dyn DevicePinned>> {
        // SAFETY: the caller guarantees the bytes.
        Ok(Box::new(unsafe { self.shared.register(first, bytes) }?))
    }

    unsafe fn unregister(
        &self,
        memory: Box<dyn DevicePinned>,
        after: &[&dyn DeviceStream],
        owner: Box<dyn Any + Send + Sync>,
    ) {
        self.queues.retire(Box::new((memory, owner)), queues(after));
    }
}

impl UnifiedMemory for SimDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(self.shared.allocate_unified(bytes)?))
    }
}

impl MemoryAdoption for SimDevice {
    unsafe fn adopt(
        &self,
        handle: NativeHandle,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Box<dyn DeviceMemory>> {
        self.shared.check("memory_adopt")?;
        // SAFETY: the caller guarantees the handle's validity.
        Ok(Box::new(unsafe { SimMemory::adopt(handle, bytes, owner) }?))
    }
}

impl MemoryPool for SimDevice {
    fn reserved_bytes(&self) -> usize {
        self.shared.pool.reserved()
    }

    fn used_bytes(&self) -> usize {
        self.shared.pool.used()
    }

    fn trim(&self, keep_bytes: usize) -> Result<()> {
        self.shared.check("trim")?;
        self.shared.pool.trim(keep_bytes);
        Ok(())
    }
}

impl Monitor for SimDevice {
    fn load(&self) -> Result<DeviceLoad> {
        self.shared.check("load")?;
        let reserved = self.shared.pool.reserved();
        let free = self.shared.pool.capacity().saturating_sub(reserved);
        Ok(DeviceLoad::default().with_memory(free as u64, reserved as u64))
    }
}
