//! The device: it creates and releases its objects.
#![expect(
    unsafe_code,
    reason = "implements the contract's unsafe device trait, and takes a context that others own"
)]

use std::any::Any;
use std::ffi::c_int;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceMemory, DeviceModule,
    DevicePinned, DeviceStream, EventOptions, HostRegistration, PinnedOptions, Released,
    StreamOptions, own_box,
};
use runtime_core::{
    DeviceId, DeviceInfo, Error, ErrorKind, ModuleImage, NativeHandle, NativeKind, Result,
};

use crate::config::{Config, PoolKind};
use crate::context::Context;
use crate::event::Event;
use crate::kernel::Module;
use crate::memory::Memory;
use crate::open_device::OpenDevice;
use crate::pinned::Pinned;
use crate::program::Builder;
use crate::region::Regions;
use crate::stream::Stream;
use crate::vendor::{Code, Description, Vendor, error};

/// An opened device, from which a [`Device`](runtime_core::Device) of this backend is made.
#[derive(Debug)]
pub struct Device<V: Vendor> {
    pub(crate) info: DeviceInfo,
    cooperative: bool,
    managed: bool,
    registration: bool,
    gates: bool,
    regions: bool,
    graphs: bool,
    peers: bool,
    builder: Builder<V>,
    pub(crate) shared: Arc<OpenDevice<V>>,
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
        let borrowed =
            unsafe { Context::borrowed(api, ordinal, device, context.raw) }.map_err(failed)?;
        Self::within(borrowed, config)
    }

    fn within(context: Arc<Context<V>>, config: &Config<V>) -> Result<Self> {
        let described = V::describe(context.api, context.ordinal)?;
        let Description {
            mut info,
            target,
            cooperative,
            pools,
            managed,
            registration,
            gates,
            regions,
            graphs,
            peers,
        } = described;
        let pool = match config.pool {
            PoolKind::Auto if pools => PoolKind::Driver,
            PoolKind::Auto => PoolKind::Cache,
            PoolKind::Driver if !pools => {
                let message = format!("pool=driver: {} has no memory pools", info.name);
                return Err(Error::new(ErrorKind::InvalidArgument, "open", message).on(&info.id));
            }
            chosen => chosen,
        };
        if config.gates && !gates {
            let message = format!("gates=on: streams of {} cannot wait for the host", info.name);
            return Err(Error::new(ErrorKind::InvalidArgument, "open", message).on(&info.id));
        }
        let builder = Builder::new(&info.id, config, target)?;
        info.limits.priorities = context.priorities().map_err(|code| {
            error::<V>(context.api, "open", code, "the priorities of streams").on(&info.id)
        })?;
        let shared = Arc::new(OpenDevice::new(&info, context, pool)?);
        Ok(Self {
            info,
            cooperative,
            managed,
            registration,
            gates: config.gates,
            regions,
            graphs,
            peers,
            builder,
            shared,
        })
    }

    /// The state that the device shares with its objects, for the vendor.
    ///
    /// # Safety
    ///
    /// The caller passes only codes to this state and its context that the library returned for the device. They
    /// believe what codes say about work.
    pub unsafe fn shared(&self) -> &OpenDevice<V> {
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
    pub fn build_builtin<T>(
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

impl<V: Vendor> CommonRuntime for Device<V> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

// SAFETY: memory has the requested length and stays in place. It is freed in the order of the named streams, or by a
// thread that waits for them.
unsafe impl<V: Vendor> AcceleratorDevice for Device<V> {
    fn abilities(&self) -> Abilities<'_> {
        let mut abilities = Abilities::none()
            .with_memory_adoption(self)
            .with_interop(self)
            .with_memory_pool(self)
            .with_monitor(self);
        if self.registration {
            abilities = abilities.with_host_registration(self);
        }
        if self.gates {
            abilities = abilities.with_gates(self);
        }
        if self.regions {
            abilities = abilities.with_region_copy(self);
        }
        if self.graphs {
            abilities = abilities.with_graphs(self);
        }
        if self.peers {
            abilities = abilities.with_peer(self);
        }
        if self.managed {
            abilities = abilities.with_unified_memory(self);
        }
        if self.cooperative {
            abilities = abilities.with_cooperative_launch();
        }
        abilities
    }

    fn native(&self) -> NativeHandle {
        let raw = self.shared.context.place;
        NativeHandle { api: V::WORDS.backend, kind: NativeKind::Context, raw }
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        self.bind("module_load")?;
        let mut built = self.builder.build(image)?;
        let entry = built.entry.take();
        let module = Module::load(&self.shared, built, &self.info.limits)?;
        entry.iter().for_each(|entry| self.builder.keep(entry));
        Ok(Box::new(module))
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(Memory::allocate(&self.shared, bytes)?))
    }

    fn pinned_allocate(
        &self,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(Pinned::allocate(&self.shared, bytes, options)?))
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

    fn event_create(&self, options: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(Event::new(&self.shared, options.timing)?))
    }

    unsafe fn release(&self, object: Released, after: &[&dyn DeviceStream]) {
        const OPERATION: &str = "release";
        let shared = &self.shared;
        match object {
            Released::Memory(memory) => {
                if let Ok(memory) = own_box::<Memory<V>>(memory, OPERATION) {
                    memory.free(shared, after);
                }
            }
            Released::Pinned(pinned) => {
                if let Ok(pinned) = own_box::<Pinned<V>>(pinned, OPERATION) {
                    shared.retire(pinned.into_object(Box::new(())), after);
                }
            }
            Released::Module(module) => {
                if let Ok(module) = own_box::<Module<V>>(module, OPERATION) {
                    let (module, folder) = module.into_object();
                    shared.retire(module, after);
                    drop(folder);
                }
            }
            Released::Regions(regions) => {
                if let Ok(regions) = own_box::<Regions<V>>(regions, OPERATION) {
                    regions.free(shared, after);
                }
            }
            // The library keeps the graph until its launches are over.
            Released::Graph(graph) => drop(graph),
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.shared.synchronize()
    }

    fn take_failure(&self) -> Option<Error> {
        self.shared.take_failure()
    }
}

// SAFETY: the library only copies from and to the memory that a copy names, and nothing after the registration.
unsafe impl<V: Vendor> HostRegistration for Device<V> {
    unsafe fn register(&self, first: NonNull<u8>, bytes: usize) -> Result<Box<dyn DevicePinned>> {
        // SAFETY: the caller guarantees the bytes.
        Ok(Box::new(unsafe { Pinned::register(&self.shared, first, bytes) }?))
    }

    unsafe fn unregister(
        &self,
        memory: Box<dyn DevicePinned>,
        after: &[&dyn DeviceStream],
        owner: Box<dyn Any + Send + Sync>,
    ) {
        match own_box::<Pinned<V>>(memory, "unregister") {
            Ok(memory) if after.is_empty() => self.shared.reclaim(memory.into_object(owner)),
            Ok(memory) => self.shared.retire(memory.into_object(owner), after),
            Err(_) => mem::forget(owner),
        }
    }
}
