//! Indexed copies: items whose places are in lists are gathered, scattered and combined.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::apart::{Place, Side, check_apart};
use super::footprint::Footprint;
use super::items::{ItemsEnd, ItemsFold, LoweredItems};
use super::program::{self, MAX_SLOTS, MAX_SPAN, check_operation, refuse};
use super::{Combine, LoweredCopy, RegionCopy, RegionProgram, RegionSide, SlotUse};
use crate::{DType, Error, ErrorKind, Result};

/// The shortest run of a list that becomes a strided copy: a device reads its description instead of the indices.
const MIN_RUN: usize = 64;

/// The most bytes of an item.
const MAX_ITEM: usize = 1 << 30;

/// The indices of the items that one side of an indexed copy reads or writes, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Indices {
    /// Consecutive items.
    Range(Range<u64>),
    /// Any items. At most 2³² - 1, with indices below 2³². Runs and constant strides are found when a plan is made and
    /// take no memory on the device.
    List(Arc<[u64]>),
}

impl Indices {
    /// Number of indices.
    pub fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.end.saturating_sub(range.start),
            Self::List(list) => list.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Range<u64>> for Indices {
    fn from(range: Range<u64>) -> Self {
        Self::Range(range)
    }
}

impl From<Vec<u64>> for Indices {
    fn from(list: Vec<u64>) -> Self {
        Self::List(list.into())
    }
}

impl From<&[u64]> for Indices {
    fn from(list: &[u64]) -> Self {
        Self::List(list.into())
    }
}

/// One side of an indexed copy: an array of items in the memory bound to a slot, and the items of it that are read or
/// written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexedSide {
    /// The index of the memory bound at execution.
    pub slot: usize,
    /// Byte offset of component 0 of item 0 from the start of the view bound to the slot.
    pub offset: usize,
    /// Number of items of the array. Every index is below it.
    pub items: u64,
    /// Distance in bytes from one item to the next.
    pub stride: usize,
    /// Distance in bytes from one component of an item to the next.
    pub component_stride: usize,
    /// The items that are read or written.
    pub indices: Indices,
}

/// Copies item `source.indices[i]` of one array to item `destination.indices[i]` of another, for all `i`.
///
/// A *gather* has a list of sources, a *scatter* a list of destinations. Every item has the same number of components.
///
/// ```
/// use runtime_core::{Combine, DType, HostSlot, IndexedCopy, IndexedSide, RegionProgram};
///
/// // Forces of three edges are added to the nodes at their ends. A force has two components.
/// let side = |slot, items, indices| IndexedSide {
///     slot, offset: 0, items, stride: 16, component_stride: 8, indices,
/// };
/// let add = IndexedCopy {
///     dtype: DType::F64,
///     components: 2,
///     source: side(0, 3, (0..3).into()),
///     destination: side(1, 10, vec![7, 4, 7].into()),
///     combine: Combine::Sum,
///     repeats: true,
/// };
/// let program = RegionProgram::indexed(&[add])?;
/// assert_eq!(program.bytes(), 3 * 16);
/// assert_eq!(program.slots()[1].bytes, 8 * 16);
///
/// let mut forces = [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]];
/// let mut nodes = [[0.5; 2]; 10];
/// let slots = [
///     HostSlot { base: forces.as_mut_ptr().cast(), len: 3 * 16 },
///     HostSlot { base: nodes.as_mut_ptr().cast(), len: 10 * 16 },
/// ];
/// // SAFETY: the slots are two arrays that are as long as the program requires.
/// unsafe { program.run(&slots) };
/// assert_eq!((nodes[4], nodes[7]), ([10.5, 20.5], [101.5, 202.5]));
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexedCopy {
    /// Type of the elements on both sides.
    pub dtype: DType,
    /// Number of elements of an item.
    pub components: usize,
    /// The items to read. An item may be read several times.
    pub source: IndexedSide,
    /// The items to write.
    pub destination: IndexedSide,
    /// How each element is combined with the element already there.
    pub combine: Combine,
    /// Whether several items, also of several entries, may be combined with one item of the destination. They are
    /// combined one after the other, in the order of the entries and of their indices, so results have the same bits in
    /// every execution, apart from the bits of a NaN. With [`Combine::Replace`], the last one is written, and the
    /// others are left out, also if the memory of the last one is absent.
    ///
    /// Entries that combine with the same items must have the same element type, number of components and operation,
    /// and the same destination but for its indices.
    pub repeats: bool,
}

/// The array of one side, and where the indices lie that are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Array {
    slot: usize,
    offset: usize,
    stride: isize,
    component_stride: isize,
}

impl Array {
    fn of(side: &IndexedSide) -> Self {
        let [stride, component_stride] =
            [side.stride, side.component_stride].map(usize::cast_signed);
        Self { slot: side.slot, offset: side.offset, stride, component_stride }
    }

    /// The array whose index 0 is this one's index `first`, and whose stride is `step` times as long.
    #[expect(clippy::cast_possible_truncation, reason = "reaches that were checked fit")]
    fn from(self, first: u64, step: i64) -> Self {
        let steps = step as isize;
        let offset = self.offset + to_usize(first) * self.stride.unsigned_abs();
        Self { offset, stride: self.stride * steps, ..self }
    }
}

/// Indices that were checked.
#[derive(Clone, Debug)]
enum Checked {
    /// `first`, `first + step`, …
    Strided {
        first: u64,
        step: i64,
    },
    List(Arc<[u64]>),
}

impl Checked {
    fn of_list(list: &[u64]) -> Option<Self> {
        let first = *list.first()?;
        let step = list.get(1).map_or(1, |second| second.cast_signed() - first.cast_signed());
        let steps =
            list.windows(2).all(|pair| pair[1].cast_signed() - pair[0].cast_signed() == step);
        steps.then_some(Self::Strided { first, step })
    }

    fn of(indices: &Indices) -> Self {
        match indices {
            Indices::Range(range) => Self::Strided { first: range.start, step: 1 },
            Indices::List(list) => {
                Self::of_list(list).unwrap_or_else(|| Self::List(Arc::clone(list)))
            }
        }
    }

    fn get(&self, position: usize) -> u64 {
        match self {
            Self::Strided { first, step } => first.wrapping_add_signed(step * position as i64),
            Self::List(list) => list[position],
        }
    }
}

/// An entry that was checked and has elements.
struct Entry<'a> {
    number: usize,
    copy: &'a IndexedCopy,
    len: usize,
    source: Checked,
    destination: Checked,
}

/// Lists at most this long, and below this index, are kept in 32 bits on a device.
const LIMIT: u64 = u32::MAX as u64;

#[expect(clippy::cast_possible_truncation, reason = "offsets below 2^60 that were checked")]
fn to_usize(number: u64) -> usize {
    number as usize
}

/// Refuses a list that is too long for 32 bits.
pub(super) fn check_length(entry: usize, len: u64) -> Result<()> {
    if len > LIMIT {
        let message = format_args!("a list of {len} indices, limit {LIMIT}");
        return Err(refuse(ErrorKind::InvalidArgument, entry, message));
    }
    Ok(())
}

impl RegionProgram {
    /// Checks indexed copies and converts them to a program of one [phase](Self::phases). Runs of at least 64 indices
    /// with constant strides on both sides become strided copies.
    ///
    /// The time is O(n log n) for lists of n indices. Ranges take no time for each index, unless several entries with
    /// [`repeats`](IndexedCopy::repeats) have the same destination.
    ///
    /// # Errors
    ///
    /// Messages name the entry by its index in `entries`, and the position and value of an index. `InvalidArgument` if
    ///
    /// - the two sides have different numbers of indices, or a range ends before it starts;
    /// - an index is not below the number of items;
    /// - a list has 2³² indices or more, or one of 2³² - 1 or more; or so many items are combined with one another by
    ///   [`repeats`](IndexedCopy::repeats);
    /// - the element type does not support the operation;
    /// - an offset or a stride that is used is not a multiple of the type's alignment;
    /// - a slot index is 65536 or more, or an item has more than 1 GiB;
    /// - an item is written twice without [`repeats`](IndexedCopy::repeats);
    /// - several items of the destination lie on one place, or several components of an item;
    /// - elements of any two items that are written overlap, or of an item that is read and one that is written;
    /// - entries that repeat combine with the same items in different ways.
    ///
    /// `OutOfBounds` if an item ends beyond 1 EiB. `OutOfMemory`.
    pub fn indexed(entries: &[IndexedCopy]) -> Result<Self> {
        let mut slots = Vec::new();
        let mut checked = Vec::with_capacity(entries.len());
        for (number, copy) in entries.iter().enumerate() {
            let entry = check(number, copy)?;
            let needed = copy.source.slot.max(copy.destination.slot) + 1;
            if slots.len() < needed {
                slots.resize(needed, SlotUse::UNTOUCHED);
            }
            let Some(entry) = entry else { continue };
            let ends = [(&copy.source, &entry.source), (&copy.destination, &entry.destination)];
            for (side, indices) in ends {
                slots[side.slot]
                    .touch(copy.dtype, reach(number, copy, side, last(indices, entry.len))?);
            }
            slots[copy.source.slot].read = true;
            slots[copy.destination.slot].written = true;
            slots[copy.destination.slot].read |= copy.combine != Combine::Replace;
            checked.push(entry);
        }
        let groups = group(&checked)?;
        check_apart(entries.len(), sides(&checked, &groups))?;
        let mut lowered = Lowered::default();
        for group in &groups {
            group.lower(&checked, &mut lowered)?;
        }
        let Lowered { copies, items, .. } = lowered;
        let of_copies = copies
            .iter()
            .map(|copy| (copy.elements() as u64).checked_mul(copy.dtype().size() as u64));
        let of_items = items.iter().map(|items| Some(items.bytes_among(|_| true)));
        let bytes = of_copies.chain(of_items).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
        let bytes = bytes.ok_or_else(|| {
            refuse(ErrorKind::InvalidArgument, 0, "the batch moves 2^64 bytes or more")
        })?;
        Ok(Self::of_one_phase(copies, items, slots, bytes))
    }
}

/// The greatest index.
fn last(indices: &Checked, len: usize) -> u64 {
    match indices {
        Checked::Strided { .. } => indices.get(0).max(indices.get(len - 1)),
        Checked::List(list) => list.iter().copied().max().unwrap_or(0),
    }
}

/// The byte behind the item with an index. At most [`MAX_SPAN`].
fn reach(number: usize, copy: &IndexedCopy, side: &IndexedSide, index: u64) -> Result<i64> {
    let steps =
        [(u128::from(index), side.stride), (copy.components as u128 - 1, side.component_stride)];
    let start = side.offset as u128 + copy.dtype.size() as u128;
    let end = steps.iter().fold(start, |end, (steps, stride)| {
        end.saturating_add(steps.saturating_mul(*stride as u128))
    });
    i64::try_from(end).ok().filter(|end| *end <= MAX_SPAN).ok_or_else(|| {
        let message =
            format!("item {index} reaches byte {end} of slot {}, limit {MAX_SPAN}", side.slot);
        refuse(ErrorKind::OutOfBounds, number, message)
    })
}

/// Checks an entry. `None` if it has no elements.
fn check(number: usize, copy: &IndexedCopy) -> Result<Option<Entry<'_>>> {
    let invalid = |message: String| refuse(ErrorKind::InvalidArgument, number, message);
    check_operation(number, copy.dtype, copy.combine, false)?;
    let bytes = copy.components.checked_mul(copy.dtype.size());
    if bytes.is_none_or(|bytes| bytes > MAX_ITEM) {
        let message =
            format!("items of {} {}, limit {MAX_ITEM} bytes", copy.components, copy.dtype);
        return Err(invalid(message));
    }
    for (name, side) in [("source", &copy.source), ("destination", &copy.destination)] {
        check_side(number, name, copy, side)?;
    }
    let [sources, targets] = [&copy.source, &copy.destination].map(|side| side.indices.len());
    if sources != targets {
        return Err(invalid(format!(
            "{sources} indices of the source for {targets} of the destination"
        )));
    }
    if sources == 0 || copy.components == 0 {
        return Ok(None);
    }
    let IndexedSide { items, stride, component_stride, .. } = copy.destination;
    if stride == 0 && items > 1 && targets > 1 {
        return Err(invalid(format!(
            "{targets} items of the destination lie on one place (stride 0)"
        )));
    }
    if component_stride == 0 && copy.components > 1 {
        return Err(invalid(format!(
            "{} components of an item of the destination lie on one place (stride 0)",
            copy.components
        )));
    }
    let len = usize::try_from(sources)
        .map_err(|_| invalid(format!("{sources} items, limit {}", usize::MAX)))?;
    let [source, destination] =
        [&copy.source, &copy.destination].map(|side| Checked::of(&side.indices));
    Ok(Some(Entry { number, copy, len, source, destination }))
}

fn check_side(number: usize, name: &str, copy: &IndexedCopy, side: &IndexedSide) -> Result<()> {
    let invalid = |message: String| Err(refuse(ErrorKind::InvalidArgument, number, message));
    if side.slot >= MAX_SLOTS {
        return invalid(format!("slot {} of the {name}, limit {MAX_SLOTS}", side.slot));
    }
    let align = copy.dtype.align();
    let strides = [
        ("offset", side.offset, true),
        ("stride", side.stride, side.indices.len() > 1 || side.items > 1),
        ("stride of components", side.component_stride, copy.components > 1),
    ];
    for (what, bytes, is_used) in strides {
        if is_used && !bytes.is_multiple_of(align) {
            return invalid(format!(
                "the {what} of the {name}, {bytes} bytes, is no multiple of {align}"
            ));
        }
    }
    match &side.indices {
        Indices::Range(range) if range.start > range.end => {
            invalid(format!("the range {range:?} of the {name} ends before it starts"))
        }
        Indices::Range(range) if range.end > side.items => {
            let Range { start, end } = *range;
            invalid(format!(
                "indices {start} to {end} of the {name}, which has {} items",
                side.items
            ))
        }
        Indices::Range(_) => Ok(()),
        Indices::List(list) => {
            check_length(number, list.len() as u64)?;
            let limit = side.items.min(LIMIT);
            match list.iter().position(|index| *index >= limit) {
                None => Ok(()),
                Some(position) if list[position] >= side.items => invalid(format!(
                    "index {} at position {position} of the {name}, which has {} items",
                    list[position], side.items
                )),
                Some(position) => invalid(format!(
                    "index {} at position {position} of the {name}, limit {LIMIT}",
                    list[position]
                )),
            }
        }
    }
}

/// Entries whose items are combined with those of one destination.
struct Group {
    /// In order, as indices into the checked entries.
    entries: Vec<usize>,
    /// If the targets can repeat: all that are combined, sorted by target, and each target's in order.
    reads: Option<Vec<Read>>,
}

/// An item that is combined with a target.
#[derive(Clone, Copy)]
struct Read {
    target: u64,
    /// The entry in its group, and the position in the entry.
    entry: u32,
    position: u32,
}

/// What entries must have in common to combine with the same items.
#[derive(PartialEq, Eq, Hash)]
struct Key(Array, DType, usize, Combine);

fn group(entries: &[Entry<'_>]) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known = HashMap::new();
    for (index, Entry { copy, .. }) in entries.iter().enumerate() {
        let next = groups.len();
        let key = Key(Array::of(&copy.destination), copy.dtype, copy.components, copy.combine);
        let group = if copy.repeats { *known.entry(key).or_insert(next) } else { next };
        if group == next {
            groups.push(Group { entries: Vec::new(), reads: None });
        }
        groups[group].entries.push(index);
    }
    for group in &mut groups {
        group.find_repeats(entries)?;
    }
    Ok(groups)
}

impl Group {
    fn find_repeats(&mut self, entries: &[Entry<'_>]) -> Result<()> {
        let first = &entries[self.entries[0]];
        let is_distinct = |entry: &Entry<'_>| {
            !entry.copy.repeats
                || matches!(entry.destination, Checked::Strided { step, .. } if step != 0 || entry.len == 1)
        };
        if self.entries.len() == 1 && is_distinct(first) {
            return Ok(());
        }
        let of_group = || self.entries.iter().map(|entry| &entries[*entry]);
        let len = of_group().fold(0_u64, |sum, entry| sum.saturating_add(entry.len as u64));
        let number = first.number;
        if len >= LIMIT {
            let message = format_args!("{len} items that repeat, limit {LIMIT}");
            return Err(refuse(ErrorKind::InvalidArgument, number, message));
        }
        let mut reads = Vec::new();
        reads.try_reserve_exact(to_usize(len)).map_err(|source| {
            let message = format!("entry {number}: {len} items: {source}");
            Error::new(ErrorKind::OutOfMemory, "plan_regions", message)
        })?;
        for (number, entry) in (0..).zip(of_group()) {
            for (position, at) in (0..).zip(0..entry.len) {
                let target = entry.destination.get(at);
                if target >= LIMIT {
                    let message =
                        format_args!("destination {target}, which may repeat, limit {LIMIT}");
                    return Err(refuse(ErrorKind::InvalidArgument, entry.number, message));
                }
                reads.push(Read { target, entry: number, position });
            }
        }
        reads.sort_by_key(|read| read.target);
        if first.copy.combine == Combine::Replace {
            // The last of each target.
            reads.reverse();
            reads.dedup_by_key(|read| read.target);
            reads.reverse();
        }
        self.reads = Some(reads);
        Ok(())
    }

    /// Adds the copies of the group.
    fn lower(&self, entries: &[Entry<'_>], to: &mut Lowered) -> Result<()> {
        let of_group: Vec<&Entry<'_>> = self.entries.iter().map(|entry| &entries[*entry]).collect();
        let Some(reads) = &self.reads else {
            let entry = of_group[0];
            return to.add(entry, entry.len, &entry.destination, &entry.source);
        };
        // Items that are alone are copied without a fold, so that runs are found.
        let mut alone: Vec<(Vec<u64>, Vec<u64>)> = vec![Default::default(); of_group.len()];
        let (mut targets, mut starts, mut folded) = (Vec::new(), vec![0], Vec::new());
        // The sources are in the order of their entries, as the reads of each target are.
        let mut used = vec![u32::MAX; of_group.len()];
        let targets_of = || reads.chunk_by(|one, next| one.target == next.target);
        let repeating = targets_of().filter(|same| same.len() > 1);
        repeating.flatten().for_each(|read| used[read.entry as usize] = 0);
        let mut sources = Vec::new();
        for (entry, used) in of_group.iter().zip(&mut used).filter(|(_, used)| **used == 0) {
            *used = number(sources.len());
            // A source counts its indices from the first of a range, so that they fit 32 bits.
            let array = Array::of(&entry.copy.source);
            let array = match entry.source {
                Checked::Strided { first, step } => array.from(first, step),
                Checked::List(_) => array,
            };
            sources.push(end(array, &[0]));
        }
        for same in targets_of() {
            if let [Read { target, entry, position }] = same {
                let (targets, indices) = &mut alone[*entry as usize];
                targets.push(*target);
                indices.push(of_group[*entry as usize].source.get(*position as usize));
                continue;
            }
            targets.push(same[0].target);
            folded.extend(same.iter().map(|read| {
                let index = match &of_group[read.entry as usize].source {
                    Checked::Strided { .. } => read.position,
                    Checked::List(list) => number(to_usize(list[read.position as usize])),
                };
                [used[read.entry as usize], index]
            }));
            starts.push(number(folded.len()));
        }
        for (entry, (targets, indices)) in of_group.iter().zip(alone) {
            let len = targets.len();
            if len > 0 {
                let list = |list: Vec<u64>| Checked::of(&Indices::List(list.into()));
                to.add(entry, len, &list(targets), &list(indices))?;
            }
        }
        if !targets.is_empty() {
            let copy = of_group[0].copy;
            let count = targets.len();
            let destination = end(Array::of(&copy.destination), &targets);
            let fold = ItemsFold { starts: starts.into(), reads: folded.into() };
            to.items.push(items(copy, count, destination, sources, Some(fold)));
        }
        Ok(())
    }
}

/// Numbers that were checked to be small.
#[expect(clippy::cast_possible_truncation, reason = "below `LIMIT`, as checked")]
fn number(number: usize) -> u32 {
    number as u32
}

/// The items with these indices.
fn end(array: Array, indices: &[u64]) -> ItemsEnd {
    let (array, indices) = match Checked::of_list(indices) {
        Some(Checked::Strided { first, step }) => (array.from(first, step), None),
        _ => (array, Some(indices.iter().map(|index| number(to_usize(*index))).collect())),
    };
    let Array { slot, offset, stride, component_stride } = array;
    ItemsEnd { slot, offset, stride, component_stride, indices }
}

/// Items in their simplest form. Components that are adjacent on all sides become parts.
fn items(
    copy: &IndexedCopy,
    count: usize,
    mut destination: ItemsEnd,
    mut sources: Vec<ItemsEnd>,
    fold: Option<ItemsFold>,
) -> LoweredItems {
    let (dtype, parts) = match copy.dtype {
        DType::Record(record) => (record.unit(), record.size() / record.unit().size()),
        dtype => (dtype, 1),
    };
    let size = copy.dtype.size().cast_signed();
    let is_adjacent = |end: &ItemsEnd| copy.components == 1 || end.component_stride == size;
    let (mut parts, mut components) = (parts, copy.components);
    if is_adjacent(&destination) && sources.iter().all(is_adjacent) {
        (parts, components) = (parts * components, 1);
        for end in sources.iter_mut().chain([&mut destination]) {
            end.component_stride = 0;
        }
    }
    LoweredItems {
        dtype,
        combine: copy.combine,
        parts,
        components,
        count,
        destination,
        sources,
        fold,
    }
}

#[derive(Default)]
struct Lowered {
    copies: Vec<LoweredCopy>,
    items: Vec<LoweredItems>,
}

impl Lowered {
    /// Adds items whose targets are distinct. Runs on both sides become strided copies.
    fn add(&mut self, entry: &Entry<'_>, len: usize, to: &Checked, from: &Checked) -> Result<()> {
        if let (Checked::Strided { .. }, Checked::Strided { .. }) = (to, from) {
            return self.add_run(entry, 0..len, to, from);
        }
        let step = |at: usize| {
            let along = |indices: &Checked| {
                indices.get(at + 1).cast_signed() - indices.get(at).cast_signed()
            };
            (along(to), along(from))
        };
        let (mut targets, mut sources) = (Vec::new(), Vec::new());
        let mut start = 0;
        while start < len {
            let mut end = start + 1;
            if end < len {
                let first = step(start);
                while end < len && step(end - 1) == first {
                    end += 1;
                }
            }
            if end - start >= MIN_RUN {
                self.add_run(entry, start..end, to, from)?;
            } else {
                // The last index may begin the next run.
                end = if end < len { (end - 1).max(start + 1) } else { end };
                targets.extend((start..end).map(|at| to.get(at)));
                sources.extend((start..end).map(|at| from.get(at)));
            }
            start = end;
        }
        if let (Some(to), Some(from)) = (Checked::of_list(&targets), Checked::of_list(&sources)) {
            // A device takes items only if a side has a list.
            self.add_run(entry, 0..targets.len(), &to, &from)?;
        } else if !targets.is_empty() {
            let copy = entry.copy;
            let destination = end(Array::of(&copy.destination), &targets);
            let source = end(Array::of(&copy.source), &sources);
            self.items.push(items(copy, targets.len(), destination, vec![source], None));
        }
        Ok(())
    }

    /// Adds positions at which both sides have constant strides.
    fn add_run(
        &mut self,
        entry: &Entry<'_>,
        run: Range<usize>,
        to: &Checked,
        from: &Checked,
    ) -> Result<()> {
        let copy = entry.copy;
        let side = |side: &IndexedSide, indices: &Checked| {
            let first = indices.get(run.start);
            let step = if run.len() > 1 {
                indices.get(run.start + 1).cast_signed() - first.cast_signed()
            } else {
                0
            };
            let Array { slot, offset, stride, component_stride } =
                Array::of(side).from(first, step);
            RegionSide { slot, offset, strides: vec![stride, component_stride] }
        };
        let strided = RegionCopy {
            dtype: copy.dtype,
            extents: vec![run.len(), copy.components],
            source: side(&copy.source, from),
            destination: side(&copy.destination, to),
            negate: false,
            combine: copy.combine,
        };
        self.copies.extend(program::lower(entry.number, &strided)?);
        Ok(())
    }
}

/// What all entries read and write.
fn sides<'a>(entries: &'a [Entry<'a>], groups: &'a [Group]) -> Vec<Side<'a>> {
    let reads = entries.iter().map(|entry| {
        let indices = (&entry.copy.source, &entry.source);
        side(entry, indices, false, entry.len, None)
    });
    let writes = groups.iter().map(|group| {
        let entry = &entries[group.entries[0]];
        let indices = (&entry.copy.destination, &entry.destination);
        let repeating = group.reads.as_ref().map(|reads| (entries, group, reads));
        side(entry, indices, true, entry.len, repeating)
    });
    reads.chain(writes).collect()
}

type Repeating<'a> = (&'a [Entry<'a>], &'a Group, &'a Vec<Read>);

fn side<'a>(
    entry: &'a Entry<'a>,
    (side, indices): (&'a IndexedSide, &'a Checked),
    writes: bool,
    len: usize,
    repeating: Option<Repeating<'a>>,
) -> Side<'a> {
    let (copy, array) = (entry.copy, Array::of(side));
    let strided = match (indices, repeating) {
        // A list that writes one item again and again has no strides, so that the error names a position.
        (Checked::Strided { first, step }, None) if !writes || *step != 0 || len == 1 => {
            let Array { offset, stride, .. } = array.from(*first, *step);
            Some(Footprint::new(
                copy.dtype.size(),
                offset,
                &[len, copy.components],
                &[stride, array.component_stride],
            ))
        }
        _ => None,
    };
    let (size, components) = (copy.dtype.size(), copy.components);
    let adjacent = components == 1 || side.component_stride == size;
    let (run, runs) = if adjacent { (size * components, 1) } else { (size, components) };
    let item = move |index: u64, entry: usize, position: usize| {
        let start = array.from(index, 1).offset;
        (0..runs).map(move |component| {
            let start = (start + component * side.component_stride) as i64;
            Place { start, end: start + run as i64, entry, position, index }
        })
    };
    let places = move |places: &mut Vec<Place>| match repeating {
        None => {
            let all = (0..len).flat_map(|at| item(indices.get(at), entry.number, at));
            places.extend(all);
        }
        Some((entries, group, reads)) => {
            let targets = reads.chunk_by(|one, next| one.target == next.target);
            places.extend(targets.flat_map(|same| {
                let Read { target, entry, position } = same[0];
                item(target, entries[group.entries[entry as usize]].number, position as usize)
            }));
        }
    };
    let items = repeating.map_or(len, |(_, _, reads)| reads.len());
    let count = items.saturating_mul(runs);
    Side { entry: entry.number, slot: side.slot, writes, strided, count, places: Box::new(places) }
}
