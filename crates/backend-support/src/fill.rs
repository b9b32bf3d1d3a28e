//! Patterns for filling memory.

/// A fill pattern in the form that drivers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// One repeated byte.
    Bytes(u8),
    /// Two repeated bytes.
    Halves(u16),
    /// Four repeated bytes.
    Words(u32),
    /// Four words, repeated.
    Pattern([u32; 4]),
}

impl Fill {
    /// The simplest way to fill with a pattern of 1, 2, 4, 8 or 16 bytes.
    pub fn of(pattern: &[u8]) -> Self {
        if let [first, rest @ ..] = pattern
            && rest.iter().all(|byte| byte == first)
        {
            return Self::Bytes(*first);
        }
        if let Ok(half) = pattern.try_into() {
            return Self::Halves(u16::from_ne_bytes(half));
        }
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(pattern.chunks_exact(4).cycle()) {
            *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
        }
        if words.iter().all(|word| *word == words[0]) {
            Self::Words(words[0])
        } else {
            Self::Pattern(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_filled_in_the_simplest_way() {
        assert_eq!(Fill::of(&[7]), Fill::Bytes(7));
        assert_eq!(Fill::of(&[0; 16]), Fill::Bytes(0));
        assert_eq!(Fill::of(&[1, 2]), Fill::Halves(u16::from_ne_bytes([1, 2])));
        let [one, two] = [1.0_f32, 2.0];
        assert_eq!(Fill::of(&one.to_ne_bytes()), Fill::Words(one.to_bits()));
        let pair = [one.to_ne_bytes(), one.to_ne_bytes()].concat();
        assert_eq!(Fill::of(&pair), Fill::Words(one.to_bits()));
        let pair = [one.to_ne_bytes(), two.to_ne_bytes()].concat();
        let [a, b] = [one.to_bits(), two.to_bits()];
        assert_eq!(Fill::of(&pair), Fill::Pattern([a, b, a, b]));
    }
}
