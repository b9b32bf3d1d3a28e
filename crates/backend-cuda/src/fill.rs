//! Filling memory.
#![expect(unsafe_code, reason = "enqueues fills through the driver")]

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CUdeviceptr;
use runtime_core::Result;

use crate::shipped::Shipped;
use crate::stream::CudaStream;

const OPERATION: &str = "memory_fill";

/// Threads of a block, and blocks of a launch for each multiprocessor.
const BLOCK: u32 = 256;
const BLOCKS_PER_UNIT: u32 = 8;

/// A pattern as it is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Bytes(u8),
    Halves(u16),
    Words(u32),
    /// Words in turn.
    Pattern([u32; 4]),
}

impl Fill {
    /// The simplest way to fill with a pattern of 1, 2, 4, 8 or 16 bytes.
    pub(crate) fn of(pattern: &[u8]) -> Self {
        if let [first, rest @ ..] = pattern
            && rest.iter().all(|byte| byte == first)
        {
            return Self::Bytes(*first);
        }
        if let Ok(half) = pattern.try_into() {
            return Self::Halves(u16::from_ne_bytes(half));
        }
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(pattern.chunks_exact(4).cycle()) {
            *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
        }
        if words.iter().all(|word| *word == words[0]) {
            Self::Words(words[0])
        } else {
            Self::Pattern(words)
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_filled_in_the_simplest_way() {
        assert_eq!(Fill::of(&[7]), Fill::Bytes(7));
        assert_eq!(Fill::of(&[0; 16]), Fill::Bytes(0));
        assert_eq!(Fill::of(&[1, 2]), Fill::Halves(u16::from_ne_bytes([1, 2])));
        let [one, two] = [1.0_f32, 2.0];
        assert_eq!(Fill::of(&one.to_ne_bytes()), Fill::Words(one.to_bits()));
        let pair = [one.to_ne_bytes(), one.to_ne_bytes()].concat();
        assert_eq!(Fill::of(&pair), Fill::Words(one.to_bits()));
        let pair = [one.to_ne_bytes(), two.to_ne_bytes()].concat();
        let [a, b] = [one.to_bits(), two.to_bits()];
        assert_eq!(Fill::of(&pair), Fill::Pattern([a, b, a, b]));
    }
}
