//! Whether parts of memory that are bound to several slots are distinct. What is usual is decided in almost linear
//! time: ranges of bytes, and columns, rows or blocks that lie between each other's elements.

use smallvec::SmallVec;

use crate::Layout;

/// Elements that are bound to a slot.
pub(crate) struct Piece<'a> {
    /// The address space.
    pub(crate) space: usize,
    /// The lowest byte, and the end.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) layout: &'a Layout,
    pub(crate) is_written: bool,
    pub(crate) slot: usize,
}

/// Bytes, or their places in a period, and whether they are written.
type Interval = (usize, usize, bool);

/// Two slots of which at least one is written, and that have elements in common. `meets` says whether two slots have.
pub(crate) fn meeting(
    pieces: &mut [Piece<'_>],
    mut meets: impl FnMut(usize, usize) -> bool,
) -> Option<(usize, usize)> {
    pieces.sort_unstable_by_key(|piece| (piece.space, piece.start, piece.end, piece.slot));
    let mut rest = &*pieces;
    while let Some(first) = rest.first() {
        // The pieces whose byte ranges overlap, also through others.
        let mut end = first.end;
        let is_connected = |piece: &&Piece<'_>| {
            let is_connected = piece.space == first.space && piece.start < end;
            end = end.max(piece.end);
            is_connected
        };
        let (group, after) = rest.split_at(rest.iter().take_while(is_connected).count());
        if group.len() > 1
            && !are_clearly_apart(group)
            && let Some(found) = compared(group, &mut meets)
        {
            return Some(found);
        }
        rest = after;
    }
    None
}

/// Compares the pieces whose byte ranges overlap, unless both are only read.
fn compared(
    group: &[Piece<'_>],
    meets: &mut impl FnMut(usize, usize) -> bool,
) -> Option<(usize, usize)> {
    let written: Vec<&Piece<'_>> = group.iter().filter(|piece| piece.is_written).collect();
    for (next, one) in (1..).zip(group) {
        let mut is_common =
            |other: &Piece<'_>| other.slot != one.slot && meets(one.slot, other.slot);
        let is_near = |other: &&Piece<'_>| other.start < one.end;
        let found = if one.is_written {
            group[next..].iter().take_while(is_near).find(|other| is_common(other))
        } else {
            // Those before it were compared with it.
            let key = (one.start, one.end, one.slot);
            let next = written.partition_point(|other| (other.start, other.end, other.slot) < key);
            written[next..].iter().copied().take_while(is_near).find(|other| is_common(other))
        };
        if let Some(other) = found {
            return Some((one.slot, other.slot));
        }
    }
    None
}

/// Whether the byte ranges are apart, or the places of the bytes in a period that all pieces have in common.
fn are_clearly_apart(group: &[Piece<'_>]) -> bool {
    let ranges = group.iter().map(|piece| (piece.start, piece.end, piece.is_written));
    if are_apart(ranges.collect()) {
        return true;
    }
    let Some(widest) = group.iter().max_by_key(|piece| piece.end - piece.start) else {
        return true;
    };
    steps(widest.layout).any(|(period, _)| {
        let base = group[0].start;
        let places = group.iter().map(|piece| {
            let low = (piece.start - base) % period;
            // A step of whole periods stays at the same place.
            let spread = steps(piece.layout)
                .filter(|(step, _)| step % period != 0)
                .try_fold(piece.layout.dtype().size(), |sum, (step, count)| {
                    sum.checked_add(step.checked_mul(count)?)
                })?;
            let high = low.checked_add(spread).filter(|high| *high <= period)?;
            Some((low, high, piece.is_written))
        });
        places.collect::<Option<_>>().is_some_and(are_apart)
    })
}

/// The distance in bytes between neighbours along each dimension, and the number of steps.
fn steps(layout: &Layout) -> impl Iterator<Item = (usize, usize)> {
    let size = layout.dtype().size();
    let dims = layout.shape().iter().zip(layout.strides());
    let steps =
        dims.map(move |(extent, stride)| (stride.unsigned_abs().saturating_mul(size), extent - 1));
    steps.filter(|(step, count)| *step > 0 && *count > 0)
}

/// Whether no interval that is written overlaps another one.
fn are_apart(mut intervals: SmallVec<[Interval; 16]>) -> bool {
    intervals.sort_unstable();
    let (mut end, mut written_end) = (0, 0);
    intervals.into_iter().all(|(low, high, is_written)| {
        let is_apart = low >= if is_written { end } else { written_end };
        end = end.max(high);
        written_end = if is_written { written_end.max(high) } else { written_end };
        is_apart
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::DType;
    use crate::region::are_apart as are_elements_apart;

    fn piece(slot: usize, start: usize, is_written: bool, layout: &Layout) -> Piece<'_> {
        let span = layout.span_bytes();
        let end = start + (span.end - span.start).cast_unsigned();
        Piece { space: 0, start, end, layout, is_written, slot }
    }

    fn layout(shape: &[usize], strides: &[isize]) -> Layout {
        Layout::new(DType::U32, shape, strides).unwrap()
    }

    /// The number of pairs that were compared to find that all pieces are distinct.
    #[track_caller]
    fn comparisons(mut pieces: Vec<Piece<'_>>) -> usize {
        let mut number = 0;
        let found = meeting(&mut pieces, |_, _| {
            number += 1;
            false
        });
        assert_eq!(found, None);
        number
    }

    #[test]
    fn columns_rows_and_blocks_of_one_memory_need_no_comparisons() {
        for n in [10_usize, 1000] {
            let wide = n.cast_signed();
            let column = layout(&[5, 3], &[3 * wide, wide]);
            let columns = (0..n).map(|i| piece(i, 64 + 4 * i, i % 2 == 0, &column));
            assert_eq!(comparisons(columns.rev().collect()), 0);
            let row = layout(&[n], &[1]);
            assert_eq!(comparisons((0..n).map(|i| piece(i, 4 * n * i, true, &row)).collect()), 0);
            // The middle axis of three is divided, and some blocks are bound twice for reading.
            let block = layout(&[4, 2, 5], &[10 * wide, 5, -1]);
            let blocks = (0..n).map(|i| piece(i, 40 * i, i % 2 == 0, &block));
            let again = (0..n).filter(|i| i % 2 == 1).map(|i| piece(n + i, 40 * i, false, &block));
            assert_eq!(comparisons(blocks.chain(again).collect()), 0);
            assert_eq!(comparisons((0..n).map(|i| piece(i, 0, false, &column)).collect()), 0);
        }
    }

    #[test]
    fn tiles_are_compared_within_their_band_alone() {
        for n in [8_usize, 32] {
            let tile = layout(&[4, 4], &[4 * n.cast_signed(), 1]);
            let tiles = (0..n * n).map(|i| piece(i, 4 * (i / n * 16 * n + i % n * 4), true, &tile));
            assert!(comparisons(tiles.collect()) <= n * n * n);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn slots_with_common_elements_are_found(
            pieces in prop::collection::vec(
                (0..40_usize, any::<bool>(), prop::collection::vec((1..4_usize, -12..13_isize), 1..4)),
                1..6,
            ),
        ) {
            let layouts: Vec<Layout> = pieces.iter().map(|(.., dims)| {
                let (shape, strides): (Vec<_>, Vec<_>) = dims.iter().copied().unzip();
                layout(&shape, &strides)
            }).collect();
            let of = || pieces.iter().zip(&layouts).enumerate().map(|(slot, ((start, is_written, _), layout))| {
                piece(slot, 4 * start, *is_written, layout)
            });
            let all: Vec<_> = of().collect();
            let meets = |one: usize, other: usize| {
                let (a, b) = (&all[one], &all[other]);
                let low = a.start.min(b.start);
                (a.is_written || b.is_written)
                    && !are_elements_apart((a.start - low, a.layout), (b.start - low, b.layout))
            };
            let found = meeting(&mut of().collect::<Vec<_>>(), meets);
            let slots = 0..all.len();
            let expected = slots.clone().any(|a| slots.clone().any(|b| a < b && meets(a, b)));
            prop_assert_eq!(found.is_some(), expected);
            prop_assert!(found.is_none_or(|(one, other)| meets(one, other)));
        }
    }
}
