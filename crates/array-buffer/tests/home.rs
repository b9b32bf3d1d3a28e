//! Arrays with a home, to which each committed write is copied.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

mod common;

use std::time::Duration;

use array_buffer::{
    ArrayBuffer, ErrorKind, Exchange, Home, MemoryBudget, Partition, Parts, SharedArrayBuffer,
    StarForest, TransferBudget,
};
use backend_sim::{Fault, Operation, SimHandle};
use common::{Setup, add, counting, set, values, values_on};
use ndarray::{Array1, Ix1, Ix2};

/// `[0, 1, 2, …]`, at home on the host.
fn at_home(len: u32) -> ArrayBuffer<f64, Ix1> {
    let mut array = counting(len);
    array.set_home(Some(Home::Host)).unwrap();
    array
}

/// The number of copies that a write has made on its way home.
fn sent(array: &ArrayBuffer<f64, Ix1>) -> u64 {
    let report = array.transfers();
    let home = report.transfers().iter().filter(|it| it.wanted_by.access == "write_through");
    home.map(|it| it.traffic.count).sum()
}

fn the_host_has_each_write(setup: &Setup) {
    let mut array = at_home(4);
    for (round, stream) in [&setup.s, &setup.t, &setup.s].into_iter().enumerate() {
        let (mut guard, line) = (array.read_write(stream).unwrap(), line!());
        add(&mut guard, stream, 1.0).unwrap();
        guard.commit().unwrap();
        assert!(array.is_valid_on_host());
        let nothing = TransferBudget::forbid();
        assert_eq!(values(&array)[3], 4.0 + round as f64);
        drop(nothing);
        if !setup.shares() {
            let report = array.transfers();
            let last = report.transfers().iter().rfind(|it| it.to == "host").unwrap();
            assert_eq!((last.wanted_by.access, &*last.wanted_by.place), ("write_through", "host"));
            assert_eq!(last.wanted_by.call_site.line(), line);
        }
    }
    assert!(matches!(array.home(), Some(Home::Host)));
    // A write at home copies nothing.
    let before = sent(&array);
    array.write_host().unwrap().fill(1.0);
    assert_eq!(sent(&array), before);
    array.set_home(None).unwrap();
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 2.0).unwrap();
    assert_eq!(sent(&array), before);
    assert_eq!(values(&array), [2.0; 4]);
}

fn a_device_has_each_write(setup: &Setup) {
    let mut array = counting(4);
    setup.claim(&array);
    array.set_home(Some(Home::Device(setup.t.clone()))).unwrap();
    assert!(array.is_valid_on(&setup.b));
    array.write_host().unwrap().fill(5.0);
    assert!(array.is_valid_on(&setup.b));
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 6.0).unwrap();
    let nothing = TransferBudget::forbid();
    assert_eq!(values_on(&array, &setup.t), [6.0; 4]);
    drop(nothing);
    assert_eq!(values(&array), [6.0; 4]);
}

fn parts_go_home_alone(setup: &Setup) {
    let halves: [&[_]; 2] = [&[0..6, 0..2], &[0..6, 2..5]];
    let partition = Partition::new(&[6, 5], &halves, &[]).unwrap();
    let mut array = ArrayBuffer::<f64, Ix2>::with_partition(partition).unwrap();
    array.set_home(Some(Home::Host)).unwrap();
    let [mut left, mut right] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
    set(&mut right.write(&setup.t).unwrap(), &setup.t, 2.0).unwrap();
    assert_eq!(right.read_host().unwrap()[(5, 2)], 2.0);
    let open = left.write(&setup.t).unwrap();
    set(&mut right.write(&setup.t).unwrap(), &setup.t, 3.0).unwrap();
    drop(open);
    let nothing = TransferBudget::forbid();
    assert_eq!(right.read_host().unwrap()[(5, 2)], 3.0);
    drop(nothing);
    // Two writes of 18 elements.
    let bytes = array.transfers().between(&setup.b.id().to_string(), "host").bytes;
    assert_eq!(bytes, if setup.shares() { 0 } else { 2 * 18 * 8 });
}

fn leases_and_exchanges_go_home(setup: &Setup) {
    let shared = SharedArrayBuffer::new(at_home(3));
    let lease = shared.lease_write(Some(&setup.s), Duration::ZERO).unwrap();
    #[expect(unsafe_code, reason = "the view of a lease may be shared")]
    // SAFETY: no other code has the address.
    unsafe { lease.view_mut_shared() }.unwrap().fill(&setup.s, 7.0).unwrap();
    lease.commit().unwrap();
    assert!(shared.read(Duration::ZERO).unwrap().is_valid_on_host());

    let partition = Partition::with_ghosts(&[5], &[(1, 1)]).unwrap();
    let start = Array1::from_iter([0.0, 1.0, 2.0, 3.0, 0.0]);
    let mut ring = StarForest::new([(vec![0..1], vec![3..4]), (vec![4..5], vec![1..2])]);
    let mut array = ArrayBuffer::from_array_with(start, partition).unwrap();
    array.set_home(Some(Home::Host)).unwrap();
    let mut flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    flight.run(&mut ring).unwrap();
    flight.finish().unwrap();
    assert!(array.is_valid_on_host());
    assert_eq!(values(&array), [3.0, 1.0, 2.0, 3.0, 1.0]);
}

fn evictions_write_nothing_back(setup: &Setup) {
    let budget = MemoryBudget::new(&setup.a, 160);
    let ranges: Vec<_> = (0..5).map(|part| [10 * part..10 * (part + 1)]).collect();
    let ranges: Vec<_> = ranges.iter().map(|range| &range[..]).collect();
    let partition = Partition::new(&[50], &ranges, &[]).unwrap();
    let mut array = ArrayBuffer::from_array_with(Array1::zeros(50), partition).unwrap();
    array.set_home(Some(Home::Host)).unwrap();
    array.set_memory_budget(&budget).unwrap();
    for part in (0..10).map(|turn| turn % 5) {
        let [mut part] = array.split([Parts::one(part)]).unwrap();
        add(&mut part.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    }
    array.evict(&setup.a).unwrap();
    assert_eq!(values(&array), [2.0; 50]);
    let report = array.transfers();
    let to_host = report.transfers().iter().filter(|it| it.to == "host");
    assert!(to_host.clone().all(|it| it.wanted_by.access == "write_through"), "{report}");
    assert_eq!(
        to_host.map(|it| it.traffic.count).sum::<u64>(),
        if setup.shares() { 0 } else { 10 }
    );
}

on_all_devices! {
    the_host_has_each_write,
    a_device_has_each_write,
    parts_go_home_alone,
    leases_and_exchanges_go_home,
    evictions_write_nothing_back,
}

#[test]
fn a_copy_that_fails_leaves_the_write() {
    for dropped in [false, true] {
        let setup = Setup::peers();
        let (s, mut array) = (&setup.s, at_home(4));
        let mut guard = array.write(s).unwrap();
        set(&mut guard, s, 2.0).unwrap();
        s.synchronize().unwrap();
        let sim = SimHandle::of(&setup.a).unwrap();
        let counts = sim.counts();
        let past = counts.to_device.count + counts.from_device.count + counts.on_device.count;
        sim.inject(Fault::fail(Operation::Copy, past + 1));
        match dropped {
            true => drop(guard),
            false => {
                let error = guard.commit().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
                assert!(error.message().contains("the write is committed"), "{error}");
            }
        }
        assert!(!array.is_valid_on_host() && array.is_valid_on(&setup.a));
        assert_eq!((array.version(), values_on(&array, s)), (1, vec![2.0; 4]));
        // The next write goes home again.
        set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
        assert!(array.is_valid_on_host());
        assert_eq!(values(&array), [3.0; 4]);
    }
}

#[test]
fn a_lost_device_loses_nothing() {
    let setup = Setup::apart();
    let mut array = at_home(4);
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    SimHandle::of(&setup.a).unwrap().lose();
    assert_eq!(values(&array), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values_on(&array, &setup.t), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_home_that_cannot_have_the_values_is_refused() {
    let setup = Setup::peers();
    let mut array = at_home(4);
    SimHandle::of(&setup.b).unwrap().lose();
    array.set_home(Some(Home::Device(setup.t.clone()))).unwrap_err();
    assert!(matches!(array.home(), Some(Home::Host)));
}
