//! The picture: globes in a row, each seen from above the current position of the hill.

use std::io::{self, Write};

use crate::grid::{Grid, Vector, cross, dot};
use crate::run::Heights;

/// Width of a globe in pixels, and of the gap between globes.
const GLOBE: usize = 360;
const GAP: usize = 24;

/// Number of samples along each side of a pixel.
const SAMPLES: usize = 3;

type Colour = [f64; 3];

const PAPER: Colour = [250.0, 250.0, 247.0];
const SEAM: Colour = [60.0, 66.0, 92.0];

/// Colours from height 0 to the greatest height.
const HEIGHTS: [Colour; 5] = [
    [226.0, 232.0, 235.0],
    [150.0, 190.0, 205.0],
    [70.0, 130.0, 160.0],
    [214.0, 148.0, 88.0],
    [150.0, 40.0, 32.0],
];

/// Draws heights as a PNG. Each globe is seen from above a point.
pub(crate) fn draw(file: impl Write, grid: Grid, globes: &[(Vector, &Heights)]) -> io::Result<()> {
    let (width, height) = (globes.len() * (GLOBE + GAP) + GAP, GLOBE + 2 * GAP);
    let mut rgb = vec![PAPER; width * height];
    for (number, (above, heights)) in globes.iter().enumerate() {
        let left = GAP + number * (GLOBE + GAP);
        for row in 0..GLOBE {
            for column in 0..GLOBE {
                rgb[(GAP + row) * width + left + column] =
                    pixel(grid, *above, heights, [row, column]);
            }
        }
    }
    let side = |pixels: usize| u32::try_from(pixels).map_err(io::Error::other);
    let mut encoder = png::Encoder::new(file, side(width)?, side(height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
    let bytes: Vec<u8> = rgb.iter().flatten().map(|channel| channel.round() as u8).collect();
    writer.write_image_data(&bytes)?;
    Ok(writer.finish()?)
}

/// The mean of the pixel's samples.
fn pixel(grid: Grid, above: Vector, heights: &Heights, [row, column]: [usize; 2]) -> Colour {
    let mut sum = [0.0; 3];
    for sample in 0..SAMPLES * SAMPLES {
        let [down, right] =
            [(row, sample / SAMPLES), (column, sample % SAMPLES)].map(|(at, sub)| {
                2.0 * (at as f64 + (sub as f64 + 0.5) / SAMPLES as f64) / GLOBE as f64 - 1.0
            });
        let colour = look(grid, above, heights, right, -down);
        (0..3).for_each(|k| sum[k] += colour[k]);
    }
    sum.map(|channel| channel / (SAMPLES * SAMPLES) as f64)
}

/// The colour seen from far above the point `above`, at the offset `right` and `up` from the middle.
fn look(grid: Grid, above: Vector, heights: &Heights, right: f64, up: f64) -> Colour {
    let beyond = 1.0 - right * right - up * up;
    if beyond < 0.0 {
        return PAPER;
    }
    let (towards, pole) = (beyond.sqrt(), [0.0, 0.0, 1.0]);
    let east = cross(pole, above);
    let length = dot(east, east).sqrt();
    // At a pole any direction is east.
    let east = if length > 1e-9 { east.map(|part| part / length) } else { [0.0, 1.0, 0.0] };
    let north = cross(above, east);
    let point: Vector =
        std::array::from_fn(|k| towards * above[k] + right * east[k] + up * north[k]);
    let shade = 0.55 + 0.45 * towards;
    if is_seam(point) {
        return SEAM;
    }
    let (tile, [i, j]) = grid.cell(point);
    tint(heights.at(tile, [i, j])).map(|channel| channel * shade)
}

/// Whether a point is next to a seam of tiles: its two largest coordinates are nearly equal.
fn is_seam(point: Vector) -> bool {
    let mut size = point.map(f64::abs);
    size.sort_by(f64::total_cmp);
    size[2] - size[1] < 0.012
}

fn tint(height: f64) -> Colour {
    let place = height.clamp(0.0, 1.0) * (HEIGHTS.len() - 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 4")]
    let index = (place as usize).min(HEIGHTS.len() - 2);
    let share = place - index as f64;
    std::array::from_fn(|k| HEIGHTS[index][k] + share * (HEIGHTS[index + 1][k] - HEIGHTS[index][k]))
}
