//! Partitions of an array into parts.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;

use coherence::{PARTS, PartId, PartSet, Role};
use runtime_core::{Element, Error, ErrorKind, Layout, Result};
use smallvec::SmallVec;

/// A set of parts of an array, by number.
///
/// ```
/// use array_buffer::Parts;
///
/// let ends = Parts::one(0) | Parts::one(3);
/// assert!(ends.contains(3) && !ends.contains(1));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Parts {
    pub(crate) set: PartSet,
    /// The greatest number that no partition has, so that arrays refuse the set.
    beyond: Option<usize>,
}

impl Parts {
    /// The empty set.
    pub const NONE: Self = Self::of(PartSet::EMPTY);

    /// The set of one part. Every array refuses a set with a number from 256 on, because a partition has at most 256
    /// parts.
    pub fn one(part: usize) -> Self {
        match PartId::try_from(part) {
            Ok(part) => Self::of(PartSet::one(part)),
            Err(_) => Self { beyond: Some(part), ..Self::NONE },
        }
    }

    pub(crate) const fn of(set: PartSet) -> Self {
        Self { set, beyond: None }
    }

    /// Whether the part is in the set.
    pub fn contains(self, part: usize) -> bool {
        self.iter().any(|member| member == part)
    }

    /// The numbers of the parts in increasing order. Of those from 256 on, only the greatest.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.set.iter().map(usize::from).chain(self.beyond)
    }

    /// The number of parts in the set. All numbers from 256 on count as one.
    pub fn len(self) -> usize {
        self.set.len() + usize::from(self.beyond.is_some())
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether all parts are in `all`.
    pub(crate) fn are_in(self, all: PartSet) -> bool {
        self.beyond.is_none() && self.set.is_subset(all)
    }
}

impl std::ops::BitOr for Parts {
    type Output = Self;

    /// The union of both sets.
    fn bitor(self, other: Self) -> Self {
        Self { set: self.set.union(other.set), beyond: self.beyond.max(other.beyond) }
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts(")?;
        f.debug_set().entries(self.iter()).finish()?;
        f.write_str(")")
    }
}

pub(crate) type Ranges = SmallVec<[Range<usize>; 3]>;

/// Boxes that tile an array. Each box is owned or ghost, and has its own validity.
///
/// Owned parts hold the array's own values. Ghost parts hold copies of owned values, from this array or from an array
/// in another process. They become stale when owned values are written; an
/// [exchange](crate::ArrayBuffer::begin_exchange) fills them. In star-forest terms, owned elements are roots and ghost
/// elements are leaves.
///
/// A committed write counts for all elements of its parts. If it includes owned parts, all ghost parts are stale after
/// it, including its own. An exchange counts for all elements of the ghost parts that it fills. So choose ghost parts
/// that are always filled together. Elements that an exchange leaves out must be in a part of their own.
///
/// A part may have no elements. Its state counts as that of any other part: an array cannot be read as a whole before
/// all of its parts were written, also these, and not after a write of such a part has failed until it is overwritten.
///
/// ```
/// use array_buffer::Partition;
///
/// // 6 × 8 elements, of which a frame of one is ghosts: four sides, and four corners.
/// let partition = Partition::with_ghosts(&[6, 8], &[(1, 1), (1, 1)])?;
/// assert_eq!(partition.ranges(0), [1..5, 1..7]);
/// assert_eq!((partition.exchanged().len(), partition.ghosts().len()), (4, 8));
/// # Ok::<(), array_buffer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The extents, and then the strides.
    dims: SmallVec<[usize; 6]>,
    is_row_major: bool,
    parts: Vec<(Role, Ranges)>,
    all: PartSet,
    /// The parts before this number were given by the caller; the others are the rest of the array.
    given: usize,
}

impl Partition {
    /// A partition of an array of `shape` into one owned part.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn whole(shape: &[usize]) -> Result<Self> {
        let all: Ranges = shape.iter().map(|extent| 0..*extent).collect();
        Self::new(shape, &[&all], &[])
    }

    /// A partition into one owned box, surrounded by ghosts of width `widths[d] = (before, after)` along each
    /// dimension. Part 0 is the owned box. Then come the ghosts before and after the box along each dimension, in
    /// order, if they have elements; these are the [`exchanged`](Self::exchanged) parts. The remaining parts are the
    /// ghosts at edges and corners, which an exchange with the face neighbours does not fill. A read of the whole array
    /// needs them, too: let the exchange fill them, or write them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of widths is not the number of dimensions, or if ghosts leave no room.
    pub fn with_ghosts(shape: &[usize], widths: &[(usize, usize)]) -> Result<Self> {
        let fits = |(extent, (before, after)): (&usize, &(usize, usize))| {
            before.checked_add(*after).is_some_and(|both| both <= *extent)
        };
        if shape.len() != widths.len() || !shape.iter().zip(widths).all(fits) {
            return Err(invalid(format!("ghosts of widths {widths:?} in shape {shape:?}")));
        }
        let within = |(extent, (before, after)): (&usize, &(usize, usize))| *before..extent - after;
        let owned: Ranges = shape.iter().zip(widths).map(within).collect();
        let beside = |dim: usize| {
            let Range { start, end } = owned[dim];
            [0..start, end..shape[dim]].map(|side| {
                let mut ranges = owned.clone();
                ranges[dim] = side;
                ranges
            })
        };
        let sides: Vec<Ranges> =
            (0..shape.len()).flat_map(beside).filter(|side| volume(side) > 0).collect();
        let sides: Vec<&[Range<usize>]> = sides.iter().map(|ranges| &ranges[..]).collect();
        Self::around(shape, &owned, &sides)
    }

    /// A partition of an array of `shape` into one owned box, and boxes of ghosts that an exchange fills. The owned box
    /// is part 0. The ghost boxes follow in the given order; they are the [`exchanged`](Self::exchanged) parts. The
    /// rest of the array, such as corners, ghosts beyond a boundary and padding, is cut into boxes that are also ghost
    /// parts.
    ///
    /// ```
    /// use array_buffer::Partition;
    ///
    /// // Rows of four cells in lines of eight, with a neighbour above alone.
    /// let partition = Partition::around(&[4, 8], &[1..4, 0..4], &[&[0..1, 0..4]])?;
    /// assert_eq!(partition.ranges(1), [0..1, 0..4]);
    /// assert_eq!(partition.exchanged().iter().collect::<Vec<_>>(), [1]);
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); the parts that make up the rest count toward the limit of 256.
    pub fn around(
        shape: &[usize],
        owned: &[Range<usize>],
        exchanged: &[&[Range<usize>]],
    ) -> Result<Self> {
        let mut rest: Vec<Ranges> = vec![shape.iter().map(|extent| 0..*extent).collect()];
        let given = || std::iter::once(owned).chain(exchanged.iter().copied());
        for (index, hole) in given().enumerate() {
            check_inside(shape, index, hole)?;
            rest = rest.iter().flat_map(|all| around_hole(all, hole)).collect();
            // Overlapping boxes are refused below, but may leave a rest of any number of boxes here.
            if index >= PARTS || rest.len() > PARTS * PARTS {
                let message = format!(
                    "{} boxes around {index} parts; a partition has 1 to {PARTS} parts",
                    rest.len()
                );
                return Err(invalid(message));
            }
        }
        rest.retain(|left| volume(left) > 0);
        let ghosts = exchanged.iter().copied().chain(rest.iter().map(|ranges| &ranges[..]));
        let all = Self::new(shape, &[owned], &ghosts.collect::<Vec<_>>())?;
        Ok(Self { given: 1 + exchanged.len(), ..all })
    }

    /// A partition of an array of `shape` into boxes that tile it: first the owned parts, then the ghost parts, in the
    /// given order.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are no parts or more than 256, if a box exceeds the array, if two boxes overlap, or if
    /// elements are left over. The message names the parts.
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
            let (owned, all) = (owned.len(), parts.len());
            let message = format!(
                "{all} parts, {owned} of them owned; a partition has 1 to {PARTS} parts, at least one owned"
            );
            return Err(invalid(message));
        }
        let mut covered = 0_usize;
        for (index, (_, ranges)) in parts.iter().enumerate() {
            check_inside(shape, index, ranges)?;
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
        let axes: SmallVec<[usize; 6]> = (0..shape.len()).collect();
        let strides = packed(shape, &axes);
        let strides = strides.ok_or_else(|| invalid(format!("shape {shape:?} is too large")))?;
        let dims = shape.iter().copied().chain(strides).collect();
        let all = PartSet::below(parts.len());
        Ok(Self { dims, is_row_major: true, given: parts.len(), all, parts })
    }

    /// The same parts, with the elements of the array in another order in memory: `axes` lists the dimensions, the
    /// outermost first. The last one is contiguous. All replicas have this order. Views of the array show it as
    /// strides. Rows are no longer aligned, so call [`with_row_alignment`](Self::with_row_alignment) afterwards.
    ///
    /// ```
    /// use array_buffer::{ArrayBuffer, Partition};
    /// use ndarray::{Array2, ShapeBuilder};
    ///
    /// // As in Fortran: the first dimension is contiguous. The array is moved, not copied.
    /// let field = Array2::from_shape_vec((2, 3).f(), vec![1, 2, 3, 4, 5, 6])?;
    /// let address = field.as_ptr();
    /// let columns = Partition::whole(&[2, 3])?.with_order(&[1, 0])?;
    /// assert_eq!(columns.strides(), [1, 2]);
    /// let array = ArrayBuffer::from_array_with(field, columns)?;
    /// assert_eq!(array.read_host()?[[1, 0]], 2);
    /// assert_eq!(array.into_inner()?.as_ptr(), address);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `axes` does not list each dimension once.
    pub fn with_order(mut self, axes: &[usize]) -> Result<Self> {
        let mut sorted: SmallVec<[usize; 6]> = axes.into();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.shape().len()) {
            return Err(invalid(format!("order {axes:?} of {} dimensions", self.shape().len())));
        }
        let strides = packed(self.shape(), axes);
        self.set_strides(
            strides.ok_or_else(|| invalid(format!("shape {:?} is too large", self.shape())))?,
        );
        Ok(self)
    }

    /// The same parts, with rows that begin at multiples of `elements` in memory, counted from the first row. A row is
    /// what is contiguous: the last dimension, or that which [`with_order`](Self::with_order) says. The elements
    /// between rows belong to no part. Under a [memory budget](crate::ArrayBuffer::set_memory_budget), parts on the
    /// device have memory of their own, without such gaps.
    ///
    /// ```
    /// use array_buffer::Partition;
    ///
    /// let padded = Partition::whole(&[10, 10, 100])?.with_row_alignment(32)?;
    /// assert_eq!(padded.strides(), [1280, 128, 1]);
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for 0 elements, or if the array is then too large for the address space.
    pub fn with_row_alignment(mut self, elements: usize) -> Result<Self> {
        let too_large =
            || invalid(format!("rows of shape {:?} at multiples of {elements}", self.shape()));
        let axes = self.axes();
        let mut strides: SmallVec<[usize; 4]> = self.strides().into();
        let mut step = match axes.last() {
            Some(inner) if elements > 0 => {
                self.shape()[*inner].max(1).checked_next_multiple_of(elements)
            }
            Some(_) => return Err(too_large()),
            None => return Ok(self),
        };
        for axis in axes.iter().rev().skip(1) {
            strides[*axis] = step.ok_or_else(too_large)?;
            step = strides[*axis].checked_mul(self.shape()[*axis].max(1));
        }
        step.ok_or_else(too_large)?;
        self.set_strides(strides);
        Ok(self)
    }

    fn set_strides(&mut self, strides: SmallVec<[usize; 4]>) {
        let axes: SmallVec<[usize; 6]> = (0..self.shape().len()).collect();
        self.is_row_major = packed(self.shape(), &axes).as_ref() == Some(&strides);
        let rank = self.shape().len();
        self.dims[rank..].copy_from_slice(&strides);
    }

    /// The same parts in the order in which `other` has its elements. Refuses a partition with an order of its own.
    pub(crate) fn ordered_as(mut self, other: &Self) -> Result<Self> {
        if !self.is_row_major && self.strides() != other.strides() {
            let message = format!(
                "strides {:?} for an array with strides {:?}",
                self.strides(),
                other.strides()
            );
            return Err(invalid(message));
        }
        self.set_strides(other.strides().into());
        Ok(self)
    }

    /// For each dimension, the distance of neighbours in memory, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.dims[self.dims.len() / 2..]
    }

    /// Whether the elements are in row-major order without gaps.
    #[inline]
    pub(crate) fn is_row_major(&self) -> bool {
        self.is_row_major
    }

    /// Whether rows have gaps between them.
    pub(crate) fn has_gaps(&self) -> bool {
        packed(self.shape(), &self.axes()).is_none_or(|packed| packed[..] != *self.strides())
    }

    /// The number of elements of the array.
    pub(crate) fn volume(&self) -> usize {
        self.shape().iter().product()
    }

    /// The layout of a replica.
    pub(crate) fn layout<T: Element>(&self) -> Result<Layout> {
        layout_of::<T>(self.shape(), self.strides())
    }

    /// The number of elements of a replica's memory, which includes gaps between rows.
    pub(crate) fn memory_len<T: Element>(&self) -> Result<usize> {
        Ok(self.layout::<T>()?.span_bytes().len() / size_of::<T>())
    }

    /// The strides of a part that has memory of its own, without gaps and in the order of the array.
    pub(crate) fn own_strides(&self, part: u8) -> SmallVec<[usize; 4]> {
        // A part is no larger than the array.
        packed(&self.extents(part), &self.axes()).unwrap_or_default()
    }

    /// The dimensions, the outermost in memory first.
    fn axes(&self) -> SmallVec<[usize; 6]> {
        let mut axes: SmallVec<[usize; 6]> = (0..self.shape().len()).collect();
        // Of dimensions with one stride, all but the first have one index.
        axes.sort_by_key(|axis| Reverse((self.strides()[*axis], self.shape()[*axis])));
        axes
    }

    /// The position in memory of an element of a part, given by its number in row-major order of the part.
    pub(crate) fn position(&self, part: u8, mut number: usize) -> usize {
        let mut position = 0;
        for (range, stride) in self.ranges(part.into()).iter().zip(self.strides()).rev() {
            position += (range.start + number % range.len().max(1)) * stride;
            number /= range.len().max(1);
        }
        position
    }

    /// The extents of the array.
    pub fn shape(&self) -> &[usize] {
        &self.dims[..self.dims.len() / 2]
    }

    /// The number of parts.
    #[inline]
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// All parts.
    #[inline]
    pub fn all(&self) -> Parts {
        Parts::of(self.all)
    }

    /// As `all`.
    #[inline]
    pub(crate) fn every(&self) -> &PartSet {
        &self.all
    }

    /// The owned parts.
    pub fn owned(&self) -> Parts {
        self.of(Role::Owned)
    }

    /// The ghost parts.
    pub fn ghosts(&self) -> Parts {
        self.of(Role::Ghost)
    }

    /// The ghost parts that the caller gave, which an exchange fills. The ghost parts that [`around`](Self::around) and
    /// [`with_ghosts`](Self::with_ghosts) make from the rest of the array are not included.
    pub fn exchanged(&self) -> Parts {
        Parts::of(self.ghosts().set.and(PartSet::below(self.given)))
    }

    /// The index ranges of a part, one for each dimension; empty for a number that is no part.
    pub fn ranges(&self, part: usize) -> &[Range<usize>] {
        self.parts.get(part).map_or(&[], |(_, ranges)| ranges)
    }

    /// The lengths of a part's ranges.
    pub(crate) fn extents(&self, part: u8) -> SmallVec<[usize; 6]> {
        self.ranges(part.into()).iter().map(Range::len).collect()
    }

    /// The number of heap bytes, for partitions of up to three dimensions.
    pub(crate) fn heap_bytes(&self) -> usize {
        let dims = if self.dims.spilled() { size_of_val(&*self.dims) } else { 0 };
        dims + self.parts.capacity() * size_of::<(Role, Ranges)>()
    }

    fn of(&self, role: Role) -> Parts {
        let has = |part: &u8| self.parts[usize::from(*part)].0 == role;
        Parts::of(self.all().set.iter().filter(has).collect())
    }

    pub(crate) fn roles(&self) -> impl Iterator<Item = Role> {
        self.parts.iter().map(|(role, _)| *role)
    }

    /// The number of elements of a part.
    pub(crate) fn len(&self, part: u8) -> usize {
        volume(self.ranges(part.into()))
    }

    /// Whether a part has no elements.
    pub(crate) fn is_empty(&self, part: usize) -> bool {
        volume(self.ranges(part)) == 0
    }

    /// The number of elements that a part and a box of as many dimensions have in common.
    pub(crate) fn common(&self, part: usize, ranges: &[Range<usize>]) -> usize {
        let meet = |(a, b): (&Range<usize>, &Range<usize>)| {
            a.end.min(b.end).saturating_sub(a.start.max(b.start))
        };
        self.ranges(part).iter().zip(ranges).map(meet).fold(1, usize::saturating_mul)
    }

    /// The parts that have elements in a box of as many dimensions.
    pub(crate) fn meeting(&self, ranges: &[Range<usize>]) -> PartSet {
        self.all().set.iter().filter(|part| overlap(self.ranges((*part).into()), ranges)).collect()
    }

    /// The same array in smaller parts: boxes that tile it, each with the number of the part that has its elements.
    pub(crate) fn refined(&self, boxes: impl Iterator<Item = (Ranges, u8)>) -> Self {
        let parts: Vec<_> =
            boxes.map(|(ranges, of)| (self.parts[usize::from(of)].0, ranges)).collect();
        let all = PartSet::below(parts.len());
        Self { given: parts.len(), all, parts, ..self.clone() }
    }

    /// The boxes that are each in one part of `self` and one part of `other`, with both numbers. The array is the same.
    pub(crate) fn cut<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (Ranges, [u8; 2])> + 'a {
        let numbered = |of: &'a Self| (0..=PartId::MAX).zip(&of.parts);
        numbered(self).flat_map(move |(a, (_, mine))| {
            numbered(other).filter_map(move |(b, (_, theirs))| {
                let meet =
                    |(a, b): (&Range<usize>, &Range<usize>)| a.start.max(b.start)..a.end.min(b.end);
                let both: Ranges = mine.iter().zip(theirs).map(meet).collect();
                overlap(mine, theirs).then_some((both, [a, b]))
            })
        })
    }

    /// The bounding box of the parts, and whether they tile it.
    pub(crate) fn hull(&self, set: PartSet) -> (Ranges, bool) {
        if self.is_all(&set) {
            return (self.shape().iter().map(|extent| 0..*extent).collect(), true);
        }
        let mut boxes = set.iter().filter(|part| self.len(*part) > 0 || set.len() == 1);
        let first = boxes.next().or(set.first());
        let mut hull: Ranges = match first {
            Some(part) => self.ranges(part.into()).into(),
            None => self.shape().iter().map(|_| 0..0).collect(),
        };
        for part in boxes {
            for (all, range) in hull.iter_mut().zip(self.ranges(part.into())) {
                *all = all.start.min(range.start)..all.end.max(range.end);
            }
        }
        let tiled = set.iter().map(|part| self.len(part)).sum::<usize>() == volume(&hull);
        (hull, tiled)
    }

    /// The elements from the first to the last of the parts, in memory.
    pub(crate) fn span(&self, set: PartSet) -> Range<usize> {
        let (hull, _) = self.hull(set);
        if hull.iter().any(Range::is_empty) {
            return 0..0;
        }
        let places = hull.iter().zip(self.strides());
        let (first, last) = places.fold((0, 0), |(first, last), (range, stride)| {
            (first + range.start * stride, last + (range.end - 1) * stride)
        });
        first..last + 1
    }

    /// The index of an element, given its number in row-major order.
    pub(crate) fn index_of(&self, mut number: usize) -> Vec<usize> {
        let mut index = vec![0; self.shape().len()];
        for (index, extent) in index.iter_mut().zip(self.shape()).rev() {
            *index = number % extent;
            number /= extent;
        }
        index
    }

    /// The index of an element, given its position in memory.
    pub(crate) fn index(&self, mut position: usize) -> Vec<usize> {
        let mut index = vec![0; self.shape().len()];
        for axis in self.axes() {
            index[axis] = position / self.strides()[axis];
            position %= self.strides()[axis];
        }
        index
    }

    /// Whether the set contains all parts.
    #[inline]
    pub(crate) fn is_all(&self, set: &PartSet) -> bool {
        // Most sets are this one.
        std::ptr::eq(set, &raw const self.all) || *set == self.all
    }

    /// The [runs](Self::runs) of a part, and where each is in a contiguous copy of the part.
    pub(crate) fn packed_runs(
        &self,
        part: u8,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let mut end = 0;
        self.runs(part).map(move |run| {
            let start = end;
            end += run.len();
            (run, start..end)
        })
    }

    /// The contiguous runs of a part in memory, in increasing order.
    pub(crate) fn runs(&self, part: u8) -> impl Iterator<Item = Range<usize>> {
        let (ranges, axes) = (self.ranges(part.into()), self.axes());
        let mut outer = if ranges.is_empty() { 0 } else { axes.len() };
        let mut len = 1;
        while let Some(axis) =
            axes.get(outer.wrapping_sub(1)).filter(|axis| self.strides()[**axis] == len)
        {
            len *= ranges[*axis].len();
            outer -= 1;
        }
        let is_empty = ranges.iter().any(Range::is_empty);
        let (outer, inner) = axes.split_at(outer);
        let first: usize =
            inner.iter().map(|axis| ranges[*axis].start * self.strides()[*axis]).sum();
        let count =
            if is_empty { 0 } else { outer.iter().map(|axis| ranges[*axis].len()).product() };
        let outer: SmallVec<[usize; 6]> = outer.into();
        (0..count).map(move |mut number| {
            let mut start = first;
            for axis in outer.iter().rev() {
                let range = &ranges[*axis];
                start += (range.start + number % range.len()) * self.strides()[*axis];
                number /= range.len();
            }
            start..start + len
        })
    }
}

/// The strides of an array without gaps, if its size fits `usize`. `axes` are the dimensions, the outermost first.
fn packed(shape: &[usize], axes: &[usize]) -> Option<SmallVec<[usize; 4]>> {
    let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(1, shape.len());
    let mut step = 1_usize;
    for axis in axes.iter().rev() {
        strides[*axis] = step;
        step = step.checked_mul(shape[*axis].max(1))?;
    }
    Some(strides)
}

/// The layout of a box with these strides in elements.
pub(crate) fn layout_of<T: Element>(extents: &[usize], strides: &[usize]) -> Result<Layout> {
    let strides: SmallVec<[isize; 6]> = strides.iter().map(|stride| stride.cast_signed()).collect();
    Layout::new(T::DTYPE, extents, &strides)
}

pub(crate) fn volume(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(Range::len).fold(1, usize::saturating_mul)
}

pub(crate) fn overlap(a: &[Range<usize>], b: &[Range<usize>]) -> bool {
    let meet = |(a, b): (&Range<usize>, &Range<usize>)| a.start.max(b.start) < a.end.min(b.end);
    a.iter().zip(b).all(meet)
}

fn check_inside(shape: &[usize], part: usize, ranges: &[Range<usize>]) -> Result<()> {
    let inside = ranges.len() == shape.len()
        && ranges.iter().zip(shape).all(|(r, extent)| r.start <= r.end && r.end <= *extent);
    if inside {
        return Ok(());
    }
    Err(invalid(format!("part {part} is {ranges:?} of shape {shape:?}")))
}

/// Boxes that tile a box without a hole in it. The boxes of a later dimension do not extend into those of an earlier
/// one.
fn around_hole(all: &Ranges, hole: &[Range<usize>]) -> Vec<Ranges> {
    if !overlap(all, hole) {
        return vec![all.clone()];
    }
    let (mut rest, mut pieces) = (all.clone(), Vec::new());
    for (dim, hole) in hole.iter().enumerate() {
        let Range { start, end } = rest[dim];
        let within = hole.start.max(start)..hole.end.min(end);
        for side in [start..within.start, within.end..end] {
            if !side.is_empty() {
                let mut piece = rest.clone();
                piece[dim] = side;
                pieces.push(piece);
            }
        }
        rest[dim] = within;
    }
    pieces
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
        let whole = Partition::whole(&[3, 4, 5]).unwrap();
        let orders = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]].map(|order| {
            let ordered = whole.clone().with_order(&order).unwrap();
            [ordered.clone().with_row_alignment(8).unwrap(), ordered]
        });
        for (ordered, part) in orders.iter().flatten().flat_map(|ordered| {
            let parts = [
                [0..3, 0..4, 0..5],
                [1..3, 0..4, 0..5],
                [0..3, 1..3, 0..5],
                [0..2, 1..4, 2..4],
                [0..3, 2..3, 0..5],
                [1..1, 0..4, 0..5],
            ];
            parts.map(|part| (ordered, part))
        }) {
            let parts = vec![(Role::Owned, part[..].into())];
            let partition = Partition { parts, given: 1, ..ordered.clone() };
            let [x, y, z] = part.clone();
            let [a, b, c] = [0, 1, 2].map(|axis| ordered.strides()[axis]);
            let points = x.flat_map(|i| {
                let z = z.clone();
                y.clone().flat_map(move |j| z.clone().map(move |k| [i, j, k]))
            });
            let mut expected: Vec<_> =
                points.clone().map(|[i, j, k]| i * a + j * b + k * c).collect();
            for (number, (position, point)) in expected.iter().zip(points).enumerate() {
                assert_eq!(partition.position(0, number), *position);
                assert_eq!(partition.index(*position), point);
            }
            expected.sort_unstable();
            assert!(partition.runs(0).flatten().eq(expected), "{partition:?}");
            let runs: Vec<_> = partition.runs(0).collect();
            assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{runs:?}");
        }
        let scalar = Partition::whole(&[]).unwrap();
        assert!(scalar.runs(0).eq([0..1]));
    }

    #[test]
    fn orders_name_each_dimension_once() {
        let whole = Partition::whole(&[3, 1, 5]).unwrap();
        for order in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[]] {
            let error = whole.clone().with_order(order).unwrap_err();
            assert!(error.message().contains(&format!("{order:?}")), "{error}");
        }
        let turned = whole.clone().with_order(&[1, 0, 2]).unwrap();
        assert_eq!((turned.strides(), turned.index(12)), (&[5, 15, 1][..], vec![2, 0, 2]));
        assert!(whole.clone().with_row_alignment(0).is_err());
        let error = whole.clone().with_row_alignment(usize::MAX / 2).unwrap_err();
        assert!(error.message().contains("[3, 1, 5]"), "{error}");
        assert_eq!(whole.clone().with_row_alignment(5).unwrap(), whole);
        assert_eq!(Partition::whole(&[]).unwrap().with_row_alignment(8).unwrap().strides(), []);
    }

    #[test]
    fn frames_tile() {
        let partition = Partition::with_ghosts(&[4, 5], &[(1, 0), (1, 2)]).unwrap();
        let ranges: Vec<_> = (0..partition.count()).map(|part| partition.ranges(part)).collect();
        let corners = [[0..1, 0..1], [0..1, 3..5]];
        assert_eq!(ranges[..4], [[1..4, 1..3], [0..1, 1..3], [1..4, 0..1], [1..4, 3..5]]);
        assert_eq!(ranges[4..], corners);
        assert_eq!(partition.exchanged().iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(!partition.hull(partition.ghosts().set).1);
        assert!(partition.hull(partition.all().set).1);
        let sets = [partition.owned(), partition.ghosts(), partition.all(), Parts::NONE];
        assert_eq!(sets.map(|set| partition.span(set.set)), [6..18, 0..20, 0..20, 0..0]);
    }

    #[test]
    fn the_remaining_cells_form_separate_parts() {
        // Faces, edges and corners: 6 parts for the faces, and 12 parts that cover the 20 other of the 26 directions.
        let cube = Partition::with_ghosts(&[5, 5, 5], &[(1, 1); 3]).unwrap();
        assert_eq!((cube.exchanged().len(), cube.ghosts().len()), (6, 18));
        for side in cube.exchanged().iter() {
            let outside = cube.ranges(side).iter().filter(|range| **range != (1..4)).count();
            assert_eq!((outside, cube.len(u8::try_from(side).unwrap())), (1, 9));
        }
        assert_eq!(Partition::with_ghosts(&[3; 6], &[(1, 1); 6]).unwrap().count(), 73);
        let error = Partition::with_ghosts(&[3; 12], &[(1, 1); 12]).unwrap_err();
        assert!(error.message().contains("289 parts"), "{error}");
        assert_eq!(Partition::with_ghosts(&[4, 0], &[(1, 1), (0, 0)]).unwrap().count(), 1);

        let padded = Partition::around(&[4, 8], &[1..3, 2..5], &[&[0..1, 2..5], &[1..3, 1..2]]);
        let padded = padded.unwrap();
        assert_eq!(padded.exchanged().iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(padded.all().set.iter().map(|part| padded.len(part)).sum::<usize>(), 32);
        let twice = Partition::around(&[4], &[1..3], &[&[2..4]]).unwrap_err();
        assert!(twice.message().contains("parts 0 and 1 overlap"), "{twice}");
        let beyond = Partition::around(&[4], &[1..3], &[&[3..5]]).unwrap_err();
        assert!(beyond.message().contains("part 1 is [3..5]"), "{beyond}");
        assert!(Partition::around(&[4], &[1..3, 0..1], &[]).is_err());
        // Bad input with many dimensions or many boxes does not take more memory than its error message.
        assert!(Partition::with_ghosts(&[3; 100], &[(1, 1); 100]).is_err());
        let crossing: Vec<[Range<usize>; 6]> = (0..60)
            .map(|i| {
                std::array::from_fn(|dim| if dim == i % 6 { 4 * i..4 * i + 1 } else { 0..999 })
            })
            .collect();
        let crossing: Vec<&[Range<usize>]> = crossing.iter().map(|ranges| &ranges[..]).collect();
        assert!(Partition::around(&[999; 6], crossing[0], &crossing[1..]).is_err());
    }

    #[test]
    fn parts_that_do_not_tile_the_array_are_refused() {
        let error = |owned: &[&[Range<usize>]]| {
            Partition::new(&[4], owned, &[]).unwrap_err().message().to_owned()
        };
        assert!(error(&[&[0..2], &[1..4]]).contains("parts 0 and 1 overlap"));
        assert!(error(&[&[0..3]]).contains("3 of the 4 elements"));
        assert!(error(&[&[0..5]]).contains("part 0"));
        assert!(error(&[]).contains("0 of them owned"));
        assert!(Partition::with_ghosts(&[2], &[(2, 1)]).is_err());
    }
}
