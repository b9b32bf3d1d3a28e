//! Earlier work is waited for where that is necessary, and nowhere else.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;
#[path = "common/gate.rs"]
mod gate;

use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_host::HostDevice;
use backend_sim::{Fault, Operation, SimConfig, SimDevice};
use interchange::dlpack::{DlpackFence, DlpackOptions, DlpackRequest};
use interchange::{Access, After, ArrayExchange, ConversionError, MemoryKind, Ordered, Pending};
use runtime_core::{DType, Device, Error, ErrorKind, Layout, NativeHandle, Stream};

use common::{Case, Count, Lie, elements};
use gate::{Gate, start};

fn device() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new())).unwrap()
}

/// An array that a producer exports before its work has finished.
fn produced(device: &Device) -> (ArrayExchange<Pending>, Stream, Gate) {
    let stream = device.stream_create(&Default::default()).unwrap();
    let mut memory = device.memory_from_slice(&stream, &[0.0; 4]).unwrap();
    let gate = start(&mut memory, &stream);
    (ArrayExchange::from_memory(memory, &[4], &stream).unwrap(), stream, gate)
}

fn values<S: interchange::State>(capsule: &ArrayExchange<S>) -> Vec<u8> {
    elements(DType::F64, capsule.pointer().unwrap(), &[4], &[1])
}

fn sevens() -> Vec<u8> {
    [7.0_f64; 4].iter().flat_map(|value| value.to_ne_bytes()).collect()
}

#[test]
fn a_pending_producer_is_waited_for() {
    let (pending, stream, gate) = produced(&device());
    assert!(!stream.is_done().unwrap());
    gate.open_later();
    let ready = pending.host_wait().unwrap();
    assert_eq!(values(&ready), sevens());
}

/// Memory exported on one stream may have unfinished work on another.
#[test]
fn all_streams_of_the_memory_are_waited_for() {
    let device = device();
    let stream = device.default_stream();
    let other = device.stream_create(&Default::default()).unwrap();
    let mut memory = device.memory_from_slice(&stream, &[0.0; 4]).unwrap();
    let gate = start(&mut memory, &other);
    let pending = ArrayExchange::from_memory(memory, &[4], &stream).unwrap();
    assert!(!gate.is_open());
    gate.open_later();
    assert_eq!(values(&pending.host_wait().unwrap()), sevens());
}

#[test]
fn all_events_are_waited_for() {
    let device = device();
    let (first, one, gate) = produced(&device);
    let (second, two, other) = produced(&device);
    let events = [one.record_event().unwrap(), two.record_event().unwrap()];
    let known = events.clone();
    gate.open_later();
    other.open_later();
    // SAFETY: nothing is read.
    let both = unsafe {
        ArrayExchange::from_dlpack(
            Case::new(DType::F64, 1, Lie::Compact, 0, false).foreign().on(2, 0).versioned(),
            Pending::events(events),
        )
    };
    both.unwrap().host_wait().unwrap();
    // A stream may be busy a moment longer than its last event.
    assert!(known.iter().all(|event| event.is_done().unwrap()));
    drop((first, second));
}

#[test]
fn a_wait_ends_in_time_and_gives_the_capsule_back() {
    let (pending, _, gate) = produced(&device());
    let refused = pending.host_wait_for(Duration::from_millis(1)).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Timeout);
    gate.open();
    let ready = refused.into_inner().host_wait_for(Duration::from_secs(60)).unwrap();
    assert_eq!(values(&ready), sevens());
}

type Wait = fn(
    ArrayExchange<Pending>,
    &Device,
) -> Result<ArrayExchange, ConversionError<ArrayExchange<Pending>>>;

/// Streams report a failure once.
#[test]
fn values_whose_work_failed_never_become_ready() {
    let failed = || {
        let config = SimConfig::new().fault(Fault::fail_late(Operation::Launch, 1));
        let device = Device::new(SimDevice::new(0, config)).unwrap();
        let (pending, stream, gate) = produced(&device);
        gate.open();
        (device, pending, stream)
    };
    let waits: [Wait; 3] = [
        |pending, _| pending.host_wait(),
        |pending, _| pending.host_wait_for(Duration::from_secs(60)),
        |pending, device| pending.host_wait_on(device),
    ];
    for first in waits {
        let (device, pending, _) = failed();
        let (mut pending, reported) = first(pending, &device).unwrap_err().into_parts();
        for second in waits {
            let again = second(pending, &device).unwrap_err();
            assert_eq!(again.error().to_string(), reported.to_string());
            pending = again.into_inner();
        }
        let refused = pending.order_after(&device.default_stream()).unwrap_err();
        assert_eq!(refused.error().to_string(), reported.to_string());
    }

    // Only the producer's stream reports the failure.
    for same in [true, false] {
        let (device, pending, stream) = failed();
        let consumer = if same { &stream } else { &device.default_stream() };
        let ordered = pending.order_after(consumer).unwrap();
        let (ordered, reported) = ordered.host_wait().unwrap_err().into_parts();
        let (ordered, again) = ordered.host_wait().unwrap_err().into_parts();
        assert_eq!(again.to_string(), reported.to_string());
        let again = ordered.into_dlpack(DlpackOptions::versioned()).unwrap_err();
        assert_eq!(again.error().to_string(), reported.to_string());
    }
    let (device, pending, _) = failed();
    let adopted = pending.order_after(&device.default_stream()).unwrap().into_adopted::<f64>();
    let (adopted, reported) = adopted.unwrap().into_memory().unwrap_err().into_parts();
    let again = adopted.into_memory().unwrap_err();
    assert_eq!(again.error().to_string(), reported.to_string());
}

#[test]
fn ordering_after_a_stream_does_not_block() {
    let device = device();
    let consumer = device.stream_create(&Default::default()).unwrap();
    let (pending, producer, gate) = produced(&device);
    let ordered = pending.order_after(&consumer).unwrap();
    assert!(!producer.is_done().unwrap(), "the host has not waited");
    gate.open_later();
    let adopted = ordered.into_adopted::<f64>().unwrap();
    let mut out = [0.0; 4];
    adopted.view().unwrap().copy_to_slice(&consumer, &mut out).unwrap();
    assert_eq!(out, [7.0; 4]);
}

/// A slice of the memory would else be of what still changes.
#[test]
fn memory_that_leaves_an_ordered_array_is_ready() {
    let host = Device::new(HostDevice::new(0)).unwrap();
    for device in [host, device()] {
        let consumer = device.stream_create(&Default::default()).unwrap();
        let (pending, producer, gate) = produced(&device);
        let adopted = pending.order_after(&consumer).unwrap().into_adopted::<f64>().unwrap();
        assert!(!producer.is_done().unwrap());
        gate.open_later();
        let memory = adopted.into_memory().unwrap();
        assert_eq!(memory.to_vec(&producer).unwrap(), [7.0; 4]);
        if memory.is_host_visible() {
            assert_eq!(memory.as_slice().unwrap(), [7.0; 4]);
        }
    }
}

#[test]
fn ordered_is_not_ready() {
    // `crates/compile-fail` tests that protocols without synchronisation refuse it at compile time.
    let device = device();
    let (consumer, other) =
        (device.default_stream(), device.stream_create(&Default::default()).unwrap());
    let (pending, _, gate) = produced(&device);
    let adopted = pending.order_after(&consumer).unwrap().into_adopted::<f64>().unwrap();
    let error = adopted.view().unwrap().to_vec(&other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongStream);
    gate.open();
    let (pending, _, gate) = produced(&device);
    gate.open_later();
    let ready = pending.order_after(&consumer).unwrap().host_wait().unwrap();
    assert_eq!(values(&ready), sevens());
}

#[test]
fn streams_of_other_devices_cannot_be_ordered() {
    let host = Device::new(HostDevice::new(0)).unwrap();
    let (pending, _, gate) = produced(&device());
    gate.open();
    let refused = pending.order_after(&host.default_stream()).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::WrongDevice);
    assert_eq!(values(&refused.into_inner().host_wait().unwrap()), sevens());
}

#[test]
fn pinned_none_waits_on_host() {
    let case = Case::new(DType::F64, 1, Lie::Compact, 0, false);
    let none = DlpackRequest::default();
    // Pinned and managed memory of CUDA and HIP, which NumPy reads without a stream.
    for device_type in [1, 3, 11, 13] {
        let tensor = case.foreign().on(device_type, 0).versioned();
        // SAFETY: nothing is read.
        let array = unsafe { ArrayExchange::from_dlpack(tensor, Pending::events([])) }.unwrap();
        assert_eq!(none.fence(&array).unwrap(), DlpackFence::HostWait, "{device_type}");
        let refused = array.into_dlpack_unsynchronised(DlpackOptions::versioned()).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn stream_minus_one_does_not_wait() {
    let case = Case::new(DType::F64, 1, Lie::Compact, 0, false);
    let (_capsule, busy, gate) = produced(&device());
    let tensor = case.foreign().on(2, 0).versioned();
    // SAFETY: nothing is read.
    let array = unsafe { ArrayExchange::from_dlpack(tensor, Pending::on(&busy)) }.unwrap();
    let request = DlpackRequest { stream: Some(-1), ..DlpackRequest::default() };
    assert_eq!(request.fence(&array).unwrap(), DlpackFence::Nothing);
    let tensor = array.into_dlpack_unsynchronised(DlpackOptions::versioned()).unwrap();
    assert!(!busy.is_done().unwrap());
    gate.open();
    drop(tensor);
}

#[test]
fn foreign_streams_are_adopted_or_their_device_is_synchronized() {
    let device = device();
    let (_capsule, busy, gate) = produced(&device);
    let handle = busy.native();
    let memory = device.memory_allocate::<f64>(4).unwrap();
    let array = || {
        let (view, after) = (memory.view(), Pending::foreign(handle));
        // SAFETY: nothing is read.
        unsafe { ArrayExchange::from_view_after(view, Access::ReadOnly, after, ()) }.unwrap()
    };
    // What was not asked for says nothing of the values.
    let idle = device.stream_create(&Default::default()).unwrap();
    let event = idle.record_event().unwrap();
    let null = NativeHandle { raw: 0, ..handle };
    for other in [After::Stream(idle), After::Event(event), After::Foreign(null)] {
        let refused = array().taking_up(|_| Ok(other.clone())).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    }
    let another = Device::new(SimDevice::new(1, SimConfig::new())).unwrap();
    let refused = array().host_wait_on(&another).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::WrongDevice);
    gate.open_later();
    let refused = array().host_wait().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    let known = refused.into_inner().taking_up(|asked| {
        assert_eq!(asked, handle);
        Ok(After::Stream(busy.clone()))
    });
    known.unwrap().host_wait().unwrap();
    assert!(busy.is_done().unwrap());
    array().host_wait_on(&device).unwrap();
    let host = Device::new(HostDevice::new(0)).unwrap();
    let refused = array().host_wait_on(&host).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::WrongDevice);
}

#[test]
fn capsules_of_a_shared_memory_are_read_only() {
    let device = device();
    let stream = device.default_stream();
    let memory = Arc::new(device.memory_from_slice(&stream, &[1_i32, 2, 3, 4]).unwrap());
    let layout = Layout::new(DType::I32, &[2], &[-2]).unwrap();
    let capsules: Vec<_> =
        (0..3).map(|_| ArrayExchange::from_shared(&memory, 8, &layout, &stream).unwrap()).collect();
    for capsule in capsules {
        assert!(!capsule.access().is_writable());
        assert_eq!((capsule.memory_bytes(), capsule.byte_range()), (16, 0..12));
    }
    assert_eq!(Arc::strong_count(&memory), 1);
    let outside = ArrayExchange::from_shared(&memory, 4, &layout, &stream).unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::OutOfBounds);
}

#[test]
fn an_adopted_array_is_released_after_the_work_on_it() {
    let device = device();
    let stream = device.stream_create(&Default::default()).unwrap();
    let mut bytes = vec![0.0_f64; 4];
    let count = Count::new();
    let first = bytes.as_mut_ptr().expose_provenance();
    let foreign = common::Foreign::new(DType::F64, first, &[4], None).counted(&count);
    // SAFETY: the vector is not used until the tensor is returned.
    let capsule = unsafe { ArrayExchange::from_dlpack(foreign.versioned(), Ordered::on(&stream)) };
    let mut memory = capsule.unwrap().into_adopted::<f64>().unwrap().into_memory().unwrap();
    let gate = start(&mut memory, &stream);
    drop(memory);
    assert_eq!(count.dropped(), 0, "the work goes on");
    gate.open();
    stream.synchronize().unwrap();
    let start = Instant::now();
    while count.dropped() == 0 && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    assert_eq!((count.dropped(), bytes), (1, vec![7.0; 4]));
}

#[test]
fn consumers_of_host_memory_get_values_that_are_there() {
    let device = device();
    let (pending, _, gate) = produced(&device);
    let consumer = device.stream_create(&Default::default()).unwrap();
    let ordered = pending.order_after(&consumer).unwrap();
    assert!(!gate.is_open());
    gate.open_later();
    let tensor = ordered.into_dlpack(DlpackOptions::versioned()).unwrap();
    // SAFETY: the tensor is read and given back.
    let theirs = unsafe { ArrayExchange::from_dlpack(tensor, interchange::Ready) }.unwrap();
    assert_eq!(values(&theirs), sevens());
}

/// The null device is simulated, and its memory has a handle that is no address.
#[test]
fn memory_without_an_address_is_exported_by_no_protocol_with_addresses() {
    let device = Device::new(conformance::NullDevice::default()).unwrap();
    let stream = device.default_stream();
    let ready = || {
        let memory = device.memory_allocate::<f32>(4).unwrap();
        ArrayExchange::from_memory(memory, &[4], &stream).unwrap().host_wait().unwrap()
    };
    assert_eq!(ready().kind(), MemoryKind::Object);
    assert_eq!(ready().pointer(), None);
    let refused = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    };
    refused(ready().into_array_interface().unwrap_err().into_parts().1);
    refused(ready().into_dlpack(Default::default()).unwrap_err().into_parts().1);
    refused(ready().into_arrow().unwrap_err().into_parts().1);
    let host = Device::new(HostDevice::new(0)).unwrap();
    let error = ready().into_adopted::<f32>(&host).unwrap_err().into_parts().1;
    assert_eq!(error.kind(), ErrorKind::WrongDevice, "{error}");
}
