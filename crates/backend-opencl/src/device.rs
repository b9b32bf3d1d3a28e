//! The device: creates its objects and releases them.
#![expect(
    unsafe_code,
    reason = "implements the contract's unsafe device trait, and takes a context that others made"
)]

use std::any::Any;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES};
use opencl3::event::CL_COMPLETE;
use opencl3::types::{cl_command_queue, cl_int};
use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceMemory, DeviceModule,
    DevicePinned, DeviceStream, EventOptions, MemoryAdoption, MemoryAt, PeerAccess, PinnedOptions,
    Released, StreamOptions, UnifiedMemory, own, own_box,
};
use runtime_core::{DeviceInfo, Error, ErrorKind, ModuleImage, NativeHandle, NativeKind, Result};

use crate::event::OpenClEvent;
use crate::handle::Handle;
use crate::info::{Description, describe};
use crate::memory::{OpenClMemory, OpenClPinned};
use crate::module::OpenClModule;
use crate::open_device::{Context, Object, OpenDevice, Retired};
use crate::platform::{self, DeviceEntry};
use crate::pointers::Pointers;
use crate::program::Builder;
use crate::queue::{Queue, status};
use crate::region_kernels::RegionKernels;
use crate::stream::OpenClStream;
use crate::{MemoryKind, OpenClConfig};

/// The name of PoCL's platform.
const POCL: &str = "Portable Computing Language";

/// The key of the queue priority property, and its values.
const CL_QUEUE_PRIORITY_KHR: u64 = 0x1096;
const PRIORITIES: [u64; 3] = [1 << 2, 1 << 1, 1];

/// An opened OpenCL device. [`Device::new`](runtime_core::Device::new) makes a device for programs from it.
#[derive(Debug)]
pub struct OpenClDevice {
    info: DeviceInfo,
    priorities: bool,
    by_pointer: bool,
    builder: Builder,
    regions: RegionKernels,
    pub(crate) shared: Arc<OpenDevice>,
}

impl OpenClDevice {
    /// Opens a device in a context that other code created. The device can then use buffers, queues and events of that
    /// context, including those of other devices in it. The context is retained here, and released when it is no longer
    /// used. Pass the result to [`Device::new`](runtime_core::Device::new), or, to use an existing queue as the default
    /// stream, to [`Device::with_native_stream`](runtime_core::Device::with_native_stream).
    ///
    /// The handles belong to the interface `opencl` and have the kinds [`NativeKind::Context`] and
    /// [`NativeKind::Device`]. The device may be a sub-device.
    ///
    /// ```no_run
    /// use backend_opencl::{OpenClConfig, OpenClDevice};
    /// use runtime_core::{Device, NativeHandle, NativeKind};
    ///
    /// # fn example(context: *mut std::ffi::c_void, device: *mut std::ffi::c_void) -> runtime_core::Result<()> {
    /// let handle = |kind, pointer: *mut std::ffi::c_void| {
    ///     NativeHandle { api: "opencl", kind, raw: pointer.expose_provenance() }
    /// };
    /// let context = handle(NativeKind::Context, context); // a `cl_context`
    /// let device = handle(NativeKind::Device, device); // a `cl_device_id`
    /// // Sound if both are alive now.
    /// let device = unsafe { OpenClDevice::from_native(context, device, &OpenClConfig::new()) }?;
    /// let device = Device::new(device)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a null handle or a handle of another interface or kind; for a device that is not in the
    /// context, or that no platform of this machine has; or for an option that the device does not support.
    /// `Unavailable` if there is no platform.
    ///
    /// # Safety
    ///
    /// The handles are of a live context and a live device.
    pub unsafe fn from_native(
        context: NativeHandle,
        device: NativeHandle,
        config: &OpenClConfig,
    ) -> Result<Self> {
        for (handle, kind) in [(context, NativeKind::Context), (device, NativeKind::Device)] {
            if (handle.api, handle.kind) != ("opencl", kind) || handle.raw == 0 {
                let message = format!("{handle:?} is no {kind:?} of OpenCL");
                return Err(Error::new(ErrorKind::InvalidArgument, "open", message));
            }
        }
        let pointer = |handle: NativeHandle| ptr::with_exposed_provenance_mut::<c_void>(handle.raw);
        // The caller guarantees that the device is valid.
        let found = platform::of_handle(pointer(device))?;
        // SAFETY: the caller guarantees that the context is valid.
        let context = unsafe { Context::retained(pointer(context), &found) }?;
        Self::open(&found, describe(&found)?, Arc::new(context), config)
    }

    pub(crate) fn open(
        found: &DeviceEntry,
        description: Description,
        context: Arc<Context>,
        config: &OpenClConfig,
    ) -> Result<Self> {
        let Description { mut info, doubles, priorities, svm, usm, host } = description;
        let (by_pointer, pointers) = match config.memory {
            MemoryKind::Auto => (usm.is_some(), usm.or(svm)),
            MemoryKind::Buffer => (false, usm.or(svm)),
            MemoryKind::Svm => (true, svm),
            MemoryKind::Usm => (true, usm),
        };
        if by_pointer && pointers.is_none() {
            let message = format!("memory={}: {} has no such memory", config.memory, info.name);
            return Err(Error::new(ErrorKind::InvalidArgument, "open", message).on(&info.id));
        }
        let alignment = crate::info::base_alignment(found)?;
        if !by_pointer {
            info.limits.argument_alignment =
                NonZeroUsize::new(alignment).unwrap_or(NonZeroUsize::MIN);
        }
        let shared = Arc::new(OpenDevice::new(
            info.id.clone(),
            found.clone(),
            context,
            (pointers, host),
            alignment,
            info.limits.max_shared_bytes.into(),
        ));
        let builder = Builder::new(config, &shared)?;
        let regions = RegionKernels::new(&info, doubles, config.regions);
        let device = Self { info, priorities, by_pointer, builder, regions, shared };
        let queue = device.create_queue(0)?;
        // PoCL needs no flush, so a flush after each command would only cost time. Other drivers that start a command
        // without a flush may still delay later commands, or run them only in a thread that waits.
        if found.platform.name == POCL && begins_by_itself(&queue) {
            device.shared.set_eager();
        }
        device.shared.set_service_queue(queue);
        Ok(device)
    }

    pub(crate) fn builder(&self) -> &Builder {
        &self.builder
    }

    /// Whether kernels use its memory by address.
    pub(crate) fn is_by_pointer(&self) -> bool {
        self.by_pointer
    }

    pub(crate) fn regions(&self) -> &RegionKernels {
        &self.regions
    }

    /// The driver's handles of the platform and the device, in this order. They are valid for the lifetime of the
    /// process.
    pub fn native_ids(&self) -> [usize; 2] {
        let found = &self.shared.found;
        [found.platform.id().expose_provenance(), found.id().expose_provenance()]
    }

    fn create_queue(&self, priority: i32) -> Result<Arc<Queue>> {
        let shared = &self.shared;
        shared.check("stream_create")?;
        let raw = self
            .new_queue(priority)
            .map_err(|code| shared.error("stream_create", code, "a queue cannot be created"))?;
        // SAFETY: the queue was just created.
        let handle = unsafe { Handle::own(raw, &shared.failures) };
        let queue = Arc::new(Queue::new(handle, Arc::clone(&shared.failures), shared.id.clone()));
        shared.add_queue(&queue);
        Ok(queue)
    }

    fn new_queue(&self, priority: i32) -> Result<cl_command_queue, cl_int> {
        let (context, device) = (self.shared.context.raw(), self.shared.found.id());
        if self.shared.found.version < (2, 0) {
            // SAFETY: the device belongs to the context.
            return unsafe {
                opencl3::command_queue::create_command_queue(
                    context,
                    device,
                    CL_QUEUE_PROFILING_ENABLE,
                )
            };
        }
        let mut properties = vec![u64::from(CL_QUEUE_PROPERTIES), CL_QUEUE_PROFILING_ENABLE];
        if self.priorities {
            let level = usize::try_from(priority + 1).unwrap_or(1).min(2);
            properties.extend([CL_QUEUE_PRIORITY_KHR, PRIORITIES[level]]);
        }
        properties.push(0);
        // SAFETY: as above; the list ends with a zero, and is only read during the call.
        unsafe {
            opencl3::command_queue::create_command_queue_with_properties(
                context,
                device,
                properties.as_ptr(),
            )
        }
    }

    /// Releases an object after all work enqueued so far on these streams is done.
    fn retire(&self, object: Object, after: &[&dyn DeviceStream]) {
        self.shared.reap();
        let last = |stream: &&dyn DeviceStream| {
            let any: &dyn Any = *stream;
            any.downcast_ref::<OpenClStream>().and_then(OpenClStream::last)
        };
        self.shared.retire(Retired { object, after: after.iter().filter_map(last).collect() });
    }
}

/// Whether the driver starts a command without a flush.
fn begins_by_itself(queue: &Queue) -> bool {
    const LONG_ENOUGH: Duration = Duration::from_millis(5);
    let Ok(marker) = queue.marker("open") else { return false };
    let began = Instant::now();
    let mut over = false;
    while !over && began.elapsed() < LONG_ENOUGH {
        over = status(marker.raw()).is_ok_and(|status| status == CL_COMPLETE);
        thread::yield_now();
    }
    // The queue must be empty, whatever the result.
    queue.flush().is_ok() && queue.wait(&marker).is_ok() && over
}

impl CommonRuntime for OpenClDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

// SAFETY: memory has the requested length and stays in place. The driver keeps buffers until commands that use them are
// over; objects that it does not keep are retired until then.
unsafe impl AcceleratorDevice for OpenClDevice {
    fn abilities(&self) -> Abilities<'_> {
        let mut abilities =
            Abilities::none().with_memory_adoption(self).with_interop(self).with_gates(self);
        if self.regions.is_supported() {
            abilities = abilities.with_region_copy(self);
        }
        if self.shared.context.has_peers() {
            abilities = abilities.with_peer(self);
        }
        if self.shared.pointers.as_ref().is_some_and(Pointers::unified) {
            abilities = abilities.with_unified_memory(self);
        }
        abilities
    }

    fn native(&self) -> NativeHandle {
        let raw = self.shared.context.raw().expose_provenance();
        NativeHandle { api: "opencl", kind: NativeKind::Context, raw }
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        self.shared.check("module_load")?;
        let built = self.builder.build(&self.shared, image)?;
        Ok(Box::new(OpenClModule::new(built, &self.shared)))
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(OpenClMemory::allocate(&self.shared, bytes, self.by_pointer, false)?))
    }

    fn pinned_allocate(&self, bytes: usize, _: &PinnedOptions) -> Result<Box<dyn DevicePinned>> {
        Ok(Box::new(OpenClPinned::allocate(&self.shared, bytes)?))
    }

    fn stream_create(&self, options: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        let queue = self.create_queue(options.priority)?;
        Ok(Box::new(OpenClStream::new(&self.shared, queue)))
    }

    fn event_create(&self, options: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        self.shared.check("event_create")?;
        Ok(Box::new(OpenClEvent::new(&self.shared, options.timing)))
    }

    unsafe fn release(&self, object: Released, after: &[&dyn DeviceStream]) {
        let object = match object {
            Released::Memory(memory) => {
                own_box::<OpenClMemory>(memory, "release").ok().and_then(OpenClMemory::into_object)
            }
            Released::Pinned(pinned) => {
                own_box::<OpenClPinned>(pinned, "release").ok().map(OpenClPinned::into_object)
            }
            // The driver keeps programs until their kernels have finished, and buffers until their commands have.
            Released::Module(_) | Released::Regions(_) | Released::Graph(_) => None,
        };
        if let Some(object) = object {
            self.retire(object, after);
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.shared.synchronize()
    }

    fn take_failure(&self) -> Option<Error> {
        self.shared.take_failure()
    }
}

// SAFETY: the devices of a context share its memory objects, and a stream's commands may use any of them.
unsafe impl PeerAccess for OpenClDevice {
    fn reaches(&self, other: &dyn AcceleratorDevice) -> bool {
        let any: &dyn Any = other;
        any.downcast_ref::<Self>()
            .is_some_and(|other| self.shared.context.raw() == other.shared.context.raw())
    }

    unsafe fn memory_copy(
        &self,
        stream: &dyn DeviceStream,
        _peer: &dyn AcceleratorDevice,
        src: MemoryAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let stream = own::<OpenClStream>(stream, "memory_copy")?;
        // SAFETY: the caller guarantees the ranges, and both memories are of the stream's context.
        unsafe { stream.memory_copy(src, dst, bytes) }
    }
}

impl UnifiedMemory for OpenClDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(OpenClMemory::allocate(&self.shared, bytes, true, true)?))
    }
}

impl MemoryAdoption for OpenClDevice {
    unsafe fn adopt(
        &self,
        handle: NativeHandle,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Box<dyn DeviceMemory>> {
        // SAFETY: the caller guarantees that the handle is valid.
        Ok(Box::new(unsafe { OpenClMemory::adopt(&self.shared, handle, bytes, owner) }?))
    }
}
