//! The flow of heat on a plate, on any number of ranks.
#![forbid(unsafe_code)]
use std::mem::swap;

use runtime::ranks::{self, Rank};
use runtime::stencil::{Boundary, Grid, In, Out, reduction, stencil};

/// One explicit step of dT/dt = κ ∇²T.
#[stencil]
fn diffuse(next: Out<f64, 2>, t: In<f64, 2>, ax: f64, ay: f64) {
    let c = t.at(0, 0);
    next.set(
        c + ax * (t.at(-1, 0) - 2.0 * c + t.at(1, 0)) + ay * (t.at(0, -1) - 2.0 * c + t.at(0, 1)),
    );
}

/// The heat of all points.
#[reduction(sum)]
fn heat(t: In<f64, 2>) -> f64 {
    t.at(0, 0)
}

/// The work of one rank.
fn work(rank: &Rank) -> runtime::Result<f64> {
    let stream = rank.device.default_stream();
    let grid = Grid::cartesian([200, 100]).periodic([true, false]).ranks(rank.communicator.clone());
    let grid = grid.build(&rank.device)?;
    let t = grid.field("T").boundary(Boundary::Mirror); // nothing flows through the ends of axis 1
    let mut t = t.from_fn(|[i, j]| if i < 50 && j < 50 { 8.0 } else { 0.0 })?;
    let mut next = t.like("next")?;
    for _ in 0..100 {
        diffuse(&mut next, &t, 0.2, 0.2).run(&stream)?;
        swap(&mut t, &mut next);
    }
    heat(&t).run(&stream)?.get()
}

fn main() -> runtime::Result<()> {
    // A number after the program's name is the number of ranks. In an MPI job, the processes are the ranks.
    let asked = std::env::args().nth(1).and_then(|count| count.parse().ok());
    if let Some(heat) = ranks::run(asked, None, work)? {
        println!("heat {heat}"); // on rank 0
    }
    Ok(())
}
