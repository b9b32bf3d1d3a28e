//! Heat in a box: dT/dt = κ ∇²T. The box goes on periodically along axis 0 and is insulated along axis 1. Along axis 2
//! it is kept hot below and cooled by the air above.
//!
//! `cargo run --release -p stencil --example heat_3d -- --device host --ranks 4 --steps 200`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::mem::swap;
use std::process::ExitCode;

use common::{Device, Example, Picture, Ranks, Size};
use ndarray::{ArrayD, Axis, Ix3};
use stencil::{Boundary, End, Field, Grid, In, Out, Result, column, stencil};

/// κ Δt / Δx²
const A: f64 = 0.15;
const HOT: f64 = 1.0;
/// How hot it is beyond the upper end, compared with the last cell: heat flows out in proportion.
const AIR: f64 = 0.6;

#[stencil]
fn diffuse(next: Out<f64, 3>, t: In<f64, 3>, a: f64) {
    let c = t.at(0, 0, 0);
    let along_0 = t.at(-1, 0, 0) - 2.0 * c + t.at(1, 0, 0);
    let along_1 = t.at(0, -1, 0) - 2.0 * c + t.at(0, 1, 0);
    let along_2 = t.at(0, 0, -1) - 2.0 * c + t.at(0, 0, 1);
    next.set(c + a * (along_0 + along_1 + along_2));
}

#[column(forward, ghosts, axis = 2)]
fn cool(t: Out<f64, 3>, air: f64) {
    t.set(air * t.at(0, 0, -1));
}

/// A ball that is as hot as the floor.
fn initial(cells: [usize; 3], point: [usize; 3]) -> f64 {
    let from_centre = |axis: usize| point[axis] as f64 / cells[axis] as f64 - 0.6;
    let squares: f64 = [0, 1, 2].map(|axis| from_centre(axis) * from_centre(axis)).iter().sum();
    if squares < 0.06 { HOT } else { 0.0 }
}

fn run(
    ranks: Ranks,
    device: &Device,
    Size { cells, steps }: Size<3>,
) -> Result<Vec<Field<f64, 3>>> {
    let stream = device.default_stream();
    let grid = Grid::cartesian(cells).periodic([true, false, false]).ranks(ranks).build(device)?;
    let mut t = grid
        .field("T")
        .boundary(Boundary::Mirror)
        .boundary_at(End::Low(2), Boundary::Value(HOT))
        .boundary_at(End::High(2), Boundary::Computed)
        .from_fn(|point| initial(cells, point))?;
    let mut next = t.like("next")?;
    for _ in 0..steps {
        cool(&mut t, AIR).on(End::High(2)).run(&stream)?;
        diffuse(&mut next, &t, A).run(&stream)?;
        swap(&mut t, &mut next);
    }
    Ok(vec![t])
}

/// A cut through the middle of axis 1.
fn picture(fields: &[ArrayD<f64>]) -> Picture {
    let t = fields[0].view().into_dimensionality::<Ix3>().expect("three axes");
    Picture::of(t.index_axis(Axis(1), t.dim().1 / 2))
}

const SIZE: Size<3> = Size { cells: [60, 40, 40], steps: 100 };
pub(crate) const EXAMPLE: Example<f64, 3> =
    Example { name: "heat_3d", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
