//! The meaning of the driver's codes.

use std::ops::RangeInclusive;

use backend_gpu::{Codes, codes};
use cudarc::driver::sys::CUresult as Cu;
use runtime_core::ErrorKind;

use crate::cuda::Cuda;

/// An argument out of its range.
pub(crate) const INVALID_VALUE: u32 = Cu::CUDA_ERROR_INVALID_VALUE as u32;
/// `CUDA_ERROR_CONTAINED` and `CUDA_ERROR_TENSOR_MEMORY_LEAK`, which only drivers newer than the bindings report.
const NEWER: [u32; 2] = [226, 721];

impl Codes for Cuda {
    const NOT_READY: u32 = Cu::CUDA_ERROR_NOT_READY as u32;
    const OUT_OF_MEMORY: u32 = Cu::CUDA_ERROR_OUT_OF_MEMORY as u32;
    const NOT_FOUND: u32 = Cu::CUDA_ERROR_NOT_FOUND as u32;
    const NOT_SUPPORTED: u32 = Cu::CUDA_ERROR_NOT_SUPPORTED as u32;
    const PEER_ACCESS_ALREADY_ENABLED: u32 = Cu::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32;

    const STICKY: &'static [u32] = &[
        Cu::CUDA_ERROR_ECC_UNCORRECTABLE as u32,
        Cu::CUDA_ERROR_NVLINK_UNCORRECTABLE as u32,
        NEWER[0],
        Cu::CUDA_ERROR_ILLEGAL_ADDRESS as u32,
        Cu::CUDA_ERROR_LAUNCH_TIMEOUT as u32,
        Cu::CUDA_ERROR_CONTEXT_IS_DESTROYED as u32,
        Cu::CUDA_ERROR_ASSERT as u32,
        Cu::CUDA_ERROR_HARDWARE_STACK_ERROR as u32,
        Cu::CUDA_ERROR_ILLEGAL_INSTRUCTION as u32,
        Cu::CUDA_ERROR_MISALIGNED_ADDRESS as u32,
        Cu::CUDA_ERROR_INVALID_ADDRESS_SPACE as u32,
        Cu::CUDA_ERROR_INVALID_PC as u32,
        Cu::CUDA_ERROR_LAUNCH_FAILED as u32,
        NEWER[1],
        Cu::CUDA_ERROR_EXTERNAL_DEVICE as u32,
        Cu::CUDA_ERROR_MPS_CLIENT_TERMINATED as u32,
    ];

    const OF_CAPTURE: RangeInclusive<u32> = Cu::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as u32
        ..=Cu::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as u32;

    const KINDS: &'static [(ErrorKind, &'static [u32])] = &[
        (ErrorKind::OutOfMemory, codes![Cu: CUDA_ERROR_OUT_OF_MEMORY]),
        (
            ErrorKind::InvalidArgument,
            codes![
                Cu:
                CUDA_ERROR_INVALID_VALUE,
                CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                CUDA_ERROR_INVALID_CLUSTER_SIZE,
            ],
        ),
        (
            ErrorKind::InvalidModule,
            codes![
                Cu:
                CUDA_ERROR_INVALID_IMAGE,
                CUDA_ERROR_NO_BINARY_FOR_GPU,
                CUDA_ERROR_INVALID_PTX,
                CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
                CUDA_ERROR_JIT_COMPILATION_DISABLED,
                CUDA_ERROR_INVALID_SOURCE,
                CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
            ],
        ),
        (ErrorKind::KernelNotFound, codes![Cu: CUDA_ERROR_NOT_FOUND]),
        (ErrorKind::Conflict, codes![Cu: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED]),
        (
            ErrorKind::DeviceLost,
            codes![Cu: CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_DEINITIALIZED],
        ),
    ];
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
            (712, ErrorKind::Conflict),
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
