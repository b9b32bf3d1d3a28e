//! The problem: the mesh that is built in, and the values that the solution begins with.

use crate::partition::Ordered;

/// The ring between circles of radius 1 and 2.
pub(crate) const ANNULUS: &str = include_str!("data/annulus.msh");

/// A function that solves Laplace's equation. The solution has its values on the boundary.
pub(crate) fn exact([x, y]: [f64; 2]) -> f64 {
    x * x - y * y
}

/// The values of nodes at the start: those of a function on the boundary, and 0 inside.
pub(crate) fn start(mesh: &Ordered, on_boundary: fn([f64; 2]) -> f64) -> impl Fn(usize) -> f64 {
    move |node| if mesh.on_boundary[node] { on_boundary(mesh.nodes[node]) } else { 0.0 }
}
