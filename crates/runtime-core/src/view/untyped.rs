//! The work of views. It depends on the element type only at run time, so it is compiled once for all types.

use std::ops::Range;

use super::report::{WriteReport, reported};
use crate::contract::{DeviceMemory, MemoryAt, PinnedAt};
use crate::mark::InUse;
use crate::memory::Allocation;
use crate::pinned::PinnedPart;
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

    /// Whether the bytes `range` of this memory and the bytes `others` of the other memory have bytes in common. The
    /// devices of both are one, or have a common address space.
    #[inline]
    fn meets(&self, range: &Range<usize>, other: &Untyped<'_>, others: &Range<usize>) -> bool {
        let ((space, one), (another, two)) = (self.allocation.place(), other.allocation.place());
        let start = one.saturating_add(range.start).max(two.saturating_add(others.start));
        let end = one.saturating_add(range.end).min(two.saturating_add(others.end));
        space == another && start < end
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

    /// Copies a contiguous view to the host for `operation`, which errors name. The copy was checked.
    pub(super) fn copy_to_host(
        &self,
        operation: &'static str,
        stream: &Stream,
        out: &mut [u8],
    ) -> Result<()> {
        let range = self.byte_range();
        let failures = stream.core.failures();
        let Some((raw, _in_use)) = self.begin(stream) else { return Ok(()) };
        // SAFETY: the memory belongs to the stream's device and the view lies inside it.
        let copied =
            unsafe { stream.core.raw.memory_copy_from(MemoryAt::new(raw, range.start), out) };
        stream
            .core
            .copied_from(copied)
            .and_then(|()| stream.core.check_since(operation, failures))
            .map_err(|e| self.device().place(e))?;
        stream.counts().copied_from_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "copied to the host");
        Ok(())
    }

    /// Enqueues a copy to pinned memory, from its byte `offset` on, where it has room for `room` elements.
    pub(super) fn copy_to_pinned(&self, stream: &Stream, pinned: &PinnedPart<'_>) -> Result<()> {
        const OPERATION: &str = "copy_to_pinned";
        stream.device().check_same(OPERATION, pinned.block.device())?;
        self.check_copy(OPERATION, stream, self.len().min(pinned.len))?;
        let range = self.contiguous_range(OPERATION)?;
        let Some((raw, _in_use)) = self.begin(stream) else { return Ok(()) };
        pinned.enqueue(stream, true, |raw_pinned| {
            // SAFETY: both ranges were checked. The pinned memory waits for its uses before the host can access it or
            // it is freed.
            unsafe {
                stream.core.raw.pinned_copy_from(
                    MemoryAt::new(raw, range.start),
                    PinnedAt::new(raw_pinned, pinned.offset),
                    range.len(),
                )
            }
        })?;
        stream.counts().copied_from_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "copy to pinned memory enqueued");
        Ok(())
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
    fn contiguous_range(&self, operation: &'static str) -> Result<Range<usize>> {
        if self.layout.is_contiguous() {
            Ok(self.byte_range())
        } else {
            Err(self.not_contiguous(operation))
        }
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

    /// Copies from the host to a contiguous view. The copy was checked.
    pub(super) fn copy_from_host(&mut self, stream: &Stream, source: &[u8]) -> Result<()> {
        let range = self.view.byte_range();
        let Some((raw, _in_use)) = self.view.begin(stream) else { return Ok(()) };
        self.enqueue(|| {
            // SAFETY: the memory belongs to the stream's device and the view lies inside it.
            stream.core.counted(unsafe {
                stream.core.raw.memory_copy_to(MemoryAt::new(raw, range.start), source)
            })
        })?;
        stream.counts().copied_to_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "copied to the device");
        Ok(())
    }

    /// Enqueues a copy from pinned memory, from its byte `offset` on, where it has `given` elements.
    pub(super) fn copy_from_pinned(
        &mut self,
        stream: &Stream,
        pinned: &PinnedPart<'_>,
    ) -> Result<()> {
        const OPERATION: &str = "copy_from_pinned";
        stream.device().check_same(OPERATION, pinned.block.device())?;
        self.view.check_copy(OPERATION, stream, self.view.len().min(pinned.len))?;
        let range = self.view.contiguous_range(OPERATION)?;
        let Some((raw, _in_use)) = self.view.begin(stream) else { return Ok(()) };
        self.enqueue(|| {
            pinned.enqueue(stream, false, |raw_pinned| {
                // SAFETY: both ranges were checked. The pinned memory waits for its uses before the host can write to
                // it or it is freed.
                unsafe {
                    stream.core.raw.pinned_copy_to(
                        PinnedAt::new(raw_pinned, pinned.offset),
                        MemoryAt::new(raw, range.start),
                        range.len(),
                    )
                }
            })
        })?;
        stream.counts().copied_to_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "copy from pinned memory enqueued");
        Ok(())
    }

    pub(super) fn copy_from(&mut self, stream: &Stream, source: &Untyped<'_>) -> Result<()> {
        self.copy_on_device("copy_from", stream, source)
    }

    /// Copies within the device for `operation`, which errors name.
    fn copy_on_device(
        &mut self,
        operation: &'static str,
        stream: &Stream,
        source: &Untyped<'_>,
    ) -> Result<()> {
        self.view.check_stream(operation, stream)?;
        if !self.device().is_same(source.device()) {
            let message =
                format!("the source is on {}; use copy_from_device", source.device().id());
            return Err(
                Error::new(ErrorKind::WrongDevice, operation, message).on(self.device().id())
            );
        }
        source.check_stream(operation, stream)?;
        self.check_source(operation, source)?;
        if !(self.view.layout.is_contiguous() && source.layout.is_contiguous()) {
            return self.copy_strided(stream, source);
        }
        let (from, to) = (source.byte_range(), self.view.byte_range());
        if self.view.meets(&to, source, &from) {
            let message =
                format!("bytes {from:?} of the source's memory and {to:?} of the target's overlap");
            return Err(self.device().invalid(operation, message));
        }
        let (Some((src, _reads)), Some((dst, _writes))) =
            (source.begin(stream), self.view.begin(stream))
        else {
            return Ok(());
        };
        // SAFETY: both memories belong to the stream's device; the views lie inside them and do not overlap.
        self.enqueue(|| unsafe {
            stream.core.raw.memory_copy(
                MemoryAt::new(src, from.start),
                MemoryAt::new(dst, to.start),
                to.len(),
            )
        })?;
        stream.counts().copied_on_device(to.len());
        tracing::trace!(device = %self.device().id(), bytes = to.len(), "copied on the device");
        Ok(())
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
        let from = source.contiguous_range(OPERATION)?;
        let to = self.view.contiguous_range(OPERATION)?;
        let same = self.device().is_same(source.device());
        let reached =
            self.device().reaches(source.device()) && source.device().reaches(self.device());
        let visible = |view: &Untyped<'_>| {
            view.allocation.is_host_visible() || view.device().has_host_addresses()
        };
        let comparable = || reached || visible(&self.view) && visible(source);
        if !same && comparable() && self.view.meets(&to, source, &from) {
            let peer = source.device().id();
            let message = format!(
                "bytes {from:?} of the source's memory on {peer} and {to:?} of the target's overlap"
            );
            return Err(self.device().invalid(OPERATION, message));
        }
        if to.is_empty() {
            return Ok(());
        }
        if !reached {
            let report = self.report;
            let note = |enqueued| report.iter().for_each(|report| report.note(enqueued));
            let copied = reported(note, || self.copy_staged(stream, source, source_stream));
            return stream.core.or_end_capture(copied).map_err(|error| self.device().place(error));
        }
        if stream != source_stream {
            let ordered = source_stream.record_event().and_then(|given| stream.wait(&given));
            self.noted(stream, ordered)?;
        }
        let copied = if same {
            // SAFETY: this stream has just been made to wait for the source's, which waits for this one below.
            self.copy_on_device(OPERATION, stream, &unsafe { source.rebound_to(stream) })
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
        source: &Untyped<'_>,
        from: Range<usize>,
        to: Range<usize>,
    ) -> Result<()> {
        let (Some((src, _reads)), Some((dst, _writes))) =
            (source.begin(stream), self.view.begin(stream))
        else {
            return Ok(());
        };
        let peer = source.device().raw();
        self.enqueue(|| match self.device().raw().abilities().peer() {
            // SAFETY: the peer is reachable, the stream belongs to this device, and the ranges lie inside their
            // memories.
            Some(ability) => unsafe {
                ability.memory_copy(
                    &*stream.core.raw,
                    peer,
                    MemoryAt::new(src, from.start),
                    MemoryAt::new(dst, to.start),
                    to.len(),
                )
            },
            None => Ok(()),
        })?;
        stream.counts().copied_from_peer(to.len());
        tracing::trace!(device = %self.device().id(), from = %source.device().id(), bytes = to.len(), "copied between devices");
        Ok(())
    }

    /// Copies through a bounded host buffer, one piece after the other. The copy was checked.
    fn copy_staged(
        &mut self,
        stream: &Stream,
        source: &Untyped<'_>,
        source_stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "copy_from_device";
        const PIECE_BYTES: usize = 4 << 20;
        let failures = stream.core.failures();
        let bytes = Layout::row(DType::U8, self.view.byte_range().len())?;
        let source = source.reinterpret(OPERATION, 0, &bytes)?;
        let target = self.view.reinterpret(OPERATION, 0, &bytes)?;
        let mut buffer = vec![0_u8; bytes.len().min(PIECE_BYTES)];
        let mut start = 0;
        while start < bytes.len() {
            let piece = start..(start + PIECE_BYTES).min(bytes.len());
            let buffer = &mut buffer[..piece.len()];
            source.slice(piece.clone())?.copy_to_host(OPERATION, source_stream, buffer)?;
            let mut target = UntypedMut { view: target.slice(piece.clone())?, report: self.report };
            target.copy_from_host(stream, buffer)?;
            stream.core.check_since(OPERATION, failures)?;
            start = piece.end;
        }
        Ok(())
    }

    pub(crate) fn fill_bytes(
        &mut self,
        operation: &'static str,
        stream: &Stream,
        pattern: &[u8],
    ) -> Result<()> {
        self.view.check_stream(operation, stream)?;
        let range = self.view.byte_range();
        let fits = matches!(pattern.len(), 1 | 2 | 4 | 8 | 16)
            && range.start.is_multiple_of(pattern.len());
        if !fits || !self.view.layout.is_contiguous() {
            return self.fill_strided(stream, pattern);
        }
        let Some((raw, _in_use)) = self.view.begin(stream) else { return Ok(()) };
        // SAFETY: the memory belongs to the stream's device. The view consists of whole elements and lies inside the
        // memory.
        self.enqueue(|| unsafe {
            stream.core.raw.memory_fill(MemoryAt::new(raw, range.start), range.len(), pattern)
        })?;
        stream.counts().copied_on_device(range.len());
        tracing::trace!(device = %self.device().id(), bytes = range.len(), "fill enqueued");
        Ok(())
    }

    /// Checks that `source` has as many elements of the same type.
    #[inline]
    fn check_source(&self, operation: &'static str, source: &Untyped<'_>) -> Result<()> {
        if source.dtype() != self.view.dtype() {
            let message =
                format!("{} elements for a view of {}", source.dtype(), self.view.dtype());
            return Err(self.device().invalid(operation, message));
        }
        if source.len() != self.view.len() {
            let message = format!("{} elements for a view of {}", source.len(), self.view.len());
            return Err(self.view.out_of_bounds(operation, message));
        }
        Ok(())
    }

    /// Enqueues a write, reports its outcome to the lender, and adds the device to an error.
    #[inline]
    fn enqueue(&self, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        reported(|enqueued| self.report_write(enqueued), enqueue)
            .map_err(|error| self.device().place(error))
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
