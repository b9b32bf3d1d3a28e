use runtime_core::Stream;
use stencil::{Field, In, Out, Result, stencil};

#[stencil]
fn east(out: Out<f64, 2>, t: In<f64, 2>) {
    out.set(t.at(1, 0));
}

fn step(out: &mut Field<f64, 2>, single: &Field<f32, 2>, line: &Field<f64, 1>, stream: &Stream) -> Result<()> {
    east(out, single).run(stream)?;
    east(out, line).run(stream)
}

fn main() {}
