//! Reductions: the same bits on any ranks and devices, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers are small")]

#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;

use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

use backend_sim::{Fault, Operation, SimConfig, SimDevice};
use halo::communicator::{Communicator, ThreadCommunicator};
use runtime_core::{Device, HostModule, Launch, args};
use stencil::{
    Boundary, Error, ErrorKind, Field, Grid, In, Location, Number, Result, reduction, stencils,
};

#[reduction(sum)]
fn mass(h: In<f64, 2>, area: f64) -> f64 {
    h.at(0, 0) * area
}

#[stencils]
mod model {
    use stencil::In;

    type Real = f32;
    const HALF: Real = 0.5;

    #[stencil_fn]
    fn slope(h: In<Real, 3>) -> Real {
        HALF * (h.at(1, 0, 0) - h.at(-1, 0, 0))
    }

    /// The steepest slope along the first axis.
    #[reduction(max)]
    pub(super) fn steepest(h: In<Real, 3>) -> Real {
        let mut s = slope(h);
        if s < 0.0 {
            s = -s;
        }
        s
    }

    #[reduction(sum)]
    pub(super) fn rise(h: In<Real, 3>) -> f32 {
        slope(h)
    }
}

#[reduction(min)]
fn least(value: In<f64, 2>) -> f64 {
    value.at(0, 0)
}

#[reduction(min)]
fn least_single(value: In<f32, 1>) -> f32 {
    value.at(0)
}

#[reduction(max)]
fn greatest(value: In<f64, 2>) -> f64 {
    value.at(0, 0)
}

#[reduction(max)]
fn greatest_index(value: In<f64, 2>) -> i64 {
    index(0) * extent(1) + index(1) + value.at(0, 0) as i64
}

#[reduction(sum)]
fn count(value: In<f64, 2>, above: f64) -> i32 {
    if value.at(0, 0) > above { 1 } else { 0 }
}

#[reduction(sum)]
fn many(value: In<f64, 2>, each: i32) -> i32 {
    if value.at(0, 0) == value.at(0, 0) { each } else { 0 }
}

#[reduction(max)]
fn greatest_unsigned(value: In<u32, 1>) -> u32 {
    value.at(0)
}

#[reduction(min)]
fn least_signed(value: In<i32, 1>) -> i32 {
    value.at(0)
}

#[reduction(max, inexact)]
fn wave(value: In<f64, 2>) -> f64 {
    value.at(0, 0).sin()
}

#[reduction(sum)]
fn line(value: In<f64, 1>) -> f64 {
    value.at(0)
}

const N: [usize; 2] = [37, 29];

const RANKS: [usize; 4] = [1, 2, 4, 6];

/// Values of many sizes, all multiples of 2^-40 below 2^60.
fn wild([i, j]: [usize; 2]) -> f64 {
    let random = (i * 31 + j + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    let size = 2_f64.powi((i * 5 + j * 3) as i32 % 50 - 40);
    let value = (random % 1024) as f64 * size;
    if random & 4096 == 0 { value } else { -value }
}

fn grid(device: &Device, ranks: impl Into<Arc<ThreadCommunicator>>) -> Result<Grid<2>> {
    let timeout = Duration::from_secs(20);
    Grid::cartesian(N).ranks(ranks.into()).timeout(timeout).build(device)
}

fn of_all_ranks<R: Send>(
    count: usize,
    work: impl Fn(ThreadCommunicator) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    ThreadCommunicator::run(count, work).unwrap()
}

fn points() -> impl Iterator<Item = [usize; 2]> {
    (0..N[0]).flat_map(|i| (0..N[1]).map(move |j| [i, j]))
}

fn a_sum_has_the_bits_of_the_exact_sum_on_any_ranks(device: &Device) {
    let exact: i128 = points().map(|at| (wild(at) * 2_f64.powi(40)) as i128).sum();
    let expected = exact as f64 * 2_f64.powi(-41);
    for ranks in RANKS {
        let sums = of_all_ranks(ranks, |ranks| {
            let (grid, stream) = (grid(device, ranks)?, device.default_stream());
            let h = grid.field("h").from_fn(wild)?;
            let first = mass(&h, 0.5).run(&stream)?;
            let second = mass(&h, 0.5).run(&stream)?;
            Ok([first.get()?, second.get()?])
        });
        for sum in sums {
            assert_eq!(sum.unwrap().map(f64::to_bits), [expected.to_bits(); 2], "{ranks} ranks");
        }
    }
}

fn a_reduction_fetches_the_ghosts_that_it_reads(device: &Device) {
    const CELLS: [usize; 3] = [12, 5, 9];
    let value = |[i, j, k]: [usize; 3]| ((i * i * 7 + j * 3 + k) % 23) as f32 * 0.37;
    let at = |i: usize, j: usize, k: usize| value([i % 12, j, k]);
    let slopes: Vec<f32> = (0..12)
        .flat_map(|i| (0..5).flat_map(move |j| (0..9).map(move |k| (i, j, k))))
        .map(|(i, j, k)| 0.5 * (at(i + 1, j, k) - at(i + 11, j, k)))
        .collect();
    let steepest = slopes.iter().map(|slope| slope.abs()).fold(0.0, f32::max);
    // All are multiples of 2^-40.
    let exact: f64 = slopes.iter().map(|slope| f64::from(*slope)).sum();
    for ranks in RANKS {
        let found = of_all_ranks(ranks, |ranks| {
            let stream = device.default_stream();
            let grid = Grid::cartesian(CELLS).periodic([true, false, false]);
            let grid = grid.ranks(Arc::new(ranks)).build(device)?;
            let h = grid.field("h").from_fn(value)?;
            let steepest = model::steepest(&h).run(&stream)?;
            let rise = model::rise(&h).run(&stream)?;
            assert_eq!(grid.exchanges(), 1);
            Ok((steepest.get()?, rise.get()?))
        });
        for found in found {
            let (greatest, sum) = found.unwrap();
            assert_eq!(greatest.to_bits(), steepest.to_bits(), "{ranks} ranks");
            assert_eq!(sum.to_bits(), (exact as f32).to_bits(), "{ranks} ranks");
        }
    }
}

fn extremes_are_the_same_on_any_ranks(device: &Device) {
    let all: Vec<f64> = points().map(wild).collect();
    let (low, high) = all.iter().fold((0.0_f64, 0.0_f64), |(a, b), v| (a.min(*v), b.max(*v)));
    for ranks in RANKS {
        let found = of_all_ranks(ranks, |ranks| {
            let ranks = Arc::new(ranks);
            let (grid, stream) = (grid(device, Arc::clone(&ranks))?, device.default_stream());
            let value = grid.field("value").from_fn(wild)?;
            let row = Grid::cartesian([97]).ranks(ranks).build(device)?;
            let unsigned = row.field("unsigned").from_fn(|[i]| u32::MAX - 3 * i as u32)?;
            let signed = row.field("signed").from_fn(|[i]| 40 - i as i32)?;
            let zeros = row.field("zeros").from_fn(|[i]| if i == 50 { -0.0_f32 } else { 0.0 })?;
            let zeros_wide =
                grid.field("zeros").from_fn(|[i, _]| if i == 0 { 0.0 } else { -0.0 })?;
            // All are under way at once, and are read in another order.
            let a = least(&value).run(&stream)?;
            let b = greatest(&value).run(&stream)?;
            let c = greatest_unsigned(&unsigned).run(&stream)?;
            let d = least_signed(&signed).run(&stream)?;
            let e = least_single(&zeros).run(&stream)?;
            let f = greatest(&zeros_wide).run(&stream)?;
            let f = f.get()?.to_bits();
            let e = e.get()?.to_bits();
            Ok((a.get()?, b.get()?, c.get()?, d.get()?, e, f))
        });
        for found in found {
            let zeros = ((-0.0_f32).to_bits(), 0.0_f64.to_bits());
            assert_eq!(found.unwrap(), (low, high, u32::MAX, -56, zeros.0, zeros.1));
        }
    }
}

fn sums_of_integers_are_exact_or_refused(device: &Device) {
    for ranks in [1, 4] {
        let found = of_all_ranks(ranks, |ranks| {
            let (grid, stream) = (grid(device, ranks)?, device.default_stream());
            let value = grid.field("value").from_fn(wild)?;
            let count = count(&value, 0.0).run(&stream)?.get()?;
            let place =
                greatest_index(&value.like("other").and_then(|_| grid.field("zero").filled(0.0))?)
                    .run(&stream)?
                    .get()?;
            Ok((count, place, many(&value, 1 << 30).run(&stream)?.get()))
        });
        let positive = points().filter(|at| wild(*at) > 0.0).count() as i32;
        for found in found {
            let (count, place, many) = found.unwrap();
            assert_eq!((count, place), (positive, 37 * 29 - 1));
            let message = "the sum is 1152124977152, which i32 does not have";
            refused(many.map(f64::from), ErrorKind::InvalidArgument, &["many", message]);
        }
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, words: &[&str]) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    error
}

fn values_that_cannot_be_added_are_named_by_all_ranks(device: &Device) {
    let cases = [
        ([30, 4], f64::NAN, "the value at [30, 4] is NaN"),
        ([2, 28], f64::NEG_INFINITY, "the value at [2, 28] is infinite"),
        ([36, 0], 2_f64.powi(138), "the value at [36, 0] is 2^138 or more in magnitude"),
    ];
    for ranks in [1, 6] {
        for (place, wrong, message) in cases {
            let found = of_all_ranks(ranks, |ranks| {
                let (grid, stream) = (grid(device, ranks)?, device.default_stream());
                let value = |at| if at == place { wrong } else { wild(at) };
                let h = grid.field("h").from_fn(value)?;
                let sum = mass(&h, 1.0).run(&stream)?;
                let greatest = greatest(&h).run(&stream)?;
                let rest = mass(&h, 1.0).over(0, place[0] + 1..).run(&stream)?;
                Ok((sum.get(), greatest.get(), rest.get()?))
            });
            for found in found {
                let (sum, greatest, _) = found.unwrap();
                refused(sum, ErrorKind::InvalidArgument, &["reduction mass at", message]);
                if wrong.is_nan() {
                    let message = "the value at [30, 4] is NaN";
                    refused(
                        greatest,
                        ErrorKind::InvalidArgument,
                        &["reduction greatest at", message],
                    );
                } else {
                    assert!(greatest.is_ok());
                }
            }
        }
    }
}

fn points_of_several_ranks_count_once(device: &Device) {
    for (ranks, periodic) in [(1, false), (1, true), (6, false), (6, true), (4, true), (2, false)] {
        for location in [Location::Face(0), Location::Face(1), Location::Corner] {
            let found = of_all_ranks(ranks, |ranks| {
                let stream = device.default_stream();
                let grid = Grid::cartesian(N).periodic([periodic, false]).ranks(Arc::new(ranks));
                let field: Field<f64, 2> = grid
                    .build(device)?
                    .field("face")
                    .at(location)
                    .from_fn(|[i, j]| (i * 100 + j) as f64)?;
                Ok((
                    mass(&field, 1.0).run(&stream)?.get()?,
                    count(&field, -1.0).run(&stream)?.get()?,
                ))
            });
            let extra = |axis| {
                usize::from(location == Location::Corner || location == Location::Face(axis))
            };
            let n = N[0] + if periodic { 0 } else { extra(0) };
            let m = N[1] + extra(1);
            let sum: usize = (0..n).map(|i| (0..m).map(|j| i * 100 + j).sum::<usize>()).sum();
            for found in found {
                let expected = (sum as f64, (n * m) as i32);
                assert_eq!(found.unwrap(), expected, "{ranks} ranks, {location:?}, {periodic}");
            }
        }
    }
}

fn only_the_points_that_are_asked_for_count(device: &Device) {
    let found = of_all_ranks(4, |ranks| {
        let (grid, stream) = (grid(device, ranks)?, device.default_stream());
        let ones = grid.field("ones").filled(1.0)?;
        let inside = mass(&ones, 1.0).inside(3).run(&stream)?;
        let row = mass(&ones, 1.0).over(0, 5..6).run(&stream)?;
        let box_ = mass(&ones, 1.0).over(0, 2..9).over(1, 28..).run(&stream)?;
        let none = mass(&ones, 1.0).over(0, 4..4).run(&stream)?;
        let least_of_none = least(&ones).over(0, 4..4).run(&stream).map(|_| ());
        let outside = mass(&ones, 1.0).over(0, 0..38).run(&stream).map(|_| ());
        let sums = [inside.get()?, row.get()?, box_.get()?, none.get()?];
        Ok((sums, least_of_none, outside))
    });
    for found in found {
        let (sums, none, outside) = found.unwrap();
        assert_eq!(sums, [31.0 * 23.0, 29.0, 7.0, 0.0]);
        refused(none, ErrorKind::InvalidArgument, &["least", "of no points"]);
        refused(outside, ErrorKind::InvalidArgument, &["0..38", "has 37"]);
    }
}

fn tiles_of_a_cubed_sphere_count_together(device: &Device) {
    const CELLS: usize = 5;
    let found = of_all_ranks(6, |ranks| {
        let stream = device.default_stream();
        let grid = Grid::cubed_sphere(CELLS).ranks(Arc::new(ranks)).build(device)?;
        let tile = grid.tile();
        let value = |[i, j]: [usize; 2]| (100 * tile + 10 * i + j) as f64;
        let field = grid.field("field").from_fn(value)?;
        let sum = mass(&field, 1.0).run(&stream)?.get()?;
        let wrong = |at: [usize; 2]| if (tile, at) == (4, [3, 2]) { f64::NAN } else { value(at) };
        let wrong = grid.field("wrong").from_fn(wrong)?;
        let wrong = mass(&wrong, 1.0).run(&stream)?.get();
        let faces = grid.field("faces").at(Location::Face(0)).filled(1.0)?;
        Ok((sum, wrong, mass(&faces, 1.0).run(&stream).map(|_| ())))
    });
    for found in found {
        let (sum, wrong, faces) = found.unwrap();
        assert_eq!(sum, (25 * 100 * 15 + 6 * (10 + 1) * 50) as f64);
        let message = "the value at [3, 2] of tile 4 is NaN";
        refused(wrong, ErrorKind::InvalidArgument, &["mass", message]);
        refused(faces, ErrorKind::InvalidArgument, &["faces is at Face(0)", "cubed sphere"]);
    }
}

/// In one long row, and in many short ones: more than a device takes at once.
fn many_values_are_accumulated(device: &Device) {
    const MANY: usize = 70_000;
    let value = |i: usize| (i as f64 - 20_000.0) * 2_f64.powi(i as i32 % 90);
    let exact: i128 = (0..MANY).map(|i| (i as i128 - 20_000) << (i % 90)).sum();
    let stream = device.default_stream();
    let row = Grid::cartesian([MANY]).build(device).unwrap();
    let values = row.field("row").from_fn(|[i]| value(i)).unwrap();
    let of_row = line(&values).run(&stream).unwrap();
    let column = Grid::cartesian([MANY, 1]).build(device).unwrap();
    let values = column.field("column").from_fn(|[i, _]| value(i)).unwrap();
    let of_column = mass(&values, 1.0).run(&stream).unwrap();
    for sum in [of_row, of_column] {
        assert_eq!(sum.get().unwrap().to_bits(), (exact as f64).to_bits());
    }
}

fn inexact_reductions_are_marked(device: &Device) {
    let grid = Grid::cartesian(N).build(device).unwrap();
    let value = grid.field("value").from_fn(|[i, _]| i as f64).unwrap();
    assert!(wave::STENCIL.is_inexact() && !mass::STENCIL.is_inexact());
    let greatest = wave(&value).run(&device.default_stream()).unwrap().get().unwrap();
    assert!(greatest > 0.99 && greatest <= 1.0);
}

fn misuse_is_refused(device: &Device) {
    let (grid, other) = (Grid::cartesian(N).build(device).unwrap(), devices::sim(1));
    let stream = device.default_stream();
    let unset = grid.field::<f64>("unset").uninit().unwrap();
    let result = mass(&unset, 1.0).run(&stream).map(|_| ());
    refused(result, ErrorKind::Uninitialized, &["reduction mass", "unset"]);
    let ones = grid.field("ones").filled(1.0).unwrap();
    let result = mass(&ones, 1.0).run(&other.default_stream()).map(|_| ());
    refused(result, ErrorKind::WrongDevice, &["reduction mass"]);
    // A reduction that failed, or is never read, leaves nothing behind.
    drop(mass(&ones, 1.0).run(&stream).unwrap());
    assert_eq!(mass(&ones, 2.0).run(&stream).unwrap().get().unwrap(), 37.0 * 29.0 * 2.0);
}

fn ranks_that_read_other_results_are_refused(device: &Device) {
    let found = of_all_ranks(2, |ranks| {
        let rank = ranks.rank();
        let (grid, stream) = (grid(device, ranks)?, device.default_stream());
        let ones = grid.field("ones").filled(1.0)?;
        let a = mass(&ones, 1.0).run(&stream)?;
        let b = mass(&ones, 1.0).run(&stream)?;
        let (first, second) = if rank == 0 { (a, b) } else { (b, a) };
        let results = [first.get(), second.get()];
        // One of before a reset, and one of after it.
        let before = mass(&ones, 1.0).run(&stream)?;
        grid.reset()?;
        let after = mass(&ones, 1.0).run(&stream)?;
        let over_reset = if rank == 0 { &before } else { &after }.get();
        let third = mass(&ones, 1.0).run(&stream)?.get()?;
        Ok((results.into_iter().chain([over_reset]), third))
    });
    for (rank, found) in found.into_iter().enumerate() {
        let (results, third) = found.unwrap();
        for result in results {
            let message = format!("rank {} reads the result of another reduction", 1 - rank);
            let words = ["reduction mass at ", file!(), &message];
            refused(result, ErrorKind::InvalidArgument, &words);
        }
        assert_eq!(third, 37.0 * 29.0);
    }
}

on_all_devices!(
    a_sum_has_the_bits_of_the_exact_sum_on_any_ranks,
    a_reduction_fetches_the_ghosts_that_it_reads,
    extremes_are_the_same_on_any_ranks,
    sums_of_integers_are_exact_or_refused,
    values_that_cannot_be_added_are_named_by_all_ranks,
    points_of_several_ranks_count_once,
    only_the_points_that_are_asked_for_count,
    tiles_of_a_cubed_sphere_count_together,
    many_values_are_accumulated,
    inexact_reductions_are_marked,
    misuse_is_refused,
    ranks_that_read_other_results_are_refused,
);

/// A kernel that runs until the gate is opened.
fn gate(device: &Device) -> Arc<(Mutex<bool>, Condvar)> {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let inside = Arc::clone(&gate);
    let wait = move |_: &runtime_core::Grid<'_>| {
        let (lock, opened) = &*inside;
        let open = lock.lock().unwrap();
        let limit = Duration::from_secs(10);
        let (_open, late) = opened.wait_timeout_while(open, limit, |open| !*open).unwrap();
        if late.timed_out() { Err("the gate was not opened".to_owned()) } else { Ok(()) }
    };
    let module = device.module_load(&HostModule::new().with("wait", wait)).unwrap();
    let kernel = module.kernel("wait").unwrap();
    // SAFETY: the kernel is safe Rust, and has no arguments.
    #[expect(unsafe_code, reason = "launching a kernel is unsafe")]
    unsafe { kernel.launch(&device.default_stream(), &Launch::cover(1, 1), args![]) }.unwrap();
    gate
}

#[test]
fn a_reduction_does_not_wait_for_the_device() {
    for device in [devices::sim(2), devices::host()] {
        let grid = Grid::cartesian(N).build(&device).unwrap();
        let ones = grid.field("ones").filled(1.0).unwrap();
        let stream = device.default_stream();
        let first = mass(&ones, 1.0).run(&stream).unwrap().get().unwrap();
        let gate = gate(&device);
        let second = mass(&ones, 2.0).run(&stream).unwrap();
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        assert_eq!(second.get().unwrap(), 2.0 * first);
    }
}

/// The stencil, its accumulation, and that of the accumulators.
#[test]
fn a_rank_whose_device_fails_tells_the_others() {
    for launch in 1..=3 {
        let found = of_all_ranks(2, |ranks| {
            let config = SimConfig::new();
            let config = match ranks.rank() {
                1 => config.fault(Fault::fail_late(Operation::Launch, launch)),
                _ => config,
            };
            let device = Device::new(SimDevice::new(0, config))?;
            let grid = Grid::cartesian([2 * N[0], N[1]]).ranks(Arc::new(ranks)).build(&device)?;
            let ones = grid.field("ones").filled(1.0)?;
            Ok(mass(&ones, 1.0).run(&device.default_stream())?.get())
        });
        let [first, second] = <[_; 2]>::try_from(found).unwrap().map(Result::unwrap);
        let message = "the device of rank 1 has failed";
        refused(first, ErrorKind::Poisoned, &["reduction mass", message]);
        assert!(second.is_err());
    }
}

#[test]
fn a_rank_that_is_late_is_reported_and_a_reset_makes_up_for_it() {
    let is_late = Barrier::new(2);
    let found = of_all_ranks(2, |ranks| {
        let rank = ranks.rank();
        let device = devices::host();
        let timeout = Duration::from_millis(100);
        let grid = Grid::cartesian(N).ranks(Arc::new(ranks)).timeout(timeout).build(&device)?;
        let stream = device.default_stream();
        let ones = grid.field("ones").boundary(Boundary::Clamp).filled(1.0)?;
        let result = mass(&ones, 1.0).run(&stream)?;
        let late = (rank == 0).then(|| result.get());
        is_late.wait();
        while grid.reset().is_err() {}
        Ok((late, mass(&ones, 1.0).run(&stream)?.get()))
    });
    for found in found {
        let (late, after) = found.unwrap();
        if let Some(late) = late {
            refused(late, ErrorKind::Timeout, &["reduction mass"]);
        }
        assert_eq!(after.unwrap(), 37.0 * 29.0);
    }
}

/// Types of all reductions.
fn _is_send<T: Number>(reduced: stencil::Reduced<T>) -> impl Send {
    reduced
}
