//! The loans that a rank offers to others.
#![expect(unsafe_code, reason = "views pass to other threads")]

use parking_lot::Mutex;
use runtime_core::{AnyView, Event};
use smallvec::SmallVec;

/// Up to this number of neighbours, the lists need no allocation.
pub(super) const FEW: usize = 8;

/// The loans of one rank.
#[derive(Default)]
pub(super) struct LoanTable {
    pub(super) open: Mutex<SmallVec<[OpenLoan; 1]>>,
    pub(super) declined: Mutex<DeclinedLoans>,
}

/// Loans that a rank does not make, or made in vain.
#[derive(Default)]
pub(super) struct DeclinedLoans {
    /// Of exchanges by messages: a tag, and the number of tags before it.
    pub(super) tags: SmallVec<[(u64, u64); 2]>,
    /// Of the latest exchanges with another token than that of a peer: their tags and tokens.
    tokens: SmallVec<[(u64, u64); 1]>,
}

impl DeclinedLoans {
    /// The exchanges with another token that are remembered.
    const TOKENS: usize = 32;

    pub(super) fn refuse(&mut self, tag: u64, token: u64) {
        self.tokens.retain(|(of, _)| *of != tag);
        if self.tokens.len() == Self::TOKENS {
            self.tokens.remove(0);
        }
        self.tokens.push((tag, token));
    }

    /// The token of the exchange with this tag, if it is another than that of a peer.
    pub(super) fn token(&self, tag: u64) -> Option<u64> {
        self.tokens.iter().find(|(of, _)| *of == tag).map(|(_, token)| *token)
    }
}

/// The views that a rank lends at the moment.
pub(super) struct OpenLoan {
    pub(super) tag: u64,
    /// The token of the lender's exchange.
    pub(super) token: u64,
    pub(super) views: *const AnyView<'static>,
    pub(super) count: usize,
    pub(super) ready: Event,
    pub(super) readers: SmallVec<[(usize, ReadState); FEW]>,
}

// SAFETY: any thread may read views, and `LoanSession` keeps them in place while other threads may read them.
unsafe impl Send for OpenLoan {}

/// The progress of a peer with a loan.
#[derive(Debug)]
pub(super) enum ReadState {
    NotYet,
    Now,
    /// Holds the event after the reading. `None` if the reading failed.
    Over(Option<Event>),
}

/// Whether a peer is reading, or may still start to read.
pub(super) fn is_open((_, reading): &(usize, ReadState)) -> bool {
    !matches!(reading, ReadState::Over(_))
}

impl OpenLoan {
    pub(super) fn reading(&mut self, rank: usize) -> Option<&mut ReadState> {
        self.readers.iter_mut().find(|reader| reader.0 == rank).map(|reader| &mut reader.1)
    }
}
