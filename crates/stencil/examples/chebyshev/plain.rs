//! The same by plain loops.

use std::f64::consts::FRAC_PI_2;
use std::iter;

use ndarray::{Array2, ArrayD, Zip};

use super::TOLERANCE;
use super::common::Size;

pub(super) fn run(Size { cells: [n, m], steps }: Size<2>) -> Vec<ArrayD<f64>> {
    let f = Array2::from_shape_fn((n, m), |(i, j)| charge([n, m], [i, j]));
    let mut u = Array2::zeros((n, m));
    let mut d = Array2::zeros((n, m));
    for (number, [a, b]) in factors([n, m]).take(steps).enumerate() {
        let residual = residual(&u, &f);
        Zip::from(&mut d).and(&residual).for_each(|d, r| *d = a * *d + b * r);
        u += &d;
        let largest = |u: &Array2<f64>| {
            self::residual(u, &f).iter().fold(0.0_f64, |most, r| most.max(r.abs()))
        };
        if number % 10 == 9 && largest(&u) < TOLERANCE {
            break;
        }
    }
    vec![u.into_dyn(), d.into_dyn()]
}

fn residual(u: &Array2<f64>, f: &Array2<f64>) -> Array2<f64> {
    let (n, m) = u.dim();
    Array2::from_shape_fn((n, m), |(i, j)| {
        let here = u[[i, j]];
        let west = if i == 0 { -here } else { u[[i - 1, j]] };
        let east = if i + 1 == n { -here } else { u[[i + 1, j]] };
        let south = if j == 0 { -here } else { u[[i, j - 1]] };
        let north = if j + 1 == m { -here } else { u[[i, j + 1]] };
        f[[i, j]] + (west + east + south + north - 4.0 * here)
    })
}

/// The factors of each step: those of the last move and of the residual (Golub and Varga, 1961).
pub(super) fn factors(cells: [usize; 2]) -> impl Iterator<Item = [f64; 2]> {
    let least: f64 = cells.map(|n| 4.0 * (FRAC_PI_2 / n as f64).sin().powi(2)).iter().sum();
    let (centre, radius) = ((8.0 + least) / 2.0, (8.0 - least) / 2.0);
    let mut last = radius / centre;
    iter::once([0.0, 1.0 / centre]).chain(iter::repeat_with(move || {
        let now = 1.0 / (2.0 * centre / radius - last);
        let factors = [now * last, 2.0 * now / radius];
        last = now;
        factors
    }))
}

pub(super) fn charge([n, m]: [usize; 2], [i, j]: [usize; 2]) -> f64 {
    let at = |x: usize, y: usize| i == n * x / 4 && j == m * y / 4;
    f64::from(u8::from(at(1, 2))) - f64::from(u8::from(at(3, 2)))
}
