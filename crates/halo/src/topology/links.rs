//! Blocks that the user joins explicitly.

use runtime_core::Result;

use super::symmetry::{AXES, Symmetry};
use super::{Side, Tile, Topology, refuse};

/// Declares what lies beyond one side, edge or corner of a rank's block. If [ranks have several
/// blocks](Topology::on_ranks), blocks have the numbers that ranks have here.
///
/// The whole side is joined to a whole side of the neighbour. The symmetry determines which side: the receiver's axis
/// that leads out of its block leads into the neighbour's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The rank that the side belongs to.
    pub rank: usize,
    /// The side.
    pub side: Side,
    /// The rank beyond the side, possibly the same rank.
    pub neighbour: usize,
    /// How the rank's axes lie relative to the neighbour's axes.
    pub symmetry: Symmetry,
}

impl Topology {
    /// A topology with one block for each rank, joined by links. Each entry of `blocks` holds the numbers of cells
    /// along one to three axes.
    ///
    /// Every link is given from both of its ends. Corners have their own links. A corner without a link, whose sides
    /// have links, is a missing corner, as on the cube. A side without a link is a physical boundary. A block may be
    /// joined to itself, including for mirrors and folds.
    ///
    /// ```
    /// use halo::{Link, Side, Symmetry, Topology};
    ///
    /// // A fold: beyond the north side of the block lies the same side, reversed from east to west.
    /// let fold = Link { rank: 0, side: Side::NORTH, neighbour: 0, symmetry: Symmetry::HALF };
    /// let tripolar = Topology::of_blocks(&[[8, 4]], &[fold])?;
    /// assert_eq!(tripolar.neighbours(0)?.len(), 1);
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for no ranks; a block without cells or with more cells along an axis than `i32` can count; a
    /// link of a rank or side that does not exist; two links of one side; a link given from one end only; or joined
    /// sides of different lengths.
    pub fn of_blocks<const N: usize>(blocks: &[[usize; N]], links: &[Link]) -> Result<Self> {
        let links = links.iter().map(|link| (link.rank, link.side, link.neighbour, link.symmetry));
        Self::joined(N, block_tiles(blocks)?, links)
    }
}

/// A tile for each block.
pub(super) fn block_tiles<const N: usize>(blocks: &[[usize; N]]) -> Result<Vec<Tile>> {
    if !(1..=AXES).contains(&N) || blocks.is_empty() {
        return Err(refuse(format!("{} blocks with {N} axes; 1 to {AXES}", blocks.len())));
    }
    let proper = |cells: &usize| *cells > 0 && i32::try_from(*cells).is_ok();
    if let Some(rank) = blocks.iter().position(|block| !block.iter().all(proper)) {
        return Err(refuse(format!("rank {rank} has a block of {:?} cells", blocks[rank])));
    }
    let tile = |(number, block): (usize, &[usize; N])| {
        Tile::new(&block.map(|cells| vec![0, cells]), number)
    };
    Ok(blocks.iter().enumerate().map(tile).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(rank: usize, side: Side, neighbour: usize, symmetry: Symmetry) -> Link {
        Link { rank, side, neighbour, symmetry }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (identity, turn) = (Symmetry::IDENTITY, Symmetry::QUARTER);
        let one_way = [link(0, Side::EAST, 1, identity)];
        let message = |links: &[Link]| {
            Topology::of_blocks(&[[4, 4], [4, 6]], links).unwrap_err().message().to_owned()
        };
        assert!(message(&one_way).contains("sides differ in length"));
        assert!(message(&[link(0, Side::EAST, 2, identity)]).contains("there are 2"));
        assert!(message(&[link(0, Side::ABOVE, 1, identity)]).contains("2 axes"));
        let twice = [link(0, Side::WEST, 0, turn), link(0, Side::WEST, 0, turn)];
        assert!(message(&twice).contains("already"));
        let alone = [link(0, Side::NORTH, 1, identity)];
        assert!(message(&alone).contains("is not joined to it"), "{}", message(&alone));
        assert!(Topology::of_blocks::<2>(&[], &[]).is_err());
        assert!(Topology::of_blocks(&[[0]], &[]).is_err());
        assert!(Topology::of_blocks(&[[1; 4]], &[]).is_err());
        assert!(Topology::of_blocks(&[[4]], &[link(0, Side::WEST, 0, turn)]).is_err());
    }

    #[test]
    fn every_symmetry_joins_two_blocks() {
        for symmetry in Symmetry::ALL {
            let back = Side::EAST.through(symmetry);
            let links = [link(0, Side::EAST, 1, symmetry), link(1, back, 0, symmetry.inverse())];
            let cells = if symmetry.swaps() { [5, 3] } else { [7, 5] };
            let topology = Topology::of_blocks(&[[3, 5], cells], &links).unwrap();
            let next = topology.neighbours(1).unwrap();
            assert_eq!((next.len(), next[0].side, next[0].rank), (1, back, 0), "{symmetry:?}");
        }
    }
}
