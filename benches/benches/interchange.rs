//! The cost of exporting and importing an array by every protocol, against dlpark and against filling the fields by
//! hand.
//!
//! An export makes the capsule, converts it and releases it; an import converts and releases. The elements are not
//! accessed.

use std::hint::black_box;
use std::process::ExitCode;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use backend_host::HostDevice;
use benches::overhead::{Limit, Table, Unit};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, Managed};
use interchange::arrow::ArrowDevice;
use interchange::arrow::abi::{ArrowArray, ArrowDeviceArray, ArrowSchema};
use interchange::dlpack::abi::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, VERSION,
};
use interchange::dlpack::{DlpackOptions, DlpackTensor};
use interchange::{
    ArrayExchange, ArrayInterface, ContextBinding, CudaArrayInterface, DeviceToken, Ready,
    SyclObject, SyclUsmArrayInterface,
};
use runtime_core::{DType, Device, DeviceKind, Layout, Result};

/// The most reference calls that an export or an import may take.
const LIMIT: Limit = Limit::Takes(30.0);

const SHAPE: [i64; 3] = [64, 32, 16];
const STRIDES: [i64; 3] = [512, 16, 1];
const BYTES: [i64; 3] = [4096, 128, 8];
/// No elements are there, and none are accessed.
const ADDRESS: usize = 1 << 20;

fn main() -> Result<ExitCode> {
    // Short batches: on a busy machine most of them then run without interruption.
    let mut table = Table::from_args(500, 2001, Unit::ReferenceCall);
    memory(&mut table)?;
    dlpack(&mut table);
    dictionaries(&mut table);
    arrow(&mut table);
    Ok(table.finish())
}

/// Memory of a device, from the runtime's object to the tensor and back.
fn memory(table: &mut Table) -> Result<()> {
    let device = Device::new(HostDevice::new(0))?;
    let stream = device.default_stream();
    let memory = Arc::new(device.memory_allocate::<f64>(64 * 32 * 16)?);
    let layout = Layout::contiguous(DType::F64, &[64, 32, 16])?;
    let address = memory.host_ptr().map_or(ptr::null_mut(), |first| first.as_ptr());
    table.row(
        "memory, waited for, to dlpack",
        "dlpark",
        LIMIT,
        || {
            let pending = ArrayExchange::from_shared(&memory, 0, &layout, &stream);
            let ready = pending.ok().and_then(|pending| pending.host_wait().ok());
            let tensor = ready.and_then(|it| it.into_dlpack(DlpackOptions::versioned()).ok());
            drop(black_box(tensor));
        },
        || {
            let made = Dynamic::new(&SHAPE[..], &STRIDES[..])
                .initialize_as::<dlpark::ffi::DLManagedTensorVersioned>(Arc::clone(&memory));
            if let Ok(mut made) = made {
                made.set_data(address.cast());
                made.set_dtype(dlpark::ffi::DLDataType::F64);
                made.set_device(dlpark::ffi::DLDevice::CPU);
                let _flags = made.set_flags(DlpackFlags::READ_ONLY).is_ok();
                // SAFETY: the memory is kept alive, and its description is correct.
                drop(black_box(unsafe { made.finish() }));
            }
        },
    );
    Ok(())
}

unsafe extern "C" fn keep_versioned(_: *mut DLManagedTensorVersioned) {}
unsafe extern "C" fn keep_legacy(_: *mut DLManagedTensor) {}
unsafe extern "C" fn keep_theirs(_: *mut dlpark::ffi::DLManagedTensorVersioned) {}
unsafe extern "C" fn keep_array(_: *mut ArrowArray) {}

fn tensor(device_type: i32) -> DLTensor {
    DLTensor {
        data: ptr::without_provenance_mut(ADDRESS),
        device: DLDevice { device_type, device_id: 0 },
        ndim: 3,
        dtype: DLDataType { code: 2, bits: 64, lanes: 1 },
        shape: SHAPE.as_ptr().cast_mut(),
        strides: STRIDES.as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

fn managed(device_type: i32) -> DLManagedTensorVersioned {
    DLManagedTensorVersioned {
        version: VERSION,
        manager_ctx: ptr::null_mut(),
        deleter: Some(keep_versioned),
        flags: 0,
        dl_tensor: tensor(device_type),
    }
}

/// A capsule of an array from other code.
fn taken(managed: &mut DLManagedTensorVersioned) -> Option<ArrayExchange> {
    // SAFETY: the tensor outlives the capsule, and its address is never dereferenced.
    let tensor = unsafe { DlpackTensor::from_versioned(NonNull::from(managed)) };
    // SAFETY: as above.
    unsafe { ArrayExchange::from_dlpack(tensor, Ready) }.ok()
}

fn dlpack(table: &mut Table) {
    let mut ours = managed(1);
    let mut theirs = dlpark::ffi::DLManagedTensorVersioned {
        version: dlpark::ffi::DLPackVersion { major: 1, minor: 3 },
        manager_ctx: ptr::null_mut(),
        deleter: Some(keep_theirs),
        flags: DlpackFlags::empty(),
        dl_tensor: dlpark::ffi::DLTensor {
            data: ptr::without_provenance_mut(ADDRESS),
            device: dlpark::ffi::DLDevice::CPU,
            ndim: 3,
            dtype: dlpark::ffi::DLDataType::F64,
            shape: SHAPE.as_ptr().cast_mut(),
            strides: STRIDES.as_ptr().cast_mut(),
            byte_offset: 0,
        },
    };
    table.row(
        "dlpack import",
        "dlpark",
        LIMIT,
        || drop(black_box(taken(&mut ours))),
        || {
            // SAFETY: it outlives all objects made from it.
            let managed = unsafe { Managed::from_raw(&raw mut theirs) };
            drop(black_box(managed.map(|managed| managed.validate().is_ok())));
        },
    );
    let mut legacy = DLManagedTensor {
        dl_tensor: tensor(1),
        manager_ctx: ptr::null_mut(),
        deleter: Some(keep_legacy),
    };
    table.row(
        "dlpack import, legacy",
        "read fields",
        LIMIT,
        || {
            // SAFETY: as above.
            let tensor = unsafe { DlpackTensor::from_legacy(NonNull::from(&mut legacy)) };
            // SAFETY: as above.
            drop(black_box(unsafe { ArrayExchange::from_dlpack(tensor, Ready) }));
        },
        || _ = black_box(tensor(1)),
    );
    let owner = Arc::new(());
    for (name, options) in [
        ("dlpack export", DlpackOptions::versioned()),
        ("dlpack export, legacy", DlpackOptions::legacy()),
    ] {
        table.row(
            name,
            "dlpark",
            LIMIT,
            || drop(black_box(taken(&mut ours).map(|capsule| capsule.into_dlpack(options)))),
            || {
                let made =
                    Dynamic::new(&SHAPE[..], &STRIDES[..])
                        .initialize_as::<dlpark::ffi::DLManagedTensorVersioned>(Arc::clone(&owner));
                if let Ok(mut made) = made {
                    made.set_data(ptr::without_provenance_mut(ADDRESS));
                    made.set_dtype(dlpark::ffi::DLDataType::F64);
                    made.set_device(dlpark::ffi::DLDevice::CPU);
                    // SAFETY: the address is never dereferenced.
                    drop(black_box(unsafe { made.finish() }));
                }
            },
        );
    }
}

fn dictionaries(table: &mut Table) {
    let numpy = || ArrayInterface {
        shape: SHAPE.into(),
        typestr: "<f8".into(),
        data: Some((ADDRESS, false)),
        strides: Some(BYTES.into()),
        masked: false,
        offset: None,
        version: 3,
    };
    let given = numpy();
    table.row(
        "array interface import",
        "fill fields",
        LIMIT,
        // SAFETY: the address is never dereferenced.
        || drop(black_box(unsafe { ArrayExchange::from_array_interface(&given, ()) })),
        || drop(black_box(numpy())),
    );
    let mut host = managed(1);
    table.row(
        "array interface export",
        "fill fields",
        LIMIT,
        || drop(black_box(taken(&mut host).map(ArrayExchange::into_array_interface))),
        || drop(black_box(numpy())),
    );

    let cuda = || CudaArrayInterface {
        shape: SHAPE.into(),
        typestr: "<f8".into(),
        data: (ADDRESS, false),
        strides: Some(BYTES.into()),
        masked: false,
        stream: None,
        version: 3,
    };
    let (given, token) = (cuda(), DeviceToken::new("cuda", Some(DeviceKind::Gpu), 0));
    table.row(
        "cuda array interface import",
        "fill fields",
        LIMIT,
        || {
            let token = token.clone();
            // SAFETY: as above.
            drop(black_box(unsafe { ArrayExchange::from_cuda_array_interface(&given, token, ()) }));
        },
        || drop(black_box(cuda())),
    );
    let mut on_cuda = managed(2);
    table.row(
        "cuda array interface export",
        "fill fields",
        LIMIT,
        || {
            let exported = taken(&mut on_cuda).map(|it| it.into_cuda_array_interface());
            drop(black_box(exported));
        },
        || drop(black_box(cuda())),
    );

    let sycl = || SyclUsmArrayInterface {
        shape: SHAPE.into(),
        typestr: "<f8".into(),
        data: (ADDRESS, false),
        strides: Some(STRIDES.into()),
        offset: 0,
        syclobj: SyclObject::Filter("level_zero:gpu:0".to_owned()),
        version: 1,
    };
    let (given, token) = (sycl(), DeviceToken::new("level_zero", Some(DeviceKind::Gpu), 0));
    table.row(
        "sycl usm import",
        "fill fields",
        LIMIT,
        // SAFETY: as above.
        || drop(black_box(unsafe { ArrayExchange::from_sycl_usm(&given, ()) })),
        || drop(black_box(sycl())),
    );
    let mut on_sycl = managed(14);
    table.row(
        "sycl usm export",
        "fill fields",
        LIMIT,
        || {
            let bound = taken(&mut on_sycl).map(|capsule| {
                let token = token.clone();
                // SAFETY: as above.
                unsafe { capsule.assume_bound(token, ContextBinding::PlatformDefault) }
            });
            drop(black_box(bound.map(ArrayExchange::into_sycl_usm)));
        },
        || drop(black_box(sycl())),
    );
}

fn arrow(table: &mut Table) {
    let mut buffers = [ptr::null(), ptr::without_provenance(ADDRESS)];
    let buffers = buffers.as_mut_ptr();
    let fill = || {
        let array = ArrowArray {
            length: 4096,
            n_buffers: 2,
            buffers,
            release: Some(keep_array),
            ..ArrowArray::released()
        };
        let array = ArrowDeviceArray {
            array,
            device_id: -1,
            device_type: 1,
            ..ArrowDeviceArray::released()
        };
        (ArrowSchema { format: c"g".as_ptr(), ..ArrowSchema::released() }, array)
    };
    table.row(
        "arrow import",
        "fill fields",
        LIMIT,
        || {
            let (schema, array) = fill();
            // SAFETY: the address is never dereferenced.
            let arrow = unsafe { ArrowDevice::from_raw(schema, array) };
            drop(black_box(ArrayExchange::from_arrow(arrow)));
        },
        || _ = black_box(fill()),
    );
    let shape = [4096];
    let mut row = managed(1);
    row.dl_tensor = DLTensor {
        ndim: 1,
        shape: shape.as_ptr().cast_mut(),
        strides: STRIDES[2..].as_ptr().cast_mut(),
        ..row.dl_tensor
    };
    table.row(
        "arrow export",
        "fill fields",
        LIMIT,
        || drop(black_box(taken(&mut row).map(|capsule| capsule.into_arrow()))),
        || _ = black_box(fill()),
    );
}
