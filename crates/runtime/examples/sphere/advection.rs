//! Advection by a second-order finite-volume scheme.
//!
//! A step computes the flow through the sides of each cell from the cell upstream, by van Leer's unlimited scheme with
//! Hancock's predictor, unsplit (van Leer, 1984; Colella, 1990, for several dimensions). Coordinates count cells. The
//! *Courant vector* `c` is the number of cells that the flow crosses in a step:
//!
//! 1. The slope `s` of the heights `q` is half the difference of the neighbours, along x and along y.
//! 2. `half = q - (c · s) / 2` is the height half a step later.
//! 3. The flow through a side is `half ± s / 2` of the cell upstream.
//!
//! Before the first stage, the ghosts of `q` are exchanged; before the last one, those of `half` and of `s`, a vector.
//! If the axes of the neighbouring tile are rotated, its slope along y is this tile's slope along x, possibly negated.

use std::sync::Arc;

use runtime::halo::communicator::Communicator;
use runtime::stencil::{Field, Location, stencils};
use runtime::{Device, Result, Stream, StreamOptions, Traffic, stencil};

use crate::flow::Flow;
use crate::grid::Grid;

#[stencils]
mod scheme {
    use runtime::stencil::{In, InOut, Out};

    /// The slopes of the heights, and the heights half a step later.
    #[stencil]
    pub(super) fn slopes(
        half: Out<f64, 2>,
        sx: Out<f64, 2>,
        sy: Out<f64, 2>,
        q: In<f64, 2>,
        cx: In<f64, 2>,
        cy: In<f64, 2>,
    ) {
        let x = 0.5 * (q.at(1, 0) - q.at(-1, 0));
        let y = 0.5 * (q.at(0, 1) - q.at(0, -1));
        sx.set(x);
        sy.set(y);
        half.set(q.at(0, 0) - 0.5 * (cx.at(0, 0) * x + cy.at(0, 0) * y));
    }

    /// The heights after the flow through the sides of each cell.
    #[stencil]
    pub(super) fn advance(
        q: InOut<f64, 2>,
        half: In<f64, 2>,
        sx: In<f64, 2>,
        sy: In<f64, 2>,
        fx: In<f64, 2>,
        fy: In<f64, 2>,
        area: In<f64, 2>,
    ) {
        let west = through(fx.at(0, 0), half.shift(-1, 0), sx.shift(-1, 0), half, sx);
        let east = through(fx.at(1, 0), half, sx, half.shift(1, 0), sx.shift(1, 0));
        let south = through(fy.at(0, 0), half.shift(0, -1), sy.shift(0, -1), half, sy);
        let north = through(fy.at(0, 1), half, sy, half.shift(0, 1), sy.shift(0, 1));
        q.set(q.at(0, 0) - ((east - west) + (north - south)) / area.at(0, 0));
    }

    /// The flow through a side, from the cell before it or the one behind it, with their slopes.
    #[stencil_fn]
    fn through(
        flux: f64,
        before: In<f64, 2>,
        slope_before: In<f64, 2>,
        behind: In<f64, 2>,
        slope_behind: In<f64, 2>,
    ) -> f64 {
        if flux >= 0.0 {
            flux * (before.at(0, 0) + 0.5 * slope_before.at(0, 0))
        } else {
            flux * (behind.at(0, 0) - 0.5 * slope_behind.at(0, 0))
        }
    }
}

/// The cells of one rank.
pub(crate) struct Advection {
    stream: Stream,
    grid: stencil::Grid<2>,
    height: Field<f64, 2>,
    half: Field<f64, 2>,
    slope: [Field<f64, 2>; 2],
    courant: [Field<f64, 2>; 2],
    /// The flow through each western and each southern side in a step.
    flux: [Field<f64, 2>; 2],
    area: Field<f64, 2>,
}

impl Advection {
    /// The hill at time 0 on the block of this rank, to be moved in this many steps per turn. Each tile has `layout`
    /// blocks along y and x. All ranks call it together.
    pub(crate) fn new(
        ranks: &Arc<dyn Communicator>,
        layout: [usize; 2],
        device: &Device,
        sphere: Grid,
        flow: Flow,
        steps_per_turn: usize,
    ) -> Result<Self> {
        let grid = stencil::Grid::cubed_sphere(sphere.cells).blocks([layout[1], layout[0]]);
        let grid = grid.ranks(Arc::clone(ranks)).build(device)?;
        // The values of a cell or a side follow from its place in the tile, so they are the same on every rank.
        let tile = grid.tile();
        let corner = |place| sphere.corner(tile, place);
        let area = |place| sphere.area(tile, place);
        let step = 1.0 / steps_per_turn as f64;
        let west = |[i, j]: [usize; 2]| step * flow.through(corner([i, j]), corner([i, j + 1]));
        let south = |[i, j]: [usize; 2]| step * flow.through(corner([i + 1, j]), corner([i, j]));
        let courant_x = |[i, j]: [usize; 2]| 0.5 * (west([i, j]) + west([i + 1, j])) / area([i, j]);
        let courant_y =
            |[i, j]: [usize; 2]| 0.5 * (south([i, j]) + south([i, j + 1])) / area([i, j]);
        let height = |place| flow.exact(sphere.centre(tile, place), 0.0);
        let [sx, sy] = grid.vector(["slope along x", "slope along y"]);
        let [cx, cy] = grid.vector(["courant along x", "courant along y"]);
        let [fx, fy] = grid.vector(["flux along x", "flux along y"]);
        Ok(Self {
            stream: device.stream_create(&StreamOptions::default())?,
            height: grid.field("height").from_fn(height)?,
            half: grid.field("height halfway").uninit()?,
            slope: [sx.uninit()?, sy.uninit()?],
            courant: [cx.from_fn(courant_x)?, cy.from_fn(courant_y)?],
            flux: [
                fx.at(Location::Face(0)).from_fn(west)?,
                fy.at(Location::Face(1)).from_fn(south)?,
            ],
            area: grid.field("area").from_fn(area)?,
            grid,
        })
    }

    /// Runs one step.
    pub(crate) fn step(&mut self) -> Result<()> {
        let Self { stream, height, half, slope: [sx, sy], area, .. } = self;
        let ([cx, cy], [fx, fy]) = (&self.courant, &self.flux);
        scheme::slopes(half, sx, sy, height, cx, cy).run(stream)?;
        scheme::advance(height, half, sx, sy, fx, fy, area).run(stream)
    }

    /// The heights of all tiles on the first rank; `None` on the others. Blocks until all steps are done.
    pub(crate) fn heights(&mut self) -> Result<Option<Vec<f64>>> {
        Ok(self.height.gather(0)?.map(|heights| heights.into_iter().collect()))
    }

    /// The data that this rank sent to others so far, or let them copy.
    pub(crate) fn sent(&self) -> Traffic {
        self.grid.sent()
    }
}
