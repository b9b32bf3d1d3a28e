//! The owner of an array is dropped once, whatever happens to the capsule.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use std::ffi::c_void;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use backend_host::HostDevice;
use interchange::dlpack::abi::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion};
use interchange::dlpack::{DlpackOptions, DlpackTensor};
use interchange::{ArrayExchange, ArrayInterface, Ready};
use runtime_core::{DType, Device, ErrorKind};

use common::{Case, Count, Foreign, Lie, Owner};

/// A one-dimensional array of numbers as a capsule with a counted owner.
fn row(count: &Count) -> ArrayExchange {
    let exported = ArrayExchange::from_vec(vec![1.0, 2.0, 3.0], &[3]).unwrap();
    let exported = exported.into_array_interface().unwrap();
    // SAFETY: both keepers are kept.
    unsafe {
        ArrayExchange::from_array_interface(&exported.interface, (exported.keeper, count.owner()))
    }
    .unwrap()
}

#[test]
fn released_once_when_dropped() {
    let count = Count::new();
    drop(row(&count));
    assert_eq!(count.dropped(), 1);
    for options in [DlpackOptions::versioned(), DlpackOptions::legacy()] {
        let count = Count::new();
        let tensor = row(&count).into_dlpack(options).unwrap();
        assert_eq!(count.dropped(), 0);
        thread::spawn(|| drop(tensor)).join().unwrap();
        assert_eq!(count.dropped(), 1);
    }
    let count = Count::new();
    let arrow = row(&count).into_arrow().unwrap();
    assert_eq!(count.dropped(), 0);
    drop(arrow);
    assert_eq!(count.dropped(), 1);
}

#[test]
fn released_once_by_the_consumers_call() {
    let count = Count::new();
    let tensor = row(&count).into_dlpack(DlpackOptions::versioned()).unwrap();
    let raw = tensor.into_raw().cast::<DLManagedTensorVersioned>();
    assert_eq!(count.dropped(), 0);
    // SAFETY: the pointer comes from `into_raw`.
    let deleter = unsafe { raw.as_ref() }.deleter.unwrap();
    // SAFETY: called once.
    unsafe { deleter(raw.as_ptr()) };
    assert_eq!(count.dropped(), 1);

    let count = Count::new();
    let tensor = row(&count).into_dlpack(DlpackOptions::legacy()).unwrap();
    let raw = tensor.into_raw().cast::<DLManagedTensor>();
    // SAFETY: as above.
    let deleter = unsafe { raw.as_ref() }.deleter.unwrap();
    // SAFETY: as above.
    unsafe { deleter(raw.as_ptr()) };
    assert_eq!(count.dropped(), 1);

    let count = Count::new();
    let (mut schema, mut array) = row(&count).into_arrow().unwrap().into_raw();
    // SAFETY: as above.
    unsafe { schema.release.unwrap()(&raw mut schema) };
    // SAFETY: as above.
    unsafe { array.array.release.unwrap()(&raw mut array.array) };
    assert!(schema.release.is_none() && array.array.release.is_none());
    assert_eq!(count.dropped(), 1);
}

#[test]
fn released_never_when_leaked_and_nothing_else_breaks() {
    let count = Count::new();
    let capsule = row(&count);
    let address = capsule.pointer().unwrap();
    mem::forget(capsule.into_dlpack(DlpackOptions::versioned()).unwrap());
    assert_eq!(count.dropped(), 0);
    assert_eq!(common::elements(DType::F64, address, &[1], &[1]), 1.0_f64.to_ne_bytes());
}

#[test]
fn released_once_on_a_panic() {
    let count = Count::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _tensor = row(&count).into_dlpack(DlpackOptions::versioned()).unwrap();
        panic!("as planned");
    }));
    assert!(panicked.is_err());
    assert_eq!(count.dropped(), 1);
}

#[test]
fn a_panic_of_the_owner_does_not_reach_c() {
    struct Panics(#[expect(dead_code, reason = "it is dropped")] Owner);
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as planned");
        }
    }
    let count = Count::new();
    let capsule = row(&count).into_array_interface().unwrap();
    let owner = (capsule.keeper, Panics(count.owner()));
    // SAFETY: the keeper is kept.
    let capsule = unsafe { ArrayExchange::from_array_interface(&capsule.interface, owner) };
    let tensor = capsule.unwrap().into_dlpack(DlpackOptions::versioned()).unwrap();
    // An unwinding panic would end the process.
    drop(tensor);
    assert_eq!(count.dropped(), 2, "one for the row, and one beside the panic");
}

#[test]
fn released_once_after_a_failed_import() {
    let case = Case::new(DType::F32, 2, Lie::Compact, 0, false);
    for legacy in [false, true] {
        let count = Count::new();
        let mut foreign = case.foreign().counted(&count);
        foreign.tensor.dtype.lanes = 4;
        let tensor = if legacy { foreign.legacy() } else { foreign.versioned() };
        // SAFETY: refused before anything is read.
        let refused = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
        assert_eq!(count.dropped(), 0, "it is the caller's again");
        drop(refused);
        assert_eq!(count.dropped(), 1);
    }
    let count = Count::new();
    let interface = ArrayInterface {
        shape: [2].into(),
        typestr: "<f8".into(),
        data: None,
        strides: None,
        masked: false,
        offset: None,
        version: 3,
    };
    // SAFETY: refused.
    let refused = unsafe { ArrayExchange::from_array_interface(&interface, count.owner()) };
    let owner = refused.unwrap_err().into_inner();
    assert_eq!(count.dropped(), 0);
    drop(owner);
    assert_eq!(count.dropped(), 1);
}

#[test]
fn a_refused_conversion_gives_the_capsule_back() {
    let count = Count::new();
    let refused = row(&count).read_only().into_dlpack(DlpackOptions::legacy()).unwrap_err();
    let (capsule, error) = refused.into_parts();
    assert_eq!((error.kind(), count.dropped()), (ErrorKind::InvalidArgument, 0));
    drop(capsule.into_dlpack(DlpackOptions::versioned()).unwrap());
    assert_eq!(count.dropped(), 1);
}

#[test]
fn a_deleter_may_be_missing() {
    let case = Case::new(DType::F32, 1, Lie::Compact, 0, false);
    for legacy in [false, true] {
        let foreign = Foreign { has_deleter: false, ..case.foreign() };
        let tensor = if legacy { foreign.legacy() } else { foreign.versioned() };
        // SAFETY: the case outlives it.
        let capsule = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
        assert_eq!(capsule.pointer(), Some(case.first));
    }
}

/// The fields that are the same in all major versions. Reading beyond them would leave the allocation.
#[repr(C)]
struct Head {
    version: DLPackVersion,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    flags: u64,
}

static DELETED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn delete_head(raw: *mut DLManagedTensorVersioned) {
    // SAFETY: made as a `Head` below, and called once.
    drop(unsafe { Box::from_raw(raw.cast::<Head>()) });
    DELETED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn unknown_major_only_deletes() {
    for (deleted, major) in (1..).zip([0, 2, u32::MAX]) {
        let head = Box::new(Head {
            version: DLPackVersion { major, minor: 7 },
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete_head),
            flags: u64::MAX,
        });
        let raw = NonNull::from(Box::leak(head)).cast();
        // SAFETY: of another major version, so nothing else is promised.
        let tensor = unsafe { DlpackTensor::from_versioned(raw) };
        // SAFETY: refused.
        let refused = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap_err();
        assert!(refused.error().message().contains(&major.to_string()), "{refused}");
        drop(refused);
        assert_eq!(DELETED.load(Ordering::SeqCst), deleted);
    }
}

/// The length of a chain of owners: more than a small stack can drop recursively; fewer under Miri.
const LONG: usize = if cfg!(miri) { 30 } else { 20_000 };

/// Runs `drop` on a stack that is too small for a few hundred nested drops.
fn on_a_small_stack(drop: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(256 << 10).spawn(drop).unwrap().join().unwrap();
}

#[test]
fn long_chains_of_adoption_are_released_without_recursion() {
    let count = Count::new();
    let mut capsule = row(&count);
    for _ in 0..LONG {
        let tensor = capsule.into_dlpack(DlpackOptions::versioned()).unwrap();
        // SAFETY: this test made the tensor.
        capsule = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
    }
    on_a_small_stack(|| drop(capsule));
    assert_eq!(count.dropped(), 1);
}

#[test]
fn memory_adopted_from_memory_adopted_is_released_without_recursion() {
    let device = Device::new(HostDevice::new(0)).unwrap();
    let stream = device.default_stream();
    let count = Count::new();
    let mut adopted = row(&count).into_adopted::<f64>(&device).unwrap();
    for _ in 0..LONG {
        let memory = adopted.into_memory().unwrap();
        let pending = ArrayExchange::from_memory(memory, &[3], &stream).unwrap();
        adopted = pending.host_wait().unwrap().into_adopted(&device).unwrap();
    }
    on_a_small_stack(|| drop(adopted));
    assert_eq!(count.dropped(), 1);
}
