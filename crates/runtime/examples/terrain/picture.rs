//! The pictures, in square pixels: terrain before, terrain after and the change, side by side; and terrain during the
//! run.

use std::io::{self, BufWriter, Write};
use std::ops::RangeInclusive;

use ndarray::{Array2, ArrayRef2, Axis, Zip};
pub(crate) use png::Compression;

use crate::args::Spacing;
use crate::hillshade::{Light, hillshade};
use crate::resample::resample;

/// Colours are red, green and blue from 0 to 255.
type Colour = [f64; 3];

const SUN: Light = Light { azimuth: 315.0, altitude: 45.0, exaggeration: 3.0 };

/// Heights from low to high: river meadows, woods, dry slopes, rock and summits.
const HEIGHTS: [Colour; 7] = [
    [86.0, 125.0, 104.0],
    [128.0, 158.0, 116.0],
    [182.0, 192.0, 138.0],
    [222.0, 205.0, 153.0],
    [205.0, 168.0, 124.0],
    [176.0, 141.0, 121.0],
    [240.0, 236.0, 230.0],
];

/// Colours of the change, from lowered through unchanged to raised.
const CHANGES: [Colour; 5] = [
    [140.0, 45.0, 30.0],
    [221.0, 139.0, 95.0],
    [244.0, 241.0, 234.0],
    [112.0, 168.0, 176.0],
    [18.0, 78.0, 112.0],
];

const SHADOW: Colour = [38.0, 40.0, 72.0];
const SUNLIGHT: Colour = [255.0, 250.0, 232.0];
const DIVIDER: Colour = [250.0, 250.0, 247.0];

/// Longest side in pixels of one panel of the final picture, and of a picture during the run.
const PANEL: f64 = 880.0;
const SMALL_PANEL: f64 = 320.0;

/// Width of the dividers in pixels.
const GAP: usize = 8;

/// Pixels in rows from the north.
pub(crate) struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

/// Draws terrain with heights in `range`, in small size.
pub(crate) fn draw(
    terrain: &ArrayRef2<f64>,
    range: &RangeInclusive<f64>,
    spacing: Spacing,
) -> Picture {
    let (heights, shade) = relief(terrain, spacing, SMALL_PANEL);
    compose(&[paint(&heights, &shade, height_tint(range))])
}

/// Draws two terrains of the same shape, with heights in `range`, and their difference. Also returns the change in
/// metres at the ends of its colour scale.
pub(crate) fn compare(
    before: &ArrayRef2<f64>,
    after: &ArrayRef2<f64>,
    range: &RangeInclusive<f64>,
    spacing: Spacing,
) -> (Picture, f64) {
    let (before, shade_before) = relief(before, spacing, PANEL);
    let (after, shade_after) = relief(after, spacing, PANEL);
    let change = &after - &before;
    let deepest = change.iter().map(|c| c.abs()).fold(0.0, f64::max);
    // The square root spreads small changes, which are the most frequent.
    let change_tint = |change: f64| {
        let share = change / deepest;
        gradient(&CHANGES, 0.5 + 0.5 * share.signum() * share.abs().sqrt())
    };

    let picture = compose(&[
        paint(&before, &shade_before, height_tint(range)),
        paint(&after, &shade_after, height_tint(range)),
        paint(&change, &shade_after, change_tint),
    ]);
    (picture, deepest)
}

/// Heights and their shades, resampled to the pixels of a panel.
fn relief(terrain: &ArrayRef2<f64>, spacing: Spacing, panel: f64) -> (Array2<f64>, Array2<f64>) {
    let (rows, columns) = terrain.dim();
    let extent = (rows as f64 * spacing.dy, columns as f64 * spacing.dx);
    let pixel = (extent.0.max(extent.1) / panel).max(spacing.dx.min(spacing.dy) / 2.0);
    let down = resample(terrain, Axis(0), pixel / spacing.dy);
    let heights = resample(&down, Axis(1), pixel / spacing.dx);
    let shade = hillshade(&heights, Spacing { dx: pixel, dy: pixel }, SUN);
    (heights, shade)
}

fn height_tint(range: &RangeInclusive<f64>) -> impl Fn(f64) -> Colour {
    let (lowest, highest) = (*range.start(), *range.end());
    move |height| gradient(&HEIGHTS, (height - lowest) / (highest - lowest))
}

/// Panels of one shape side by side.
fn compose(panels: &[Array2<Colour>]) -> Picture {
    let (height, width) = panels[0].dim();
    let mut rgb = Vec::new();
    for row in 0..height {
        for (index, panel) in panels.iter().enumerate() {
            if index > 0 {
                rgb.extend([DIVIDER.map(byte); GAP].as_flattened());
            }
            rgb.extend(panel.row(row).iter().flat_map(|colour| colour.map(byte)));
        }
    }
    Picture { width: panels.len() * (width + GAP) - GAP, height, rgb }
}

impl Picture {
    /// Writes the picture as PNG.
    pub(crate) fn write(&self, file: impl Write, compression: Compression) -> io::Result<()> {
        let side = |pixels: usize| u32::try_from(pixels).map_err(io::Error::other);
        let mut file = BufWriter::new(file);
        let mut encoder = png::Encoder::new(&mut file, side(self.width)?, side(self.height)?);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(compression);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.rgb)?;
        writer.finish()?;
        file.flush()
    }
}

/// Combines tints and shades: away from the sun towards a bluish shadow, towards the sun into warm light.
fn paint(
    values: &Array2<f64>,
    shade: &Array2<f64>,
    tint: impl Fn(f64) -> Colour,
) -> Array2<Colour> {
    let flat = SUN.altitude.to_radians().sin();
    Zip::from(values).and(shade).map_collect(|value, shade| {
        let colour = tint(*value);
        if *shade < flat {
            mix(colour, SHADOW, 0.85 * (1.0 - shade / flat))
        } else {
            mix(colour, SUNLIGHT, 0.6 * (shade - flat) / (1.0 - flat))
        }
    })
}

fn mix(from: Colour, to: Colour, share: f64) -> Colour {
    std::array::from_fn(|channel| from[channel] + share * (to[channel] - from[channel]))
}

/// The colour at `place` from 0 to 1 between evenly spaced `colours`. The middle for NaN.
fn gradient(colours: &[Colour], place: f64) -> Colour {
    let last = colours.len() - 1;
    let place = if place.is_nan() { 0.5 } else { place.clamp(0.0, 1.0) } * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to `last`")]
    let index = (place as usize).min(last - 1);
    mix(colours[index], colours[index + 1], place - index as f64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn byte(channel: f64) -> u8 {
    channel.round() as u8
}
