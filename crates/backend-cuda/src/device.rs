//! The device: making its objects and giving them back.
#![expect(
    unsafe_code,
    reason = "implements the contract's unsafe device trait, and takes a context that others own"
)]

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use runtime_core::contract::{
    AcceleratorDevice, CommonRuntime, Counters, DeviceEvent, DeviceMemory, DeviceModule,
    DevicePinned, DeviceStream, GraphCapture, MemoryAdoption, MemoryPool, Monitor, NativeInterop,
    PeerAccess, PinnedOptions, RegionCopyAbility, StreamOptions, UnifiedMemory,
};
use runtime_core::{
    DeviceId, DeviceInfo, Error, ErrorKind, ModuleImage, NativeHandle, NativeKind, PciAddress,
    Result,
};

use crate::codes;
use crate::config::{CudaConfig, PoolKind};
use crate::context::Context;
use crate::event::CudaEvent;
use crate::info::{Description, describe, priorities};
use crate::library::{Library, library};
use crate::memory::CudaMemory;
use crate::module::CudaModule;
use crate::pinned::CudaPinned;
use crate::program::Builder;
use crate::shared::Shared;
use crate::stream::CudaStream;

/// An opened CUDA device: what a [`Device`](runtime_core::Device) of this backend is made of.
#[derive(Debug)]
pub struct CudaDevice {
    info: DeviceInfo,
    cooperative: bool,
    managed: bool,
    has_peers: bool,
    builder: Builder,
    pub(crate) shared: Arc<Shared>,
}

impl CudaDevice {
    /// Opens a device in its primary context, which other libraries of the process work in too, those on the CUDA runtime
    /// among them. [`Device::new`](runtime_core::Device::new) makes it usable.
    ///
    /// # Errors
    ///
    /// `Unavailable` without a driver, `UnknownDevice` if there are fewer devices, `InvalidArgument` for an option that this
    /// one does not take, `DeviceLost` while a lost instance of it is held.
    pub fn open(ordinal: usize, config: &CudaConfig) -> Result<Self> {
        let library = library()?;
        let id = DeviceId::new("cuda", ordinal);
        if ordinal >= library.devices {
            let message = format!("{id}: there are {} CUDA devices", library.devices);
            return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
        }
        Self::within(library, ordinal, config, || Context::open(library, &id))
    }

    /// Opens a device in a context that somebody else owns, which is never destroyed. Memory, streams and events of that
    /// context are the device's too. [`Device::new`](runtime_core::Device::new) makes it usable, and
    /// [`Device::with_native_stream`](runtime_core::Device::with_native_stream) with a stream of theirs.
    ///
    /// ```no_run
    /// use backend_cuda::{CudaConfig, CudaDevice};
    /// use runtime_core::{Device, NativeHandle, NativeKind};
    ///
    /// # fn example(context: *mut std::ffi::c_void) -> runtime_core::Result<()> {
    /// let raw = context.expose_provenance(); // a `CUcontext`
    /// let context = NativeHandle { api: "cuda", kind: NativeKind::Context, raw };
    /// // Sound if the context outlives the device.
    /// let device = Device::new(unsafe { CudaDevice::from_native(context, &CudaConfig::new()) }?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` without a driver, `InvalidArgument` for a handle that is null or no context of CUDA, or for an option
    /// that the device does not take; what the driver reports of a context that does not work.
    ///
    /// # Safety
    ///
    /// The handle is of a context that stays until the device, and whatever it made, is dropped.
    pub unsafe fn from_native(context: NativeHandle, config: &CudaConfig) -> Result<Self> {
        if (context.api, context.kind) != ("cuda", NativeKind::Context) || context.raw == 0 {
            let message = format!("{context:?} is no context of CUDA");
            return Err(Error::new(ErrorKind::InvalidArgument, "open", message));
        }
        let library = library()?;
        let raw = ptr::with_exposed_provenance_mut(context.raw);
        // SAFETY: the caller vouches for the context.
        let lent = unsafe { Context::lent(library, raw) }.map_err(|code| {
            codes::error(&library.functions, "open", code, format!("{context:?}"))
        })?;
        Self::within(library, lent.ordinal, config, || Ok(lent))
    }

    /// Opens a device in the context that `context` gives.
    fn within(
        library: &'static Library,
        ordinal: usize,
        config: &CudaConfig,
        context: impl FnOnce() -> Result<Arc<Context>>,
    ) -> Result<Self> {
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
        let context = context()?;
        info.limits.priorities = priorities(&context).map_err(|code| {
            codes::error(context.driver, "open", code, "the priorities of streams").on(&info.id)
        })?;
        let shared = Arc::new(Shared::new(&info, context, pool)?);
        let has_peers = library.devices > 1;
        Ok(Self { info, cooperative, managed, has_peers, builder, shared })
    }

    pub(crate) fn pci(&self) -> Option<PciAddress> {
        self.info.pci
    }
}

/// Takes an object of this backend out of its box.
fn unboxed<T: Any>(object: Box<dyn Any>) -> Option<T> {
    object.downcast().ok().map(|object| *object)
}

impl CommonRuntime for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        self.shared.check("module_load")?;
        let mut built = self.builder.build(image)?;
        let entry = built.entry.take();
        let module = CudaModule::load(&self.shared, built, self.info.limits.shared_bytes)?;
        entry.iter().for_each(|entry| self.builder.keep(entry));
        Ok(Box::new(module))
    }

    fn synchronize(&self) -> Result<()> {
        self.shared.synchronize()
    }
}

// SAFETY: memory has the length asked for and stays in place, and is given back in the order of the streams named, or by a
// thread that waits for them.
unsafe impl AcceleratorDevice for CudaDevice {
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(CudaMemory::allocate(&self.shared, bytes)?))
    }

    unsafe fn memory_free(&self, memory: Box<dyn DeviceMemory>, after: &[&dyn DeviceStream]) {
        if let Some(memory) = unboxed::<CudaMemory>(memory) {
            memory.free(&self.shared, after);
        }
    }

    fn pinned_allocate(
        &self,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(CudaPinned::allocate(&self.shared, bytes, options)?))
    }

    unsafe fn pinned_free(&self, memory: Box<dyn DevicePinned>, after: &[&dyn DeviceStream]) {
        if let Some(pinned) = unboxed::<CudaPinned>(memory) {
            self.shared.retire(pinned.into_object(), after);
        }
    }

    unsafe fn module_unload(&self, module: Box<dyn DeviceModule>, after: &[&dyn DeviceStream]) {
        if let Some(module) = unboxed::<CudaModule>(module) {
            let (module, folder) = module.into_object();
            self.shared.retire(module, after);
            drop(folder);
        }
    }

    fn stream_create(&self, options: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_create";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        // To the driver, smaller numbers are more urgent.
        let raw = shared.context.new_stream(-options.priority);
        let raw = Arc::new(raw.map_err(|code| shared.error(OPERATION, code, "no stream"))?);
        shared.add_stream(&raw);
        Ok(Box::new(CudaStream::new(shared, raw)))
    }

    fn event_create(&self, timing: bool) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(CudaEvent::new(&self.shared, timing)?))
    }

    fn native(&self) -> NativeHandle {
        let raw = self.shared.context.raw().expose_provenance();
        NativeHandle { api: "cuda", kind: NativeKind::Context, raw }
    }

    fn cooperative_launch(&self) -> bool {
        self.cooperative
    }

    fn region_copy(&self) -> Option<&dyn RegionCopyAbility> {
        Some(self)
    }

    fn graphs(&self) -> Option<&dyn GraphCapture> {
        Some(self)
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
