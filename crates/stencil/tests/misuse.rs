//! Launches that are refused, and what is usable afterwards.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

#[path = "../../halo/tests/altered/mod.rs"]
mod altered;
mod messages;

use std::mem::swap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use backend_host::HostDevice;
use backend_sim::{Fault, Operation, SimConfig, SimDevice};
use halo::communicator::{Communicator, ThreadCommunicator};
use messages::by_messages;
use runtime_core::{Device, StreamOptions};
use stencil::generated::{Argument, Scalar, launch};
use stencil::{
    Boundary, End, Error, ErrorKind, Grid, In, InOut, Location, Out, Result, column, reduction,
    stencil,
};

#[stencil]
fn east(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(1, 0));
}

#[stencil]
fn far(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(0, -3));
}

#[stencil]
fn two(a: Out<f64, 2>, b: Out<f64, 2>) {
    a.set(1.0);
    b.set(2.0);
}

#[stencil]
fn add(x: InOut<f64, 2>, y: In<f64, 2>, by: f64) {
    x.set(x.at(0, 0) + by * y.at(0, 0));
}

#[stencil]
fn fresh(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(0, 0));
}

#[stencil]
fn count(out: Out<f64, 2>, n: InOut<f64, 2>) {
    out.set(1.0);
    n.set(n.at(0, 0) + 1.0);
}

fn host() -> Device {
    Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap()
}

#[track_caller]
fn refused(result: Result<()>, kind: ErrorKind, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{error} lacks {part:?}");
    }
}

#[test]
fn launches_that_read_where_nothing_is_are_refused() -> Result<()> {
    let (device, bad) = (host(), ErrorKind::InvalidArgument);
    let stream = device.default_stream();
    let grid = Grid::cartesian([6, 5]).halo(2).build(&device)?;
    let t = grid.field("heat").filled(1.0)?;
    let mut out = grid.field("out").filled(0.0)?;
    let no_boundary =
        ["stencil east", "field heat (parameter t)", "1 behind the last point along axis 0"];
    refused(east(&mut out, &t).run(&stream), bad, &no_boundary);
    refused(
        far(&mut out, &t).run(&stream),
        bad,
        &["parameter t", "3 points", "axis 1", "halo of 2"],
    );
    let other = Grid::cartesian([6, 5]).build(&device)?;
    let foreign = other.field("foreign").filled(1.0)?;
    refused(
        add(&mut out, &foreign, 1.0).run(&stream),
        bad,
        &["out and foreign", "different grids"],
    );
    let mut face = grid.field("face").at(Location::Face(0)).filled(0.0)?;
    let more =
        ["1 behind the last point along axis 0", "; face has one point more along this axis"];
    refused(copy(&mut face, &t).run(&stream), bad, &more);
    for error in [east(&mut out, &t).run(&stream), west(&mut face, &t).inside(0).run(&stream)] {
        let error = error.unwrap_err().to_string();
        let is_low = error.contains("before the first");
        assert!(is_low || error.contains("behind the last"), "{error}");
        assert!(!error.contains("one point more"), "{error}");
    }
    let places = ["out at Centre", "face at Face(0)"];
    refused(two(&mut out, &mut face).run(&stream), bad, &places);
    refused(add(&mut out, &t, 1.0).over(0, 0..7).run(&stream), bad, &["0..7", "axis 0", "6"]);
    let elsewhere = host();
    let stream = elsewhere.default_stream();
    refused(add(&mut out, &t, 1.0).run(&stream), ErrorKind::WrongDevice, &["host:0"]);
    assert_eq!(out.read_host()?.sum(), 0.0);
    Ok(())
}

#[test]
fn boxes_leave_the_other_points_as_they_are() -> Result<()> {
    let device = host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([6, 5]).halo(2).build(&device)?;
    let t = grid.field("t").from_fn(|[i, j]| (10 * i + j) as f64)?;
    let mut out = grid.field("out").filled(-1.0)?;
    east(&mut out, &t).inside(1).run(&stream)?;
    for ([i, j], value) in out.read_host()?.indexed_iter().map(|(at, v)| ([at[0], at[1]], *v)) {
        let inside = (1..5).contains(&i) && (1..4).contains(&j);
        assert_eq!(value, if inside { (10 * (i + 1) + j) as f64 } else { -1.0 }, "{i} {j}");
    }
    east(&mut out, &t).over(0, 2..3).over(1, 4..4).run(&stream)?;
    east(&mut out, &t).inside(100).run(&stream)?;
    for end in [usize::MAX - 1, usize::MAX] {
        let beyond = east(&mut out, &t).over(1, 0..end).run(&stream);
        refused(beyond, ErrorKind::InvalidArgument, &["points 0..", "out has 5"]);
    }
    let mut never = grid.field("never").uninit()?;
    east(&mut never, &t).over(0, 2..2).run(&stream)?;
    refused(east(&mut never, &t).inside(1).run(&stream), ErrorKind::Uninitialized, &["never"]);
    refused(add(&mut out, &never, 1.0).run(&stream), ErrorKind::Uninitialized, &["never"]);
    // Nothing has run, so no field has lost its values.
    let mut kept = grid.field("kept").filled(5.0)?;
    refused(fresh(&mut kept, &never).run(&stream), ErrorKind::Uninitialized, &["never"]);
    refused(count(&mut kept, &mut never).run(&stream), ErrorKind::Uninitialized, &["never"]);
    assert_eq!(kept.read_host()?.sum(), 150.0);
    Ok(())
}

/// Has a value on faces, and does not read its input.
#[stencil]
fn one(out: Out<f64, 2>, _t: In<f64, 2>) {
    out.set(1.0);
}

#[test]
fn an_input_that_is_not_read_needs_no_ghosts() -> Result<()> {
    let device = host();
    let grid = Grid::cartesian([6, 5]).build(&device)?;
    let t = grid.field("t").filled(0.0)?;
    let mut face = grid.field("face").at(Location::Face(0)).uninit()?;
    one(&mut face, &t).run(&device.default_stream())?;
    assert_eq!(face.read_host()?.sum(), 35.0);
    Ok(())
}

#[stencil]
fn both(out: Out<f64, 2>, t: In<f64, 2>, never: In<f64, 2>) {
    out.set(t.at(-1, 0) + t.at(1, 0) + never.at(0, 0));
}

/// A rank without points would go on to the exchange, where it would wait for the others.
#[test]
fn all_ranks_refuse_fields_that_were_never_set() -> Result<()> {
    let device = host();
    let refusals = |communicator: Arc<dyn Communicator>| -> Result<()> {
        let never = ErrorKind::Uninitialized;
        let grid = Grid::cartesian([9, 6]).blocks([0, 1]).ranks(communicator).build(&device)?;
        let stream = device.default_stream();
        let boundaries = |name| grid.field(name).boundary(Boundary::Clamp);
        let t = boundaries("t").filled(1.0)?;
        let unset = boundaries("unset").uninit()?;
        let mut computed = grid.field("computed").boundary(Boundary::Computed).uninit()?;
        let mut out = grid.field("out").uninit()?;
        // All points of the first rank, and none of the others.
        refused(neighbours(&mut out, &t).over(0, 0..3).run(&stream), never, &["keeps", "out"]);
        refused(
            copy(&mut computed, &t).on(End::Low(0)).run(&stream),
            never,
            &["keeps", "computed"],
        );
        let mut out = grid.field("out").filled(0.0)?;
        refused(both(&mut out, &t, &unset).over(0, 0..2).run(&stream), never, &["unset"]);
        neighbours(&mut out, &t).run(&stream)?;
        assert!(out.read_host()?.iter().all(|value| *value == 2.0));
        Ok(())
    };
    refusals(Arc::new(ThreadCommunicator::group(1)?.remove(0)))?;
    for by_messages in [false, true] {
        let ranks = ThreadCommunicator::run(3, |rank| match by_messages {
            true => refusals(messages::by_messages(rank)),
            false => refusals(Arc::new(rank)),
        })?;
        ranks.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

#[stencil]
fn neighbours(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(-1, 0) + t.at(1, 0));
}

#[test]
fn errors_of_outputs_say_which_of_them_keep_values() -> Result<()> {
    const HINT: &str = "an output keeps the points that a launch leaves out";
    let device = Device::new(SimDevice::new(0, SimConfig::new().memory_bytes(1 << 16)))?;
    let stream = device.default_stream();
    let grid = Grid::cartesian([64, 64]).build(&device)?;
    let y = grid.field("y").filled(1.0)?;
    let mut unset = grid.field("unset").uninit()?;
    let error = one(&mut unset, &y).over(0, 1..3).run(&stream).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Uninitialized && error.to_string().contains(HINT),
        "{error}"
    );
    let error = add(&mut unset, &y, 1.0).run(&stream).unwrap_err();
    assert!(error.kind() == ErrorKind::Uninitialized, "{error}");
    assert!(!error.to_string().contains(HINT), "an update reads all points: {error}");
    // One field fills the memory of the device.
    add(&mut grid.field("x").filled(1.0)?, &grid.field("z").filled(1.0)?, 1.0)
        .run(&stream)
        .unwrap_err();
    let mut out = [grid.field("a").uninit()?, grid.field("b").uninit()?];
    let [a, b] = &mut out;
    let error = two(a, b).run(&stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(!error.to_string().contains(HINT), "{error}");
    Ok(())
}

/// Ghosts of `t` from its own points.
#[column(backward, ghosts)]
fn keep(t: InOut<f64, 2>, by: f64) {
    t.set(by * t.at(1, 0));
}

#[stencil]
fn copy(t: Out<f64, 2>, of: In<f64, 2>) {
    t.set(of.at(0, 0));
}

#[stencil]
fn west(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(-1, 0));
}

#[stencil]
fn north_west(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(-1, 1));
}

#[test]
fn ghosts_that_cannot_be_computed_are_refused() -> Result<()> {
    let (device, bad) = (host(), ErrorKind::InvalidArgument);
    let stream = device.default_stream();
    let grid = Grid::cartesian([6, 5]).periodic([false, true]).halo(2).build(&device)?;
    let (low, high) = (End::Low(0), End::High(0));
    let mut t = grid.field("heat").boundary_at(low, Boundary::Computed).filled(1.0)?;
    let x = grid.field("x").boundary_at(low, Boundary::Clamp).filled(1.0)?;
    let mut on = |end, parts: &[&str]| refused(copy(&mut t, &x).on(end).run(&stream), bad, parts);
    on(End::High(2), &["stencil copy", "on(End::High(2))", "no axis 2 in a grid of 2 axes"]);
    on(End::Low(1), &["on(End::Low(1))", "axis 1 is periodic"]);
    on(high, &["on(End::High(0))", "field heat (parameter t)", "make it `Boundary::Computed`"]);
    let limited = copy(&mut t, &x).on(low).over(1, 2..3);
    refused(limited.run(&stream), bad, &["leave out `inside` and `over`", "index(axis)"]);
    let limited = copy(&mut t, &x).inside(1).on(low);
    refused(limited.run(&stream), bad, &["leave out `inside` and `over`"]);
    let updated = add(&mut t, &x, 1.0).on(low);
    refused(updated.run(&stream), bad, &["field heat (parameter x)", "no values before"]);
    // Where inputs are read.
    refused(
        west(&mut t, &x).on(low).run(&stream),
        bad,
        &["field x (parameter t)", "3 points beyond", "2 ghosts"],
    );
    let small = Grid::cartesian([1, 5]).halo(1).build(&device)?;
    let mut narrow = small.field("narrow").boundary_at(low, Boundary::Computed).filled(1.0)?;
    let y = small.field("y").filled(1.0)?;
    refused(
        inner(&mut narrow, &y).on(low).run(&stream),
        bad,
        &["field y", "2 points within an end of axis 0", "has 1"],
    );
    // As many as the block has are enough.
    let two_cells = Grid::cartesian([2, 5]).halo(1).build(&device)?;
    let enough = two_cells.field("enough").boundary_at(low, Boundary::Computed);
    let (mut enough, z) = (enough.filled(1.0)?, two_cells.field("z").filled(1.0)?);
    inner(&mut enough, &z).on(low).run(&stream)?;
    let nothing = grid.field("nothing").filled(1.0)?;
    refused(
        copy(&mut t, &nothing).on(low).run(&stream),
        bad,
        &["field nothing (parameter of)", "2 before the first point along axis 0", "give it one"],
    );
    // Columns of ghosts.
    let outwards = ["column keep", "launch it with `on(End::Low(0))`"];
    refused(keep(&mut t, 0.5).run(&stream), bad, &outwards);
    refused(keep(&mut t, 0.5).on(high).run(&stream), bad, &outwards);
    let without = Grid::cartesian([6, 5]).halo(0).build(&device)?;
    let mut none = without.field("none").boundary(Boundary::Computed).filled(1.0)?;
    refused(keep(&mut none, 0.5).on(low).run(&stream), bad, &["halo of 0"]);
    let mut unset = t.like("unset")?;
    refused(keep(&mut unset, 0.5).on(low).run(&stream), ErrorKind::Uninitialized, &["unset"]);
    // Nothing was computed.
    let mut out = grid.field("out").uninit()?;
    refused(west(&mut out, &t).run(&stream), ErrorKind::Stale, &["heat"]);
    keep(&mut t, 0.5).on(low).run(&stream)?;
    west(&mut out, &t).run(&stream)?;
    assert_eq!(out.read_host()?.sum(), 27.5);
    Ok(())
}

#[stencil]
fn inner(t: Out<f64, 2>, y: In<f64, 2>) {
    t.set(y.at(1, 0) + y.at(2, 0));
}

#[test]
fn ghosts_that_were_not_computed_are_not_read() -> Result<()> {
    let device = host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([6, 5]).build(&device)?;
    let field = |name| grid.field(name).boundary_at(End::Low(0), Boundary::Computed);
    let mut t = field("heat").boundary_at(End::High(1), Boundary::Clamp).filled(1.0)?;
    let mut out = t.like("out")?;
    let stale = ["field heat", "End::Low(0)", "launch a stencil with `on(End::Low(0))`"];
    let (bad, old) = (ErrorKind::InvalidArgument, ErrorKind::Stale);
    refused(west(&mut out, &t).run(&stream), old, &stale);
    keep(&mut t, 0.5).on(End::Low(0)).run(&stream)?;
    west(&mut out, &t).run(&stream)?;
    assert_eq!(out.read_host()?.sum(), 27.5);
    // They are stale when values, boundaries or the grid's exchanges change.
    t.set_from_fn(|_| 2.0)?;
    refused(west(&mut out, &t).run(&stream), old, &stale);
    keep(&mut t, 0.5).on(End::Low(0)).run(&stream)?;
    add(&mut t, &out, 0.0).run(&stream)?;
    refused(west(&mut out, &t).run(&stream), old, &stale);
    keep(&mut t, 0.5).on(End::Low(0)).run(&stream)?;
    t.set_boundary(End::High(1), Boundary::Mirror)?;
    refused(west(&mut out, &t).run(&stream), old, &stale);
    keep(&mut t, 0.5).on(End::Low(0)).run(&stream)?;
    grid.reset()?;
    refused(west(&mut out, &t).run(&stream), old, &stale);
    // They belong to the values, not to the variable.
    keep(&mut t, 0.5).on(End::Low(0)).run(&stream)?;
    swap(&mut t, &mut out);
    let other = ["field out", "End::Low(0)"];
    let mut next = t.like("next")?;
    refused(west(&mut next, &t).run(&stream), old, &other);
    west(&mut next, &out).run(&stream)?;
    assert_eq!(next.read_host()?.sum(), 55.0);
    // Points that do not need them, and corners that are not computed.
    west(&mut next, &t).over(0, 1..).run(&stream)?;
    let corner = ["field heat (parameter t)", "at corners", "End::Low(0)"];
    refused(north_west(&mut next, &out).run(&stream), bad, &corner);
    north_west(&mut next, &out).over(1, ..4).run(&stream)?;
    Ok(())
}

#[test]
fn ghosts_whose_computation_failed_are_not_read() -> Result<()> {
    for make in [Fault::fail, Fault::fail_late] {
        let config = SimConfig::new().fault(make(Operation::Launch, 2));
        let device = Device::new(SimDevice::new(0, config))?;
        let stream = device.default_stream();
        let grid = Grid::cartesian([6, 5]).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Computed);
        let mut t =
            t.boundary_at(End::High(0), Boundary::Clamp).from_fn(|[i, _]| i as f64 + 1.0)?;
        let mut out = t.like("out")?;
        keep(&mut t, 1.0).on(End::Low(0)).run(&stream)?;
        let failed =
            keep(&mut t, 2.0).on(End::Low(0)).run(&stream).and_then(|()| stream.synchronize());
        failed.unwrap_err();
        let read = west(&mut out, &t).run(&stream).and_then(|()| out.read_host().map(drop));
        let kind = read.unwrap_err().kind();
        assert!([ErrorKind::Stale, ErrorKind::Poisoned].contains(&kind), "{kind:?}");
        keep(&mut t, 2.0).on(End::Low(0)).run(&stream)?;
        west(&mut out, &t).run(&stream)?;
        assert_eq!(out.read_host()?.sum(), 5.0 * 17.0);
    }
    Ok(())
}

#[stencil]
fn south(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(0, -1));
}

/// Launches that need other ghosts come between. Afterwards the lost ones are filled again, or an error.
#[test]
fn ghosts_that_were_lost_are_not_read_after_others_were_filled() -> Result<()> {
    let makes: [fn(Operation, u64) -> Fault; 2] = [Fault::fail, Fault::fail_late];
    let cases = makes.into_iter().flat_map(|make| [(make, false), (make, true)]);
    for ((make, other), is_known) in cases.flat_map(|case| [(case, false), (case, true)]) {
        let config = SimConfig::new().fault(make(Operation::Launch, 1));
        let device = Device::new(SimDevice::new(0, config))?;
        let first = device.default_stream();
        let second =
            if other { device.stream_create(&StreamOptions::default())? } else { first.clone() };
        let grid = Grid::cartesian([4, 4]).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Clamp);
        let mut t = t.boundary_at(End::Low(0), Boundary::Computed).filled(1.0)?;
        let mut out = t.like("out")?;
        drop(keep(&mut t, 7.0).on(End::Low(0)).run(&first));
        // The failure is known before the exchange of other ghosts, or after it.
        for synchronizes in [is_known, !is_known] {
            if synchronizes {
                drop(first.synchronize());
            } else {
                drop(south(&mut out, &t).run(&second));
            }
        }
        let read = west(&mut out, &t).run(&second).and_then(|()| out.read_host().map(drop));
        let kind = read.unwrap_err().kind();
        assert!([ErrorKind::Stale, ErrorKind::Poisoned].contains(&kind), "{kind:?}");
        drop(device.synchronize());
        keep(&mut t, 3.0).on(End::Low(0)).run(&first)?;
        west(&mut out, &t).run(&second)?;
        assert_eq!(out.read_host()?[[0, 0]], 3.0);
    }
    Ok(())
}

/// One field is two inputs: the first one needs other ghosts to be filled, the second one reads the lost ones.
#[test]
fn ghosts_that_were_lost_are_not_read_by_another_input() -> Result<()> {
    let config = SimConfig::new().fault(Fault::fail_late(Operation::Launch, 1));
    let device = Device::new(SimDevice::new(0, config))?;
    let stream = device.default_stream();
    let grid = Grid::cartesian([4, 4]).build(&device)?;
    let t = grid.field("t").boundary(Boundary::Clamp);
    let mut t = t.boundary_at(End::Low(0), Boundary::Computed).filled(1.0)?;
    let mut out = t.like("out")?;
    keep(&mut t, 7.0).on(End::Low(0)).run(&stream)?;
    stream.synchronize().unwrap_err();
    let ghosts = ["field t", "on(End::Low(0))"];
    refused(south_and_west(&mut out, &t, &t).run(&stream), ErrorKind::Stale, &ghosts);
    Ok(())
}

#[stencil]
fn south_and_west(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>) {
    out.set(a.at(0, -1) + b.at(-1, 0));
}

#[test]
fn ghosts_that_failed_copies_should_have_filled_are_not_read() -> Result<()> {
    let makes: [fn(Operation, u64) -> Fault; 2] = [Fault::fail, Fault::fail_late];
    for (number, make) in (1..30).flat_map(|number| makes.map(|make| (number, make))) {
        let config = SimConfig::new().region_copies(false).fault(make(Operation::Copy, number));
        let device = Device::new(SimDevice::new(0, config))?;
        let stream = device.default_stream();
        let grid = Grid::cartesian([4, 4]).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Extrapolate);
        let mut t = t.from_fn(|[i, j]| (i + 10 * j) as f64)?;
        let mut out = t.like("out")?;
        for step in 0..6 {
            let is_west = step % 2 == 0;
            let launch = if is_west { west(&mut out, &t) } else { south(&mut out, &t) };
            let done = launch.run(&stream).and_then(|()| out.read_host().map(|out| out[[0, 0]]));
            if let Ok(value) = done {
                assert_eq!(
                    value,
                    if is_west { -1.0 } else { -10.0 },
                    "fault {number}, step {step}"
                );
            }
        }
        drop(t.read_host());
    }
    Ok(())
}

/// An error about one field leaves the ghosts of others to be filled, or computed, again.
#[test]
fn an_error_about_one_field_says_what_the_ghosts_of_another_need() -> Result<()> {
    let device = host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([4, 4]).build(&device)?;
    let t = grid.field("t").boundary(Boundary::Clamp);
    let mut t = t.boundary_at(End::Low(0), Boundary::Computed).filled(1.0)?;
    let mut out = t.like("out")?;
    let made = |name| grid.field(name).boundary(Boundary::Clamp);
    let (unset, mut lost) = (made("unset").uninit()?, made("lost").filled(1.0)?);
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lost.write_host();
        panic!("on purpose");
    }));
    panics.unwrap_err();
    keep(&mut t, 7.0).on(End::Low(0)).run(&stream)?;
    let unset = both_south(&mut out, &t, &unset).run(&stream);
    refused(unset, ErrorKind::Uninitialized, &["field unset"]);
    // Nothing was done.
    west(&mut out, &t).run(&stream)?;
    let lost = both_south(&mut out, &t, &lost).run(&stream);
    refused(lost, ErrorKind::Poisoned, &["field lost"]);
    refused(west(&mut out, &t).run(&stream), ErrorKind::Stale, &["field t", "on(End::Low(0))"]);
    south(&mut out, &t).run(&stream)?;
    assert_eq!(out.read_host()?.sum(), 16.0);
    Ok(())
}

/// Two grids of the same ranks may be alike in all else.
#[test]
fn ranks_that_use_their_grids_in_other_orders_get_errors() {
    let device = host();
    let results = pair(|ranks| {
        let (stream, rank) = (device.default_stream(), ranks.rank());
        let mut fields = Vec::new();
        for first in [0.0, 1000.0] {
            let grid = Grid::cartesian([16, 5]).periodic([true; 2]).ranks(Arc::clone(&ranks));
            let grid = grid.timeout(Duration::from_secs(5)).build(&device)?;
            let t = grid.field("t").from_fn(|[i, _]| first + i as f64)?;
            fields.push((t.like("out")?, t));
        }
        fields.rotate_left(rank);
        for (out, t) in &mut fields {
            east(out, t).run(&stream)?;
        }
        Ok(())
    });
    for result in results {
        let kinds = [ErrorKind::InvalidArgument, ErrorKind::Conflict, ErrorKind::PeerLost];
        let error: Error = result.unwrap_err();
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}

#[stencil]
fn both_south(out: Out<f64, 2>, t: In<f64, 2>, u: In<f64, 2>) {
    out.set(t.at(0, -1) + u.at(0, -1));
}

#[test]
fn ranks_that_compute_ghosts_of_other_ends_get_errors() {
    let device = host();
    let results = pair(|ranks| {
        let (stream, rank) = (device.default_stream(), ranks.rank());
        let timeout = Duration::from_secs(5);
        let grid = Grid::cartesian([8, 5]).ranks(ranks).timeout(timeout).build(&device)?;
        let mut t = grid.field("t").boundary(Boundary::Computed).filled(1.0)?;
        let x = grid.field("x").boundary(Boundary::Clamp).filled(1.0)?;
        let mut out = grid.field("out").filled(1.0)?;
        copy(&mut t, &x).on([End::Low(0), End::High(0)][rank]).run(&stream)?;
        // It needs no ghosts beyond the ends.
        east(&mut out, &t).over(0, ..7).run(&stream)
    });
    for result in results {
        refused(result, ErrorKind::InvalidArgument, &["launches of different stencils"]);
    }
}

#[test]
fn grids_and_fields_that_make_no_sense_are_refused() {
    let device = host();
    let refused = |error: Option<Error>, part: &str| {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(part), "{error} lacks {part:?}");
    };
    refused(Grid::cartesian([0, 5]).build(&device).err(), "0");
    refused(Grid::cartesian([4; 4]).build(&device).err(), "4 axes");
    refused(Grid::cartesian([]).build(&device).err(), "0 axes");
    refused(Grid::cartesian([4]).halo(1025).build(&device).err(), "halo of 1025; at most 1024");
    refused(Grid::cartesian([4]).periodic([true]).halo(5).build(&device).err(), "4 cells");
    let blocks = |given| Grid::cartesian([4, 4]).blocks(given).build(&device).err();
    refused(blocks([2, 0]), "1 is no multiple of 2");
    let grid = Grid::cartesian([4, 4]).build(&device).unwrap();
    refused(grid.field::<f64>("f").at(Location::Face(2)).uninit().err(), "axis 2");
    refused(grid.field("f").boundary(Boundary::OddMirror).filled(1_u32).err(), "u32");
    let mut field = grid.field("f").filled(1.0).unwrap();
    refused(field.set_boundary(End::Low(2), Boundary::Clamp).err(), "axis 2");
    let far = grid.field("f").boundary_at(End::High(7), Boundary::Value(1.0));
    refused(far.boundary_at(End::Low(0), Boundary::Clamp).filled(1.0).err(), "axis 7");
    let wide = Grid::cartesian([1, 4]).halo(2).build(&device).unwrap();
    let t = wide.field("t").boundary(Boundary::Mirror).filled(1.0).unwrap();
    let mut out = t.like("out").unwrap();
    let error = wrap(&mut out, &t).run(&device.default_stream()).err();
    refused(error, "at an end of axis 0 is made of 2 points; the block there has 1");
    let enough = Grid::cartesian([2, 4]).halo(2).build(&device).unwrap();
    let t = enough.field("t").boundary(Boundary::Mirror).filled(1.0).unwrap();
    let mut out = t.like("out").unwrap();
    wrap(&mut out, &t).run(&device.default_stream()).unwrap();
    assert_eq!(out.read_host().unwrap().sum(), 16.0);
}

#[stencil]
fn wrap(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(2, 0) + t.at(-2, 0));
}

#[test]
fn arguments_that_are_not_those_of_the_stencil_are_refused() -> Result<()> {
    let device = host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([6, 5]).build(&device)?;
    let mut x = grid.field("x").filled(1.0)?;
    let y = grid.field("y").filled(1.0)?;
    let small = grid.field("small").filled(1.0_f32)?;
    let line = Grid::cartesian([6]).build(&device)?.field("line").filled(1.0)?;
    let one = || Scalar::from(1.0);
    let bad = |result| refused(result, ErrorKind::InvalidArgument, &["stencil add"]);
    let stencil = add::STENCIL;
    bad(launch(stencil, [], &[one()]).run(&stream));
    bad(launch(stencil, [Argument::update(&mut x)], &[one()]).run(&stream));
    let more = [Argument::update(&mut x), Argument::input(&y), Argument::input(&y)];
    bad(launch(stencil, more, &[one()]).run(&stream));
    bad(launch(stencil, [Argument::input(&y), Argument::input(&y)], &[one()]).run(&stream));
    bad(launch(stencil, [Argument::output(&mut x), Argument::input(&y)], &[one()]).run(&stream));
    bad(launch(stencil, [Argument::update(&mut x), Argument::input(&small)], &[one()]).run(&stream));
    bad(launch(stencil, [Argument::update(&mut x), Argument::input(&line)], &[one()]).run(&stream));
    bad(launch(stencil, [Argument::update(&mut x), Argument::input(&y)], &[]).run(&stream));
    let narrow = [Scalar::from(1.0_f32)];
    bad(launch(stencil, [Argument::update(&mut x), Argument::input(&y)], &narrow).run(&stream));
    launch(stencil, [Argument::update(&mut x), Argument::input(&y)], &[one()]).run(&stream)?;
    assert_eq!(x.read_host()?.sum(), 60.0);
    Ok(())
}

/// Calls `work` as each of two ranks.
fn pair<T: Send>(work: impl Fn(Arc<dyn Communicator>) -> T + Sync) -> [T; 2] {
    pair_over(|rank| Arc::new(rank), work)
}

fn pair_over<T: Send>(
    transport: fn(ThreadCommunicator) -> Arc<dyn Communicator>,
    work: impl Fn(Arc<dyn Communicator>) -> T + Sync,
) -> [T; 2] {
    let results = ThreadCommunicator::run(2, |rank| work(transport(rank))).unwrap();
    results.try_into().unwrap_or_else(|_| unreachable!())
}

#[test]
fn ranks_that_make_other_launches_get_errors_and_go_on_after_a_reset() {
    let device = host();
    let results = pair(|ranks| {
        let (stream, rank) = (device.default_stream(), ranks.rank());
        let timeout = Duration::from_secs(5);
        let grid = Grid::cartesian([8, 5]).halo(2).ranks(ranks).timeout(timeout).build(&device)?;
        let field = |name| grid.field(name).boundary(Boundary::Clamp).from_fn(|[i, _]| i as f64);
        let (mut t, mut out) = (field("t")?, field("out")?);
        // One rank writes alone: the other knows nothing of it, and does not exchange.
        east(&mut out, &t).run(&stream)?;
        if rank == 0 {
            add(&mut t, &out, 0.0).run(&stream)?;
        }
        let first = if rank == 0 { east(&mut out, &t) } else { wrap(&mut out, &t) }.run(&stream);
        let kind = first.unwrap_err().kind();
        grid.reset()?;
        t.set_from_fn(|[i, _]| i as f64)?;
        east(&mut out, &t).run(&stream)?;
        let sum = out.read_host()?.sum();
        Ok::<_, Error>((kind, sum))
    });
    for (result, sum) in results.into_iter().zip([50.0, 125.0]) {
        let (kind, found) = result.unwrap();
        let expected = [ErrorKind::InvalidArgument, ErrorKind::Conflict, ErrorKind::Timeout];
        assert!(expected.contains(&kind), "{kind:?}");
        assert_eq!(found, sum);
    }
}

#[test]
fn a_block_that_is_too_small_for_a_boundary_is_refused_on_all_ranks() {
    let device = host();
    let results = pair(|ranks| {
        let stream = device.default_stream();
        let grid = Grid::cartesian([3, 5]).blocks([2, 1]).ranks(ranks).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Extrapolate).filled(1.0)?;
        let mut out = grid.field("out").filled(2.0)?;
        let error = back_and_forth(&mut out, &t).run(&stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(
            error.to_string().contains("is made of 2 points; the block there has 1"),
            "{error}"
        );
        Ok::<_, Error>(out.read_host()?.sum())
    });
    let sums = results.map(Result::unwrap);
    assert_eq!(sums.iter().sum::<f64>(), 30.0);
}

#[stencil]
fn back_and_forth(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(1, 0) + t.at(-1, 0));
}

#[test]
fn ranks_that_pass_other_fields_get_errors() {
    let device = host();
    let results = pair(|ranks| {
        let (stream, rank) = (device.default_stream(), ranks.rank());
        let timeout = Duration::from_secs(5);
        let grid = Grid::cartesian([8, 5]).ranks(ranks).timeout(timeout).build(&device)?;
        let field = |name| grid.field(name).boundary(Boundary::Clamp).filled(1.0);
        let (one, other, mut out) = (field("one")?, field("other")?, field("out")?);
        east(&mut out, if rank == 0 { &one } else { &other }).run(&stream)
    });
    for result in results {
        refused(
            result,
            ErrorKind::InvalidArgument,
            &["stencil east", "launches of different stencils"],
        );
    }
}

#[test]
fn ranks_that_pass_other_scalars_get_errors() {
    let device = host();
    let results = pair(|ranks| {
        let (stream, rank) = (device.default_stream(), ranks.rank());
        let timeout = Duration::from_secs(5);
        let grid = Grid::cartesian([8, 5]).ranks(ranks).timeout(timeout).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Clamp).filled(1.0)?;
        let mut out = grid.field("out").filled(1.0)?;
        // Differences in the same bit of two scalars.
        let sign = if rank == 0 { 1.0 } else { -1.0 };
        scaled_east(&mut out, &t, sign, 2.0 * sign).run(&stream)
    });
    for result in results {
        refused(
            result,
            ErrorKind::InvalidArgument,
            &["stencil scaled_east", "launches of different stencils"],
        );
    }
}

#[test]
fn faces_of_a_cubed_sphere_are_exchanged_as_vectors_alone() -> Result<()> {
    let device = host();
    let results = ThreadCommunicator::run(6, |rank| -> Result<()> {
        let stream = device.default_stream();
        let grid = Grid::cubed_sphere(4).ranks(Arc::new(rank)).build(&device)?;
        let u = grid.field("u").at(Location::Face(0)).filled(1.0)?;
        let mut out = u.like("out")?;
        east(&mut out, &u).run(&stream)
    })?;
    for result in results {
        refused(result, ErrorKind::InvalidArgument, &["field u is at Face(0)", "Grid::vector"]);
    }
    Ok(())
}

/// The message of the exchange that failed has the tag of the other grid's first exchange.
#[test]
fn after_the_reset_of_a_grid_others_of_the_communicator_work() {
    let device = host();
    for transport in [by_messages, |rank| Arc::new(rank)] as [fn(_) -> _; 2] {
        for late in [0, 1] {
            let turn = Barrier::new(2);
            let results = pair_over(transport, |ranks| -> Result<_> {
                let (stream, rank) = (device.default_stream(), ranks.rank());
                let grid = || {
                    let grid = Grid::cartesian([8, 5]).periodic([true, false]);
                    let timeout = Duration::from_millis(300);
                    grid.ranks(Arc::clone(&ranks)).timeout(timeout).build(&device)
                };
                let grids = [grid()?, grid()?];
                let make = |grid: &Grid<2>| -> Result<_> {
                    let t = grid.field("t").filled(1.0)?;
                    let mut out = t.like("out")?;
                    east(&mut out, &t).run(&stream)?;
                    Ok((t, out))
                };
                let [mut one, mut other] = [make(&grids[0])?, make(&grids[1])?];
                for t in [&mut one.0, &mut other.0] {
                    t.set_from_fn(|[i, j]| (10 * i + j) as f64)?;
                }
                if rank != late {
                    assert!(east(&mut one.1, &one.0).run(&stream).is_err());
                }
                turn.wait();
                grids[0].reset()?;
                for (t, out) in [&mut other, &mut one] {
                    east(out, t).run(&stream)?;
                }
                Ok([one.1.read_host()?.sum(), other.1.read_host()?.sum()])
            });
            let sums = results.map(Result::unwrap);
            assert_eq!(sums[0][0] + sums[1][0], 8.0 * 10.0 + 35.0 * 40.0);
            assert_eq!(sums.map(|[one, other]| one - other), [0.0; 2]);
        }
    }
}

#[stencil]
fn scaled_east(out: Out<f64, 2>, t: In<f64, 2>, by: f64, and: f64) {
    out.set(by * t.at(1, 0) + and);
}

mod first_body {
    use stencil::{In, Out, stencil};

    #[stencil]
    pub(crate) fn step(out: Out<f64, 2>, t: In<f64, 2>) {
        out.set(t.at(1, 0) + 1.0);
    }
}

mod second_body {
    use stencil::{In, Out, stencil};

    #[stencil]
    pub(crate) fn step(out: Out<f64, 2>, t: In<f64, 2>) {
        out.set(t.at(1, 0) + 2.0);
    }
}

#[test]
fn ranks_that_launch_other_stencils_of_one_name_get_errors() {
    let device = host();
    let results = pair(|ranks| {
        let (stream, rank) = (device.default_stream(), ranks.rank());
        let timeout = Duration::from_secs(5);
        let grid = Grid::cartesian([8, 5]).ranks(ranks).timeout(timeout).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Clamp).filled(1.0)?;
        let mut out = grid.field("out").filled(1.0)?;
        if rank == 0 { first_body::step(&mut out, &t) } else { second_body::step(&mut out, &t) }
            .run(&stream)
    });
    for result in results {
        refused(
            result,
            ErrorKind::InvalidArgument,
            &["stencil step", "launches of different stencils"],
        );
    }
}

/// The points that read no ghosts are computed before the launch fails.
#[test]
fn the_output_of_a_launch_that_failed_half_way_cannot_be_read() {
    let device = host();
    let results = pair_over(by_messages, |ranks| {
        let (stream, rank) = (device.default_stream(), ranks.rank());
        let timeout = Duration::from_millis(300);
        let grid = Grid::cartesian([16, 5]).ranks(ranks).timeout(timeout).build(&device)?;
        let mut t = grid.field("t").boundary(Boundary::Clamp).filled(1.0)?;
        let mut out = grid.field("out").uninit()?;
        east(&mut out, &t).run(&stream)?;
        if rank == 0 {
            t.set_from_fn(|_| 2.0)?;
            let mut fresh = grid.field("fresh").uninit()?;
            let error = east(&mut fresh, &t).run(&stream).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert_eq!(fresh.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
        } else {
            std::thread::sleep(Duration::from_millis(700));
        }
        Ok::<_, Error>(())
    });
    results.into_iter().for_each(Result::unwrap);
}

#[test]
fn a_rank_that_is_absent_is_reported_and_may_come_back() {
    let device = host();
    let results = pair(|ranks| {
        let (stream, rank) = (device.default_stream(), ranks.rank());
        let timeout = Duration::from_millis(300);
        let grid = Grid::cartesian([8, 5]).ranks(ranks).timeout(timeout).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Clamp).from_fn(|[i, _]| i as f64)?;
        let mut out = t.like("out")?;
        if rank == 0 {
            let error = east(&mut out, &t).run(&stream).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert!(error.to_string().contains("ghosts of t"), "{error}");
        } else {
            std::thread::sleep(Duration::from_millis(700));
        }
        while let Err(error) = grid.reset() {
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        }
        east(&mut out, &t).run(&stream)?;
        Ok::<_, Error>(out.read_host()?.sum())
    });
    for (result, sum) in results.into_iter().zip([50.0, 125.0]) {
        assert_eq!(result.unwrap(), sum);
    }
}

/// Two ranks that share a device make three steps. If one of them fails, both begin again. Returns their sums.
fn steps_with(faults: impl IntoIterator<Item = Fault>) -> [Result<f64>; 2] {
    let config = faults.into_iter().fold(SimConfig::new().seed(1), SimConfig::fault);
    let device = Device::new(SimDevice::new(0, config)).unwrap();
    let (barrier, failed) = (Barrier::new(2), AtomicUsize::new(0));
    pair(|ranks| {
        let stream = device.stream_create(&StreamOptions::default()).unwrap();
        let timeout = Duration::from_millis(400);
        let grid = Grid::cartesian([8, 5]).ranks(ranks).timeout(timeout).build(&device).unwrap();
        let work = || {
            let t = grid.field("t").boundary(Boundary::Value(1.0));
            let mut t = t.from_fn(|[i, j]| (i + j) as f64)?;
            let mut out = t.like("out")?;
            for _ in 0..3 {
                east(&mut out, &t).run(&stream)?;
                swap(&mut t, &mut out);
            }
            stream.synchronize()?;
            Ok::<_, Error>(t.read_host()?.sum())
        };
        for _ in 0..20 {
            let done = work();
            failed.fetch_add(usize::from(done.is_err()), Ordering::SeqCst);
            barrier.wait();
            let all_good = failed.load(Ordering::SeqCst) == 0;
            barrier.wait();
            failed.store(0, Ordering::SeqCst);
            if all_good || done.as_ref().is_err_and(|error| error.kind() == ErrorKind::DeviceLost) {
                return done;
            }
            let _reported = stream.synchronize();
            while grid.reset().is_err() {}
            barrier.wait();
        }
        panic!("twenty failures of one fault");
    })
}

#[test]
fn after_any_fault_the_ranks_begin_again_and_have_the_same_values() {
    let [Ok(first), Ok(second)] = steps_with([]) else { panic!("no fault was planned") };
    let mut faults = Vec::new();
    for nth in 1..5 {
        faults.extend([
            Fault::fail(Operation::Launch, nth),
            Fault::fail_late(Operation::Launch, nth),
        ]);
        for operation in [Operation::Allocation, Operation::Copy] {
            faults.extend([Fault::fail(operation, 2 * nth), Fault::fail_late(operation, 2 * nth)]);
        }
    }
    for fault in faults {
        let results = steps_with([fault]).map(|result| result.unwrap());
        assert_eq!(results, [first, second], "{fault:?}");
    }
}

#[test]
fn ranks_that_gather_fields_of_different_grids_get_an_error() -> Result<()> {
    let device = host();
    let outcomes = ThreadCommunicator::run(2, |rank| -> Result<()> {
        let (number, ranks): (_, Arc<dyn Communicator>) = (rank.rank(), Arc::new(rank));
        let grids = [(); 2].map(|()| Grid::cartesian([8, 8]).ranks(ranks.clone()).build(&device));
        let [a, b] = grids;
        let mut fields = [a?.field("f").filled(0.0)?, b?.field("f").filled(1.0)?];
        refused(fields[number].gather(0).map(drop), ErrorKind::InvalidArgument, &["another grid"]);
        Ok(())
    })?;
    outcomes.into_iter().collect()
}

#[reduction(max)]
fn greatest(t: In<f64, 1>) -> f64 {
    t.at(0)
}

#[test]
fn a_reduction_of_the_last_face_of_a_periodic_axis_without_the_first_is_refused() -> Result<()> {
    let device = host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([10]).periodic([true]).build(&device)?;
    let t = grid.field("t").at(Location::Face(0)).from_fn(|[i]| (i % 10) as f64)?;
    for start in [10, 3] {
        let error = greatest(&t).over(0, start..).run(&stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&format!("points {start}..11 along axis 0")), "{error}");
    }
    assert_eq!(greatest(&t).over(0, 3..10).run(&stream)?.get()?, 9.0);
    assert_eq!(greatest(&t).run(&stream)?.get()?, 9.0);
    for (error, points) in [
        (
            greatest(&t).over(0, 12..).run(&stream).unwrap_err(),
            "points 12.. along axis 0; t has 11",
        ),
        (
            greatest(&t).over(0, ..12).run(&stream).unwrap_err(),
            "points 0..12 along axis 0; t has 11",
        ),
    ] {
        assert!(error.to_string().contains(points), "{error}");
    }
    Ok(())
}

/// No other rank depends on the order of their calls.
#[test]
fn threads_use_the_fields_of_a_single_rank() -> Result<()> {
    let device = host();
    let grid = Grid::cartesian([10]).periodic([true]).build(&device)?;
    let outcomes = std::thread::scope(|scope| {
        let (device, grid) = (&device, &grid);
        let each = [1.0, 2.0, 3.0, 4.0].map(|value| {
            scope.spawn(move || -> Result<()> {
                let stream = device.stream_create(&StreamOptions::default())?;
                for _ in 0..50 {
                    let mut t = grid.field("t").filled(value)?;
                    let sum = greatest(&t).run(&stream)?;
                    // The result may be read twice.
                    assert_eq!([sum.get()?, sum.get()?], [value; 2]);
                    assert_eq!(t.gather(0)?.map(|all| all[0]), Some(value));
                }
                Ok(())
            })
        });
        each.map(|thread| thread.join().unwrap())
    });
    outcomes.into_iter().collect()
}
