//! The shape of launches.

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
        block[dimension] = wanted.min(limits.max_block[dimension]).min(left).min(points).max(1);
        left /= block[dimension];
        grid[dimension] = points.div_ceil(block[dimension]);
    }
    Launch::new(grid, block)
}
