//! The same by plain loops.

use ndarray::{Array2, ArrayD};

use super::common::Size;
use super::{FEED, KILL, drops};

pub(super) fn run(Size { cells: [n, m], steps }: Size<2>) -> Vec<ArrayD<f32>> {
    let mut u = Array2::from_shape_fn((n, m), |(i, j)| 1.0 - drops([n, m], [i, j]));
    let mut v = Array2::from_shape_fn((n, m), |(i, j)| drops([n, m], [i, j]));
    let laplacian = |f: &Array2<f32>, i: usize, j: usize| {
        let at = |di: usize, dj: usize| f[[(i + n + di - 1) % n, (j + m + dj - 1) % m]];
        let sides = at(0, 1) + at(2, 1) + at(1, 0) + at(1, 2);
        let corners = at(0, 0) + at(0, 2) + at(2, 0) + at(2, 2);
        0.2 * sides + 0.05 * corners - at(1, 1)
    };
    for _ in 0..steps {
        let (mut u_next, mut v_next) = (u.clone(), v.clone());
        for ((i, j), u_here) in u.indexed_iter() {
            let v_here = v[[i, j]];
            let eaten = u_here * v_here * v_here;
            u_next[[i, j]] = u_here + laplacian(&u, i, j) - eaten + FEED * (1.0 - u_here);
            v_next[[i, j]] = v_here + 0.5 * laplacian(&v, i, j) + eaten - (FEED + KILL) * v_here;
        }
        (u, v) = (u_next, v_next);
    }
    vec![u.into_dyn(), v.into_dyn()]
}
