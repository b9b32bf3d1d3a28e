//! Page-locked vectors on simulated devices: refusals, faults, and what still uses them.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use backend_sim::{Fault, Operation, SimConfig, SimDevice, SimHandle};
use runtime_core::{Device, ErrorKind, Support};

fn open(config: SimConfig) -> (Device, SimHandle) {
    let sim = SimDevice::new(0, config);
    let handle = sim.handle();
    (Device::new(sim).unwrap(), handle)
}

fn ramp() -> Vec<u32> {
    (0..1000).collect()
}

/// A registration allocates nothing and copies nothing.
#[test]
fn a_registration_is_counted_and_nothing_else() {
    let (device, seen) = open(SimConfig::new());
    let before = seen.counts();
    let pinned = device.pin_vec(ramp()).unwrap();
    assert_eq!(format!("{pinned:?}"), "Pinned(1000 u32 for sim:0)");
    assert_eq!(pinned.into_vec().unwrap(), ramp());
    let mut expected = before;
    expected.registrations = 1;
    assert_eq!(seen.counts(), expected);
}

#[test]
fn a_vector_comes_back_from_a_registration_that_fails() {
    let fault = Fault::fail(Operation::Allocation, 1);
    let lost = {
        let (device, seen) = open(SimConfig::new());
        seen.lose();
        device
    };
    for (device, kind, found) in [
        (open(SimConfig::new().fault(fault)).0, ErrorKind::OutOfMemory, "allocation 1 fails"),
        (open(SimConfig::new().registration(false)).0, ErrorKind::Unsupported, "does not support"),
        (lost, ErrorKind::DeviceLost, ""),
    ] {
        let vec = ramp();
        let address = vec.as_ptr();
        let (vec, error) = device.pin_vec(vec).unwrap_err().into_parts();
        assert_eq!((error.kind(), error.device()), (kind, Some(device.id())), "{error}");
        assert!(error.to_string().contains(found), "{error}");
        assert_eq!((vec.as_ptr(), vec), (address, ramp()));
    }
    let (device, _) = open(SimConfig::new().registration(false));
    assert_eq!(device.capabilities().host_registration, Support::Absent);
}

/// The copies may still run when the wait for them fails, so the memory stays page-locked, and the program may try
/// again.
#[test]
fn memory_comes_back_if_the_wait_for_its_copies_fails() {
    let (device, seen) = open(SimConfig::new());
    let mut memory = device.memory_allocate::<u32>(1000).unwrap();
    let pinned = device.pin_vec(ramp()).unwrap();
    memory.view_mut().copy_from_pinned(&device.default_stream(), &pinned).unwrap();
    seen.lose();
    let refused = pinned.into_vec().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::DeviceLost);
    let again = refused.into_inner().into_vec().unwrap_err();
    assert_eq!(again.error().kind(), ErrorKind::DeviceLost);
}

#[test]
fn elements_are_copied_out_while_a_graph_uses_them() {
    let (device, _) = open(SimConfig::new());
    let mut memory = device.memory_allocate::<u32>(1000).unwrap();
    let vec = ramp();
    let address = vec.as_ptr();
    let pinned = device.pin_vec(vec).unwrap();
    let copy = device
        .graphs()
        .unwrap()
        .capture(|capture| memory.view_mut().copy_from_pinned(capture, &pinned));
    let graph = copy.unwrap();
    let copied = pinned.into_vec().unwrap();
    assert_ne!(copied.as_ptr(), address);
    assert_eq!(copied, ramp());
    drop(graph);
}

#[test]
fn allocated_memory_is_copied_to_a_vector() {
    let (device, _) = open(SimConfig::new());
    let mut pinned = device.pinned_allocate::<u32>(1000).unwrap();
    pinned.as_mut_slice().unwrap().copy_from_slice(&ramp());
    assert_eq!(pinned.into_vec().unwrap(), ramp());
    assert!(device.pinned_allocate::<u32>(0).unwrap().into_vec().unwrap().is_empty());
}
