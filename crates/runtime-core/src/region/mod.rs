//! Region copies: batches of strided n-d copies, the single primitive for data movement.
//!
//! Packing a halo, moving the stale strip of an array and rotating a cube face are the same operation: for every index
//! of an n-d box, read an element, optionally negate it, and write it to the destination or combine it with the element
//! there. A batch of such copies is checked and lowered once, into a [`RegionProgram`], and run many times.
//!
//! An [`IndexedCopy`] does the same for items whose indices are in lists. It is lowered to the same kind of program.

mod apart;
mod arithmetic;
mod boxes;
pub(crate) mod distinct;
pub(crate) mod emulation;
mod footprint;
mod host;
mod host_slot;
mod indexed;
#[cfg(test)]
mod indexed_tests;
mod item_loops;
mod items;
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
pub use host_slot::HostSlot;
pub use indexed::{IndexedCopy, IndexedSide, Indices};
pub use items::{ItemsEnd, ItemsFold, LoweredItems};
pub use program::{LoweredCopy, RegionPhase, RegionProgram, SlotUse};

use crate::DType;

/// The most dimensions that a [`RegionCopy`] can have.
pub const MAX_REGION_RANK: usize = 6;

/// How the incoming element is combined with the element already at the destination.
///
/// [`DType`] defines the arithmetic of each element type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Combine {
    /// The existing element is overwritten.
    #[default]
    Replace,
    /// The incoming element is added to the existing one.
    Sum,
    /// The smaller of the two is kept.
    Min,
    /// The larger of the two is kept.
    Max,
}

/// One end of a region copy: the position of the element with index `[0, …, 0]`, and the strides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionSide {
    /// The index of the memory bound at execution.
    pub slot: usize,
    /// Byte offset of element `[0, …, 0]` from the start of the view bound to the slot.
    pub offset: usize,
    /// Distance in bytes from one element to the next along each dimension. A negative stride runs backwards. A zero
    /// stride repeats an element and is allowed only for sources.
    pub strides: Vec<isize>,
}

/// One strided n-d copy: element `[i, j, …]` of the source becomes element `[i, j, …]` of the destination.
///
/// Reversing a dimension is a negative stride with the offset of its last element. Transposing is exchanging two
/// strides. A rotation by 90° is both.
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
    /// Number of elements along each dimension, for at most [`MAX_REGION_RANK`] dimensions. No dimensions mean one
    /// element.
    pub extents: Vec<usize>,
    /// The elements to read.
    pub source: RegionSide,
    /// The elements to write. No two elements of an entry may have the same destination.
    pub destination: RegionSide,
    /// Whether each element is negated.
    pub negate: bool,
    /// How each element is combined with the element already there.
    pub combine: Combine,
}
