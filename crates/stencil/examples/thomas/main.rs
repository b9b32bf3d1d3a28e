//! Smoke in the wind, below an inversion. The wind, which is stronger above, carries it along axis 2 by the upwind
//! scheme. Turbulence mixes it vertically, along axis 0, so fast that each step is implicit: a tridiagonal system for
//! each place on the ground, solved by the algorithm of Thomas. Nothing passes the ground and the top.
//!
//! `cargo run --release -p stencil --example thomas -- --device host --ranks 4 --steps 200`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::mem::swap;
use std::process::ExitCode;

use common::{Device, Example, Picture, Ranks, Size};
use ndarray::{ArrayD, Axis, Ix3};
use stencil::{Field, Grid, Location, Result, stencils};

#[stencils]
mod model {
    use stencil::{In, Out};

    #[stencil]
    pub(crate) fn carry(next: Out<f64, 3>, t: In<f64, 3>, wind: f64) {
        let w = wind * (index(0) + 1) as f64 / extent(0) as f64;
        next.set(t.at(0, 0, 0) - w * (t.at(0, 0, 0) - t.at(0, 0, -1)));
    }

    /// Makes each level's equation t = d + c t', where t' is the value above. The faces of `k` are below the levels.
    #[column(forward)]
    pub(crate) fn eliminate(c: Out<f64, 3>, d: Out<f64, 3>, t: In<f64, 3>, k: In<f64, 3>) {
        let above = if last() { 0.0 } else { k.at(1, 0, 0) };
        if first() {
            c.set(above / (1.0 + above));
            d.set(t.at(0, 0, 0) / (1.0 + above));
        } else {
            let below = k.at(0, 0, 0);
            let b = 1.0 + above + below * (1.0 - c.at(-1, 0, 0));
            c.set(above / b);
            d.set((t.at(0, 0, 0) + below * d.at(-1, 0, 0)) / b);
        }
    }

    #[column(backward)]
    pub(crate) fn substitute(t: Out<f64, 3>, c: In<f64, 3>, d: In<f64, 3>) {
        if first() {
            t.set(d.at(0, 0, 0));
        } else {
            t.set(d.at(0, 0, 0) + c.at(0, 0, 0) * t.at(1, 0, 0));
        }
    }
}

/// The part of a cell that the wind at the top crosses in a step.
const WIND: f64 = 0.9;

fn run(ranks: Ranks, device: &Device, size: Size<3>) -> Result<Vec<Field<f64, 3>>> {
    let Size { cells, steps } = size;
    let stream = device.default_stream();
    // One block along axis 0, and as many as fit along the others.
    let grid = Grid::cartesian(cells).periodic([false, false, true]).blocks([1, 0, 0]);
    let grid = grid.ranks(ranks).build(device)?;
    let k = grid.field("K").at(Location::Face(0)).from_fn(|face| plain::mixing(cells, face))?;
    let mut t = grid.field("T").from_fn(|point| plain::initial(cells, point))?;
    let (mut next, mut c, mut d) = (t.like("next")?, t.like("c")?, t.like("d")?);
    for _ in 0..steps {
        model::carry(&mut next, &t, WIND).run(&stream)?;
        swap(&mut t, &mut next);
        model::eliminate(&mut c, &mut d, &t, &k).run(&stream)?;
        model::substitute(&mut t, &c, &d).run(&stream)?;
    }
    Ok(vec![t])
}

/// A cut through the middle of axis 1, with the ground below.
fn picture(fields: &[ArrayD<f64>]) -> Picture {
    let t = fields[0].view().into_dimensionality::<Ix3>().expect("three axes");
    let cut = t.index_axis(Axis(1), t.dim().1 / 2);
    Picture::of(cut.mapv(f64::sqrt).view().reversed_axes())
}

const SIZE: Size<3> = Size { cells: [48, 20, 120], steps: 60 };
pub(crate) const EXAMPLE: Example<f64, 3> =
    Example { name: "thomas", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
