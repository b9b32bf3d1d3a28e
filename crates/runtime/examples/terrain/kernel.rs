//! The kernel and its launch on a device.
//!
//! All differences between devices are in [`bundle`]. For a device that does not support Rust functions, add the same
//! kernel there in a format that it supports. Nothing else needs to change.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

use runtime::{
    Device, Grid, HostModule, ImageFormat, Kernel, Launch, Limits, MemoryView, MemoryViewMut,
    ModuleBundle, ModuleImage, Result, Stream, args,
};

use crate::blocks::Patch;
use crate::diffusion::Scheme;

/// The kernel in every available format. Of the executables, only the one for `architecture` is included.
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

/// The diffusion step on a device.
pub(crate) struct Diffusion {
    kernel: Kernel,
    limits: Limits,
    scheme: Scheme,
}

impl Diffusion {
    pub(crate) fn new(device: &Device, scheme: Scheme) -> Result<Self> {
        let info = device.info();
        let bundle = bundle(&info.architecture);
        let kernel = device.module_load_bundle(&bundle)?.kernel("diffuse")?;
        Ok(Self { kernel, limits: info.limits.clone(), scheme })
    }

    /// Enqueues the step of a patch from `z` to `next`, with rows that are `pitch` elements apart. The block's first
    /// cell is the first element of `next` and the element `z_at` of `z`.
    pub(crate) fn enqueue(
        &self,
        stream: &Stream,
        patch: &Patch,
        pitch: usize,
        next: MemoryViewMut<'_, f64>,
        (z, z_at): (MemoryView<'_, f64>, usize),
    ) -> Result<()> {
        let next_at = patch.rows.start * pitch + patch.columns.start;
        let z_at = z_at + next_at;
        let (columns, rows) = (patch.columns.len(), patch.rows.len());
        let [at_next, at_z, apart, across, down] =
            [next_at, z_at, pitch, columns, rows].map(|number| number as u64);
        let (sides, Scheme { ax, ay, .. }) = (patch.sides, self.scheme);
        let args = args![next, z, at_next, at_z, apart, across, down, sides, ax, ay];
        let launch = geometry(&self.limits, columns, rows);
        // SAFETY: in every format the kernel takes these arguments. It writes the patch, and reads the patch and the
        // cells next to it on `sides`. A patch belongs to the block that both grids were made for, and these
        // neighbouring cells exist there.
        unsafe { self.kernel.launch(stream, &launch, args) }
    }
}

/// One work-item for each cell, in wide blocks, because the cells of a row are contiguous in memory. Rust functions
/// divide the cells themselves.
fn geometry(limits: &Limits, columns: usize, rows: usize) -> Launch {
    let columns_at_most = u32::try_from(columns.max(1)).unwrap_or(u32::MAX);
    let across = limits.max_block[0].min(limits.max_block_threads).min(32).min(columns_at_most);
    let down = limits.max_block[1].min(limits.max_block_threads / across).min(256 / across);
    Launch::cover_2d(columns, rows, [across, down])
}

/// The sides of a patch beyond which there are cells. Beyond other sides the terrain ends.
pub(crate) const WEST: u64 = 1;
pub(crate) const EAST: u64 = 2;
pub(crate) const NORTH: u64 = 4;
pub(crate) const SOUTH: u64 = 8;

/// Number of cells that one core takes at a time: enough to hide the cost of distribution, and few enough for an even
/// distribution.
const BAND_CELLS: usize = 16_384;

/// One diffusion step of `rows` rows of `columns` cells, from `z` to `next`. The cells begin at element `z_at` of `z`
/// and `next_at` of `next`. Rows are `pitch` elements apart. On the `sides`, `z` has cells beyond the patch; nothing
/// flows through the other sides.
///
/// In flux form: the flow through an edge between two cells is computed from the same numbers on either side, so it
/// cancels to the last bit. Mass changes only by the rounding of the final sums.
#[expect(clippy::too_many_arguments, reason = "those of the kernel in every other language")]
fn diffuse(
    grid: &Grid<'_>,
    next: &mut [f64],
    z: &[f64],
    next_at: u64,
    z_at: u64,
    pitch: u64,
    columns: u64,
    rows: u64,
    sides: u64,
    ax: f64,
    ay: f64,
) -> Result<(), String> {
    let [next_at, z_at, pitch, columns, rows] = [next_at, z_at, pitch, columns, rows]
        .map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let beyond = |side: u64, distance: usize| if sides & side == 0 { 0 } else { distance };
    let before = beyond(NORTH, pitch).saturating_add(beyond(WEST, 1));
    let after = beyond(SOUTH, pitch).saturating_add(beyond(EAST, 1));
    let end = rows.saturating_sub(1).saturating_mul(pitch).saturating_add(columns);
    let fits = |at: usize, after, len| at.saturating_add(end).saturating_add(after) <= len;
    if columns == 0
        || columns > pitch
        || z_at < before
        || !fits(z_at, after, z.len())
        || !fits(next_at, 0, next.len())
    {
        return Err(format!(
            "{rows} x {columns} cells from {z_at} and {next_at} on, {pitch} apart, in {} and {}",
            z.len(),
            next.len()
        ));
    }
    let band = (BAND_CELLS / columns).max(1);
    grid.chunks_mut(&mut next[next_at..][..end], band * pitch, |chunk, next| {
        for (index, next) in (chunk * band..).zip(next.chunks_mut(pitch)) {
            let at = z_at + index * pitch;
            let row = |at: usize| &z[at..][..columns];
            // A cell at the end of the terrain is its own neighbour: there is no slope, and therefore no flux.
            let north = if index > 0 { at - pitch } else { at - beyond(NORTH, pitch) };
            let south = if index + 1 < rows { at + pitch } else { at + beyond(SOUTH, pitch) };
            let last = at + columns - 1;
            let ends = [z[at - beyond(WEST, 1)], z[last + beyond(EAST, 1)]];
            diffuse_row(&mut next[..columns], row(north), row(at), row(south), ends, ax, ay);
        }
    });
    Ok(())
}

/// One row, between `north` and `south` and, at its ends, `west` and `east`.
fn diffuse_row(
    next: &mut [f64],
    north: &[f64],
    z: &[f64],
    south: &[f64],
    [west, east]: [f64; 2],
    ax: f64,
    ay: f64,
) {
    let step = |west: f64, centre: f64, east: f64, north: f64, south: f64| {
        let along_x = ax * (east - centre) - ax * (centre - west);
        let along_y = ay * (south - centre) - ay * (centre - north);
        centre + (along_x + along_y)
    };
    let last = z.len() - 1;
    next[0] = step(west, z[0], if last > 0 { z[1] } else { east }, north[0], south[0]);
    if last == 0 {
        return;
    }
    let inner =
        next[1..last].iter_mut().zip(z.windows(3)).zip(&north[1..last]).zip(&south[1..last]);
    for (((next, z), north), south) in inner {
        *next = step(z[0], z[1], z[2], *north, *south);
    }
    next[last] = step(z[last - 1], z[last], east, north[last], south[last]);
}
