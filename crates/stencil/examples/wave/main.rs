//! Waves on a membrane: d²u/dt² = c² ∇²u, with three levels in time. The membrane is held at the ends of axis 0, where
//! waves come back with the opposite sign, and free at those of axis 1. Waves are slower in one part of it.
//!
//! `cargo run --release -p stencil --example wave -- --device host --ranks 4 --steps 200`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::mem::swap;
use std::process::ExitCode;

use common::{Device, Example, Picture, Ranks, Size, plane};
use ndarray::ArrayD;
use stencil::{Boundary, End, Field, Grid, In, Out, Result, stencil};

/// The next level. The speed `c` is in cells per step.
#[stencil]
fn leap(next: Out<f64, 2>, now: In<f64, 2>, before: In<f64, 2>, c: In<f64, 2>) {
    let u = now.at(0, 0);
    let bend = now.at(-1, 0) + now.at(1, 0) + now.at(0, -1) + now.at(0, 1) - 4.0 * u;
    next.set(2.0 * u - before.at(0, 0) + c.at(0, 0) * c.at(0, 0) * bend);
}

fn hump(cells: [usize; 2], [i, j]: [usize; 2]) -> f64 {
    let (x, y) = (i as f64 / cells[0] as f64 - 0.3, j as f64 / cells[1] as f64 - 0.4);
    (-400.0 * (x * x + y * y)).exp()
}

fn speed(cells: [usize; 2], [i, j]: [usize; 2]) -> f64 {
    if 3 * i + j < 2 * cells[0] { 0.65 } else { 0.35 }
}

fn run(
    ranks: Ranks,
    device: &Device,
    Size { cells, steps }: Size<2>,
) -> Result<Vec<Field<f64, 2>>> {
    let stream = device.default_stream();
    let grid = Grid::cartesian(cells).ranks(ranks).build(device)?;
    let c = grid.field("c").from_fn(|point| speed(cells, point))?;
    let u = grid
        .field("u")
        .boundary(Boundary::Mirror)
        .boundary_at(End::Low(0), Boundary::OddMirror)
        .boundary_at(End::High(0), Boundary::OddMirror);
    let mut before = u.clone().from_fn(|point| hump(cells, point))?;
    let mut now = u.from_fn(|point| hump(cells, point))?;
    let mut next = now.like("next")?;
    for _ in 0..steps {
        leap(&mut next, &now, &before, &c).run(&stream)?;
        swap(&mut before, &mut now);
        swap(&mut now, &mut next);
    }
    Ok(vec![now, before])
}

fn picture(fields: &[ArrayD<f64>]) -> Picture {
    Picture::signed(plane(&fields[0]), 0.25)
}

const SIZE: Size<2> = Size { cells: [160, 120], steps: 200 };
pub(crate) const EXAMPLE: Example<f64, 2> =
    Example { name: "wave", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
