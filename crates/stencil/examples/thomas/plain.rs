//! The same by plain loops.

use ndarray::{Array3, ArrayD};

use super::WIND;
use super::common::Size;

/// K Δt / Δz² at a face: large in the turbulent layer at the ground, and small above its top, which goes up and down.
pub(super) fn mixing([levels, _, m]: [usize; 3], [face, _, k]: [usize; 3]) -> f64 {
    let height = face as f64 / levels as f64;
    let top = 0.45 + 0.25 * (std::f64::consts::TAU * k as f64 / m as f64).sin();
    if height < top { 4.0 * height / top } else { 0.02 }
}

/// Smoke at the ground around some chimneys.
pub(super) fn initial([levels, n, m]: [usize; 3], [i, j, k]: [usize; 3]) -> f64 {
    let is_low = i <= levels / 8;
    if is_low && j % (n / 2).max(1) < n / 3 + 1 && k % (m / 4).max(1) < m / 20 + 1 {
        1.0
    } else {
        0.0
    }
}

pub(super) fn run(Size { cells: [n, m, l], steps }: Size<3>) -> Vec<ArrayD<f64>> {
    let start = |(i, j, k)| initial([n, m, l], [i, j, k]);
    let mut t = Array3::from_shape_fn((n, m, l), start);
    for _ in 0..steps {
        t = Array3::from_shape_fn((n, m, l), |(i, j, k)| {
            let w = WIND * (i + 1) as f64 / n as f64;
            t[[i, j, k]] - w * (t[[i, j, k]] - t[[i, j, (k + l - 1) % l]])
        });
        for (j, k) in (0..m).flat_map(|j| (0..l).map(move |k| (j, k))) {
            let (mut c, mut d) = (vec![0.0; n], vec![0.0; n]);
            for i in 0..n {
                let above = if i + 1 == n { 0.0 } else { mixing([n, m, l], [i + 1, j, k]) };
                let (b, from_below) = if i == 0 {
                    (1.0 + above, t[[i, j, k]])
                } else {
                    let below = mixing([n, m, l], [i, j, k]);
                    (1.0 + above + below * (1.0 - c[i - 1]), t[[i, j, k]] + below * d[i - 1])
                };
                (c[i], d[i]) = (above / b, from_below / b);
            }
            for i in (0..n).rev() {
                t[[i, j, k]] = if i + 1 == n { d[i] } else { d[i] + c[i] * t[[i + 1, j, k]] };
            }
        }
    }
    vec![t.into_dyn()]
}
