//! Lowers a program to launches.

use runtime_core::{Error, ErrorKind, RegionProgram, Result};

use super::piece::Piece;
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
        let mut pieces = Vec::with_capacity(phase.copies().len());
        for copy in phase.copies() {
            match kernel.mapping {
                Mapping::Runs => Piece::add(copy, &mut pieces),
                Mapping::Lanes => Piece::add_slabs(copy, limits.slab, &mut pieces),
            }
        }
        if !kernel.has_f64 && pieces.iter().any(|piece| piece.rule.code == Code::AddF64) {
            let message = "a sum of f64 or c128 on a device without double precision";
            return Err(refuse(message.to_owned()));
        }
        let mut left = &mut *pieces;
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
    Ok(lowered)
}

/// Moves pieces to the front that together need at most `most` slots. Returns these slots and the number of pieces.
fn gather(pieces: &mut [Piece], most: usize) -> (Vec<usize>, usize) {
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
fn bind(slots: &mut Vec<usize>, piece: &Piece, most: usize) -> bool {
    let before = slots.len();
    for slot in [piece.to_slot, piece.from_slot] {
        if !slots.contains(&slot) {
            slots.push(slot);
        }
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
        pieces: &[Piece],
        slots: Vec<usize>,
    ) -> Result<()> {
        let rank = pieces.iter().map(|piece| piece.dims().len()).max().unwrap_or(0);
        let record = words::DIMS + rank * words::PER_DIM;
        let start = self.words.len();
        let room = words::HEADER + pieces.len() * (1 + record);
        self.words.try_reserve(room).map_err(|source| {
            let message = format!("{room} words for {} copies: {source}", pieces.len());
            Error::new(ErrorKind::OutOfMemory, "lower_regions", message)
        })?;
        let share = Share::new(mapping, limits, pieces);
        let mut chunks = 0_u64;
        self.words.extend([pieces.len() as u64, 0, record as u64]);
        // The first chunks come before all records.
        let firsts = self.words.len();
        self.words.resize(firsts + pieces.len(), 0);
        for (index, piece) in pieces.iter().enumerate() {
            self.words[firsts + index] = chunks;
            let cut = Cut::new(mapping, limits, &share, piece);
            self.record(piece, &cut, &slots, rank);
            // Elements are at most 2^60 bytes per slot, and a phase at most 2^64 bytes.
            let slabs = piece.elements() / cut.elements;
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

    fn record(&mut self, piece: &Piece, cut: &Cut, slots: &[usize], rank: usize) {
        let is_identity = |slot: usize| slots.get(slot) == Some(&slot);
        let search = |slot| slots.iter().position(|bound| *bound == slot).unwrap_or(0);
        let place = |slot| if is_identity(slot) { slot } else { search(slot) } as u64;
        let mut record = [0; words::DIMS];
        record[words::TO_SLOT] = place(piece.to_slot);
        record[words::TO_OFFSET] = piece.to_offset;
        record[words::FROM_SLOT] = place(piece.from_slot);
        record[words::FROM_OFFSET] = piece.from_offset;
        record[words::CODE] = piece.rule.code as u64;
        record[words::UNIT] = piece.unit.ilog2().into();
        record[words::WORD] = piece.word.ilog2().into();
        record[words::FLIP] = piece.rule.flip;
        record[words::CARRY] = piece.rule.carry;
        record[words::BIAS] = piece.rule.bias;
        record[words::INFINITY] = piece.rule.infinity;
        record[words::ELEMENTS] = cut.elements;
        record[words::CHUNK] = cut.chunk;
        record[words::RANK] = piece.dims().len() as u64;
        record[words::SLAB_RANK] = cut.rank as u64;
        record[words::SLAB_CHUNKS] = cut.chunks;
        self.words.extend(record);
        for dim in piece.dims() {
            let (to, from) = (dim.to.cast_unsigned(), dim.from.cast_unsigned());
            self.words.extend([dim.extent, to, from, words::reciprocal(dim.extent)]);
        }
        self.words.extend(std::iter::repeat_n(0, (rank - piece.dims().len()) * words::PER_DIM));
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
    fn new(mapping: Mapping, limits: RegionLimits, share: &Share, piece: &Piece) -> Self {
        let (rank, elements) = match mapping {
            Mapping::Runs => (piece.dims().len(), piece.elements()),
            Mapping::Lanes => {
                let slab = piece.slab(limits.slab);
                (slab.rank, slab.elements)
            }
        };
        let chunk = share.chunk(piece);
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
    fn new(mapping: Mapping, limits: RegionLimits, pieces: &[Piece]) -> Self {
        let sum = |of: fn(&Piece) -> u64| pieces.iter().map(of).fold(0, u64::saturating_add);
        let wanted = |per_unit| (limits.compute_units as u64).saturating_mul(per_unit);
        match mapping {
            Mapping::Runs => {
                let total = sum(|piece| piece.elements().saturating_mul(piece.cost()));
                Self::Cost(
                    (total / wanted(CHUNKS_PER_UNIT)).clamp(*RUN_COST.start(), *RUN_COST.end()),
                )
            }
            Mapping::Lanes => {
                let group = limits.group_size as u64;
                let at_once = words::AT_ONCE as u64;
                let of_group = sum(Piece::elements) / group;
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
    fn chunk(&self, piece: &Piece) -> u64 {
        match *self {
            Self::Elements(elements) => elements,
            Self::Cost(cost) => {
                let elements = (cost / piece.cost()).max(1);
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
