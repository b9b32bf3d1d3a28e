//! Sides, edges and corners of a block.

use std::fmt;
use std::ops::Range;

use super::symmetry::{AXES, Symmetry};

/// A side, edge or corner of a block. For each axis it is at the low end (−1), at the high end (1) or at neither (0).
///
/// ```
/// use halo::Side;
///
/// assert_eq!(Side::new([-1, 1]), Some(Side::NORTH_WEST));
/// assert_eq!(Side::new([1, 0, 1]).unwrap().to_string(), "(1, 0, 1)");
/// assert_eq!(Side::new([2]), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Side(pub(crate) [i8; AXES]);

impl Side {
    pub(crate) const NONE: Self = Self([0; AXES]);
    /// Low x.
    pub const WEST: Self = Self([-1, 0, 0]);
    /// High x.
    pub const EAST: Self = Self([1, 0, 0]);
    /// Low y.
    pub const SOUTH: Self = Self([0, -1, 0]);
    /// High y.
    pub const NORTH: Self = Self([0, 1, 0]);
    /// Low z.
    pub const BELOW: Self = Self([0, 0, -1]);
    /// High z.
    pub const ABOVE: Self = Self([0, 0, 1]);
    /// Low x and low y.
    pub const SOUTH_WEST: Self = Self([-1, -1, 0]);
    /// High x and low y.
    pub const SOUTH_EAST: Self = Self([1, -1, 0]);
    /// Low x and high y.
    pub const NORTH_WEST: Self = Self([-1, 1, 0]);
    /// High x and high y.
    pub const NORTH_EAST: Self = Self([1, 1, 0]);

    /// The side at these ends of one to three axes. `None` if there are more axes, if all ends are 0, or if an end is
    /// not −1, 0 or 1.
    pub fn new<const N: usize>(ends: [i8; N]) -> Option<Self> {
        let mut side = [0; AXES];
        side.get_mut(..N)?.copy_from_slice(&ends);
        let valid =
            ends.iter().all(|end| (-1..=1).contains(end)) && ends.iter().any(|end| *end != 0);
        valid.then_some(Self(side))
    }

    /// For each axis, the end at which the side lies: −1, 1, or 0 for neither.
    pub fn ends(self) -> [i8; 3] {
        self.0
    }

    /// The number of axes along which it lies at an end: 1 for a side in the narrow sense.
    pub fn codimension(self) -> usize {
        self.0.iter().filter(|end| **end != 0).count()
    }

    /// All sides, edges and corners of a block with this number of axes, in the order of their numbers.
    pub(crate) fn all(axes: usize) -> impl Iterator<Item = Self> {
        let ends = move |axis| if axis < axes { -1..=1 } else { 0..=0 };
        ends(2)
            .flat_map(move |z| ends(1).flat_map(move |y| ends(0).map(move |x| Self([x, y, z]))))
            .filter(|side| *side != Self::NONE)
    }

    /// The side at an end of one axis.
    pub(crate) fn face(axis: usize, end: i8) -> Self {
        let mut face = Self::NONE;
        face.0[axis] = end;
        face
    }

    /// The sides that meet in this edge or corner.
    pub(crate) fn faces(self) -> impl Iterator<Item = Self> {
        (0..AXES)
            .filter(move |axis| self.0[*axis] != 0)
            .map(move |axis| Self::face(axis, self.0[axis]))
    }

    /// A number below 27.
    pub(crate) fn id(self) -> usize {
        self.0.iter().rev().fold(0, |id, end| 3 * id + usize::from((end + 1).unsigned_abs()))
    }

    pub(crate) fn is_within(self, axes: usize) -> bool {
        self.0[axes..].iter().all(|end| *end == 0)
    }

    /// The neighbour's side that is joined to this side. `symmetry` maps the axes of this side's block to the
    /// neighbour's.
    ///
    /// ```
    /// use halo::{Side, Symmetry};
    ///
    /// assert_eq!(Side::EAST.through(Symmetry::IDENTITY), Side::WEST);
    /// assert_eq!(Side::EAST.through(Symmetry::QUARTER), Side::SOUTH);
    /// ```
    #[must_use]
    pub fn through(self, symmetry: Symmetry) -> Self {
        let mut side = Self::NONE;
        for (axis, end) in self.0.iter().enumerate() {
            let (on, against) = symmetry.axis(axis);
            side.0[on] = if against { *end } else { -end };
        }
        side
    }

    /// The ghost cells along one axis of a block of `cells` cells, or all cells if the side is at neither end of the
    /// axis.
    pub(crate) fn ghosts(self, axis: usize, cells: isize, widths: [usize; 2]) -> Range<isize> {
        match self.0[axis] {
            0 => 0..cells,
            -1 => -widths[0].cast_signed()..0,
            _ => cells..cells + widths[1].cast_signed(),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::WEST => "west",
            Self::EAST => "east",
            Self::SOUTH => "south",
            Self::NORTH => "north",
            Self::BELOW => "below",
            Self::ABOVE => "above",
            Self::SOUTH_WEST => "south-west",
            Self::SOUTH_EAST => "south-east",
            Self::NORTH_WEST => "north-west",
            Self::NORTH_EAST => "north-east",
            Self([x, y, z]) => return write!(f, "({x}, {y}, {z})"),
        };
        f.pad(name)
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_lies_at_an_end_or_at_neither() {
        for end in (i8::MIN..-1).chain(2..=i8::MAX) {
            assert_eq!(Side::new([end]), None);
            assert_eq!(Side::new([0, 1, end]), None);
        }
        assert_eq!(Side::new([0; 3]), None);
        assert_eq!(Side::new([1; 4]), None);
    }
}
