//! Random programs are compared with plain vectors, on devices with adversarial timing, failing copies and panicking
//! writers.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use array_buffer::{ArrayBuffer, Error, ErrorKind, Exchange, Partition, Parts, Reduce, StarForest};
use backend_sim::{Fault, Operation, SimConfig, SimHandle};
use common::{Setup, add, set};
use ndarray::{Array2, Ix2};
use proptest::prelude::*;
use runtime_core::{Device, Stream};

const SHAPE: [usize; 2] = [5, 6];
/// Two adjacent owned blocks, and a ghost row that repeats the first row.
const PARTS: usize = 3;
const GHOST: usize = 2;

#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Drop,
    Abort,
    Panic,
    Forget,
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Read { place: usize, part: usize },
    ReadAll { place: usize },
    Write { place: usize, part: usize, value: u8, end: End },
    Add { place: usize, part: usize, value: u8, end: End },
    Accumulate { place: usize, value: u8 },
    Exchange { place: usize, reduce: bool },
    Prefetch { place: usize },
    Evict { place: usize },
    Unify { device: usize },
    Duplicate,
    FailCopy { device: usize, after: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let (place, part, value) = (0..4_usize, 0..PARTS, 1..100_u8);
    let end = prop_oneof![
        6 => Just(End::Commit),
        4 => Just(End::Drop),
        1 => Just(End::Abort),
        1 => Just(End::Panic),
        1 => Just(End::Forget),
        1 => Just(End::Nothing),
    ];
    prop_oneof![
        4 => (place.clone(), part.clone()).prop_map(|(place, part)| Op::Read { place, part }),
        3 => place.clone().prop_map(|place| Op::ReadAll { place }),
        4 => (place.clone(), part.clone(), value.clone(), end.clone())
            .prop_map(|(place, part, value, end)| Op::Write { place, part, value, end }),
        4 => (place.clone(), part, value.clone(), end)
            .prop_map(|(place, part, value, end)| Op::Add { place, part, value, end }),
        1 => (place.clone(), value).prop_map(|(place, value)| Op::Accumulate { place, value }),
        3 => (place.clone(), any::<bool>())
            .prop_map(|(place, reduce)| Op::Exchange { place, reduce }),
        1 => place.clone().prop_map(|place| Op::Prefetch { place }),
        1 => place.prop_map(|place| Op::Evict { place }),
        1 => (0..2_usize).prop_map(|device| Op::Unify { device }),
        1 => Just(Op::Duplicate),
        2 => (0..2_usize, 0..4_u64).prop_map(|(device, after)| Op::FailCopy { device, after }),
    ]
}

/// The expected content of a part.
#[derive(Clone, Debug, PartialEq)]
enum TrackedStream {
    Values(Vec<f64>),
    Contributions(Vec<f64>),
    Unreadable,
}

struct Program {
    setup: Setup,
    /// Three streams; the host is the fourth place.
    streams: [Stream; 3],
    failed: [u64; 2],
    array: ArrayBuffer<f64, Ix2>,
    forest: StarForest,
    oracle: [TrackedStream; PARTS],
    version: u64,
}

impl Program {
    /// An array; with `locks`, its host memory is page-locked for the first device.
    fn new(setup: &Setup, locks: bool) -> Self {
        let setup = Setup::new(setup.a.clone(), setup.b.clone());
        let streams = [setup.s.clone(), setup.stream(), setup.t.clone()];
        let owned: [&[_]; 2] = [&[0..4, 0..3], &[0..4, 3..6]];
        let partition = Partition::new(&SHAPE, &owned, &[&[4..5, 0..6]]).unwrap();
        let start = Array2::from_shape_fn(SHAPE, |(i, j)| (i * 6 + j) as f64);
        let forest = StarForest::new([(vec![4..5, 0..6], vec![0..1, 0..6])]);
        let oracle = std::array::from_fn(|part| {
            let ranges = partition.ranges(part);
            let (rows, columns) = (ranges[0].clone(), ranges[1].clone());
            TrackedStream::Values(start.slice(ndarray::s![rows, columns]).iter().copied().collect())
        });
        let mut array = ArrayBuffer::from_array_with(start, partition).unwrap();
        if locks {
            array.page_lock(&setup.a).unwrap();
        }
        Self { setup, streams, failed: [0; 2], array, forest, oracle, version: 0 }
    }

    fn stream(&self, place: usize) -> Option<Stream> {
        self.streams.get(place).cloned()
    }

    /// Checks that an error was planned, and counts it, so that the next one comes at the right time.
    fn planned(&mut self, error: &Error) {
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        let device = error.device().map_or(0, |id| usize::from(id.to_string() == "sim:1"));
        self.failed[device] += 1;
    }

    fn read(&mut self, place: usize, part: usize) {
        let stream = self.stream(place);
        let parts = self.array.part(Parts::one(part)).unwrap();
        let seen = match &stream {
            None => parts.read_host().map(|guard| guard.iter().copied().collect::<Vec<f64>>()),
            Some(stream) => parts.read(stream).and_then(|guard| gather(&guard.view()?, stream)),
        };
        self.compare(part, seen);
    }

    fn compare(&mut self, part: usize, seen: Result<Vec<f64>, Error>) {
        let pending = matches!(self.oracle[GHOST], TrackedStream::Contributions(_));
        match (seen, &self.oracle[part]) {
            (Ok(seen), TrackedStream::Values(values)) if !pending => assert_eq!(seen, *values),
            (Ok(seen), known) => panic!("read {seen:?} of {known:?}"),
            (Err(error), known) => match error.kind() {
                ErrorKind::Poisoned | ErrorKind::Stale => {
                    assert!(pending || *known == TrackedStream::Unreadable, "{error}: {known:?}");
                }
                _ => self.planned(&error),
            },
        }
    }

    fn write(&mut self, place: usize, part: usize, value: u8, end: End, keeps: bool) {
        let stream = self.stream(place);
        let pending = matches!(self.oracle[GHOST], TrackedStream::Contributions(_));
        let readable = matches!(self.oracle[part], TrackedStream::Values(_)) && !pending;
        let value = f64::from(value);
        let [mut parts] = self.array.split([Parts::one(part)]).unwrap();
        let run = |parts: &mut array_buffer::PartMut<'_, f64, Ix2>| -> Outcome {
            match &stream {
                None => {
                    let guard = if keeps { parts.read_write_host() } else { parts.write_host() };
                    let mut guard = match guard {
                        Ok(guard) => guard,
                        Err(error) => return Outcome::Refused(error),
                    };
                    if !matches!(end, End::Nothing) {
                        if keeps { *guard += value } else { guard.fill(value) }
                    }
                    let ended = match end {
                        End::Abort => {
                            return {
                                guard.abort();
                                Outcome::Poisoned
                            };
                        }
                        End::Forget => {
                            return {
                                std::mem::forget(guard);
                                Outcome::Poisoned
                            };
                        }
                        End::Panic => std::panic::resume_unwind(Box::new("on purpose")),
                        End::Drop => {
                            return {
                                drop(guard);
                                Outcome::Written
                            };
                        }
                        End::Commit | End::Nothing => guard.commit(),
                    };
                    Outcome::of(Ok(()), ended, matches!(end, End::Nothing))
                }
                Some(stream) => {
                    let guard = if keeps { parts.read_write(stream) } else { parts.write(stream) };
                    let mut guard = match guard {
                        Ok(guard) => guard,
                        Err(error) => return Outcome::Refused(error),
                    };
                    let done = match end {
                        End::Nothing => Ok(()),
                        _ if keeps => add(&mut guard, stream, value),
                        _ => set(&mut guard, stream, value),
                    };
                    let ended = match end {
                        End::Abort => {
                            return {
                                guard.abort();
                                Outcome::Poisoned.noting(done)
                            };
                        }
                        End::Forget => {
                            std::mem::forget(guard);
                            return Outcome::Poisoned.noting(done);
                        }
                        End::Panic if done.is_ok() => {
                            std::panic::resume_unwind(Box::new("on purpose"))
                        }
                        _ => guard.commit(),
                    };
                    Outcome::of(done, ended, matches!(end, End::Nothing))
                }
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut parts)));
        let outcome = outcome.unwrap_or(Outcome::Poisoned);
        match outcome {
            Outcome::Refused(error) => match error.kind() {
                ErrorKind::Poisoned => assert!(keeps && !readable, "{error}"),
                ErrorKind::Stale => assert!(pending || (keeps && !readable), "{error}"),
                _ => self.planned(&error),
            },
            Outcome::Written => {
                let old = std::mem::replace(&mut self.oracle[part], TrackedStream::Unreadable);
                let len = self.array.partition().ranges(part).iter().map(|r| r.len()).product();
                self.oracle[part] = match old {
                    TrackedStream::Values(values) if keeps => {
                        TrackedStream::Values(values.iter().map(|old| old + value).collect())
                    }
                    _ => TrackedStream::Values(vec![value; len]),
                };
                if part != GHOST {
                    self.oracle[GHOST] = TrackedStream::Unreadable;
                    self.version += 1;
                }
            }
            Outcome::Poisoned => self.oracle[part] = TrackedStream::Unreadable,
            Outcome::Failed(error) => {
                self.planned(&error);
                self.oracle[part] = TrackedStream::Unreadable;
            }
            Outcome::Same(error) => {
                assert!(keeps, "a write that wrote nothing was committed");
                if let Some(error) = error {
                    self.planned(&error);
                }
            }
        }
        assert_eq!(self.array.version(), self.version);
    }

    fn accumulate(&mut self, place: usize, value: u8) {
        let value = f64::from(value);
        let Some(stream) = self.stream(place) else { return };
        let accumulated = self.array.accumulate(&stream, Reduce::Sum).map(|mut guard| {
            let done = add(&mut guard, &stream, value);
            Outcome::of(done, guard.commit(), false)
        });
        match accumulated.unwrap_or_else(Outcome::Refused) {
            Outcome::Refused(error) => {
                if !matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Stale) {
                    self.planned(&error);
                    self.refresh_ghost();
                }
            }
            Outcome::Written => {
                for part in 0..PARTS {
                    let old = std::mem::replace(&mut self.oracle[part], TrackedStream::Unreadable);
                    self.oracle[part] = match old {
                        TrackedStream::Values(old) if part != GHOST => {
                            TrackedStream::Values(old.iter().map(|old| old + value).collect())
                        }
                        TrackedStream::Contributions(old) => TrackedStream::Contributions(
                            old.iter().map(|old| old + value).collect(),
                        ),
                        _ => TrackedStream::Contributions(vec![value; SHAPE[1]]),
                    };
                }
                self.version += 1;
            }
            Outcome::Failed(error) => {
                self.planned(&error);
                self.oracle = std::array::from_fn(|_| TrackedStream::Unreadable);
                self.heal();
            }
            Outcome::Same(error) => {
                self.planned(&error.unwrap());
                self.refresh_ghost();
            }
            other => panic!("{other:?}"),
        }
    }

    /// A ghost part was filled for contributions that then failed: it is stale, or still pending.
    fn refresh_ghost(&mut self) {
        if matches!(self.oracle[GHOST], TrackedStream::Values(_))
            && self.array.status(GHOST) != array_buffer::PartStatus::Valid
        {
            self.oracle[GHOST] = TrackedStream::Unreadable;
        }
    }

    /// Overwrites everything, so that all values are known again.
    fn heal(&mut self) {
        self.array.write_host().unwrap().fill(0.5);
        self.version += 1;
        self.oracle = [
            TrackedStream::Values(vec![0.5; 12]),
            TrackedStream::Values(vec![0.5; 12]),
            TrackedStream::Unreadable,
        ];
    }

    fn exchange(&mut self, place: usize, reduce: bool) {
        let Some(stream) = self.stream(place) else { return };
        let direction = if reduce { Exchange::Reduce } else { Exchange::Broadcast };
        let forest = &mut self.forest;
        let exchanged = self.array.begin_exchange(&stream, direction).map(|mut flight| {
            let done = flight.run(forest);
            (done, flight.finish())
        });
        match exchanged {
            Ok((Ok(()), Ok(()))) => {}
            Err(error) => {
                let refused = [ErrorKind::Poisoned, ErrorKind::Stale, ErrorKind::InvalidArgument];
                if !refused.contains(&error.kind()) {
                    self.planned(&error);
                }
                return;
            }
            Ok((Err(error), Err(_))) => {
                self.planned(&error);
                match reduce {
                    false => self.oracle[GHOST] = TrackedStream::Unreadable,
                    true => self.heal(),
                }
                return;
            }
            other => panic!("{other:?}"),
        }
        let ghost = self.oracle[GHOST].clone();
        let [TrackedStream::Values(left), TrackedStream::Values(right), _] = &mut self.oracle
        else {
            panic!("exchanged {:?}", self.oracle)
        };
        if reduce {
            let TrackedStream::Contributions(sums) = ghost else { panic!("reduced {ghost:?}") };
            let row = left[..3].iter_mut().chain(&mut right[..3]);
            row.zip(sums).for_each(|(value, sum)| *value += sum);
            self.oracle[GHOST] = TrackedStream::Unreadable;
            self.version += 1;
        } else {
            self.oracle[GHOST] = TrackedStream::Values([&left[..3], &right[..3]].concat());
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Read { place, part } => self.read(place, part),
            Op::ReadAll { place } => {
                for part in 0..PARTS {
                    self.read(place, part);
                }
            }
            Op::Write { place, part, value, end } => self.write(place, part, value, end, false),
            Op::Add { place, part, value, end } => self.write(place, part, value, end, true),
            Op::Accumulate { place, value } => self.accumulate(place, value),
            Op::Exchange { place, reduce } => self.exchange(place, reduce),
            Op::Prefetch { place } => {
                let done = match self.stream(place) {
                    Some(stream) => self.array.prefetch(&stream),
                    None => self.array.prefetch_host(),
                };
                self.tolerate(done);
            }
            Op::Evict { place } => {
                let done = match self.stream(place) {
                    Some(stream) => self.array.evict(stream.device()),
                    None => self.array.evict_host(),
                };
                self.tolerate(done);
            }
            Op::Unify { device } => {
                let device = [&self.setup.a, &self.setup.b][device];
                let done = self.array.unify(device);
                self.tolerate(done);
            }
            Op::Duplicate => {
                if let Ok(copy) = self.array.duplicate() {
                    // Writes to the copy must not be visible in the original.
                    self.array = copy.duplicate().unwrap_or(copy);
                    self.version = 0;
                }
            }
            Op::FailCopy { device, after } => {
                let device: &Device = [&self.setup.a, &self.setup.b][device];
                // Other devices do not fail.
                let Some(handle) = SimHandle::of(device) else { return };
                let counts = handle.counts();
                let past =
                    [counts.to_device, counts.from_device, counts.on_device, counts.from_peers];
                let past: u64 = past.iter().map(|traffic| traffic.count).sum();
                let failed: u64 = self.failed.iter().sum();
                handle.inject(Fault::fail(Operation::Copy, past + failed + 1 + after));
            }
        }
    }

    fn tolerate(&mut self, done: Result<(), Error>) {
        if let Err(error) = done {
            let refused = [ErrorKind::Poisoned, ErrorKind::Stale, ErrorKind::Conflict];
            if !refused.contains(&error.kind()) {
                self.planned(&error);
            }
        }
    }
}

#[derive(Debug)]
enum Outcome {
    Refused(Error),
    Written,
    Poisoned,
    Failed(Error),
    /// Nothing was written, perhaps after an error elsewhere.
    Same(Option<Error>),
}

impl Outcome {
    fn of(done: Result<(), Error>, ended: Result<(), Error>, nothing: bool) -> Self {
        match (done, ended) {
            (Ok(()), Ok(())) if nothing => Self::Same(None),
            (Ok(()), Ok(())) => Self::Written,
            (Ok(()), Err(error)) => {
                assert!(nothing, "{error}");
                Self::Poisoned
            }
            (Err(error), Err(_)) => Self::Failed(error),
            (Err(error), Ok(())) => Self::Same(Some(error)),
        }
    }

    fn noting(self, done: Result<(), Error>) -> Self {
        match done {
            Ok(()) => self,
            Err(error) => Self::Failed(error),
        }
    }
}

fn gather(view: &runtime_core::MemoryView<'_, f64>, stream: &Stream) -> Result<Vec<f64>, Error> {
    use runtime_core::{Combine, RegionCopy, RegionSide, Slot};
    let extents = view.layout().shape().to_vec();
    let mut row = stream.device().memory_allocate::<f64>(view.len())?;
    let strides = vec![extents[1].cast_signed() * 8, 8];
    let copy = RegionCopy {
        dtype: view.dtype(),
        extents,
        source: view.region_side(0),
        destination: RegionSide { slot: 1, offset: 0, strides },
        negate: false,
        combine: Combine::Replace,
    };
    let plan = stream.device().plan_regions(&[copy])?;
    plan.execute(stream, &mut [(*view).into(), Slot::from(row.view_mut())])?;
    row.to_vec(stream)
}

fn run_on_sim(config: SimConfig, locks: bool, ops: Vec<Op>) {
    run(&Setup::sim(config.unified_memory(true)), locks, ops);
}

fn run(setup: &Setup, locks: bool, ops: Vec<Op>) {
    let mut program = Program::new(setup, locks);
    for op in ops {
        program.run(op);
    }
    for place in 0..4 {
        for part in 0..PARTS {
            program.read(place, part);
        }
    }
}

/// No copy fails here.
fn random_programs_have_the_right_values(setup: &Setup) {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) };
    proptest!(config, |(locks in any::<bool>(), ops in prop::collection::vec(op(), 1..30))| {
        run(setup, locks, ops);
    });
}

on_stand_ins_with_gates! { random_programs_have_the_right_values }

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn programs_on_peers(seed in any::<u64>(), ops in prop::collection::vec(op(), 1..30)) {
        run_on_sim(SimConfig::new().seed(seed).jitter(Duration::from_micros(50)), false, ops);
    }

    #[test]
    fn programs_on_devices_that_are_no_peers(seed in any::<u64>(), ops in prop::collection::vec(op(), 1..30)) {
        run_on_sim(SimConfig::new().seed(seed).jitter(Duration::from_micros(50)).peers(false), false, ops);
    }

    #[test]
    fn programs_with_page_locked_host_memory(seed in any::<u64>(), peers in any::<bool>(), ops in prop::collection::vec(op(), 1..30)) {
        run_on_sim(SimConfig::new().seed(seed).jitter(Duration::from_micros(50)).peers(peers), true, ops);
    }
}
