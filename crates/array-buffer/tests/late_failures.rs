//! Random programs in which operations fail when they run: the host never reads a value that one of them has lost.
#![expect(
    clippy::unwrap_used,
    clippy::single_range_in_vec_init,
    reason = "a test stops where something is wrong; boxes of one dimension"
)]

mod common;

use std::env;
use std::process::{Command, Output};
use std::time::Duration;

use array_buffer::{ArrayBuffer, Exchange, Partition, Parts, Result, StarForest};
use backend_sim::{Fault, Operation, SimConfig, SimHandle};
use common::{Setup, add, set};
use ndarray::{Array1, Ix1};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use runtime_core::{Device, ErrorKind, Stream};

const GHOST: usize = 1;

#[derive(Clone, Copy, Debug)]
enum Op {
    Overwrite { place: usize, value: u8 },
    Add { place: usize, value: u8 },
    Read { place: usize },
    Prefetch { place: usize },
    Evict { place: usize },
    Broadcast { place: usize },
    Duplicate,
    Synchronize { place: usize },
    FailLate { device: usize, after: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let (place, stream) = (0..4_usize, 0..3_usize);
    let value = 1..100_u8;
    let write = (place.clone(), value);
    prop_oneof![
        2 => write.clone().prop_map(|(place, value)| Op::Overwrite { place, value }),
        4 => write.prop_map(|(place, value)| Op::Add { place, value }),
        2 => place.clone().prop_map(|place| Op::Read { place }),
        3 => place.clone().prop_map(|place| Op::Prefetch { place }),
        1 => place.prop_map(|place| Op::Evict { place }),
        2 => stream.clone().prop_map(|place| Op::Broadcast { place }),
        1 => Just(Op::Duplicate),
        1 => stream.prop_map(|place| Op::Synchronize { place }),
        2 => (0..2_usize, 1..6_u64).prop_map(|(device, after)| Op::FailLate { device, after }),
    ]
}

struct Program {
    setup: Setup,
    /// Three streams. The host is the fourth place.
    streams: [Stream; 3],
    array: ArrayBuffer<f64, Ix1>,
    forest: StarForest,
    /// The value of all elements of a part, unless they were lost.
    expected: [Option<f64>; 2],
}

impl Program {
    /// An array; with `locks`, its host memory is page-locked for the first device.
    fn new(setup: Setup, locks: bool) -> Self {
        let streams = [setup.s.clone(), setup.stream(), setup.t.clone()];
        let partition = Partition::with_ghosts(&[6], &[(1, 0)]).unwrap();
        let forest = StarForest::new([(vec![0..1], vec![1..2])]);
        let mut array = ArrayBuffer::from_array_with(Array1::zeros(6), partition).unwrap();
        if locks {
            array.page_lock(&setup.a).unwrap();
        }
        Self { setup, streams, array, forest, expected: [Some(0.0); 2] }
    }

    fn run(&mut self, op: Op) {
        // Errors are not looked at: whatever was lost may be refused at any time.
        match op {
            Op::Overwrite { place, value } => self.write(place, value, false),
            Op::Add { place, value } => self.write(place, value, true),
            Op::Read { place } => match self.streams.get(place) {
                Some(stream) => {
                    drop(self.array.part(Parts::one(0)).map(|part| part.read(stream).map(drop)))
                }
                None => self.check(),
            },
            Op::Prefetch { place } => drop(match self.streams.get(place) {
                Some(stream) => self.array.prefetch(stream),
                None => self.array.prefetch_host(),
            }),
            Op::Evict { place } => drop(match self.streams.get(place) {
                Some(stream) => self.array.evict(stream.device()),
                None => self.array.evict_host(),
            }),
            Op::Broadcast { place } => self.broadcast(place),
            Op::Duplicate => {
                if let Ok(copy) = self.array.duplicate() {
                    self.array = copy;
                }
            }
            Op::Synchronize { place } => drop(self.streams[place].synchronize()),
            Op::FailLate { device, after } => {
                let device: &Device = [&self.setup.a, &self.setup.b][device];
                // Other devices fail by a plan.
                let Some(handle) = SimHandle::of(device) else { return };
                let counts = handle.counts();
                let past =
                    [counts.to_device, counts.from_device, counts.on_device, counts.from_peers];
                let past: u64 = past.iter().map(|traffic| traffic.count).sum();
                handle.inject(Fault::fail_late(Operation::Copy, past + after));
            }
        }
    }

    fn write(&mut self, place: usize, value: u8, keeps: bool) {
        let value = f64::from(value);
        let [mut part] = self.array.split([Parts::one(0)]).unwrap();
        let written = match self.streams.get(place) {
            Some(stream) => {
                let guard = if keeps { part.read_write(stream) } else { part.write(stream) };
                guard.and_then(|mut guard| {
                    let work = if keeps { add } else { set };
                    work(&mut guard, stream, value)?;
                    guard.commit()
                })
            }
            None => {
                let guard = if keeps { part.read_write_host() } else { part.write_host() };
                guard.and_then(|mut guard| {
                    if keeps {
                        *guard += value
                    } else {
                        guard.fill(value)
                    }
                    guard.commit()
                })
            }
        };
        if written.is_ok() {
            let old = if keeps { self.expected[0] } else { Some(0.0) };
            self.expected = [old.map(|old| old + value), None];
        }
    }

    fn broadcast(&mut self, place: usize) {
        let forest = &mut self.forest;
        let flight = self.array.begin_exchange(&self.streams[place], Exchange::Broadcast);
        let done = flight.and_then(|mut flight| -> Result<()> {
            flight.run(forest)?;
            flight.finish()
        });
        if done.is_ok() {
            self.expected[GHOST] = self.expected[0];
        }
    }

    /// The host reads either the written values or an error.
    fn check(&self) {
        for (part, expected) in self.expected.iter().enumerate() {
            if let Ok(seen) = self.array.part(Parts::one(part)).unwrap().read_host() {
                let right = expected.is_some_and(|value| seen.iter().all(|seen| *seen == value));
                assert!(right, "part {part} is {seen:?}, expected {expected:?}");
            }
        }
    }
}

fn run(config: SimConfig, locks: bool, ops: Vec<Op>) {
    let mut program = Program::new(Setup::sim(config), locks);
    for op in ops {
        program.run(op);
    }
    program.check();
}

/// The variable that is set in a process whose stand-in has a planned failure.
const FAILING: &str = "ARRAY_BUFFER_FAILING_STAND_IN";

/// A late failure of a copy ends a device of a GPU until the process ends, so each one has a process of its own. There
/// is one device in it: the stand-in does not know that a lost device no longer uses the memory of another one.
fn a_copy_that_fails_late_loses_the_device_and_shows_no_wrong_value(setup: &Setup) {
    if env::var_os(FAILING).is_some() {
        return lose_the_device(setup);
    }
    let api = setup.a.native().api;
    for number in (1..40).step_by(3) {
        let Output { status, stdout, stderr } = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg(format!(
                "gates::{api}::a_copy_that_fails_late_loses_the_device_and_shows_no_wrong_value"
            ))
            .env(FAILING, number.to_string())
            .env("STAND_IN_DEVICES", "1")
            .env("STAND_IN_FAULTS", format!("copy:{number}=719"))
            .output()
            .unwrap();
        let text =
            [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(status.success() && text.contains("1 passed"), "copy {number}: {text}");
    }
}

/// Runs a long program. One of its copies fails.
fn lose_the_device(setup: &Setup) {
    let mut random = TestRunner::deterministic();
    let ops = prop::collection::vec(op(), 200).new_tree(&mut random).unwrap().current();
    let locks = env::var(FAILING).unwrap().ends_with(['0', '2', '4', '6', '8']);
    let mut program = Program::new(Setup::new(setup.a.clone(), setup.b.clone()), locks);
    for op in ops {
        program.run(op);
    }
    program.check();
    let error = program.streams.iter().find_map(|stream| stream.synchronize().err());
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::DeviceLost));
}

on_stand_ins_with_gates! { a_copy_that_fails_late_loses_the_device_and_shows_no_wrong_value }

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn programs_on_peers(seed in any::<u64>(), ops in prop::collection::vec(op(), 1..20)) {
        run(SimConfig::new().seed(seed).jitter(Duration::from_micros(50)), false, ops);
    }

    #[test]
    fn programs_on_devices_that_are_no_peers(seed in any::<u64>(), ops in prop::collection::vec(op(), 1..20)) {
        run(SimConfig::new().seed(seed).jitter(Duration::from_micros(50)).peers(false), false, ops);
    }

    #[test]
    fn programs_with_page_locked_host_memory(seed in any::<u64>(), peers in any::<bool>(), ops in prop::collection::vec(op(), 1..20)) {
        run(SimConfig::new().seed(seed).jitter(Duration::from_micros(50)).peers(peers), true, ops);
    }
}
