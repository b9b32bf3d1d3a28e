//! Region copies: batches of strided n-d copies, the one data-movement primitive.
//!
//! Packing a halo, moving the stale strip of an array and rotating a cube face are all the same thing: for every
//! index of an n-d box, take an element here, perhaps negate it, and put it there or combine it with what is there.
//! A batch of such copies is checked and lowered once, into a [`RegionProgram`], and run many times.

mod arithmetic;
mod boxes;
pub(crate) mod emulation;
mod host;
mod kernels;
mod loops;
mod overlap;
mod program;
mod schedule;
#[cfg(test)]
mod tests;
mod tiles;
mod within;

pub(crate) use boxes::{Bound, are_apart};
pub use host::HostSlot;
pub use program::{LoweredCopy, RegionPhase, RegionProgram, SlotUse};

use crate::DType;

/// Most dimensions a [`RegionCopy`] can have.
pub const MAX_REGION_RANK: usize = 6;

/// What happens to the element that is already at the destination.
///
/// The arithmetic of each element type is that of [`DType`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Combine {
    /// It is overwritten.
    #[default]
    Replace,
    /// The incoming element is added to it.
    Sum,
    /// The smaller of the two stays.
    Min,
    /// The larger of the two stays.
    Max,
}

/// One end of a region copy: where the element with index `[0, …, 0]` lies, and how far apart its neighbours are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionSide {
    /// Which of the memories bound at execution.
    pub slot: usize,
    /// Byte offset of element `[0, …, 0]` from the start of the view bound to the slot.
    pub offset: usize,
    /// Bytes from one element to the next along each dimension; negative runs backwards. A zero stride repeats an
    /// element and is for sources alone.
    pub strides: Vec<isize>,
}

/// One strided n-d copy: element `[i, j, …]` of the source becomes element `[i, j, …]` of the destination.
///
/// Reversing a dimension is a negative stride with the offset of its last element; transposing is exchanging two
/// strides; a rotation by 90° is both.
///
/// ```
/// use runtime_core::{Combine, DType, RegionCopy, RegionSide};
///
/// // A 2 × 3 block of f32, rotated clockwise into a 3 × 2 block.
/// let turn = RegionCopy {
///     dtype: DType::F32,
///     extents: vec![3, 2],
///     source: RegionSide { slot: 0, offset: 3 * 4, strides: vec![4, -12] },
///     destination: RegionSide { slot: 1, offset: 0, strides: vec![8, 4] },
///     negate: false,
///     combine: Combine::Replace,
/// };
/// # let _ = turn;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionCopy {
    /// Type of the elements on both sides.
    pub dtype: DType,
    /// Elements along each dimension, at most [`MAX_REGION_RANK`] of them; none at all means one element.
    pub extents: Vec<usize>,
    /// Where elements are read.
    pub source: RegionSide,
    /// Where they go. No two elements of an entry may go to the same place.
    pub destination: RegionSide,
    /// Whether the element is negated on its way.
    pub negate: bool,
    /// What happens to the element already there.
    pub combine: Combine,
}
