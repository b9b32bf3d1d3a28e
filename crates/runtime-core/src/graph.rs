//! Graphs: work captured once and launched many times.
#![expect(unsafe_code, reason = "launches graphs and gives them back to their device")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::capture::{Capture, UsedObjects};
use crate::contract::{DeviceGraph, GraphCapture, Released};
use crate::mark::InUses;
use crate::stream::StreamCore;
use crate::sync::lock;
use crate::uses::Uses;
use crate::{Device, Error, ErrorKind, NativeHandle, Result, Statistics, Stream};

/// Capture of work into graphs: see [`Device::graphs`].
#[derive(Clone, Copy)]
pub struct Graphs<'a> {
    ability: &'a dyn GraphCapture,
    device: &'a Device,
}

impl<'a> Graphs<'a> {
    pub(crate) fn new(ability: &'a dyn GraphCapture, device: &'a Device) -> Self {
        Self { ability, device }
    }

    /// Captures the work that `work` enqueues on the stream passed to it. This stream is new, and nothing runs on it.
    /// Other streams are not affected. A capture within a capture makes a separate graph.
    ///
    /// A graph contains copies within the device, copies from and to pinned memory, fills, kernels and native region
    /// copies, in the order in which they were enqueued. Kernel arguments and fill values are captured by value. Memory
    /// and pinned memory are read and written when the graph is launched. Several threads may share the stream. The
    /// stream and its native handle end with the call. Later calls on a clone return an error, except enqueues of no
    /// work, such as operations on empty views.
    ///
    /// # Errors
    ///
    /// The error of `work`. `InvalidArgument` for any operation that waits or orders on the capture's stream:
    /// synchronisation, queries, events, copies from and to plain slices, emulated region copies, launches of graphs.
    /// Such an error ends the capture, and so does an operation that the driver refuses or that gets no memory: no
    /// graph is made, even if `work` ignores the error. `WrongStream` for views that are bound to another stream.
    /// Otherwise errors of the driver.
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
    /// let Some(graphs) = device.graphs() else { return Ok(()) };
    /// let stream = device.default_stream();
    /// let mut pinned = device.pinned_allocate::<f64>(1000)?;
    /// let mut field = device.memory_allocate::<f64>(1000)?;
    ///
    /// let step = graphs.capture(|capture| {
    ///     field.view_mut().copy_from_pinned(capture, &pinned)?;
    ///     field.view_mut().slice(0..10)?.fill(capture, 0.0_f64)
    /// })?;
    /// for time in 0..100 {
    ///     pinned.as_mut_slice()?.fill(f64::from(time)); // waits for the previous launch
    ///     // SAFETY: no slice of `pinned` exists, and `field` is used only on this stream.
    ///     unsafe { step.launch(&stream) }?;
    /// }
    /// stream.synchronize()
    /// # }
    /// ```
    pub fn capture(&self, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let device = self.device;
        let place = |error| device.place(error);
        let capture = Capture::new(self.ability.begin().map_err(place)?);
        let abandoned = Abandoned(&capture);
        let stream = Stream::new(StreamCore::capturing(&capture, device.reports()), device.clone());
        work(&stream)?;
        let (captured, kept) = abandoned.0.finish();
        let captured = captured.ok_or_else(|| {
            device.invalid("capture", "an operation failed or was refused: there is no graph")
        })?;
        let raw = self.ability.end(captured).map_err(place)?;
        tracing::debug!(device = %device.id(), "graph captured");
        Ok(Graph {
            raw: ManuallyDrop::new(Mutex::new(raw)),
            once: capture.counts().snapshot(),
            uses: Uses::default(),
            device: device.clone(),
            kept,
        })
    }
}

impl fmt::Debug for Graphs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graphs({})", self.device.id())
    }
}

/// Ends a capture, however its work ends.
struct Abandoned<'a>(&'a Arc<Capture>);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        drop(self.0.finish());
    }
}

/// Captured work. Made by [`Graphs::capture`].
///
/// It keeps the objects that the work uses. Memory, pinned memory, modules and region plans that are dropped while the
/// graph exists are freed after it. Dropping a graph with launches in flight is safe and does not block where the
/// driver can avoid it.
pub struct Graph {
    /// Locked for each launch, because launches must come one at a time.
    raw: ManuallyDrop<Mutex<Box<dyn DeviceGraph>>>,
    /// The statistics of one launch.
    once: Statistics,
    uses: Uses,
    device: Device,
    // Dropped after the graph that uses it.
    kept: UsedObjects,
}

impl Graph {
    /// The device that it was captured for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Enqueues the captured work as one operation, any number of times and on any stream. Like other work, launches on
    /// several streams are ordered only by events, and by the pinned memory that they use: see
    /// [`Pinned`](crate::Pinned).
    ///
    /// Its memory counts as used on the stream. Freeing this memory waits for the launch, and so does access to it or
    /// to pinned memory as a slice on the host.
    ///
    /// # Errors
    ///
    /// `WrongDevice`. `InvalidArgument` if the stream is that of a capture. Otherwise errors of the driver.
    /// [`Stream::synchronize`] reports failures of the running work.
    ///
    /// # Safety
    ///
    /// Views borrowed the memory while the work was captured, but nothing borrows it now. Therefore, until the launch
    /// has run, no code uses a slice of this memory or pinned memory that was taken before the call returned (a slice
    /// taken later waits for the launch), and the owners of the memory behind the captured views allow the captured
    /// accesses. The captured kernels still satisfy the requirements of [`Kernel::launch`](crate::Kernel::launch).
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        let device = &self.device;
        device.check_same("launch", stream.device())?;
        if let Some(capture) = &stream.core.capture {
            return Err(device.place(capture.refuse("launch")));
        }
        let ability = device.raw().abilities().graphs().ok_or_else(|| self.gone())?;
        for used in self.kept.used.values() {
            used.mark(stream);
        }
        self.uses.mark(stream, device);
        let shown = self.kept.used.values().filter_map(|used| used.marks());
        let mut in_use = InUses::new(stream);
        shown.for_each(|marks| marks.begin(stream, &mut in_use));
        // In the order of addresses, so that two launches cannot deadlock on their locks.
        let pinned =
            self.kept.pinned.values().map(|(block, writes)| block.begin(stream, *writes, true));
        let pinned_in_use = pinned.collect::<Result<SmallVec<[_; 4]>>>()?;
        // SAFETY: graph and stream are of this device. The objects that the work uses are kept, and their use on the
        // stream is registered. The caller guarantees the rest.
        let launched = unsafe { ability.launch(&mut **self.lock(), &*stream.core.raw) };
        in_use.end();
        drop(pinned_in_use);
        launched.map_err(|e| device.place(e))?;
        device.counts().add(&self.once);
        tracing::trace!(device = %device.id(), "graph launched");
        Ok(())
    }

    /// The vendor's handle, valid for as long as the graph.
    pub fn native(&self) -> NativeHandle {
        self.lock().native()
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn DeviceGraph>> {
        lock(&self.raw)
    }

    #[cold]
    fn gone(&self) -> Error {
        let message = "the backend that captured the graph does not launch graphs any more";
        Error::new(ErrorKind::Driver, "launch", message).on(self.device.id())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        let raw = raw.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: this device captured it, and every stream on which it was launched is registered. The objects it uses
        // are dropped after this.
        unsafe { self.uses.release(&self.device, Released::Graph(raw)) };
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("device", self.device.id()).field("once", &self.once).finish()
    }
}
