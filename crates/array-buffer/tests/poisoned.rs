//! The error for lost values: it contains the cause and the line of the last writer.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

mod common;

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use array_buffer::{
    ArrayBuffer, ErrorKind, Exchange, PartStatus, Partition, Parts, SharedArrayBuffer,
};
use backend_sim::{Fault, Operation, SimHandle};
use common::{Setup, add, counting, set};
use ndarray::{Array1, Dimension, Ix2};

/// Checks the error that a reader gets.
#[track_caller]
fn assert_poisoned<D: Dimension>(array: &ArrayBuffer<f64, D>, line: u32, words: &str) {
    let error = array.read_host().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    let message = error.message();
    assert!(message.contains(words), "{message}");
    assert!(message.contains(&format!("poisoned.rs:{line}:")), "{message}");
}

#[test]
fn the_error_names_the_cause_and_the_writer() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = counting(4);

    let (guard, line) = (array.read_write(s).unwrap(), line!());
    forget(guard);
    assert_poisoned(&array, line, "by the read_write on sim:0");
    assert_poisoned(&array, line, "its guard was forgotten");

    let (guard, line) = (array.write_host().unwrap(), line!());
    drop(guard);
    assert_poisoned(&array, line, "by the write on host");
    assert_poisoned(&array, line, "nothing was written");

    let (guard, line) = (array.write(s).unwrap(), line!());
    guard.abort();
    assert_poisoned(&array, line, "it was aborted");

    let (mut guard, line) = (array.write(s).unwrap(), line!());
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail(Operation::Copy, 2));
    guard.view_mut().unwrap().fill(s, 1.0).unwrap_err();
    drop(guard);
    assert_poisoned(&array, line, "an operation failed");

    let mut line = 0;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        line = line!() + 1;
        let mut guard = array.write_host().unwrap();
        guard.fill(1.0);
        panic!("as planned");
    }));
    assert!(panicked.is_err());
    assert_poisoned(&array, line, "a panic began under its guard");
}

/// Guards that need nothing are noted in a short way. Asking for the state must not lose the note.
#[test]
fn querying_the_state_does_not_revive_a_forgotten_guard() {
    let setup = Setup::peers();
    let mut array = counting(4);
    for last in [false, true] {
        let mut guard = array.read_write(&setup.s).unwrap();
        add(&mut guard, &setup.s, 1.0).unwrap();
        if last {
            forget(guard);
        }
    }
    assert_eq!(array.status(0), PartStatus::InUse);
    assert_eq!(array.read(&setup.s).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(array.duplicate().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn new_parts_without_elements_name_the_cause_by_which_all_values_were_lost() {
    let setup = Setup::peers();
    let parts = || {
        let parts: [&[_]; 2] = [&[0..4], &[4..4]];
        Partition::new(&[4], &parts, &[]).unwrap()
    };
    let mut array = counting(4);
    let (guard, line) = (array.write(&setup.s).unwrap(), line!());
    guard.abort();
    array.repartition(parts()).unwrap();
    for part in [0, 1] {
        let error = array.part(Parts::one(part)).unwrap().read_host().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        for expected in
            ["it was aborted", &format!("part {part} "), &format!("poisoned.rs:{line}:")]
        {
            assert!(error.message().contains(expected), "{error}");
        }
    }
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
    assert_eq!(array.read_host().unwrap().to_vec(), [2.0; 4]);

    let mut array = ArrayBuffer::<f64, _>::uninit(4).unwrap();
    array.repartition(parts()).unwrap();
    assert_eq!(array.status(1), PartStatus::Uninitialized);
}

#[test]
fn work_that_failed_later_is_named_too() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = ArrayBuffer::<f64, _>::uninit(4).unwrap();
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
    let (mut guard, line) = (array.write(s).unwrap(), line!());
    guard.view_mut().unwrap().fill(s, 1.0).unwrap();
    guard.commit().unwrap();
    let error = array.read_host().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
    let (part, writer) =
        ("the 32 bytes of part 0 of an array of f64 [4]", format!("poisoned.rs:{line}:"));
    assert!(error.message().starts_with(&format!("{part}, written by the write on")), "{error}");
    assert!(error.message().contains(&writer) && error.message().contains("as planned"), "{error}");
    assert_poisoned(&array, line, "work on a stream failed");
}

#[test]
fn an_exchange_that_is_not_finished_is_named() {
    let setup = Setup::peers();
    let partition = Partition::with_ghosts(&[3], &[(1, 0)]).unwrap();
    let mut array = ArrayBuffer::from_array_with(Array1::zeros(3), partition).unwrap();
    drop(array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap());
    // Nothing was done.
    assert_eq!(array.status(1), PartStatus::Valid);
    let (flight, line) = (array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap(), line!());
    flight.source(0).unwrap();
    drop(flight);
    assert_poisoned(&array, line, "by the broadcast on sim:0");
    assert_poisoned(&array, line, "it was not finished");
}

#[test]
fn leases_report_the_same_causes() {
    let shared = SharedArrayBuffer::new(counting(2));
    let (lease, line) = (shared.lease_write(None, Duration::ZERO).unwrap(), line!());
    drop(lease);
    assert_poisoned(&shared.read(Duration::ZERO).unwrap(), line, "nothing was written");
}

#[test]
fn half_of_a_staged_copy_is_no_value() {
    let setup = Setup::apart();
    let (s, t) = (&setup.s, &setup.t);
    // The host copies in pieces of 4 MiB.
    let source = setup.b.memory_from_slice(t, &vec![1.0_f64; 1 << 20]).unwrap();
    let mut array = ArrayBuffer::<f64, _>::uninit(1 << 20).unwrap();
    let (mut guard, line) = (array.write(s).unwrap(), line!());
    SimHandle::of(&setup.b).unwrap().inject(Fault::fail(Operation::Copy, 3));
    guard.view_mut().unwrap().copy_from_device(s, &source.view(), t).unwrap_err();
    drop(guard);
    assert_poisoned(&array, line, "an operation failed");
}

#[test]
fn an_operation_that_finds_no_memory_has_failed() {
    for (setup, fills) in [(Setup::peers(), true), (Setup::peers(), false), (Setup::apart(), true)]
    {
        let s = &setup.s;
        let partition = Partition::with_ghosts(&[4, 5], &[(1, 1), (1, 1)]).unwrap();
        let mut array = ArrayBuffer::<f64, Ix2>::with_partition(partition).unwrap();
        let (mut guard, line) = (array.write(s).unwrap(), line!());
        guard.view_mut().unwrap().fill(s, 0.0).unwrap();
        let handle = SimHandle::of(&setup.a).unwrap();
        let next = handle.counts().allocations + handle.counts().pinned_allocations + 1;
        handle.inject(Fault::fail(Operation::Allocation, next));
        let mut part = guard.part_mut(0).unwrap();
        let done = if fills { part.fill(s, 1.0) } else { part.copy_from_slice(s, &[1.0; 6]) };
        assert_eq!(done.unwrap_err().kind(), ErrorKind::OutOfMemory);
        drop(guard);
        assert_poisoned(&array, line, "an operation failed");
    }
}
