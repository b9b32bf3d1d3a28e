//! Ranks compare their plans, once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runtime_core::Result;

use crate::communicator::Communicator;
use crate::transfer::refuse;

/// What ranks found out about each other.
#[derive(Debug)]
pub(crate) struct Agreement {
    /// Whether they have one device.
    pub(crate) device: bool,
    /// Whether all put marks into their messages.
    pub(crate) stamps: bool,
    /// Whether messages of all have two ways, of which none was chosen.
    pub(crate) measures: bool,
    /// A number of each rank for this agreement, at least 1: larger than those of its process before.
    pub(crate) serials: Vec<u64>,
}

/// Compares what ranks planned: hashes of topology and fields, and numbers whose sum over all ranks is 0 if both ends of each
/// message agree. `None` for a rank that could not make its plan, so that the others hear of it. The last three
/// numbers are a device, 0 for none that others can have, 1 for stamps, and 1 for two ways of messages.
///
/// Blocks until all ranks are there.
pub(crate) fn agree(
    communicator: &dyn Communicator,
    own: Option<[u128; 6]>,
    timeout: Duration,
) -> Result<Agreement> {
    const NUMBERS: usize = 8;
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let mut mine = Vec::with_capacity(NUMBERS * size_of::<u128>());
    let made = u128::from(own.is_some());
    for number in [made].iter().chain(&own.unwrap_or_default()).chain([&u128::from(serial)]) {
        mine.extend(number.to_le_bytes());
    }
    let all = communicator.all_gather(&mine, timeout)?;
    let all: Vec<u128> = all
        .as_chunks::<{ size_of::<u128>() }>()
        .0
        .iter()
        .map(|bytes| u128::from_le_bytes(*bytes))
        .collect();
    let ranks: Vec<&[u128]> = all.chunks_exact(NUMBERS).collect();
    let which = |differs: &dyn Fn(&[u128]) -> bool| -> Vec<usize> {
        (0..ranks.len()).filter(|rank| differs(ranks[*rank])).collect()
    };
    let failed = which(&|rank| rank[0] == 0);
    if !failed.is_empty() {
        return Err(refuse(format!("ranks {failed:?} could not make their plans")));
    }
    for (number, what) in [(1, "topology"), (2, "set of fields or options")] {
        let others = which(&|rank| rank[number] != ranks[0][number]);
        if !others.is_empty() {
            return Err(refuse(format!("ranks {others:?} have another {what} than rank 0")));
        }
    }
    if ranks.iter().fold(0, |sum: u128, rank| sum.wrapping_add(rank[3])) != 0 {
        let message = "ranks disagree about their messages: fields differ in the order of their dimensions in memory";
        return Err(refuse(message.to_owned()));
    }
    let is_common = |number: usize| {
        let first = ranks[0][number];
        first != 0 && ranks.iter().all(|rank| rank[number] == first)
    };
    #[expect(clippy::cast_possible_truncation, reason = "it was made of 64 bits")]
    let serials = ranks.iter().map(|rank| rank[7] as u64).collect();
    Ok(Agreement { device: is_common(4), stamps: is_common(5), measures: is_common(6), serials })
}

/// Tells all ranks whether each of them made what it needs. Its own failure tells a rank more than that others failed.
///
/// Blocks until all ranks are there.
pub(crate) fn all_made<T>(
    communicator: &dyn Communicator,
    own: Result<T>,
    timeout: Duration,
) -> Result<T> {
    let all = communicator.all_gather(&[u8::from(own.is_ok())], timeout);
    let own = own?;
    let all = all?;
    let failed: Vec<usize> = (0..all.len()).filter(|rank| all[*rank] == 0).collect();
    if !failed.is_empty() {
        return Err(refuse(format!("ranks {failed:?} could not make their launches")));
    }
    Ok(own)
}
