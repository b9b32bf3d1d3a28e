//! Device memory and pinned host memory.
#![expect(
    unsafe_code,
    reason = "allocates through the driver and implements the contract's memory traits"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opencl3::command_queue::enqueue_map_buffer;
use opencl3::event::CL_COMPLETE;
use opencl3::memory::{
    CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_CONTEXT,
    CL_MEM_OBJECT_BUFFER, CL_MEM_OFFSET, CL_MEM_READ_WRITE, CL_MEM_SIZE, CL_MEM_TYPE,
    create_buffer, get_mem_object_data,
};
use opencl3::types::{CL_NON_BLOCKING, cl_int, cl_mem, cl_mem_info};
use runtime_core::contract::{DeviceMemory, DevicePinned};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Result};

use crate::codes;
use crate::handle::{Handle, Mem};
use crate::open_device::{Object, OpenDevice};
use crate::platform::integer;
use crate::queue::status;

/// The minimum alignment of pinned memory.
const PINNED_ALIGNMENT: usize = 64;

/// The location of memory.
#[derive(Debug)]
pub(crate) enum Place {
    /// A memory object.
    Buffer(Handle<Mem>),
    /// An address.
    Pointer(usize),
}

/// Device memory.
pub(crate) struct OpenClMemory {
    place: Place,
    bytes: usize,
    visible: bool,
    /// For memory adopted as a part of a buffer: that buffer, and the offset of the part.
    whole: Option<(Handle<Mem>, usize)>,
    /// The owner of adopted memory.
    owner: Option<Box<dyn Any + Send + Sync>>,
    /// A unique number that is not 0.
    number: u64,
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl OpenClMemory {
    /// Allocates memory. If `unified` is set, the host can address it.
    pub(crate) fn allocate(
        shared: &OpenDevice,
        bytes: usize,
        by_pointer: bool,
        unified: bool,
    ) -> Result<Self> {
        let operation = if unified { "unified_allocate" } else { "memory_allocate" };
        shared.check(operation)?;
        shared.reap();
        let attempt = || match &shared.pointers {
            Some(pointers) if by_pointer => pointers
                .allocate(
                    (shared.context.raw(), shared.found.id()),
                    bytes,
                    shared.alignment.min(128),
                    unified,
                )
                .map(|pointer| Place::Pointer(pointer.expose_provenance())),
            _ => new_buffer(shared, CL_MEM_READ_WRITE, bytes).map(Place::Buffer),
        };
        let place = or_after(|| shared.drain(), attempt)
            .map_err(|code| out_of_memory(shared, operation, code, bytes))?;
        Ok(Self { place, bytes, visible: unified, whole: None, owner: None, number: next_number() })
    }

    /// Adopts memory that other code owns.
    ///
    /// # Safety
    ///
    /// The handle identifies memory that lives until `owner` is dropped.
    pub(crate) unsafe fn adopt(
        shared: &OpenDevice,
        handle: NativeHandle,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        shared.check("memory_adopt")?;
        let refuse = |message: String| {
            Err(Error::new(ErrorKind::InvalidArgument, "memory_adopt", message).on(&shared.id))
        };
        match (handle.api, handle.kind) {
            ("opencl", NativeKind::Object) => {
                let raw = ptr::with_exposed_provenance_mut::<c_void>(handle.raw);
                let ask = |what: cl_mem_info| {
                    let data = get_mem_object_data(raw, what);
                    data.map(|data| integer(&data)).map_err(|code| {
                        shared.error(
                            "memory_adopt",
                            code,
                            format!("{handle:?} is no memory object"),
                        )
                    })
                };
                if ask(CL_MEM_TYPE)? != u64::from(CL_MEM_OBJECT_BUFFER) {
                    return refuse(format!("{handle:?} is no buffer"));
                }
                if ask(CL_MEM_CONTEXT)? != shared.context.raw().expose_provenance() as u64 {
                    return refuse(format!("{handle:?} belongs to another context"));
                }
                let size = ask(CL_MEM_SIZE)?;
                if size < bytes as u64 {
                    return refuse(format!("{handle:?} has {size} bytes, not {bytes}"));
                }
                let retain = |raw| {
                    // SAFETY: the caller guarantees that the buffer is valid; a sub-buffer keeps its parent alive.
                    unsafe { Handle::retain(raw, &shared.failures) }
                        .map_err(|code| shared.error("memory_adopt", code, format!("{handle:?}")))
                };
                let buffer = retain(raw)?;
                let whole = match ask(CL_MEM_ASSOCIATED_MEMOBJECT)? {
                    0 => None,
                    whole => {
                        let whole = ptr::with_exposed_provenance_mut(to_usize(whole));
                        Some((retain(whole)?, to_usize(ask(CL_MEM_OFFSET)?)))
                    }
                };
                Ok(Self {
                    place: Place::Buffer(buffer),
                    bytes,
                    visible: false,
                    whole,
                    owner: Some(owner),
                    number: next_number(),
                })
            }
            ("opencl", NativeKind::Pointer) if shared.pointers.is_some() => Ok(Self {
                place: Place::Pointer(handle.raw),
                bytes,
                visible: false,
                whole: None,
                owner: Some(owner),
                number: next_number(),
            }),
            ("opencl", NativeKind::Pointer) => {
                refuse(format!("{handle:?}: the device has no memory by pointer"))
            }
            _ => refuse(format!("{handle:?} is no OpenCL memory")),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The start address of the device's own allocation, if it has an address: a kernel may then find it in a table. A
    /// table needs the start of an allocation, which is not always known for adopted memory.
    pub(crate) fn address(&self) -> Option<usize> {
        match (&self.place, &self.owner) {
            (Place::Pointer(address), None) => Some(*address),
            _ => None,
        }
    }

    /// A number that differs from that of earlier memory at the same address.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the host can address it.
    pub(crate) fn is_visible(&self) -> bool {
        self.visible
    }

    /// The buffer of which a part of this memory can be made, and the offset of this memory in it.
    pub(crate) fn whole(&self) -> Option<(cl_mem, usize)> {
        match (&self.whole, &self.place) {
            (Some((whole, start)), _) => Some((whole.raw(), *start)),
            (None, Place::Buffer(buffer)) => Some((buffer.raw(), 0)),
            (None, Place::Pointer(_)) => None,
        }
    }

    /// Returns the object to release when the memory's last use is over, unless the driver handles that itself.
    pub(crate) fn into_object(self) -> Option<Object> {
        match (self.place, self.owner) {
            // The reference to the buffer is dropped before its owner.
            (Place::Buffer(buffer), Some(owner)) => Some(Object::Owner(Box::new((buffer, owner)))),
            (Place::Pointer(_), Some(owner)) => Some(Object::Owner(owner)),
            (Place::Pointer(address), None) => Some(Object::Pointer(address)),
            (Place::Buffer(_), None) => None,
        }
    }
}

/// Allocates, or allocates again after `drain`, which frees memory that is no longer in use. Not if the code says that
/// memory is not what is missing: the work of all streams may take long, or wait for the caller.
fn or_after<T>(drain: impl FnOnce(), attempt: impl Fn() -> Result<T, cl_int>) -> Result<T, cl_int> {
    attempt().or_else(|code| match codes::is_lack_of_memory(code) {
        true => {
            drain();
            attempt()
        }
        false => Err(code),
    })
}

/// Creates a buffer.
pub(crate) fn new_buffer(
    shared: &OpenDevice,
    flags: u64,
    bytes: usize,
) -> Result<Handle<Mem>, cl_int> {
    // SAFETY: the context is alive, and no host memory is passed.
    let raw = unsafe { create_buffer(shared.context.raw(), flags, bytes, ptr::null_mut()) }?;
    // SAFETY: the buffer was just created.
    Ok(unsafe { Handle::own(raw, &shared.failures) })
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Any failed allocation counts as out of memory, whatever code the driver returns.
#[cold]
fn out_of_memory(shared: &OpenDevice, operation: &'static str, code: i32, bytes: usize) -> Error {
    let error = shared.error(operation, code, format!("{bytes} bytes"));
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::DeviceLost => error,
        _ => {
            let again = Error::new(ErrorKind::OutOfMemory, operation, format!("{bytes} bytes"));
            match error.driver() {
                Some(driver) => again.with_driver(driver.name.clone(), driver.code),
                None => again,
            }
            .on(&shared.id)
        }
    }
}

// SAFETY: buffers and pointers have the requested length, and unified memory keeps its address until it is freed.
unsafe impl DeviceMemory for OpenClMemory {
    fn len(&self) -> usize {
        self.bytes
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        match self.place {
            Place::Pointer(address) if self.visible => {
                Some(ptr::with_exposed_provenance_mut(address))
            }
            _ => None,
        }
    }

    fn native(&self) -> NativeHandle {
        let (kind, raw) = match &self.place {
            Place::Buffer(buffer) => (NativeKind::Object, buffer.raw().expose_provenance()),
            Place::Pointer(address) => (NativeKind::Pointer, *address),
        };
        NativeHandle { api: "opencl", kind, raw }
    }
}

impl fmt::Debug for OpenClMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {:?}", self.bytes, self.place)
    }
}

/// Host memory that the driver allocated for fast copies.
#[derive(Debug)]
pub(crate) struct OpenClPinned {
    /// The buffer that stays mapped as long as it lives, unless the memory needs no mapping.
    buffer: Option<Handle<Mem>>,
    address: usize,
    bytes: usize,
}

impl OpenClPinned {
    pub(crate) fn allocate(shared: &Arc<OpenDevice>, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "pinned_allocate";
        shared.check(OPERATION)?;
        shared.reap();
        let failed = |code| out_of_memory(shared, OPERATION, code, bytes);
        if let Some(host) = &shared.host {
            let address =
                host.allocate(shared.context.raw(), bytes, PINNED_ALIGNMENT).map_err(failed)?;
            return Ok(Self { buffer: None, address: address.expose_provenance(), bytes });
        }
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        let buffer = new_buffer(shared, flags, bytes).map_err(failed)?;
        let queue = shared.service_queue()?;
        let mut address = ptr::null_mut();
        // SAFETY: the buffer has this many bytes; the address is used only after the mapping is done.
        let mapped = unsafe {
            queue.submit_marked(OPERATION, |queue| {
                enqueue_map_buffer(
                    queue,
                    buffer.raw(),
                    CL_NON_BLOCKING,
                    CL_MAP_READ | CL_MAP_WRITE,
                    0,
                    bytes,
                    &mut address,
                    0,
                    ptr::null(),
                )
            })
        };
        let mapped = mapped.map_err(failed)?;
        queue.wait(&mapped).map_err(failed)?;
        match status(mapped.raw()).map_err(failed)? {
            CL_COMPLETE => {}
            code => return Err(failed(code)),
        }
        if address.is_null() || !address.addr().is_multiple_of(PINNED_ALIGNMENT) {
            let message = format!(
                "the driver mapped pinned memory at {address:p}, not aligned to {PINNED_ALIGNMENT} bytes"
            );
            return Err(Error::new(ErrorKind::Driver, OPERATION, message).on(&shared.id));
        }
        Ok(Self { buffer: Some(buffer), address: address.expose_provenance(), bytes })
    }

    pub(crate) fn into_object(self) -> Object {
        match self.buffer {
            Some(buffer) => Object::Mapped(buffer, self.address),
            None => Object::Host(self.address),
        }
    }
}

// SAFETY: the memory stays at this address, mapped or not, until it is freed.
unsafe impl DevicePinned for OpenClPinned {
    fn len(&self) -> usize {
        self.bytes
    }

    fn ptr(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.address)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use opencl3::error_codes as cl;

    use super::*;

    #[test]
    fn an_allocation_waits_only_if_memory_is_missing() {
        for (code, waits) in [
            (cl::CL_MEM_OBJECT_ALLOCATION_FAILURE, true),
            (cl::CL_OUT_OF_RESOURCES, true),
            (cl::CL_OUT_OF_HOST_MEMORY, true),
            (cl::CL_INVALID_BUFFER_SIZE, false),
            (cl::CL_INVALID_VALUE, false),
            (cl::CL_DEVICE_NOT_AVAILABLE, false),
        ] {
            let drained = Cell::new(false);
            let attempt = || if drained.get() { Ok(()) } else { Err(code) };
            let expected = if waits { Ok(()) } else { Err(code) };
            assert_eq!(or_after(|| drained.set(true), attempt), expected);
            assert_eq!(drained.get(), waits, "{code}");
        }
    }
}
