//! Stencils on the first OpenCL device.

use std::ptr::null;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device};
use opencl3::kernel::{Kernel, set_kernel_arg};
use opencl3::memory::{Buffer, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_WRITE, ClMem};
use opencl3::platform::get_platforms;
use opencl3::program::Program as Built;
use opencl3::types::CL_TRUE;
use stencil_translator::{Dialect, Stencil};

use crate::{Case, Memory, Program};

pub(crate) struct OpenCl {
    context: Context,
    queue: CommandQueue,
    built: Built,
}

impl OpenCl {
    /// Builds a batch for the first device with `f64`. `None` if there is none.
    pub(crate) fn build(batch: &[(Program, Stencil)]) -> Option<Self> {
        let ids = get_platforms()
            .ok()?
            .into_iter()
            .filter_map(|p| p.get_devices(CL_DEVICE_TYPE_ALL).ok());
        let mut devices = ids.flatten().map(Device::new);
        let device =
            devices.find(|device| device.double_fp_config().is_ok_and(|config| config != 0))?;
        let context = Context::from_device(&device).unwrap();
        // SAFETY: the device is one of the context.
        let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }.unwrap();
        let text: String =
            batch.iter().map(|(_, stencil)| stencil.source(Dialect::OpenCl)).collect();
        // 1 << 7: f32 divides and takes roots with correct rounding.
        let is_exact = device.single_fp_config().is_ok_and(|config| config & (1 << 7) != 0);
        let flags = if is_exact { Dialect::OpenCl.flags().join(" ") } else { String::new() };
        let built = Built::create_and_build_from_source(&context, &text, &flags);
        Some(Self { context, queue, built: built.unwrap_or_else(|log| panic!("{log}")) })
    }

    pub(crate) fn run(&self, case: &Case<'_>) -> Vec<Memory> {
        let mut results = case.memories.clone();
        let kernel = Kernel::create(&self.built, &case.stencil.kernel_name()).unwrap();
        let arguments = case.arguments();
        let mut buffers = Vec::new();
        for (place, memory) in (0..).zip(&mut results) {
            let words = memory.pointer().cast();
            let flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
            // SAFETY: the memory has as many words as the buffer, which copies them.
            let buffer =
                unsafe { Buffer::<u64>::create(&self.context, flags, memory.words.len(), words) }
                    .unwrap();
            // SAFETY: the parameter is a pointer, and the buffer outlives the work of the kernel.
            unsafe { kernel.set_arg(place, &buffer.get()) }.unwrap();
            buffers.push(buffer);
        }
        let place = u32::try_from(buffers.len()).unwrap();
        // One work-item too many on each axis.
        let rank = case.program.rank;
        let along = case.program.column.map(|column| column.axis);
        let across = (0..rank).rev().filter(|axis| Some(*axis) != along);
        let extents = across.map(|axis| case.extents[3 - rank + axis]);
        let mut items: Vec<_> =
            extents.map(|extent| usize::try_from(extent).unwrap() + 1).collect();
        if items.is_empty() {
            items.push(2);
        }
        let (kernel, axes) = (kernel.get(), u32::try_from(items.len()).unwrap());
        // SAFETY: the arguments have the size of the struct.
        unsafe { set_kernel_arg(kernel, place, 8 * arguments.len(), arguments.as_ptr().cast()) }
            .unwrap();
        // SAFETY: each field has the box and its footprint.
        unsafe {
            self.queue.enqueue_nd_range_kernel(kernel, axes, null(), items.as_ptr(), null(), &[])
        }
        .unwrap();
        for (buffer, memory) in buffers.iter().zip(&mut results) {
            // SAFETY: the memory has as many words as the buffer.
            unsafe {
                self.queue.enqueue_read_buffer(buffer, CL_TRUE, 0, &mut memory.words, &[]).unwrap()
            };
        }
        results
    }
}
