//! Checks a program against the elements bound to its slots: whether it touches only those, and whether it respects a
//! box, which means that it writes only outside the box or reads only the box.

use smallvec::SmallVec;

use super::RegionProgram;
use super::footprint::Footprint;
use super::program::MAX_SPAN;
use super::within::PIECES;
use crate::{Error, ErrorKind, Layout, Result};

/// Elements of memory bound to a slot: the byte offset of their lowest byte from the slot's start, and their layout.
pub(crate) type Part = (usize, Layout);

/// The parts of memory that are bound to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The part that may be read, and also written unless there is a separate part for writing.
    pub(crate) first: Part,
    /// The part that may be written and read.
    pub(crate) written: Option<Part>,
}

impl RegionProgram {
    /// Checks that the program respects a box of the slot: if it writes the slot, it writes no element of `layout`;
    /// otherwise it reads only these elements. Their lowest byte lies `start` bytes after that of the slot.
    pub(crate) fn respects(&self, slot: usize, start: usize, layout: &Layout) -> Result<()> {
        let refuse =
            |message: String| Error::new(ErrorKind::InvalidArgument, "with_split", message);
        let Some(used) = self.slots().get(slot) else {
            return Err(refuse(format!("slot {slot} of {}", self.slots().len())));
        };
        let span = layout.span_bytes();
        let fits = |end: usize| i64::try_from(end).is_ok_and(|end| end <= MAX_SPAN);
        if !start.checked_add_signed(span.end - span.start).is_some_and(fits) {
            let message = format!("{layout:?} at byte {start} of slot {slot}, limit {MAX_SPAN}");
            return Err(refuse(message));
        }
        let inside = footprint((start, *layout));
        let message =
            |does: &str| refuse(format!("the plan {does} the box of {layout:?} in slot {slot}"));
        let is_apart = |target: &Footprint| {
            inside.as_ref().is_none_or(|inside| target.is_apart(inside) == Some(true))
        };
        let is_within = |source: &Footprint| {
            inside.as_ref().is_some_and(|part| source.is_within(&[part]) == Some(true))
        };
        self.for_each_use(slot, |touched, writes| match (used.written, writes) {
            (true, true) if !is_apart(touched) => Err(message("writes into, or may write into,")),
            (false, false) if !is_within(touched) => Err(message("reads beyond")),
            _ => Ok(()),
        })
    }

    /// Calls `f` with all elements that a slot's copies read, or write, at a time. Stops when `f` fails.
    fn for_each_use(
        &self,
        slot: usize,
        mut f: impl FnMut(&Footprint, bool) -> Result<()>,
    ) -> Result<()> {
        for phase in self.phases() {
            for copy in phase.copies() {
                let (source, destination) = copy.footprints();
                if copy.source_slot() == slot {
                    f(&source, false)?;
                }
                if copy.destination_slot() == slot {
                    f(&destination, true)?;
                }
            }
            for items in phase.items() {
                if items.sources().iter().any(|source| source.slot == slot) {
                    let mut of_slot = |of, read| if of == slot { f(&read, false) } else { Ok(()) };
                    items.for_each_read(&mut of_slot)?;
                }
                if items.destination().slot == slot {
                    items.for_each_target(|target| f(&target, true))?;
                }
            }
        }
        Ok(())
    }

    /// Checks that the program reads and writes only bytes of elements that are bound to the slot.
    pub(crate) fn stays_within(&self, slot: usize, bound: &Bound) -> Result<()> {
        let (first, written) = (footprint(bound.first), bound.written.and_then(footprint));
        let to_read: SmallVec<[&Footprint; 2]> = first.iter().chain(&written).collect();
        let to_write = match bound.written {
            Some(_) => written.as_slice(),
            None => first.as_slice(),
        };
        let to_write: SmallVec<[&Footprint; 1]> = to_write.iter().collect();
        let check = |does: &str, touched: &Footprint, parts: &[&Footprint]| {
            let range = touched.low..touched.end();
            let (kind, message) = match touched.is_within(parts) {
                Some(true) => return Ok(()),
                Some(false) => (
                    ErrorKind::OutOfBounds,
                    format!(
                        "some of bytes {range:?} of slot {slot}, which belong to no bound element"
                    ),
                ),
                None => (
                    ErrorKind::InvalidArgument,
                    format!(
                        "bytes {range:?} of slot {slot}; whether all are of elements bound to it takes more than \
                         {PIECES} steps"
                    ),
                ),
            };
            Err(Error::new(kind, "execute", format!("the plan {does} {message}")))
        };
        self.for_each_use(slot, |touched, writes| match writes {
            true => check("writes", touched, &to_write),
            false => check("reads", touched, &to_read),
        })
    }
}

/// Whether the elements of two layouts share no byte. The numbers are the offsets of their lowest bytes from a common
/// position. Also `false` if it cannot be decided.
pub(crate) fn are_apart(one: (usize, &Layout), other: (usize, &Layout)) -> bool {
    let len = |layout: &Layout| layout.span_bytes().len();
    let lie_apart = one.0 + len(one.1) <= other.0 || other.0 + len(other.1) <= one.0;
    let interleave = || {
        let (one, other) = (footprint((one.0, *one.1))?, footprint((other.0, *other.1))?);
        one.is_apart(&other)
    };
    one.1.is_empty() || other.1.is_empty() || lie_apart || interleave() == Some(true)
}

/// The bytes of the elements. `None` if there are none, or if they lie beyond the range that a slot can have.
fn footprint((start, layout): Part) -> Option<Footprint> {
    let span = layout.span_bytes();
    let low = i64::try_from(start).ok()?;
    let len = i64::try_from(span.end - span.start).ok()?;
    if layout.is_empty() || low.checked_add(len)? > MAX_SPAN {
        return None;
    }
    let size = layout.dtype().size();
    let strides: [isize; crate::MAX_RANK] = std::array::from_fn(|dim| {
        let stepped = layout.shape().get(dim).is_some_and(|extent| *extent > 1);
        if stepped { layout.strides()[dim] * size.cast_signed() } else { 0 }
    });
    let origin = start.checked_add_signed(-span.start)?;
    Some(Footprint::new(size, origin, layout.shape(), &strides[..layout.rank()]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Combine, DType, RegionCopy, RegionSide};

    /// A box of a 6 × 7 × 8 array of 4-byte elements whose dimensions lie in this order: ranges, layout, lowest byte.
    fn part(order: [usize; 3], ranges: [std::ops::Range<usize>; 3]) -> (Layout, usize) {
        let shape = [6_usize, 7, 8];
        let mut strides = [0_isize; 3];
        let mut next = 1;
        for dim in order {
            strides[dim] = next;
            next *= shape[dim].cast_signed();
        }
        let extents = ranges.clone().map(|range| range.len());
        let start: isize = ranges
            .iter()
            .zip(strides)
            .map(|(range, stride)| range.start.cast_signed() * stride)
            .sum();
        let layout = Layout::new(DType::F32, &extents, &strides).unwrap();
        (layout, start.unsigned_abs() * 4)
    }

    fn elements(layout: &Layout, start: usize) -> Vec<usize> {
        let mut places = vec![start];
        for (extent, stride) in layout.shape().iter().zip(layout.strides()) {
            let steps = 0..*extent;
            places = steps
                .flat_map(|step| places.iter().map(move |at| at + step * stride.unsigned_abs() * 4))
                .collect();
        }
        places
    }

    fn ranges() -> impl Strategy<Value = [std::ops::Range<usize>; 3]> {
        let range = |extent: usize| {
            (0..extent)
                .prop_flat_map(move |start| (Just(start), start + 1..=extent))
                .prop_map(|(start, end)| start..end)
        };
        (range(6), range(7), range(8)).prop_map(|(a, b, c)| [a, b, c])
    }

    fn order() -> impl Strategy<Value = [usize; 3]> {
        prop::sample::select(vec![[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn overlap_depends_on_the_elements_touched(
            order in order(), inner in ranges(), touched in ranges(), writes in any::<bool>(),
        ) {
            let (inside, low) = part(order, inner);
            let (region, start) = part(order, touched);
            let strides = region.strides().iter().map(|stride| stride * 4).collect();
            let near = RegionSide { slot: 0, offset: start, strides };
            let mut next = 4_isize;
            let strides = region.shape().iter().map(|extent| {
                let stride = next;
                next *= extent.cast_signed();
                stride
            });
            let far = RegionSide { slot: 1, offset: 0, strides: strides.collect() };
            let (source, destination) = if writes { (far, near) } else { (near, far) };
            let copy = RegionCopy {
                dtype: DType::F32, extents: region.shape().to_vec(), source, destination,
                negate: false, combine: Combine::Replace,
            };
            let program = RegionProgram::new(&[copy]).unwrap();
            let (all, of_box) = (elements(&region, start), elements(&inside, low));
            let expected = match writes {
                true => all.iter().all(|at| !of_box.contains(at)),
                false => all.iter().all(|at| of_box.contains(at)),
            };
            prop_assert_eq!(program.respects(0, low, &inside).is_ok(), expected);
        }
    }

    #[test]
    fn boxes_that_cannot_be_are_refused_and_empty_ones_are_not_met() {
        let side = |slot| RegionSide { slot, offset: 0, strides: vec![4] };
        let copy = RegionCopy {
            dtype: DType::F32,
            extents: vec![5],
            source: side(0),
            destination: side(1),
            negate: false,
            combine: Combine::Replace,
        };
        let program = RegionProgram::new(&[copy]).unwrap();
        let row = |len| Layout::row(DType::F32, len).unwrap();
        assert!(program.respects(2, 0, &row(1)).is_err());
        assert!(program.respects(1, 20, &row(9)).is_ok());
        assert!(program.respects(1, 16, &row(1)).is_err());
        assert!(program.respects(1, 0, &row(0)).is_ok());
        assert!(program.respects(0, 0, &row(0)).is_err());
        assert!(program.respects(0, 0, &row(5)).is_ok());
        // Bytes count, whatever the size of elements: 20 are read.
        assert!(program.respects(0, 0, &Layout::row(DType::F64, 3).unwrap()).is_ok());
        assert!(program.respects(0, 0, &Layout::row(DType::F64, 2).unwrap()).is_err());
        assert!(program.respects(0, usize::MAX - 3, &row(5)).is_err());
    }
}
