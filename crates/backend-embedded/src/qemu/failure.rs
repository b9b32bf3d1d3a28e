//! The errors of QEMU machines.

use std::io;

use runtime_core::{Error, ErrorKind};

use super::process::End;

/// The error for a machine that is lost.
#[cold]
pub(crate) fn lost(operation: &'static str, message: &str) -> Error {
    Error::new(ErrorKind::DeviceLost, operation, message).with_driver("QEMU_LOST", 0)
}

/// The error for a machine whose emulator ended.
#[cold]
pub(crate) fn gone(operation: &'static str, end: &End) -> Error {
    match lockup(&end.complaints) {
        Some(how) => lost(operation, &how).with_driver("LOCKUP", 0),
        None => lost(operation, &format!("QEMU ended: {end}")),
    }
}

/// Finds QEMU's message that a Cortex-M locked up, which means that it faulted where it cannot handle a fault. QEMU
/// then ends. The message is a line followed by the registers.
fn lockup(complaints: &str) -> Option<String> {
    let (_, reported) = complaints.split_once("Lockup: ")?;
    let why = reported.lines().next()?;
    let pc = reported.split_once("R15=").and_then(|(_, pc)| pc.get(..8));
    let place = pc.map(|pc| format!(" at pc 0x{pc}")).unwrap_or_default();
    Some(format!("the processor locked up{place}: {why}"))
}

/// The error for memory that is not accessible.
#[cold]
pub(crate) fn refused(operation: &'static str, error: io::Error) -> Error {
    Error::new(ErrorKind::Driver, operation, "the machine's RAM is not accessible")
        .with_source(error)
}
