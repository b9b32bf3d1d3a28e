//! The region copies of a transfer.

use std::ops::Range;

use runtime_core::{Combine, Layout, RegionCopy, RegionSide, Result};

use super::transfer::{BlockFields, Fields, Transfer, index_of};
use crate::field::{Dim, FieldSpec};

/// The dimensions of a transfer in the order of the receiver's memory, the slowest first, with their extents.
/// Dimensions with one element are left out.
fn extents<'a>(
    specs: &'a [FieldSpec],
    transfer: &'a Transfer,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let spec = &specs[transfer.field];
    let extent = |dim: usize| match spec.dims()[dim].along() {
        Some(axis) => (transfer.target[axis].end - transfer.target[axis].start).unsigned_abs(),
        None => spec.dims()[dim].points(),
    };
    spec.memory_order().map(move |dim| (dim, extent(dim))).filter(|(_, extent)| *extent != 1)
}

impl Fields {
    /// As [`extents`], for a transfer from or to a block of the rank.
    pub(crate) fn extents<'a>(
        &'a self,
        transfer: &'a Transfer,
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        extents(self.near(transfer).specs, transfer)
    }

    /// The fields of the block that receives a transfer, or of the block that sends it if this is another rank's.
    fn near(&self, transfer: &Transfer) -> BlockFields<'_> {
        let is_own = self.blocks().binary_search(&transfer.to).is_ok();
        self.of(if is_own { transfer.to } else { transfer.from })
    }
}

/// The two ends of a transfer, as region copies describe them.
pub(crate) struct Ends<'a> {
    receiver: BlockFields<'a>,
    sender: BlockFields<'a>,
    transfer: &'a Transfer,
    dims: Vec<(usize, usize)>,
}

impl<'a> Ends<'a> {
    /// A transfer between fields of a rank, or one end of which is there. The other end is a message.
    pub(crate) fn new(fields: &'a Fields, transfer: &'a Transfer) -> Self {
        Self::between(fields.near(transfer), fields.of(transfer.from), transfer)
    }

    /// A transfer between these fields.
    pub(crate) fn between(
        receiver: BlockFields<'a>,
        sender: BlockFields<'a>,
        transfer: &'a Transfer,
    ) -> Self {
        let dims = extents(receiver.specs, transfer).collect();
        Self { receiver, sender, transfer, dims }
    }

    fn extents(&self) -> Vec<usize> {
        self.dims.iter().map(|(_, extent)| *extent).collect()
    }

    /// The bytes of the elements, if `usize` can count them.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let size = self.receiver.specs[self.transfer.field].dtype().size();
        self.dims.iter().try_fold(size, |bytes, (_, extent)| bytes.checked_mul(*extent))
    }

    /// A copy of the transfer's elements between these two places.
    pub(crate) fn copy(
        &self,
        source: RegionSide,
        destination: RegionSide,
        negate: bool,
        combine: Combine,
    ) -> RegionCopy {
        RegionCopy {
            dtype: self.receiver.specs[self.transfer.field].dtype(),
            extents: self.extents(),
            source,
            destination,
            negate,
            combine,
        }
    }

    /// The copy from the sender's elements to the receiver's, without a message.
    pub(crate) fn direct(&self) -> RegionCopy {
        self.copy(self.source(), self.target(), self.transfer.negate, Combine::Replace)
    }

    /// The receiver's elements, in the memory bound to the slot of their field.
    pub(crate) fn target(&self) -> RegionSide {
        let (spec, slot) =
            (&self.receiver.specs[self.transfer.field], self.receiver.first + self.transfer.field);
        let first = spec.dims().iter().map(|dim| match dim.along() {
            Some(axis) => index_of(dim, self.transfer.target[axis].start),
            None => 0,
        });
        let strides = self.dims.iter().map(|(dim, _)| stride(spec, *dim)).collect();
        RegionSide { slot, offset: offset(spec, first), strides }
    }

    /// The sender's elements, in the memory bound to the slot of their field.
    pub(crate) fn source(&self) -> RegionSide {
        let Transfer { field, source, .. } = *self.transfer;
        let (receiver, spec) = (&self.receiver.specs[field], &self.sender.specs[source]);
        let run_along = |axis| self.transfer.origin.iter().find(|run| run.axis == axis);
        let first = spec.dims().iter().map(|dim| {
            let run = dim.along().and_then(run_along);
            run.map_or(0, |run| index_of(dim, run.first))
        });
        let is_free = |dim: &usize, spec: &FieldSpec| spec.dims()[*dim].along().is_none();
        let strides = self.dims.iter().map(|(dim, _)| {
            match receiver.dims()[*dim].along() {
                Some(axis) => {
                    let run = self.transfer.origin[axis];
                    let along = spec.dims().iter().position(|dim| dim.along() == Some(run.axis));
                    let stride = along.map_or(0, |dim| stride(spec, dim));
                    if run.backwards { -stride } else { stride }
                }
                // The free dimensions of partners are in the same order.
                None => {
                    let number = (0..*dim).filter(|dim| is_free(dim, receiver)).count();
                    let own = (0..spec.dims().len()).filter(|dim| is_free(dim, spec)).nth(number);
                    own.map_or(0, |dim| stride(spec, dim))
                }
            }
        });
        RegionSide {
            slot: self.sender.first + source,
            offset: offset(spec, first),
            strides: strides.collect(),
        }
    }

    /// The elements in a message at byte `start` of the memory bound to `slot`.
    pub(crate) fn in_message(&self, slot: usize, start: usize) -> RegionSide {
        let size = self.receiver.specs[self.transfer.field].dtype().size();
        row_major(size, slot, start, &self.extents())
    }

    /// The sender's elements as ranges along its axes.
    pub(crate) fn source_box(&self) -> [Range<isize>; 3] {
        let mut ranges = [0..0, 0..0, 0..0];
        for (axis, run) in self.transfer.origin.iter().enumerate() {
            let len = self.transfer.target[axis].end - self.transfer.target[axis].start;
            let first = if run.backwards { run.first + 1 - len } else { run.first };
            ranges[run.axis] = first..first + len;
        }
        ranges
    }
}

/// Elements of this size in row-major order without gaps.
pub(crate) fn row_major(size: usize, slot: usize, offset: usize, extents: &[usize]) -> RegionSide {
    let mut strides = vec![0; extents.len()];
    let mut next = size.cast_signed();
    for (stride, extent) in strides.iter_mut().zip(extents).rev() {
        *stride = next;
        next *= extent.cast_signed();
    }
    RegionSide { slot, offset, strides }
}

/// A box of elements of a field, in the memory bound to `slot`.
pub(crate) fn box_side(spec: &FieldSpec, slot: usize, ranges: &[Range<usize>]) -> RegionSide {
    let strides = (0..ranges.len()).map(|dim| stride(spec, dim)).collect();
    RegionSide { slot, offset: offset(spec, ranges.iter().map(|range| range.start)), strides }
}

/// The layout of the owned part of a field, and the offset in bytes of its lowest byte from the lowest byte of the
/// field.
pub(crate) fn owned_layout(spec: &FieldSpec) -> Result<(Layout, usize)> {
    let shape: Vec<usize> = spec.dims().iter().map(Dim::points).collect();
    let layout = Layout::new(spec.dtype(), &shape, spec.layout().strides())?;
    let first = offset(spec, spec.dims().iter().map(|dim| dim.owned().start));
    Ok((layout, first.wrapping_add_signed(layout.span_bytes().start)))
}

fn stride(spec: &FieldSpec, dim: usize) -> isize {
    // Only the stride of a dimension with at most one element can overflow.
    spec.layout().strides()[dim].wrapping_mul(spec.dtype().size().cast_signed())
}

/// Bytes from the lowest byte of the field to the element with these indices.
fn offset(spec: &FieldSpec, index: impl Iterator<Item = usize>) -> usize {
    // The strides of a field without elements are arbitrary.
    if spec.layout().is_empty() {
        return 0;
    }
    let from_origin: isize =
        index.enumerate().map(|(dim, index)| index.cast_signed() * stride(spec, dim)).sum();
    usize::try_from(from_origin - spec.layout().span_bytes().start).unwrap_or(usize::MAX)
}
