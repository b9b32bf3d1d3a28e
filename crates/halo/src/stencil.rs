//! The elements of a stencil step that need the halo.

use std::ops::Range;

/// The elements of a stencil step: those that need no ghosts, and those that do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stencil {
    /// The box of elements whose neighbours are all owned: compute it during the exchange. If there are no such
    /// elements, it is empty along some dimension.
    pub interior: Vec<Range<usize>>,
    /// Disjoint boxes of all other elements: compute them after the exchange.
    pub rim: Vec<Vec<Range<usize>>>,
}

/// Splits the owned elements of a field for a stencil that reaches `widths[d]` = (below, above) elements along
/// dimension `d`. The indices of the boxes have the same origin as `owned`: the first element of the memory for
/// [`Dim::owned`](crate::Dim::owned), or the first owned element, as in [`Progress::owned`](crate::Progress::owned),
/// for ranges that start at 0.
///
/// Rim boxes at the ends of the first dimensions span all later dimensions: in row-major order the largest boxes are
/// contiguous. Dimensions without a width are not cut.
///
/// ```
/// use halo::interior_and_rim;
///
/// let step = interior_and_rim(&[3..35, 3..67], &[(1, 1), (2, 2)]);
/// assert_eq!(step.interior, [4..34, 5..65]);
/// assert_eq!(step.rim, [vec![3..4, 3..67], vec![34..35, 3..67], vec![4..34, 3..5], vec![4..34, 65..67]]);
/// ```
pub fn interior_and_rim(owned: &[Range<usize>], widths: &[(usize, usize)]) -> Stencil {
    let mut interior = owned.to_vec();
    let mut rim = Vec::new();
    for (dim, &(below, above)) in widths.iter().enumerate().take(owned.len()) {
        let Range { start, end } = owned[dim];
        // If the widths at both ends exceed the extent, the lower end takes its part first.
        let low = start.saturating_add(below).min(end.max(start));
        let high = end.saturating_sub(above).max(low);
        for ends in [start..low, high..end] {
            let mut piece = interior.clone();
            piece[dim] = ends;
            if piece.iter().all(|range| !range.is_empty()) {
                rim.push(piece);
            }
        }
        interior[dim] = low..high;
    }
    Stencil { interior, rim }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holds(piece: &[Range<usize>], at: [usize; 3]) -> bool {
        piece.iter().zip(at).all(|(range, index)| range.contains(&index))
    }

    proptest! {
        #[test]
        fn boxes_tile_and_the_interior_needs_no_ghost(
            starts in prop::array::uniform3(0..4_usize),
            extents in prop::array::uniform3(0..7_usize),
            widths in prop::array::uniform3((0..5_usize, 0..5_usize)),
        ) {
            let owned: Vec<_> = (0..3).map(|d| starts[d]..starts[d] + extents[d]).collect();
            let step = interior_and_rim(&owned, &widths);
            for i in 0..12 {
                for j in 0..12 {
                    for k in 0..12 {
                        let at = [i, j, k];
                        let count = usize::from(holds(&step.interior, at))
                            + step.rim.iter().filter(|piece| holds(piece, at)).count();
                        prop_assert_eq!(count, usize::from(holds(&owned, at)), "{:?}", at);
                        let inside = (0..3).all(|d| {
                            at[d] >= owned[d].start + widths[d].0 && at[d] + widths[d].1 < owned[d].end
                        });
                        prop_assert_eq!(holds(&step.interior, at), inside, "{:?}", at);
                    }
                }
            }
        }
    }
}
