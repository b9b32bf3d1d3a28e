//! Views: parts of a memory with a layout, for reading or for writing.
#![expect(
    unsafe_code,
    reason = "copies call the stream's unsafe enqueues after checking what they demand"
)]

mod footprint;
mod report;
mod run;
mod untyped;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::footprint::Footprint;
pub(crate) use self::report::reported;
pub use self::report::{UnfinishedWrite, WriteReport};
pub(crate) use self::untyped::{Untyped, UntypedMut, check_use};
use crate::element::check_representation;
use crate::memory::Allocation;
use crate::{
    DType, Device, Element, Error, ErrorKind, Layout, MemoryViewOutside, NativeHandle, PinnedView,
    PinnedViewMut, RegionSide, Result, Stream,
};

/// The type argument of [`AnyView`], [`AnyViewMut`] and [`AnyViewOutside`](crate::AnyViewOutside): the element type is
/// known only at run time. It has no values.
#[derive(Clone, Copy, Debug)]
pub enum Dynamic {}

/// A view for reading whose element type is known only at run time. [`typed`](MemoryView::typed) gives it a type.
pub type AnyView<'a> = MemoryView<'a, Dynamic>;

/// A view for reading and writing whose element type is known only at run time. [`typed`](MemoryViewMut::typed) gives
/// it a type.
pub type AnyViewMut<'a> = MemoryViewMut<'a, Dynamic>;

/// A part of a memory, for reading: the position and layout of its elements of type `T`.
///
/// A view borrows the memory, so the memory cannot be freed while the view exists. Work enqueued through a view may
/// still run after the view is gone.
///
/// If the element type is known only at run time, `T` is [`Dynamic`]. Such a view is an [`AnyView`]. It has every
/// operation that needs no Rust type. [`erase`](Self::erase) and [`typed`](Self::typed) convert between the two.
///
/// ```
/// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
/// use runtime_core::{AnyView, DType, MemoryView};
///
/// let stream = device.default_stream();
/// let memory = device.memory_from_slice(&stream, &[1.0_f64, 2.0, 3.0])?;
/// let view: MemoryView<'_, f64> = memory.view();
/// let values = view.slice(1..3)?.to_vec(&stream)?;
/// assert_eq!(values, [2.0, 3.0]);
///
/// let any: AnyView<'_> = view.erase();
/// assert_eq!(any.dtype(), DType::F64);
/// let again: MemoryView<'_, f64> = any.typed::<f64>()?;
/// assert!(any.typed::<f32>().is_err());
/// # assert_eq!(again.len(), 3);
/// # Ok(())
/// # }
/// ```
pub struct MemoryView<'a, T> {
    // If `T` is an element, the layout has its element type.
    untyped: Untyped<'a>,
    // A view holds no `T`, so it is `Send` and `Sync` whatever `T` is.
    element: PhantomData<fn() -> T>,
}

// Not derived, because `T` need not be `Copy`.
impl<T> Clone for MemoryView<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MemoryView<'_, T> {}

impl<'a, T> MemoryView<'a, T> {
    /// The caller knows that the layout has the element type of `T`.
    #[inline(always)]
    fn of(untyped: Untyped<'a>) -> Self {
        Self { untyped, element: PhantomData }
    }

    #[inline]
    pub(crate) fn untyped(&self) -> &Untyped<'a> {
        &self.untyped
    }

    /// Type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.untyped.dtype()
    }

    /// Element type, shape and strides.
    #[inline]
    pub fn layout(&self) -> &Layout {
        self.untyped.layout()
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.untyped.len()
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.untyped.is_empty()
    }

    /// The device the memory is on.
    #[inline]
    pub fn device(&self) -> &'a Device {
        self.untyped.device()
    }

    /// The byte range in the memory that contains all elements: from the first byte of the lowest element to the end of
    /// the highest.
    #[inline]
    pub fn byte_range(&self) -> Range<usize> {
        self.untyped.byte_range()
    }

    /// Size in bytes of the whole memory to which the view belongs.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.untyped.allocation().bytes()
    }

    /// Whether the host can address the memory.
    pub fn is_host_visible(&self) -> bool {
        self.untyped.allocation().is_host_visible()
    }

    /// Whether both views belong to the same allocation.
    pub fn shares_memory<U>(&self, other: &MemoryView<'_, U>) -> bool {
        self.untyped.shares_memory(&other.untyped)
    }

    /// Whether elements of both views share bytes. The views may belong to one memory, or to two memories of one device
    /// that [adopted](Device::memory_adopt) the same addresses or the same object. Also `true` if the strides are too
    /// complex to decide.
    ///
    /// Overlap of adopted parts of one object, such as OpenCL sub-buffers, is not detected.
    pub fn overlaps<U>(&self, other: &MemoryView<'_, U>) -> bool {
        self.untyped.overlaps(&other.untyped)
    }

    /// The vendor's handle of the whole memory. `None` for memory of no bytes.
    pub fn native(&self) -> Option<NativeHandle> {
        self.untyped.allocation().native()
    }

    /// The elements, to compare with those of views in other threads. `None` if no other memory can have their bytes:
    /// memory that was not [adopted](Device::memory_adopt), and whose [handle](Self::native) was never requested.
    #[inline]
    pub fn footprint(&self) -> Option<Footprint> {
        Footprint::of(&self.untyped)
    }

    /// The same view, with an element type known only at run time. The binding to a stream stays.
    #[inline]
    pub fn erase(self) -> AnyView<'a> {
        MemoryView::of(self.untyped)
    }

    /// The elements with indices `range` of a one-dimensional view.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the range extends beyond the view. `InvalidArgument` if the view is not one-dimensional.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        self.untyped.slice(range).map(Self::of)
    }

    /// The box of elements with indices `ranges`, one range for each dimension.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if a range extends beyond the view. `InvalidArgument` if the numbers of ranges and dimensions
    /// differ.
    pub fn region(&self, ranges: &[Range<usize>]) -> Result<Self> {
        self.untyped.region("region", ranges).map(Self::of)
    }

    /// All elements in memory from the lowest of this view to the highest, as a one-dimensional array. This is for
    /// kernels that are Rust functions, which accept no view with gaps. If all strides are positive, the element with
    /// the indices `[i, j, …]` of the view has the index `i · strides[0] + j · strides[1] + …` in this array.
    ///
    /// # Errors
    ///
    /// None occur for existing views.
    ///
    /// # Safety
    ///
    /// Work that uses the result must read only the elements of this view. Other operations may write the bytes between
    /// them at the same time.
    pub unsafe fn span(&self) -> Result<Self> {
        self.untyped.span().map(Self::of)
    }

    /// The same bytes with another layout of the same element type. Its element `[0, …, 0]` lies `offset` bytes after
    /// the lowest byte of this view.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the layout's span extends beyond the bytes of this view. `InvalidArgument` if the layout has
    /// another element type, if the offset is not aligned for it, or if this view is not contiguous.
    pub fn with_layout(&self, offset: usize, layout: &Layout) -> Result<Self> {
        self.untyped.with_layout(offset, layout).map(Self::of)
    }

    /// As [`with_layout`](Self::with_layout), but the layout may have any element type, because every element type
    /// accepts any bytes: see [`Element`].
    ///
    /// # Errors
    ///
    /// As [`with_layout`](Self::with_layout), except that the element type may differ.
    pub fn reinterpret(&self, offset: usize, layout: &Layout) -> Result<AnyView<'a>> {
        self.untyped.reinterpret("reinterpret", offset, layout).map(MemoryView::of)
    }

    /// The same view with this shape in row-major order.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of elements differs, or if this view is not contiguous.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        self.untyped.reshape(shape).map(Self::of)
    }

    /// The same view, bound to one stream. Operations on every other stream then return `WrongStream`.
    ///
    /// # Errors
    ///
    /// `WrongStream` if it is already bound to another stream. `WrongDevice` for a stream of another device.
    #[inline]
    pub fn on_stream(self, stream: &Stream) -> Result<Self> {
        self.untyped.on_stream(stream).map(Self::of)
    }

    /// The same view, bound to this stream instead of its previous stream.
    ///
    /// # Safety
    ///
    /// The view's lender had bound it to a stream, and had ordered this stream after some earlier work. Work enqueued
    /// through the new view must be ordered after the same earlier work. Before the lifetime of the view ends, the
    /// lender's stream must be made to wait for the work enqueued through the new view.
    #[must_use]
    pub unsafe fn rebound_to(self, stream: &Stream) -> Self {
        // SAFETY: the caller promises the same.
        Self::of(unsafe { self.untyped.rebound_to(stream) })
    }

    /// Whether work on `stream` may use the view: the stream belongs to the same device, and if the view is bound to a
    /// stream, it is that stream.
    pub fn is_usable_on(&self, stream: &Stream) -> bool {
        self.untyped.check_stream("is_usable_on", stream).is_ok()
    }

    /// This view as one side of a region copy. At execution, bind `slot` to a view that covers `bound`.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if this view is not a part of `bound`.
    pub fn region_side_in<U>(&self, slot: usize, bound: &MemoryView<'_, U>) -> Result<RegionSide> {
        self.untyped.region_side_in(slot, &bound.untyped)
    }

    /// This view as one side of a region copy, bound to `slot`. Offsets count from the lowest byte of this view, so at
    /// execution bind exactly this view to the slot. To bind a larger view, use
    /// [`region_side_in`](Self::region_side_in).
    pub fn region_side(&self, slot: usize) -> RegionSide {
        self.untyped.region_side(slot)
    }
}

impl<'a, T: Element> MemoryView<'a, T> {
    #[inline(always)]
    pub(crate) fn whole(allocation: &'a Allocation, len: usize) -> Self {
        Self::of(Untyped::whole(allocation, Layout::row_unchecked(T::DTYPE, len)))
    }

    /// Copies the elements to the host in stream order, in row-major order of their indices. Blocks until `out` is
    /// filled.
    ///
    /// If the view is not contiguous, its elements are first gathered on the device, by a region copy to new memory.
    /// For repeated copies, create this memory and the [plan](Device::plan_regions) once.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if `out` and the view have different numbers of elements. `WrongDevice` or `WrongStream` if the
    /// stream cannot use the view. In these cases nothing was copied. Otherwise errors of the driver, and `OutOfMemory`
    /// for a view that is not contiguous. Also returns the first failure of earlier work on the stream that was not
    /// reported before; [`Stream::synchronize`] does not report it again. `DeviceFault` if a failure on the stream was
    /// reported to another caller during the call: the values may then be wrong.
    #[inline(always)]
    pub fn copy_to_slice(&self, stream: &Stream, out: &mut [T]) -> Result<()> {
        const OPERATION: &str = "copy_to_slice";
        if let Some(run) = self.untyped.run() {
            return run.copy_to_host(OPERATION, stream, bytemuck::cast_slice_mut(out));
        }
        self.gather(OPERATION, stream, out)
    }

    /// Copies a view with gaps to the host for `operation`, which errors name.
    fn gather(&self, operation: &'static str, stream: &Stream, out: &mut [T]) -> Result<()> {
        self.untyped.check_copy(operation, stream, out.len())?;
        let failures = stream.core.failures();
        let packed = stream.core.or_end_capture(self.packed(stream))?;
        packed.view().copy_to_slice(stream, out)?;
        let checked = stream.core.check_since(operation, failures);
        checked.map_err(|e| self.device().place(e))
    }

    /// Enqueues a copy of the elements to the beginning of `out`, which is a [`Pinned`](crate::Pinned) or a
    /// [part](crate::Pinned::slice_mut) of one. The call borrows `out` only until it returns.
    ///
    /// # Errors
    ///
    /// As [`copy_to_slice`](Self::copy_to_slice), but `out` may be longer than the view. `InvalidArgument` if the view
    /// is not contiguous ([`Device::plan_regions`] gathers such views).
    #[inline(always)]
    pub fn copy_to_pinned<'p>(
        &self,
        stream: &Stream,
        out: impl Into<PinnedViewMut<'p, T>>,
    ) -> Result<()> {
        let pinned = out.into().untyped();
        self.untyped.contiguous("copy_to_pinned")?.copy_to_pinned(stream, &pinned)
    }

    /// Copies the elements to a new vector. Blocks until the copy is done.
    ///
    /// # Errors
    ///
    /// As [`copy_to_slice`](Self::copy_to_slice). `OutOfMemory` if the host does not have enough memory.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        // Checked before the vector is allocated.
        self.untyped.check_copy("to_vec", stream, self.len())?;
        let mut out = bytemuck::try_zeroed_vec(self.len()).map_err(|()| {
            let message = format!("{} bytes on the host", self.len() * size_of::<T>());
            Error::new(ErrorKind::OutOfMemory, "to_vec", message).on(self.device().id())
        })?;
        self.copy_to_slice(stream, &mut out)?;
        Ok(out)
    }
}

impl<'a> AnyView<'a> {
    #[inline]
    pub(crate) fn any(untyped: Untyped<'a>) -> Self {
        Self::of(untyped)
    }

    /// The same view, with the element type known at compile time. The binding to a stream stays.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the elements are not of type `T`.
    pub fn typed<T: Element>(self) -> Result<MemoryView<'a, T>> {
        check_type::<T>(&self.untyped)?;
        Ok(MemoryView::of(self.untyped))
    }
}

/// Checks that the elements of a view are of type `T`.
#[inline]
fn check_type<T: Element>(view: &Untyped<'_>) -> Result<()> {
    const { check_representation::<T>() };
    if view.dtype() == T::DTYPE { Ok(()) } else { Err(other_type(view, T::DTYPE)) }
}

#[cold]
fn other_type(view: &Untyped<'_>, asked: DType) -> Error {
    let message = format!("a view of {} elements as one of {asked}", view.dtype());
    view.device().invalid("typed", message)
}

impl<'a, T: Element> From<MemoryView<'a, T>> for AnyView<'a> {
    #[inline]
    fn from(view: MemoryView<'a, T>) -> Self {
        view.erase()
    }
}

impl<T> fmt::Debug for MemoryView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} view of shape {:?} on {}",
            self.dtype(),
            self.layout().shape(),
            self.device().id()
        )
    }
}

/// A part of a memory, for reading and writing. `T` is the element type, as for a [`MemoryView`]. Not `Clone`:
/// [`reborrow`](Self::reborrow) lends it, and [`split_at`](Self::split_at) divides it.
pub struct MemoryViewMut<'a, T> {
    // If `T` is an element, the layout has its element type.
    untyped: UntypedMut<'a>,
    element: PhantomData<fn() -> T>,
}

impl<'a, T> MemoryViewMut<'a, T> {
    /// The caller knows that the layout has the element type of `T`.
    #[inline(always)]
    fn of(untyped: UntypedMut<'a>) -> Self {
        Self { untyped, element: PhantomData }
    }

    /// A part of this view, made by `part`, or an error.
    #[inline]
    fn part(self, part: Result<Untyped<'a>>) -> Result<Self> {
        Ok(Self::of(UntypedMut { view: part?, ..self.untyped }))
    }

    #[inline]
    pub(crate) fn untyped(&self) -> &UntypedMut<'a> {
        &self.untyped
    }

    #[inline]
    pub(crate) fn into_untyped(self) -> UntypedMut<'a> {
        self.untyped
    }

    /// The same part, for reading.
    #[inline]
    pub fn as_view(&self) -> MemoryView<'_, T> {
        MemoryView::of(self.untyped.view)
    }

    /// The same part with a shorter lifetime.
    #[inline]
    pub fn reborrow(&mut self) -> MemoryViewMut<'_, T> {
        MemoryViewMut::of(self.untyped.reborrow())
    }

    /// Type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.untyped.view.dtype()
    }

    /// Element type, shape and strides.
    #[inline]
    pub fn layout(&self) -> &Layout {
        self.untyped.view.layout()
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.untyped.view.len()
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.untyped.view.is_empty()
    }

    /// The device the memory is on.
    #[inline]
    pub fn device(&self) -> &'a Device {
        self.untyped.device()
    }

    /// As [`MemoryView::erase`]. The [report](Self::reporting_to) to the lender stays too.
    #[inline]
    pub fn erase(self) -> AnyViewMut<'a> {
        MemoryViewMut::of(self.untyped)
    }

    /// As [`MemoryView::slice`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::slice`].
    pub fn slice(self, range: Range<usize>) -> Result<Self> {
        let part = self.untyped.view.slice(range);
        self.part(part)
    }

    /// As [`MemoryView::region`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::region`].
    pub fn region(self, ranges: &[Range<usize>]) -> Result<Self> {
        let part = self.untyped.view.region("region", ranges);
        self.part(part)
    }

    /// As [`MemoryView::with_layout`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::with_layout`]. Also `InvalidArgument` if elements might share bytes: each stride must be
    /// greater than the extent that the dimensions with smaller strides cover.
    pub fn with_layout(self, offset: usize, layout: &Layout) -> Result<Self> {
        self.untyped.check_nested("with_layout", layout)?;
        let part = self.untyped.view.with_layout(offset, layout);
        self.part(part)
    }

    /// As [`MemoryView::reinterpret`].
    ///
    /// # Errors
    ///
    /// As [`with_layout`](Self::with_layout), except that the element type may differ.
    pub fn reinterpret(self, offset: usize, layout: &Layout) -> Result<AnyViewMut<'a>> {
        self.untyped.check_nested("reinterpret", layout)?;
        let part = self.untyped.view.reinterpret("reinterpret", offset, layout);
        self.erase().part(part)
    }

    /// As [`MemoryView::reshape`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::reshape`].
    pub fn reshape(self, shape: &[usize]) -> Result<Self> {
        let part = self.untyped.view.reshape(shape);
        self.part(part)
    }

    /// Splits the view into two parts along the first dimension: the indices below `middle`, and the others.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if `middle` is past the end. `InvalidArgument` for a view without dimensions.
    pub fn split_at(self, middle: usize) -> Result<(Self, Self)> {
        let (first, second) = self.untyped.halves(middle)?;
        let report = self.untyped.report;
        let part = |view| Self::of(UntypedMut { view, report });
        Ok((part(first), part(second)))
    }

    /// Splits off the box with indices `ranges`, one range for each dimension. Returns two views: the elements inside
    /// the box, for reading, and the elements outside it, which only region plans may write.
    ///
    /// # Errors
    ///
    /// As [`region`](Self::region).
    pub fn split_off_box(
        self,
        ranges: &[Range<usize>],
    ) -> Result<(MemoryView<'a, T>, MemoryViewOutside<'a, T>)> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let inside = self.untyped.view.region("split_off_box", ranges)?;
        let split = NEXT.fetch_add(1, Ordering::Relaxed);
        let inside = MemoryView::of(Untyped { split, ..inside });
        Ok((inside, MemoryViewOutside::new(self, inside)))
    }

    /// As [`MemoryView::on_stream`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::on_stream`].
    #[inline]
    pub fn on_stream(self, stream: &Stream) -> Result<Self> {
        let bound = self.untyped.view.on_stream(stream);
        self.part(bound)
    }

    /// The same view, which reports the outcome of writes through it to its lender.
    ///
    /// # Errors
    ///
    /// `Conflict` if the view already reports to a lender.
    #[inline]
    pub fn reporting_to(self, report: &'a WriteReport) -> Result<Self> {
        if self.untyped.report.is_some() {
            return Err(self.untyped.reports_already());
        }
        Ok(Self::of(UntypedMut { report: Some(report), ..self.untyped }))
    }

    /// Begins a write that consists of several operations, such as an exchange. The lender of the view counts it as
    /// failed until [`UnfinishedWrite::end`]: some elements may have new values, and others old ones. Does nothing if
    /// the view [reports](Self::reporting_to) to no lender.
    #[inline]
    pub fn begin_write(&mut self) -> UnfinishedWrite<'a> {
        UnfinishedWrite::begin(self.untyped.report)
    }

    /// Enqueues a copy from a view of the same device. If both views are contiguous, it copies bytes. Otherwise a
    /// region copy copies elements with the same indices; it blocks on devices where region copies are
    /// [emulated](crate::RegionPlan).
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the numbers of elements differ. `InvalidArgument` if the views overlap, if a view is not
    /// contiguous and the shapes differ, or if the types of two [`AnyView`]s differ. `WrongDevice` for a view of
    /// another device; use [`copy_from_device`](Self::copy_from_device) instead. `WrongStream` if a view is bound to
    /// another stream. Otherwise errors of the driver.
    #[inline(always)]
    pub fn copy_from(&mut self, stream: &Stream, source: &MemoryView<'_, T>) -> Result<()> {
        match (self.untyped.run(), source.untyped.run()) {
            (Some(to), Some(from)) => to.copy_from("copy_from", stream, &from),
            _ => self.untyped.copy_with_gaps(stream, &source.untyped),
        }
    }

    /// Copies from a view of another device. The copy runs after all work enqueued so far on `stream` and on
    /// `source_stream`. Later work on `stream` runs after the copy. Later work on `source_stream` waits until the
    /// source has been read.
    ///
    /// If the two devices [reach](Device::reaches) each other, the copy is enqueued without blocking. Otherwise it is
    /// staged through the host and blocks until the copy is done. A source on the same device is copied as by
    /// [`copy_from`](Self::copy_from), with the same ordering after `source_stream`.
    ///
    /// # Errors
    ///
    /// As [`copy_from`](Self::copy_from); each stream must belong to the device of its view. `InvalidArgument` if a
    /// view is not contiguous, or if two devices adopted the same memory and the views overlap there. Such overlap is
    /// only detected if the devices reach each other, or if the host can address both memories. `DeviceFault` if the
    /// copy is staged and a failure on one of the streams was reported to another caller during the call.
    pub fn copy_from_device(
        &mut self,
        stream: &Stream,
        source: &MemoryView<'_, T>,
        source_stream: &Stream,
    ) -> Result<()> {
        self.untyped.copy_from_device(stream, &source.untyped, source_stream)
    }

    /// Enqueues a fill of every byte of the elements with zero.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    #[inline(always)]
    pub fn fill_zero(&mut self, stream: &Stream) -> Result<()> {
        self.untyped.fill_bytes("fill_zero", stream, &[0])
    }
}

impl<'a, T: Element> MemoryViewMut<'a, T> {
    /// The caller knows that nothing else uses the elements while the view exists.
    #[inline(always)]
    pub(crate) fn whole(allocation: &'a Allocation, len: usize) -> Self {
        let MemoryView { untyped: view, .. } = MemoryView::<T>::whole(allocation, len);
        Self::of(UntypedMut { view, report: None })
    }

    /// Copies elements from the host to the device in stream order, in row-major order of their indices. `source` is no
    /// longer used on return. If the view is not contiguous, the elements are first copied to new memory on the device,
    /// on a stream of their own, and then by a region copy to the view.
    ///
    /// # Errors
    ///
    /// As [`MemoryView::copy_to_slice`].
    #[inline(always)]
    pub fn copy_from_slice(&mut self, stream: &Stream, source: &[T]) -> Result<()> {
        const OPERATION: &str = "copy_from_slice";
        let bytes = bytemuck::cast_slice(source);
        if let Some(run) = self.untyped.run() {
            return run.copy_from_host(OPERATION, stream, bytes);
        }
        self.untyped.view.check_copy(OPERATION, stream, source.len())?;
        self.untyped.copy_from_host_strided(stream, bytes)
    }

    /// Enqueues a copy from the beginning of `source`, which is a [`Pinned`](crate::Pinned) or a
    /// [part](crate::Pinned::slice) of one. The call borrows `source` only until it returns.
    ///
    /// # Errors
    ///
    /// As [`MemoryView::copy_to_pinned`]; `source` may be longer than the view.
    #[inline(always)]
    pub fn copy_from_pinned<'p>(
        &mut self,
        stream: &Stream,
        source: impl Into<PinnedView<'p, T>>,
    ) -> Result<()> {
        let pinned = source.into().untyped();
        self.untyped.contiguous("copy_from_pinned")?.copy_from_pinned(stream, &pinned)
    }

    /// Enqueues a fill of every element with `value`. If the view is not contiguous, or if its elements are records of
    /// other sizes than 1, 2, 4, 8 and 16 bytes, the value is first copied to new memory on the device, on a stream of
    /// its own. This blocks, but not for work on `stream`, unless the device runs one stream at a time. A region copy
    /// follows, which blocks on devices where region copies are [emulated](crate::RegionPlan).
    ///
    /// # Errors
    ///
    /// `WrongDevice` or `WrongStream` if the stream cannot use the view. Otherwise errors of the driver, and
    /// `OutOfMemory` if the value is copied.
    #[inline(always)]
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.untyped.fill_bytes("fill", stream, bytemuck::bytes_of(&value))
    }
}

impl<'a> AnyViewMut<'a> {
    #[inline]
    pub(crate) fn any(untyped: UntypedMut<'a>) -> Self {
        Self::of(untyped)
    }

    /// As [`MemoryView::typed`]. The [report](Self::reporting_to) to the lender stays too.
    ///
    /// # Errors
    ///
    /// As [`MemoryView::typed`].
    pub fn typed<T: Element>(self) -> Result<MemoryViewMut<'a, T>> {
        check_type::<T>(&self.untyped.view)?;
        Ok(MemoryViewMut::of(self.untyped))
    }
}

impl<'a, T: Element> From<MemoryViewMut<'a, T>> for AnyViewMut<'a> {
    #[inline]
    fn from(view: MemoryViewMut<'a, T>) -> Self {
        view.erase()
    }
}

impl<T> fmt::Debug for MemoryViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mutable {:?}", self.as_view())
    }
}
