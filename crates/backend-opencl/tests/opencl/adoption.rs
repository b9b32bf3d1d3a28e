//! Buffers and queues that other code created and also uses.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opencl3::memory::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, create_buffer,
    create_sub_buffer, release_mem_object,
};
use opencl3::types::{cl_buffer_region, cl_mem};
use runtime_core::{Device, Launch, Memory, NativeHandle, NativeKind, args};

use crate::{open, run, source};

fn context(device: &Device) -> *mut c_void {
    ptr::with_exposed_provenance_mut(device.native().raw)
}

pub(crate) fn buffer(device: &Device, flags: u64, bytes: usize) -> cl_mem {
    // SAFETY: the context is alive, and no host memory is passed.
    unsafe { create_buffer(context(device), flags, bytes, ptr::null_mut()) }.unwrap()
}

/// Adopts a buffer, and releases the reference to it.
pub(crate) fn adopt(
    device: &Device,
    buffer: cl_mem,
    len: usize,
    owner: impl Send + Sync + 'static,
) -> Memory<i32> {
    let raw = buffer.expose_provenance();
    let handle = NativeHandle { api: "opencl", kind: NativeKind::Object, raw };
    // SAFETY: the buffer has this many numbers, which no other code uses.
    let memory = unsafe { device.memory_adopt::<i32>(handle, len, owner) }.unwrap();
    // SAFETY: this function owns the reference.
    unsafe { release_mem_object(buffer) }.unwrap();
    memory
}

#[test]
fn a_part_of_a_buffer_keeps_the_whole() {
    let Some(device) = open("?memory=buffer") else { return };
    let stream = device.default_stream();
    let whole = buffer(&device, CL_MEM_READ_WRITE, 4096);
    let region = cl_buffer_region { origin: 1024, size: 1024 };
    let about = (&raw const region).cast();
    // SAFETY: the region lies inside the buffer.
    let part =
        unsafe { create_sub_buffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, about) }
            .unwrap();
    let mut memory = adopt(&device, part, 256, ());
    // SAFETY: this test owns the last reference.
    unsafe { release_mem_object(whole) }.unwrap();
    let mut expected: Vec<i32> = (0..256).collect();
    memory.view_mut().copy_from_slice(&stream, &expected).unwrap();
    let text = "kernel void k(global int *x) { x[0] += 1000; }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    for start in [0, 1, 64, 128, 255] {
        let view = memory.view_mut().slice(start..256).unwrap();
        run(&kernel, &Launch::cover(1, 1), args![view]).unwrap();
        expected[start] += 1000;
    }
    assert_eq!(memory.view().to_vec(&stream).unwrap(), expected);
}

#[test]
fn a_buffer_that_kernels_read_alone_can_be_read_from_anywhere() {
    let Some(device) = open("?memory=buffer") else { return };
    let stream = device.default_stream();
    let mut memory = adopt(&device, buffer(&device, CL_MEM_READ_ONLY, 4096), 1024, ());
    let numbers: Vec<i32> = (0..1024).collect();
    memory.view_mut().copy_from_slice(&stream, &numbers).unwrap();
    let text = "kernel void k(global const int *x, global int *y) { y[0] = x[0]; }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let mut found = device.memory_allocate::<i32>(1).unwrap();
    for start in [0, 1, 128, 1023] {
        let view = memory.view().slice(start..1024).unwrap();
        run(&kernel, &Launch::cover(1, 1), args![view, &mut found]).unwrap();
        assert_eq!(found.view().to_vec(&stream).unwrap(), numbers[start..=start]);
    }
}

#[test]
fn an_owner_that_holds_the_device_is_given_back() {
    let Some(device) = open("?memory=buffer") else { return };
    let stream = device.default_stream();
    let text = "kernel void k(global int *x, int n) {
        int v = x[0];
        for (int i = 0; i < n; ++i) v = v * 1664525 + 1013904223;
        x[0] = v;
    }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let alive = Arc::new(());
    let owner = (Arc::clone(&alive), device.clone());
    let mut memory = adopt(&device, buffer(&device, CL_MEM_READ_WRITE, 4096), 1024, owner);
    run(&kernel, &Launch::cover(1, 1), args![&mut memory, 100_000_000]).unwrap();
    drop((memory, kernel, stream, device));
    let began = Instant::now();
    while Arc::strong_count(&alive) > 1 {
        assert!(began.elapsed() < Duration::from_secs(30), "the owner is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Other code with the native queue may enqueue there, and events cover that work, too.
#[test]
fn work_of_others_in_a_stream_is_waited_for() {
    use opencl3::command_queue::{enqueue_marker_with_wait_list, flush};
    use opencl3::event::{create_user_event, release_event, set_user_event_status};

    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let queue = ptr::with_exposed_provenance_mut(stream.native().raw);
    stream.synchronize().unwrap();
    let gate = create_user_event(context(&device)).unwrap();
    let list = [gate];
    // SAFETY: the queue and the event are alive.
    let foreign = unsafe { enqueue_marker_with_wait_list(queue, 1, list.as_ptr()) }.unwrap();
    flush(queue).unwrap();
    let event = stream.record_event().unwrap();
    assert!(!event.is_done().unwrap(), "the event is done before the work");
    assert!(!stream.is_done().unwrap(), "the stream is done before the work");
    set_user_event_status(gate, 0).unwrap();
    event.wait().unwrap();
    let began = Instant::now();
    while !stream.is_done().unwrap() {
        assert!(began.elapsed() < Duration::from_secs(30), "the stream is never done");
    }
    for event in [gate, foreign] {
        // SAFETY: this test owns the references.
        unsafe { release_event(event) }.unwrap();
    }
}
