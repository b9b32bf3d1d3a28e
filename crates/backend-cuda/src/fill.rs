//! Filling memory.
#![expect(unsafe_code, reason = "enqueues fills through the driver")]

use std::ffi::c_void;
use std::ptr;

use backend_support::Fill;
use cudarc::driver::sys::CUdeviceptr;
use runtime_core::Result;

use crate::shipped::Shipped;
use crate::stream::CudaStream;

const OPERATION: &str = "memory_fill";

/// Threads of a block, and blocks of a launch for each multiprocessor.
const BLOCK: u32 = 256;
const BLOCKS_PER_UNIT: u32 = 8;

impl CudaStream {
    /// Enqueues filling `bytes` from an address on.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of this device, and is made of whole patterns at aligned places.
    pub(crate) unsafe fn fill(&self, to: CUdeviceptr, bytes: usize, fill: Fill) -> Result<()> {
        if let Fill::Pattern(words) = fill {
            // SAFETY: the caller vouches for the range.
            return unsafe { self.fill_pattern(to, bytes, words) };
        }
        self.enqueue(OPERATION, "a fill", |driver, stream| match fill {
            // SAFETY: the caller vouches for the range.
            Fill::Bytes(value) => unsafe { (driver.cuMemsetD8Async)(to, value, bytes, stream) },
            // SAFETY: as above.
            Fill::Halves(value) => unsafe {
                (driver.cuMemsetD16Async)(to, value, bytes / 2, stream)
            },
            // SAFETY: as above.
            Fill::Words(value) | Fill::Pattern([value, ..]) => unsafe {
                (driver.cuMemsetD32Async)(to, value, bytes / 4, stream)
            },
        })
    }

    /// # Safety
    ///
    /// As [`fill`](Self::fill).
    unsafe fn fill_pattern(&self, to: CUdeviceptr, bytes: usize, words: [u32; 4]) -> Result<()> {
        let shared = &self.shared;
        let function = shared.shipped.function(Shipped::Fill);
        let function = function.map_err(|code| shared.error(OPERATION, code, "its kernel"))?;
        let count = bytes as u64 / 4;
        let blocks = count.div_ceil(BLOCK.into());
        let most = shared.compute_units.saturating_mul(BLOCKS_PER_UNIT);
        let grid = u32::try_from(blocks).unwrap_or(u32::MAX).min(most);
        let [a, b, c, d] = &words;
        let mut pointers =
            [address(&to), address(&count), address(a), address(b), address(c), address(d)];
        self.enqueue(OPERATION, "a fill", |driver, stream| {
            let (launch, arguments) = (driver.cuLaunchKernel, pointers.as_mut_ptr());
            // SAFETY: the arguments have the types of the kernel's parameters and are copied by the call, and the caller
            // vouches for the range.
            unsafe {
                launch(function, grid, 1, 1, BLOCK, 1, 1, 0, stream, arguments, ptr::null_mut())
            }
        })
    }
}

/// Where an argument lies, from where the driver copies it.
pub(crate) fn address<T>(argument: &T) -> *mut c_void {
    ptr::from_ref(argument).cast_mut().cast()
}
