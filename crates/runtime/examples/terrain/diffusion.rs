//! Hillslope diffusion on a device: the kernel and the loop that drives it.
//!
//! Everything that differs from device to device is in [`bundle`]: a device that does not take Rust functions needs
//! the same kernel in a format it takes, added there, and nothing else.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

use std::collections::VecDeque;
use std::mem::swap;
use std::time::{Duration, Instant};

use ndarray::Array2;
use runtime::{
    Device, Event, Grid, HostModule, ImageFormat, Launch, Limits, ModuleBundle, ModuleImage,
    Result, args,
};

use crate::args::Spacing;
use crate::progress::Progress;

/// The coefficients of one explicit step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheme {
    /// Years per step.
    pub(crate) dt: f64,
    /// `D dt / dx²`.
    pub(crate) ax: f64,
    /// `D dt / dy²`.
    pub(crate) ay: f64,
}

impl Scheme {
    /// The step as a share of the longest stable one, `1 / (2 D (1/dx² + 1/dy²))`.
    ///
    /// Below 1, a new height is a weighted mean of old ones with positive weights, so that no new extremes arise; below
    /// 0.5, even the roughest terrain decays without changing sign.
    pub(crate) const STABLE_SHARE: f64 = 0.25;

    /// The scheme for a `diffusivity` in square metres per year.
    pub(crate) fn stable(spacing: Spacing, diffusivity: f64) -> Self {
        let (x, y) = (1.0 / (spacing.dx * spacing.dx), 1.0 / (spacing.dy * spacing.dy));
        let dt = Self::STABLE_SHARE / (2.0 * diffusivity * (x + y));
        Self { dt, ax: diffusivity * dt * x, ay: diffusivity * dt * y }
    }
}

/// The kernel in every format there is of it.
fn bundle() -> ModuleBundle<'static> {
    let functions = HostModule::new().with("diffuse", diffuse);
    ModuleBundle::new()
        .with(ModuleImage::functions(&functions))
        .with(ModuleImage::source(ImageFormat::OpenClC, include_str!("diffusion.cl")))
}

/// A work-item for each cell, in blocks that are wide, for cells of a row are neighbours in memory. Rust functions share
/// out the cells themselves.
fn geometry(limits: &Limits, width: usize, height: usize) -> Launch {
    let across = limits.block[0].min(limits.block_size).min(32);
    let down = limits.block[1].min(limits.block_size / across).min(8);
    Launch::cover_2d(width, height, [across, down])
}

/// Cells that one core takes at a time: enough to hide what handing them out costs, few enough to share out evenly.
const BAND_CELLS: usize = 16_384;

/// One step of diffusion from `z` to `next`, both row-major with `height` rows of `width` cells. Nothing flows through
/// the boundary.
///
/// In flux form: what flows through an edge between two cells is computed from the same numbers on either side, and
/// so cancels to the last bit. Mass changes by the rounding of the final sums alone.
fn diffuse(
    grid: &Grid<'_>,
    next: &mut [f64],
    z: &[f64],
    width: u64,
    height: u64,
    ax: f64,
    ay: f64,
) -> Result<(), String> {
    let [width, height] =
        [width, height].map(|extent| usize::try_from(extent).unwrap_or(usize::MAX));
    let cells = width.checked_mul(height);
    if width < 2 || cells != Some(z.len()) || cells != Some(next.len()) {
        return Err(format!("{} and {} cells for {height} x {width}", z.len(), next.len()));
    }
    let row = |index: usize| &z[index * width..][..width];
    let last = height.saturating_sub(1);
    let band = (BAND_CELLS / width).max(1);
    grid.chunks_mut(next, band * width, |chunk, rows| {
        for (index, next) in (chunk * band..).zip(rows.chunks_exact_mut(width)) {
            // A row at the boundary is its own neighbour: without a slope there is no flux.
            let (north, south) = (row(index.saturating_sub(1)), row((index + 1).min(last)));
            diffuse_row(next, north, row(index), south, ax, ay);
        }
    });
    Ok(())
}

fn diffuse_row(next: &mut [f64], north: &[f64], z: &[f64], south: &[f64], ax: f64, ay: f64) {
    let step = |west: f64, centre: f64, east: f64, north: f64, south: f64| {
        let along_x = ax * (east - centre) - ax * (centre - west);
        let along_y = ay * (south - centre) - ay * (centre - north);
        centre + (along_x + along_y)
    };
    let last = z.len() - 1;
    next[0] = step(z[0], z[0], z[1], north[0], south[0]);
    let inner =
        next[1..last].iter_mut().zip(z.windows(3)).zip(&north[1..last]).zip(&south[1..last]);
    for (((next, z), north), south) in inner {
        *next = step(z[0], z[1], z[2], *north, *south);
    }
    next[last] = step(z[last - 1], z[last], z[last], north[last], south[last]);
}

/// How long the parts of a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) to_device: Duration,
    pub(crate) steps: Duration,
    pub(crate) from_device: Duration,
}

/// Cell updates and launches between two events: often enough for a smooth progress bar and a short queue, seldom
/// enough to cost nothing.
const CELLS_PER_EVENT: usize = 1 << 23;
const LAUNCHES_PER_EVENT: usize = 256;

/// Events in flight: the device always has work, and the progress shown is not far from the truth.
const EVENTS_IN_FLIGHT: usize = 2;

/// Time between two synchronisations, which alone report what failed on the device: seldom enough to cost nothing,
/// often enough to end a run that has failed.
const BETWEEN_CHECKS: Duration = Duration::from_millis(200);

/// Runs `steps` steps on the device and leaves the result in `terrain`.
///
/// The device holds two grids that take turns; the host waits for an event only when the queue is full.
pub(crate) fn smooth(
    device: &Device,
    terrain: &mut Array2<f64>,
    scheme: &Scheme,
    steps: u64,
    progress: &mut Progress,
) -> Result<Timing> {
    let (height, width) = terrain.dim();
    let heights = terrain.as_slice_mut().expect("the terrain is row-major");
    let kernel = device.module_load_bundle(&bundle())?.kernel("diffuse")?;
    let launch = geometry(&device.info().limits, width, height);
    let stream = device.default_stream();

    let start = Instant::now();
    let mut z = device.memory_from_slice(&stream, heights)?;
    let mut next = device.memory_allocate(heights.len())?;
    let uploaded = Instant::now();
    progress.begin();

    let batch = CELLS_PER_EVENT.div_ceil(heights.len()).min(LAUNCHES_PER_EVENT) as u64;
    let mut in_flight = VecDeque::with_capacity(EVENTS_IN_FLIGHT + 1);
    let mut finish = |(event, steps): (Event, u64)| -> Result<()> {
        event.wait()?;
        progress.advance(steps);
        Ok(())
    };
    let mut checked = uploaded;
    let mut left = steps;
    while left > 0 {
        let now = left.min(batch);
        for _ in 0..now {
            let args = args![&mut next, &z, width as u64, height as u64, scheme.ax, scheme.ay];
            // SAFETY: in every format the kernel takes these arguments, and touches nothing but cells of the two grids,
            // whose extents it is told.
            unsafe { kernel.launch(&stream, &launch, args)? };
            swap(&mut z, &mut next);
        }
        left -= now;
        in_flight.push_back((stream.record_event()?, now));
        if in_flight.len() > EVENTS_IN_FLIGHT {
            in_flight.pop_front().map_or(Ok(()), &mut finish)?;
        }
        if checked.elapsed() >= BETWEEN_CHECKS {
            stream.synchronize()?;
            checked = Instant::now();
        }
    }
    in_flight.into_iter().try_for_each(finish)?;
    stream.synchronize()?;
    let stepped = Instant::now();
    z.view().copy_to_slice(&stream, heights)?;
    Ok(Timing {
        to_device: uploaded - start,
        steps: stepped - uploaded,
        from_device: stepped.elapsed(),
    })
}
