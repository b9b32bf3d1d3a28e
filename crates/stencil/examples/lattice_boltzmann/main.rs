//! Flow around a cylinder in a channel, by the lattice Boltzmann method with nine speeds (D2Q9). Each of nine fields
//! holds what moves at one speed. A step pulls it from the neighbours and relaxes it towards equilibrium. The values
//! are `f32`, and a field of `u32` says where walls are.
//!
//! `cargo run --release -p stencil --example lattice_boltzmann -- --device host --ranks 4 --steps 10000`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::{mem::swap, process::ExitCode};

use common::{Device, Example, Picture, Ranks, Size};
use ndarray::{Array2, ArrayD};
use stencil::{Boundary, End, Field, Grid, Result, stencils};

#[rustfmt::skip]
#[stencils]
mod model {
    use stencil::{In, Out};
    /// The speeds along both axes, and the parts of a fluid at rest.
    pub(crate) const X: [i64; 9] = [0, 1, 0, -1, 0, 1, -1, -1, 1];
    pub(crate) const Y: [i64; 9] = [0, 0, 1, 0, -1, 1, 1, -1, -1];
    const A: f32 = 1.0 / 9.0; const B: f32 = 1.0 / 36.0;
    pub(crate) const W: [f32; 9] = [4.0 / 9.0, A, A, A, A, B, B, B, B];
    /// What comes from a neighbour. Between fluid and wall it is what has gone the other way.
    #[stencil_fn]
    fn pull(f: In<f32, 2>, back: In<f32, 2>, wall: In<u32, 2>, k: i64) -> f32 {
        if wall.at(-X[k], -Y[k]) + wall.at(0, 0) == 0 { f.at(-X[k], -Y[k]) } else { back.at(0, 0) }
    }
    /// Brings it nearer to the equilibrium of this density and velocity.
    #[stencil_fn]
    fn relax(p: f32, density: f32, u: f32, v: f32, k: i64) -> f32 {
        let along = X[k] as f32 * u + Y[k] as f32 * v;
        p + 1.85 * (W[k] * density * (1.0 + 3.0 * along + 4.5 * along * along - 1.5 * (u * u + v * v)) - p)
    }
    #[stencil]
    pub(crate) fn step(
        g0: Out<f32, 2>, g1: Out<f32, 2>, g2: Out<f32, 2>, g3: Out<f32, 2>, g4: Out<f32, 2>, g5: Out<f32, 2>,
        g6: Out<f32, 2>, g7: Out<f32, 2>, g8: Out<f32, 2>, f0: In<f32, 2>, f1: In<f32, 2>, f2: In<f32, 2>,
        f3: In<f32, 2>, f4: In<f32, 2>, f5: In<f32, 2>, f6: In<f32, 2>, f7: In<f32, 2>, f8: In<f32, 2>, wall: In<u32, 2>,
    ) {
        let p0 = f0.at(0, 0); let p1 = pull(f1, f3, wall, 1); let p2 = pull(f2, f4, wall, 2);
        let p3 = pull(f3, f1, wall, 3); let p4 = pull(f4, f2, wall, 4); let p5 = pull(f5, f7, wall, 5);
        let p6 = pull(f6, f8, wall, 6); let p7 = pull(f7, f5, wall, 7); let p8 = pull(f8, f6, wall, 8);
        let density = p0 + p1 + p2 + p3 + p4 + p5 + p6 + p7 + p8;
        let u = (p1 - p3 + p5 - p6 - p7 + p8) / density; let v = (p2 - p4 + p5 + p6 - p7 - p8) / density;
        g0.set(relax(p0, density, u, v, 0)); g1.set(relax(p1, density, u, v, 1)); g2.set(relax(p2, density, u, v, 2));
        g3.set(relax(p3, density, u, v, 3)); g4.set(relax(p4, density, u, v, 4)); g5.set(relax(p5, density, u, v, 5));
        g6.set(relax(p6, density, u, v, 6)); g7.set(relax(p7, density, u, v, 7)); g8.set(relax(p8, density, u, v, 8));
    }
}

#[rustfmt::skip]
fn run(ranks: Ranks, device: &Device, Size { cells, steps }: Size<2>) -> Result<Vec<Field<f32, 2>>> {
    let stream = device.default_stream();
    let grid = Grid::cartesian(cells).ranks(ranks).build(device)?;
    let wall = grid.field("wall").boundary(Boundary::Clamp).from_fn(|point| plain::wall(cells, point))?;
    let field = |k: usize| {
        let (field, inflow) = (grid.field(format!("f{k}")), plain::inflow(k));
        field.boundary(Boundary::Clamp).boundary_at(End::Low(0), Boundary::Value(inflow)).filled(inflow)
    };
    let mut f = [field(0)?, field(1)?, field(2)?, field(3)?, field(4)?, field(5)?, field(6)?, field(7)?, field(8)?];
    let mut g = [field(0)?, field(1)?, field(2)?, field(3)?, field(4)?, field(5)?, field(6)?, field(7)?, field(8)?];
    for _ in 0..steps {
        let ([f0, f1, f2, f3, f4, f5, f6, f7, f8], [g0, g1, g2, g3, g4, g5, g6, g7, g8]) = (&f, &mut g);
        model::step(g0, g1, g2, g3, g4, g5, g6, g7, g8, f0, f1, f2, f3, f4, f5, f6, f7, f8, &wall).run(&stream)?;
        swap(&mut f, &mut g);
    }
    Ok(f.into())
}

/// How fast the fluid turns, with walls in grey.
fn picture(f: &[ArrayD<f32>]) -> Picture {
    let cells = [f[0].shape()[0], f[0].shape()[1]];
    let moment = |speeds: [i64; 9], i: usize, j: usize| -> f32 {
        let density: f32 = f.iter().map(|f| f[[i, j]]).sum();
        f.iter().zip(speeds).map(|(f, speed)| f[[i, j]] * speed as f32 / density).sum()
    };
    let turn = Array2::from_shape_fn((cells[0] - 2, cells[1] - 2), |(i, j)| {
        let v = |i: usize| moment(model::Y, i, j + 1);
        let u = |j: usize| moment(model::X, i + 1, j);
        let is_wall = plain::wall(cells, [i + 1, j + 1]) != 0;
        if is_wall { f32::NAN } else { v(i + 2) - v(i) - (u(j + 2) - u(j)) }
    });
    Picture::signed(turn.view(), 0.03)
}

const SIZE: Size<2> = Size { cells: [150, 60], steps: 400 };
pub(crate) const EXAMPLE: Example<f32, 2> =
    Example { name: "lattice_boltzmann", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
