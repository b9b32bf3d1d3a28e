//! Who may touch a block at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock;

/// What an operation does with the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads any of them.
    Read,
    /// Writes any of them.
    Write,
    /// Touches one side of a split with this number: writes around a box, or reads the box.
    Split { split: u64, writes: bool },
}

impl Access {
    /// What somebody does who does both.
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
}

/// A lock for readers, one writer, or the two sides of one split: one that writes around its box, and readers of the box.
#[derive(Debug, Default)]
pub(crate) struct AccessLock {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    readers: usize,
    writes: bool,
    /// The number of the split whose sides are held.
    split: u64,
    box_readers: usize,
    writes_around: bool,
    waiting: usize,
    /// Of those waiting, the writers, whom later readers let pass.
    waiting_writers: usize,
}

impl State {
    fn admits(&self, access: Access) -> bool {
        let is_split = self.box_readers > 0 || self.writes_around;
        match access {
            _ if self.writes => false,
            Access::Read => !is_split && self.waiting_writers == 0,
            Access::Write => !is_split && self.readers == 0,
            Access::Split { split, writes } => {
                let fits = !is_split || split == self.split && !(writes && self.writes_around);
                fits && self.readers == 0
            }
        }
    }

    fn enter(&mut self, access: Access) {
        match access {
            Access::Read => self.readers += 1,
            Access::Write => self.writes = true,
            Access::Split { split, writes } => {
                self.split = split;
                if writes {
                    self.writes_around = true;
                } else {
                    self.box_readers += 1;
                }
            }
        }
    }

    fn leave(&mut self, access: Access) {
        match access {
            Access::Read => self.readers -= 1,
            Access::Write => self.writes = false,
            Access::Split { writes: true, .. } => self.writes_around = false,
            Access::Split { writes: false, .. } => self.box_readers -= 1,
        }
    }
}

impl AccessLock {
    /// Blocks until the access is admitted.
    pub(crate) fn hold(&self, access: Access) -> Guard<'_> {
        let mut state = lock(&self.state);
        if !state.admits(access) {
            let writer = usize::from(access == Access::Write);
            state.waiting += 1;
            state.waiting_writers += writer;
            while !state.admits(access) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting -= 1;
            state.waiting_writers -= writer;
        }
        state.enter(access);
        drop(state);
        Guard { lock: self, access }
    }

    /// As [`hold`](Self::hold), or `None` where it would block.
    pub(crate) fn try_hold(&self, access: Access) -> Option<Guard<'_>> {
        let mut state = lock(&self.state);
        if !state.admits(access) {
            return None;
        }
        state.enter(access);
        drop(state);
        Some(Guard { lock: self, access })
    }
}

/// An access that is admitted, until this is dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    lock: &'a AccessLock,
    access: Access,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.lock.state);
        state.leave(self.access);
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.lock.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    const READ: Access = Access::Read;
    const WRITE: Access = Access::Write;
    const AROUND: Access = Access::Split { split: 7, writes: true };
    const BOX: Access = Access::Split { split: 7, writes: false };
    const OTHER_BOX: Access = Access::Split { split: 8, writes: false };

    #[test]
    fn who_is_admitted_beside_whom() {
        for (held, admitted) in [
            (READ, &[READ][..]),
            (WRITE, &[]),
            (AROUND, &[BOX]),
            (BOX, &[BOX, AROUND]),
            (OTHER_BOX, &[OTHER_BOX]),
        ] {
            let lock = AccessLock::default();
            let held = lock.hold(held);
            for access in [READ, WRITE, AROUND, BOX, OTHER_BOX] {
                let expected = admitted.contains(&access);
                assert_eq!(lock.try_hold(access).is_some(), expected, "{access:?} beside {held:?}");
            }
            drop(held);
            assert!(lock.try_hold(WRITE).is_some());
        }
    }

    #[test]
    fn an_operation_on_both_sides_of_a_split_writes() {
        assert_eq!(READ.and(READ), READ);
        assert_eq!(READ.and(WRITE), WRITE);
        assert_eq!(BOX.and(BOX), BOX);
        assert_eq!(AROUND.and(BOX), AROUND);
        assert_eq!(AROUND.and(AROUND), WRITE);
        assert_eq!(BOX.and(OTHER_BOX), WRITE);
        assert_eq!(BOX.and(READ), WRITE);
    }

    #[test]
    fn nobody_meets_a_writer_and_all_have_their_turn() {
        let (lock, inside) = (AccessLock::default(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for access in [READ, WRITE, AROUND, BOX, OTHER_BOX, WRITE, READ] {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let _held = lock.hold(access);
                        let before = inside.fetch_add(1, Ordering::SeqCst);
                        assert!(access != WRITE || before == 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(lock.try_hold(WRITE).is_some());
    }
}
