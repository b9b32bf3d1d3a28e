//! Stencils, and the same kernels written by hand.

use stencil_translator::Stencil;

/// The kernels, in CUDA C, which is HIP C, too.
pub(crate) const KERNELS: &str = include_str!("hand_written.cu");

/// The stencils, which have the names of the kernels.
pub(crate) fn stencils() -> impl Iterator<Item = Stencil> {
    let texts = [
        "fn five_point(next: Out<f64, 2>, t: In<f64, 2>, a: f64) {
            let around = t.at(-1, 0) + t.at(1, 0) + t.at(0, -1) + t.at(0, 1);
            next.set(t.at(0, 0) + a * (around - 4.0 * t.at(0, 0)));
        }",
        "fn seven_point(next: Out<f64, 3>, t: In<f64, 3>, a: f64) {
            let across = t.at(-1, 0, 0) + t.at(1, 0, 0) + t.at(0, -1, 0) + t.at(0, 1, 0);
            let around = across + t.at(0, 0, -1) + t.at(0, 0, 1);
            next.set(t.at(0, 0, 0) + a * (around - 6.0 * t.at(0, 0, 0)));
        }",
    ];
    texts.into_iter().map(|text| Stencil::parse(text.parse().unwrap()).unwrap())
}

/// Panics if a stencil has more than a tenth more instructions than its kernel.
pub(crate) fn check(stencil: &Stencil, target: &str, ours: usize, by_hand: usize) {
    let name = stencil.name();
    println!("{name} for {target}: {ours} instructions, {by_hand} by hand");
    assert!(by_hand > 20, "{name} for {target}: {by_hand} instructions by hand");
    assert!(10 * ours <= 11 * by_hand, "{name} for {target}: {ours}, and {by_hand} by hand");
}
