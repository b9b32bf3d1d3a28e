//! Pictures of arrays, as PNG files.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of numbers in range")]

use std::io::{BufWriter, Write};
use std::ops::RangeInclusive;

use ndarray::{Array2, ArrayRef2, Axis, Ix2};
use runtime_core::{Error, ErrorKind, Result};

use crate::gather::zeros;

/// Red, green and blue, from 0 to 255.
type Colour = [f64; 3];

const SHADOW: u32 = 0x26_28_48;
const SUNLIGHT: u32 = 0xff_fa_e8;
const DIVIDER: u32 = 0xfa_fa_f7;

/// A picture in rows from the top.
///
/// ```
/// use ndarray::Array2;
/// use stencil::picture::Picture;
///
/// let heights = Array2::from_shape_fn((40, 60), |(i, j)| 10.0 * (i as f64 * 0.2).sin() + j as f64);
/// let plain = Picture::new(&heights, -10.0..=70.0, &[0x124e70, 0xf4f1ea, 0x8c2d1e]);
/// let relief = plain.clone().relief(&heights);
/// let mut file = Vec::new();
/// Picture::beside(&[plain, relief])?.write(&mut file)?;
/// assert!(file.starts_with(b"\x89PNG"));
/// # Ok::<(), stencil::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Picture(Array2<Colour>);

impl Picture {
    /// A pixel for each value: [`resample`] makes more or fewer of them. Colours are `0xRRGGBB`, evenly spaced over the
    /// range, and mixed between. NaN is the middle of the range, and all is black without colours.
    pub fn new<T: Copy + Into<f64>>(
        values: &ArrayRef2<T>,
        range: RangeInclusive<f64>,
        colours: &[u32],
    ) -> Self {
        let (low, high) = range.into_inner();
        Self(values.map(|value| gradient(colours, ((*value).into() - low) / (high - low))))
    }

    /// Adds light and shade of a relief with these heights, measured in pixels, under a low sun at the upper left.
    /// Pixels without a height stay.
    ///
    /// Slopes are computed by Horn's method: from all eight neighbours, with double weight for the nearer ones. At the
    /// ends, the nearest heights replace those outside.
    #[must_use]
    pub fn relief(mut self, heights: &ArrayRef2<f64>) -> Self {
        let (rows, columns) = heights.dim();
        let flat = f64::sqrt(0.5);
        for ((row, column), colour) in self.0.indexed_iter_mut() {
            if row >= rows || column >= columns {
                continue;
            }
            let z = |down: usize, across: usize| {
                let row = (row + down).saturating_sub(1).min(rows - 1);
                heights[[row, (column + across).saturating_sub(1).min(columns - 1)]]
            };
            let column = |at| z(0, at) + 2.0 * z(1, at) + z(2, at);
            let row = |at| z(at, 0) + 2.0 * z(at, 1) + z(at, 2);
            let (east, north) = ((column(2) - column(0)) / 8.0, (row(0) - row(2)) / 8.0);
            let facing = flat + 0.5 * (east - north);
            let light = (facing / (1.0 + east * east + north * north).sqrt()).max(0.0) - flat;
            *colour = if light < 0.0 {
                mix(*colour, rgb(SHADOW), -0.85 * light / flat)
            } else {
                mix(*colour, rgb(SUNLIGHT), 0.6 * light / (1.0 - flat))
            };
        }
        self
    }

    /// Pictures of the same height from left to right, with light lines between them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for no pictures, or other heights than that of the first.
    pub fn beside(pictures: &[Self]) -> Result<Self> {
        let heights: Vec<usize> = pictures.iter().map(|picture| picture.0.nrows()).collect();
        let divider = Array2::from_elem((heights.first().copied().unwrap_or(0), 8), rgb(DIVIDER));
        let mut panels = Vec::new();
        for picture in pictures {
            panels.extend([divider.view(), picture.0.view()]);
        }
        let joined = ndarray::concatenate(Axis(1), panels.get(1..).unwrap_or_default());
        joined.map(Self).map_err(|error| {
            let message = format!("pictures of heights {heights:?} beside each other");
            Error::new(ErrorKind::InvalidArgument, "picture", message).with_source(error)
        })
    }

    /// Writes the picture as PNG.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a picture without pixels, or with 2³¹ and more along a side. `Driver` if writing fails.
    pub fn write(&self, target: impl Write) -> Result<()> {
        let (height, width) = self.0.dim();
        let side = |pixels| u32::try_from(pixels).unwrap_or(u32::MAX);
        let rgb = self.0.iter().flatten().map(|channel| channel.round() as u8);
        let mut target = BufWriter::new(target);
        let mut encoder = png::Encoder::new(&mut target, side(width), side(height));
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
        let written = encoder.write_header().and_then(|mut writer| {
            writer.write_image_data(&rgb.collect::<Vec<u8>>())?;
            writer.finish()
        });
        written.and_then(|()| Ok(target.flush()?)).map_err(|error| {
            let kind = match error {
                png::EncodingError::IoError(_) => ErrorKind::Driver,
                _ => ErrorKind::InvalidArgument,
            };
            let message = format!("a picture of {width} x {height} pixels: {error}");
            Error::new(kind, "picture", message).with_source(error)
        })
    }
}

/// Values at other distances along both axes: `steps` says how many old points lie between new ones. Interpolates by
/// Catmull-Rom splines. If the new grid is coarser, the splines are widened so that no value is skipped. A step beyond
/// the length of an axis counts as that length.
///
/// # Errors
///
/// `InvalidArgument` for steps that are not positive numbers, or an array without values. `OutOfMemory` if there is not
/// enough memory for the new array.
pub fn resample(values: &ArrayRef2<f64>, steps: [f64; 2]) -> Result<Array2<f64>> {
    if !steps.iter().all(|step| *step > 0.0 && step.is_finite()) || values.is_empty() {
        let message = format!("{:?} values in steps of {steps:?}", values.shape());
        return Err(Error::new(ErrorKind::InvalidArgument, "resample", message));
    }
    let down = resample_along(values, Axis(0), steps[0])?;
    resample_along(&down, Axis(1), steps[1])
}

fn resample_along(values: &ArrayRef2<f64>, axis: Axis, step: f64) -> Result<Array2<f64>> {
    let old = values.len_of(axis);
    let step = step.min(old as f64);
    let wide = step.max(1.0);
    let mut shape = [values.nrows(), values.ncols()];
    shape[axis.index()] = (old as f64 / step).round() as usize;
    let mut resampled = zeros::<f64, Ix2>("resample", shape)?;
    for (index, mut line) in resampled.axis_iter_mut(axis).enumerate() {
        let centre = (index as f64 + 0.5) * step - 0.5;
        let first = (centre - 2.0 * wide).ceil() as isize;
        let last = (centre + 2.0 * wide).floor() as isize;
        let mut total = 0.0;
        for near in first..=last {
            let weight = catmull_rom((near as f64 - centre) / wide);
            let near = near.clamp(0, old as isize - 1).cast_unsigned();
            line.scaled_add(weight, &values.index_axis(axis, near));
            total += weight;
        }
        line /= total;
    }
    Ok(resampled)
}

fn catmull_rom(x: f64) -> f64 {
    match x.abs() {
        x if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        x if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
        _ => 0.0,
    }
}

/// The colour at `place` from 0 to 1.
fn gradient(colours: &[u32], place: f64) -> Colour {
    let Some(last) = colours.len().checked_sub(1) else { return [0.0; 3] };
    let place = if place.is_nan() { 0.5 } else { place.clamp(0.0, 1.0) } * last as f64;
    let index = (place as usize).min(last.saturating_sub(1));
    mix(rgb(colours[index]), rgb(colours[(index + 1).min(last)]), place - index as f64)
}

fn mix(from: Colour, to: Colour, share: f64) -> Colour {
    std::array::from_fn(|channel| from[channel] + share * (to[channel] - from[channel]))
}

fn rgb(colour: u32) -> Colour {
    let [_, red, green, blue] = colour.to_be_bytes();
    [red, green, blue].map(f64::from)
}

#[cfg(test)]
mod tests {
    use ndarray::{arr2, array};

    use super::*;

    #[test]
    fn colours_are_mixed_between_those_given() {
        let values = arr2(&[[-1.0, 0.0, 1.0, 2.0, 9.0, f64::NAN]]);
        let picture = Picture::new(&values, 0.0..=4.0, &[0, 0x64_00_00, 0x64_c8_00]);
        let reds: Vec<Colour> = picture.0.iter().copied().collect();
        let (none, middle) = ([0.0; 3], [100.0, 0.0, 0.0]);
        assert_eq!(reds, [none, none, [50.0, 0.0, 0.0], middle, [100.0, 200.0, 0.0], middle]);
        assert_eq!(Picture::new(&array![[1_i32, 2]], 0.0..=0.0, &[7]).0[[0, 1]], rgb(7));
        assert_eq!(Picture::new(&array![[1.0_f32]], 0.0..=1.0, &[]).0[[0, 0]], none);
    }

    #[test]
    fn slopes_towards_the_sun_are_light_and_others_dark() {
        let plane = |east: f64, south: f64| {
            let z = |(row, column)| east * column as f64 + south * row as f64;
            let heights = Array2::from_shape_fn((5, 5), z);
            let grey = Picture::new(&heights, 0.0..=1.0, &[0x80_80_80]).relief(&heights);
            grey.0[[2, 2]][0]
        };
        assert!((plane(0.0, 0.0) - 128.0).abs() < 1e-9);
        assert!(plane(0.5, 0.5) > 140.0 && plane(-0.5, -0.5) < 110.0);
        // Across the direction of the sun.
        assert!((plane(0.1, -0.1) - 128.0).abs() < 3.0);
    }

    #[test]
    fn resampled_values_keep_lines_and_means() {
        let line = Array2::from_shape_fn((30, 20), |(row, column)| (3 * row + column) as f64);
        let finer = resample(&line, [0.5, 1.0]).unwrap();
        assert_eq!(finer.dim(), (60, 20));
        assert!((finer[[31, 7]] - (3.0 * 15.25 + 7.0)).abs() < 1e-9);
        let coarser = resample(&line, [3.0, 2.0]).unwrap();
        assert_eq!(coarser.dim(), (10, 10));
        assert!((coarser[[5, 5]] - (3.0 * 16.0 + 10.5)).abs() < 1e-9);
        let mean = resample(&line, [1e9, 1e300]).unwrap();
        assert_eq!(mean.dim(), (1, 1));
        assert!((mean[[0, 0]] - (3.0 * 14.5 + 9.5)).abs() < 1e-9, "{mean}");
        for step in [1e-18, f64::MIN_POSITIVE] {
            let error = resample(&line, [1.0, step]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let picture = |rows| Picture::new(&Array2::<f64>::zeros((rows, 2)), 0.0..=1.0, &[0]);
        for error in [
            Picture::beside(&[picture(2), picture(3)]).unwrap_err(),
            Picture::beside(&[]).unwrap_err(),
            picture(0).write(Vec::new()).unwrap_err(),
            resample(&Array2::zeros((2, 2)), [1.0, 0.0]).unwrap_err(),
            resample(&Array2::zeros((2, 0)), [1.0, 1.0]).unwrap_err(),
            resample(&Array2::zeros((2, 2)), [1.0, f64::INFINITY]).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
        let heights = Picture::beside(&[picture(2), picture(3)]).unwrap_err();
        assert!(heights.to_string().contains("[2, 3]"), "{heights}");
    }
}
