//! Compares two ways of making the same small call.

use std::time::Instant;

use crate::turns::median;

/// The median nanoseconds per call of `ours` and of `rival`, called in turns in batches.
pub fn nanoseconds(
    batch: u32,
    rounds: usize,
    mut ours: impl FnMut(),
    mut rival: impl FnMut(),
) -> (f64, f64) {
    let time = |call: &mut dyn FnMut(u32)| {
        let start = Instant::now();
        call(batch);
        start.elapsed().as_secs_f64() * 1e9 / f64::from(batch)
    };
    let mut ours = |batch: u32| (0..batch).for_each(|_| ours());
    let mut rival = |batch: u32| (0..batch).for_each(|_| rival());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        a.push(time(&mut ours));
        b.push(time(&mut rival));
    }
    (median(&mut a), median(&mut b))
}
