//! Copies between devices.
#![expect(unsafe_code, reason = "copies through the runtime, and implements an unsafe ability")]

use std::any::Any;

use runtime_core::Result;
use runtime_core::contract::{AcceleratorDevice, DeviceMemory, DeviceStream, PeerAccess, own};

use crate::context::pointer;
use crate::device::HipDevice;
use crate::memory::HipMemory;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::stream::HipStream;

/// Lets `reader` reach the memory of a pool of `owner`'s.
fn let_reach(owner: &Shared, memory: &HipMemory, reader: &Shared) {
    if let Pool::Driver(pool) = &owner.pool
        && memory.is_pooled()
    {
        pool.let_reach(&reader.context);
    }
}

// SAFETY: the runtime copies the bytes named, directly or by way of the host, in the order of the stream.
unsafe impl PeerAccess for HipDevice {
    fn reaches(&self, other: &dyn AcceleratorDevice) -> bool {
        let any: &dyn Any = other;
        any.is::<Self>()
    }

    unsafe fn memory_copy(
        &self,
        stream: &dyn DeviceStream,
        peer: &dyn AcceleratorDevice,
        src: &dyn DeviceMemory,
        src_offset: usize,
        dst: &dyn DeviceMemory,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        const OPERATION: &str = "memory_copy";
        let stream = own::<HipStream>(stream, OPERATION)?;
        let peer = &own::<Self>(peer, OPERATION)?.shared;
        let from = own::<HipMemory>(src, OPERATION)?;
        let to = own::<HipMemory>(dst, OPERATION)?;
        peer.check(OPERATION)?;
        let functions = self
            .shared
            .context
            .copies()
            .map_err(|code| self.shared.error(OPERATION, code, "a copy between devices"))?;
        let (here, there) = (self.shared.context.device, peer.context.device);
        if here != there {
            self.shared.context.enable_peer(functions, &peer.context);
            let_reach(peer, from, &self.shared);
            let_reach(&self.shared, to, peer);
        }
        let (to, from) = (pointer(to.at(dst_offset)), pointer(from.at(src_offset)));
        stream.enqueue_with(peer, OPERATION, "a copy between devices", |_, stream| {
            // SAFETY: the caller vouches for the ranges.
            unsafe { (functions.hipMemcpyPeerAsync)(to, here, from, there, bytes, stream) }
        })
    }
}
