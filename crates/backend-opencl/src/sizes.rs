//! The sizes of kernel parameters whose types the program defines, and whether these are types of values. No driver
//! reports this.
#![expect(unsafe_code, reason = "runs a kernel that queries the compiler")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fmt::Write;
use std::ptr;

use opencl3::command_queue::{enqueue_nd_range_kernel, enqueue_read_buffer};
use opencl3::device::{CL_DEVICE_MAX_PARAMETER_SIZE, get_device_data};
use opencl3::memory::CL_MEM_READ_WRITE;
use opencl3::program::create_program_with_source;
use opencl3::types::{CL_NON_BLOCKING, cl_int};
use runtime_core::Result;

use crate::arguments::set_buffer;
use crate::compile::build;
use crate::handle::{self, Handle, Kernel};
use crate::memory::new_buffer;
use crate::open_device::OpenDevice;
use crate::platform::integer;
use crate::queue::Queue;
use crate::signature::{self, Signatures};

/// The name of the kernel that is added to a program's source.
const NAME: &str = "device_runtime_parameter_sizes";

/// Makes the build fail if a parameter list defines a type of its own, which can have the name of another type. Only
/// names of two words, such as `struct pair`, can be names of such types.
const NO_HIDDEN_TYPES: &str = "#pragma clang diagnostic error \"-Wvisibility\"\n";

/// Determines the sizes of values whose type names do not give them, and which of these types are not types of values.
/// A size stays unknown if its type cannot be named outside of the kernel's declaration, and if the value is larger
/// than the arguments of a launch can be.
pub(crate) fn find(shared: &OpenDevice, source: &str, options: &CStr, signatures: &mut Signatures) {
    let names = signatures.unsized_types();
    if !names.is_empty() {
        Program { shared, source, options }.ask(&names, signatures);
    }
}

/// The source with a kernel that writes the sizes of the types. With `values`, it builds only if all are types of
/// values.
fn extended(source: &str, names: &[String], values: bool) -> String {
    let mut kernel = format!("__kernel void {NAME}(__global unsigned long *{NAME}_out) {{\n");
    for (index, name) in names.iter().enumerate() {
        // Writing to a `String` cannot fail.
        let _ = writeln!(kernel, "    {NAME}_out[{index}] = sizeof({name});");
        if values {
            // A conditional expression takes numbers, vectors, structs and unions, but no images, samplers or events.
            let value = format!("*({name} *)0");
            let _ = writeln!(kernel, "    (void)sizeof(0 ? {value} : {value});");
        }
    }
    kernel += "}\n";
    let words: BTreeSet<_> = kernel
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()))
        .collect();
    let hidden = names.iter().any(|name| name.contains(' '));
    let before = if hidden { NO_HIDDEN_TYPES } else { "" };
    // The source may end in a line that is continued.
    let mut text = format!("{before}{source}\n\n");
    // The driver reports names of types as they are after the replacement of macros.
    for word in words {
        let _ = writeln!(text, "#undef {word}");
    }
    text + &kernel
}

/// A program that was built.
struct Program<'a> {
    shared: &'a OpenDevice,
    source: &'a str,
    options: &'a CStr,
}

impl Program<'_> {
    /// Sets what is found about these types.
    fn ask(&self, names: &[String], signatures: &mut Signatures) {
        let unknown = || tracing::debug!(device = %self.shared.id, ?names, "the sizes of parameters stay unknown");
        match (self.build(names, true), names) {
            (Ok(kernel), _) => {
                let most = get_device_data(self.shared.found.id(), CL_DEVICE_MAX_PARAMETER_SIZE);
                let most = most.map_or(0, |bytes| integer(&bytes));
                let queue = self.shared.service_queue();
                let Ok(Ok(sizes)) = queue.map(|queue| self.run(&kernel, queue, names.len())) else {
                    return unknown();
                };
                for (name, size) in names.iter().zip(sizes).filter(|(_, size)| *size <= most) {
                    signatures.set_size(name, usize::try_from(size).unwrap_or(0));
                }
            }
            (Err(_), [name]) if self.build(names, false).is_ok() => signatures.set_opaque(name),
            (Err(_), [_]) => unknown(),
            // One of the types prevents the build.
            (Err(_), _) => {
                let (first, second) = names.split_at(names.len() / 2);
                self.ask(first, signatures);
                self.ask(second, signatures);
            }
        }
    }

    /// Builds the program once more, with the kernel that writes the sizes.
    fn build(&self, names: &[String], values: bool) -> Result<Handle<Kernel>, cl_int> {
        let shared = self.shared;
        let text = extended(self.source, names, values);
        let raw = create_program_with_source(shared.context.raw(), &[&text])?;
        // SAFETY: the program was just created.
        let program: Handle<handle::Program> = unsafe { Handle::own(raw, &shared.failures) };
        build(raw, shared.found.id(), self.options)?;
        let raw = signature::create(program.raw(), NAME)?;
        // SAFETY: the kernel was just created.
        Ok(unsafe { Handle::own(raw, &shared.failures) })
    }

    /// Runs the kernel that writes the sizes.
    fn run(
        &self,
        kernel: &Handle<Kernel>,
        queue: &Queue,
        count: usize,
    ) -> Result<Vec<u64>, cl_int> {
        let shared = self.shared;
        let mut sizes = vec![0_u64; count];
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
                enqueue_read_buffer(
                    queue,
                    buffer.raw(),
                    CL_NON_BLOCKING,
                    0,
                    bytes,
                    to,
                    0,
                    ptr::null(),
                )
            })
        }?;
        if let Err(code) = queue.wait(&read) {
            queue.finish("module_load");
            return Err(code);
        }
        Ok(sizes)
    }
}
