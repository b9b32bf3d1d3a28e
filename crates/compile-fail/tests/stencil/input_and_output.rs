use runtime_core::Stream;
use stencil::{Field, In, Out, Result, stencil};

#[stencil]
fn east(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(1, 0));
}

fn step(t: &mut Field<f64, 2>, stream: &Stream) -> Result<()> {
    east(t, t).run(stream)
}

fn main() {}
