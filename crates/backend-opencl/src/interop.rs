//! Queues, events and memory that other code created.
#![expect(unsafe_code, reason = "adopts objects of the driver, and implements an unsafe ability")]

use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cl3::info_type::InfoType;
use opencl3::command_queue::{
    CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROPERTIES,
    get_command_queue_info,
};
use opencl3::event::{CL_EVENT_CONTEXT, get_event_info};
use opencl3::memory::{
    CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_CONTEXT, CL_MEM_OBJECT_BUFFER, CL_MEM_OFFSET, CL_MEM_SIZE,
    CL_MEM_TYPE, get_mem_object_data,
};
use opencl3::types::{cl_int, cl_mem_info};
use runtime_core::contract::{DeviceEvent, DeviceStream, NativeInterop};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Origin, OriginKind, Result};

use crate::device::OpenClDevice;
use crate::event::{Mark, OpenClEvent};
use crate::handle::Handle;
use crate::platform::{self, integer};
use crate::pointers::Allocated;
use crate::queue::Queue;
use crate::stream::OpenClStream;

/// The driver's pointer in a handle.
fn pointer(handle: NativeHandle) -> *mut c_void {
    ptr::with_exposed_provenance_mut(handle.raw)
}

/// The address of an object that the driver returns; 0 if there is none.
fn address(info: InfoType) -> usize {
    if let InfoType::Ptr(address) = info { address.cast_unsigned() } else { 0 }
}

impl OpenClDevice {
    fn refuse<T>(&self, operation: &'static str, message: String) -> Result<T> {
        Err(Error::new(ErrorKind::InvalidArgument, operation, message).on(&self.shared.id))
    }

    /// Returns the buffer that a memory object is a part of. Returns `None` if it is not a buffer, or is of another
    /// context.
    fn buffer_origin(&self, object: *mut c_void) -> Result<Option<Origin>, cl_int> {
        let ask = |object, what: cl_mem_info| -> Result<usize, cl_int> {
            let number = integer(&get_mem_object_data(object, what)?);
            Ok(usize::try_from(number).unwrap_or(usize::MAX))
        };
        let context = self.shared.context.raw().expose_provenance();
        if integer(&get_mem_object_data(object, CL_MEM_TYPE)?) != u64::from(CL_MEM_OBJECT_BUFFER)
            || ask(object, CL_MEM_CONTEXT)? != context
        {
            return Ok(None);
        }
        let (whole, offset) = match ask(object, CL_MEM_ASSOCIATED_MEMOBJECT)? {
            0 => (object, 0),
            whole => (ptr::with_exposed_provenance_mut(whole), ask(object, CL_MEM_OFFSET)?),
        };
        let (base, bytes) = (whole.expose_provenance(), ask(whole, CL_MEM_SIZE)?);
        // The driver moves the buffer to the device of the context that uses it.
        let device = (!self.shared.context.has_peers()).then_some(self.shared.found.index);
        Ok(Some(Origin::new(OriginKind::Device, base, offset, bytes).with_device(device)))
    }

    /// Returns the allocation that a pointer points into. Returns `None` unless it is unified shared memory, because
    /// the driver only identifies that kind.
    fn pointer_origin(&self, address: usize) -> Option<Origin> {
        let Allocated { base, bytes, kind, device } =
            self.shared.usm()?.allocation(self.shared.context.raw(), address)?;
        let found = &self.shared.found;
        let index = if device == found.id().expose_provenance() {
            Some(found.index)
        } else {
            platform::index_of(device)
        };
        let offset = address.checked_sub(base)?;
        Some(Origin::new(kind, base, offset, bytes).with_device(index))
    }
}

// SAFETY: commands are enqueued to the given queue. Queues and events are retained, and released once.
unsafe impl NativeInterop for OpenClDevice {
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_from_native";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        if handle.raw == 0 {
            return self
                .refuse(OPERATION, format!("{handle:?} is null; OpenCL has no default queue"));
        }
        let raw = pointer(handle);
        let failed = |code| shared.error(OPERATION, code, format_args!("{handle:?} is no queue"));
        let ask = |what| get_command_queue_info(raw, what).map_err(failed);
        if address(ask(CL_QUEUE_CONTEXT)?) != shared.context.raw().expose_provenance() {
            return self.refuse(OPERATION, format!("{handle:?} belongs to another context"));
        }
        if address(ask(CL_QUEUE_DEVICE)?) != shared.found.id().expose_provenance() {
            return self.refuse(OPERATION, format!("{handle:?} belongs to another device"));
        }
        if matches!(ask(CL_QUEUE_PROPERTIES)?, InfoType::Ulong(properties)
            if properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0)
        {
            return self.refuse(OPERATION, format!("{handle:?} is out of order"));
        }
        // SAFETY: the caller guarantees that the queue is valid.
        let retained = unsafe { Handle::retain(raw, &shared.failures) }.map_err(failed)?;
        let queue = Queue::new(retained, Arc::clone(&shared.failures), shared.id.clone());
        queue.share();
        let queue = Arc::new(queue);
        shared.add_queue(&queue);
        Ok(Box::new(OpenClStream::new(shared, queue)))
    }

    unsafe fn stream_end(&self, stream: &dyn DeviceStream) {
        let any: &dyn Any = stream;
        // This backend keeps its own reference until the work is done; for that, the work must have been started.
        if let Some(stream) = any.downcast_ref::<OpenClStream>() {
            stream.begin();
        }
    }

    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>> {
        const OPERATION: &str = "event_from_native";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let raw = pointer(handle);
        let failed = |code| shared.error(OPERATION, code, format_args!("{handle:?} is no event"));
        let context = get_event_info(raw, CL_EVENT_CONTEXT).map_err(failed)?;
        if address(context) != shared.context.raw().expose_provenance() {
            return self.refuse(OPERATION, format!("{handle:?} belongs to another context"));
        }
        // SAFETY: the caller guarantees that the event is valid.
        let event = unsafe { Handle::retain(raw, &shared.failures) }.map_err(failed)?;
        let taken = OpenClEvent::new(shared, false);
        taken.set(Some(Mark { event, queue: None }));
        Ok(Box::new(taken))
    }

    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        const OPERATION: &str = "origin";
        self.shared.check(OPERATION)?;
        if handle.kind == NativeKind::Pointer {
            return Ok(self.pointer_origin(handle.raw));
        }
        self.buffer_origin(pointer(handle)).map_err(|code| {
            self.shared.error(OPERATION, code, format_args!("{handle:?} is no memory object"))
        })
    }
}
