//! Rules for concurrent access to a block.

use std::sync::{Condvar, Mutex, PoisonError};

use smallvec::SmallVec;

use crate::lock;

/// Usually at most this many operations use a block at a time. Longer lists are allocated on the heap.
const FEW: usize = 4;

/// The kind of access of an operation to the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads any bytes.
    Read,
    /// Writes any bytes.
    Write,
    /// Touches one side of the split with this number: writes outside a box, or reads the box.
    Split { split: u64, writes: bool },
}

impl Access {
    /// The access of an operation that makes both accesses.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Split { split: one, writes: a }, Self::Split { split: two, writes: b })
                if one == two && !(a && b) =>
            {
                Self::Split { split: one, writes: a || b }
            }
            (Self::Read, Self::Read) => Self::Read,
            _ => Self::Write,
        }
    }

    /// Whether two operations may access a block at the same time.
    fn fits(self, other: Self) -> bool {
        match (self, other) {
            (Self::Split { split: one, writes: a }, Self::Split { split: two, writes: b }) => {
                one == two && !(a && b)
            }
            (one, other) => one == Self::Read && other == Self::Read,
        }
    }
}

/// A lock for readers, one writer, or the two sides of one split: one operation that writes outside the box, and
/// readers of the box.
///
/// Accesses are admitted in order: an access is not admitted before a waiting access that it would delay.
#[derive(Debug, Default)]
pub(crate) struct AccessLock {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inside: SmallVec<[Access; FEW]>,
    /// With their numbers, in order of arrival.
    waiting: SmallVec<[(u64, Access); FEW]>,
    /// The number of the next access that waits.
    next: u64,
}

impl State {
    /// Whether this access is compatible with the admitted accesses and with all waiting accesses before this number.
    fn admits(&self, access: Access, number: u64) -> bool {
        let before = self.waiting.iter().take_while(|waiting| waiting.0 < number);
        self.inside.iter().all(|other| access.fits(*other))
            && before.map(|waiting| waiting.1).all(|other| access.fits(other))
    }
}

impl AccessLock {
    /// Blocks until the access is admitted.
    pub(crate) fn hold(&self, access: Access) -> Guard<'_> {
        let mut state = lock(&self.state);
        let number = state.next;
        if !state.admits(access, number) {
            state.next += 1;
            state.waiting.push((number, access));
            while !state.admits(access, number) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting.retain(|waiting| waiting.0 != number);
        }
        state.inside.push(access);
        drop(state);
        Guard { lock: self, access }
    }

    /// As [`hold`](Self::hold), but returns `None` instead of blocking.
    pub(crate) fn try_hold(&self, access: Access) -> Option<Guard<'_>> {
        let mut state = lock(&self.state);
        if !state.admits(access, state.next) {
            return None;
        }
        state.inside.push(access);
        drop(state);
        Some(Guard { lock: self, access })
    }
}

/// An admitted access. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    lock: &'a AccessLock,
    access: Access,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.lock.state);
        if let Some(index) = state.inside.iter().position(|access| *access == self.access) {
            state.inside.swap_remove(index);
        }
        let is_awaited = !state.waiting.is_empty();
        drop(state);
        if is_awaited {
            self.lock.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const READ: Access = Access::Read;
    const WRITE: Access = Access::Write;
    const OUTSIDE: Access = Access::Split { split: 7, writes: true };
    const BOX: Access = Access::Split { split: 7, writes: false };
    const OTHER_BOX: Access = Access::Split { split: 8, writes: false };

    const ALL: [Access; 5] = [READ, WRITE, OUTSIDE, BOX, OTHER_BOX];

    /// The accesses that are admitted while `held` is held.
    fn beside(held: Access) -> &'static [Access] {
        match held {
            READ => &[READ],
            OUTSIDE => &[BOX],
            BOX => &[BOX, OUTSIDE],
            OTHER_BOX => &[OTHER_BOX],
            _ => &[],
        }
    }

    #[test]
    fn compatible_accesses_are_admitted_together() {
        for held in ALL {
            let lock = AccessLock::default();
            let guard = lock.hold(held);
            for access in ALL {
                let expected = beside(held).contains(&access);
                assert_eq!(lock.try_hold(access).is_some(), expected, "{access:?} beside {held:?}");
            }
            drop(guard);
            assert!(lock.try_hold(WRITE).is_some());
        }
    }

    /// A new access is admitted if it is compatible with the admitted accesses and with the access that waits.
    #[test]
    fn a_later_access_does_not_overtake_one_it_conflicts_with() {
        for held in ALL {
            for waits in ALL.into_iter().filter(|waits| !beside(held).contains(waits)) {
                let lock = AccessLock::default();
                let guard = lock.hold(held);
                thread::scope(|scope| {
                    let waiting = scope.spawn(|| drop(lock.hold(waits)));
                    while super::lock(&lock.state).waiting.is_empty() {
                        thread::yield_now();
                    }
                    for access in ALL {
                        let expected = [held, waits].iter().all(|o| beside(*o).contains(&access));
                        let admitted = lock.try_hold(access).is_some();
                        assert_eq!(admitted, expected, "{access:?}: {held:?}, {waits:?} waits");
                    }
                    drop(guard);
                    waiting.join().unwrap();
                });
                for access in ALL {
                    assert!(lock.try_hold(access).is_some(), "{access:?} after {waits:?}");
                }
            }
        }
    }

    #[test]
    fn an_operation_on_both_sides_of_a_split_writes() {
        assert_eq!(READ.and(READ), READ);
        assert_eq!(READ.and(WRITE), WRITE);
        assert_eq!(BOX.and(BOX), BOX);
        assert_eq!(OUTSIDE.and(BOX), OUTSIDE);
        assert_eq!(OUTSIDE.and(OUTSIDE), WRITE);
        assert_eq!(BOX.and(OTHER_BOX), WRITE);
        assert_eq!(BOX.and(READ), WRITE);
    }

    #[test]
    fn compatible_accesses_overlap_and_all_are_admitted() {
        let (lock, inside) = (AccessLock::default(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for access in [READ, WRITE, OUTSIDE, BOX, OTHER_BOX, OUTSIDE, BOX, WRITE, READ] {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let held = lock.hold(access);
                        let mut met = super::lock(inside);
                        let may = met.iter().all(|other| beside(*other).contains(&access));
                        assert!(may, "{access:?} beside {met:?}");
                        met.push(access);
                        drop(met);
                        thread::yield_now();
                        let mut met = super::lock(inside);
                        let own = met.iter().position(|other| *other == access).unwrap();
                        met.swap_remove(own);
                        drop(met);
                        drop(held);
                    }
                });
            }
        });
        assert!(lock.try_hold(WRITE).is_some());
    }
}
