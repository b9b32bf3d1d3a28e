//! Checking a batch of region copies and lowering it into phases.

use super::host::Schedule;
use super::overlap::{self, Footprint};
use super::{Combine, MAX_REGION_RANK, RegionCopy, RegionSide};
use crate::{DType, Error, ErrorKind, Result};

/// Slots that a program can have.
const MAX_SLOTS: usize = 1 << 16;

/// Bytes that a slot can span: 1 EiB, far beyond any address space, and small enough that the sums of the overlap
/// tests cannot overflow.
const MAX_SPAN: i64 = if usize::BITS < 64 { 1 << 31 } else { 1 << 60 };

/// A batch of region copies, checked and made ready to run on any memory: what a device prepares and executes.
///
/// Entries are split into [phases](Self::phases). Inside a phase no copy touches what another one writes, so they may
/// run in any order and at once; phases run one after the other. There is one phase unless accumulations meet in one
/// element, which then takes them in entry order.
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
    phases: Vec<RegionPhase>,
    slots: Vec<SlotUse>,
    bytes: u64,
}

/// What a program does with the memory bound to one slot, and so what that memory must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotUse {
    /// Bytes the bound view must have at least; 0 if no element of the slot is touched.
    pub bytes: usize,
    /// What the address of the view's first byte must be a multiple of.
    pub align: usize,
    /// Whether its contents matter: it is a source, or something is accumulated into it.
    pub read: bool,
    /// Whether it is written.
    pub written: bool,
    /// The element type of all copies that touch it, if they agree.
    pub dtype: Option<DType>,
}

impl SlotUse {
    const UNTOUCHED: Self = Self { bytes: 0, align: 1, read: false, written: false, dtype: None };

    fn touch(&mut self, dtype: DType, footprint: &Footprint) {
        self.dtype = match self.dtype {
            _ if self.bytes == 0 => Some(dtype),
            Some(other) if other == dtype => Some(dtype),
            _ => None,
        };
        self.bytes = self.bytes.max(usize::try_from(footprint.end()).unwrap_or(usize::MAX));
        self.align = self.align.max(dtype.align());
    }
}

/// Copies of a program that are independent of one another.
#[derive(Clone, Debug)]
pub struct RegionPhase {
    copies: Vec<LoweredCopy>,
    pub(super) schedule: Schedule,
}

impl RegionPhase {
    /// The copies, none of them empty.
    pub fn copies(&self) -> &[LoweredCopy] {
        &self.copies
    }
}

/// One checked copy in its simplest form.
///
/// Every extent is at least 2, every destination stride positive and larger than the next; dimensions that are one in
/// memory on both sides have been merged. A contiguous copy has one dimension, a single element none.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Type of the elements on both sides.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// What happens to the element already at the destination.
    pub fn combine(&self) -> Combine {
        self.combine
    }

    /// Whether the element is negated on its way.
    pub fn negate(&self) -> bool {
        self.negate
    }

    /// Elements along each dimension, outermost first.
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

    /// Bytes between elements read, per dimension; of any sign, or zero.
    pub fn source_strides(&self) -> &[isize] {
        &self.source_strides[..self.rank]
    }

    /// The slot that is written.
    pub fn destination_slot(&self) -> usize {
        self.destination_slot
    }

    /// Byte offset of the first element written, which is the lowest one.
    pub fn destination_offset(&self) -> usize {
        self.destination_offset
    }

    /// Bytes between elements written, per dimension; positive and decreasing.
    pub fn destination_strides(&self) -> &[isize] {
        &self.destination_strides[..self.rank]
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.extents().iter().product()
    }

    fn footprints(&self) -> (Footprint, Footprint) {
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
    /// Which elements overlap is decided exactly, so that interleaved regions are accepted. The usual layouts take
    /// time proportional to the entries whose byte intervals meet in one slot; see [`ErrorKind::InvalidArgument`]
    /// below for the limit on others.
    ///
    /// # Errors
    ///
    /// Messages name the entry by its index in `entries`. `InvalidArgument` if
    ///
    /// - an entry has more than [`MAX_REGION_RANK`] dimensions, or as many strides as it has not extents;
    /// - its element type does not admit the operation;
    /// - an offset, or the stride of a dimension with more than one element, is no multiple of the type's alignment;
    /// - a slot index is 65536 or more;
    /// - two elements of one destination overlap, or two overwriting destinations, or an overwriting and an
    ///   accumulating one, or a source and any destination, its own included;
    /// - the regions are so entangled that neither 2²⁶ steps of search nor an enumeration of 2²⁶ elements
    ///   can decide that.
    ///
    /// `OutOfBounds` if an element lies before byte 0 of its slot or ends beyond 1 EiB. An entry without elements is
    /// checked too, all but the place of its elements, and then left out.
    pub fn new(entries: &[RegionCopy]) -> Result<Self> {
        let mut slots = Vec::new();
        let mut lowered = Vec::with_capacity(entries.len());
        let mut spans = Vec::with_capacity(entries.len() * 2);
        let mut bytes = 0_u64;
        for (number, entry) in entries.iter().enumerate() {
            let copy = Checker { number, entry }.lower()?;
            let needed = entry.source.slot.max(entry.destination.slot) + 1;
            if slots.len() < needed {
                slots.resize(needed, SlotUse::UNTOUCHED);
            }
            let Some(copy) = copy else { continue };
            let (source, destination) = copy.footprints();
            slots[copy.source_slot].touch(copy.dtype, &source);
            slots[copy.source_slot].read = true;
            slots[copy.destination_slot].touch(copy.dtype, &destination);
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
            // Elements are known to be distinct by now, so their number fits.
            let moved = (copy.elements() as u64).checked_mul(copy.dtype.size() as u64);
            bytes = moved.and_then(|moved| bytes.checked_add(moved)).ok_or_else(|| {
                refuse(ErrorKind::InvalidArgument, number, "the batch moves 2^64 bytes or more")
            })?;
            if phases.len() <= order[number] {
                phases.resize_with(order[number] + 1, Vec::new);
            }
            phases[order[number]].push(copy);
        }
        let phases = phases
            .into_iter()
            .map(|copies| RegionPhase { schedule: Schedule::new(&copies), copies })
            .collect();
        Ok(Self { phases, slots, bytes })
    }

    /// The phases in the order in which they run; none if there is nothing to copy.
    pub fn phases(&self) -> &[RegionPhase] {
        &self.phases
    }

    /// What each slot must be bound to, by slot index. Slots below the highest one named that no entry names are
    /// there too, untouched.
    pub fn slots(&self) -> &[SlotUse] {
        &self.slots
    }

    /// Bytes that one execution moves, each element counted once.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// An error about one entry.
#[cold]
pub(super) fn refuse(kind: ErrorKind, entry: usize, message: impl std::fmt::Display) -> Error {
    Error::new(kind, "plan_regions", format!("entry {entry}: {message}"))
}

/// One entry on its way to a [`LoweredCopy`].
struct Checker<'a> {
    number: usize,
    entry: &'a RegionCopy,
}

impl Checker<'_> {
    fn refuse(&self, message: impl std::fmt::Display) -> Error {
        refuse(ErrorKind::InvalidArgument, self.number, message)
    }

    /// The entry in its simplest form; `None` if it has no elements.
    fn lower(&self) -> Result<Option<LoweredCopy>> {
        let entry = self.entry;
        if entry.extents.len() > MAX_REGION_RANK {
            return Err(self.refuse(format_args!(
                "{} dimensions, at most {MAX_REGION_RANK}",
                entry.extents.len()
            )));
        }
        self.check_operation()?;
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
        Ok(Some(self.simplify()))
    }

    fn check_operation(&self) -> Result<()> {
        let dtype = self.entry.dtype;
        let missing = match self.entry.combine {
            _ if self.entry.negate && !dtype.admits_negate() => "negated",
            Combine::Sum if !dtype.admits_sum() => "summed",
            Combine::Min | Combine::Max if !dtype.admits_order() => "ordered",
            _ => return Ok(()),
        };
        Err(self.refuse(format_args!("{dtype} cannot be {missing}")))
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

    /// Checks that every element lies inside what a slot can be.
    fn check_reach(&self, name: &str, side: &RegionSide) -> Result<()> {
        // Saturation at 2^127 keeps what is out of bounds out of bounds.
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

    /// Drops dimensions of one element, makes destination strides positive, sorts by them, and merges dimensions
    /// that are one on both sides. Every element is known to be in reach, so nothing overflows.
    fn simplify(&self) -> LoweredCopy {
        let RegionCopy { dtype, extents, source, destination, negate, combine } = self.entry;
        let mut source_offset = source.offset;
        let mut destination_offset = destination.offset;
        let mut dims = [(0_usize, 0_isize, 0_isize); MAX_REGION_RANK];
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
        dims[..rank].sort_by_key(|&(_, _, to)| std::cmp::Reverse(to));
        let mut copy = LoweredCopy {
            dtype: *dtype,
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
            copy.extents[copy.rank] *= extent;
            copy.source_strides[copy.rank] = from;
            copy.destination_strides[copy.rank] = to;
            copy.rank += 1;
        }
        copy
    }
}
