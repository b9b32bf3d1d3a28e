//! Ranks compare their plans, once.

use std::time::Duration;

use runtime_core::Result;

use crate::communicator::Communicator;
use crate::transfer::refuse;

/// What all ranks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    /// Their device.
    pub(crate) device: bool,
    /// That they put the number of the exchange into all messages.
    pub(crate) stamps: bool,
    /// That their messages have two ways, of which none was chosen.
    pub(crate) measures: bool,
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
) -> Result<Common> {
    const NUMBERS: usize = 7;
    let numbers = own.unwrap_or_default();
    let mine: Vec<u8> = [u128::from(own.is_some())]
        .iter()
        .chain(&numbers)
        .flat_map(|number| number.to_le_bytes())
        .collect();
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
    Ok(Common { device: is_common(4), stamps: is_common(5), measures: is_common(6) })
}
