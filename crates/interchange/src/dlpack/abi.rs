//! DLPack's structures, as its header has them (version 1.3), and its numbers.

use std::ffi::c_void;

/// The version of the structures below. Another major one has other structures.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DLPackVersion {
    /// Counts changes of the structures.
    pub major: u32,
    /// Counts additions of numbers.
    pub minor: u32,
}

/// What is spoken here.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 3 };

/// A device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// Whose device: see [`device`].
    pub device_type: i32,
    /// Which; 0 for memory of the host, pinned or not, and for managed memory.
    pub device_id: i32,
}

/// An element type.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// Kind of number: see [`code`].
    pub code: u8,
    /// Bits of one number, both parts of a complex one together.
    pub bits: u8,
    /// Numbers in one element.
    pub lanes: u16,
}

/// An array.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// An address, or a memory object; null if there are no elements.
    pub data: *mut c_void,
    /// Where.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Of elements.
    pub dtype: DLDataType,
    /// `ndim` extents; may be null without dimensions.
    pub shape: *mut i64,
    /// `ndim` strides in elements. Null before version 1.2 is row-major without gaps.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// An array with an owner. Up to `flags` it is the same in all versions.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version that the producer wrote.
    pub version: DLPackVersion,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Gives the whole structure back; may be null.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// See [`flag`].
    pub flags: u64,
    /// The array.
    pub dl_tensor: DLTensor,
}

/// An array with an owner, as it was before version 1.0, without a word on whether it may be written.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The array.
    pub dl_tensor: DLTensor,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Gives the whole structure back; may be null.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// Bits of [`DLManagedTensorVersioned::flags`].
pub mod flag {
    /// The array may not be written.
    pub const READ_ONLY: u64 = 1;
    /// It is a copy, which nobody else has.
    pub const IS_COPIED: u64 = 2;
    /// Elements of less than a byte have one each.
    pub const IS_SUBBYTE_TYPE_PADDED: u64 = 4;
}

/// Values of [`DLDevice::device_type`].
#[expect(missing_docs, reason = "the names say it")]
pub mod device {
    pub const CPU: i32 = 1;
    pub const CUDA: i32 = 2;
    pub const CUDA_HOST: i32 = 3;
    pub const OPENCL: i32 = 4;
    pub const ROCM: i32 = 10;
    pub const ROCM_HOST: i32 = 11;
    pub const CUDA_MANAGED: i32 = 13;
    pub const ONE_API: i32 = 14;
}

/// Values of [`DLDataType::code`].
#[expect(missing_docs, reason = "the names say it")]
pub mod code {
    pub const INT: u8 = 0;
    pub const UINT: u8 = 1;
    pub const FLOAT: u8 = 2;
    pub const BFLOAT: u8 = 4;
    pub const COMPLEX: u8 = 5;
    pub const BOOL: u8 = 6;
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;

    assert!(size_of::<DLTensor>() == 48);
    assert!(offset_of!(DLTensor, shape) == 24 && offset_of!(DLTensor, byte_offset) == 40);
    assert!(size_of::<DLManagedTensorVersioned>() == 80);
    assert!(offset_of!(DLManagedTensorVersioned, deleter) == 16);
    assert!(offset_of!(DLManagedTensorVersioned, flags) == 24);
    assert!(offset_of!(DLManagedTensorVersioned, dl_tensor) == 32);
    assert!(size_of::<DLManagedTensor>() == 64);
    assert!(offset_of!(DLManagedTensor, deleter) == 56);
};
