//! The times at which a stream does its work: at once, or after a pause that a seeded generator chooses.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use backend_support::{Queue, lock};

/// A queue whose work begins at times that the simulated timing determines.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) queue: Queue,
    pub(crate) timing: Timing,
}

/// The pause of a stream before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    Yield,
    Sleep(Duration),
}

impl Pause {
    pub(crate) fn take(self) {
        match self {
            Self::None => {}
            Self::Yield => thread::yield_now(),
            Self::Sleep(time) => thread::sleep(time),
        }
    }
}

/// The pauses of one stream. The same seeds give the same sequence.
#[derive(Debug)]
pub(crate) struct Timing {
    state: Mutex<u64>,
    longest: Duration,
}

impl Timing {
    /// Pauses of at most `longest` for stream number `stream` of device number `device`.
    pub(crate) fn new(seed: u64, device: usize, stream: u64, longest: Duration) -> Self {
        let mut state = seed;
        for part in [device as u64, stream] {
            // Mixed, so that the sequences of neighbouring seeds, devices and streams are unrelated.
            state = mix(&mut (state ^ part.wrapping_mul(0xD1B5_4A32_D192_ED03)));
        }
        Self { state: Mutex::new(state), longest }
    }

    /// Draws the next pause: usually none or a yield, sometimes a short sleep, rarely a long one.
    pub(crate) fn draw(&self) -> Pause {
        if self.longest.is_zero() {
            return Pause::None;
        }
        let mut state = lock(&self.state);
        let (kind, length) = (mix(&mut state) % 64, mix(&mut state) % 1000);
        let share = |of: Duration| Pause::Sleep(of.mul_f64(length as f64 / 1000.0));
        match kind {
            0..40 => Pause::None,
            40..54 => Pause::Yield,
            54..62 => share(self.longest / 8),
            _ => share(self.longest),
        }
    }
}

/// The next number of a `SplitMix64` sequence.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64, device: usize, stream: u64) -> Vec<Pause> {
        let timing = Timing::new(seed, device, stream, Duration::from_micros(300));
        (0..200).map(|_| timing.draw()).collect()
    }

    #[test]
    fn the_same_seed_reproduces_and_other_seeds_differ() {
        assert_eq!(draws(7, 0, 1), draws(7, 0, 1));
        let others = [draws(8, 0, 1), draws(7, 1, 1), draws(7, 0, 2)];
        assert!(others.iter().all(|other| *other != draws(7, 0, 1)));
    }

    #[test]
    fn pauses_are_mostly_short_and_never_too_long() {
        let longest = Duration::from_micros(300);
        let all = draws(1, 0, 0);
        assert!(
            all.iter().filter(|pause| matches!(pause, Pause::None | Pause::Yield)).count() > 100
        );
        let sleeps: Vec<_> = all
            .iter()
            .filter_map(|p| if let Pause::Sleep(t) = p { Some(*t) } else { None })
            .collect();
        assert!(sleeps.len() > 5 && sleeps.iter().all(|time| *time < longest));
        assert_eq!(Timing::new(1, 0, 0, Duration::ZERO).draw(), Pause::None);
    }
}
