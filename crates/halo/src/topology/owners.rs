//! Which rank owns which block.

use runtime_core::Result;

use super::{Owners, Topology, refuse};

impl Topology {
    /// The same blocks on other ranks: `ranks` has the rank of each block. A rank may have any number of blocks, at
    /// least one. Its fields are then given block after block: see [`HaloExchange`](crate::HaloExchange).
    ///
    /// Without this call, each rank has the block with its number.
    ///
    /// ```
    /// use halo::Topology;
    ///
    /// // Eight blocks on two ranks.
    /// let topology = Topology::cartesian(&[16, 8], &[4, 2], &[true, true])?;
    /// let topology = topology.on_ranks(&[0, 0, 1, 1, 0, 0, 1, 1])?;
    /// assert_eq!((topology.ranks(), topology.block_count()), (2, 8));
    /// assert_eq!(topology.blocks_of(1)?, [2, 3, 6, 7]);
    /// assert_eq!(topology.rank_of(4)?, 0);
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless there is a rank for each block, and at least one block for each rank up to the highest.
    pub fn on_ranks(mut self, ranks: &[usize]) -> Result<Self> {
        let count = self.block_count();
        if ranks.len() != count {
            return Err(refuse(format!("ranks of {} blocks; there are {count}", ranks.len())));
        }
        let mut blocks: Vec<usize> = (0..count).collect();
        blocks.sort_by_key(|block| ranks[*block]);
        let mut starts = Vec::new();
        for (place, block) in blocks.iter().enumerate() {
            let (rank, next) = (ranks[*block], starts.len());
            if rank > next {
                return Err(refuse(format!("rank {next} has no block, rank {rank} has")));
            }
            if rank == next {
                starts.push(place);
            }
        }
        starts.push(count);
        self.owners = Some(Owners { ranks: ranks.to_vec(), blocks, starts });
        Ok(self)
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.owners.as_ref().map_or_else(|| self.block_count(), |owners| owners.starts.len() - 1)
    }

    /// The rank that has a block.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is no such block.
    pub fn rank_of(&self, block: usize) -> Result<usize> {
        self.check_block(block)?;
        Ok(self.owner(block))
    }

    /// As [`rank_of`](Self::rank_of), for a block that exists.
    pub(crate) fn owner(&self, block: usize) -> usize {
        self.owners.as_ref().map_or(block, |owners| owners.ranks[block])
    }

    /// The blocks of a rank, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is no such rank.
    pub fn blocks_of(&self, rank: usize) -> Result<Vec<usize>> {
        if rank >= self.ranks() {
            return Err(refuse(format!("rank {rank} of a topology of {}", self.ranks())));
        }
        Ok(match &self.owners {
            None => vec![rank],
            Some(Owners { blocks, starts, .. }) => blocks[starts[rank]..starts[rank + 1]].to_vec(),
        })
    }

    /// The ranks of all blocks, unless each rank has the block with its number.
    pub(crate) fn owners(&self) -> Option<&[usize]> {
        self.owners.as_ref().map(|owners| &owners.ranks[..])
    }

    /// The most blocks that a rank has.
    pub(crate) fn most_blocks(&self) -> usize {
        let most = |owners: &Owners| owners.starts.windows(2).map(|pair| pair[1] - pair[0]).max();
        self.owners.as_ref().and_then(most).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_a_rank_and_each_rank_a_block() {
        let topology = Topology::cartesian(&[8], &[4], &[true]).unwrap();
        for (ranks, message) in [
            (&[0, 1, 2][..], "ranks of 3 blocks; there are 4"),
            (&[0, 2, 2, 0], "rank 1 has no block, rank 2 has"),
            (&[1, 1, 2, 3], "rank 0 has no block, rank 1 has"),
            (&[0, 1, 1, usize::MAX], "rank 2 has no block, rank 18446744073709551615 has"),
        ] {
            assert_eq!(topology.clone().on_ranks(ranks).unwrap_err().message(), message);
        }
        let topology = topology.on_ranks(&[1, 0, 1, 1]).unwrap();
        assert_eq!([0, 1].map(|rank| topology.blocks_of(rank).unwrap()), [vec![1], vec![0, 2, 3]]);
        assert_eq!(topology.most_blocks(), 3);
        assert_eq!(topology.blocks_of(2).unwrap_err().message(), "rank 2 of a topology of 2");
        assert_eq!(topology.rank_of(4).unwrap_err().message(), "block 4 of a topology of 4");
        assert_eq!(topology.block(0).unwrap().start, [0, 0, 0]);
    }
}
