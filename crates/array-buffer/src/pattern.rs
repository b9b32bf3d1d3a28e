//! A pattern that a complete write overwrites: see [`ArrayBuffer::set_check_writes`](crate::ArrayBuffer).

use std::env;
use std::f64::consts::E;
use std::sync::LazyLock;

/// If this is `1`, the writes of all arrays of the process are checked.
const VARIABLE: &str = "ARRAY_BUFFER_CHECK_WRITES";

/// Whether the writes of a new array are checked.
pub(crate) fn is_default() -> bool {
    static IS_ON: LazyLock<bool> = LazyLock::new(|| env::var(VARIABLE).is_ok_and(|on| on == "1"));
    *IS_ON
}

/// A run of this many bytes of the pattern, which values have by chance once in 2⁶⁴ cases, was not written.
pub(crate) const RUN: usize = 8;

/// A pseudo-random sequence of bytes.
#[derive(Clone, Copy)]
pub(crate) struct Pattern(u64);

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Writes the sequence.
    pub(crate) fn fill(self, out: &mut [u8]) {
        // SplitMix64.
        let mut state = self.0;
        for chunk in out.chunks_mut(8) {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            chunk.copy_from_slice(&(word ^ word >> 31).to_le_bytes()[..chunk.len()]);
        }
    }

    /// The position of the first number of `size` bytes that was not written over the sequence. Numbers that hold it
    /// may do so by chance. So they count only if [`RUN`] bytes in a row hold it, or so many numbers that this happens
    /// by chance less than once in 2⁶⁴ cases.
    pub(crate) fn first_left(self, size: usize, bytes: &[u8]) -> Option<usize> {
        let mut pattern = vec![0; bytes.len()];
        self.fill(&mut pattern);
        let numbers = bytes.chunks_exact(size).zip(pattern.chunks_exact(size));
        let (mut first, mut held, mut run) = (None, 0_usize, 0);
        for (index, (is, was)) in numbers.enumerate() {
            if is != was {
                run = 0;
                continue;
            }
            run += size;
            if run >= RUN {
                return Some(index + 1 - run / size);
            }
            held += 1;
            first = first.or(Some(index));
        }
        // Chernoff's bound for `held` of these numbers, each with a chance of 256^-size.
        let expected = (bytes.len() / size) as f64 * (-8.0 * size as f64).exp2();
        let bits = held as f64 * (held as f64 / (E * expected)).log2();
        first.filter(|_| held as f64 > expected && bits >= 64.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a write left as they were, except for those that `writes` accepts by position.
    fn after(pattern: Pattern, len: usize, writes: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut bytes = vec![0; len];
        pattern.fill(&mut bytes);
        let written = bytes.iter_mut().enumerate().filter(|(at, _)| writes(*at));
        // Never the byte of the pattern.
        written.for_each(|(_, byte)| *byte = !*byte);
        bytes
    }

    #[test]
    fn eight_bytes_in_a_row_are_found_wherever_they_are() {
        let pattern = Pattern::new(7);
        for size in [1, 2, 4, 8] {
            for begin in (0..=48).step_by(size) {
                let left = begin..begin + RUN;
                let bytes = after(pattern, 56, |at| !left.contains(&at));
                assert_eq!(pattern.first_left(size, &bytes), Some(begin / size));
            }
        }
    }

    #[test]
    fn fewer_bytes_are_found_only_if_there_are_many() {
        let pattern = Pattern::new(7);
        let every = |period: usize, size: usize| move |at: usize| (at / size) % period != 1;
        assert_eq!(pattern.first_left(4, &after(pattern, 64, |at| at / 4 != 3)), None);
        assert_eq!(pattern.first_left(1, &after(pattern, 7, |_| false)), None);
        assert_eq!(pattern.first_left(4, &after(pattern, 4000, every(2, 4))), Some(1));
        assert_eq!(pattern.first_left(4, &after(pattern, 4000, every(200, 4))), Some(1));
        assert!(pattern.first_left(1, &after(pattern, 100, every(2, 1))).is_some());
        // What a complete write of random bytes has in common with the pattern.
        assert_eq!(pattern.first_left(1, &after(pattern, 1 << 20, every(256, 1))), None);
    }
}
