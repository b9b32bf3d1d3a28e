//! Hillslope diffusion on a device: the kernel, the field it works on, and the loop that drives it.
//!
//! Everything that differs from device to device is in [`bundle`]: a device that does not take Rust functions needs
//! the same kernel in a format it takes, added there, and nothing else.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

use std::mem::swap;
use std::time::{Duration, Instant};

use ndarray::{Array2, ArrayRef2, Ix2};
use runtime::array::{ArrayBuffer, HostReadGuard, TransferReport};
use runtime::{
    Device, Grid, HostModule, ImageFormat, Kernel, Launch, Limits, ModuleBundle, ModuleImage,
    Result, Stream, args,
};

use crate::args::Spacing;
use crate::error::DemoError;
use crate::progress::Progress;
use crate::queue::Queue;

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

/// The kernel in every format there is of it; of several executables the one for `architecture`.
fn bundle(architecture: &str) -> ModuleBundle<'static> {
    let elf: &[u8] = match architecture {
        "armv7e-m+fp.dp" => include_bytes!("diffusion-cortex-m7.elf"),
        _ => include_bytes!("diffusion-riscv64.elf"),
    };
    let functions = HostModule::new().with("diffuse", diffuse);
    ModuleBundle::new()
        .with(ModuleImage::functions(&functions))
        .with(ModuleImage::source(ImageFormat::OpenClC, include_str!("diffusion.cl")))
        .with(ModuleImage::source(ImageFormat::CudaC, include_str!("diffusion.cu")))
        .with(ModuleImage::source(ImageFormat::HipC, include_str!("diffusion.cu")))
        .with(ModuleImage::source(ImageFormat::Ptx, include_str!("diffusion.ptx")))
        .with(ModuleImage::binary(ImageFormat::Elf, elf))
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

/// Terrain on its way through time: two grids that take turns, each wherever it was last written or read.
pub(crate) struct Field {
    now: ArrayBuffer<f64, Ix2>,
    next: ArrayBuffer<f64, Ix2>,
}

impl Field {
    /// Takes up the terrain, without a copy.
    pub(crate) fn new(terrain: Array2<f64>) -> Result<Self> {
        let next = ArrayBuffer::uninit(terrain.raw_dim())?;
        Ok(Self { now: ArrayBuffer::from_array(terrain)?, next })
    }

    /// Enqueues a step.
    fn step(
        &mut self,
        stream: &Stream,
        kernel: &Kernel,
        launch: &Launch,
        scheme: &Scheme,
    ) -> Result<()> {
        let [height, width] = [0, 1].map(|axis| self.now.shape()[axis] as u64);
        let z = self.now.read(stream)?;
        let mut next = self.next.write(stream)?;
        let args = args![next.view_mut()?, z.view()?, width, height, scheme.ax, scheme.ay];
        // SAFETY: in every format the kernel takes these arguments, and touches nothing but cells of the two grids,
        // whose extents it is told.
        unsafe { kernel.launch(stream, launch, args)? };
        next.commit()?;
        swap(&mut self.now, &mut self.next);
        Ok(())
    }

    /// The heights on the host. Blocks until all steps are done, and fetches them if they are elsewhere.
    #[track_caller]
    pub(crate) fn heights(&self) -> Result<HostReadGuard<'_, f64, Ix2>> {
        self.now.read_host()
    }

    /// What was moved so far, and why.
    pub(crate) fn transfers(&self) -> TransferReport {
        self.now.transfers() + self.next.transfers()
    }
}

/// Shows heights to somebody.
pub(crate) type Show<'a> = &'a mut dyn FnMut(&ArrayRef2<f64>) -> Result<(), DemoError>;

/// How long a run is, and how often it is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) steps: u64,
    /// Steps from one picture to the next, 0 for none.
    pub(crate) picture_every: u64,
}

impl Schedule {
    /// Pictures on the way: none after the last step, which gives the result.
    pub(crate) fn pictures(&self) -> u64 {
        (self.steps - 1).checked_div(self.picture_every).unwrap_or(0)
    }

    fn is_shown_after(&self, step: u64) -> bool {
        step < self.steps && step.checked_rem(self.picture_every) == Some(0)
    }
}

/// How long the parts of a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) to_device: Duration,
    pub(crate) steps: Duration,
    /// With what is read for them.
    pub(crate) pictures: Duration,
}

/// Runs the steps on the device, where the field stays: it goes there once, and the host reads it for pictures alone.
pub(crate) fn smooth(
    device: &Device,
    field: &mut Field,
    scheme: &Scheme,
    schedule: Schedule,
    progress: &mut Progress,
    show: Show<'_>,
) -> Result<Timing, DemoError> {
    let (width, height) = (field.now.shape()[1], field.now.shape()[0]);
    let kernel =
        device.module_load_bundle(&bundle(&device.info().architecture))?.kernel("diffuse")?;
    let launch = geometry(&device.info().limits, width, height);
    let stream = device.default_stream();

    // The first step would bring it, too; for the sake of the clock it is there before.
    let start = Instant::now();
    field.now.prefetch(&stream)?;
    stream.synchronize()?;
    let uploaded = Instant::now();

    let mut pictures = Duration::ZERO;
    let mut queue = Queue::new(&stream, width * height, progress);
    for step in 1..=schedule.steps {
        field.step(&stream, &kernel, &launch, scheme)?;
        queue.pushed()?;
        if schedule.is_shown_after(step) {
            queue.finish()?;
            let clock = Instant::now();
            show(&field.heights()?)?;
            pictures += clock.elapsed();
        }
    }
    queue.finish()?;
    Ok(Timing { to_device: uploaded - start, steps: uploaded.elapsed() - pictures, pictures })
}
