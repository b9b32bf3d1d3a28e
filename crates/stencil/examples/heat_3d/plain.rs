//! The same by plain loops.

use ndarray::{Array3, ArrayD};

use super::common::Size;
use super::{A, AIR, HOT, initial};

pub(super) fn run(Size { cells: [n, m, l], steps }: Size<3>) -> Vec<ArrayD<f64>> {
    let start = |(i, j, k)| initial([n, m, l], [i, j, k]);
    let mut t = Array3::from_shape_fn((n, m, l), start);
    for _ in 0..steps {
        t = Array3::from_shape_fn((n, m, l), |(i, j, k)| {
            let c = t[[i, j, k]];
            let (west, east) = (t[[(i + n - 1) % n, j, k]], t[[(i + 1) % n, j, k]]);
            let (south, north) = (t[[i, j.saturating_sub(1), k]], t[[i, (j + 1).min(m - 1), k]]);
            let below = if k == 0 { HOT } else { t[[i, j, k - 1]] };
            let above = if k + 1 == l { AIR * c } else { t[[i, j, k + 1]] };
            let along_0 = west - 2.0 * c + east;
            let along_1 = south - 2.0 * c + north;
            let along_2 = below - 2.0 * c + above;
            c + A * (along_0 + along_1 + along_2)
        });
    }
    vec![t.into_dyn()]
}
