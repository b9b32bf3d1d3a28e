//! Resampling of a grid to another spacing.

use ndarray::{Array2, ArrayRef2, Axis};

/// Samples values along one axis, `step` old cells apart, by Catmull-Rom splines. If the new grid is coarser, the
/// splines are widened so that no value is skipped.
pub(crate) fn resample(values: &ArrayRef2<f64>, axis: Axis, step: f64) -> Array2<f64> {
    let old = values.len_of(axis);
    let wide = step.clamp(1.0, old as f64);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 1, and at most twice `old`"
    )]
    let new = ((old as f64 / step).round() as usize).max(1);
    let mut shape = values.raw_dim();
    shape[axis.index()] = new;
    let mut resampled = Array2::zeros(shape);
    for (index, mut line) in resampled.axis_iter_mut(axis).enumerate() {
        let centre = (index as f64 + 0.5) * step - 0.5;
        #[expect(clippy::cast_possible_truncation, reason = "an index, or just outside")]
        let [first, last] =
            [(centre - 2.0 * wide).ceil(), (centre + 2.0 * wide).floor()].map(|at| at as isize);
        let mut total = 0.0;
        for near in first..=last {
            let weight = catmull_rom((near as f64 - centre) / wide);
            let near = near.clamp(0, old as isize - 1).cast_unsigned();
            line.scaled_add(weight, &values.index_axis(axis, near));
            total += weight;
        }
        line /= total;
    }
    resampled
}

fn catmull_rom(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        (1.5 * x - 2.5) * x * x + 1.0
    } else if x < 2.0 {
        ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    } else {
        0.0
    }
}
