//! The order of work: which work comes after which.

use std::collections::BTreeMap;

/// One piece of work: the stream's number, and its place in the stream, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) stream: u64,
    pub(crate) place: u64,
}

/// For each stream, up to which place its work is ordered before something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(BTreeMap<u64, u64>);

impl Clock {
    pub(crate) fn covers(&self, stamp: Stamp) -> bool {
        self.0.get(&stamp.stream).is_some_and(|place| *place >= stamp.place)
    }

    pub(crate) fn add(&mut self, stamp: Stamp) {
        let place = self.0.entry(stamp.stream).or_default();
        *place = stamp.place.max(*place);
    }

    pub(crate) fn join(&mut self, other: &Self) {
        other.stamps().for_each(|stamp| self.add(stamp));
    }

    pub(crate) fn stamps(&self) -> impl Iterator<Item = Stamp> {
        self.0.iter().map(|(&stream, &place)| Stamp { stream, place })
    }

    /// A stamp of `self` that the other does not cover.
    pub(crate) fn beyond(&self, other: &Self) -> Option<Stamp> {
        self.stamps().find(|stamp| !other.covers(*stamp))
    }
}
