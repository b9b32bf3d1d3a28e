//! Shallow water in a rotating channel, on a staggered grid: the depth `h` and the dye `q` are at the centres of cells,
//! the velocities `u` and `v` on the faces between them. The channel is periodic along axis 0, with walls along axis 1.
//! `cargo run --release -p stencil --example shallow_water -- --device host --ranks 4 --steps 400`
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod plain;

use std::{mem::swap, process::ExitCode};

use common::{Device, Example, Picture, Ranks, Size, plane};
use ndarray::ArrayD;
use stencil::{Boundary, Field, Grid, Location, Result};

#[rustfmt::skip]
#[stencil::stencils]
mod model {
    use stencil::{In, InOut, Out};
    pub(crate) const GRAVITY: f64 = 1.0; pub(crate) const ROTATION: f64 = 0.05; pub(crate) const DT: f64 = 0.25;

    #[stencil]
    pub(crate) fn push_u(u: InOut<f64, 2>, v: In<f64, 2>, h: In<f64, 2>) {
        let across = 0.25 * (v.at(-1, 0) + v.at(-1, 1) + v.at(0, 0) + v.at(0, 1));
        u.set(u.at(0, 0) + DT * (ROTATION * across - GRAVITY * (h.at(0, 0) - h.at(-1, 0))));
    }
    #[stencil]
    pub(crate) fn push_v(v: InOut<f64, 2>, u: In<f64, 2>, h: In<f64, 2>) {
        let across = 0.25 * (u.at(0, -1) + u.at(1, -1) + u.at(0, 0) + u.at(1, 0));
        v.set(v.at(0, 0) - DT * (ROTATION * across + GRAVITY * (h.at(0, 0) - h.at(0, -1))));
    }
    /// Through a face flows the mean depth of two cells, and the dye of the cell from where the water comes.
    #[stencil_fn] fn dye(water: f64, from: f64, to: f64) -> f64 {
        water * (if water > 0.0 { from } else { to })
    }
    #[stencil]
    pub(crate) fn flow(
        h_next: Out<f64, 2>, q_next: Out<f64, 2>, h: In<f64, 2>, q: In<f64, 2>, u: In<f64, 2>, v: In<f64, 2>,
    ) {
        let west = 0.5 * u.at(0, 0) * (h.at(-1, 0) + h.at(0, 0));
        let east = 0.5 * u.at(1, 0) * (h.at(0, 0) + h.at(1, 0));
        let south = 0.5 * v.at(0, 0) * (h.at(0, -1) + h.at(0, 0));
        let north = 0.5 * v.at(0, 1) * (h.at(0, 0) + h.at(0, 1));
        let depth = h.at(0, 0) - DT * (east - west + (north - south));
        let dye_x = dye(east, q.at(0, 0), q.at(1, 0)) - dye(west, q.at(-1, 0), q.at(0, 0));
        let dye_y = dye(north, q.at(0, 0), q.at(0, 1)) - dye(south, q.at(0, -1), q.at(0, 0));
        h_next.set(depth); q_next.set((q.at(0, 0) * h.at(0, 0) - DT * (dye_x + dye_y)) / depth);
    }
}

fn run(
    ranks: Ranks,
    device: &Device,
    Size { cells, steps }: Size<2>,
) -> Result<Vec<Field<f64, 2>>> {
    let stream = device.default_stream();
    let grid = Grid::cartesian(cells).periodic([true, false]).ranks(ranks).build(device)?;
    let centre = |name| grid.field(name).boundary(Boundary::Mirror);
    let mut h = centre("h").from_fn(|point| plain::depth(cells, point))?;
    let mut q = centre("q").from_fn(|point| plain::stripes(cells, point))?;
    let (mut h_next, mut q_next) = (h.like("h_next")?, q.like("q_next")?);
    let on_faces = |name, axis| grid.field(name).at(Location::Face(axis)).filled(0.0);
    let (mut u, mut v) = (on_faces("u", 0)?, on_faces("v", 1)?);
    for _ in 0..steps {
        model::push_u(&mut u, &v, &h).run(&stream)?;
        model::push_v(&mut v, &u, &h).over(1, 1..cells[1]).run(&stream)?; // not the walls
        model::flow(&mut h_next, &mut q_next, &h, &q, &u, &v).run(&stream)?;
        swap(&mut h, &mut h_next);
        swap(&mut q, &mut q_next);
    }
    Ok(vec![h, q, u, v])
}

fn picture(fields: &[ArrayD<f64>]) -> Picture {
    Picture::of(plane(&fields[0])).beside(&Picture::of(plane(&fields[1])))
}

const SIZE: Size<2> = Size { cells: [100, 80], steps: 300 };
pub(crate) const EXAMPLE: Example<f64, 2> =
    Example { name: "shallow_water", size: SIZE, run, plain: plain::run, picture };

fn main() -> ExitCode {
    EXAMPLE.main()
}
