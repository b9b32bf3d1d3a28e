//! Requests of consumers to `__dlpack__`, and the results.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use interchange::dlpack::abi::{DLManagedTensorVersioned, DLPackVersion};
use interchange::dlpack::{DlpackCopy, DlpackFence, DlpackOptions, DlpackRequest, DlpackTensor};
use interchange::{
    Access, ArrayExchange, ContextBinding, DeviceToken, Ready, SyclObject, SyclUsmArrayInterface,
};
use runtime_core::{DType, DeviceKind, ErrorKind, NativeHandle, NativeKind};

use common::{Case, Foreign, Lie};

const ANY: DlpackRequest =
    DlpackRequest { stream: None, max_version: None, dl_device: None, copy: None };

fn case() -> Case {
    Case::new(DType::F32, 2, Lie::Compact, 0, false)
}

fn on(device_type: i32, device_id: i32) -> ArrayExchange {
    on_with(device_type, device_id, |foreign| foreign)
}

fn on_with(
    device_type: i32,
    device_id: i32,
    change: impl FnOnce(Foreign) -> Foreign,
) -> ArrayExchange {
    let tensor = change(case().foreign().on(device_type, device_id)).versioned();
    // SAFETY: nothing is read.
    unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap()
}

#[test]
fn legacy_when_max_version_absent() {
    for (max_version, version) in [
        (None, None),
        (Some((0, 8)), None),
        (Some((1, 0)), Some((1, 0))),
        (Some((1, 1)), Some((1, 1))),
        (Some((1, 9)), Some((1, 3))),
        (Some((2, 0)), Some((1, 3))),
    ] {
        let request = DlpackRequest { max_version, ..ANY };
        let tensor = on(1, 0).into_dlpack(request.options()).unwrap();
        let version = version.map(|(major, minor)| DLPackVersion { major, minor });
        assert_eq!(tensor.version(), version, "{max_version:?}");
        assert_eq!(tensor.is_legacy(), version.is_none());
    }
}

#[test]
fn readonly_refused_as_legacy() {
    let refused = on(1, 0).read_only().into_dlpack(DlpackOptions::legacy()).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    let tensor = refused.into_inner().into_dlpack(DlpackOptions::versioned()).unwrap();
    // SAFETY: nothing is read.
    let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
    assert_eq!(theirs.access(), Access::ReadOnly);
}

/// Python consumers call an old producer again without arguments after a `TypeError`. Nothing has happened by then.
#[test]
fn type_error_retry_is_harmless() {
    let array = on(2, 0);
    let wrong = DlpackRequest { stream: Some(0), max_version: Some((1, 0)), ..ANY };
    assert!(wrong.fence(&array).is_err());
    assert_eq!(wrong.required_copy(&array, None).unwrap(), None);
    let array = array.into_dlpack(ANY.options()).unwrap();
    assert!(array.is_legacy());
}

#[test]
fn streams_are_numbers_of_their_interface() {
    let order = |api, raw| {
        let handle = NativeHandle { api, kind: NativeKind::Stream, raw };
        Some(DlpackFence::Order(handle))
    };
    for (device, stream, fence) in [
        (1, None, Some(DlpackFence::HostWait)),
        (1, Some(0), None),
        (1, Some(-1), None),
        (2, None, order("cuda", 1)),
        (2, Some(0), None),
        (2, Some(1), order("cuda", 1)),
        (2, Some(2), order("cuda", 2)),
        (2, Some(4096), order("cuda", 4096)),
        (2, Some(-1), Some(DlpackFence::Nothing)),
        (2, Some(-2), None),
        (10, None, order("hip", 0)),
        (10, Some(0), order("hip", 0)),
        (10, Some(1), None),
        (10, Some(2), None),
        (10, Some(4096), order("hip", 4096)),
        (10, Some(-1), Some(DlpackFence::Nothing)),
        (3, None, Some(DlpackFence::HostWait)),
        (3, Some(7), order("cuda", 7)),
        (3, Some(-1), Some(DlpackFence::HostWait)),
        (13, None, Some(DlpackFence::HostWait)),
        (4, None, Some(DlpackFence::HostWait)),
        (4, Some(3), None),
        (14, None, Some(DlpackFence::HostWait)),
        (14, Some(3), None),
    ] {
        let asked = DlpackRequest { stream, ..ANY }.fence(&on(device, 0));
        assert_eq!(asked.ok(), fence, "stream {stream:?} of device type {device}");
    }
    let to_host = DlpackRequest { dl_device: Some((1, 0)), ..ANY };
    assert_eq!(to_host.fence(&on(2, 0)).unwrap(), DlpackFence::HostWait);
}

#[test]
fn device_and_copy_requests_are_honoured_or_refused() {
    use DlpackCopy::{Here, Host};
    for (device, dl_device, copy, copied) in [
        ((2, 1), None, None, Some(None)),
        ((2, 1), Some((2, 1)), Some(false), Some(None)),
        ((2, 1), Some((2, 0)), None, None),
        ((2, 1), Some((1, 0)), None, Some(Some(Host))),
        ((2, 1), Some((1, 0)), Some(false), None),
        ((2, 1), None, Some(true), Some(Some(Here))),
        ((4, 0), None, Some(true), Some(Some(Here))),
        ((3, 0), None, Some(true), Some(Some(Host))),
        ((2, 1), Some((1, 0)), Some(true), Some(Some(Host))),
        ((13, 0), Some((1, 0)), None, Some(None)),
        ((3, 0), Some((1, 0)), Some(false), Some(None)),
        ((1, 0), Some((1, 0)), None, Some(None)),
        ((1, 0), Some((2, 0)), None, None),
    ] {
        let request = DlpackRequest { dl_device, copy, ..ANY };
        let made = request.required_copy(&on(device.0, device.1), None);
        assert_eq!(made.ok(), copied, "{device:?} {request:?}");
    }
    let request = DlpackRequest { dl_device: Some((1, 0)), stream: Some(1), ..ANY };
    assert!(request.required_copy(&on(2, 0), None).is_err(), "the host has no streams");
}

/// Memory of a context that SYCL does not know: the host gets a copy, and other consumers get an error.
#[test]
fn memory_without_a_number_is_copied_to_the_host() {
    let token = DeviceToken::new("opencl", Some(DeviceKind::Cpu), 0);
    let context = NativeHandle { api: "opencl", kind: NativeKind::Context, raw: 7 };
    // SAFETY: nothing is read.
    let array = unsafe { on(14, 0).assume_bound(token, ContextBinding::Explicit(context)) };
    assert!(array.dlpack_device(None).is_err());
    let asked =
        |dl_device, copy| DlpackRequest { dl_device, copy, ..ANY }.required_copy(&array, None).ok();
    for copy in [None, Some(true)] {
        assert_eq!(asked(Some((1, 0)), copy), Some(Some(DlpackCopy::Host)));
    }
    for (dl_device, copy) in [(Some((1, 0)), Some(false)), (None, None), (Some((14, 0)), None)] {
        assert_eq!(asked(dl_device, copy), None, "{dl_device:?} {copy:?}");
    }
}

#[test]
fn offsets_are_of_memory_objects_alone() {
    let raw = |tensor: DlpackTensor| {
        let raw = tensor.into_raw().cast::<DLManagedTensorVersioned>();
        // SAFETY: just made, and of the current structure.
        let tensor = unsafe { raw.as_ref() }.dl_tensor;
        let (data, offset) = (tensor.data.addr(), tensor.byte_offset);
        // SAFETY: this test made it.
        drop(unsafe { DlpackTensor::from_versioned(raw) });
        (data, offset)
    };
    let skipping = |mut foreign: Foreign| {
        foreign.tensor.byte_offset = 8;
        foreign.tensor.data = std::ptr::without_provenance_mut(4096);
        foreign
    };
    let versioned = DlpackOptions::versioned();
    let pointer = on_with(2, 0, skipping);
    assert_eq!(pointer.pointer(), Some(4104));
    assert_eq!(raw(pointer.into_dlpack(versioned).unwrap()), (4104, 0));
    let object = on_with(4, 0, skipping);
    assert_eq!((object.pointer(), object.memory().unwrap().raw), (None, 4096));
    assert_eq!(object.byte_range(), 8..8 + 6 * 4);
    assert_eq!(raw(object.into_dlpack(versioned).unwrap()), (4096, 8));
    let object = on_with(4, 0, skipping);
    for refused in [
        object.into_array_interface().unwrap_err().into_inner(),
        on_with(4, 0, skipping).into_cuda_array_interface().unwrap_err().into_inner(),
        on_with(4, 0, skipping).into_sycl_usm().unwrap_err().into_inner(),
    ] {
        assert_eq!(refused.memory().unwrap().raw, 4096);
    }
}

#[test]
fn an_empty_array_has_no_address_but_where_it_needs_one() {
    let empty = || {
        let case = Case::new(DType::F32, 2, Lie::Empty, 0, false);
        // SAFETY: nothing is read.
        unsafe { ArrayExchange::from_dlpack(case.foreign().on(2, 0).versioned(), Ready) }.unwrap()
    };
    assert_eq!(empty().into_cuda_array_interface().unwrap().interface.data.0, 0);
    let tensor = empty().into_dlpack(DlpackOptions::versioned()).unwrap();
    let raw = tensor.into_raw().cast::<DLManagedTensorVersioned>();
    // SAFETY: just made, and of the current structure.
    assert!(unsafe { raw.as_ref() }.dl_tensor.data.is_null());
    // SAFETY: this test made it.
    drop(unsafe { DlpackTensor::from_versioned(raw) });
}

#[test]
fn suai_empty_has_pointer() {
    let token = DeviceToken::new("opencl", Some(DeviceKind::Cpu), 0);
    let empty = |data: usize| {
        let foreign = Foreign::new(DType::F32, data, &[0], None).on(14, 0);
        // SAFETY: nothing is read.
        let array = unsafe { ArrayExchange::from_dlpack(foreign.versioned(), Ready) }.unwrap();
        // SAFETY: as above.
        unsafe { array.assume_bound(token.clone(), ContextBinding::PlatformDefault) }
    };
    assert_eq!(empty(4096).into_sycl_usm().unwrap().interface.data.0, 4096);
    let refused = empty(0).into_sycl_usm().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    let interface = SyclUsmArrayInterface {
        data: (0, false),
        ..empty(4096).into_sycl_usm().unwrap().interface
    };
    // SAFETY: refused.
    assert!(unsafe { ArrayExchange::from_sycl_usm(&interface, ()) }.is_err());
}

#[test]
fn suai_string_needs_default_context() {
    let token = DeviceToken::new("opencl", Some(DeviceKind::Gpu), 2);
    let handle = |api| NativeHandle { api, kind: NativeKind::Context, raw: 7 };
    let bound = |token: &DeviceToken, context| {
        // SAFETY: nothing is read.
        unsafe { on(14, 0).assume_bound(token.clone(), context) }
    };
    let named = bound(&token, ContextBinding::PlatformDefault).into_sycl_usm().unwrap();
    assert_eq!(named.interface.syclobj, SyclObject::Filter("opencl:gpu:2".into()));
    let given = bound(&token, ContextBinding::Explicit(handle("sycl"))).into_sycl_usm().unwrap();
    assert_eq!(given.interface.syclobj, SyclObject::Handle(handle("sycl")));
    // A context that this runtime made is not SYCL's. A name without a kind is not a filter with three parts.
    assert!(bound(&token, ContextBinding::Explicit(handle("opencl"))).into_sycl_usm().is_err());
    let kindless = DeviceToken::new("opencl", None, 2);
    assert!(bound(&kindless, ContextBinding::PlatformDefault).into_sycl_usm().is_err());
    // DLPack can only express the default context, and SYCL numbers its devices itself.
    let one_api = DlpackOptions { sycl_index: Some(3), ..DlpackOptions::versioned() };
    let array = || bound(&token, ContextBinding::PlatformDefault);
    assert!(array().into_dlpack(DlpackOptions::versioned()).is_err());
    let tensor = array().into_dlpack(one_api).unwrap();
    // SAFETY: nothing is read.
    let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
    assert_eq!((theirs.device().backend(), theirs.device().index()), ("sycl", 3));
    let explicit = bound(&token, ContextBinding::Explicit(handle("opencl")));
    assert!(explicit.into_dlpack(one_api).is_err());
}

#[test]
fn strides_may_be_missing_where_the_version_lets_them() {
    let case = case();
    for (version, taken) in [((1, 0), true), ((1, 1), true), ((1, 2), false), ((1, 3), false)] {
        let foreign = Foreign::new(DType::F32, case.first, &case.shape, None);
        let version = DLPackVersion { major: version.0, minor: version.1 };
        let tensor = Foreign { version, ..foreign }.versioned();
        // SAFETY: nothing is read.
        let array = unsafe { ArrayExchange::from_dlpack(tensor, Ready) };
        assert_eq!(array.is_ok(), taken, "{version:?}");
    }
    let tensor = Foreign::new(DType::F32, case.first, &case.shape, None).legacy();
    // SAFETY: nothing is read.
    let array = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
    assert_eq!(array.layout().strides(), [2, 1]);
}

#[test]
fn memory_of_the_wrong_kind_is_refused_with_a_reason() {
    for (refused, word) in [
        (on(2, 0).into_array_interface().unwrap_err().error().to_string(), "cuda:gpu:0"),
        (on(1, 0).into_cuda_array_interface().unwrap_err().error().to_string(), "host:host:0"),
        (on(2, 0).into_sycl_usm().unwrap_err().error().to_string(), "cuda:gpu:0"),
        (on(14, 0).into_dlpack(ANY.options()).unwrap_err().error().to_string(), "SYCL"),
    ] {
        assert!(refused.contains(word), "{refused}");
    }
}
