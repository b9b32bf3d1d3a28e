//! A device of an unknown backend: it can be opened, but supports no operation.
#![expect(unsafe_code, reason = "implements the unsafe traits of a device")]

use std::time::Duration;

use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceKernel, DeviceMemory,
    DeviceModule, DevicePinned, DeviceStream, EventOptions, PinnedOptions, RawArg, Released,
};
use runtime_core::{
    Device, DeviceId, DeviceInfo, DeviceKind, Error, ErrorKind, Launch, Limits, ModuleImage,
    NativeHandle, NativeKind, Result, StreamOptions,
};

/// Opens this device. The front treats it like any opened device; no backend knows it.
pub(crate) fn open() -> Result<Device> {
    let limits = Limits::new(0, [1; 3], [1; 3], 1).with_max_arguments(0, 0);
    let id = DeviceId::new("unknown", 0);
    Device::new(UnknownDevice {
        info: DeviceInfo::new(id, DeviceKind::Simulated, "unknown", limits),
    })
}

struct UnknownDevice {
    info: DeviceInfo,
}

/// Its stream and event, which are always complete.
struct Idle;

fn cannot<T>(operation: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Unavailable, operation, "a device of an unknown kind does nothing"))
}

const fn handle(kind: NativeKind) -> NativeHandle {
    NativeHandle { api: "unknown", kind, raw: 0 }
}

impl CommonRuntime for UnknownDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

// SAFETY: no memory is ever made, so none can be described wrongly or freed too early.
unsafe impl AcceleratorDevice for UnknownDevice {
    fn abilities(&self) -> Abilities<'_> {
        Abilities::none()
    }

    fn native(&self) -> NativeHandle {
        handle(NativeKind::Context)
    }

    fn module_load(&self, _: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        cannot("module_load")
    }

    fn memory_allocate(&self, _: usize) -> Result<Box<dyn DeviceMemory>> {
        cannot("memory_allocate")
    }

    fn pinned_allocate(&self, _: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        cannot("pinned_allocate")
    }

    fn stream_create(&self, _: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        Ok(Box::new(Idle))
    }

    fn event_create(&self, _: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(Idle))
    }

    unsafe fn release(&self, _: Released, _: &[&dyn DeviceStream]) {}

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

// SAFETY: nothing is ever enqueued.
unsafe impl DeviceStream for Idle {
    unsafe fn memory_copy(
        &self,
        _: &dyn DeviceMemory,
        _: usize,
        _: &dyn DeviceMemory,
        _: usize,
        _: usize,
    ) -> Result<()> {
        cannot("memory_copy")
    }

    unsafe fn memory_copy_to(&self, _: &dyn DeviceMemory, _: usize, _: &[u8]) -> Result<()> {
        cannot("memory_copy_to")
    }

    unsafe fn memory_copy_from(&self, _: &dyn DeviceMemory, _: usize, _: &mut [u8]) -> Result<()> {
        cannot("memory_copy_from")
    }

    unsafe fn pinned_copy_to(
        &self,
        _: &dyn DevicePinned,
        _: usize,
        _: &dyn DeviceMemory,
        _: usize,
        _: usize,
    ) -> Result<()> {
        cannot("pinned_copy_to")
    }

    unsafe fn pinned_copy_from(
        &self,
        _: &dyn DeviceMemory,
        _: usize,
        _: &dyn DevicePinned,
        _: usize,
        _: usize,
    ) -> Result<()> {
        cannot("pinned_copy_from")
    }

    unsafe fn memory_fill(&self, _: &dyn DeviceMemory, _: usize, _: usize, _: &[u8]) -> Result<()> {
        cannot("memory_fill")
    }

    unsafe fn launch(&self, _: &dyn DeviceKernel, _: &Launch, _: &[RawArg<'_>]) -> Result<()> {
        cannot("launch")
    }

    fn record(&self, _: &dyn DeviceEvent) -> Result<()> {
        Ok(())
    }

    fn wait(&self, _: &dyn DeviceEvent) -> Result<()> {
        Ok(())
    }

    fn query(&self) -> Result<bool> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn native(&self) -> NativeHandle {
        handle(NativeKind::Stream)
    }
}

// SAFETY: there is no work, so all work is finished.
unsafe impl DeviceEvent for Idle {
    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn query(&self) -> Result<bool> {
        Ok(true)
    }

    fn elapsed_since(&self, _: &dyn DeviceEvent) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn native(&self) -> NativeHandle {
        handle(NativeKind::Event)
    }
}
