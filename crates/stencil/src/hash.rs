//! A number for a list of bytes or numbers.

/// A number for bytes, the same on all ranks (FNV-1a).
pub(crate) fn hash_of(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(START, step)
}

/// A number for numbers, the same on all ranks.
pub(crate) fn hash_of_numbers(numbers: impl Iterator<Item = u64>) -> u64 {
    hash_of(numbers.flat_map(u64::to_le_bytes))
}

/// A number for a text, the same on all ranks.
pub(crate) const fn hash_of_text(text: &str) -> u64 {
    let (bytes, mut at, mut hash) = (text.as_bytes(), 0, START);
    while at < bytes.len() {
        hash = step(hash, bytes[at]);
        at += 1;
    }
    hash
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

const fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3)
}
