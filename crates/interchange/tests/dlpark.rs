//! Another DLPack library, dlpark, reads exported tensors, and exports tensors that are imported here.

mod common;

use std::ptr::NonNull;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, Managed};
use interchange::dlpack::{DlpackOptions, DlpackTensor};
use interchange::{ArrayExchange, Ready};

use common::{Case, Count};

#[test]
fn exported_capsules_are_accepted_by_dlpark() {
    let count = Count::new();
    let mut made = 0;
    Case::all(&[0, 48], |case| {
        let tensor = case.foreign().counted(&count).versioned();
        // SAFETY: host memory that no code writes.
        let ours = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
        let legacy = case.is_writable() && made % 2 == 0;
        made += 1;
        let check = |shape: &[i64], strides: Option<&[i64]>, bits: u8| {
            assert_eq!((shape, strides.unwrap_or(&[])), (&*case.shape, &*case.strides));
            assert_eq!(usize::from(bits), 8 * case.dtype.size());
        };
        if legacy {
            let raw = ours.into_dlpack(DlpackOptions::legacy()).unwrap().into_raw().cast();
            // SAFETY: this code owns the tensor.
            let theirs = unsafe { Managed::<DLManagedTensor>::from_raw(raw.as_ptr()) }.unwrap();
            let tensor = theirs.validate_export().unwrap();
            check(tensor.shape(), tensor.strides(), tensor.dtype().bits);
        } else {
            let raw = ours.into_dlpack(DlpackOptions::versioned()).unwrap().into_raw().cast();
            // SAFETY: as above.
            let theirs =
                unsafe { Managed::<DLManagedTensorVersioned>::from_raw(raw.as_ptr()) }.unwrap();
            let tensor = theirs.validate_export().unwrap();
            check(tensor.shape(), tensor.strides(), tensor.dtype().bits);
            let read_only = theirs.flags().contains(DlpackFlags::READ_ONLY);
            assert_eq!(read_only, !case.is_writable());
        }
        assert_eq!(count.dropped(), made);
    });
}

#[test]
fn capsules_of_dlpark_are_imported() {
    let shape = [2_i64, 3];
    let values = Box::new([1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let first = values.as_ptr().expose_provenance();
    let mut initialized = Dynamic::new(&shape[..], &[3_i64, 1][..])
        .initialize_as::<DLManagedTensorVersioned>(values)
        .unwrap();
    initialized.set_data(std::ptr::with_exposed_provenance_mut(first));
    initialized.set_dtype(dlpark::ffi::DLDataType::F32);
    initialized.set_device(dlpark::ffi::DLDevice::CPU);
    initialized.set_flags(DlpackFlags::READ_ONLY).unwrap();
    // SAFETY: six numbers, which the box keeps alive.
    let raw = unsafe { initialized.finish() }.into_raw();
    // SAFETY: this code now owns the tensor.
    let tensor = unsafe { DlpackTensor::from_versioned(NonNull::new(raw.cast()).unwrap()) };
    // SAFETY: host memory that no code writes.
    let ours = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.unwrap();
    assert_eq!((ours.layout().shape(), ours.layout().strides()), (&[2, 3][..], &[3, 1][..]));
    assert!(!ours.access().is_writable());
    assert_eq!(ours.pointer(), Some(first));
}
