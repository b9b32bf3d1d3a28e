//! A function has one attribute of a stencil, with the options that it knows.

use stencil::{Field, In, Out, column, reduction, stencil, stencils};

#[stencil]
#[column(forward)]
fn both(out: Out<f64, 2>) {
    out.set(1.0);
}

#[reduction(sum)]
#[reduction(max)]
fn twice(t: In<f64, 2>) -> f64 {
    t.at(0, 0)
}

#[stencils]
mod model {
    use super::{In, Out};

    #[stencil_fn(inexact)]
    fn east(t: In<f64, 2>) -> f64 {
        t.at(1, 0)
    }

    #[stencil]
    #[column(up)]
    pub(super) fn copy(out: Out<f64, 2>, t: In<f64, 2>) {
        out.set(east(t));
    }
}

fn step(a: &mut Field<f64, 2>, b: &Field<f64, 2>) {
    let _ = both(a);
    let _ = twice(b);
    let _ = model::copy(a, b);
}

fn main() {}
