//! The exchanges of a grid: one for each set of fields whose ghosts were stale at once.

use halo::HaloExchange;
use runtime_core::{DType, Result, Traffic};

use crate::shape::{Need, Shape};

/// The exchanges of a grid.
#[derive(Default)]
pub(crate) struct Exchanges {
    made: Vec<(Vec<Kind>, HaloExchange)>,
    count: u64,
    sent: Traffic,
    /// Differs on ranks that made other launches.
    sequence: u64,
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
    /// The number of exchanges so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The messages that they sent to other ranks.
    pub(crate) fn sent(&self) -> Traffic {
        self.sent
    }

    /// Forgets all exchanges, which are made again when they are needed.
    pub(crate) fn reset(&mut self) {
        self.made.clear();
        self.sequence = 0;
    }

    /// Differs on ranks that made other launches.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Notes a launch of the stencil with this hash.
    pub(crate) fn begin_launch(&mut self, hash: u64) {
        self.sequence = self.sequence.wrapping_mul(31).wrapping_add(hash | 1);
    }

    /// The exchange of fields of these kinds, which is about to be used. `make` makes it for a channel when it is first
    /// needed.
    pub(crate) fn of(
        &mut self,
        kinds: impl Iterator<Item = Kind> + Clone,
        make: impl FnOnce(u32) -> Result<HaloExchange>,
    ) -> Result<&mut HaloExchange> {
        let known = self.made.iter().position(|(made, _)| made.iter().copied().eq(kinds.clone()));
        let index = match known {
            Some(index) => index,
            None => {
                let channel = u32::try_from(self.made.len()).unwrap_or(u32::MAX);
                self.made.push((kinds.collect(), make(channel)?));
                self.made.len() - 1
            }
        };
        let exchange = &mut self.made[index].1;
        self.count += 1;
        for (_, bytes) in exchange.sends() {
            self.sent.count += 1;
            self.sent.bytes += bytes as u64;
        }
        exchange.set_token(self.sequence);
        Ok(exchange)
    }
}
