use std::marker::PhantomData;

use stencil::{In, stencil};

struct Out<T, const N: usize>(PhantomData<T>);

#[stencil]
fn copy(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(0, 0));
}

fn main() {}
