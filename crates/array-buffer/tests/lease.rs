//! Accesses that own their share of an array.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::thread;
use std::time::Duration;

use array_buffer::{ArrayBuffer, ErrorKind, Leased, PartStatus, SharedArrayBuffer};
use backend_sim::{SimConfig, SimDevice};
use ndarray::Ix1;
use runtime_core::Device;

const PATIENCE: Duration = Duration::from_secs(30);

fn device() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new())).unwrap()
}

fn shared() -> SharedArrayBuffer<f64, Ix1> {
    SharedArrayBuffer::new(ArrayBuffer::from_vec(vec![1.0, 2.0], 2).unwrap())
}

#[test]
fn a_lease_shows_the_values_where_it_was_taken() {
    let (device, shared) = (device(), shared());
    let stream = device.default_stream();
    let lease = shared.lease_read(Some(&stream), PATIENCE).unwrap();
    let Leased::Device(view) = lease.values().unwrap() else { panic!("{lease:?}") };
    assert_eq!(view.to_vec(&stream).unwrap(), [1.0, 2.0]);
    let other = device.stream_create(&Default::default()).unwrap();
    assert_eq!(view.to_vec(&other).unwrap_err().kind(), ErrorKind::WrongStream);
    let lease = shared.lease_read(None, PATIENCE).unwrap();
    assert!(matches!(lease.values().unwrap(), Leased::Host(_)) && lease.device().is_none());
}

#[test]
fn a_lease_holds_the_array_until_it_is_dropped_on_any_thread() {
    let shared = shared();
    let lease = shared.lease_read(None, PATIENCE).unwrap();
    assert_eq!(shared.write(PATIENCE).unwrap_err().kind(), ErrorKind::Conflict);
    thread::spawn(move || drop(lease)).join().unwrap();
    let lease = shared.lease_read_write(None, PATIENCE).unwrap();
    let other = shared.clone();
    let late = thread::spawn(move || other.read(Duration::from_millis(5)).unwrap_err());
    assert_eq!(late.join().unwrap().kind(), ErrorKind::Timeout);
    thread::spawn(move || drop(lease)).join().unwrap();
    drop(shared.write(PATIENCE).unwrap());
}

#[test]
fn what_was_written_is_committed_and_nothing_else_changes_anything() {
    let (device, shared) = (device(), shared());
    let stream = device.default_stream();
    let version = || shared.read(PATIENCE).unwrap().version();
    drop(shared.lease_read_write(Some(&stream), PATIENCE).unwrap());
    assert_eq!(version(), 0);
    let mut lease = shared.lease_read_write(Some(&stream), PATIENCE).unwrap();
    lease.mark_written();
    drop(lease);
    assert_eq!(version(), 1);
    let mut lease = shared.lease_read(Some(&stream), PATIENCE).unwrap();
    lease.mark_written();
    drop(lease);
    assert_eq!(version(), 1, "it was taken to read");
    shared.lease_read_write(None, PATIENCE).unwrap().abort();
    assert_eq!(shared.read(PATIENCE).unwrap().status(0), PartStatus::Poisoned);
    let refused = shared.lease_read(None, PATIENCE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned);
}

#[test]
fn a_lease_tells_of_its_array() {
    let (device, shared) = (device(), shared());
    let stream = device.default_stream();
    for version in 0..3 {
        let mut lease = shared.lease_read_write(Some(&stream), PATIENCE).unwrap();
        assert_eq!((lease.status(), lease.version()), (PartStatus::InUse, version));
        assert_eq!(lease.transfers().total().count, 1);
        assert!(lease.is_valid_on(Some(&device)));
        lease.mark_written();
        lease.commit().unwrap();
    }
    let lease = shared.lease_read(Some(&stream), PATIENCE).unwrap();
    assert_eq!((lease.status(), lease.version()), (PartStatus::Valid, 3));
    assert!(!lease.is_valid_on(None));
}

#[test]
fn a_panic_under_a_lease_poisons_the_array() {
    let shared = shared();
    let held = shared.clone();
    let panicked = thread::spawn(move || {
        let mut lease = held.lease_read_write(None, PATIENCE).unwrap();
        lease.mark_written();
        panic!("as planned");
    });
    assert!(panicked.join().is_err());
    assert_eq!(shared.read(PATIENCE).unwrap().status(0), PartStatus::Poisoned);
}
