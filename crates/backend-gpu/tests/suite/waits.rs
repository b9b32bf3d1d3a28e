//! Libraries that fail to mark or to wait, each in a process of its own: what work uses is given back after the work
//! all the same. On the stand-in faults are planned, and it reports what was freed too early; on a real one nothing
//! fails.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backend_support::libloading;
use num_complex::Complex;
use runtime_core::{
    Backend, Device, ErrorKind, Event, Memory, NativeHandle, NativeKind, Stream, StreamOptions,
};

use crate::common::{in_child, is_child, limit_time, open, open_device, run, skip};
use crate::suite::faults::{opened_again, stop_on, with_faults_of_all_kinds};
use crate::vendor;

/// Runs this test in a process of its own, with these faults; whether this is that process.
fn with_faults(test: &str, faults: &str) -> bool {
    if !is_child() {
        let output = in_child(&format!("suite::waits::{test}"), &[("STAND_IN_FAULTS", faults)]);
        assert!(!output.contains("violation"), "{output}");
    }
    is_child()
}

fn busy(device: &Device, stream: &Stream) -> Memory<u32> {
    let mut memory = device.memory_allocate::<u32>(1 << 22).unwrap();
    (0..30_u32).for_each(|value| memory.fill(stream, value).unwrap());
    memory
}

/// Drops pinned memory that a copy reads which is far from its turn.
fn drop_pinned_in_use() {
    let Some(device) = open("") else { return };
    let stream = device.stream_create(&StreamOptions::default()).unwrap();
    let mut memory = busy(&device, &stream);
    let pinned = device.pinned_allocate::<u32>(1 << 10).unwrap();
    let mut part = memory.view_mut().slice(0..1 << 10).unwrap();
    part.copy_from_pinned(&stream, &pinned).unwrap();
    drop(pinned);
    // Waits are left to whoever gives it back.
    while !stream.is_done().unwrap() {
        std::thread::yield_now();
    }
    device.synchronize().unwrap();
}

#[test]
fn page_locked_memory_without_uses_is_dropped_without_a_wait() {
    let Some(device) = open("") else { return };
    let Ok(pinned) = device.pin_vec(vec![0_u8; 1 << 20]) else { return skip("no page-locking") };
    let stream = device.stream_create(&StreamOptions::default()).unwrap();
    let _memory = busy(&device, &stream);
    let was_done = stream.is_done().unwrap();
    drop(pinned);
    assert!(was_done || !stream.is_done().unwrap());
    device.synchronize().unwrap();
}

#[test]
fn pinned_memory_is_freed_after_a_wait_that_failed() {
    if with_faults("pinned_memory_is_freed_after_a_wait_that_failed", "sync:2") {
        drop_pinned_in_use();
    }
}

/// The library's waits fail, and it says for ever that work goes on.
#[test]
fn a_device_whose_work_never_ends_is_closed_after_a_while() {
    if !with_faults("a_device_whose_work_never_ends_is_closed_after_a_while", "sync:2=600") {
        return;
    }
    limit_time();
    let Some(device) = open("") else { return };
    let stream = device.stream_create(&StreamOptions::default()).unwrap();
    let mut memory = busy(&device, &stream);
    for _ in 0..3 {
        let pinned = device.pinned_allocate::<u32>(1 << 10).unwrap();
        let mut part = memory.view_mut().slice(0..1 << 10).unwrap();
        part.copy_from_pinned(&stream, &pinned).unwrap();
    }
    drop((memory, stream, device));
}

#[test]
fn pinned_memory_is_freed_after_a_stream_that_could_not_be_marked() {
    if with_faults("pinned_memory_is_freed_after_a_stream_that_could_not_be_marked", "event:2") {
        drop_pinned_in_use();
    }
}

#[test]
fn cached_memory_is_reused_after_an_event_could_not_be_recorded() {
    let test = "cached_memory_is_reused_after_an_event_could_not_be_recorded";
    if !with_faults(test, "event:1") {
        return;
    }
    let Some(device) = open("?pool=cache") else { return };
    let stream = device.default_stream();
    let memory = busy(&device, &stream);
    let address = memory.native().unwrap().raw;
    drop(memory);
    let other = device.memory_allocate::<u32>(1 << 22).unwrap();
    assert!(stream.is_done().unwrap() || other.native().unwrap().raw != address);
    stream.synchronize().unwrap();
    drop(other);
    device.memory_pool().unwrap().trim(0).unwrap();
    assert_eq!(device.memory_pool().unwrap().reserved_bytes(), 0);
}

#[test]
fn memory_of_several_streams_is_freed_after_those_that_could_not_be_marked() {
    let test = "memory_of_several_streams_is_freed_after_those_that_could_not_be_marked";
    if !with_faults(test, "event:2,event:3") {
        return;
    }
    let Some(device) = open("") else { return };
    let streams = [(); 2].map(|()| device.stream_create(&StreamOptions::default()).unwrap());
    let mut memory = busy(&device, &streams[0]);
    streams[1].wait(&streams[0].record_event().unwrap()).unwrap();
    (0..30_u32).for_each(|value| memory.fill(&streams[1], value).unwrap());
    drop(memory);
    device.synchronize().unwrap();
    assert_eq!(device.memory_pool().unwrap().used_bytes(), 0);
}

#[test]
fn a_blocking_copy_ends_when_the_copy_is_over() {
    if !with_faults("a_blocking_copy_ends_when_the_copy_is_over", "sync:2,sync:3") {
        return;
    }
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let mut memory = busy(&device, &stream);
    let mut numbers = vec![0; 1 << 22];
    // Whether or not it says that it failed.
    let _ = memory.view().copy_to_slice(&stream, &mut numbers);
    assert!(stream.is_done().unwrap());
    assert!(numbers.iter().all(|number| *number == 29));
    memory.fill(&stream, 30).unwrap();
    let _ = memory.copy_from_slice(&stream, &numbers);
    assert!(stream.is_done().unwrap());
}

/// Drivers may report a fault with any code, as long as every call returns it.
#[test]
fn a_code_that_every_call_returns_is_a_fault() {
    if !is_child() {
        for faults in ["lose:8=999", "lose:8=401", "lose:8=1", "fill:1=718"] {
            with_faults("a_code_that_every_call_returns_is_a_fault", faults);
        }
        return;
    }
    limit_time();
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<u32>(1 << 10).unwrap();
    let work = |value| {
        memory.fill(&stream, value)?;
        memory.to_vec(&stream)
    };
    let lost: runtime_core::Result<Vec<_>> = (0..20_u32).map(work).collect();
    // On a real driver nothing fails.
    if !device.info().name.contains("stand-in") {
        return;
    }
    let lost = lost.unwrap_err();
    assert!([ErrorKind::DeviceFault, ErrorKind::DeviceLost].contains(&lost.kind()), "{lost}");
    let _told = stream.synchronize();
    for outcome in [stream.synchronize(), memory.to_vec(&stream).map(drop)] {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::DeviceLost);
    }
    drop((memory, stream, device));
    let again = open("").unwrap();
    again.memory_from_slice(&again.default_stream(), &[1_u32]).unwrap();
}

#[test]
fn an_allocation_that_fails_late_leaves_nothing_behind() {
    if !with_faults("an_allocation_that_fails_late_leaves_nothing_behind", "sync:1") {
        return;
    }
    let Some(device) = open("") else { return };
    drop(device.memory_allocate::<u32>(1 << 10));
    device.synchronize().unwrap();
    assert_eq!(device.memory_pool().unwrap().used_bytes(), 0);
}

#[test]
fn a_fault_of_one_device_is_none_of_another() {
    if !is_child() {
        with_faults_of_all_kinds("suite::waits::a_fault_of_one_device_is_none_of_another", &[]);
        return;
    }
    let Some(device) = open("") else { return };
    let Some(other) = open_device(&format!("{}:1", vendor::NAME)) else { return };
    let (stream, foreign) = (device.default_stream(), other.default_stream());
    let memory = device.memory_from_slice(&stream, &[1_u32; 1024]).unwrap();
    let mut copy = other.memory_allocate::<u32>(1024).unwrap();
    copy.view_mut().copy_from_device(&foreign, &memory.view(), &stream).unwrap();
    let event = foreign.record_event().unwrap();
    stop_on(&other);
    let failed = stream.wait(&event).map_err(|error| error.kind());
    assert!(matches!(failed, Ok(()) | Err(ErrorKind::DeviceLost)), "{failed:?}");
    drop(memory);
    if let Err(lost) = device.synchronize() {
        // Of the whole process, then, of which no device is opened again.
        assert_eq!(lost.kind(), ErrorKind::DeviceFault, "{lost}");
        drop((copy, event, stream, foreign, device, other));
        let again = vendor::backend().open(&vendor::FIRST.parse().unwrap());
        assert!(opened_again(again).is_none(), "{lost}");
        return;
    }
    let memory = device.memory_from_slice(&stream, &[2_u32; 1024]).unwrap();
    assert_eq!(memory.to_vec(&stream).unwrap(), [2; 1024]);
}

/// A capture by another user of the process, in the mode that forbids most to all threads, as other libraries make
/// them.
struct ForeignCapture {
    library: libloading::Library,
    stream: *mut c_void,
}

#[expect(clippy::multiple_unsafe_ops_per_block, reason = "calls by name, alike")]
impl ForeignCapture {
    fn begin(device: &Device) -> Self {
        let path = std::env::var(vendor::LIBRARY).unwrap_or(vendor::LIBRARY_NAME.to_owned());
        let mut stream = ptr::null_mut();
        // SAFETY: the backend has the library loaded, whose functions are declared so; what is made current is the
        // device's, and the stream written to where it may be.
        let library = unsafe {
            type Create = unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> u32;
            type Begin = unsafe extern "C" fn(*mut c_void, u32) -> u32;
            let library = libloading::Library::new(path).unwrap();
            let set = library.get::<unsafe extern "C" fn(usize) -> u32>(vendor::SET_CURRENT);
            assert_eq!(set.unwrap()(device.native().raw), 0);
            let create = library.get::<Create>(vendor::STREAM_CREATE).unwrap();
            assert_eq!(create(&mut stream, 1, 0), 0);
            assert_eq!(library.get::<Begin>(vendor::CAPTURE_BEGIN).unwrap()(stream, 0), 0);
            library
        };
        Self { library, stream }
    }

    /// The code with which it ends: 0 unless something has spoilt it.
    fn end(self) -> u32 {
        let (library, mut graph) = (&self.library, ptr::null_mut());
        // SAFETY: as above; the stream is that of the capture, and graph and stream are destroyed once.
        unsafe {
            type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> u32;
            type Destroy = unsafe extern "C" fn(*mut c_void) -> u32;
            let code = library.get::<End>(vendor::CAPTURE_END).unwrap()(self.stream, &mut graph);
            if code == 0 {
                assert_eq!(library.get::<Destroy>(vendor::GRAPH_DESTROY).unwrap()(graph), 0);
            }
            assert_eq!(library.get::<Destroy>(vendor::STREAM_DESTROY).unwrap()(self.stream), 0);
            code
        }
    }
}

/// Notes when it is dropped whether the work that uses it was done.
struct Owner {
    used: Event,
    _memory: Memory<u32>,
    dropped: Arc<Mutex<Option<bool>>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        *self.dropped.lock().unwrap() = Some(self.used.is_done().unwrap());
    }
}

#[test]
fn a_capture_of_others_neither_hastens_nor_suffers() {
    if !with_faults("a_capture_of_others_neither_hastens_nor_suffers", "") {
        return;
    }
    for pool in ["", "?pool=cache"] {
        let Some(device) = open(pool) else { return };
        let stream = device.stream_create(&StreamOptions::default()).unwrap();
        let memory = device.memory_allocate::<u32>(1 << 10).unwrap();
        let raw = memory.native().unwrap().raw;
        let handle = NativeHandle { api: vendor::NAME, kind: NativeKind::Pointer, raw };
        let dropped = Arc::new(Mutex::new(None));
        let used = device.event_create(false).unwrap();
        let owner = Owner { used: used.clone(), _memory: memory, dropped: dropped.clone() };
        // SAFETY: the owner keeps the memory.
        let adopted = unsafe { device.memory_adopt::<u32>(handle, 1 << 10, owner) };
        let Ok(mut adopted) = adopted else { return skip("no adoption") };
        let mut small = device.memory_allocate::<u32>(1 << 10).unwrap();
        let pinned = device.pinned_allocate::<u32>(1 << 10).unwrap();
        let mut large = busy(&device, &stream);
        for memory in [&mut adopted, &mut small] {
            memory.fill(&stream, 7_u32).unwrap();
        }
        let mut part = large.view_mut().slice(0..1 << 10).unwrap();
        part.copy_from_pinned(&stream, &pinned).unwrap();
        stream.record(&used).unwrap();

        let capture = ForeignCapture::begin(&device);
        // Code that is loaded, by the program and by a fill that needs a kernel, and another instance with a stream and
        // a pool.
        let kernel = vendor::nothing(&device);
        kernel.iter().for_each(|kernel| run(kernel, &kernel.cover(1).unwrap(), &[]).unwrap());
        let mut wide = device.memory_allocate::<Complex<f64>>(10).unwrap();
        wide.fill(&device.default_stream(), Complex::new(1.5, 0.1)).unwrap();
        drop((open(pool), wide, kernel));
        let address = small.native().unwrap().raw;
        drop((small, adopted, pinned));
        let again = device.memory_allocate::<u32>(1 << 10).unwrap();
        assert!(stream.is_done().unwrap() || again.native().unwrap().raw != address, "{pool}");
        let began = Instant::now();
        while dropped.lock().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(60), "the owner is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(*dropped.lock().unwrap(), Some(true), "{pool}");
        device.synchronize().unwrap();
        assert_eq!(capture.end(), 0, "{pool}: the capture was spoilt");
    }
}
