//! Memory that the host does not address, on any available GPU or its stand-in: device numbers, streams, events.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use std::io::{Write, stderr};
use std::time::Duration;

use array_buffer::{ArrayBuffer, SharedArrayBuffer};
use interchange::dlpack::{DlpackFence, DlpackOptions, DlpackRequest};
use interchange::{Access, After, ArrayExchange, DeviceToken, MemoryKind, Ordered, Pending, Ready};
use runtime_core::{Backend, Device, ErrorKind, NativeKind, Result, Stream};

/// Runs each rule on a device of each backend that has one.
macro_rules! on_all_devices {
    ($($rule:ident)*) => {
        on_all_devices! { cuda (backend_cuda::CudaBackend::new()) $($rule)* }
        on_all_devices! { hip (backend_hip::HipBackend::new()) $($rule)* }
    };
    ($name:ident ($backend:expr) $($rule:ident)*) => {
        mod $name {
            $(#[test]
            fn $rule() {
                if let Some(device) = super::found(&$backend, stringify!($name)) {
                    super::$rule(&device);
                }
            })*
        }
    };
}

on_all_devices! {
    memory_goes_by_dlpack_and_comes_back
    an_order_names_its_stream_or_is_refused
    rows_come_with_an_event
    pinned_and_unified_memory_have_numbers_of_their_own
    arrays_are_lent_and_committed
}

fn found(backend: &dyn Backend, name: &str) -> Option<Device> {
    let selector = format!("{name}:0").parse().unwrap();
    match backend.open(&selector) {
        Ok(device) => Some(device),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            drop(writeln!(stderr(), "skipped: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const VALUES: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

fn pending(device: &Device) -> (ArrayExchange<Pending>, Stream) {
    let stream = device.stream_create(&Default::default()).unwrap();
    let memory = device.memory_from_slice(&stream, &VALUES).unwrap();
    (ArrayExchange::from_memory(memory, &[4], &stream).unwrap(), stream)
}

/// The numbers of a capsule's device, as DLPack has them.
fn numbers(capsule: ArrayExchange) -> (MemoryKind, DeviceToken) {
    let tensor = capsule.into_dlpack(DlpackOptions::versioned()).unwrap();
    // SAFETY: the tensor was ready.
    let back = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
    (back.kind(), back.device().clone())
}

fn memory_goes_by_dlpack_and_comes_back(device: &Device) {
    let (pending, _producer) = pending(device);
    assert_eq!(pending.kind(), MemoryKind::Device);
    assert!(pending.memory().is_some_and(|memory| memory.kind == NativeKind::Pointer));
    let consumer = device.stream_create(&Default::default()).unwrap();
    // The stream as the number that a consumer passes.
    let stream = i64::try_from(consumer.native().raw).unwrap();
    let request = DlpackRequest { stream: Some(stream), ..DlpackRequest::default() };
    assert_eq!(request.fence(&pending).unwrap(), DlpackFence::Order(consumer.native()));
    let ordered = pending.order_after(&consumer).unwrap();
    let tensor = ordered.into_dlpack(DlpackOptions::versioned()).unwrap();
    // SAFETY: the producer was given the stream.
    let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ordered::on(&consumer)) }.unwrap();
    assert!(theirs.device().is(device), "{}", theirs.device());
    // The driver reports the allocation of the address.
    let memory = theirs.memory().unwrap();
    // SAFETY: an address.
    let origin = unsafe { device.interop().unwrap().origin(memory) }.unwrap().unwrap();
    let theirs = theirs.within(origin.base, origin.bytes).unwrap();
    let adopted = theirs.into_adopted::<f32>().unwrap();
    assert_eq!(adopted.view().unwrap().to_vec(&consumer).unwrap(), VALUES);
    drop(adopted);
    device.synchronize().unwrap();
    let refused = self::pending(device).0.host_wait().unwrap().into_array_interface();
    assert!(refused.is_err(), "the host does not address it");
}

fn an_order_names_its_stream_or_is_refused(device: &Device) {
    let (pending, producer) = pending(device);
    let token = pending.device().clone();
    let ordered = pending.order_after(&producer).unwrap();
    let exported = match ordered.into_cuda_array_interface() {
        Ok(exported) => {
            assert_eq!(exported.interface.stream, Some(producer.native().raw));
            exported
        }
        Err(refused) => {
            assert_eq!(device.native().api, "hip", "{refused}");
            let ready = refused.into_inner().host_wait().unwrap();
            ready.into_cuda_array_interface().unwrap()
        }
    };
    // SAFETY: the interface is truthful, and the keeper keeps the memory alive.
    let theirs = unsafe {
        ArrayExchange::from_cuda_array_interface(&exported.interface, token, exported.keeper)
    };
    let known = theirs.unwrap().taking_up(|handle| {
        assert_eq!(handle, producer.native());
        // SAFETY: a stream of the device, which stays alive.
        unsafe { device.interop().unwrap().stream_from_native(handle) }.map(After::Stream)
    });
    let adopted = known.unwrap().host_wait().unwrap().into_adopted::<f32>(device).unwrap();
    let stream = device.default_stream();
    assert_eq!(adopted.view().unwrap().to_vec(&stream).unwrap(), VALUES);
}

fn rows_come_with_an_event(device: &Device) {
    let (pending, producer) = pending(device);
    let arrow = pending.order_after(&producer).unwrap().into_arrow().unwrap();
    let theirs = ArrayExchange::from_arrow(arrow).unwrap();
    let [After::Foreign(event)] = interchange::State::after(theirs.state()) else {
        panic!("{:?}", theirs.state());
    };
    assert_eq!((event.api, event.kind), (device.native().api, NativeKind::Event));
    let consumer = device.stream_create(&Default::default()).unwrap();
    let known = theirs.taking_up(|handle| {
        // SAFETY: an event of the device, which the array keeps alive.
        unsafe { device.interop().unwrap().event_from_native(handle) }.map(After::Event)
    });
    let ready = known.unwrap().order_after(&consumer).unwrap().host_wait().unwrap();
    let mut adopted = ready.into_adopted::<f32>(device).unwrap();
    assert!(adopted.view_mut().is_err(), "memory from Arrow is read-only");
    let stream = device.default_stream();
    assert_eq!(adopted.view().unwrap().to_vec(&stream).unwrap(), VALUES);
}

fn pinned_and_unified_memory_have_numbers_of_their_own(device: &Device) {
    let mut pinned = device.pinned_allocate::<f32>(4).unwrap();
    pinned.as_mut_slice().unwrap().copy_from_slice(&VALUES);
    let capsule = ArrayExchange::from_pinned(pinned, &[4]).unwrap();
    assert_eq!(capsule.kind(), MemoryKind::Pinned);
    let read = common::elements(capsule.dtype(), capsule.pointer().unwrap(), &[4], &[1]);
    assert_eq!(read, VALUES.map(f32::to_ne_bytes).concat());
    assert_eq!(numbers(capsule).0, MemoryKind::Pinned);
    let Some(unified) = device.unified_memory() else { return };
    let stream = device.default_stream();
    let mut memory = unified.allocate::<f32>(4).unwrap();
    memory.copy_from_slice(&stream, &VALUES).unwrap();
    let ready = ArrayExchange::from_memory(memory, &[4], &stream).unwrap().host_wait().unwrap();
    assert_eq!(ready.kind(), MemoryKind::Shared);
    // DLPack has no number for managed memory of HIP.
    let kind = if device.native().api == "cuda" { MemoryKind::Shared } else { MemoryKind::Device };
    assert_eq!(numbers(ready).0, kind);
}

fn arrays_are_lent_and_committed(device: &Device) {
    fn lend(device: &Device) -> Result<()> {
        let stream = device.default_stream();
        let shared = SharedArrayBuffer::new(ArrayBuffer::from_vec(VALUES.to_vec(), 4)?);
        let timeout = Duration::from_secs(30);
        let lent = ArrayExchange::export(&shared, &stream, Access::ReadWrite, timeout)?;
        let tensor = lent.order_after(&stream)?.into_dlpack(DlpackOptions::versioned())?;
        // SAFETY: the producer was given the stream.
        let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ordered::on(&stream)) }?;
        let mut memory = theirs.into_adopted::<f32>()?.into_memory()?;
        memory.fill(&stream, 7.0)?;
        drop(memory);
        device.synchronize()?;
        let array = shared.read(timeout)?;
        assert_eq!(array.version(), 1);
        assert_eq!(array.read_host()?.to_vec(), [7.0; 4]);
        Ok(())
    }
    lend(device).unwrap();
}
