//! Pictures of fields.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use ndarray::{ArrayView2, Axis};

type Colour = [f64; 3];

/// From low to high.
const SCALE: [Colour; 6] = [
    [26.0, 20.0, 48.0],
    [72.0, 40.0, 110.0],
    [150.0, 54.0, 110.0],
    [224.0, 92.0, 82.0],
    [250.0, 168.0, 96.0],
    [252.0, 244.0, 190.0],
];

/// From negative to positive.
const SIGNED: [Colour; 5] = [
    [18.0, 78.0, 112.0],
    [112.0, 168.0, 176.0],
    [244.0, 241.0, 234.0],
    [221.0, 139.0, 95.0],
    [140.0, 45.0, 30.0],
];

/// The longest side of a picture in pixels, unless there are more points.
const PIXELS: usize = 480;

/// A picture: axis 0 to the right, axis 1 upwards.
pub(crate) struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Picture {
    /// Draws values on a scale from the least to the greatest.
    pub(crate) fn of<T: Copy + Into<f64>>(values: ArrayView2<'_, T>) -> Self {
        let all = || values.iter().map(|value| (*value).into());
        let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max));
        let range = (high - low).max(f64::MIN_POSITIVE);
        Self::new(values, |value| mix(&SCALE, (value - low) / range))
    }

    /// Draws values from `-limit` to `limit`, with 0 in the middle of the scale. NaN is grey.
    pub(crate) fn signed<T: Copy + Into<f64>>(values: ArrayView2<'_, T>, limit: f64) -> Self {
        Self::new(values, |value| match value.is_nan() {
            true => [90.0; 3],
            false => mix(&SIGNED, 0.5 + 0.5 * value / limit),
        })
    }

    fn new<T: Copy + Into<f64>>(values: ArrayView2<'_, T>, colour: impl Fn(f64) -> Colour) -> Self {
        let (width, height) = values.dim();
        let scale = (PIXELS / width.max(height)).max(1);
        let mut rgb = Vec::new();
        for row in values.axis_iter(Axis(1)).rev() {
            let pixels = row.iter().map(|value| colour((*value).into()).map(byte));
            let line = pixels.flat_map(|pixel| pixel.repeat(scale));
            rgb.extend(line.collect::<Vec<u8>>().repeat(scale));
        }
        Self { width: width * scale, height: height * scale, rgb }
    }

    /// Puts another picture of the same height to the right.
    pub(crate) fn beside(self, right: &Self) -> Self {
        let rows = |picture: &Self| 3 * picture.width.max(1);
        let pairs = self.rgb.chunks(rows(&self)).zip(right.rgb.chunks(rows(right)));
        let rgb = pairs.flat_map(|(one, other)| [one, other].concat()).collect();
        Self { width: self.width + right.width, height: self.height.min(right.height), rgb }
    }

    /// Writes the picture in the format PNG, and makes the folder.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let side = |n: usize| u32::try_from(n).map_err(io::Error::other);
        let file = BufWriter::new(File::create(path)?);
        let mut encoder = png::Encoder::new(file, side(self.width)?, side(self.height)?);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        encoder.write_header()?.write_image_data(&self.rgb)?;
        Ok(())
    }
}

/// The colour at a place from 0 to 1 of a scale.
fn mix(scale: &[Colour], place: f64) -> Colour {
    let at = place.clamp(0.0, 1.0) * (scale.len() - 1) as f64;
    let below = usize::from(byte(at.floor())).min(scale.len() - 2);
    let part = at - below as f64;
    std::array::from_fn(|k| scale[below][k] + part * (scale[below + 1][k] - scale[below][k]))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
fn byte(value: f64) -> u8 {
    (value + 0.5) as u8
}
