//! A device that accepts every call and does nothing.
#![expect(unsafe_code, reason = "implements the unsafe traits of a device")]

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::time::Duration;

use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceGraph, DeviceKernel,
    DeviceMemory, DeviceModule, DevicePinned, DeviceRegions, DeviceStream, EventOptions,
    GraphCapture, KernelAbilities, MemoryAt, ParamAccess, ParamInfo, ParamKind, PinnedAt,
    PinnedOptions, RawArg, RawSlot, RegionCopyAbility, Released, StreamOptions, UnifiedMemory,
};
use runtime_core::{
    DType, DeviceId, DeviceInfo, DeviceKind, Error, ImageFormat, Launch, Limits, ModuleImage,
    NativeHandle, NativeKind, RegionProgram, Result,
};

/// A device that accepts every call and does nothing. A benchmark of it measures what the front of the runtime costs.
/// To the rules, it is a device of a backend that no other backend knows.
#[derive(Debug)]
pub struct NullDevice {
    info: DeviceInfo,
}

impl Default for NullDevice {
    fn default() -> Self {
        let limits = Limits::new(1 << 40, [u32::MAX; 3], [1024; 3], 1024);
        let id = DeviceId::new("null", 0);
        let info = DeviceInfo::new(id, DeviceKind::Simulated, "null", limits);
        Self { info: info.with_formats([ImageFormat::Ptx]) }
    }
}

/// The type of almost all objects of the device. As memory, it has this length and no byte that anything accesses.
struct NullObject(usize);

const HANDLE: NativeHandle = NativeHandle { api: "null", kind: NativeKind::Object, raw: 0 };

impl CommonRuntime for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

// SAFETY: there is nothing to keep valid, and no byte is ever accessed.
unsafe impl AcceleratorDevice for NullDevice {
    fn abilities(&self) -> Abilities<'_> {
        Abilities::none().with_region_copy(self).with_graphs(self).with_unified_memory(self)
    }

    fn native(&self) -> NativeHandle {
        HANDLE
    }

    fn module_load(&self, _: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        Ok(Box::new(NullObject(0)))
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(NullObject(bytes)))
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(HostBytes::new(bytes)))
    }

    fn stream_create(&self, _: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        Ok(Box::new(NullObject(0)))
    }

    fn event_create(&self, _: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(NullObject(0)))
    }

    unsafe fn release(&self, _: Released, _: &[&dyn DeviceStream]) {}

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn take_failure(&self) -> Option<Error> {
        None
    }
}

// SAFETY: an execution accesses no byte.
unsafe impl RegionCopyAbility for NullDevice {
    fn prepare(&self, _: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        Ok(Box::new(NullObject(0)))
    }

    unsafe fn execute(
        &self,
        _: &dyn DeviceStream,
        _: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        black_box(slots);
        Ok(())
    }
}

// SAFETY: a launch accesses no byte.
unsafe impl GraphCapture for NullDevice {
    fn begin(&self) -> Result<Box<dyn DeviceStream>> {
        Ok(Box::new(NullObject(0)))
    }

    fn end(&self, _: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>> {
        Ok(Box::new(NullObject(0)))
    }

    unsafe fn launch(&self, _: &mut dyn DeviceGraph, stream: &dyn DeviceStream) -> Result<()> {
        black_box(stream);
        Ok(())
    }
}

impl DeviceGraph for NullObject {
    fn native(&self) -> NativeHandle {
        HANDLE
    }
}

impl DeviceRegions for NullObject {
    fn launches(&self) -> usize {
        1
    }
}

// SAFETY: the length is the requested one, and no byte can be accessed.
unsafe impl DeviceMemory for NullObject {
    fn len(&self) -> usize {
        self.0
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        None
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { raw: std::ptr::from_ref(self).addr(), ..HANDLE }
    }
}

impl UnifiedMemory for NullDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(HostBytes::new(bytes)))
    }
}

/// Bytes that the host can address.
struct HostBytes(Box<[UnsafeCell<u128>]>, usize);

impl HostBytes {
    fn new(bytes: usize) -> Self {
        Self((0..bytes.div_ceil(16)).map(|_| UnsafeCell::new(0)).collect(), bytes)
    }

    fn pointer(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.0.as_ptr()).cast()
    }
}

// SAFETY: bytes are handed out as a pointer, and the front orders all accesses through it.
unsafe impl Sync for HostBytes {}

// SAFETY: the block has at least that length and stays in place.
unsafe impl DevicePinned for HostBytes {
    fn len(&self) -> usize {
        self.1
    }

    fn ptr(&self) -> *mut u8 {
        self.pointer()
    }
}

// SAFETY: the block has at least that length and stays in place.
unsafe impl DeviceMemory for HostBytes {
    fn len(&self) -> usize {
        self.1
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        Some(self.pointer())
    }

    fn native(&self) -> NativeHandle {
        HANDLE
    }
}

impl DeviceModule for NullObject {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        let memory =
            ParamInfo::new(ParamKind::Memory).with_dtype(DType::F64).with_access(ParamAccess::Read);
        Ok(Box::new(NullKernel(vec![memory; name.len()])))
    }
}

/// A kernel with as many parameters as its name has letters. All of them are memory to read.
struct NullKernel(Vec<ParamInfo>);

impl DeviceKernel for NullKernel {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        Some(&self.0)
    }

    fn abilities(&self) -> KernelAbilities<'_> {
        KernelAbilities::none()
    }
}

// SAFETY: no byte is accessed.
unsafe impl DeviceStream for NullObject {
    unsafe fn memory_copy(&self, _: MemoryAt<'_>, _: MemoryAt<'_>, bytes: usize) -> Result<()> {
        black_box(bytes);
        Ok(())
    }

    unsafe fn memory_copy_to(&self, _: MemoryAt<'_>, src: &[u8]) -> Result<()> {
        black_box(src);
        Ok(())
    }

    unsafe fn memory_copy_from(&self, _: MemoryAt<'_>, dst: &mut [u8]) -> Result<()> {
        black_box(dst);
        Ok(())
    }

    unsafe fn pinned_copy_to(&self, _: PinnedAt<'_>, _: MemoryAt<'_>, bytes: usize) -> Result<()> {
        black_box(bytes);
        Ok(())
    }

    unsafe fn pinned_copy_from(
        &self,
        _: MemoryAt<'_>,
        _: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        black_box(bytes);
        Ok(())
    }

    unsafe fn memory_fill(&self, _: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()> {
        black_box((bytes, pattern));
        Ok(())
    }

    unsafe fn launch(
        &self,
        _: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        black_box((launch, args));
        Ok(())
    }

    fn record(&self, _: &dyn DeviceEvent) -> Result<()> {
        black_box(self);
        Ok(())
    }

    fn wait(&self, _: &dyn DeviceEvent) -> Result<()> {
        black_box(self);
        Ok(())
    }

    fn query(&self) -> Result<bool> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn take_failure(&self) -> Option<Error> {
        None
    }

    fn native(&self) -> NativeHandle {
        HANDLE
    }
}

// SAFETY: there is no work to wait for.
unsafe impl DeviceEvent for NullObject {
    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn assist(&self) {}

    fn query(&self) -> Result<bool> {
        Ok(true)
    }

    fn elapsed_since(&self, _: &dyn DeviceEvent) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn native(&self) -> NativeHandle {
        HANDLE
    }
}
