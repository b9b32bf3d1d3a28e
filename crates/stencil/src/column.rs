//! Columns: what a launch checks, and what a column reads along its axis.

use runtime_core::{Error, ErrorKind, Result};

use crate::description::{ColumnParts, EndReach, FieldParts};
use crate::field::{Core, End};

/// Refuses a column along an axis whose points are on several ranks, or which has no ends; and one that computes ghosts
/// where it does not go outwards from an end.
pub(crate) fn check(column: &ColumnParts, output: &Core, on: Option<End>) -> Result<()> {
    let (grid, axis, name) = (&output.grid, column.axis, &output.name);
    let blocks = grid.blocks[axis];
    let outwards = if column.is_forward { End::High(axis) } else { End::Low(axis) };
    let message = if column.ghosts && on != Some(outwards) {
        format!("it computes the ghosts beyond an end: launch it with `on(End::{outwards:?})`")
    } else if on.is_some_and(|end| end.place().0 == axis) {
        return Ok(());
    } else if grid.periodic[axis] {
        format!(
            "it goes along axis {axis}, which has no ends in the grid of {name}: a column has a first and a last point"
        )
    } else if blocks > 1 {
        format!(
            "it goes along axis {axis}, which the grid of {name} divides among {blocks} ranks; at most 1: set the numbers of blocks with `GridBuilder::blocks`"
        )
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidArgument, "run", message))
}

/// What columns of `points` points read of a field.
pub(crate) fn known(
    column: &ColumnParts,
    field: usize,
    known: &FieldParts,
    points: usize,
) -> FieldParts {
    let mut known = *known;
    let reach = column.reach.get(field).and_then(|ends| reach(ends, column.is_forward, points));
    known.is_read = reach.is_some();
    known.reach[column.axis] = reach.unwrap_or([0; 2]);
    known
}

/// How far a field is read before the first and behind the last of `points` points, if it is read.
fn reach(ends: &EndReach, is_forward: bool, points: usize) -> Option<[i64; 2]> {
    let last = i64::try_from(points).unwrap_or(i64::MAX).checked_sub(1)?;
    // The points at which the field is read alike, and how far.
    let parts = match last {
        ..0 => [None; 3],
        0 => [Some((0, 0, ends[1][1])), None, None],
        _ => {
            let (low, high) = (ends[1][0], ends[0][1]);
            let (low, high) = if is_forward { (low, high) } else { (high, low) };
            let between = (last > 1).then_some((1, last - 1, ends[0][0]));
            [Some((0, 0, low)), between, Some((last, last, high))]
        }
    };
    let parts = parts.into_iter().flatten();
    let reaches = parts.filter_map(|(from, to, reach)| {
        let [low, high] = reach?;
        Some([from + low, to + high - last])
    });
    reaches.reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_reaches_as_far_as_each_of_its_points() {
        let mut random = 1_u64;
        let mut next = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) % n).cast_signed()
        };
        for _ in 0..500 {
            let mut one = || {
                (next(3) > 0).then(|| [next(5) - 2, next(5) - 2]).map(|[a, b]| [a.min(b), a.max(b)])
            };
            let ends = [[one(), one()], [one(), one()]];
            for (points, is_forward) in (0..6).flat_map(|n| [(n, true), (n, false)]) {
                let read = (0..points).filter_map(|point| {
                    let mut is_end = [point == 0, point + 1 == points].map(usize::from);
                    if !is_forward {
                        is_end.reverse();
                    }
                    ends[is_end[0]][is_end[1]].map(|reach| reach.map(|by| point + by))
                });
                let all = read.reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])]);
                let expected = all.map(|[low, high]| [low, high - (points - 1)]);
                let found = reach(&ends, is_forward, usize::try_from(points).unwrap());
                assert_eq!(found, expected, "{ends:?} of {points}, {is_forward}");
            }
        }
    }
}
