//! The adapter: turns a memory map and symbols into an accelerator.
#![expect(unsafe_code, reason = "implements the contract's unsafe device trait")]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backend_support::{Block, Event, Identity, Queues, options};
use runtime_core::contract::{
    AcceleratorDevice, CommonRuntime, Counters, DeviceEvent, DeviceLoad, DeviceMemory,
    DeviceModule, DevicePinned, DeviceStream, GraphCapture, MemoryAdoption, MemoryArea, MemoryPool,
    Monitor, NativeInterop, PeerAccess, PinnedOptions, RegionCopyAbility, StreamOptions,
    UnifiedMemory,
};
use runtime_core::{
    DeviceInfo, Embedded, Error, ErrorKind, ImageFormat, Limits, ModuleImage, NativeHandle,
    NativeKind, Result,
};

use super::event::EmbeddedEvent;
use super::heap::{Heap, Range};
use super::memory::{EmbeddedMemory, EmbeddedPinned};
use super::module::EmbeddedModule;
use super::stream::{EmbeddedStream, LAUNCH_BYTES};
use crate::common::lock;
use crate::processor::{ARGUMENTS, Processor};

/// The alignment of allocations.
const ALIGNMENT: usize = 64;

/// The options of an accelerator made from an embedded device.
#[derive(Clone, Debug)]
pub struct AcceleratorConfig {
    pub(crate) timeout: Duration,
}

impl Default for AcceleratorConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60) }
    }
}

impl AcceleratorConfig {
    /// The default: launches may take one minute.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long a launch may take. After that it counts as a fault, and the processor is reset.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_micros(1));
        self
    }

    /// Sets the option `timeout` from a number of seconds.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for another option, or for a value that is not a valid number of seconds.
    pub fn set(self, option: &str, value: &str) -> Result<Self> {
        if option != "timeout" {
            return Err(options::refused(option, value, "the option timeout"));
        }
        let seconds =
            value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match seconds {
            Some(timeout) if !timeout.is_zero() => Ok(self.with_timeout(timeout)),
            _ => Err(options::refused(option, value, "a positive number of seconds")),
        }
    }
}

/// An accelerator made from any embedded device with a known memory map and symbols. Allocations are parts of its
/// largest writable memory, several modules can be loaded at the same time, and a launch is a call.
///
/// Streams are queues on the host, and the single processor runs their launches one at a time. Copies do not need the
/// processor if the device's memory can be accessed while it runs. A fault only ends its launch. A launch that exceeds
/// the time of [`AcceleratorConfig::with_timeout`] is a fault, too; the processor is then reset, but memory and modules
/// remain. The flashed program must not use the memory that this accelerator allocates.
///
/// [`Embedded::reset`] between launches keeps memory and modules. Once an operation of the accelerator fails with
/// `DeviceLost`, the accelerator is lost for good, because memory and modules may be lost. This includes a launch that
/// [`Embedded::reset`] ends. A later reset recovers the embedded device alone: drop the accelerator and all of its
/// objects, and make another.
#[derive(Debug)]
pub struct EmbeddedAccelerator {
    info: DeviceInfo,
    queues: Queues,
    shared: Arc<Shared>,
}

/// The state that streams and modules share with the device.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Embedded,
    pub(crate) processor: Processor,
    pub(crate) area: MemoryArea,
    pub(crate) heap: Arc<Heap>,
    pub(crate) timeout: Duration,
    lost: AtomicBool,
    /// Locked while the processor works for one stream, including the reset after a launch that hangs.
    turn: Mutex<()>,
}

impl EmbeddedAccelerator {
    /// Takes ownership of `device`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if its processor is not supported, if it has no writable memory or the largest area continues
    /// beyond the processor's last address, or if its calls take no argument, which a launch needs for its geometry.
    pub fn new(device: Embedded, config: &AcceleratorConfig) -> Result<Self> {
        let refused =
            |what: String| Error::new(ErrorKind::InvalidArgument, "open", what).on(device.id());
        let architecture = &device.info().architecture;
        let processor = Processor::of(architecture)
            .ok_or_else(|| refused(format!("code for {architecture:?} cannot be loaded")))?;
        let writable = device.memory_map().iter().filter(|area| area.writable);
        let area = writable.max_by_key(|area| area.bytes).cloned();
        let area = area.ok_or_else(|| refused("no memory that can be written".to_owned()))?;
        let last = processor.last_address();
        if area.address.checked_add(area.bytes).is_none_or(|end| end > last) {
            let MemoryArea { name, address, bytes, .. } = &area;
            return Err(refused(format!(
                "{bytes} bytes of {name:?} at {address:#x}; memory ends before {last:#x}"
            )));
        }
        if device.info().limits.arguments == 0 {
            return Err(refused("calls without arguments; launches need one".to_owned()));
        }
        let info = info(device.info(), &area);
        let identity = Identity { device: device.id().clone(), fault: ("EMBEDDED_FAULT", 0) };
        let shared = Shared {
            processor,
            heap: Heap::new(area.address, area.bytes),
            area,
            timeout: config.timeout,
            lost: AtomicBool::new(false),
            turn: Mutex::default(),
            device,
        };
        Ok(Self { info, queues: Queues::new(identity), shared: Arc::new(shared) })
    }

    /// The embedded device, to read its console and its memory.
    pub fn embedded(&self) -> &Embedded {
        &self.shared.device
    }
}

impl Shared {
    /// Refuses calls on a lost device.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            let message = "the accelerator was lost in an earlier operation; open it again";
            let lost = Error::new(ErrorKind::DeviceLost, operation, message);
            return Err(lost.with_driver("EMBEDDED_LOST", 0).on(self.device.id()));
        }
        Ok(())
    }

    /// Calls `act` with the device, and records if the device is lost.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Embedded) -> Result<T>) -> Result<T> {
        self.check("enqueue")?;
        let done = act(&self.device);
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::DeviceLost) {
            self.lost.store(true, Ordering::Release);
        }
        done
    }

    /// As [`with`](Self::with), for an operation that does not need the processor and can be done twice. If a launch that
    /// hangs is in its way, it is done again after the reset.
    pub(crate) fn access(&self, mut act: impl FnMut(&Embedded) -> Result<()>) -> Result<()> {
        match self.with(&mut act) {
            Err(error) if error.kind() == ErrorKind::Conflict => self.exclusively(act),
            done => done,
        }
    }

    /// As [`with`](Self::with), with exclusive use of the processor.
    pub(crate) fn exclusively<T>(&self, act: impl FnOnce(&Embedded) -> Result<T>) -> Result<T> {
        let _turn = lock(&self.turn);
        self.with(act)
    }

    /// Takes a part of the device's memory.
    pub(crate) fn take(
        &self,
        operation: &'static str,
        bytes: u64,
        alignment: u64,
    ) -> Result<Range> {
        self.heap.take(bytes, alignment).ok_or_else(|| {
            let message = format!(
                "{bytes} bytes; {} are free, perhaps not in one piece",
                self.heap.free_bytes()
            );
            Error::new(ErrorKind::OutOfMemory, operation, message)
                .with_driver("EMBEDDED_OUT_OF_MEMORY", 0)
        })
    }
}

fn info(device: &DeviceInfo, area: &MemoryArea) -> DeviceInfo {
    let bytes = usize::try_from(area.bytes).unwrap_or(usize::MAX);
    DeviceInfo {
        memory_bytes: Some(area.bytes),
        limits: Limits {
            allocation_bytes: bytes,
            allocation_alignment: NonZeroUsize::new(ALIGNMENT).unwrap_or(NonZeroUsize::MIN),
            argument_alignment: NonZeroUsize::MIN,
            grid: [i32::MAX.unsigned_abs(), 65535, 65535],
            block: [1024, 1024, 64],
            block_size: 1024,
            shared_bytes: 0,
            // The geometry is the first argument.
            arguments: device.limits.arguments.min(ARGUMENTS) - 1,
            argument_bytes: 8 * (device.limits.arguments.min(ARGUMENTS) - 1),
            priorities: (0, 0),
        },
        formats: vec![ImageFormat::Elf],
        absent_formats: Vec::new(),
        ..device.clone()
    }
}

impl CommonRuntime for EmbeddedAccelerator {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        Ok(Box::new(EmbeddedModule::load(&self.shared, image)?))
    }

    fn synchronize(&self) -> Result<()> {
        let done = self.queues.synchronize();
        // The failure that says how the device was lost comes first.
        done.and_then(|()| self.shared.check("synchronize"))
    }
}

// SAFETY: memory is a range of the device that no other memory overlaps. Work in flight holds the ranges it accesses,
// so a free, which drops the device's hold, cannot hand them out too early.
unsafe impl AcceleratorDevice for EmbeddedAccelerator {
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        self.shared.check("memory_allocate")?;
        let range = self.shared.take("memory_allocate", bytes as u64, ALIGNMENT as u64)?;
        Ok(Box::new(EmbeddedMemory::new(range, bytes)))
    }

    unsafe fn memory_free(&self, memory: Box<dyn DeviceMemory>, _after: &[&dyn DeviceStream]) {
        drop(memory);
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        let block = Block::zeroed(bytes, None).ok_or_else(|| {
            let message = format!("{bytes} bytes of host memory");
            Error::new(ErrorKind::OutOfMemory, "pinned_allocate", message).with_driver("ENOMEM", 12)
        })?;
        Ok(Box::new(EmbeddedPinned(block)))
    }

    unsafe fn pinned_free(&self, memory: Box<dyn DevicePinned>, _after: &[&dyn DeviceStream]) {
        drop(memory);
    }

    unsafe fn module_unload(&self, module: Box<dyn DeviceModule>, _after: &[&dyn DeviceStream]) {
        drop(module);
    }

    fn stream_create(&self, _options: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        self.shared.check("stream_create")?;
        let geometry = self.shared.take("stream_create", LAUNCH_BYTES, ALIGNMENT as u64)?;
        Ok(Box::new(EmbeddedStream::new(self.queues.create(), geometry, &self.shared)))
    }

    fn event_create(&self, _timing: bool) -> Result<Box<dyn DeviceEvent>> {
        self.shared.check("event_create")?;
        Ok(Box::new(EmbeddedEvent { event: Event::new(), shared: Arc::clone(&self.shared) }))
    }

    fn native(&self) -> NativeHandle {
        let raw = Arc::as_ptr(&self.shared).addr();
        NativeHandle { api: "embedded", kind: NativeKind::Context, raw }
    }

    fn cooperative_launch(&self) -> bool {
        false
    }

    fn region_copy(&self) -> Option<&dyn RegionCopyAbility> {
        None
    }

    fn graphs(&self) -> Option<&dyn GraphCapture> {
        None
    }

    fn peer(&self) -> Option<&dyn PeerAccess> {
        None
    }

    fn unified_memory(&self) -> Option<&dyn UnifiedMemory> {
        None
    }

    fn memory_adoption(&self) -> Option<&dyn MemoryAdoption> {
        None
    }

    fn interop(&self) -> Option<&dyn NativeInterop> {
        None
    }

    fn memory_pool(&self) -> Option<&dyn MemoryPool> {
        None
    }

    fn monitor(&self) -> Option<&dyn Monitor> {
        Some(self)
    }

    fn counters(&self) -> Option<&dyn Counters> {
        self.shared.device.counters()
    }
}

impl Monitor for EmbeddedAccelerator {
    fn load(&self) -> Result<DeviceLoad> {
        self.shared.check("load")?;
        let free = self.shared.heap.free_bytes();
        Ok(DeviceLoad {
            memory_free: Some(free),
            memory_used: Some(self.shared.area.bytes - free),
            ..DeviceLoad::default()
        })
    }
}
