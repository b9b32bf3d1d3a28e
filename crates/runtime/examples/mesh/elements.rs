//! The kernels: what each triangle adds to the Laplacian, and a step of Jacobi's method.
//!
//! On a triangle, values are linear between the corners. Corner `i` has the function `p(i)`: 1 there, and 0 at the
//! other corners. Its gradient is constant: the opposite side, turned by a right angle, over twice the area.

use runtime::{Grid, HostModule};

/// Triangles or nodes for one call of the host's threads.
const CHUNK: usize = 512;

/// Three corners of two coordinates.
const PLACES: usize = 6;

pub(crate) fn module() -> HostModule {
    HostModule::new()
        .with("contributions", contributions)
        .with("diagonals", diagonals)
        .with("relax", relax)
}

/// Of each corner of a triangle, given its values `u` at the corners: the integral of `grad u . grad p(i)`.
fn contributions(grid: &Grid<'_>, to: &mut [f64], values: &[f64], places: &[f64]) {
    grid.chunks_mut(to, 3 * CHUNK, |chunk, to| {
        let places = places.chunks_exact(PLACES).skip(CHUNK * chunk);
        let values = values.chunks_exact(3).skip(CHUNK * chunk);
        for ((to, values), places) in to.chunks_exact_mut(3).zip(values).zip(places) {
            let (sides, area) = sides(places);
            let mut gradient = [0.0; 2];
            for (side, value) in sides.iter().zip(values) {
                gradient[0] += value * side[0];
                gradient[1] += value * side[1];
            }
            for (to, side) in to.iter_mut().zip(sides) {
                *to = (gradient[0] * side[0] + gradient[1] * side[1]) / (4.0 * area);
            }
        }
    });
}

/// Of each corner of a triangle: the integral of `grad p(i) . grad p(i)`.
fn diagonals(grid: &Grid<'_>, to: &mut [f64], places: &[f64]) {
    grid.chunks_mut(to, 3 * CHUNK, |chunk, to| {
        let places = places.chunks_exact(PLACES).skip(CHUNK * chunk);
        for (to, places) in to.chunks_exact_mut(3).zip(places) {
            let (sides, area) = sides(places);
            for (to, side) in to.iter_mut().zip(sides) {
                *to = (side[0] * side[0] + side[1] * side[1]) / (4.0 * area);
            }
        }
    });
}

/// Subtracts weighted sums from values.
fn relax(grid: &Grid<'_>, values: &mut [f64], sums: &[f64], weights: &[f64]) {
    grid.chunks_mut(values, CHUNK, |chunk, values| {
        let start = CHUNK * chunk;
        for ((value, sum), weight) in values.iter_mut().zip(&sums[start..]).zip(&weights[start..]) {
            *value -= weight * sum;
        }
    });
}

/// The sides opposite to the corners, turned by a right angle, and the area.
fn sides(places: &[f64]) -> ([[f64; 2]; 3], f64) {
    let at = |corner: usize| [places[2 * (corner % 3)], places[2 * (corner % 3) + 1]];
    let sides = [0, 1, 2].map(|corner| {
        let (next, last) = (at(corner + 1), at(corner + 2));
        [next[1] - last[1], last[0] - next[0]]
    });
    // Either orientation of the corners is right: the area has no sign.
    let area = (sides[0][0] * sides[1][1] - sides[1][0] * sides[0][1]).abs() / 2.0;
    (sides, area)
}
