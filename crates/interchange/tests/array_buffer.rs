//! Coherent arrays that are exported, and coherent arrays made from imports.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use std::thread;
use std::time::Duration;

use array_buffer::{ArrayBuffer, PartStatus, SharedArrayBuffer};
use backend_host::HostDevice;
use backend_sim::{SimBackend, SimConfig, SimDevice};
use interchange::dlpack::DlpackOptions;
use interchange::{Access, ArrayExchange, MemoryKind, Ordered, Pending, Ready};
use ndarray::{Ix1, Ix2, array};
use runtime_core::{
    DType, Device, DeviceRegistry, ErrorKind, Grid, HostModule, Launch, MemoryViewMut, Stream,
    StreamOptions, args,
};

use common::{Count, Foreign, elements};

/// Longer than any expected wait.
const PATIENCE: Duration = Duration::from_secs(30);

fn sim() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new())).unwrap()
}

fn host() -> Device {
    Device::new(HostDevice::new(0)).unwrap()
}

fn double(_: &Grid<'_>, x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x *= 2.0);
}

/// Doubles an array on a device.
fn double_on<D: ndarray::Dimension>(array: &mut ArrayBuffer<f64, D>, device: &Device) {
    let stream = device.default_stream();
    let module = device.module_load(&HostModule::new().with("double", double)).unwrap();
    let kernel = module.kernel("double").unwrap();
    let mut guard = array.read_write(&stream).unwrap();
    kernel.launch_checked(&stream, &Launch::cover(1, 1), args![guard.view_mut().unwrap()]).unwrap();
    guard.commit().unwrap();
}

/// A foreign consumer of a tensor on the host: writes its elements, and returns it.
fn consume(capsule: ArrayExchange, write: f64) {
    let tensor = capsule.into_dlpack(DlpackOptions::versioned()).unwrap();
    // SAFETY: the tensor was ready when it was exported.
    let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
    let first = std::ptr::with_exposed_provenance_mut::<f64>(theirs.pointer().unwrap());
    for i in 0..theirs.layout().len() {
        // SAFETY: inside the array.
        let element = unsafe { first.add(i) };
        // SAFETY: lent for writing, and only to this code.
        unsafe { element.write(write) };
    }
    thread::spawn(|| drop(theirs)).join().unwrap();
}

fn shared() -> SharedArrayBuffer<f64, Ix2> {
    SharedArrayBuffer::new(ArrayBuffer::from_array(array![[1.0, 2.0], [3.0, 4.0]]).unwrap())
}

#[test]
fn writes_of_the_consumer_are_committed_on_release() {
    let device = sim();
    let stream = device.default_stream();
    let shared = shared();
    let lent = ArrayExchange::export_host(&shared, Access::ReadWrite, PATIENCE).unwrap();
    assert_eq!(lent.layout().shape(), [2, 2]);
    let refused = shared.read(Duration::ZERO).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "neither side has it meanwhile");
    consume(lent, 7.0);
    let array = shared.read(PATIENCE).unwrap();
    assert_eq!(array.version(), 1);
    assert_eq!(array.read_host().unwrap().sum(), 28.0);
    drop(array);

    // On a device, to which the values must be copied first.
    double_on(&mut shared.write(PATIENCE).unwrap(), &device);
    let lent = ArrayExchange::export(&shared, &stream, Access::ReadWrite, PATIENCE).unwrap();
    let lent = lent.host_wait().unwrap();
    let bytes = elements(DType::F64, lent.pointer().unwrap(), &[4], &[1]);
    assert_eq!(bytes, [14.0_f64; 4].iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>());
    consume(lent, 5.0);
    let array = shared.read(PATIENCE).unwrap();
    assert_eq!(array.version(), 3);
    assert_eq!(array.read_host().unwrap().sum(), 20.0);
}

#[test]
fn an_array_exported_for_reading_cannot_be_written() {
    let device = sim();
    let shared = shared();
    let lent: Vec<_> = (0..2)
        .map(|_| ArrayExchange::export_host(&shared, Access::ReadOnly, PATIENCE).unwrap())
        .collect();
    assert!(lent.iter().all(|lent| !lent.access().is_writable()));
    let on_device =
        ArrayExchange::export(&shared, &device.default_stream(), Access::ReadOnly, PATIENCE);
    assert_eq!(shared.read(PATIENCE).unwrap().read_host().unwrap().sum(), 10.0);
    let other = shared.clone();
    let refused = thread::spawn(move || other.write(Duration::from_millis(5)).unwrap_err());
    assert_eq!(refused.join().unwrap().kind(), ErrorKind::Timeout);
    drop((lent, on_device));
    double_on(&mut shared.write(PATIENCE).unwrap(), &device);
    assert_eq!(shared.read(PATIENCE).unwrap().version(), 1);
}

#[test]
fn an_unused_capsule_changes_nothing() {
    let device = sim();
    let shared = shared();
    drop(ArrayExchange::export_host(&shared, Access::ReadWrite, PATIENCE).unwrap());
    let stream = device.default_stream();
    let lent = ArrayExchange::export(&shared, &stream, Access::ReadWrite, PATIENCE).unwrap();
    let refused = lent.host_wait().unwrap().into_cuda_array_interface().unwrap_err();
    drop(refused);
    let array = shared.read(PATIENCE).unwrap();
    assert_eq!((array.version(), array.status(0)), (0, PartStatus::Valid));
    assert_eq!(array.read_host().unwrap().sum(), 10.0);
}

#[test]
fn a_leaked_capsule_holds_the_array() {
    let shared = shared();
    let lent = ArrayExchange::export_host(&shared, Access::ReadWrite, PATIENCE).unwrap();
    std::mem::forget(lent.into_dlpack(DlpackOptions::versioned()).unwrap());
    let other = shared.clone();
    let refused = thread::spawn(move || other.read(Duration::from_millis(5)).unwrap_err());
    assert_eq!(refused.join().unwrap().kind(), ErrorKind::Timeout);
}

#[test]
fn a_copy_holds_nothing() {
    let shared = shared();
    let lent = ArrayExchange::export_host(&shared, Access::Copied, PATIENCE).unwrap();
    assert_eq!(lent.access(), Access::Copied);
    shared.write(Duration::ZERO).unwrap().write_host().unwrap().fill(0.0);
    let bytes = elements(DType::F64, lent.pointer().unwrap(), &[1], &[1]);
    assert_eq!(bytes, 1.0_f64.to_ne_bytes());
}

#[test]
fn the_capsule_owns_an_array_that_is_not_shared() {
    let array = ArrayBuffer::from_vec(vec![1.0, 2.0], 2).unwrap();
    let lent = SharedArrayBuffer::new(array);
    let lent = ArrayExchange::export_host(&lent, Access::ReadWrite, PATIENCE).unwrap();
    let bytes = elements(DType::F64, lent.pointer().unwrap(), &[2], &[1]);
    assert_eq!(bytes[8..], 2.0_f64.to_ne_bytes());
}

#[test]
fn arrays_without_values_are_not_exported() {
    let shared = SharedArrayBuffer::new(ArrayBuffer::<f64, Ix1>::uninit(3).unwrap());
    for access in [Access::ReadOnly, Access::ReadWrite, Access::Copied] {
        let refused = ArrayExchange::export_host(&shared, access, PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Uninitialized);
    }
    shared.write(PATIENCE).unwrap().write_host().unwrap().fill(1.0);
}

/// A foreign array on the host, with a counted owner.
fn foreign(values: &mut [f64], shape: &[i64], flags: u64, count: &Count) -> ArrayExchange {
    let first = values.as_mut_ptr().expose_provenance();
    let tensor = Foreign::new(DType::F64, first, shape, None).flags(flags).counted(count);
    // SAFETY: the test does not use the values until the tensor is returned, or says why it may.
    unsafe { ArrayExchange::from_dlpack(tensor.versioned(), Ready) }.unwrap()
}

#[test]
fn an_array_of_others_is_changed_on_a_device_and_seen_by_its_owner() {
    let (host, device) = (host(), sim());
    let (mut values, count) = (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], Count::new());
    let capsule = foreign(&mut values, &[2, 3], 0, &count);
    let address = capsule.pointer().unwrap();
    let mut array: ArrayBuffer<f64, Ix2> =
        capsule.into_array_buffer(&host.default_stream()).unwrap();
    double_on(&mut array, &device);
    array.prefetch_host().unwrap();
    // This is the documented synchronisation: from here on the owner sees the values.
    let seen = elements(DType::F64, address, &[6], &[1]);
    assert_eq!(seen, [2.0_f64, 4.0, 6.0, 8.0, 10.0, 12.0].map(f64::to_ne_bytes).concat());
    let transfers = array.transfers();
    assert_eq!(transfers.total().count, 2, "there and back: {transfers}");
    assert_eq!(count.dropped(), 0);
    drop(array);
    host.synchronize().unwrap();
    assert_eq!((count.dropped(), values), (1, vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0]));
}

#[test]
fn a_second_consumer_sees_the_change_too() {
    let (host, device) = (host(), sim());
    let (mut values, count) = (vec![1.0, 2.0], Count::new());
    let capsule = foreign(&mut values, &[2], 0, &count);
    let array: ArrayBuffer<f64, Ix1> = capsule.into_array_buffer(&host.default_stream()).unwrap();
    let shared = SharedArrayBuffer::new(array);
    double_on(&mut shared.write(PATIENCE).unwrap(), &device);
    let arrow = ArrayExchange::export_host(&shared, Access::ReadOnly, PATIENCE).unwrap();
    let theirs = ArrayExchange::from_arrow(arrow.into_arrow().unwrap()).unwrap();
    assert_eq!(theirs.pointer(), Some(values.as_ptr().addr()), "no copy");
    let seen = elements(DType::F64, theirs.pointer().unwrap(), &[2], &[1]);
    assert_eq!(seen, [2.0_f64, 4.0].map(f64::to_ne_bytes).concat());
    assert_eq!(shared.read(PATIENCE).unwrap().transfers().total().count, 2);
    drop((theirs, shared));
    host.synchronize().unwrap();
    assert_eq!(count.dropped(), 1);
}

#[test]
fn read_only_arrays_are_read_replicas() {
    let (host, device) = (host(), sim());
    let (mut values, count) = (vec![1.0, 2.0], Count::new());
    let refused = foreign(&mut values, &[2], 1, &count)
        .into_array_buffer::<f64, Ix1>(&host.default_stream())
        .unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    assert!(refused.error().message().contains("into_read_replica"), "{refused}");
    let capsule = refused.into_inner();
    let array = capsule.into_read_replica::<f64, Ix1>(&host.default_stream()).unwrap();
    let stream = device.default_stream();
    let guard = array.read(&stream).unwrap();
    assert_eq!(guard.view().unwrap().to_vec(&stream).unwrap(), [1.0, 2.0]);
    let mut copy = array.duplicate().unwrap();
    double_on(&mut copy, &device);
    assert_eq!(array.read_host().unwrap().to_vec(), [1.0, 2.0]);
    drop(array);
    host.synchronize().unwrap();
    assert_eq!(count.dropped(), 1);
}

#[test]
fn arrays_with_gaps_are_refused_unless_a_copy_is_requested() {
    let host = host();
    let stream = host.default_stream();
    let (values, count) = ([1.0, 2.0, 3.0, 4.0], Count::new());
    let first = values.as_ptr().expose_provenance();
    let tensor = Foreign::new(DType::F64, first + 24, &[2], Some(&[-2])).counted(&count);
    // SAFETY: no code writes the values.
    let capsule = unsafe { ArrayExchange::from_dlpack(tensor.versioned(), Ready) }.unwrap();
    let refused = capsule.into_array_buffer::<f64, Ix1>(&stream).unwrap_err();
    assert!(refused.error().message().contains("[-2]"), "{refused}");
    let adopted = refused.into_inner().into_adopted::<f64>(&host).unwrap();
    let copy = adopted.to_memory(&stream).unwrap();
    let array = ArrayBuffer::from_memory(copy, 2, &stream).unwrap();
    assert_eq!(array.read_host().unwrap().to_vec(), [4.0, 2.0]);
}

#[test]
fn ranks_and_types_are_the_arrays() {
    let host = host();
    let stream = host.default_stream();
    let (mut values, count) = (vec![1.0, 2.0], Count::new());
    let refused =
        foreign(&mut values, &[2], 0, &count).into_array_buffer::<f64, Ix2>(&stream).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    let refused = refused.into_inner().into_array_buffer::<f32, Ix1>(&stream).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    assert_eq!(count.dropped(), 0);
}

#[test]
fn an_array_that_is_ordered_on_a_stream_becomes_one_without_waiting() {
    let device = sim();
    let stream = device.stream_create(&Default::default()).unwrap();
    let memory = device.memory_from_slice(&stream, &[1.0, 2.0]).unwrap();
    let pending = ArrayExchange::from_memory(memory, &[2], &stream).unwrap();
    let tensor = pending.order_after(&stream).unwrap().into_dlpack(DlpackOptions::versioned());
    // SAFETY: the producer was given the stream.
    let theirs = unsafe { ArrayExchange::from_dlpack(tensor.unwrap(), Ordered::on(&stream)) };
    let theirs = theirs.unwrap();
    assert_eq!(theirs.kind(), MemoryKind::Host);
    let mut array: ArrayBuffer<f64, Ix1> = theirs.into_array_buffer().unwrap();
    double_on(&mut array, &device);
    assert_eq!(array.read_host().unwrap().to_vec(), [2.0, 4.0]);
}

#[test]
fn empty_arrays_are_exported_and_imported() {
    let host = host();
    let shared = SharedArrayBuffer::new(ArrayBuffer::from_vec(Vec::<f64>::new(), (0, 3)).unwrap());
    let lent = ArrayExchange::export_host(&shared, Access::ReadOnly, PATIENCE).unwrap();
    let tensor = lent.into_dlpack(DlpackOptions::versioned()).unwrap();
    // SAFETY: there are no elements.
    let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
    let array = theirs.into_read_replica::<f64, Ix2>(&host.default_stream()).unwrap();
    assert_eq!(array.read_host().unwrap().shape(), [0, 3]);
}

#[test]
fn arrays_over_exported_arrays_are_released_without_recursion() {
    let mut array = ArrayBuffer::from_vec(vec![1.0, 2.0], 2).unwrap();
    for _ in 0..20_000 {
        let shared = SharedArrayBuffer::new(array);
        let lent = ArrayExchange::<Ready>::export_host(&shared, Access::ReadWrite, Duration::ZERO);
        array = lent.unwrap().into_host_array_buffer().unwrap();
    }
    let small = thread::Builder::new().stack_size(256 << 10);
    small.spawn(|| drop(array)).unwrap().join().unwrap();
}

/// Work that fails after a while.
fn fail_on(stream: &Stream, values: MemoryViewMut<'_, f64>) {
    fn fail(_: &Grid<'_>, _: &mut [f64]) -> Result<(), String> {
        thread::sleep(Duration::from_millis(20));
        Err("no values".to_owned())
    }
    let module = stream.device().module_load(&HostModule::new().with("fail", fail)).unwrap();
    let kernel = module.kernel("fail").unwrap();
    kernel.launch_checked(stream, &Launch::cover(1, 1), args![values]).unwrap();
}

/// Two devices that reach each other.
fn peers() -> [Device; 2] {
    let mut registry = DeviceRegistry::new();
    let devices = [SimConfig::new(), SimConfig::new()];
    registry.register(SimBackend::with_devices(devices)).unwrap();
    ["sim:0", "sim:1"].map(|selector| registry.open(selector).unwrap())
}

/// The export waits for a stream that comes after the writer, but only the writer's stream reports the failure.
#[test]
fn a_failure_of_the_writer_reaches_those_who_wait_for_an_export() {
    type Wait = fn(ArrayExchange<Pending>, &Stream) -> bool;
    let waits: [(&str, Wait); 5] = [
        ("host_wait", |lent, _| lent.host_wait().is_ok()),
        ("host_wait_for", |lent, _| lent.host_wait_for(PATIENCE).is_ok()),
        ("host_wait_on", |lent, stream| lent.host_wait_on(stream.device()).is_ok()),
        ("order_after", |lent, stream| lent.order_after(stream).unwrap().host_wait().is_ok()),
        ("into_memory", |lent, stream| {
            let adopted = lent.order_after(stream).unwrap().into_adopted::<f64>();
            // A read-only array never gives out its memory.
            adopted.unwrap().into_memory().is_ok()
        }),
    ];
    let ([sim, host], [one, two]) = ([sim(), host()], peers());
    assert!(two.reaches(&one));
    for (writer, user) in [(&sim, &sim), (&host, &host), (&one, &two)] {
        for access in [Access::ReadOnly, Access::ReadWrite, Access::Copied] {
            for (name, wait) in waits {
                let stream = |on: &Device| on.stream_create(&StreamOptions::default()).unwrap();
                let (writes, exports) = (stream(writer), stream(user));
                let array = SharedArrayBuffer::new(ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap());
                {
                    let mut array = array.write(PATIENCE).unwrap();
                    let mut guard = array.read_write(&writes).unwrap();
                    fail_on(&writes, guard.view_mut().unwrap());
                    guard.commit().unwrap();
                }
                let exported = ArrayExchange::export(&array, &exports, access, PATIENCE);
                let is_ready = exported.is_ok_and(|lent| wait(lent, &exports));
                assert!(!is_ready, "{name}, {access:?}, {} to {}", writer.id(), user.id());
            }
        }
    }
}

/// The array takes the write for work of the stream that it was exported on.
#[test]
fn a_failure_on_an_adopted_array_is_known_to_it_if_it_is_of_the_stream_of_the_export() {
    let device = sim();
    let stream = || device.stream_create(&StreamOptions::default()).unwrap();
    let (exports, other) = (stream(), stream());
    for (works, expected) in [(&exports, Err(ErrorKind::Poisoned)), (&other, Ok(4.0))] {
        let shared = SharedArrayBuffer::new(ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap());
        let lent = ArrayExchange::export(&shared, &exports, Access::ReadWrite, PATIENCE).unwrap();
        let mut adopted = lent.order_after(works).unwrap().into_adopted::<f64>().unwrap();
        fail_on(works, adopted.view_mut().unwrap());
        drop(adopted);
        let reported = works.synchronize().unwrap_err();
        assert_eq!(reported.kind(), ErrorKind::DeviceFault);
        device.synchronize().unwrap();
        let array = shared.read(Duration::ZERO).unwrap();
        let sum = array.read_host().map(|values| values.sum()).map_err(|error| error.kind());
        assert_eq!(sum, expected);
    }
}

#[test]
fn arrays_of_another_order_are_exported_with_their_strides() {
    let whole = array_buffer::Partition::whole(&[2, 3]).unwrap();
    for partition in [whole.clone().with_order(&[1, 0]), whole.with_row_alignment(4)] {
        let partition = partition.unwrap();
        let strides: Vec<_> = partition.strides().iter().map(|step| step.cast_signed()).collect();
        for access in [Access::ReadOnly, Access::ReadWrite, Access::Copied] {
            let values = array![[1, 2, 3], [4, 5, 6]];
            let made = ArrayBuffer::from_array_with(values, partition.clone()).unwrap();
            let shared = SharedArrayBuffer::new(made);
            let exported = ArrayExchange::export_host(&shared, access, PATIENCE).unwrap();
            assert_eq!(exported.layout().strides(), strides);
            // Arrays over foreign memory are row-major.
            let refused = exported.into_host_array_buffer::<i32, Ix2>().unwrap_err();
            assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
        }
    }
}
