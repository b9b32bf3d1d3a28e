//! The horizontal diffusion of the weather model COSMO, of fourth order with a limiter: fluxes that would steepen the
//! field are dropped. Helpers read shifted fields, and the translator adds their footprints: two points far along the
//! axes, one at the diagonals. Axis 0 counts levels, which are not divided among ranks.
//!
//! `cargo run --release -p stencil --example hdiff -- --device host --ranks 4 --steps 200`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::mem::swap;
use std::process::ExitCode;

use common::{Device, Example, Picture, Ranks, Size};
use ndarray::{ArrayD, Axis, Ix3};
use stencil::{Field, Grid, Result, stencils};

#[stencils]
mod model {
    use stencil::{In, Out};

    #[stencil_fn]
    fn laplacian(q: In<f64, 3>) -> f64 {
        4.0 * q.at(0, 0, 0) - (q.at(0, 0, 1) + q.at(0, 0, -1) + (q.at(0, 1, 0) + q.at(0, -1, 0)))
    }

    #[stencil_fn]
    fn limited(flux: f64, slope: f64) -> f64 {
        if flux * slope > 0.0 { 0.0 } else { flux }
    }

    /// The flux from a point to the next one along axis 1, and along axis 2.
    #[stencil_fn]
    fn flux_1(q: In<f64, 3>) -> f64 {
        limited(laplacian(q.shift(0, 1, 0)) - laplacian(q), q.at(0, 1, 0) - q.at(0, 0, 0))
    }
    #[stencil_fn]
    fn flux_2(q: In<f64, 3>) -> f64 {
        limited(laplacian(q.shift(0, 0, 1)) - laplacian(q), q.at(0, 0, 1) - q.at(0, 0, 0))
    }

    #[stencil]
    pub(crate) fn hdiff(next: Out<f64, 3>, q: In<f64, 3>, coefficient: In<f64, 3>) {
        let along_1 = flux_1(q) - flux_1(q.shift(0, -1, 0));
        let along_2 = flux_2(q) - flux_2(q.shift(0, 0, -1));
        next.set(q.at(0, 0, 0) - coefficient.at(0, 0, 0) * (along_2 + along_1));
    }
}

fn run(
    ranks: Ranks,
    device: &Device,
    Size { cells, steps }: Size<3>,
) -> Result<Vec<Field<f64, 3>>> {
    let stream = device.default_stream();
    // One block along axis 0, and as many as fit along the others.
    let grid = Grid::cartesian(cells).halo(2).blocks([1, 0, 0]).ranks(ranks).build(device)?;
    let coefficient =
        grid.field("coefficient").from_fn(|point| plain::coefficient(cells, point))?;
    let mut q = grid.field("q").from_fn(|point| plain::initial(cells, point))?;
    let mut next = grid.field("next").from_fn(|point| plain::initial(cells, point))?;
    let (inner_1, inner_2) = (2..cells[1] - 2, 2..cells[2] - 2);
    for _ in 0..steps {
        // Two points at each end keep their values.
        let hdiff = model::hdiff(&mut next, &q, &coefficient);
        hdiff.over(1, inner_1.clone()).over(2, inner_2.clone()).run(&stream)?;
        swap(&mut q, &mut next);
    }
    Ok(vec![q])
}

/// The middle level.
fn picture(fields: &[ArrayD<f64>]) -> Picture {
    let q = fields[0].view().into_dimensionality::<Ix3>().expect("three axes");
    Picture::of(q.index_axis(Axis(0), q.dim().0 / 2))
}

const SIZE: Size<3> = Size { cells: [10, 80, 60], steps: 60 };
pub(crate) const EXAMPLE: Example<f64, 3> =
    Example { name: "hdiff", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
