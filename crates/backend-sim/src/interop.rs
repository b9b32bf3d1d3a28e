//! Streams, events and memory by their native handles, as another library on the same device would use them.
#![expect(unsafe_code, reason = "implements an unsafe ability")]

use backend_support::Block;
use runtime_core::contract::{DeviceEvent, DeviceStream, NativeInterop};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Origin, OriginKind, Result};

use crate::alive::Alive;
use crate::device::SimDevice;
use crate::event::SimEvent;
use crate::stream::SimStream;

fn none<T>(operation: &'static str, handle: NativeHandle) -> Result<T> {
    let message = format!("{handle:?} is nothing that this device has");
    Err(Error::new(ErrorKind::InvalidArgument, operation, message))
}

// SAFETY: a stream made from a handle has the queue of the stream that the handle refers to, and both keep it alive.
unsafe impl NativeInterop for SimDevice {
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_from_native";
        self.shared().check(OPERATION)?;
        match self.shared().lanes.at(handle.raw) {
            Some(lane) => Ok(Box::new(SimStream::on(lane, self.shared()))),
            None => none(OPERATION, handle),
        }
    }

    unsafe fn stream_end(&self, _stream: &dyn DeviceStream) {
        // The queue is reference-counted, and its work holds all it needs.
    }

    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>> {
        const OPERATION: &str = "event_from_native";
        self.shared().check(OPERATION)?;
        match self.shared().events.at(handle.raw) {
            Some(event) => Ok(Box::new(SimEvent::of(event, self.shared()))),
            None => none(OPERATION, handle),
        }
    }

    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        let shared = self.shared();
        shared.check("origin")?;
        if handle.kind != NativeKind::Pointer {
            return Ok(None);
        }
        let within = |blocks: &Alive<Block>, kind| {
            let (base, block) = blocks.before(handle.raw)?;
            let (offset, bytes) = (handle.raw - base, block.len());
            let device = Some(shared.index());
            (offset < bytes).then_some(Origin::new(kind, base, offset, bytes).with_device(device))
        };
        let kinds = [
            (&shared.blocks, OriginKind::Device),
            (&shared.unified, OriginKind::Managed),
            (&shared.pinned, OriginKind::Pinned),
        ];
        Ok(kinds.into_iter().find_map(|(blocks, kind)| within(blocks, kind)))
    }
}
