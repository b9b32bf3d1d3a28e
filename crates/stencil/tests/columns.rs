//! Columns, compared with plain loops: each direction and axis, short columns, ranges, ranks, and launches that are
//! refused.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

#[path = "../../halo/tests/altered/mod.rs"]
mod altered;
#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;
mod messages;

use std::sync::Arc;

use halo::communicator::{Communicator, ThreadCommunicator};
use messages::mostly_by_messages;
use ndarray::{ArrayD, IxDyn};
use runtime_core::Device;
use stencil::{
    Boundary, End, Error, ErrorKind, Grid, In, InOut, Location, Out, Result, column, stencils,
};

/// Columns that read what they have set, the value from before, and inputs: the next point between the ends, and points
/// beside the ends.
macro_rules! columns {
    ($($name:ident $direction:ident $axis:tt: $previous:tt $next:tt $first:tt $last:tt;)*) => {$(
        #[column($direction, axis = $axis)]
        fn $name(s: Out<f64, 3>, u: InOut<f64, 3>, t: In<f64, 3>, a: f64) {
            if first() {
                s.set(t.at $first + a);
                u.set(u.at(0, 0, 0) * a);
            } else if last() {
                s.set(s.at $previous * t.at $last + u.at $previous);
                u.set(u.at(0, 0, 0) - a);
            } else {
                s.set(s.at $previous * a + t.at $next + index($axis) as f64);
                u.set(u.at $previous + u.at(0, 0, 0) * a);
            }
        }
    )*};
}

columns! {
    up_0 forward 0: (-1, 0, 0) (1, 0, 0) (0, 1, 0) (0, 0, -1);
    down_0 backward 0: (1, 0, 0) (-1, 0, 0) (0, 1, 0) (0, 0, -1);
    up_1 forward 1: (0, -1, 0) (0, 1, 0) (1, 0, 0) (0, 0, -1);
    down_1 backward 1: (0, 1, 0) (0, -1, 0) (1, 0, 0) (0, 0, -1);
    up_2 forward 2: (0, 0, -1) (0, 0, 1) (0, 1, 0) (-1, 0, 0);
    down_2 backward 2: (0, 0, 1) (0, 0, -1) (0, 1, 0) (-1, 0, 0);
}

/// The same by plain loops.
fn plain(cells: [usize; 3], axis: usize, is_forward: bool, a: f64) -> [ArrayD<f64>; 2] {
    let t = |at: [i64; 3]| {
        // Mirrored beside the axis. Along it nothing is read beyond the ends.
        let at = [0, 1, 2].map(|d| {
            let n = i64::try_from(cells[d]).unwrap();
            at[d].clamp(0, n - 1)
        });
        value(at.map(|at| usize::try_from(at).unwrap()))
    };
    let (first_axis, last_axis) = match axis {
        0 => (1, 2),
        1 => (0, 2),
        _ => (1, 0),
    };
    let sign = if is_forward { 1 } else { -1 };
    let mut s = ArrayD::zeros(&cells[..]);
    let mut u = ArrayD::from_shape_fn(&cells[..], |at: IxDyn| 0.5 * value([at[0], at[1], at[2]]));
    let n = cells[axis];
    for step in 0..n {
        let level = if is_forward { step } else { n - 1 - step };
        let mut across = cells;
        across[axis] = 1;
        for at in ndarray::indices(across) {
            let mut at = [at.0, at.1, at.2];
            at[axis] = level;
            let around = |along: usize, by: i64| {
                let mut at = at.map(|at| i64::try_from(at).unwrap());
                at[along] += by;
                at
            };
            let previous = around(axis, -sign).map(|at| usize::try_from(at).unwrap_or(0));
            let before = u[at];
            (s[at], u[at]) = if step == 0 {
                (t(around(first_axis, 1)) + a, before * a)
            } else if step + 1 == n {
                (s[previous] * t(around(last_axis, -1)) + u[previous], before - a)
            } else {
                let sum = s[previous] * a + t(around(axis, sign)) + level as f64;
                (sum, u[previous] + before * a)
            };
        }
    }
    [s, u]
}

fn value([i, j, k]: [usize; 3]) -> f64 {
    ((3 * i + 5 * j + 7 * k) % 11) as f64 * 0.37 - 1.2
}

fn compute(
    ranks: Arc<dyn Communicator>,
    device: &Device,
    cells: [usize; 3],
    axis: usize,
    is_forward: bool,
) -> Result<[Option<ArrayD<f64>>; 2]> {
    let stream = device.default_stream();
    let mut blocks = [1; 3];
    // All ranks beside the axis, in blocks along both other axes where they can be.
    let [one, other] = [(axis + 1) % 3, (axis + 2) % 3];
    (blocks[one], blocks[other]) = match ranks.size() {
        4 => (2, 2),
        6 => (3, 2),
        n => (1, n),
    };
    let grid = Grid::cartesian(cells).ranks(ranks).blocks(blocks).build(device)?;
    // Nothing lies beyond the ends of the axis.
    let mut t = grid.field("t").boundary(Boundary::Mirror);
    t = t.boundary_at(End::Low(axis), Boundary::Nothing);
    let t = t.boundary_at(End::High(axis), Boundary::Nothing).from_fn(value)?;
    let mut s = grid.field("s").uninit()?;
    let mut u = grid.field("u").from_fn(|at| 0.5 * value(at))?;
    let columns = [[down_0, up_0], [down_1, up_1], [down_2, up_2]];
    columns[axis][usize::from(is_forward)](&mut s, &mut u, &t, 0.7).run(&stream)?;
    Ok([s.gather(0)?, u.gather(0)?])
}

/// Columns of this length along each axis and in both directions, on this many ranks, against plain loops.
fn check(device: &Device, ranks: usize, length: usize) {
    for (axis, is_forward) in (0..3).flat_map(|axis| [(axis, true), (axis, false)]) {
        let mut cells = [7, 8, 9];
        cells[axis] = length;
        let run = |rank| compute(mostly_by_messages(rank), device, cells, axis, is_forward);
        let ended = ThreadCommunicator::run(ranks, run).unwrap();
        let ended: Result<Vec<_>> = ended.into_iter().collect();
        let found = ended.unwrap().swap_remove(0).map(Option::unwrap);
        let bits = |values: [ArrayD<f64>; 2]| values.map(|values| values.mapv(f64::to_bits));
        assert!(
            bits(found) == bits(plain(cells, axis, is_forward, 0.7)),
            "{length} points along axis {axis}, forward: {is_forward}, {ranks} ranks"
        );
    }
}

fn columns_have_the_bits_of_plain_loops(device: &Device) {
    for (ranks, length) in [(1, 1), (1, 5), (2, 2)] {
        check(device, ranks, length);
    }
}

on_all_devices!(columns_have_the_bits_of_plain_loops);

#[test]
fn columns_of_any_length_have_the_bits_of_plain_loops_on_any_number_of_ranks() {
    for (ranks, length) in [(1, 2), (1, 3), (2, 4), (4, 1), (4, 2), (6, 5)] {
        check(&devices::host(), ranks, length);
    }
}

/// Fields of one and two axes.
#[stencils]
mod flat {
    use super::{In, Out};

    #[column(forward)]
    pub(super) fn sum(s: Out<i64, 1>, t: In<i64, 1>) {
        if first() {
            s.set(t.at(0));
        } else {
            s.set(s.at(-1) + t.at(0));
        }
    }

    /// Faces from the cells between them.
    #[column(backward)]
    pub(super) fn faces(w: Out<f64, 2>, divergence: In<f64, 2>) {
        if first() {
            w.set(0.0);
        } else {
            w.set(w.at(1, 0) + divergence.at(0, 0));
        }
    }
}

#[test]
fn a_long_column_of_one_axis_is_computed_as_a_whole() -> Result<()> {
    let device = Device::new(backend_host::HostDevice::with_threads(0, 2)?)?;
    let stream = device.default_stream();
    let grid = Grid::cartesian([50_000]).build(&device)?;
    let t = grid.field("t").from_fn(|[i]| i as i64 % 97)?;
    let mut s = grid.field("s").filled(-1)?;
    flat::sum(&mut s, &t).run(&stream)?;
    let mut sum = 0;
    for (i, value) in s.read_host()?.iter().enumerate() {
        sum += i as i64 % 97;
        assert_eq!(*value, sum, "{i}");
    }
    Ok(())
}

#[test]
fn wide_levels_are_divided_among_cores() -> Result<()> {
    let device = Device::new(backend_host::HostDevice::with_threads(0, 2)?)?;
    let stream = device.default_stream();
    for cells in [[3, 1, 5000], [3, 4000, 3], [5000, 2, 3]] {
        let grid = Grid::cartesian(cells).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Mirror).from_fn(value)?;
        let (mut s, mut u) = (t.like("s")?, grid.field("u").from_fn(|at| 0.5 * value(at))?);
        up_0(&mut s, &mut u, &t, 0.7).run(&stream)?;
        let [expected, _] = plain(cells, 0, true, 0.7);
        assert!(*s.read_host()? == expected, "{cells:?}");
    }
    Ok(())
}

#[test]
fn a_column_begins_and_ends_with_the_points_of_the_launch() -> Result<()> {
    let device = devices::host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([8]).build(&device)?;
    let t = grid.field("t").filled(1)?;
    let mut s = grid.field("s").filled(-1)?;
    flat::sum(&mut s, &t).over(0, 2..5).run(&stream)?;
    assert_eq!(s.read_host()?.iter().copied().collect::<Vec<_>>(), [-1, -1, 1, 2, 3, -1, -1, -1]);
    flat::sum(&mut s, &t).inside(3).run(&stream)?;
    assert_eq!(s.read_host()?.iter().copied().collect::<Vec<_>>(), [-1, -1, 1, 1, 2, -1, -1, -1]);
    flat::sum(&mut s, &t).over(0, 4..4).run(&stream)?;
    assert_eq!(s.read_host()?.iter().copied().collect::<Vec<_>>(), [-1, -1, 1, 1, 2, -1, -1, -1]);
    Ok(())
}

#[test]
fn only_what_the_points_of_a_column_read_must_be_there() -> Result<()> {
    let device = devices::host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([3, 4]).build(&device)?;
    // There are four faces and three cells, and the first point, the last face, reads no cell.
    let divergence = grid.field("d").from_fn(|[i, _]| (i + 1) as f64)?;
    let mut w = grid.field("w").at(Location::Face(0)).filled(9.0)?;
    flat::faces(&mut w, &divergence).run(&stream)?;
    let values = w.read_host()?;
    assert!([6.0, 5.0, 3.0, 0.0].iter().enumerate().all(|(i, value)| values[[i, 1]] == *value));
    assert_eq!(grid.exchanges(), 0);
    Ok(())
}

#[column(forward, axis = 1)]
fn beyond(s: Out<f64, 2>, t: In<f64, 2>) {
    if first() {
        s.set(t.at(0, 0));
    } else {
        s.set(s.at(0, -1) + t.at(0, 1));
    }
}

#[test]
fn columns_that_have_no_ends_on_each_rank_are_refused_on_all_ranks() {
    let device = devices::host();
    let results = ThreadCommunicator::run(2, |rank| {
        let (stream, rank): (_, Arc<dyn Communicator>) = (device.default_stream(), Arc::new(rank));
        let refuse = |grid: Grid<2>, parts: &[&str]| {
            let t = grid.field("t").boundary(Boundary::Mirror).filled(1.0)?;
            let mut s = grid.field("S").filled(2.0)?;
            let error = beyond(&mut s, &t).run(&stream).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            for part in [&["column beyond", "axis 1", "grid of S"], parts].concat() {
                assert!(error.to_string().contains(part), "{error} lacks {part:?}");
            }
            assert!(s.read_host()?.iter().all(|value| *value == 2.0));
            Ok::<_, Error>(())
        };
        let grid = Grid::cartesian([4, 6]).ranks(Arc::clone(&rank)).blocks([1, 2]);
        refuse(grid.build(&device)?, &["2 ranks", "at most 1", "blocks"])?;
        let grid = Grid::cartesian([4, 6]).ranks(Arc::clone(&rank)).blocks([2, 1]);
        refuse(grid.periodic([false, true]).build(&device)?, &["no ends"])
    });
    for result in results.unwrap() {
        result.unwrap();
    }
}

#[test]
fn a_column_that_reads_beyond_its_end_needs_a_boundary_there_alone() -> Result<()> {
    let device = devices::host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([2, 5]).build(&device)?;
    let t = grid.field("t").filled(1.0)?;
    let mut s = grid.field("s").filled(0.0)?;
    let error = beyond(&mut s, &t).run(&stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("1 behind the last point along axis 1"), "{error}");
    beyond(&mut s, &t).over(1, ..4).run(&stream)?;
    let t = grid.field("t").boundary_at(End::High(1), Boundary::Value(5.0)).filled(1.0)?;
    beyond(&mut s, &t).run(&stream)?;
    assert_eq!(s.read_host()?.iter().copied().collect::<Vec<_>>()[..5], [1.0, 2.0, 3.0, 4.0, 9.0]);
    Ok(())
}

/// Sums of an input at the previous point, also beyond the end, and at a point of another rank.
#[column(forward)]
fn sums(s: Out<f64, 2>, t: In<f64, 2>) {
    if first() {
        s.set(t.at(-1, 0) + t.at(0, 1));
    } else {
        s.set(s.at(-1, 0) + t.at(-1, 0) + t.at(0, 1));
    }
}

/// While values of other ranks are in transit, no part of a column is computed.
#[test]
fn a_column_that_reads_beyond_its_end_is_computed_as_a_whole_on_all_ranks() {
    let device = devices::host();
    let all = [1, 2].map(|ranks| {
        let results = ThreadCommunicator::run(ranks, |rank| -> Result<_> {
            let grid = Grid::cartesian([6, 8]).periodic([false, true]).blocks([1, 0]);
            let grid = grid.ranks(mostly_by_messages(rank)).build(&device)?;
            let t = grid.field("t").boundary(Boundary::Clamp);
            let t = t.from_fn(|[i, j]| 1.0 / (1 + 8 * i + j) as f64)?;
            let mut s = grid.field("s").uninit()?;
            sums(&mut s, &t).run(&device.default_stream())?;
            s.gather(0)
        });
        results.unwrap().into_iter().find_map(Result::unwrap).unwrap()
    });
    assert_eq!(all[0], all[1]);
}

/// Reads its input between the ends alone.
#[column(forward)]
fn between(s: Out<f64, 2>, t: In<f64, 2>) {
    if first() {
        s.set(0.0);
    } else if last() {
        s.set(1.0);
    } else {
        s.set(s.at(-1, 0) + t.at(0, 1));
    }
}

#[test]
fn what_no_point_of_a_column_reads_needs_no_boundary() -> Result<()> {
    let device = devices::host();
    for points in 1..4 {
        let grid = Grid::cartesian([points, 5]).build(&device)?;
        let t = grid.field("t").filled(1.0)?;
        let mut s = grid.field("s").uninit()?;
        let done = between(&mut s, &t).run(&device.default_stream());
        let kind = done.map_err(|error| error.kind());
        assert_eq!(kind, if points < 3 { Ok(()) } else { Err(ErrorKind::InvalidArgument) });
    }
    Ok(())
}
