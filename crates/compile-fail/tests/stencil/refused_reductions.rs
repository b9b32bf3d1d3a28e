use stencil::{Field, In, InOut, Reduction, reduction};

#[reduction(mean)]
fn mean(t: In<f64, 2>) -> f64 {
    t.at(0, 0)
}

#[reduction(sum)]
fn nothing(t: In<f64, 2>) {
    let _a = t.at(0, 0);
}

#[reduction(max)]
fn hot(t: In<f64, 2>) -> bool {
    t.at(0, 0) > 1.0
}

#[reduction(min)]
fn cooled(t: InOut<f64, 2>) -> f64 {
    t.set(0.0);
    t.at(0, 0)
}

#[reduction(sum)]
fn area(a: f64) -> f64 {
    a
}

#[reduction(sum)]
fn mass(t: In<f64, 2>) -> f64 {
    t.at(0, 0)
}

fn other_type(t: &Field<f64, 2>) -> Reduction<'_, f32> {
    mass(t)
}

fn main() {}
