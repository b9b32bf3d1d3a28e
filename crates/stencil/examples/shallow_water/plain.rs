//! The same by plain loops.

use ndarray::{Array2, ArrayD};

use super::common::Size;
use super::model::{DT, GRAVITY, ROTATION};

pub(super) fn run(Size { cells: [n, m], steps }: Size<2>) -> Vec<ArrayD<f64>> {
    let mut h = Array2::from_shape_fn((n, m), |(i, j)| depth([n, m], [i, j]));
    let mut q = Array2::from_shape_fn((n, m), |(i, j)| stripes([n, m], [i, j]));
    // The last face of the periodic axis is the first one.
    let mut u = Array2::<f64>::zeros((n + 1, m));
    let mut v = Array2::<f64>::zeros((n, m + 1));
    for _ in 0..steps {
        u = Array2::from_shape_fn((n + 1, m), |(i, j)| {
            let (west, east) = ((i + n - 1) % n, i % n);
            let across = 0.25 * (v[[west, j]] + v[[west, j + 1]] + v[[east, j]] + v[[east, j + 1]]);
            u[[i, j]] + DT * (ROTATION * across - GRAVITY * (h[[east, j]] - h[[west, j]]))
        });
        v = Array2::from_shape_fn((n, m + 1), |(i, j)| {
            if j == 0 || j == m {
                return 0.0;
            }
            let across = 0.25 * (u[[i, j - 1]] + u[[i + 1, j - 1]] + u[[i, j]] + u[[i + 1, j]]);
            v[[i, j]] - DT * (ROTATION * across + GRAVITY * (h[[i, j]] - h[[i, j - 1]]))
        });
        let water_x = Array2::from_shape_fn((n + 1, m), |(i, j)| {
            0.5 * u[[i, j]] * (h[[(i + n - 1) % n, j]] + h[[i % n, j]])
        });
        let water_y = Array2::from_shape_fn((n, m + 1), |(i, j)| {
            0.5 * v[[i, j]] * (h[[i, j.saturating_sub(1)]] + h[[i, j.min(m - 1)]])
        });
        let dye_x = Array2::from_shape_fn((n + 1, m), |(i, j)| {
            let from = if water_x[[i, j]] > 0.0 { (i + n - 1) % n } else { i % n };
            water_x[[i, j]] * q[[from, j]]
        });
        let dye_y = Array2::from_shape_fn((n, m + 1), |(i, j)| {
            let from = if water_y[[i, j]] > 0.0 { j.saturating_sub(1) } else { j.min(m - 1) };
            water_y[[i, j]] * q[[i, from]]
        });
        let out = |flux_x: &Array2<f64>, flux_y: &Array2<f64>, i: usize, j: usize| {
            flux_x[[i + 1, j]] - flux_x[[i, j]] + (flux_y[[i, j + 1]] - flux_y[[i, j]])
        };
        let before = h;
        h = Array2::from_shape_fn((n, m), |(i, j)| {
            before[[i, j]] - DT * out(&water_x, &water_y, i, j)
        });
        q = Array2::from_shape_fn((n, m), |(i, j)| {
            (q[[i, j]] * before[[i, j]] - DT * out(&dye_x, &dye_y, i, j)) / h[[i, j]]
        });
    }
    [h, q, u, v].map(Array2::into_dyn).to_vec()
}

/// A hump of water.
pub(super) fn depth(cells: [usize; 2], [i, j]: [usize; 2]) -> f64 {
    let (x, y) = (i as f64 / cells[0] as f64 - 0.5, j as f64 / cells[1] as f64 - 0.5);
    1.0 + 0.3 * (-30.0 * (x * x + y * y)).exp()
}

/// Stripes of dye.
pub(super) fn stripes(cells: [usize; 2], [i, _]: [usize; 2]) -> f64 {
    if (8 * i / cells[0]).is_multiple_of(2) { 1.0 } else { 0.0 }
}
