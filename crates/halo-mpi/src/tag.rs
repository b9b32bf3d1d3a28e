//! MPI tags: the tag of a message in the low bits, and as much of its message ID as fits above it.

use std::ffi::c_int;

/// The largest tag of a message. Every MPI supports it.
pub(crate) const MAX_TAG: u32 = 32767;
const TAG_BITS: u32 = 15;

/// The division of MPI tags into tag and digest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    digest_bits: u32,
}

/// The part of a message ID that fits: equal for equal IDs, and rarely equal for different IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u32);

impl Tags {
    /// For an MPI with this largest tag.
    pub(crate) fn up_to(limit: u32) -> Self {
        let tags = limit.min(c_int::MAX.unsigned_abs()) + 1;
        Self { digest_bits: (tags >> TAG_BITS).checked_ilog2().unwrap_or(0) }
    }

    pub(crate) fn digest(self, message_id: u64) -> Digest {
        // Fibonacci hashing: consecutive numbers differ in their highest bits. The digest of ID 0 is 0.
        let spread = message_id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let highest = spread.checked_shr(u64::BITS - self.digest_bits).unwrap_or(0);
        #[expect(clippy::cast_possible_truncation, reason = "16 bits are left at most")]
        Digest(highest as u32)
    }

    /// The MPI tag of a message.
    pub(crate) fn join(self, tag: u32, message_id: u64) -> c_int {
        (tag | self.digest(message_id).0 << TAG_BITS).cast_signed()
    }

    /// The parts of an MPI tag.
    pub(crate) fn split(self, tag: c_int) -> (u32, Digest) {
        let tag = tag.cast_unsigned();
        (tag & MAX_TAG, Digest(tag >> TAG_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_message_ids_fit_what_mpi_has() {
        // The minimum; some libraries; Open MPI; a value that no library has.
        for (limit, bits) in
            [(32767, 0), (65534, 0), (65535, 1), (1 << 20, 5), (0x7FFF_FFFF, 16), (u32::MAX, 16)]
        {
            let tags = Tags::up_to(limit);
            assert_eq!(tags.digest_bits, bits, "{limit}");
            for tag in [0, 1, 77, MAX_TAG] {
                for message_id in [0, 1, 2, 1 << 32, u64::MAX] {
                    let joined = tags.join(tag, message_id);
                    assert!((0..=i64::from(limit)).contains(&joined.into()));
                    assert_eq!(tags.split(joined), (tag, tags.digest(message_id)));
                }
            }
            assert_eq!(tags.digest(0), Digest(0));
        }
    }

    /// The message IDs of successive exchange objects, of their exchanges and of their messages.
    #[test]
    fn message_ids_near_each_other_have_unlike_digests() {
        let tags = Tags::up_to(i32::MAX.cast_unsigned());
        let near = (1..8_u64).flat_map(|serial| (1..64).map(move |number| (serial, number)));
        let ids = near.flat_map(|(serial, number)| {
            (0..4_u64).map(move |part| (serial << 32 | number) ^ part << 48)
        });
        let mut digests: Vec<u32> = ids.map(|message_id| tags.digest(message_id).0).collect();
        let all = digests.len();
        digests.sort_unstable();
        digests.dedup();
        assert!(digests.len() * 100 > all * 98, "{} of {all}", digests.len());
    }
}
