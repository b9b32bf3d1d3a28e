//! The same diffusion in plain `ndarray`, in an independent implementation, as a reference for the device's result.

use ndarray::{Array2, Zip, s};

use crate::diffusion::Scheme;
use crate::progress::Progress;

/// Runs `steps` steps: weighted means of a cell and its four neighbours, in a grid with a ring of ghost cells.
pub(crate) fn smooth(
    tile: &Array2<f64>,
    scheme: &Scheme,
    steps: u64,
    progress: &mut Progress,
) -> Array2<f64> {
    let (rows, columns) = tile.dim();
    let (ax, ay) = (scheme.ax, scheme.ay);
    let own = 1.0 - 2.0 * (ax + ay);
    let mut ringed = Array2::zeros((rows + 2, columns + 2));
    ringed.slice_mut(s![1..=rows, 1..=columns]).assign(tile);
    let mut next = tile.clone();
    for _ in 0..steps {
        // Ghost cells equal their inner neighbours: there is no slope at the boundary, and therefore no flux.
        for (ghost, inside) in [(0, 1), (rows + 1, rows)] {
            let (mut ghost, inside) = ringed.multi_slice_mut((s![ghost, ..], s![inside, ..]));
            ghost.assign(&inside);
        }
        for (ghost, inside) in [(0, 1), (columns + 1, columns)] {
            let (mut ghost, inside) = ringed.multi_slice_mut((s![.., ghost], s![.., inside]));
            ghost.assign(&inside);
        }
        Zip::from(&mut next)
            .and(ringed.slice(s![1..=rows, 1..=columns]))
            .and(ringed.slice(s![1..=rows, ..columns]))
            .and(ringed.slice(s![1..=rows, 2..]))
            .and(ringed.slice(s![..rows, 1..=columns]))
            .and(ringed.slice(s![2.., 1..=columns]))
            .for_each(|next, centre, west, east, north, south| {
                *next = own * centre + ax * (west + east) + ay * (north + south);
            });
        ringed.slice_mut(s![1..=rows, 1..=columns]).assign(&next);
        progress.advance(1);
    }
    next
}
