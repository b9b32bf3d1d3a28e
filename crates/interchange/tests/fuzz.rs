//! A million hostile arrays for every import. Arithmetic in 128 bits says whether each must be accepted or refused. A
//! refused array is returned, and an accepted one is released once.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use fastrand::Rng;
use interchange::arrow::ArrowDevice;
use interchange::arrow::abi::{ArrowArray, ArrowDeviceArray, ArrowSchema};
use interchange::dlpack::abi::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use interchange::dlpack::{DlpackOptions, DlpackTensor};
use interchange::{
    Access, ArrayExchange, ArrayInterface, CudaArrayInterface, DeviceToken, MemoryKind, Ready,
    State, SyclObject, SyclUsmArrayInterface,
};
use runtime_core::{DType, DeviceKind, NativeHandle, NativeKind};

use common::data_type;

/// Fewer cases under Miri, which is slow.
const CASES: u32 = if cfg!(miri) { 50 } else { 1_000_000 };

/// The largest valid address or span.
const MOST: i128 = isize::MAX as i128;

/// One of these extreme values, or any number.
fn number(rng: &mut Rng) -> i64 {
    const WORST: [i64; 12] = [
        -1,
        i64::MAX,
        i64::MIN,
        i64::MAX / 2,
        1 << 31,
        1 << 32,
        1 << 61,
        -(1 << 61),
        (1 << 60) - 1,
        65536,
        -65536,
        4096,
    ];
    match rng.u8(..16) {
        0 => WORST[rng.usize(..WORST.len())],
        1 => rng.i64(..),
        2 => rng.i64(-20..20),
        _ => rng.i64(0..5),
    }
}

fn numbers(rng: &mut Rng) -> [i64; 8] {
    std::array::from_fn(|_| number(rng))
}

fn address(rng: &mut Rng) -> usize {
    match rng.u8(..12) {
        0 => 0,
        1 => usize::MAX - rng.usize(..64),
        2 => rng.usize(..256),
        3 => rng.usize(..),
        _ => 1 << 40 | rng.usize(..1 << 20),
    }
}

fn product(mut extents: impl Iterator<Item = i128>) -> Option<i128> {
    extents.try_fold(1, |product: i128, extent| {
        Some(product * extent).filter(|product| *product <= MOST)
    })
}

/// The span of an array's elements: the lowest byte, and past the highest byte. `None` if there is no such array.
fn span(size: usize, shape: &[i64], strides: Option<&[i64]>) -> Option<(i128, i128)> {
    let size = size as i128;
    if shape.iter().any(|extent| *extent < 0) {
        return None;
    }
    let mut steps = Vec::new();
    match strides {
        Some(strides) => steps.extend(strides.iter().map(|stride| i128::from(*stride))),
        None => {
            for dim in 0..shape.len() {
                let inner = shape[dim + 1..].iter().map(|extent| i128::from(*extent).max(1));
                steps.push(product(inner)?);
            }
        }
    }
    if shape.contains(&0) {
        return Some((0, 0));
    }
    let count = product(shape.iter().map(|extent| i128::from(*extent)))?;
    let (mut low, mut high) = (0, size);
    for (extent, step) in shape.iter().zip(steps) {
        let reach = i128::from(extent - 1) * step;
        // This large a value stays too large, and would overflow 128 bits.
        if reach.abs() > MOST {
            return None;
        }
        let reach = reach * size;
        if reach < 0 { low += reach } else { high += reach }
    }
    (count * size <= MOST && high - low <= MOST && high <= MOST).then_some((low, high))
}

/// Whether a span at an address lies in the address space.
fn fits(address: i128, (low, high): (i128, i128)) -> bool {
    let top = i128::try_from(usize::MAX).unwrap();
    (address != 0 || high == 0) && address + low >= 0 && address + high <= top
}

/// Checks that an accepted capsule is consistent, and that the other conversions work.
fn check<S: State>(taken: &ArrayExchange<S>) {
    let (bytes, layout) = (taken.byte_range(), taken.layout());
    assert!(bytes.start <= bytes.end && bytes.end <= taken.memory_bytes());
    assert_eq!(bytes.len(), layout.span_bytes().len());
    assert!(layout.is_empty() || taken.memory().is_some());
    if taken.access().is_writable() {
        assert!(layout.is_nested());
    }
}

fn pass_on(taken: ArrayExchange<Ready>) {
    let Err(refused) = taken.into_array_interface() else { return };
    let Err(refused) = refused.into_inner().into_cuda_array_interface() else { return };
    drop(refused.into_inner().into_sycl_usm());
}

fn tensor(
    rng: &mut Rng,
    shape: &mut [i64; 8],
    strides: &mut [i64; 8],
) -> (DLTensor, Option<DType>) {
    let dtype = DType::ALL[rng.usize(..DType::ALL.len())];
    let (named, known) = match rng.u8(..12) {
        0 => (DLDataType { lanes: rng.u16(..), ..data_type(dtype) }, None),
        1 => (DLDataType { bits: rng.u8(..), ..data_type(dtype) }, None),
        2 => (DLDataType { code: rng.u8(..), bits: rng.u8(..), lanes: rng.u16(..3) }, None),
        _ => (data_type(dtype), Some(dtype)),
    };
    // The random values may form a valid type.
    let known = known.or_else(|| DType::ALL.into_iter().find(|dtype| data_type(*dtype) == named));
    let ndim = match rng.u8(..16) {
        0 => i32::try_from(number(rng)).unwrap_or(i32::MIN),
        1 => rng.i32(..),
        2 => 7,
        _ => rng.i32(0..7),
    };
    let device = match rng.u8(..16) {
        0 => DLDevice { device_type: rng.i32(..), device_id: rng.i32(..) },
        1 => DLDevice { device_type: rng.i32(-1..20), device_id: rng.i32(-2..3) },
        2..6 => DLDevice { device_type: rng.i32(1..19), device_id: rng.i32(0..3) },
        _ => DLDevice { device_type: 1, device_id: 0 },
    };
    let tensor = DLTensor {
        data: ptr::without_provenance_mut(address(rng)),
        device,
        ndim,
        dtype: named,
        shape: if rng.u8(..32) == 0 { ptr::null_mut() } else { shape.as_mut_ptr() },
        strides: if rng.u8(..8) == 0 { ptr::null_mut() } else { strides.as_mut_ptr() },
        byte_offset: match rng.u8(..8) {
            0 => rng.u64(..),
            1 => rng.u64(..64),
            _ => 0,
        },
    };
    (tensor, known)
}

/// Whether a tensor is valid.
fn admissible(
    tensor: &DLTensor,
    dtype: Option<DType>,
    (shape, strides): (&[i64; 8], &[i64; 8]),
    strides_given: bool,
) -> bool {
    let known = matches!(tensor.device.device_type, 1..=4 | 10 | 11 | 13 | 14);
    let numbered = matches!(tensor.device.device_type, 2 | 4 | 10 | 14);
    if !known || numbered && tensor.device.device_id < 0 {
        return false;
    }
    let (Some(dtype), 0..=6) = (dtype, tensor.ndim) else { return false };
    let rank = usize::try_from(tensor.ndim).unwrap();
    if rank > 0 && (tensor.shape.is_null() || tensor.strides.is_null() && strides_given) {
        return false;
    }
    let strides = (rank > 0 && !tensor.strides.is_null()).then(|| &strides[..rank]);
    let Some(span) = span(dtype.size(), &shape[..rank], strides) else { return false };
    let (data, offset) = (tensor.data.addr() as i128, i128::from(tensor.byte_offset));
    match (tensor.device.device_type, data) {
        (4, _) => {
            (data != 0 || span.1 == 0) && fits(offset.max(1), span) && fits_from(offset, span)
        }
        (_, 0) => fits(0, span),
        _ => data + offset <= i128::try_from(usize::MAX).unwrap() && fits(data + offset, span),
    }
}

/// As [`fits`], except that 0 is a valid position.
fn fits_from(offset: i128, (low, high): (i128, i128)) -> bool {
    offset + low >= 0 && offset + high <= i128::try_from(usize::MAX).unwrap()
}

static VERSIONED: AtomicUsize = AtomicUsize::new(0);
static LEGACY: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn delete_versioned(_: *mut DLManagedTensorVersioned) {
    VERSIONED.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn delete_legacy(_: *mut DLManagedTensor) {
    LEGACY.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn dlpack_versioned() {
    let mut rng = Rng::with_seed(1);
    let mut taken = 0;
    for case in 1..=CASES {
        let (mut shape, mut strides) = (numbers(&mut rng), numbers(&mut rng));
        let (dl_tensor, dtype) = tensor(&mut rng, &mut shape, &mut strides);
        let version = match rng.u8(..8) {
            0 => DLPackVersion { major: rng.u32(..), minor: rng.u32(..) },
            1 => DLPackVersion { major: rng.u32(0..3), minor: rng.u32(..4) },
            _ => DLPackVersion { major: 1, minor: rng.u32(..5) },
        };
        let flags = if rng.u8(..16) == 0 { rng.u64(..) } else { rng.u64(..8) };
        let mut managed = DLManagedTensorVersioned {
            version,
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete_versioned),
            flags,
            dl_tensor,
        };
        let expected = version.major == 1
            && flags < 8
            && admissible(&dl_tensor, dtype, (&shape, &strides), version.minor >= 2);
        // SAFETY: its extents and strides exist as described, and no code dereferences its address.
        let tensor = unsafe { DlpackTensor::from_versioned(NonNull::from(&mut managed)) };
        // SAFETY: as above.
        match unsafe { ArrayExchange::from_dlpack(tensor, Ready) } {
            Ok(capsule) => {
                assert!(expected, "{managed:?} {shape:?} {strides:?}");
                check(&capsule);
                assert!(flags & 1 == 0 || capsule.access() == Access::ReadOnly);
                match rng.bool() {
                    true => drop(capsule.into_dlpack(DlpackOptions::versioned())),
                    false => pass_on(capsule),
                }
                taken += 1;
            }
            Err(refused) => assert!(!expected, "{refused} {managed:?} {shape:?} {strides:?}"),
        }
        assert_eq!(VERSIONED.load(Ordering::Relaxed), usize::try_from(case).unwrap());
    }
    assert!(taken > CASES / 20, "{taken}");
}

#[test]
fn dlpack_legacy() {
    let mut rng = Rng::with_seed(2);
    let mut taken = 0;
    for case in 1..=CASES {
        let (mut shape, mut strides) = (numbers(&mut rng), numbers(&mut rng));
        let (dl_tensor, dtype) = tensor(&mut rng, &mut shape, &mut strides);
        let mut managed = DLManagedTensor {
            dl_tensor,
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete_legacy),
        };
        let expected = admissible(&dl_tensor, dtype, (&shape, &strides), false);
        // SAFETY: as above.
        let tensor = unsafe { DlpackTensor::from_legacy(NonNull::from(&mut managed)) };
        // SAFETY: as above.
        match unsafe { ArrayExchange::from_dlpack(tensor, Ready) } {
            Ok(capsule) => {
                assert!(expected, "{managed:?} {shape:?} {strides:?}");
                check(&capsule);
                assert_eq!(capsule.access(), Access::ReadOnly);
                drop(capsule.into_dlpack(DlpackOptions::legacy()));
                taken += 1;
            }
            Err(refused) => assert!(!expected, "{refused} {managed:?} {shape:?} {strides:?}"),
        }
        assert_eq!(LEGACY.load(Ordering::Relaxed), usize::try_from(case).unwrap());
    }
    assert!(taken > CASES / 20, "{taken}");
}

/// A typestr, and its type in strict protocols and in loose ones.
fn typestr(rng: &mut Rng) -> (String, Option<DType>, Option<DType>) {
    const NAMES: [(&str, DType); 14] = [
        ("b1", DType::Bool),
        ("i1", DType::I8),
        ("i2", DType::I16),
        ("i4", DType::I32),
        ("i8", DType::I64),
        ("u1", DType::U8),
        ("u2", DType::U16),
        ("u4", DType::U32),
        ("u8", DType::U64),
        ("f2", DType::F16),
        ("f4", DType::F32),
        ("f8", DType::F64),
        ("c8", DType::C64),
        ("c16", DType::C128),
    ];
    if rng.u8(..16) == 0 {
        const WRONG: [&str; 9] = ["", "<", "|", "<f", "<f16", "<M8", "|V8", "\u{20ac}8", "<f8 "];
        return (WRONG[rng.usize(..WRONG.len())].to_owned(), None, None);
    }
    let (name, dtype) = NAMES[rng.usize(..NAMES.len())];
    let (native, foreign) = if cfg!(target_endian = "little") { ("<", ">") } else { (">", "<") };
    let byte = dtype.size() == 1;
    let (order, strict, loose) = match rng.u8(..16) {
        0 => (foreign, byte, byte),
        1 => ("", false, true),
        2 => ("|", byte, true),
        3 => ("=", true, true),
        _ => (native, true, true),
    };
    (format!("{order}{name}"), strict.then_some(dtype), loose.then_some(dtype))
}

/// Extents, and strides, sometimes with a different number of entries.
fn arrangement(rng: &mut Rng) -> (Vec<i64>, Option<Vec<i64>>) {
    let rank = if rng.u8(..32) == 0 { 7 } else { rng.usize(..7) };
    let shape = numbers(rng)[..rank].to_vec();
    let others = if rng.u8(..32) == 0 { rng.usize(..8) } else { rank };
    let strides = (rng.u8(..4) != 0).then(|| numbers(rng)[..others].to_vec());
    (shape, strides)
}

/// The span of an array with strides in elements; `None` if the array is invalid.
fn arranged(dtype: DType, shape: &[i64], strides: Option<&[i64]>) -> Option<(i128, i128)> {
    let fits = shape.len() <= 6 && strides.is_none_or(|strides| strides.len() == shape.len());
    fits.then(|| span(dtype.size(), shape, strides)).flatten()
}

/// Converts strides in bytes to strides in elements; `None` if that is impossible.
#[expect(clippy::option_option, reason = "the outer one says that they are wrong")]
fn elements(dtype: DType, strides: Option<&Vec<i64>>) -> Option<Option<Vec<i64>>> {
    let Some(strides) = strides else { return Some(None) };
    let size = i64::try_from(dtype.size()).unwrap();
    let whole = strides.iter().all(|stride| stride % size == 0);
    whole.then(|| Some(strides.iter().map(|stride| stride / size).collect()))
}

/// Converts strides to bytes, most of them multiples of the element size.
fn in_bytes(rng: &mut Rng, dtype: Option<DType>, strides: &mut Option<Vec<i64>>) {
    let size = dtype.map_or(8, |dtype| i64::try_from(dtype.size()).unwrap());
    if rng.u8(..8) != 0 {
        strides.iter_mut().flatten().for_each(|stride| *stride = stride.wrapping_mul(size));
    }
}

#[test]
fn array_interface() {
    let mut rng = Rng::with_seed(3);
    let mut taken = 0;
    for _ in 0..CASES {
        let (typestr, dtype, _) = typestr(&mut rng);
        let (shape, mut strides) = arrangement(&mut rng);
        in_bytes(&mut rng, dtype, &mut strides);
        let interface = ArrayInterface {
            shape: shape.iter().copied().collect(),
            typestr: typestr.into(),
            data: (rng.u8(..32) != 0).then(|| (address(&mut rng), rng.bool())),
            strides: strides.as_ref().map(|strides| strides.iter().copied().collect()),
            masked: rng.u8(..32) == 0,
            offset: None,
            version: if rng.u8(..32) == 0 { number(&mut rng) } else { 3 },
        };
        let expected = || {
            let (address, _) = interface.data?;
            let dtype = dtype?;
            let strides = elements(dtype, strides.as_ref())?;
            let span = arranged(dtype, &shape, strides.as_deref())?;
            (!interface.masked && interface.version == 3 && fits(address as i128, span))
                .then_some(())
        };
        let owner = Box::new(());
        // SAFETY: no code dereferences the address.
        match unsafe { ArrayExchange::from_array_interface(&interface, owner) } {
            Ok(capsule) => {
                assert!(expected().is_some(), "{interface:?}");
                check(&capsule);
                pass_on(capsule);
                taken += 1;
            }
            Err(refused) => assert!(expected().is_none(), "{refused} {interface:?}"),
        }
    }
    assert!(taken > CASES / 20, "{taken}");
}

#[test]
fn cuda_array_interface() {
    let mut rng = Rng::with_seed(4);
    let mut taken = 0;
    for _ in 0..CASES {
        let (typestr, dtype, _) = typestr(&mut rng);
        let (shape, mut strides) = arrangement(&mut rng);
        in_bytes(&mut rng, dtype, &mut strides);
        let interface = CudaArrayInterface {
            shape: shape.iter().copied().collect(),
            typestr: typestr.into(),
            data: (address(&mut rng), rng.bool()),
            strides: strides.as_ref().map(|strides| strides.iter().copied().collect()),
            masked: rng.u8(..32) == 0,
            stream: rng.bool().then(|| rng.usize(..8)),
            version: if rng.u8(..16) == 0 { number(&mut rng) } else { 3 },
        };
        let backend = ["cuda", "hip", "opencl"][usize::from(rng.u8(..16)).saturating_sub(13)];
        let expected = || {
            let dtype = dtype?;
            let strides = elements(dtype, strides.as_ref())?;
            let span = arranged(dtype, &shape, strides.as_deref())?;
            let stream = match interface.stream {
                Some(0) => false,
                Some(1 | 2) => backend == "cuda",
                _ => true,
            };
            let good = stream && backend != "opencl" && !interface.masked;
            let version = matches!(interface.version, 2 | 3);
            (good && version && fits(interface.data.0 as i128, span)).then_some(())
        };
        let device = DeviceToken::new(backend, Some(DeviceKind::Gpu), 0);
        // SAFETY: no code dereferences the address or uses the stream.
        match unsafe { ArrayExchange::from_cuda_array_interface(&interface, device, Box::new(())) }
        {
            Ok(capsule) => {
                assert!(expected().is_some(), "{interface:?}");
                check(&capsule);
                if let Ok(ready) = capsule.host_wait() {
                    assert_eq!((interface.stream, interface.version), (None, 3));
                    pass_on(ready);
                }
                taken += 1;
            }
            Err(refused) => assert!(expected().is_none(), "{refused} {interface:?}"),
        }
    }
    assert!(taken > CASES / 20, "{taken}");
}

#[test]
fn sycl_usm() {
    let mut rng = Rng::with_seed(5);
    let mut taken = 0;
    for _ in 0..CASES {
        let (typestr, _, dtype) = typestr(&mut rng);
        let (shape, strides) = arrangement(&mut rng);
        const FILTERS: [(&str, bool); 9] = [
            ("opencl:gpu:0", true),
            ("level_zero", true),
            ("cuda:1", true),
            ("opencl:cpu:0:1", false),
            ("gpu", false),
            ("", false),
            ("opencl:gpu:-1", false),
            ("opencl:gpu:+1", false),
            (":::", false),
        ];
        let (filter, known) = FILTERS[rng.usize(..8).min(rng.usize(..8))];
        let handle = NativeHandle { api: "sycl", kind: NativeKind::Context, raw: rng.usize(..) };
        let interface = SyclUsmArrayInterface {
            shape: shape.iter().copied().collect(),
            typestr: typestr.into(),
            data: (address(&mut rng), rng.bool()),
            strides: strides.as_ref().map(|strides| strides.iter().copied().collect()),
            offset: if rng.bool() { 0 } else { number(&mut rng) },
            syclobj: match rng.bool() {
                true => SyclObject::Filter(filter.to_owned()),
                false => SyclObject::Handle(handle),
            },
            version: if rng.u8(..32) == 0 { number(&mut rng) } else { 1 },
        };
        let expected = || {
            let dtype = dtype?;
            let span = arranged(dtype, &shape, strides.as_deref())?;
            let skipped = i128::from(interface.offset) * dtype.size() as i128;
            let first = interface.data.0 as i128 + skipped;
            let named = matches!(interface.syclobj, SyclObject::Handle(_)) || known;
            let top = i128::try_from(usize::MAX).unwrap();
            let there = interface.data.0 != 0
                && (isize::MIN as i128..=MOST).contains(&skipped)
                && (1..=top).contains(&first);
            (named && interface.version == 1 && there && fits(first, span)).then_some(())
        };
        // SAFETY: no code dereferences the address.
        match unsafe { ArrayExchange::from_sycl_usm(&interface, Box::new(())) } {
            Ok(capsule) => {
                assert!(expected().is_some(), "{interface:?}");
                check(&capsule);
                drop(capsule.into_sycl_usm());
                taken += 1;
            }
            Err(refused) => assert!(expected().is_none(), "{refused} {interface:?}"),
        }
    }
    assert!(taken > CASES / 20, "{taken}");
}

static ARROWS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the structure that is being released.
    unsafe { (*array).release = None };
    ARROWS.fetch_add(1, Ordering::Relaxed);
}

static SCHEMAS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: as above.
    unsafe { (*schema).release = None };
    SCHEMAS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn arrow() {
    const FORMATS: [(&CStr, usize); 14] = [
        (c"c", 1),
        (c"s", 2),
        (c"i", 4),
        (c"l", 8),
        (c"C", 1),
        (c"S", 2),
        (c"I", 4),
        (c"L", 8),
        (c"e", 2),
        (c"f", 4),
        (c"g", 8),
        (c"b", 0),
        (c"", 0),
        (c"+l", 0),
    ];
    let mut rng = Rng::with_seed(6);
    let (mut taken, mut released, mut schemas) = (0, 0, 0);
    let bits = 0_u8;
    let mut event = 77_usize;
    for _ in 0..CASES {
        let (format, size) = FORMATS[rng.usize(..14)];
        let data = address(&mut rng);
        let nulls = rng.u8(..16) == 0;
        let validity = if nulls { (&raw const bits).cast() } else { ptr::null() };
        let mut buffers: [*const c_void; 2] = [validity, ptr::without_provenance(data)];
        let rarely =
            |rng: &mut Rng, usual: i64| if rng.u8(..32) == 0 { number(rng) } else { usual };
        // The fields of a released schema are invalid.
        let wild = ptr::without_provenance(address(&mut rng));
        let (format, release): (_, Option<unsafe extern "C" fn(_)>) = match rng.u8(..32) {
            0 => (wild, None),
            1 => (ptr::null(), Some(release_schema)),
            _ => (format.as_ptr(), Some(release_schema)),
        };
        let n_children = rarely(&mut rng, 0);
        let schema = ArrowSchema { format, n_children, release, ..ArrowSchema::released() };
        let array = ArrowArray {
            length: number(&mut rng),
            null_count: rng.i64(-1..3),
            offset: if rng.bool() { 0 } else { number(&mut rng) },
            n_buffers: rarely(&mut rng, 2),
            n_children: rarely(&mut rng, 0),
            buffers: if rng.u8(..32) == 0 { ptr::null_mut() } else { buffers.as_mut_ptr() },
            release: (rng.u8(..32) != 0).then_some(release_array),
            ..ArrowArray::released()
        };
        let array = ArrowDeviceArray {
            array,
            device_id: if rng.u8(..8) == 0 { number(&mut rng) } else { 0 },
            device_type: if rng.u8(..4) == 0 { rng.i32(-1..20) } else { rng.i32(1..4) },
            sync_event: match rng.bool() {
                true => (&raw mut event).cast(),
                false => ptr::null_mut(),
            },
            reserved: [0; 3],
        };
        let device = match array.device_type {
            1 => array.sync_event.is_null(),
            3 | 11 | 13 => i32::try_from(array.device_id).is_ok(),
            2 | 10 | 14 => (0..=i64::from(i32::MAX)).contains(&array.device_id),
            _ => false,
        };
        let ArrowArray { length, offset, null_count, n_buffers, n_children, .. } = array.array;
        let shaped = device
            && array.array.release.is_some()
            && schema.release.is_some()
            && !schema.format.is_null()
            && (n_children, schema.n_children, n_buffers) == (0, 0, 2)
            && !array.array.buffers.is_null()
            && (!nulls || null_count == 0);
        let expected = || {
            let span = (size > 0).then(|| span(size, &[length], None)).flatten()?;
            let skipped = i128::from(offset) * size as i128;
            let first = if data == 0 { 0 } else { data as i128 + skipped };
            let top = i128::try_from(usize::MAX).unwrap();
            (offset >= 0 && (data == 0 || skipped <= top && first <= top) && fits(first, span))
                .then_some(())
        };
        let expected = if shaped { expected() } else { None };
        released += usize::from(array.array.release.is_some());
        schemas += usize::from(schema.release.is_some());
        let shown = format!("{array:?}");
        // SAFETY: as described; no code dereferences the address or uses the event.
        let arrow = unsafe { ArrowDevice::from_raw(schema, array) };
        match ArrayExchange::from_arrow(arrow) {
            Ok(capsule) => {
                assert!(expected.is_some(), "{shown}");
                check(&capsule);
                assert_eq!(capsule.access(), Access::ReadOnly);
                assert_ne!(capsule.kind(), MemoryKind::Object);
                if let Ok(ready) = capsule.host_wait() {
                    drop(ready.into_arrow());
                }
                taken += 1;
            }
            Err(refused) => assert!(expected.is_none(), "{refused} {shown}"),
        }
        assert_eq!(ARROWS.load(Ordering::Relaxed), released);
        assert_eq!(SCHEMAS.load(Ordering::Relaxed), schemas);
    }
    assert!(taken > CASES / 20, "{taken}");
}
