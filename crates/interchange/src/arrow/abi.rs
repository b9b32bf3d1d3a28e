//! The structures of the Arrow C data and C device data interfaces, as the specification defines them.

use std::ffi::{c_char, c_void};
use std::ptr;

/// The type of an array's elements.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    /// The type, such as `g` for `f64`.
    pub format: *const c_char,
    /// A name, or null.
    pub name: *const c_char,
    /// Key-value pairs, or null.
    pub metadata: *const c_char,
    /// Bits: 2 means that elements may be null.
    pub flags: i64,
    /// The number of children.
    pub n_children: i64,
    /// The children.
    pub children: *mut *mut Self,
    /// The type of a dictionary, or null.
    pub dictionary: *mut Self,
    /// Releases the structure. Null if it was released already, or if another structure releases it.
    pub release: Option<unsafe extern "C" fn(*mut Self)>,
    /// Private data of the producer.
    pub private_data: *mut c_void,
}

/// An array.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    /// The number of elements.
    pub length: i64,
    /// The number of null elements; −1 if it was not counted.
    pub null_count: i64,
    /// The number of elements to skip in the buffers.
    pub offset: i64,
    /// The number of buffers: 2 for numbers.
    pub n_buffers: i64,
    /// The number of children.
    pub n_children: i64,
    /// Addresses: first the validity bitmap, or null; then the elements.
    pub buffers: *mut *const c_void,
    /// The children.
    pub children: *mut *mut Self,
    /// A dictionary, or null.
    pub dictionary: *mut Self,
    /// Releases the structure. Null if it was released already, or if another structure releases it.
    pub release: Option<unsafe extern "C" fn(*mut Self)>,
    /// Private data of the producer.
    pub private_data: *mut c_void,
}

/// An array on a device.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArray {
    /// The array; its buffers are in device memory.
    pub array: ArrowArray,
    /// The number of the device; −1 for the host.
    pub device_id: i64,
    /// The type of the device: DLPack's [numbers](crate::dlpack::abi::device).
    pub device_type: i32,
    /// Points to an event of the device that must complete before the elements are read, or null.
    pub sync_event: *mut c_void,
    /// Zeros.
    pub reserved: [i64; 3],
}

impl ArrowSchema {
    /// A released structure, for a producer to fill.
    pub const fn released() -> Self {
        Self {
            format: ptr::null(),
            name: ptr::null(),
            metadata: ptr::null(),
            flags: 0,
            n_children: 0,
            children: ptr::null_mut(),
            dictionary: ptr::null_mut(),
            release: None,
            private_data: ptr::null_mut(),
        }
    }
}

impl ArrowArray {
    /// A released structure, for a producer to fill.
    pub const fn released() -> Self {
        Self {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: ptr::null_mut(),
            children: ptr::null_mut(),
            dictionary: ptr::null_mut(),
            release: None,
            private_data: ptr::null_mut(),
        }
    }
}

impl ArrowDeviceArray {
    /// A released structure, for a producer to fill.
    pub const fn released() -> Self {
        Self {
            array: ArrowArray::released(),
            device_id: 0,
            device_type: 0,
            sync_event: ptr::null_mut(),
            reserved: [0; 3],
        }
    }
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;

    assert!(size_of::<ArrowSchema>() == 72);
    assert!(size_of::<ArrowArray>() == 80);
    assert!(size_of::<ArrowDeviceArray>() == 128);
    assert!(offset_of!(ArrowDeviceArray, sync_event) == 96);
};
