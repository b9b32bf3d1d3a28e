//! Two arrays of two parts under one memory budget of a device, in every state that accesses lead to: which parts have
//! memory, which guards are out, where the values are. Each action is made in each state, on arrays that were brought
//! there, and compared with a plain model.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]
#![expect(unsafe_code, reason = "guards of several parts are held in any order")]

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::time::Duration;

use array_buffer::{ArrayBuffer, MemoryBudget, PartMut, Parts, ReadGuard, WriteGuard};
use backend_sim::SimConfig;
use common::{Setup, row, values};
use ndarray::{Array1, Ix1};
use runtime_core::{ErrorKind, Stream};

/// The number of parts: two of each array.
const PARTS: usize = 4;
const LEN: usize = 3;
const BYTES: u64 = 8 * LEN as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read(usize),
    ReadWrite(usize),
    Write(usize),
    /// The guard of the part ends.
    End(usize),
    ReadHost(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Out {
    No,
    Reads,
    Writes,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Model {
    /// The parts that have memory, the least recently used first.
    there: Vec<usize>,
    out: [Out; PARTS],
    /// Whether the values are only on the device.
    dirty: [bool; PARTS],
}

/// What an action does.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Full,
}

impl Model {
    /// The outcome of an action, with room for some parts. `None` where the borrow checker does not let it be written.
    fn act(&mut self, action: Action, room: usize) -> Option<Outcome> {
        let part = match action {
            Action::Read(part) | Action::ReadWrite(part) | Action::Write(part) => part,
            Action::ReadHost(part) => {
                if self.out[part] == Out::Writes {
                    return None;
                }
                self.dirty[part] = false;
                return Some(Outcome::Done);
            }
            Action::End(part) => {
                self.dirty[part] |= self.out[part] == Out::Writes;
                let was = std::mem::replace(&mut self.out[part], Out::No);
                return (was != Out::No).then_some(Outcome::Done);
            }
        };
        if self.out[part] != Out::No {
            return None;
        }
        if !self.there.contains(&part) && self.there.len() == room {
            // Parts whose values are elsewhere leave first, and then the least recently used ones.
            let free = self.there.iter().filter(|part| self.out[**part] == Out::No);
            let Some(leaves) = free.min_by_key(|part| self.dirty[**part]).copied() else {
                return Some(Outcome::Full);
            };
            self.dirty[leaves] = false;
            self.there.retain(|known| *known != leaves);
        }
        self.there.retain(|known| *known != part);
        self.there.push(part);
        let reads = matches!(action, Action::Read(_));
        self.out[part] = if reads { Out::Reads } else { Out::Writes };
        Some(Outcome::Done)
    }
}

fn actions() -> impl Iterator<Item = Action> {
    (0..PARTS).flat_map(|part| {
        [
            Action::Read(part),
            Action::ReadWrite(part),
            Action::Write(part),
            Action::End(part),
            Action::ReadHost(part),
        ]
    })
}

/// A guard that is out, and the value of the part's elements after it.
enum Guard<'a> {
    Reads(ReadGuard<'a, f64, Ix1>),
    Writes(WriteGuard<'a, f64, Ix1>, f64),
}

struct Arrays<'a> {
    parts: Vec<*mut PartMut<'a, f64, Ix1>>,
    guards: [Option<Guard<'a>>; PARTS],
    values: [f64; PARTS],
}

impl<'a> Arrays<'a> {
    fn act(&mut self, action: Action, stream: &'a Stream) -> Outcome {
        let part = match action {
            Action::Read(part) | Action::ReadWrite(part) | Action::Write(part) => part,
            Action::ReadHost(part) => {
                // SAFETY: the model allows it only beside guards that read.
                let known = unsafe { &*self.parts[part] };
                assert_eq!(known.read_host().unwrap().to_vec(), [self.values[part]; LEN]);
                return Outcome::Done;
            }
            Action::End(part) => {
                match self.guards[part].take().unwrap() {
                    Guard::Reads(guard) => self.check(&guard, part, stream),
                    Guard::Writes(guard, value) => {
                        guard.commit().unwrap();
                        self.values[part] = value;
                    }
                }
                return Outcome::Done;
            }
        };
        // SAFETY: the part has no guard, as the model says.
        let known = unsafe { &mut *self.parts[part] };
        let taken = match action {
            Action::Read(_) => known.read(stream).map(Guard::Reads),
            Action::ReadWrite(_) => known.read_write(stream).map(|mut guard| {
                let found = guard.view_mut().unwrap().as_view().to_vec(stream).unwrap();
                assert_eq!(found, [self.values[part]; LEN]);
                Guard::Writes(guard, self.values[part] + 1.0)
            }),
            _ => known.write(stream).map(|guard| Guard::Writes(guard, self.values[part] + 8.0)),
        };
        match taken {
            Ok(mut guard) => {
                match &mut guard {
                    Guard::Reads(guard) => self.check(guard, part, stream),
                    Guard::Writes(guard, value) => {
                        guard.view_mut().unwrap().fill(stream, *value).unwrap();
                    }
                }
                self.guards[part] = Some(guard);
                Outcome::Done
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                Outcome::Full
            }
        }
    }

    fn check(&self, guard: &ReadGuard<'_, f64, Ix1>, part: usize, stream: &Stream) {
        let found = guard.view().unwrap().to_vec(stream).unwrap();
        assert_eq!(found, [self.values[part]; LEN]);
    }
}

/// Makes the actions, of which the last is new, and compares with the model.
fn replay(setup: &Setup, path: &[Action], room: usize) {
    let stream = &setup.s;
    let budget = MemoryBudget::new(&setup.a, BYTES * room as u64);
    let mut arrays = [0.0, 10.0].map(|value| {
        let values = Array1::from_elem(2 * LEN, value);
        let mut array =
            ArrayBuffer::from_array_with(values, row(&[0, LEN, 2 * LEN]).unwrap()).unwrap();
        array.set_memory_budget(&budget).unwrap();
        array
    });
    let mut model = start();
    let mut expected = [0.0, 0.0, 10.0, 10.0];
    {
        let [a, b] = &mut arrays;
        let both = [Parts::one(0), Parts::one(1)];
        let mut parts: Vec<_> =
            a.split(both).unwrap().into_iter().chain(b.split(both).unwrap()).collect();
        let parts = parts.iter_mut().map(ptr::from_mut).collect();
        let mut known = Arrays { parts, guards: Default::default(), values: expected };
        for action in path {
            let before = known.values;
            let outcome = model.act(*action, room).unwrap();
            assert_eq!(known.act(*action, stream), outcome, "{path:?} with room for {room}");
            assert_eq!(budget.used(), BYTES * model.there.len() as u64, "{path:?}");
            assert!(outcome == Outcome::Done || before == known.values);
        }
        for part in 0..PARTS {
            if model.act(Action::End(part), room).is_some() {
                known.act(Action::End(part), stream);
            }
        }
        expected.copy_from_slice(&known.values);
    }
    let found: Vec<f64> = arrays.iter().flat_map(values).collect();
    let all: Vec<f64> = expected.iter().flat_map(|value| [*value; LEN]).collect();
    assert_eq!(found, all, "{path:?} with room for {room}");
}

fn start() -> Model {
    Model { there: Vec::new(), out: [Out::No; PARTS], dirty: [false; PARTS] }
}

/// Returns the number of states.
fn explore(room: usize) -> usize {
    let setup = Setup::sim(SimConfig::new().jitter(Duration::ZERO).peers(false));
    let mut seen = BTreeMap::from([(start(), Vec::new())]);
    let mut queue = VecDeque::from([start()]);
    while let Some(state) = queue.pop_front() {
        for action in actions() {
            let mut next = state.clone();
            if next.act(action, room).is_none() {
                continue;
            }
            let mut path = seen[&state].clone();
            path.push(action);
            replay(&setup, &path, room);
            if !seen.contains_key(&next) {
                seen.insert(next.clone(), path);
                queue.push_back(next);
            }
        }
    }
    seen.len()
}

#[test]
fn with_room_for_one_or_two_parts() {
    assert_eq!((explore(1), explore(2)), (25, 457));
}

#[test]
#[ignore = "takes more than a minute"]
fn with_room_for_three_parts() {
    assert_eq!(explore(3), 5641);
}
