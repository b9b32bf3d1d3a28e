//! A number for a text or a list of numbers.

/// A number for numbers, the same on all ranks.
pub(crate) fn hash_of_numbers(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(START, |hash, number| {
        let product = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ (product >> 32)
    })
}

/// A number for a text, the same on all ranks (FNV-1a).
pub(crate) const fn hash_of_text(text: &str) -> u64 {
    let (bytes, mut at, mut hash) = (text.as_bytes(), 0, START);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

const START: u64 = 0xcbf2_9ce4_8422_2325;
