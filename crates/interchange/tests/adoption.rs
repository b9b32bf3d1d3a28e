//! Imports of foreign arrays as device memory, and arrays that a device cannot import.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice};
use interchange::{Access, ArrayExchange, ConversionError, DeviceToken, MemoryKind, Ready};
use runtime_core::{DType, Device, DeviceKind, Element, ErrorKind, bytemuck};

use common::{Case, Count, Lie};

fn devices() -> [Device; 2] {
    [
        Device::new(HostDevice::new(0)).unwrap(),
        Device::new(SimDevice::new(0, SimConfig::new())).unwrap(),
    ]
}

fn capsule(case: &Case, count: &Count) -> ArrayExchange {
    let tensor = case.foreign().counted(count).versioned();
    // SAFETY: host memory that no other code uses.
    unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap()
}

#[test]
fn elements_are_where_they_were() {
    for device in devices() {
        let stream = device.default_stream();
        let (count, mut made) = (Count::new(), 0);
        for rank in 0..=6 {
            for lie in common::LIES {
                for read_only in [false, true] {
                    let case = Case::new(DType::C64, rank, lie, 8, read_only);
                    let adopted = capsule(&case, &count)
                        .into_adopted::<runtime_core::Complex<f32>>(&device)
                        .unwrap();
                    assert_eq!(adopted.access().is_writable(), case.is_writable());
                    let copy = adopted.to_memory(&stream).unwrap();
                    let values = copy.to_vec(&stream).unwrap();
                    assert_eq!(bytemuck::cast_slice::<_, u8>(&values), case.elements());
                    drop((adopted, copy));
                    stream.synchronize().unwrap();
                    made += 1;
                }
            }
        }
        device.synchronize().unwrap();
        drop(device);
        assert_eq!(count.dropped(), made);
    }
}

#[test]
fn writes_to_adopted_memory_reach_the_owner() {
    for device in devices() {
        let stream = device.default_stream();
        let mut values = vec![1_i32, 2, 3, 4, 5, 6];
        let first = values.as_mut_ptr().expose_provenance();
        // Every second element, backwards.
        let foreign = common::Foreign::new(DType::I32, first + 16, &[3], Some(&[-2]));
        // SAFETY: the vector is not used until the array is returned.
        let array = unsafe { ArrayExchange::from_dlpack(foreign.versioned(), Ready) }.unwrap();
        let mut adopted = array.into_adopted::<i32>(&device).unwrap();
        let plan = {
            let view = adopted.view_mut().unwrap();
            let copy = runtime_core::RegionCopy {
                dtype: DType::I32,
                extents: vec![3],
                source: runtime_core::RegionSide { slot: 0, offset: 0, strides: vec![4] },
                destination: view.as_view().region_side(1),
                negate: false,
                combine: runtime_core::Combine::Replace,
            };
            device.plan_regions(&[copy]).unwrap()
        };
        let source = device.memory_from_slice(&stream, &[10, 20, 30]).unwrap();
        let slots = &mut [source.view().into(), adopted.view_mut().unwrap().into()];
        plan.execute(&stream, slots).unwrap();
        drop(adopted);
        stream.synchronize().unwrap();
        drop(source);
        assert_eq!(values, [30, 2, 20, 4, 10, 6]);
    }
}

fn refused<A>(adopted: Result<A, ConversionError<ArrayExchange>>, kind: ErrorKind, count: &Count) {
    let refused = adopted.err().unwrap();
    assert_eq!(refused.error().kind(), kind, "{refused}");
    let dropped = count.dropped();
    let given_back = refused.into_inner();
    assert_eq!(count.dropped(), dropped, "it was given back");
    drop(given_back);
    assert_eq!(count.dropped(), dropped + 1);
}

#[test]
fn an_array_that_a_device_cannot_adopt_is_returned() {
    let count = Count::new();
    for device in devices() {
        let case = |skip| Case::new(DType::F64, 2, Lie::Compact, skip, false);
        let adopt = |case: &Case| capsule(case, &count).into_adopted::<f64>(&device);
        refused(adopt(&case(3)), ErrorKind::InvalidArgument, &count);
        let other = capsule(&case(0), &count).into_adopted::<i64>(&device);
        refused(other, ErrorKind::InvalidArgument, &count);
        let tensor = case(0).foreign().on(2, 0).counted(&count).versioned();
        // SAFETY: nothing is read.
        let strange = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
        refused(strange.into_adopted::<f64>(&device), ErrorKind::WrongDevice, &count);
    }
}

#[test]
fn a_complete_writable_array_converts_to_memory() {
    let [device, _] = devices();
    let take = |case: &Case| capsule(case, &Count::new()).into_adopted::<f32>(&device).unwrap();
    let case = |lie, read_only| Case::new(DType::F32, 2, lie, 0, read_only);
    let whole = case(Lie::Compact, false);
    assert_eq!(take(&whole).into_memory().unwrap().len(), 6);
    for lie in [Lie::Fortran, Lie::Reversed, Lie::Gaps] {
        let case = case(lie, false);
        let kept = take(&case).into_memory().unwrap_err();
        assert_eq!(kept.error().kind(), ErrorKind::InvalidArgument);
        assert_eq!(kept.into_inner().layout().len(), 6);
    }
    let constant = case(Lie::Compact, true);
    let mut adopted = take(&constant);
    assert_eq!(adopted.view_mut().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(adopted.into_memory().is_err());
}

/// Round trips of every element type, into a device and out of it.
#[test]
fn memory_of_a_device_is_recovered() {
    fn check<T: Element>(device: &Device) {
        let stream = device.default_stream();
        let bytes: Vec<u8> = (0..12 * size_of::<T>()).map(|i| u8::try_from(i).unwrap()).collect();
        let values: Vec<T> =
            bytes.chunks(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
        let memory = device.memory_from_slice(&stream, &values).unwrap();
        let pending = ArrayExchange::from_memory(memory, &[3, 4], &stream).unwrap();
        assert_eq!((pending.kind(), pending.access()), (MemoryKind::Host, Access::ReadWrite));
        assert!(pending.device().is(device));
        let ready = pending.host_wait().unwrap();
        let memory = ready.into_adopted::<T>(device).unwrap().into_memory().unwrap();
        let back = memory.to_vec(&stream).unwrap();
        assert_eq!(bytemuck::cast_slice::<_, u8>(&back), bytes);
    }
    for device in devices() {
        check::<runtime_core::Bool>(&device);
        check::<i8>(&device);
        check::<u16>(&device);
        check::<runtime_core::bf16>(&device);
        check::<f32>(&device);
        check::<i64>(&device);
        check::<runtime_core::Complex<f64>>(&device);
    }
}

#[test]
fn bad_shapes_give_the_memory_back() {
    let [device, _] = devices();
    let stream = device.default_stream();
    let memory = device.memory_from_slice(&stream, &[1.0, 2.0, 3.0]).unwrap();
    let refused = ArrayExchange::from_memory(memory, &[2], &stream).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    let other = Device::new(HostDevice::new(1)).unwrap().default_stream();
    let refused = ArrayExchange::from_memory(refused.into_inner(), &[3], &other).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::WrongDevice);
    assert_eq!(refused.into_inner().to_vec(&stream).unwrap(), [1.0, 2.0, 3.0]);
}

#[test]
fn pinned_memory_of_host_devices_is_host_memory() {
    let [_, device] = devices();
    let stream = device.default_stream();
    let source = device.memory_from_slice(&stream, &[1.0_f32, 2.0]).unwrap();
    let mut pinned = device.pinned_allocate::<f32>(2).unwrap();
    source.view().copy_to_pinned(&stream, &mut pinned).unwrap();
    let capsule = ArrayExchange::from_pinned(pinned, &[2]).unwrap();
    let values = common::elements(DType::F32, capsule.pointer().unwrap(), &[2], &[1]);
    assert_eq!(values, bytemuck::cast_slice::<f32, u8>(&[1.0, 2.0]), "the copy was waited for");
    assert_eq!(capsule.kind(), MemoryKind::Host);
}

#[test]
fn tokens_are_traded_for_opened_devices() {
    let opened = devices();
    let token = DeviceToken::of(&opened[1]);
    assert!(token.resolve(&opened).unwrap().is_same(&opened[1]));
    let host: DeviceToken = "host".parse().unwrap();
    assert!(host.resolve(&opened).unwrap().is_same(&opened[0]));
    for token in [
        DeviceToken::new("host", Some(DeviceKind::Gpu), 0),
        DeviceToken::new("host", None, 1),
        DeviceToken::new("cuda", None, 0),
    ] {
        assert_eq!(token.resolve(&opened).unwrap_err().kind(), ErrorKind::UnknownDevice);
    }
    for wrong in ["", "gpu", "cuda:x", "cuda:gpu:0:1", "cuda:cuda", "tpu:0", "cuda::0"] {
        assert!(wrong.parse::<DeviceToken>().is_err(), "{wrong}");
    }
}
