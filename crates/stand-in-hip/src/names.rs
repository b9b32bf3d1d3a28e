//! Names of codes.
#![expect(unsafe_code, reason = "exports a function by name")]

use std::ffi::c_char;

use hip_sys::hiprt::hipError_t;
use stand_in::abi::name_of;

stand_in::code_names! {
    hipError_t:
    hipSuccess
    hipErrorInvalidValue
    hipErrorOutOfMemory
    hipErrorNotInitialized
    hipErrorNoDevice
    hipErrorInvalidDevice
    hipErrorInvalidImage
    hipErrorInvalidContext
    hipErrorNoBinaryForGpu
    hipErrorECCNotCorrectable
    hipErrorInvalidKernelFile
    hipErrorOperatingSystem
    hipErrorInvalidHandle
    hipErrorNotFound
    hipErrorNotReady
    hipErrorIllegalAddress
    hipErrorLaunchOutOfResources
    hipErrorPeerAccessAlreadyEnabled
    hipErrorAssert
    hipErrorHostMemoryAlreadyRegistered
    hipErrorHostMemoryNotRegistered
    hipErrorLaunchFailure
    hipErrorCooperativeLaunchTooLarge
    hipErrorNotSupported
    hipErrorStreamCaptureUnsupported
    hipErrorStreamCaptureInvalidated
    hipErrorStreamCaptureMerge
    hipErrorStreamCaptureUnmatched
    hipErrorStreamCaptureUnjoined
    hipErrorStreamCaptureIsolation
    hipErrorCapturedEvent
    hipErrorStreamCaptureWrongThread
    hipErrorUnknown
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(code: u32) -> *const c_char {
    name_of(NAMES, code).unwrap_or(c"hipErrorUnknown").as_ptr()
}
