//! Streams: in-order queues that copy, fill, launch and wait.
#![expect(
    unsafe_code,
    reason = "enqueues through the driver and implements the contract's unsafe stream trait"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use opencl3::command_queue::{
    enqueue_barrier_with_wait_list, enqueue_copy_buffer, enqueue_fill_buffer,
    enqueue_marker_with_wait_list, enqueue_read_buffer, enqueue_write_buffer,
};
use opencl3::types::{CL_NON_BLOCKING, cl_command_queue, cl_event, cl_int};
use runtime_core::contract::{
    DeviceEvent, DeviceKernel, DeviceMemory, DevicePinned, DeviceStream, RawArg, own,
};
use runtime_core::{Launch, NativeHandle, NativeKind, Result};

use crate::event::{Mark, OpenClEvent};
use crate::handle::{Event, Handle};
use crate::memory::{OpenClMemory, OpenClPinned, Place};
use crate::module::OpenClKernel;
use crate::queue::Queue;
use crate::shared::Shared;

/// A stream.
#[derive(Debug)]
pub(crate) struct OpenClStream {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

/// One end of a copy.
#[derive(Clone, Copy)]
enum End<'a> {
    Device(&'a OpenClMemory, usize),
    Host(*mut c_void),
}

impl OpenClStream {
    pub(crate) fn new(shared: &Arc<Shared>, queue: Arc<Queue>) -> Self {
        Self { shared: Arc::clone(shared), queue }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The last command that is not over, for whoever must wait for this stream.
    pub(crate) fn last(&self) -> Option<Handle<Event>> {
        self.queue.last()
    }

    /// Enqueues a command, and lets the driver begin with it.
    ///
    /// # Safety
    ///
    /// As [`Queue::submit`].
    pub(crate) unsafe fn submit(
        &self,
        operation: &'static str,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<Handle<Event>> {
        self.shared.check(operation)?;
        // SAFETY: the caller vouches for the event.
        unsafe { self.queue.submit(operation, enqueue) }
            .map_err(|code| self.shared.error(operation, code, "a command was not accepted"))
    }

    pub(crate) fn flush(&self, operation: &'static str) -> Result<()> {
        self.queue
            .flush()
            .map_err(|code| self.shared.error(operation, code, "commands were not submitted"))
    }

    /// Enqueues a copy.
    ///
    /// # Safety
    ///
    /// Both ends have `bytes` bytes, which do not overlap; those of the host stay until the copy has run.
    unsafe fn copy(
        &self,
        operation: &'static str,
        src: End<'_>,
        dst: End<'_>,
        bytes: usize,
    ) -> Result<Handle<Event>> {
        let address = |end: End<'_>| match end {
            End::Host(pointer) => Some(pointer),
            End::Device(memory, offset) => match memory.place() {
                Place::Pointer(address) => {
                    Some(ptr::with_exposed_provenance_mut::<c_void>(address + offset))
                }
                Place::Buffer(_) => None,
            },
        };
        let buffer = |end: End<'_>| match end {
            End::Device(memory, offset) => match memory.place() {
                Place::Buffer(buffer) => Some((buffer.raw(), offset)),
                Place::Pointer(_) => None,
            },
            End::Host(_) => None,
        };
        let hidden = |end: End<'_>| matches!(end, End::Device(memory, _) if matches!(memory.place(), Place::Pointer(_)) && !memory.is_visible());
        let no = ptr::null();
        match (buffer(src), buffer(dst)) {
            (Some((src, from)), Some((dst, to))) => {
                // SAFETY: both are buffers of this context, and the caller vouches for the ranges.
                unsafe {
                    self.submit(operation, |queue| {
                        enqueue_copy_buffer(queue, src, dst, from, to, bytes, 0, no)
                    })
                }
            }
            (Some((src, from)), None) if !hidden(dst) => {
                let to = address(dst).unwrap_or_default();
                // SAFETY: the host addresses the destination, and the caller vouches for the ranges.
                unsafe {
                    self.submit(operation, |queue| {
                        enqueue_read_buffer(queue, src, CL_NON_BLOCKING, from, bytes, to, 0, no)
                    })
                }
            }
            (None, Some((dst, to))) if !hidden(src) => {
                let from = address(src).unwrap_or_default();
                // SAFETY: as above, the other way round.
                unsafe {
                    self.submit(operation, |queue| {
                        enqueue_write_buffer(queue, dst, CL_NON_BLOCKING, to, bytes, from, 0, no)
                    })
                }
            }
            (None, None) => {
                let (from, to) =
                    (address(src).unwrap_or_default(), address(dst).unwrap_or_default());
                let pointers = match (src, dst) {
                    (End::Device(memory, _), _) | (_, End::Device(memory, _)) => {
                        self.shared.pointers_of(memory.place())?
                    }
                    (End::Host(_), End::Host(_)) => return self.marker(operation),
                };
                // SAFETY: the caller vouches for the ranges.
                unsafe { self.submit(operation, |queue| pointers.copy(queue, to, from, bytes)) }
            }
            // One end is a buffer, the other an address that the host cannot use.
            _ => {
                let mut stage = vec![0_u8; bytes];
                let host = End::Host(stage.as_mut_ptr().cast());
                // SAFETY: the stage has as many bytes, and stays: both halves are waited for.
                let half = unsafe { self.copy(operation, src, host, bytes) }?;
                self.finish(operation, &half)?;
                // SAFETY: as above.
                let half = unsafe { self.copy(operation, host, dst, bytes) }?;
                self.finish(operation, &half)?;
                Ok(half)
            }
        }
    }

    /// A command that does nothing.
    fn marker(&self, operation: &'static str) -> Result<Handle<Event>> {
        // SAFETY: the event is that of the marker.
        unsafe {
            self.submit(operation, |queue| enqueue_marker_with_wait_list(queue, 0, ptr::null()))
        }
    }

    /// Waits for a copy whose host side must be let go on return.
    fn finish(&self, operation: &'static str, event: &Handle<Event>) -> Result<()> {
        if let Err(code) = self.queue.wait(event) {
            // Nothing may be left that still uses the host's memory.
            self.queue.finish(operation);
            return Err(self.shared.error(operation, code, "waiting for a copy"));
        }
        Ok(())
    }

    /// Enqueues a fill of a range that starts and ends at multiples of the pattern's length.
    ///
    /// # Safety
    ///
    /// The range lies inside the memory.
    unsafe fn fill(
        &self,
        dst: &OpenClMemory,
        offset: usize,
        bytes: usize,
        pattern: &[u8],
    ) -> Result<()> {
        const OPERATION: &str = "memory_fill";
        match dst.place() {
            Place::Buffer(buffer) => {
                let (start, len) = (pattern.as_ptr().cast::<c_void>(), pattern.len());
                // SAFETY: the caller vouches for the range; the pattern is copied by the call.
                unsafe {
                    self.submit(OPERATION, |queue| {
                        enqueue_fill_buffer(
                            queue,
                            buffer.raw(),
                            start,
                            len,
                            offset,
                            bytes,
                            0,
                            ptr::null(),
                        )
                    })
                }?;
            }
            place @ Place::Pointer(address) => {
                let pointers = self.shared.pointers_of(place)?;
                let pointer = ptr::with_exposed_provenance_mut(address + offset);
                // SAFETY: as above.
                unsafe {
                    self.submit(OPERATION, |queue| pointers.fill(queue, pointer, pattern, bytes))
                }?;
            }
        }
        Ok(())
    }
}

impl Drop for OpenClStream {
    fn drop(&mut self) {
        // The device keeps the queue until its work is done.
        if let Err(code) = self.queue.flush() {
            self.shared.failures.keep(self.shared.error("stream_drop", code, "a stream's work"));
        }
    }
}

// SAFETY: commands name exactly the ranges given, the queue is in order, and copies whose host side is a slice are
// waited for.
unsafe impl DeviceStream for OpenClStream {
    unsafe fn memory_copy(
        &self,
        src: &dyn DeviceMemory,
        src_offset: usize,
        dst: &dyn DeviceMemory,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        const OPERATION: &str = "memory_copy";
        let (src, dst) = (own(src, OPERATION)?, own(dst, OPERATION)?);
        let (src, dst) = (End::Device(src, src_offset), End::Device(dst, dst_offset));
        // SAFETY: the caller vouches for the ranges.
        unsafe { self.copy(OPERATION, src, dst, bytes) }?;
        self.flush(OPERATION)
    }

    unsafe fn memory_copy_to(
        &self,
        dst: &dyn DeviceMemory,
        offset: usize,
        src: &[u8],
    ) -> Result<()> {
        const OPERATION: &str = "memory_copy_to";
        let dst = End::Device(own(dst, OPERATION)?, offset);
        let host = End::Host(src.as_ptr().cast_mut().cast());
        // SAFETY: the caller vouches for the range; the slice is only read, and stays until the copy is over.
        let event = unsafe { self.copy(OPERATION, host, dst, src.len()) }?;
        self.finish(OPERATION, &event)
    }

    unsafe fn memory_copy_from(
        &self,
        src: &dyn DeviceMemory,
        offset: usize,
        dst: &mut [u8],
    ) -> Result<()> {
        const OPERATION: &str = "memory_copy_from";
        let src = End::Device(own(src, OPERATION)?, offset);
        let host = End::Host(dst.as_mut_ptr().cast());
        // SAFETY: the caller vouches for the range; the slice stays until the copy is over.
        let event = unsafe { self.copy(OPERATION, src, host, dst.len()) }?;
        self.finish(OPERATION, &event)?;
        self.queue.report().map_err(|error| self.shared.note(error))
    }

    unsafe fn pinned_copy_to(
        &self,
        src: &dyn DevicePinned,
        src_offset: usize,
        dst: &dyn DeviceMemory,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        const OPERATION: &str = "pinned_copy_to";
        let host = own::<OpenClPinned>(src, OPERATION)?.ptr().wrapping_add(src_offset);
        let dst = End::Device(own(dst, OPERATION)?, dst_offset);
        // SAFETY: the caller vouches for both ranges, and for the pinned memory until the copy has run.
        unsafe { self.copy(OPERATION, End::Host(host.cast()), dst, bytes) }?;
        self.flush(OPERATION)
    }

    unsafe fn pinned_copy_from(
        &self,
        src: &dyn DeviceMemory,
        src_offset: usize,
        dst: &dyn DevicePinned,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        const OPERATION: &str = "pinned_copy_from";
        let src = End::Device(own(src, OPERATION)?, src_offset);
        let host = own::<OpenClPinned>(dst, OPERATION)?.ptr().wrapping_add(dst_offset);
        // SAFETY: as above.
        unsafe { self.copy(OPERATION, src, End::Host(host.cast()), bytes) }?;
        self.flush(OPERATION)
    }

    unsafe fn memory_fill(
        &self,
        dst: &dyn DeviceMemory,
        offset: usize,
        bytes: usize,
        pattern: &[u8],
    ) -> Result<()> {
        let dst = own::<OpenClMemory>(dst, "memory_fill")?;
        if offset.is_multiple_of(pattern.len()) {
            // SAFETY: the caller vouches for the range.
            unsafe { self.fill(dst, offset, bytes, pattern) }?;
        } else {
            // OpenCL wants the start to be a multiple of the pattern's length. A pattern of two components may start
            // half-way: the same bytes are the pattern with its halves exchanged, between two single halves.
            let (first, second) = pattern.split_at(pattern.len() / 2);
            let half = first.len();
            let exchanged = [second, first].concat();
            let parts = [
                (offset, half, first),
                (offset + half, bytes - 2 * half, exchanged.as_slice()),
                (offset + bytes - half, half, second),
            ];
            for (start, len, pattern) in parts.into_iter().filter(|(_, len, _)| *len > 0) {
                // SAFETY: the parts are those of the caller's range.
                unsafe { self.fill(dst, start, len, pattern) }?;
            }
        }
        self.flush("memory_fill")
    }

    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let kernel = own::<OpenClKernel>(kernel, "launch")?;
        // SAFETY: the caller vouches for the kernel and its arguments.
        unsafe { kernel.launch(self, launch, args) }?;
        self.flush("launch")
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        self.shared.check("record")?;
        let event = own::<OpenClEvent>(event, "record")?;
        // A time needs a command of its own: the last one may have ended long ago.
        let last =
            if event.has_timing() { Some(self.marker("record")?) } else { self.queue.last() };
        event.set(last.map(|event| Mark { event, queue: Arc::clone(&self.queue) }));
        Ok(())
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<()> {
        self.shared.check("wait")?;
        let failed = |code| self.shared.error("wait", code, "waiting for an event");
        let Some(mark) = own::<OpenClEvent>(event, "wait")?.mark() else { return Ok(()) };
        if Arc::ptr_eq(&mark.queue, &self.queue) || mark.is_over().map_err(failed)? {
            return Ok(());
        }
        // What another queue waits for must be under way.
        mark.queue.flush().map_err(failed)?;
        let list = [mark.event.raw()];
        // SAFETY: the event is alive and of this context; the list is read by the call.
        unsafe {
            self.submit("wait", |queue| enqueue_barrier_with_wait_list(queue, 1, list.as_ptr()))
        }?;
        Ok(())
    }

    fn query(&self) -> Result<bool> {
        self.shared.check("query")?;
        self.shared.reap();
        self.queue
            .is_idle()
            .map_err(|code| self.shared.error("query", code, "the state of a stream"))
    }

    fn synchronize(&self) -> Result<()> {
        self.queue.finish("synchronize");
        self.shared.reap();
        let done = self.queue.report().map_err(|error| self.shared.note(error));
        done.and_then(|()| self.shared.check("synchronize"))
    }

    fn native(&self) -> NativeHandle {
        let raw = self.queue.raw().expose_provenance();
        NativeHandle { api: "opencl", kind: NativeKind::Stream, raw }
    }
}
