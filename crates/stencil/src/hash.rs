//! A number for a list of numbers.

/// A number for numbers, the same on all ranks (FNV-1a). Numbers beyond a byte do not reach its lower bits.
pub(crate) fn hash_of(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(START, step)
}

/// A number for numbers of any size, the same on all ranks: of their bytes.
pub(crate) fn hash_of_wide(parts: impl Iterator<Item = u64>) -> u64 {
    hash_of(parts.flat_map(u64::to_le_bytes).map(u64::from))
}

/// A number for a text, the same on all ranks.
pub(crate) const fn hash_of_text(text: &str) -> u64 {
    let (bytes, mut at, mut hash) = (text.as_bytes(), 0, START);
    while at < bytes.len() {
        hash = step(hash, bytes[at] as u64);
        at += 1;
    }
    hash
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

const fn step(hash: u64, part: u64) -> u64 {
    (hash ^ part).wrapping_mul(0x0100_0000_01b3)
}
