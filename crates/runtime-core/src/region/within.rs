//! Which regions lie within the elements of others, byte by byte, decided exactly.
//!
//! Regions whose strides are multiples of the other's, as boxes of one array have, take one division per dimension. Others
//! are cut along their dimensions until the pieces do.

use smallvec::SmallVec;

use super::MAX_REGION_RANK;
use super::overlap::{Footprint, Term};

/// Pieces that one decision may look at.
const PIECES: u64 = 1 << 22;

/// The bytes at `low` plus any sum of multiples of strides: a footprint, the bytes of whose elements are a dimension.
struct Bytes {
    low: i64,
    // Largest stride first; the last is 1.
    terms: SmallVec<[Term; MAX_REGION_RANK + 1]>,
}

impl Footprint {
    /// Whether every byte is one of `parts`; `None` if that takes more than four million steps.
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

    /// With dimensions that leave no gaps between them as one.
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

    /// Whether these contain others, as far as strides tell that are multiples of these. Where strides nest, each place has
    /// one index, found by division.
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
            // Where strides do not nest, a place can have an index that division does not find.
            let byte = Footprint::new(1, usize::try_from(low).ok()?, &[], &[]);
            for part in self.parts {
                if !byte.is_apart(part)? {
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
