//! The device: its identity, and creation of its objects.
#![expect(unsafe_code, reason = "implements the contract's unsafe device trait")]

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use backend_support::{Block, Identity, Queues, functions_load, guarded};
use runtime_core::contract::{
    AcceleratorDevice, CommonRuntime, Counters, DeviceEvent, DeviceMemory, DeviceModule,
    DevicePinned, DeviceStream, GraphCapture, MemoryAdoption, MemoryPool, Monitor, NativeInterop,
    PeerAccess, PinnedOptions, RegionCopyAbility, StreamOptions, UnifiedMemory,
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
/// The first six are counted by the processor. Like page faults, they are counted only in user mode. If more of them
/// are open than the processor can count at once, values are estimated from the fraction of time in which each was
/// counted. On a processor with several types of core, they count on the type that the kernel prefers. The last two
/// occur in the kernel, which reports them if `perf_event_paranoid` is at most 1 or the process has `CAP_PERFMON`.
///
/// The device's counters have the names that could be opened when the device was opened. They are absent if none could,
/// for instance in a container that forbids perf events. Opening takes a file descriptor for each counter and thread;
/// reading takes a system call for each. Opening returns `InvalidArgument` if the process may not have that many
/// descriptors, and `Timeout` if threads are started too fast to attach to all of them.
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

    /// Drops an object, possibly its last reference, and keeps a panic for the next `synchronize`.
    fn release<T>(&self, operation: &'static str, object: T) {
        let dropped = guarded(operation, || {
            drop(object);
            Ok(())
        });
        if let Err(error) = dropped {
            self.queues.failures().keep(self.queues.identity().complete(error));
        }
    }
}

/// Larger than any address space, and far enough from the end of `isize` that offsets cannot overflow.
const MAX_ALLOCATION: usize = isize::MAX.unsigned_abs() / 2;

pub(crate) fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get).min(HostDevice::MAX_THREADS)
}

pub(crate) fn info(id: &DeviceId, threads: usize) -> DeviceInfo {
    let processor = machine::processor();
    DeviceInfo {
        id: id.clone(),
        kind: DeviceKind::Host,
        name: processor.name,
        vendor: processor.vendor,
        architecture: std::env::consts::ARCH.to_owned(),
        driver_version: machine::system_version(),
        uuid: None,
        pci: None,
        memory_bytes: machine::memory_total(),
        compute_units: u32::try_from(threads).unwrap_or(u32::MAX),
        lockstep_width: 1,
        limits: Limits {
            allocation_bytes: MAX_ALLOCATION,
            allocation_alignment: NonZeroUsize::new(Block::ALIGN).unwrap_or(NonZeroUsize::MIN),
            argument_alignment: NonZeroUsize::MIN,
            // A host function only reads the geometry. The limits are those of the first dimension on common GPUs, for
            // every dimension, so that launches that are valid on a GPU are valid here.
            grid: [i32::MAX.unsigned_abs(); 3],
            block: [1024; 3],
            block_size: 1024,
            shared_bytes: 0,
            arguments: 12,
            argument_bytes: 4096,
            priorities: (0, 0),
        },
        formats: vec![ImageFormat::HostFunctions],
        absent_formats: Vec::new(),
    }
}

impl CommonRuntime for HostDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        functions_load(image)
    }

    fn synchronize(&self) -> Result<()> {
        self.queues.synchronize()
    }
}

// SAFETY: memory is a block of the requested length that stays in place. Enqueued work holds its blocks, so a free,
// which only drops the device's reference, cannot release them too early.
unsafe impl AcceleratorDevice for HostDevice {
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(self.heap.allocate("memory_allocate", bytes)?))
    }

    unsafe fn memory_free(&self, memory: Box<dyn DeviceMemory>, after: &[&dyn DeviceStream]) {
        if block(&*memory).is_ok_and(|block| block.is_adopted()) {
            self.queues.retire(Box::new(memory), queues(after));
        } else {
            self.release("memory_free", memory);
        }
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(self.heap.allocate("pinned_allocate", bytes)?))
    }

    unsafe fn pinned_free(&self, memory: Box<dyn DevicePinned>, _after: &[&dyn DeviceStream]) {
        self.release("pinned_free", memory);
    }

    unsafe fn module_unload(&self, module: Box<dyn DeviceModule>, after: &[&dyn DeviceStream]) {
        self.queues.retire(Box::new(module), queues(after));
    }

    fn stream_create(&self, _options: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        Ok(Box::new(self.new_stream()))
    }

    fn event_create(&self, _timing: bool) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(HostEvent::default()))
    }

    fn native(&self) -> NativeHandle {
        let raw = Arc::as_ptr(&self.cores).addr();
        NativeHandle { api: "host", kind: NativeKind::Context, raw }
    }

    fn cooperative_launch(&self) -> bool {
        false
    }

    fn region_copy(&self) -> Option<&dyn RegionCopyAbility> {
        Some(self)
    }

    fn graphs(&self) -> Option<&dyn GraphCapture> {
        Some(self)
    }

    fn peer(&self) -> Option<&dyn PeerAccess> {
        Some(self)
    }

    fn unified_memory(&self) -> Option<&dyn UnifiedMemory> {
        Some(self)
    }

    fn memory_adoption(&self) -> Option<&dyn MemoryAdoption> {
        Some(self)
    }

    fn interop(&self) -> Option<&dyn NativeInterop> {
        None
    }

    fn memory_pool(&self) -> Option<&dyn MemoryPool> {
        Some(&self.heap)
    }

    fn monitor(&self) -> Option<&dyn Monitor> {
        self.monitor.as_ref().map(|monitor| monitor as _)
    }

    fn counters(&self) -> Option<&dyn Counters> {
        self.counters.as_ref().map(|counters| counters as _)
    }
}

impl UnifiedMemory for HostDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(self.heap.allocate("unified_allocate", bytes)?))
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
