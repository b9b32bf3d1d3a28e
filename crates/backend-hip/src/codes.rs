//! What the codes of the runtime mean.

use std::fmt::Display;

use hip_sys::hiprt::hipError_t as Hip;
use runtime_core::{Error, ErrorKind};

use crate::library::Functions;

/// Work is not over; no failure.
pub(crate) const NOT_READY: u32 = Hip::hipErrorNotReady as u32;
/// No room for an allocation.
pub(crate) const OUT_OF_MEMORY: u32 = Hip::hipErrorOutOfMemory as u32;
/// The runtime has the function, and cannot do what it is for.
pub(crate) const NOT_SUPPORTED: u32 = Hip::hipErrorNotSupported as u32;
/// One device reaches the other already.
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = Hip::hipErrorPeerAccessAlreadyEnabled as u32;

/// The error for a `code` that the runtime returned.
#[cold]
pub(crate) fn error(
    functions: &Functions,
    operation: &'static str,
    code: u32,
    what: impl Display,
) -> Error {
    Error::new(kind(code), operation, what.to_string())
        .with_driver(functions.name(code), code.into())
}

/// Whether the code says that a program went wrong so that its device is of no use any more: every later call for the
/// device returns it again.
pub(crate) fn is_sticky(code: u32) -> bool {
    const STICKY: &[Hip] = &[
        Hip::hipErrorECCNotCorrectable,
        Hip::hipErrorIllegalAddress,
        Hip::hipErrorLaunchTimeOut,
        Hip::hipErrorContextIsDestroyed,
        Hip::hipErrorAssert,
        Hip::hipErrorLaunchFailure,
    ];
    is_one_of(code, STICKY)
}

/// Whether the code says nothing of the device, however often it comes.
pub(crate) fn is_passing(code: u32) -> bool {
    matches!(code, NOT_READY | OUT_OF_MEMORY) || is_of_capture(code)
}

/// Whether the code says that a stream is captured, so that what is enqueued on it does not run.
pub(crate) fn is_of_capture(code: u32) -> bool {
    const FIRST: u32 = Hip::hipErrorStreamCaptureUnsupported as u32;
    const LAST: u32 = Hip::hipErrorStreamCaptureWrongThread as u32;
    (FIRST..=LAST).contains(&code)
}

fn is_one_of(code: u32, codes: &[Hip]) -> bool {
    codes.iter().any(|known| *known as u32 == code)
}

fn kind(code: u32) -> ErrorKind {
    const KINDS: &[(ErrorKind, &[Hip])] = &[
        (ErrorKind::OutOfMemory, &[Hip::hipErrorOutOfMemory]),
        (
            ErrorKind::InvalidArgument,
            &[
                Hip::hipErrorInvalidValue,
                Hip::hipErrorInvalidConfiguration,
                Hip::hipErrorLaunchOutOfResources,
                Hip::hipErrorCooperativeLaunchTooLarge,
            ],
        ),
        (
            ErrorKind::InvalidModule,
            &[
                Hip::hipErrorInvalidImage,
                Hip::hipErrorNoBinaryForGpu,
                Hip::hipErrorInvalidKernelFile,
                Hip::hipErrorInvalidSource,
                Hip::hipErrorSharedObjectSymbolNotFound,
                Hip::hipErrorSharedObjectInitFailed,
            ],
        ),
        (ErrorKind::KernelNotFound, &[Hip::hipErrorNotFound]),
        (ErrorKind::DeviceLost, &[Hip::hipErrorDeinitialized]),
    ];
    if is_sticky(code) {
        return ErrorKind::DeviceLost;
    }
    KINDS
        .iter()
        .find(|(_, codes)| is_one_of(code, codes))
        .map_or(ErrorKind::Driver, |(kind, _)| *kind)
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
            assert_eq!(kind(code), expected, "{code}");
        }
    }
}
