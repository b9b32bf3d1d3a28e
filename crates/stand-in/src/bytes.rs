//! Bytes that several streams and kernels may touch at once.
//!
//! Unordered work on the same bytes leaves unspecified values, but has no other effect. Bytes of devices are therefore
//! stored in words, which are always accessed atomically and as a whole: parts of a word are replaced by compare and
//! exchange. Memory that the host can address too is accessed by atomics that touch only the intended bytes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::host::Host;

/// The bytes that are copied at once.
const BLOCK: usize = 4096;

/// The bytes of one allocation. Devices and hosts are little-endian.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Memory that the host cannot access.
    Device(Box<[AtomicU64]>),
    /// Memory that the host can access.
    Host(Host),
}

impl Bytes {
    /// Device memory, filled with a byte.
    pub(crate) fn device(len: usize, fill: u8) -> Self {
        let word = u64::from_le_bytes([fill; 8]);
        Self::Device((0..len.div_ceil(8)).map(|_| AtomicU64::new(word)).collect())
    }

    pub(crate) fn read(&self, mut at: usize, mut into: &mut [u8]) {
        while !into.is_empty() {
            let width = self.width(at, into.len());
            let (piece, rest) = into.split_at_mut(width);
            piece.copy_from_slice(&self.load(at, width).to_le_bytes()[..width]);
            (at, into) = (at + width, rest);
        }
    }

    pub(crate) fn write(&self, mut at: usize, mut from: &[u8]) {
        while !from.is_empty() {
            let width = self.width(at, from.len());
            let (piece, rest) = from.split_at(width);
            let mut word = [0; 8];
            word[..width].copy_from_slice(piece);
            self.store(at, width, u64::from_le_bytes(word));
            (at, from) = (at + width, rest);
        }
    }

    /// Repeats a pattern, whose length is a power of two.
    pub(crate) fn fill(&self, at: usize, len: usize, pattern: &[u8]) {
        let block: Vec<u8> = pattern.iter().copied().cycle().take(BLOCK).collect();
        for done in (0..len).step_by(BLOCK) {
            self.write(at + done, &block[..BLOCK.min(len - done)]);
        }
    }

    /// Copies between ranges, in unspecified order where they overlap.
    pub(crate) fn copy(&self, at: usize, from: &Self, from_at: usize, len: usize) {
        let mut block = [0; BLOCK];
        for done in (0..len).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(len - done)];
            from.read(from_at + done, block);
            self.write(at + done, block);
        }
    }

    /// Replaces 4 or 8 aligned bytes atomically, and returns their old value.
    pub(crate) fn update(
        &self,
        at: usize,
        width: usize,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> u64 {
        let mut old = self.load(at, width);
        loop {
            match self.exchange(at, width, old, change(old) & mask(width)) {
                Ok(()) => return old,
                Err(now) => old = now,
            }
        }
    }

    /// The width of the widest aligned access at this offset, up to `most` bytes.
    fn width(&self, at: usize, most: usize) -> usize {
        let address = match self {
            Self::Device(_) => at,
            Self::Host(host) => host.address() + at,
        };
        let aligned = 1 << address.trailing_zeros().min(3);
        aligned.min(1 << most.ilog2().min(3))
    }

    fn load(&self, at: usize, width: usize) -> u64 {
        match self {
            Self::Device(words) => words[at / 8].load(Relaxed) >> shift(at) & mask(width),
            Self::Host(host) => host.load(at, width),
        }
    }

    fn store(&self, at: usize, width: usize, value: u64) {
        match self {
            Self::Device(words) if width == 8 => words[at / 8].store(value, Relaxed),
            Self::Device(_) => {
                self.update(at, width, &mut |_| value);
            }
            Self::Host(host) => host.store(at, width, value),
        }
    }

    /// Replaces the old value. If the value is another one, returns it.
    fn exchange(&self, at: usize, width: usize, old: u64, new: u64) -> Result<(), u64> {
        match self {
            Self::Device(words) => {
                let (shift, mask) = (shift(at), mask(width));
                let mut word = words[at / 8].load(Relaxed);
                loop {
                    if word >> shift & mask != old {
                        return Err(word >> shift & mask);
                    }
                    let with = word & !(mask << shift) | new << shift;
                    match words[at / 8].compare_exchange_weak(word, with, Relaxed, Relaxed) {
                        Ok(_) => return Ok(()),
                        Err(now) => word = now,
                    }
                }
            }
            Self::Host(host) => host.exchange(at, width, old, new),
        }
    }
}

fn shift(at: usize) -> usize {
    at % 8 * 8
}

fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - 8 * width)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn both(len: usize) -> [Bytes; 2] {
        let host = Bytes::Host(Host::map(len).unwrap());
        host.fill(0, len, &[0xAB]);
        [Bytes::device(len, 0xAB), host]
    }

    #[test]
    fn a_read_returns_what_was_written_at_any_offset() {
        let text: Vec<u8> = (0..100).collect();
        for bytes in both(200) {
            for (at, len) in [(0, 100), (3, 1), (5, 7), (6, 26), (16, 64), (199, 1)] {
                bytes.fill(0, 200, &[0xAB]);
                bytes.write(at, &text[..len]);
                let mut all = [0; 200];
                bytes.read(0, &mut all);
                let expected =
                    |i: usize| if (at..at + len).contains(&i) { text[i - at] } else { 0xAB };
                assert!(all.iter().enumerate().all(|(i, byte)| *byte == expected(i)), "{at} {len}");
            }
        }
    }

    #[test]
    fn copies_and_fills_keep_the_bytes_around_them() {
        let [from, to] = both(10_000);
        from.fill(8, 9_000, &[1, 2]);
        to.copy(3, &from, 7, 9_002);
        let mut all = vec![0; 10_000];
        to.read(0, &mut all);
        assert_eq!(all[..6], [0xAB, 0xAB, 0xAB, 0xAB, 1, 2]);
        assert_eq!(all[9_002..9_006], [1, 2, 0xAB, 0xAB][..]);
    }

    #[test]
    fn updates_of_two_halves_of_a_word_are_not_lost() {
        for bytes in both(8) {
            bytes.fill(0, 8, &[0]);
            thread::scope(|scope| {
                for at in [0, 4] {
                    let bytes = &bytes;
                    scope.spawn(move || {
                        for _ in 0..10_000 {
                            bytes.update(at, 4, &mut |old| old + 1);
                        }
                    });
                }
            });
            assert_eq!((bytes.load(0, 4), bytes.load(4, 4)), (10_000, 10_000));
        }
    }
}
