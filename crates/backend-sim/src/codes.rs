//! Errors with the simulated driver's codes.

use runtime_core::{Error, ErrorKind};

/// The code of a fault in a kernel.
pub(crate) const LAUNCH_FAILED: (&str, i64) = ("SIM_LAUNCH_FAILED", 719);

pub(crate) fn out_of_memory(operation: &'static str, message: String) -> Error {
    Error::new(ErrorKind::OutOfMemory, operation, message).with_driver("SIM_OUT_OF_MEMORY", 2)
}

pub(crate) fn device_lost(operation: &'static str) -> Error {
    Error::new(ErrorKind::DeviceLost, operation, "the simulated device was lost")
        .with_driver("SIM_DEVICE_LOST", 46)
}

pub(crate) fn copy_failed(message: String) -> Error {
    Error::new(ErrorKind::Driver, "copy", message).with_driver("SIM_COPY_FAILED", 700)
}

pub(crate) fn launch_failed(message: String) -> Error {
    let (name, code) = LAUNCH_FAILED;
    Error::new(ErrorKind::DeviceFault, "launch", message).with_driver(name, code)
}
