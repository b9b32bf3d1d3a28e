//! A device of an unknown backend: it can be opened, but supports no operation.
#![expect(unsafe_code, reason = "implements the unsafe traits of a device")]

use std::num::NonZeroUsize;
use std::time::Duration;

use runtime_core::contract::{
    AcceleratorDevice, CommonRuntime, Counters, DeviceEvent, DeviceKernel, DeviceMemory,
    DeviceModule, DevicePinned, DeviceStream, GraphCapture, MemoryAdoption, MemoryPool, Monitor,
    NativeInterop, PeerAccess, PinnedOptions, RawArg, RegionCopyAbility, UnifiedMemory,
};
use runtime_core::{
    Device, DeviceId, DeviceInfo, DeviceKind, Error, ErrorKind, Launch, Limits, ModuleImage,
    NativeHandle, NativeKind, Result, StreamOptions,
};

/// Opens this device. The front treats it like any opened device; no backend knows it.
pub(crate) fn open() -> Result<Device> {
    Device::new(Stranger {
        info: DeviceInfo {
            id: DeviceId::new("stranger", 0),
            kind: DeviceKind::Simulated,
            name: "stranger".to_owned(),
            vendor: "nobody".to_owned(),
            architecture: "none".to_owned(),
            driver_version: "0".to_owned(),
            uuid: None,
            pci: None,
            memory_bytes: None,
            compute_units: 1,
            lockstep_width: 1,
            limits: Limits {
                allocation_bytes: 0,
                allocation_alignment: NonZeroUsize::new(16).unwrap_or(NonZeroUsize::MIN),
                argument_alignment: NonZeroUsize::MIN,
                grid: [1; 3],
                block: [1; 3],
                block_size: 1,
                shared_bytes: 0,
                arguments: 0,
                argument_bytes: 0,
                priorities: (0, 0),
            },
            formats: Vec::new(),
            absent_formats: Vec::new(),
        },
    })
}

struct Stranger {
    info: DeviceInfo,
}

/// Its stream and event, which are always complete.
struct Idle;

fn cannot<T>(operation: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Unavailable, operation, "a stranger can do nothing"))
}

const fn handle(kind: NativeKind) -> NativeHandle {
    NativeHandle { api: "stranger", kind, raw: 0 }
}

impl CommonRuntime for Stranger {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_load(&self, _: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        cannot("module_load")
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

// SAFETY: no memory is ever made, so none can be described wrongly or freed too early.
unsafe impl AcceleratorDevice for Stranger {
    fn memory_allocate(&self, _: usize) -> Result<Box<dyn DeviceMemory>> {
        cannot("memory_allocate")
    }

    unsafe fn memory_free(&self, _: Box<dyn DeviceMemory>, _: &[&dyn DeviceStream]) {}

    fn pinned_allocate(&self, _: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        cannot("pinned_allocate")
    }

    unsafe fn pinned_free(&self, _: Box<dyn DevicePinned>, _: &[&dyn DeviceStream]) {}

    unsafe fn module_unload(&self, _: Box<dyn DeviceModule>, _: &[&dyn DeviceStream]) {}

    fn stream_create(&self, _: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        Ok(Box::new(Idle))
    }

    fn event_create(&self, _: bool) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(Idle))
    }

    fn native(&self) -> NativeHandle {
        handle(NativeKind::Context)
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
