//! Helpers stand beside their stencils, in a module.

use stencil::{In, Out, stencil, stencil_fn};

#[stencil_fn]
fn twice(t: In<f64, 1>) -> f64 {
    2.0 * t.at(0)
}

#[stencil]
fn double(next: Out<f64, 1>, t: In<f64, 1>) {
    next.set(twice(t));
}

#[stencil]
fn shifted(next: Out<f64, 1>) {
    next.set(next.at(1));
}

fn main() {}
