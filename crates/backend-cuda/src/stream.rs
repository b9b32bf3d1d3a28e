//! Streams.
#![expect(
    unsafe_code,
    reason = "enqueues through the driver and implements the contract's unsafe stream trait"
)]

use std::fmt::{self, Display};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backend_support::Fill;
use cudarc::driver::sys::{CUgraph, CUstream};
use runtime_core::contract::{
    DeviceEvent, DeviceKernel, DeviceMemory, DevicePinned, DeviceStream, RawArg, own,
};
use runtime_core::{Launch, NativeHandle, NativeKind, Result};

use crate::context::ok;
use crate::event::CudaEvent;
use crate::library::Functions;
use crate::memory::CudaMemory;
use crate::module::CudaKernel;
use crate::pinned::CudaPinned;
use crate::raw_stream::RawStream;
use crate::shared::Shared;

/// A stream.
#[derive(Debug)]
pub(crate) struct CudaStream {
    pub(crate) shared: Arc<Shared>,
    raw: Arc<RawStream>,
    /// Whether what is enqueued becomes a graph instead of running.
    captures: AtomicBool,
}

impl CudaStream {
    pub(crate) fn new(shared: &Arc<Shared>, raw: Arc<RawStream>) -> Self {
        Self::with(shared, raw, false)
    }

    /// A stream that captures what is enqueued on it.
    pub(crate) fn capturing(shared: &Arc<Shared>, raw: Arc<RawStream>) -> Self {
        Self::with(shared, raw, true)
    }

    fn with(shared: &Arc<Shared>, raw: Arc<RawStream>, captures: bool) -> Self {
        let (shared, captures) = (Arc::clone(shared), AtomicBool::new(captures));
        Self { shared, raw, captures }
    }

    #[inline]
    pub(crate) fn raw(&self) -> &Arc<RawStream> {
        &self.raw
    }

    /// Whether what is enqueued becomes a graph instead of running.
    pub(crate) fn is_capture(&self) -> bool {
        self.captures.load(Ordering::Relaxed)
    }

    /// Enqueues something by a function of the driver; `what` says what, should it fail.
    #[inline]
    pub(crate) fn enqueue(
        &self,
        operation: &'static str,
        what: impl Display,
        call: impl FnOnce(&Functions, CUstream) -> u32,
    ) -> Result<()> {
        self.shared.check(operation)?;
        let context = &self.shared.context;
        let enqueue = || ok(self.raw.enqueue(|stream| call(context.driver, stream)));
        match context.bind().and_then(|()| enqueue()) {
            Ok(()) => Ok(()),
            Err(code) => Err(self.shared.error(operation, code, what)),
        }
    }

    /// As [`enqueue`](Self::enqueue), for what another device has a part in.
    pub(crate) fn enqueue_with(
        &self,
        other: &Shared,
        operation: &'static str,
        what: impl Display,
        call: impl FnOnce(&Functions, CUstream) -> u32,
    ) -> Result<()> {
        self.shared.check(operation)?;
        let context = &self.shared.context;
        context
            .bind()
            .and_then(|()| ok(self.raw.enqueue(|stream| call(context.driver, stream))))
            .map_err(|code| self.shared.error_between(other, operation, code, what))
    }

    /// Ends a capture, with the graph of what was captured.
    pub(crate) fn end_capture(&self) -> Result<CUgraph, u32> {
        let mut graph = ptr::null_mut();
        self.shared.context.bind()?;
        self.captures.store(false, Ordering::Relaxed);
        // SAFETY: the stream is alive; the handle is written to where it may be.
        ok(unsafe { (self.shared.context.driver.cuStreamEndCapture)(self.raw.raw(), &mut graph) })?;
        Ok(graph)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if *self.captures.get_mut()
            && let Ok(graph) = self.end_capture()
        {
            // SAFETY: nobody else has the graph of the abandoned capture.
            let code = unsafe { (self.shared.context.driver.cuGraphDestroy)(graph) };
            self.shared.context.note(code);
        }
        // The device keeps the driver's stream until its work is done.
    }
}

/// How long a copy is, for its error.
struct Bytes(usize);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

// SAFETY: commands name exactly the ranges given, the driver's streams are in order, and host slices are waited
// for before a method returns.
unsafe impl DeviceStream for CudaStream {
    unsafe fn memory_copy(
        &self,
        src: &dyn DeviceMemory,
        src_offset: usize,
        dst: &dyn DeviceMemory,
        dst_offset: usize,
        count: usize,
    ) -> Result<()> {
        const OPERATION: &str = "memory_copy";
        let from = own::<CudaMemory>(src, OPERATION)?.at(src_offset);
        let to = own::<CudaMemory>(dst, OPERATION)?.at(dst_offset);
        self.enqueue(OPERATION, Bytes(count), |driver, stream| {
            // SAFETY: the caller vouches for the ranges.
            unsafe { (driver.cuMemcpyDtoDAsync_v2)(to, from, count, stream) }
        })
    }

    unsafe fn memory_copy_to(
        &self,
        dst: &dyn DeviceMemory,
        offset: usize,
        src: &[u8],
    ) -> Result<()> {
        const OPERATION: &str = "memory_copy_to";
        let to = own::<CudaMemory>(dst, OPERATION)?.at(offset);
        let context = &self.shared.context;
        let copied = context.bind().and_then(|()| {
            let (from, count) = (src.as_ptr().cast(), src.len());
            let copy = context.driver.cuMemcpyHtoDAsync_v2;
            // SAFETY: the caller vouches for the range; the slice stays until the copy is over, below.
            ok(self.raw.enqueue(|stream| unsafe { copy(to, from, count, stream) }))
        });
        // Even after a failure: the driver may still read the slice, if it is page-locked or the system shares its memory.
        self.shared.waited(OPERATION, copied.and(self.raw.settle()))
    }

    unsafe fn memory_copy_from(
        &self,
        src: &dyn DeviceMemory,
        offset: usize,
        dst: &mut [u8],
    ) -> Result<()> {
        const OPERATION: &str = "memory_copy_from";
        let from = own::<CudaMemory>(src, OPERATION)?.at(offset);
        let context = &self.shared.context;
        let copied = context.bind().and_then(|()| {
            let (to, count) = (dst.as_mut_ptr().cast(), dst.len());
            let copy = context.driver.cuMemcpyDtoHAsync_v2;
            // SAFETY: the caller vouches for the range; the slice stays until the copy is over, below.
            ok(self.raw.enqueue(|stream| unsafe { copy(to, from, count, stream) }))
        });
        // Even after a failure: the driver may have begun.
        self.shared.waited(OPERATION, copied.and(self.raw.settle()))
    }

    unsafe fn pinned_copy_to(
        &self,
        src: &dyn DevicePinned,
        src_offset: usize,
        dst: &dyn DeviceMemory,
        dst_offset: usize,
        count: usize,
    ) -> Result<()> {
        const OPERATION: &str = "pinned_copy_to";
        let from = own::<CudaPinned>(src, OPERATION)?.address().wrapping_add(src_offset);
        let to = own::<CudaMemory>(dst, OPERATION)?.at(dst_offset);
        self.enqueue(OPERATION, Bytes(count), |driver, stream| {
            // SAFETY: the caller vouches for both ranges, and for the pinned memory until the copy has run.
            unsafe { (driver.cuMemcpyHtoDAsync_v2)(to, from.cast(), count, stream) }
        })
    }

    unsafe fn pinned_copy_from(
        &self,
        src: &dyn DeviceMemory,
        src_offset: usize,
        dst: &dyn DevicePinned,
        dst_offset: usize,
        count: usize,
    ) -> Result<()> {
        const OPERATION: &str = "pinned_copy_from";
        let from = own::<CudaMemory>(src, OPERATION)?.at(src_offset);
        let to = own::<CudaPinned>(dst, OPERATION)?.address().wrapping_add(dst_offset);
        self.enqueue(OPERATION, Bytes(count), |driver, stream| {
            // SAFETY: as above.
            unsafe { (driver.cuMemcpyDtoHAsync_v2)(to.cast(), from, count, stream) }
        })
    }

    unsafe fn memory_fill(
        &self,
        dst: &dyn DeviceMemory,
        offset: usize,
        count: usize,
        pattern: &[u8],
    ) -> Result<()> {
        const OPERATION: &str = "memory_fill";
        let to = own::<CudaMemory>(dst, OPERATION)?.at(offset);
        // SAFETY: the caller vouches for the range.
        unsafe { self.fill(to, count, Fill::of(pattern)) }
    }

    #[inline]
    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let kernel = own::<CudaKernel>(kernel, "launch")?;
        // SAFETY: the caller vouches for the kernel and its arguments.
        unsafe { kernel.launch(self, launch, args) }
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        let event = own::<CudaEvent>(event, "record")?.raw();
        self.enqueue("record", "an event", |driver, stream| {
            // SAFETY: both are alive, and of one context.
            unsafe { (driver.cuEventRecord)(event, stream) }
        })
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<()> {
        let event = own::<CudaEvent>(event, "wait")?;
        self.enqueue_with(event.shared(), "wait", "an event", |driver, stream| {
            // SAFETY: both are alive; the driver looks at the event's mark now.
            unsafe { (driver.cuStreamWaitEvent)(stream, event.raw(), 0) }
        })
    }

    fn query(&self) -> Result<bool> {
        match self.raw.is_idle() {
            Ok(idle) if self.shared.context.fault().is_none() => Ok(idle),
            outcome => {
                // The work has failed, which is left to whoever waits for it.
                if self.shared.has_untold_fault() {
                    return Ok(true);
                }
                self.shared.check("query")?;
                outcome.map_err(|code| self.shared.error("query", code, "the state of a stream"))
            }
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.shared.waited("synchronize", self.raw.synchronize())
    }

    fn native(&self) -> NativeHandle {
        let raw = self.raw.raw().expose_provenance();
        NativeHandle { api: "cuda", kind: NativeKind::Stream, raw }
    }
}
