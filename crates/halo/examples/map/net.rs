//! Places tiles next to each other in a plane, as the surface unfolds.

use std::cmp::Reverse;

use halo::{Seam, Side, Symmetry, Topology};

/// A rectangle in the plane, in cells; y runs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rect {
    pub(crate) low: [isize; 2],
    pub(crate) high: [isize; 2],
}

impl Rect {
    fn overlaps(&self, other: &Self) -> bool {
        (0..2).all(|axis| self.low[axis] < other.high[axis] && other.low[axis] < self.high[axis])
    }

    pub(crate) fn join(&self, other: &Self) -> Self {
        Self {
            low: std::array::from_fn(|axis| self.low[axis].min(other.low[axis])),
            high: std::array::from_fn(|axis| self.high[axis].max(other.high[axis])),
        }
    }
}

/// The placement of a tile in the plane: its axes along those of the plane, then a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) symmetry: Symmetry,
    shift: [isize; 2],
}

impl Placement {
    fn point(&self, at: [isize; 2]) -> [isize; 2] {
        let mut image = self.shift;
        for (axis, along) in at.into_iter().enumerate() {
            let (on, against) = self.symmetry.axis(axis);
            image[on] += if against { -along } else { along };
        }
        image
    }

    /// The image of a rectangle in the coordinates of the tile.
    pub(crate) fn rect(&self, rect: &Rect) -> Rect {
        let (a, b) = (self.point(rect.low), self.point(rect.high));
        Rect { low: a, high: a }.join(&Rect { low: b, high: b })
    }

    /// The rectangle of a tile with these cells.
    fn tile(&self, cells: [usize; 2]) -> Rect {
        self.rect(&Rect { low: [0; 2], high: cells.map(usize::cast_signed) })
    }

    /// The ends of a side of a tile with these cells, in the direction of the tile's axis along it.
    pub(crate) fn edge(&self, cells: [usize; 2], side: Side) -> [[isize; 2]; 2] {
        [0, 1].map(|end| {
            self.point(std::array::from_fn(|axis| match side.ends()[axis] {
                0 => end * cells[axis].cast_signed(),
                -1 => 0,
                _ => cells[axis].cast_signed(),
            }))
        })
    }

    /// The direction in the plane that a side of the tile faces.
    pub(crate) fn facing(&self, side: Side) -> [isize; 2] {
        let mut facing = [0; 2];
        for (axis, end) in side.ends()[..2].iter().enumerate() {
            let (on, against) = self.symmetry.axis(axis);
            facing[on] = isize::from(if against { -end } else { *end });
        }
        facing
    }
}

/// The placements of all tiles.
#[derive(Debug)]
pub(crate) struct Net {
    /// The cells of each tile.
    pub(crate) cells: Vec<[usize; 2]>,
    pub(crate) placed: Vec<Placement>,
}

impl Net {
    /// Places the first tile, then the tiles that are joined to placed tiles and fit next to them: tiles with the same
    /// axes first, in the order of their numbers. A tile that does not fit starts a new group to the right.
    pub(crate) fn new(topology: &Topology, cells: Vec<[usize; 2]>) -> Self {
        let mut placed: Vec<Option<Placement>> = vec![None; cells.len()];
        let mut seams: Vec<Seam> =
            topology.seams().filter(|seam| seam.side.codimension() == 1).collect();
        seams.sort_by_key(|seam| {
            (seam.symmetry != Symmetry::IDENTITY, seam.neighbour, Reverse(seam.tile))
        });
        while let Some(missing) = placed.iter().position(Option::is_none) {
            let rects =
                placed.iter().zip(&cells).filter_map(|(at, cells)| at.map(|at| at.tile(*cells)));
            let rects: Vec<Rect> = rects.collect();
            let found = seams.iter().find_map(|seam| {
                let from = placed[seam.tile].filter(|_| placed[seam.neighbour].is_none())?;
                let at = beyond(from, &cells, seam);
                let rect = at.tile(cells[seam.neighbour]);
                rects.iter().all(|other| !rect.overlaps(other)).then_some((seam.neighbour, at))
            });
            let (tile, at) = found.unwrap_or_else(|| {
                let right = rects.iter().map(|rect| rect.high[0]).max();
                let gap = cells[missing][0].cast_signed() / 2 + 1;
                let shift = [right.map_or(0, |right| right + gap), 0];
                (missing, Placement { symmetry: Symmetry::IDENTITY, shift })
            });
            placed[tile] = Some(at);
        }
        Self { cells, placed: placed.into_iter().flatten().collect() }
    }

    /// The placement of a seam's neighbour if the plane continued beyond the seam's side.
    pub(crate) fn beyond(&self, seam: &Seam) -> Placement {
        beyond(self.placed[seam.tile], &self.cells, seam)
    }

    /// Whether both tiles of a seam lie next to each other in the plane.
    pub(crate) fn is_unfolded(&self, seam: &Seam) -> bool {
        self.beyond(seam) == self.placed[seam.neighbour]
    }

    /// The rectangle of a tile.
    pub(crate) fn tile(&self, tile: usize) -> Rect {
        self.placed[tile].tile(self.cells[tile])
    }
}

fn beyond(from: Placement, cells: &[[usize; 2]], seam: &Seam) -> Placement {
    let symmetry = seam.symmetry.inverse().then(from.symmetry);
    let unshifted = Placement { symmetry, shift: [0; 2] };
    let (own, other) = (from.tile(cells[seam.tile]), unshifted.tile(cells[seam.neighbour]));
    let facing = from.facing(seam.side);
    let shift = std::array::from_fn(|axis| match facing[axis] {
        // Joined sides have the same length.
        0 => own.low[axis] - other.low[axis],
        1 => own.high[axis] - other.low[axis],
        _ => own.low[axis] - other.high[axis],
    });
    Placement { symmetry, shift }
}
