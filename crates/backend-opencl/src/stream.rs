//! Streams: in-order queues that copy, fill, launch and wait.
#![expect(
    unsafe_code,
    reason = "enqueues through the driver and implements the contract's unsafe stream trait"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::sync::Arc;

use opencl3::command_queue::enqueue_barrier_with_wait_list;
use opencl3::types::{cl_command_queue, cl_event, cl_int};
use runtime_core::contract::{
    DeviceEvent, DeviceKernel, DeviceStream, MemoryAt, PinnedAt, RawArg, own,
};
use runtime_core::{Error, Launch, NativeHandle, NativeKind, Result};

use crate::end::End;
use crate::event::{Mark, OpenClEvent};
use crate::handle::{Event, Handle};
use crate::module::OpenClKernel;
use crate::open_device::OpenDevice;
use crate::queue::Queue;

/// A stream.
#[derive(Debug)]
pub(crate) struct OpenClStream {
    shared: Arc<OpenDevice>,
    queue: Arc<Queue>,
}

impl OpenClStream {
    pub(crate) fn new(shared: &Arc<OpenDevice>, queue: Arc<Queue>) -> Self {
        Self { shared: Arc::clone(shared), queue }
    }

    pub(crate) fn shared(&self) -> &Arc<OpenDevice> {
        &self.shared
    }

    /// The last command that is not over, for other work that must wait for this stream.
    pub(crate) fn last(&self) -> Option<Handle<Event>> {
        self.queue.last()
    }

    /// Enqueues a command.
    ///
    /// # Safety
    ///
    /// As [`Queue::submit`].
    pub(crate) unsafe fn submit(
        &self,
        operation: &'static str,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<()> {
        self.shared.check(operation)?;
        // SAFETY: the caller guarantees the event.
        unsafe { self.queue.submit(operation, enqueue) }
            .map_err(|code| self.shared.error(operation, code, "a command was not accepted"))
    }

    /// As [`submit`](Self::submit), for a launch of a kernel.
    ///
    /// # Safety
    ///
    /// As [`Queue::submit`].
    pub(crate) unsafe fn submit_kernel(
        &self,
        kernel: &Arc<str>,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<()> {
        self.shared.check("launch")?;
        // SAFETY: the caller guarantees the event.
        unsafe { self.queue.submit_kernel(kernel, enqueue) }
            .map_err(|code| self.shared.error("launch", code, "the launch was not accepted"))
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Makes the driver start the enqueued commands, if it needs a flush.
    pub(crate) fn flush(&self, operation: &'static str) -> Result<()> {
        if self.shared.is_eager() {
            return Ok(());
        }
        self.queue
            .flush()
            .map_err(|code| self.shared.error(operation, code, "commands were not submitted"))
    }

    /// Makes the driver start the enqueued commands, because no more commands will follow.
    pub(crate) fn begin(&self) {
        if let Err(code) = self.queue.flush() {
            self.shared.failures.keep(self.shared.error("stream_drop", code, "a stream's work"));
        }
    }

    /// Enqueues a command that does nothing.
    fn marker(&self) -> Result<Handle<Event>> {
        self.queue
            .marker("record")
            .map_err(|code| self.shared.error("record", code, "a command was not accepted"))
    }
}

impl Drop for OpenClStream {
    fn drop(&mut self) {
        // The device keeps the queue until its work is done.
        self.begin();
    }
}

// SAFETY: commands use exactly the given ranges, the queue is in order, and copies whose host side is a slice are
// waited for.
unsafe impl DeviceStream for OpenClStream {
    unsafe fn memory_copy(&self, src: MemoryAt<'_>, dst: MemoryAt<'_>, bytes: usize) -> Result<()> {
        const OPERATION: &str = "memory_copy";
        let (src, dst) = (End::device(src, OPERATION)?, End::device(dst, OPERATION)?);
        // SAFETY: the caller guarantees the ranges.
        let copied = unsafe { self.copy(OPERATION, src, dst, bytes) };
        self.queue.emit();
        copied
    }

    unsafe fn memory_copy_to(&self, dst: MemoryAt<'_>, src: &[u8]) -> Result<()> {
        const OPERATION: &str = "memory_copy_to";
        let dst = End::device(dst, OPERATION)?;
        let host = End::Host(src.as_ptr().cast_mut().cast());
        // SAFETY: the caller guarantees the range; the slice is only read, and lives until the copy is over.
        let copied = unsafe { self.copy_and_wait(OPERATION, host, dst, src.len()) };
        self.queue.emit();
        copied
    }

    unsafe fn memory_copy_from(&self, src: MemoryAt<'_>, dst: &mut [u8]) -> Result<()> {
        const OPERATION: &str = "memory_copy_from";
        let src = End::device(src, OPERATION)?;
        let host = End::Host(dst.as_mut_ptr().cast());
        // SAFETY: the caller guarantees the range; the slice lives until the copy is over.
        let copied = unsafe { self.copy_and_wait(OPERATION, src, host, dst.len()) };
        self.queue.emit();
        copied
    }

    unsafe fn pinned_copy_to(
        &self,
        src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        const OPERATION: &str = "pinned_copy_to";
        let src = End::pinned(src, OPERATION)?;
        let dst = End::device(dst, OPERATION)?;
        // SAFETY: the caller guarantees both ranges, and the pinned memory until the copy is over.
        unsafe { self.copy(OPERATION, src, dst, bytes) }
    }

    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        const OPERATION: &str = "pinned_copy_from";
        let src = End::device(src, OPERATION)?;
        let dst = End::pinned(dst, OPERATION)?;
        // SAFETY: as above.
        unsafe { self.copy(OPERATION, src, dst, bytes) }
    }

    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()> {
        // SAFETY: the caller guarantees the range.
        let filled =
            unsafe { self.fill(own(dst.object, "memory_fill")?, dst.offset, bytes, pattern) };
        self.queue.emit();
        filled
    }

    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let kernel = own::<OpenClKernel>(kernel, "launch")?;
        // SAFETY: the caller guarantees the kernel and its arguments.
        unsafe { kernel.launch(self, launch, args) }?;
        let flushed = self.flush("launch");
        self.queue.emit();
        flushed
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        self.shared.check("record")?;
        let event = own::<OpenClEvent>(event, "record")?;
        // A time stamp needs its own command: the last command may have ended long ago.
        let last = if event.has_timing() { Some(self.marker()?) } else { self.queue.last() };
        event.set(last.map(|event| Mark { event, queue: Some(Arc::clone(&self.queue)) }));
        Ok(())
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<()> {
        self.shared.check("wait")?;
        let failed = |code| self.shared.error("wait", code, "waiting for an event");
        let Some(mark) = own::<OpenClEvent>(event, "wait")?.mark() else { return Ok(()) };
        if mark.is_in(&self.queue) {
            return Ok(());
        }
        if mark.is_over().map_err(failed)? {
            // This makes the command's writes visible without a command. It does not block.
            return mark.wait().map_err(failed);
        }
        // Commands that another queue waits for must be started.
        mark.flush().map_err(failed)?;
        let list = [mark.event.raw()];
        // SAFETY: the event is alive and of this context; the list is only read during the call.
        unsafe {
            self.submit("wait", |queue| enqueue_barrier_with_wait_list(queue, 1, list.as_ptr()))
        }
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
        self.shared.check("synchronize")
    }

    fn take_failure(&self) -> Option<Error> {
        self.queue.take_failure().map(|error| self.shared.note(error))
    }

    fn native(&self) -> NativeHandle {
        self.queue.share();
        let raw = self.queue.raw().expose_provenance();
        NativeHandle { api: "opencl", kind: NativeKind::Stream, raw }
    }
}
