//! The potential of two charges in a grounded box: -∇²u = f by Chebyshev's iteration, until the residual is small. The
//! residual has the same bits on any ranks, so all of them stop after the same step.
//!
//! `cargo run --release -p stencil --example chebyshev -- --device host --ranks 4 --steps 1000`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::mem::swap;
use std::process::ExitCode;

use common::{Device, Example, Picture, Ranks, Size, plane};
use ndarray::ArrayD;
use plain::{charge, factors};
use stencil::{Boundary, Field, Grid, Result, stencils};

#[stencils]
mod model {
    use stencil::{In, InOut, Out};

    #[stencil_fn]
    fn residual(u: In<f64, 2>, f: In<f64, 2>) -> f64 {
        let around = u.at(-1, 0) + u.at(1, 0) + u.at(0, -1) + u.at(0, 1);
        f.at(0, 0) + (around - 4.0 * u.at(0, 0))
    }

    /// Moves by `d`, which is made of the last move and of the residual.
    #[stencil]
    pub(super) fn step(
        next: Out<f64, 2>,
        d: InOut<f64, 2>,
        u: In<f64, 2>,
        f: In<f64, 2>,
        a: f64,
        b: f64,
    ) {
        let moved = a * d.at(0, 0) + b * residual(u, f);
        d.set(moved);
        next.set(u.at(0, 0) + moved);
    }

    #[reduction(max)]
    pub(super) fn largest(u: In<f64, 2>, f: In<f64, 2>) -> f64 {
        residual(u, f).abs()
    }
}

fn run(
    ranks: Ranks,
    device: &Device,
    Size { cells, steps }: Size<2>,
) -> Result<Vec<Field<f64, 2>>> {
    let stream = device.default_stream();
    let grid = Grid::cartesian(cells).ranks(ranks).build(device)?;
    let f = grid.field("f").from_fn(|point| charge(cells, point))?;
    // Zero at the walls, half a cell beyond the last points.
    let mut u = grid.field("u").boundary(Boundary::OddMirror).filled(0.0)?;
    let (mut next, mut d) = (u.like("next")?, grid.field("d").filled(0.0)?);
    for (number, [a, b]) in factors(cells).take(steps).enumerate() {
        model::step(&mut next, &mut d, &u, &f, a, b).run(&stream)?;
        swap(&mut u, &mut next);
        if number % 10 == 9 && model::largest(&u, &f).run(&stream)?.get()? < TOLERANCE {
            break;
        }
    }
    Ok(vec![u, d])
}

const TOLERANCE: f64 = 1e-6;

fn picture(fields: &[ArrayD<f64>]) -> Picture {
    Picture::signed(plane(&fields[0]), 0.2)
}

const SIZE: Size<2> = Size { cells: [160, 120], steps: 2000 };
pub(crate) const EXAMPLE: Example<f64, 2> =
    Example { name: "chebyshev", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
