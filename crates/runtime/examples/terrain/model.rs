//! Hillslope diffusion on the devices of all ranks, and a plain loop that it is compared with.

use std::mem::swap;
use std::time::{Duration, Instant};

use anyhow::Result;
use ndarray::{Array2, ArrayD};
use runtime::array::TransferReport;
use runtime::ranks::Rank;
use runtime::stencil::{Boundary, Grid, In, Out, stencil};
use runtime::{ImageFormat, ModuleImage, Statistics, StreamOptions};

use crate::args::Args;
use crate::progress::Progress;

/// One explicit step of dz/dt = D ∇²z. Beyond the ends of the terrain, cells have the height of the last one: there is
/// no slope, and therefore no flux.
///
/// In flux form: the flow through an edge between two cells is computed from the same numbers on either side, so it
/// cancels to the last bit. Mass changes only by the rounding of the final sums.
#[stencil]
fn smooth(next: Out<f64, 2>, z: In<f64, 2>, ax: f64, ay: f64) {
    let centre = z.at(0, 0);
    let along_x = ax * (z.at(0, 1) - centre) - ax * (centre - z.at(0, -1));
    let along_y = ay * (z.at(1, 0) - centre) - ay * (centre - z.at(-1, 0));
    next.set(centre + (along_x + along_y));
}

/// The result of a run.
pub(crate) struct Run {
    /// The heights of all ranks, on rank 0.
    pub(crate) heights: Option<ArrayD<f64>>,
    /// The transfers of this rank, and the counts of its device when the kernel was loaded.
    pub(crate) transfers: TransferReport,
    pub(crate) before: Statistics,
    /// The time for the transfer to the device, the steps, the pictures on the way, and the transfer of the result.
    pub(crate) times: [Duration; 4],
}

/// The time between two waits for the device, which report failures and progress.
const BETWEEN_WAITS: Duration = Duration::from_millis(50);

/// Runs the steps from these heights on. The fields stay on the device. Rank 0 shows pictures on the way.
pub(crate) fn run(
    (rank, grid): (&Rank, &Grid<2>),
    height: impl FnMut([usize; 2]) -> f64,
    args: &Args,
    mut show: impl FnMut(ArrayD<f64>) -> Result<()>,
) -> Result<Run> {
    // Embedded devices compile nothing. `cargo xtask firmware` has compiled the kernel for them.
    let elf: &[u8] = match &*grid.device().info().architecture {
        "armv7e-m+fp.dp" => include_bytes!("smooth-cortex-m7.elf"),
        _ => include_bytes!("smooth-riscv64.elf"),
    };
    grid.add_image(smooth::STENCIL, ModuleImage::binary(ImageFormat::Elf, elf))?;
    grid.load(smooth::STENCIL)?;
    // Between two points that all ranks reach, when no rank uses the device.
    rank.sum([])?;
    let before = rank.device.statistics();
    rank.sum([])?;
    let stream = grid.device().stream_create(&StreamOptions::default())?;
    let mut now = grid.field("height").boundary(Boundary::Clamp).from_fn(height)?;
    let mut next = now.like("next height")?;
    // The first step would also copy the heights to the device.
    let begun = Instant::now();
    now.prefetch(&stream)?;
    stream.synchronize()?;
    let uploaded = Instant::now();
    let (cells, quiet) = (grid.cells().iter().product(), args.quiet || grid.rank() > 0);
    let mut progress = Progress::new("smoothing", args.steps, cells, quiet);
    let ([_, ax, ay], mut pictures, mut waited) = (args.scheme(), Duration::ZERO, uploaded);
    let (mut open, mut most) = (0, 1);
    for step in 1..=args.steps {
        smooth(&mut next, &now, ax, ay).run(&stream)?;
        swap(&mut now, &mut next);
        open += 1;
        let is_shown = step < args.steps && step.checked_rem(args.picture_every()) == Some(0);
        if open < most && step < args.steps && !is_shown {
            continue;
        }
        stream.synchronize()?;
        progress.advance(open);
        most = if waited.elapsed() < BETWEEN_WAITS { 2 * most } else { most.div_ceil(2) };
        open = 0;
        let clock = Instant::now();
        if is_shown && let Some(heights) = now.gather(0)? {
            show(heights)?;
        }
        waited = Instant::now();
        pictures += waited - clock;
    }
    let steps = uploaded.elapsed() - pictures;
    let clock = Instant::now();
    let heights = now.gather(0)?;
    let times = [uploaded - begun, steps, pictures, clock.elapsed()];
    Ok(Run { heights, transfers: now.transfers() + next.transfers(), before, times })
}

/// The same diffusion as a plain loop over weighted means of a cell and its four neighbours.
pub(crate) fn reference(tile: &Array2<f64>, args: &Args) -> Array2<f64> {
    let mut progress = Progress::new("checking", args.steps, tile.len(), args.quiet);
    let ((rows, columns), [_, ax, ay]) = (tile.dim(), args.scheme());
    let own = 1.0 - 2.0 * (ax + ay);
    let (mut old, mut new) = (tile.clone(), tile.clone());
    for _ in 0..args.steps {
        for ((row, column), new) in new.indexed_iter_mut() {
            let [west, east] = [column.saturating_sub(1), (column + 1).min(columns - 1)];
            let [north, south] = [row.saturating_sub(1), (row + 1).min(rows - 1)];
            *new = own * old[[row, column]]
                + ax * (old[[row, west]] + old[[row, east]])
                + ay * (old[[north, column]] + old[[south, column]]);
        }
        swap(&mut old, &mut new);
        progress.advance(1);
    }
    old
}
