//! Contexts, queues and events that other code created. The test acts as another library, with the driver's own
//! functions.

use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

use backend_opencl::{OpenClBackend, OpenClConfig, OpenClDevice};
use cl3::info_type::InfoType;
use opencl3::command_queue::{
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROPERTIES, CL_QUEUE_REFERENCE_COUNT,
    create_command_queue_with_properties, enqueue_fill_buffer, enqueue_marker_with_wait_list,
    enqueue_read_buffer, finish, get_command_queue_info, release_command_queue,
};
use opencl3::context::context::{
    CL_CONTEXT_REFERENCE_COUNT, create_context, get_context_info, release_context,
};
use opencl3::device::{CL_DEVICE_PARTITION_EQUALLY, create_sub_devices, release_device};
use opencl3::event::{
    CL_EVENT_REFERENCE_COUNT, create_user_event, get_event_info, release_event,
    set_user_event_status,
};
use opencl3::memory::{
    CL_MEM_READ_WRITE, CL_MEM_REFERENCE_COUNT, create_buffer, get_mem_object_info,
    release_mem_object,
};
use opencl3::types::{CL_BLOCKING, cl_command_queue, cl_context, cl_device_id, cl_event, cl_mem};
use runtime_core::{
    Backend, Device, ErrorKind, Launch, NativeHandle, NativeKind, Origin, OriginKind, args,
};

use crate::{open, source};

fn handle(kind: NativeKind, raw: *mut c_void) -> NativeHandle {
    NativeHandle { api: "opencl", kind, raw: raw.expose_provenance() }
}

/// Another library: its own context, for one device or two, and a queue.
struct Others {
    context: cl_context,
    devices: Vec<cl_device_id>,
    queue: cl_command_queue,
}

impl Others {
    /// Returns `None`, and prints why, if there are not enough devices.
    fn new(devices: usize) -> Option<Self> {
        let backend = OpenClBackend::new();
        if backend.devices().is_ok_and(|all| all.len() < devices) {
            crate::skip("there are too few devices");
            return None;
        }
        let opened = (0..devices).map(|index| crate::open_with(&backend, index, ""));
        let ids = opened.map(|device| Some(id_of(&device?))).collect::<Option<Vec<_>>>();
        ids.map(Self::over)
    }

    fn over(devices: Vec<cl_device_id>) -> Self {
        let context = create_context(&devices, ptr::null(), None, ptr::null_mut()).unwrap();
        let queue = new_queue(context, devices[0], 0);
        Self { context, devices, queue }
    }

    fn open(&self, device: cl_device_id) -> runtime_core::Result<OpenClDevice> {
        let context = handle(NativeKind::Context, self.context);
        let device = handle(NativeKind::Device, device);
        // Copies between buffers and memory by address would wait for earlier commands.
        let config = OpenClConfig::new().set("memory", "buffer")?;
        // SAFETY: both are alive.
        unsafe { OpenClDevice::from_native(context, device, &config) }
    }

    fn device(&self) -> Device {
        Device::new(self.open(self.devices[0]).unwrap()).unwrap()
    }

    fn queue_handle(&self) -> NativeHandle {
        handle(NativeKind::Stream, self.queue)
    }

    fn buffer(&self, bytes: usize) -> cl_mem {
        // SAFETY: the context is alive, and no host memory is passed.
        unsafe { create_buffer(self.context, CL_MEM_READ_WRITE, bytes, ptr::null_mut()) }.unwrap()
    }

    /// Fills a buffer on the library's own queue, after an event if one is given.
    fn fill(&self, buffer: cl_mem, value: i32, len: usize, after: &[cl_event]) -> cl_event {
        let pattern = (&raw const value).cast();
        let count = u32::try_from(after.len()).unwrap();
        let list = if after.is_empty() { ptr::null() } else { after.as_ptr() };
        // SAFETY: the buffer has this many numbers; pattern and list are only read during the call.
        unsafe { enqueue_fill_buffer(self.queue, buffer, pattern, 4, 0, 4 * len, count, list) }
            .unwrap()
    }

    fn read(&self, buffer: cl_mem, len: usize) -> Vec<i32> {
        let mut numbers = vec![0_i32; len];
        let to = numbers.as_mut_ptr().cast();
        // SAFETY: buffer and vector have this many numbers, and the call waits.
        let event = unsafe {
            enqueue_read_buffer(self.queue, buffer, CL_BLOCKING, 0, 4 * len, to, 0, ptr::null())
        };
        release(event.unwrap());
        numbers
    }

    /// References to the context and to the queue.
    fn references(&self) -> [u32; 2] {
        [
            count(get_context_info(self.context, CL_CONTEXT_REFERENCE_COUNT).unwrap()),
            count(get_command_queue_info(self.queue, CL_QUEUE_REFERENCE_COUNT).unwrap()),
        ]
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // SAFETY: this library owns the references.
        unsafe { release_command_queue(self.queue) }.unwrap();
        // SAFETY: as above.
        unsafe { release_context(self.context) }.unwrap();
    }
}

fn new_queue(context: cl_context, device: cl_device_id, bits: u64) -> cl_command_queue {
    let properties = [u64::from(CL_QUEUE_PROPERTIES), bits, 0];
    // SAFETY: the device belongs to the context, and the list ends with a zero.
    unsafe { create_command_queue_with_properties(context, device, properties.as_ptr()) }.unwrap()
}

fn id_of(device: &Device) -> cl_device_id {
    let [_, id] = device.backend::<OpenClDevice>().unwrap().native_ids();
    ptr::with_exposed_provenance_mut(id)
}

fn count(info: InfoType) -> u32 {
    let InfoType::Uint(count) = info else { panic!("a count of references") };
    count
}

/// Waits until the reference counts are the same as before: the driver releases its own references shortly after the
/// work.
#[track_caller]
fn back_to<T: PartialEq + std::fmt::Debug>(before: T, references: impl Fn() -> T) {
    let began = Instant::now();
    while references() != before && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(references(), before);
}

fn release(event: cl_event) {
    // SAFETY: the callers hold a reference.
    unsafe { release_event(event) }.unwrap();
}

#[test]
fn a_device_in_a_context_of_others_computes_on_their_buffer() {
    let Some(others) = Others::new(1) else { return };
    let before = others.references();
    let buffer = others.buffer(4 * 256);
    let buffer_references = || count(get_mem_object_info(buffer, CL_MEM_REFERENCE_COUNT).unwrap());
    release(others.fill(buffer, 40, 256, &[]));
    {
        let device = others.device();
        assert_eq!(device.native(), handle(NativeKind::Context, others.context));
        assert!(others.references()[0] > before[0], "the context is not retained");
        let interop = device.interop().unwrap();
        // SAFETY: the queue is alive.
        let theirs = unsafe { interop.stream_from_native(others.queue_handle()) }.unwrap();
        let mut memory = {
            let object = handle(NativeKind::Object, buffer);
            // SAFETY: the buffer has this many numbers, which are used in the order of the queue.
            unsafe { device.memory_adopt::<i32>(object, 256, ()) }.unwrap()
        };
        let text = "kernel void k(global int *x) { x[get_global_id(0)] += get_global_id(0) + 2; }";
        let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
        // SAFETY: there are as many work-items as numbers.
        unsafe { kernel.launch(&theirs, &Launch::cover(256, 64), args![&mut memory]) }.unwrap();
        // The library's own work follows in its queue, before this device is dropped.
        assert_eq!(others.read(buffer, 256), (42..298).collect::<Vec<i32>>());
        // On the device's own stream, after the queue.
        let stream = device.default_stream();
        stream.wait(&theirs.record_event().unwrap()).unwrap();
        memory.fill(&stream, 7).unwrap();
        theirs.wait(&stream.record_event().unwrap()).unwrap();
        assert_eq!(others.read(buffer, 256), [7; 256]);
        assert!(buffer_references() > 1, "the buffer is not retained");
    }
    back_to(1, buffer_references);
    // The lent objects are still valid.
    release(others.fill(buffer, 3, 256, &[]));
    assert_eq!(others.read(buffer, 256), [3; 256]);
    // SAFETY: this test owns the last reference.
    unsafe { release_mem_object(buffer) }.unwrap();
    back_to(before, || others.references());
}

#[test]
fn a_foreign_queue_is_released_with_its_stream() {
    let Some(others) = Others::new(1) else { return };
    let device = others.device();
    let before = others.references()[1];
    let interop = device.interop().unwrap();
    for _ in 0..3 {
        // SAFETY: the queue is alive.
        let theirs = unsafe { interop.stream_from_native(others.queue_handle()) }.unwrap();
        assert_eq!(theirs.native(), others.queue_handle());
        let mut memory = device.memory_allocate::<i32>(100).unwrap();
        memory.fill(&theirs, 5).unwrap();
        assert_eq!(memory.to_vec(&theirs).unwrap(), [5; 100]);
    }
    back_to(before, || {
        device.synchronize().unwrap();
        others.references()[1]
    });
    finish(others.queue).unwrap();
}

#[test]
fn a_queue_of_others_serves_as_the_default_stream() {
    let Some(others) = Others::new(1) else { return };
    let before = others.references();
    {
        let raw = others.open(others.devices[0]).unwrap();
        // SAFETY: the queue outlives the device.
        let device = unsafe { Device::with_native_stream(raw, others.queue_handle()) }.unwrap();
        let stream = device.default_stream();
        assert_eq!(stream.native(), others.queue_handle());
        let mut memory = device.memory_from_slice(&stream, &[1_i32; 50]).unwrap();
        memory.fill(&stream, 9).unwrap();
        let raw = ptr::with_exposed_provenance_mut(memory.native().unwrap().raw);
        assert_eq!(others.read(raw, 50), [9; 50]);
        device.synchronize().unwrap();
    }
    back_to(before, || others.references());
}

/// The device reports the failures of all streams that were dropped, one after the other.
#[test]
fn failures_of_dropped_streams_are_reported_by_the_device() {
    let Some(others) = Others::new(1) else { return };
    let device = others.device();
    let interop = device.interop().unwrap();
    let mut memory = device.memory_allocate::<i32>(64).unwrap();
    for _ in 0..3 {
        let stream = device.stream_create(&Default::default()).unwrap();
        let gate = create_user_event(others.context).unwrap();
        // SAFETY: the event is alive.
        let taken = unsafe { interop.event_from_native(handle(NativeKind::Event, gate)) }.unwrap();
        stream.wait(&taken).unwrap();
        memory.fill(&stream, 5).unwrap();
        set_user_event_status(gate, -5).unwrap();
        while !stream.is_done().unwrap() {
            std::thread::yield_now();
        }
        drop((stream, taken));
        release(gate);
    }
    for _ in 0..3 {
        let error = device.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
    }
    device.synchronize().unwrap();
}

#[test]
fn an_event_of_others_holds_a_stream_back() {
    let Some(others) = Others::new(1) else { return };
    let device = others.device();
    let (interop, stream) = (device.interop().unwrap(), device.default_stream());
    let buffer = others.buffer(4 * 64);
    release(others.fill(buffer, 1, 64, &[]));
    let gate = create_user_event(others.context).unwrap();
    let filled = others.fill(buffer, 2, 64, &[gate]);
    let object = handle(NativeKind::Object, buffer);
    // SAFETY: the buffer has this many numbers, which are only used after the events.
    let memory = unsafe { device.memory_adopt::<i32>(object, 64, ()) }.unwrap();
    let mut copy = device.memory_allocate::<i32>(64).unwrap();
    for event in [gate, filled] {
        // SAFETY: the events are alive.
        let taken = unsafe { interop.event_from_native(handle(NativeKind::Event, event)) };
        let taken = taken.unwrap();
        assert!(!taken.is_done().unwrap());
        let timeout = taken.wait_for(Duration::from_millis(10)).unwrap_err();
        assert_eq!(timeout.kind(), ErrorKind::Timeout);
        stream.wait(&taken).unwrap();
    }
    copy.view_mut().copy_from(&stream, &memory.view()).unwrap();
    assert!(!stream.is_done().unwrap(), "the stream did not wait");
    set_user_event_status(gate, 0).unwrap();
    assert_eq!(copy.to_vec(&stream).unwrap(), [2; 64]);
    // SAFETY: as above.
    let taken = unsafe { interop.event_from_native(handle(NativeKind::Event, filled)) }.unwrap();
    taken.wait().unwrap();
    assert!(taken.is_done().unwrap());
    drop((taken, memory, copy, stream));
    device.synchronize().unwrap();
    for event in [gate, filled] {
        back_to(1, || count(get_event_info(event, CL_EVENT_REFERENCE_COUNT).unwrap()));
        release(event);
    }
    // SAFETY: this test owns the last reference.
    unsafe { release_mem_object(buffer) }.unwrap();
}

#[test]
fn two_devices_in_a_context_of_others_reach_each_other() {
    let Some(others) = Others::new(2) else { return };
    let [one, two] = [0, 1].map(|i| Device::new(others.open(others.devices[i]).unwrap()).unwrap());
    assert!(one.reaches(&two) && two.reaches(&one));
    let mine = open("").unwrap();
    assert!(!one.reaches(&mine), "a device in another context is reached");
    let source = one.memory_from_slice(&one.default_stream(), &[3_i32; 100]).unwrap();
    let mut copy = two.memory_allocate::<i32>(100).unwrap();
    let (from, to) = (one.default_stream(), two.default_stream());
    copy.view_mut().copy_from_device(&to, &source.view(), &from).unwrap();
    assert_eq!(copy.to_vec(&to).unwrap(), [3; 100]);
}

#[test]
fn a_part_of_a_device_is_a_device() {
    let Some(first) = open("") else { return };
    let id = id_of(&first);
    let properties = [CL_DEVICE_PARTITION_EQUALLY, 1, 0];
    let Ok(parts) = create_sub_devices(id, &properties) else {
        return crate::skip("the device has no parts");
    };
    let others = Others::over(vec![parts[0]]);
    let device = others.device();
    assert_eq!(device.info().compute_units, 1);
    assert_eq!(device.id(), first.id());
    let stream = device.default_stream();
    let memory = device.memory_from_slice(&stream, &[4_i32; 10]).unwrap();
    assert_eq!(memory.to_vec(&stream).unwrap(), [4; 10]);
    drop((memory, stream, device, others));
    for part in parts {
        // SAFETY: this test owns the references.
        unsafe { release_device(part) }.unwrap();
    }
}

#[test]
fn origins_name_the_whole_buffer() {
    use opencl3::memory::{CL_BUFFER_CREATE_TYPE_REGION, create_sub_buffer};
    use opencl3::types::cl_buffer_region;

    let Some(others) = Others::new(1) else { return };
    let device = others.device();
    let interop = device.interop().unwrap();
    let whole = others.buffer(4096);
    let region = cl_buffer_region { origin: 1024, size: 512 };
    let about = (&raw const region).cast();
    // SAFETY: the region lies inside the buffer.
    let part =
        unsafe { create_sub_buffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, about) }
            .unwrap();
    let base = whole.expose_provenance();
    let expected = |offset| {
        Origin::new(OriginKind::Device, base, offset, 4096).with_device(device.id().index())
    };
    let origin = |object| {
        // SAFETY: the buffers are alive.
        unsafe { interop.origin(handle(NativeKind::Object, object)) }.unwrap()
    };
    assert_eq!(origin(whole), Some(expected(0)));
    assert_eq!(origin(part), Some(expected(1024)));
    let elsewhere = Others::new(1).unwrap();
    let theirs = elsewhere.buffer(64);
    assert_eq!(origin(theirs), None);
    for object in [part, whole, theirs] {
        // SAFETY: this test owns the references.
        unsafe { release_mem_object(object) }.unwrap();
    }
}

#[test]
fn queues_that_the_device_cannot_use_are_refused() {
    let (Some(others), Some(elsewhere)) = (Others::new(1), Others::new(1)) else { return };
    let device = others.device();
    let interop = device.interop().unwrap();
    let unordered =
        new_queue(others.context, others.devices[0], CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let null = handle(NativeKind::Stream, ptr::null_mut());
    for (queue, why) in [
        (elsewhere.queue_handle(), "another context"),
        (handle(NativeKind::Stream, unordered), "out of order"),
        (null, "null"),
    ] {
        // SAFETY: queues that do not belong to the device are refused.
        let error = unsafe { interop.stream_from_native(queue) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(why), "{error}");
    }
    // SAFETY: the list is empty.
    let event = unsafe { enqueue_marker_with_wait_list(elsewhere.queue, 0, ptr::null()) }.unwrap();
    // SAFETY: events that do not belong to the context are refused.
    let error = unsafe { interop.event_from_native(handle(NativeKind::Event, event)) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    release(event);
    // SAFETY: this test owns the reference.
    unsafe { release_command_queue(unordered) }.unwrap();

    let context = handle(NativeKind::Context, others.context);
    let id = handle(NativeKind::Device, others.devices[0]);
    let of_cuda = NativeHandle { api: "cuda", ..context };
    let null = NativeHandle { raw: 0, ..context };
    for (context, id) in [(of_cuda, id), (null, id), (id, id), (context, context)] {
        // SAFETY: handles of the wrong kind are refused.
        let refused = unsafe { OpenClDevice::from_native(context, id, &OpenClConfig::new()) };
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    if let Some(two) = Others::new(2) {
        let error = others.open(two.devices[1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("not in the context"), "{error}");
    }
}
