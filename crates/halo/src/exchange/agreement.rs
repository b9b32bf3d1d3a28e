//! The one-time comparison of the ranks' plans.

use std::time::Duration;

use runtime_core::{Error, ErrorKind, Result};

use crate::communicator::Communicator;
use crate::plan::attributes::find;
use crate::plan::transfer::refuse;
use crate::{HaloOptions, HaloTransformer};

/// The properties of an exchange that ranks must agree on, as hashes that are the same on every machine: hashes of the
/// topology, of the fields, of the options that all ranks share, and of the messages.
///
/// [`HaloExchange::new`](crate::HaloExchange::new) compares the fingerprints of all ranks itself. Programs with their
/// own transport compare the fingerprints of their [transformers](crate::HaloTransformer::fingerprint) before the first
/// message.
///
/// Two fingerprints are equal if one rank made the same plan twice. To compare the plans of different ranks use
/// [`compare`](Self::compare).
///
/// ```
/// # use backend_host::HostDevice;
/// # use runtime_core::{DType, Device};
/// use halo::{Dim, FieldSpec, HaloTransformer, PlanFingerprint, Quantity, Topology};
///
/// # let device = Device::new(HostDevice::new(0))?;
/// let topology = Topology::cartesian(&[6], &[2], &[true])?;
/// let plan = |rank, width| -> halo::Result<[u8; PlanFingerprint::BYTES]> {
///     let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 3).halo(width, width)])?;
///     let fields = [Quantity::scalar(field)];
///     let halo = HaloTransformer::new(&topology, rank, &fields, &device, &Default::default())?;
///     Ok(halo.fingerprint().to_bytes())
/// };
///
/// // Your transport sends the bytes of each rank to all ranks.
/// let alike = [plan(0, 1)?, plan(1, 1)?].map(PlanFingerprint::from_bytes);
/// PlanFingerprint::compare(&alike)?;
/// let unlike = [plan(0, 1)?, plan(1, 2)?].map(PlanFingerprint::from_bytes);
/// let error = PlanFingerprint::compare(&unlike).unwrap_err();
/// assert_eq!(error.message(), "ranks [1] have other fields than rank 0");
/// # Ok::<(), halo::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanFingerprint {
    pub(crate) topology: u128,
    pub(crate) options: u128,
    /// The number of fields.
    pub(crate) count: u128,
    pub(crate) fields: u128,
    /// Summed over all ranks this is 0 if both ends of each message agree.
    pub(crate) balance: u128,
}

/// A property that differs between ranks, with the ranks that differ from rank 0.
enum Difference {
    Topology(Vec<usize>),
    Options(Vec<usize>),
    Count(Vec<usize>),
    Fields(Vec<usize>),
    Messages,
}

impl PlanFingerprint {
    /// The number of bytes of a fingerprint.
    pub const BYTES: usize = 5 * size_of::<u128>();

    /// The hashes as bytes, to send.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let places = bytes.as_chunks_mut().0;
        places.iter_mut().zip(self.numbers()).for_each(|(place, n)| *place = n.to_le_bytes());
        bytes
    }

    /// Restores a fingerprint from the result of [`to_bytes`](Self::to_bytes) on any rank.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut numbers = [0; 5];
        let places = bytes.as_chunks().0;
        numbers.iter_mut().zip(places).for_each(|(n, place)| *n = u128::from_le_bytes(*place));
        Self::from_numbers(numbers)
    }

    /// Checks that the plans of all ranks match. `ranks` holds the fingerprint of each rank, in the order of ranks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` with the first property that differs, and the ranks: the topology; the options (reach, missing
    /// corners, messages and channel); the number of fields; the fields; or the order of their dimensions in memory.
    pub fn compare(ranks: &[Self]) -> Result<()> {
        Self::difference(ranks).map_or(Ok(()), |difference| Err(difference.error(ranks)))
    }

    fn difference(ranks: &[Self]) -> Option<Difference> {
        type Part = (fn(&PlanFingerprint) -> u128, fn(Vec<usize>) -> Difference);
        const PARTS: [Part; 4] = [
            (|print| print.topology, Difference::Topology),
            (|print| print.options, Difference::Options),
            (|print| print.count, Difference::Count),
            (|print| print.fields, Difference::Fields),
        ];
        for (part, difference) in PARTS {
            let others = unlike_first(ranks, part);
            if !others.is_empty() {
                return Some(difference(others));
            }
        }
        let balance = ranks.iter().fold(0, |sum: u128, rank| sum.wrapping_add(rank.balance));
        (balance != 0).then_some(Difference::Messages)
    }

    fn numbers(&self) -> [u128; 5] {
        [self.topology, self.options, self.count, self.fields, self.balance]
    }

    fn from_numbers([topology, options, count, fields, balance]: [u128; 5]) -> Self {
        Self { topology, options, count, fields, balance }
    }
}

impl Difference {
    #[cold]
    fn error(self, ranks: &[PlanFingerprint]) -> Error {
        refuse(match self {
            Self::Topology(others) => format!("ranks {others:?} have another topology than rank 0"),
            Self::Options(others) => format!(
                "ranks {others:?} have other options than rank 0: reach, missing corners, messages or channel"
            ),
            Self::Count(others) => format!(
                "ranks {others:?} have another number of fields than rank 0, which has {}",
                ranks[0].count
            ),
            Self::Fields(others) => format!("ranks {others:?} have other fields than rank 0"),
            Self::Messages => "ranks disagree about their messages: fields differ in the order of \
                 their dimensions in memory"
                .to_owned(),
        })
    }
}

/// The ranks whose value differs from that of rank 0.
fn unlike_first<T>(ranks: &[T], part: impl Fn(&T) -> u128) -> Vec<usize> {
    (0..ranks.len()).filter(|rank| part(&ranks[*rank]) != part(&ranks[0])).collect()
}

/// The contribution of a rank.
#[derive(Debug)]
pub(crate) struct Brought<'a> {
    pub(crate) plan: PlanFingerprint,
    /// The transformer that holds the plan.
    pub(crate) transformer: &'a HaloTransformer,
    /// The device's number; 0 if no other rank can use the device.
    pub(crate) device: u64,
    /// Whether it puts stamps into its messages.
    pub(crate) stamps: bool,
    /// Whether its messages have two possible paths that must be measured.
    pub(crate) measures: bool,
}

/// The result of the comparison.
#[derive(Debug)]
pub(crate) struct Agreement {
    /// Whether all ranks have the same device.
    pub(crate) device: bool,
    /// Whether all ranks put stamps into their messages.
    pub(crate) stamps: bool,
    /// Whether the messages of all ranks have two possible paths that must be measured.
    pub(crate) measures: bool,
    /// The serial numbers that ranks gave the exchange.
    pub(crate) serials: Vec<u64>,
}

/// Compares the plans of all ranks. `own` is `None` on a rank that could not make its plan: the other ranks then get an
/// error.
///
/// Blocks until all ranks have called it. If their plans differ, it blocks again to find the difference.
pub(crate) fn agree(
    communicator: &dyn Communicator,
    own: Option<&Brought<'_>>,
    serial: u64,
    options: &HaloOptions,
) -> Result<Agreement> {
    const NUMBERS: usize = 10;
    let HaloOptions { channel, timeout, .. } = *options;
    let mut mine = [0; NUMBERS];
    if let Some(own) = own {
        let [topology, options, count, fields, balance] = own.plan.numbers();
        let [device, stamps, measures] =
            [own.device.into(), own.stamps.into(), own.measures.into()];
        mine = [1, topology, options, count, fields, balance, device, stamps, measures, 0];
    }
    mine[9] = serial.into();
    let all = numbers(communicator, channel, &mine, timeout)?;
    let ranks = all.as_chunks::<NUMBERS>().0;
    let failed: Vec<usize> = (0..ranks.len()).filter(|rank| ranks[*rank][0] == 0).collect();
    let (true, Some(own)) = (failed.is_empty(), own) else {
        return Err(refuse(format!("ranks {failed:?} could not make their plans")));
    };
    let plan = |[_, topology, options, count, fields, balance, ..]: &[u128; NUMBERS]| {
        PlanFingerprint::from_numbers([*topology, *options, *count, *fields, *balance])
    };
    let plans: Vec<PlanFingerprint> = ranks.iter().map(plan).collect();
    if let Some(difference) = PlanFingerprint::difference(&plans) {
        let attributes = own.transformer.attributes();
        let found = find(communicator, &attributes, channel, timeout)?;
        return Err(found.unwrap_or_else(|| difference.error(&plans)));
    }
    let is_common = |number: usize| {
        let first = ranks[0][number];
        first != 0 && ranks.iter().all(|rank| rank[number] == first)
    };
    #[expect(clippy::cast_possible_truncation, reason = "it was made of 64 bits")]
    let serials = ranks.iter().map(|rank| rank[9] as u64).collect();
    Ok(Agreement { device: is_common(6), stamps: is_common(7), measures: is_common(8), serials })
}

fn numbers(
    communicator: &dyn Communicator,
    channel: u32,
    mine: &[u128],
    timeout: Duration,
) -> Result<Vec<u128>> {
    let mine: Vec<u8> = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = gather(communicator, channel, &mine, timeout)?;
    Ok(all.as_chunks().0.iter().map(|bytes| u128::from_le_bytes(*bytes)).collect())
}

/// As [`Communicator::all_gather`]. Errors name the exchange that is being made.
pub(crate) fn gather(
    communicator: &dyn Communicator,
    channel: u32,
    mine: &[u8],
    timeout: Duration,
) -> Result<Vec<u8>> {
    gathered(communicator, mine, timeout).map_err(|error| {
        let rank = communicator.rank();
        error.about(format_args!("rank {rank} makes its exchange of channel {channel}"))
    })
}

/// What the transport gathers, which must be the bytes of all ranks.
fn gathered(communicator: &dyn Communicator, mine: &[u8], timeout: Duration) -> Result<Vec<u8>> {
    let all = communicator.all_gather(mine, timeout)?;
    let (ranks, each) = (communicator.size(), mine.len());
    if ranks.checked_mul(each) != Some(all.len()) {
        let message = format!("{} bytes of {ranks} ranks that bring {each} each", all.len());
        return Err(Error::new(ErrorKind::Driver, "all_gather", message));
    }
    Ok(all)
}

/// Shares with all ranks whether each rank made what it needs. A rank's own error says more than the error that others
/// failed.
///
/// Blocks until all ranks have called it.
pub(crate) fn all_made<T>(
    communicator: &dyn Communicator,
    own: Result<T>,
    timeout: Duration,
) -> Result<T> {
    let all = gathered(communicator, &[u8::from(own.is_ok())], timeout);
    let own = own?;
    let all = all?;
    let failed: Vec<usize> = (0..all.len()).filter(|rank| all[*rank] == 0).collect();
    if !failed.is_empty() {
        return Err(refuse(format!("ranks {failed:?} could not make their launches")));
    }
    Ok(own)
}
