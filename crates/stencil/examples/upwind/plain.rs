//! The same by plain loops.

use ndarray::{Array2, ArrayD};

use super::TURN;
use super::common::Size;

pub(super) fn run(Size { cells: [n, m], steps }: Size<2>) -> Vec<ArrayD<f64>> {
    let [x, y] = [n, m].map(|n| 0.5 * n as f64 - 0.5);
    let mut q = Array2::from_shape_fn((n, m), |(i, j)| shapes([n, m], [i, j]));
    for _ in 0..steps {
        for j in 0..m {
            let row: Vec<f64> = (0..n).map(|i| q[[i, j]]).collect();
            moved(&row, TURN * (y - j as f64)).for_each(|(i, value)| q[[i, j]] = value);
        }
        for i in 0..n {
            let row: Vec<f64> = (0..m).map(|j| q[[i, j]]).collect();
            moved(&row, TURN * (i as f64 - x)).for_each(|(j, value)| q[[i, j]] = value);
        }
    }
    vec![q.into_dyn()]
}

/// The places and the next values of a row that moves as a whole.
fn moved(row: &[f64], u: f64) -> impl Iterator<Item = (usize, f64)> {
    let padded = [&[0.0; 2], row, &[0.0; 2]].concat();
    let flux = move |points: &[f64]| {
        let slopes = [points[1] - points[0], points[2] - points[1], points[3] - points[2]];
        let [a, b] = if u > 0.0 { [slopes[0], slopes[1]] } else { [slopes[1], slopes[2]] };
        let slope = if a * b > 0.0 { 2.0 * a * b / (a + b) } else { 0.0 };
        let here = 0.5 * (1.0 - u.abs()) * slope;
        u * (if u > 0.0 { points[1] + here } else { points[2] - here })
    };
    (0..row.len()).map(move |i| {
        let (before, behind) = (flux(&padded[i..i + 4]), flux(&padded[i + 1..i + 5]));
        (i, padded[i + 2] - (behind - before))
    })
}

/// A cylinder with a slot, and a cone.
pub(super) fn shapes(cells: [usize; 2], [i, j]: [usize; 2]) -> f64 {
    let (x, y) = (i as f64 / cells[0] as f64, j as f64 / cells[1] as f64);
    let distance = |a: f64, b: f64| ((x - a) * (x - a) + (y - b) * (y - b)).sqrt();
    let in_slot = (x - 0.5).abs() < 0.03 && y < 0.82;
    if distance(0.5, 0.75) < 0.15 && !in_slot {
        return 1.0;
    }
    (1.0 - distance(0.5, 0.25) / 0.15).max(0.0)
}
