//! Advection in a rotating flow, upwind and limited (van Leer): shapes keep their edges, and no value is beyond those
//! at the start. A step sweeps along one axis, then along the other. The limiter reads two points far against the flow.
//!
//! `cargo run --release -p stencil --example upwind -- --device host --ranks 4 --steps 628`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::process::ExitCode;

use common::{Device, Example, Picture, Ranks, Size, plane};
use ndarray::ArrayD;
use stencil::{Boundary, Field, Grid, Location, Result, stencils};

#[stencils]
mod model {
    use stencil::{In, Out};

    #[stencil_fn]
    fn limited(a: f64, b: f64) -> f64 {
        if a * b > 0.0 { 2.0 * a * b / (a + b) } else { 0.0 }
    }

    /// What flows through a face between `b` and `c`, of four points in a row. `u` is in cells per step.
    #[stencil_fn]
    fn flux(u: f64, a: f64, b: f64, c: f64, d: f64) -> f64 {
        let here = 0.5
            * (1.0 - u.abs())
            * (if u > 0.0 { limited(b - a, c - b) } else { limited(c - b, d - c) });
        u * (if u > 0.0 { b + here } else { c - here })
    }

    #[stencil]
    pub(crate) fn along_0(next: Out<f64, 2>, q: In<f64, 2>, u: In<f64, 2>) {
        let west = flux(u.at(0, 0), q.at(-2, 0), q.at(-1, 0), q.at(0, 0), q.at(1, 0));
        let east = flux(u.at(1, 0), q.at(-1, 0), q.at(0, 0), q.at(1, 0), q.at(2, 0));
        next.set(q.at(0, 0) - (east - west));
    }

    #[stencil]
    pub(crate) fn along_1(next: Out<f64, 2>, q: In<f64, 2>, v: In<f64, 2>) {
        let south = flux(v.at(0, 0), q.at(0, -2), q.at(0, -1), q.at(0, 0), q.at(0, 1));
        let north = flux(v.at(0, 1), q.at(0, -1), q.at(0, 0), q.at(0, 1), q.at(0, 2));
        next.set(q.at(0, 0) - (north - south));
    }
}

/// A turn takes 628 steps.
const TURN: f64 = 0.01;

fn run(
    ranks: Ranks,
    device: &Device,
    Size { cells, steps }: Size<2>,
) -> Result<Vec<Field<f64, 2>>> {
    let stream = device.default_stream();
    let grid = Grid::cartesian(cells).halo(2).ranks(ranks).build(device)?;
    let [x, y] = cells.map(|n| 0.5 * n as f64 - 0.5);
    let u = grid.field("u").at(Location::Face(0)).from_fn(|[_, j]| TURN * (y - j as f64))?;
    let v = grid.field("v").at(Location::Face(1)).from_fn(|[i, _]| TURN * (i as f64 - x))?;
    let q = grid.field("q").boundary(Boundary::Value(0.0));
    let mut q = q.from_fn(|point| plain::shapes(cells, point))?;
    let mut half = q.like("half")?;
    for _ in 0..steps {
        model::along_0(&mut half, &q, &u).run(&stream)?;
        model::along_1(&mut q, &half, &v).run(&stream)?;
    }
    Ok(vec![q])
}

fn picture(fields: &[ArrayD<f64>]) -> Picture {
    Picture::of(plane(&fields[0]))
}

const SIZE: Size<2> = Size { cells: [96, 96], steps: 157 };
pub(crate) const EXAMPLE: Example<f64, 2> =
    Example { name: "upwind", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
