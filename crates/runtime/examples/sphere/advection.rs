//! Advection by a second-order finite-volume scheme, and the halos it needs.
//!
//! A step computes the flow through the sides of each cell from the cell upstream, by van Leer's unlimited scheme with
//! Hancock's predictor, unsplit (van Leer, 1984; Colella, 1990, for several dimensions). Coordinates count cells. The
//! *Courant vector* `c` is the number of cells that the flow crosses in a step:
//!
//! 1. `q` is exchanged, as a scalar. The slope `s` is half the difference of the neighbours, along x and along y.
//! 2. `half = q - (c · s) / 2` is the height half a step later. It is exchanged as a scalar, together with `s`, a
//!    vector. If the axes of the neighbouring tile are rotated, its slope along y is this tile's slope along x,
//!    possibly negated.
//! 3. The flow through a side is `half ± s / 2` of the cell upstream.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

use std::sync::Arc;

use runtime::halo::communicator::Communicator;
use runtime::halo::{Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Reach, Topology};
use runtime::{
    DType, Device, Grid as Threads, HostModule, Kernel, Launch, Memory, Result, Stream,
    StreamOptions, Traffic, args,
};

use crate::flow::Flow;
use crate::grid::Grid;

/// The data moved between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) messages: Traffic,
    pub(crate) copies: Traffic,
}

pub(crate) fn sum(one: Traffic, two: Traffic) -> Traffic {
    Traffic { count: one.count + two.count, bytes: one.bytes + two.bytes }
}

/// The cells of one rank: heights, and the data and kernels that advance them.
pub(crate) struct Advection {
    stream: Stream,
    slopes: Kernel,
    advance: Kernel,
    /// Number of cells along y and x.
    cells: [usize; 2],
    /// With ghost cells, like the heights half a step later and the slopes.
    height: Memory<f64>,
    half: Memory<f64>,
    slope: [Memory<f64>; 2],
    courant: [Memory<f64>; 2],
    /// The flow through each western and each southern side in a step. There is one more side than cells.
    flux: [Memory<f64>; 2],
    area: Memory<f64>,
    height_halo: HaloExchange,
    slope_halo: HaloExchange,
}

impl Advection {
    /// The hill at time 0 on the block of this rank, to be moved in this many steps per turn. All ranks call it
    /// together.
    pub(crate) fn new(
        ranks: &Arc<dyn Communicator>,
        topology: &Topology,
        device: &Device,
        grid: Grid,
        flow: Flow,
        steps_per_turn: usize,
    ) -> Result<Self> {
        let block = topology.block(ranks.rank())?;
        let ([i0, j0, _], [nx, ny, _]) = (block.start, block.cells);
        let stream = device.stream_create(&StreamOptions::default())?;
        let functions = HostModule::new().with("slopes", slopes).with("advance", advance);
        let module = device.module_load(&functions)?;

        // The values of a cell or a side follow from its place in the tile, so they are the same on every rank.
        let corner = |place| grid.corner(block.tile, place);
        let area = |place| grid.area(block.tile, place);
        let step = 1.0 / steps_per_turn as f64;
        let west = |[i, j]: [usize; 2]| step * flow.through(corner([i, j]), corner([i, j + 1]));
        let south = |[i, j]: [usize; 2]| step * flow.through(corner([i + 1, j]), corner([i, j]));
        let courant_x = |[i, j]: [usize; 2]| 0.5 * (west([i, j]) + west([i + 1, j])) / area([i, j]);
        let courant_y =
            |[i, j]: [usize; 2]| 0.5 * (south([i, j]) + south([i, j + 1])) / area([i, j]);
        let places = |nx: usize, ny: usize| {
            (j0..j0 + ny).flat_map(move |j| (i0..i0 + nx).map(move |i| [i, j]))
        };
        let known = |nx: usize, ny: usize, value: &dyn Fn([usize; 2]) -> f64| {
            let values: Vec<f64> = places(nx, ny).map(value).collect();
            device.memory_from_slice(&stream, &values)
        };

        // Ghost cells contain NaN, which would show in any result, until they are filled.
        let ringed = vec![f64::NAN; (nx + 2) * (ny + 2)];
        let mut heights = ringed.clone();
        for [i, j] in places(nx, ny) {
            let centre = grid.centre(block.tile, [i, j]);
            heights[(j - j0 + 1) * (nx + 2) + (i - i0 + 1)] = flow.exact(centre, 0.0);
        }
        let ringed = || device.memory_from_slice(&stream, &ringed);

        let dims = [Dim::axis(1, ny).halo(1, 1), Dim::axis(0, nx).halo(1, 1)];
        let field = |name: &str| FieldSpec::new(name, DType::F64, &dims);
        let slope = Quantity::vector(field("slope along x")?, field("slope along y")?)?;
        let exchange = |channel, quantities: &[Quantity]| {
            // No cell beyond a corner is needed. The messages of two exchanges use separate channels.
            let options = HaloOptions { reach: Reach::Faces, channel, ..Default::default() };
            HaloExchange::new(Arc::clone(ranks), topology, quantities, device, &options)
        };
        Ok(Self {
            slopes: module.kernel("slopes")?,
            advance: module.kernel("advance")?,
            cells: [ny, nx],
            height: device.memory_from_slice(&stream, &heights)?,
            half: ringed()?,
            slope: [ringed()?, ringed()?],
            courant: [known(nx, ny, &courant_x)?, known(nx, ny, &courant_y)?],
            flux: [known(nx + 1, ny, &west)?, known(nx, ny + 1, &south)?],
            area: known(nx, ny, &area)?,
            height_halo: exchange(0, &[Quantity::scalar(field("height")?)])?,
            slope_halo: exchange(1, &[Quantity::scalar(field("height halfway")?), slope])?,
            stream,
        })
    }

    /// Runs one step.
    pub(crate) fn step(&mut self) -> Result<()> {
        let Self { stream, height, half, slope: [sx, sy], area, .. } = self;
        let ([cx, cy], [fx, fy]) = (&self.courant, &self.flux);
        let shape = self.cells.map(|cells| cells + 2);
        let width = self.cells[1] as u64;
        let once = Launch::cover(1, 1);

        let mut fields = [height.view_mut().reshape(&shape)?.into()];
        self.height_halo.exchange(stream, &mut fields)?;
        let args = args![&mut *half, &mut *sx, &mut *sy, &*height, cx, cy, width];
        // SAFETY: the kernel is safe Rust.
        unsafe { self.slopes.launch(stream, &once, args) }?;
        let mut fields = [
            half.view_mut().reshape(&shape)?.into(),
            sx.view_mut().reshape(&shape)?.into(),
            sy.view_mut().reshape(&shape)?.into(),
        ];
        self.slope_halo.exchange(stream, &mut fields)?;
        let args = args![height, &*half, &*sx, &*sy, fx, fy, &*area, width];
        // SAFETY: as above.
        unsafe { self.advance.launch(stream, &once, args) }
    }

    /// The heights of the rank's own cells, row by row. Blocks until all steps are done.
    pub(crate) fn heights(&self) -> Result<Vec<f64>> {
        let width = self.cells[1];
        let all = self.height.view().to_vec(&self.stream)?;
        let rows = all.chunks(width + 2).skip(1).take(self.cells[0]);
        Ok(rows.flat_map(|row| &row[1..=width]).copied().collect())
    }

    /// The data moved between this rank and others so far: messages that it sent, and bytes that it copied from their
    /// memory.
    pub(crate) fn moved(&self) -> Result<Moved> {
        let mut moved = Moved::default();
        for exchange in [&self.height_halo, &self.slope_halo] {
            for neighbour in exchange.statistics()?.neighbours {
                moved.messages = sum(moved.messages, neighbour.sent);
                moved.copies = sum(moved.copies, neighbour.copied);
            }
        }
        Ok(moved)
    }
}

// Both kernels run on one core, because the ranks share the work.

/// Computes the slopes of the heights, and the heights half a step later.
#[expect(clippy::too_many_arguments, reason = "a kernel's parameters are its launch's arguments")]
fn slopes(
    _: &Threads<'_>,
    half: &mut [f64],
    sx: &mut [f64],
    sy: &mut [f64],
    q: &[f64],
    cx: &[f64],
    cy: &[f64],
    width: u64,
) {
    let pitch = pitch(width);
    for (cell, (cx, cy)) in cx.iter().zip(cy).enumerate() {
        let at = ringed(cell, pitch);
        sx[at] = 0.5 * (q[at + 1] - q[at - 1]);
        sy[at] = 0.5 * (q[at + pitch] - q[at - pitch]);
        half[at] = q[at] - 0.5 * (cx * sx[at] + cy * sy[at]);
    }
}

/// Computes the heights after the flow through the sides of each cell, which comes from the cell upstream.
#[expect(clippy::too_many_arguments, reason = "a kernel's parameters are its launch's arguments")]
fn advance(
    _: &Threads<'_>,
    q: &mut [f64],
    half: &[f64],
    sx: &[f64],
    sy: &[f64],
    fx: &[f64],
    fy: &[f64],
    area: &[f64],
    width: u64,
) {
    let pitch = pitch(width);
    let width = pitch - 2;
    // The flow through the side at the lower end of a cell. The cell before it is `back` elements earlier.
    let through = |flux: f64, slope: &[f64], at: usize, back: usize| match flux >= 0.0 {
        true => flux * (half[at - back] + 0.5 * slope[at - back]),
        false => flux * (half[at] - 0.5 * slope[at]),
    };
    for (cell, area) in area.iter().enumerate() {
        let at = ringed(cell, pitch);
        let side = cell + cell / width;
        let along_x = through(fx[side + 1], sx, at + 1, 1) - through(fx[side], sx, at, 1);
        let along_y =
            through(fy[cell + width], sy, at + pitch, pitch) - through(fy[cell], sy, at, pitch);
        q[at] -= (along_x + along_y) / area;
    }
}

/// Distance in elements between rows of memory with a ring of ghost cells.
fn pitch(width: u64) -> usize {
    usize::try_from(width).unwrap_or(usize::MAX - 2) + 2
}

/// The index in such memory of the cell with this number.
fn ringed(cell: usize, pitch: usize) -> usize {
    let width = pitch - 2;
    (cell / width + 1) * pitch + cell % width + 1
}
