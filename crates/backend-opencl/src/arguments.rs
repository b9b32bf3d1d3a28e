//! Arguments of kernels.
#![expect(unsafe_code, reason = "sets arguments through the driver")]

use std::ffi::c_void;
use std::ptr;

use opencl3::kernel::set_kernel_arg;
use opencl3::types::{cl_int, cl_kernel, cl_mem, cl_uint};

use crate::memory::Place;
use crate::open_device::OpenDevice;

/// Sets memory by pointer, or a whole buffer, as an argument.
///
/// # Safety
///
/// The kernel is locked; a buffer's `origin` is 0.
pub(crate) unsafe fn set_memory(
    shared: &OpenDevice,
    kernel: cl_kernel,
    index: cl_uint,
    place: &Place,
    origin: usize,
) -> Result<(), cl_int> {
    match (place, &shared.pointers) {
        (Place::Pointer(address), Some(pointers)) => {
            let pointer = ptr::with_exposed_provenance::<c_void>(address + origin);
            // SAFETY: the caller holds the kernel's lock.
            unsafe { pointers.set_argument(kernel, index, pointer) }
        }
        // SAFETY: as above.
        (Place::Buffer(buffer), _) => unsafe { set_buffer(kernel, index, buffer.raw()) },
        // SAFETY: as above; memory by pointer exists only on devices that support it.
        (Place::Pointer(_), None) => unsafe { set_buffer(kernel, index, ptr::null_mut()) },
    }
}

/// Sets a buffer as an argument.
///
/// # Safety
///
/// The kernel is locked.
pub(crate) unsafe fn set_buffer(
    kernel: cl_kernel,
    index: cl_uint,
    buffer: cl_mem,
) -> Result<(), cl_int> {
    // SAFETY: the handle is only read during the call.
    unsafe { set_kernel_arg(kernel, index, size_of::<cl_mem>(), (&raw const buffer).cast()) }
}

/// Sets a number as an argument.
///
/// # Safety
///
/// The kernel is locked.
pub(crate) unsafe fn set_number(
    kernel: cl_kernel,
    index: cl_uint,
    number: u64,
) -> Result<(), cl_int> {
    // SAFETY: the number is copied during the call.
    unsafe { set_kernel_arg(kernel, index, size_of::<u64>(), (&raw const number).cast()) }
}
