//! Launches that compute some points.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use runtime_core::{Device, ErrorKind};
use stencil::{Grid, In, Out, stencil};

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
    assert!(error(1, 2..7).contains("points 2..7 along axis 1; T has 6"));
    assert!(error(1, 7..usize::MAX).contains("points 7..6 along axis 1; T has 6"));
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
}
