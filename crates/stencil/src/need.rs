//! The ghosts that a launch needs of each field.

use std::ops::Range;

use runtime_core::{Error, ErrorKind, Result};

use crate::boundary::Rule;
use crate::description::FieldParts;
use crate::domain::Domain;
use crate::field::{Core, End};
use crate::grid::MAX_WIDTH;
use crate::shape::{Ends, Need};

/// The points that a launch computes.
pub(crate) struct Target<'a> {
    pub(crate) output: &'a Core,
    /// Those of all ranks. Along the axis of `on`, the ghosts beyond that end, counted from the lowest.
    pub(crate) global: &'a [Range<usize>; 3],
    pub(crate) on: Option<End>,
}

impl Target<'_> {
    /// Whether it is these ghosts along an axis: beyond the low end, 0, or the high one, 1.
    fn side(&self, axis: usize) -> Option<usize> {
        self.on.map(End::place).filter(|(of, _)| *of == axis).map(|(_, side)| side)
    }
}

/// The ghosts that a stencil reads of one field.
pub(crate) struct Reads {
    /// Those that are exchanged or copied.
    pub(crate) need: Need,
    /// Whether it reads any, also those that a stencil has computed.
    pub(crate) has_ghosts: bool,
    /// The ends beyond which it reads ghosts that a stencil has computed.
    pub(crate) computed: Ends,
}

/// Finds what a stencil reads of a field. Refuses what the field cannot have, after this number of resets of the grid.
pub(crate) fn reads(
    grid: &Domain,
    target: &Target<'_>,
    field: &Core,
    known: &FieldParts,
    resets: u64,
) -> Result<Reads> {
    let Target { output, global, .. } = *target;
    let mut reads = Reads { need: Need::default(), has_ghosts: false, computed: Ends::default() };
    if !known.is_read || global[..grid.rank].iter().any(Range::is_empty) {
        return Ok(reads);
    }
    let is_called = || known.called(&field.name);
    let (mut shifted, mut is_beyond, mut axes) = (false, false, 0);
    for (axis, range) in global.iter().enumerate().take(grid.rank) {
        let [low, high] = known.reach[axis];
        shifted |= output.shape.staggered[axis] && !field.shape.staggered[axis];
        let points = grid.cells[axis] as i64 + i64::from(field.shape.staggered[axis]);
        let behind = grid.cells[axis] as i64 + i64::from(output.shape.staggered[axis]);
        let on = target.side(axis);
        let shift = on.map_or(0, |side| if side == 0 { -(range.end as i64) } else { behind });
        let first = shift + range.start as i64 + low;
        let end = shift + range.end as i64 + high;
        let beyond = [-first, end - points].map(|n| usize::try_from(n).unwrap_or(0));
        let staggered = usize::from(field.shape.staggered[axis]);
        if let Some(side) = on {
            is_beyond = beyond[side] > 0;
            let within = usize::try_from(if side == 0 { end } else { points - first }).unwrap_or(0);
            let has = grid.at_ends[axis][side] + staggered;
            if within > has {
                return Err(refuse(format!(
                    "{} is read {within} points within an end of axis {axis}; the block there has {has}",
                    is_called()
                )));
            }
            if beyond[side] > grid.width {
                return Err(refuse(format!(
                    "{} is read outwards, {} points beyond an end of axis {axis}; there are {} ghosts, and all are computed: read it at the point, or inwards",
                    is_called(),
                    beyond[side],
                    grid.width
                )));
            }
        }
        let between = reach(known, output, field, axis);
        let mut is_read = false;
        for side in 0..2 {
            let is_between = grid.is_joined(axis) && on.is_none();
            let needed = if is_between { between[side] } else { beyond[side] };
            if needed > grid.width {
                let hint = match needed {
                    ..=MAX_WIDTH => format!("make it with `halo({needed})`"),
                    _ => format!("no grid has more than {MAX_WIDTH}"),
                };
                return Err(refuse(format!(
                    "{} is read {needed} points beyond a block along axis {axis}; the grid has a halo of {}: {hint}",
                    is_called(),
                    grid.width
                )));
            }
            is_read |= needed > 0;
            reads.need.widths[axis][side] = needed;
            if grid.periodic[axis] || beyond[side] == 0 {
                continue;
            }
            let rule = field.rules[axis][side];
            match rule {
                Rule::Nothing => {
                    let end = if side == 0 { "before the first" } else { "behind the last" };
                    let instead =
                        if target.on.is_some() { "" } else { ", or use `inside` or `over`" };
                    let more = if side == 1 && behind > points {
                        format!("; {} has one point more along this axis", output.name)
                    } else {
                        String::new()
                    };
                    return Err(refuse(format!(
                        "{} is read {} {end} point along axis {axis}, where it has no boundary: give it one{instead}{more}",
                        is_called(),
                        beyond[side]
                    )));
                }
                Rule::Computed => {
                    let end = [End::Low(axis), End::High(axis)][side];
                    field.check_computed(end, resets)?;
                    reads.computed[axis][side] = true;
                    if !grid.is_joined(axis) {
                        reads.need.widths[axis][side] = 0;
                    }
                }
                _ => {}
            }
            let (taken, has) =
                (rule.points(needed, staggered), grid.at_ends[axis][side] + staggered);
            if taken > has {
                return Err(refuse(format!(
                    "the boundary of {} at an end of axis {axis} is made of {taken} points; the block there has {has}",
                    is_called()
                )));
            }
        }
        axes += usize::from(is_read);
    }
    reads.has_ghosts = axes > 0;
    reads.need.corners = axes > 1 && (known.has_diagonals || shifted || is_beyond);
    match End::marked(&reads.computed).last() {
        Some(end) if reads.need.corners => Err(refuse(format!(
            "{} is read at corners beside the ghosts beyond End::{end:?}, which a stencil computes: it computes none at corners",
            is_called()
        ))),
        _ => Ok(reads),
    }
}

/// How far beyond the low and the high end of a block a stencil reads a field, when it computes all points of an
/// output.
pub(crate) fn reach(known: &FieldParts, output: &Core, field: &Core, axis: usize) -> [usize; 2] {
    let [low, high] = known.reach[axis];
    // An output on faces has one point more than an input at centres.
    let more = i64::from(output.shape.staggered[axis]) - i64::from(field.shape.staggered[axis]);
    [-low, high + more].map(|n| usize::try_from(n).unwrap_or(0))
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "run", message)
}
