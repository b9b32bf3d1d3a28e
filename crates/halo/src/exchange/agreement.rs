//! The agreement of the ranks when they make an exchange: they compare their plans, and find the first difference.

use std::time::{Duration, Instant};

use runtime_core::{Device, Error, ErrorKind, Result, bytemuck};

use crate::communicator::{Communicator, code, deadline, kind_of};
use crate::engine::Engine;
use crate::engine::direct::DirectRoute;
use crate::engine::halo::HaloSource;
use crate::options::Settings;
use crate::plan::attributes::Attribute;
use crate::plan::fingerprint::{Hasher, PlanFingerprint};
use crate::plan::transfer::refuse;

/// This rank among those that make an exchange, with the numbers that the communicator gave at the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranks<'a> {
    pub(super) communicator: &'a dyn Communicator,
    pub(super) rank: usize,
    pub(super) size: usize,
}

impl Ranks<'_> {
    /// As [`Communicator::all_gather`]. The gathered bytes are those of all ranks.
    pub(super) fn gather(&self, mine: &[u8], timeout: Duration) -> Result<Vec<u8>> {
        let all = self.communicator.all_gather(mine, timeout)?;
        let (ranks, each) = (self.size, mine.len());
        if ranks.checked_mul(each) != Some(all.len()) {
            let message =
                format!("{} bytes of {ranks} ranks that contribute {each} each", all.len());
            return Err(Error::new(ErrorKind::Driver, "all_gather", message));
        }
        Ok(all)
    }

    /// Checks that the communicator still gives these numbers.
    pub(super) fn check(&self) -> Result<()> {
        let Self { communicator, rank, size } = self;
        let (new_rank, new_size) = (communicator.rank(), communicator.size());
        if (new_rank, new_size) != (*rank, *size) {
            let message =
                format!("rank {rank} of {size} now calls itself rank {new_rank} of {new_size}");
            return Err(Error::new(ErrorKind::Driver, "halo_exchange", message));
        }
        Ok(())
    }
}

/// The contribution of a rank.
#[derive(Debug)]
pub(super) struct Contribution<'a> {
    /// The engine that holds the plan.
    pub(super) engine: &'a Engine,
    /// The device's number; 0 if no other rank can use the device.
    pub(super) device: u64,
    /// Whether its messages have two possible paths that must be measured.
    pub(super) measures: bool,
}

/// The result of the comparison.
#[derive(Debug)]
pub(super) struct Agreement {
    /// Whether all ranks have the same device.
    pub(super) same_device: bool,
    /// Whether all ranks put stamps into their messages.
    pub(super) stamps: bool,
    /// Whether the messages of all ranks have two possible paths that must be measured.
    pub(super) measures: bool,
    /// The serial numbers that ranks gave the exchange.
    pub(super) serials: Vec<u64>,
}

/// Compares the plans of all ranks. `own` is `None` on a rank that could not make its plan: the other ranks then get an
/// error.
///
/// Blocks until all ranks have called it. If their plans differ, it blocks again to find the difference.
pub(super) fn agree(
    ranks: Ranks<'_>,
    own: Option<Contribution<'_>>,
    serial: u64,
    settings: &Settings,
) -> Result<Agreement> {
    const NUMBERS: usize = 11;
    let Settings { channel, timeout, .. } = *settings;
    let mut mine = [0; NUMBERS];
    mine[0] = serial.into();
    if let Some(Contribution { engine, device, measures }) = own {
        mine[1] = 1;
        mine[2] = device.into();
        mine[3] = engine.stamps().into();
        mine[4] = measures.into();
        mine[5..].copy_from_slice(&engine.fingerprint().0);
    }
    let mine: Vec<u8> = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = gather(ranks, channel, &mine, timeout)?;
    let all: Vec<u128> =
        all.as_chunks().0.iter().map(|bytes| u128::from_le_bytes(*bytes)).collect();
    let all = all.as_chunks::<NUMBERS>().0;
    let failed: Vec<usize> = (0..all.len()).filter(|rank| all[*rank][1] == 0).collect();
    let (true, Some(own)) = (failed.is_empty(), own) else {
        return Err(refuse(format!("ranks {failed:?} could not make their plans")));
    };
    let plans: Vec<PlanFingerprint> =
        all.iter().map(|[_, _, _, _, _, plan @ ..]| PlanFingerprint(*plan)).collect();
    if let Err(difference) = PlanFingerprint::compare(&plans) {
        let attributes = own.engine.attributes().into_all();
        let found = find(ranks, &attributes, channel, timeout)?;
        return Err(found.unwrap_or_else(|| own.engine.unexplained(difference)));
    }
    let is_common = |number: usize| {
        let first = all[0][number];
        first != 0 && all.iter().all(|rank| rank[number] == first)
    };
    #[expect(clippy::cast_possible_truncation, reason = "it was made of 64 bits")]
    let serials = all.iter().map(|rank| rank[0] as u64).collect();
    let [same_device, stamps, measures] = [2, 3, 4].map(is_common);
    Ok(Agreement { same_device, stamps, measures, serials })
}

/// The most bytes of an attribute that ranks show each other; longer ones are cut.
const MAX_ATTRIBUTE_BYTES: usize = 1 << 16;

/// Returns the error for ranks whose attributes differ, which names the first that differs. Returns `None` if none
/// differs. All ranks call this together.
///
/// Blocks until all ranks have called it, about log2 of the number of attributes times.
#[cold]
pub(super) fn find(
    ranks: Ranks<'_>,
    own: &[Attribute],
    channel: u32,
    timeout: Duration,
) -> Result<Option<Error>> {
    // One time limit for all gathers: their number depends on what other ranks say.
    let until = deadline(timeout);
    let left = || until.saturating_duration_since(Instant::now());
    let collect = |mine: &[u8]| gather(ranks, channel, mine, left());
    let numbers = |own: usize| -> Result<Vec<usize>> {
        let all = collect(&(own as u64).to_le_bytes())?;
        let numbers = all.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        Ok(numbers.map(|number| usize::try_from(number).unwrap_or(usize::MAX)).collect())
    };
    // `hashes[n]` is the hash of the first `n` attributes.
    let mut hasher = Hasher::new();
    let mut hashes = vec![hasher.value()];
    for attribute in own {
        hasher.attribute(attribute);
        hashes.push(hasher.value());
    }
    let agree_on = |count: usize| -> Result<bool> {
        let all = collect(&hashes[count.min(own.len())].to_le_bytes())?;
        let all = all.as_chunks::<{ size_of::<u128>() }>().0;
        Ok(all.iter().all(|hash| *hash == all[0]))
    };
    let (mut same, mut different) = (0, numbers(own.len())?.into_iter().max().unwrap_or(0));
    if agree_on(different)? {
        return Ok(None);
    }
    while different - same > 1 {
        let middle = same + (different - same) / 2;
        *if agree_on(middle)? { &mut same } else { &mut different } = middle;
    }
    let text =
        own.get(same).map_or(String::new(), |Attribute { what, value }| format!("{what}\n{value}"));
    let mut padded = text.into_bytes();
    padded.truncate(MAX_ATTRIBUTE_BYTES);
    let longest = numbers(padded.len())?.into_iter().max().unwrap_or(0);
    if longest > MAX_ATTRIBUTE_BYTES {
        let message = format!(
            "a rank gave {longest} for the bytes of an attribute, limit {MAX_ATTRIBUTE_BYTES}"
        );
        return Err(Error::new(ErrorKind::Driver, "all_gather", message));
    }
    padded.resize(longest, 0);
    let all = collect(&padded)?;
    let all: Vec<String> = all
        .chunks(longest.max(1))
        .map(|bytes| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned())
        .collect();
    let others: Vec<usize> = (0..all.len()).filter(|rank| all[*rank] != all[0]).collect();
    let split = |rank: usize| all[rank].split_once('\n').unwrap_or(("attribute", "none"));
    let Some(&other) = others.first() else {
        let (what, limit) = (split(0).0, MAX_ATTRIBUTE_BYTES);
        return Ok(Some(refuse(format!("ranks have different {what} beyond {limit} bytes"))));
    };
    let ((what, first), (_, value)) = (split(0), split(other));
    Ok(Some(refuse(format!(
        "ranks {others:?} have another {what} than rank 0: {value} on rank {other}, {first} on rank 0"
    ))))
}

/// Makes the copies from the fields of other ranks, if all ranks can. All ranks call this together.
///
/// Blocks until all ranks have called it.
pub(super) fn direct_route(
    ranks: Ranks<'_>,
    halo: &HaloSource,
    device: &Device,
    settings: &Settings,
) -> Result<Option<DirectRoute>> {
    let Settings { channel, timeout, .. } = *settings;
    let all = gather(ranks, channel, bytemuck::cast_slice(&halo.placements()), timeout)?;
    let own = halo.direct_route(device, &all);
    let all = gather(ranks, channel, &[u8::from(own.is_ok())], timeout)?;
    Ok(own.ok().filter(|_| !all.contains(&0)))
}

/// As [`Ranks::gather`]. Errors name the exchange that is being made.
fn gather(ranks: Ranks<'_>, channel: u32, mine: &[u8], timeout: Duration) -> Result<Vec<u8>> {
    ranks.gather(mine, timeout).map_err(|error| {
        error.about(format_args!("rank {} makes its exchange of channel {channel}", ranks.rank))
    })
}

/// Shares with all ranks whether each rank made what it needs. A rank's own error says more than the error that others
/// failed.
///
/// Blocks until all ranks have called it.
pub(super) fn all_made<T>(ranks: Ranks<'_>, own: Result<T>, timeout: Duration) -> Result<T> {
    let all = ranks.gather(&[u8::from(own.is_ok())], timeout);
    let own = own?;
    let all = all?;
    let failed: Vec<usize> = (0..all.len()).filter(|rank| all[*rank] == 0).collect();
    if !failed.is_empty() {
        return Err(refuse(format!("ranks {failed:?} could not make their launches")));
    }
    Ok(own)
}

/// Shares numbers of each rank with all ranks. If a rank has an error instead, all ranks get it: the ranks without an
/// error get that of the lowest rank.
///
/// Blocks until all ranks have called it, and once more if a rank has an error.
pub(super) fn share<T, const NUMBERS: usize>(
    ranks: Ranks<'_>,
    own: Result<(T, [u64; NUMBERS])>,
    timeout: Duration,
) -> Result<(T, Vec<[u64; NUMBERS]>)> {
    let (state, text) = match &own {
        Ok(_) => (0, ""),
        Err(error) => (1 + code(error.kind()) as u64, error.message()),
    };
    let mut text = text.as_bytes().to_vec();
    text.truncate(MAX_ATTRIBUTE_BYTES);
    let numbers = own.as_ref().map_or([0; NUMBERS], |(_, numbers)| *numbers);
    let mine = [state, text.len() as u64].into_iter().chain(numbers);
    let mine: Vec<u8> = mine.flat_map(u64::to_le_bytes).collect();
    let all = ranks.gather(&mine, timeout);
    let all = match (all, &own) {
        (Ok(all), _) => words(&all),
        (Err(_), Err(error)) => return Err(error.clone()),
        (Err(error), Ok(_)) => return Err(error),
    };
    let each = 2 + NUMBERS;
    let Some(failed) = all.chunks_exact(each).position(|rank| rank[0] != 0) else {
        let numbers = |rank: &[u64]| std::array::from_fn(|number| rank[2 + number]);
        return own.map(|(own, _)| (own, all.chunks_exact(each).map(numbers).collect()));
    };
    let longest = all.chunks_exact(each).map(|rank| rank[1]).max().unwrap_or(0);
    let padded = usize::try_from(longest).ok().filter(|longest| *longest <= MAX_ATTRIBUTE_BYTES);
    let text = match padded {
        None => {
            let message = format!(
                "a rank gave {longest} for the bytes of an error, limit {MAX_ATTRIBUTE_BYTES}"
            );
            Err(Error::new(ErrorKind::Driver, "all_gather", message))
        }
        Some(longest) => {
            text.resize(longest, 0);
            ranks.gather(&text, timeout).map(|all| {
                let text = &all[failed * longest..][..longest];
                String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()
            })
        }
    };
    let kind = usize::try_from(all[failed * each] - 1).map_or(ErrorKind::Driver, kind_of);
    match own {
        Ok(_) => Err(Error::new(kind, "forest", text?)),
        Err(error) => Err(error),
    }
}

/// The numbers in gathered bytes.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}
