//! Accesses that own their share of an array.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use array_buffer::{ArrayBuffer, ErrorKind, Leased, PartStatus, SharedArrayBuffer};
use backend_sim::{SimConfig, SimDevice};
use ndarray::Ix1;
use runtime_core::{Device, Memory, NativeHandle, NativeKind};

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
fn only_a_commit_changes_the_array() {
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
fn a_lease_describes_its_array() {
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

/// An owner of adopted memory. Its destructor drops its fields and then uses an array.
struct Owner {
    held: Option<Box<dyn Any + Send + Sync>>,
    shared: SharedArrayBuffer<f64, Ix1>,
    seen: Arc<Mutex<Option<ErrorKind>>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.held.take());
        let written = self.shared.write(Duration::from_millis(5));
        *self.seen.lock().unwrap() = written.err().map(|error| error.kind());
    }
}

/// Adopts eight elements that are never freed.
#[expect(unsafe_code, reason = "adopts memory")]
fn adopt(device: &Device, owner: impl Any + Send + Sync) -> Memory<f64> {
    let raw = Box::leak(Box::new([0.0_f64; 8])).as_mut_ptr().expose_provenance();
    let handle = NativeHandle { api: device.native().api, kind: NativeKind::Pointer, raw };
    // SAFETY: nothing else uses the elements.
    unsafe { device.memory_adopt(handle, 8, owner) }.unwrap()
}

/// As the page of `Lease` says.
#[test]
fn an_owner_that_drops_its_lease_first_can_use_the_array_unless_another_owner_has_the_lease() {
    let device = device();
    for (through_memory, expected) in [(false, None), (true, Some(ErrorKind::Conflict))] {
        let (shared, seen) = (shared(), Arc::default());
        let lease = shared.lease_read(None, PATIENCE).unwrap();
        let held: Box<dyn Any + Send + Sync> =
            if through_memory { Box::new(adopt(&device, lease)) } else { Box::new(lease) };
        let owner = Owner { held: Some(held), shared: shared.clone(), seen: Arc::clone(&seen) };
        drop(adopt(&device, owner));
        assert_eq!(*seen.lock().unwrap(), expected, "through memory: {through_memory}");
        drop(shared.write(Duration::ZERO).unwrap());
    }
}
