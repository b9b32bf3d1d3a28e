//! Loops as in C programs.
#![expect(unsafe_code, reason = "indexes as C does, without checks")]

use std::ptr::copy_nonoverlapping;

use crate::case::{Case, Region};

/// Copies the elements of a box one at a time.
///
/// # Safety
///
/// Both boxes lie in memory that their pointers may access, and do not overlap.
pub(crate) unsafe fn copy_box(
    extents: [usize; 3],
    from: *const f64,
    [from_row, from_plane]: [usize; 2],
    to: *mut f64,
    [to_row, to_plane]: [usize; 2],
) {
    let [planes, rows, elements] = extents;
    for i in 0..planes {
        for j in 0..rows {
            let from = from.wrapping_add(i * from_plane + j * from_row);
            let to = to.wrapping_add(i * to_plane + j * to_row);
            for k in 0..elements {
                // SAFETY: one element of the current row, in both boxes.
                unsafe { copy_nonoverlapping(from.wrapping_add(k), to.wrapping_add(k), 1) };
            }
        }
    }
}

/// The start of a box in a field.
pub(crate) fn start(case: &Case, at: [usize; 3]) -> usize {
    let [row, plane] = case.pitches();
    at[0] * plane + at[1] * row + at[2]
}

/// The halos of a single rank: each direction's ghosts are copied from the opposite end of the same field.
pub(crate) fn exchange<'a>(
    case: &Case,
    regions: &[Region],
    fields: impl Iterator<Item = &'a mut [f64]>,
) {
    let pitches = case.pitches();
    for field in fields {
        assert_eq!(field.len(), case.edge().pow(3));
        let base = field.as_mut_ptr();
        for region in regions {
            // The neighbour beyond this side sends the cells at its opposite end.
            let sent = regions.iter().find(|sent| sent.id == region.opposite).expect("26 regions");
            let (from, to) = (start(case, sent.owned), start(case, region.ghosts));
            let (from, to) = (base.wrapping_add(from), base.wrapping_add(to));
            // SAFETY: both boxes lie in the field, and owned cells and ghosts do not overlap.
            unsafe { copy_box(region.extents, from, pitches, to, pitches) };
        }
    }
}
