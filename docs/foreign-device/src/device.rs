//! The device and the driver that opens it by selector.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use runtime_core::contract::{
    AcceleratorDevice, CommonRuntime, Counters, DeviceEvent, DeviceKernel, DeviceMemory,
    DeviceModule, DevicePinned, DeviceStream, GraphCapture, MemoryAdoption, MemoryPool, Monitor,
    NativeInterop, PeerAccess, PinnedOptions, RegionCopyAbility, StreamOptions, UnifiedMemory,
};
use runtime_core::{
    Device, DeviceId, DeviceInfo, DeviceKind, Driver, Error, ErrorKind, HostModule, ImageCode,
    ImageFormat, Limits, ModuleImage, NativeHandle, NativeKind, Result, Selector,
};

use crate::memory::{Memory, Pinned};
use crate::stream::{Event, Kernel, Progress, Stream};

/// Of an allocation.
const MOST_BYTES: usize = 1 << 28;

/// Opens `foreign:0` and `foreign:1`.
#[derive(Clone, Copy, Debug)]
pub struct ForeignDriver;

const DEVICES: usize = 2;

impl Driver for ForeignDriver {
    fn name(&self) -> &str {
        "foreign"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok((0..DEVICES).map(|index| ForeignDevice::new(index).info).collect())
    }

    fn open(&self, selector: &Selector) -> Result<Device> {
        match selector.index()? {
            index if index < DEVICES && selector.options().is_empty() => {
                Device::new(ForeignDevice::new(index))
            }
            _ => {
                let message = format!(
                    "{selector}: there is foreign:0 to foreign:{}, without options",
                    DEVICES - 1
                );
                Err(Error::new(ErrorKind::UnknownDevice, "open", message))
            }
        }
    }
}

/// The device itself.
pub struct ForeignDevice {
    info: DeviceInfo,
    streams: AtomicUsize,
    progress: Arc<Progress>,
}

impl ForeignDevice {
    /// Opens device `index`.
    pub fn new(index: usize) -> Self {
        let info = DeviceInfo {
            id: DeviceId::new("foreign", index),
            kind: DeviceKind::Simulated,
            name: "vector and threads".into(),
            vendor: "example".into(),
            architecture: std::env::consts::ARCH.into(),
            driver_version: env!("CARGO_PKG_VERSION").into(),
            uuid: None,
            pci: None,
            memory_bytes: None,
            compute_units: 1,
            lockstep_width: 1,
            limits: Limits {
                allocation_bytes: MOST_BYTES,
                allocation_alignment: NonZeroUsize::new(16).unwrap_or(NonZeroUsize::MIN),
                argument_alignment: NonZeroUsize::MIN,
                grid: [u32::MAX; 3],
                block: [1024; 3],
                block_size: 1024,
                shared_bytes: 0,
                arguments: 64,
                argument_bytes: 1024,
                priorities: (0, 0),
            },
            formats: vec![ImageFormat::HostFunctions],
            absent_formats: Vec::new(),
        };
        Self { info, streams: AtomicUsize::new(1), progress: Arc::default() }
    }
}

impl CommonRuntime for ForeignDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        match image.code() {
            ImageCode::Functions(module) => Ok(Box::new(Module(module.clone()))),
            _ => Err(Error::new(ErrorKind::InvalidModule, "module_load", "not Rust functions")),
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.progress.synchronize()
    }
}

// SAFETY: memory is shared with the work enqueued on it, so that it lives until that has run.
unsafe impl AcceleratorDevice for ForeignDevice {
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(Memory::new(bytes)))
    }

    unsafe fn memory_free(&self, memory: Box<dyn DeviceMemory>, _after: &[&dyn DeviceStream]) {
        drop(memory);
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        // The front leaves this limit to the device.
        if bytes > MOST_BYTES {
            let message = format!("{bytes} bytes; the device has at most {MOST_BYTES}");
            return Err(Error::new(ErrorKind::OutOfMemory, "pinned_allocate", message));
        }
        Ok(Box::new(Pinned::new(bytes)))
    }

    unsafe fn pinned_free(&self, memory: Box<dyn DevicePinned>, _after: &[&dyn DeviceStream]) {
        drop(memory);
    }

    unsafe fn module_unload(&self, module: Box<dyn DeviceModule>, _after: &[&dyn DeviceStream]) {
        self.progress.release(module);
    }

    fn stream_create(&self, _options: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        let id = self.streams.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Stream::new(id, &self.progress)))
    }

    fn event_create(&self, _timing: bool) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(Event::default()))
    }

    fn native(&self) -> NativeHandle {
        NativeHandle {
            api: "foreign",
            kind: NativeKind::Context,
            raw: Arc::as_ptr(&self.progress).addr(),
        }
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
        None
    }

    fn counters(&self) -> Option<&dyn Counters> {
        None
    }
}

struct Module(HostModule);

impl DeviceModule for Module {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        Ok(Box::new(Kernel(self.0.kernel(name)?)))
    }
}
