//! Blocks with ghosts in any boxes, which the user gives.

use std::ops::Range;

use runtime_core::Result;

use super::links::block_tiles;
use super::symmetry::{AXES, Map, Symmetry};
use super::{Gap, Piece, Regions, Side, Surroundings, Topology, refuse};

/// Declares which cells of a block are the ghosts in a box beside another block, or beside the same block. Boxes are
/// ranges along the axes of their blocks; 0 is the first cell of the block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region<const N: usize> {
    /// The block that the ghosts belong to.
    pub block: usize,
    /// The ghosts. They may lie beyond several sides of the block.
    pub ghosts: [Range<isize>; N],
    /// The block with the cells.
    pub neighbour: usize,
    /// The cells.
    pub cells: [Range<usize>; N],
    /// How the axes of the ghosts lie relative to the axes of the cells.
    pub symmetry: Symmetry,
}

impl Topology {
    /// A topology of blocks whose ghosts are in regions. Each entry of `blocks` holds the numbers of cells along one to
    /// three axes.
    ///
    /// A field gets the ghosts of the regions that are within its halo. So fields with different halos use the same
    /// regions, and a region may be larger than a halo. Ghosts in no region are [edges](crate::HaloExchange::edges).
    /// Staggered points belong to cells as elsewhere: beyond the low end of an axis, a ghost cell has the point at its
    /// low end, and beyond the high end the point at its high end.
    ///
    /// ```
    /// use halo::{Region, Symmetry, Topology};
    ///
    /// // West of block 0, two columns of ghosts are the two lower rows of block 1, turned by a quarter.
    /// let west = Region {
    ///     block: 0,
    ///     ghosts: [-2..0, 0..4],
    ///     neighbour: 1,
    ///     cells: [0..4, 0..2],
    ///     symmetry: Symmetry::QUARTER,
    /// };
    /// let topology = Topology::of_regions(&[[6, 4], [4, 8]], &[west])?;
    /// assert_eq!(topology.neighbours(0)?[0].block, 1);
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for no blocks; a block without cells or with more cells along an axis than `i32` can count; a
    /// region of a block that does not exist; a region of ghosts that is empty, contains cells of its block, overlaps
    /// another, or is beyond what `i32` can count; cells that their block does not have; or cells and ghosts whose
    /// extents differ.
    pub fn of_regions<const N: usize>(
        blocks: &[[usize; N]],
        regions: &[Region<N>],
    ) -> Result<Self> {
        let mut topology = Self::joined(N, block_tiles(blocks)?, [])?;
        let mut pieces = vec![Vec::new(); blocks.len()];
        let mut readers = vec![Vec::new(); blocks.len()];
        for (number, region) in regions.iter().enumerate() {
            add(blocks, region, &mut pieces)
                .map_err(|why| refuse(format!("region {number}, {region:?}: {why}")))?;
            readers[region.neighbour].push(region.block);
        }
        for (block, pieces) in pieces.iter_mut().enumerate() {
            pieces.sort_by_key(|piece: &Piece| (piece.side.id(), starts(&piece.cells)));
            check_apart(block, pieces)?;
        }
        for readers in &mut readers {
            readers.sort_unstable();
            readers.dedup();
        }
        topology.regions = Some(Regions { pieces, readers });
        Ok(topology)
    }
}

/// Divides the ghosts of a region among the sides of its block.
fn add<const N: usize>(
    blocks: &[[usize; N]],
    region: &Region<N>,
    pieces: &mut [Vec<Piece>],
) -> Result<(), String> {
    let Region { block, ghosts, neighbour, cells, symmetry } = region;
    if let Some(absent) = [block, neighbour].into_iter().find(|block| **block >= blocks.len()) {
        return Err(format!("block {absent}; there are {}", blocks.len()));
    }
    if N == 1 && (symmetry.swaps() || symmetry.axis(1).1) {
        return Err("a symmetry of two axes; there is one".to_owned());
    }
    let (own, theirs) = (padded(&blocks[*block]), padded(&blocks[*neighbour]));
    let ghosts: [Range<isize>; AXES] = fill(ghosts, |range| range.clone());
    let cells: [Range<isize>; AXES] =
        fill(cells, |range| range.start.cast_signed()..range.end.cast_signed());
    let limit = i32::MAX as isize;
    if ghosts.iter().any(|range| range.is_empty() || range.start < -limit || range.end > limit) {
        return Err(format!("ghosts that are none, or beyond {limit} along an axis"));
    }
    if (0..AXES).any(|axis| cells[axis].start < 0 || cells[axis].end > theirs[axis]) {
        return Err(format!("block {neighbour} has {:?} cells", &blocks[*neighbour]));
    }
    let mut shift = [0; AXES];
    for (axis, ghosts) in ghosts.iter().enumerate() {
        let (on, against) = symmetry.axis(axis);
        let cells = &cells[on];
        if ghosts.end - ghosts.start != cells.end - cells.start {
            return Err(format!("{ghosts:?} along axis {axis} from {cells:?} along axis {on}"));
        }
        shift[on] = if against { cells.end + ghosts.start } else { cells.start - ghosts.start };
    }
    let map = Map { symmetry: *symmetry, shift };
    for side in Side::all(N).chain([Side::NONE]) {
        let part: [Range<isize>; AXES] = std::array::from_fn(|axis| {
            let Range { start, end } = ghosts[axis];
            match side.0[axis] {
                -1 => start..end.min(0),
                0 => start.max(0)..end.min(own[axis]),
                _ => start.max(own[axis])..end,
            }
        });
        if part.iter().any(Range::is_empty) {
            continue;
        }
        if side == Side::NONE {
            return Err(format!("the ghosts contain cells {:?} of the block", &part[..N]));
        }
        // The cells were checked, and a halo may be wider than them.
        let neighbour_cells = [usize::MAX; AXES];
        let piece = Piece { side, block: *neighbour, cells: part, map, neighbour_cells };
        pieces[*block].push(piece);
    }
    Ok(())
}

/// Refuses pieces that share ghosts. They are in the order of sides and starts.
fn check_apart(block: usize, pieces: &[Piece]) -> Result<()> {
    for (index, piece) in pieces.iter().enumerate() {
        // Pieces beyond different sides share nothing, and those that start later along x neither.
        let after = pieces[index + 1..].iter().take_while(|other| {
            other.side == piece.side && other.cells[0].start < piece.cells[0].end
        });
        for other in after {
            if (0..AXES).all(|axis| meet(&piece.cells[axis], &other.cells[axis])) {
                let message = format!(
                    "block {block}: regions of ghosts {:?} and {:?} overlap",
                    piece.cells, other.cells
                );
                return Err(refuse(message));
            }
        }
    }
    Ok(())
}

impl Regions {
    /// The pieces and gaps around a block up to these widths.
    pub(super) fn surroundings(
        &self,
        block: usize,
        axes: usize,
        cells: [usize; AXES],
        widths: &[[usize; 2]; AXES],
    ) -> Surroundings {
        let (mut pieces, mut gaps) = (Vec::new(), Vec::new());
        for side in Side::all(axes) {
            let halo: [Range<isize>; AXES] = std::array::from_fn(|axis| {
                side.ghosts(axis, cells[axis].cast_signed(), widths[axis])
            });
            if halo.iter().any(Range::is_empty) {
                continue;
            }
            let mut open = vec![halo.clone()];
            for piece in self.pieces[block].iter().filter(|piece| piece.side == side) {
                let common = common(&piece.cells, &halo);
                if common.iter().any(Range::is_empty) {
                    continue;
                }
                open = open.iter().flat_map(|part| without(part, &common)).collect();
                pieces.push(Piece { cells: common, ..piece.clone() });
            }
            gaps.extend(open.into_iter().map(|cells| Gap { side, cells, is_corner: false }));
        }
        (pieces, gaps)
    }

    /// The blocks that read a block's cells.
    pub(super) fn readers(&self, block: usize) -> &[usize] {
        &self.readers[block]
    }

    /// The pieces of all blocks, with their blocks.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Piece)> {
        let all = self.pieces.iter().enumerate();
        all.flat_map(|(block, pieces)| pieces.iter().map(move |piece| (block, piece)))
    }
}

/// The parts of a box that are not in another box, which lies within it or apart from it.
fn without(whole: &[Range<isize>; AXES], hole: &[Range<isize>; AXES]) -> Vec<[Range<isize>; AXES]> {
    let hole = common(whole, hole);
    if hole.iter().any(Range::is_empty) {
        return vec![whole.clone()];
    }
    let (mut rest, mut parts) = (whole.clone(), Vec::new());
    for axis in 0..AXES {
        for range in [rest[axis].start..hole[axis].start, hole[axis].end..rest[axis].end] {
            if !range.is_empty() {
                let mut part = rest.clone();
                part[axis] = range;
                parts.push(part);
            }
        }
        rest[axis] = hole[axis].clone();
    }
    parts
}

fn common(one: &[Range<isize>; AXES], other: &[Range<isize>; AXES]) -> [Range<isize>; AXES] {
    std::array::from_fn(|axis| {
        one[axis].start.max(other[axis].start)..one[axis].end.min(other[axis].end)
    })
}

const fn meet(one: &Range<isize>, other: &Range<isize>) -> bool {
    one.start < other.end && other.start < one.end
}

fn starts(cells: &[Range<isize>; AXES]) -> [isize; AXES] {
    std::array::from_fn(|axis| cells[axis].start)
}

fn padded<const N: usize>(cells: &[usize; N]) -> [isize; AXES] {
    std::array::from_fn(|axis| cells.get(axis).map_or(1, |cells| cells.cast_signed()))
}

/// Ranges along all axes; those that a topology does not have have one cell.
fn fill<T, const N: usize>(
    ranges: &[Range<T>; N],
    signed: impl Fn(&Range<T>) -> Range<isize>,
) -> [Range<isize>; AXES] {
    std::array::from_fn(|axis| ranges.get(axis).map_or(0..1, &signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(
        block: usize,
        ghosts: [Range<isize>; 2],
        neighbour: usize,
        cells: [Range<usize>; 2],
        symmetry: Symmetry,
    ) -> Region<2> {
        Region { block, ghosts, neighbour, cells, symmetry }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let same = Symmetry::IDENTITY;
        let message = |regions: &[Region<2>]| {
            Topology::of_regions(&[[4, 4], [6, 3]], regions).unwrap_err().message().to_owned()
        };
        for (region, words) in [
            (region(2, [-1..0, 0..1], 0, [0..1, 0..1], same), "block 2; there are 2"),
            (region(0, [-1..0, 0..1], 3, [0..1, 0..1], same), "block 3; there are 2"),
            (region(0, [-1..0, 0..4], 1, [0..1, 0..4], same), "block 1 has [6, 3] cells"),
            (region(0, [-1..0, 0..4], 1, [0..1, 0..3], same), "0..4 along axis 1 from 0..3 along"),
            (region(0, [-2..0, 0..3], 1, [0..2, 0..3], Symmetry::QUARTER), "-2..0 along axis 0"),
            (
                region(0, [-1..1, 0..3], 1, [0..2, 0..3], same),
                "the ghosts contain cells [0..1, 0..3]",
            ),
            (region(0, [-1..-1, 0..3], 1, [0..0, 0..3], same), "ghosts that are none"),
            (region(0, [isize::MIN..0, 0..3], 1, [0..1, 0..3], same), "beyond 2147483647 along"),
            (region(0, [-1..0, 0..isize::MAX], 1, [0..1, 0..3], same), "beyond 2147483647 along"),
            (
                region(0, [-1..0, 0..1], 1, [0..1, Range { start: usize::MAX, end: 3 }], same),
                "block 1 has [6, 3] cells",
            ),
        ] {
            let message = message(std::slice::from_ref(&region));
            assert!(message.starts_with("region 0, Region { "), "{message}");
            assert!(message.contains(words), "{message} lacks {words}");
        }
        let twice = [
            region(0, [-2..0, 0..3], 1, [0..2, 0..3], same),
            region(0, [-1..0, -1..1], 1, [0..1, 0..2], same),
        ];
        assert!(message(&twice).contains("overlap"), "{}", message(&twice));
        assert!(Topology::of_regions::<2>(&[], &[]).is_err());
        let (ghosts, cells) = ([const { -1..0 }; 1], [const { 0..1 }; 1]);
        let turned = Region { block: 0, ghosts, neighbour: 0, cells, symmetry: Symmetry::QUARTER };
        assert!(Topology::of_regions(&[[4]], &[turned]).is_err());
    }

    /// Each ghost is in one piece or in one gap.
    #[test]
    fn pieces_and_gaps_cover_a_halo_once() {
        let regions = [
            region(0, [-3..0, -1..2], 1, [1..4, 0..3], Symmetry::IDENTITY),
            region(0, [-1..0, 2..4], 1, [0..1, 0..2], Symmetry::HALF),
            region(0, [4..5, -2..6], 2, [0..1, 0..8], Symmetry::MIRROR_Y),
        ];
        let topology = Topology::of_regions(&[[4, 4], [6, 3], [1, 8]], &regions).unwrap();
        for (below, above) in [(1, 1), (2, 3), (0, 2), (4, 0)] {
            let widths = [[below, above], [above, below], [0, 0]];
            let (pieces, gaps) = topology.surroundings(0, &widths).unwrap();
            let boxes = || pieces.iter().map(|p| &p.cells).chain(gaps.iter().map(|gap| &gap.cells));
            let (low, high) = (below.cast_signed(), above.cast_signed());
            for x in -low..4 + high {
                for y in -high..4 + low {
                    let covers = |cells: &&[Range<isize>; AXES]| {
                        cells[0].contains(&x) && cells[1].contains(&y)
                    };
                    let is_owned = (0..4).contains(&x) && (0..4).contains(&y);
                    assert_eq!(boxes().filter(covers).count(), usize::from(!is_owned), "{x} {y}");
                }
            }
        }
    }
}
