//! The meaning of the runtime's codes.

use std::ops::RangeInclusive;

use backend_gpu::{Codes, codes};
use hip_sys::hiprt::hipError_t as Code;
use runtime_core::ErrorKind;

use crate::hip::Hip;

impl Codes for Hip {
    const NOT_READY: u32 = Code::hipErrorNotReady as u32;
    const OUT_OF_MEMORY: u32 = Code::hipErrorOutOfMemory as u32;
    const NOT_FOUND: u32 = Code::hipErrorNotFound as u32;
    const NOT_SUPPORTED: u32 = Code::hipErrorNotSupported as u32;
    const PEER_ACCESS_ALREADY_ENABLED: u32 = Code::hipErrorPeerAccessAlreadyEnabled as u32;

    const STICKY: &'static [u32] = codes![
        Code:
        hipErrorECCNotCorrectable,
        hipErrorIllegalAddress,
        hipErrorLaunchTimeOut,
        hipErrorContextIsDestroyed,
        hipErrorAssert,
        hipErrorLaunchFailure,
    ];

    const OF_CAPTURE: RangeInclusive<u32> = Code::hipErrorStreamCaptureUnsupported as u32
        ..=Code::hipErrorStreamCaptureWrongThread as u32;

    const KINDS: &'static [(ErrorKind, &'static [u32])] = &[
        (ErrorKind::OutOfMemory, codes![Code: hipErrorOutOfMemory]),
        (
            ErrorKind::InvalidArgument,
            codes![
                Code:
                hipErrorInvalidValue,
                hipErrorInvalidConfiguration,
                hipErrorLaunchOutOfResources,
                hipErrorCooperativeLaunchTooLarge,
            ],
        ),
        (
            ErrorKind::InvalidModule,
            codes![
                Code:
                hipErrorInvalidImage,
                hipErrorNoBinaryForGpu,
                hipErrorInvalidKernelFile,
                hipErrorInvalidSource,
                hipErrorSharedObjectSymbolNotFound,
                hipErrorSharedObjectInitFailed,
            ],
        ),
        (ErrorKind::KernelNotFound, codes![Code: hipErrorNotFound]),
        (ErrorKind::Conflict, codes![Code: hipErrorHostMemoryAlreadyRegistered]),
        (ErrorKind::DeviceLost, codes![Code: hipErrorDeinitialized]),
    ];
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
            (712, ErrorKind::Conflict),
            (700, ErrorKind::DeviceLost),
            (719, ErrorKind::DeviceLost),
            (400, ErrorKind::Driver),
            (123_456, ErrorKind::Driver),
        ] {
            assert_eq!(Hip::kind(code), expected, "{code}");
        }
    }
}
