//! The device: it creates and releases its objects.
#![expect(
    unsafe_code,
    reason = "implements the contract's unsafe device trait, and takes a context that others own"
)]

use std::any::Any;
use std::ffi::c_int;
use std::sync::Arc;

use runtime_core::contract::{
    AcceleratorDevice, CommonRuntime, Counters, DeviceEvent, DeviceMemory, DeviceModule,
    DevicePinned, DeviceStream, GraphCapture, MemoryAdoption, MemoryPool, Monitor, NativeInterop,
    PeerAccess, PinnedOptions, RegionCopyAbility, StreamOptions, UnifiedMemory,
};
use runtime_core::{
    DeviceId, DeviceInfo, Error, ErrorKind, ModuleImage, NativeHandle, NativeKind, Result,
};

use crate::config::{Config, PoolKind};
use crate::context::Context;
use crate::event::Event;
use crate::kernel::Module;
use crate::memory::Memory;
use crate::pinned::Pinned;
use crate::program::Builder;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::vendor::{Code, Description, Vendor, error};

/// An opened device, from which a [`Device`](runtime_core::Device) of this backend is made.
#[derive(Debug)]
pub struct Device<V: Vendor> {
    pub(crate) info: DeviceInfo,
    cooperative: bool,
    managed: bool,
    regions: bool,
    graphs: bool,
    peers: bool,
    builder: Builder<V>,
    pub(crate) shared: Arc<Shared<V>>,
}

/// A vendor whose devices work in contexts that other libraries may own.
pub trait Lends: Vendor {
    /// The number of a context's device, and the library's handle of that device.
    ///
    /// # Errors
    ///
    /// The library's code.
    ///
    /// # Safety
    ///
    /// The place is a context.
    unsafe fn device_of(api: &Self::Api, place: usize) -> Result<(usize, c_int), u32>;
}

impl<V: Vendor> Device<V> {
    /// Opens a device. It works in the context that other libraries of the process may use too.
    /// [`Device::new`](runtime_core::Device::new) makes it usable.
    ///
    /// # Errors
    ///
    /// `Unavailable` without a library, `UnknownDevice` if there are fewer devices, `InvalidArgument` for an option
    /// that the device does not take, `DeviceLost` while a lost instance of the device is held.
    pub fn open(ordinal: usize, config: &Config<V>) -> Result<Self> {
        let (api, devices) = V::library()?;
        let id = DeviceId::new(V::WORDS.backend, ordinal);
        if ordinal >= devices {
            let message = format!("{id}: there are {devices} {} devices", V::WORDS.interface);
            return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
        }
        // The context comes first, because a library may not describe a lost device.
        Self::within(Context::open(api, &id)?, config)
    }

    /// Opens a device in a context that another library owns. The device never destroys the context. It can use memory,
    /// streams and events of that context. [`Device::new`](runtime_core::Device::new) makes the device usable.
    /// [`Device::with_native_stream`](runtime_core::Device::with_native_stream) does too, with a stream of the other
    /// library.
    ///
    /// # Errors
    ///
    /// `Unavailable` without a library, `InvalidArgument` for a handle that is null or no context, or for an option
    /// that the device does not take. If the context does not work: the error of the library.
    ///
    /// # Safety
    ///
    /// The handle is a context that stays until the device, and everything that it made, is dropped.
    pub unsafe fn from_native(context: NativeHandle, config: &Config<V>) -> Result<Self>
    where
        V: Lends,
    {
        if (context.api, context.kind) != (V::WORDS.backend, NativeKind::Context)
            || context.raw == 0
        {
            let message = format!("{context:?} is no context of {}", V::WORDS.interface);
            return Err(Error::new(ErrorKind::InvalidArgument, "open", message));
        }
        let (api, _) = V::library()?;
        let failed = |code| error::<V>(api, "open", code, format!("{context:?}"));
        // SAFETY: the caller vouches for the context.
        let (ordinal, device) = unsafe { V::device_of(api, context.raw) }.map_err(failed)?;
        // SAFETY: as above.
        let lent = unsafe { Context::lent(api, ordinal, device, context.raw) }.map_err(failed)?;
        Self::within(lent, config)
    }

    fn within(context: Arc<Context<V>>, config: &Config<V>) -> Result<Self> {
        let described = V::describe(context.api, context.ordinal)?;
        let Description { mut info, target, cooperative, pools, managed, regions, graphs, peers } =
            described;
        let pool = match config.pool {
            PoolKind::Auto if pools => PoolKind::Driver,
            PoolKind::Auto => PoolKind::Cache,
            PoolKind::Driver if !pools => {
                let message = format!("pool=driver: {} has no memory pools", info.name);
                return Err(Error::new(ErrorKind::InvalidArgument, "open", message).on(&info.id));
            }
            chosen => chosen,
        };
        let builder = Builder::new(&info.id, config, target)?;
        info.limits.priorities = context.priorities().map_err(|code| {
            error::<V>(context.api, "open", code, "the priorities of streams").on(&info.id)
        })?;
        let shared = Arc::new(Shared::new(&info, context, pool)?);
        Ok(Self { info, cooperative, managed, regions, graphs, peers, builder, shared })
    }

    /// The state that the device shares with its objects, for the vendor.
    ///
    /// # Safety
    ///
    /// The caller passes only codes to this state and its context that the library returned for the device. They
    /// believe what codes say about work.
    pub unsafe fn shared(&self) -> &Shared<V> {
        &self.shared
    }

    /// Makes the device current, because a compiler without an explicit architecture takes that of the current device.
    fn bind(&self, operation: &'static str) -> Result<()> {
        self.shared.check(operation)?;
        let bound = self.shared.context.bind();
        bound.map_err(|code| self.shared.error(operation, code, "the device"))
    }

    /// Builds code from an image and calls `load` with it. Stores the code in the cache only if `load` succeeds.
    ///
    /// # Errors
    ///
    /// `InvalidModule` for an image that the device does not take, and errors of `load`.
    pub fn build_own<T>(
        &self,
        operation: &'static str,
        image: &ModuleImage<'_>,
        load: impl FnOnce(&Code<V>) -> Result<T>,
    ) -> Result<T> {
        self.bind(operation)?;
        let built = self.builder.build(image)?;
        let loaded = load(&built.code)?;
        built.entry.iter().for_each(|entry| self.builder.keep(entry));
        Ok(loaded)
    }
}

/// Takes an object of this backend out of its box.
fn unboxed<T: Any>(object: Box<dyn Any>) -> Option<T> {
    object.downcast().ok().map(|object| *object)
}

impl<V: Vendor> CommonRuntime for Device<V> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        self.bind("module_load")?;
        let mut built = self.builder.build(image)?;
        let entry = built.entry.take();
        let module = Module::load(&self.shared, built, &self.info.limits)?;
        entry.iter().for_each(|entry| self.builder.keep(entry));
        Ok(Box::new(module))
    }

    fn synchronize(&self) -> Result<()> {
        self.shared.synchronize()
    }
}

// SAFETY: memory has the requested length and stays in place. It is freed in the order of the named streams, or by a
// thread that waits for them.
unsafe impl<V: Vendor> AcceleratorDevice for Device<V> {
    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(Memory::allocate(&self.shared, bytes)?))
    }

    unsafe fn memory_free(&self, memory: Box<dyn DeviceMemory>, after: &[&dyn DeviceStream]) {
        if let Some(memory) = unboxed::<Memory<V>>(memory) {
            memory.free(&self.shared, after);
        }
    }

    fn pinned_allocate(
        &self,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(Pinned::allocate(&self.shared, bytes, options)?))
    }

    unsafe fn pinned_free(&self, memory: Box<dyn DevicePinned>, after: &[&dyn DeviceStream]) {
        if let Some(pinned) = unboxed::<Pinned<V>>(memory) {
            self.shared.retire(pinned.into_object(), after);
        }
    }

    unsafe fn module_unload(&self, module: Box<dyn DeviceModule>, after: &[&dyn DeviceStream]) {
        if let Some(module) = unboxed::<Module<V>>(module) {
            let (module, folder) = module.into_object();
            self.shared.retire(module, after);
            drop(folder);
        }
    }

    fn stream_create(&self, options: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_create";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        // In the library, smaller numbers are more urgent.
        let raw = shared.context.new_stream(options.priority.saturating_neg());
        let raw = Arc::new(raw.map_err(|code| shared.error(OPERATION, code, "no stream"))?);
        shared.add_stream(&raw);
        Ok(Box::new(Stream::new(shared, raw)))
    }

    fn event_create(&self, timing: bool) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(Event::new(&self.shared, timing)?))
    }

    fn native(&self) -> NativeHandle {
        let raw = self.shared.context.place;
        NativeHandle { api: V::WORDS.backend, kind: NativeKind::Context, raw }
    }

    fn cooperative_launch(&self) -> bool {
        self.cooperative
    }

    fn region_copy(&self) -> Option<&dyn RegionCopyAbility> {
        if self.regions { Some(self) } else { None }
    }

    fn graphs(&self) -> Option<&dyn GraphCapture> {
        if self.graphs { Some(self) } else { None }
    }

    fn peer(&self) -> Option<&dyn PeerAccess> {
        if self.peers { Some(self) } else { None }
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
