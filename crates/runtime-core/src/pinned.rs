//! Page-locked host memory.
#![expect(
    unsafe_code,
    reason = "maps page-locked memory as slices and gives it back to its device"
)]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::contract::{DevicePinned, DeviceStream, Released};
use crate::element::check_representation;
use crate::mark::{Begun, Mark, PRUNE_AT, Waiting, has_panicked_since};
use crate::sync::lock;
use crate::{ConversionError, Device, Element, Error, ErrorKind, Result, Stream};

/// Page-locked host memory, the host side of asynchronous copies. Has one owner and is freed on drop. A device
/// allocates it ([`Device::pinned_allocate`]), or page-locks the elements of a vector ([`Device::pin_vec`]) or of
/// another owner ([`Device::pinned_adopt`]).
///
/// A copy borrows the memory only while it is enqueued, and runs later. The memory therefore tracks its copies.
/// [`as_slice`](Self::as_slice) waits for copies that write the memory; [`as_mut_slice`](Self::as_mut_slice) waits for
/// all copies, and dropping frees the memory only after all of them. If two copies on different streams use the memory
/// and one of them writes it, the second waits for the first on the device. Such copies run in the order of their
/// calls; other copies are not delayed. Safe code therefore cannot cause a data race, between host and device or
/// between streams, whatever it drops or forgets. A [`Graph`](crate::Graph) that copies from or to the memory keeps it
/// alive, and its launches are ordered in the same way.
pub struct Pinned<T: Element> {
    block: Arc<PinnedBlock>,
    len: usize,
    element: PhantomData<T>,
}

/// The untyped memory, shared with the graphs that use it.
pub(crate) struct PinnedBlock {
    // `None` for memory of no bytes.
    raw: ManuallyDrop<Option<Box<dyn DevicePinned>>>,
    /// What holds registered memory: a vector, or an [`Owner`](crate::Owner). It is not used before the registration
    /// has ended.
    registered: Option<Arc<dyn Any + Send + Sync>>,
    /// Whether the registration was to end and the device has kept the vector. Then only the host uses the memory.
    is_kept: bool,
    uses: Mutex<Vec<Use>>,
    device: Device,
}

/// The latest copies of one direction on one stream.
struct Use {
    mark: Arc<Mark>,
    writes: bool,
    /// Whether a later use waits for this one, so that waiting for the later use is enough.
    passed: bool,
}

impl<T: Element> Pinned<T> {
    pub(crate) fn new(raw: Option<Box<dyn DevicePinned>>, len: usize, device: Device) -> Self {
        const { check_representation::<T>() };
        if let Some(raw) = &raw {
            // SAFETY: the device provides at least that many writable bytes, as checked, and no other code has access
            // to them yet.
            unsafe { raw.ptr().write_bytes(0, len * size_of::<T>()) };
        }
        Self::with(raw, None, len, device)
    }

    /// `len` elements that `raw` names and `holder` keeps.
    pub(crate) fn registered(
        raw: Option<Box<dyn DevicePinned>>,
        holder: impl Any + Send + Sync,
        len: usize,
        device: Device,
    ) -> Self {
        const { check_representation::<T>() };
        Self::with(raw, Some(Arc::new(holder)), len, device)
    }

    fn with(
        raw: Option<Box<dyn DevicePinned>>,
        registered: Option<Arc<dyn Any + Send + Sync>>,
        len: usize,
        device: Device,
    ) -> Self {
        let (raw, uses) = (ManuallyDrop::new(raw), Mutex::default());
        let block = PinnedBlock { raw, registered, is_kept: false, uses, device };
        Self { block: Arc::new(block), len, element: PhantomData }
    }

    /// The elements as a vector. Blocks until every copy from or to them is done. If they are page-locked in place, CUDA
    /// and HIP also wait for all other work of the device.
    ///
    /// If the memory was made by [`Device::pin_vec`], this is the same vector, no longer page-locked. The elements are
    /// copied instead if the device allocated the memory, if it has another owner, if a graph uses it, or if the driver
    /// fails to unlock it. In the last case the locked pages stay allocated.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice): after the device is lost, the vector cannot be taken back. `OutOfMemory` if the
    /// elements must be copied and the host has no room. The error returns the memory. If the driver has failed to
    /// unlock it, only the host can use that memory: copies from and to it are refused.
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
    /// let vec = vec![1_u8; 1000];
    /// let address = vec.as_ptr();
    /// assert_eq!(device.pin_vec(vec)?.into_vec()?.as_ptr(), address);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_vec(mut self) -> Result<Vec<T>, ConversionError<Self>> {
        if let Err(error) = self.block.wait(|_| true) {
            return Err(ConversionError::new(self, error));
        }
        let first = self.pointer();
        let registered = Arc::get_mut(&mut self.block)
            .and_then(|block| block.end_registration(|holder| holder.is::<Vec<T>>()));
        if let Some(vec) = registered.and_then(|vec| vec.downcast::<Vec<T>>().ok()) {
            match Arc::try_unwrap(vec) {
                Ok(vec) => return Ok(vec),
                // The device keeps the vector if it could not unlock the memory.
                Err(vec) => self.block = PinnedBlock::kept(first, vec, self.device().clone()),
            }
        }
        let copied = self.as_slice().and_then(|elements| {
            let mut vec = Vec::new();
            vec.try_reserve_exact(elements.len()).map_err(|_| {
                let message = format!("{} elements of {} in host memory", self.len, T::DTYPE);
                Error::new(ErrorKind::OutOfMemory, "into_vec", message)
            })?;
            vec.extend_from_slice(elements);
            Ok(vec)
        });
        copied.map_err(|error| ConversionError::new(self, error))
    }

    /// Drops the memory, and blocks until every copy from or to it is done. If the memory was registered, the
    /// registration has ended when this returns, and its owner is dropped.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice). `Conflict` if a graph uses the memory. It is then dropped as usual: later, and
    /// not at all if the device does not finish its work. `Driver` if the driver fails to unlock registered memory,
    /// whose owner is then never dropped.
    pub fn end(mut self) -> Result<()> {
        const OPERATION: &str = "end";
        self.block.wait(|_| true)?;
        let (first, len, id) = (self.host_ptr(), self.len, self.device().id().clone());
        let error = |kind, what| {
            let message = format!("{len} elements of {} at {first:p} {what}", T::DTYPE);
            Err(Error::new(kind, OPERATION, message).on(&id))
        };
        let Some(block) = Arc::get_mut(&mut self.block) else {
            return error(ErrorKind::Conflict, "are used by a graph");
        };
        let is_shared = |mut holder| Arc::get_mut(&mut holder).is_none();
        if block.is_kept || block.end_registration(|_| true).is_some_and(is_shared) {
            return error(ErrorKind::Driver, "stay page-locked: the driver has not unlocked them");
        }
        Ok(())
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

    /// The elements as a slice. Blocks until every copy that writes them is done.
    ///
    /// # Errors
    ///
    /// Errors of waiting for those copies, for instance `DeviceLost`. A failure of the copy itself is reported by its
    /// stream.
    pub fn as_slice(&self) -> Result<&[T]> {
        self.block.wait(|used| used.writes)?;
        // SAFETY: the memory holds `len` elements, any bits are valid, it was zeroed, and copies that write it are
        // done. New copies need an exclusive borrow, or come from a graph, whose launcher promises that no such slice
        // exists.
        Ok(unsafe { std::slice::from_raw_parts(self.pointer(), self.len) })
    }

    /// The elements as a slice for writing. Blocks until every copy from or to them is done.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.block.wait(|_| true)?;
        // SAFETY: as in `as_slice`. No copy uses the memory, and none can be enqueued while the slice borrows it,
        // except by graphs under that promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.len) })
    }

    /// The address of the first element, for code that shares out the elements itself. Reading or writing there is
    /// unsafe: such code waits for the copies that use the elements.
    pub fn host_ptr(&self) -> NonNull<T> {
        NonNull::new(self.pointer()).unwrap_or(NonNull::dangling())
    }

    /// As [`slice`](Self::slice), but a copy from the elements is not ordered with other copies from and to the memory.
    ///
    /// # Errors
    ///
    /// As [`slice`](Self::slice).
    ///
    /// # Safety
    ///
    /// Until the host has waited by [`as_mut_slice`](Self::as_mut_slice), the caller orders every copy from or to this
    /// memory: with each conflicting copy, and with accesses of the host, also those by
    /// [`as_slice`](Self::as_slice). Dropping the memory needs no order.
    pub unsafe fn slice_unordered(&self, range: Range<usize>) -> Result<PinnedView<'_, T>> {
        Ok(PinnedView { is_ordered: false, ..self.slice(range)? })
    }

    /// As [`slice_mut`](Self::slice_mut), but a copy to the elements is not ordered with other copies from and to the
    /// memory, and the memory is not borrowed exclusively.
    ///
    /// # Errors
    ///
    /// As [`slice`](Self::slice).
    ///
    /// # Safety
    ///
    /// As [`slice_unordered`](Self::slice_unordered).
    pub unsafe fn slice_mut_unordered(&self, range: Range<usize>) -> Result<PinnedViewMut<'_, T>> {
        let part = PinnedView { is_ordered: false, ..self.slice(range)? };
        Ok(PinnedViewMut { part, exclusive: PhantomData })
    }

    fn pointer(&self) -> *mut T {
        self.block.raw.as_ref().map_or(std::ptr::dangling_mut(), |raw| raw.ptr().cast())
    }

    /// The elements with indices `range`, to copy from.
    ///
    /// Copies from and to parts are ordered as copies of the whole memory, also if the parts share no element.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the range extends beyond the memory.
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
    /// let stream = device.default_stream();
    /// let mut memory = device.memory_allocate::<f32>(10)?;
    /// let mut pinned = device.pinned_allocate::<f32>(30)?;
    /// memory.view_mut().copy_from_pinned(&stream, pinned.slice(20..30)?)?;
    /// memory.view().copy_to_pinned(&stream, pinned.slice_mut(0..10)?)
    /// # }
    /// ```
    pub fn slice(&self, range: Range<usize>) -> Result<PinnedView<'_, T>> {
        if range.start > range.end || range.end > self.len {
            let message = format!("{range:?} of {} elements", self.len);
            return Err(Error::new(ErrorKind::OutOfBounds, "slice", message).on(self.device().id()));
        }
        let (first, len) = (range.start, range.len());
        Ok(PinnedView { block: &self.block, first, len, is_ordered: true, element: PhantomData })
    }

    /// The elements with indices `range`, to copy to. Copies are ordered as for [`slice`](Self::slice).
    ///
    /// # Errors
    ///
    /// As [`slice`](Self::slice).
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<PinnedViewMut<'_, T>> {
        Ok(PinnedViewMut { part: self.slice(range)?, exclusive: PhantomData })
    }

    pub(crate) fn block(&self) -> &Arc<PinnedBlock> {
        &self.block
    }
}

/// A part of a [`Pinned`] memory, to copy from. Made by [`Pinned::slice`], or of the whole memory by `From`.
pub struct PinnedView<'a, T: Element> {
    block: &'a Arc<PinnedBlock>,
    first: usize,
    len: usize,
    is_ordered: bool,
    element: PhantomData<&'a [T]>,
}

/// A part of pinned memory, of elements of any type.
pub(crate) struct PinnedPart<'a> {
    pub(crate) block: &'a Arc<PinnedBlock>,
    /// In bytes.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Whether a copy is ordered with other copies of the memory.
    pub(crate) is_ordered: bool,
}

impl<'a, T: Element> PinnedView<'a, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn untyped(self) -> PinnedPart<'a> {
        let Self { block, first, len, is_ordered, .. } = self;
        let size = size_of::<T>();
        PinnedPart { block, offset: first * size, bytes: len * size, is_ordered }
    }
}

impl<'a, T: Element> From<&'a Pinned<T>> for PinnedView<'a, T> {
    #[inline]
    fn from(pinned: &'a Pinned<T>) -> Self {
        Self {
            block: &pinned.block,
            first: 0,
            len: pinned.len,
            is_ordered: true,
            element: PhantomData,
        }
    }
}

impl<T: Element> fmt::Debug for PinnedView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (range, id) = (self.first..self.first + self.len, self.block.device.id());
        write!(f, "elements {range:?} of pinned {} for {id}", T::DTYPE)
    }
}

/// A part of a [`Pinned`] memory, to copy to. Made by [`Pinned::slice_mut`], or of the whole memory by `From`.
pub struct PinnedViewMut<'a, T: Element> {
    part: PinnedView<'a, T>,
    exclusive: PhantomData<&'a mut [T]>,
}

impl<'a, T: Element> PinnedViewMut<'a, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    #[inline]
    pub(crate) fn untyped(self) -> PinnedPart<'a> {
        self.part.untyped()
    }
}

impl<'a, T: Element> From<&'a mut Pinned<T>> for PinnedViewMut<'a, T> {
    #[inline]
    fn from(pinned: &'a mut Pinned<T>) -> Self {
        Self { part: PinnedView::from(&*pinned), exclusive: PhantomData }
    }
}

impl<T: Element> fmt::Debug for PinnedViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mutable {:?}", self.part)
    }
}

impl PinnedPart<'_> {
    /// Enqueues a copy from or to the part.
    pub(crate) fn enqueue(
        &self,
        stream: &Stream,
        writes: bool,
        enqueue: impl FnOnce(&dyn DevicePinned) -> Result<()>,
    ) -> Result<()> {
        self.block.enqueue(stream, writes, self.is_ordered, enqueue)
    }
}

impl PinnedBlock {
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The elements of a vector, from `first` on, that the device has kept although the registration was to end.
    fn kept<T: Element>(first: *mut T, vec: Arc<Vec<T>>, device: Device) -> Arc<Self> {
        let (first, bytes) = (first.expose_provenance(), size_of_val(&vec[..]));
        let raw: Box<dyn DevicePinned> = Box::new(Kept { first, bytes });
        let (raw, uses) = (ManuallyDrop::new(Some(raw)), Mutex::default());
        Arc::new(Self { raw, registered: Some(vec), is_kept: true, uses, device })
    }

    /// Ends the registration of memory on which all work is done, if the memory has such a holder, and returns the
    /// holder.
    fn end_registration(
        &mut self,
        is_such: impl Fn(&(dyn Any + Send + Sync)) -> bool,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let holder = self.registered.take_if(|holder| !self.is_kept && is_such(&**holder))?;
        if let Some(raw) = self.raw.take() {
            // SAFETY: all work on the memory is done, and the holder keeps the memory.
            unsafe { unregister(&self.device, raw, &[], Arc::clone(&holder)) };
        }
        Some(holder)
    }

    fn wait(&self, which: impl Fn(&Use) -> bool) -> Result<()> {
        let relevant = |used: &&Use| !used.passed && which(used);
        // Not under the lock, because other threads need it to enqueue copies.
        let marks: Waiting =
            self.lock().iter().filter(relevant).map(|used| Arc::clone(&used.mark)).collect();
        marks.iter().try_for_each(|mark| mark.wait())
    }

    /// Enqueues a copy from or to the memory. A caller that writes has borrowed the memory exclusively, or orders the
    /// copy.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        stream: &Stream,
        writes: bool,
        is_ordered: bool,
        enqueue: impl FnOnce(&dyn DevicePinned) -> Result<()>,
    ) -> Result<()> {
        let Some(raw) = self.raw.as_deref() else { return Ok(()) };
        if self.is_kept {
            let message = "the driver failed to unlock this memory, which only the host uses since";
            return Err(self.device.invalid("copy", message));
        }
        let _in_use = match &stream.core.capture {
            Some(capture) => {
                capture.keep_pinned(self, writes);
                None
            }
            None => Some(self.begin(stream, writes, is_ordered)?),
        };
        enqueue(raw).map_err(|e| self.device.place(e))
    }

    /// Registers a use by the next enqueue on `stream`. If it is to be ordered, it comes after every conflicting use on
    /// another stream. The end of the use is recorded when the result is dropped. The result holds the lock until then,
    /// so uses are registered in the order in which they are enqueued.
    pub(crate) fn begin(
        &self,
        stream: &Stream,
        writes: bool,
        is_ordered: bool,
    ) -> Result<PinnedInUse<'_>> {
        let mut uses = self.lock();
        if uses.len() >= PRUNE_AT {
            uses.retain(|used| !used.passed && !used.mark.is_over());
        }
        let conflicts =
            |used: &&Use| !used.passed && !used.mark.is_of(stream) && (writes || used.writes);
        let (mut known, mut follows) = (None, false);
        for (index, used) in uses.iter().enumerate() {
            if used.mark.is_of(stream) {
                // Every use that is not passed is the latest write or comes after it. The uses of this stream are
                // ordered after it.
                follows |= !writes && !used.passed;
                known = known.or((used.writes == writes).then_some(index));
            }
        }
        if is_ordered && !follows {
            uses.iter().filter(conflicts).try_for_each(|used| used.mark.hold_up(stream))?;
        }
        if is_ordered && writes {
            uses.iter_mut().for_each(|used| used.passed = true);
        }
        let index = known.unwrap_or_else(|| {
            uses.push(Use { mark: Arc::new(Mark::new(stream)), writes, passed: false });
            uses.len() - 1
        });
        uses[index].passed = false;
        Ok(PinnedInUse { uses, index, panicking: thread::panicking() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Use>> {
        lock(&self.uses)
    }
}

/// Memory that the device no longer knows.
struct Kept {
    first: usize,
    bytes: usize,
}

// SAFETY: the vector that the block and the device hold stays at this address, and has this many bytes.
unsafe impl DevicePinned for Kept {
    fn len(&self) -> usize {
        self.bytes
    }

    fn ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.first)
    }
}

/// A use by an enqueue in progress.
pub(crate) struct PinnedInUse<'a> {
    uses: MutexGuard<'a, Vec<Use>>,
    index: usize,
    /// Whether the thread was already panicking when the use began.
    panicking: bool,
}

impl Drop for PinnedInUse<'_> {
    fn drop(&mut self) {
        let begun = Begun::new(&*self.uses[self.index].mark);
        if !has_panicked_since(self.panicking) {
            begun.end();
        }
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        let Some(raw) = raw.filter(|_| !self.is_kept) else { return };
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        let unfinished = uses.iter().filter(|used| !used.passed);
        let mut after: Vec<&dyn DeviceStream> =
            unfinished.map(|used| &*used.mark.stream().raw).collect();
        // Without a stream, the end of a registration is waited for.
        let any = self.device.default_stream();
        if after.is_empty() && self.registered.is_some() {
            after.push(&*any.core.raw);
        }
        match self.registered.take() {
            // SAFETY: this device made it. Every stream that has unfinished copies on it is named, except those that a
            // named stream waits for.
            None => unsafe { self.device.raw().release(Released::Pinned(raw), &after) },
            // SAFETY: as above, and the holder keeps the memory.
            Some(holder) => unsafe { unregister(&self.device, raw, &after, holder) },
        }
    }
}

/// Ends a registration that `device` made.
///
/// # Safety
///
/// As [`HostRegistration::unregister`](crate::contract::HostRegistration::unregister).
unsafe fn unregister(
    device: &Device,
    raw: Box<dyn DevicePinned>,
    after: &[&dyn DeviceStream],
    holder: Arc<dyn Any + Send + Sync>,
) {
    match device.abilities().host_registration() {
        // SAFETY: the caller promises it.
        Some(ability) => unsafe { ability.unregister(raw, after, Box::new(holder)) },
        // The device denies the ability that it had, so the memory stays registered.
        None => std::mem::forget((raw, holder)),
    }
}

impl<T: Element> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} {} for {})", self.len, T::DTYPE, self.device().id())
    }
}
