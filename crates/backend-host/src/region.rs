//! Region copies and copies between host devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe region copy and peer traits")]

use std::sync::Arc;

use backend_support::Work;
use runtime_core::contract::{
    AcceleratorDevice, DeviceRegions, DeviceStream, MemoryAt, PeerAccess, RawSlot,
    RegionCopyAbility, own,
};
use runtime_core::{RegionProgram, Result};

use crate::HostDevice;
use crate::memory::span;
use crate::stream::HostStream;

/// A region program. Host loops run it directly.
struct HostRegions(Arc<RegionProgram>);

impl DeviceRegions for HostRegions {
    fn launches(&self) -> usize {
        1
    }
}

// SAFETY: an execution is one piece of work on the stream's queue, which runs the program only on the slots.
unsafe impl RegionCopyAbility for HostDevice {
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        Ok(Box::new(HostRegions(Arc::new(program.clone()))))
    }

    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        let program = &own::<HostRegions>(regions, "execute")?.0;
        let spans = slots.iter().map(|slot| match slot.memory {
            Some(memory) => span(MemoryAt::new(memory, slot.offset), slot.bytes)
                .map(|span| Some(span.of_split(slot.split))),
            None => Ok(None),
        });
        // SAFETY: the caller guarantees the slots.
        let work = unsafe { Work::regions(program, spans) }?;
        own::<HostStream>(stream, "execute")?.enqueue(work)
    }
}

// SAFETY: memory and events of all host devices are of the same types, and a copy is work like any other.
unsafe impl PeerAccess for HostDevice {
    fn reaches(&self, other: &dyn AcceleratorDevice) -> bool {
        own::<Self>(other, "reaches").is_ok()
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
        own::<HostStream>(stream, "memory_copy")?.enqueue(Work::Copy { src, dst })
    }
}
