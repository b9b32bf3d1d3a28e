//! A number for a list of numbers.

/// A number for numbers, the same on all ranks (FNV-1a).
pub(crate) fn hash_of(parts: impl Iterator<Item = u64>) -> u64 {
    let step = |hash: u64, part: u64| (hash ^ part).wrapping_mul(0x0100_0000_01b3);
    parts.fold(0xcbf2_9ce4_8422_2325, step)
}
