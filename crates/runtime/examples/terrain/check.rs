//! Checks of the result that do not rely on the device, and of the data that was moved.

use std::ops::RangeInclusive;

use anyhow::{Result, ensure};
use ndarray::{Array2, ArrayD};
use runtime::halo::StagingTimes;
use runtime::ranks::Rank;
use runtime::stencil::Grid;
use runtime::{DeviceKind, Support, Traffic};

use crate::args::Args;
use crate::mirrored;
use crate::model::Run;

/// Compares the result with the `reference` and with the heights at the beginning, which are those of `tile` in this
/// range. Returns the range of heights, the change of mass and the difference from the reference, as text.
///
/// The bounds are the largest possible rounding errors. With `ε` the distance from 1 to the next number and `M` the
/// largest height, kernel and reference each compute a step to within `4 ε M`. A step is a weighted mean, which does
/// not enlarge errors, so the errors of `n` steps at most add up.
pub(crate) fn result(
    terrain: &ArrayD<f64>,
    [tile, reference]: [&Array2<f64>; 2],
    range: &RangeInclusive<f64>,
    steps: u64,
) -> Result<[String; 3]> {
    let (mut apart, mut change, mut lost) = (0.0, 0.0_f64, 0.0);
    for (at, &z) in terrain.indexed_iter() {
        let at = mirrored(tile, [at[0], at[1]]);
        let off = f64::abs(z - reference[at]);
        apart = if off > apart || off.is_nan() { off } else { apart };
        // Compensated summation: its own error must not hide a loss of mass.
        let (sum, other) = (change, z - tile[at]);
        change = sum + other;
        lost +=
            if sum.abs() >= other.abs() { (sum - change) + other } else { (other - change) + sum };
    }
    let rounding = 4.0 * f64::EPSILON * steps as f64;
    let largest = range.start().abs().max(range.end().abs());
    let change = (change + lost).abs() / (terrain.len() as f64 * largest.max(f64::MIN_POSITIVE));
    let bounded = |what, value, bound, unit| {
        // A NaN is not within any bound.
        ensure!(value <= bound, "the result is wrong: {what} is {value:e}, and may be {bound:e}");
        Ok(format!("{value:.1e}{unit} (at most {bound:.1e}{unit})"))
    };
    let bound = 2.0 * rounding * largest;
    let apart = bounded("the difference from the reference", apart, bound, " m")?;
    let change = bounded("the relative change of mass", change, rounding, "")?;
    let after = heights(terrain.iter());
    let is_within = range.contains(after.start()) && range.contains(after.end());
    ensure!(is_within, "the result is wrong: heights were {range:?} and are {after:?}");
    Ok([format!("{:.1} m to {:.1} m", after.start(), after.end()), change, apart])
}

/// From the lowest to the highest.
pub(crate) fn heights<'a>(all: impl Iterator<Item = &'a f64>) -> RangeInclusive<f64> {
    let none = (f64::INFINITY, -f64::INFINITY);
    let (low, high) = all.fold(none, |(low, high), z| (low.min(*z), high.max(*z)));
    low..=high
}

/// Checks that only the necessary data was moved. If the device works in the host's memory, that is none. Otherwise it
/// is each rank's cells, once to the device, and once back for each picture and for the result. The devices' own
/// counters must agree. All ranks call it together when they are done. Returns the totals: launches, transfers, their
/// bytes, messages between ranks, their bytes.
pub(crate) fn traffic(rank: &Rank, grid: &Grid<2>, run: &Run, args: &Args) -> Result<[u64; 5]> {
    let (id, sent) = (rank.device.id().to_string(), grid.sent());
    let (up, down) = (run.transfers.between("host", &id), run.transfers.between(&id, "host"));
    let cells: usize = grid.block().iter().map(ExactSizeIterator::len).product();
    let is_shared = rank.device.info().kind == DeviceKind::Host;
    for (direction, found, count) in [("to", up, 1), ("from", down, args.pictures() + 1)] {
        let count = if is_shared { 0 } else { count };
        let least = Traffic { count, bytes: count * (cells * size_of::<f64>()) as u64 };
        ensure!(found == least, "moved {direction} the device: {found:?}; {least:?} would do");
    }
    let sums = [up.count, up.bytes, down.count, down.bytes, sent.count, sent.bytes];
    let [ups, up, downs, down, count, bytes] = rank.sum(sums)?;
    // After the first sum, when all ranks are done with devices that they share.
    let [own, before] = [rank.device.statistics(), run.before]
        .map(|all| [all.launches, all.to_device.bytes, all.from_device.bytes]);
    let mine = |n: usize| if rank.is_first_on_device { own[n] - before[n] } else { 0 };
    let [launches, to, from] = rank.sum([mine(0), mine(1), mine(2)])?;
    // Messages pass through the host if the transport cannot transfer them from device to device. Ranks may have
    // measured the paths for them when they made the exchange, with the messages of some steps on each path.
    let more = bytes + bytes / args.steps * 2 * StagingTimes::ROUNDS as u64;
    for (direction, found, least) in [("to", to, up), ("from", from, down)] {
        // For a device that cannot copy regions, the host's copies are counted too.
        let is_right = rank.device.capabilities().region_copy == Support::Emulated
            || (least..=least + more).contains(&found);
        ensure!(is_right, "moved {direction} devices: {found} bytes; {least} would do");
    }
    Ok([launches, ups + downs, up + down, count, bytes])
}
