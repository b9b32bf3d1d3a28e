//! What a tag of MPI says: the tag of a message, and above it as much of its mark as there is room for.

use std::ffi::c_int;

/// The largest tag of a message: every MPI has so many.
pub(crate) const MAX_TAG: u32 = 32767;
const TAG_BITS: u32 = 15;

/// How an MPI's tags are divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    mark_bits: u32,
}

/// What is left of a mark: equal for equal marks, and hardly ever for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u32);

impl Tags {
    /// Of an MPI whose largest tag this is.
    pub(crate) fn up_to(limit: u32) -> Self {
        let tags = limit.min(c_int::MAX.unsigned_abs()) + 1;
        Self { mark_bits: (tags >> TAG_BITS).checked_ilog2().unwrap_or(0) }
    }

    pub(crate) fn digest(self, mark: u64) -> Digest {
        // Fibonacci hashing: numbers that follow each other are far apart in the highest bits. Without a mark it is 0.
        let spread = mark.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let highest = spread.checked_shr(u64::BITS - self.mark_bits).unwrap_or(0);
        #[expect(clippy::cast_possible_truncation, reason = "16 bits are left at most")]
        Digest(highest as u32)
    }

    /// The tag of MPI for a message.
    pub(crate) fn join(self, tag: u32, mark: u64) -> c_int {
        (tag | self.digest(mark).0 << TAG_BITS).cast_signed()
    }

    /// What a tag of MPI says.
    pub(crate) fn split(self, tag: c_int) -> (u32, Digest) {
        let tag = tag.cast_unsigned();
        (tag & MAX_TAG, Digest(tag >> TAG_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_marks_fit_what_mpi_has() {
        // At least; some libraries; Open MPI; what none has.
        for (limit, bits) in
            [(32767, 0), (65534, 0), (65535, 1), (1 << 20, 5), (0x7FFF_FFFF, 16), (u32::MAX, 16)]
        {
            let tags = Tags::up_to(limit);
            assert_eq!(tags.mark_bits, bits, "{limit}");
            for tag in [0, 1, 77, MAX_TAG] {
                for mark in [0, 1, 2, 1 << 32, u64::MAX] {
                    let joined = tags.join(tag, mark);
                    assert!((0..=i64::from(limit)).contains(&joined.into()));
                    assert_eq!(tags.split(joined), (tag, tags.digest(mark)));
                }
            }
            assert_eq!(tags.digest(0), Digest(0));
        }
    }

    /// Those of exchanges made one after the other, and of their exchanges and messages.
    #[test]
    fn marks_near_each_other_have_unlike_digests() {
        let tags = Tags::up_to(i32::MAX.cast_unsigned());
        let near = (1..8_u64).flat_map(|serial| (1..64).map(move |number| (serial, number)));
        let marks = near.flat_map(|(serial, number)| {
            (0..4_u64).map(move |part| (serial << 32 | number) ^ part << 48)
        });
        let mut digests: Vec<u32> = marks.map(|mark| tags.digest(mark).0).collect();
        let all = digests.len();
        digests.sort_unstable();
        digests.dedup();
        assert!(digests.len() * 100 > all * 98, "{} of {all}", digests.len());
    }
}
