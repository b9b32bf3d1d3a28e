use stencil::{Field, In, Out, stencil, stencils};

#[stencil]
fn many(out: Out<f64, 2>, t: In<f64, 2>, n: i64) {
    let mut sum = 0.0;
    while sum < 1.0 {
        sum += t.at(n, 0);
    }
    out.set(sum + 1.0_f32);
}

#[stencil(fast)]
fn option(out: Out<f64, 2>) {
    out.set(1.0);
}

#[stencils]
mod model {
    use super::Out;

    const SIZE: usize = 3;

    #[stencil]
    pub(super) fn other(out: Out<f64, 2>) {
        out.set(1.0 / 0);
    }
}

fn step(a: &mut Field<f64, 2>, b: &Field<f64, 2>) {
    let _ = many(a, b, 3);
    let _ = option(a);
    let _ = model::other(a);
}

fn main() {}
