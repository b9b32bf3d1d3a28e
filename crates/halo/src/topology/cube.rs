//! Six square tiles that cover a sphere.

use runtime_core::Result;

use super::symmetry::Symmetry;
use super::{Side, Tile, Topology, check_size, even_cuts};

const TILES: usize = 6;

impl Topology {
    /// The cubed sphere: six tiles of `cells` × `cells` cells. Each tile is cut into `layout` = [along y, along x]
    /// blocks, whose sizes differ by at most one cell.
    ///
    /// Tiles are numbered along a staircase: the tile after an even tile lies east of it, the tile after an odd tile
    /// lies north of it.
    /// Rank = (tile · layout\[0\] + j) · layout\[1\] + i. Beyond the eight corners of the cube there are no cells.
    ///
    /// | | west | east | north | south |
    /// |---|---|---|---|---|
    /// | even t | t − 2, its north, turned | t + 1, its west | t + 2, its west, turned | t − 1, its north |
    /// | odd t | t − 1, its east | t + 2, its south, turned | t + 1, its south | t − 2, its east, turned |
    ///
    /// Layouts need not be square, and need not divide the number of cells.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if an axis has no ranks or more ranks than cells; for more than 16777216 ranks in total; or
    /// for more than 2147483647 cells.
    pub fn cubed_sphere(cells: usize, layout: [usize; 2]) -> Result<Self> {
        check_size(&[cells], &[TILES, layout[0], layout[1]])?;
        let cuts = [even_cuts(cells, layout[1])?, even_cuts(cells, layout[0])?];
        let per_tile = layout[0] * layout[1];
        let tiles = (0..TILES).map(|tile| Tile::new(&cuts, tile * per_tile)).collect();
        let links = (0..TILES).flat_map(|tile| {
            let (turn, back) = (Symmetry::QUARTER, Symmetry::THREE_QUARTERS);
            let straight = Symmetry::IDENTITY;
            let seams = if tile % 2 == 0 {
                [
                    (Side::WEST, 4, turn),
                    (Side::EAST, 1, straight),
                    (Side::NORTH, 2, back),
                    (Side::SOUTH, 5, straight),
                ]
            } else {
                [
                    (Side::WEST, 5, straight),
                    (Side::EAST, 2, turn),
                    (Side::NORTH, 1, straight),
                    (Side::SOUTH, 4, back),
                ]
            };
            seams.map(|(side, ahead, symmetry)| (tile, side, (tile + ahead) % TILES, symmetry))
        });
        Self::joined(2, tiles, links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::topology::Piece;

    /// The neighbour's cell that corresponds to a ghost cell, as (x, y) of its block.
    fn cell_of(piece: &Piece, x: isize, y: isize) -> (isize, isize) {
        let image = piece.map.image(&[x..x + 1, y..y + 1, 0..1]);
        (image[0].start, image[1].start)
    }

    fn pieces(tile: usize, n: usize) -> Vec<Piece> {
        let sphere = Topology::cubed_sphere(n, [1, 1]).unwrap();
        sphere.surroundings(tile, &[[2; 2], [2; 2], [0; 2]]).unwrap().0
    }

    /// The expected table of arrivals on cells: for each rotated edge, the components and their sources.
    #[test]
    fn golden_table_of_the_cubed_sphere() {
        let n = 4_isize;
        for tile in 0..TILES {
            for piece in pieces(tile, n.unsigned_abs()) {
                let vector = [0, 1].map(|c| Kind::Vector.source(c, piece.map.symmetry));
                for k in 0..n {
                    let (ghost, cell, expected) = match (tile % 2, piece.side) {
                        (0, Side::WEST) => ((-1, k), (n - 1 - k, n - 1), [(1, false), (0, true)]),
                        (0, Side::NORTH) => ((k, n), (0, n - 1 - k), [(1, true), (0, false)]),
                        (1, Side::EAST) => ((n, k), (n - 1 - k, 0), [(1, false), (0, true)]),
                        (1, Side::SOUTH) => ((k, -1), (n - 1, n - 1 - k), [(1, true), (0, false)]),
                        (_, Side::WEST) => ((-1, k), (n - 1, k), [(0, false), (1, false)]),
                        (_, Side::EAST) => ((n, k), (0, k), [(0, false), (1, false)]),
                        (_, Side::SOUTH) => ((k, -1), (k, n - 1), [(0, false), (1, false)]),
                        (_, Side::NORTH) => ((k, n), (k, 0), [(0, false), (1, false)]),
                        _ => panic!("tile {tile} has a neighbour {}", piece.side),
                    };
                    assert_eq!(
                        cell_of(&piece, ghost.0, ghost.1),
                        cell,
                        "tile {tile} {}",
                        piece.side
                    );
                    assert_eq!(vector, expected, "tile {tile} {}", piece.side);
                }
            }
        }
    }

    #[test]
    fn golden_table_of_neighbours() {
        for tile in 0..TILES {
            let ahead = |side| {
                let piece = pieces(tile, 4).into_iter().find(|piece| piece.side == side).unwrap();
                (piece.block + TILES - tile) % TILES
            };
            let expected = if tile % 2 == 0 { [4, 1, 2, 5] } else { [5, 2, 1, 4] };
            assert_eq!([Side::WEST, Side::EAST, Side::NORTH, Side::SOUTH].map(ahead), expected);
        }
    }

    #[test]
    fn the_cube_has_eight_corners() {
        for layout in [[1, 1], [2, 3]] {
            let sphere = Topology::cubed_sphere(12, layout).unwrap();
            let gaps = (0..sphere.ranks())
                .flat_map(|rank| sphere.surroundings(rank, &[[1; 2], [1; 2], [0; 2]]).unwrap().1);
            let gaps: Vec<_> = gaps.collect();
            // Each corner belongs to three tiles.
            assert_eq!(gaps.len(), 24);
            assert!(gaps.iter().all(|gap| gap.is_corner && gap.side.codimension() == 2));
        }
    }

    #[test]
    fn ghosts_of_any_layout_are_covered_once() {
        for (cells, layout) in [(12, [1, 2]), (12, [3, 2]), (10, [3, 1]), (7, [2, 3]), (9, [3, 3])]
        {
            let sphere = Topology::cubed_sphere(cells, layout).unwrap();
            for rank in 0..sphere.ranks() {
                let block = sphere.block(rank).unwrap().cells;
                let (pieces, gaps) = sphere.surroundings(rank, &[[2; 2], [2; 2], [0; 2]]).unwrap();
                let volume = |piece: &Piece| {
                    piece
                        .cells
                        .iter()
                        .map(|cells| (cells.end - cells.start).unsigned_abs())
                        .product::<usize>()
                };
                let ring = (block[0] + 4) * (block[1] + 4) - block[0] * block[1];
                let owned: usize = pieces.iter().map(volume).sum();
                assert_eq!(owned + 4 * gaps.len(), ring, "{layout:?} rank {rank}");
            }
        }
    }
}
