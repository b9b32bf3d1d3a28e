#![forbid(unsafe_code)]

use stencil::generated::{Parts, describe};
use stencil::{In, Out, Stencil, stencil};

/// What attributes generate compiles here.
#[stencil]
fn copy(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(0, 0));
}

/// What is written by hand does not.
fn own(parts: Parts) -> Stencil {
    describe(parts)
}

fn main() {}
