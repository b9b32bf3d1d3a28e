//! Hashes that are the same on every rank, independent of machine and compiler.

use runtime_core::Result;

use super::attributes::{Attribute, Attributes};
use super::transfer::refuse;

/// A 128-bit hash of its input: FNV-1a, and a finaliser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hasher(u128);

impl Hasher {
    const PRIME: u128 = (1 << 88) + 0x13b;

    pub(crate) const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(Self::PRIME);
        }
    }

    pub(crate) fn number(&mut self, number: usize) {
        self.word(number as u64);
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }

    /// Adds text, separated from the text that follows.
    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.bytes(text.as_bytes());
    }

    pub(crate) fn attribute(&mut self, Attribute { what, value }: &Attribute) {
        self.text(what);
        self.text(value);
    }

    /// The value of a list of attributes.
    fn of(attributes: &[Attribute]) -> u128 {
        let mut hash = Self::new();
        attributes.iter().for_each(|attribute| hash.attribute(attribute));
        hash.value()
    }

    /// The hash, mixed so that sums of similar hashes do not cancel.
    #[expect(clippy::cast_possible_truncation, reason = "takes the halves of a number")]
    pub(crate) const fn value(self) -> u128 {
        let high = mix((self.0 >> 64) as u64 ^ mix(self.0 as u64));
        let low = mix(self.0 as u64 ^ high);
        ((high as u128) << 64) | low as u128
    }
}

/// The finaliser of MurmurHash3: every bit of the result depends on every bit of the number.
pub(crate) const fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

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
pub struct PlanFingerprint(pub(crate) [u128; NUMBERS]);

/// The numbers of a fingerprint: hashes of the topology and of the options, the number of fields, a hash of the fields,
/// and two numbers that are 0, summed over all ranks, if both ends of each message agree: of halos and of shared
/// points.
const NUMBERS: usize = 6;
const COUNT: usize = 2;
const BALANCE: usize = 4;
const SHARED: usize = 5;
/// The number of a rank that cannot plan shared points.
const NO_PLAN: u128 = u128::MAX;

impl PlanFingerprint {
    /// The number of bytes of a fingerprint.
    pub const BYTES: usize = NUMBERS * size_of::<u128>();

    /// `shared` is `None` if the rank has no plan for shared points.
    pub(crate) fn new(
        attributes: &Attributes,
        count: usize,
        balance: u128,
        shared: Option<u128>,
    ) -> Self {
        let Attributes { topology, options, fields, .. } = attributes;
        let [topology, options, fields] = [topology, options, fields].map(|all| Hasher::of(all));
        Self([topology, options, count as u128, fields, balance, shared.unwrap_or(NO_PLAN)])
    }

    /// The hashes as bytes, to send.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let places = bytes.as_chunks_mut().0;
        places.iter_mut().zip(self.0).for_each(|(place, number)| *place = number.to_le_bytes());
        bytes
    }

    /// Restores a fingerprint from the result of [`to_bytes`](Self::to_bytes) on any rank.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let places = bytes.as_chunks().0;
        Self(std::array::from_fn(|number| u128::from_le_bytes(places[number])))
    }

    /// Checks that the plans of all ranks match. `ranks` holds the fingerprint of each rank, in the order of ranks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` with the first property that differs, and the ranks: the topology; the options (reach, missing
    /// corners, messages and channel); the number of fields; the fields; or the order of their dimensions in memory.
    pub fn compare(ranks: &[Self]) -> Result<()> {
        for number in 0..BALANCE {
            let is_other = |rank: &usize| ranks[*rank].0[number] != ranks[0].0[number];
            let others: Vec<usize> = (0..ranks.len()).filter(is_other).collect();
            if others.is_empty() {
                continue;
            }
            let what = match number {
                0 => "another topology than rank 0".to_owned(),
                1 => "other options than rank 0: reach, missing corners, messages or channel"
                    .to_owned(),
                COUNT => {
                    format!("another number of fields than rank 0, which has {}", ranks[0].0[COUNT])
                }
                _ => "other fields than rank 0".to_owned(),
            };
            return Err(refuse(format!("ranks {others:?} have {what}")));
        }
        let differs = |number: usize| {
            ranks.iter().fold(0, |sum: u128, rank| sum.wrapping_add(rank.0[number])) != 0
        };
        let can_share = ranks.iter().all(|rank| rank.0[SHARED] != NO_PLAN);
        if differs(BALANCE) || can_share && differs(SHARED) {
            let what = "fields differ in the order of their dimensions in memory";
            return Err(refuse(format!("ranks disagree about their messages: {what}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fnv_1a() {
        let mut hash = Hasher::new();
        hash.bytes(b"a");
        assert_eq!(hash.0, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
