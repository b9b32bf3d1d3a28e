//! Round trips give the same array, or an error that says why not: every protocol, element type, rank, order, offset
//! and access.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use interchange::arrow::ArrowDevice;
use interchange::dlpack::DlpackOptions;
use interchange::{
    Access, ArrayExchange, ByteStrides, ContextBinding, DeviceToken, ElemStrides, Ready, State,
    SyclObject,
};
use runtime_core::{DType, DeviceKind, ErrorKind};

use common::{Case, Count, Lie, elements};

/// Offsets: every element type is aligned at the first two; only bytes are aligned at the last.
const SKIPS: [usize; 3] = [0, 48, 3];

/// A case as a capsule, imported from a foreign DLPack tensor.
fn capsule(case: &Case, count: &Count) -> ArrayExchange {
    let tensor = case.foreign().counted(count).versioned();
    // SAFETY: host memory that no code writes.
    unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap()
}

/// Checks that the capsule equals the case in every element.
fn assert_is<S: State>(capsule: &ArrayExchange<S>, case: &Case, what: &str) {
    let writable = case.is_writable();
    assert_eq!(capsule.dtype(), case.dtype, "{what} {case:?}");
    let extents: Vec<i64> =
        capsule.layout().shape().iter().map(|extent| i64::try_from(*extent).unwrap()).collect();
    let strides: Vec<i64> =
        capsule.layout().strides().iter().map(|stride| i64::try_from(*stride).unwrap()).collect();
    assert_eq!((&extents, &strides), (&case.shape, &case.strides), "{what}");
    assert_eq!(capsule.access().is_writable(), writable, "{what} {case:?}");
    if case.is_empty() {
        return;
    }
    assert_eq!(capsule.pointer(), Some(case.first), "{what} {case:?}");
    let values = elements(capsule.dtype(), capsule.pointer().unwrap(), &extents, &strides);
    assert_eq!(values, case.elements(), "{what} {case:?}");
}

#[test]
fn dlpack_versioned() {
    let count = Count::new();
    let mut made = 0;
    Case::all(&SKIPS, |case| {
        let ours = capsule(case, &count);
        assert_is(&ours, case, "import");
        let tensor = ours.into_dlpack(DlpackOptions::versioned()).unwrap();
        assert!(!tensor.is_legacy());
        // SAFETY: as above.
        let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
        assert_is(&theirs, case, "dlpack");
        drop(theirs);
        made += 1;
        assert_eq!(count.dropped(), made);
    });
}

#[test]
fn dlpack_legacy() {
    let count = Count::new();
    Case::all(&SKIPS, |case| {
        let ours = capsule(case, &count);
        match ours.into_dlpack(DlpackOptions::legacy()) {
            Ok(tensor) => {
                assert!(case.is_writable() && tensor.is_legacy());
                // SAFETY: as above.
                let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
                assert_eq!(theirs.access(), Access::ReadOnly, "it cannot say");
                // SAFETY: the test's own memory, which no other code uses.
                assert_is(&unsafe { theirs.assume_writable() }, case, "legacy");
            }
            Err(refused) => {
                assert!(!case.is_writable());
                assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
                assert_is(&refused.into_inner(), case, "given back");
            }
        }
    });
}

#[test]
fn array_interface() {
    let count = Count::new();
    Case::all(&SKIPS, |case| {
        let exported = match capsule(case, &count).into_array_interface() {
            Ok(exported) => exported,
            Err(refused) => {
                assert_eq!(case.dtype, DType::BF16);
                return assert_is(&refused.into_inner(), case, "given back");
            }
        };
        let interface = &exported.interface;
        let size = i64::try_from(case.dtype.size()).unwrap();
        let bytes: ByteStrides = case.strides.iter().map(|stride| stride * size).collect();
        assert_eq!(interface.strides.as_ref(), Some(&bytes), "{case:?}");
        assert_eq!(&*interface.shape, &*case.shape);
        let (address, read_only) = interface.data.unwrap();
        assert_eq!(read_only, !case.is_writable());
        assert!(address != 0 && (case.is_empty() || address == case.first));
        // SAFETY: as above; the keeper keeps the memory alive.
        let theirs =
            unsafe { ArrayExchange::from_array_interface(interface, exported.keeper) }.unwrap();
        assert_is(&theirs, case, "array interface");
    });
}

#[test]
fn cuda_array_interface() {
    for (device_type, backend) in [(2, "cuda"), (10, "hip")] {
        let count = Count::new();
        Case::all(&SKIPS, |case| {
            let tensor = case.foreign().on(device_type, 3).counted(&count).versioned();
            // SAFETY: only the test dereferences the address, which is host memory.
            let ours = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
            let device = ours.device().clone();
            assert_eq!((device.backend(), device.index()), (backend, 3));
            let exported = match ours.into_cuda_array_interface() {
                Ok(exported) => exported,
                Err(refused) => {
                    assert_eq!(case.dtype, DType::BF16);
                    return assert_is(&refused.into_inner(), case, "given back");
                }
            };
            let interface = &exported.interface;
            let size = i64::try_from(case.dtype.size()).unwrap();
            let bytes: ByteStrides = case.strides.iter().map(|stride| stride * size).collect();
            assert_eq!(interface.strides.as_ref(), Some(&bytes), "{case:?}");
            assert_eq!(interface.data.1, !case.is_writable());
            assert_eq!(interface.data.0 == 0, case.is_empty());
            assert_eq!((interface.stream, interface.version), (None, 3));
            // SAFETY: as above.
            let theirs = unsafe {
                ArrayExchange::from_cuda_array_interface(interface, device, exported.keeper)
            };
            assert_is(&theirs.unwrap().host_wait().unwrap(), case, "cuda array interface");
        });
    }
}

#[test]
fn sycl_usm() {
    let token = DeviceToken::new("level_zero", Some(DeviceKind::Gpu), 1);
    let count = Count::new();
    Case::all(&SKIPS, |case| {
        let tensor = case.foreign().on(14, 0).counted(&count).versioned();
        // SAFETY: only the test dereferences the address, which is host memory.
        let ours = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
        // SAFETY: as above.
        let ours = unsafe { ours.assume_bound(token.clone(), ContextBinding::PlatformDefault) };
        let negative = case.strides.iter().any(|stride| *stride < 0);
        let exported = match ours.into_sycl_usm() {
            Ok(exported) => exported,
            Err(refused) => {
                assert!(case.dtype == DType::BF16 || negative, "{refused}");
                return assert_is(&refused.into_inner(), case, "given back");
            }
        };
        assert!(!negative);
        let interface = &exported.interface;
        assert_eq!(&**interface.strides.as_ref().unwrap(), &*case.strides, "elements, not bytes");
        assert_eq!(interface.data.1, !case.is_writable(), "false is writable");
        assert_eq!(interface.syclobj, SyclObject::Filter("level_zero:gpu:1".into()));
        // SAFETY: as above.
        let theirs = unsafe { ArrayExchange::from_sycl_usm(interface, exported.keeper) }.unwrap();
        assert_is(&theirs, case, "sycl usm");
        assert_eq!(theirs.device(), &token);
    });
}

#[test]
fn sycl_usm_offsets_count_elements() {
    let case = Case::new(DType::F64, 2, Lie::Compact, 0, false);
    let count = Count::new();
    // SAFETY: as above.
    let ours = unsafe { ArrayExchange::from_dlpack(case.foreign().on(14, 0).versioned(), Ready) };
    let token: DeviceToken = "opencl:cpu:0".parse().unwrap();
    // SAFETY: as above.
    let ours = unsafe { ours.unwrap().assume_bound(token, ContextBinding::PlatformDefault) };
    let mut interface = ours.into_sycl_usm().unwrap().interface;
    interface.strides = Some(ElemStrides::from([-2, -1]));
    interface.offset = 5;
    // SAFETY: the last element is five after the first.
    let reversed = unsafe { ArrayExchange::from_sycl_usm(&interface, count.owner()) }.unwrap();
    assert_eq!(reversed.pointer(), Some(case.first + 5 * 8));
    let values = elements(DType::F64, case.first + 40, &case.shape, &[-2, -1]);
    let mut backwards = case.elements();
    backwards.reverse();
    backwards.chunks_mut(8).for_each(<[u8]>::reverse);
    assert_eq!(values, backwards);
}

#[test]
fn arrow() {
    let count = Count::new();
    let exact = |dtype| !matches!(dtype, DType::Bool | DType::BF16 | DType::C64 | DType::C128);
    for dtype in DType::ALL {
        for rank in 0..=3 {
            for lie in common::LIES {
                for skip in SKIPS {
                    let case = Case::new(dtype, rank, lie, skip, false);
                    let row = rank == 1 && (case.is_empty() || case.strides == [1]);
                    let arrow = match capsule(&case, &count).into_arrow() {
                        Ok(arrow) => arrow,
                        Err(refused) => {
                            assert!(!row || !exact(dtype), "{refused} {case:?}");
                            assert_is(&refused.into_inner(), &case, "given back");
                            continue;
                        }
                    };
                    assert!(row && exact(dtype), "{case:?}");
                    let (schema, array) = arrow.into_raw();
                    assert_eq!((array.device_type, array.device_id), (1, -1));
                    assert!(array.sync_event.is_null() && array.reserved == [0; 3]);
                    // SAFETY: this test just made both.
                    let arrow = unsafe { ArrowDevice::from_raw(schema, array) };
                    let theirs = ArrayExchange::from_arrow(arrow).unwrap().host_wait().unwrap();
                    assert_eq!(theirs.access(), Access::ReadOnly);
                    // SAFETY: the test's own memory.
                    let theirs = unsafe { theirs.assume_writable() };
                    let strides = vec![1];
                    assert_is(&theirs, &Case { strides, ..case }, "arrow");
                }
            }
        }
    }
}

#[test]
fn copies_stay_copies_and_nothing_is_widened() {
    let case = Case::new(DType::F32, 2, Lie::Compact, 0, false);
    for (flags, access) in
        [(0, Access::ReadWrite), (1, Access::ReadOnly), (2, Access::Copied), (3, Access::ReadOnly)]
    {
        // SAFETY: as above.
        let ours =
            unsafe { ArrayExchange::from_dlpack(case.foreign().flags(flags).versioned(), Ready) };
        let tensor = ours.unwrap().into_dlpack(DlpackOptions::versioned()).unwrap();
        // SAFETY: as above.
        let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
        assert_eq!(theirs.access(), access);
        assert_eq!(theirs.read_only().access(), Access::ReadOnly);
    }
}

#[test]
fn allocations_are_checked_where_they_are_known() {
    let case = Case::new(DType::F32, 2, Lie::Reversed, 0, false);
    let count = Count::new();
    let ours = capsule(&case, &count);
    let (base, bytes) = (ours.memory().unwrap().raw, ours.memory_bytes());
    assert_eq!(bytes, 6 * 4);
    let ours = ours.within(base - 8, bytes + 8).unwrap();
    assert_eq!((ours.memory_bytes(), ours.byte_range()), (32, 8..32));
    for (address, bytes) in
        [(base, bytes - 1), (base + 1, bytes), (base - 8, bytes), (usize::MAX, 64), (0, 8)]
    {
        let refused = capsule(&case, &count).within(address, bytes).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::OutOfBounds);
        assert_is(&refused.into_inner(), &case, "given back");
    }
}
