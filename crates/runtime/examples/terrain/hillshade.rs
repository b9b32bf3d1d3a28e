//! Relief shading: the brightness of slopes under a low sun in the north-west.

use ndarray::{Array2, ArrayRef2};

use crate::args::Spacing;

/// The position of the sun, and the vertical exaggeration of slopes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Light {
    /// Degrees clockwise from north.
    pub(crate) azimuth: f64,
    /// Degrees above the horizon.
    pub(crate) altitude: f64,
    pub(crate) exaggeration: f64,
}

/// The brightness of every cell, from 0 in the shade to 1 facing the sun, by Horn's method. Row 0 is the northernmost.
///
/// Horn's method computes slopes from all eight neighbours, with double weight for the nearer ones. At the boundary,
/// the nearest cells replace those outside.
pub(crate) fn hillshade(heights: &ArrayRef2<f64>, spacing: Spacing, light: Light) -> Array2<f64> {
    let (sin_azimuth, cos_azimuth) = light.azimuth.to_radians().sin_cos();
    let (sin_altitude, cos_altitude) = light.altitude.to_radians().sin_cos();
    let sun = [sin_azimuth * cos_altitude, cos_azimuth * cos_altitude, sin_altitude];

    let (rows, columns) = heights.dim();
    let around =
        |index: usize, len: usize| [index.saturating_sub(1), index, (index + 1).min(len - 1)];
    Array2::from_shape_fn(heights.dim(), |(row, column)| {
        let [north, here, south] = around(row, rows);
        let [west, middle, east] = around(column, columns);
        let z = |row: usize, column: usize| heights[[row, column]];
        let column_sum = |column| z(north, column) + 2.0 * z(here, column) + z(south, column);
        let row_sum = |row| z(row, west) + 2.0 * z(row, middle) + z(row, east);
        let eastward =
            light.exaggeration * (column_sum(east) - column_sum(west)) / (8.0 * spacing.dx);
        let northward = light.exaggeration * (row_sum(north) - row_sum(south)) / (8.0 * spacing.dy);
        let facing = sun[2] - eastward * sun[0] - northward * sun[1];
        (facing / (1.0 + eastward * eastward + northward * northward).sqrt()).max(0.0)
    })
}
