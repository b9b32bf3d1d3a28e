//! The stamp at the end of a message, if the host can address its bytes.

use runtime_core::{Device, Result};

use crate::communicator::{Buffer, Storage};
use crate::plan::STAMP_BYTES;

type Stamp = [u8; STAMP_BYTES];

/// Whether the host can address memory of the device: messages in it can have a stamp.
pub(crate) fn is_addressable(device: &Device) -> Result<bool> {
    Ok(device.memory_allocate::<u8>(STAMP_BYTES)?.is_host_visible())
}

/// Writes the stamp at the end of a message, if the host can address it. Does not wait for work on device memory: a
/// buffer that work still uses is an error.
pub(crate) fn write(buffer: &mut Buffer, stamp: Stamp) -> Result<()> {
    let bytes = match buffer.storage_mut() {
        Storage::Host(bytes) => Some(&mut bytes[..]),
        Storage::Pinned(pinned) => Some(pinned.as_mut_slice()?),
        Storage::Device(memory) if !memory.is_host_visible() => None,
        Storage::Device(memory) => Some(memory.try_as_mut_slice()?),
    };
    if let Some(end) = bytes.and_then(<[u8]>::last_chunk_mut) {
        *end = stamp;
    }
    Ok(())
}

/// Reads the stamp of a message. Returns `None` if the host cannot address it. Like [`write`], does not wait for work
/// on device memory.
pub(crate) fn read(buffer: &Buffer) -> Result<Option<Stamp>> {
    let bytes = match buffer.storage() {
        Storage::Host(bytes) => Some(&bytes[..]),
        Storage::Pinned(pinned) => Some(pinned.as_slice()?),
        Storage::Device(memory) if !memory.is_host_visible() => None,
        Storage::Device(memory) => Some(memory.try_as_slice()?),
    };
    Ok(bytes.and_then(<[u8]>::last_chunk).copied())
}
