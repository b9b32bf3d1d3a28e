//! The meaning of OpenCL's error codes.

use std::fmt::Display;

use opencl3::error_codes::{self as cl, error_text};
use opencl3::types::cl_int;
use runtime_core::{Error, ErrorKind};

/// The error for a `code` that an OpenCL function returned.
#[cold]
pub(crate) fn error(operation: &'static str, code: cl_int, what: impl Display) -> Error {
    with_code(kind(code), operation, code, what)
}

/// The error for a command that ended with a negative `status`. Whatever the code, the program on the device did not
/// finish.
#[cold]
pub(crate) fn fault(operation: &'static str, status: cl_int, what: &str) -> Error {
    let kind = match kind(status) {
        lost @ ErrorKind::DeviceLost => lost,
        _ => ErrorKind::DeviceFault,
    };
    with_code(kind, operation, status, format_args!("{what} was not completed"))
}

fn with_code(kind: ErrorKind, operation: &'static str, code: cl_int, what: impl Display) -> Error {
    let error = Error::new(kind, operation, what.to_string());
    match error_text(code) {
        "UNKNOWN_ERROR" => error.with_driver("unknown OpenCL error", code.into()),
        name => error.with_driver(name, code.into()),
    }
}

/// Whether an allocation may succeed when other memory is freed.
pub(crate) fn is_lack_of_memory(code: cl_int) -> bool {
    kind(code) == ErrorKind::OutOfMemory && code != cl::CL_INVALID_BUFFER_SIZE
}

fn kind(code: cl_int) -> ErrorKind {
    match code {
        cl::DLOPEN_RUNTIME_LOAD_FAILED
        | cl::DLOPEN_FUNCTION_NOT_AVAILABLE
        | cl::CL_PLATFORM_NOT_FOUND_KHR
        | cl::CL_DEVICE_NOT_FOUND => ErrorKind::Unavailable,
        cl::CL_MEM_OBJECT_ALLOCATION_FAILURE
        | cl::CL_OUT_OF_RESOURCES
        | cl::CL_OUT_OF_HOST_MEMORY
        | cl::CL_INVALID_BUFFER_SIZE => ErrorKind::OutOfMemory,
        cl::CL_DEVICE_NOT_AVAILABLE
        | cl::CL_INVALID_COMMAND_QUEUE
        | cl::CL_CONTEXT_TERMINATED_KHR => ErrorKind::DeviceLost,
        cl::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => ErrorKind::DeviceFault,
        cl::CL_BUILD_PROGRAM_FAILURE
        | cl::CL_COMPILE_PROGRAM_FAILURE
        | cl::CL_LINK_PROGRAM_FAILURE
        | cl::CL_COMPILER_NOT_AVAILABLE
        | cl::CL_LINKER_NOT_AVAILABLE
        | cl::CL_INVALID_BINARY
        | cl::CL_INVALID_BUILD_OPTIONS
        | cl::CL_INVALID_COMPILER_OPTIONS
        | cl::CL_INVALID_PROGRAM
        | cl::CL_INVALID_PROGRAM_EXECUTABLE => ErrorKind::InvalidModule,
        cl::CL_INVALID_KERNEL_NAME => ErrorKind::KernelNotFound,
        cl::CL_INVALID_VALUE
        | cl::CL_INVALID_ARG_INDEX
        | cl::CL_INVALID_ARG_VALUE
        | cl::CL_INVALID_ARG_SIZE
        | cl::CL_INVALID_KERNEL_ARGS
        | cl::CL_INVALID_WORK_DIMENSION
        | cl::CL_INVALID_WORK_GROUP_SIZE
        | cl::CL_INVALID_WORK_ITEM_SIZE
        | cl::CL_INVALID_GLOBAL_WORK_SIZE
        | cl::CL_INVALID_GLOBAL_OFFSET
        | cl::CL_INVALID_MEM_OBJECT
        | cl::CL_MISALIGNED_SUB_BUFFER_OFFSET => ErrorKind::InvalidArgument,
        _ => ErrorKind::Driver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_carry_name_and_number() {
        let error = error("memory_allocate", -4, "64 bytes");
        assert_eq!(
            error.to_string(),
            "memory_allocate: out of memory: 64 bytes [CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)]"
        );
        assert_eq!(super::error("x", -9999, "y").driver().unwrap().code, -9999);
    }

    #[test]
    fn errors_that_end_a_command_are_faults() {
        assert_eq!(fault("launch", -5, "k").kind(), ErrorKind::DeviceFault);
        assert_eq!(fault("launch", -36, "k").kind(), ErrorKind::DeviceLost);
    }
}
