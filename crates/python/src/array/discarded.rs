//! Memory that the program has dropped while work still uses it. A program that enqueues faster than the device works
//! would pile it up, so new memory waits for earlier work.

use std::mem;
use std::sync::Mutex;

use runtime::{Device, ErrorKind, Event, Memory, Result, Stream};

use crate::wait;

/// Smaller memory is not counted.
const COUNTED: usize = 64 << 10;

/// The most bytes of dropped memory that work may still use, unless the device is small.
const LIMIT: u64 = 512 << 20;

/// The dropped memory of a device.
struct Discarded {
    /// The number of its default stream.
    device: u64,
    /// The bytes since the ends of `earlier` were recorded, and the streams that use them.
    bytes: u64,
    streams: Vec<Stream>,
    /// The ends of the work that uses memory which was dropped before.
    earlier: Vec<Event>,
}

static DISCARDED: Mutex<Vec<Discarded>> = Mutex::new(Vec::new());

/// Whether memory on the device may pile up. GPUs give freed memory to later work on the same stream.
fn is_counted(device: &Device) -> bool {
    !matches!(device.native().api, "cuda" | "hip")
}

/// Counts memory that is dropped. `busy` gives the streams that use it.
pub(super) fn count(memory: &Memory<u8>, busy: impl FnOnce() -> Vec<Stream>) {
    let device = memory.device();
    if memory.len() < COUNTED || !is_counted(device) {
        return;
    }
    let streams = busy();
    if streams.is_empty() {
        return;
    }
    let number = device.default_stream().id();
    let mut all = crate::lock(&DISCARDED);
    let place = all.iter().position(|known| known.device == number).unwrap_or_else(|| {
        let (streams, earlier) = (Vec::new(), Vec::new());
        all.push(Discarded { device: number, bytes: 0, streams, earlier });
        all.len() - 1
    });
    let discarded = &mut all[place];
    discarded.bytes += memory.len() as u64;
    let is_known = |stream: &Stream| discarded.streams.contains(stream);
    let (known, new): (Vec<_>, Vec<_>) = streams.into_iter().partition(is_known);
    discarded.streams.extend(new);
    drop(all);
    // The last handle of a stream is dropped without the lock.
    drop(known);
}

/// Waits until work has finished that uses dropped memory, if there is too much of it.
fn make_room(device: &Device) -> Result<()> {
    if !is_counted(device) {
        return Ok(());
    }
    let limit = device.info().memory_bytes.map_or(LIMIT, |bytes| LIMIT.min(bytes / 8));
    let number = device.default_stream().id();
    let (streams, earlier) = {
        let mut all = crate::lock(&DISCARDED);
        let full = |known: &&mut Discarded| known.device == number && known.bytes > limit / 2;
        let Some(known) = all.iter_mut().find(full) else { return Ok(()) };
        known.bytes = 0;
        (mem::take(&mut known.streams), mem::take(&mut known.earlier))
    };
    // Half of it may stay in use, so that the device always has work.
    let ends = streams.iter().map(Stream::record_event).collect::<Result<Vec<_>>>()?;
    if let Some(known) = crate::lock(&DISCARDED).iter_mut().find(|known| known.device == number) {
        known.earlier.extend(ends);
    }
    earlier.iter().try_for_each(wait::event)
}

/// Allocates memory. Blocks while work uses much memory that the program has dropped, or if such memory is needed.
pub(super) fn allocate(device: &Device, bytes: usize) -> Result<Memory<u8>> {
    make_room(device)?;
    let first = device.memory_allocate(bytes);
    match &first {
        Err(error) if error.kind() == ErrorKind::OutOfMemory => {
            wait::device(device)?;
            device.memory_allocate(bytes).or(first)
        }
        _ => first,
    }
}
