//! The mark at the end of a message, wherever the host can address its bytes.
#![expect(
    unsafe_code,
    reason = "device memory that the host addresses, without a wait for its streams"
)]

use std::ptr::NonNull;

use runtime_core::{Device, Memory, Result};

use crate::communicator::{Buffer, Storage};
use crate::plan::STAMP_BYTES;

type Stamp = [u8; STAMP_BYTES];

/// Whether messages in memory of the device can have one.
pub(crate) fn reaches(device: &Device) -> Result<bool> {
    Ok(device.memory_allocate::<u8>(STAMP_BYTES)?.host_ptr().is_some())
}

/// Ends a message with its stamp, if the host can address it.
///
/// # Safety
///
/// No work that is enqueued uses the bytes, or will before the next that is enqueued.
pub(crate) unsafe fn write(buffer: &mut Buffer, stamp: Stamp) -> Result<()> {
    if let Storage::Device(memory) = buffer.storage() {
        if let Some(place) = place(memory, buffer.len()) {
            // SAFETY: the bytes are those of the memory, which is borrowed to be changed, and no work uses them.
            unsafe { place.write(stamp) };
        }
    } else if let Some(end) = buffer.as_mut_slice()?.and_then(<[u8]>::last_chunk_mut) {
        *end = stamp;
    }
    Ok(())
}

/// The stamp of a message; `None` if the host cannot address it.
///
/// # Safety
///
/// No work that is enqueued writes the bytes.
pub(crate) unsafe fn read(buffer: &Buffer) -> Result<Option<Stamp>> {
    if let Storage::Device(memory) = buffer.storage() {
        // SAFETY: the bytes are those of the memory, which is borrowed, and no work writes them.
        return Ok(place(memory, buffer.len()).map(|place| unsafe { place.read() }));
    }
    Ok(buffer.as_slice()?.and_then(<[u8]>::last_chunk).copied())
}

/// Where the stamp of a message of `len` bytes lies. [`Memory::as_slice`] would wait for all work on the memory, a neighbour's
/// too.
fn place(memory: &Memory<u8>, len: usize) -> Option<NonNull<Stamp>> {
    let start = len.checked_sub(STAMP_BYTES)?;
    // SAFETY: a buffer is at most as long as its memory, so that the stamp lies in it.
    memory.host_ptr().map(|first| unsafe { first.add(start) }.cast())
}
