use stencil::{Field, In, Out, column, stencil};

#[column(sideways)]
fn direction(out: Out<f64, 2>) {
    out.set(1.0);
}

#[column(forward, axis = 2)]
fn axis(out: Out<f64, 2>) {
    out.set(1.0);
}

#[column(backward)]
fn behind(out: Out<f64, 2>, t: In<f64, 2>) {
    if first() {
        out.set(out.at(1, 0));
    } else {
        out.set(out.at(-1, 0) + t.at(-1, 0));
    }
}

#[stencil]
fn no_column(out: Out<f64, 2>) {
    out.set(if first() { 1.0 } else { 2.0 });
}

fn step(a: &mut Field<f64, 2>, b: &Field<f64, 2>) {
    let _ = direction(a);
    let _ = axis(a);
    let _ = behind(a, b);
    let _ = no_column(a);
}

fn main() {}
