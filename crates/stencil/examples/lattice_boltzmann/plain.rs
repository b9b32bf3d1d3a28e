//! The same by plain loops.

use std::array::from_fn;

use ndarray::{Array2, ArrayD};

use super::common::Size;
use super::model::{W, X, Y};

const OPPOSITE: [usize; 9] = [0, 3, 4, 1, 2, 7, 8, 5, 6];

pub(super) fn run(Size { cells: [n, m], steps }: Size<2>) -> Vec<ArrayD<f32>> {
    let mut f: [Array2<f32>; 9] = from_fn(|k| Array2::from_elem((n, m), inflow(k)));
    let clamp = |at: usize, step: i64, n: usize| match step {
        1 => at.saturating_sub(1),
        -1 => (at + 1).min(n - 1),
        _ => at,
    };
    let is_wall = |point: [usize; 2]| wall([n, m], point) != 0;
    for _ in 0..steps {
        let mut g = f.clone();
        for i in 0..n {
            for j in 0..m {
                let pulled: [f32; 9] = from_fn(|k| {
                    let from = [clamp(i, X[k], n), clamp(j, Y[k], m)];
                    if k == 0 {
                        f[0][[i, j]]
                    } else if is_wall(from) || is_wall([i, j]) {
                        f[OPPOSITE[k]][[i, j]]
                    } else if i == 0 && X[k] == 1 {
                        inflow(k)
                    } else {
                        f[k][from]
                    }
                });
                let [p0, p1, p2, p3, p4, p5, p6, p7, p8] = pulled;
                let density = p0 + p1 + p2 + p3 + p4 + p5 + p6 + p7 + p8;
                let u = (p1 - p3 + p5 - p6 - p7 + p8) / density;
                let v = (p2 - p4 + p5 + p6 - p7 - p8) / density;
                for k in 0..9 {
                    let along = X[k] as f32 * u + Y[k] as f32 * v;
                    let speed = u * u + v * v;
                    let shape = 1.0 + 3.0 * along + 4.5 * along * along - 1.5 * speed;
                    g[k][[i, j]] = pulled[k] + 1.85 * (W[k] * density * shape - pulled[k]);
                }
            }
        }
        f = g;
    }
    f.map(Array2::into_dyn).into()
}

/// The parts of a fluid that flows along axis 0.
pub(super) fn inflow(k: usize) -> f32 {
    let along = 0.1 * X[k] as f32;
    W[k] * (1.0 + 3.0 * along + 4.5 * along * along - 0.015)
}

/// Walls along axis 0, and a cylinder a little beside the middle.
pub(super) fn wall(cells: [usize; 2], [i, j]: [usize; 2]) -> u32 {
    let (x, y) = (i as f64 - cells[0] as f64 / 5.0, j as f64 - cells[1] as f64 / 2.0 + 1.5);
    let radius = cells[1] as f64 / 9.0;
    u32::from(j == 0 || j + 1 == cells[1] || x * x + y * y < radius * radius)
}
