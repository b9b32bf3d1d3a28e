//! Streams and events that others own: the test is another library, by the vendor's own functions.

use std::thread;

use runtime_core::{Device, ErrorKind, Interop, NativeHandle, NativeKind, OriginKind, Stream};

use crate::common::{in_child, is_child, limit_time, open, open_second, skip};
use crate::others::{LEN, Others};
use crate::vendor;

pub(crate) fn handle(kind: NativeKind, raw: usize) -> NativeHandle {
    NativeHandle { api: vendor::NAME, kind, raw }
}

fn take(interop: &Interop<'_>, raw: usize) -> Stream {
    // SAFETY: the callers' streams stay for as long as the result.
    unsafe { interop.stream_from_native(handle(NativeKind::Stream, raw)) }.unwrap()
}

#[test]
fn a_device_shares_memory_and_stream_with_others() {
    Others::all().iter().for_each(share);
}

fn share(others: &Others) {
    others.fill(40);
    {
        let device = others.device();
        others.check_sharing(&device);
        let interop = device.interop().unwrap();
        let theirs = take(&interop, others.stream);
        assert_eq!(theirs.native(), others.stream());
        let address = handle(NativeKind::Pointer, others.memory);
        // SAFETY: the memory has so many numbers, which are used in the order of the stream.
        let mut memory = unsafe { device.memory_adopt::<u32>(address, LEN, ()) }.unwrap();
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
    others.check_alone();
    // What was lent is still there, and works.
    others.fill(44);
    assert_eq!(others.read(), [44; LEN]);
}

#[test]
fn a_foreign_stream_may_be_destroyed_before_the_memory_used_on_it() {
    let Some(others) = Others::new() else { return };
    for pool in ["", "?pool=cache"] {
        let Some(device) = open(pool) else { return };
        let interop = device.interop().unwrap();
        let raw = others.stream_create();
        let theirs = take(&interop, raw);
        let mut memory = device.memory_allocate::<u32>(1 << 20).unwrap();
        let mut pinned = device.pinned_allocate::<u32>(1 << 20).unwrap();
        (0..20).for_each(|value| memory.fill(&theirs, value).unwrap());
        memory.view().copy_to_pinned(&theirs, &mut pinned).unwrap();
        drop(theirs);
        others.stream_destroy(raw);
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
    let event = others.event_create();
    let address = handle(NativeKind::Pointer, others.memory);
    // SAFETY: the memory has so many numbers, which are used behind the event.
    let memory = unsafe { device.memory_adopt::<u32>(address, LEN, ()) }.unwrap();
    for value in [5, 6] {
        (0..=value).for_each(|value| others.fill(value));
        others.event_record(event);
        // SAFETY: the event is alive.
        let taken = unsafe { interop.event_from_native(handle(NativeKind::Event, event)) };
        stream.wait(&taken.unwrap()).unwrap();
        assert_eq!(memory.to_vec(&stream).unwrap(), [value; LEN]);
    }
    others.event_destroy(event);
}

#[test]
fn a_stream_of_others_serves_as_the_default_one() {
    let Some(others) = Others::new() else { return };
    others.fill(7);
    {
        let raw = vendor::open(0).unwrap();
        // SAFETY: the stream outlives the device.
        let device = unsafe { Device::with_native_stream(raw, others.stream()) }.unwrap();
        assert_eq!(device.default_stream().native(), others.stream());
        let address = handle(NativeKind::Pointer, others.memory);
        // SAFETY: the memory has so many numbers, which are used in the order of the stream.
        let memory = unsafe { device.memory_adopt::<u32>(address, LEN, ()) }.unwrap();
        assert_eq!(memory.to_vec(&device.default_stream()).unwrap(), [7; LEN]);
    }
    others.fill(8);
    assert_eq!(others.read(), [8; LEN]);
}

/// In a process of its own, where the stand-in takes the use of the library's own streams for intended.
#[test]
fn the_librarys_own_streams_are_streams() {
    if !is_child() {
        let test = "suite::interop::the_librarys_own_streams_are_streams";
        let output = in_child(test, &[("STAND_IN_DEFAULT_STREAMS", "1")]);
        assert!(!output.contains("violation"), "{output}");
        return;
    }
    limit_time();
    let Some(device) = open("") else { return };
    let interop = device.interop().unwrap();
    for raw in vendor::DEFAULT_STREAMS {
        let theirs = take(&interop, raw);
        let mut memory = device.memory_allocate::<u32>(1 << 18).unwrap();
        for round in 0..10 {
            // Whichever thread enqueues, and whichever stream that is to the library.
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
fn streams_that_are_none_and_those_of_other_devices_are_refused() {
    let Some(device) = open("") else { return };
    let interop = device.interop().unwrap();
    for raw in vendor::NO_STREAMS {
        // SAFETY: what is no stream is refused.
        let error = unsafe { interop.stream_from_native(handle(NativeKind::Stream, *raw)) };
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(vendor::WHICH_STREAMS), "{error}");
    }
    let error = vendor::open(99).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownDevice, "{error}");
    let Some(other) = open_second() else { return skip("there is one device") };
    let stream = other.default_stream();
    // SAFETY: a stream of another device is refused.
    let error = unsafe { interop.stream_from_native(stream.native()) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains(vendor::OF_ANOTHER), "{error}");
}

/// With the numbers that kinds of memory have in every version.
#[test]
fn origins_distinguish_kinds_of_memory() {
    if !is_child() {
        for version in vendor::VERSIONS {
            let test = "suite::interop::origins_distinguish_kinds_of_memory";
            in_child(test, &[(vendor::STAND_IN_VERSION, version)]);
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
    let mut pinned = device.pinned_allocate::<u32>(100).unwrap();
    let address = pinned.as_mut_slice().unwrap().as_ptr().addr();
    let found = origin(address + 8).unwrap();
    assert_eq!((found.base, found.offset, found.kind), (address, 8, OriginKind::Pinned));
    let Some(unified) = device.unified_memory() else { return };
    let unified = unified.allocate::<u32>(100).unwrap();
    let found = origin(unified.native().unwrap().raw).unwrap();
    assert_eq!((found.offset, found.kind), (0, OriginKind::Managed));
}
