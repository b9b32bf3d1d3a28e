//! Device memory with a single owner.
#![expect(
    unsafe_code,
    reason = "gives memory back to its device and lends host-visible memory as slices"
)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::contract::{DeviceMemory, Released};
use crate::element::check_representation;
use crate::mark::{InUses, Marks};
use crate::uses::{Used, Uses};
use crate::{
    Device, Element, Error, ErrorKind, MemoryView, MemoryViewMut, NativeHandle, NativeKind, Result,
    Stream,
};

/// Memory on a device for a fixed number of elements. Has one owner and is freed on drop.
///
/// Dropping memory with work in flight is safe, and does not block unless the driver leaves no other way. The device
/// frees the memory when the enqueued work that uses it is done on every stream, and every [`Graph`](crate::Graph) that
/// uses it is dropped. Forgetting memory (`mem::forget`) leaks it and has no other effect.
pub struct Memory<T: Element> {
    allocation: Arc<Allocation>,
    len: usize,
    element: PhantomData<T>,
}

/// The untyped allocation that views refer to.
pub(crate) struct Allocation {
    /// `None` for memory of no bytes, which is never allocated on a device.
    raw: ManuallyDrop<Option<Box<dyn DeviceMemory>>>,
    bytes: usize,
    /// The position of the first byte: 0 and an address, or the driver's handle of the object and 0.
    place: (usize, usize),
    /// The address of its first byte is a multiple of this.
    align: usize,
    /// Whether other memory may have its bytes: it was adopted, or its handle was given out.
    is_shared: AtomicBool,
    uses: Uses,
    /// The latest use on each stream, if the host can address the memory.
    marks: Option<Box<Marks>>,
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
            let marks = shown.then(Box::default);
            let place = raw.as_deref().map_or((0, 0), place);
            let is_shared = AtomicBool::new(false);
            Self {
                raw: ManuallyDrop::new(raw),
                bytes,
                place,
                align,
                is_shared,
                uses,
                marks,
                device,
            }
        })
    }

    pub(crate) fn align(&self) -> usize {
        self.align
    }

    /// Notes that other memory may have its bytes.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// The allocation, if other memory may have its bytes.
    #[inline]
    pub(crate) fn shared(&self) -> Option<Weak<dyn Used>> {
        if self.is_shared.load(Ordering::Acquire) { self.uses.owner() } else { None }
    }

    /// The vendor's handle, given out.
    pub(crate) fn native(&self) -> Option<NativeHandle> {
        self.share();
        self.raw().map(DeviceMemory::native)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn place(&self) -> (usize, usize) {
        self.place
    }

    #[inline]
    pub(crate) fn raw(&self) -> Option<&dyn DeviceMemory> {
        self.raw.as_deref()
    }

    /// Whether the host can address the memory. Memory of no bytes needs no address.
    pub(crate) fn is_host_visible(&self) -> bool {
        self.raw().is_none_or(|raw| raw.host_ptr().is_some())
    }

    #[inline]
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Registers a use by the next enqueue on `stream`, until `in_use` is dropped. `None` for memory of no bytes.
    #[inline(always)]
    pub(crate) fn begin<'a>(
        &'a self,
        stream: &'a Stream,
        in_use: &mut InUses<'a>,
    ) -> Option<&'a dyn DeviceMemory> {
        let raw = self.raw()?;
        self.uses.mark(stream, &self.device);
        if let Some(marks) = &self.marks {
            marks.begin(stream, in_use);
        }
        Some(raw)
    }

    fn wait(&self) -> Result<()> {
        self.marks.as_deref().map_or(Ok(()), Marks::wait)
    }

    /// Returns an error while work uses the memory, if the host can address it.
    fn check_idle(&self, operation: &'static str) -> Result<()> {
        if self.marks.as_deref().is_none_or(Marks::are_over) {
            return Ok(());
        }
        let message = format!("work uses the memory of {} bytes", self.bytes);
        Err(Error::new(ErrorKind::Conflict, operation, message).on(self.device.id()))
    }
}

/// The position of a memory's first byte. The contract requires that it is fixed.
fn place(memory: &dyn DeviceMemory) -> (usize, usize) {
    if let Some(address) = memory.host_ptr() {
        return (0, address.addr());
    }
    match memory.native() {
        NativeHandle { kind: NativeKind::Pointer, raw, .. } => (0, raw),
        NativeHandle { raw, .. } => (raw, 0),
    }
}

impl Used for Allocation {
    fn mark(&self, stream: &Stream) {
        self.uses.mark(stream, &self.device);
    }

    fn marks(&self) -> Option<&Marks> {
        self.marks.as_deref()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        if let Some(raw) = raw {
            // SAFETY: this device made it, and every stream on which an operation used it is registered.
            unsafe { self.uses.release(&self.device, Released::Memory(raw)) };
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

    /// A view of all elements, for reading, as a one-dimensional array.
    #[inline(always)]
    pub fn view(&self) -> MemoryView<'_, T> {
        MemoryView::whole(&self.allocation, self.len)
    }

    /// A view of all elements, for reading and writing, as a one-dimensional array.
    #[inline(always)]
    pub fn view_mut(&mut self) -> MemoryViewMut<'_, T> {
        MemoryViewMut::whole(&self.allocation, self.len)
    }

    /// A view of all elements, for reading and writing, through a shared borrow. It is meant for containers that
    /// themselves track which operations use which elements.
    ///
    /// # Safety
    ///
    /// The following holds while this view or a part of it is used, and until the work enqueued through it is done: no
    /// slice from [`as_slice`](Self::as_slice) or [`as_mut_slice`](Self::as_mut_slice) exists, and no code accesses the
    /// same elements through [`host_ptr`](Self::host_ptr).
    #[inline(always)]
    pub unsafe fn view_mut_shared(&self) -> MemoryViewMut<'_, T> {
        MemoryViewMut::whole(&self.allocation, self.len)
    }

    /// Whether the host can address the memory, so that [`as_slice`](Self::as_slice) works. Always `true` for memory
    /// without elements.
    pub fn is_host_visible(&self) -> bool {
        self.allocation.is_host_visible()
    }

    /// The address of the first element, if the host can address it. Valid for as long as the memory.
    ///
    /// Does not wait. The caller must access the elements only after the work that writes them is done, and must order
    /// later work that uses them after its own accesses.
    pub fn host_ptr(&self) -> Option<NonNull<T>> {
        self.host_pointer().and_then(NonNull::new)
    }

    /// Copies the elements to a new vector. Blocks until the copy is done.
    ///
    /// # Errors
    ///
    /// As [`MemoryView::to_vec`].
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.view().to_vec(stream)
    }

    /// Copies all elements from a host slice of the same length, in stream order. The runtime does not use `source` any
    /// more when the call returns.
    ///
    /// # Errors
    ///
    /// As [`MemoryViewMut::copy_from_slice`].
    pub fn copy_from_slice(&mut self, stream: &Stream, source: &[T]) -> Result<()> {
        self.view_mut().copy_from_slice(stream, source)
    }

    /// Enqueues a fill of every element with `value`.
    ///
    /// # Errors
    ///
    /// As [`MemoryViewMut::fill`].
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.view_mut().fill(stream, value)
    }

    /// The elements as a slice. Blocks until the work that uses this memory is done. Does not wait for later work of
    /// the same streams.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the host cannot address the memory: see [`is_host_visible`](Self::is_host_visible). Errors of
    /// the wait, for instance `DeviceLost`. A failure of the work itself is reported by its stream.
    pub fn as_slice(&self) -> Result<&[T]> {
        self.slice_after("as_slice", Allocation::wait)
    }

    /// The elements as a slice for writing. Blocks until the work that uses this memory is done. Does not wait for
    /// later work of the same streams.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.mut_slice_after("as_mut_slice", Allocation::wait)
    }

    /// As [`as_slice`](Self::as_slice), without blocking.
    ///
    /// # Errors
    ///
    /// `Conflict` unless the work that uses this memory is known to be done. `Unsupported` as
    /// [`as_slice`](Self::as_slice).
    pub fn try_as_slice(&self) -> Result<&[T]> {
        const OPERATION: &str = "try_as_slice";
        self.slice_after(OPERATION, |allocation| allocation.check_idle(OPERATION))
    }

    /// As [`as_mut_slice`](Self::as_mut_slice), without blocking.
    ///
    /// # Errors
    ///
    /// As [`try_as_slice`](Self::try_as_slice).
    pub fn try_as_mut_slice(&mut self) -> Result<&mut [T]> {
        const OPERATION: &str = "try_as_mut_slice";
        self.mut_slice_after(OPERATION, |allocation| allocation.check_idle(OPERATION))
    }

    /// Makes work enqueued on `stream` from now on wait for all work that uses this memory, on any stream. The stream
    /// waits on the device. The host blocks only for work on streams that other libraries own
    /// ([`Interop::stream_from_native`]).
    ///
    /// A failure of that work is reported by the stream on which it was enqueued.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the stream belongs to another device. `InvalidArgument` if it is the stream of a capture; the
    /// capture then fails. Errors of the driver.
    ///
    /// [`Interop::stream_from_native`]: crate::Interop::stream_from_native
    pub fn order_before(&self, stream: &Stream) -> Result<()> {
        let device = self.device();
        stream.device().check_same("order_before", device)?;
        self.allocation.uses.order_before(stream, device).map_err(|e| device.place(e))
    }

    /// The elements, after `done` has ensured that no work uses them.
    fn slice_after(
        &self,
        operation: &'static str,
        done: impl FnOnce(&Allocation) -> Result<()>,
    ) -> Result<&[T]> {
        let pointer = self.host_pointer().ok_or_else(|| self.hidden(operation))?;
        done(&self.allocation)?;
        // SAFETY: the memory holds `len` elements, for which any bits are valid. A write needs `view_mut`. So none was
        // enqueued since `done` returned, and none can be enqueued while the slice borrows the memory. The caller of a
        // graph launch guarantees that no such slice exists.
        Ok(unsafe { std::slice::from_raw_parts(pointer, self.len) })
    }

    /// As [`slice_after`](Self::slice_after), to write.
    fn mut_slice_after(
        &mut self,
        operation: &'static str,
        done: impl FnOnce(&Allocation) -> Result<()>,
    ) -> Result<&mut [T]> {
        let pointer = self.host_pointer().ok_or_else(|| self.hidden(operation))?;
        done(&self.allocation)?;
        // SAFETY: as in `slice_after`. Reads cannot be enqueued either, because the slice borrows exclusively.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer, self.len) })
    }

    #[cold]
    fn hidden(&self, operation: &'static str) -> Error {
        let message = "the host cannot address memory of this device";
        Error::new(ErrorKind::Unsupported, operation, message).on(self.device().id())
    }

    fn host_pointer(&self) -> Option<*mut T> {
        match self.allocation.raw() {
            None => Some(std::ptr::dangling_mut()),
            Some(raw) => raw.host_ptr().map(<*mut u8>::cast),
        }
    }

    /// The vendor's handle, valid for as long as the memory. `None` for memory of no bytes.
    pub fn native(&self) -> Option<NativeHandle> {
        self.allocation.native()
    }
}

impl<T: Element> fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} {} on {})", self.len, T::DTYPE, self.device().id())
    }
}
