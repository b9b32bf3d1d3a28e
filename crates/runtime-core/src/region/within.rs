//! Decides exactly, byte by byte, whether a region lies within the elements of other regions.
//!
//! If a region's strides are multiples of the other's, as for boxes of one array, this takes one division per
//! dimension. Other regions are cut along their dimensions until this holds for the pieces.

use smallvec::SmallVec;

use super::MAX_REGION_RANK;
use super::footprint::{Footprint, Term};

/// The most pieces that one decision may examine.
pub(super) const PIECES: u64 = 1 << 22;

/// The bytes at `low` plus any sum of multiples of strides. The bytes of an element form a dimension of their own.
struct Bytes {
    low: i64,
    // Largest stride first. The last stride is 1.
    terms: SmallVec<[Term; MAX_REGION_RANK + 1]>,
}

impl Footprint {
    /// Whether every byte is one of `parts`. `None` if deciding takes more than [`PIECES`] steps.
    pub(super) fn is_within(&self, parts: &[&Self]) -> Option<bool> {
        let low = parts.iter().map(|part| part.low).min();
        let end = parts.iter().map(|part| part.end()).max();
        if low.is_none_or(|low| self.low < low) || end.is_none_or(|end| end < self.end()) {
            return Some(false);
        }
        let joined = parts.iter().map(|part| Bytes::joined(part)).collect::<SmallVec<[_; 2]>>();
        let mut search = Search { parts, joined: &joined, left: PIECES };
        let own = Bytes::of(self);
        search.contains(own.low, &own.terms)
    }
}

impl Bytes {
    fn of(footprint: &Footprint) -> Self {
        let bytes = Term { stride: 1, steps: footprint.size - 1 };
        let terms = footprint.terms().iter().copied().chain([bytes]).collect();
        Self { low: footprint.low, terms }
    }

    /// Merges dimensions without gaps between them.
    fn joined(footprint: &Footprint) -> Self {
        let Self { low, terms: all } = Self::of(footprint);
        let mut terms: SmallVec<[Term; MAX_REGION_RANK + 1]> = SmallVec::new();
        for outer in all.into_iter().rev() {
            match terms.last_mut() {
                Some(inner)
                    if outer.stride % inner.stride == 0
                        && outer.stride <= inner.stride * (inner.steps + 1) =>
                {
                    inner.steps += outer.stride / inner.stride * outer.steps;
                }
                _ => terms.push(outer),
            }
        }
        terms.reverse();
        Self { low, terms }
    }

    /// Whether these bytes contain the others, as far as it follows from strides that are multiples of these. If
    /// strides nest, each position has one index, which division finds.
    fn contains(&self, low: i64, others: &[Term]) -> bool {
        let mut left = low - self.low;
        let mut others = others.iter().peekable();
        left >= 0
            && self.terms.iter().all(|term| {
                let mut last = left / term.stride;
                left %= term.stride;
                while let Some(other) = others.next_if(|other| other.stride % term.stride == 0) {
                    last += other.stride / term.stride * other.steps;
                }
                last <= term.steps
            })
    }
}

struct Search<'a> {
    parts: &'a [&'a Footprint],
    /// The same parts.
    joined: &'a [Bytes],
    left: u64,
}

impl Search<'_> {
    fn contains(&mut self, low: i64, terms: &[Term]) -> Option<bool> {
        self.left = self.left.checked_sub(1)?;
        if self.joined.iter().any(|part| part.contains(low, terms)) {
            return Some(true);
        }
        let Some((first, rest)) = terms.split_first() else {
            // If strides do not nest, a position can have an index that division does not find.
            let byte = Footprint::new(1, usize::try_from(low).ok()?, &[], &[]);
            for part in self.parts {
                if !byte.is_apart_within(part, &mut self.left)? {
                    return Some(true);
                }
            }
            return Some(false);
        };
        for step in 0..=first.steps {
            if !self.contains(low + step * first.stride, rest)? {
                return Some(false);
            }
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A side whose strides do not nest, and elements of it: each byte needs a search of its own.
    #[test]
    fn all_searches_of_a_check_share_one_budget() {
        let strides = [1_000_003, 999_983, 999_979, 999_961, 999_959, 999_953];
        let first: isize = strides.iter().zip([7, 7, 7, 0, 1, 7]).map(|(s, k)| s * k).sum();
        let whole = Footprint::new(1, 0, &[14; 6], &strides);
        let some = Footprint::new(1, first.unsigned_abs(), &[7; 6], &strides);
        assert_eq!(some.is_within(&[&whole]), None);
    }

    fn bytes(footprint: &Footprint) -> BTreeSet<i64> {
        let mut all = BTreeSet::new();
        let Ok(()) = footprint.for_each_run(|start, end| {
            all.extend(start..end);
            Ok::<_, std::convert::Infallible>(())
        });
        all
    }

    fn footprint() -> impl Strategy<Value = Footprint> {
        let dims = prop::collection::vec((1..5_usize, 0..13_isize), 0..4);
        (prop::sample::select(vec![1, 2, 4]), 0..12_usize, dims).prop_map(|(size, low, dims)| {
            let (extents, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
            Footprint::new(size, low, &extents, &strides)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn every_byte_decides(own in footprint(), parts in prop::collection::vec(footprint(), 0..3)) {
            let all: BTreeSet<i64> = parts.iter().flat_map(bytes).collect();
            let parts: Vec<&Footprint> = parts.iter().collect();
            prop_assert_eq!(own.is_within(&parts), Some(bytes(&own).is_subset(&all)));
        }
    }

    #[test]
    fn boxes_take_no_search_and_a_diagonal_one_piece_for_each_element() {
        let board = Footprint::new(8, 0, &[1 << 12, 1 << 12], &[1 << 16, 8]);
        let column = Footprint::new(4, 32, &[1 << 12, 2], &[1 << 16, 4]);
        assert_eq!(column.is_within(&[&board]), Some(true));
        let diagonal = Footprint::new(8, 0, &[1 << 12], &[(1 << 16) + 8]);
        assert_eq!(diagonal.is_within(&[&board]), Some(true));
        // Over the end of every row, which the first of them shows.
        let wide = Footprint::new(8, 0, &[1 << 11, 1 << 13], &[1 << 16, 8]);
        assert_eq!(wide.is_within(&[&board]), Some(false));
        let too_many = Footprint::new(8, 0, &[1 << 11, 1 << 12], &[(1 << 17) + (1 << 16), 8]);
        assert_eq!(too_many.is_within(&[&board, &board]), Some(false));
    }
}
