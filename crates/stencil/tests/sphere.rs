//! Fields on the cubed sphere: scalars and vectors across the seams of tiles.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

#[path = "../../halo/tests/altered/mod.rs"]
mod altered;
#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;
mod messages;

use std::mem::swap;
use std::sync::Arc;

use halo::communicator::{Communicator, ThreadCommunicator};
use messages::by_messages;
use runtime_core::Device;
use stencil::{Boundary, End, Error, ErrorKind, Grid, In, Out, Result, stencil};

/// A smoothing of a vector, and of its divergence.
#[stencil]
fn spread(
    u1: Out<f64, 2>,
    v1: Out<f64, 2>,
    h1: Out<f64, 2>,
    u: In<f64, 2>,
    v: In<f64, 2>,
    h: In<f64, 2>,
) {
    let around_u = u.at(-1, 0) + u.at(1, 0) + (u.at(0, -1) + u.at(0, 1));
    let around_v = v.at(-1, 0) + v.at(1, 0) + (v.at(0, -1) + v.at(0, 1));
    u1.set(0.5 * u.at(0, 0) + 0.125 * around_u);
    v1.set(0.5 * v.at(0, 0) + 0.125 * around_v);
    h1.set(h.at(-1, -1) + (u.at(1, 0) - u.at(-1, 0)) + (v.at(0, 1) - v.at(0, -1)));
}

#[stencil]
fn west(out: Out<f64, 2>, u: In<f64, 2>, v: In<f64, 2>, of_u: f64, of_v: f64) {
    out.set(of_u * u.at(-1, 0) + of_v * v.at(-1, 0));
}

#[stencil]
fn alone(out: Out<f64, 2>, u: In<f64, 2>) {
    out.set(u.at(-1, 0));
}

const CELLS: usize = 12;

/// Three steps with these blocks on each tile. Returns the values of all tiles.
fn steps(device: &Device, blocks: [usize; 2]) -> Vec<u64> {
    let ranks = 6 * blocks[0] * blocks[1];
    let results = ThreadCommunicator::run(ranks, |rank| -> Result<_> {
        let stream = device.default_stream();
        let rank: Arc<dyn Communicator> =
            if blocks == [1, 1] { Arc::new(rank) } else { by_messages(rank) };
        let grid = Grid::cubed_sphere(CELLS).blocks(blocks).ranks(rank).build(device)?;
        let tile = grid.tile();
        let value = |by: usize| {
            move |[i, j]: [usize; 2]| ((tile * 31 + i * 7 + j * 3 + by) % 17) as f64 * 0.37
        };
        let [u, v] = grid.vector(["u", "v"]);
        let (mut u, mut v) = (u.from_fn(value(1))?, v.from_fn(value(5))?);
        let mut h = grid.field("h").from_fn(value(11))?;
        let (mut u1, mut v1, mut h1) = (u.like("u1")?, v.like("v1")?, h.like("h1")?);
        for _ in 0..3 {
            spread(&mut u1, &mut v1, &mut h1, &u, &v, &h).run(&stream)?;
            swap(&mut u, &mut u1);
            swap(&mut v, &mut v1);
            swap(&mut h, &mut h1);
        }
        assert_eq!(grid.exchanges(), 3);
        let all = [u.gather(0)?, v.gather(0)?, h.gather(0)?];
        Ok(all.into_iter().flatten().flatten().map(f64::to_bits).collect::<Vec<_>>())
    });
    results.unwrap().into_iter().flat_map(Result::unwrap).collect()
}

fn blocks_do_not_change_a_bit(device: &Device) {
    let expected = steps(device, [1, 1]);
    assert_eq!(expected.len(), 3 * 6 * CELLS * CELLS);
    let all: &[[usize; 2]] =
        if device.id().backend() == "host" { &[[2, 1], [1, 3], [2, 2]] } else { &[[2, 1]] };
    for blocks in all {
        assert!(steps(device, *blocks) == expected, "{blocks:?}");
    }
}

/// West of tile 0 lies the north of tile 4: its y is the x of tile 0, and its x runs against the y of tile 0.
fn components_change_places_and_signs(device: &Device) {
    let results = ThreadCommunicator::run(6, |rank| -> Result<_> {
        let stream = device.default_stream();
        let grid = Grid::cubed_sphere(4).ranks(Arc::new(rank)).build(device)?;
        let tile = grid.tile() as f64;
        let [u, v] = grid.vector(["u", "v"]);
        let (u, v) = (u.filled(100.0 + tile)?, v.filled(200.0 + tile)?);
        let mut out = grid.field("out").filled(0.0)?;
        let mut seen = Vec::new();
        for [of_u, of_v] in [[1.0, 0.0], [0.0, 1.0]] {
            west(&mut out, &u, &v, of_u, of_v).run(&stream)?;
            seen.push([out.read_host()?[[0, 1]], out.read_host()?[[1, 1]]]);
        }
        assert_eq!(grid.exchanges(), 1);
        let error = alone(&mut out, &u).run(&stream);
        assert!(error.is_ok(), "nothing is stale");
        Ok((grid.tile(), seen))
    });
    for result in results.unwrap() {
        let (tile, seen) = result.unwrap();
        if tile == 0 {
            assert_eq!(seen, [[204.0, 100.0], [-104.0, 200.0]]);
        }
    }
}

/// Two vectors, whose components come in another order.
#[stencil]
fn two_vectors(out: Out<f64, 2>, u: In<f64, 2>, q: In<f64, 2>, p: In<f64, 2>, v: In<f64, 2>) {
    out.set(u.at(-1, 0) + 10.0 * v.at(-1, 0) + 100.0 * p.at(-1, 0) + 1000.0 * q.at(-1, 0));
}

/// Reads the components at different sides.
#[stencil]
fn two_sides(out: Out<f64, 2>, u: In<f64, 2>, v: In<f64, 2>) {
    out.set(u.at(-1, 0) + 10.0 * v.at(0, 1) + v.at(0, 0));
}

#[stencil]
fn all_sides(out: Out<f64, 2>, u: In<f64, 2>, v: In<f64, 2>) {
    let around = u.at(-1, 0) + u.at(0, 1) + u.at(1, 0) + u.at(0, -1);
    out.set(around + v.at(-1, 0) + v.at(0, 1) + v.at(1, 0) + v.at(0, -1));
}

fn components_of_one_vector_are_exchanged_together(device: &Device) {
    let results = ThreadCommunicator::run(6, |rank| -> Result<_> {
        let stream = device.default_stream();
        let grid = Grid::cubed_sphere(4).ranks(Arc::new(rank)).build(device)?;
        let tile = grid.tile() as f64;
        let [u, v] = grid.vector(["u", "v"]);
        let (u, v) = (u.filled(1.0 + tile)?, v.filled(10.0 + tile)?);
        let [p, q] = grid.vector(["p", "q"]);
        let (p, q) = (p.filled(20.0 + tile)?, q.filled(30.0 + tile)?);
        let mut out = grid.field("out").filled(0.0)?;
        two_vectors(&mut out, &u, &q, &p, &v).run(&stream)?;
        let first = out.read_host()?[[0, 1]];
        // With only the ghosts that are read, and with all of them.
        let value = |[i, j]: [usize; 2]| (17.0 * tile + (5 * i + j) as f64) / 3.0;
        let other = |at: [usize; 2]| 1.0 - value(at);
        let mut results = Vec::new();
        for has_all in [false, true] {
            let [u, v] = grid.vector(["u", "v"]);
            let (u, v) = (u.from_fn(value)?, v.from_fn(other)?);
            if has_all {
                all_sides(&mut out, &u, &v).run(&stream)?;
            }
            two_sides(&mut out, &u, &v).run(&stream)?;
            results.push(out.read_host()?.iter().copied().collect::<Vec<_>>());
        }
        Ok((grid.tile(), first, results))
    });
    for result in results.unwrap() {
        let (tile, first, results) = result.unwrap();
        assert_eq!(results[0], results[1], "tile {tile}");
        if tile == 0 {
            // West of tile 0 lies tile 4, whose y is the x of tile 0, and whose x runs against its y.
            assert_eq!(first, 14.0 - 10.0 * 5.0 + 100.0 * 34.0 - 1000.0 * 24.0);
        }
    }
}

/// Those of one time level are made in the same order. The order of arguments does not matter.
#[test]
fn components_of_two_time_levels_are_paired_by_level() {
    let device = devices::host();
    let results = ThreadCommunicator::run(6, |rank| -> Result<_> {
        let stream = device.default_stream();
        let grid = Grid::cubed_sphere(4).ranks(Arc::new(rank)).build(&device)?;
        let value = grid.tile() as f64;
        let [u, v] = grid.vector(["u", "v"]);
        let (u, v) = (u.filled(1.0 + value)?, v.filled(10.0 + value)?);
        let (mut u_new, mut v_new) = (u.like("u_new")?, v.like("v_new")?);
        u_new.set_from_fn(|_| 20.0 + value)?;
        v_new.set_from_fn(|_| 30.0 + value)?;
        let mut out = grid.field("out").filled(0.0)?;
        two_vectors(&mut out, &u, &v_new, &u_new, &v).run(&stream)?;
        let one = out.read_host()?[[0, 1]];
        u_new.set_from_fn(|_| 20.0 + value)?;
        let refused = two_vectors(&mut out, &u_new, &v, &u_new, &v).run(&stream).unwrap_err();
        two_vectors(&mut out, &u, &v_new, &u_new, &v).run(&stream)?;
        Ok((grid.tile(), one, out.read_host()?[[0, 1]], refused))
    });
    for result in results.unwrap() {
        let (tile, first, again, refused) = result.unwrap();
        assert_eq!(first, again);
        assert!(tile != 0 || first == 14.0 - 10.0 * 5.0 + 100.0 * 34.0 - 1000.0 * 24.0, "{first}");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.message().contains("field u_new is a component"), "{refused}");
    }
}

#[test]
fn a_component_may_be_read_alone_where_axes_do_not_change() {
    let device = devices::host();
    let grid = Grid::cartesian([4, 4]).periodic([true; 2]).build(&device).unwrap();
    let [u, _] = grid.vector(["u", "v"]);
    let u = u.filled(3.0).unwrap();
    let mut out = u.like("out").unwrap();
    alone(&mut out, &u).run(&device.default_stream()).unwrap();
    assert_eq!(out.read_host().unwrap().sum(), 48.0);
}

on_all_devices!(
    blocks_do_not_change_a_bit,
    components_change_places_and_signs,
    components_of_one_vector_are_exchanged_together
);

#[test]
fn what_makes_no_sense_is_refused() {
    let device = devices::host();
    for sets_other in [false, true] {
        let results = ThreadCommunicator::run(6, |rank| -> Result<()> {
            let stream = device.default_stream();
            let grid = Grid::cubed_sphere(4).ranks(Arc::new(rank)).build(&device)?;
            let [u, v] = grid.vector(["u", "v"]);
            let (u, mut v) = (u.filled(1.0)?, v.filled(2.0)?);
            let mut out = grid.field("out").filled(0.0)?;
            alone(if sets_other { &mut v } else { &mut out }, &u).run(&stream)
        });
        for result in results.unwrap() {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("field u is a component of a vector"), "{error}");
        }
    }
    let results = ThreadCommunicator::run(6, |rank| -> Result<()> {
        let grid = Grid::cubed_sphere(4).ranks(Arc::new(rank)).build(&device)?;
        let u = grid.field("u").filled(1.0)?;
        let mut out = grid.field("out").boundary(Boundary::Computed).filled(0.0)?;
        alone(&mut out, &u).on(End::Low(0)).run(&device.default_stream())
    });
    for result in results.unwrap() {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("a cubed sphere has no ends"), "{error}");
    }
    let four = ThreadCommunicator::run(4, |rank| {
        Grid::cubed_sphere(4).ranks(Arc::new(rank)).build(&device).map(drop)
    });
    let refused =
        |error: Error| assert!(error.to_string().contains("4 ranks for 6 tiles"), "{error}");
    four.unwrap().into_iter().for_each(|result| refused(result.unwrap_err()));
}
