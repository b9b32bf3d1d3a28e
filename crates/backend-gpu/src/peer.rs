//! Copies between devices.
#![expect(unsafe_code, reason = "copies through the library, and implements an unsafe ability")]

use std::any::Any;

use runtime_core::Result;
use runtime_core::contract::{AcceleratorDevice, DeviceStream, MemoryAt, PeerAccess, own};

use crate::api::Api;
use crate::device::Device;
use crate::memory::Memory;
use crate::open_device::OpenDevice;
use crate::pool::Pool;
use crate::stream::Stream;
use crate::vendor::Vendor;

/// Gives `reader` access to `memory`, if it belongs to a memory pool of `owner`.
fn let_reach<V: Vendor>(owner: &OpenDevice<V>, memory: &Memory<V>, reader: &OpenDevice<V>) {
    if let Pool::Driver(pool) = &owner.pool
        && memory.is_pooled()
    {
        pool.let_reach(&reader.context);
    }
}

// SAFETY: the library copies the named bytes, directly or through the host, in the order of the stream.
unsafe impl<V: Vendor> PeerAccess for Device<V> {
    fn reaches(&self, other: &dyn AcceleratorDevice) -> bool {
        let any: &dyn Any = other;
        any.is::<Self>()
    }

    unsafe fn memory_copy(
        &self,
        stream: &dyn DeviceStream,
        peer: &dyn AcceleratorDevice,
        src: MemoryAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        const OPERATION: &str = "memory_copy";
        let stream = own::<Stream<V>>(stream, OPERATION)?;
        let peer = &own::<Self>(peer, OPERATION)?.shared;
        let from = own::<Memory<V>>(src.object, OPERATION)?;
        let to = own::<Memory<V>>(dst.object, OPERATION)?;
        peer.check(OPERATION)?;
        let (here, there) = (self.shared.context.place, peer.context.place);
        if self.shared.context.device != peer.context.device {
            self.shared.context.enable_peer(&peer.context);
            let_reach(peer, from, &self.shared);
            let_reach(&self.shared, to, peer);
        }
        let (to, from) = ((to.at(dst.offset), here), (from.at(src.offset), there));
        stream.enqueue_with(peer, OPERATION, "a copy between devices", |api, stream| {
            // SAFETY: the caller guarantees the ranges. Both contexts are retained, or their owners keep them.
            unsafe { api.copy_peer(to, from, bytes, stream) }
        })
    }
}
