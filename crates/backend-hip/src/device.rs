//! The device: making its objects and giving them back.
#![expect(unsafe_code, reason = "implements the contract's unsafe device trait")]

use std::any::Any;
use std::sync::Arc;

use hip_sys::hiprt::hipFunction_t;
use runtime_core::contract::{
    AcceleratorDevice, CommonRuntime, Counters, DeviceEvent, DeviceMemory, DeviceModule,
    DevicePinned, DeviceStream, GraphCapture, MemoryAdoption, MemoryPool, Monitor, NativeInterop,
    PeerAccess, PinnedOptions, RegionCopyAbility, StreamOptions, UnifiedMemory,
};
use runtime_core::{
    DeviceId, DeviceInfo, Error, ErrorKind, ImageFormat, ModuleImage, NativeHandle, NativeKind,
    Result,
};

use crate::codes;
use crate::config::{HipConfig, PoolKind};
use crate::context::Context;
use crate::event::HipEvent;
use crate::info::{Description, describe, priorities};
use crate::kernels::Own;
use crate::library::library;
use crate::memory::HipMemory;
use crate::module::HipModule;
use crate::pinned::HipPinned;
use crate::program::Builder;
use crate::shared::Shared;
use crate::stream::HipStream;

/// An opened HIP device: what a [`Device`](runtime_core::Device) of this backend is made of.
#[derive(Debug)]
pub struct HipDevice {
    info: DeviceInfo,
    cooperative: bool,
    managed: bool,
    has_peers: bool,
    /// Whether there is a compiler for the kernel of region copies.
    compiles: bool,
    builder: Builder,
    pub(crate) shared: Arc<Shared>,
}

impl HipDevice {
    /// Opens a device, which other libraries of the process may use as well.
    /// [`Device::new`](runtime_core::Device::new) makes it usable, and
    /// [`Device::with_native_stream`](runtime_core::Device::with_native_stream) with a stream of theirs.
    ///
    /// ```no_run
    /// use backend_hip::{HipConfig, HipDevice};
    /// use runtime_core::{Device, NativeHandle, NativeKind};
    ///
    /// # fn example(stream: *mut std::ffi::c_void) -> runtime_core::Result<()> {
    /// let raw = stream.expose_provenance(); // a `hipStream_t`
    /// let stream = NativeHandle { api: "hip", kind: NativeKind::Stream, raw };
    /// let device = HipDevice::open(0, &HipConfig::new())?;
    /// // Sound if the stream outlives the device.
    /// let device = unsafe { Device::with_native_stream(device, stream) }?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` without a runtime, `UnknownDevice` if there are fewer devices, `InvalidArgument` for an option that
    /// this one does not take, `DeviceLost` while a lost instance of it is held.
    pub fn open(ordinal: usize, config: &HipConfig) -> Result<Self> {
        let library = library()?;
        let id = DeviceId::new("hip", ordinal);
        if ordinal >= library.devices {
            let message = format!("{id}: there are {} HIP devices", library.devices);
            return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
        }
        // Before anything is asked: of a lost device the runtime tells nothing.
        let context = Context::open(library, &id)?;
        let Description { mut info, architecture, cooperative, pools, managed } =
            describe(library, ordinal)?;
        let pool = match config.pool {
            PoolKind::Auto if pools => PoolKind::Driver,
            PoolKind::Auto => PoolKind::Cache,
            PoolKind::Driver if !pools => {
                let message = format!("pool=driver: {} has no memory pools", info.name);
                return Err(Error::new(ErrorKind::InvalidArgument, "open", message).on(&info.id));
            }
            chosen => chosen,
        };
        let builder = Builder::new(config, architecture, library.version)?;
        let compiles = info.formats.contains(&ImageFormat::HipC);
        info.limits.priorities = priorities(&context).map_err(|code| {
            codes::error(context.hip, "open", code, "the priorities of streams").on(&info.id)
        })?;
        let shared = Arc::new(Shared::new(&info, context, pool)?);
        let has_peers = library.devices > 1 && library.peers.is_some();
        Ok(Self { info, cooperative, managed, has_peers, compiles, builder, shared })
    }

    /// Makes the device current, since a compiler that is told no architecture takes the current device's.
    fn bind(&self, operation: &'static str) -> Result<()> {
        self.shared.check(operation)?;
        let bound = self.shared.context.bind();
        bound.map_err(|code| self.shared.error(operation, code, "the device"))
    }

    /// A kernel of the backend's own for region copies.
    pub(crate) fn region_function(&self, kernel: Own) -> Result<hipFunction_t> {
        self.bind("plan_regions")?;
        self.shared.kernels.function(kernel, &self.builder)
    }
}

/// Takes an object of this backend out of its box.
fn unboxed<T: Any>(object: Box<dyn Any>) -> Option<T> {
    object.downcast().ok().map(|object| *object)
}

impl CommonRuntime for HipDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        self.bind("module_load")?;
        let mut built = self.builder.build(image)?;
        let entry = built.entry.take();
        let module = HipModule::load(&self.shared, built, &self.info.limits)?;
        entry.iter().for_each(|entry| self.builder.keep(entry));
        Ok(Box::new(module))
    }

    fn synchronize(&self) -> Result<()> {
        self.shared.synchronize()
    }
}

// SAFETY: memory has the length asked for and stays in place, and is given back in the order of the streams named, or by a
// thread that waits for them.
unsafe impl AcceleratorDevice for HipDevice {
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(HipMemory::allocate(&self.shared, bytes)?))
    }

    unsafe fn memory_free(&self, memory: Box<dyn DeviceMemory>, after: &[&dyn DeviceStream]) {
        if let Some(memory) = unboxed::<HipMemory>(memory) {
            memory.free(&self.shared, after);
        }
    }

    fn pinned_allocate(
        &self,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(HipPinned::allocate(&self.shared, bytes, options)?))
    }

    unsafe fn pinned_free(&self, memory: Box<dyn DevicePinned>, after: &[&dyn DeviceStream]) {
        if let Some(pinned) = unboxed::<HipPinned>(memory) {
            self.shared.retire(pinned.into_object(), after);
        }
    }

    unsafe fn module_unload(&self, module: Box<dyn DeviceModule>, after: &[&dyn DeviceStream]) {
        if let Some(module) = unboxed::<HipModule>(module) {
            let (module, folder) = module.into_object();
            self.shared.retire(module, after);
            drop(folder);
        }
    }

    fn stream_create(&self, options: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_create";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        // To the runtime, smaller numbers are more urgent.
        let raw = shared.context.new_stream(-options.priority);
        let raw = Arc::new(raw.map_err(|code| shared.error(OPERATION, code, "no stream"))?);
        shared.add_stream(&raw);
        Ok(Box::new(HipStream::new(shared, raw)))
    }

    fn event_create(&self, timing: bool) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(HipEvent::new(&self.shared, timing)?))
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: "hip", kind: NativeKind::Context, raw: self.shared.context.ordinal }
    }

    fn cooperative_launch(&self) -> bool {
        self.cooperative
    }

    fn region_copy(&self) -> Option<&dyn RegionCopyAbility> {
        if self.compiles { Some(self) } else { None }
    }

    fn graphs(&self) -> Option<&dyn GraphCapture> {
        if self.shared.context.library.graphs.is_some() { Some(self) } else { None }
    }

    fn peer(&self) -> Option<&dyn PeerAccess> {
        if self.has_peers { Some(self) } else { None }
    }

    fn unified_memory(&self) -> Option<&dyn UnifiedMemory> {
        if self.managed { Some(self) } else { None }
    }

    fn memory_adoption(&self) -> Option<&dyn MemoryAdoption> {
        Some(self)
    }

    fn interop(&self) -> Option<&dyn NativeInterop> {
        Some(self)
    }

    fn memory_pool(&self) -> Option<&dyn MemoryPool> {
        Some(self)
    }

    fn monitor(&self) -> Option<&dyn Monitor> {
        Some(self)
    }

    fn counters(&self) -> Option<&dyn Counters> {
        None
    }
}
