//! Streams, events and addresses that others own.
#![expect(unsafe_code, reason = "asks the driver, and implements an unsafe ability")]

use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute as Attribute, CUstream};
use runtime_core::contract::{DeviceEvent, DeviceStream, NativeInterop};
use runtime_core::{Error, ErrorKind, NativeHandle, Origin, OriginKind, Result};

use crate::context::{Context, ok};
use crate::device::CudaDevice;
use crate::event::CudaEvent;
use crate::raw_stream::RawStream;
use crate::stream::CudaStream;

/// What the driver knows of an address.
pub(crate) struct Known {
    pub(crate) ordinal: usize,
    pub(crate) kind: OriginKind,
    /// The first address of the allocation, and its length.
    pub(crate) range: Option<(u64, u64)>,
}

impl Known {
    /// Asks for an address, which may be any number; `None` if the driver does not know it, or not as memory of a device.
    pub(crate) fn at(context: &Context, address: CUdeviceptr) -> Option<Self> {
        const HOST: u64 = CUmemorytype::CU_MEMORYTYPE_HOST as u64;
        context.bind().ok()?;
        let ask = |attribute| -> Option<u64> {
            let mut value = 0_u64;
            let place = (&raw mut value).cast::<c_void>();
            let function = context.driver.cuPointerGetAttribute;
            // SAFETY: the attributes asked for have 64 bits or less, and are written to where they may be.
            ok(unsafe { function(place, attribute, address) }).ok().map(|()| value)
        };
        // A number of 32 bits, which is negative for what is of no device.
        let ordinal = ask(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?.cast_signed();
        let ordinal =
            i32::try_from(ordinal).ok().and_then(|ordinal| usize::try_from(ordinal).ok())?;
        let managed = ask(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED);
        let kind = match ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            _ if managed.is_some_and(|managed| managed & 1 == 1) => OriginKind::Managed,
            Some(HOST) => OriginKind::Pinned,
            _ => OriginKind::Device,
        };
        let start = ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
        let range = start.zip(ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE));
        Some(Self { ordinal, kind, range })
    }

    fn origin(&self, address: CUdeviceptr) -> Option<Origin> {
        let (start, bytes) = self.range?;
        Some(Origin {
            base: usize::try_from(start).ok()?,
            offset: usize::try_from(address.checked_sub(start)?).ok()?,
            bytes: usize::try_from(bytes).ok()?,
            device: Some(self.ordinal),
            kind: self.kind,
        })
    }
}

// SAFETY: what is enqueued goes to the stream named, whose handle and that of an event are not destroyed; of a stream whose
// use has ended only an event of this backend's own is left.
unsafe impl NativeInterop for CudaDevice {
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_from_native";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let refuse = |why: &str| {
            let message = format!("{handle:?} {why}");
            Err(Error::new(ErrorKind::InvalidArgument, OPERATION, message).on(&shared.id))
        };
        if handle.raw == 0 {
            return refuse("may be either default stream: 1 is the legacy one, 2 the thread's own");
        }
        let raw: CUstream = ptr::with_exposed_provenance_mut(handle.raw);
        let failed = |code| shared.error(OPERATION, code, format_args!("{handle:?}"));
        let mut context = ptr::null_mut();
        let asked = shared.context.bind().and_then(|()| {
            // SAFETY: the caller vouches for the stream; the handle is written to where it may be.
            ok(unsafe { (shared.context.driver.cuStreamGetCtx)(raw, &mut context) })
        });
        asked.map_err(failed)?;
        if context != shared.context.raw() {
            return refuse("belongs to another context");
        }
        let stream = Arc::new(RawStream::lent(raw, &shared.context).map_err(failed)?);
        shared.add_stream(&stream);
        Ok(Box::new(CudaStream::new(shared, stream)))
    }

    unsafe fn stream_end(&self, stream: &dyn DeviceStream) {
        let any: &dyn Any = stream;
        if let Some(stream) = any.downcast_ref::<CudaStream>() {
            stream.raw().end();
        }
    }

    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>> {
        self.shared.check("event_from_native")?;
        let raw = ptr::with_exposed_provenance_mut(handle.raw);
        Ok(Box::new(CudaEvent::lent(&self.shared, raw)))
    }

    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        self.shared.check("origin")?;
        let address = handle.raw as CUdeviceptr;
        Ok(Known::at(&self.shared.context, address).and_then(|known| known.origin(address)))
    }
}
