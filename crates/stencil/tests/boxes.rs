//! Launches that compute some points.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use std::sync::Arc;

use halo::communicator::ThreadCommunicator;
use runtime_core::{Device, ErrorKind};
use stencil::{Boundary, Grid, In, Location, Out, Result, stencil};

#[stencil]
fn set(t: Out<i32, 2>, value: i32) {
    t.set(value);
}

#[test]
fn ranges_of_several_axes_and_of_one_axis_intersect() {
    let device = Device::new(backend_host::HostDevice::new(0)).unwrap();
    let grid = Grid::cartesian([4, 6]).build(&device).unwrap();
    let mut t = grid.field("T").filled(0).unwrap();
    let launch = set(&mut t, 1).over(0, 1..).over(1, ..=4).over(1, 2..6).inside(1);
    launch.run(&device.default_stream()).unwrap();
    for ((i, j), value) in
        t.read_host().unwrap().view().into_dimensionality::<ndarray::Ix2>().unwrap().indexed_iter()
    {
        let is_set = (1..3).contains(&i) && (2..5).contains(&j);
        assert_eq!(*value, i32::from(is_set), "{i} {j}");
    }
}

#[test]
fn points_and_axes_that_do_not_exist_are_refused() {
    let device = Device::new(backend_host::HostDevice::new(0)).unwrap();
    let grid = Grid::cartesian([4, 6]).build(&device).unwrap();
    let mut t = grid.field("T").filled(0).unwrap();
    let stream = device.default_stream();
    let mut error = |axis, points: std::ops::Range<usize>| {
        let error = set(&mut t, 1).over(axis, points).run(&stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    assert!(error(2, 0..1).contains("points along axis 2 of a grid of 2 axes"));
    let (start, end) = (3, 2);
    assert!(error(1, start..end).contains("points 3..2 along axis 1; T has 6"));
    assert!(error(1, 2..7).contains("points 2..7 along axis 1; T has 6"));
    assert!(
        error(1, 7..usize::MAX).contains("points 7..18446744073709551615 along axis 1; T has 6")
    );
}

#[stencil]
fn along_first(out: Out<i32, 2>, t: In<i32, 2>) {
    out.set(t.at(1, 0));
}

#[stencil]
fn along_second(out: Out<i32, 2>, t: In<i32, 2>) {
    out.set(t.at(0, 1));
}

#[test]
fn ghosts_stay_fresh_while_others_are_exchanged() {
    let device = Device::new(backend_host::HostDevice::new(0)).unwrap();
    let stream = device.default_stream();
    let grid = Grid::cartesian([4, 6]).periodic([true; 2]).build(&device).unwrap();
    let t = grid.field("T").filled(1).unwrap();
    let mut out = t.like("out").unwrap();
    for _ in 0..3 {
        along_first(&mut out, &t).run(&stream).unwrap();
        along_second(&mut out, &t).run(&stream).unwrap();
    }
    assert_eq!(grid.exchanges(), 2);
    // Ranks may have filled different ghosts before.
    grid.reset().unwrap();
    along_first(&mut out, &t).run(&stream).unwrap();
    assert_eq!(grid.exchanges(), 3);
}

#[stencil]
fn cross(out: Out<i32, 2>, t: In<i32, 2>) {
    out.set(t.at(1, 0) + t.at(-1, 0) + t.at(0, 1) + t.at(0, -1));
}

/// Each of four ranks has two neighbours at faces and one at a corner.
#[test]
fn corners_are_exchanged_only_where_a_stencil_needs_them() {
    let device = Device::new(backend_host::HostDevice::new(0)).unwrap();
    let messages = |out: Location, t: Location| {
        let sent = ThreadCommunicator::run(4, |rank| -> Result<_> {
            let grid = Grid::cartesian([8, 8])
                .halo(2)
                .blocks([2, 2])
                .ranks(Arc::new(rank))
                .build(&device)?;
            let t = grid.field("T").at(t).boundary(Boundary::Clamp).filled(1)?;
            let mut out = grid.field("out").at(out).uninit()?;
            cross(&mut out, &t).run(&device.default_stream())?;
            assert_eq!(grid.exchanges(), 1);
            Ok(grid.sent().count)
        });
        sent.unwrap().into_iter().map(Result::unwrap).sum::<u64>()
    };
    let [centre, corner] = [Location::Centre, Location::Corner];
    assert_eq!([messages(centre, centre), messages(corner, corner)], [8, 8]);
    assert_eq!(messages(corner, centre), 12);
}

#[stencil]
fn corner_and_side(out: Out<i32, 2>, a: In<i32, 2>, b: In<i32, 2>) {
    out.set(100 * a.at(1, 1) + b.at(-1, 0));
}

#[stencil]
fn side_and_corner(out: Out<i32, 2>, a: In<i32, 2>, b: In<i32, 2>) {
    out.set(100 * b.at(1, 1) + a.at(-1, 0));
}

#[test]
fn a_field_that_is_passed_twice_gets_the_ghosts_of_both_inputs() {
    let device = Device::new(backend_host::HostDevice::new(0)).unwrap();
    let value = |[i, j]: [usize; 2]| i32::try_from(8 * (i % 8) + j % 8).unwrap();
    for is_corner_first in [true, false] {
        let results = ThreadCommunicator::run(4, |rank| -> Result<()> {
            let stream = device.default_stream();
            let grid = Grid::cartesian([8, 8]).periodic([true; 2]).blocks([2, 2]);
            let grid = grid.ranks(Arc::new(rank)).build(&device)?;
            let t = grid.field("T").from_fn(value)?;
            let mut out = grid.field("out").uninit()?;
            match is_corner_first {
                true => corner_and_side(&mut out, &t, &t).run(&stream)?,
                false => side_and_corner(&mut out, &t, &t).run(&stream)?,
            }
            let [first, second] = out.first();
            for (at, found) in out.read_host()?.indexed_iter() {
                let (i, j) = (first + at[0], second + at[1]);
                assert_eq!(*found, 100 * value([i + 1, j + 1]) + value([i + 7, j]), "{i} {j}");
            }
            Ok(())
        });
        results.unwrap().into_iter().for_each(Result::unwrap);
    }
}

#[test]
fn ghosts_that_no_block_has_need_no_exchange() {
    let device = Device::new(backend_host::HostDevice::new(0)).unwrap();
    for ranks in [1, 2] {
        let results = ThreadCommunicator::run(ranks, |rank| -> Result<_> {
            let stream = device.default_stream();
            let grid =
                Grid::cartesian([8, 6]).blocks([ranks, 1]).ranks(Arc::new(rank)).build(&device)?;
            let t = grid.field("T").boundary(Boundary::Clamp).filled(1)?;
            let mut out = grid.field("out").uninit()?;
            along_second(&mut out, &t).run(&stream)?;
            let along_second = grid.exchanges();
            cross(&mut out, &t).run(&stream)?;
            Ok([along_second, grid.exchanges()])
        });
        for counts in results.unwrap() {
            assert_eq!(counts.unwrap(), [0, ranks as u64 - 1], "{ranks} ranks");
        }
    }
}
