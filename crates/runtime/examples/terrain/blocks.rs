//! Division of the terrain: a block of cells for each rank, and its layout in the rank's arrays.

use std::ops::Range;

use runtime::array::Partition;
use runtime::halo::{Dim, FieldSpec, Quantity, Topology, interior_and_rim};
use runtime::{DType, Result};

use crate::error::DemoError;
use crate::kernel::{EAST, NORTH, SOUTH, WEST};

/// Alignment in elements of the parts of an array: 512 bytes, an alignment that OpenCL devices can point to.
const LINE: usize = 64;

/// The part of an array that holds a rank's own cells. Other parts are ghost cells.
pub(crate) const OWN: usize = 0;

/// The terrain cut into a grid of blocks.
pub(crate) struct Blocks {
    pub(crate) topology: Topology,
    /// Rows and columns of the terrain.
    cells: [usize; 2],
    /// Number of blocks down and across.
    pub(crate) grid: [usize; 2],
}

impl Blocks {
    /// One block for each rank, in the grid with the shortest seams.
    pub(crate) fn new(cells: [usize; 2], ranks: usize) -> Result<Self, DemoError> {
        let [rows, columns] = cells;
        let grids = (1..=ranks.min(rows)).filter(|down| ranks.is_multiple_of(*down));
        let grids = grids.map(|down| [down, ranks / down]).filter(|grid| grid[1] <= columns);
        let seams = |[down, across]: &[usize; 2]| (down - 1) * columns + (across - 1) * rows;
        let grid = grids.min_by_key(seams).ok_or(DemoError::Ranks { ranks, rows, columns })?;
        let topology = Topology::cartesian(&[columns, rows], &[grid[1], grid[0]], &[false, false])?;
        Ok(Self { topology, cells, grid })
    }

    /// The block of a rank.
    pub(crate) fn of(&self, rank: usize) -> Result<Block> {
        let block = self.topology.block(rank)?;
        let [rows, columns] =
            [1, 0].map(|axis| block.start[axis]..block.start[axis] + block.cells[axis]);
        let [down, across] = self.grid.map(|blocks| usize::from(blocks > 1));
        let is_cut = down + across > 0;
        let y = Dim::axis(1, rows.len()).halo(down, down);
        let x = Dim::axis(0, columns.len()).halo(across, across);
        // Every row of a block begins at an aligned position.
        let before = across * LINE;
        let after = (columns.len() + across).next_multiple_of(LINE) - columns.len();
        let x = x.allocated(before, if is_cut { after } else { 0 });
        let sides = sides_within(&rows, &columns, self.cells);
        Ok(Block { rows, columns, dims: [y, x], sides })
    }
}

/// The cells of one rank. If there are other ranks, its arrays have ghost cells around them.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The rows and columns of the terrain that belong to the block.
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
    dims: [Dim; 2],
    /// The sides beyond which other ranks have cells.
    sides: u64,
}

/// A box of a block's cells that one launch computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
    /// The sides beyond which there are cells, of this rank or another.
    pub(crate) sides: u64,
}

impl Block {
    /// Number of cells.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// The row and column of the terrain at which the block begins.
    pub(crate) fn first(&self) -> [usize; 2] {
        [self.rows.start, self.columns.start]
    }

    /// The shape of its arrays, including ghost cells and the padding that aligns rows.
    pub(crate) fn shape(&self) -> [usize; 2] {
        self.dims.map(|dim| dim.allocation())
    }

    /// The rows and columns of its arrays that are its own.
    pub(crate) fn own(&self) -> [Range<usize>; 2] {
        self.dims.map(|dim| dim.owned())
    }

    /// Divides its arrays into parts: [`OWN`], the ghost cells that an exchange fills, and the rest, which is never
    /// written.
    pub(crate) fn partition(&self) -> Result<Partition> {
        let [rows, columns] = self.own();
        let sides = [NORTH, SOUTH, WEST, EAST].into_iter().filter(|side| self.sides & side != 0);
        let ghosts = sides.map(|side| match side {
            NORTH => [rows.start - 1..rows.start, columns.clone()],
            SOUTH => [rows.end..rows.end + 1, columns.clone()],
            WEST => [rows.clone(), columns.start - 1..columns.start],
            _ => [rows.clone(), columns.end..columns.end + 1],
        });
        let ghosts: Vec<[Range<usize>; 2]> = ghosts.collect();
        let ghosts: Vec<&[Range<usize>]> = ghosts.iter().map(|ranges| &ranges[..]).collect();
        Partition::around(&self.shape(), &self.own(), &ghosts)
    }

    /// The quantity that is exchanged: the heights.
    pub(crate) fn quantity(&self) -> Result<Quantity> {
        Ok(Quantity::scalar(FieldSpec::new("height", DType::F64, &self.dims)?))
    }

    /// The box of all its cells that need no ghost cell, and boxes of the others.
    pub(crate) fn patches(&self) -> (Patch, Vec<Patch>) {
        let reach = |side: u64| usize::from(self.sides & side != 0);
        let own = [0..self.rows.len(), 0..self.columns.len()];
        let widths = [(reach(NORTH), reach(SOUTH)), (reach(WEST), reach(EAST))];
        let step = interior_and_rim(&own, &widths);
        let patch = |ranges: &Vec<Range<usize>>| {
            let [rows, columns] = [ranges[0].clone(), ranges[1].clone()];
            let inside = sides_within(&rows, &columns, [own[0].end, own[1].end]);
            Patch { rows, columns, sides: self.sides | inside }
        };
        (patch(&step.interior), step.rim.iter().map(patch).collect())
    }
}

/// The sides of a box beyond which there are more of the `cells` rows and columns.
fn sides_within(rows: &Range<usize>, columns: &Range<usize>, cells: [usize; 2]) -> u64 {
    let side = |there: bool, side: u64| if there { side } else { 0 };
    side(rows.start > 0, NORTH)
        | side(rows.end < cells[0], SOUTH)
        | side(columns.start > 0, WEST)
        | side(columns.end < cells[1], EAST)
}
