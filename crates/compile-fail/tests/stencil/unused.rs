#![deny(unused_variables)]

use stencil::{In, Out, stencil, stencils};

#[stencil]
fn copy(out: Out<f64, 2>, t: In<f64, 2>, u: In<f64, 2>, a: f64, _b: f64) {
    let x = 1.0;
    for k in 0..2 {
        let _y = t.at(0, 0);
    }
    out.set(t.at(0, 0));
}

#[stencil]
#[allow(unused_variables)]
fn silent(out: Out<f64, 2>, a: f64) {
    out.set(1.0);
}

#[stencils]
mod model {
    use super::{In, Out};

    #[stencil_fn]
    fn east(t: In<f64, 2>, a: f64) -> f64 {
        t.at(1, 0)
    }

    #[stencil_fn]
    #[allow(unused_variables)]
    fn west(t: In<f64, 2>, a: f64) -> f64 {
        t.at(-1, 0)
    }

    #[stencil]
    pub(super) fn sum(out: Out<f64, 2>, t: In<f64, 2>, a: f64, s: f64) {
        out.set(east(t, a) + west(t, a));
    }
}

fn main() {}
