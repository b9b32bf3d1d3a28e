//! Arrays that a device and the host keep in one replica: nothing is copied between them, and each waits for the other.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "the gate launches a kernel, and one array has memory of the test")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

mod common;
#[path = "../../interchange/tests/common/gate.rs"]
mod gate;

use std::ptr::NonNull;

use array_buffer::{ArrayBuffer, MemoryBudget, PartStatus, Partition, Parts};
use backend_sim::{Fault, Operation, SimHandle};
use common::{Setup, add, counting, quick, set, values, values_on};
use ndarray::{Array2, Ix1};
use runtime_core::ErrorKind;

const LEN: u32 = 1000;
const BYTES: u64 = LEN as u64 * 8;

/// `[0, 1, 2, …]` in a replica that the host and the setup's first device share. `None` if its driver does not allow
/// this.
fn unified(setup: &Setup, len: u32) -> Option<ArrayBuffer<f64, Ix1>> {
    let mut array = counting(len);
    match array.unify(&setup.a) {
        Err(error) => {
            assert_eq!(
                (error.kind(), setup.a.unified_memory().is_none()),
                (ErrorKind::Unsupported, true)
            );
            assert_eq!(error.device(), Some(setup.a.id()));
            assert_eq!(values_on(&array, &setup.s).len(), len as usize);
            None
        }
        Ok(()) => Some(array),
    }
}

fn copied<D>(array: &ArrayBuffer<f64, D>) -> u64
where
    D: ndarray::Dimension,
{
    array.transfers().total().bytes
}

fn host_and_device_take_turns_without_copies(setup: &Setup) {
    for len in [0, 1, LEN] {
        let Some(mut array) = unified(setup, len) else { return };
        let other = setup.stream();
        for _ in 0..5 {
            add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
            array.read_write_host().unwrap().mapv_inplace(|value| value + 1.0);
            add(&mut array.read_write(&other).unwrap(), &other, 1.0).unwrap();
        }
        let expected: Vec<f64> = (0..len).map(|value| f64::from(value) + 15.0).collect();
        assert_eq!(values(&array), expected);
        assert_eq!(values_on(&array, &setup.s), expected);
        assert!(array.is_valid_on(&setup.a) && array.is_valid_on_host());
        assert_eq!(copied(&array), 0);
        assert_eq!(array.into_inner().unwrap().to_vec(), expected);
    }
}

/// Values of the device alone are copied to the shared replica once. Values that the host has are not transferred.
fn existing_values_move_once(setup: &Setup) {
    if unified(setup, 1).is_none() {
        return;
    }
    for (place, is_copied) in [(None, false), (Some(&setup.s), true), (Some(&setup.t), false)] {
        let mut array = counting(LEN);
        setup.claim(&array);
        let other = setup.stream();
        let mut expected: Vec<f64> = (0..LEN).map(f64::from).collect();
        if let Some(stream) = place {
            values_on(&array, &other);
            set(&mut array.write(stream).unwrap(), stream, 3.0).unwrap();
            expected.fill(3.0);
        }
        let before = copied(&array);
        array.unify(&setup.a).unwrap();
        array.unify(&setup.a).unwrap();
        let moved = if is_copied && !setup.shares() { BYTES } else { 0 };
        assert_eq!(copied(&array) - before, moved, "{place:?}");
        // Streams that the array knew work in the shared replica now.
        add(&mut array.read_write(&other).unwrap(), &other, 1.0).unwrap();
        expected.iter_mut().for_each(|value| *value += 1.0);
        let before = copied(&array);
        assert_eq!(values(&array), expected);
        assert_eq!(values_on(&array, &setup.s), expected);
        assert_eq!(copied(&array), before);
    }
}

fn arrays_without_values_can_be_unified(setup: &Setup) {
    if unified(setup, 1).is_none() {
        return;
    }
    let mut array = ArrayBuffer::<f64, _>::uninit(LEN as usize).unwrap();
    array.unify(&setup.a).unwrap();
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Uninitialized);
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
    assert_eq!(values(&array), [2.0; LEN as usize]);
    assert_eq!(copied(&array), 0);
}

/// The other device has a replica of its own, which is brought up to date as ever.
fn other_devices_have_their_own_replicas(setup: &Setup) {
    let Some(mut array) = unified(setup, LEN) else { return };
    for round in 0..3 {
        let start = 3.0 * f64::from(round);
        assert_eq!(values_on(&array, &setup.t)[7], start + 7.0);
        add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        assert_eq!(values_on(&array, &setup.t)[7], start + 9.0);
        array.read_write_host().unwrap().mapv_inplace(|value| value + 1.0);
    }
    add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
    array.evict(&setup.b).unwrap();
    array.evict(&setup.a).unwrap();
    assert_eq!(values(&array)[7], 17.0);
    assert_eq!(values_on(&array, &setup.s)[7], 17.0);
}

/// Host and device use different parts at the same time.
fn parts_with_gaps_are_shared(setup: &Setup) {
    if unified(setup, 1).is_none() {
        return;
    }
    let owned: [&[_]; 2] = [&[0..40, 0..3], &[0..40, 3..7]];
    let partition = Partition::new(&[40, 7], &owned, &[]).unwrap();
    let start = Array2::from_shape_fn((40, 7), |(i, j)| (7 * i + j) as f64);
    let mut array = ArrayBuffer::from_array_with(start.clone(), partition).unwrap();
    // One part has values on each side.
    let [mut left] = array.split([Parts::one(0)]).unwrap();
    add(&mut left.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    array.unify(&setup.a).unwrap();
    let before = copied(&array);
    for _ in 0..4 {
        let [mut left, mut right] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
        let mut device = left.read_write(&setup.s).unwrap();
        let mut host = right.read_write_host().unwrap();
        add(&mut device, &setup.s, 1.0).unwrap();
        host.mapv_inplace(|value| value + 5.0);
    }
    let mut expected = start;
    expected.slice_mut(ndarray::s![.., ..3]).mapv_inplace(|value| value + 5.0);
    expected.slice_mut(ndarray::s![.., 3..]).mapv_inplace(|value| value + 20.0);
    assert_eq!(array.read_host().unwrap().to_owned(), expected);
    assert_eq!(copied(&array), before);
    array.repartition(Partition::whole(&[40, 7]).unwrap()).unwrap();
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert_eq!(array.read_host().unwrap().to_owned(), expected + 1.0);
    assert_eq!(copied(&array), before);
}

fn values_can_leave_the_shared_replica(setup: &Setup) {
    let Some(mut array) = unified(setup, LEN) else { return };
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    let mut copy = array.duplicate().unwrap();
    copy.write_host().unwrap().fill(0.0);
    assert_eq!(values(&array)[9], 10.0);
    let refused = array.into_memory(&setup.s).unwrap_err();
    let (array, error) = refused.into_parts();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let memory = array.into_memory(&setup.t).unwrap();
    assert_eq!(memory.to_vec(&setup.t).unwrap()[9], 10.0);
}

/// A refused call changes nothing, and says what is in the way.
fn misuse_is_refused(setup: &Setup) {
    if unified(setup, 1).is_none() || setup.shares() {
        return;
    }
    let refused = |array: &mut ArrayBuffer<f64, Ix1>, setup: &Setup, why: &str| {
        let error = array.unify(&setup.a).unwrap_err();
        assert_eq!((error.kind(), error.device()), (ErrorKind::Conflict, Some(setup.a.id())));
        assert!(error.message().contains(why), "{error}");
        assert_eq!(values(array)[9], 9.0);
        assert_eq!(values_on(array, &setup.s)[9], 9.0);
    };
    let mut array = counting(10);
    array.page_lock(&setup.a).unwrap();
    refused(&mut array, setup, &format!("page-locked for {}", setup.a.id()));

    let mut array = counting(10);
    let budget = MemoryBudget::new(&setup.a, 1 << 20);
    array.set_memory_budget(&budget).unwrap();
    refused(&mut array, setup, "memory budget");

    let mut elements: Vec<f64> = (0..10).map(f64::from).collect();
    let first = NonNull::new(elements.as_mut_ptr()).unwrap();
    // SAFETY: the vector owns the elements, and is only dropped with the array.
    let mut array = unsafe { ArrayBuffer::from_host_memory(first, 10, elements) }.unwrap();
    refused(&mut array, setup, "another owner");

    let mut array = counting(10);
    array.unify(&setup.a).unwrap();
    let error = array.unify(&setup.b).unwrap_err();
    assert_eq!((error.kind(), error.device()), (ErrorKind::Conflict, Some(setup.b.id())));
    assert!(error.message().contains(&setup.a.id().to_string()), "{error}");
    assert_eq!(array.page_lock(&setup.b).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(array.evict_host().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(values(&array)[9], 9.0);
}

on_all_devices! {
    host_and_device_take_turns_without_copies,
    existing_values_move_once,
    arrays_without_values_can_be_unified,
    other_devices_have_their_own_replicas,
    parts_with_gaps_are_shared,
    values_can_leave_the_shared_replica,
    misuse_is_refused,
}

#[test]
fn a_device_without_unified_memory_is_refused() {
    let setup = Setup::sim(quick().unified_memory(false));
    assert!(unified(&setup, 10).is_none());
}

/// The host waits for the device's work, and the device's later work comes after the host's access.
#[test]
fn each_side_waits_for_the_other() {
    let setup = Setup::peers();
    let mut array = unified(&setup, LEN).unwrap();
    let held = gate::start(&mut setup.a.memory_allocate(1).unwrap(), &setup.s);
    array.write(&setup.s).unwrap().view_mut().unwrap().fill(&setup.s, 4.0).unwrap();
    held.open_later();
    assert_eq!(values(&array)[9], 4.0);
    assert!(held.is_open(), "the host did not wait");
    let held = gate::start(&mut setup.a.memory_allocate(1).unwrap(), &setup.s);
    let mut copy = setup.a.memory_allocate::<f64>(LEN as usize).unwrap();
    let read = array.read(&setup.s).unwrap();
    copy.view_mut().copy_from_device(&setup.s, &read.view().unwrap(), &setup.s).unwrap();
    drop(read);
    held.open_later();
    array.write_host().unwrap().fill(5.0);
    assert!(held.is_open(), "the host overwrote what the device reads");
    assert_eq!(copy.to_vec(&setup.s).unwrap()[9], 4.0);
}

/// What the device alone has, in two parts.
fn on_device(setup: &Setup) -> ArrayBuffer<f64, Ix1> {
    let parts: [&[_]; 2] = [&[0..500], &[500..1000]];
    let partition = Partition::new(&[1000], &parts, &[]).unwrap();
    let mut array = ArrayBuffer::with_partition(partition).unwrap();
    array.write_host().unwrap().fill(0.0);
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 3.0).unwrap();
    setup.s.synchronize().unwrap();
    array
}

fn check_as_before(array: &mut ArrayBuffer<f64, Ix1>, setup: &Setup) {
    assert!(!array.is_valid_on_host());
    assert_eq!(values_on(array, &setup.s), [3.0; 1000]);
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert!(!array.is_valid_on_host());
    assert_eq!(values(array), [4.0; 1000]);
    array.page_lock(&setup.a).unwrap();
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert_eq!(values(array), [5.0; 1000]);
}

#[test]
fn a_copy_that_fails_leaves_the_array_as_it_was() {
    for nth in [1, 2] {
        let setup = Setup::peers();
        let mut array = on_device(&setup);
        let sim = SimHandle::of(&setup.a).unwrap();
        let counts = sim.counts();
        let past = [counts.to_device, counts.from_device, counts.on_device, counts.from_peers];
        let past: u64 = past.iter().map(|traffic| traffic.count).sum();
        sim.inject(Fault::fail(Operation::Copy, past + nth));
        let error = array.unify(&setup.a).unwrap_err();
        assert_eq!((error.kind(), error.device()), (ErrorKind::Driver, Some(setup.a.id())));
        check_as_before(&mut array, &setup);
    }
}

#[test]
fn memory_that_does_not_fit_is_an_error_and_changes_nothing() {
    let setup = Setup::sim(quick().memory_bytes(10_000));
    let mut array = on_device(&setup);
    let error = array.unify(&setup.a).unwrap_err();
    assert_eq!((error.kind(), error.device()), (ErrorKind::OutOfMemory, Some(setup.a.id())));
    assert!(error.message().contains("8000 bytes"), "{error}");
    assert!(!array.is_valid_on_host());
    assert_eq!(values_on(&array, &setup.s), [3.0; 1000]);
    // With the values on the host, the memory of the device's replica can be used.
    array.evict(&setup.a).unwrap();
    array.unify(&setup.a).unwrap();
    assert_eq!(values_on(&array, &setup.s), [3.0; 1000]);
}

/// Failed work of the device is found by the access of the host, which waits for it.
#[test]
fn failures_of_the_device_reach_the_host() {
    let setup = Setup::peers();
    let mut array = unified(&setup, LEN).unwrap();
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 2));
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 4.0).unwrap();
    assert!(array.read_host().is_err());
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(array.status(0), PartStatus::Poisoned);
    array.write_host().unwrap().fill(1.0);
    assert_eq!(values_on(&array, &setup.s), [1.0; LEN as usize]);
}

/// Work that has failed before is found when the values are moved.
#[test]
fn values_that_a_failed_writer_left_are_not_taken_along() {
    let setup = Setup::peers();
    let mut array = counting(LEN);
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 2));
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 4.0).unwrap();
    array.unify(&setup.a).unwrap_err();
    array.unify(&setup.a).unwrap();
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 4.0).unwrap();
    assert_eq!(values(&array)[0], 4.0);
}
