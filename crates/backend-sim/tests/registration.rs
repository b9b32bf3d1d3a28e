//! Page-locked memory of the program on simulated devices: refusals, faults, and what still uses it.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "page-locks memory that an owner keeps")]

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use backend_sim::{Fault, Operation, SimConfig, SimDevice, SimHandle};
use runtime_core::{Device, ErrorKind, Pinned, Result, Support};

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

/// Begins at a memory page.
#[repr(align(65536))]
struct Pages([u32; 1 << 14]);

/// Page-locked memory of an owner, and what is left when it is dropped.
fn adopted(device: &Device, skip: usize) -> Result<(Pinned<u32>, Weak<()>)> {
    let mut pages = vec![Pages([3; 1 << 14])];
    let first = NonNull::from(&mut pages[0].0[skip..]).cast();
    let left = Arc::new(());
    let weak = Arc::downgrade(&left);
    // SAFETY: the owner keeps the elements, and no other code uses them.
    let pinned = unsafe { device.pinned_adopt(first, (1 << 14) - skip, (pages, left)) }?;
    Ok((pinned, weak))
}

#[test]
fn memory_of_an_owner_is_locked_where_it_is_until_its_copies_are_done() {
    let (device, seen) = open(SimConfig::new());
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<u32>(1 << 14).unwrap();
    let (pinned, left) = adopted(&device, 0).unwrap();
    memory.view_mut().copy_from_pinned(&stream, &pinned).unwrap();
    assert_eq!(pinned.len(), 1 << 14);
    pinned.end().unwrap();
    assert!(left.upgrade().is_none(), "the owner is still there");
    assert_eq!(memory.to_vec(&stream).unwrap(), [3; 1 << 14]);
    assert_eq!((seen.counts().registrations, seen.counts().pinned_allocations), (1, 0));

    let (pinned, left) = adopted(&device, 0).unwrap();
    assert_eq!(pinned.into_vec().unwrap(), [3; 1 << 14]);
    device.synchronize().unwrap();
    assert!(left.upgrade().is_none(), "the owner is still there");

    let (pinned, left) = adopted(&device, 0).unwrap();
    let graphs = device.graphs().unwrap();
    let graph = graphs.capture(|graph| memory.view_mut().copy_from_pinned(graph, &pinned)).unwrap();
    assert_eq!(pinned.end().unwrap_err().kind(), ErrorKind::Conflict);
    assert!(left.upgrade().is_some(), "a graph needs the memory");
    drop(graph);
    device.synchronize().unwrap();
    assert!(left.upgrade().is_none(), "the owner is still there");
}

#[test]
fn memory_of_an_owner_that_cannot_be_locked_is_refused() {
    let (device, seen) = open(SimConfig::new());
    let error = adopted(&device, 2).unwrap_err();
    assert_eq!((error.kind(), error.device()), (ErrorKind::InvalidArgument, Some(device.id())));
    for part in ["65528 bytes at 0x", "a multiple of 8,", "do not begin at a memory page of"] {
        assert!(error.message().contains(part), "{error}");
    }
    // SAFETY: there are no elements.
    let empty = unsafe { device.pinned_adopt(NonNull::<u32>::dangling(), 0, ()) }.unwrap();
    assert!(empty.is_empty());
    empty.end().unwrap();
    assert_eq!(seen.counts().registrations, 0);
    let fault = Fault::fail(Operation::Allocation, 1);
    for (config, kind) in [
        (SimConfig::new().fault(fault), ErrorKind::OutOfMemory),
        (SimConfig::new().registration(false), ErrorKind::Unsupported),
    ] {
        let error = adopted(&open(config).0, 0).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[test]
fn allocated_memory_is_copied_to_a_vector() {
    let (device, _) = open(SimConfig::new());
    let mut pinned = device.pinned_allocate::<u32>(1000).unwrap();
    pinned.as_mut_slice().unwrap().copy_from_slice(&ramp());
    assert_eq!(pinned.into_vec().unwrap(), ramp());
    assert!(device.pinned_allocate::<u32>(0).unwrap().into_vec().unwrap().is_empty());
}
