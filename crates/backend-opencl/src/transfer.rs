//! Copies and fills, between buffers, addresses and the host.
#![expect(unsafe_code, reason = "enqueues copies through the driver")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::ffi::c_void;
use std::ptr;

use opencl3::command_queue::{
    enqueue_copy_buffer, enqueue_fill_buffer, enqueue_read_buffer, enqueue_write_buffer,
};
use opencl3::event::CL_COMPLETE;
use opencl3::types::{
    CL_BLOCKING, CL_NON_BLOCKING, cl_bool, cl_command_queue, cl_event, cl_int, cl_mem,
};
use runtime_core::Result;

use crate::codes;
use crate::end::{End, Named};
use crate::handle::{Event, Handle};
use crate::memory::{OpenClMemory, Place};
use crate::pointers::Pointers;
use crate::queue::status;
use crate::stream::OpenClStream;

/// The driver call for a copy, by the kinds of its ends.
enum Route<'a> {
    Buffers {
        src: cl_mem,
        from: usize,
        dst: cl_mem,
        to: usize,
    },
    Read {
        src: cl_mem,
        from: usize,
        to: *mut c_void,
    },
    Write {
        from: *mut c_void,
        dst: cl_mem,
        to: usize,
    },
    Pointers {
        api: &'a Pointers,
        from: *mut c_void,
        to: *mut c_void,
    },
    /// A buffer and an address that the host cannot use: staged through the host.
    Staged,
}

/// The number of bytes that a copy through the host moves at a time.
const STAGE_BYTES: usize = 1 << 20;

impl Route<'_> {
    /// # Safety
    ///
    /// Both ends have `bytes` bytes, which live until the copy is over.
    unsafe fn enqueue(
        self,
        queue: cl_command_queue,
        blocking: cl_bool,
        bytes: usize,
    ) -> Result<cl_event, cl_int> {
        let no = ptr::null();
        match self {
            // SAFETY: the caller guarantees the ranges, here and below.
            Self::Buffers { src, from, dst, to } => unsafe {
                enqueue_copy_buffer(queue, src, dst, from, to, bytes, 0, no)
            },
            // SAFETY: as above.
            Self::Read { src, from, to } => unsafe {
                enqueue_read_buffer(queue, src, blocking, from, bytes, to, 0, no)
            },
            // SAFETY: as above.
            Self::Write { from, dst, to } => unsafe {
                enqueue_write_buffer(queue, dst, blocking, to, bytes, from, 0, no)
            },
            // SAFETY: as above.
            Self::Pointers { api, from, to } => unsafe {
                api.copy(queue, blocking, to, from, bytes)
            },
            Self::Staged => Err(opencl3::error_codes::CL_INVALID_VALUE),
        }
    }
}

impl OpenClStream {
    fn route(&self, src: End<'_>, dst: End<'_>) -> Route<'_> {
        match (src.named(), dst.named(), &self.shared().pointers) {
            (Named::Buffer(src, from), Named::Buffer(dst, to), _) => {
                Route::Buffers { src, from, dst, to }
            }
            (Named::Buffer(src, from), Named::Address { pointer: to, host: true }, _) => {
                Route::Read { src, from, to }
            }
            (Named::Address { pointer: from, host: true }, Named::Buffer(dst, to), _) => {
                Route::Write { from, dst, to }
            }
            (
                Named::Address { pointer: from, .. },
                Named::Address { pointer: to, .. },
                Some(api),
            ) => Route::Pointers { api, from, to },
            _ => Route::Staged,
        }
    }

    /// Enqueues a copy.
    ///
    /// # Safety
    ///
    /// Both ends have `bytes` bytes, which do not overlap. Host memory lives until the copy is over.
    pub(crate) unsafe fn copy(
        &self,
        operation: &'static str,
        src: End<'_>,
        dst: End<'_>,
        bytes: usize,
    ) -> Result<()> {
        match self.route(src, dst) {
            // SAFETY: the caller guarantees both ends.
            Route::Staged => unsafe { self.copy_staged(operation, src, dst, bytes) },
            route => {
                // SAFETY: the caller guarantees both ends, and the event is that of the copy.
                unsafe {
                    self.submit(operation, |queue| route.enqueue(queue, CL_NON_BLOCKING, bytes))
                }?;
                self.flush(operation)
            }
        }
    }

    /// Enqueues a copy and blocks until it is over, whether it succeeds or fails.
    ///
    /// # Safety
    ///
    /// Both ends have `bytes` bytes, which do not overlap.
    pub(crate) unsafe fn copy_and_wait(
        &self,
        operation: &'static str,
        src: End<'_>,
        dst: End<'_>,
        bytes: usize,
    ) -> Result<()> {
        self.shared().check(operation)?;
        let (route, queue) = (self.route(src, dst), self.queue());
        // SAFETY: the caller guarantees both ends.
        match unsafe { route.enqueue(queue.raw(), CL_BLOCKING, bytes) } {
            Ok(event) => {
                // SAFETY: the event is that of the copy, which is over, so the queue need not store it.
                let copy: Handle<Event> = unsafe { Handle::own(event, &self.shared().failures) };
                queue.note_over(&copy, operation);
                match status(copy.raw()) {
                    Ok(failed) if failed < CL_COMPLETE => {
                        Err(self.shared().note(codes::fault(operation, failed, "a copy")))
                    }
                    _ => Ok(()),
                }
            }
            Err(code) => {
                // No command may still use the host's memory.
                queue.finish(operation);
                Err(self.shared().error(operation, code, "a copy was not made"))
            }
        }
    }

    /// Copies in pieces through the host, and waits for each piece.
    ///
    /// # Safety
    ///
    /// As [`copy`](Self::copy).
    unsafe fn copy_staged(
        &self,
        operation: &'static str,
        src: End<'_>,
        dst: End<'_>,
        bytes: usize,
    ) -> Result<()> {
        let mut stage = vec![0_u8; bytes.min(STAGE_BYTES)];
        let host = End::Host(stage.as_mut_ptr().cast());
        for start in (0..bytes).step_by(STAGE_BYTES) {
            let piece = (bytes - start).min(STAGE_BYTES);
            // SAFETY: the staging memory has this many bytes; the caller guarantees the other end.
            unsafe { self.copy_and_wait(operation, src.behind(start), host, piece) }?;
            // SAFETY: as above.
            unsafe { self.copy_and_wait(operation, host, dst.behind(start), piece) }?;
        }
        Ok(())
    }

    /// Enqueues a fill.
    ///
    /// # Safety
    ///
    /// The range lies inside the memory. It starts at a multiple of the pattern's alignment, and its length is a
    /// multiple of the pattern's length.
    pub(crate) unsafe fn fill(
        &self,
        dst: &OpenClMemory,
        offset: usize,
        bytes: usize,
        pattern: &[u8],
    ) -> Result<()> {
        let start = match dst.place() {
            Place::Buffer(_) => offset,
            Place::Pointer(address) => address + offset,
        };
        if start.is_multiple_of(pattern.len()) {
            // SAFETY: the caller guarantees the range.
            unsafe { self.fill_aligned(dst, offset, bytes, pattern) }?;
        } else {
            // OpenCL requires the start to be a multiple of the pattern's length. A pattern of two components may start
            // in the middle: the same bytes are the pattern with its halves exchanged, between two single halves.
            let (first, second) = pattern.split_at(pattern.len() / 2);
            let half = first.len();
            let exchanged = [second, first].concat();
            let parts = [
                (offset, half, first),
                (offset + half, bytes - 2 * half, exchanged.as_slice()),
                (offset + bytes - half, half, second),
            ];
            for (start, len, pattern) in parts.into_iter().filter(|(_, len, _)| *len > 0) {
                // SAFETY: the parts lie in the caller's range.
                unsafe { self.fill_aligned(dst, start, len, pattern) }?;
            }
        }
        self.flush("memory_fill")
    }

    /// # Safety
    ///
    /// As [`fill`](Self::fill), and the start is a multiple of the pattern's length.
    unsafe fn fill_aligned(
        &self,
        dst: &OpenClMemory,
        offset: usize,
        bytes: usize,
        pattern: &[u8],
    ) -> Result<()> {
        let (start, len) = (pattern.as_ptr().cast::<c_void>(), pattern.len());
        let no = ptr::null();
        let enqueue = |queue| match (End::Device(dst, offset).named(), &self.shared().pointers) {
            // SAFETY: the caller guarantees the range; the pattern is copied during the call.
            (Named::Buffer(buffer, offset), _) => unsafe {
                enqueue_fill_buffer(queue, buffer, start, len, offset, bytes, 0, no)
            },
            // SAFETY: as above.
            (Named::Address { pointer, .. }, Some(api)) => unsafe {
                api.fill(queue, pointer, pattern, bytes)
            },
            // Memory by address exists only on devices that support it.
            (Named::Address { .. }, None) => Err(opencl3::error_codes::CL_INVALID_VALUE),
        };
        // SAFETY: the event is that of the fill.
        unsafe { self.submit("memory_fill", enqueue) }
    }
}
