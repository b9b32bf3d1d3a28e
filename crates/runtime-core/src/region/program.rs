//! Checks a batch of region copies and lowers it into phases.

use std::sync::Arc;

use super::footprint::Footprint;
use super::items::LoweredItems;
use super::overlap;
use super::schedule::Schedule;
use super::{Combine, MAX_REGION_RANK, RegionCopy, RegionSide};
use crate::{DType, Error, ErrorKind, Result};

/// The most slots that a program can have.
pub(super) const MAX_SLOTS: usize = 1 << 16;

/// The most bytes that a slot can span: 1 EiB. This is far beyond any address space, and small enough that the sums in
/// the overlap tests cannot overflow.
pub(super) const MAX_SPAN: i64 = if usize::BITS < 64 { 1 << 31 } else { 1 << 60 };

/// A batch of region copies, checked and ready to run on any memory. Devices prepare and execute it.
///
/// Entries are split into [phases](Self::phases). Within a phase, no copy touches bytes that another copy writes, so
/// the copies may run in any order and concurrently. Phases run one after the other. There is one phase unless several
/// accumulations write the same element; the accumulations are then applied in entry order.
///
/// ```
/// use runtime_core::{Combine, DType, RegionCopy, RegionProgram, RegionSide};
///
/// let column = RegionCopy {
///     dtype: DType::F64,
///     extents: vec![100],
///     source: RegionSide { slot: 0, offset: 0, strides: vec![80] },
///     destination: RegionSide { slot: 1, offset: 0, strides: vec![8] },
///     negate: false,
///     combine: Combine::Replace,
/// };
/// let program = RegionProgram::new(&[column])?;
/// assert_eq!(program.bytes(), 800);
/// assert_eq!(program.slots()[0].bytes, 99 * 80 + 8);
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RegionProgram {
    // Shared with devices that keep the program.
    phases: Arc<[RegionPhase]>,
    slots: Arc<[SlotUse]>,
    bytes: u64,
}

/// A program's use of the memory bound to one slot, and the resulting requirements on that memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotUse {
    /// Minimum size of the bound view in bytes. 0 if no element of the slot is touched.
    pub bytes: usize,
    /// The address of the view's first byte must be a multiple of this.
    pub align: usize,
    /// Whether its contents matter, because it is a source or something is accumulated into it.
    pub read: bool,
    /// Whether it is written.
    pub written: bool,
    /// The element type of all copies that touch it, if they all have the same type.
    pub dtype: Option<DType>,
}

impl SlotUse {
    pub(super) const UNTOUCHED: Self =
        Self { bytes: 0, align: 1, read: false, written: false, dtype: None };

    /// Adds elements of a type, of which the last ends at byte `end`.
    pub(super) fn touch(&mut self, dtype: DType, end: i64) {
        self.dtype = match self.dtype {
            _ if self.bytes == 0 => Some(dtype),
            Some(other) if other == dtype => Some(dtype),
            _ => None,
        };
        self.bytes = self.bytes.max(usize::try_from(end).unwrap_or(usize::MAX));
        self.align = self.align.max(dtype.align());
    }
}

/// Copies of a program that are independent of each other.
#[derive(Clone, Debug)]
pub struct RegionPhase {
    copies: Vec<LoweredCopy>,
    items: Vec<LoweredItems>,
    pub(super) schedule: Schedule,
}

impl RegionPhase {
    fn new(copies: Vec<LoweredCopy>, items: Vec<LoweredItems>) -> Self {
        Self { schedule: Schedule::new(&copies, &items), copies, items }
    }

    /// The strided copies. None of them is empty.
    pub fn copies(&self) -> &[LoweredCopy] {
        &self.copies
    }

    /// The copies of items whose places are in lists. None of them is empty.
    pub fn items(&self) -> &[LoweredItems] {
        &self.items
    }
}

/// One checked copy in its simplest form.
///
/// Every extent is at least 2. Every destination stride is positive and larger than the next. Dimensions that form a
/// single dimension in memory on both sides are merged. A contiguous copy has one dimension, a single element has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoweredCopy {
    dtype: DType,
    combine: Combine,
    negate: bool,
    rank: usize,
    extents: [usize; MAX_REGION_RANK],
    source_slot: usize,
    source_offset: usize,
    source_strides: [isize; MAX_REGION_RANK],
    destination_slot: usize,
    destination_offset: usize,
    destination_strides: [isize; MAX_REGION_RANK],
}

impl LoweredCopy {
    /// Type of the elements on both sides. It is never a record: the units of a record are elements along a dimension.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How the element is combined with the element already at the destination.
    pub fn combine(&self) -> Combine {
        self.combine
    }

    /// Whether each element is negated.
    pub fn negate(&self) -> bool {
        self.negate
    }

    /// Number of elements along each dimension, outermost first.
    pub fn extents(&self) -> &[usize] {
        &self.extents[..self.rank]
    }

    /// The slot that is read.
    pub fn source_slot(&self) -> usize {
        self.source_slot
    }

    /// Byte offset of the first element read.
    pub fn source_offset(&self) -> usize {
        self.source_offset
    }

    /// Distance in bytes between elements read, per dimension. Positive, negative or zero.
    pub fn source_strides(&self) -> &[isize] {
        &self.source_strides[..self.rank]
    }

    /// The slot that is written.
    pub fn destination_slot(&self) -> usize {
        self.destination_slot
    }

    /// Byte offset of the first element written, which is also the lowest.
    pub fn destination_offset(&self) -> usize {
        self.destination_offset
    }

    /// Distance in bytes between elements written, per dimension. Positive and decreasing.
    pub fn destination_strides(&self) -> &[isize] {
        &self.destination_strides[..self.rank]
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.extents().iter().product()
    }

    /// Whether it reads and writes only slots that satisfy `is_bound`.
    pub(super) fn is_among(&self, is_bound: impl Fn(usize) -> bool) -> bool {
        is_bound(self.source_slot) && is_bound(self.destination_slot)
    }

    /// The copy with the same loops and slots that begins at the first byte of both slots.
    pub(super) fn at_start(&self) -> Self {
        Self { source_offset: 0, destination_offset: 0, ..self.clone() }
    }

    pub(super) fn footprints(&self) -> (Footprint, Footprint) {
        let side = |offset: usize, strides: &[isize]| {
            Footprint::new(self.dtype.size(), offset, self.extents(), strides)
        };
        (
            side(self.source_offset, self.source_strides()),
            side(self.destination_offset, self.destination_strides()),
        )
    }
}

impl RegionProgram {
    /// Checks `entries`, simplifies each, and orders them into phases.
    ///
    /// Overlap of elements is decided exactly, so interleaved regions are accepted. For the usual layouts, the time is
    /// proportional to the number of entries whose byte intervals meet in one slot. For the limit on other layouts see
    /// [`ErrorKind::InvalidArgument`] below.
    ///
    /// # Errors
    ///
    /// Messages name the entry by its index in `entries`. `InvalidArgument` if
    ///
    /// - an entry has more than [`MAX_REGION_RANK`] dimensions, or the numbers of strides and extents differ;
    /// - an entry copies records along [`MAX_REGION_RANK`] dimensions with gaps, since a record is a dimension, too;
    /// - its element type does not support the operation;
    /// - an offset, or the stride of a dimension with more than one element, is not a multiple of the type's alignment;
    /// - a slot index is 65536 or more;
    /// - two elements of one destination overlap, or two overwriting destinations, or an overwriting and an
    ///   accumulating destination, or a source and any destination, including its own;
    /// - the regions are so complex that neither 2²⁶ search steps nor an enumeration of 2²⁴ elements can decide whether
    ///   they overlap.
    ///
    /// `OutOfBounds` if an element lies before byte 0 of its slot or ends beyond 1 EiB. An entry without elements is
    /// left out. It is checked too, except for the position of its elements.
    pub fn new(entries: &[RegionCopy]) -> Result<Self> {
        let mut slots = Vec::new();
        let mut lowered = Vec::with_capacity(entries.len());
        let mut spans = Vec::with_capacity(entries.len() * 2);
        let mut bytes = 0_u64;
        for (number, entry) in entries.iter().enumerate() {
            let copy = lower(number, entry)?;
            let needed = entry.source.slot.max(entry.destination.slot) + 1;
            if slots.len() < needed {
                slots.resize(needed, SlotUse::UNTOUCHED);
            }
            let Some(copy) = copy else { continue };
            let (source, destination) = copy.footprints();
            slots[copy.source_slot].touch(entry.dtype, source.end());
            slots[copy.source_slot].read = true;
            slots[copy.destination_slot].touch(entry.dtype, destination.end());
            slots[copy.destination_slot].written = true;
            slots[copy.destination_slot].read |= copy.combine != Combine::Replace;
            spans.push(overlap::Span {
                entry: number,
                slot: copy.source_slot,
                role: overlap::Role::Source,
                footprint: source,
            });
            spans.push(overlap::Span {
                entry: number,
                slot: copy.destination_slot,
                role: match copy.combine {
                    Combine::Replace => overlap::Role::Replace,
                    _ => overlap::Role::Accumulate,
                },
                footprint: destination,
            });
            lowered.push((number, copy));
        }
        let order = overlap::phases(entries.len(), &spans)?;
        let mut phases: Vec<Vec<LoweredCopy>> = Vec::new();
        for (number, copy) in lowered {
            // The elements are known to be distinct here, so their number fits.
            let moved = (copy.elements() as u64).checked_mul(copy.dtype.size() as u64);
            bytes = moved.and_then(|moved| bytes.checked_add(moved)).ok_or_else(|| {
                refuse(ErrorKind::InvalidArgument, number, "the batch moves 2^64 bytes or more")
            })?;
            if phases.len() <= order[number] {
                phases.resize_with(order[number] + 1, Vec::new);
            }
            phases[order[number]].push(copy);
        }
        let phases =
            phases.into_iter().map(|copies| RegionPhase::new(copies, Vec::new())).collect();
        Ok(Self { phases, slots: slots.into(), bytes })
    }

    /// A program of one phase, unless there is nothing to copy.
    pub(super) fn of_one_phase(
        copies: Vec<LoweredCopy>,
        items: Vec<LoweredItems>,
        slots: Vec<SlotUse>,
        bytes: u64,
    ) -> Self {
        let is_empty = copies.is_empty() && items.is_empty();
        let phase = (!is_empty).then(|| RegionPhase::new(copies, items));
        Self { phases: phase.into_iter().collect(), slots: slots.into(), bytes }
    }

    /// The phases in the order in which they run. Empty if there is nothing to copy.
    pub fn phases(&self) -> &[RegionPhase] {
        &self.phases
    }

    /// The requirements on the memory bound to each slot, by slot index. If an entry names a slot, all lower slots are
    /// listed too; those that no entry names are marked as untouched.
    pub fn slots(&self) -> &[SlotUse] {
        &self.slots
    }

    /// The number of bytes that one execution moves. Each element is counted once.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The slots that an execution writes with memory only in slots that satisfy `is_bound`.
    pub(crate) fn written_among(
        &self,
        is_bound: impl Fn(usize) -> bool + Copy,
    ) -> impl Iterator<Item = usize> {
        let mut slots = self.slots.iter().enumerate();
        let all = slots.all(|(slot, used)| used.bytes == 0 || is_bound(slot));
        let copies = self.phases.iter().flat_map(RegionPhase::copies);
        let mut written =
            if all { Vec::new() } else { written_by(copies, self.slots.len(), is_bound) };
        for items in self.phases.iter().flat_map(RegionPhase::items) {
            if !all && items.writes_among(is_bound) {
                written[items.destination().slot] = true;
            }
        }
        let slots = self.slots.iter().enumerate();
        let slots =
            slots.filter(move |(slot, used)| if all { used.written } else { written[*slot] });
        slots.map(|(slot, _)| slot)
    }

    /// As [`bytes`](Self::bytes), for an execution with memory only in slots that satisfy `is_bound`.
    pub fn bytes_among(&self, is_bound: impl Fn(usize) -> bool) -> u64 {
        let mut slots = self.slots.iter().enumerate();
        if slots.all(|(slot, used)| used.bytes == 0 || is_bound(slot)) {
            return self.bytes;
        }
        let copies = self.phases.iter().flat_map(RegionPhase::copies);
        let executed = copies.filter(|copy| copy.is_among(&is_bound));
        let of_copies: u64 =
            executed.map(|copy| (copy.elements() * copy.dtype.size()) as u64).sum();
        let items = self.phases.iter().flat_map(RegionPhase::items);
        of_copies + items.map(|items| items.bytes_among(&is_bound)).sum::<u64>()
    }
}

/// For each slot, whether a copy that is executed writes it. Each copy is looked at once.
fn written_by<'a>(
    copies: impl Iterator<Item = &'a LoweredCopy>,
    slots: usize,
    is_bound: impl Fn(usize) -> bool + Copy,
) -> Vec<bool> {
    let mut written = vec![false; slots];
    for copy in copies.filter(|copy| copy.is_among(is_bound)) {
        written[copy.destination_slot()] = true;
    }
    written
}

/// Creates an error about one entry.
#[cold]
pub(super) fn refuse(kind: ErrorKind, entry: usize, message: impl std::fmt::Display) -> Error {
    Error::new(kind, "plan_regions", format!("entry {entry}: {message}"))
}

/// Refuses an operation that the element type does not support.
pub(super) fn check_operation(
    entry: usize,
    dtype: DType,
    combine: Combine,
    negate: bool,
) -> Result<()> {
    let missing = match combine {
        _ if negate && !dtype.admits_negate() => "negated",
        Combine::Sum if !dtype.admits_sum() => "summed",
        Combine::Min | Combine::Max if !dtype.admits_order() => "ordered",
        _ => return Ok(()),
    };
    let message = format_args!("{dtype} cannot be {missing}");
    Err(refuse(ErrorKind::InvalidArgument, entry, message))
}

/// An entry, checked and in its simplest form. `None` if it has no elements.
pub(super) fn lower(number: usize, entry: &RegionCopy) -> Result<Option<LoweredCopy>> {
    Checker { number, entry }.lower()
}

/// One entry while it is checked and converted to a [`LoweredCopy`].
struct Checker<'a> {
    number: usize,
    entry: &'a RegionCopy,
}

impl Checker<'_> {
    fn refuse(&self, message: impl std::fmt::Display) -> Error {
        refuse(ErrorKind::InvalidArgument, self.number, message)
    }

    /// The entry in its simplest form. `None` if it has no elements.
    fn lower(&self) -> Result<Option<LoweredCopy>> {
        let entry = self.entry;
        if entry.extents.len() > MAX_REGION_RANK {
            return Err(self.refuse(format_args!(
                "{} dimensions, at most {MAX_REGION_RANK}",
                entry.extents.len()
            )));
        }
        check_operation(self.number, entry.dtype, entry.combine, entry.negate)?;
        for (name, side) in [("source", &entry.source), ("destination", &entry.destination)] {
            self.check_side(name, side)?;
        }
        if entry.extents.contains(&0) {
            return Ok(None);
        }
        self.check_reach("source", &entry.source)?;
        self.check_reach("destination", &entry.destination)?;
        let repeated =
            |(extent, stride): (&usize, &isize)| (*extent > 1 && *stride == 0).then_some(*extent);
        let mut dims = entry.extents.iter().zip(&entry.destination.strides);
        if let Some(extent) = dims.find_map(repeated) {
            return Err(self.refuse(format_args!(
                "{extent} elements of the destination lie on one place (stride 0)"
            )));
        }
        self.simplify().map(Some)
    }

    fn check_side(&self, name: &str, side: &RegionSide) -> Result<()> {
        let extents = &self.entry.extents;
        let align = self.entry.dtype.align();
        if side.strides.len() != extents.len() {
            return Err(self.refuse(format_args!(
                "{} strides of the {name} for {} extents",
                side.strides.len(),
                extents.len()
            )));
        }
        if side.slot >= MAX_SLOTS {
            return Err(
                self.refuse(format_args!("slot {} of the {name}, limit {MAX_SLOTS}", side.slot))
            );
        }
        if !side.offset.is_multiple_of(align) {
            return Err(self.refuse(format_args!(
                "byte offset {} of the {name} is no multiple of {align}",
                side.offset
            )));
        }
        for (stride, extent) in side.strides.iter().zip(extents) {
            if *extent > 1 && !stride.unsigned_abs().is_multiple_of(align) {
                return Err(self.refuse(format_args!(
                    "byte stride {stride} of the {name} is no multiple of {align}"
                )));
            }
        }
        Ok(())
    }

    /// Checks that every element lies within the range that a slot can have.
    fn check_reach(&self, name: &str, side: &RegionSide) -> Result<()> {
        // Saturation at 2^127 keeps values that are out of bounds out of bounds.
        let mut low = side.offset as i128;
        let mut end = low + self.entry.dtype.size() as i128;
        for (stride, extent) in side.strides.iter().zip(&self.entry.extents) {
            let reach = (*extent as i128 - 1) * *stride as i128;
            if reach < 0 {
                low = low.saturating_add(reach);
            } else {
                end = end.saturating_add(reach);
            }
        }
        let refuse = |message: String| refuse(ErrorKind::OutOfBounds, self.number, message);
        if low < 0 {
            return Err(refuse(format!(
                "the {name} reaches byte {low}, before byte 0 of slot {}",
                side.slot
            )));
        }
        if end > i128::from(MAX_SPAN) {
            return Err(refuse(format!(
                "the {name} reaches byte {end} of slot {}, limit {MAX_SPAN}",
                side.slot
            )));
        }
        Ok(())
    }

    /// Drops dimensions of one element, makes destination strides positive, sorts by them, and merges dimensions that
    /// form a single dimension on both sides. A record becomes a dimension of units. Every element is known to be in
    /// range, so nothing overflows.
    fn simplify(&self) -> Result<LoweredCopy> {
        let RegionCopy { dtype, extents, source, destination, negate, combine } = self.entry;
        let mut source_offset = source.offset;
        let mut destination_offset = destination.offset;
        let mut dims = [(0_usize, 0_isize, 0_isize); MAX_REGION_RANK + 1];
        let mut rank = 0;
        for (dim, &extent) in extents.iter().enumerate().filter(|(_, extent)| **extent > 1) {
            let (mut from, mut to) = (source.strides[dim], destination.strides[dim]);
            if to < 0 {
                let last = (extent - 1).cast_signed();
                source_offset = source_offset.wrapping_add_signed(last * from);
                destination_offset = destination_offset.wrapping_add_signed(last * to);
                (from, to) = (-from, -to);
            }
            dims[rank] = (extent, from, to);
            rank += 1;
        }
        let mut unit = *dtype;
        if let DType::Record(record) = dtype {
            unit = record.unit();
            let (count, size) = (record.size() / unit.size(), unit.size().cast_signed());
            if count > 1 {
                dims[rank] = (count, size, size);
                rank += 1;
            }
        }
        dims[..rank].sort_by_key(|&(_, _, to)| std::cmp::Reverse(to));
        let mut copy = LoweredCopy {
            dtype: unit,
            combine: *combine,
            negate: *negate,
            rank: 0,
            extents: [1; MAX_REGION_RANK],
            source_slot: source.slot,
            source_offset,
            source_strides: [0; MAX_REGION_RANK],
            destination_slot: destination.slot,
            destination_offset,
            destination_strides: [0; MAX_REGION_RANK],
        };
        for &(extent, from, to) in &dims[..rank] {
            let count = extent.cast_signed();
            let nests = copy.rank > 0
                && copy.source_strides[copy.rank - 1] == from * count
                && copy.destination_strides[copy.rank - 1] == to * count;
            if nests {
                copy.rank -= 1;
            }
            if copy.rank == MAX_REGION_RANK {
                return Err(self.refuse(format_args!(
                    "records along {MAX_REGION_RANK} dimensions with gaps, at most {}",
                    MAX_REGION_RANK - 1
                )));
            }
            copy.extents[copy.rank] *= extent;
            copy.source_strides[copy.rank] = from;
            copy.destination_strides[copy.rank] = to;
            copy.rank += 1;
        }
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn side(slot: usize, offset: usize, strides: &[isize]) -> RegionSide {
        RegionSide { slot, offset, strides: strides.to_vec() }
    }

    fn copy(extents: &[usize], source: RegionSide, destination: RegionSide) -> RegionCopy {
        RegionCopy {
            dtype: DType::F32,
            extents: extents.to_vec(),
            source,
            destination,
            negate: false,
            combine: Combine::Replace,
        }
    }

    /// A 4 × 5 block of a 10-wide array, packed.
    fn pack() -> RegionCopy {
        copy(&[4, 5], side(0, 44, &[40, 4]), side(1, 0, &[20, 4]))
    }

    #[track_caller]
    fn refused(entries: &[RegionCopy], kind: ErrorKind, message: &str) {
        let error = RegionProgram::new(entries).unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, message));
        assert_eq!(error.operation(), "plan_regions");
    }

    #[track_caller]
    fn invalid(entry: RegionCopy, message: &str) {
        refused(&[pack(), entry], ErrorKind::InvalidArgument, &format!("entry 1: {message}"));
    }

    #[track_caller]
    fn lowered(entry: RegionCopy) -> LoweredCopy {
        let program = RegionProgram::new(&[entry]).unwrap();
        let [phase] = program.phases() else { panic!("one phase") };
        let [copy] = phase.copies() else { panic!("one copy") };
        copy.clone()
    }

    #[test]
    fn slots_state_the_required_bytes() {
        let mut sum = copy(&[3], side(4, 0, &[8]), side(1, 96, &[8]));
        sum.dtype = DType::F64;
        sum.combine = Combine::Sum;
        let program = RegionProgram::new(&[pack(), sum]).unwrap();
        let slot =
            |bytes, align, read, written, dtype| SlotUse { bytes, align, read, written, dtype };
        let expected = [
            slot(44 + 3 * 40 + 20, 4, true, false, Some(DType::F32)),
            slot(120, 8, true, true, None),
            SlotUse::UNTOUCHED,
            SlotUse::UNTOUCHED,
            slot(24, 8, true, false, Some(DType::F64)),
        ];
        assert_eq!(program.slots(), expected);
        assert_eq!(program.bytes(), 4 * 5 * 4 + 3 * 8);
        assert_eq!(program.phases().len(), 1);
    }

    #[test]
    fn each_copy_is_looked_at_once_to_find_the_slots_that_are_written() {
        let n = 2000;
        let entries: Vec<_> =
            (1..n).map(|slot| copy(&[1], side(0, 0, &[4]), side(slot, 0, &[4]))).collect();
        let program = RegionProgram::new(&entries).unwrap();
        let is_bound = |slot| slot != n - 1;
        let written: Vec<_> = program.written_among(is_bound).collect();
        assert_eq!(written, (1..n - 1).collect::<Vec<_>>());
        let mut looked_at = 0;
        let copies = program.phases().iter().flat_map(RegionPhase::copies);
        let found = written_by(copies.inspect(|_| looked_at += 1), n, is_bound);
        assert_eq!((looked_at, found.iter().filter(|written| **written).count()), (n - 1, n - 2));
    }

    #[test]
    fn no_entries_are_no_phases() {
        let program = RegionProgram::new(&[]).unwrap();
        assert!(program.phases().is_empty() && program.slots().is_empty());
        assert_eq!((program.bytes(), program.parts(0)), (0, 0));
    }

    #[test]
    fn dimensions_that_are_one_in_memory_merge() {
        let strides = [240, 60, 12, 4];
        let whole = copy(&[2, 4, 5, 3], side(0, 8, &strides), side(1, 0, &strides));
        let whole = lowered(whole);
        assert_eq!((whole.extents(), whole.elements()), (&[120][..], 120));
        assert_eq!((whole.source_strides(), whole.destination_strides()), (&[4][..], &[4][..]));
        // The source is padded between the outer dimensions.
        let padded = copy(&[2, 4, 5, 3], side(0, 8, &[400, 60, 12, 4]), side(1, 0, &strides));
        assert_eq!(lowered(padded).extents(), [2, 60]);
    }

    #[test]
    fn destinations_run_forwards_and_outermost_first() {
        // Transposed and turned round in the destination.
        let turned = copy(&[3, 2], side(0, 0, &[8, 4]), side(1, 20, &[-4, -12]));
        let turned = lowered(turned);
        assert_eq!((turned.source_offset(), turned.destination_offset()), (20, 0));
        assert_eq!(turned.extents(), [2, 3]);
        assert_eq!(turned.source_strides(), [-4, -8]);
        assert_eq!(turned.destination_strides(), [12, 4]);
    }

    #[test]
    fn dimensions_of_one_element_do_not_count() {
        let one = copy(&[1, 1], side(0, 4, &[isize::MIN, 3]), side(1, 8, &[isize::MAX, 0]));
        let one = lowered(one);
        assert_eq!((one.rank, one.elements()), (0, 1));
        assert_eq!((one.source_offset(), one.destination_offset()), (4, 8));
        let scalar = lowered(copy(&[], side(0, 0, &[]), side(1, 0, &[])));
        assert_eq!((scalar.extents().len(), scalar.elements()), (0, 1));
    }

    #[test]
    fn empty_entries_are_checked_and_dropped() {
        let empty = copy(&[0, 7], side(5, 4, &[4, -400]), side(6, 0, &[0, 0]));
        let program = RegionProgram::new(std::slice::from_ref(&empty)).unwrap();
        assert!(program.phases().is_empty());
        assert_eq!(program.slots(), [SlotUse::UNTOUCHED; 7]);
        invalid(
            RegionCopy { source: side(5, 2, &[4, -400]), ..empty },
            "byte offset 2 of the source is no multiple of 4",
        );
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        invalid(copy(&[1; 7], side(0, 0, &[4; 7]), side(1, 0, &[4; 7])), "7 dimensions, at most 6");
        invalid(
            copy(&[2, 2], side(0, 0, &[4]), side(1, 0, &[8, 4])),
            "1 strides of the source for 2 extents",
        );
        invalid(
            copy(&[2], side(0, 0, &[4]), side(1, 0, &[8, 4])),
            "2 strides of the destination for 1 extents",
        );
        invalid(
            copy(&[2], side(0, 0, &[4]), side(65_536, 0, &[4])),
            "slot 65536 of the destination, limit 65536",
        );
        invalid(
            copy(&[2], side(usize::MAX, 0, &[4]), side(1, 0, &[4])),
            &format!("slot {} of the source, limit 65536", usize::MAX),
        );
    }

    #[test]
    fn misaligned_entries_are_refused() {
        invalid(
            copy(&[2], side(0, 6, &[4]), side(1, 0, &[4])),
            "byte offset 6 of the source is no multiple of 4",
        );
        invalid(
            copy(&[2, 1], side(0, 0, &[4, 3]), side(1, 0, &[-6, 3])),
            "byte stride -6 of the destination is no multiple of 4",
        );
        // A complex number is aligned as its components are.
        let mut pair = copy(&[2], side(0, 4, &[12]), side(1, 4, &[12]));
        pair.dtype = DType::C64;
        assert_eq!(RegionProgram::new(&[pair]).unwrap().slots()[0].align, 4);
    }

    #[test]
    fn operations_that_a_type_does_not_admit_are_refused() {
        for (dtype, negate, combine, missing) in [
            (DType::U16, true, Combine::Sum, "u16 cannot be negated"),
            (DType::Bool, true, Combine::Replace, "bool cannot be negated"),
            (DType::Bool, false, Combine::Sum, "bool cannot be summed"),
            (DType::C64, false, Combine::Min, "c64 cannot be ordered"),
            (DType::C128, true, Combine::Max, "c128 cannot be ordered"),
        ] {
            let entry = copy(&[2], side(0, 0, &[16]), side(1, 160, &[16]));
            invalid(RegionCopy { dtype, negate, combine, ..entry }, missing);
        }
    }

    #[test]
    fn entries_beyond_the_slot_are_out_of_bounds() {
        let out = |entry, message: &str| {
            refused(&[entry], ErrorKind::OutOfBounds, &format!("entry 0: {message}"));
        };
        out(
            copy(&[3], side(0, 4, &[-4]), side(1, 0, &[4])),
            "the source reaches byte -4, before byte 0 of slot 0",
        );
        out(
            copy(&[3, 2], side(0, 0, &[8, 4]), side(7, 16, &[8, -20])),
            "the destination reaches byte -4, before byte 0 of slot 7",
        );
        out(
            copy(&[2], side(0, 1 << 60, &[4]), side(1, 0, &[4])),
            "the source reaches byte 1152921504606846984 of slot 0, limit 1152921504606846976",
        );
    }

    #[test]
    fn destinations_on_themselves_are_refused() {
        invalid(
            copy(&[3], side(0, 0, &[4]), side(1, 200, &[0])),
            "3 elements of the destination lie on one place (stride 0)",
        );
        let message = "two elements of its destination in slot 1 lie on the same bytes";
        invalid(copy(&[3, 3], side(0, 0, &[12, 4]), side(1, 200, &[8, 4])), message);
        invalid(copy(&[2, 2], side(0, 0, &[8, 4]), side(1, 200, &[4, 4])), message);
        let mut partly = copy(&[2], side(0, 0, &[16]), side(1, 200, &[8]));
        partly.dtype = DType::C128;
        invalid(partly, message);
        // 3 steps of 4 and 2 of 12 never meet.
        RegionProgram::new(&[copy(&[3, 2], side(0, 0, &[8, 4]), side(1, 0, &[4, 12]))]).unwrap();
    }

    #[test]
    fn regions_that_overlap_are_refused() {
        let at = |slot, offset| copy(&[4], side(0, 0, &[4]), side(slot, offset, &[8]));
        // In the gaps of one another.
        RegionProgram::new(&[at(1, 0), at(1, 4)]).unwrap();
        RegionProgram::new(&[at(1, 0), at(2, 8)]).unwrap();
        let refuse = |entries: &[RegionCopy], message| {
            refused(entries, ErrorKind::InvalidArgument, message);
        };
        refuse(
            &[at(1, 0), at(1, 8)],
            "entry 1: its destination overlaps entry 0's destination in slot 1",
        );
        let sum = RegionCopy { combine: Combine::Sum, ..at(1, 8) };
        refuse(
            &[sum.clone(), at(1, 0)],
            "entry 1: its destination overlaps entry 0's accumulating destination in slot 1",
        );
        refuse(&[at(0, 8)], "entry 0: its destination overlaps its own source in slot 0");
        let reads = copy(&[1], side(1, 8, &[4]), side(2, 0, &[4]));
        refuse(
            &[reads, sum],
            "entry 1: its accumulating destination overlaps entry 0's source in slot 1",
        );
    }

    #[test]
    fn overlapping_accumulations_keep_entry_order() {
        let sum = |offset, extent| RegionCopy {
            combine: Combine::Sum,
            ..copy(&[extent], side(0, 0, &[4]), side(1, offset, &[4]))
        };
        // The second overlaps the first, the fourth overlaps the second and third, the fifth overlaps none.
        let entries = [sum(0, 4), sum(12, 4), sum(28, 4), sum(24, 4), sum(400, 4)];
        let program = RegionProgram::new(&entries).unwrap();
        let offsets: Vec<Vec<usize>> = program
            .phases()
            .iter()
            .map(|phase| phase.copies().iter().map(LoweredCopy::destination_offset).collect())
            .collect();
        assert_eq!(offsets, [vec![0, 28, 400], vec![12], vec![24]]);
        let again = vec![sum(0, 1); 50];
        assert_eq!(RegionProgram::new(&again).unwrap().phases().len(), 50);
    }

    #[test]
    fn huge_batches_do_not_overflow() {
        let huge = RegionCopy {
            combine: Combine::Max,
            ..copy(&[1 << 57], side(0, 0, &[4]), side(1, 0, &[4]))
        };
        let program = RegionProgram::new(std::slice::from_ref(&huge)).unwrap();
        assert!((2..5000).contains(&program.parts(0)));
        let error = RegionProgram::new(&vec![huge; 32]).unwrap_err();
        assert_eq!(error.message(), "entry 31: the batch moves 2^64 bytes or more");
    }

    /// Numbers at which arithmetic goes wrong.
    fn hostile() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..20_u64,
            any::<u64>(),
            (0..64_u32, -2..3_i64).prop_map(|(bit, by)| (1_u64 << bit).wrapping_add_signed(by)),
            (0..64_u32, 0..3_i64)
                .prop_map(|(bit, by)| (1_u64 << bit).wrapping_add_signed(by * 8).wrapping_neg()),
        ]
    }

    fn hostile_side(rank: usize) -> impl Strategy<Value = RegionSide> {
        let number = || hostile().prop_map(|n| usize::try_from(n).unwrap() & !7);
        let strides = prop::collection::vec(number().prop_map(usize::cast_signed), rank);
        (0..3_usize, number(), strides).prop_map(|(slot, offset, strides)| RegionSide {
            slot,
            offset,
            strides,
        })
    }

    fn hostile_copy() -> impl Strategy<Value = RegionCopy> {
        let rank = (0..7_usize).prop_flat_map(|rank| {
            let extent = hostile().prop_map(|n| usize::try_from(n).unwrap());
            (prop::collection::vec(extent, rank), hostile_side(rank), hostile_side(rank))
        });
        (rank, prop::sample::select(&DType::ALL[..]), any::<bool>()).prop_map(
            |((extents, source, destination), dtype, replaces)| RegionCopy {
                dtype,
                extents,
                source,
                destination,
                negate: false,
                combine: if replaces { Combine::Replace } else { Combine::Sum },
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn hostile_entries_are_answered(entries in prop::collection::vec(hostile_copy(), 1..4)) {
            if let Ok(program) = RegionProgram::new(&entries) {
                let copies = program.phases().iter().flat_map(RegionPhase::copies);
                prop_assert!(copies.clone().all(|copy| copy.elements() > 0));
                let bytes: u64 = copies.map(|c| (c.elements() * c.dtype().size()) as u64).sum();
                prop_assert_eq!(bytes, program.bytes());
            }
        }
    }
}
