//! The adapter: turns a memory map and symbols into an accelerator.
#![expect(unsafe_code, reason = "implements the contract's unsafe device trait")]

use std::sync::Arc;
use std::time::Duration;

use backend_support::{Block, Event, Identity, Queues, options};
use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceLoad, DeviceMemory,
    DeviceModule, DevicePinned, DeviceStream, EventOptions, MemoryArea, Monitor, PinnedOptions,
    Released, StreamOptions,
};
use runtime_core::{
    DeviceInfo, Embedded, Error, ErrorKind, ImageFormat, Limits, ModuleImage, NativeHandle,
    NativeKind, Result,
};

use super::event::EmbeddedEvent;
use super::memory::{EmbeddedMemory, EmbeddedPinned};
use super::module::EmbeddedModule;
use super::shared::OpenDevice;
use super::stream::{EmbeddedStream, LAUNCH_BYTES};
use crate::Architecture;
use crate::processor::{ARGUMENTS, Processor};

/// The alignment of allocations.
const ALIGNMENT: usize = 64;

/// The options of an accelerator made from an embedded device.
#[derive(Clone, Debug)]
pub struct AcceleratorConfig {
    pub(crate) timeout: Duration,
    pub(crate) architecture: Option<Architecture>,
}

impl Default for AcceleratorConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), architecture: None }
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

    /// Sets the programs that can be loaded for a device whose processor this crate does not know. They are used if the
    /// device reports an architecture of the same name.
    #[must_use]
    pub fn with_architecture(mut self, architecture: Architecture) -> Self {
        self.architecture = Some(architecture);
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
        // The standard library's parser also accepts signs, exponents and words.
        let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let seconds = value.parse().ok().filter(|_| is_plain);
        match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            Some(timeout) if !timeout.is_zero() => Ok(self.with_timeout(timeout)),
            _ => Err(options::refused(
                option,
                value,
                "seconds in digits, such as 60 or 0.5, above 0 and below 2^64",
            )),
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
    shared: Arc<OpenDevice>,
}

impl EmbeddedAccelerator {
    /// Makes an accelerator of `device`. Clones of `device` can read its console and its memory, but cannot become a
    /// second accelerator, whose allocations would overlap those of the first.
    ///
    /// # Errors
    ///
    /// `Conflict` while another accelerator of the same device, or one of its objects, lives. `InvalidArgument` if its
    /// architecture is neither known nor that of `config`, if it has no writable memory or the largest area continues
    /// beyond the processor's last address, or if its calls take no argument, which a launch needs for its geometry.
    pub fn new(device: Embedded, config: &AcceleratorConfig) -> Result<Self> {
        let refused =
            |what: String| Error::new(ErrorKind::InvalidArgument, "open", what).on(device.id());
        let name = &device.info().architecture;
        let given = config.architecture.clone().filter(|given| given.name == *name);
        let architecture = given.or_else(|| Processor::architecture_named(name));
        let architecture =
            architecture.ok_or_else(|| refused(format!("code for {name:?} cannot be loaded")))?;
        let writable = device.memory_map().iter().filter(|area| area.writable);
        let area = writable.max_by_key(|area| area.bytes).cloned();
        let area = area.ok_or_else(|| refused("no memory that can be written".to_owned()))?;
        let last = architecture.last_address();
        if area.address.checked_add(area.bytes).is_none_or(|end| end > last) {
            let MemoryArea { name, address, bytes, .. } = &area;
            return Err(refused(format!(
                "{bytes} bytes of {name:?} at {address:#x}; memory ends before {last:#x}"
            )));
        }
        let Some(info) = info(device.info(), &area) else {
            return Err(refused("calls without arguments; launches need one".to_owned()));
        };
        let identity = Identity { device: device.id().clone(), fault: ("EMBEDDED_FAULT", 0) };
        let shared = OpenDevice::open(device, architecture, area, config.timeout)?;
        Ok(Self { info, queues: Queues::new(identity), shared })
    }

    /// The embedded device, to read its console and its memory.
    pub fn embedded(&self) -> &Embedded {
        &self.shared.device
    }
}

/// The description of the accelerator, or `None` if calls have no arguments.
fn info(device: &DeviceInfo, area: &MemoryArea) -> Option<DeviceInfo> {
    let bytes = usize::try_from(area.bytes).unwrap_or(usize::MAX);
    // The geometry is the first argument.
    let arguments = device.limits.max_arguments.min(ARGUMENTS).checked_sub(1)?;
    let grid = [i32::MAX.unsigned_abs(), 65535, 65535];
    let mut info = device.clone().with_memory_bytes(area.bytes).with_formats([ImageFormat::Elf]);
    info.limits = Limits::new(bytes, grid, [1024, 1024, 64], 1024)
        .with_allocation_alignment(ALIGNMENT)
        .with_max_arguments(arguments, 8 * arguments);
    Some(info)
}

impl CommonRuntime for EmbeddedAccelerator {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

// SAFETY: memory is a range of the device that no other memory overlaps. Work in flight holds the ranges it accesses,
// so a release, which drops the device's hold, cannot hand them out too early.
unsafe impl AcceleratorDevice for EmbeddedAccelerator {
    fn abilities(&self) -> Abilities<'_> {
        let abilities = Abilities::none().with_monitor(self);
        match self.shared.device.counters() {
            Some(counters) => abilities.with_counters(counters),
            None => abilities,
        }
    }

    fn native(&self) -> NativeHandle {
        let raw = Arc::as_ptr(&self.shared).addr();
        NativeHandle { api: "embedded", kind: NativeKind::Context, raw }
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        Ok(Box::new(EmbeddedModule::load(&self.shared, image)?))
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        self.shared.check("memory_allocate")?;
        let range = self.shared.take("memory_allocate", bytes as u64, ALIGNMENT as u64)?;
        Ok(Box::new(EmbeddedMemory::new(range, bytes)))
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        let block = Block::zeroed(bytes, None).ok_or_else(|| {
            let message = format!("{bytes} bytes of host memory");
            Error::new(ErrorKind::OutOfMemory, "pinned_allocate", message).with_driver("ENOMEM", 12)
        })?;
        Ok(Box::new(EmbeddedPinned(block)))
    }

    fn stream_create(&self, _: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        self.shared.check("stream_create")?;
        let geometry = self.shared.take("stream_create", LAUNCH_BYTES, ALIGNMENT as u64)?;
        Ok(Box::new(EmbeddedStream::new(self.queues.create(), geometry, &self.shared)))
    }

    fn event_create(&self, _: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        self.shared.check("event_create")?;
        Ok(Box::new(EmbeddedEvent { event: Event::new(), shared: Arc::clone(&self.shared) }))
    }

    unsafe fn release(&self, object: Released, _: &[&dyn DeviceStream]) {
        self.queues.release(object);
    }

    fn synchronize(&self) -> Result<()> {
        self.queues.synchronize()?;
        self.shared.check("synchronize")
    }

    fn take_failure(&self) -> Option<Error> {
        self.queues.take_failure()
    }
}

impl Monitor for EmbeddedAccelerator {
    fn load(&self) -> Result<DeviceLoad> {
        self.shared.check("load")?;
        let free = self.shared.heap.free_bytes();
        Ok(DeviceLoad::default().with_memory(free, self.shared.area.bytes - free))
    }
}
