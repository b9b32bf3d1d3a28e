//! Region copies and copies between simulated devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe region copy and peer traits")]

use std::sync::Arc;

use backend_support::Work;
use runtime_core::contract::{
    AcceleratorDevice, DeviceRegions, DeviceStream, MemoryAt, PeerAccess, RawSlot,
    RegionCopyAbility, own,
};
use runtime_core::{RegionProgram, Result};

use crate::counts::add_traffic;
use crate::memory::span;
use crate::stream::SimStream;
use crate::{Operation, SimDevice};

/// A region program on the device.
struct SimRegions(Arc<RegionProgram>);

impl DeviceRegions for SimRegions {
    fn launches(&self) -> usize {
        1
    }
}

// SAFETY: an execution is one piece of work on the stream's queue, which runs the program only on the slots.
unsafe impl RegionCopyAbility for SimDevice {
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        self.shared().check("prepare")?;
        Ok(Box::new(SimRegions(Arc::new(program.clone()))))
    }

    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        let program = &own::<SimRegions>(regions, "execute")?.0;
        let spans = slots.iter().map(|slot| match slot.memory {
            Some(memory) => span(MemoryAt::new(memory, slot.offset), slot.bytes)
                .map(|span| Some(span.of_split(slot.split))),
            None => Ok(None),
        });
        // SAFETY: the caller guarantees the slots.
        let work = unsafe { Work::regions(program, spans) }?;
        let bytes = work.bytes();
        let stream = own::<SimStream>(stream, "execute")?;
        stream
            .enqueue(Operation::Copy, work, move |counts| add_traffic(&mut counts.on_device, bytes))
    }
}

// SAFETY: memory and events of all simulated devices are of the same types, and a copy is work like any other.
unsafe impl PeerAccess for SimDevice {
    fn reaches(&self, other: &dyn AcceleratorDevice) -> bool {
        own::<Self>(other, "reaches").is_ok_and(|other| self.shared().is_peer_of(other.shared()))
    }

    unsafe fn memory_copy(
        &self,
        stream: &dyn DeviceStream,
        _peer: &dyn AcceleratorDevice,
        src: MemoryAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (src, dst) = (span(src, bytes)?, span(dst, bytes)?);
        let stream = own::<SimStream>(stream, "memory_copy")?;
        let work = Work::Copy { src, dst };
        stream.enqueue(Operation::Copy, work, move |counts| {
            add_traffic(&mut counts.from_peers, bytes)
        })
    }
}
