//! The device, and the backend that opens it by selector.

use std::sync::Arc;

use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceKernel, DeviceMemory,
    DeviceModule, DevicePinned, DeviceStream, EventOptions, PinnedOptions, Released, StreamOptions,
};
use runtime_core::{
    Backend, Device, DeviceId, DeviceInfo, DeviceKind, Error, ErrorKind, HostModule, ImageCode,
    ImageFormat, Limits, ModuleImage, NativeHandle, NativeKind, Result, Selector,
};

use crate::memory::{Memory, Pinned};
use crate::stream::{Event, Kernel, Progress, Stream};

/// Of an allocation.
const MAX_BYTES: usize = 1 << 28;

/// Opens `foreign:0` and `foreign:1`.
#[derive(Clone, Copy, Debug)]
pub struct ForeignBackend;

const DEVICES: usize = 2;

impl Backend for ForeignBackend {
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
    progress: Arc<Progress>,
}

impl ForeignDevice {
    /// Opens device `index`.
    pub fn new(index: usize) -> Self {
        let limits = Limits::new(MAX_BYTES, [u32::MAX; 3], [1024; 3], 1024);
        let id = DeviceId::new("foreign", index);
        let info = DeviceInfo::new(id, DeviceKind::Simulated, "vector and threads", limits)
            .with_formats([ImageFormat::HostFunctions]);
        Self { info, progress: Arc::default() }
    }
}

impl CommonRuntime for ForeignDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

// SAFETY: memory is shared with the work enqueued on it, so that it lives until that has run.
unsafe impl AcceleratorDevice for ForeignDevice {
    fn abilities(&self) -> Abilities<'_> {
        Abilities::none()
    }

    fn native(&self) -> NativeHandle {
        NativeHandle {
            api: "foreign",
            kind: NativeKind::Context,
            raw: Arc::as_ptr(&self.progress).addr(),
        }
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        match image.code() {
            ImageCode::Functions(module) => Ok(Box::new(Module(module.clone()))),
            _ => Err(Error::new(ErrorKind::InvalidModule, "module_load", "not Rust functions")),
        }
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(Memory::new(bytes)))
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        // The front leaves this limit to the device.
        if bytes > MAX_BYTES {
            let message = format!("{bytes} bytes; the device has at most {MAX_BYTES}");
            return Err(Error::new(ErrorKind::OutOfMemory, "pinned_allocate", message));
        }
        Ok(Box::new(Pinned::new(bytes)))
    }

    fn stream_create(&self, _: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        Ok(Box::new(Stream::new(&self.progress)))
    }

    fn event_create(&self, _: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(Event::default()))
    }

    unsafe fn release(&self, object: Released, after: &[&dyn DeviceStream]) {
        match object {
            // What its functions own is the program's, and may wait for the streams.
            Released::Module(module) => self.progress.retire(module, after),
            // Enqueued work holds what it uses.
            object => drop(object),
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.progress.synchronize();
        Ok(())
    }

    fn take_failure(&self) -> Option<Error> {
        self.progress.take_failure(|_| true)
    }
}

struct Module(HostModule);

impl DeviceModule for Module {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        Ok(Box::new(Kernel(self.0.kernel(name)?)))
    }
}
