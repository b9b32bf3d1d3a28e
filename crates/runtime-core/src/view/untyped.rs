//! The work of views. It depends on the element type only at run time, so it is compiled once for all types.

use std::ops::Range;

use super::report::{WriteReport, reported};
use super::run::{Run, RunMut, other_device};
use crate::contract::DeviceMemory;
use crate::mark::InUses;
use crate::memory::Allocation;
use crate::region::are_apart;
use crate::{DType, Device, Error, ErrorKind, Layout, RegionSide, Result, Stream};

/// A part of a memory, to read.
#[derive(Clone, Copy)]
pub(crate) struct Untyped<'a> {
    pub(super) allocation: &'a Allocation,
    /// Byte offset of element `[0, …, 0]`; the layout's span around it lies inside the allocation.
    pub(super) origin: usize,
    pub(super) layout: Layout,
    /// The id of the only stream that may use it, or 0.
    pub(super) stream: u64,
    /// The number of the split whose box this view is, or 0.
    pub(super) split: u64,
}

impl<'a> Untyped<'a> {
    #[inline(always)]
    pub(crate) fn whole(allocation: &'a Allocation, layout: Layout) -> Self {
        Self { allocation, origin: 0, layout, stream: 0, split: 0 }
    }

    #[inline]
    pub(crate) fn dtype(&self) -> DType {
        self.layout.dtype()
    }

    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.layout.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    #[inline]
    pub(crate) fn device(&self) -> &'a Device {
        self.allocation.device()
    }

    #[inline]
    pub(crate) fn byte_range(&self) -> Range<usize> {
        let span = self.layout.span_bytes();
        // The span lies inside the allocation, so neither end can wrap.
        self.origin.wrapping_add_signed(span.start)..self.origin.wrapping_add_signed(span.end)
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

    pub(crate) fn shares_memory(&self, other: &Untyped<'_>) -> bool {
        std::ptr::eq(self.allocation, other.allocation)
    }

    pub(crate) fn overlaps(&self, other: &Untyped<'_>) -> bool {
        let ((space, one), (another, two)) = (self.place(), other.place());
        let low = one.min(two);
        space == another
            && self.device().is_same(other.device())
            && !are_apart((one - low, &self.layout), (two - low, &other.layout))
    }

    /// The position of the lowest byte: an address with 0, or the offset into the object with that number.
    #[inline]
    pub(crate) fn place(&self) -> (usize, usize) {
        let (space, first) = self.allocation.place();
        (space, first.saturating_add(self.byte_range().start))
    }

    pub(super) fn slice(&self, range: Range<usize>) -> Result<Self> {
        if self.layout.rank() != 1 {
            let message = format!("slice of a view of shape {:?}; use region", self.layout.shape());
            return Err(self.device().invalid("slice", message));
        }
        self.region("slice", &[range])
    }

    pub(super) fn region(&self, operation: &'static str, ranges: &[Range<usize>]) -> Result<Self> {
        let shape = self.layout.shape();
        if ranges.len() != shape.len() {
            let message = format!("{} ranges for shape {shape:?}", ranges.len());
            return Err(self.device().invalid(operation, message));
        }
        if let Some(range) =
            ranges.iter().zip(shape).find(|(r, extent)| r.start > r.end || r.end > **extent)
        {
            return Err(
                self.out_of_bounds(operation, format!("{:?} of {} elements", range.0, range.1))
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

    pub(super) fn span(&self) -> Result<Self> {
        let bytes = self.byte_range();
        let layout = Layout::row(self.dtype(), bytes.len() / self.dtype().size())?;
        Ok(Self { origin: bytes.start, layout, split: 0, ..*self })
    }

    /// The same bytes with a layout of the same element type.
    pub(crate) fn with_layout(&self, offset: usize, layout: &Layout) -> Result<Self> {
        if layout.dtype() != self.dtype() {
            let message = format!(
                "a layout of {} for a view of {}; use reinterpret",
                layout.dtype(),
                self.dtype()
            );
            return Err(self.device().invalid("with_layout", message));
        }
        self.reinterpret("with_layout", offset, layout)
    }

    /// The same bytes with a layout of any element type.
    pub(super) fn reinterpret(
        &self,
        operation: &'static str,
        offset: usize,
        layout: &Layout,
    ) -> Result<Self> {
        if !self.layout.is_contiguous() {
            return Err(self.not_contiguous(operation));
        }
        let bytes = self.byte_range();
        let span = layout.span_bytes();
        let low = offset.checked_add_signed(span.start);
        let high = offset.checked_add_signed(span.end);
        if low.is_none() || high.is_none_or(|high| high > bytes.len()) {
            let message = format!("{layout:?} at byte {offset} of a view of {} bytes", bytes.len());
            return Err(self.out_of_bounds(operation, message));
        }
        let origin = bytes.start + offset;
        let align = layout.dtype().align();
        if !origin.is_multiple_of(align) || self.allocation.align() < align {
            let message =
                format!("byte {origin} of the memory is not aligned for {}", layout.dtype());
            return Err(self.device().invalid(operation, message));
        }
        Ok(Self { origin, layout: *layout, ..*self })
    }

    pub(crate) fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let layout = Layout::contiguous(self.dtype(), shape)
            .map_err(|error| self.device().invalid("reshape", error.message()))?;
        if layout.len() != self.len() {
            let message =
                format!("shape {shape:?} has {} elements, the view {}", layout.len(), self.len());
            return Err(self.device().invalid("reshape", message));
        }
        self.reinterpret("reshape", 0, &layout)
    }

    #[inline]
    pub(super) fn on_stream(self, stream: &Stream) -> Result<Self> {
        self.check_stream("on_stream", stream)?;
        Ok(Self { stream: stream.core.id, ..self })
    }

    /// # Safety
    ///
    /// As [`MemoryView::rebound_to`](super::MemoryView::rebound_to).
    #[inline]
    pub(super) unsafe fn rebound_to(self, stream: &Stream) -> Self {
        Self { stream: stream.core.id, ..self }
    }

    pub(super) fn region_side_in(&self, slot: usize, bound: &Untyped<'_>) -> Result<RegionSide> {
        let (part, whole) = (self.byte_range(), bound.byte_range());
        let inside = whole.start <= part.start && part.end <= whole.end;
        if !(inside && self.shares_memory(bound)) {
            let message = format!("bytes {part:?} of a memory for a bound view of bytes {whole:?}");
            return Err(self.out_of_bounds("region_side_in", message));
        }
        let side = self.region_side(slot);
        Ok(RegionSide { offset: side.offset + (part.start - whole.start), ..side })
    }

    pub(crate) fn region_side(&self, slot: usize) -> RegionSide {
        let size = self.dtype().size().cast_signed();
        RegionSide {
            slot,
            offset: self.origin - self.byte_range().start,
            // Only strides of dimensions with a single element can overflow, and these are never used.
            strides: self.layout.strides().iter().map(|stride| stride.wrapping_mul(size)).collect(),
        }
    }

    /// Checks a copy between this view and `len` elements of host memory.
    pub(super) fn check_copy(
        &self,
        operation: &'static str,
        stream: &Stream,
        len: usize,
    ) -> Result<()> {
        self.check_stream(operation, stream)?;
        if len != self.len() {
            let message = format!("{len} elements for a view of {}", self.len());
            return Err(self.out_of_bounds(operation, message));
        }
        Ok(())
    }

    /// Registers a use until `in_use` is dropped, and returns the device's memory object. `None` if there is nothing to
    /// do.
    #[inline(always)]
    pub(crate) fn begin<'b>(
        &self,
        stream: &'b Stream,
        in_use: &mut InUses<'b>,
    ) -> Option<&'b dyn DeviceMemory>
    where
        'a: 'b,
    {
        if self.layout.is_empty() { None } else { self.allocation.begin(stream, in_use) }
    }

    #[inline]
    pub(crate) fn check_stream(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        check_use(operation, self.device(), self.stream, stream)
    }

    /// The bytes, if there are no gaps.
    #[inline(always)]
    pub(super) fn run(&self) -> Option<Run<'a>> {
        let Range { start, end } = self.byte_range();
        let Self { allocation, ref layout, stream, .. } = *self;
        let run = Run { allocation, start, bytes: end - start, dtype: layout.dtype(), stream };
        layout.is_contiguous().then_some(run)
    }

    /// The bytes, or an error if there are gaps.
    #[inline(always)]
    pub(super) fn contiguous(&self, operation: &'static str) -> Result<Run<'a>> {
        self.run().ok_or_else(|| self.not_contiguous(operation))
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

/// The error for a source with elements of another type or number.
#[cold]
pub(super) fn different(
    operation: &'static str,
    device: &Device,
    given: (DType, usize),
    expected: (DType, usize),
) -> Error {
    if given.0 != expected.0 {
        let message = format!("{} elements for a view of {}", given.0, expected.0);
        return device.invalid(operation, message);
    }
    let message = format!("{} elements for a view of {}", given.1, expected.1);
    Error::new(ErrorKind::OutOfBounds, operation, message).on(device.id())
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

/// A part of a memory, to read and write.
pub(crate) struct UntypedMut<'a> {
    pub(super) view: Untyped<'a>,
    pub(super) report: Option<&'a WriteReport>,
}

impl<'a> UntypedMut<'a> {
    #[inline]
    pub(crate) fn view(&self) -> &Untyped<'a> {
        &self.view
    }

    #[inline]
    pub(crate) fn report(&self) -> Option<&'a WriteReport> {
        self.report
    }

    #[inline]
    pub(crate) fn reborrow(&mut self) -> UntypedMut<'_> {
        UntypedMut { view: self.view, report: self.report }
    }

    #[inline]
    pub(crate) fn device(&self) -> &'a Device {
        self.view.device()
    }

    /// Refuses a layout through which two elements to write might share bytes.
    pub(super) fn check_nested(&self, operation: &'static str, layout: &Layout) -> Result<()> {
        if layout.is_nested() {
            return Ok(());
        }
        let message = format!(
            "strides {:?} of shape {:?} may repeat elements",
            layout.strides(),
            layout.shape()
        );
        Err(self.device().invalid(operation, message))
    }

    /// The two parts below and from index `middle` of the first dimension.
    pub(super) fn halves(&self, middle: usize) -> Result<(Untyped<'a>, Untyped<'a>)> {
        let shape = self.view.layout.shape();
        let Some(&extent) = shape.first() else {
            return Err(self.device().invalid("split_at", "a view without dimensions"));
        };
        if middle > extent {
            let message = format!("index {middle} of {extent} elements");
            return Err(self.view.out_of_bounds("split_at", message));
        }
        let mut ranges = shape.iter().map(|extent| 0..*extent).collect::<Vec<_>>();
        ranges[0] = 0..middle;
        let first = self.view.region("split_at", &ranges)?;
        ranges[0] = middle..extent;
        Ok((first, self.view.region("split_at", &ranges)?))
    }

    #[cold]
    pub(super) fn reports_already(&self) -> Error {
        let message = "the view reports its writes to its lender";
        Error::new(ErrorKind::Conflict, "reporting_to", message).on(self.device().id())
    }

    /// The bytes, if there are no gaps.
    #[inline(always)]
    pub(super) fn run(&self) -> Option<RunMut<'a>> {
        self.view.run().map(|run| RunMut { run, report: self.report })
    }

    /// The bytes, or an error if there are gaps.
    #[inline(always)]
    pub(super) fn contiguous(&self, operation: &'static str) -> Result<RunMut<'a>> {
        self.run().ok_or_else(|| self.view.not_contiguous(operation))
    }

    /// Copies between two views of the device, at least one of which has gaps.
    pub(super) fn copy_with_gaps(&mut self, stream: &Stream, source: &Untyped<'_>) -> Result<()> {
        const OPERATION: &str = "copy_from";
        self.view.check_stream(OPERATION, stream)?;
        if !self.device().is_same(source.device()) {
            return Err(other_device(OPERATION, self.device(), source.device()));
        }
        source.check_stream(OPERATION, stream)?;
        self.check_source(OPERATION, source)?;
        self.copy_strided(stream, source)
    }

    pub(super) fn copy_from_device(
        &mut self,
        stream: &Stream,
        source: &Untyped<'_>,
        source_stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "copy_from_device";
        self.view.check_stream(OPERATION, stream)?;
        source.check_stream(OPERATION, source_stream)?;
        self.check_source(OPERATION, source)?;
        let from = source.contiguous(OPERATION)?;
        let to = self.contiguous(OPERATION)?;
        let same = self.device().is_same(source.device());
        let reached =
            self.device().reaches(source.device()) && source.device().reaches(self.device());
        let visible = |view: &Untyped<'_>| {
            view.allocation.is_host_visible() || view.device().has_host_addresses()
        };
        let comparable = || reached || visible(&self.view) && visible(source);
        if !same && comparable() && to.run.meets(&from) {
            let peer = source.device().id();
            let message = format!(
                "bytes {:?} of the source's memory on {peer} and {:?} of the target's overlap",
                from.range(),
                to.run.range()
            );
            return Err(self.device().invalid(OPERATION, message));
        }
        if self.view.is_empty() {
            return Ok(());
        }
        if !reached {
            let report = self.report;
            let note = |enqueued| report.iter().for_each(|report| report.note(enqueued));
            let copied = reported(note, || to.copy_staged(stream, &from, source_stream));
            return stream.core.or_end_capture(copied).map_err(|error| self.device().place(error));
        }
        if stream != source_stream {
            let ordered = source_stream.record_event().and_then(|given| stream.wait(&given));
            self.noted(stream, ordered)?;
        }
        let copied = if same {
            // SAFETY: this stream has just been made to wait for the source's, which waits for this one below.
            let rebound = unsafe { source.rebound_to(stream) };
            rebound.contiguous(OPERATION).and_then(|from| to.copy_from(OPERATION, stream, &from))
        } else {
            to.copy_from_peer(stream, &from)
        };
        if stream != source_stream {
            let ordered = stream.record_event().and_then(|read| source_stream.wait(&read));
            // A lender of the source relies on it.
            ordered.or_else(|_| stream.synchronize())?;
        }
        copied
    }

    /// Enqueues a fill of every element with a pattern, whose length divides the element size.
    #[inline(always)]
    pub(super) fn fill_bytes(
        &mut self,
        operation: &'static str,
        stream: &Stream,
        pattern: &[u8],
    ) -> Result<()> {
        if let Some(run) = self.run()
            && run.can_fill(pattern.len())
        {
            return run.fill(operation, stream, pattern);
        }
        self.view.check_stream(operation, stream)?;
        self.fill_strided(stream, pattern)
    }

    /// Checks that `source` has as many elements of the same type.
    #[inline]
    fn check_source(&self, operation: &'static str, source: &Untyped<'_>) -> Result<()> {
        let of = |view: &Untyped<'_>| (view.dtype(), view.len());
        let (given, expected) = (of(source), of(&self.view));
        if given == expected {
            return Ok(());
        }
        Err(different(operation, self.device(), given, expected))
    }

    /// If a resource that a write on the stream needs is unavailable, reports a failed write to the lender, and ends
    /// the stream's capture.
    pub(crate) fn noted<R>(&self, stream: &Stream, needed: Result<R>) -> Result<R> {
        if needed.is_err() {
            self.report_write(false);
        }
        stream.core.or_end_capture(needed)
    }

    /// Reports to the lender whether a write was enqueued or failed.
    #[inline]
    pub(crate) fn report_write(&self, enqueued: bool) {
        if let Some(report) = self.report {
            report.note(enqueued);
        }
    }
}
