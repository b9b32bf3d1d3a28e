//! Contexts, streams and events that others own: the test is another library, by the driver's own functions.
#![expect(non_snake_case, reason = "functions have the names of the driver's headers")]

use std::ffi::{c_int, c_uint, c_void};
use std::thread;

use backend_cuda::{CudaConfig, CudaDevice};
use backend_support::{function_table, libloading};
use runtime_core::{
    Device, ErrorKind, ImageFormat, Interop, ModuleImage, NativeHandle, NativeKind, OriginKind,
    Result, Stream,
};

use crate::common::{in_child, is_child, limit_time, open, open_second, skip};
use crate::faults::stop_on;

function_table! {
    /// What the other library calls.
    Driver:
    every version {
        cuDeviceGet(device: *mut c_int, ordinal: c_int);
        cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int);
        cuDevicePrimaryCtxRelease_v2(device: c_int);
        cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int);
        cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int);
        cuCtxDestroy_v2(context: usize);
        cuCtxSetCurrent(context: usize);
        cuStreamCreate(stream: *mut usize, flags: c_uint);
        cuStreamDestroy_v2(stream: usize);
        cuStreamSynchronize(stream: usize);
        cuEventCreate(event: *mut usize, flags: c_uint);
        cuEventDestroy_v2(event: usize);
        cuEventRecord(event: usize, stream: usize);
        cuMemAlloc_v2(address: *mut usize, bytes: usize);
        cuMemFree_v2(address: usize);
        cuMemsetD32Async(address: usize, value: c_uint, count: usize, stream: usize);
        cuMemcpyDtoHAsync_v2(to: *mut c_void, from: usize, bytes: usize, stream: usize);
    }
    newer versions {}
}

/// A kernel that does nothing.
const PTX: &str = ".version 8.0\n.target sm_60\n.address_size 64\n.visible .entry k() { ret; }\n";

/// How many numbers the other library's memory has.
const LEN: usize = 1 << 12;

/// Another library: a context of the first device, with a stream and memory.
struct Others {
    driver: Driver,
    kind: ContextKind,
    device: c_int,
    context: usize,
    stream: usize,
    memory: usize,
}

/// Which context it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContextKind {
    /// The primary one, retained.
    Primary,
    /// One of their own.
    Created,
}

const KINDS: [ContextKind; 2] = [ContextKind::Primary, ContextKind::Created];

/// Calls a function of the driver that must not fail.
macro_rules! call {
    ($others:expr, $name:ident($($arg:expr),*)) => {
        // SAFETY: the arguments are what the driver's headers ask for, and the objects are alive.
        assert_eq!(unsafe { ($others.driver.$name)($($arg),*) }, 0, stringify!($name))
    };
}

impl Others {
    /// In the primary context; `None`, said aloud, where there is no device.
    fn new() -> Option<Self> {
        Self::within(ContextKind::Primary)
    }

    fn within(kind: ContextKind) -> Option<Self> {
        // Whoever has a device has the driver.
        drop(open("")?);
        let path = std::env::var("BACKEND_CUDA_DRIVER").unwrap_or("libcuda.so.1".to_owned());
        // SAFETY: the backend has the library loaded.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        let driver = Driver::bind(&library).unwrap();
        std::mem::forget(library);
        let mut others = Self { driver, kind, device: 0, context: 0, stream: 0, memory: 0 };
        call!(others, cuDeviceGet(&mut others.device, 0));
        match kind {
            ContextKind::Primary => {
                call!(others, cuDevicePrimaryCtxRetain(&mut others.context, others.device));
            }
            ContextKind::Created => {
                call!(others, cuCtxCreate_v2(&mut others.context, 0, others.device));
            }
        }
        call!(others, cuCtxSetCurrent(others.context));
        call!(others, cuStreamCreate(&mut others.stream, 1));
        call!(others, cuMemAlloc_v2(&mut others.memory, 4 * LEN));
        Some(others)
    }

    fn open(&self) -> Result<CudaDevice> {
        // SAFETY: the context is retained, or not destroyed yet.
        unsafe { CudaDevice::from_native(handle(NativeKind::Context, self.context), &config()) }
    }

    fn give_context_up(&self) {
        match self.kind {
            ContextKind::Primary => call!(self, cuDevicePrimaryCtxRelease_v2(self.device)),
            ContextKind::Created => call!(self, cuCtxDestroy_v2(self.context)),
        }
    }

    fn device(&self) -> Device {
        Device::new(self.open().unwrap()).unwrap()
    }

    fn stream(&self) -> NativeHandle {
        handle(NativeKind::Stream, self.stream)
    }

    fn fill(&self, value: u32) {
        call!(self, cuCtxSetCurrent(self.context));
        call!(self, cuMemsetD32Async(self.memory, value, LEN, self.stream));
    }

    fn read(&self) -> Vec<u32> {
        let mut numbers = vec![0_u32; LEN];
        call!(self, cuCtxSetCurrent(self.context));
        let to = numbers.as_mut_ptr().cast();
        call!(self, cuMemcpyDtoHAsync_v2(to, self.memory, 4 * LEN, self.stream));
        call!(self, cuStreamSynchronize(self.stream));
        numbers
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        call!(self, cuCtxSetCurrent(self.context));
        call!(self, cuMemFree_v2(self.memory));
        call!(self, cuStreamDestroy_v2(self.stream));
        self.give_context_up();
    }
}

fn config() -> CudaConfig {
    CudaConfig::new()
}

fn handle(kind: NativeKind, raw: usize) -> NativeHandle {
    NativeHandle { api: "cuda", kind, raw }
}

fn take(interop: &Interop<'_>, raw: usize) -> Stream {
    // SAFETY: the callers' streams stay for as long as the result.
    unsafe { interop.stream_from_native(handle(NativeKind::Stream, raw)) }.unwrap()
}

#[test]
fn a_device_in_a_context_of_others_shares_memory_and_stream() {
    KINDS.into_iter().filter_map(Others::within).for_each(share);
}

fn share(others: Others) {
    others.fill(40);
    {
        let device = others.device();
        assert_eq!(device.native(), handle(NativeKind::Context, others.context));
        let interop = device.interop().unwrap();
        let theirs = take(&interop, others.stream);
        assert_eq!(theirs.native(), others.stream());
        let address = handle(NativeKind::Pointer, others.memory);
        // SAFETY: the memory has so many numbers, which are used in the order of the stream.
        let mut memory = unsafe { device.memory_adopt::<u32>(address, LEN, ()) }.unwrap().unwrap();
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
    if others.kind == ContextKind::Primary {
        let (mut flags, mut active) = (0, 0);
        call!(others, cuDevicePrimaryCtxGetState(others.device, &mut flags, &mut active));
        assert_eq!(active, 1);
    }
    others.fill(44);
    assert_eq!(others.read(), [44; LEN]);
}

#[test]
fn a_device_in_a_context_of_others_is_as_good_as_any() {
    let Some(others) = Others::within(ContextKind::Created) else { return };
    let device = others.device();
    let stream = device.default_stream();
    let wide = num_complex::Complex::new(1.5_f64, 0.1);
    let mut memory = device.memory_allocate::<num_complex::Complex<f64>>(LEN).unwrap();
    memory.fill(&stream, wide).unwrap();
    let mut pinned = device.pinned_allocate::<num_complex::Complex<f64>>(LEN).unwrap();
    memory.view().copy_to_pinned(&stream, &mut pinned).unwrap();
    assert_eq!(pinned.as_slice().unwrap(), [wide; LEN]);
    let kernel = device.module_load(ModuleImage::source(ImageFormat::Ptx, PTX)).unwrap();
    let kernel = kernel.kernel("k").unwrap();
    crate::common::run(&kernel, &kernel.cover(1).unwrap(), &[]).unwrap();
    if let Some(graphs) = device.graphs() {
        let graph = graphs.capture(|capture| memory.fill(capture, wide * 2.0));
        // SAFETY: nothing else uses the memory meanwhile.
        unsafe { graph.unwrap().launch(&stream) }.unwrap();
    }
    assert_eq!(memory.to_vec(&stream).unwrap()[LEN - 1], wide * 2.0);
    device.synchronize().unwrap();
}

#[test]
fn contexts_of_one_device_wait_for_each_other_and_copy() {
    let Some(others) = Others::within(ContextKind::Created) else { return };
    let (device, primary) = (others.device(), open("").unwrap());
    assert_ne!(device.native(), primary.native());
    let (stream, foreign) = (device.default_stream(), primary.default_stream());
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    let mut copy = primary.memory_allocate::<u32>(LEN).unwrap();
    for value in 0..20 {
        memory.fill(&stream, value).unwrap();
        foreign.wait(&stream.record_event().unwrap()).unwrap();
        copy.view_mut().copy_from_device(&foreign, &memory.view(), &stream).unwrap();
        stream.wait(&foreign.record_event().unwrap()).unwrap();
        assert_eq!(copy.to_vec(&foreign).unwrap(), [value; LEN]);
    }
    let interop = device.interop().unwrap();
    // SAFETY: a stream of another context is refused.
    let error = unsafe { interop.stream_from_native(foreign.native()) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("another context"), "{error}");
}

#[test]
fn a_context_of_others_is_lost_alone_and_leaves_no_memory() {
    if !is_child() {
        let test = "interop::a_context_of_others_is_lost_alone_and_leaves_no_memory";
        let output = in_child(test, &[("STAND_IN_MEMORY", "64")]);
        assert!(!output.contains("violation"), "{output}");
        return;
    }
    for _ in 0..3 {
        let Some(others) = Others::within(ContextKind::Created) else { return };
        let device = others.device();
        let memory = device.memory_allocate::<u8>(40 << 20).unwrap();
        stop_on(&device);
        let fault = device.synchronize().unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::DeviceFault, "{fault}");
        let lost = others.open().unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
        drop((memory, device));
        // SAFETY: nobody uses the context any more.
        let _told_once_more = unsafe { (others.driver.cuCtxDestroy_v2)(others.context) };
        // What it has went with the context.
        std::mem::forget(others);
    }
    let device = open("").unwrap();
    let memory = device.memory_from_slice(&device.default_stream(), &[1_u32, 2]).unwrap();
    assert_eq!(memory.to_vec(&device.default_stream()).unwrap(), [1, 2]);
}

#[test]
fn a_stream_of_others_may_go_before_what_was_used_on_it() {
    let Some(others) = Others::new() else { return };
    for pool in ["", "?pool=cache"] {
        let Some(device) = open(pool) else { return };
        let interop = device.interop().unwrap();
        call!(others, cuCtxSetCurrent(others.context));
        let mut raw = 0;
        call!(others, cuStreamCreate(&mut raw, 1));
        let theirs = take(&interop, raw);
        let mut memory = device.memory_allocate::<u32>(1 << 20).unwrap();
        let mut pinned = device.pinned_allocate::<u32>(1 << 20).unwrap();
        (0..20).for_each(|value| memory.fill(&theirs, value).unwrap());
        memory.view().copy_to_pinned(&theirs, &mut pinned).unwrap();
        drop(theirs);
        call!(others, cuStreamDestroy_v2(raw));
        drop(memory);
        assert_eq!(pinned.as_slice().unwrap(), vec![19; 1 << 20]);
        device.synchronize().unwrap();
    }
}

#[test]
fn an_event_of_others_is_waited_for_and_not_destroyed() {
    let Some(others) = Others::new() else { return };
    let device = others.device();
    let (interop, stream) = (device.interop().unwrap(), device.default_stream());
    let mut event = 0;
    call!(others, cuCtxSetCurrent(others.context));
    call!(others, cuEventCreate(&mut event, 2));
    let address = handle(NativeKind::Pointer, others.memory);
    // SAFETY: the memory has so many numbers, which are used behind the event.
    let memory = unsafe { device.memory_adopt::<u32>(address, LEN, ()) }.unwrap().unwrap();
    for value in [5, 6] {
        (0..=value).for_each(|value| others.fill(value));
        call!(others, cuEventRecord(event, others.stream));
        // SAFETY: the event is alive.
        let taken = unsafe { interop.event_from_native(handle(NativeKind::Event, event)) };
        stream.wait(&taken.unwrap()).unwrap();
        assert_eq!(memory.to_vec(&stream).unwrap(), [value; LEN]);
    }
    call!(others, cuEventDestroy_v2(event));
}

#[test]
fn a_stream_of_others_serves_as_the_default_one() {
    let Some(others) = Others::new() else { return };
    others.fill(7);
    {
        let raw = CudaDevice::open(0, &config()).unwrap();
        // SAFETY: the stream outlives the device.
        let device = unsafe { Device::with_native_stream(raw, others.stream()) }.unwrap();
        assert_eq!(device.default_stream().native(), others.stream());
        let address = handle(NativeKind::Pointer, others.memory);
        // SAFETY: the memory has so many numbers, which are used in the order of the stream.
        let memory = unsafe { device.memory_adopt::<u32>(address, LEN, ()) }.unwrap().unwrap();
        assert_eq!(memory.to_vec(&device.default_stream()).unwrap(), [7; LEN]);
    }
    others.fill(8);
    assert_eq!(others.read(), [8; LEN]);
}

/// In a process of its own, where the stand-in takes the use of the driver's own streams for intended.
#[test]
fn the_driver_s_own_streams_are_streams() {
    if !is_child() {
        let test = "interop::the_driver_s_own_streams_are_streams";
        let output = in_child(test, &[("STAND_IN_DEFAULT_STREAMS", "1")]);
        assert!(!output.contains("violation"), "{output}");
        return;
    }
    limit_time();
    let Some(device) = open("") else { return };
    let interop = device.interop().unwrap();
    for raw in [1, 2] {
        let theirs = take(&interop, raw);
        let mut memory = device.memory_allocate::<u32>(1 << 18).unwrap();
        for round in 0..10 {
            // Whichever thread enqueues, and whichever stream that is to the driver.
            thread::scope(|scope| {
                scope.spawn(|| (0..20).for_each(|value| memory.fill(&theirs, value).unwrap()));
            });
            let values: Vec<u32> = memory.to_vec(&theirs).unwrap();
            assert_eq!(values, vec![19; 1 << 18], "stream {raw}, round {round}");
            memory.fill(&theirs, 77).unwrap();
            let event = theirs.record_event().unwrap();
            let ours = device.default_stream();
            ours.wait(&event).unwrap();
            assert_eq!(memory.to_vec(&ours).unwrap(), vec![77; 1 << 18]);
        }
        memory.fill(&theirs, 1).unwrap();
        // Freed by a thread whose own stream never saw it.
        thread::scope(|scope| {
            scope.spawn(move || drop((theirs, memory)));
        });
        device.synchronize().unwrap();
    }
}

#[test]
fn null_and_what_is_of_another_context_are_refused() {
    let Some(device) = open("") else { return };
    let interop = device.interop().unwrap();
    // SAFETY: a null stream is refused.
    let error = unsafe { interop.stream_from_native(handle(NativeKind::Stream, 0)) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("1 is the legacy one"), "{error}");
    let context = device.native();
    let of_hip = NativeHandle { api: "hip", ..context };
    let null = NativeHandle { raw: 0, ..context };
    let stream = NativeHandle { kind: NativeKind::Stream, ..context };
    for context in [of_hip, null, stream] {
        // SAFETY: what is no context is refused.
        let error = unsafe { CudaDevice::from_native(context, &config()) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let error = CudaDevice::open(99, &config()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownDevice, "{error}");
    let Some(other) = open_second() else { return skip("there is one device") };
    let stream = other.default_stream();
    // SAFETY: a stream of another device is refused.
    let error = unsafe { interop.stream_from_native(stream.native()) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("another context"), "{error}");
}

#[test]
fn origins_tell_kinds_of_memory_apart() {
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
    let mut pinned = device.pinned_allocate::<u32>(100).unwrap();
    let address = pinned.as_mut_slice().unwrap().as_ptr().addr();
    let found = origin(address + 8).unwrap();
    assert_eq!((found.base, found.offset, found.kind), (address, 8, OriginKind::Pinned));
    let Some(unified) = device.unified_memory() else { return };
    let unified = unified.allocate::<u32>(100).unwrap();
    let found = origin(unified.native().unwrap().raw).unwrap();
    assert_eq!((found.offset, found.kind), (0, OriginKind::Managed));
}
