//! What a grid is for its fields and launches, whatever its number of axes.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use halo::Topology;
use halo::communicator::Communicator;
use parking_lot::{Mutex, MutexGuard, ReentrantMutex};
use runtime_core::Device;

use crate::exchanges::Exchanges;
use crate::kernel::Kernels;
use crate::reducer::Reducer;

/// A grid of any number of axes, and what it keeps from one launch to the next.
pub(crate) struct Domain {
    pub(crate) rank: usize,
    /// The cells of all ranks, or of one tile of a cubed sphere.
    pub(crate) cells: [usize; 3],
    /// Whether an axis has no ends.
    pub(crate) periodic: [bool; 3],
    /// The number of tiles, and the tile of this rank.
    pub(crate) tiles: usize,
    pub(crate) tile: usize,
    /// The number of ghosts at each side.
    pub(crate) width: usize,
    /// The numbers of blocks, or of those of one tile.
    pub(crate) blocks: [usize; 3],
    pub(crate) topology: Topology,
    /// The cells of this rank.
    pub(crate) block: [Range<usize>; 3],
    /// The cells of the blocks at both ends of each axis.
    pub(crate) at_ends: [[usize; 2]; 3],
    pub(crate) communicator: Arc<dyn Communicator>,
    pub(crate) device: Device,
    pub(crate) timeout: Duration,
    pub(crate) state: Mutex<State>,
    /// Locked during an exchange: whether one is in progress. The state is not, because code of the program runs
    /// meanwhile.
    pub(crate) exchanging: ReentrantMutex<Cell<bool>>,
}

/// What a grid keeps from one launch to the next.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) kernels: Kernels,
    pub(crate) exchanges: Exchanges,
    /// The number of resets of the communicator. Ghosts that were filled before a reset are stale.
    pub(crate) resets: u64,
    pub(crate) reducer: Reducer,
    /// For each vector, the number of fields that were made of each component.
    pub(crate) levels: Vec<[u64; 3]>,
}

impl Domain {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        // Messages of exchanges that failed may have the tags of this grid's exchanges, also if others were reset.
        let resets = self.communicator.collectives().resets();
        if state.resets != resets {
            state.exchanges.reset(resets);
            state.resets = resets;
        }
        state
    }

    /// The number of this rank.
    pub(crate) fn number(&self) -> usize {
        self.communicator.rank()
    }

    /// Whether nothing lies beyond the block, at both ends of each axis.
    pub(crate) fn is_end(&self) -> [[bool; 2]; 3] {
        std::array::from_fn(|axis| {
            let Range { start, end } = self.block[axis];
            let open = !self.periodic[axis];
            [open && start == 0, open && end == self.cells[axis]]
        })
    }

    /// Whether blocks have neighbours along an axis, possibly themselves.
    pub(crate) fn is_joined(&self, axis: usize) -> bool {
        self.periodic[axis] || self.blocks[axis] > 1
    }

    /// Whether there are other ranks.
    pub(crate) fn has_others(&self) -> bool {
        self.topology.ranks() > 1
    }

    /// The index of a point along an axis, for which the last face of a periodic axis is the first one.
    pub(crate) fn wrapped(&self, axis: usize, at: usize) -> usize {
        if self.periodic[axis] && self.tiles == 1 { at % self.cells[axis] } else { at }
    }
}
