//! Region copies through the host, for devices without native region copies.
#![expect(unsafe_code, reason = "calls the stream's unsafe copies on slots that were checked")]

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Mutex;

use super::footprint::Footprint;
use super::{Combine, HostSlot, RegionProgram};
use crate::contract::{MemoryAt, PinnedAt, RawSlot};
use crate::sync::lock;
use crate::{Error, ErrorKind, Pinned, Result, Stream};

/// Number of bytes that are staged in page-locked memory at once.
const BATCH_BYTES: usize = 4 << 20;

/// Page-locked memory of a plan, kept for its next execution.
pub(crate) type Staging = Mutex<Option<Pinned<u8>>>;

/// Contiguous bytes of a slot.
struct Run {
    slot: usize,
    bytes: Range<usize>,
}

/// Copies the bytes that the program reads to the host, runs the program there, and copies back exactly the bytes that
/// it wrote. Other code may use the bytes in between at the same time. Short runs are staged together in page-locked
/// memory. Blocks until the program has run.
pub(crate) fn execute(
    program: &RegionProgram,
    stream: &Stream,
    slots: &[RawSlot<'_>],
    staging: &Staging,
) -> Result<()> {
    let is_bound = |slot: usize| slots[slot].memory.is_some();
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let copies = program.phases().iter().flat_map(|phase| phase.copies());
    for copy in copies.filter(|copy| copy.is_among(is_bound)) {
        let (source, destination) = copy.footprints();
        add(&mut reads, copy.source_slot(), &source);
        add(&mut writes, copy.destination_slot(), &destination);
        if copy.combine() != Combine::Replace {
            add(&mut reads, copy.destination_slot(), &destination);
        }
    }
    for items in program.phases().iter().flat_map(|phase| phase.items()) {
        if !items.writes_among(is_bound) {
            continue;
        }
        let Ok(()) = items.for_each_read(|slot, source| {
            if is_bound(slot) {
                add(&mut reads, slot, &source);
            }
            Ok::<_, Infallible>(())
        });
        let Ok(()) = items.for_each_target(|target| {
            add(&mut writes, items.destination().slot, &target);
            if items.combine() != Combine::Replace {
                add(&mut reads, items.destination().slot, &target);
            }
            Ok::<_, Infallible>(())
        });
    }
    let (reads, writes) = (joined(reads), joined(writes));
    // Words of 16 bytes, because the program requires the alignment of its widest element.
    let mut copies: Vec<Vec<u128>> = vec![Vec::new(); slots.len()];
    for run in reads.iter().chain(&writes) {
        if copies[run.slot].is_empty() {
            copies[run.slot] = zeroed(program.slots()[run.slot].bytes)?;
        }
    }
    let mut through = Through { stream, slots, pinned: None };
    through.pinned = lock(staging).take();
    through.read(&reads, &mut copies)?;
    let host: Vec<HostSlot> = copies
        .iter_mut()
        .map(|copy| match copy.is_empty() {
            false => HostSlot { base: copy.as_mut_ptr().cast(), len: copy.len() * 16 },
            true => HostSlot::ABSENT,
        })
        .collect();
    // SAFETY: each slot with memory is bound to its own buffer, which is long enough and aligned.
    unsafe { program.run(&host) };
    through.write(&writes, &copies)?;
    *lock(staging) = through.pinned;
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of memory that is bound fit usize"
)]
fn add(runs: &mut Vec<Run>, slot: usize, footprint: &Footprint) {
    let Ok(()) = footprint.for_each_run(|start, end| {
        runs.push(Run { slot, bytes: start as usize..end as usize });
        Ok::<_, Infallible>(())
    });
}

/// The same bytes, each once and in order.
fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| (run.slot, run.bytes.start));
    runs.dedup_by(|next, kept| {
        let meets = next.slot == kept.slot && next.bytes.start <= kept.bytes.end;
        if meets {
            kept.bytes.end = kept.bytes.end.max(next.bytes.end);
        }
        meets
    });
    runs
}

/// Splits runs into batches. Each batch is a single run or fits into page-locked memory.
fn batches(runs: &[Run]) -> impl Iterator<Item = &[Run]> {
    let mut left = runs;
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fits = |run: &&Run| {
            bytes = bytes.saturating_add(run.bytes.len());
            bytes <= BATCH_BYTES
        };
        let many = left.iter().take_while(fits).count();
        let (batch, rest) = left.split_at(many.max(1).min(left.len()));
        left = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

fn zeroed(bytes: usize) -> Result<Vec<u128>> {
    bytemuck::try_zeroed_vec(bytes.div_ceil(16)).map_err(|()| {
        Error::new(ErrorKind::OutOfMemory, "execute", format!("{bytes} bytes on the host"))
    })
}

/// Transfers bytes between the memory of slots and their copies on the host.
struct Through<'a> {
    stream: &'a Stream,
    slots: &'a [RawSlot<'a>],
    pinned: Option<Pinned<u8>>,
}

impl Through<'_> {
    /// Fills runs of the copies. Blocks until they are filled.
    fn read(&mut self, runs: &[Run], copies: &mut [Vec<u128>]) -> Result<()> {
        let Self { stream, slots, pinned } = self;
        let failures = stream.core.failures();
        for batch in batches(runs) {
            let bytes = batch.iter().map(|run| run.bytes.len()).sum();
            if let [run] = batch {
                let to = &mut bytemuck::cast_slice_mut(&mut copies[run.slot])[run.bytes.clone()];
                let copied = each(batch, slots, |memory, _| {
                    // SAFETY: the slot is at least as long as the program uses.
                    unsafe { stream.core.raw.memory_copy_from(memory, to) }
                });
                stream.core.copied_from(copied)?;
            } else {
                let pinned = room(pinned, stream, bytes)?;
                pinned.block().enqueue(stream, true, true, |raw| {
                    each(batch, slots, |memory, at| {
                        // SAFETY: as above; the batch fits, and `Pinned` waits for its uses.
                        unsafe {
                            stream.core.raw.pinned_copy_from(
                                memory,
                                PinnedAt::new(raw, at.start),
                                at.len(),
                            )
                        }
                    })
                })?;
                // Only the stream reports whether a copy has failed.
                stream.core.synchronize()?;
                let mut packed = pinned.as_slice()?;
                for run in batch {
                    let now = packed.split_off(..run.bytes.len()).unwrap_or_default();
                    let to: &mut [u8] = bytemuck::cast_slice_mut(&mut copies[run.slot]);
                    to[run.bytes.clone()].copy_from_slice(now);
                }
            }
            stream.device().counts().copied_from_device(bytes);
        }
        stream.core.check_since("execute", failures)
    }

    /// Copies runs of the host copies back to the device.
    fn write(&mut self, runs: &[Run], copies: &[Vec<u128>]) -> Result<()> {
        let Self { stream, slots, pinned } = self;
        let failures = stream.core.failures();
        let of = |run: &Run| &bytemuck::cast_slice(&copies[run.slot])[run.bytes.clone()];
        for batch in batches(runs) {
            let bytes = batch.iter().map(|run| run.bytes.len()).sum();
            if let [run] = batch {
                let copied = each(batch, slots, |memory, _| {
                    // SAFETY: the slot is at least as long as the program uses.
                    unsafe { stream.core.raw.memory_copy_to(memory, of(run)) }
                });
                stream.core.counted(copied)?;
            } else {
                let pinned = room(pinned, stream, bytes)?;
                let mut packed = pinned.as_mut_slice()?;
                for run in batch {
                    let now = packed.split_off_mut(..run.bytes.len()).unwrap_or_default();
                    now.copy_from_slice(of(run));
                }
                pinned.block().enqueue(stream, false, true, |raw| {
                    each(batch, slots, |memory, at| {
                        // SAFETY: as above; the batch fits, and `Pinned` waits for its uses.
                        unsafe {
                            stream.core.raw.pinned_copy_to(
                                PinnedAt::new(raw, at.start),
                                memory,
                                at.len(),
                            )
                        }
                    })
                })?;
            }
            stream.device().counts().copied_to_device(bytes);
        }
        stream.core.check_since("execute", failures)
    }
}

/// Calls `copy` for each run, with its place in memory and its range in the batch.
fn each(
    batch: &[Run],
    slots: &[RawSlot<'_>],
    mut copy: impl FnMut(MemoryAt<'_>, Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    for run in batch {
        let RawSlot { memory, offset, .. } = slots[run.slot];
        let end = at + run.bytes.len();
        if let Some(memory) = memory {
            copy(MemoryAt::new(memory, offset + run.bytes.start), at..end)?;
        }
        at = end;
    }
    Ok(())
}

/// Returns page-locked memory for at least this many bytes.
fn room<'a>(
    pinned: &'a mut Option<Pinned<u8>>,
    stream: &Stream,
    bytes: usize,
) -> Result<&'a mut Pinned<u8>> {
    let known = pinned.take().filter(|pinned| pinned.len() >= bytes);
    Ok(match known {
        Some(known) => pinned.insert(known),
        None => pinned.insert(stream.device().pinned_allocate(bytes)?),
    })
}
