//! Names of codes.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{CStr, c_char};

use hip_sys::hiprt::hipError_t;
use stand_in::Code;
use stand_in::abi::{Out, name_of};

use crate::process::answer;
use crate::versions::check;

stand_in::code_names! {
    hipError_t:
    hipSuccess
    hipErrorInvalidValue
    hipErrorOutOfMemory
    hipErrorNotInitialized
    hipErrorDeinitialized
    hipErrorProfilerDisabled
    hipErrorProfilerNotInitialized
    hipErrorProfilerAlreadyStarted
    hipErrorProfilerAlreadyStopped
    hipErrorInvalidConfiguration
    hipErrorInvalidPitchValue
    hipErrorInvalidSymbol
    hipErrorInvalidDevicePointer
    hipErrorInvalidMemcpyDirection
    hipErrorInsufficientDriver
    hipErrorMissingConfiguration
    hipErrorPriorLaunchFailure
    hipErrorInvalidDeviceFunction
    hipErrorNoDevice
    hipErrorInvalidDevice
    hipErrorInvalidImage
    hipErrorInvalidContext
    hipErrorContextAlreadyCurrent
    hipErrorMapFailed
    hipErrorUnmapFailed
    hipErrorArrayIsMapped
    hipErrorAlreadyMapped
    hipErrorNoBinaryForGpu
    hipErrorAlreadyAcquired
    hipErrorNotMapped
    hipErrorNotMappedAsArray
    hipErrorNotMappedAsPointer
    hipErrorECCNotCorrectable
    hipErrorUnsupportedLimit
    hipErrorContextAlreadyInUse
    hipErrorPeerAccessUnsupported
    hipErrorInvalidKernelFile
    hipErrorInvalidGraphicsContext
    hipErrorInvalidSource
    hipErrorFileNotFound
    hipErrorSharedObjectSymbolNotFound
    hipErrorSharedObjectInitFailed
    hipErrorOperatingSystem
    hipErrorInvalidHandle
    hipErrorIllegalState
    hipErrorNotFound
    hipErrorNotReady
    hipErrorIllegalAddress
    hipErrorLaunchOutOfResources
    hipErrorLaunchTimeOut
    hipErrorPeerAccessAlreadyEnabled
    hipErrorPeerAccessNotEnabled
    hipErrorSetOnActiveProcess
    hipErrorContextIsDestroyed
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
    hipErrorStreamCaptureImplicit
    hipErrorCapturedEvent
    hipErrorStreamCaptureWrongThread
    hipErrorGraphExecUpdateFailure
    hipErrorUnknown
    hipErrorRuntimeMemory
    hipErrorRuntimeOther
    hipErrorTbd
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(code: u32) -> *const c_char {
    name_of(NAMES, code).unwrap_or(c"hipErrorUnknown").as_ptr()
}

/// The runtime has sentences here; the stand-in repeats the name.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(code: u32) -> *const c_char {
    hipGetErrorName(code)
}

#[unsafe(no_mangle)]
extern "C" fn hipDrvGetErrorName(code: u32, name: Out<*const c_char>) -> u32 {
    answer(|| {
        check("hipDrvGetErrorName")?;
        let found = name_of(NAMES, code);
        name.put(found.map_or(std::ptr::null(), CStr::as_ptr))?;
        found.map(drop).ok_or(Code::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDrvGetErrorString(code: u32, text: Out<*const c_char>) -> u32 {
    hipDrvGetErrorName(code, text)
}
