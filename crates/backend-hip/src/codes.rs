//! The meaning of the runtime's codes.

use backend_gpu::Codes;
use hip_sys::hiprt::hipError_t as Code;
use runtime_core::ErrorKind;

use crate::vendor::Hip;

/// The runtime lacks the function, or does not support its operation.
pub(crate) const NOT_SUPPORTED: u32 = Code::hipErrorNotSupported as u32;

impl Codes for Hip {
    const NOT_READY: u32 = Code::hipErrorNotReady as u32;
    const OUT_OF_MEMORY: u32 = Code::hipErrorOutOfMemory as u32;
    const NOT_FOUND: u32 = Code::hipErrorNotFound as u32;
    const NOT_SUPPORTED: u32 = NOT_SUPPORTED;
    const PEER_ACCESS_ALREADY_ENABLED: u32 = Code::hipErrorPeerAccessAlreadyEnabled as u32;

    fn is_sticky(code: u32) -> bool {
        const STICKY: &[Code] = &[
            Code::hipErrorECCNotCorrectable,
            Code::hipErrorIllegalAddress,
            Code::hipErrorLaunchTimeOut,
            Code::hipErrorContextIsDestroyed,
            Code::hipErrorAssert,
            Code::hipErrorLaunchFailure,
        ];
        is_one_of(code, STICKY)
    }

    fn is_of_capture(code: u32) -> bool {
        const FIRST: u32 = Code::hipErrorStreamCaptureUnsupported as u32;
        const LAST: u32 = Code::hipErrorStreamCaptureWrongThread as u32;
        (FIRST..=LAST).contains(&code)
    }

    fn kind(code: u32) -> ErrorKind {
        const KINDS: &[(ErrorKind, &[Code])] = &[
            (ErrorKind::OutOfMemory, &[Code::hipErrorOutOfMemory]),
            (
                ErrorKind::InvalidArgument,
                &[
                    Code::hipErrorInvalidValue,
                    Code::hipErrorInvalidConfiguration,
                    Code::hipErrorLaunchOutOfResources,
                    Code::hipErrorCooperativeLaunchTooLarge,
                ],
            ),
            (
                ErrorKind::InvalidModule,
                &[
                    Code::hipErrorInvalidImage,
                    Code::hipErrorNoBinaryForGpu,
                    Code::hipErrorInvalidKernelFile,
                    Code::hipErrorInvalidSource,
                    Code::hipErrorSharedObjectSymbolNotFound,
                    Code::hipErrorSharedObjectInitFailed,
                ],
            ),
            (ErrorKind::KernelNotFound, &[Code::hipErrorNotFound]),
            (ErrorKind::DeviceLost, &[Code::hipErrorDeinitialized]),
        ];
        if Self::is_sticky(code) {
            return ErrorKind::DeviceLost;
        }
        KINDS
            .iter()
            .find(|(_, codes)| is_one_of(code, codes))
            .map_or(ErrorKind::Driver, |(kind, _)| *kind)
    }
}

fn is_one_of(code: u32, codes: &[Code]) -> bool {
    codes.iter().any(|known| *known as u32 == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_of_the_kind_that_a_caller_acts_on() {
        for (code, expected) in [
            (2, ErrorKind::OutOfMemory),
            (9, ErrorKind::InvalidArgument),
            (701, ErrorKind::InvalidArgument),
            (209, ErrorKind::InvalidModule),
            (500, ErrorKind::KernelNotFound),
            (700, ErrorKind::DeviceLost),
            (719, ErrorKind::DeviceLost),
            (400, ErrorKind::Driver),
            (123_456, ErrorKind::Driver),
        ] {
            assert_eq!(Hip::kind(code), expected, "{code}");
        }
    }
}
