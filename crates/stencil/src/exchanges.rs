//! The exchanges of a grid: one for each set of fields whose ghosts were stale at once.

use halo::HaloExchange;
use runtime_core::{DType, Result, Traffic};

use crate::hash::hash_of_numbers;
use crate::shape::{Need, Shape};

/// The exchanges of a grid.
#[derive(Default)]
pub(crate) struct Exchanges {
    made: Vec<Made>,
    /// The number of exchanges that were made since the last reset, which have a channel each.
    channels: u32,
    count: u64,
    sent: Traffic,
    /// Differs on ranks that made other launches.
    sequence: u64,
    /// The number of the grid among those of its communicator.
    grid: u64,
    /// The sequence at the latest reset.
    origin: u64,
}

/// An exchange, and the kinds of its fields.
pub(crate) struct Made {
    kinds: Vec<Kind>,
    pub(crate) exchange: HaloExchange,
}

/// What two fields must have in common to share an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    dtype: DType,
    staggered: [bool; 3],
    need: Need,
    /// The axis along which a component of a vector points.
    component: Option<usize>,
}

impl Kind {
    pub(crate) fn new(shape: &Shape, need: Need, component: Option<usize>) -> Self {
        Self { dtype: shape.dtype, staggered: shape.staggered, need, component }
    }
}

impl Exchanges {
    /// Those of the grid with this number among those of its communicator, after this number of resets.
    pub(crate) fn new(grid: u64, resets: u64) -> Self {
        let mut new = Self { grid, ..Self::default() };
        new.reset(resets);
        new
    }

    /// The number of the grid, which is the same on all ranks.
    pub(crate) fn grid(&self) -> u64 {
        self.grid
    }

    /// The number of exchanges so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The messages that they sent to other ranks.
    pub(crate) fn sent(&self) -> Traffic {
        self.sent
    }

    /// Forgets all exchanges, which are made again when they are needed. This is the number of resets so far.
    pub(crate) fn reset(&mut self, resets: u64) {
        self.made.clear();
        self.origin = hash_of_numbers([self.grid, resets].into_iter());
        (self.channels, self.sequence) = (0, self.origin);
    }

    /// Differs on other grids of the communicator, and after other numbers of resets.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// Differs on ranks that made other launches.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Notes a launch of the stencil with this hash.
    pub(crate) fn begin_launch(&mut self, hash: u64) {
        self.sequence = hash_of_numbers([self.sequence, hash].into_iter());
    }

    /// Takes out the exchange of fields of these kinds, which is about to be used. `make` makes it for a channel when
    /// it is first needed.
    pub(crate) fn take(
        &mut self,
        kinds: impl Iterator<Item = Kind> + Clone,
        make: impl FnOnce(u32) -> Result<HaloExchange>,
    ) -> Result<Made> {
        let known = self.made.iter().position(|made| made.kinds.iter().copied().eq(kinds.clone()));
        let mut made = match known {
            Some(index) => self.made.swap_remove(index),
            None => {
                let exchange = make(self.channels)?;
                self.channels += 1;
                Made { kinds: kinds.collect(), exchange }
            }
        };
        self.count += 1;
        for (_, bytes) in made.exchange.sends() {
            self.sent.count += 1;
            self.sent.bytes += bytes as u64;
        }
        made.exchange.set_token(self.sequence);
        Ok(made)
    }

    /// Gives an exchange back after its use.
    pub(crate) fn put_back(&mut self, made: Made) {
        self.made.push(made);
    }
}
