//! Shared by the tests: owners that count drops, arrays of every layout, and tensors as another library would make
//! them.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![allow(dead_code, reason = "each test takes what it needs")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use interchange::dlpack::DlpackTensor;
use interchange::dlpack::abi::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use runtime_core::DType;

/// Counts the drops of its owners.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner(self.clone())
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of owners that were dropped.
    pub(crate) fn dropped(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) struct Owner(Count);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// A tensor as another library would make it, with all that its deleter needs.
pub(crate) struct Foreign {
    pub(crate) version: DLPackVersion,
    pub(crate) flags: u64,
    pub(crate) tensor: DLTensor,
    pub(crate) shape: Vec<i64>,
    /// `None` is a null pointer.
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) count: Count,
    pub(crate) has_deleter: bool,
}

impl Foreign {
    /// An array of one type at `data` on the host, with these extents.
    pub(crate) fn new(dtype: DType, data: usize, shape: &[i64], strides: Option<&[i64]>) -> Self {
        Self {
            version: DLPackVersion { major: 1, minor: 1 },
            flags: 0,
            tensor: DLTensor {
                data: ptr::with_exposed_provenance_mut(data),
                device: DLDevice { device_type: 1, device_id: 0 },
                ndim: i32::try_from(shape.len()).unwrap(),
                dtype: data_type(dtype),
                shape: ptr::null_mut(),
                strides: ptr::null_mut(),
                byte_offset: 0,
            },
            shape: shape.to_vec(),
            strides: strides.map(<[i64]>::to_vec),
            count: Count::new(),
            has_deleter: true,
        }
    }

    pub(crate) fn on(mut self, device_type: i32, device_id: i32) -> Self {
        self.tensor.device = DLDevice { device_type, device_id };
        self
    }

    pub(crate) fn flags(self, flags: u64) -> Self {
        Self { flags, ..self }
    }

    pub(crate) fn counted(self, count: &Count) -> Self {
        Self { count: count.clone(), ..self }
    }

    fn pointed(mut self: Box<Self>) -> (Box<Self>, DLTensor) {
        let shape = if self.shape.is_empty() { ptr::null_mut() } else { self.shape.as_mut_ptr() };
        let strides = self.strides.as_mut().map_or(ptr::null_mut(), |strides| strides.as_mut_ptr());
        let tensor = DLTensor { shape, strides, ..self.tensor };
        (self, tensor)
    }

    /// As a tensor of the current structure.
    pub(crate) fn versioned(self) -> DlpackTensor {
        let (version, flags, has_deleter) = (self.version, self.flags, self.has_deleter);
        let (this, dl_tensor) = Box::new(self).pointed();
        let managed = Box::new(DLManagedTensorVersioned {
            version,
            manager_ctx: Box::into_raw(this).cast(),
            deleter: has_deleter.then_some(delete_versioned),
            flags,
            dl_tensor,
        });
        let raw = NonNull::from(Box::leak(managed));
        // SAFETY: made here, and consistent; the test is responsible for the description of the elements.
        unsafe { DlpackTensor::from_versioned(raw) }
    }

    /// As a tensor of the old structure.
    pub(crate) fn legacy(self) -> DlpackTensor {
        let has_deleter = self.has_deleter;
        let (this, dl_tensor) = Box::new(self).pointed();
        let managed = Box::new(DLManagedTensor {
            dl_tensor,
            manager_ctx: Box::into_raw(this).cast(),
            deleter: has_deleter.then_some(delete_legacy),
        });
        let raw = NonNull::from(Box::leak(managed));
        // SAFETY: as above.
        unsafe { DlpackTensor::from_legacy(raw) }
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: made by `versioned`, and called once.
    let managed = unsafe { Box::from_raw(managed) };
    give_back(managed.manager_ctx);
}

unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: made by `legacy`, and called once.
    let managed = unsafe { Box::from_raw(managed) };
    give_back(managed.manager_ctx);
}

fn give_back(context: *mut c_void) {
    // SAFETY: the box that was stored there, taken once.
    let foreign = unsafe { Box::from_raw(context.cast::<Foreign>()) };
    foreign.count.add();
}

/// DLPack's code for a type, written independently of the crate.
pub(crate) fn data_type(dtype: DType) -> DLDataType {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::C64 | DType::C128 => 5,
        DType::Bool => 6,
        DType::Record(_) => unreachable!("no protocol has records"),
    };
    DLDataType { code, bits: u8::try_from(8 * dtype.size()).unwrap(), lanes: 1 }
}

/// The memory layout of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    Compact,
    Fortran,
    Reversed,
    Broadcast,
    Gaps,
    Empty,
}

pub(crate) const LIES: [Lie; 6] =
    [Lie::Compact, Lie::Fortran, Lie::Reversed, Lie::Broadcast, Lie::Gaps, Lie::Empty];

/// An array in host memory: pseudorandom bytes, and the position of its elements in them.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    /// In elements.
    pub(crate) strides: Vec<i64>,
    /// The address of element `[0, …, 0]`.
    pub(crate) first: usize,
    pub(crate) read_only: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Case {
    /// An array of `rank` dimensions that starts `skip` bytes after an aligned address.
    pub(crate) fn new(dtype: DType, rank: usize, lie: Lie, skip: usize, read_only: bool) -> Self {
        let mut shape: Vec<i64> = [3, 2, 4, 1, 2, 3][..rank].to_vec();
        if let (Lie::Empty, Some(last)) = (lie, shape.last_mut()) {
            *last = 0;
        }
        let mut strides = vec![0; rank];
        let mut step = if lie == Lie::Gaps { 2 } else { 1 };
        let order: Vec<usize> = match lie {
            Lie::Fortran => (0..rank).collect(),
            _ => (0..rank).rev().collect(),
        };
        for dim in order {
            strides[dim] = step;
            step *= shape[dim].max(1) + i64::from(lie == Lie::Gaps);
        }
        let (mut low, mut high) = (0, 0);
        for (dim, stride) in strides.iter_mut().enumerate() {
            match lie {
                Lie::Reversed => *stride = -*stride,
                Lie::Broadcast if dim % 2 == 0 => *stride = 0,
                _ => {}
            }
            let reach = *stride * (shape[dim] - 1).max(0);
            low += reach.min(0);
            high += reach.max(0);
        }
        let size = i64::try_from(dtype.size()).unwrap();
        let len = usize::try_from((high - low + 1) * size).unwrap() + skip;
        // 16 bytes more, so that there is room for alignment.
        let bytes: Vec<u8> = (0..len + 16).map(|i| u8::try_from(i * 37 % 251).unwrap()).collect();
        let begin = bytes.as_ptr().expose_provenance().next_multiple_of(16) + skip;
        let first = begin + usize::try_from(-low * size).unwrap();
        Self { dtype, shape, strides, first, read_only, bytes }
    }

    /// Runs `check` on all cases, with each of `skips` as the offset in bytes.
    pub(crate) fn all(skips: &[usize], mut check: impl FnMut(&Self)) {
        for dtype in DType::ALL {
            for rank in 0..=6 {
                for lie in LIES {
                    for &skip in skips {
                        for read_only in [false, true] {
                            check(&Self::new(dtype, rank, lie, skip, read_only));
                        }
                    }
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Whether several indices share an element.
    pub(crate) fn repeats(&self) -> bool {
        !self.is_empty()
            && self
                .shape
                .iter()
                .zip(&self.strides)
                .any(|(extent, stride)| *extent > 1 && *stride == 0)
    }

    /// Whether the imported array is writable.
    pub(crate) fn is_writable(&self) -> bool {
        !self.read_only && !self.repeats()
    }

    /// As a foreign tensor.
    pub(crate) fn foreign(&self) -> Foreign {
        Foreign::new(self.dtype, self.first, &self.shape, Some(&self.strides))
            .flags(u64::from(self.read_only))
    }

    /// The elements' bytes in the order of their indices.
    pub(crate) fn elements(&self) -> Vec<u8> {
        elements(self.dtype, self.first, &self.shape, &self.strides)
    }
}

/// The bytes of the elements in the order of their indices; `first` is the address of the first element.
pub(crate) fn elements(dtype: DType, first: usize, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if shape.contains(&0) {
        return bytes;
    }
    let count: i64 = shape.iter().product();
    for number in 0..count {
        let (mut rest, mut offset) = (number, 0);
        for (extent, stride) in shape.iter().zip(strides).rev() {
            offset += rest % extent * stride;
            rest /= extent;
        }
        let offset = isize::try_from(offset).unwrap() * dtype.size().cast_signed();
        let at = ptr::with_exposed_provenance::<u8>(first.wrapping_add_signed(offset));
        // SAFETY: inside the array, which the test keeps alive.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, dtype.size()) });
    }
    bytes
}
