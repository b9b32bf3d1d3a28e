//! A box of cells, cut along its axes.

use runtime_core::Result;

use super::symmetry::{AXES, Symmetry};
use super::{Side, Tile, Topology, check_size, even_cuts, refuse};
use crate::communicator::MAX_RANKS;

impl Topology {
    /// A box of `cells` cells along one to three axes. Each axis is cut into `ranks` blocks, whose sizes differ by at
    /// most one cell.
    ///
    /// The cells beyond both ends of a periodic axis are the cells at its other end. Beyond the ends of any other axis
    /// there are no cells. Ranks are numbered with x fastest.
    ///
    /// ```
    /// use halo::Topology;
    ///
    /// let channel = Topology::cartesian(&[100, 60], &[3, 1], &[true, false])?;
    /// assert_eq!(channel.ranks(), 3);
    /// assert_eq!(channel.block(1)?.start, [33, 0, 0]);
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless the three slices have the same length, one to three; if an axis has no rank, more ranks
    /// than cells, or more than 2147483647 cells; or for more than 16777216 ranks.
    pub fn cartesian(cells: &[usize], ranks: &[usize], periodic: &[bool]) -> Result<Self> {
        if cells.len() != ranks.len() {
            return Err(refuse(format!(
                "cells along {} axes, ranks along {}",
                cells.len(),
                ranks.len()
            )));
        }
        check_size(cells, ranks)?;
        let cuts = cells.iter().zip(ranks).map(|(cells, ranks)| even_cuts(*cells, *ranks));
        Self::cartesian_cut(&cuts.collect::<Result<Vec<_>>>()?, periodic)
    }

    /// As [`cartesian`](Self::cartesian), cut at the given positions. For each axis, `cuts` holds 0, the first cell of
    /// every further block, and the number of cells.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for no axis or more than three; if the cuts of an axis do not start with 0 and increase; for
    /// more than 16777216 ranks or 2147483647 cells along an axis; or unless `periodic` has one entry for each axis.
    pub fn cartesian_cut(cuts: &[Vec<usize>], periodic: &[bool]) -> Result<Self> {
        let axes = cuts.len();
        if !(1..=AXES).contains(&axes) || periodic.len() != axes {
            let message =
                format!("{axes} axes, {} of them periodic or not; 1 to {AXES}", periodic.len());
            return Err(refuse(message));
        }
        let increasing = |cuts: &Vec<usize>| {
            cuts.len() > 1 && cuts[0] == 0 && cuts.windows(2).all(|pair| pair[0] < pair[1])
        };
        if let Some(cuts) = cuts.iter().find(|cuts| !increasing(cuts)) {
            return Err(refuse(format!("cuts {cuts:?}; they begin with 0 and increase")));
        }
        let cells: Vec<usize> = cuts.iter().filter_map(|cuts| cuts.last().copied()).collect();
        let ranks: Vec<usize> = cuts.iter().map(|cuts| cuts.len() - 1).collect();
        check_size(&cells, &ranks)?;
        let wraps = |side: &Side| (0..axes).all(|axis| side.0[axis] == 0 || periodic[axis]);
        let links = Side::all(axes).filter(wraps).map(|side| (0, side, 0, Symmetry::IDENTITY));
        Self::joined(axes, vec![Tile::new(cuts, 0)], links)
    }

    /// As [`cartesian`](Self::cartesian), cut into the [`blocks`](Self::blocks) with the smallest surfaces.
    ///
    /// # Errors
    ///
    /// As [`blocks`](Self::blocks) and [`cartesian`](Self::cartesian).
    pub fn balanced(cells: &[usize], ranks: usize, periodic: &[bool]) -> Result<Self> {
        let free = vec![0; cells.len()];
        Self::cartesian(cells, &Self::blocks(cells, &free, ranks)?, periodic)
    }

    /// The number of blocks along each axis, for as many ranks, such that the surfaces between blocks have the fewest
    /// cells. `given` has the numbers that are decided already, and 0 for the others. Of equal choices, the one that
    /// cuts earlier axes more often is taken.
    ///
    /// ```
    /// use halo::Topology;
    ///
    /// assert_eq!(Topology::blocks(&[100, 60], &[0, 0], 6)?, [3, 2]);
    /// assert_eq!(Topology::blocks(&[100, 60], &[0, 1], 6)?, [6, 1]);
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless there are one to three axes and a number for each; for no ranks, or more than 16777216;
    /// for more than 2147483647 cells along an axis; or if the cells cannot be cut into so many blocks.
    pub fn blocks(cells: &[usize], given: &[usize], ranks: usize) -> Result<Vec<usize>> {
        let axes = cells.len();
        if !(1..=AXES).contains(&axes) || given.len() != axes {
            let message = format!("{axes} axes, {} numbers of blocks; 1 to {AXES}", given.len());
            return Err(refuse(message));
        }
        if !(1..=MAX_RANKS).contains(&ranks) {
            return Err(refuse(format!("{ranks} ranks; 1 to {MAX_RANKS}")));
        }
        check_size(cells, &[])?;
        let of = |axis: usize| cells.get(axis).copied().unwrap_or(1);
        let choices = |axis: usize, ranks: usize| {
            let given = given.get(axis).copied().unwrap_or(1);
            let range = if given == 0 { 1..=ranks.min(of(axis)) } else { given..=given };
            range.rev().filter(move |blocks| *blocks > 0 && ranks.is_multiple_of(*blocks))
        };
        let surface = |blocks: &[usize; AXES]| -> u128 {
            let all: u128 = (0..AXES).map(|axis| of(axis) as u128).product();
            (0..AXES).map(|axis| all / (of(axis).max(1) as u128) * (blocks[axis] as u128 - 1)).sum()
        };
        let mut best: Option<(u128, [usize; AXES])> = None;
        for first in choices(0, ranks) {
            for second in choices(1, ranks / first) {
                let third = ranks / first / second;
                if !choices(2, third).any(|blocks| blocks == third) {
                    continue;
                }
                let blocks = [first, second, third];
                if best.is_none_or(|(least, _)| surface(&blocks) < least) {
                    best = Some((surface(&blocks), blocks));
                }
            }
        }
        let Some((_, blocks)) = best else {
            let fixed = given.iter().filter(|blocks| **blocks > 0);
            let fixed = fixed.fold(1_u128, |all, blocks| all.saturating_mul(*blocks as u128));
            let why = if !(ranks as u128).is_multiple_of(fixed) {
                format!("{ranks} is no multiple of {fixed}")
            } else if given.contains(&0) {
                "too few cells along an axis".to_owned()
            } else {
                format!("these are {fixed} blocks, one for each rank")
            };
            let message = format!(
                "{cells:?} cells for {ranks} ranks, in {given:?} blocks (0: any number): {why}"
            );
            return Err(refuse(message));
        };
        Ok(blocks[..axes].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_rank_is_its_own_neighbour() {
        for axes in 1..=3_u32 {
            let n = axes as usize;
            let topology = Topology::cartesian(&vec![4; n], &vec![1; n], &vec![true; n]).unwrap();
            let neighbours = topology.neighbours(0).unwrap();
            assert_eq!(neighbours.len(), 3_usize.pow(axes) - 1);
            assert!(neighbours.iter().all(|next| next.rank == 0));
        }
    }

    #[test]
    fn open_ends_have_no_neighbours() {
        let topology = Topology::cartesian(&[4, 4], &[2, 1], &[false, true]).unwrap();
        let sides: Vec<Side> =
            topology.neighbours(0).unwrap().iter().map(|next| next.side).collect();
        assert_eq!(
            sides,
            [Side::SOUTH, Side::SOUTH_EAST, Side::EAST, Side::NORTH, Side::NORTH_EAST]
        );
        let (_, gaps) = topology.surroundings(0, &[[1; 2]; 3]).unwrap();
        assert!(gaps.iter().all(|gap| !gap.is_corner));
        assert_eq!(gaps.len(), 3);
    }

    #[test]
    fn cells_are_spread_evenly() {
        let topology = Topology::cartesian(&[11, 5, 3], &[4, 2, 3], &[true; 3]).unwrap();
        let mut covered = vec![0; 11 * 5 * 3];
        for rank in 0..topology.ranks() {
            let block = topology.block(rank).unwrap();
            assert!(block.cells[0] - 2 <= 1 && block.cells[1] - 2 <= 1 && block.cells[2] == 1);
            for k in 0..block.cells[2] {
                for j in 0..block.cells[1] {
                    for i in 0..block.cells[0] {
                        let [x, y, z] = block.start;
                        covered[(x + i) + 11 * ((y + j) + 5 * (z + k))] += 1;
                    }
                }
            }
        }
        assert!(covered.iter().all(|count| *count == 1));
    }

    #[test]
    fn blocks_have_the_smallest_surfaces() {
        for (cells, given, ranks, expected) in [
            (&[64, 64][..], &[0, 0][..], 4, &[2, 2][..]),
            (&[64, 64], &[0, 0], 2, &[2, 1]),
            (&[16, 64], &[0, 0], 2, &[1, 2]),
            (&[64, 64, 64], &[0, 0, 0], 8, &[2, 2, 2]),
            (&[64, 64, 64], &[0, 0, 1], 8, &[4, 2, 1]),
            (&[7], &[0], 7, &[7]),
            (&[2, 100], &[0, 0], 6, &[1, 6]),
        ] {
            assert_eq!(Topology::blocks(cells, given, ranks).unwrap(), expected);
        }
        for (cells, given, ranks) in [
            (&[4][..], &[0][..], 5),
            (&[4, 4], &[3, 0], 4),
            (&[4, 4], &[0], 1),
            (&[], &[], 1),
            (&[4], &[0], 0),
            (&[4, 4], &[5, 1], 5),
        ] {
            let error = Topology::blocks(cells, given, ranks)
                .and_then(|blocks| Topology::cartesian(cells, &blocks, &vec![false; cells.len()]));
            let kind = error.unwrap_err().kind();
            assert_eq!(
                kind,
                runtime_core::ErrorKind::InvalidArgument,
                "{cells:?} {given:?} {ranks}"
            );
        }
    }

    #[test]
    fn an_error_says_why_there_are_no_such_blocks() {
        for (given, ranks, why) in [
            ([3, 0], 4, "4 is no multiple of 3"),
            ([1, 0], 5, "too few cells along an axis"),
            ([3, 1], 6, "these are 3 blocks, one for each rank"),
            ([usize::MAX, 2], 6, "6 is no multiple of 36893488147419103230"),
        ] {
            let error = Topology::blocks(&[4, 4], &given, ranks).unwrap_err().to_string();
            assert!(error.contains(why), "{error} lacks {why:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (cells, ranks, periodic) in [
            (vec![4], vec![0], vec![true]),
            (vec![4], vec![5], vec![true]),
            (vec![], vec![], vec![]),
            (vec![4; 4], vec![1; 4], vec![true; 4]),
            (vec![4], vec![1, 1], vec![true]),
            (vec![4], vec![1], vec![]),
            (vec![usize::MAX], vec![1], vec![true]),
        ] {
            let error = Topology::cartesian(&cells, &ranks, &periodic).unwrap_err();
            assert_eq!(error.kind(), runtime_core::ErrorKind::InvalidArgument, "{cells:?}");
        }
        assert!(Topology::cartesian_cut(&[vec![0, 3, 3]], &[true]).is_err());
        // Checked before anything of that size is made.
        let most = i32::MAX as usize;
        for (cells, ranks, message) in [
            ([most, 1], [most, 1], "2147483647 x 1 ranks; at most 16777216"),
            ([most, most], [0, most], "0 x 2147483647 ranks; at most 16777216"),
            ([most, most], [1 << 16, 1 << 9], "65536 x 512 ranks; at most 16777216"),
            ([4, most + 1], [1, 1], "2147483648 cells along an axis; at most 2147483647"),
        ] {
            let error = Topology::cartesian(&cells, &ranks, &[true, true]).unwrap_err();
            assert_eq!(error.message(), message);
        }
        for cells in [[1 << 43; 3], [4, most + 1, 1], [usize::MAX; 3]] {
            let error = Topology::balanced(&cells, 2, &[false; 3]).unwrap_err();
            assert!(
                error.message().ends_with("cells along an axis; at most 2147483647"),
                "{error}"
            );
        }
        let error = Topology::cubed_sphere(most, [most, 1]).unwrap_err();
        assert_eq!(error.message(), "6 x 2147483647 x 1 ranks; at most 16777216");
        let topology = Topology::cartesian(&[4], &[2], &[true]).unwrap();
        assert_eq!(topology.block(2).unwrap_err().message(), "block 2 of a topology of 2");
    }
}
