//! The eight symmetries of the square, and the maps between index spaces that use them.

use std::fmt;
use std::ops::Range;

/// The most axes that a topology can divide.
pub(crate) const AXES: usize = 3;

/// One of the eight symmetries of the square: how the axes of one block lie relative to those of another.
///
/// It maps coordinates: the receiver's axis 0 (x) and axis 1 (y) run along the neighbour's axes, possibly exchanged,
/// possibly backwards. A third axis never changes.
///
/// ```
/// use halo::Symmetry;
///
/// // The receiver's x runs along the neighbour's y, its y against the neighbour's x.
/// assert_eq!(Symmetry::QUARTER.axis(0), (1, false));
/// assert_eq!(Symmetry::QUARTER.axis(1), (0, true));
/// assert_eq!(Symmetry::QUARTER.then(Symmetry::QUARTER), Symmetry::HALF);
/// assert_eq!(Symmetry::QUARTER.inverse(), Symmetry::THREE_QUARTERS);
/// assert!(Symmetry::TRANSPOSE.is_reflection());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symmetry {
    swap: bool,
    /// Whether the receiver's axis runs against the neighbour's axis.
    flip: [bool; 2],
}

impl Symmetry {
    /// Both axes unchanged.
    pub const IDENTITY: Self = Self { swap: false, flip: [false, false] };
    /// A rotation by 90° anticlockwise: x along y, y against x.
    pub const QUARTER: Self = Self { swap: true, flip: [false, true] };
    /// A rotation by 180°.
    pub const HALF: Self = Self { swap: false, flip: [true, true] };
    /// A rotation by 90° clockwise: x against y, y along x.
    pub const THREE_QUARTERS: Self = Self { swap: true, flip: [true, false] };
    /// x runs backwards.
    pub const MIRROR_X: Self = Self { swap: false, flip: [true, false] };
    /// y runs backwards.
    pub const MIRROR_Y: Self = Self { swap: false, flip: [false, true] };
    /// x and y are exchanged.
    pub const TRANSPOSE: Self = Self { swap: true, flip: [false, false] };
    /// x and y are exchanged, and both run backwards.
    pub const ANTITRANSPOSE: Self = Self { swap: true, flip: [true, true] };

    /// All eight symmetries.
    pub const ALL: [Self; 8] = [
        Self::IDENTITY,
        Self::QUARTER,
        Self::HALF,
        Self::THREE_QUARTERS,
        Self::MIRROR_X,
        Self::MIRROR_Y,
        Self::TRANSPOSE,
        Self::ANTITRANSPOSE,
    ];

    /// Returns the neighbour's axis along which this axis of the receiver runs, and whether it runs against that axis.
    pub const fn axis(self, axis: usize) -> (usize, bool) {
        match (axis, self.swap) {
            (0, false) => (0, self.flip[0]),
            (0, true) => (1, self.flip[0]),
            (1, false) => (1, self.flip[1]),
            (1, true) => (0, self.flip[1]),
            (other, _) => (other, false),
        }
    }

    /// Applies this symmetry first, then `next`.
    #[must_use]
    pub const fn then(self, next: Self) -> Self {
        let (x, x_flip) = self.axis(0);
        let (y, y_flip) = self.axis(1);
        let (on, flips) = (next.axis(x), [x_flip ^ next.axis(x).1, y_flip ^ next.axis(y).1]);
        Self { swap: on.0 == 1, flip: flips }
    }

    /// The inverse symmetry.
    #[must_use]
    pub const fn inverse(self) -> Self {
        match self.swap {
            false => self,
            true => Self { swap: true, flip: [self.flip[1], self.flip[0]] },
        }
    }

    /// Whether x and y are exchanged.
    pub const fn swaps(self) -> bool {
        self.swap
    }

    /// Whether it changes right-handed axes into left-handed ones.
    pub const fn is_reflection(self) -> bool {
        self.swap ^ self.flip[0] ^ self.flip[1]
    }
}

impl fmt::Display for Symmetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match *self {
            Self::IDENTITY => "identity",
            Self::QUARTER => "quarter",
            Self::HALF => "half",
            Self::THREE_QUARTERS => "three-quarters",
            Self::MIRROR_X => "mirror-x",
            Self::MIRROR_Y => "mirror-y",
            Self::TRANSPOSE => "transpose",
            _ => "antitranspose",
        })
    }
}

impl fmt::Debug for Symmetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |axis: usize| {
            let (on, against) = self.axis(axis);
            format!("{}{}", if against { "-" } else { "" }, ["x", "y"][on])
        };
        write!(f, "Symmetry(x: {}, y: {})", name(0), name(1))
    }
}

/// A map from one index space to another: a symmetry, then a shift.
///
/// It maps continuous coordinates. Cell `i` is the interval from `i` to `i + 1`, and point `i` lies at `i`, so one map
/// serves both cells and the points between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) symmetry: Symmetry,
    /// The shift along the axes of the target space.
    pub(crate) shift: [isize; AXES],
}

impl Map {
    pub(crate) const IDENTITY: Self = Self { symmetry: Symmetry::IDENTITY, shift: [0; AXES] };

    /// The map for a block with `own` cells whose `side` is joined to a neighbour with `other` cells: from the block's
    /// coordinates to the neighbour's. `None` if the joined sides differ in length.
    pub(crate) fn joining(
        symmetry: Symmetry,
        side: [i8; AXES],
        own: [usize; AXES],
        other: [usize; AXES],
    ) -> Option<Self> {
        let mut shift = [0; AXES];
        for axis in 0..AXES {
            let (on, against) = symmetry.axis(axis);
            let (mine, its) = (own[axis].cast_signed(), other[on].cast_signed());
            shift[on] = match (side[axis], against) {
                (0, _) if mine != its => return None,
                (0, false) | (-1, true) => 0,
                (0, true) | (-1, false) => its,
                (_, false) => -mine,
                (_, true) => mine + its,
            };
        }
        Some(Self { symmetry, shift })
    }

    /// The axis that the intervals along `axis` are mapped to, and their image.
    pub(crate) fn interval(&self, axis: usize, cells: &Range<isize>) -> (usize, Range<isize>) {
        let (on, against) = self.symmetry.axis(axis);
        let shift = self.shift[on];
        let image = match against {
            false => cells.start + shift..cells.end + shift,
            true => shift - cells.end..shift - cells.start,
        };
        (on, image)
    }

    /// The image of the box `cells`.
    pub(crate) fn image(&self, cells: &[Range<isize>; AXES]) -> [Range<isize>; AXES] {
        let mut image = [0..0, 0..0, 0..0];
        for (axis, cells) in cells.iter().enumerate() {
            let (on, interval) = self.interval(axis, cells);
            image[on] = interval;
        }
        image
    }

    /// The same map for coordinates that start at `start`.
    pub(crate) fn starting_at(&self, start: &[isize; AXES]) -> Self {
        let mut shift = self.shift;
        for (axis, start) in start.iter().enumerate() {
            let (on, against) = self.symmetry.axis(axis);
            shift[on] += if against { -start } else { *start };
        }
        Self { shift, ..*self }
    }

    /// The same map with its image shifted.
    pub(crate) fn shifted(&self, by: &[isize; AXES]) -> Self {
        Self { shift: std::array::from_fn(|axis| self.shift[axis] + by[axis]), ..*self }
    }

    pub(crate) fn inverse(&self) -> Self {
        let symmetry = self.symmetry.inverse();
        let mut shift = [0; AXES];
        for (axis, shift) in shift.iter_mut().enumerate() {
            let (on, against) = self.symmetry.axis(axis);
            *shift = if against { self.shift[on] } else { -self.shift[on] };
        }
        Self { symmetry, shift }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a symmetry to a point, by its matrix.
    fn apply(symmetry: Symmetry, point: [isize; 2]) -> [isize; 2] {
        let mut image = [0; 2];
        for (axis, along) in point.into_iter().enumerate() {
            let (on, against) = symmetry.axis(axis);
            image[on] = if against { -along } else { along };
        }
        image
    }

    #[test]
    fn they_are_a_group_of_eight() {
        for (index, a) in Symmetry::ALL.into_iter().enumerate() {
            assert_eq!(Symmetry::ALL.iter().position(|b| *b == a), Some(index));
            assert_eq!(a.then(a.inverse()), Symmetry::IDENTITY);
            assert_eq!(a.inverse().then(a), Symmetry::IDENTITY);
            for b in Symmetry::ALL {
                let both = a.then(b);
                assert!(Symmetry::ALL.contains(&both));
                assert_eq!(apply(both, [2, 5]), apply(b, apply(a, [2, 5])), "{a:?} {b:?}");
                assert_eq!(both.is_reflection(), a.is_reflection() ^ b.is_reflection());
            }
        }
    }

    #[test]
    fn quarter_turns_turn() {
        assert_eq!(apply(Symmetry::QUARTER, [1, 0]), [0, 1]);
        assert_eq!(apply(Symmetry::THREE_QUARTERS, [1, 0]), [0, -1]);
        assert_eq!(Symmetry::HALF, Symmetry::QUARTER.then(Symmetry::QUARTER));
    }

    #[test]
    fn maps_are_undone_by_their_inverses() {
        let cells = [-3..-1, 0..5, 2..4];
        for symmetry in Symmetry::ALL {
            let map = Map { symmetry, shift: [4, -7, 11] };
            assert_eq!(map.inverse().image(&map.image(&cells)), cells, "{symmetry:?}");
        }
    }

    #[test]
    fn ghosts_next_to_a_side_come_from_next_to_the_side_joined_to_it() {
        let (own, other) = ([6, 6, 1], [6, 6, 1]);
        for symmetry in Symmetry::ALL {
            for side in [[-1, 0, 0], [1, 0, 0], [0, -1, 0], [0, 1, 0], [1, -1, 0]] {
                let map = Map::joining(symmetry, side, own, other).unwrap();
                let ghost = |axis: usize| match side[axis] {
                    0 => 2..4,
                    1 => 6..7,
                    _ => -1..0,
                };
                let image = map.image(&[ghost(0), ghost(1), 0..1]);
                for axis in 0..2 {
                    let (on, against) = symmetry.axis(axis);
                    let expected = match (side[axis] != 0, (side[axis] > 0) ^ against) {
                        (true, true) => 0..1,
                        (true, false) => 5..6,
                        (false, _) => 2..4,
                    };
                    assert_eq!(image[on], expected, "{symmetry:?} {side:?}");
                }
            }
        }
        assert!(Map::joining(Symmetry::QUARTER, [1, 0, 0], [6, 4, 1], [6, 4, 1]).is_none());
        assert!(Map::joining(Symmetry::QUARTER, [1, 0, 0], [6, 4, 1], [4, 9, 1]).is_some());
    }
}
