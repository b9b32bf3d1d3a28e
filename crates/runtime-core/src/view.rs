//! Views: parts of a memory with a layout, to read or to write.
#![expect(
    unsafe_code,
    reason = "copies call the stream's unsafe enqueues after checking what they demand"
)]

use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::contract::DeviceMemory;
use crate::mark::InUse;
use crate::memory::Allocation;
use crate::region::are_apart;
use crate::{
    AroundMut, DType, Device, Element, Error, ErrorKind, Layout, NativeHandle, NativeKind, Pinned,
    RegionSide, Result, Stream,
};

/// A part of a memory, for reading: the position and layout of its elements.
///
/// Borrows the memory, so that it cannot be freed in the meantime. Work enqueued through a view continues after the
/// view ends.
#[derive(Clone, Copy)]
pub struct MemoryView<'a> {
    allocation: &'a Allocation,
    /// Byte offset of element `[0, …, 0]`; the layout's span around it lies inside the allocation.
    origin: usize,
    layout: Layout,
    /// The id of the only stream that may use it, or 0.
    stream: u64,
    /// The number of the split whose box this view is, or 0.
    split: u64,
}

impl<'a> MemoryView<'a> {
    #[inline(always)]
    pub(crate) fn whole(allocation: &'a Allocation, layout: Layout) -> Self {
        Self { allocation, origin: 0, layout, stream: 0, split: 0 }
    }

    /// Type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.layout.dtype()
    }

    /// Element type, shape and strides.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// The device the memory is on.
    #[inline]
    pub fn device(&self) -> &'a Device {
        self.allocation.device()
    }

    /// The byte range in the memory from the lowest byte of any element to past the highest.
    #[inline]
    pub fn byte_range(&self) -> Range<usize> {
        let span = self.layout.span_bytes();
        // The span lies inside the allocation, so neither end can wrap.
        self.origin.wrapping_add_signed(span.start)..self.origin.wrapping_add_signed(span.end)
    }

    /// Size in bytes of the whole memory that this is a part of.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.allocation.bytes()
    }

    /// Whether the host can address the memory.
    pub fn is_host_visible(&self) -> bool {
        self.allocation.raw().is_none_or(|raw| raw.host_ptr().is_some())
    }

    /// Whether both views belong to one allocation.
    pub fn shares_memory(&self, other: &MemoryView<'_>) -> bool {
        std::ptr::eq(self.allocation, other.allocation)
    }

    /// Whether elements of both views share bytes. The views may be of one memory, or of two memories of one device
    /// that [adopted](Device::memory_adopt) the same addresses or the same object. Also `true` if the strides are too
    /// complex to decide it.
    ///
    /// Parts of an object that was divided before it was adopted, such as OpenCL's sub-buffers, are not recognised.
    pub fn overlaps(&self, other: &MemoryView<'_>) -> bool {
        let ((space, one), (another, two)) = (self.place(), other.place());
        let low = one.min(two);
        space == another
            && self.device().is_same(other.device())
            && !are_apart((one - low, &self.layout), (two - low, &other.layout))
    }

    /// The position of the lowest byte: an address with 0, or the offset into the object with that number.
    pub(crate) fn place(&self) -> (usize, usize) {
        let start = self.byte_range().start;
        let Some(raw) = self.allocation.raw() else { return (0, start) };
        if let Some(address) = raw.host_ptr() {
            return (0, address.addr().saturating_add(start));
        }
        match raw.native() {
            NativeHandle { kind: NativeKind::Pointer, raw, .. } => (0, raw.saturating_add(start)),
            NativeHandle { raw, .. } => (raw, start),
        }
    }

    /// The vendor's handle of the whole memory. `None` for memory of no bytes.
    pub fn native(&self) -> Option<NativeHandle> {
        self.allocation.raw().map(DeviceMemory::native)
    }

    /// The elements with indices `range` of a one-dimensional view.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the range extends beyond the view. `InvalidArgument` if the view is not one-dimensional.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        if self.layout.rank() != 1 {
            let message = format!("slice of a view of shape {:?}; use region", self.layout.shape());
            return Err(self.device().invalid("slice", message));
        }
        self.region(&[range])
    }

    /// The box of elements with indices `ranges`, one range for each dimension.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if a range extends beyond the view. `InvalidArgument` if the numbers of ranges and dimensions
    /// differ.
    pub fn region(&self, ranges: &[Range<usize>]) -> Result<Self> {
        let shape = self.layout.shape();
        if ranges.len() != shape.len() {
            let message = format!("{} ranges for shape {shape:?}", ranges.len());
            return Err(self.device().invalid("region", message));
        }
        if let Some(range) =
            ranges.iter().zip(shape).find(|(r, extent)| r.start > r.end || r.end > **extent)
        {
            return Err(
                self.out_of_bounds("region", format!("{:?} of {} elements", range.0, range.1))
            );
        }
        let mut part = *self;
        for (dim, range) in ranges.iter().enumerate() {
            let (layout, start) = part.layout.narrowed(dim, range);
            part.origin =
                part.origin.wrapping_add_signed(start * self.dtype().size().cast_signed());
            part.layout = layout;
        }
        Ok(part)
    }

    /// All elements in memory from the lowest of this view to the highest, as a one-dimensional array. For kernels that
    /// are Rust functions, which accept no view with gaps. If all strides are positive, the element with the indices
    /// `[i, j, …]` of the view has the index `i · strides[0] + j · strides[1] + …` in this array.
    ///
    /// # Errors
    ///
    /// No view that exists can cause an error.
    ///
    /// # Safety
    ///
    /// Other operations may write the bytes between the elements of this view. Through the result, only the elements of
    /// this view may be read.
    pub unsafe fn span(&self) -> Result<Self> {
        let bytes = self.byte_range();
        let layout = Layout::row(self.dtype(), bytes.len() / self.dtype().size())?;
        Ok(Self { origin: bytes.start, layout, split: 0, ..*self })
    }

    /// The same bytes with another layout, whose element `[0, …, 0]` lies `offset` bytes after the lowest byte of this
    /// view.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the layout's span extends beyond the bytes of this view. `InvalidArgument` if the offset is not
    /// aligned for the element type, or if this view is not contiguous.
    pub fn with_layout(&self, offset: usize, layout: &Layout) -> Result<Self> {
        if !self.layout.is_contiguous() {
            return Err(self.not_contiguous("with_layout"));
        }
        let bytes = self.byte_range();
        let span = layout.span_bytes();
        let low = offset.checked_add_signed(span.start);
        let high = offset.checked_add_signed(span.end);
        if low.is_none() || high.is_none_or(|high| high > bytes.len()) {
            let message = format!("{layout:?} at byte {offset} of a view of {} bytes", bytes.len());
            return Err(self.out_of_bounds("with_layout", message));
        }
        let origin = bytes.start + offset;
        let align = layout.dtype().align();
        if !origin.is_multiple_of(align) || self.allocation.align() < align {
            let message =
                format!("byte {origin} of the memory is not aligned for {}", layout.dtype());
            return Err(self.device().invalid("with_layout", message));
        }
        Ok(Self { origin, layout: *layout, ..*self })
    }

    /// The same view with this shape in row-major order.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of elements differs, or if this view is not contiguous.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let layout = Layout::contiguous(self.dtype(), shape).map_err(|e| self.device().place(e))?;
        if layout.len() != self.len() {
            let message =
                format!("shape {shape:?} has {} elements, the view {}", layout.len(), self.len());
            return Err(self.device().invalid("reshape", message));
        }
        self.with_layout(0, &layout)
    }

    /// The same view, bound to one stream. Every other stream refuses it with `WrongStream`.
    ///
    /// # Errors
    ///
    /// `WrongStream` if it is already bound to another stream. `WrongDevice` for a stream of another device.
    #[inline]
    pub fn on_stream(self, stream: &Stream) -> Result<Self> {
        self.check_stream("on_stream", stream)?;
        Ok(Self { stream: stream.core.id, ..self })
    }

    /// The same view, bound to this stream instead of its previous stream.
    ///
    /// # Safety
    ///
    /// Work enqueued through the view is ordered after all work that the view's lender ordered its own stream after.
    /// The lender's stream waits for this work before the view's lifetime ends.
    #[must_use]
    pub unsafe fn rebound_to(self, stream: &Stream) -> Self {
        Self { stream: stream.core.id, ..self }
    }

    /// Whether work on `stream` may use it: the stream belongs to its device and, if the view is bound, is its stream.
    pub fn is_usable_on(&self, stream: &Stream) -> bool {
        self.check_stream("is_usable_on", stream).is_ok()
    }

    /// This view as one end of a region copy whose `slot` is bound to a view that covers `bound`.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if this view is not a part of `bound`.
    pub fn region_side_in(&self, slot: usize, bound: &MemoryView<'_>) -> Result<RegionSide> {
        let (part, whole) = (self.byte_range(), bound.byte_range());
        let inside = whole.start <= part.start && part.end <= whole.end;
        if !(inside && self.shares_memory(bound)) {
            let message = format!("bytes {part:?} of a memory for a bound view of bytes {whole:?}");
            return Err(self.out_of_bounds("region_side_in", message));
        }
        let side = self.region_side(slot);
        Ok(RegionSide { offset: side.offset + (part.start - whole.start), ..side })
    }

    /// This view as one end of a region copy, bound to `slot`. Offsets count from the lowest byte of this view. Bind
    /// exactly this view, or use [`region_side_in`](Self::region_side_in).
    pub fn region_side(&self, slot: usize) -> RegionSide {
        let size = self.dtype().size().cast_signed();
        RegionSide {
            slot,
            offset: self.origin - self.byte_range().start,
            // Only strides of dimensions with a single element can overflow, and these are never used.
            strides: self.layout.strides().iter().map(|stride| stride.wrapping_mul(size)).collect(),
        }
    }

    /// Copies the elements to the host in stream order, in row-major order of their indices. Blocks until `out` is
    /// filled.
    ///
    /// A view that is not contiguous is first gathered on the device by a region copy to new memory. For repeated
    /// copies, create the memory and the [plan](Device::plan_regions) once.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if `out` and the view have different numbers of elements. `InvalidArgument` if the types differ.
    /// `WrongDevice`. `WrongStream`. In these cases nothing was copied. Otherwise errors of the driver, and
    /// `OutOfMemory` for a view that is not contiguous. Also returns the first failure of earlier work on the stream
    /// that was not reported before; [`Stream::synchronize`] does not report it again.
    pub fn copy_to_slice<T: Element>(&self, stream: &Stream, out: &mut [T]) -> Result<()> {
        self.check_copy::<T>("copy_to_slice", stream, out.len())?;
        if !self.layout.is_contiguous() {
            return self.packed::<T>(stream)?.view().copy_to_slice(stream, out);
        }
        let range = self.byte_range();
        let Some((raw, _in_use)) = self.begin(stream) else { return Ok(()) };
        // SAFETY: the memory belongs to the stream's device and the view lies inside it.
        let copied = unsafe {
            stream.core.raw.memory_copy_from(raw, range.start, bytemuck::cast_slice_mut(out))
        };
        stream.core.told(copied).map_err(|e| self.device().place(e))?;
        stream.counts().copied_from_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "copied to the host");
        Ok(())
    }

    /// Enqueues a copy of the elements to the beginning of `out`, which is borrowed only for the call.
    ///
    /// # Errors
    ///
    /// As [`copy_to_slice`](Self::copy_to_slice), but `out` may be longer than the view. `InvalidArgument` if the view
    /// is not contiguous ([`Device::plan_regions`] gathers such views).
    pub fn copy_to_pinned<T: Element>(&self, stream: &Stream, out: &mut Pinned<T>) -> Result<()> {
        const OPERATION: &str = "copy_to_pinned";
        stream.device().check_same(OPERATION, out.device())?;
        let range = self.host_copy::<T>(OPERATION, stream, self.len().min(out.len()))?;
        let Some((raw, _in_use)) = self.begin(stream) else { return Ok(()) };
        out.enqueue_write(stream, |pinned| {
            // SAFETY: both ranges were checked. The pinned memory waits for its uses before the host can access it or
            // it is freed.
            unsafe { stream.core.raw.pinned_copy_from(raw, range.start, pinned, 0, range.len()) }
        })?;
        stream.counts().copied_from_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "copy to pinned memory enqueued");
        Ok(())
    }

    /// Copies the elements to a new vector. Blocks until the copy is done.
    ///
    /// # Errors
    ///
    /// As [`copy_to_slice`](Self::copy_to_slice). `OutOfMemory` if the host does not have enough memory.
    pub fn to_vec<T: Element>(&self, stream: &Stream) -> Result<Vec<T>> {
        // Checked before the vector is allocated.
        self.check_copy::<T>("to_vec", stream, self.len())?;
        let mut out = bytemuck::try_zeroed_vec(self.len()).map_err(|()| {
            let message = format!("{} bytes on the host", self.len() * size_of::<T>());
            Error::new(ErrorKind::OutOfMemory, "to_vec", message).on(self.device().id())
        })?;
        self.copy_to_slice(stream, &mut out)?;
        Ok(out)
    }

    /// Checks a copy between this view, which must be contiguous, and `len` elements of host memory. Returns its byte
    /// range.
    fn host_copy<T: Element>(
        &self,
        operation: &'static str,
        stream: &Stream,
        len: usize,
    ) -> Result<Range<usize>> {
        self.check_copy::<T>(operation, stream, len)?;
        self.contiguous_range(operation)
    }

    /// Checks a copy between this view and `len` elements of host memory.
    fn check_copy<T: Element>(
        &self,
        operation: &'static str,
        stream: &Stream,
        len: usize,
    ) -> Result<()> {
        self.check_stream(operation, stream)?;
        self.check_dtype::<T>(operation)?;
        if len != self.len() {
            let message = format!("{len} elements for a view of {}", self.len());
            return Err(self.out_of_bounds(operation, message));
        }
        Ok(())
    }

    /// Registers a use until the second part of the result is dropped, and returns the device's memory object. `None`
    /// if there is nothing to do.
    #[inline(always)]
    pub(crate) fn begin<'b>(
        &self,
        stream: &'b Stream,
    ) -> Option<(&'b dyn DeviceMemory, Option<InUse<'b>>)>
    where
        'a: 'b,
    {
        if self.layout.is_empty() { None } else { self.allocation.begin(stream) }
    }

    #[inline]
    pub(crate) fn check_stream(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        check_use(operation, self.device(), self.stream, stream)
    }

    #[inline]
    fn check_dtype<T: Element>(&self, operation: &'static str) -> Result<()> {
        if T::DTYPE != self.dtype() {
            let message = format!("{} elements for a view of {}", T::DTYPE, self.dtype());
            return Err(self.device().invalid(operation, message));
        }
        Ok(())
    }

    #[inline]
    fn contiguous_range(&self, operation: &'static str) -> Result<Range<usize>> {
        if self.layout.is_contiguous() {
            Ok(self.byte_range())
        } else {
            Err(self.not_contiguous(operation))
        }
    }

    #[inline]
    pub(crate) fn origin(&self) -> usize {
        self.origin
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &'a Allocation {
        self.allocation
    }

    #[inline]
    pub(crate) fn bound_stream(&self) -> u64 {
        self.stream
    }

    pub(crate) fn split(&self) -> u64 {
        self.split
    }

    #[cold]
    fn not_contiguous(&self, operation: &'static str) -> Error {
        let message = format!(
            "a view with strides {:?} is not contiguous; use plan_regions",
            self.layout.strides()
        );
        self.device().invalid(operation, message)
    }

    #[cold]
    fn out_of_bounds(&self, operation: &'static str, message: String) -> Error {
        Error::new(ErrorKind::OutOfBounds, operation, message).on(self.device().id())
    }
}

/// Checks that memory of `owner`, possibly bound to the stream with id `bound`, can be used on `stream`.
#[inline]
pub(crate) fn check_use(
    operation: &'static str,
    owner: &Device,
    bound: u64,
    stream: &Stream,
) -> Result<()> {
    stream.device().check_same(operation, owner)?;
    if bound != 0 && bound != stream.core.id {
        return Err(wrong_stream(operation, bound, stream));
    }
    Ok(())
}

#[cold]
fn wrong_stream(operation: &'static str, bound: u64, stream: &Stream) -> Error {
    let mut message = format!("a view bound to stream {bound} used on stream {}", stream.core.id);
    if stream.core.capture.is_some() {
        message += ", which captures: views that arrays' guards lend cannot be captured, those of a Memory can";
    }
    Error::new(ErrorKind::WrongStream, operation, message).on(stream.device().id())
}

impl fmt::Debug for MemoryView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} view of shape {:?} on {}",
            self.dtype(),
            self.layout.shape(),
            self.device().id()
        )
    }
}

/// The outcome of the writes through a view, for the lender of the view.
#[derive(Debug, Default)]
pub struct WriteReport {
    wrote: AtomicBool,
    failed: AtomicBool,
}

impl WriteReport {
    /// A report of no writes.
    #[inline]
    pub const fn new() -> Self {
        Self { wrote: AtomicBool::new(false), failed: AtomicBool::new(false) }
    }

    /// Whether an operation that writes was enqueued through the view.
    #[inline]
    pub fn wrote(&self) -> bool {
        self.wrote.load(Ordering::Acquire)
    }

    /// Whether enqueueing such an operation failed or panicked. The bytes may then be wrong.
    #[inline]
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Stores that a write was enqueued or failed.
    pub(crate) fn note(&self, enqueued: bool) {
        let flag = if enqueued { &self.wrote } else { &self.failed };
        flag.store(true, Ordering::Release);
    }
}

/// Enqueues a write and reports to its lenders whether it was enqueued or failed. A panic counts as a failure.
#[inline]
pub(crate) fn reported(tell: impl Fn(bool), enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
    struct Panicked<F: Fn(bool)>(F);
    impl<F: Fn(bool)> Drop for Panicked<F> {
        fn drop(&mut self) {
            (self.0)(false);
        }
    }
    let panicked = Panicked(tell);
    let done = enqueue();
    (panicked.0)(done.is_ok());
    mem::forget(panicked);
    done
}

/// A part of a memory, for reading and writing. Not `Clone`; [`reborrow`](Self::reborrow) and
/// [`split_at`](Self::split_at) divide or lend it.
pub struct MemoryViewMut<'a> {
    view: MemoryView<'a>,
    report: Option<&'a WriteReport>,
}

impl<'a> MemoryViewMut<'a> {
    #[inline(always)]
    pub(crate) fn new(view: MemoryView<'a>) -> Self {
        Self { view, report: None }
    }

    /// The same part, for reading.
    #[inline]
    pub fn as_view(&self) -> MemoryView<'_> {
        self.view
    }

    /// The same part with a shorter lifetime.
    #[inline]
    pub fn reborrow(&mut self) -> MemoryViewMut<'_> {
        MemoryViewMut { view: self.view, report: self.report }
    }

    /// Type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.view.dtype()
    }

    /// Element type, shape and strides.
    #[inline]
    pub fn layout(&self) -> &Layout {
        self.view.layout()
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// The device the memory is on.
    #[inline]
    pub fn device(&self) -> &'a Device {
        self.view.device()
    }

    /// As [`MemoryView::slice`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::slice`].
    pub fn slice(self, range: Range<usize>) -> Result<Self> {
        Ok(Self { view: self.view.slice(range)?, ..self })
    }

    /// As [`MemoryView::region`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::region`].
    pub fn region(self, ranges: &[Range<usize>]) -> Result<Self> {
        Ok(Self { view: self.view.region(ranges)?, ..self })
    }

    /// As [`MemoryView::with_layout`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::with_layout`]. Also `InvalidArgument` if elements might share bytes, because the strides do not
    /// nest: each stride must be greater than the extent of all smaller ones.
    pub fn with_layout(self, offset: usize, layout: &Layout) -> Result<Self> {
        if !layout.is_nested() {
            let message = format!(
                "strides {:?} of shape {:?} may repeat elements",
                layout.strides(),
                layout.shape()
            );
            return Err(self.device().invalid("with_layout", message));
        }
        Ok(Self { view: self.view.with_layout(offset, layout)?, ..self })
    }

    /// As [`MemoryView::reshape`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::reshape`].
    pub fn reshape(self, shape: &[usize]) -> Result<Self> {
        Ok(Self { view: self.view.reshape(shape)?, ..self })
    }

    /// Splits the view into two parts along the first dimension: the indices below `middle`, and the others.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if `middle` is past the end. `InvalidArgument` for a view without dimensions.
    pub fn split_at(self, middle: usize) -> Result<(Self, Self)> {
        let shape = self.layout().shape();
        let Some(&extent) = shape.first() else {
            return Err(self.device().invalid("split_at", "a view without dimensions"));
        };
        let mut ranges = shape.iter().map(|extent| 0..*extent).collect::<Vec<_>>();
        ranges[0] = 0..middle;
        let first = self.view.region(&ranges)?;
        ranges[0] = middle..extent;
        let second = self.view.region(&ranges)?;
        Ok((Self { view: first, report: self.report }, Self { view: second, report: self.report }))
    }

    /// The elements of a box, for reading, and the elements around it, which only region plans may write.
    ///
    /// # Errors
    ///
    /// As [`region`](Self::region).
    pub fn split_box(self, ranges: &[Range<usize>]) -> Result<(MemoryView<'a>, AroundMut<'a>)> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let part = self.view.region(ranges)?;
        let part = MemoryView { split: NEXT.fetch_add(1, Ordering::Relaxed), ..part };
        Ok((part, AroundMut::new(self, part)))
    }

    /// As [`MemoryView::on_stream`].
    ///
    /// # Errors
    ///
    /// As [`MemoryView::on_stream`].
    #[inline]
    pub fn on_stream(self, stream: &Stream) -> Result<Self> {
        Ok(Self { view: self.view.on_stream(stream)?, ..self })
    }

    /// The same view, which reports the outcome of writes through it to its lender.
    ///
    /// # Errors
    ///
    /// `Conflict` if the view already reports to a lender.
    #[inline]
    pub fn reporting_to(self, report: &'a WriteReport) -> Result<Self> {
        if self.report.is_some() {
            return Err(self.reports_already());
        }
        Ok(Self { report: Some(report), ..self })
    }

    #[cold]
    fn reports_already(&self) -> Error {
        let message = "the view reports its writes to its lender";
        Error::new(ErrorKind::Conflict, "reporting_to", message).on(self.device().id())
    }

    /// Copies host elements to the device in stream order, in row-major order of their indices. `source` is no longer
    /// used on return. If the view is not contiguous, the elements are copied to new memory, and from there by a region
    /// copy.
    ///
    /// # Errors
    ///
    /// As [`MemoryView::copy_to_slice`].
    pub fn copy_from_slice<T: Element>(&mut self, stream: &Stream, source: &[T]) -> Result<()> {
        self.view.check_copy::<T>("copy_from_slice", stream, source.len())?;
        if !self.layout().is_contiguous() {
            let packed = self.noted(self.device().memory_from_slice(stream, source))?;
            let shape = self.layout().shape();
            let packed = packed.view().reshape(shape)?;
            return self.copy_strided(stream, &packed);
        }
        let range = self.view.byte_range();
        let Some((raw, _in_use)) = self.view.begin(stream) else { return self.enqueue(|| Ok(())) };
        self.enqueue(|| {
            let source = bytemuck::cast_slice(source);
            // SAFETY: the memory belongs to the stream's device and the view lies inside it.
            stream.core.told(unsafe { stream.core.raw.memory_copy_to(raw, range.start, source) })
        })?;
        stream.counts().copied_to_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "copied to the device");
        Ok(())
    }

    /// Enqueues a copy from the beginning of `source`, which is borrowed only for the call.
    ///
    /// # Errors
    ///
    /// As [`MemoryView::copy_to_pinned`], except that `source` may be longer than the view.
    pub fn copy_from_pinned<T: Element>(
        &mut self,
        stream: &Stream,
        source: &Pinned<T>,
    ) -> Result<()> {
        const OPERATION: &str = "copy_from_pinned";
        stream.device().check_same(OPERATION, source.device())?;
        let range = self.view.host_copy::<T>(OPERATION, stream, self.len().min(source.len()))?;
        let Some((raw, _in_use)) = self.view.begin(stream) else { return self.enqueue(|| Ok(())) };
        self.enqueue(|| {
            source.enqueue_read(stream, |pinned| {
                // SAFETY: both ranges were checked. The pinned memory waits for its uses before the host can write to
                // it or it is freed.
                unsafe { stream.core.raw.pinned_copy_to(pinned, 0, raw, range.start, range.len()) }
            })
        })?;
        stream.counts().copied_to_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "copy from pinned memory enqueued");
        Ok(())
    }

    /// Enqueues a copy from a view of the same device. If both views are contiguous, it copies bytes; otherwise a
    /// region copy copies elements with the same indices. It blocks where region copies are
    /// [emulated](crate::RegionPlan).
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the numbers of elements differ. `InvalidArgument` if the types differ, if the views overlap, or
    /// if a view is not contiguous and the shapes differ. `WrongDevice`; use
    /// [`copy_from_device`](Self::copy_from_device) to copy between devices. `WrongStream`. Otherwise errors of the
    /// driver.
    pub fn copy_from(&mut self, stream: &Stream, source: &MemoryView<'_>) -> Result<()> {
        const OPERATION: &str = "copy_from";
        self.view.check_stream(OPERATION, stream)?;
        if !self.device().is_same(source.device()) {
            let message =
                format!("the source is on {}; use copy_from_device", source.device().id());
            return Err(
                Error::new(ErrorKind::WrongDevice, OPERATION, message).on(self.device().id())
            );
        }
        source.check_stream(OPERATION, stream)?;
        self.check_source(OPERATION, source)?;
        if !(self.layout().is_contiguous() && source.layout.is_contiguous()) {
            return self.copy_strided(stream, source);
        }
        let (from, to) = (source.byte_range(), self.view.byte_range());
        if self.view.overlaps(source) {
            let message = format!("bytes {from:?} and {to:?} of one memory overlap");
            return Err(self.device().invalid(OPERATION, message));
        }
        let (Some((src, _reads)), Some((dst, _writes))) =
            (source.begin(stream), self.view.begin(stream))
        else {
            return self.enqueue(|| Ok(()));
        };
        // SAFETY: both memories belong to the stream's device; the views lie inside them and do not overlap.
        self.enqueue(|| unsafe {
            stream.core.raw.memory_copy(src, from.start, dst, to.start, to.len())
        })?;
        stream.counts().copied_on_device(to.len());
        tracing::trace!(device = %self.device().id(), bytes = to.len(), "copied on the device");
        Ok(())
    }

    /// Copies from a view of another device. It reads the source after all work enqueued on `source_stream` so far and
    /// writes in the order of `stream`. Later work on `source_stream` waits until the source has been read.
    ///
    /// If this device [reaches](Device::reaches) the other, the copy is enqueued without blocking. Otherwise it is
    /// staged through the host and blocks until the copy is done. A source on the same device is copied as by
    /// [`copy_from`](Self::copy_from), with the same ordering after `source_stream`.
    ///
    /// # Errors
    ///
    /// As [`copy_from`](Self::copy_from), with each stream checked against its own view's device. `InvalidArgument` if
    /// a view is not contiguous.
    pub fn copy_from_device(
        &mut self,
        stream: &Stream,
        source: &MemoryView<'_>,
        source_stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "copy_from_device";
        self.view.check_stream(OPERATION, stream)?;
        source.check_stream(OPERATION, source_stream)?;
        self.check_source(OPERATION, source)?;
        let from = source.contiguous_range(OPERATION)?;
        let to = self.view.contiguous_range(OPERATION)?;
        let same = self.device().is_same(source.device());
        let reached =
            self.device().reaches(source.device()) && source.device().reaches(self.device());
        if !reached {
            let report = self.report;
            let tell = |enqueued| report.iter().for_each(|report| report.note(enqueued));
            let copied = reported(tell, || self.copy_staged(stream, source, source_stream));
            return copied.map_err(|error| self.device().place(error));
        }
        if stream != source_stream {
            let ordered = source_stream.record_event().and_then(|given| stream.wait(&given));
            self.noted(ordered)?;
        }
        let copied = if same {
            // SAFETY: this stream has just been made to wait for the source's, which waits for this one below.
            self.copy_from(stream, &unsafe { source.rebound_to(stream) })
        } else {
            self.copy_from_peer(stream, source, from, to)
        };
        if stream != source_stream {
            let ordered = stream.record_event().and_then(|read| source_stream.wait(&read));
            // A lender of the source relies on it.
            ordered.or_else(|_| stream.synchronize())?;
        }
        copied
    }

    /// Enqueues a copy from another device that this device reaches. The ranges were checked.
    fn copy_from_peer(
        &mut self,
        stream: &Stream,
        source: &MemoryView<'_>,
        from: Range<usize>,
        to: Range<usize>,
    ) -> Result<()> {
        let (Some((src, _reads)), Some((dst, _writes))) =
            (source.begin(stream), self.view.begin(stream))
        else {
            return self.enqueue(|| Ok(()));
        };
        let peer = source.device().raw();
        self.enqueue(|| match self.device().raw().abilities().peer() {
            // SAFETY: the peer is reachable, the stream belongs to this device, and the ranges lie inside their
            // memories.
            Some(ability) => unsafe {
                ability.memory_copy(
                    &*stream.core.raw,
                    peer,
                    src,
                    from.start,
                    dst,
                    to.start,
                    to.len(),
                )
            },
            None => Ok(()),
        })?;
        stream.counts().copied_from_peer(to.len());
        tracing::trace!(device = %self.device().id(), from = %source.device().id(), bytes = to.len(), "copied between devices");
        Ok(())
    }

    /// Copies through a bounded host buffer, one piece after the other.
    fn copy_staged(
        &mut self,
        stream: &Stream,
        source: &MemoryView<'_>,
        source_stream: &Stream,
    ) -> Result<()> {
        const PIECE_BYTES: usize = 4 << 20;
        let bytes = Layout::row(DType::U8, self.view.byte_range().len())?;
        let source = source.with_layout(0, &bytes)?;
        let mut buffer = vec![0_u8; bytes.len().min(PIECE_BYTES)];
        let mut start = 0;
        while start < bytes.len() {
            let piece = start..(start + PIECE_BYTES).min(bytes.len());
            let buffer = &mut buffer[..piece.len()];
            source.slice(piece.clone())?.copy_to_slice(source_stream, buffer)?;
            self.reborrow()
                .with_layout(0, &bytes)?
                .slice(piece.clone())?
                .copy_from_slice(stream, buffer)?;
            start = piece.end;
        }
        Ok(())
    }

    /// Enqueues a fill of every element with `value`. If the view is not contiguous, it uses a region copy, which
    /// blocks where region copies are [emulated](crate::RegionPlan).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the type differs. `WrongDevice`. `WrongStream`. Otherwise errors of the driver, and
    /// `OutOfMemory` for a view that is not contiguous.
    pub fn fill<T: Element>(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.view.check_dtype::<T>("fill")?;
        self.fill_bytes("fill", stream, bytemuck::bytes_of(&value))
    }

    /// Enqueues a fill of every byte of the elements with zero.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    pub fn fill_zero(&mut self, stream: &Stream) -> Result<()> {
        self.fill_bytes("fill_zero", stream, &[0])
    }

    pub(crate) fn fill_bytes(
        &mut self,
        operation: &'static str,
        stream: &Stream,
        pattern: &[u8],
    ) -> Result<()> {
        self.view.check_stream(operation, stream)?;
        if !self.layout().is_contiguous() {
            return self.fill_strided(stream, pattern);
        }
        let range = self.view.byte_range();
        let Some((raw, _in_use)) = self.view.begin(stream) else { return self.enqueue(|| Ok(())) };
        // SAFETY: the memory belongs to the stream's device. The view consists of whole elements and lies inside the
        // memory.
        self.enqueue(|| unsafe {
            stream.core.raw.memory_fill(raw, range.start, range.len(), pattern)
        })?;
        stream.counts().copied_on_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "fill enqueued");
        Ok(())
    }

    /// Checks that `source` has as many elements of the same type.
    #[inline]
    fn check_source(&self, operation: &'static str, source: &MemoryView<'_>) -> Result<()> {
        if source.dtype() != self.dtype() {
            let message = format!("{} elements for a view of {}", source.dtype(), self.dtype());
            return Err(self.device().invalid(operation, message));
        }
        if source.len() != self.len() {
            let message = format!("{} elements for a view of {}", source.len(), self.len());
            return Err(self.view.out_of_bounds(operation, message));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn into_parts(self) -> (MemoryView<'a>, Option<&'a WriteReport>) {
        (self.view, self.report)
    }

    /// Enqueues a write, reports its outcome to the lender, and adds the device to an error.
    #[inline]
    fn enqueue(&self, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        reported(|enqueued| self.report_write(enqueued), enqueue)
            .map_err(|error| self.device().place(error))
    }

    /// Reports a failed write to the lender if a resource that the write needs is unavailable.
    pub(crate) fn noted<R>(&self, needed: Result<R>) -> Result<R> {
        if needed.is_err() {
            self.report_write(false);
        }
        needed
    }

    /// Reports to the lender whether a write was enqueued or failed.
    #[inline]
    pub(crate) fn report_write(&self, enqueued: bool) {
        if let Some(report) = self.report {
            report.note(enqueued);
        }
    }
}

impl fmt::Debug for MemoryViewMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mutable {:?}", self.view)
    }
}
