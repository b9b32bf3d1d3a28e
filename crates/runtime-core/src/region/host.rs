//! Running a program in host memory.
#![expect(unsafe_code, reason = "moves elements through raw pointers")]

use std::ops::Range;

use super::kernels::{self, Choice};
use super::loops::{self, Dim};
use super::{LoweredCopy, MAX_REGION_RANK, RegionProgram, SlotUse};

/// What a part should cost at least, in bytes that pass through memory: 64 KiB read and written.
const PART_COST: u64 = 2 * (64 << 10);

/// Parts that a phase is cut into at most, or a few more.
const MAX_PARTS: u64 = 1 << 10;

/// What one touched cache line costs.
const LINE: u64 = 64;

/// Host memory bound to one slot of a program: `len` bytes at `base`.
///
/// Where `base` is null, the copies that read or write the slot are left out.
#[derive(Clone, Copy, Debug)]
pub struct HostSlot {
    /// The first byte.
    pub base: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

impl HostSlot {
    /// No memory.
    pub const ABSENT: Self = Self { base: std::ptr::null_mut(), len: 0 };
}

// SAFETY: it is only a name for memory; the unsafe functions that use it say who may touch what.
unsafe impl Send for HostSlot {}
// SAFETY: as above.
unsafe impl Sync for HostSlot {}

/// How the copies of a phase are run in host memory.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    jobs: Vec<Job>,
    parts: Vec<Part>,
}

/// One copy with its loops.
#[derive(Clone, Debug)]
struct Job {
    choice: Choice,
    source_slot: usize,
    source_offset: usize,
    destination_slot: usize,
    destination_offset: usize,
}

/// Something to run by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Whole copies.
    Jobs(Range<usize>),
    /// The piece of a copy with these indices in one dimension.
    Piece { job: usize, dim: usize, range: Range<usize> },
}

impl Job {
    fn new(copy: &LoweredCopy) -> Self {
        Self {
            choice: kernels::choose(copy),
            source_slot: copy.source_slot(),
            source_offset: copy.source_offset(),
            destination_slot: copy.destination_slot(),
            destination_offset: copy.destination_offset(),
        }
    }

    /// The bytes of memory traffic: whole lines where neighbours in a line are not touched together.
    fn cost(copy: &LoweredCopy) -> u64 {
        let size = copy.dtype().size() as u64;
        let side = |strides: &[isize]| {
            let nearest = copy.extents().iter().zip(strides);
            let nearest = nearest.map(|(_, stride)| stride.unsigned_abs() as u64).min();
            nearest.unwrap_or(size).clamp(size, LINE)
        };
        let per_element = side(copy.source_strides()) + side(copy.destination_strides());
        (copy.elements() as u64).saturating_mul(per_element)
    }

    /// Cuts it into about `pieces` parts.
    fn cut(&self, job: usize, pieces: usize, parts: &mut Vec<Part>) {
        // The outermost dimension that is long enough, so that pieces are compact, else the longest.
        let dims = &self.choice.dims[..MAX_REGION_RANK - usize::from(!self.choice.splits_inner)];
        let enough = dims.iter().position(|dim| dim.extent >= 4 * pieces);
        let longest = (0..dims.len()).max_by_key(|&dim| (dims[dim].extent, usize::MAX - dim));
        let Some(dim) = enough.or(longest) else { return parts.push(Part::Jobs(job..job + 1)) };
        let extent = dims[dim].extent;
        // Kernels like whole tiles, and neighbouring parts should not share cache lines.
        let grain = match extent {
            _ if dim + 2 < MAX_REGION_RANK || extent < 64 => 1,
            _ if extent < 64 * pieces => 16,
            _ => 64,
        };
        let step = extent.div_ceil(pieces).next_multiple_of(grain);
        let starts = (0..extent).step_by(step);
        parts.extend(starts.map(|start| {
            let range = start..extent.min(start + step);
            if range.len() == extent {
                Part::Jobs(job..job + 1)
            } else {
                Part::Piece { job, dim, range }
            }
        }));
    }

    /// # Safety
    ///
    /// As [`RegionProgram::run`].
    unsafe fn run(&self, slots: &[HostSlot]) {
        // SAFETY: as the caller promises.
        unsafe { self.run_box(slots, &self.choice.dims, 0, 0) };
    }

    /// Runs a box of the copy whose first element is so many bytes from that of the whole; nothing if a slot is absent.
    ///
    /// # Safety
    ///
    /// As [`RegionProgram::run`]; the box is inside the copy's.
    unsafe fn run_box(
        &self,
        slots: &[HostSlot],
        dims: &[Dim; MAX_REGION_RANK],
        to: isize,
        from: isize,
    ) {
        let [target, source] =
            [self.destination_slot, self.source_slot].map(|slot| slots[slot].base);
        if target.is_null() || source.is_null() {
            return;
        }
        let to = target.wrapping_add(self.destination_offset).wrapping_offset(to);
        let from = source.cast_const().wrapping_add(self.source_offset).wrapping_offset(from);
        let first = dims.iter().position(|dim| dim.extent > 1).unwrap_or(MAX_REGION_RANK);
        // SAFETY: the slots are as the program demands, so that the box is inside them.
        unsafe { self.walk(first, dims, to, from) };
    }

    /// Runs the dimensions from `level` on.
    ///
    /// # Safety
    ///
    /// As [`Kernel`](super::loops::Kernel) for the box of these dimensions.
    unsafe fn walk(
        &self,
        level: usize,
        dims: &[Dim; MAX_REGION_RANK],
        to: *mut u8,
        from: *const u8,
    ) {
        let (blocked, block) = self.choice.block;
        if level + 1 == blocked && dims[blocked].extent > block {
            let mut part = *dims;
            for first in (0..dims[blocked].extent).step_by(block) {
                part[blocked].extent = block.min(dims[blocked].extent - first);
                let (to, from) = loops::at(to, from, dims[blocked], first);
                // SAFETY: a block of the box.
                unsafe { self.walk(level, &part, to, from) };
            }
            return;
        }
        let [.., outer, inner] = *dims;
        if level + 2 >= MAX_REGION_RANK {
            // SAFETY: as the caller promises; `choose` made the dimensions, and only those were cut that may be.
            return unsafe { (self.choice.kernel)(to, from, &[outer, inner]) };
        }
        for index in 0..dims[level].extent {
            let (to, from) = loops::at(to, from, dims[level], index);
            // SAFETY: a part of the box.
            unsafe { self.walk(level + 1, dims, to, from) };
        }
    }
}

impl Schedule {
    /// Chooses the loops of each copy and cuts them into parts.
    pub(super) fn new(copies: &[LoweredCopy]) -> Self {
        let jobs: Vec<Job> = copies.iter().map(Job::new).collect();
        let costs: Vec<u64> = copies.iter().map(Job::cost).collect();
        let total = costs.iter().fold(0, |sum: u64, cost| sum.saturating_add(*cost));
        let target = PART_COST.max(total / MAX_PARTS);
        let mut parts = Vec::new();
        let (mut first, mut gathered) = (0, 0);
        for (index, (job, cost)) in jobs.iter().zip(costs).enumerate() {
            let pieces = usize::try_from(cost / target).unwrap_or(usize::MAX);
            let ends = gathered + cost.min(target) >= target;
            if pieces >= 2 {
                if first < index {
                    parts.push(Part::Jobs(first..index));
                }
                job.cut(index, pieces, &mut parts);
            } else if ends {
                parts.push(Part::Jobs(first..index + 1));
            } else {
                gathered += cost;
                continue;
            }
            (first, gathered) = (index + 1, 0);
        }
        if first < jobs.len() {
            parts.push(Part::Jobs(first..jobs.len()));
        }
        Self { jobs, parts }
    }
}

impl RegionProgram {
    /// Runs all phases in host memory, on this thread, without allocating. `slots[i]` is the memory of slot `i`.
    ///
    /// # Safety
    ///
    /// There are as many slots as the program [has](Self::slots). Of each that it touches, `base` is null, or aligned as it
    /// demands and valid for reads, and for writes where it says so, of the bytes it demands, which are initialised.
    /// Slots that are written overlap no others. Nobody writes the bytes that the program touches, or reads those that
    /// it writes, until this returns.
    pub unsafe fn run(&self, slots: &[HostSlot]) {
        self.debug_check(slots);
        for job in self.phases().iter().flat_map(|phase| &phase.schedule.jobs) {
            // SAFETY: as the caller promises.
            unsafe { job.run(slots) };
        }
    }

    /// Number of parts that a phase is cut into, so that several threads can share it; 0 if there is no such phase.
    ///
    /// Parts cost about the same, and at least what copying 64 KiB does, if the phase costs that much. Elements that
    /// lie alone in their cache lines cost as much as whole lines.
    pub fn parts(&self, phase: usize) -> usize {
        self.phases().get(phase).map_or(0, |phase| phase.schedule.parts.len())
    }

    /// Runs one part of one phase, as [`run`](Self::run) does; nothing if there is no such part.
    ///
    /// Parts of a phase touch different bytes, or only read them, so they may run at once and in any order. A phase
    /// must be complete before the next one begins.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run), except that other parts of the same phase may run at the same time.
    pub unsafe fn run_part(&self, phase: usize, part: usize, slots: &[HostSlot]) {
        let Some(Schedule { jobs, parts }) = self.phases().get(phase).map(|phase| &phase.schedule)
        else {
            return;
        };
        self.debug_check(slots);
        match parts.get(part) {
            None => {}
            Some(Part::Jobs(range)) => {
                for job in &jobs[range.clone()] {
                    // SAFETY: as the caller promises.
                    unsafe { job.run(slots) };
                }
            }
            Some(Part::Piece { job, dim, range }) => {
                let job = &jobs[*job];
                let mut dims = job.choice.dims;
                let start = range.start.cast_signed();
                let (to, from) = (start * dims[*dim].to, start * dims[*dim].from);
                dims[*dim].extent = range.len();
                // SAFETY: as the caller promises; the range is inside the extent.
                unsafe { job.run_box(slots, &dims, to, from) };
            }
        }
    }

    /// What can be checked of the promises that come with slots, in debug builds.
    fn debug_check(&self, slots: &[HostSlot]) {
        debug_assert_eq!(slots.len(), self.slots().len());
        let is_touched = |slot: &HostSlot, used: &SlotUse| used.bytes > 0 && !slot.base.is_null();
        let bound = slots.iter().zip(self.slots());
        for (slot, used) in bound.filter(|(slot, used)| is_touched(slot, used)) {
            debug_assert!(slot.len >= used.bytes, "{} bytes of {}", slot.len, used.bytes);
            debug_assert_eq!(slot.base.align_offset(used.align), 0);
        }
    }
}
