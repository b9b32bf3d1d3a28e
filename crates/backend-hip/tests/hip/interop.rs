//! Streams and events that others own: the test is another library, by the runtime's own functions.
#![expect(non_snake_case, reason = "functions have the names of the runtime's headers")]

use std::ffi::{c_int, c_uint, c_void};

use backend_hip::{HipConfig, HipDevice};
use backend_support::{function_table, libloading};
use runtime_core::{Device, ErrorKind, Interop, NativeHandle, NativeKind, OriginKind, Stream};

use crate::common::{in_child, is_child, limit_time, open, open_second, skip};

function_table! {
    /// What the other library calls.
    Runtime:
    every version {
        hipSetDevice(device: c_int);
        hipStreamCreateWithFlags(stream: *mut usize, flags: c_uint);
        hipStreamDestroy(stream: usize);
        hipStreamSynchronize(stream: usize);
        hipEventCreateWithFlags(event: *mut usize, flags: c_uint);
        hipEventDestroy(event: usize);
        hipEventRecord(event: usize, stream: usize);
        hipMalloc(address: *mut usize, bytes: usize);
        hipFree(address: usize);
        hipMemsetD32Async(address: usize, value: c_int, count: usize, stream: usize);
        hipMemcpyDtoHAsync(to: *mut c_void, from: usize, bytes: usize, stream: usize);
    }
    newer versions {}
}

/// How many numbers the other library's memory has.
const LEN: usize = 1 << 12;

/// Another library on the first device, with a stream and memory.
struct Others {
    runtime: Runtime,
    stream: usize,
    memory: usize,
}

/// Calls a function of the runtime that must not fail.
macro_rules! call {
    ($others:expr, $name:ident($($arg:expr),*)) => {
        // SAFETY: the arguments are what the runtime's headers ask for, and the objects are alive.
        assert_eq!(unsafe { ($others.runtime.$name)($($arg),*) }, 0, stringify!($name))
    };
}

impl Others {
    /// `None`, said aloud, where there is no device.
    fn new() -> Option<Self> {
        // Whoever has a device has the runtime.
        drop(open("")?);
        let path = std::env::var("BACKEND_HIP_LIBRARY").unwrap_or("libamdhip64.so".to_owned());
        // SAFETY: the backend has the library loaded.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        let runtime = Runtime::bind(&library).unwrap();
        std::mem::forget(library);
        let mut others = Self { runtime, stream: 0, memory: 0 };
        call!(others, hipSetDevice(0));
        call!(others, hipStreamCreateWithFlags(&mut others.stream, 1));
        call!(others, hipMalloc(&mut others.memory, 4 * LEN));
        Some(others)
    }

    fn stream(&self) -> NativeHandle {
        handle(NativeKind::Stream, self.stream)
    }

    fn fill(&self, value: i32) {
        call!(self, hipSetDevice(0));
        call!(self, hipMemsetD32Async(self.memory, value, LEN, self.stream));
    }

    fn read(&self) -> Vec<i32> {
        let mut numbers = vec![0_i32; LEN];
        call!(self, hipSetDevice(0));
        let to = numbers.as_mut_ptr().cast();
        call!(self, hipMemcpyDtoHAsync(to, self.memory, 4 * LEN, self.stream));
        call!(self, hipStreamSynchronize(self.stream));
        numbers
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        call!(self, hipSetDevice(0));
        call!(self, hipFree(self.memory));
        call!(self, hipStreamDestroy(self.stream));
    }
}

fn config() -> HipConfig {
    HipConfig::new()
}

fn handle(kind: NativeKind, raw: usize) -> NativeHandle {
    NativeHandle { api: "hip", kind, raw }
}

fn take(interop: &Interop<'_>, raw: usize) -> Stream {
    // SAFETY: the callers' streams stay for as long as the result.
    unsafe { interop.stream_from_native(handle(NativeKind::Stream, raw)) }.unwrap()
}

#[test]
fn a_device_shares_memory_and_stream_with_others() {
    let Some(others) = Others::new() else { return };
    others.fill(40);
    {
        let device = open("").unwrap();
        let interop = device.interop().unwrap();
        let theirs = take(&interop, others.stream);
        assert_eq!(theirs.native(), others.stream());
        let address = handle(NativeKind::Pointer, others.memory);
        // SAFETY: the memory has so many numbers, which are used in the order of the stream.
        let mut memory = unsafe { device.memory_adopt::<i32>(address, LEN, ()) }.unwrap().unwrap();
        assert_eq!(memory.to_vec(&theirs).unwrap(), [40; LEN]);
        memory.fill(&theirs, 41).unwrap();
        assert_eq!(others.read(), [41; LEN]);
        let stream = device.default_stream();
        others.fill(42);
        stream.wait(&theirs.record_event().unwrap()).unwrap();
        assert_eq!(memory.to_vec(&stream).unwrap(), [42; LEN]);
        memory.fill(&stream, 43).unwrap();
        theirs.wait(&stream.record_event().unwrap()).unwrap();
        assert_eq!(others.read(), [43; LEN]);
    }
    // What was lent is still there, and works.
    others.fill(44);
    assert_eq!(others.read(), [44; LEN]);
}

#[test]
fn a_stream_of_others_may_go_before_what_was_used_on_it() {
    let Some(others) = Others::new() else { return };
    for pool in ["", "?pool=cache"] {
        let Some(device) = open(pool) else { return };
        let interop = device.interop().unwrap();
        call!(others, hipSetDevice(0));
        let mut raw = 0;
        call!(others, hipStreamCreateWithFlags(&mut raw, 1));
        let theirs = take(&interop, raw);
        let mut memory = device.memory_allocate::<i32>(1 << 20).unwrap();
        let mut pinned = device.pinned_allocate::<i32>(1 << 20).unwrap();
        (0..20).for_each(|value| memory.fill(&theirs, value).unwrap());
        memory.view().copy_to_pinned(&theirs, &mut pinned).unwrap();
        drop(theirs);
        call!(others, hipStreamDestroy(raw));
        drop(memory);
        assert_eq!(pinned.as_slice().unwrap(), vec![19; 1 << 20]);
        device.synchronize().unwrap();
    }
}

#[test]
fn an_event_of_others_is_waited_for_and_not_destroyed() {
    let Some(others) = Others::new() else { return };
    let device = open("").unwrap();
    let (interop, stream) = (device.interop().unwrap(), device.default_stream());
    let mut event = 0;
    call!(others, hipSetDevice(0));
    call!(others, hipEventCreateWithFlags(&mut event, 2));
    let address = handle(NativeKind::Pointer, others.memory);
    // SAFETY: the memory has so many numbers, which are used behind the event.
    let memory = unsafe { device.memory_adopt::<i32>(address, LEN, ()) }.unwrap().unwrap();
    for value in [5, 6] {
        (0..=value).for_each(|value| others.fill(value));
        call!(others, hipEventRecord(event, others.stream));
        // SAFETY: the event is alive.
        let taken = unsafe { interop.event_from_native(handle(NativeKind::Event, event)) };
        stream.wait(&taken.unwrap()).unwrap();
        assert_eq!(memory.to_vec(&stream).unwrap(), [value; LEN]);
    }
    call!(others, hipEventDestroy(event));
}

#[test]
fn a_stream_of_others_serves_as_the_default_one() {
    let Some(others) = Others::new() else { return };
    others.fill(7);
    {
        let raw = HipDevice::open(0, &config()).unwrap();
        // SAFETY: the stream outlives the device.
        let device = unsafe { Device::with_native_stream(raw, others.stream()) }.unwrap();
        assert_eq!(device.default_stream().native(), others.stream());
        let address = handle(NativeKind::Pointer, others.memory);
        // SAFETY: the memory has so many numbers, which are used in the order of the stream.
        let memory = unsafe { device.memory_adopt::<i32>(address, LEN, ()) }.unwrap().unwrap();
        assert_eq!(memory.to_vec(&device.default_stream()).unwrap(), [7; LEN]);
    }
    others.fill(8);
    assert_eq!(others.read(), [8; LEN]);
}

/// In a process of its own, where the stand-in takes the use of the runtime's own streams for intended.
#[test]
fn the_default_stream_of_the_runtime_is_a_stream() {
    if !is_child() {
        let test = "interop::the_default_stream_of_the_runtime_is_a_stream";
        let output = in_child(test, &[("STAND_IN_DEFAULT_STREAMS", "1")]);
        assert!(!output.contains("violation"), "{output}");
        return;
    }
    limit_time();
    let Some(device) = open("") else { return };
    let interop = device.interop().unwrap();
    let theirs = take(&interop, 0);
    let mut memory = device.memory_allocate::<i32>(1 << 18).unwrap();
    (0..20).for_each(|value| memory.fill(&theirs, value).unwrap());
    assert_eq!(memory.to_vec(&theirs).unwrap(), vec![19; 1 << 18]);
    memory.fill(&theirs, 77).unwrap();
    let ours = device.default_stream();
    ours.wait(&theirs.record_event().unwrap()).unwrap();
    assert_eq!(memory.to_vec(&ours).unwrap(), vec![77; 1 << 18]);
    memory.fill(&theirs, 1).unwrap();
    drop((theirs, memory));
    device.synchronize().unwrap();
}

#[test]
fn streams_of_cuda_and_of_other_devices_are_refused() {
    let Some(device) = open("") else { return };
    let interop = device.interop().unwrap();
    for raw in [1, 2] {
        // SAFETY: a stream that HIP has not is refused.
        let error = unsafe { interop.stream_from_native(handle(NativeKind::Stream, raw)) };
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("the default stream is 0"), "{error}");
    }
    let error = HipDevice::open(99, &config()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownDevice, "{error}");
    let Some(other) = open_second() else { return skip("there is one device") };
    let stream = other.default_stream();
    // SAFETY: a stream of another device is refused.
    let error = unsafe { interop.stream_from_native(stream.native()) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("is of device 1"), "{error}");
}

/// With the numbers that kinds of memory had before HIP 6, and those since.
#[test]
fn origins_tell_kinds_of_memory_apart() {
    if !is_child() {
        for version in ["50221153", "60000000"] {
            let test = "interop::origins_tell_kinds_of_memory_apart";
            in_child(test, &[("STAND_IN_HIP_VERSION", version)]);
        }
        return;
    }
    let Some(others) = Others::new() else { return };
    let Some(device) = open("") else { return };
    let interop = device.interop().unwrap();
    let origin = |raw| {
        // SAFETY: an address may be any number.
        unsafe { interop.origin(handle(NativeKind::Pointer, raw)) }.unwrap()
    };
    let theirs = origin(others.memory + 40).unwrap();
    assert_eq!((theirs.base, theirs.offset, theirs.bytes), (others.memory, 40, 4 * LEN));
    assert_eq!((theirs.device, theirs.kind), (Some(0), OriginKind::Device));
    let mut pinned = device.pinned_allocate::<i32>(100).unwrap();
    let address = pinned.as_mut_slice().unwrap().as_ptr().addr();
    let found = origin(address + 8).unwrap();
    assert_eq!((found.base, found.offset, found.kind), (address, 8, OriginKind::Pinned));
    let Some(unified) = device.unified_memory() else { return };
    let unified = unified.allocate::<i32>(100).unwrap();
    let found = origin(unified.native().unwrap().raw).unwrap();
    assert_eq!((found.offset, found.kind), (0, OriginKind::Managed));
}
