//! Copies between devices.
#![expect(unsafe_code, reason = "copies through the driver, and implements an unsafe ability")]

use std::any::Any;

use runtime_core::Result;
use runtime_core::contract::{AcceleratorDevice, DeviceMemory, DeviceStream, PeerAccess, own};

use crate::device::CudaDevice;
use crate::memory::CudaMemory;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::stream::CudaStream;

/// Lets `reader` reach the memory of a pool of `owner`'s.
fn let_reach(owner: &Shared, memory: &CudaMemory, reader: &Shared) {
    if let Pool::Driver(pool) = &owner.pool
        && memory.is_pooled()
    {
        pool.let_reach(&reader.context);
    }
}

// SAFETY: the driver copies the bytes named, directly or by way of the host, in the order of the stream.
unsafe impl PeerAccess for CudaDevice {
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
        let stream = own::<CudaStream>(stream, OPERATION)?;
        let peer = &own::<Self>(peer, OPERATION)?.shared;
        let from = own::<CudaMemory>(src, OPERATION)?;
        let to = own::<CudaMemory>(dst, OPERATION)?;
        peer.check(OPERATION)?;
        let (here, there) = (self.shared.context.raw(), peer.context.raw());
        if self.shared.context.device != peer.context.device {
            self.shared.context.enable_peer(&peer.context);
            let_reach(peer, from, &self.shared);
            let_reach(&self.shared, to, peer);
        }
        let (to, from) = (to.at(dst_offset), from.at(src_offset));
        stream.enqueue_with(peer, OPERATION, "a copy between devices", |driver, stream| {
            // SAFETY: the caller vouches for the ranges, and both contexts are retained, or their owners keep them.
            unsafe { (driver.cuMemcpyPeerAsync)(to, here, from, there, bytes, stream) }
        })
    }
}
