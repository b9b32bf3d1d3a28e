//! The same by plain loops.

use ndarray::{Array3, ArrayD};

use super::common::Size;

pub(super) fn run(Size { cells: [l, n, m], steps }: Size<3>) -> Vec<ArrayD<f64>> {
    let mut q = Array3::from_shape_fn((l, n, m), |(k, i, j)| initial([l, n, m], [k, i, j]));
    for _ in 0..steps {
        let laplacian = |k: usize, i: usize, j: usize| {
            4.0 * q[[k, i, j]]
                - (q[[k, i, j + 1]] + q[[k, i, j - 1]] + (q[[k, i + 1, j]] + q[[k, i - 1, j]]))
        };
        let flux = |k: usize, [i, j]: [usize; 2], [di, dj]: [usize; 2]| {
            let flux = laplacian(k, i + di, j + dj) - laplacian(k, i, j);
            let slope = q[[k, i + di, j + dj]] - q[[k, i, j]];
            if flux * slope > 0.0 { 0.0 } else { flux }
        };
        let mut next = q.clone();
        for k in 0..l {
            for i in 2..n - 2 {
                for j in 2..m - 2 {
                    let along_1 = flux(k, [i, j], [1, 0]) - flux(k, [i - 1, j], [1, 0]);
                    let along_2 = flux(k, [i, j], [0, 1]) - flux(k, [i, j - 1], [0, 1]);
                    let coefficient = coefficient([l, n, m], [k, i, j]);
                    next[[k, i, j]] -= coefficient * (along_2 + along_1);
                }
            }
        }
        q = next;
    }
    vec![q.into_dyn()]
}

/// A step, and noise.
pub(super) fn initial(cells: [usize; 3], [k, i, j]: [usize; 3]) -> f64 {
    let noise = ((k * 31 + i * 17 + j * 7) % 13) as f64 / 13.0;
    let step = if 3 * i + j > cells[1] + cells[2] { 1.0 } else { 0.0 };
    step + 0.3 * noise
}

/// More diffusion higher up.
pub(super) fn coefficient(cells: [usize; 3], [k, _, _]: [usize; 3]) -> f64 {
    0.01 + 0.02 * k as f64 / cells[0] as f64
}
