//! Lowers a program to launches.

use runtime_core::{Error, ErrorKind, RegionProgram, Result};

use super::items::{End, ItemsPiece, Places};
use super::piece::{Dim, Piece, Rule};
use super::words::{self, Code};
use super::{Binding, Mapping, RegionKernel};

/// Minimum number of chunks per compute unit in a large launch, so that all units have work until the end.
const CHUNKS_PER_UNIT: u64 = 64;

/// The same for lanes, where a group takes longer to decode a chunk. And the number of chunks that a unit runs at once;
/// beyond this number, each lane has several elements.
const LANE_CHUNKS_PER_UNIT: u64 = 16;
const LANE_CHUNKS_AT_ONCE: u64 = 4;

/// The desired cost of a run, in bytes of memory traffic: large enough for a work-item, and small enough to stay in a
/// core's first-level caches.
const RUN_COST: std::ops::RangeInclusive<u64> = (4 << 10)..=(128 << 10);

/// The most elements that one lane moves.
const MAX_PER_LANE: u64 = 16;

/// The properties of a device that determine how a launch is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLimits {
    /// Compute units of the device.
    pub compute_units: usize,
    /// Work-items per group. Usually 1 for [`Mapping::Runs`].
    pub group_size: usize,
    /// The most groups of a launch. If there is more work, work-items loop.
    pub max_groups: u64,
    /// The greatest distance in bytes from the first element of a copy to the last for which [`Mapping::Lanes`] runs
    /// the copy as a whole. Copies that extend further, on either side, are run in slabs. At most [`Self::MAX_SLAB`].
    pub slab: u64,
}

impl RegionLimits {
    /// The largest slab, suitable for every device. Its offsets fit in 32 bits with a sign.
    pub const MAX_SLAB: u64 = words::MAX_SLAB;
}

/// A program lowered to launches of a [`RegionKernel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionLaunches {
    words: Vec<u64>,
    launches: Vec<RegionLaunch>,
}

impl RegionLaunches {
    /// The words that the kernel reads, for all launches. Upload them, in the byte order of the device, to an address
    /// that is a multiple of 8.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The launches of one execution, in order. Empty if there is nothing to copy.
    pub fn launches(&self) -> &[RegionLaunch] {
        &self.launches
    }
}

/// One launch of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionLaunch {
    /// The index of its first word.
    pub start: u64,
    /// The slots of the program that it binds, in the order of the kernel's parameters.
    pub slots: Vec<usize>,
    /// Number of groups, all in the first dimension. At least 1.
    pub groups: u64,
    /// Work-items per group.
    pub group_size: usize,
}

pub(super) fn lower(
    kernel: &RegionKernel,
    program: &RegionProgram,
    limits: RegionLimits,
) -> Result<RegionLaunches> {
    let refuse = |message: String| Error::new(ErrorKind::InvalidArgument, "lower_regions", message);
    if limits.compute_units == 0 || limits.group_size == 0 || limits.max_groups == 0 {
        return Err(refuse(format!("a limit of 0: {limits:?}")));
    }
    if !(1..=RegionLimits::MAX_SLAB).contains(&limits.slab) {
        let most = RegionLimits::MAX_SLAB;
        return Err(refuse(format!("slabs of {} bytes, allowed are 1 to {most}", limits.slab)));
    }
    let mut lowered = RegionLaunches { words: Vec::new(), launches: Vec::new() };
    for phase in program.phases() {
        let (mut pieces, mut items) = (Vec::with_capacity(phase.copies().len()), Vec::new());
        for copy in phase.copies() {
            match kernel.mapping {
                Mapping::Runs => Piece::add(copy, &mut pieces),
                Mapping::Lanes => Piece::add_slabs(copy, limits.slab, &mut pieces),
            }
        }
        for copy in phase.items() {
            ItemsPiece::add(copy, limits.slab, kernel.slots(), &mut items);
        }
        let pieces = pieces.into_iter().map(Work::Box);
        let mut pieces: Vec<Work> = pieces.chain(items.into_iter().map(Work::Items)).collect();
        pieces.sort_by_key(Work::stage);
        if !kernel.has_f64 && pieces.iter().any(|piece| piece.rule().code == Code::AddF64) {
            let message = "a sum of f64 or c128 on a device without double precision";
            return Err(refuse(message.to_owned()));
        }
        for stage in pieces.chunk_by_mut(|one, next| one.stage() == next.stage()) {
            let mut left = stage;
            while !left.is_empty() {
                let (slots, bound) = match kernel.binding {
                    // The slots of all launches, so that the launches share one table.
                    Binding::Table => ((0..program.slots().len()).collect(), left.len()),
                    Binding::Parameters(most) | Binding::List(most) => gather(left, most),
                };
                let (now, later) = left.split_at_mut(bound);
                lowered.push(kernel.mapping, limits, now, slots)?;
                left = later;
            }
        }
    }
    Ok(lowered)
}

/// What the kernel runs by one record.
enum Work {
    Box(Piece),
    Items(ItemsPiece),
}

impl Work {
    fn stage(&self) -> usize {
        match self {
            Self::Box(_) => 0,
            Self::Items(items) => items.stage,
        }
    }

    fn rule(&self) -> &Rule {
        match self {
            Self::Box(piece) => &piece.rule,
            Self::Items(items) => &items.rule,
        }
    }

    /// Number of dimensions in its record.
    fn rank(&self) -> usize {
        match self {
            Self::Box(piece) => piece.dims().len(),
            Self::Items(_) => words::ITEM_RANK + 1,
        }
    }

    /// Words of its lists.
    fn list_words(&self) -> usize {
        let Self::Items(items) = self else { return 0 };
        let of_places = |end: &End| match &end.places {
            Places::Strided(_) => 0,
            Places::Listed(list) => list.len().div_ceil(2),
        };
        let of_fold = items.fold.as_ref().map_or(0, |fold| {
            fold.starts.len().div_ceil(2) + fold.reads.len() + items.from.len() * words::PER_SOURCE
        });
        [&items.to].into_iter().chain(&items.from).map(of_places).sum::<usize>() + of_fold
    }

    /// The number of units that share the work, and the cost of each.
    fn units(&self, mapping: Mapping) -> (u64, u64) {
        match (self, mapping) {
            (Self::Box(piece), _) => (piece.elements(), piece.cost()),
            // Runs move whole items, except in a fold.
            (Self::Items(items), Mapping::Runs) if items.fold.is_none() => {
                (items.count, items.cost())
            }
            (Self::Items(items), _) => {
                let elements = items.elements();
                (elements, (items.cost() * items.count / elements).max(1))
            }
        }
    }
}

/// Moves pieces to the front that together need at most `most` slots. Returns these slots and the number of pieces.
fn gather(pieces: &mut [Work], most: usize) -> (Vec<usize>, usize) {
    let mut slots = Vec::with_capacity(most);
    let mut bound = 0;
    for piece in 0..pieces.len() {
        if bind(&mut slots, &pieces[piece], most) {
            pieces.swap(bound, piece);
            bound += 1;
        }
    }
    (slots, bound)
}

/// Adds the slots of a piece if there is room for them.
fn bind(slots: &mut Vec<usize>, piece: &Work, most: usize) -> bool {
    let before = slots.len();
    let mut add = |slot| {
        if !slots.contains(&slot) {
            slots.push(slot);
        }
    };
    match piece {
        Work::Box(piece) => [piece.to_slot, piece.from_slot].into_iter().for_each(&mut add),
        Work::Items(items) => items.slots().for_each(&mut add),
    }
    let fits = slots.len() <= most;
    if !fits {
        slots.truncate(before);
    }
    fits
}

impl RegionLaunches {
    fn push(
        &mut self,
        mapping: Mapping,
        limits: RegionLimits,
        pieces: &[Work],
        slots: Vec<usize>,
    ) -> Result<()> {
        let rank = pieces.iter().map(Work::rank).max().unwrap_or(0);
        let record = words::DIMS + rank * words::PER_DIM;
        let start = self.words.len();
        let lists = words::HEADER + pieces.len() * (1 + record);
        let room = pieces.iter().map(Work::list_words).fold(lists, usize::saturating_add);
        self.words.try_reserve(room).map_err(|source| {
            let message = format!("{room} words for {} copies: {source}", pieces.len());
            Error::new(ErrorKind::OutOfMemory, "lower_regions", message)
        })?;
        let share = Share::new(mapping, limits, pieces);
        let mut chunks = 0_u64;
        self.words.extend([pieces.len() as u64, 0, record as u64]);
        // The first chunks come before all records, and the records before all lists.
        let firsts = self.words.len();
        self.words.resize(start + lists, 0);
        for (index, piece) in pieces.iter().enumerate() {
            self.words[firsts + index] = chunks;
            let cut = Cut::new(mapping, limits, &share, piece);
            let at = firsts + pieces.len() + index * record;
            match piece {
                Work::Box(piece) => fill_box(&mut self.words[at..at + record], piece, &cut, &slots),
                Work::Items(items) => self.record_items(at, mapping, items, &cut, &slots),
            }
            // Elements are at most 2^60 bytes per slot, and a phase at most 2^64 bytes.
            let (units, _) = piece.units(mapping);
            let slabs = units / cut.elements;
            chunks = chunks.saturating_add(cut.chunks.saturating_mul(slabs));
        }
        self.words[start + words::CHUNKS] = chunks;
        let workers = match mapping {
            Mapping::Runs => chunks.div_ceil(limits.group_size as u64),
            Mapping::Lanes => chunks,
        };
        self.launches.push(RegionLaunch {
            start: start as u64,
            slots,
            groups: workers.min(limits.max_groups),
            group_size: limits.group_size,
        });
        Ok(())
    }

    /// Writes the record at word `at`, and adds its lists.
    fn record_items(
        &mut self,
        at: usize,
        mapping: Mapping,
        items: &ItemsPiece,
        cut: &Cut,
        slots: &[usize],
    ) {
        let (to, from) = (&items.to, &items.from[0]);
        let mut dims = vec![
            Dim {
                extent: items.parts,
                to: items.unit.cast_signed(),
                from: items.unit.cast_signed(),
            },
            Dim { extent: items.components, to: to.component_stride, from: from.component_stride },
        ];
        if mapping == Mapping::Lanes && items.fold.is_none() {
            // Lanes divide by each extent.
            dims.retain(|dim| dim.extent > 1);
        }
        let rank = dims.len();
        let stride = |end: &End| match end.places {
            Places::Strided(stride) => stride,
            Places::Listed(_) => 0,
        };
        dims.push(Dim { extent: items.count, to: stride(to), from: stride(from) });
        let mut record = [0; words::DIMS];
        if let Some(fold) = &items.fold {
            // Sources have slots and offsets of their own.
            [record[words::FROM_SLOT], record[words::FROM_OFFSET]] =
                [place(slots, to.slot), to.offset];
            record[words::STARTS] = self.list(fold.starts.iter().copied());
            record[words::FROM_LIST] = self.words.len() as u64;
            self.words.extend(
                fold.reads
                    .iter()
                    .map(|(source, offset)| u64::from(*source) << 32 | u64::from(*offset)),
            );
            record[words::SOURCES] = self.words.len() as u64;
            for end in &items.from {
                let stride = end.component_stride.cast_unsigned();
                self.words.extend([place(slots, end.slot), end.offset, stride]);
            }
        } else {
            [record[words::FROM_SLOT], record[words::FROM_OFFSET]] =
                [place(slots, from.slot), from.offset];
            record[words::FROM_LIST] = self.places(&from.places);
        }
        [record[words::TO_SLOT], record[words::TO_OFFSET]] = [place(slots, to.slot), to.offset];
        record[words::TO_LIST] = self.places(&to.places);
        fill_operation(&mut record, &items.rule, (items.unit, items.word), cut);
        [record[words::RANK], record[words::SLAB_RANK]] = [rank as u64; 2];
        self.words[at..at + words::DIMS].copy_from_slice(&record);
        fill_dims(&mut self.words[at + words::DIMS..], &dims);
    }

    /// Adds a list, and returns the index of its first word; 0 if there is none.
    fn places(&mut self, places: &Places) -> u64 {
        match places {
            Places::Strided(_) => 0,
            Places::Listed(list) => self.list(list.iter().copied()),
        }
    }

    /// Adds numbers of 4 bytes, and returns the index of the first word.
    fn list(&mut self, numbers: impl ExactSizeIterator<Item = u32>) -> u64 {
        let (start, mut numbers) = (self.words.len(), numbers);
        while let Some(first) = numbers.next() {
            let [a, b, c, d] = first.to_ne_bytes();
            let [e, f, g, h] = numbers.next().unwrap_or(0).to_ne_bytes();
            self.words.push(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        }
        start as u64
    }
}

/// Writes the record of a piece.
fn fill_box(words: &mut [u64], piece: &Piece, cut: &Cut, slots: &[usize]) {
    let mut record = [0; words::DIMS];
    record[words::TO_SLOT] = place(slots, piece.to_slot);
    record[words::TO_OFFSET] = piece.to_offset;
    record[words::FROM_SLOT] = place(slots, piece.from_slot);
    record[words::FROM_OFFSET] = piece.from_offset;
    fill_operation(&mut record, &piece.rule, (piece.unit, piece.word), cut);
    record[words::RANK] = piece.dims().len() as u64;
    record[words::SLAB_RANK] = cut.rank as u64;
    words[..words::DIMS].copy_from_slice(&record);
    fill_dims(&mut words[words::DIMS..], piece.dims());
}

/// The place of a slot in the kernel.
fn place(slots: &[usize], slot: usize) -> u64 {
    let is_identity = slots.get(slot) == Some(&slot);
    let search = || slots.iter().position(|bound| *bound == slot).unwrap_or(0);
    (if is_identity { slot } else { search() }) as u64
}

fn fill_operation(record: &mut [u64], rule: &Rule, (unit, word): (u64, u64), cut: &Cut) {
    record[words::CODE] = rule.code as u64;
    record[words::UNIT] = unit.ilog2().into();
    record[words::WORD] = word.ilog2().into();
    record[words::FLIP] = rule.flip;
    record[words::CARRY] = rule.carry;
    record[words::BIAS] = rule.bias;
    record[words::INFINITY] = rule.infinity;
    record[words::ELEMENTS] = cut.elements;
    record[words::CHUNK] = cut.chunk;
    record[words::SLAB_CHUNKS] = cut.chunks;
}

fn fill_dims(words: &mut [u64], dims: &[Dim]) {
    for (words, dim) in words.chunks_exact_mut(words::PER_DIM).zip(dims) {
        let (to, from) = (dim.to.cast_unsigned(), dim.from.cast_unsigned());
        words.copy_from_slice(&[dim.extent, to, from, words::reciprocal(dim.extent)]);
    }
}

/// How a piece is cut. Chunks are parts of its dimensions; for lanes, only of its inner dimensions.
struct Cut {
    rank: usize,
    elements: u64,
    /// Elements per chunk, and number of chunks.
    chunk: u64,
    chunks: u64,
}

impl Cut {
    fn new(mapping: Mapping, limits: RegionLimits, share: &Share, work: &Work) -> Self {
        let (rank, elements) = match (work, mapping) {
            (Work::Box(piece), Mapping::Lanes) => {
                let slab = piece.slab(limits.slab);
                (slab.rank, slab.elements)
            }
            _ => (work.rank(), work.units(mapping).0),
        };
        let chunk = share.chunk(work, mapping);
        Self { rank, elements, chunk, chunks: elements.div_ceil(chunk) }
    }
}

/// How elements are divided into chunks.
enum Share {
    /// Chunks of about this cost.
    Cost(u64),
    /// Chunks of this many elements.
    Elements(u64),
}

impl Share {
    fn new(mapping: Mapping, limits: RegionLimits, pieces: &[Work]) -> Self {
        let units = || pieces.iter().map(|piece| piece.units(mapping));
        let wanted = |per_unit| (limits.compute_units as u64).saturating_mul(per_unit);
        match mapping {
            Mapping::Runs => {
                let costs = units().map(|(units, cost)| units.saturating_mul(cost));
                let total = costs.fold(0, u64::saturating_add);
                Self::Cost(
                    (total / wanted(CHUNKS_PER_UNIT)).clamp(*RUN_COST.start(), *RUN_COST.end()),
                )
            }
            Mapping::Lanes => {
                let group = limits.group_size as u64;
                let at_once = words::AT_ONCE as u64;
                let of_group = units().map(|(units, _)| units).fold(0, u64::saturating_add) / group;
                let many = of_group / wanted(LANE_CHUNKS_PER_UNIT);
                let per_lane = if many < at_once {
                    (of_group / wanted(LANE_CHUNKS_AT_ONCE)).clamp(1, at_once)
                } else {
                    many.min(MAX_PER_LANE) / at_once * at_once
                };
                Self::Elements(group.saturating_mul(per_lane))
            }
        }
    }

    /// The number of elements of a piece per chunk.
    fn chunk(&self, work: &Work, mapping: Mapping) -> u64 {
        match *self {
            Self::Elements(elements) => elements,
            Self::Cost(cost) => {
                let elements = (cost / work.units(mapping).1).max(1);
                let Work::Box(piece) = work else { return elements };
                // As many whole rows, planes and so on as fit. Otherwise parts that share no cache line.
                let nests = piece.dims().iter().scan(1, |size: &mut u64, dim| {
                    *size = size.saturating_mul(dim.extent);
                    Some(*size)
                });
                match nests.take_while(|size| *size <= elements).last().unwrap_or(1) {
                    1 => elements.next_multiple_of(64),
                    grain => elements / grain * grain,
                }
            }
        }
    }
}
