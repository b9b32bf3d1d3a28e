//! Copies and fills through views with gaps, by region copies.

use crate::view::{Untyped, UntypedMut};
use crate::{
    AnyView, AnyViewMut, Combine, Element, Layout, Memory, MemoryView, RegionCopy, Result, Slot,
    Stream, StreamOptions,
};

impl<T: Element> MemoryView<'_, T> {
    /// Enqueues a copy of the elements to new memory without gaps.
    pub(crate) fn packed(&self, stream: &Stream) -> Result<Memory<T>> {
        let mut packed = self.device().memory_allocate::<T>(self.len())?;
        let target = packed.view_mut().reshape(self.layout().shape())?;
        target.into_untyped().copy_strided(stream, self.untyped())?;
        Ok(packed)
    }
}

impl UntypedMut<'_> {
    /// Enqueues a copy from a view of the same shape and type on the same device. Both views were checked for the
    /// stream.
    pub(crate) fn copy_strided(&mut self, stream: &Stream, source: &Untyped<'_>) -> Result<()> {
        let target = *self.view();
        let shape = target.layout().shape();
        if source.layout().shape() != shape {
            let message = format!(
                "a view with strides {:?} of shape {shape:?} takes no elements of shape {:?}",
                target.layout().strides(),
                source.layout().shape()
            );
            return Err(self.device().invalid("copy_from", message));
        }
        let shared = source.shares_memory(&target) && !source.is_empty();
        let (mut from, mut to) = (source.region_side(0), target.region_side(usize::from(!shared)));
        if shared {
            // Offsets count from the lower start of the two.
            let (first, second) = (source.byte_range().start, target.byte_range().start);
            from.offset += first - first.min(second);
            to.offset += second - first.min(second);
        }
        let copy = RegionCopy {
            dtype: target.dtype(),
            extents: shape.to_vec(),
            source: from,
            destination: to,
            negate: false,
            combine: Combine::Replace,
        };
        let plan = self.noted(stream, self.device().plan_regions(&[copy]))?;
        let (read, write) = (AnyView::any(*source), AnyViewMut::any(self.reborrow()));
        match shared {
            true => plan.execute(stream, &mut [Slot::Both { read, write }]),
            false => plan.execute(stream, &mut [Slot::Read(read), Slot::Write(write)]),
        }
    }

    /// Copies packed elements from the host. The copy was checked.
    pub(crate) fn copy_from_host_strided(&mut self, stream: &Stream, source: &[u8]) -> Result<()> {
        if let Some(capture) = &stream.core.capture {
            let refused = Err(capture.refuse("copy_from_slice"));
            return self.noted(stream, refused.map_err(|e| self.device().place(e)));
        }
        let packed = Layout::contiguous(self.view().dtype(), self.view().layout().shape())?;
        self.copy_from_new(stream, source, &packed)
    }

    /// Enqueues a fill of every element with a pattern. The element size is a multiple of the pattern's size. The
    /// pattern is read repeatedly from one element.
    pub(crate) fn fill_strided(&mut self, stream: &Stream, pattern: &[u8]) -> Result<()> {
        let (dtype, shape) = (self.view().dtype(), self.view().layout().shape());
        let repeated = Layout::new(dtype, shape, &[0; crate::MAX_RANK][..shape.len()])?;
        self.copy_from_new(stream, &pattern.repeat(dtype.size() / pattern.len()), &repeated)
    }

    /// Enqueues a copy from new memory with these bytes, which `layout` makes elements of this view's type and shape.
    ///
    /// The bytes get there on a stream of their own, and first. On `stream`, the device could skip this step behind a
    /// failure and yet run the copy, if the failure is reported in between.
    fn copy_from_new(&mut self, stream: &Stream, bytes: &[u8], layout: &Layout) -> Result<()> {
        let written = || {
            let own = self.device().stream_create(&StreamOptions::default())?;
            let memory = self.device().memory_from_slice(&own, bytes)?;
            own.synchronize().map(|()| memory)
        };
        let memory = self.noted(stream, written())?;
        self.copy_strided(stream, memory.view().reinterpret(0, layout)?.untyped())
    }
}
