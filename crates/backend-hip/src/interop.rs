//! Streams, events and addresses that others own.
#![expect(unsafe_code, reason = "asks the runtime, and implements an unsafe ability")]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use hip_sys::hiprt::{hipHostMallocPortable, hipPointer_attribute as Attribute};
use runtime_core::contract::{DeviceEvent, DeviceStream, NativeInterop};
use runtime_core::{Error, ErrorKind, NativeHandle, Origin, OriginKind, Result};

use crate::codes;
use crate::context::{Context, ok, pointer};
use crate::device::HipDevice;
use crate::event::HipEvent;
use crate::raw_stream::RawStream;
use crate::stream::HipStream;

/// What the runtime knows of an address.
pub(crate) struct Known {
    pub(crate) device: c_int,
    pub(crate) kind: OriginKind,
    /// The first address of the allocation, and its length.
    pub(crate) range: Option<(usize, usize)>,
}

impl Known {
    /// Asks for an address, which may be any number; `None` if the runtime does not know it.
    pub(crate) fn at(context: &Context, address: u64) -> Option<Self> {
        context.bind().ok()?;
        let ask = |attribute| ask(context, attribute, address);
        let device = ask(Attribute::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?;
        let managed = ask(Attribute::HIP_POINTER_ATTRIBUTE_IS_MANAGED);
        let kind = match ask(Attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            _ if managed.is_some_and(|managed| managed & 1 == 1) => OriginKind::Managed,
            Some(kind) if Some(kind) == host_kind(context) => OriginKind::Pinned,
            _ => OriginKind::Device,
        };
        let (mut start, mut bytes) = (ptr::null_mut(), 0);
        let function = context.hip.hipMemGetAddressRange;
        // SAFETY: address and number are written to where they may be.
        let told = ok(unsafe { function(&mut start, &mut bytes, pointer(address)) });
        Some(Self { device, kind, range: told.ok().map(|()| (start.addr(), bytes)) })
    }

    fn origin(&self, address: usize) -> Option<Origin> {
        let (base, bytes) = self.range?;
        Some(Origin {
            base,
            offset: address.checked_sub(base)?,
            bytes,
            device: Some(usize::try_from(self.device).ok()?),
            kind: self.kind,
        })
    }
}

/// One thing that the runtime knows of an address: the structure that has all of them is another one in HIP 6.
fn ask(context: &Context, attribute: Attribute, address: u64) -> Option<c_int> {
    let mut value: c_int = 0;
    let place = (&raw mut value).cast::<c_void>();
    let function = context.hip.hipPointerGetAttribute;
    // SAFETY: the attributes asked for have 32 bits or less, and are written to where they may be.
    ok(unsafe { function(place, attribute, pointer(address)) }).ok().map(|()| value)
}

/// The number of host memory among the kinds of memory, which is another one from HIP 6 on: the runtime is asked for that of
/// some host memory.
fn host_kind(context: &Context) -> Option<c_int> {
    static KIND: OnceLock<c_int> = OnceLock::new();
    if let Some(kind) = KIND.get() {
        return Some(*kind);
    }
    let mut memory = ptr::null_mut();
    // SAFETY: the address is written to where it may be.
    ok(context.apart(|hip| unsafe { (hip.hipHostMalloc)(&mut memory, 1, hipHostMallocPortable) }))
        .ok()?;
    let address = memory.expose_provenance() as u64;
    let kind = ask(context, Attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    // SAFETY: nothing uses the memory.
    context.note(context.apart(|hip| unsafe { (hip.hipHostFree)(memory) }));
    kind.map(|kind| *KIND.get_or_init(|| kind))
}

// SAFETY: what is enqueued goes to the stream named, whose handle and that of an event are not destroyed; of a stream whose
// use has ended only an event of this backend's own is left.
unsafe impl NativeInterop for HipDevice {
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_from_native";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let refuse = |why: String| {
            let message = format!("{handle:?} {why}");
            Err(Error::new(ErrorKind::InvalidArgument, OPERATION, message).on(&shared.id))
        };
        if matches!(handle.raw, 1 | 2) {
            return refuse("is a stream of CUDA's alone; the default stream is 0".to_owned());
        }
        let context = &shared.context;
        let raw = ptr::with_exposed_provenance_mut(handle.raw);
        // The default stream is that of the current device.
        if handle.raw != 0
            && let Some(device_of) = context.hip.hipStreamGetDevice
        {
            let mut device = context.device;
            // SAFETY: the caller vouches for the stream; the number is written to where it may be.
            match unsafe { device_of(raw, &mut device) } {
                0 if device != context.device => {
                    return refuse(format!("is of device {device}"));
                }
                // It is as if there were no such function.
                0 | codes::NOT_SUPPORTED => {}
                code => return Err(shared.error(OPERATION, code, format_args!("{handle:?}"))),
            }
        }
        let stream = Arc::new(RawStream::lent(raw, context));
        shared.add_stream(&stream);
        Ok(Box::new(HipStream::new(shared, stream)))
    }

    unsafe fn stream_end(&self, stream: &dyn DeviceStream) {
        let any: &dyn Any = stream;
        if let Some(stream) = any.downcast_ref::<HipStream>() {
            stream.raw().end();
        }
    }

    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>> {
        self.shared.check("event_from_native")?;
        let raw = ptr::with_exposed_provenance_mut(handle.raw);
        Ok(Box::new(HipEvent::lent(&self.shared, raw)))
    }

    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        self.shared.check("origin")?;
        let known = Known::at(&self.shared.context, handle.raw as u64);
        Ok(known.and_then(|known| known.origin(handle.raw)))
    }
}
