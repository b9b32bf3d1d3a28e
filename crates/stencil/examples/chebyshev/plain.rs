//! The same by plain loops.

use ndarray::{Array2, ArrayD, Zip};

use super::common::Size;
use super::{TOLERANCE, charge, factors};

pub(super) fn run(Size { cells: [n, m], steps }: Size<2>) -> Vec<ArrayD<f64>> {
    let f = Array2::from_shape_fn((n, m), |(i, j)| charge([n, m], [i, j]));
    let mut u = Array2::zeros((n, m));
    let mut d = Array2::zeros((n, m));
    for (number, [a, b]) in factors([n, m]).take(steps).enumerate() {
        let residual = residual(&u, &f);
        Zip::from(&mut d).and(&residual).for_each(|d, r| *d = a * *d + b * r);
        u = u + &d;
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
