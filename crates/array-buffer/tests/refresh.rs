//! Ghosts and reductions that accesses refresh: see `ArrayBuffer::on_stale_ghosts`.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use array_buffer::{
    ArrayBuffer, Error, ErrorKind, Exchange, InFlight, MemoryBudget, PartStatus, Partition, Parts,
    Reduce, Result, SharedArrayBuffer, StarForest, TransferBudget, offload,
};
use backend_sim::{Fault, Operation, SimConfig, SimHandle};
use coherence::LANES;
use common::{Setup, add, set, values, values_on};
use ndarray::{Array1, Ix1};
use runtime_core::Stream;

type Ring = ArrayBuffer<f64, Ix1>;

const OWN: usize = 0;
/// The values of a ring after `fill`, and after its ghosts were refreshed.
const FRESH: [f64; 5] = [3.0, 1.0, 2.0, 3.0, 1.0];
const LATER: Duration = Duration::from_secs(60);

fn links() -> StarForest {
    StarForest::new([(vec![0..1], vec![3..4]), (vec![4..5], vec![1..2])])
}

/// Three owned elements with a ghost at either end, all zero.
fn plain() -> Ring {
    let partition = Partition::with_ghosts(&[5], &[(1, 1)]).unwrap();
    ArrayBuffer::from_array_with(Array1::zeros(5), partition).unwrap()
}

/// The same, refreshed on the setup's first stream.
fn ring(setup: &Setup) -> Ring {
    let (mut array, mut links) = (plain(), links());
    setup.claim(&array);
    array.on_stale_ghosts(&setup.s, move |exchange| exchange.run(&mut links)).unwrap();
    array
}

/// Contributions wait, and the owned values are not lost, until a refresh runs that is not refused.
#[test]
fn a_refused_reduction_loses_nothing() {
    let setup = &Setup::peers();
    for reads in [false, true] {
        let (mut array, mut links) = (ring(setup), links());
        fill(&mut array);
        let (mut refusals, stream) = (2, setup.s.clone());
        let refused = move |exchange: &mut InFlight<'_, f64, Ix1>| {
            if exchange.reduction().is_some() && refusals > 0 {
                refusals -= 1;
                if reads {
                    exchange.source(1)?;
                }
                return Err(Error::new(ErrorKind::Unavailable, "refresh", "not now"));
            }
            exchange.run(&mut links)
        };
        array.on_stale_ghosts(&stream, refused).unwrap();
        contribute(&mut array, Reduce::Sum).unwrap();
        let kinds = [(); 2].map(|()| array.read_host().map(drop).unwrap_err().kind());
        if reads {
            assert_eq!(kinds, [ErrorKind::Unavailable, ErrorKind::Poisoned]);
        } else {
            assert_eq!(kinds, [ErrorKind::Unavailable; 2]);
            assert_eq!(array.status(1), PartStatus::Pending(Reduce::Sum));
            assert_eq!(values(&array), [113.0, 111.0, 12.0, 113.0, 111.0]);
        }
    }
}

/// Writes owned values, so that ghosts are stale.
fn fill(array: &mut Ring) {
    array.write_host().unwrap().assign(&ndarray::array![0.0, 1.0, 2.0, 3.0, 0.0]);
}

/// Adds 10 to the owned values, and contributes 100 to those that have ghosts.
fn contribute(array: &mut Ring, op: Reduce) -> Result<()> {
    let mut all = array.accumulate_host(op)?;
    for (value, by) in all.iter_mut().zip([100.0, 10.0, 10.0, 10.0, 100.0]) {
        *value += by;
    }
    all.commit()
}

/// The refreshes so far: broadcasts, and reductions.
fn refreshes(array: &Ring) -> (u64, u64) {
    let report = array.transfers();
    let count = |exchange| {
        let all = report.refreshes().iter().filter(|refresh| refresh.exchange == exchange);
        all.map(|refresh| refresh.count).sum()
    };
    (count(Exchange::Broadcast), count(Exchange::Reduce))
}

fn owned(array: &Ring) -> Vec<f64> {
    array.part(Parts::one(OWN)).unwrap().read_host().unwrap().to_vec()
}

fn every_access_that_needs_ghosts_refreshes_them_once(setup: &Setup) {
    type Access = fn(&mut Ring, &Setup) -> Result<()>;
    let accesses: [(&str, Access); 12] = [
        ("read", |array, setup| array.read(&setup.s).map(drop)),
        ("read elsewhere", |array, setup| array.read(&setup.t).map(drop)),
        ("read_host", |array, _| array.read_host().map(drop)),
        ("read_here", |array, setup| {
            let _on = offload(&setup.t);
            array.read_here().map(drop)
        }),
        ("read_write", |array, setup| array.read_write(&setup.s).map(|guard| guard.abort())),
        ("read_write_host", |array, _| array.read_write_host().map(|guard| guard.abort())),
        ("part", |array, setup| array.part(Parts::one(1))?.read(&setup.t).map(drop)),
        ("part on the host", |array, _| array.part(Parts::one(1))?.read_host().map(drop)),
        ("prefetch", |array, setup| array.prefetch(&setup.t)),
        ("prefetch_host", |array, _| array.prefetch_host()),
        ("part prefetch", |array, _| array.part(Parts::one(2))?.prefetch_host()),
        ("check_read", |array, setup| array.check_read(&setup.s, |_| Ok(()))),
    ];
    for (name, access) in accesses {
        let mut array = ring(setup);
        fill(&mut array);
        assert_eq!(array.status(1), PartStatus::Stale);
        access(&mut array, setup).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(refreshes(&array), (1, 0), "{name}");
        if !name.starts_with("read_write") {
            assert_eq!(values(&array), FRESH, "{name}");
            assert_eq!(values_on(&array, &setup.t), FRESH, "{name}");
            assert_eq!(refreshes(&array), (1, 0), "{name} twice");
        }
    }
    for stream in [None, Some(&setup.s), Some(&setup.t)] {
        let mut array = ring(setup);
        fill(&mut array);
        let shared = SharedArrayBuffer::new(array);
        drop(shared.lease_read(stream, LATER).unwrap());
        assert_eq!(values(&shared.read(LATER).unwrap()), FRESH);
        fill(&mut shared.write(LATER).unwrap());
        drop(shared.lease_read_write(stream, LATER).unwrap());
        assert_eq!(values(&shared.read(LATER).unwrap()), FRESH);
        assert_eq!(shared.read(LATER).unwrap().version(), 3);
    }
    let mut array = ring(setup);
    fill(&mut array);
    assert_eq!(array.into_inner().unwrap().to_vec(), FRESH);
    if !setup.shares() {
        let mut array = ring(setup);
        fill(&mut array);
        assert_eq!(array.into_memory(&setup.t).unwrap().to_vec(&setup.t).unwrap(), FRESH);
    }
}

fn accesses_that_need_no_ghosts_refresh_none(setup: &Setup) {
    let mut array = ring(setup);
    assert_eq!(values(&array), [0.0; 5]);
    fill(&mut array);
    assert_eq!(owned(&array), [1.0, 2.0, 3.0]);
    array.part(Parts::one(OWN)).unwrap().read(&setup.t).unwrap();
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 7.0).unwrap();
    assert_eq!(array.duplicate().unwrap().status(1), PartStatus::Stale);
    assert_eq!((refreshes(&array), array.status(1)), ((0, 0), PartStatus::Stale));
}

fn pending_contributions_are_reduced_first(setup: &Setup) {
    let mut array = ring(setup);
    fill(&mut array);
    contribute(&mut array, Reduce::Sum).unwrap();
    let version = array.version();
    assert_eq!(owned(&array), [111.0, 12.0, 113.0]);
    assert_eq!((refreshes(&array), array.version()), ((0, 1), version + 1));
    assert_eq!(values_on(&array, &setup.t), [113.0, 111.0, 12.0, 113.0, 111.0]);
    assert_eq!(refreshes(&array), (1, 1));

    // One access may need both.
    contribute(&mut array, Reduce::Sum).unwrap();
    contribute(&mut array, Reduce::Sum).unwrap();
    assert_eq!(refreshes(&array), (1, 1));
    assert_eq!(values(&array), [333.0, 331.0, 32.0, 333.0, 331.0]);
    assert_eq!(refreshes(&array), (2, 2));

    // An operation of another kind needs the earlier ones to be done.
    contribute(&mut array, Reduce::Sum).unwrap();
    contribute(&mut array, Reduce::Min).unwrap();
    assert_eq!(refreshes(&array), (2, 3));
    assert_eq!(owned(&array), [451.0, 52.0, 453.0]);

    // An overwrite drops contributions, as without refreshes.
    contribute(&mut array, Reduce::Sum).unwrap();
    fill(&mut array);
    assert_eq!(values(&array), FRESH);
}

fn without_a_registration_accesses_are_refused(setup: &Setup) {
    let refused = |array: &Ring| {
        let error = array.read(&setup.s).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    };
    let mut array = plain();
    fill(&mut array);
    refused(&array);
    let mut array = ring(setup);
    fill(&mut array);
    array.refuse_stale_ghosts();
    refused(&array);
    let mut one = links();
    array.on_stale_ghosts(&setup.t, move |exchange| exchange.run(&mut one)).unwrap();
    assert_eq!(values(&array), FRESH);
    let on = array.transfers().refreshes()[0].on.clone();
    assert!(setup.shares() || on == setup.b.id().to_string(), "{on}");
    fill(&mut array);
    let constant = array.freeze();
    assert_eq!(constant.read_host().unwrap_err().kind(), ErrorKind::Stale);
}

/// Guards on other parts may exist, whose values a refresh would change.
fn parts_that_were_split_off_are_not_refreshed(setup: &Setup) {
    let mut array = ring(setup);
    fill(&mut array);
    {
        let [own, mut left, right] = array.split([0, 1, 2].map(Parts::one)).unwrap();
        assert_eq!(own.read_host().unwrap().to_vec(), [1.0, 2.0, 3.0]);
        for refused in [right.read_host().map(drop), right.prefetch(&setup.s)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stale);
            assert!(error.message().contains("split"), "{error}");
        }
        left.write_host().unwrap().fill(8.0);
        let _reader = left.read_host().unwrap();
        assert!(right.read(&setup.s).is_err());
    }
    // A refresh would change the ghost that is valid, which may have readers.
    let reader = array.part(Parts::one(1)).unwrap();
    let reader = reader.read_host().unwrap();
    let error = array.read_host().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains("ghost part 1 is valid"), "{error}");
    assert_eq!(reader.to_vec(), [8.0]);
    assert_eq!(refreshes(&array), (0, 0));
    array.mark_stale();
    assert_eq!(values(&array), FRESH);
}

/// The reduction leaves a ghost stale that has no contributions.
fn ghosts_that_are_valid_beside_contributions_are_not_changed(setup: &Setup) {
    let mut array = ring(setup);
    fill(&mut array);
    assert_eq!(values(&array), FRESH);
    let [mut left] = array.split([Parts::one(1)]).unwrap();
    let mut guard = left.accumulate(&setup.s, Reduce::Sum).unwrap();
    set(&mut guard, &setup.s, 50.0).unwrap();
    guard.commit().unwrap();
    let right = array.part(Parts::one(2)).unwrap();
    let reader = right.read_host().unwrap();
    for part in [0, 1] {
        let error = array.part(Parts::one(part)).unwrap().read_host().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains("ghost part 2 is valid"), "{error}");
    }
    assert_eq!(reader.to_vec(), [1.0]);
    array.mark_stale();
    assert_eq!(values(&array), [53.0, 1.0, 2.0, 53.0, 1.0]);
}

fn a_failed_refresh_poisons_ghosts_and_can_be_repeated(setup: &Setup) {
    type Closure = Box<dyn FnMut(&mut InFlight<'_, f64, Ix1>) -> Result<()> + Send>;
    let failures: [(&str, ErrorKind, Closure); 4] = [
        (
            "half-way",
            ErrorKind::Driver,
            Box::new(|exchange| {
                let stream = exchange.stream();
                exchange.target(1)?.fill(stream, 5.0)?;
                Err(Error::new(ErrorKind::Driver, "user", "half-way"))
            }),
        ),
        (
            "ghost part 2 was not filled",
            ErrorKind::Poisoned,
            Box::new(|exchange| {
                let stream = exchange.stream();
                exchange.target(1)?.fill(stream, 5.0)
            }),
        ),
        (
            "an operation failed",
            ErrorKind::Poisoned,
            Box::new(|exchange| {
                let forest = &mut links();
                exchange.run(forest)?;
                // A write of several operations that does not end.
                let _unfinished = exchange.target(1)?.begin_write();
                Ok(())
            }),
        ),
        (
            "not all ghosts",
            ErrorKind::InvalidArgument,
            Box::new(|exchange| exchange.run(&mut StarForest::new([(vec![1..2], vec![2..3])]))),
        ),
    ];
    for (index, (message, kind, mut failure)) in failures.into_iter().enumerate() {
        let mut array = plain();
        setup.claim(&array);
        let (mut count, mut forest) = (0, links());
        array
            .on_stale_ghosts(&setup.s, move |exchange| {
                count += 1;
                if count == 1 { failure(exchange) } else { exchange.run(&mut forest) }
            })
            .unwrap();
        fill(&mut array);
        let error = array.read_host().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let line = format!("{}:{}", file!(), line!() - 2);
        for part in [message, "part 1", "broadcast", "read", &line] {
            assert!(error.message().contains(part), "{part:?} in {error}");
        }
        assert_eq!(error.device(), Some(setup.a.id()));
        assert_eq!(owned(&array), [1.0, 2.0, 3.0]);
        assert_eq!(refreshes(&array), (0, 0));
        // The last one is refused before it does anything, so the next reader tries again.
        let expected = if index == 3 { PartStatus::Stale } else { PartStatus::Poisoned };
        assert_eq!([array.status(1), array.status(2)], [expected; 2]);
        if index < 3 {
            let error = array.read_host().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        }
        match index {
            0 | 1 => array.mark_stale(),
            2 => fill(&mut array),
            _ => {}
        }
        assert_eq!(values(&array), FRESH);
    }
}

fn a_panic_of_a_refresh_reaches_the_reader(setup: &Setup) {
    let mut array = plain();
    setup.claim(&array);
    let (mut count, mut forest) = (0, links());
    array
        .on_stale_ghosts(&setup.s, move |exchange| {
            count += 1;
            assert!(count > 1, "planned");
            exchange.run(&mut forest)
        })
        .unwrap();
    fill(&mut array);
    let panic = catch_unwind(AssertUnwindSafe(|| array.read_host().map(drop))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"planned"));
    // Nothing was done, so the next reader tries again.
    assert_eq!(array.status(1), PartStatus::Stale);
    assert_eq!(values(&array), FRESH);
}

fn a_refresh_that_needs_fresh_ghosts_is_a_conflict(setup: &Setup) {
    let shared = SharedArrayBuffer::new(plain());
    setup.claim(&shared.read(LATER).unwrap());
    let (own, mut forest) = (shared.clone(), links());
    let (errors, seen) = mpsc::channel();
    let refresh = move |exchange: &mut InFlight<'_, f64, Ix1>| {
        let array = own.read(LATER)?;
        // Owned values are there.
        assert_eq!(array.part(Parts::one(OWN))?.read_host()?.len(), 3);
        errors.send(array.read_host().unwrap_err()).unwrap();
        errors.send(array.part(Parts::one(2))?.read(exchange.stream()).unwrap_err()).unwrap();
        exchange.run(&mut forest)
    };
    shared.write(LATER).unwrap().on_stale_ghosts(&setup.s, refresh).unwrap();
    fill(&mut shared.write(LATER).unwrap());
    assert_eq!(values(&shared.read(LATER).unwrap()), FRESH);
    let errors: Vec<Error> = seen.try_iter().collect();
    assert_eq!(errors.len(), 2);
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains("a refresh needs the read"), "{error}");
    }
    // The closure has a handle of its own array.
    shared.write(LATER).unwrap().refuse_stale_ghosts();
}

/// Without an error, the access would refresh for ever.
fn a_refresh_that_finishes_another_exchange_is_a_conflict(setup: &Setup) {
    let mut array = plain();
    setup.claim(&array);
    let stream: &'static Stream = Box::leak(Box::new(setup.s.clone()));
    let refresh = move |flight: &mut InFlight<'_, f64, Ix1>| {
        let other: &'static mut Ring = Box::leak(Box::new(plain()));
        let mut exchange = other.begin_exchange(stream, Exchange::Broadcast)?;
        exchange.run(&mut links())?;
        *flight = exchange;
        Ok(())
    };
    array.on_stale_ghosts(&setup.s, refresh).unwrap();
    fill(&mut array);
    for _ in 0..2 {
        let error = array.read_host().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains("one of another array"), "{error}");
    }
    assert_eq!(owned(&array), [1.0, 2.0, 3.0]);
}

fn threads_that_read_at_once_refresh_once(setup: &Setup) {
    const THREADS: usize = 6;
    let runs = Arc::new(AtomicUsize::new(0));
    let mut array = plain();
    setup.claim(&array);
    let (count, mut forest) = (Arc::clone(&runs), links());
    array
        .on_stale_ghosts(&setup.s, move |exchange| {
            count.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(3));
            exchange.run(&mut forest)
        })
        .unwrap();
    for round in 1..=5 {
        fill(&mut array);
        contribute(&mut array, Reduce::Sum).unwrap();
        let start = Barrier::new(THREADS);
        let (array, start) = (&array, &start);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    start.wait();
                    let found = match thread % 3 {
                        0 => values(array),
                        1 => values_on(array, &setup.t),
                        _ => values_on(array, &setup.s),
                    };
                    assert_eq!(found, [113.0, 111.0, 12.0, 113.0, 111.0]);
                    assert_eq!(owned(array), [111.0, 12.0, 113.0]);
                });
            }
        });
        assert_eq!(
            (runs.load(Ordering::Relaxed), refreshes(array)),
            (2 * round, (round as u64, round as u64))
        );
    }
}

/// The other threads get their own error, and none of them waits for ever.
fn threads_survive_a_refresh_that_fails(setup: &Setup) {
    let mut array = plain();
    setup.claim(&array);
    array
        .on_stale_ghosts(&setup.s, |exchange| {
            thread::sleep(Duration::from_millis(5));
            exchange.source(OWN)?;
            Err(Error::new(ErrorKind::Driver, "user", "never"))
        })
        .unwrap();
    fill(&mut array);
    let start = Barrier::new(4);
    let (array, start) = (&array, &start);
    let kinds: Vec<ErrorKind> = thread::scope(|scope| {
        let read = || {
            scope.spawn(move || {
                start.wait();
                array.read_host().unwrap_err().kind()
            })
        };
        let threads: Vec<_> = (0..4).map(|_| read()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!((count(ErrorKind::Driver), count(ErrorKind::Poisoned)), (1, 3), "{kinds:?}");
}

fn budgets_forbid_refreshes(setup: &Setup) {
    let mut array = ring(setup);
    fill(&mut array);
    for budget in [TransferBudget::forbid_refreshes(), TransferBudget::forbid()] {
        let error = array.read(&setup.s).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
        let line = format!("{}:{}", file!(), line!() - 2);
        for part in ["0 are allowed", "one refresh", &line] {
            assert!(error.message().contains(part), "{part:?} in {error}");
        }
        drop(budget);
    }
    assert_eq!((refreshes(&array), array.status(1)), ((0, 0), PartStatus::Stale));
    {
        let _budget = TransferBudget::forbid_refreshes();
        // Transfers are not limited by it.
        array.part(Parts::one(OWN)).unwrap().read(&setup.t).unwrap();
    }
    let _budget = TransferBudget::bytes(1000, Default::default());
    assert_eq!(values(&array), FRESH);
}

fn reports_name_the_access_that_needed_a_refresh(setup: &Setup) {
    let mut array = ring(setup);
    let mut line = 0;
    for _ in 0..3 {
        fill(&mut array);
        array.read(&setup.t).unwrap();
        line = line!() - 1;
    }
    let report = array.transfers();
    let [refresh] = report.refreshes() else { panic!("{report}") };
    let on = if setup.shares() { "host".to_owned() } else { setup.a.id().to_string() };
    assert_eq!((&refresh.on, refresh.count, refresh.exchange), (&on, 3, Exchange::Broadcast));
    let cause = &refresh.wanted_by;
    assert_eq!((cause.access, cause.call_site.line()), ("read", line));
    assert_eq!(cause.place, setup.b.id().to_string());
    let twice = report.clone() + report.clone();
    assert_eq!((twice.refreshes().len(), twice.refreshes()[0].count), (1, 6));
    assert!(report.to_string().contains("broadcast"), "{report}");
}

/// Ranks whose kernels had nothing to do have written, too.
fn a_guard_that_wrote_nothing_counts_as_a_write(setup: &Setup) {
    let mut array = ring(setup);
    let version = array.version();
    drop(array.read_write(&setup.s).unwrap());
    assert_eq!((array.version(), array.status(1)), (version + 1, PartStatus::Stale));
    assert_eq!(values(&array), [0.0; 5]);
    drop(array.read_write_host().unwrap());
    assert_eq!((array.version(), array.status(1)), (version + 2, PartStatus::Stale));
    fill(&mut array);
    drop(array.accumulate(&setup.s, Reduce::Sum).unwrap());
    assert_eq!(array.status(1), PartStatus::Pending(Reduce::Sum));
    assert_eq!(values(&array), FRESH);
    let shared = SharedArrayBuffer::new(array);
    drop(shared.lease_read_write(Some(&setup.s), LATER).unwrap());
    assert_eq!(shared.read(LATER).unwrap().status(1), PartStatus::Stale);

    let mut array = plain();
    setup.claim(&array);
    drop(array.read_write(&setup.s).unwrap());
    assert_eq!(array.status(1), PartStatus::Valid);
}

fn local_writes_are_marked_before_ghosts_are_refreshed(setup: &Setup) {
    let mut array = ring(setup);
    let own = array.partition().owned();
    let writes: [fn(&mut Ring, &Stream) -> Result<()>; 2] = [
        |array, stream| {
            let own = array.partition().owned();
            array.write_local(own, |part| set(&mut part.write(stream)?, stream, 4.0))
        },
        |array, _| {
            let own = array.partition().owned();
            array.write_local(own, |part| {
                part.read_write_host()?.fill(4.0);
                Ok(())
            })
        },
    ];
    for write in writes {
        fill(&mut array);
        assert_eq!(values(&array), FRESH);
        write(&mut array, &setup.s).unwrap();
        assert_eq!(owned(&array), [4.0; 3]);
        for error in [array.read_host().unwrap_err(), array.read(&setup.t).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
            for part in ["write_local", file!(), "mark_stale() on all ranks"] {
                assert!(error.message().contains(part), "{part:?} in {error}");
            }
        }
        if !array.is_valid_on(setup.t.device()) && !setup.shares() {
            // An exchange that did not begin is no mark.
            let forbidden = TransferBudget::forbid();
            array.begin_exchange(&setup.t, Exchange::Broadcast).map(drop).unwrap_err();
            drop(forbidden);
            assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Stale);
        }
        // Nor is one that did nothing.
        drop(array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap());
        assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Stale);
        array.mark_stale();
        assert_eq!(values(&array), [4.0; 5]);
    }
    let error = array.write_local(Parts::one(1), |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("Parts({1}) are not all owned; Parts({0}) are"), "{error}");
    contribute(&mut array, Reduce::Sum).unwrap();
    let error = array.write_local(own, |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    let error = Error::new(ErrorKind::Driver, "user", "mine");
    assert_eq!(values(&array).len(), 5);
    let mine = array.write_local(own, |_| Err::<(), _>(error)).unwrap_err();
    assert_eq!(mine.message(), "mine");
    // An exchange of all ranks is as good as a mark.
    let mut flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    flight.run(&mut links()).unwrap();
    flight.finish().unwrap();
    fill(&mut array);
    assert_eq!(values(&array), FRESH);
}

fn local_writes_that_did_not_begin_are_no_mark(setup: &Setup) {
    let mut array = ring(setup);
    let own = array.partition().owned();
    fill(&mut array);
    array.write_local(own, |_| Ok(())).unwrap();
    assert_eq!(values(&array), FRESH);
    if !setup.shares() {
        fill(&mut array);
        let _forbidden = TransferBudget::forbid();
        let refused = array.write_local(own, |part| part.read_write(&setup.t).map(drop));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
    assert_eq!(values(&array), FRESH);

    // A write that began has lost the old values.
    array.write_local(own, |part| part.write(&setup.s).map(|guard| guard.abort())).unwrap();
    array.write_local(own, |_| Ok(())).unwrap();
    array.part(own).unwrap().read_host().unwrap_err();
    fill(&mut array);
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Stale);
    array.mark_stale();
    assert_eq!(values(&array), FRESH);
}

/// Two ranks with the same collective calls, and with other histories and local writes.
fn the_sequence_number_counts_collective_calls_alone(setup: &Setup) {
    let numbers = |is_first: bool| {
        let (sender, numbers) = mpsc::channel();
        let (mut array, mut forest) = (plain(), links());
        setup.claim(&array);
        if is_first {
            fill(&mut array);
            fill(&mut array);
            array.mark_stale();
        }
        array.mark_stale();
        let refresh = move |exchange: &mut InFlight<'_, f64, Ix1>| {
            sender.send(exchange.sequence()).unwrap();
            exchange.run(&mut forest)
        };
        array.on_stale_ghosts(&setup.s, refresh).unwrap();
        values(&array);
        fill(&mut array);
        values(&array);
        let own = array.partition().owned();
        if is_first {
            for _ in 0..3 {
                let write = |part: &mut array_buffer::PartMut<'_, f64, Ix1>| {
                    set(&mut part.write(&setup.s)?, &setup.s, 1.0)
                };
                array.write_local(own, write).unwrap();
            }
        }
        let guard = array.read_write_host();
        assert_eq!(guard.is_err(), is_first);
        drop(guard);
        if is_first {
            array.mark_stale();
            values(&array);
        } else {
            values(&array);
        }
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        contribute(&mut array, Reduce::Sum).unwrap();
        values(&array);
        drop(array);
        numbers.iter().collect::<Vec<u64>>()
    };
    // The second makes one more write where the first marks its ghosts: both are collective.
    assert_eq!(numbers(false), numbers(true));
    assert_eq!(numbers(true), [0, 1, 2, 4, 5]);
}

fn other_parts_are_refreshed_as_the_old_ones(setup: &Setup) {
    let mut array = ring(setup);
    let (owned, ghosts): ([&[_]; 2], [&[_]; 2]) = ([&[1..3], &[3..4]], [&[4..5], &[0..1]]);
    array.repartition(Partition::new(&[5], &owned, &ghosts).unwrap()).unwrap();
    fill(&mut array);
    assert_eq!(values(&array), FRESH);
    assert_eq!(values_on(&array, &setup.t), FRESH);
    assert_eq!(refreshes(&array), (1, 0));
}

/// Empty parts have no values, so they are neither valid nor stale.
fn empty_ghosts_do_not_keep_others_from_being_refreshed(setup: &Setup) {
    let mut array = ring(setup);
    fill(&mut array);
    let ghosts: [&[_]; 3] = [&[0..0], &[0..1], &[4..5]];
    array.repartition(Partition::new(&[5], &[&[1..4]], &ghosts).unwrap()).unwrap();
    assert_eq!(values(&array), FRESH);
    assert_eq!(refreshes(&array), (1, 0));
}

/// A star forest needs the whole array in one memory; parts alone are exchanged one by one.
fn arrays_with_a_memory_budget_are_refreshed_by_parts(setup: &Setup) {
    if setup.shares() {
        return;
    }
    let mut array = ring(setup);
    array.evict(&setup.a).unwrap();
    array.set_memory_budget(&MemoryBudget::new(&setup.a, 5 * 8)).unwrap();
    fill(&mut array);
    let error = array.read_host().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("memory budget"), "{error}");
    array
        .on_stale_ghosts(&setup.s, |exchange| {
            let stream = exchange.stream();
            let own = exchange.source(OWN)?.to_vec(stream)?;
            exchange.target(1)?.fill(stream, own[2])?;
            exchange.target(2)?.fill(stream, own[0])
        })
        .unwrap();
    fill(&mut array);
    assert_eq!(values(&array), FRESH);
}

/// A refresh may begin while a constant array would drop streams, or where no stream has room.
fn a_registration_needs_room_for_its_stream(setup: &Setup) {
    let mut array = plain();
    let streams: Vec<Stream> = (0..=LANES).map(|_| setup.stream()).collect();
    for stream in &streams {
        if array.read(stream).is_err() {
            break;
        }
    }
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    array.on_stale_ghosts(&setup.s, |_| Ok(())).unwrap();
    // A forgotten exchange is not a running one.
    std::mem::forget(array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap());
    let error = array.read_host().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains("never ended"), "{error}");
}

/// The whole array is lent for exchanges that find the parts by their position.
#[expect(unsafe_code, reason = "lends more than is written")]
fn the_whole_array_can_be_lent(setup: &Setup) {
    let mut array = plain();
    setup.claim(&array);
    array
        .on_stale_ghosts(&setup.s, |exchange| {
            let stream = exchange.stream();
            let ghosts = exchange.partition().exchanged();
            // SAFETY: nothing is accessed.
            let refused = unsafe { exchange.whole(Parts::one(OWN)) }.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            // SAFETY: only the ghosts are written.
            let (own, mut whole) = unsafe { exchange.whole(ghosts) }?;
            whole.reborrow().slice(0..1)?.copy_from(stream, &own.slice(2..3)?)?;
            whole.slice(4..5)?.copy_from(stream, &own.slice(0..1)?)
        })
        .unwrap();
    fill(&mut array);
    let lent = array.read_host().map(|found| found.to_vec());
    assert_eq!(lent.unwrap(), FRESH);
    array
        .on_stale_ghosts(&setup.s, |exchange| {
            // SAFETY: nothing is accessed.
            unsafe { exchange.whole(exchange.partition().exchanged()) }.map(drop)
        })
        .unwrap();
    fill(&mut array);
    let error = array.read_host().unwrap_err();
    assert!(error.message().contains("ghost part 1 was not filled"), "{error}");
}

on_all_devices!(
    every_access_that_needs_ghosts_refreshes_them_once,
    accesses_that_need_no_ghosts_refresh_none,
    pending_contributions_are_reduced_first,
    without_a_registration_accesses_are_refused,
    parts_that_were_split_off_are_not_refreshed,
    ghosts_that_are_valid_beside_contributions_are_not_changed,
    a_failed_refresh_poisons_ghosts_and_can_be_repeated,
    a_panic_of_a_refresh_reaches_the_reader,
    a_refresh_that_needs_fresh_ghosts_is_a_conflict,
    a_refresh_that_finishes_another_exchange_is_a_conflict,
    threads_that_read_at_once_refresh_once,
    threads_survive_a_refresh_that_fails,
    budgets_forbid_refreshes,
    reports_name_the_access_that_needed_a_refresh,
    a_guard_that_wrote_nothing_counts_as_a_write,
    local_writes_are_marked_before_ghosts_are_refreshed,
    local_writes_that_did_not_begin_are_no_mark,
    the_sequence_number_counts_collective_calls_alone,
    other_parts_are_refreshed_as_the_old_ones,
    empty_ghosts_do_not_keep_others_from_being_refreshed,
    arrays_with_a_memory_budget_are_refreshed_by_parts,
    a_registration_needs_room_for_its_stream,
    the_whole_array_can_be_lent,
);

/// Each operation of a refresh fails, at once or when its turn comes. The owned values, which the host has, are as
/// before.
#[test]
fn failures_of_a_refresh_lose_nothing() {
    for operation in [Operation::Copy, Operation::Allocation] {
        for late in [false, true] {
            let mut failed = 0;
            for nth in 1.. {
                let setup = Setup::sim(SimConfig::new().peers(false));
                let mut array = ring(&setup);
                fill(&mut array);
                let sim = SimHandle::of(&setup.a).unwrap();
                sim.inject(match late {
                    false => Fault::fail(operation, nth),
                    true => Fault::fail_late(operation, nth),
                });
                let found = array.read_host().map(|found| found.to_vec());
                let is_done = setup.s.synchronize().is_ok() && found.is_ok();
                if let Err(error) = &found {
                    assert!(
                        !matches!(error.kind(), ErrorKind::Stale | ErrorKind::Conflict),
                        "{error}"
                    );
                } else {
                    assert_eq!(found.unwrap(), FRESH);
                }
                assert_eq!(owned(&array), [1.0, 2.0, 3.0], "{operation} {nth}, late: {late}");
                if is_done {
                    break;
                }
                array.mark_stale();
                assert_eq!(values(&array), FRESH, "{operation} {nth}, late: {late}");
                failed += 1;
            }
            // The copies of the owned values, of the links and back.
            assert!(failed >= 2, "{operation}, late: {late}: {failed}");
        }
    }
}
