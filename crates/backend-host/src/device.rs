//! The device: its identity, and creation of its objects.
#![expect(unsafe_code, reason = "implements the contract's unsafe device trait")]

use std::any::Any;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use backend_support::{Block, Identity, Queues, functions_load};
use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceMemory, DeviceModule,
    DevicePinned, DeviceStream, EventOptions, HostRegistration, MemoryAdoption, PinnedOptions,
    Released, StreamOptions, UnifiedMemory,
};
use runtime_core::{
    DeviceId, DeviceInfo, DeviceKind, Error, ErrorKind, ImageFormat, Limits, ModuleImage,
    NativeHandle, NativeKind, Result,
};

use crate::cores::CorePool;
use crate::counters::HostCounters;
use crate::event::HostEvent;
use crate::machine;
use crate::memory::{Heap, HostMemory, block};
use crate::monitor::HostMonitor;
use crate::stream::{HostStream, queues};

/// The host as a device. Every instance is independent: it has its own threads, streams and memory accounting.
///
/// Threads start when they are first needed. They end with the device, or with the last work that was enqueued on it.
///
/// # Event counters
///
/// On Linux the device counts perf events of this process. It counts in all threads, including those of other devices,
/// and in the threads and processes that they start later. The counts of a thread are kept when the thread ends.
///
/// | name | counted |
/// |---|---|
/// | `cycles`, `instructions` | processor cycles, instructions retired |
/// | `cache-references`, `cache-misses` | accesses to the last-level cache as the processor defines them, and misses |
/// | `branches`, `branch-misses` | branch instructions retired, and those predicted wrongly |
/// | `task-clock` | nanoseconds that threads ran, in the kernel too |
/// | `page-faults` | page faults |
/// | `context-switches`, `cpu-migrations` | switches between threads, moves to another core |
///
/// The processor counts the first six. These six and page faults are counted only in user mode. If more of the six are
/// open than the processor can count at once, values are estimated from the fraction of time in which each was counted.
/// On a processor with several types of core, the six count on the type that the kernel prefers. The last two occur in
/// the kernel, which reports them if `perf_event_paranoid` is at most 1 or the process has `CAP_PERFMON`.
///
/// The device has the counters that could be opened when the device was opened. If none could be opened, for instance
/// in a container that forbids perf events, the device has no counters. Opening the counters takes a file descriptor
/// for each counter and thread. Reading takes a system call for each. Opening the counters returns `InvalidArgument` if
/// the process may not have that many descriptors, and `Timeout` if threads are started too fast to attach to all of
/// them.
#[derive(Debug)]
pub struct HostDevice {
    info: DeviceInfo,
    cores: Arc<CorePool>,
    heap: Heap,
    monitor: Option<HostMonitor>,
    counters: Option<HostCounters>,
    queues: Queues,
}

impl HostDevice {
    /// The most threads that a device can have.
    pub const MAX_THREADS: usize = 4096;

    /// The host as the device `host:index`, with as many threads as there are cores for this process.
    pub fn new(index: usize) -> Self {
        Self::build(index, default_threads(), HostCounters::new())
    }

    /// The host as the device `host:index`, with `threads` threads that run kernels and large copies.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `threads` is 0 or more than [`MAX_THREADS`](Self::MAX_THREADS).
    pub fn with_threads(index: usize, threads: usize) -> Result<Self> {
        if (1..=Self::MAX_THREADS).contains(&threads) {
            return Ok(Self::build(index, threads, HostCounters::new()));
        }
        let message = format!("threads={threads}; a host device has 1 to {}", Self::MAX_THREADS);
        Err(Error::new(ErrorKind::InvalidArgument, "open", message))
    }

    pub(crate) fn build(index: usize, threads: usize, counters: Option<HostCounters>) -> Self {
        let id = DeviceId::new("host", index);
        let memory = machine::memory_total();
        let most = memory.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(MAX_ALLOCATION);
        Self {
            info: info(&id, threads),
            cores: Arc::new(CorePool::new(&id, threads)),
            heap: Heap::new(most),
            monitor: HostMonitor::new(),
            counters,
            queues: Queues::new(Identity { device: id, fault: ("HOST_KERNEL_FAULT", 1) }),
        }
    }

    pub(crate) fn new_stream(&self) -> HostStream {
        HostStream::new(self.queues.create(), &self.cores)
    }
}

/// Larger than any address space, and far enough from the end of `isize` that offsets cannot overflow.
const MAX_ALLOCATION: usize = isize::MAX.unsigned_abs() / 2;

pub(crate) fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get).min(HostDevice::MAX_THREADS)
}

pub(crate) fn info(id: &DeviceId, threads: usize) -> DeviceInfo {
    let processor = machine::processor();
    // A host function only reads the geometry. The limits are those of the first dimension on common GPUs, for every
    // dimension, so that launches that are valid on a GPU are valid here.
    let limits = Limits::new(MAX_ALLOCATION, [i32::MAX.unsigned_abs(); 3], [1024; 3], 1024)
        .with_allocation_alignment(Block::ALIGN)
        .with_max_arguments(128, 4096);
    DeviceInfo::new(id.clone(), DeviceKind::Host, processor.name, limits)
        .with_vendor(processor.vendor)
        .with_architecture(std::env::consts::ARCH)
        .with_driver_version(machine::system_version())
        .with_memory_bytes(machine::memory_total())
        .with_compute_units(u32::try_from(threads).unwrap_or(u32::MAX))
        .with_formats([ImageFormat::HostFunctions])
}

impl CommonRuntime for HostDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

// SAFETY: memory is a block of the requested length that stays in place. Enqueued work holds its blocks, so a release,
// which only drops the device's reference, cannot free them too early.
unsafe impl AcceleratorDevice for HostDevice {
    fn abilities(&self) -> Abilities<'_> {
        let mut abilities = Abilities::none()
            .with_region_copy(self)
            .with_graphs(self)
            .with_peer(self)
            .with_unified_memory(self)
            .with_memory_adoption(self)
            .with_host_registration(self)
            .with_gates(self)
            .with_memory_pool(&self.heap);
        if let Some(monitor) = &self.monitor {
            abilities = abilities.with_monitor(monitor);
        }
        if let Some(counters) = &self.counters {
            abilities = abilities.with_counters(counters);
        }
        abilities
    }

    fn native(&self) -> NativeHandle {
        let raw = Arc::as_ptr(&self.cores).addr();
        NativeHandle { api: "host", kind: NativeKind::Context, raw }
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        functions_load(image)
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(self.heap.allocate("memory_allocate", bytes)?))
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(self.heap.allocate("pinned_allocate", bytes)?))
    }

    fn stream_create(&self, _: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        Ok(Box::new(self.new_stream()))
    }

    fn event_create(&self, _: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(HostEvent::default()))
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
        self.queues.synchronize()
    }

    fn take_failure(&self) -> Option<Error> {
        self.queues.take_failure()
    }
}

impl UnifiedMemory for HostDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(self.heap.allocate("unified_allocate", bytes)?))
    }
}

// SAFETY: work touches the memory only when it runs, and its streams are done before the registration ends.
unsafe impl HostRegistration for HostDevice {
    unsafe fn register(&self, first: NonNull<u8>, bytes: usize) -> Result<Box<dyn DevicePinned>> {
        // SAFETY: the caller guarantees the bytes.
        Ok(Box::new(unsafe { HostMemory::registered(first, bytes) }))
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

impl MemoryAdoption for HostDevice {
    unsafe fn adopt(
        &self,
        handle: NativeHandle,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Box<dyn DeviceMemory>> {
        // SAFETY: the caller guarantees the handle's validity.
        Ok(Box::new(unsafe { HostMemory::adopt(handle, bytes, owner) }?))
    }
}
