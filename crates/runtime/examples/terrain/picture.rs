//! The pictures, in square pixels: terrain before, terrain after and the change, side by side; and terrain on the way.

use std::ops::RangeInclusive;

use ndarray::{Array2, ArrayRef2};
use runtime::Result;
use runtime::stencil::picture::{Picture, resample};

use crate::args::Args;

type Heights = ArrayRef2<f64>;
type Range = RangeInclusive<f64>;

/// Heights from low to high: river meadows, woods, dry slopes, rock and summits.
const HEIGHTS: [u32; 7] = [0x567d68, 0x809e74, 0xb6c08a, 0xdecd99, 0xcda87c, 0xb08d79, 0xf0ece6];
/// Changes from lowered through unchanged to raised.
const CHANGES: [u32; 5] = [0x8c2d1e, 0xdd8b5f, 0xf4f1ea, 0x70a8b0, 0x124e70];

/// Draws terrain with heights in `range`, in small size.
pub(crate) fn draw(terrain: &Heights, range: &Range, args: &Args) -> Result<Picture> {
    let [heights, relief] = panel(terrain, args, 320.0)?;
    Ok(Picture::new(&heights, range.clone(), &HEIGHTS).relief(&relief))
}

/// Draws two terrains and their difference. Also returns the change in metres at the ends of its colours.
pub(crate) fn compare(both: [&Heights; 2], range: &Range, args: &Args) -> Result<(Picture, f64)> {
    let longest = f64::from(args.panel);
    let [before, old_relief] = panel(both[0], args, longest)?;
    let [after, relief] = panel(both[1], args, longest)?;
    let change = &after - &before;
    let deepest = change.fold(0.0, |deepest, change| f64::max(deepest, change.abs()));
    // The square root spreads small changes, which are the most frequent.
    let spread = change.map(|change| change.signum() * (change / deepest).abs().sqrt());
    let pictures = [
        Picture::new(&before, range.clone(), &HEIGHTS).relief(&old_relief),
        Picture::new(&after, range.clone(), &HEIGHTS).relief(&relief),
        Picture::new(&spread, -1.0..=1.0, &CHANGES).relief(&relief),
    ];
    Ok((Picture::beside(&pictures)?, deepest))
}

/// The heights in pixels of a panel with sides up to `longest`; and those of a relief with slopes three times as steep.
fn panel(terrain: &Heights, args: &Args, longest: f64) -> Result<[Array2<f64>; 2]> {
    let (rows, columns) = terrain.dim();
    let pixel = (rows as f64 * args.dy).max(columns as f64 * args.dx) / longest;
    let pixel = pixel.max(args.dx.min(args.dy) / 2.0);
    let heights = resample(terrain, [pixel / args.dy, pixel / args.dx])?;
    let relief = &heights * (3.0 / pixel);
    Ok([heights, relief])
}
