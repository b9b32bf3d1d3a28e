//! Region copies for devices that have none: through the host.
#![expect(unsafe_code, reason = "calls the stream's unsafe copies on slots that were checked")]

use super::{HostSlot, LoweredCopy, RegionProgram};
use crate::Result;
use crate::contract::{DeviceStream, RawSlot};
use crate::statistics::Counts;

/// Reads every slot whose contents matter to the host, runs the program there, and writes back exactly the bytes that it wrote, so that
/// whatever lies between them may change meanwhile. Blocks.
pub(crate) fn execute(
    program: &RegionProgram,
    stream: &dyn DeviceStream,
    slots: &[RawSlot<'_>],
    counts: &Counts,
) -> Result<()> {
    // Words of 16 bytes, since the program demands the alignment of its widest element.
    let mut copies: Vec<Vec<u128>> = Vec::with_capacity(slots.len());
    for (slot, used) in slots.iter().zip(program.slots()) {
        let mut copy = vec![0_u128; used.bytes.div_ceil(16)];
        if let (Some(memory), true) = (slot.memory, used.read) {
            let bytes = &mut bytemuck::cast_slice_mut(&mut copy)[..used.bytes];
            // SAFETY: the slot is at least as long as the program uses.
            unsafe { stream.memory_copy_from(memory, slot.offset, bytes) }?;
            counts.copied_from_device(used.bytes);
        }
        copies.push(copy);
    }
    let is_bound = |slot: usize| slots[slot].memory.is_some();
    let host: Vec<HostSlot> = copies
        .iter_mut()
        .enumerate()
        .map(|(slot, copy)| match is_bound(slot) {
            true => HostSlot { base: copy.as_mut_ptr().cast(), len: copy.len() * 16 },
            false => HostSlot::ABSENT,
        })
        .collect();
    // SAFETY: each slot that is there is bound to a buffer of its own, long enough and aligned.
    unsafe { program.run(&host) };
    let copied = program.phases().iter().flat_map(|phase| phase.copies());
    for copy in copied.filter(|copy| copy.is_among(is_bound)) {
        let slot = &slots[copy.destination_slot()];
        let bytes: &[u8] = bytemuck::cast_slice(&copies[copy.destination_slot()]);
        let Some(memory) = slot.memory else { continue };
        for_each_run(copy, |start, len| {
            // SAFETY: the program writes inside the slot only.
            unsafe {
                stream.memory_copy_to(memory, slot.offset + start, &bytes[start..start + len])
            }?;
            counts.copied_to_device(len);
            Ok(())
        })?;
    }
    Ok(())
}

/// Calls `f` with the start and length in bytes of each contiguous run of the destination.
fn for_each_run(copy: &LoweredCopy, mut f: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
    let (extents, strides) = (copy.extents(), copy.destination_strides());
    let size = copy.dtype().size();
    let (run, outer) = match (extents.last(), strides.last()) {
        (Some(&extent), Some(&stride)) if stride == size.cast_signed() => {
            (extent * size, extents.len() - 1)
        }
        _ => (size, extents.len()),
    };
    let mut index = [0_usize; super::MAX_REGION_RANK];
    let mut start = copy.destination_offset();
    loop {
        f(start, run)?;
        let mut dim = outer;
        loop {
            if dim == 0 {
                return Ok(());
            }
            dim -= 1;
            index[dim] += 1;
            start = start.wrapping_add_signed(strides[dim]);
            if index[dim] < extents[dim] {
                break;
            }
            start = start.wrapping_add_signed(-strides[dim] * extents[dim].cast_signed());
            index[dim] = 0;
        }
    }
}
