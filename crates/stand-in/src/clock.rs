//! The order of work on different streams.

use std::collections::BTreeMap;

/// The identity of a piece of work: the number of its stream, and its place in the stream, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) stream: u64,
    pub(crate) place: u64,
}

/// A set of work: for each stream, all work up to a place.
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

    /// Work of `self` that is not in the other set.
    pub(crate) fn not_covered_by(&self, other: &Self) -> Option<Stamp> {
        self.stamps().find(|stamp| !other.covers(*stamp))
    }
}
