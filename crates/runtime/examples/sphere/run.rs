//! One turn of the sphere on ranks that are threads, and the error at the end relative to the exact solution.

use std::sync::Arc;

use runtime::halo::communicator::{Communicator, ThreadCommunicator};
use runtime::{Device, Result, Traffic};

use crate::advection::Advection;
use crate::flow::Flow;
use crate::grid::Grid;

/// The problem to compute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) grid: Grid,
    pub(crate) flow: Flow,
    /// Number of blocks of each tile along y and x.
    pub(crate) layout: [usize; 2],
}

/// The heights of all cells of the sphere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heights {
    cells: usize,
    values: Vec<f64>,
}

impl Heights {
    pub(crate) fn at(&self, tile: usize, [i, j]: [usize; 2]) -> f64 {
        self.values[(tile * self.cells + i) * self.cells + j]
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// At the beginning, and after each eighth of the turn.
    pub(crate) heights: Vec<Heights>,
    pub(crate) steps: usize,
    /// The messages between all ranks in all steps, or the copies in their place.
    pub(crate) sent: Traffic,
}

pub(crate) const EIGHTHS: usize = 8;

impl Case {
    /// Number of steps in a turn. In one step, the flow moves at most about half a cell.
    fn steps(&self) -> usize {
        EIGHTHS * (3 * self.grid.cells).div_ceil(2)
    }

    /// Runs the turn, with each rank in its own thread.
    pub(crate) fn run(&self, device: &Device) -> Result<Outcome> {
        let (steps, ranks) = (self.steps(), 6 * self.layout[0] * self.layout[1]);
        let ended = ThreadCommunicator::run(ranks, |ranks| -> Result<_> {
            let ranks: Arc<dyn Communicator> = Arc::new(ranks);
            let mut advection =
                Advection::new(&ranks, self.layout, device, self.grid, self.flow, steps)?;
            let mut heights = vec![advection.heights()?];
            for _ in 0..EIGHTHS {
                for _ in 0..steps / EIGHTHS {
                    advection.step()?;
                }
                heights.push(advection.heights()?);
            }
            Ok((heights, advection.sent()))
        })?;
        let cells = self.grid.cells;
        let mut outcome = Outcome { heights: Vec::new(), steps, sent: Traffic::default() };
        for rank in ended {
            let (heights, sent) = rank?;
            let heights = heights.into_iter().flatten().map(|values| Heights { cells, values });
            outcome.heights.extend(heights);
            outcome.sent.count += sent.count;
            outcome.sent.bytes += sent.bytes;
        }
        Ok(outcome)
    }

    /// The error of heights at a time, relative to the exact heights, in the norms of Williamson et al. (1992).
    pub(crate) fn error(&self, heights: &Heights, time: f64) -> Norms {
        let (mut apart, mut size) = ([0.0_f64; 3], [0.0_f64; 3]);
        for (tile, place) in self.cells() {
            let area = self.grid.area(tile, place);
            let exact = self.flow.exact(self.grid.centre(tile, place), time);
            for (sums, value) in
                [(&mut apart, (heights.at(tile, place) - exact).abs()), (&mut size, exact)]
            {
                sums[0] += area * value;
                sums[1] += area * value * value;
                // Not `max`, which ignores NaN.
                sums[2] = if value <= sums[2] { sums[2] } else { value };
            }
        }
        Norms { l1: apart[0] / size[0], l2: (apart[1] / size[1]).sqrt(), most: apart[2] / size[2] }
    }

    /// The total mass of the hill.
    pub(crate) fn mass(&self, heights: &Heights) -> f64 {
        self.cells()
            .map(|(tile, place)| self.grid.area(tile, place) * heights.at(tile, place))
            .sum()
    }

    fn cells(&self) -> impl Iterator<Item = (usize, [usize; 2])> + use<> {
        let cells = self.grid.cells;
        (0..6 * cells * cells).map(move |n| (n / (cells * cells), [n % cells, n / cells % cells]))
    }
}

/// Differences from the exact solution, relative to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norms {
    pub(crate) l1: f64,
    pub(crate) l2: f64,
    pub(crate) most: f64,
}
