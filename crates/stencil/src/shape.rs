//! The points of a field on one rank, and their places in memory.

use std::ops::Range;

use array_buffer::Partition;
use halo::{Dim, FieldSpec};
use runtime_core::{DType, Device, DeviceKind, Result};

/// Numbers of ghosts below and above along each axis.
pub(crate) type Widths = [[usize; 2]; 3];

/// The ghosts that a stencil reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) widths: Widths,
    /// Whether it reads ghosts at edges and corners.
    pub(crate) corners: bool,
}

impl Need {
    /// Whether no ghosts are read.
    pub(crate) fn is_nothing(&self) -> bool {
        self.widths == Widths::default()
    }

    /// What two stencils read together.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let widths = std::array::from_fn(|axis| {
            std::array::from_fn(|side| self.widths[axis][side].max(other.widths[axis][side]))
        });
        Self { widths, corners: self.corners || other.corners }
    }

    /// These ghosts and others. Those at corners are left out, unless one of the two includes the other.
    pub(crate) fn with(&self, other: &Self) -> Self {
        if self.includes(other) {
            return *self;
        }
        if other.includes(self) {
            return *other;
        }
        Self { corners: false, ..self.and(other) }
    }

    /// Whether these ghosts include others.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let wide = self.widths.iter().zip(&other.widths).all(|(a, b)| a[0] >= b[0] && a[1] >= b[1]);
        wide && (self.corners || !other.corners)
    }
}

/// The points of a field on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rank: usize,
    pub(crate) dtype: DType,
    /// Whether the field has a value at both ends of the cells along an axis.
    pub(crate) staggered: [bool; 3],
    /// The cells of the block.
    pub(crate) cells: [usize; 3],
    /// The ghosts and the padding below and above.
    pub(crate) around: [[usize; 2]; 3],
    /// In elements.
    pub(crate) strides: [usize; 3],
    /// Whether the block has the first or the last cells of an axis, and nothing lies beyond them.
    pub(crate) is_end: [[bool; 2]; 3],
}

impl Shape {
    /// A shape with `width` ghosts along each axis.
    pub(crate) fn new(
        device: &Device,
        dtype: DType,
        cells: &[usize],
        staggered: [bool; 3],
        width: usize,
        is_end: [[bool; 2]; 3],
    ) -> Self {
        let rank = cells.len();
        let mut shape = Self {
            rank,
            dtype,
            staggered,
            cells: [1; 3],
            around: [[0; 2]; 3],
            strides: [1; 3],
            is_end,
        };
        shape.cells[..rank].copy_from_slice(cells);
        for axis in 0..rank {
            let mut around = [width; 2];
            if axis + 1 == rank {
                // Rows, and the owned part of each, begin where the device reads best.
                let line = line(device, dtype);
                around[0] = width.next_multiple_of(line);
                let end = around[0] + shape.points(axis) + width;
                around[1] = width + end.next_multiple_of(line) - end;
            }
            shape.around[axis] = around;
        }
        for axis in (0..rank.saturating_sub(1)).rev() {
            shape.strides[axis] = shape.strides[axis + 1].saturating_mul(shape.extent(axis + 1));
        }
        shape
    }

    /// The number of points that the rank has along an axis.
    pub(crate) fn points(&self, axis: usize) -> usize {
        self.cells[axis] + usize::from(self.staggered[axis])
    }

    /// The number of points in memory along an axis.
    pub(crate) fn extent(&self, axis: usize) -> usize {
        self.around[axis].iter().fold(self.points(axis), |sum, n| sum.saturating_add(*n))
    }

    /// The places of the rank's own points along an axis.
    pub(crate) fn own(&self, axis: usize) -> Range<usize> {
        let start = self.around[axis][0];
        start..start + self.points(axis)
    }

    /// The place in memory of the first own point, in elements.
    pub(crate) fn first(&self) -> usize {
        (0..self.rank).map(|axis| self.own(axis).start * self.strides[axis]).sum()
    }

    /// The parts of an array: the own points, and all others.
    pub(crate) fn partition(&self) -> Result<Partition> {
        let shape: Vec<usize> = (0..self.rank).map(|axis| self.extent(axis)).collect();
        let own: Vec<Range<usize>> = (0..self.rank).map(|axis| self.own(axis)).collect();
        Partition::around(&shape, &own, &[])
    }

    /// The description for an exchange of ghosts of these widths.
    pub(crate) fn spec(&self, name: &str, widths: &Widths) -> Result<FieldSpec> {
        let dims: Vec<Dim> = (0..self.rank)
            .map(|axis| {
                let [below, above] = widths[axis];
                let dim = Dim::axis(axis, self.cells[axis]).halo(below, above);
                let dim = if self.staggered[axis] { dim.staggered() } else { dim };
                dim.allocated(self.around[axis][0], self.around[axis][1])
            })
            .collect();
        FieldSpec::new(name, self.dtype, &dims)
    }
}

/// A mark for each end of each axis.
pub(crate) type Ends = [[bool; 2]; 3];

/// The number of elements at multiples of which rows begin.
fn line(device: &Device, dtype: DType) -> usize {
    let info = device.info();
    let bytes = if info.kind == DeviceKind::Host { 1 } else { 128 };
    info.limits.argument_alignment.get().max(bytes).div_ceil(dtype.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_of_two_stencils_are_known_without_corners_that_neither_fills() {
        let need = |widths: [usize; 2], corners| Need { widths: [widths; 3], corners };
        let (low, high, both) = (need([1, 0], true), need([0, 2], false), need([1, 2], false));
        assert_eq!([low.with(&high), high.with(&low)], [both; 2]);
        let wide = need([2, 2], true);
        assert_eq!([wide.with(&low), low.with(&wide)], [wide; 2]);
        assert_eq!([low.and(&high), high.and(&low)], [need([1, 2], true); 2]);
        assert!(wide.includes(&low) && !low.includes(&wide));
        assert!(both.includes(&high) && !both.includes(&low));
        for side in [[2, 1], [1, 2]] {
            assert!(!need(side, false).includes(&need([2, 2], false)));
        }
    }
}
