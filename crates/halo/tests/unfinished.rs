//! What the lender of a field learns if an exchange of the field does not complete.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod devices;
mod ring;

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use backend_sim::{Fault, Operation, SimHandle};
use devices::{emulated, host, sim};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Combine, Dim, ErrorKind, Field, FieldSpec, HaloExchange, HaloOptions, HaloTransformer,
    MissingCorners, Quantity, Result, Staging, Topology,
};
use runtime_core::{DType, Device, Stream, WriteReport};

const LONG: Duration = Duration::from_secs(20);
const UNWRITTEN: (bool, bool) = (false, false);
const COMPLETE: (bool, bool) = (true, false);
const FAILED: (bool, bool) = (true, true);

fn options(direct: bool) -> HaloOptions {
    HaloOptions { direct, timeout: Duration::from_millis(500), ..Default::default() }
}

/// Something that happens once on each of some ranks.
struct Meeting {
    ranks: usize,
    arrived: AtomicUsize,
}

impl Meeting {
    fn of(ranks: usize) -> Self {
        Self { ranks, arrived: AtomicUsize::new(0) }
    }

    /// Arrives, and calls `meanwhile` until all ranks have arrived.
    fn join(&self, meanwhile: impl FnMut()) {
        self.arrived.fetch_add(1, Ordering::Release);
        until(|| self.arrived.load(Ordering::Acquire) >= self.ranks, meanwhile);
    }
}

fn until(is_reached: impl Fn() -> bool, mut meanwhile: impl FnMut()) {
    let start = Instant::now();
    while !is_reached() {
        assert!(start.elapsed() < LONG);
        meanwhile();
        thread::sleep(Duration::from_micros(100));
    }
}

/// What a rank is given: its exchange, stream and field, and a function that polls until all ranks have written.
type Act<'a> = dyn Fn(&mut HaloExchange, &Stream, &mut [Field<'_>], &UntilWritten<'_>) + Sync + 'a;
type UntilWritten<'a> = dyn Fn(&mut dyn FnMut() -> Result<bool>) + 'a;

/// Runs `act` on the first `joining` ranks of the topology. The others only make the exchange. All stay until these are
/// done. Returns whether each of these ranks wrote to its field, and whether that failed.
fn reports(
    device: &Device,
    (topology, spec): (&Topology, &FieldSpec),
    options: &HaloOptions,
    joining: usize,
    act: &Act<'_>,
) -> Vec<(bool, bool)> {
    let (written, done) = (Meeting::of(joining), Meeting::of(topology.ranks()));
    let reports = ThreadCommunicator::run(topology.ranks(), |ranks| {
        let rank = ranks.rank();
        let quantities = [Quantity::scalar(spec.clone())];
        let mut halo =
            HaloExchange::new(Arc::new(ranks), topology, &quantities, device, options).unwrap();
        let (stream, layout) = (device.stream_create(&Default::default()).unwrap(), spec.layout());
        let mut values = device.memory_from_slice(&stream, &vec![1.0_f64; layout.len()]).unwrap();
        let report = WriteReport::new();
        let view = values.view_mut().reshape(layout.shape()).unwrap().reporting_to(&report);
        if rank < joining {
            act(&mut halo, &stream, &mut [view.unwrap().into()], &|poll| {
                until(|| report.wrote(), || assert!(poll().is_ok()));
                written.join(|| assert!(poll().is_ok()));
            });
        }
        done.join(|| {});
        (rank < joining).then(|| (report.wrote(), report.failed()))
    });
    reports.unwrap().into_iter().flatten().collect()
}

/// A ring of three ranks.
fn three(
    device: &Device,
    options: &HaloOptions,
    joining: usize,
    act: &Act<'_>,
) -> Vec<(bool, bool)> {
    reports(device, (&ring::ring(3), &ring::spec("f")), options, joining, act)
}

/// Cells of three ranks in a row. Each rank is its own neighbour along axis 0.
fn tube() -> (Topology, FieldSpec) {
    let dims = [Dim::axis(1, 3).halo(1, 1), Dim::axis(0, 4).halo(1, 1)];
    let topology = Topology::cartesian(&[4, 9], &[1, 3], &[true, true]).unwrap();
    (topology, FieldSpec::new("f", DType::F64, &dims).unwrap())
}

fn times_out(outcome: Result<()>) {
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Timeout);
}

#[test]
fn an_exchange_that_gets_only_some_messages_has_failed() {
    for device in [host(), sim(7), emulated()] {
        let found = three(&device, &options(false), 2, &|halo, stream, fields, _| {
            times_out(halo.exchange(stream, fields));
        });
        assert_eq!(found, [FAILED; 2], "{device:?}");
    }
}

#[test]
fn a_started_exchange_that_gets_only_some_messages_has_failed() {
    for direct in [false, true] {
        let found = three(&sim(7), &options(direct), 2, &|halo, stream, fields, until_written| {
            let mut flight = halo.start(stream, fields).unwrap();
            until_written(&mut || flight.poll());
            times_out(flight.finish());
        });
        assert_eq!(found, [FAILED; 2], "direct: {direct}");
    }
}

#[test]
fn an_exchange_that_is_dropped_or_forgotten_in_flight_has_failed() {
    for (direct, forget) in [(false, false), (false, true), (true, false), (true, true)] {
        let found = three(&sim(7), &options(direct), 2, &|halo, stream, fields, until_written| {
            let mut flight = halo.start(stream, fields).unwrap();
            until_written(&mut || flight.poll());
            if forget {
                mem::forget(flight);
            }
        });
        assert_eq!(found, [FAILED; 2], "direct: {direct}, forget: {forget}");
    }
}

/// The values that the rank exchanges with itself are copied first.
#[test]
fn an_exchange_that_filled_only_ghosts_of_its_own_cells_has_failed() {
    let (topology, spec) = tube();
    for direct in [false, true] {
        let found =
            reports(&sim(7), (&topology, &spec), &options(direct), 1, &|halo, s, fields, _| {
                times_out(halo.start(s, fields).unwrap().finish());
            });
        assert_eq!(found, [FAILED], "direct: {direct}, timeout");
        let found =
            reports(&sim(7), (&topology, &spec), &options(direct), 1, &|halo, s, fields, _| {
                drop(halo.start(s, fields).unwrap());
            });
        assert_eq!(found, [FAILED], "direct: {direct}, dropped");
    }
}

#[test]
fn an_exchange_whose_overlapped_work_panics_has_failed() {
    for direct in [false, true] {
        // By messages, the third rank does not join, so that the others get only some messages.
        let joining = if direct { 3 } else { 2 };
        let found =
            three(&sim(7), &options(direct), joining, &|halo, stream, fields, until_written| {
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    halo.overlap(stream, fields, |progress| -> Result<()> {
                        until_written(&mut || progress.poll());
                        panic!("the work beside the exchange")
                    })
                }));
                assert!(panicked.is_err());
            });
        assert_eq!(found, vec![FAILED; joining], "direct: {direct}");
    }
}

#[test]
fn a_panic_before_anything_is_written_leaves_the_fields() {
    for direct in [false, true] {
        let found = three(&sim(7), &options(direct), 1, &|halo, stream, fields, _| {
            let work = || halo.overlap(stream, fields, |_| -> Result<()> { panic!("the work") });
            assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        });
        assert_eq!(found, [UNWRITTEN], "direct: {direct}");
    }
}

/// Contributions are combined when all are there. The caller never sees that the exchange is complete.
#[test]
fn a_reduction_that_combined_and_was_dropped_has_failed() {
    let topology = Topology::cartesian(&[3], &[1], &[true]).unwrap();
    let place = (&topology, &ring::spec("f"));
    let found = reports(&host(), place, &options(false), 1, &|halo, stream, fields, _| {
        drop(halo.start_reduce(stream, fields, Combine::Sum).unwrap());
    });
    assert_eq!(found, [FAILED]);
}

/// The field is as before: an array keeps its values.
#[test]
fn an_exchange_that_wrote_nothing_has_not_failed() {
    type Call = fn(&mut HaloExchange, &Stream, &mut [Field<'_>]);
    let acts: [(&str, bool, usize, Call); 5] = [
        ("messages", false, 1, |halo, s, fields| times_out(halo.exchange(s, fields))),
        ("direct", true, 2, |halo, s, fields| times_out(halo.exchange(s, fields))),
        ("dropped", true, 1, |halo, s, fields| drop(halo.start(s, fields).unwrap())),
        ("reduce", false, 2, |halo, s, fields| times_out(halo.reduce(s, fields, Combine::Sum))),
        ("refused", false, 1, |halo, s, fields| {
            drop(halo.start(s, fields).unwrap());
            let error = halo.exchange(s, fields).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }),
    ];
    for (name, direct, joining, act) in acts {
        let found = three(&sim(7), &options(direct), joining, &|halo, stream, fields, _| {
            act(halo, stream, fields);
        });
        assert_eq!(found, vec![UNWRITTEN; joining], "{name}");
    }
}

#[test]
fn exchanges_that_complete_have_not_failed() {
    type Call = fn(&mut HaloExchange, &Stream, &mut [Field<'_>]) -> Result<()>;
    let acts: [Call; 4] = [
        |halo, s, fields| halo.exchange(s, fields),
        |halo, s, fields| halo.start(s, fields)?.finish(),
        |halo, s, fields| halo.reduce(s, fields, Combine::Sum),
        |halo, s, fields| halo.overlap(s, fields, |progress| progress.poll().map(drop)),
    ];
    let cube = Topology::cubed_sphere(3, [1, 1]).unwrap();
    let dims = [0, 1].map(|axis| Dim::axis(axis, 3).halo(1, 1));
    let on_cube = FieldSpec::new("f", DType::F64, &dims).unwrap();
    let (tube, in_tube) = tube();
    for (topology, spec) in [(&cube, &on_cube), (&tube, &in_tube)] {
        for (index, act) in acts.iter().enumerate() {
            for direct in [false, true] {
                let (ranks, missing_corners) = (topology.ranks(), MissingCorners::Average);
                let options = HaloOptions { direct, missing_corners, ..Default::default() };
                let found =
                    reports(&sim(7), (topology, spec), &options, ranks, &|halo, s, fields, _| {
                        act(halo, s, fields).unwrap();
                    });
                assert_eq!(found, vec![COMPLETE; ranks], "call {index}, direct: {direct}");
            }
        }
    }
}

/// Half of an earlier exchange may still be in the field.
#[test]
fn an_exchange_that_completes_does_not_hide_one_that_failed() {
    let topology = Topology::cartesian(&[3], &[1], &[true]).unwrap();
    let place = (&topology, &ring::spec("f"));
    let found = reports(&sim(7), place, &options(false), 1, &|halo, stream, fields, _| {
        drop(halo.start(stream, fields).unwrap());
        halo.reset().unwrap();
        halo.exchange(stream, fields).unwrap();
    });
    assert_eq!(found, [FAILED]);
}

/// Own cells are copied to ghosts by the launch that packs. Then a message cannot be copied to pinned memory.
#[test]
fn packing_that_fails_after_it_wrote_has_failed() {
    let (topology, spec) = tube();
    let (device, quantities) = (sim(7), [Quantity::scalar(spec.clone())]);
    let stream = device.default_stream();
    let options = HaloOptions { staging: Staging::Pinned, ..Default::default() };
    let mut halo = HaloTransformer::new(&topology, 0, &quantities, &device, &options).unwrap();
    let mut values = device.memory_from_slice(&stream, &[1.0_f64; 30]).unwrap();
    // Copy 1 is that above. Each packing is a region copy, and a copy for each of two messages.
    SimHandle::of(&device).unwrap().inject(Fault::fail(Operation::Copy, 6));
    for expected in [COMPLETE, FAILED] {
        let report = WriteReport::new();
        let view = values.view_mut().reshape(spec.layout().shape()).unwrap();
        let mut fields = [view.reporting_to(&report).unwrap().into()];
        let packed = halo.pack(&stream, &mut fields);
        assert_eq!(packed.is_err(), expected == FAILED);
        assert_eq!((report.wrote(), report.failed()), expected);
    }
}
