//! The sizes of kernel parameters whose types the program defines. No driver reports them.
#![expect(unsafe_code, reason = "runs a kernel that queries the compiler")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::ffi::CStr;
use std::fmt::Write;
use std::ptr;

use opencl3::command_queue::{enqueue_nd_range_kernel, enqueue_read_buffer};
use opencl3::memory::CL_MEM_READ_WRITE;
use opencl3::program::{build_program, create_program_with_source};
use opencl3::types::{CL_NON_BLOCKING, cl_int};
use runtime_core::Result;

use crate::arguments::set_buffer;
use crate::handle::{Handle, Kernel, Program};
use crate::memory::new_buffer;
use crate::open_device::OpenDevice;
use crate::queue::Queue;
use crate::signature::{self, Signatures};

/// The name of the kernel that is added to a program's source.
const NAME: &str = "device_runtime_parameter_sizes";

/// Determines the sizes of values whose type names do not give them. Types that cannot be named outside of their
/// kernel's declaration stay unknown.
pub(crate) fn find(shared: &OpenDevice, source: &str, options: &CStr, signatures: &mut Signatures) {
    let names = signatures.unsized_types();
    if names.is_empty() {
        return;
    }
    let asked = shared.service_queue().map(|queue| ask(shared, queue, source, options, &names));
    match asked {
        Ok(Ok(sizes)) => {
            for (name, size) in names.iter().zip(sizes) {
                signatures.set_size(name, usize::try_from(size).unwrap_or(0));
            }
        }
        _ => tracing::debug!(device = %shared.id, ?names, "the sizes of parameters stay unknown"),
    }
}

/// Builds the program once more, with a kernel that writes the sizes.
fn ask(
    shared: &OpenDevice,
    queue: &Queue,
    source: &str,
    options: &CStr,
    names: &[String],
) -> Result<Vec<u64>, cl_int> {
    let mut text = format!("{source}\nkernel void {NAME}(global ulong *sizes) {{\n");
    for (index, name) in names.iter().enumerate() {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "    sizes[{index}] = sizeof({name});");
    }
    text += "}\n";
    let raw = create_program_with_source(shared.context.raw(), &[&text])?;
    // SAFETY: the program was just created.
    let program: Handle<Program> = unsafe { Handle::own(raw, &shared.failures) };
    build_program(program.raw(), &[shared.found.id()], options, None, ptr::null_mut())?;
    let raw = signature::create(program.raw(), NAME)?;
    // SAFETY: the kernel was just created.
    let kernel: Handle<Kernel> = unsafe { Handle::own(raw, &shared.failures) };
    let mut sizes = vec![0_u64; names.len()];
    let buffer = new_buffer(shared, CL_MEM_READ_WRITE, size_of_val(&*sizes))?;
    // SAFETY: no other code has the kernel.
    unsafe { set_buffer(kernel.raw(), 0, buffer.raw()) }?;
    // SAFETY: the kernel writes exactly as many numbers as the buffer holds.
    unsafe {
        queue.submit("module_load", |queue| {
            let one = [1_usize];
            enqueue_nd_range_kernel(
                queue,
                kernel.raw(),
                1,
                ptr::null(),
                one.as_ptr(),
                one.as_ptr(),
                0,
                ptr::null(),
            )
        })
    }?;
    // SAFETY: the numbers live until the copy is over, because the copy is waited for.
    let read = unsafe {
        queue.submit_marked("module_load", |queue| {
            let to = sizes.as_mut_ptr().cast();
            let bytes = size_of_val(&*sizes);
            enqueue_read_buffer(queue, buffer.raw(), CL_NON_BLOCKING, 0, bytes, to, 0, ptr::null())
        })
    }?;
    if let Err(code) = queue.wait(&read) {
        queue.finish("module_load");
        return Err(code);
    }
    Ok(sizes)
}
