//! The shape of launches.

use std::ops::Range;

use runtime_core::{Launch, Limits};

/// A launch of one work-item for each point of a box: x runs along the last axis.
pub(crate) fn geometry(limits: &Limits, extents: &[usize]) -> Launch {
    let extent =
        |dimension: usize| extents.len().checked_sub(dimension + 1).map_or(1, |axis| extents[axis]);
    let mut left = limits.max_block_threads.clamp(1, 256);
    let (mut grid, mut block) = ([1; 3], [1; 3]);
    for dimension in 0..3 {
        let wanted = if dimension == 0 { 64 } else { 8 };
        let points = u32::try_from(extent(dimension)).unwrap_or(u32::MAX);
        let threads = wanted.min(limits.max_block[dimension]).min(left).min(points).max(1);
        // Divisions are slow, and grids are often small or of fewer dimensions.
        if threads > 1 {
            left /= threads;
            grid[dimension] = points.div_ceil(threads);
        } else {
            grid[dimension] = points;
        }
        block[dimension] = threads;
    }
    Launch::new(grid, block)
}

/// The most points of a box along an axis: kernels on GPUs count them in 32 bits, also those of the last block that
/// lie behind the box.
const MOST: usize = 1 << 31;

/// The boxes into which a box is cut so that a device takes the launch of each: usually one. A work-item computes all
/// points along the axis `along`, if there is one.
pub(crate) fn pieces(
    limits: &Limits,
    rank: usize,
    along: Option<usize>,
    points: &[Range<usize>; 3],
) -> impl Iterator<Item = [Range<usize>; 3]> + use<> {
    let points = points.clone();
    // A block has at least one point along each dimension.
    let most: [usize; 3] = std::array::from_fn(|axis| match rank.checked_sub(axis + 1) {
        Some(_) if along == Some(axis) => usize::MAX,
        Some(behind) => {
            let dimension = behind - usize::from(along.is_some_and(|along| along > axis));
            (limits.max_grid[dimension] as usize).clamp(1, MOST)
        }
        None => usize::MAX,
    });
    // Divisions are slow, and usually there is one box.
    let count = |axis: usize| {
        let len = points[axis].len();
        if len.wrapping_sub(1) < most[axis] { 1 } else { len.div_ceil(most[axis]) }
    };
    let counts: [usize; 3] = std::array::from_fn(count);
    let all = counts.iter().product();
    (0..all).map(move |number| {
        let places = match all {
            1 => [0; 3],
            _ => [
                number / (counts[1] * counts[2]),
                number / counts[2] % counts[1],
                number % counts[2],
            ],
        };
        std::array::from_fn(|axis| {
            let Range { start, end } = points[axis];
            let first = start + places[axis] * most[axis].min(end - start);
            first..end.min(first.saturating_add(most[axis]))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_cut_where_a_device_takes_too_few_blocks() {
        let limits = Limits::new(1 << 30, [u32::MAX, 100, 100], [64; 3], 256);
        let cut = |rank, points| pieces(&limits, rank, None, &points).collect::<Vec<_>>();
        assert_eq!(cut(2, [3..9, 0..5000, 0..1]), [[3..9, 0..5000, 0..1]]);
        assert_eq!(
            cut(2, [5..255, 1..4, 0..1]),
            [[5..105, 1..4, 0..1], [105..205, 1..4, 0..1], [205..255, 1..4, 0..1]]
        );
        assert_eq!(cut(3, [0..150, 0..101, 7..9]).len(), 4);
        assert_eq!(cut(1, [0..300, 0..1, 0..1]).len(), 1);
        assert!(cut(2, [3..3, 0..5, 0..1]).is_empty());
        let along = |axis, points| pieces(&limits, 3, Some(axis), &points).count();
        assert_eq!(along(0, [0..1000, 0..100, 0..1000]), 1);
        assert_eq!(along(1, [0..101, 0..1000, 0..1000]), 2);
        assert_eq!(along(2, [0..100, 0..1000, 0..1000]), 1);
    }

    #[test]
    fn points_of_a_box_are_counted_in_32_bits() {
        let limits = Limits::new(1 << 30, [u32::MAX; 3], [64; 3], 256);
        let end = (1_usize << 32) + 5;
        let boxes: Vec<_> = pieces(&limits, 2, None, &[0..3, 0..end, 0..1]).collect();
        assert_eq!(
            boxes,
            [[0..3, 0..MOST, 0..1], [0..3, MOST..2 * MOST, 0..1], [0..3, 2 * MOST..end, 0..1]]
        );
    }
}
