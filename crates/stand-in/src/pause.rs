//! Pauses before work, so that unordered work runs in many orders.

use std::thread;
use std::time::Duration;

/// Random numbers (SplitMix64).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// Sleeps at random: mostly not at all, and long in one of sixteen calls.
    pub(crate) fn pause(&mut self) {
        let bits = self.next();
        let most = match bits % 16 {
            0 => 1500,
            1..=3 => 100,
            _ => return,
        };
        thread::sleep(Duration::from_micros(bits >> 32 & 0xffff) * most / 0xffff);
    }
}
