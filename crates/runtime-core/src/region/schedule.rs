//! Schedules the copies of a phase in host memory: loops, joint runs, and parts.

use std::collections::HashMap;
use std::ops::Range;

use super::item_loops::{self, ItemsKernel};
use super::items::LoweredItems;
use super::kernels::{self, Choice};
use super::loops::{self, Dim, LINE, SECOND};
use super::{LoweredCopy, MAX_REGION_RANK};

/// Minimum cost of a part, in bytes of memory traffic: 64 KiB read and written.
const PART_COST: u64 = 2 * (64 << 10);

/// The approximate maximum number of parts of a phase.
const MAX_PARTS: u64 = 1 << 10;

/// The most copies that are run together.
pub(super) const MAX_TOGETHER: usize = 8;

/// Longest row, in bytes, for which the first or last cache line is a significant part.
const SHORT_ROW: usize = 4 * LINE;

/// Number of rows that one copy is run for before the other copies it is run together with.
const TURN: usize = 64;

/// The copies of a phase with their loops, and parts of them that may run concurrently.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) jobs: Vec<Job>,
    /// The loops of each indexed copy.
    pub(super) item_kernels: Vec<ItemsKernel>,
    pub(super) parts: Vec<Part>,
}

/// Copies with the same loops.
///
/// There are several copies if their rows are short. The ghost cells at both ends of a row, the cells they are copied
/// from, and the ghost cells at the beginning of the next row lie in the same cache lines. These are fetched once if
/// the copies take turns.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) choice: Choice,
    /// Never empty, at most [`MAX_TOGETHER`].
    pub(super) places: Vec<Place>,
    /// The number of rows of the kernel's outer dimension that each copy is run for in its turn.
    pub(super) turn: usize,
}

/// The slots that a copy reads and writes, and the byte offsets in them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) source_slot: usize,
    pub(super) source_offset: usize,
    pub(super) destination_slot: usize,
    pub(super) destination_offset: usize,
}

/// A unit of work that runs on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Whole jobs.
    Jobs(Range<usize>),
    /// The piece of a job with these indices in one dimension.
    Piece { job: usize, dim: usize, range: Range<usize> },
    /// Items of an indexed copy.
    Items { copy: usize, range: Range<usize> },
}

impl Schedule {
    /// Chooses the loops of each copy, combines copies, and cuts them into parts.
    pub(super) fn new(copies: &[LoweredCopy], items: &[LoweredItems]) -> Self {
        let (jobs, costs) = gather(copies);
        let mut parts = cut(&jobs, &costs);
        for (copy, items) in items.iter().enumerate() {
            let shares = items.shares(PART_COST, LINE as u64, MAX_PARTS);
            parts.extend(shares.map(|range| Part::Items { copy, range }));
        }
        Self { jobs, item_kernels: items.iter().map(item_loops::kernel).collect(), parts }
    }
}

impl Place {
    fn of(copy: &LoweredCopy) -> Self {
        Self {
            source_slot: copy.source_slot(),
            source_offset: copy.source_offset(),
            destination_slot: copy.destination_slot(),
            destination_offset: copy.destination_offset(),
        }
    }
}

impl Job {
    fn new(copy: &LoweredCopy) -> Self {
        let choice = kernels::choose(copy);
        let Dim { to, from, .. } = choice.dims[MAX_REGION_RANK - 2];
        // The lines of a row on either side, of two copies, should stay in the second-level cache until the others'
        // turn.
        let stay = loops::resident(to, SECOND).min(loops::resident(from, SECOND)) / 4;
        Self { choice, places: vec![Place::of(copy)], turn: stay.clamp(1, TURN) }
    }

    /// Cuts the job into about `pieces` parts.
    fn cut(&self, job: usize, pieces: usize, parts: &mut Vec<Part>) {
        // The outermost dimension that is long enough, so that pieces are compact. Otherwise the longest.
        let dims = &self.choice.dims[..MAX_REGION_RANK - usize::from(!self.choice.splits_inner)];
        let enough = dims.iter().position(|dim| dim.extent >= 4 * pieces);
        let longest = (0..dims.len()).max_by_key(|&dim| (dims[dim].extent, usize::MAX - dim));
        let Some(dim) = enough.or(longest) else { return parts.push(Part::Jobs(job..job + 1)) };
        let extent = dims[dim].extent;
        // Kernels work best on whole tiles, and neighbouring parts should not share cache lines.
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
}

/// The jobs of the copies, in the order of their first copies, and their costs.
fn gather(copies: &[LoweredCopy]) -> (Vec<Job>, Vec<u64>) {
    let (mut jobs, mut costs): (Vec<Job>, Vec<u64>) = Default::default();
    let mut alike = HashMap::new();
    for copy in copies {
        let next = jobs.len();
        let mut alone = next;
        let known = match has_short_rows(copy) {
            true => alike.entry(copy.at_start()).or_insert(next),
            false => &mut alone,
        };
        if jobs.get(*known).is_some_and(|job: &Job| job.places.len() == MAX_TOGETHER) {
            *known = next;
        }
        let job = *known;
        if job == next {
            jobs.push(Job::new(copy));
            costs.push(0);
        } else {
            jobs[job].places.push(Place::of(copy));
        }
        costs[job] = costs[job].saturating_add(cost(copy));
    }
    (jobs, costs)
}

/// Whether other copies may use most of the cache lines that a copy touches.
fn has_short_rows(copy: &LoweredCopy) -> bool {
    match copy.extents() {
        [_, .., row] => row.saturating_mul(copy.dtype().size()) <= SHORT_ROW,
        _ => false,
    }
}

/// The cost in bytes of memory traffic. Whole lines are counted where neighbours in a line are not touched together.
fn cost(copy: &LoweredCopy) -> u64 {
    let size = copy.dtype().size() as u64;
    let side = |strides: &[isize]| {
        let nearest = copy.extents().iter().zip(strides);
        let nearest = nearest.map(|(_, stride)| stride.unsigned_abs() as u64).min();
        nearest.unwrap_or(size).clamp(size, LINE as u64)
    };
    let per_element = side(copy.source_strides()) + side(copy.destination_strides());
    (copy.elements() as u64).saturating_mul(per_element)
}

/// Cuts expensive jobs and groups cheap ones.
fn cut(jobs: &[Job], costs: &[u64]) -> Vec<Part> {
    let total = costs.iter().fold(0, |sum: u64, cost| sum.saturating_add(*cost));
    let target = PART_COST.max(total / MAX_PARTS);
    let mut parts = Vec::new();
    let (mut first, mut gathered) = (0, 0);
    for (index, (job, cost)) in jobs.iter().zip(costs).enumerate() {
        let pieces = usize::try_from(cost / target).unwrap_or(usize::MAX);
        let ends = gathered + cost.min(&target) >= target;
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
    parts
}

#[cfg(test)]
mod tests {
    use super::super::{RegionCopy, RegionProgram, RegionSide};
    use super::*;
    use crate::DType;

    /// Copies of `rows` × `row` elements from slot 0 to slot 1, side by side.
    fn side_by_side(number: usize, rows: usize, row: usize) -> Schedule {
        let pitch = (number * row * 4).cast_signed();
        let copies: Vec<RegionCopy> = (0..number)
            .map(|index| {
                let side =
                    |slot| RegionSide { slot, offset: index * row * 4, strides: vec![pitch, 4] };
                RegionCopy {
                    dtype: DType::F32,
                    extents: vec![rows, row - 1],
                    source: side(0),
                    destination: side(1),
                    negate: false,
                    combine: Default::default(),
                }
            })
            .collect();
        RegionProgram::new(&copies).unwrap().phases()[0].schedule.clone()
    }

    #[test]
    fn short_rows_with_the_same_loops_take_turns() {
        let together = |schedule: &Schedule| -> Vec<usize> {
            schedule.jobs.iter().map(|job| job.places.len()).collect()
        };
        assert_eq!(together(&side_by_side(3, 10, 4)), [3]);
        assert_eq!(together(&side_by_side(2 * MAX_TOGETHER + 1, 10, 4)), [8, 8, 1]);
        assert_eq!(together(&side_by_side(3, 10, 1000)), [1, 1, 1]);
    }

    #[test]
    fn turns_are_as_long_as_the_cache_remembers() {
        assert_eq!(side_by_side(3, 1000, 5).jobs[0].turn, TURN);
        // Rows so far apart that few of their lines fit at once.
        let far = side_by_side(2, 1000, 64 << 10).jobs[0].turn;
        assert!((1..8).contains(&far), "{far}");
    }

    #[test]
    fn entries_of_one_group_are_split_together() {
        let schedule = side_by_side(4, 100_000, 4);
        assert_eq!(schedule.jobs.len(), 1);
        let pieces: usize = schedule
            .parts
            .iter()
            .map(|part| match part {
                Part::Piece { job: 0, dim, range } if *dim == MAX_REGION_RANK - 2 => range.len(),
                other => panic!("{other:?}"),
            })
            .sum();
        assert!(schedule.parts.len() > 10, "{} parts", schedule.parts.len());
        assert_eq!(pieces, 100_000);
    }

    #[test]
    fn a_group_one_entry_too_large_is_split_too() {
        let schedule = side_by_side(MAX_TOGETHER + 1, 100_000, 4);
        assert_eq!(schedule.jobs.len(), 2);
        let whole = |part: &Part| matches!(part, Part::Jobs(_));
        assert!(!schedule.parts.iter().any(whole), "{:?}", schedule.parts);
    }
}
