//! Memory of other contexts and kinds, and limits.

use backend_opencl::{OpenClBackend, OpenClDevice};
use std::time::{Duration, Instant};

use num_complex::Complex;
use runtime_core::{ErrorKind, Launch, NativeHandle, NativeKind, args};

use crate::{open, open_with, run, source};

#[test]
fn memory_of_another_context_is_refused() {
    // Devices of two drivers are in two contexts.
    let Some(one) = open("?memory=buffer") else { return };
    let two = open("?memory=buffer").unwrap();
    assert!(!one.reaches(&two));
    let memory = one.memory_from_slice(&one.default_stream(), &[1_u32, 2, 3]).unwrap();
    let handle = memory.native().unwrap();
    assert_eq!((handle.api, handle.kind), ("opencl", NativeKind::Object));
    // SAFETY: the handle is that of a live buffer.
    let adopted = unsafe { two.memory_adopt::<u32>(handle, 3, ()) };
    let error = adopted.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("another context"), "{error}");
    // SAFETY: as above.
    let adopted = unsafe { one.memory_adopt::<u32>(handle, 4, ()) };
    assert!(adopted.unwrap_err().message().contains("12 bytes, not 16"));
}

#[test]
fn devices_of_one_context_reach_one_another() {
    let backend = OpenClBackend::new();
    let (Some(one), Some(two)) =
        (open_with(&backend, 0, ""), second(&backend).and_then(|()| open_with(&backend, 1, "")))
    else {
        return;
    };
    assert!(one.reaches(&two) && two.reaches(&one));
    let (first, second) = (one.default_stream(), two.default_stream());
    let numbers: Vec<u64> = (0..1000).collect();
    let source = one.memory_from_slice(&first, &numbers).unwrap();
    let mut target = two.memory_allocate::<u64>(1000).unwrap();
    target.view_mut().copy_from_device(&second, &source.view(), &first).unwrap();
    assert_eq!(target.view().to_vec(&second).unwrap(), numbers);
    assert_eq!(two.statistics().from_peers.count, 1);
}

/// Whether the platform under test has a second device.
fn second(backend: &OpenClBackend) -> Option<()> {
    use runtime_core::Backend;
    (backend.devices().ok()?.len() > 1 && std::env::var_os("OPENCL_TEST_PLATFORM").is_none())
        .then_some(())
}

#[test]
fn an_allocation_beyond_the_limit_is_out_of_memory() {
    let Some(device) = open("") else { return };
    let limit = device.info().limits.max_allocation_bytes;
    let error = device.memory_allocate::<u8>(limit + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.message().contains(&limit.to_string()), "{error}");
}

#[test]
fn the_device_exposes_its_handles() {
    let Some(device) = open("") else { return };
    let [platform, id] = device.backend::<OpenClDevice>().unwrap().native_ids();
    assert!(platform != 0 && id != 0);
}

/// Pinned memory is mapped through a queue that no stream uses.
#[test]
fn pinned_memory_does_not_wait_for_the_default_stream() {
    let Some(device) = open("") else { return };
    if !device.info().driver_version.contains("Portable Computing Language") {
        // Other platforms map memory at any time; Intel's runtime does so when the CPU is idle.
        return;
    }
    let stream = device.default_stream();
    let text = "kernel void k(global uint *x, uint n) {
        uint v = x[0];
        for (uint i = 0; i < n; ++i) v = v * 1664525u + 1013904223u;
        x[0] = v;
    }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let mut x = device.memory_from_slice(&stream, &[1_u32]).unwrap();
    run(&kernel, &Launch::cover(1, 1), args![&mut x, 1_u32]).unwrap();
    stream.synchronize().unwrap();
    run(&kernel, &Launch::cover(1, 1), args![&mut x, 1_000_000_000_u32]).unwrap();
    let began = Instant::now();
    let pinned = device.pinned_allocate::<u8>(1024).unwrap();
    let allocated = began.elapsed();
    drop(pinned);
    stream.synchronize().unwrap();
    let all = began.elapsed();
    assert!(all > Duration::from_millis(100), "the kernel is too short: {all:?}");
    assert!(allocated < all / 2, "allocated after {allocated:?} of {all:?}");
}

#[test]
fn adopted_addresses_are_filled_from_where_they_are() {
    let Some(device) = open("?memory=svm") else { return };
    let stream = device.default_stream();
    let Some(unified) = device.unified_memory() else { return };
    let memory = unified.allocate::<f32>(64).unwrap();
    let handle = memory.native().unwrap();
    // Aligned for one component, but not for both.
    let inside = NativeHandle { raw: handle.raw + 4, ..handle };
    // SAFETY: the numbers live as long as their owner, and no other code uses them.
    let adopted = unsafe { device.memory_adopt::<Complex<f32>>(inside, 16, memory) };
    let mut adopted = adopted.unwrap();
    let value = Complex::new(1.0_f32, 2.0);
    adopted.view_mut().fill(&stream, value).unwrap();
    assert_eq!(adopted.view().to_vec(&stream).unwrap(), [value; 16]);
}
