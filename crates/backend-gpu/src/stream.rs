//! Streams.
#![expect(
    unsafe_code,
    reason = "enqueues through the library and implements the contract's unsafe stream trait"
)]

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backend_support::Fill;
use runtime_core::contract::{
    DeviceEvent, DeviceKernel, DeviceStream, MemoryAt, PinnedAt, RawArg, own,
};
use runtime_core::{Error, Launch, NativeHandle, NativeKind, Result};

use crate::api::Api;
use crate::event::Event;
use crate::handle;
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::open_device::OpenDevice;
use crate::pinned::Pinned;
use crate::raw_stream::RawStream;
use crate::vendor::Vendor;

/// A stream.
#[derive(Debug)]
pub struct Stream<V: Vendor> {
    pub(crate) shared: Arc<OpenDevice<V>>,
    raw: Arc<RawStream<V>>,
    /// Whether enqueued work becomes part of a graph instead of running.
    captures: AtomicBool,
}

impl<V: Vendor> Stream<V> {
    pub(crate) fn new(shared: &Arc<OpenDevice<V>>, raw: Arc<RawStream<V>>) -> Self {
        Self::with(shared, raw, false)
    }

    /// Creates a stream that captures the work enqueued on it.
    pub(crate) fn capturing(shared: &Arc<OpenDevice<V>>, raw: Arc<RawStream<V>>) -> Self {
        Self::with(shared, raw, true)
    }

    fn with(shared: &Arc<OpenDevice<V>>, raw: Arc<RawStream<V>>, captures: bool) -> Self {
        let (shared, captures) = (Arc::clone(shared), AtomicBool::new(captures));
        Self { shared, raw, captures }
    }

    #[inline]
    pub(crate) fn raw(&self) -> &Arc<RawStream<V>> {
        &self.raw
    }

    /// The state that the device shares with its objects, for the vendor.
    ///
    /// # Safety
    ///
    /// As [`Device::shared`](crate::Device::shared).
    pub unsafe fn shared(&self) -> &OpenDevice<V> {
        &self.shared
    }

    /// Enqueues work by a function of the library, for the vendor. `what` describes the work in errors.
    ///
    /// # Errors
    ///
    /// `DeviceLost` after a fault, and errors of the library.
    ///
    /// # Safety
    ///
    /// `call` returns the outcome of a call of the library.
    #[inline]
    pub unsafe fn call(
        &self,
        operation: &'static str,
        what: impl Display,
        call: impl FnOnce(&V::Api, handle::Stream) -> Result<(), u32>,
    ) -> Result<()> {
        self.enqueue(operation, what, call)
    }

    /// Whether enqueued work becomes part of a graph instead of running.
    pub(crate) fn is_capture(&self) -> bool {
        self.captures.load(Ordering::Relaxed)
    }

    /// Enqueues work by a function of the library. `what` describes the work in errors.
    #[inline]
    pub(crate) fn enqueue(
        &self,
        operation: &'static str,
        what: impl Display,
        call: impl FnOnce(&V::Api, handle::Stream) -> Result<(), u32>,
    ) -> Result<()> {
        self.shared.check(operation)?;
        self.attempt(call).map_err(|code| self.shared.error(operation, code, what))
    }

    /// As [`enqueue`](Self::enqueue), for work that involves another device.
    pub(crate) fn enqueue_with(
        &self,
        other: &OpenDevice<V>,
        operation: &'static str,
        what: impl Display,
        call: impl FnOnce(&V::Api, handle::Stream) -> Result<(), u32>,
    ) -> Result<()> {
        self.shared.check(operation)?;
        self.attempt(call).map_err(|code| self.shared.error_between(other, operation, code, what))
    }

    /// Binds the context and enqueues work by a function of the library.
    #[inline]
    fn attempt(
        &self,
        call: impl FnOnce(&V::Api, handle::Stream) -> Result<(), u32>,
    ) -> Result<(), u32> {
        let context = &self.shared.context;
        context.bind()?;
        self.raw.enqueue(|stream| call(context.api, stream))
    }

    /// Ends a capture and returns its graph.
    pub(crate) fn end_capture(&self) -> Result<handle::Graph, u32> {
        self.shared.context.bind()?;
        self.captures.store(false, Ordering::Relaxed);
        // SAFETY: the stream is alive.
        unsafe { self.shared.context.api.capture_end(self.raw.raw()) }
    }
}

impl<V: Vendor> Drop for Stream<V> {
    fn drop(&mut self) {
        if *self.captures.get_mut()
            && let Ok(graph) = self.end_capture()
        {
            // SAFETY: the graph of the abandoned capture has no other user.
            let destroyed = unsafe { self.shared.context.api.graph_destroy(graph) };
            self.shared.context.note(destroyed);
        }
        // The device keeps the library's stream until its work is done.
    }
}

/// The length of a copy, for its error.
struct Bytes(usize);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

// SAFETY: commands name exactly the given ranges, and the library's streams are in order. A method with a host slice
// returns only after the copy is finished.
unsafe impl<V: Vendor> DeviceStream for Stream<V> {
    unsafe fn memory_copy(&self, src: MemoryAt<'_>, dst: MemoryAt<'_>, count: usize) -> Result<()> {
        const OPERATION: &str = "memory_copy";
        let from = own::<Memory<V>>(src.object, OPERATION)?.at(src.offset);
        let to = own::<Memory<V>>(dst.object, OPERATION)?.at(dst.offset);
        self.enqueue(OPERATION, Bytes(count), |api, stream| {
            // SAFETY: the caller guarantees the ranges.
            unsafe { api.copy(to, from, count, stream) }
        })
    }

    unsafe fn memory_copy_to(&self, dst: MemoryAt<'_>, src: &[u8]) -> Result<()> {
        const OPERATION: &str = "memory_copy_to";
        let to = own::<Memory<V>>(dst.object, OPERATION)?.at(dst.offset);
        let (from, count) = (src.as_ptr(), src.len());
        // SAFETY: the caller guarantees the range. The slice is valid until the copy is finished, because
        // `wait_or_give_up` waits below.
        let copied = self.attempt(|api, stream| unsafe { api.copy_to(to, from, count, stream) });
        // Also after a failure, because the library may still read the slice if it is page-locked or the system shares
        // its memory.
        self.shared.waited(OPERATION, copied.and(self.raw.wait_or_give_up()))
    }

    unsafe fn memory_copy_from(&self, src: MemoryAt<'_>, dst: &mut [u8]) -> Result<()> {
        const OPERATION: &str = "memory_copy_from";
        let from = own::<Memory<V>>(src.object, OPERATION)?.at(src.offset);
        let (to, count) = (dst.as_mut_ptr(), dst.len());
        // SAFETY: the caller guarantees the range. The slice is valid until the copy is finished, because
        // `wait_or_give_up` waits below.
        let copied = self.attempt(|api, stream| unsafe { api.copy_from(to, from, count, stream) });
        // Also after a failure, because the library may have begun to copy.
        self.shared.waited(OPERATION, copied.and(self.raw.wait_or_give_up()))
    }

    unsafe fn pinned_copy_to(
        &self,
        src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        count: usize,
    ) -> Result<()> {
        const OPERATION: &str = "pinned_copy_to";
        let from = own::<Pinned<V>>(src.object, OPERATION)?.address().wrapping_add(src.offset);
        let to = own::<Memory<V>>(dst.object, OPERATION)?.at(dst.offset);
        self.enqueue(OPERATION, Bytes(count), |api, stream| {
            // SAFETY: the caller guarantees both ranges, and keeps the pinned memory until the copy has run.
            unsafe { api.copy_to(to, from, count, stream) }
        })
    }

    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        count: usize,
    ) -> Result<()> {
        const OPERATION: &str = "pinned_copy_from";
        let from = own::<Memory<V>>(src.object, OPERATION)?.at(src.offset);
        let to = own::<Pinned<V>>(dst.object, OPERATION)?.address().wrapping_add(dst.offset);
        self.enqueue(OPERATION, Bytes(count), |api, stream| {
            // SAFETY: as above.
            unsafe { api.copy_from(to, from, count, stream) }
        })
    }

    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, count: usize, pattern: &[u8]) -> Result<()> {
        const OPERATION: &str = "memory_fill";
        let to = own::<Memory<V>>(dst.object, OPERATION)?.at(dst.offset);
        // SAFETY: the caller guarantees the range.
        unsafe { self.fill(to, count, Fill::of(pattern)) }
    }

    #[inline]
    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let kernel = own::<Kernel<V>>(kernel, "launch")?;
        // SAFETY: the caller guarantees that the kernel and its arguments fit.
        unsafe { kernel.launch(self, launch, args) }
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        let event = own::<Event<V>>(event, "record")?.raw();
        self.enqueue("record", "an event", |api, stream| {
            // SAFETY: both are alive and belong to one context.
            unsafe { api.event_record(event, stream) }
        })
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<()> {
        let event = own::<Event<V>>(event, "wait")?;
        self.enqueue_with(event.shared(), "wait", "an event", |api, stream| {
            // SAFETY: both are alive; the library reads the event's recorded point during the call.
            unsafe { api.stream_wait(stream, event.raw()) }
        })
    }

    fn query(&self) -> Result<bool> {
        match self.raw.is_idle() {
            Ok(idle) if self.shared.context.fault().is_none() => Ok(idle),
            outcome => {
                // The work has failed. The next wait for it reports the failure.
                if self.shared.has_unreported_fault() {
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

    fn take_failure(&self) -> Option<Error> {
        let kept = self.raw.failures().take().map(|failure| failure.on(&self.shared.id));
        kept.or_else(|| self.shared.take_fault())
    }

    fn native(&self) -> NativeHandle {
        let raw = self.raw.raw().0;
        NativeHandle { api: V::WORDS.backend, kind: NativeKind::Stream, raw }
    }
}
