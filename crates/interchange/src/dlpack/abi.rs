//! DLPack's structures and numbers, as in its header (version 1.3).

use std::ffi::c_void;

/// The version of the structures below. A different major version has different structures.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DLPackVersion {
    /// Increases when the structures change.
    pub major: u32,
    /// Increases when numbers are added.
    pub minor: u32,
}

/// The version that this crate implements.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 3 };

/// A device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// The type of the device: see [`device`].
    pub device_type: i32,
    /// The number of the device; 0 for host memory, pinned or not, and for managed memory.
    pub device_id: i32,
}

/// An element type.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// The kind of number: see [`code`].
    pub code: u8,
    /// The bits of one number; for a complex number, both parts together.
    pub bits: u8,
    /// The count of numbers in one element.
    pub lanes: u16,
}

/// An array.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// An address, or a memory object; null if there are no elements.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The element type.
    pub dtype: DLDataType,
    /// `ndim` extents; may be null if there are no dimensions.
    pub shape: *mut i64,
    /// `ndim` strides in elements. Before version 1.2, null means row-major without gaps.
    pub strides: *mut i64,
    /// The number of bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// An array with an owner. The fields up to `flags` are the same in all versions.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version that the producer wrote.
    pub version: DLPackVersion,
    /// Private data of the producer.
    pub manager_ctx: *mut c_void,
    /// Frees the whole structure; may be null.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// See [`flag`].
    pub flags: u64,
    /// The array.
    pub dl_tensor: DLTensor,
}

/// An array with an owner, as before version 1.0. It does not say whether the array may be written.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The array.
    pub dl_tensor: DLTensor,
    /// Private data of the producer.
    pub manager_ctx: *mut c_void,
    /// Frees the whole structure; may be null.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// Bits of [`DLManagedTensorVersioned::flags`].
pub mod flag {
    /// The array may not be written.
    pub const READ_ONLY: u64 = 1;
    /// The array is a copy that no other code uses.
    pub const IS_COPIED: u64 = 2;
    /// Elements smaller than a byte are padded to one byte each.
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
