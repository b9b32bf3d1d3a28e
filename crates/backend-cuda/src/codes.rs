//! The meaning of the driver's codes.

use backend_gpu::Codes;
use cudarc::driver::sys::CUresult as Cu;
use runtime_core::ErrorKind;

use crate::vendor::Cuda;

/// An argument out of its range.
pub(crate) const INVALID_VALUE: u32 = Cu::CUDA_ERROR_INVALID_VALUE as u32;

impl Codes for Cuda {
    const NOT_READY: u32 = Cu::CUDA_ERROR_NOT_READY as u32;
    const OUT_OF_MEMORY: u32 = Cu::CUDA_ERROR_OUT_OF_MEMORY as u32;
    const NOT_FOUND: u32 = Cu::CUDA_ERROR_NOT_FOUND as u32;
    const NOT_SUPPORTED: u32 = Cu::CUDA_ERROR_NOT_SUPPORTED as u32;
    const PEER_ACCESS_ALREADY_ENABLED: u32 = Cu::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32;

    fn is_sticky(code: u32) -> bool {
        const STICKY: &[Cu] = &[
            Cu::CUDA_ERROR_ECC_UNCORRECTABLE,
            Cu::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            Cu::CUDA_ERROR_ILLEGAL_ADDRESS,
            Cu::CUDA_ERROR_LAUNCH_TIMEOUT,
            Cu::CUDA_ERROR_CONTEXT_IS_DESTROYED,
            Cu::CUDA_ERROR_ASSERT,
            Cu::CUDA_ERROR_HARDWARE_STACK_ERROR,
            Cu::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            Cu::CUDA_ERROR_MISALIGNED_ADDRESS,
            Cu::CUDA_ERROR_INVALID_ADDRESS_SPACE,
            Cu::CUDA_ERROR_INVALID_PC,
            Cu::CUDA_ERROR_LAUNCH_FAILED,
            Cu::CUDA_ERROR_EXTERNAL_DEVICE,
            Cu::CUDA_ERROR_MPS_CLIENT_TERMINATED,
        ];
        /// `CUDA_ERROR_CONTAINED` and `CUDA_ERROR_TENSOR_MEMORY_LEAK`, which only drivers newer than the bindings report.
        const NEWER: [u32; 2] = [226, 721];
        NEWER.contains(&code) || STICKY.iter().any(|sticky| *sticky as u32 == code)
    }

    fn is_of_capture(code: u32) -> bool {
        const FIRST: u32 = Cu::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as u32;
        const LAST: u32 = Cu::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as u32;
        (FIRST..=LAST).contains(&code)
    }

    fn kind(code: u32) -> ErrorKind {
        const KINDS: &[(ErrorKind, &[Cu])] = &[
            (ErrorKind::OutOfMemory, &[Cu::CUDA_ERROR_OUT_OF_MEMORY]),
            (
                ErrorKind::InvalidArgument,
                &[
                    Cu::CUDA_ERROR_INVALID_VALUE,
                    Cu::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                    Cu::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                    Cu::CUDA_ERROR_INVALID_CLUSTER_SIZE,
                ],
            ),
            (
                ErrorKind::InvalidModule,
                &[
                    Cu::CUDA_ERROR_INVALID_IMAGE,
                    Cu::CUDA_ERROR_NO_BINARY_FOR_GPU,
                    Cu::CUDA_ERROR_INVALID_PTX,
                    Cu::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                    Cu::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
                    Cu::CUDA_ERROR_JIT_COMPILATION_DISABLED,
                    Cu::CUDA_ERROR_INVALID_SOURCE,
                    Cu::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
                ],
            ),
            (ErrorKind::KernelNotFound, &[Cu::CUDA_ERROR_NOT_FOUND]),
            (
                ErrorKind::DeviceLost,
                &[Cu::CUDA_ERROR_DEVICE_UNAVAILABLE, Cu::CUDA_ERROR_DEINITIALIZED],
            ),
        ];
        if Self::is_sticky(code) {
            return ErrorKind::DeviceLost;
        }
        KINDS
            .iter()
            .find(|(_, codes)| codes.iter().any(|known| *known as u32 == code))
            .map_or(ErrorKind::Driver, |(kind, _)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_of_the_kind_that_a_caller_acts_on() {
        for (code, expected) in [
            (2, ErrorKind::OutOfMemory),
            (701, ErrorKind::InvalidArgument),
            (912, ErrorKind::InvalidArgument),
            (218, ErrorKind::InvalidModule),
            (500, ErrorKind::KernelNotFound),
            (700, ErrorKind::DeviceLost),
            (226, ErrorKind::DeviceLost),
            (721, ErrorKind::DeviceLost),
            (46, ErrorKind::DeviceLost),
            (400, ErrorKind::Driver),
            (123_456, ErrorKind::Driver),
        ] {
            assert_eq!(Cuda::kind(code), expected, "{code}");
        }
    }
}
