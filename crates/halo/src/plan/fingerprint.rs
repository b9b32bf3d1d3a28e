//! Hashes that are the same on every rank, independent of machine and compiler.

use crate::Symmetry;

/// A 128-bit hash of its input: FNV-1a, and a finaliser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    const PRIME: u128 = (1 << 88) + 0x13b;

    pub(crate) const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(Self::PRIME);
        }
    }

    pub(crate) fn number(&mut self, number: usize) {
        self.bytes(&(number as u64).to_le_bytes());
    }

    /// Adds text, separated from the text that follows.
    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len());
        self.bytes(text.as_bytes());
    }

    pub(crate) fn symmetry(&mut self, symmetry: Symmetry) {
        let [(x, x_against), (y, y_against)] = [symmetry.axis(0), symmetry.axis(1)];
        [x, usize::from(x_against), y, usize::from(y_against)]
            .into_iter()
            .for_each(|n| self.number(n));
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
const fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fnv_1a() {
        let mut print = Fingerprint::new();
        print.bytes(b"a");
        assert_eq!(print.0, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
