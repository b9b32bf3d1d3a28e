//! Device memory with one owner.
#![expect(
    unsafe_code,
    reason = "gives memory back to its device and lends host-visible memory as slices"
)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::contract::DeviceMemory;
use crate::element::check_representation;
use crate::mark::{InUse, Marks};
use crate::uses::{Used, Uses};
use crate::{
    Device, Element, Error, ErrorKind, Layout, MemoryView, MemoryViewMut, NativeHandle, Result,
    Stream,
};

/// Memory on a device for a fixed number of elements. One owner, freed on drop.
///
/// The type is checked here; views know it at run time alone.
///
/// Dropping it with work in flight is safe and does not block where the driver can avoid it: the device frees it once
/// every stream it was used on has got that far, and every [`Graph`](crate::Graph) that uses it is gone. Forgetting it
/// leaks it and nothing else.
pub struct Memory<T: Element> {
    allocation: Arc<Allocation>,
    len: usize,
    element: PhantomData<T>,
}

/// The untyped allocation that views refer to.
pub(crate) struct Allocation {
    /// `None` for memory of no bytes, which no device ever sees.
    raw: ManuallyDrop<Option<Box<dyn DeviceMemory>>>,
    bytes: usize,
    /// What its first byte's address is a multiple of.
    align: usize,
    uses: Uses,
    /// How far streams are with it, if the host can address it.
    marks: Option<Marks>,
    device: Device,
}

impl Allocation {
    #[inline]
    pub(crate) fn new(
        raw: Option<Box<dyn DeviceMemory>>,
        bytes: usize,
        align: usize,
        device: Device,
    ) -> Arc<Self> {
        Arc::new_cyclic(|allocation: &Weak<Self>| {
            let uses = Uses::of(allocation.clone());
            let shown = raw.as_ref().is_some_and(|raw| raw.host_ptr().is_some());
            let marks = shown.then(Marks::default);
            Self { raw: ManuallyDrop::new(raw), bytes, align, uses, marks, device }
        })
    }

    pub(crate) fn align(&self) -> usize {
        self.align
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn raw(&self) -> Option<&dyn DeviceMemory> {
        self.raw.as_deref()
    }

    #[inline]
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Notes a use by an enqueue on `stream` that comes now, and ends when the second of the result is dropped. `None`
    /// for memory of no bytes.
    #[inline(always)]
    pub(crate) fn begin<'a>(
        &'a self,
        stream: &'a Stream,
    ) -> Option<(&'a dyn DeviceMemory, Option<InUse<'a>>)> {
        let raw = self.raw()?;
        self.uses.mark(stream, &self.device);
        let in_use = match &self.marks {
            None => None,
            Some(marks) => marks.begin(stream),
        };
        Some((raw, in_use))
    }

    fn wait(&self) -> Result<()> {
        self.marks.as_ref().map_or(Ok(()), Marks::wait)
    }

    /// Refuses memory that the host can address while work uses it.
    fn check_idle(&self, operation: &'static str) -> Result<()> {
        if self.marks.as_ref().is_none_or(Marks::are_over) {
            return Ok(());
        }
        let message = format!("work uses the memory of {} bytes", self.bytes);
        Err(Error::new(ErrorKind::Conflict, operation, message).on(self.device.id()))
    }
}

impl Used for Allocation {
    fn mark(&self, stream: &Stream) {
        self.uses.mark(stream, &self.device);
    }

    fn marks(&self) -> Option<&Marks> {
        self.marks.as_ref()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        if let Some(raw) = raw {
            // SAFETY: this device made it, and every stream that ever got an operation on it is noted.
            self.uses.with_streams(|after| unsafe { self.device.raw().memory_free(raw, after) });
        }
    }
}

impl<T: Element> Memory<T> {
    #[inline]
    pub(crate) fn new(allocation: Arc<Allocation>, len: usize) -> Self {
        const { check_representation::<T>() };
        Self { allocation, len, element: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.allocation.bytes
    }

    /// The device it is on.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.allocation.device
    }

    /// All of it, to read, as a row of elements.
    #[inline(always)]
    pub fn view(&self) -> MemoryView<'_> {
        MemoryView::whole(&self.allocation, self.row())
    }

    /// All of it, to read and write, as a row of elements.
    #[inline(always)]
    pub fn view_mut(&mut self) -> MemoryViewMut<'_> {
        let row = self.row();
        MemoryViewMut::new(MemoryView::whole(&self.allocation, row))
    }

    /// All of it, to read and write, although it is borrowed to be shared: for containers that keep account of who uses
    /// which elements.
    ///
    /// # Safety
    ///
    /// As long as this view, or a part of it, is used, and until what was enqueued through it is done, there is no
    /// slice of [`as_slice`](Self::as_slice) or [`as_mut_slice`](Self::as_mut_slice), and whoever uses
    /// [`host_ptr`](Self::host_ptr) does not touch the same elements.
    #[inline(always)]
    pub unsafe fn view_mut_shared(&self) -> MemoryViewMut<'_> {
        MemoryViewMut::new(MemoryView::whole(&self.allocation, self.row()))
    }

    /// Where the first element lies, if the host can address it; valid for as long as the memory.
    ///
    /// Nothing waits: whoever follows the pointer does so after the work that writes there, and lets work that
    /// touches it come later.
    pub fn host_ptr(&self) -> Option<NonNull<T>> {
        self.host_pointer().and_then(NonNull::new)
    }

    #[inline(always)]
    fn row(&self) -> Layout {
        Layout::row_unchecked(T::DTYPE, self.len)
    }

    /// The elements as a new vector. Blocks until the copy is done.
    ///
    /// # Errors
    ///
    /// As [`MemoryView::to_vec`].
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.view().to_vec(stream)
    }

    /// Copies host elements, as many as there are, to the device in stream order. Done with `source` on return.
    ///
    /// # Errors
    ///
    /// As [`MemoryViewMut::copy_from_slice`].
    pub fn copy_from_slice(&mut self, stream: &Stream, source: &[T]) -> Result<()> {
        self.view_mut().copy_from_slice(stream, source)
    }

    /// Enqueues filling every element with `value`.
    ///
    /// # Errors
    ///
    /// As [`MemoryViewMut::fill`].
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.view_mut().fill(stream, value)
    }

    /// The elements, if the host can address them. Blocks until the work that uses this memory is done, and for no other
    /// work of its streams.
    ///
    /// # Errors
    ///
    /// What waiting for that work reports, `DeviceLost` for instance. A failure of the work itself is reported by its
    /// stream.
    pub fn as_slice(&self) -> Option<Result<&[T]>> {
        self.slice_after(Allocation::wait)
    }

    /// The elements for writing, if the host can address them. Blocks until the work that uses this memory is done, and
    /// for no other work of its streams.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Option<Result<&mut [T]>> {
        self.mut_slice_after(Allocation::wait)
    }

    /// As [`as_slice`](Self::as_slice), without blocking.
    ///
    /// # Errors
    ///
    /// `Conflict` unless the work that uses this memory is known to be done.
    pub fn try_as_slice(&self) -> Option<Result<&[T]>> {
        self.slice_after(|allocation| allocation.check_idle("try_as_slice"))
    }

    /// As [`as_mut_slice`](Self::as_mut_slice), without blocking.
    ///
    /// # Errors
    ///
    /// As [`try_as_slice`](Self::try_as_slice).
    pub fn try_as_mut_slice(&mut self) -> Option<Result<&mut [T]>> {
        self.mut_slice_after(|allocation| allocation.check_idle("try_as_mut_slice"))
    }

    /// Lets what is enqueued on `stream` from here on come after all work on this memory, on whatever stream it was enqueued.
    /// Waits on the device; the host blocks only for work on streams of other owners ([`Interop::stream_from_native`]).
    ///
    /// A failure of that work is reported by the stream it was enqueued on.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the stream is of another device; what the driver reports.
    ///
    /// [`Interop::stream_from_native`]: crate::Interop::stream_from_native
    pub fn order_before(&self, stream: &Stream) -> Result<()> {
        let device = self.device();
        stream.device().check_same("order_before", device)?;
        self.allocation.uses.order_before(stream, device).map_err(|e| device.place(e))
    }

    /// The elements, when `done` has found that no work uses them.
    fn slice_after(&self, done: impl FnOnce(&Allocation) -> Result<()>) -> Option<Result<&[T]>> {
        let pointer = self.host_pointer()?;
        Some(done(&self.allocation).map(|()| {
            // SAFETY: the memory holds `len` elements of any bits. Writes need `view_mut`, so none was enqueued since work
            // was found done, and none can be while the slice borrows the memory; who launches a graph promises that
            // nobody has such a slice.
            unsafe { std::slice::from_raw_parts(pointer, self.len) }
        }))
    }

    /// As [`slice_after`](Self::slice_after), to write.
    fn mut_slice_after(
        &mut self,
        done: impl FnOnce(&Allocation) -> Result<()>,
    ) -> Option<Result<&mut [T]>> {
        let pointer = self.host_pointer()?;
        Some(done(&self.allocation).map(|()| {
            // SAFETY: as in `slice_after`; reads cannot be enqueued either, for the slice borrows exclusively.
            unsafe { std::slice::from_raw_parts_mut(pointer, self.len) }
        }))
    }

    fn host_pointer(&self) -> Option<*mut T> {
        match self.allocation.raw() {
            None => Some(std::ptr::dangling_mut()),
            Some(raw) => raw.host_ptr().map(<*mut u8>::cast),
        }
    }

    /// The vendor's handle, valid for as long as the memory; `None` for memory of no bytes.
    pub fn native(&self) -> Option<NativeHandle> {
        self.allocation.raw().map(DeviceMemory::native)
    }
}

impl<T: Element> fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} {} on {})", self.len, T::DTYPE, self.device().id())
    }
}
