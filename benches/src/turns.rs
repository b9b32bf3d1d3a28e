//! Times contestants in turns.

use std::time::{Duration, Instant};

/// A contestant: runs its task the given number of times and returns the seconds per run.
pub type Contestant<'a> = dyn FnMut(u32) -> f64 + 'a;

/// Returns `count` samples of each contestant in seconds, in ascending order. Each sample has enough calls to take
/// `at_least` this long. Samples of all contestants are taken in turns.
pub fn samples(
    count: usize,
    at_least: Duration,
    contestants: &mut [&mut Contestant<'_>],
) -> Vec<Vec<f64>> {
    // This also warms up their memory.
    let calls: Vec<u32> = contestants.iter_mut().map(|run| calls(at_least, run)).collect();
    let mut times = vec![Vec::with_capacity(count); calls.len()];
    for sample in 0..count {
        for place in 0..calls.len() {
            let turn = if sample % 2 == 0 { place } else { calls.len() - 1 - place };
            times[turn].push(contestants[turn](calls[turn]));
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    times
}

/// The relative distance from the median within which half of the samples lie. Samples are in ascending order.
pub(crate) fn spread(sorted: &[f64]) -> f64 {
    let (low, high) = (sorted[sorted.len() / 4], sorted[sorted.len() * 3 / 4]);
    (high - low) / 2.0 / middle(sorted)
}

/// Runs this number of calls, and returns the seconds per call.
pub fn time(calls: u32, run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        run();
    }
    start.elapsed().as_secs_f64() / f64::from(calls)
}

/// The number of calls that take at least this long.
fn calls(at_least: Duration, run: &mut Contestant<'_>) -> u32 {
    let mut calls = 1;
    run(1);
    loop {
        let elapsed = run(calls) * f64::from(calls);
        if elapsed >= at_least.as_secs_f64() {
            return calls;
        }
        let factor = at_least.as_secs_f64() / elapsed.max(1e-9);
        calls = if factor > 8.0 { calls * 8 } else { scaled(calls, factor) };
    }
}

/// More than `calls` times `factor`; the factor is limited to 8.
fn scaled(calls: u32, factor: f64) -> u32 {
    let scaled = f64::from(calls) * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and calls stay far below u32::MAX / 8"
    )]
    let whole = scaled.ceil() as u32;
    whole + 1
}

/// The median of these values, which it sorts.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    middle(values)
}

pub(crate) fn middle(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
