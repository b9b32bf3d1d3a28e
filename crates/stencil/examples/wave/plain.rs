//! The same by plain loops.

use std::mem::replace;

use ndarray::{Array2, ArrayD};

use super::common::Size;
use super::{hump, speed};

pub(super) fn run(Size { cells: [n, m], steps }: Size<2>) -> Vec<ArrayD<f64>> {
    let mut now = Array2::from_shape_fn((n, m), |(i, j)| hump([n, m], [i, j]));
    let mut before = now.clone();
    for _ in 0..steps {
        let next = Array2::from_shape_fn((n, m), |(i, j)| {
            let (u, c) = (now[[i, j]], speed([n, m], [i, j]));
            let west = if i == 0 { -u } else { now[[i - 1, j]] };
            let east = if i + 1 == n { -u } else { now[[i + 1, j]] };
            let (south, north) = (now[[i, j.saturating_sub(1)]], now[[i, (j + 1).min(m - 1)]]);
            2.0 * u - before[[i, j]] + c * c * (west + east + south + north - 4.0 * u)
        });
        before = replace(&mut now, next);
    }
    vec![now.into_dyn(), before.into_dyn()]
}
