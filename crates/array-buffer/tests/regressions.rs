//! Defects that were found in other systems. Each is a test with its name in `docs/coherence.md`.
#![expect(
    clippy::unwrap_used,
    clippy::single_range_in_vec_init,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; boxes of one dimension; small numbers"
)]

#[macro_use]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use array_buffer::{
    ArrayBuffer, ErrorKind, Exchange, PartStatus, Partition, Parts, Reduce, SharedArrayBuffer,
    StarForest, offload,
};
use common::{Setup, add, counting, set, values, values_on};
use ndarray::{Ix1, Ix2, array};

on_all_devices! {
    bump_before_sync_first_touch,
    bump_before_sync_stale_rw,
    ghosts_after_device_write,
    ghost_fill_invalidates_replicas,
    exchange_bound_to_one_device,
    access_during_exchange,
    wo_drops_pending_reduction,
    min_max_pending,
    split_reduction_keeps_op,
    wo_zero_copies,
    retained_view_write,
    duplicate_independent_state,
    duplicate_on_unvisited_device,
    constant_on_device,
    constant_round_trip,
    metadata_no_transfer,
    state_query_pure,
    read_on_new_device_keeps_version,
    stable_address_across_syncs,
    exception_in_view_scope_unfreezes,
    failed_write_not_committed,
    freeze_actually_locks,
    two_host_devices_do_not_alias,
    uninitialised_read,
    offloading_moves_nothing,
    wo_waits_inflight_reader,
    many_readers_one_writer,
    pinned_source_outlives_copy,
    subrange_sync_keeps_sibling_dirty,
    subrange_noncontiguous,
    two_readers_no_ping_pong,
    conflict_names_the_holder,
}

/// Three owned elements, and a ghost of the first.
fn ring() -> (ArrayBuffer<f64, Ix1>, StarForest) {
    let partition = Partition::new(&[4], &[&[0..3]], &[&[3..4]]).unwrap();
    let array = ArrayBuffer::from_array_with(array![0.0, 0.0, 0.0, 0.0], partition).unwrap();
    (array, StarForest::new([(vec![3..4], vec![0..1])]))
}

fn exchange(
    array: &mut ArrayBuffer<f64, Ix1>,
    forest: &mut StarForest,
    setup: &Setup,
    direction: Exchange,
) {
    let mut flight = array.begin_exchange(&setup.s, direction).unwrap();
    flight.run(forest).unwrap();
    flight.finish().unwrap();
}

fn bump_before_sync_first_touch(setup: &Setup) {
    let mut array = counting(4);
    let mut guard = array.read_write(&setup.s).unwrap();
    add(&mut guard, &setup.s, 1.0).unwrap();
    guard.commit().unwrap();
    assert_eq!(values(&array), [1.0, 2.0, 3.0, 4.0]);

    let mut array = ArrayBuffer::<f64, Ix1>::uninit(4).unwrap();
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 5.0).unwrap();
    assert_eq!(values(&array), [5.0; 4]);
}

fn bump_before_sync_stale_rw(setup: &Setup) {
    let mut array = counting(4);
    array.read(&setup.s).unwrap();
    array.write_host().unwrap().fill(10.0);
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert_eq!(values_on(&array, &setup.s), [11.0; 4]);
    assert_eq!(values(&array), [11.0; 4]);
}

fn ghosts_after_device_write(setup: &Setup) {
    let (mut array, mut forest) = ring();
    let mut guard = array.write(&setup.s).unwrap();
    guard.view_mut().unwrap().copy_from_slice(&setup.s, &[5.0, 6.0, 7.0, 0.0]).unwrap();
    guard.commit().unwrap();
    assert_eq!(array.read(&setup.s).unwrap_err().kind(), ErrorKind::Stale);
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Stale);
    exchange(&mut array, &mut forest, setup, Exchange::Broadcast);
    assert_eq!(values_on(&array, &setup.s), [5.0, 6.0, 7.0, 5.0]);
    assert_eq!(values(&array), [5.0, 6.0, 7.0, 5.0]);
}

fn ghost_fill_invalidates_replicas(setup: &Setup) {
    let (mut array, _) = ring();
    array.prefetch(&setup.s).unwrap();
    array.prefetch(&setup.t).unwrap();
    let (version, ghosts) = (array.version(), array.partition().ghosts());
    drop(array.accumulate(&setup.s, Reduce::Sum).unwrap());
    assert_eq!(array.version(), version);
    assert_eq!(array.status(1), PartStatus::Stale);
    let error = array.part(ghosts).unwrap().read(&setup.t).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    let owned = array.partition().owned();
    array.part(owned).unwrap().read(&setup.t).unwrap();
}

fn exchange_bound_to_one_device(setup: &Setup) {
    let (mut array, mut forest) = ring();
    array.split([Parts::one(0)]).unwrap()[0].write_host().unwrap().fill(3.0);
    let mut flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    let _elsewhere = offload(&setup.t);
    flight.run(&mut forest).unwrap();
    // Views are bound to the exchange's stream.
    let error = flight.source(0).unwrap().to_vec(&setup.t).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDevice);
    flight.finish().unwrap();
    assert!(array.is_valid_on(&setup.a));
    assert_eq!(values(&array), [3.0; 4]);
}

fn access_during_exchange(setup: &Setup) {
    let (mut array, mut forest) = ring();
    let flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    // The borrow excludes other accesses; only an exchange that is never ended remains to be tested.
    std::mem::forget(flight);
    assert_eq!(array.read(&setup.s).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(array.read_write_host().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(array.status(1), PartStatus::InUse);
    exchange(&mut array, &mut forest, setup, Exchange::Broadcast);
    assert_eq!(values(&array), [0.0; 4]);
}

fn wo_drops_pending_reduction(setup: &Setup) {
    let (mut array, mut forest) = ring();
    add(&mut array.accumulate(&setup.s, Reduce::Sum).unwrap(), &setup.s, 1.0).unwrap();
    assert_eq!(array.status(1), PartStatus::Pending(Reduce::Sum));
    assert_eq!(array.read(&setup.s).unwrap_err().kind(), ErrorKind::Stale);
    array.split([Parts::one(0)]).unwrap()[0].write_host().unwrap().fill(2.0);
    assert_eq!(array.status(1), PartStatus::Stale);
    exchange(&mut array, &mut forest, setup, Exchange::Broadcast);
    assert_eq!(values(&array), [2.0; 4]);
}

fn min_max_pending(setup: &Setup) {
    for (op, expected) in [
        (Reduce::Sum, [12.0, 1.0, 1.0]),
        (Reduce::Min, [1.0, 1.0, 1.0]),
        (Reduce::Max, [11.0, 1.0, 1.0]),
        (Reduce::Replace, [11.0, 1.0, 1.0]),
    ] {
        let (mut array, mut forest) = ring();
        let mut owned = array.split([Parts::one(0)]).unwrap();
        owned[0].write_host().unwrap().fill(1.0);
        let [mut ghost] = array.split([Parts::one(1)]).unwrap();
        let mut guard = ghost.accumulate(&setup.s, op).unwrap();
        if op == Reduce::Sum {
            // Contributions to a sum begin with zero.
            add(&mut guard, &setup.s, 11.0).unwrap();
        } else {
            if op != Reduce::Replace {
                let neutral: Vec<f64> = guard.view().unwrap().to_vec(&setup.s).unwrap();
                let extreme = if op == Reduce::Min { f64::INFINITY } else { f64::NEG_INFINITY };
                assert_eq!(neutral, [extreme]);
            }
            set(&mut guard, &setup.s, 11.0).unwrap();
        }
        guard.commit().unwrap();
        exchange(&mut array, &mut forest, setup, Exchange::Reduce);
        let owned = array.part(Parts::one(0)).unwrap();
        assert_eq!(owned.read_host().unwrap().to_vec(), expected, "{op}");
        exchange(&mut array, &mut forest, setup, Exchange::Broadcast);
        assert_eq!(values(&array)[3], expected[0], "{op}");
    }
}

fn split_reduction_keeps_op(setup: &Setup) {
    let (mut array, _) = ring();
    add(&mut array.accumulate(&setup.s, Reduce::Max).unwrap(), &setup.s, 1.0).unwrap();
    let error = array.accumulate(&setup.s, Reduce::Sum).unwrap_err();
    assert!(error.message().contains("max"), "{error}");
    let flight = array.begin_exchange(&setup.s, Exchange::Reduce).unwrap();
    assert_eq!(flight.reduction(), Some(Reduce::Max));
    flight.source(1).unwrap();
    drop(flight);
    assert_eq!(array.status(0), PartStatus::Poisoned);
    // Contributions to two ghosts at once.
    let partition = Partition::new(&[6], &[&[0..2]], &[&[2..4], &[4..6]]).unwrap();
    let mut array =
        ArrayBuffer::from_array_with(ndarray::Array1::<f64>::ones(6), partition).unwrap();
    let [mut first, mut second] = array.split([Parts::one(1), Parts::one(2)]).unwrap();
    let sum = first.accumulate(&setup.s, Reduce::Sum).unwrap();
    let error = second.accumulate(&setup.s, Reduce::Max).map(drop).unwrap_err();
    assert!(error.message().contains("sum"), "{error}");
    drop(second.accumulate(&setup.s, Reduce::Sum).unwrap());
    drop(sum);
}

fn wo_zero_copies(setup: &Setup) {
    let mut array = counting(1000);
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 2.0).unwrap();
    array.write_host().unwrap().fill(3.0);
    assert_eq!(array.transfers().total().bytes, 0);
    assert_eq!(values(&array), [3.0; 1000]);
}

fn retained_view_write(setup: &Setup) {
    // A live guard keeps the array borrowed. A forgotten guard counts as a writer that never ended.
    let mut array = counting(4);
    std::mem::forget(array.read_write(&setup.s).unwrap());
    assert_eq!(array.read(&setup.t).unwrap_err().kind(), ErrorKind::Poisoned);
    array.write_host().unwrap().fill(1.0);
    assert_eq!(values_on(&array, &setup.t), [1.0; 4]);
}

fn duplicate_independent_state(setup: &Setup) {
    let mut array = counting(4);
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    let mut copy = array.duplicate().unwrap();
    assert!(copy.is_valid_on(&setup.a) || setup.shares());
    copy.write_host().unwrap().fill(0.0);
    set(&mut copy.write(&setup.t).unwrap(), &setup.t, 9.0).unwrap();
    assert_eq!(values(&array), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values(&copy), [9.0; 4]);
}

fn duplicate_on_unvisited_device(setup: &Setup) {
    let array = counting(4);
    let _on = offload(&setup.t);
    let copy = array.duplicate().unwrap();
    assert_eq!(values_on(&copy, &setup.t), [0.0, 1.0, 2.0, 3.0]);
    assert!(copy.read_here().unwrap().is_device());
}

fn constant_on_device(setup: &Setup) {
    // `crates/compile-fail` tests that writing does not compile.
    let array = counting(4).freeze();
    assert_eq!(values_on(&array, &setup.s), values_on(&array, &setup.t));
    assert_eq!(array.version(), 0);
}

fn constant_round_trip(setup: &Setup) {
    let array = counting(4).freeze();
    for _ in 0..2 {
        assert_eq!(values_on(&array, &setup.s), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(values(&array), [0.0, 1.0, 2.0, 3.0]);
    }
    // More streams than an array tracks at once: there are no writes, so no stream needs to be tracked.
    for _ in 0..70 {
        assert_eq!(values_on(&array, &setup.stream())[3], 3.0);
    }
}

fn metadata_no_transfer(setup: &Setup) {
    let array = counting(4);
    let _on = offload(&setup.s);
    let before = setup.a.statistics();
    assert_eq!((array.len(), array.shape().len(), array.dtype().size()), (4, 1, 8));
    assert!(!array.is_empty() && array.version() == 0 && array.partition().count() == 1);
    assert_eq!(setup.a.statistics(), before);
    assert_eq!(array.transfers().total().count, 0);
}

fn state_query_pure(setup: &Setup) {
    let array = counting(4);
    let shown = format!("{array:?}");
    let shares = setup.shares();
    assert!(
        !array.is_valid_on(&setup.a) && !array.is_valid_on(&setup.b) && array.is_valid_on_host()
    );
    assert_eq!(format!("{array:?}"), shown);
    array.read(&setup.s).unwrap();
    assert!(
        array.is_valid_on(&setup.a) && !array.is_valid_on(&setup.b) && array.is_valid_on_host()
    );
    assert_eq!(array.transfers().total().count, u64::from(!shares));
}

fn read_on_new_device_keeps_version(setup: &Setup) {
    let mut array = counting(4);
    array.write_host().unwrap().fill(1.0);
    let version = array.version();
    array.read(&setup.s).unwrap();
    array.prefetch(&setup.t).unwrap();
    array.read_host().unwrap();
    array.evict(&setup.b).unwrap();
    assert_eq!(array.version(), version);
    array.read_write(&setup.s).unwrap();
    assert_eq!(array.version(), version, "nothing was written");
    set(&mut array.read_write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
    assert_eq!(array.version(), version + 1);
}

fn stable_address_across_syncs(setup: &Setup) {
    let mut array = counting(4);
    let address =
        |array: &ArrayBuffer<f64, Ix1>| array.read(&setup.s).unwrap().view().unwrap().native();
    let first = address(&array);
    array.write_host().unwrap().fill(3.0);
    assert_eq!(address(&array), first);
    assert_eq!(values_on(&array, &setup.s), [3.0; 4]);
}

fn exception_in_view_scope_unfreezes(setup: &Setup) {
    let mut array = counting(4);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = array.read_write(&setup.s).unwrap();
        set(&mut guard, &setup.s, 7.0).unwrap();
        panic!("in the middle of it");
    }));
    assert!(panicked.is_err());
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
    array.write_host().unwrap().fill(1.0);
    assert_eq!(values_on(&array, &setup.s), [1.0; 4]);

    let shared = SharedArrayBuffer::new(counting(2));
    let frozen = catch_unwind(AssertUnwindSafe(|| {
        let _frozen = shared.freeze("a view", Duration::ZERO).unwrap();
        panic!("with the view out");
    }));
    assert!(frozen.is_err());
    shared.write(Duration::ZERO).unwrap();
}

fn failed_write_not_committed(setup: &Setup) {
    let mut array = counting(4);
    let version = array.version();
    let mut guard = array.write(&setup.s).unwrap();
    // Too short: refused before anything was enqueued, so nothing was written.
    guard.view_mut().unwrap().copy_from_slice(&setup.s, &[1.0]).unwrap_err();
    assert_eq!(guard.commit().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!((array.version(), array.status(0)), (version, PartStatus::Poisoned));
    assert_eq!(array.read(&setup.t).unwrap_err().kind(), ErrorKind::Poisoned);

    array.write_host().unwrap().fill(1.0);
    array.read_write(&setup.s).unwrap().abort();
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
}

fn freeze_actually_locks(_: &Setup) {
    let shared = SharedArrayBuffer::new(counting(2));
    let frozen = shared.freeze("the solver", Duration::ZERO).unwrap();
    let error = shared.write(Duration::from_secs(60)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("the solver"), "{error}");
    shared.read(Duration::ZERO).unwrap();
    drop(frozen);
    shared.write(Duration::ZERO).unwrap();
}

fn two_host_devices_do_not_alias(setup: &Setup) {
    let mut array = counting(4);
    let native = |array: &ArrayBuffer<f64, Ix1>, stream| {
        array.read(stream).unwrap().view().unwrap().native().unwrap()
    };
    assert_ne!(native(&array, &setup.s), native(&array, &setup.t));
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert!(!array.is_valid_on(&setup.b));
    assert_eq!(values_on(&array, &setup.t), [1.0; 4]);
}

fn uninitialised_read(setup: &Setup) {
    let mut array = ArrayBuffer::<f64, Ix2>::uninit((3, 2)).unwrap();
    let before = setup.a.statistics();
    assert_eq!(array.read(&setup.s).unwrap_err().kind(), ErrorKind::Uninitialized);
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Uninitialized);
    assert_eq!(array.read_write(&setup.s).unwrap_err().kind(), ErrorKind::Uninitialized);
    assert_eq!(array.prefetch(&setup.s).unwrap_err().kind(), ErrorKind::Uninitialized);
    assert_eq!(setup.a.statistics(), before, "neither filled nor allocated");
}

fn offloading_moves_nothing(setup: &Setup) {
    let array = counting(4);
    array.read(&setup.s).unwrap();
    let before = (setup.a.statistics(), setup.b.statistics(), array.transfers());
    {
        let _outer = offload(&setup.s);
        {
            let _inner = offload(&setup.t);
            assert_eq!(array_buffer::here(), Some(setup.t.clone()));
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _inner = offload(&setup.t);
            panic!("inside");
        }));
        assert!(panicked.is_err());
        assert_eq!(array_buffer::here(), Some(setup.s.clone()));
        array_buffer::on_host(|| assert_eq!(array_buffer::here(), None));
    }
    assert_eq!(array_buffer::here(), None);
    assert_eq!((setup.a.statistics(), setup.b.statistics(), array.transfers()), before);
}

fn wo_waits_inflight_reader(setup: &Setup) {
    // Miri finds a race at once.
    for _ in 0..if cfg!(miri) { 2 } else { 20 } {
        let mut array = counting(4000);
        let slow = setup.stream();
        let mut seen = setup.a.memory_allocate::<f64>(4000).unwrap();
        // A long queue before the read: a writer that does not wait would overtake it.
        for _ in 0..8 {
            seen.fill(&slow, 0.0).unwrap();
        }
        let guard = array.read(&slow).unwrap();
        seen.view_mut().copy_from(&slow, &guard.view().unwrap()).unwrap();
        set(&mut array.write(&setup.s).unwrap(), &setup.s, -1.0).unwrap();
        let seen = seen.to_vec(&slow).unwrap();
        assert_eq!(seen[3999], 3999.0);
        assert_eq!(values(&array)[3999], -1.0);
    }
}

fn many_readers_one_writer(setup: &Setup) {
    for _ in 0..if cfg!(miri) { 2 } else { 10 } {
        let mut array = counting(1000);
        let streams: Vec<_> = (0..4).map(|_| setup.stream()).collect();
        let mut seen = Vec::new();
        for stream in &streams {
            let mut memory = setup.a.memory_allocate::<f64>(1000).unwrap();
            for _ in 0..4 {
                memory.fill(stream, 0.0).unwrap();
            }
            let guard = array.read(stream).unwrap();
            memory.view_mut().copy_from(stream, &guard.view().unwrap()).unwrap();
            seen.push(memory);
        }
        set(&mut array.write(&setup.s).unwrap(), &setup.s, -1.0).unwrap();
        for (memory, stream) in seen.iter().zip(&streams) {
            assert_eq!(memory.to_vec(stream).unwrap()[999], 999.0);
        }
    }
}

fn pinned_source_outlives_copy(setup: &Setup) {
    for _ in 0..if cfg!(miri) { 2 } else { 10 } {
        let array = counting(3000);
        let stream = setup.stream();
        let mut seen = setup.a.memory_allocate::<f64>(3000).unwrap();
        seen.fill(&stream, 0.0).unwrap();
        let guard = array.read(&stream).unwrap();
        seen.view_mut().copy_from(&stream, &guard.view().unwrap()).unwrap();
        // The array, its staging memory and its replica are dropped while the copies wait in the stream.
        drop(array);
        assert_eq!(seen.to_vec(&stream).unwrap()[2999], 2999.0);
    }
}

/// A frame of ghosts around a 4 × 6 interior, filled on the host.
fn framed() -> ArrayBuffer<f64, Ix2> {
    let partition = Partition::with_ghosts(&[6, 8], &[(1, 1), (1, 1)]).unwrap();
    let values = ndarray::Array2::from_shape_fn((6, 8), |(i, j)| (10 * i + j) as f64);
    ArrayBuffer::from_array_with(values, partition).unwrap()
}

fn subrange_sync_keeps_sibling_dirty(setup: &Setup) {
    let mut array = framed();
    array.prefetch(&setup.t).unwrap();
    let [mut west, mut east] = array.split([Parts::one(3), Parts::one(4)]).unwrap();
    set(&mut west.write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    set(&mut east.write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
    let before = array.transfers().total();
    array.part(Parts::one(3)).unwrap().read(&setup.t).unwrap();
    let after = array.transfers().total();
    assert_eq!((after.count - before.count, after.bytes - before.bytes), (1, 4 * 8));
    assert!(!array.is_valid_on(&setup.b));
    let seen = array.part(Parts::one(4)).unwrap();
    assert_eq!(seen.read(&setup.t).unwrap().parts(), Parts::one(4));
    assert!(array.is_valid_on(&setup.b));
}

fn subrange_noncontiguous(setup: &Setup) {
    let mut array = framed();
    // Copies by parts to both devices and back.
    for part in 0..array.partition().count() {
        array.part(Parts::one(part)).unwrap().read(&setup.s).unwrap();
    }
    let expected = values(&array);
    assert_eq!(values_on(&array, &setup.s), expected);
    let [mut inner] = array.split([Parts::one(0)]).unwrap();
    add(&mut inner.read_write(&setup.s).unwrap(), &setup.s, 100.0).unwrap();
    let inner = array.part(Parts::one(0)).unwrap();
    inner.read(&setup.t).unwrap();
    let seen = inner.read_host().unwrap();
    assert_eq!(seen.shape(), [4, 6]);
    let expected = ndarray::Array2::from_shape_fn((4, 6), |(i, j)| (111 + 10 * i + j) as f64);
    assert_eq!(*seen, *expected);
}

fn two_readers_no_ping_pong(setup: &Setup) {
    let mut array = counting(100);
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 4.0).unwrap();
    for _ in 0..5 {
        array.read(&setup.s).unwrap();
        array.read(&setup.t).unwrap();
    }
    assert_eq!(array.transfers().total().count, 1);
}

fn conflict_names_the_holder(_: &Setup) {
    let shared = SharedArrayBuffer::new(counting(2));
    let other = shared.clone();
    let writer = shared.write(Duration::ZERO).unwrap();
    let error = std::thread::Builder::new()
        .name("second".to_owned())
        .spawn(move || other.write(Duration::from_millis(20)).unwrap_err())
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().contains("regressions.rs"), "{error}");
    assert!(error.message().contains("held for writing"), "{error}");
    // A thread never waits for itself.
    let error = shared.read(Duration::from_secs(60)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    drop(writer);
    shared.read(Duration::ZERO).unwrap();
}

#[test]
fn threads_write_several_parts_each() {
    let single: Vec<[std::ops::Range<usize>; 1]> = (0..4).map(|at| [at..at + 1]).collect();
    let owned: Vec<&[std::ops::Range<usize>]> = single.iter().map(|part| &part[..]).collect();
    let partition = Partition::new(&[4], &owned, &[]).unwrap();
    let mut array = ArrayBuffer::from_array_with(array![0.0, 0.0, 0.0, 0.0], partition).unwrap();
    let halves = [Parts::one(0) | Parts::one(1), Parts::one(2) | Parts::one(3)];
    let start = Instant::now();
    let [first, second] = std::thread::scope(|scope| {
        let threads = array.split(halves).unwrap().map(|mut half| {
            scope.spawn(move || {
                let mut written = 0_u32;
                while start.elapsed() < Duration::from_secs(1) {
                    // Two places write, so some accesses need the state.
                    for _ in 0..2 {
                        half.read_write_host().unwrap()[0] += 1.0;
                    }
                    half.read_write_host().unwrap()[0] += 1.0;
                    written += 3;
                }
                written
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(values(&array), [first, 0, second, 0].map(f64::from));
    assert_eq!(array.version(), u64::from(first) + u64::from(second));
}

#[test]
fn writing_no_parts_changes_nothing() {
    let setup = Setup::peers();
    let mut array = counting(4);
    for _ in 0..2 {
        let version = array.version();
        let mut guard = array.write(&setup.s).unwrap();
        set(&mut guard, &setup.s, 2.0).unwrap();
        let (none, all) = guard.split_off(Parts::NONE);
        none.commit().unwrap();
        all.commit().unwrap();
        assert_eq!(array.version(), version + 1);
    }
    let version = array.version();
    let [mut none] = array.split([Parts::NONE]).unwrap();
    none.write(&setup.s).unwrap().commit().unwrap();
    none.read_write(&setup.s).unwrap().commit().unwrap();
    none.accumulate(&setup.s, Reduce::Sum).unwrap().abort();
    assert_eq!((array.version(), array.status(0)), (version, PartStatus::Valid));
}

#[test]
fn constants_end_after_readers_on_many_streams() {
    // More streams than an array tracks; each is idle when the next one comes.
    let setup = Setup::sim(common::quick().jitter(Duration::from_millis(3)));
    let constant = counting(4).freeze();
    let first = setup.stream();
    let guard = constant.read(&first).unwrap();
    first.synchronize().unwrap();
    for _ in 0..40 {
        let stream = setup.stream();
        constant.read(&stream).unwrap();
        stream.synchronize().unwrap();
    }
    let mut seen = setup.a.memory_allocate::<f64>(4).unwrap();
    for _ in 0..20 {
        seen.view_mut().copy_from(&first, &guard.view().unwrap()).unwrap();
    }
    drop(guard);
    let mut memory = constant.into_memory(&setup.s).unwrap();
    memory.fill(&setup.s, 7.0).unwrap();
    setup.s.synchronize().unwrap();
    assert_eq!(seen.to_vec(&first).unwrap(), [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn an_unused_accumulation_leaves_owned_values_and_outdates_ghosts() {
    let setup = Setup::peers();
    let (mut array, mut forest) = ring();
    let mut exchange = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    exchange.run(&mut forest).unwrap();
    exchange.finish().unwrap();
    let version = array.version();
    array.accumulate(&setup.s, Reduce::Sum).unwrap().commit().unwrap();
    assert_eq!((array.status(0), array.status(1)), (PartStatus::Valid, PartStatus::Stale));
    assert_eq!(array.version(), version);
}
