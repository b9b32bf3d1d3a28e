//! How an array is cut into parts.

use std::fmt;
use std::ops::Range;

use runtime_core::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use crate::coherence::{PARTS, Role, Set};

/// Parts of an array, by number.
///
/// ```
/// use array_buffer::Parts;
///
/// let ends = Parts::one(0) | Parts::one(3);
/// assert!(ends.contains(3) && !ends.contains(1));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Parts(pub(crate) Set);

impl Parts {
    /// No part.
    pub const NONE: Self = Self(Set::EMPTY);

    /// The part with that number; none if there cannot be one, since a partition has at most 64.
    pub fn one(part: usize) -> Self {
        u8::try_from(part)
            .ok()
            .filter(|part| usize::from(*part) < PARTS)
            .map_or(Self::NONE, |part| Self(Set::one(part)))
    }

    /// Whether the part is among them.
    pub fn contains(self, part: usize) -> bool {
        self.iter().any(|member| member == part)
    }

    /// The numbers, rising.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.0.iter().map(usize::from)
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl std::ops::BitOr for Parts {
    type Output = Self;

    /// The parts of both.
    fn bitor(self, other: Self) -> Self {
        Self(self.0.union(other.0))
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parts({:?})", self.0)
    }
}

type Ranges = SmallVec<[Range<usize>; 3]>;

/// Boxes that tile an array, each owned or ghost, and each with its own validity.
///
/// Owned parts hold the array's own values. Ghost parts hold copies of owned values, of this array or of one in another
/// process, and become stale when owned values are written; an [exchange](crate::ArrayBuffer::begin_exchange) fills
/// them. In the words of a star forest, owned elements are roots and ghost elements leaves.
///
/// ```
/// use array_buffer::Partition;
///
/// // 6 × 8 elements, of which a frame of one is ghosts.
/// let partition = Partition::with_ghosts(&[6, 8], &[(1, 1), (1, 1)])?;
/// assert_eq!(partition.ranges(0), [1..5, 1..7]);
/// assert_eq!(partition.owned().len() + partition.ghosts().len(), 5);
/// # Ok::<(), array_buffer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    shape: SmallVec<[usize; 4]>,
    parts: Vec<(Role, Ranges)>,
}

impl Partition {
    /// An array of `shape` in one owned part.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn whole(shape: &[usize]) -> Result<Self> {
        let all: Ranges = shape.iter().map(|extent| 0..*extent).collect();
        Self::new(shape, &[&all], &[])
    }

    /// An owned box within ghost strips `widths[d] = (before, after)` wide along each dimension. Part 0 is the owned
    /// box; then come, for each dimension in order, the strip before and the one after, as far as they have elements.
    /// Those of a later dimension do not reach into those of an earlier one, which have the corners.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are not as many widths as dimensions, or strips leave no room.
    pub fn with_ghosts(shape: &[usize], widths: &[(usize, usize)]) -> Result<Self> {
        let fits = |(extent, (before, after)): (&usize, &(usize, usize))| {
            before.checked_add(*after).is_some_and(|both| both <= *extent)
        };
        if shape.len() != widths.len() || !shape.iter().zip(widths).all(fits) {
            return Err(invalid(format!("ghosts of widths {widths:?} in shape {shape:?}")));
        }
        let mut rest: Ranges = shape.iter().map(|extent| 0..*extent).collect();
        let mut ghosts = Vec::new();
        for (dim, (before, after)) in widths.iter().enumerate() {
            let Range { start, end } = rest[dim].clone();
            for strip in [start..start + before, end - after..end] {
                let mut ranges = rest.clone();
                ranges[dim] = strip;
                if ranges.iter().all(|range| !range.is_empty()) {
                    ghosts.push(ranges);
                }
            }
            rest[dim] = start + before..end - after;
        }
        let ghosts: Vec<&[Range<usize>]> = ghosts.iter().map(|ranges| &ranges[..]).collect();
        Self::new(shape, &[&rest], &ghosts)
    }

    /// An array of `shape` in boxes that tile it: first the owned parts, then the ghost parts, in the order given.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are none or more than 64, a box leaves the array, two overlap, or elements are left
    /// over; the message names the parts.
    pub fn new(
        shape: &[usize],
        owned: &[&[Range<usize>]],
        ghosts: &[&[Range<usize>]],
    ) -> Result<Self> {
        let part = |role| move |ranges: &&[Range<usize>]| (role, Ranges::from(*ranges));
        let parts: Vec<(Role, Ranges)> = owned
            .iter()
            .map(part(Role::Owned))
            .chain(ghosts.iter().map(part(Role::Ghost)))
            .collect();
        if owned.is_empty() || parts.len() > PARTS {
            let message = format!("{} owned of {} parts; 1 to {PARTS}", owned.len(), parts.len());
            return Err(invalid(message));
        }
        let mut covered = 0_usize;
        for (index, (_, ranges)) in parts.iter().enumerate() {
            let inside = ranges.len() == shape.len()
                && ranges.iter().zip(shape).all(|(r, extent)| r.start <= r.end && r.end <= *extent);
            if !inside {
                return Err(invalid(format!("part {index} is {ranges:?} of shape {shape:?}")));
            }
            if let Some(other) = parts[..index].iter().position(|(_, other)| overlap(ranges, other))
            {
                return Err(invalid(format!("parts {other} and {index} overlap")));
            }
            covered = covered.saturating_add(volume(ranges));
        }
        let total = shape.iter().fold(1_usize, |all, extent| all.saturating_mul(*extent));
        if covered != total {
            let message = format!("parts have {covered} of the {total} elements of {shape:?}");
            return Err(invalid(message));
        }
        Ok(Self { shape: shape.into(), parts })
    }

    /// Extents of the array.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many parts there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// All parts.
    pub fn all(&self) -> Parts {
        Parts(Set::below(self.parts.len()))
    }

    /// The owned parts.
    pub fn owned(&self) -> Parts {
        self.of(Role::Owned)
    }

    /// The ghost parts.
    pub fn ghosts(&self) -> Parts {
        self.of(Role::Ghost)
    }

    /// The indices of a part along each dimension; nothing for a number that is no part.
    pub fn ranges(&self, part: usize) -> &[Range<usize>] {
        self.parts.get(part).map_or(&[], |(_, ranges)| ranges)
    }

    /// Bytes outside the struct itself, up to three dimensions.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<(Role, Ranges)>()
    }

    fn of(&self, role: Role) -> Parts {
        let has = |part: &u8| self.parts[usize::from(*part)].0 == role;
        Parts(self.all().0.iter().filter(has).collect())
    }

    pub(crate) fn roles(&self) -> impl Iterator<Item = Role> {
        self.parts.iter().map(|(role, _)| *role)
    }

    /// Elements of a part.
    pub(crate) fn len(&self, part: u8) -> usize {
        volume(self.ranges(part.into()))
    }

    /// Whether a part has no elements.
    pub(crate) fn is_empty(&self, part: usize) -> bool {
        volume(self.ranges(part)) == 0
    }

    /// Elements that a part has in common with a box of as many dimensions.
    pub(crate) fn common(&self, part: usize, ranges: &[Range<usize>]) -> usize {
        let meet = |(a, b): (&Range<usize>, &Range<usize>)| {
            a.end.min(b.end).saturating_sub(a.start.max(b.start))
        };
        self.ranges(part).iter().zip(ranges).map(meet).fold(1, usize::saturating_mul)
    }

    /// The smallest box around the parts, and whether they tile it.
    pub(crate) fn hull(&self, set: Set) -> (Ranges, bool) {
        if self.is_all(set) {
            return (self.shape.iter().map(|extent| 0..*extent).collect(), true);
        }
        let mut boxes = set.iter().filter(|part| self.len(*part) > 0 || set.len() == 1);
        let first = boxes.next().or(set.first());
        let mut hull: Ranges = match first {
            Some(part) => self.ranges(part.into()).into(),
            None => self.shape.iter().map(|_| 0..0).collect(),
        };
        for part in boxes {
            for (all, range) in hull.iter_mut().zip(self.ranges(part.into())) {
                *all = all.start.min(range.start)..all.end.max(range.end);
            }
        }
        let tiled = set.iter().map(|part| self.len(part)).sum::<usize>() == volume(&hull);
        (hull, tiled)
    }

    /// From the first element of the parts to the last, in row-major order.
    pub(crate) fn span(&self, set: Set) -> Range<usize> {
        let (hull, _) = self.hull(set);
        if hull.iter().any(Range::is_empty) {
            return 0..0;
        }
        let places = hull.iter().zip(&self.shape);
        let (first, last) = places.fold((0, 0), |(first, last), (range, extent)| {
            (first * extent + range.start, last * extent + range.end - 1)
        });
        first..last + 1
    }

    /// Whether these are all parts.
    #[inline]
    pub(crate) fn is_all(&self, set: Set) -> bool {
        set == Set::below(self.parts.len())
    }

    /// Contiguous stretches of a part, as elements of the array in row-major order.
    pub(crate) fn runs(&self, part: u8) -> impl Iterator<Item = Range<usize>> {
        let ranges = self.ranges(part.into());
        // Dimensions from here on are whole, so that one run goes through all of them.
        let whole = ranges.iter().zip(&self.shape).rposition(|(range, e)| range.len() != *e);
        let split = whole.unwrap_or(0);
        let inner: usize = self.shape.get(split + 1..).unwrap_or(&[]).iter().product();
        let (outer, last) = match ranges.get(split) {
            Some(range) => (&ranges[..split], range.start * inner..range.end * inner),
            None => (ranges, 0..1),
        };
        let stride: usize = self.shape.get(split..).unwrap_or(&[]).iter().product();
        let count = if last.is_empty() { 0 } else { volume(outer) };
        (0..count).map(move |mut index| {
            let (mut start, mut step) = (0, stride);
            for (range, extent) in outer.iter().zip(&self.shape).rev() {
                start += (range.start + index % range.len()) * step;
                index /= range.len();
                step *= extent;
            }
            start + last.start..start + last.end
        })
    }
}

pub(crate) fn volume(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(Range::len).fold(1, usize::saturating_mul)
}

pub(crate) fn overlap(a: &[Range<usize>], b: &[Range<usize>]) -> bool {
    let meet = |(a, b): (&Range<usize>, &Range<usize>)| a.start.max(b.start) < a.end.min(b.end);
    a.iter().zip(b).all(meet)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "partition", message)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_elements_of_the_box() {
        let shape = [3, 4, 5];
        for part in [
            [0..3, 0..4, 0..5],
            [1..3, 0..4, 0..5],
            [0..3, 1..3, 0..5],
            [0..2, 1..4, 2..4],
            [1..1, 0..4, 0..5],
        ] {
            let partition =
                Partition { shape: shape[..].into(), parts: vec![(Role::Owned, part[..].into())] };
            let expected = part[0].clone().flat_map(|i| {
                let part = &part;
                part[1].clone().flat_map(move |j| part[2].clone().map(move |k| (i * 4 + j) * 5 + k))
            });
            assert!(partition.runs(0).flatten().eq(expected), "{part:?}");
        }
        let scalar = Partition::whole(&[]).unwrap();
        assert!(scalar.runs(0).eq([0..1]));
    }

    #[test]
    fn frames_tile() {
        let partition = Partition::with_ghosts(&[4, 5], &[(1, 0), (1, 2)]).unwrap();
        let ranges: Vec<_> = (0..partition.count()).map(|part| partition.ranges(part)).collect();
        assert_eq!(ranges, [[1..4, 1..3], [0..1, 0..5], [1..4, 0..1], [1..4, 3..5]]);
        assert!(!partition.hull(partition.ghosts().0).1);
        assert!(partition.hull(partition.all().0).1);
        let sets = [partition.owned(), partition.ghosts(), partition.all(), Parts::NONE];
        assert_eq!(sets.map(|set| partition.span(set.0)), [6..18, 0..20, 0..20, 0..0]);
    }

    #[test]
    fn what_does_not_tile_is_refused() {
        let error = |owned: &[&[Range<usize>]]| {
            Partition::new(&[4], owned, &[]).unwrap_err().message().to_owned()
        };
        assert!(error(&[&[0..2], &[1..4]]).contains("parts 0 and 1 overlap"));
        assert!(error(&[&[0..3]]).contains("3 of the 4 elements"));
        assert!(error(&[&[0..5]]).contains("part 0"));
        assert!(error(&[]).contains("0 owned"));
        assert!(Partition::with_ghosts(&[2], &[(2, 1)]).is_err());
    }
}
