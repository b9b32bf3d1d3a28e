//! The rival: a hand-written program with opencl3, on the same device.

use std::ptr::{self, NonNull, null_mut};

use backend_opencl::OpenClDevice;
use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::kernel::Kernel;
use opencl3::memory::{
    Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE,
};
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING};
use runtime_core::Launch;

type Result<T> = std::result::Result<T, ClError>;

/// A separate context and in-order queue.
pub(crate) struct Raw {
    queue: CommandQueue,
    context: Context,
}

/// Pinned (page-locked) host memory: a buffer that stays mapped.
pub(crate) struct Mapped {
    pointer: NonNull<u8>,
    bytes: usize,
    _buffer: Buffer<u8>,
}

impl Mapped {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the buffer has this many mapped bytes while it lives, and copies are waited for before the next call.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

/// A rectangular copy with the parameters of `clEnqueueCopyBufferRect`: bytes, rows and slices.
pub(crate) struct Rect {
    pub(crate) from: [usize; 3],
    pub(crate) to: [usize; 3],
    pub(crate) region: [usize; 3],
    /// The bytes from row to row and from slice to slice.
    pub(crate) from_pitch: [usize; 2],
    pub(crate) to_pitch: [usize; 2],
}

impl Raw {
    pub(crate) fn beside(device: &OpenClDevice) -> Result<Self> {
        let [_, id] = device.native_ids();
        let device = Device::new(ptr::with_exposed_provenance_mut(id));
        let context = Context::from_device(&device)?;
        let queue =
            CommandQueue::create_default_with_properties(&context, CL_QUEUE_PROFILING_ENABLE, 0)?;
        Ok(Self { queue, context })
    }

    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer<u8>> {
        // SAFETY: no host memory is passed.
        unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, bytes, null_mut()) }
    }

    pub(crate) fn mapped(&self, bytes: usize) -> Result<Mapped> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        // SAFETY: no host memory is passed.
        let buffer = unsafe { Buffer::create(&self.context, flags, bytes, null_mut()) }?;
        let (mut pointer, access) = (null_mut(), CL_MAP_READ | CL_MAP_WRITE);
        // SAFETY: the buffer has this many bytes, and lives as long as the pointer.
        unsafe {
            self.queue.enqueue_map_buffer(&buffer, CL_BLOCKING, access, 0, bytes, &mut pointer, &[])
        }?;
        let pointer = NonNull::new(pointer.cast()).expect("a mapping has an address");
        Ok(Mapped { pointer, bytes, _buffer: buffer })
    }

    /// Blocks until the copy is done.
    pub(crate) fn write(&self, to: &mut Buffer<u8>, from: &[u8]) -> Result<()> {
        // SAFETY: the copy is done when this returns; the driver checks the length.
        unsafe { self.queue.enqueue_write_buffer(to, CL_BLOCKING, 0, from, &[]) }.map(drop)
    }

    /// Blocks until the copy is done.
    pub(crate) fn read(&self, from: &Buffer<u8>, to: &mut [u8]) -> Result<()> {
        // SAFETY: as in `write`.
        unsafe { self.queue.enqueue_read_buffer(from, CL_BLOCKING, 0, to, &[]) }.map(drop)
    }

    /// Copies pinned memory. Blocks until the copy is done.
    pub(crate) fn write_mapped(&self, to: &mut Buffer<u8>, from: &mut Mapped) -> Result<()> {
        let from = from.as_mut_slice();
        // SAFETY: the mapping lives while this waits for the copy; the driver checks the length.
        unsafe { self.queue.enqueue_write_buffer(to, CL_NON_BLOCKING, 0, from, &[]) }?;
        self.finish()
    }

    /// Copies to pinned memory. Blocks until the copy is done.
    pub(crate) fn read_mapped(&self, from: &Buffer<u8>, to: &mut Mapped) -> Result<()> {
        let to = to.as_mut_slice();
        // SAFETY: as in `write_mapped`.
        unsafe { self.queue.enqueue_read_buffer(from, CL_NON_BLOCKING, 0, to, &[]) }?;
        self.finish()
    }

    pub(crate) fn copy_rect(
        &self,
        from: &Buffer<u8>,
        to: &mut Buffer<u8>,
        rect: &Rect,
    ) -> Result<()> {
        let ([from_row, from_slice], [to_row, to_slice]) = (rect.from_pitch, rect.to_pitch);
        let (origin, target, region) = (rect.from.as_ptr(), rect.to.as_ptr(), rect.region.as_ptr());
        // SAFETY: the three pointers point to three numbers each; the driver checks the ranges.
        unsafe {
            self.queue.enqueue_copy_buffer_rect(
                from,
                to,
                origin,
                target,
                region,
                from_row,
                from_slice,
                to_row,
                to_slice,
                &[],
            )
        }
        .map(drop)
    }

    pub(crate) fn kernel(&self, source: &str, name: &str) -> Result<Kernel> {
        let built = Program::create_and_build_from_source(&self.context, source, "");
        Kernel::create(&built.unwrap_or_else(|log| panic!("{log}")), name)
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    ///
    /// The kernel's arguments are set. The memory that they refer to is large enough and lives until the kernel is
    /// done.
    pub(crate) unsafe fn launch(&self, kernel: &Kernel, launch: &Launch) -> Result<()> {
        let local = launch.block.map(|extent| extent as usize);
        let global: [usize; 3] = std::array::from_fn(|dim| launch.grid[dim] as usize * local[dim]);
        let (global, local) = (global.as_ptr(), local.as_ptr());
        // SAFETY: the pointers point to three numbers each, and the caller guarantees the rest.
        unsafe {
            self.queue.enqueue_nd_range_kernel(kernel.get(), 3, ptr::null(), global, local, &[])
        }
        .map(drop)
    }

    pub(crate) fn finish(&self) -> Result<()> {
        self.queue.finish()
    }
}

/// Sets a kernel's arguments, in order.
macro_rules! set_args {
    ($kernel:expr, $($arg:expr),+) => {{
        let mut index = 0;
        $(
            // SAFETY: the kernel has this parameter; buffers outlive its launches.
            unsafe { $kernel.set_arg(index, $arg) }.expect("an argument that the kernel takes");
            index += 1;
        )+
        let _ = index;
    }};
}

pub(crate) use set_args;
