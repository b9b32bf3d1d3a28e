//! The stamp at the end of a message, if the host can address its bytes.
#![expect(
    unsafe_code,
    reason = "device memory that the host addresses, without a wait for its streams"
)]

use std::ptr::NonNull;

use runtime_core::{Device, Memory, Result};

use crate::communicator::{Buffer, Storage};
use crate::plan::STAMP_BYTES;

type Stamp = [u8; STAMP_BYTES];

/// Whether messages in the device's memory can have a stamp.
pub(crate) fn reaches(device: &Device) -> Result<bool> {
    Ok(device.memory_allocate::<u8>(STAMP_BYTES)?.host_ptr().is_some())
}

/// Writes the stamp at the end of a message, if the host can address it.
///
/// # Safety
///
/// No enqueued work uses the bytes, or will use them before further work is enqueued.
pub(crate) unsafe fn write(buffer: &mut Buffer, stamp: Stamp) -> Result<()> {
    if let Storage::Device(memory) = buffer.storage() {
        if let Some(place) = place(memory, buffer.len()) {
            // SAFETY: the bytes are those of the memory, which is borrowed mutably, and no work uses them.
            unsafe { place.write(stamp) };
        }
    } else if let Some(end) = buffer.as_mut_slice()?.and_then(<[u8]>::last_chunk_mut) {
        *end = stamp;
    }
    Ok(())
}

/// Reads the stamp of a message. Returns `None` if the host cannot address it.
///
/// # Safety
///
/// No enqueued work writes the bytes.
pub(crate) unsafe fn read(buffer: &Buffer) -> Result<Option<Stamp>> {
    if let Storage::Device(memory) = buffer.storage() {
        // SAFETY: the bytes are those of the memory, which is borrowed, and no work writes them.
        return Ok(place(memory, buffer.len()).map(|place| unsafe { place.read() }));
    }
    Ok(buffer.as_slice()?.and_then(<[u8]>::last_chunk).copied())
}

/// The address of the stamp of a message of `len` bytes. [`Memory::as_slice`] would wait for all work on the memory,
/// including a neighbour's.
fn place(memory: &Memory<u8>, len: usize) -> Option<NonNull<Stamp>> {
    let start = len.checked_sub(STAMP_BYTES)?;
    // SAFETY: a buffer is at most as long as its memory, so the stamp lies within the memory.
    memory.host_ptr().map(|first| unsafe { first.add(start) }.cast())
}
