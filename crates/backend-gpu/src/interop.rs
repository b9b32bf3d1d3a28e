//! Streams, events and addresses that belong to other libraries.
#![expect(unsafe_code, reason = "adopts handles, and implements an unsafe ability")]

use std::any::Any;
use std::sync::Arc;

use runtime_core::contract::{DeviceEvent, DeviceStream, NativeInterop};
use runtime_core::{Error, ErrorKind, NativeHandle, Origin, Result};

use crate::device::Device;
use crate::event::Event;
use crate::handle;
use crate::raw_stream::RawStream;
use crate::stream::Stream;
use crate::vendor::{AddressInfo, Unfit, Vendor};

impl AddressInfo {
    fn origin(&self, address: u64) -> Option<Origin> {
        let (start, bytes) = self.range?;
        let (base, bytes) = (usize::try_from(start).ok()?, usize::try_from(bytes).ok()?);
        let offset = usize::try_from(address.checked_sub(start)?).ok()?;
        let device = usize::try_from(self.device).ok()?;
        Some(Origin::new(self.kind, base, offset, bytes).with_device(device))
    }
}

// SAFETY: work goes to the named stream. The handles of such streams and events are never destroyed here. Once the use
// of a stream has ended, only an event of this backend's own is used.
unsafe impl<V: Vendor> NativeInterop for Device<V> {
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_from_native";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let failed = |code| shared.error(OPERATION, code, format_args!("{handle:?}"));
        // SAFETY: the caller guarantees that the handle is a stream.
        match unsafe { V::check_stream(&shared.context, handle) } {
            Ok(()) => {}
            Err(Unfit::Wrong(why)) => {
                let message = format!("{handle:?} {why}");
                let error = Error::new(ErrorKind::InvalidArgument, OPERATION, message);
                return Err(error.on(&shared.id));
            }
            Err(Unfit::Code(code)) => return Err(failed(code)),
        }
        let raw = handle::Stream(handle.raw);
        let stream = Arc::new(RawStream::borrowed(raw, &shared.context).map_err(failed)?);
        shared.add_stream(&stream);
        Ok(Box::new(Stream::new(shared, stream)))
    }

    unsafe fn stream_end(&self, stream: &dyn DeviceStream) {
        let any: &dyn Any = stream;
        if let Some(stream) = any.downcast_ref::<Stream<V>>() {
            stream.raw().end();
        }
    }

    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>> {
        self.shared.check("event_from_native")?;
        Ok(Box::new(Event::borrowed(&self.shared, handle::Event(handle.raw))))
    }

    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        self.shared.check("origin")?;
        let address = handle.raw as u64;
        Ok(V::address_info(&self.shared.context, address).and_then(|known| known.origin(address)))
    }
}
