//! Patterns of Gray and Scott: a substance `v` feeds on another one, `u`, and both diffuse. The Laplacian has nine
//! points, so that the corners of blocks are exchanged too. The values are `f32`.
//!
//! `cargo run --release -p stencil --example gray_scott -- --device host --ranks 4 --steps 5000`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::mem::swap;
use std::process::ExitCode;

use common::{Device, Example, Picture, Ranks, Size, plane};
use ndarray::ArrayD;
use stencil::{Field, Grid, Result, stencils};

#[stencils]
mod model {
    use stencil::{In, Out};

    type Real = f32;

    #[stencil_fn]
    fn laplacian(f: In<Real, 2>) -> Real {
        let sides = f.at(-1, 0) + f.at(1, 0) + f.at(0, -1) + f.at(0, 1);
        let corners = f.at(-1, -1) + f.at(-1, 1) + f.at(1, -1) + f.at(1, 1);
        0.2 * sides + 0.05 * corners - f.at(0, 0)
    }

    #[rustfmt::skip]
    #[stencil]
    pub(crate) fn react(
        u_next: Out<Real, 2>, v_next: Out<Real, 2>, u: In<Real, 2>, v: In<Real, 2>, feed: Real, kill: Real,
    ) {
        let eaten = u.at(0, 0) * v.at(0, 0) * v.at(0, 0);
        u_next.set(u.at(0, 0) + laplacian(u) - eaten + feed * (1.0 - u.at(0, 0)));
        v_next.set(v.at(0, 0) + 0.5 * laplacian(v) + eaten - (feed + kill) * v.at(0, 0));
    }
}

const FEED: f32 = 0.055;
const KILL: f32 = 0.062;

/// Some drops of `v`.
fn drops(cells: [usize; 2], point: [usize; 2]) -> f32 {
    let near = |axis: usize, place: usize| (8 * point[axis] / cells[axis]).abs_diff(place) == 0;
    let is_drop = near(0, 2) && near(1, 3) || near(0, 5) && near(1, 4) || near(0, 4) && near(1, 1);
    if is_drop { 0.5 } else { 0.0 }
}

fn run(
    ranks: Ranks,
    device: &Device,
    Size { cells, steps }: Size<2>,
) -> Result<Vec<Field<f32, 2>>> {
    let stream = device.default_stream();
    let grid = Grid::cartesian(cells).periodic([true; 2]).ranks(ranks).build(device)?;
    let mut u = grid.field("u").from_fn(|point| 1.0 - drops(cells, point))?;
    let mut v = grid.field("v").from_fn(|point| drops(cells, point))?;
    let (mut u_next, mut v_next) = (u.like("u_next")?, v.like("v_next")?);
    for _ in 0..steps {
        model::react(&mut u_next, &mut v_next, &u, &v, FEED, KILL).run(&stream)?;
        swap(&mut u, &mut u_next);
        swap(&mut v, &mut v_next);
    }
    Ok(vec![u, v])
}

fn picture(fields: &[ArrayD<f32>]) -> Picture {
    Picture::of(plane(&fields[1]))
}

const SIZE: Size<2> = Size { cells: [120, 120], steps: 500 };
pub(crate) const EXAMPLE: Example<f32, 2> =
    Example { name: "gray_scott", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
