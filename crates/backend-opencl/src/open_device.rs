//! The state that a device's streams, memory and modules share with it.
#![expect(unsafe_code, reason = "creates contexts and gives memory back to the driver")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::any::Any;
use std::convert::Infallible;
use std::ffi::c_void;
use std::fmt::Display;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use backend_support::{Failures, Mark, Reaper, Reclaim, guarded, lock};
use opencl3::command_queue::enqueue_unmap_mem_object;
use opencl3::context::context::{CL_CONTEXT_DEVICES, create_context, get_context_data};
use opencl3::event::{CL_COMPLETE, wait_for_events};
use opencl3::types::{cl_context, cl_device_id, cl_int};
use runtime_core::{DeviceId, Error, ErrorKind, Result};

use crate::codes;
use crate::handle::{self, Handle};
use crate::platform::{self, DeviceEntry, integer};
use crate::pointers::{HostMemory, Pointers, Usm};
use crate::queue::{self, Queue};

/// A context. It holds all devices of a platform, so that they can use each other's memory and events, or other code
/// created it.
#[derive(Debug)]
pub(crate) struct Context {
    handle: Handle<handle::Context>,
    devices: usize,
    /// Set when a device of the context was lost, because the context may be lost with it.
    broken: AtomicBool,
}

impl Context {
    pub(crate) fn new(devices: &[&DeviceEntry]) -> Result<Self> {
        let ids: Vec<cl_device_id> = devices.iter().map(|found| found.id()).collect();
        let raw = create_context(&ids, ptr::null(), None, ptr::null_mut())
            .map_err(|code| codes::error("open", code, "a context cannot be created"))?;
        // SAFETY: the context was just created.
        let handle = unsafe { Handle::own(raw, &Arc::default()) };
        Ok(Self { handle, devices: ids.len(), broken: AtomicBool::new(false) })
    }

    /// Retains a context that other code created.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the device is not in the context.
    ///
    /// # Safety
    ///
    /// `raw` is a live context.
    pub(crate) unsafe fn retained(raw: cl_context, device: &DeviceEntry) -> Result<Self> {
        let failed = |code| codes::error("open", code, format_args!("{raw:p} is no context"));
        let devices = get_context_data(raw, CL_CONTEXT_DEVICES).map_err(failed)?;
        let ids: Vec<u64> = devices.chunks_exact(size_of::<cl_device_id>()).map(integer).collect();
        // For sub-devices, some platforms list the whole device.
        let is_there = |id: cl_device_id| ids.contains(&(id.expose_provenance() as u64));
        if !is_there(device.id()) && !is_there(platform::root(device.id())) {
            let message = format!("{} is not in the context {raw:p}", device.name);
            return Err(Error::new(ErrorKind::InvalidArgument, "open", message));
        }
        // SAFETY: the caller guarantees that the context is valid.
        let handle = unsafe { Handle::retain(raw, &Arc::default()) }.map_err(failed)?;
        Ok(Self { handle, devices: ids.len(), broken: AtomicBool::new(false) })
    }

    pub(crate) fn raw(&self) -> cl_context {
        self.handle.raw()
    }

    /// Whether the context has other devices.
    pub(crate) fn has_peers(&self) -> bool {
        self.devices > 1
    }

    /// Whether the context has this number of devices.
    pub(crate) fn holds(&self, devices: usize) -> bool {
        self.devices == devices
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}

/// An opened device, shared by all of its objects.
#[derive(Debug)]
pub(crate) struct OpenDevice {
    pub(crate) id: DeviceId,
    pub(crate) found: DeviceEntry,
    pub(crate) context: Arc<Context>,
    /// How memory is addressed by pointers, if the device supports it.
    pub(crate) pointers: Option<Pointers>,
    /// Host memory that does not need mapping, if there is any.
    pub(crate) host: Option<HostMemory>,
    /// The required alignment of a part of a buffer that is a kernel argument.
    pub(crate) alignment: usize,
    /// The local memory of a work-group in bytes.
    pub(crate) local_bytes: u64,
    pub(crate) failures: Arc<Failures>,
    /// Whether the driver starts commands without a flush.
    eager: AtomicBool,
    lost: AtomicBool,
    /// Whether the user was warned that launches copy misaligned arguments.
    pub(crate) has_realigned: AtomicBool,
    /// The queue for mapping and unmapping memory.
    service: OnceLock<Arc<Queue>>,
    queues: Mutex<Vec<Arc<Queue>>>,
    retired: Mutex<Vec<Retired>>,
    retired_count: AtomicUsize,
    owners: Reaper<Owners>,
}

/// Releases the owners of adopted memory. This needs no call of the driver.
#[derive(Debug)]
struct Owners;

impl Reclaim for Owners {
    type Object = Infallible;
    type Mark = Handle<handle::Event>;

    fn reclaim(&self, object: Infallible) -> Result<()> {
        match object {}
    }
}

impl Mark for Handle<handle::Event> {
    fn wait(&self) -> bool {
        // Commands that failed are over as well.
        let _ = wait_for_events(&[self.raw()]);
        true
    }

    fn is_over(&self) -> bool {
        queue::status(self.raw()).is_ok_and(|status| status <= CL_COMPLETE)
    }
}

/// An object that must live until commands are over.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) object: Object,
    pub(crate) after: Vec<Handle<handle::Event>>,
}

/// What is released when the commands are over.
pub(crate) enum Object {
    /// Memory by pointer.
    Pointer(usize),
    /// Host memory that is not mapped.
    Host(usize),
    /// Host memory mapped from a buffer.
    Mapped(Handle<handle::Mem>, usize),
    /// The owner of adopted memory.
    Owner(Box<dyn Any + Send + Sync>),
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pointer(_) => "Pointer",
            Self::Host(_) => "Host",
            Self::Mapped(..) => "Mapped",
            Self::Owner(_) => "Owner",
        })
    }
}

impl OpenDevice {
    pub(crate) fn new(
        id: DeviceId,
        found: DeviceEntry,
        context: Arc<Context>,
        (pointers, host): (Option<Pointers>, Option<HostMemory>),
        alignment: usize,
        local_bytes: u64,
    ) -> Self {
        let failures = Arc::default();
        let owners = Reaper::new(&id, &Arc::new(Owners), &failures);
        Self {
            id,
            found,
            context,
            pointers,
            host,
            alignment,
            local_bytes,
            failures,
            eager: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            has_realigned: AtomicBool::new(false),
            service: OnceLock::new(),
            queues: Mutex::default(),
            retired: Mutex::default(),
            retired_count: AtomicUsize::new(0),
            owners,
        }
    }

    /// The functions of unified shared memory, if the device supports it.
    pub(crate) fn usm(&self) -> Option<Usm> {
        match self.pointers {
            Some(Pointers::Usm { functions, .. }) => Some(functions),
            _ => self.host.map(|HostMemory(functions)| functions),
        }
    }

    /// Makes the error for a `code` that the driver returned. Marks the device as lost if the code says so.
    #[cold]
    pub(crate) fn error(&self, operation: &'static str, code: cl_int, what: impl Display) -> Error {
        self.note(codes::error(operation, code, what))
    }

    /// Passes an error on. Marks the device as lost if the error says so.
    pub(crate) fn note(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::DeviceLost {
            self.lost.store(true, Ordering::Release);
            self.context.broken.store(true, Ordering::Release);
        }
        error.on(&self.id)
    }

    /// Refuses calls on a lost device.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            let message = "the device was lost in an earlier operation";
            return Err(Error::new(ErrorKind::DeviceLost, operation, message).on(&self.id));
        }
        Ok(())
    }

    /// Records that the driver starts commands without a flush.
    pub(crate) fn set_eager(&self) {
        self.eager.store(true, Ordering::Release);
    }

    /// Whether the driver starts commands without a flush.
    pub(crate) fn is_eager(&self) -> bool {
        self.eager.load(Ordering::Acquire)
    }

    /// Keeps a queue until its commands are over, which may be after its stream was dropped.
    pub(crate) fn add_queue(&self, queue: &Arc<Queue>) {
        self.forget_idle();
        lock(&self.queues).push(Arc::clone(queue));
    }

    /// Drops queues of dropped streams once their work is done and their failures are taken.
    fn forget_idle(&self) {
        let is_over = |queue: &mut Arc<Queue>| {
            Arc::strong_count(queue) == 1 && queue.is_idle().unwrap_or(true) && !queue.has_failed()
        };
        let forgotten: Vec<_> = lock(&self.queues).extract_if(.., is_over).collect();
        forgotten.iter().for_each(|queue| queue.emit());
    }

    /// Takes the first failure that was not taken before, of a queue or of a release.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        let queues = lock(&self.queues).clone();
        let failure = queues.iter().find_map(|queue| queue.take_failure());
        failure.map(|error| self.note(error)).or_else(|| self.failures.take())
    }

    /// Blocks until every command in every queue is over.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let queues = lock(&self.queues).clone();
        queues.iter().for_each(|queue| queue.finish("synchronize"));
        drop(queues);
        self.forget_idle();
        self.reap();
        self.owners.drain();
        self.check("synchronize")
    }

    /// Releases an object once all commands in `retired.after` are over.
    pub(crate) fn retire(&self, retired: Retired) {
        if retired.after.iter().all(Mark::is_over) {
            return self.give_back(retired.object);
        }
        match retired {
            // A later call cannot do this: the owner may hold the device itself, and then no call may follow.
            Retired { object: Object::Owner(owner), after } => {
                self.owners.retire_owner(owner, after);
            }
            retired => {
                lock(&self.retired).push(retired);
                self.retired_count.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Waits for all work in every queue, so that all released memory is free.
    pub(crate) fn drain(&self) {
        let queues = lock(&self.queues).clone();
        queues.iter().for_each(|queue| queue.finish("memory_allocate"));
        self.reap_all();
    }

    /// Releases the retired objects whose commands are over.
    pub(crate) fn reap(&self) {
        if self.retired_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let ready: Vec<Retired> = {
            let mut retired = lock(&self.retired);
            let ready: Vec<_> =
                retired.extract_if(.., |retired| retired.after.iter().all(Mark::is_over)).collect();
            self.retired_count.fetch_sub(ready.len(), Ordering::Release);
            ready
        };
        // Dropping an owner runs its own code, so it happens without the lock.
        ready.into_iter().for_each(|retired| self.give_back(retired.object));
    }

    /// Waits for the commands that retired objects depend on, and releases these objects.
    pub(crate) fn reap_all(&self) {
        let all = std::mem::take(&mut *lock(&self.retired));
        self.retired_count.fetch_sub(all.len(), Ordering::Release);
        for Retired { object, after } in all {
            wait_for_all(&after);
            self.give_back(object);
        }
    }

    fn give_back(&self, object: Object) {
        let done = match object {
            Object::Pointer(address) => self.free(address),
            Object::Host(address) => self.free_host(address),
            Object::Mapped(buffer, address) => self.unmap(&buffer, address),
            Object::Owner(owner) => guarded("release", || {
                drop(owner);
                Ok(())
            }),
        };
        if let Err(error) = done {
            self.failures.keep(self.note(error));
        }
    }

    fn free(&self, address: usize) -> Result<()> {
        let Some(pointers) = &self.pointers else { return Ok(()) };
        let pointer = ptr::with_exposed_provenance_mut::<c_void>(address);
        // SAFETY: the memory is of this context, and the commands that used it are over.
        unsafe { pointers.free(self.context.raw(), pointer) }
            .map_err(|code| self.error("release", code, "memory could not be freed"))
    }

    fn free_host(&self, address: usize) -> Result<()> {
        let Some(host) = &self.host else { return Ok(()) };
        let pointer = ptr::with_exposed_provenance_mut::<c_void>(address);
        // SAFETY: the memory is of this context, and the commands that used it are over.
        unsafe { host.free(self.context.raw(), pointer) }
            .map_err(|code| self.error("release", code, "pinned memory could not be freed"))
    }

    fn unmap(&self, buffer: &Handle<handle::Mem>, address: usize) -> Result<()> {
        let failed = |code| self.error("release", code, "pinned memory could not be unmapped");
        let queue = self.service_queue()?;
        let pointer = ptr::with_exposed_provenance_mut::<c_void>(address);
        // SAFETY: the buffer is mapped there, and nothing uses the mapping any more.
        let unmapped = unsafe {
            queue.submit("release", |queue| {
                enqueue_unmap_mem_object(queue, buffer.raw(), pointer, 0, ptr::null())
            })
        };
        unmapped.map_err(failed)?;
        queue.flush().map_err(failed)
    }

    /// Sets the device's own queue, once.
    pub(crate) fn set_service_queue(&self, queue: Arc<Queue>) {
        let _ = self.service.set(queue);
    }

    /// The device's own queue. No stream uses it.
    pub(crate) fn service_queue(&self) -> Result<&Queue> {
        self.service.get().map(|queue| &**queue).ok_or_else(|| {
            Error::new(ErrorKind::Driver, "service_queue", "the device has no queue yet")
        })
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        self.reap_all();
    }
}

/// Blocks until the commands are over, however they end.
fn wait_for_all(events: &[Handle<handle::Event>]) {
    for event in events {
        // Always true: a command that failed is over.
        let _ = event.wait();
    }
}
