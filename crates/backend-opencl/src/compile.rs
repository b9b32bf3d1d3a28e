//! Builds programs in a thread with a large stack.

use std::ffi::CStr;
use std::panic::resume_unwind;
use std::{ptr, thread};

use opencl3::program::build_program;
use opencl3::types::{cl_device_id, cl_int, cl_program};

/// The stack of the thread in which a program is built. Compilers that run in the process call themselves for each level
/// of an expression.
const STACK: usize = 64 << 20;

/// Builds a program.
pub(crate) fn build(
    program: cl_program,
    device: cl_device_id,
    options: &CStr,
) -> Result<(), cl_int> {
    let (program, device) = (program.expose_provenance(), device.expose_provenance());
    let build = || {
        let program = ptr::with_exposed_provenance_mut(program);
        let devices = [ptr::with_exposed_provenance_mut(device)];
        build_program(program, &devices, options, None, ptr::null_mut())
    };
    thread::scope(|scope| {
        match thread::Builder::new().stack_size(STACK).spawn_scoped(scope, build) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => build(),
        }
    })
}
