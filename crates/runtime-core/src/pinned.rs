//! Page-locked host memory.
#![expect(
    unsafe_code,
    reason = "maps page-locked memory as slices and gives it back to its device"
)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::contract::{DeviceEvent, DevicePinned, DeviceStream};
use crate::stream::StreamCore;
use crate::{Device, Element, Result, Stream};

/// Page-locked host memory, the host side of asynchronous copies. One owner, freed on drop.
///
/// A copy borrows it only to be enqueued, and runs later. The memory remembers: [`as_slice`](Self::as_slice) waits for
/// copies that write it, [`as_mut_slice`](Self::as_mut_slice) and dropping for all. So no data race between host and
/// device can be written in safe code, whatever is dropped or forgotten, and a copy in flight on one buffer does not hold up
/// another. A [`Graph`](crate::Graph) that copies from or to it keeps it.
pub struct Pinned<T: Element> {
    block: Arc<PinnedBlock>,
    len: usize,
    element: PhantomData<T>,
}

/// The untyped memory, shared with the graphs that use it.
pub(crate) struct PinnedBlock {
    // `None` for memory of no bytes.
    raw: ManuallyDrop<Option<Box<dyn DevicePinned>>>,
    uses: Mutex<Vec<Use>>,
    device: Device,
}

/// The latest copy of one direction on one stream; those before it are done when it is.
#[derive(Clone)]
struct Use {
    stream: Arc<StreamCore>,
    writes: bool,
    event: Arc<dyn DeviceEvent>,
    /// Recording the event failed: only the stream itself can tell when the copy is done.
    unmarked: bool,
}

impl Use {
    fn wait(&self) -> Result<()> {
        if self.unmarked { self.stream.raw.synchronize() } else { self.event.wait() }
    }

    fn is_over(&self) -> bool {
        let done = if self.unmarked { self.stream.raw.query() } else { self.event.query() };
        matches!(done, Ok(true))
    }
}

/// Beyond this many uses, those that are over are forgotten.
const PRUNE_AT: usize = 16;

impl<T: Element> Pinned<T> {
    pub(crate) fn new(raw: Option<Box<dyn DevicePinned>>, len: usize, device: Device) -> Self {
        if let Some(raw) = &raw {
            // SAFETY: the device lends at least that many writable bytes, as checked, and nobody else has them yet.
            unsafe { raw.ptr().write_bytes(0, len * size_of::<T>()) };
        }
        let block = PinnedBlock { raw: ManuallyDrop::new(raw), uses: Mutex::default(), device };
        Self { block: Arc::new(block), len, element: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device whose copies can use it.
    pub fn device(&self) -> &Device {
        &self.block.device
    }

    /// The elements. Blocks until every copy that writes them is done.
    ///
    /// # Errors
    ///
    /// What waiting for those copies reports, `DeviceLost` for instance. A failure of the copy itself is reported by
    /// its stream.
    pub fn as_slice(&self) -> Result<&[T]> {
        self.block.wait(|used| used.writes)?;
        // SAFETY: the memory holds `len` elements of any bits, was zeroed, and copies that write it are done; new ones
        // need an exclusive borrow, or the promise of who launches a graph that nobody has this slice.
        Ok(unsafe { std::slice::from_raw_parts(self.pointer(), self.len) })
    }

    /// The elements for writing. Blocks until every copy from or to them is done.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.block.wait(|_| true)?;
        // SAFETY: as in `as_slice`; no copy uses the memory, and none can be enqueued while the slice borrows it, but for
        // graphs with that promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.len) })
    }

    fn pointer(&self) -> *mut T {
        self.block.raw.as_ref().map_or(std::ptr::dangling_mut(), |raw| raw.ptr().cast())
    }

    pub(crate) fn enqueue_read(
        &self,
        stream: &Stream,
        enqueue: impl FnOnce(&dyn DevicePinned) -> Result<()>,
    ) -> Result<()> {
        PinnedBlock::enqueue(&self.block, stream, false, enqueue)
    }

    pub(crate) fn enqueue_write(
        &mut self,
        stream: &Stream,
        enqueue: impl FnOnce(&dyn DevicePinned) -> Result<()>,
    ) -> Result<()> {
        PinnedBlock::enqueue(&self.block, stream, true, enqueue)
    }
}

impl PinnedBlock {
    fn wait(&self, which: impl Fn(&Use) -> bool) -> Result<()> {
        // Not under the lock, which other threads need to enqueue copies.
        let uses = self.lock().clone();
        let mut relevant = uses.iter().filter(|used| which(used));
        relevant.try_for_each(Use::wait).map_err(|e| self.device.place(e))
    }

    /// Enqueues a copy and marks its end. The lock keeps the mark of one copy behind that of another on the same
    /// stream from being lost.
    fn enqueue(
        self: &Arc<Self>,
        stream: &Stream,
        writes: bool,
        enqueue: impl FnOnce(&dyn DevicePinned) -> Result<()>,
    ) -> Result<()> {
        let Some(raw) = self.raw.as_deref() else { return Ok(()) };
        if let Some(capture) = &stream.core.capture {
            capture.keep_pinned(self, writes);
            return enqueue(raw).map_err(|e| self.device.place(e));
        }
        let mut uses = self.lock();
        let known = position(&mut uses, stream, writes);
        let index = match known {
            Some(index) => index,
            None => {
                let event =
                    self.device.raw().event_create(false).map_err(|e| self.device.place(e))?;
                let core = Arc::clone(&stream.core);
                uses.push(Use { stream: core, writes, event: Arc::from(event), unmarked: false });
                uses.len() - 1
            }
        };
        let enqueued = enqueue(raw).map_err(|e| self.device.place(e));
        // Marked after a failure too, for a driver may have begun the copy all the same.
        let used = &mut uses[index];
        let marked = stream.core.raw.record(&*used.event);
        used.unmarked = marked.is_err();
        enqueued
    }

    /// Marks the end of a launch on `stream` of a graph that copies from or to it.
    pub(crate) fn mark(&self, stream: &Stream, writes: bool, event: Box<dyn DeviceEvent>) {
        let mut uses = self.lock();
        let known = position(&mut uses, stream, writes);
        let unmarked = stream.core.raw.record(&*event).is_err();
        let core = Arc::clone(&stream.core);
        let used = Use { stream: core, writes, event: Arc::from(event), unmarked };
        match known {
            // Recorded under the lock, and so behind every copy that the earlier mark stood for.
            Some(index) => uses[index] = used,
            None => uses.push(used),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the use of one direction on a stream is, after uses that are over were forgotten if there are many.
fn position(uses: &mut Vec<Use>, stream: &Stream, writes: bool) -> Option<usize> {
    if uses.len() >= PRUNE_AT {
        uses.retain(|used| !used.is_over());
    }
    uses.iter().position(|used| used.stream.id == stream.core.id && used.writes == writes)
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        let Some(raw) = raw else { return };
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        let after: Vec<&dyn DeviceStream> = uses.iter().map(|used| &*used.stream.raw).collect();
        // SAFETY: this device made it, and every stream that has unfinished copies on it is named.
        unsafe { self.device.raw().pinned_free(raw, &after) };
    }
}

impl<T: Element> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} {} for {})", self.len, T::DTYPE, self.device().id())
    }
}
