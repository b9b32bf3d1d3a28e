//! The bytes of a strided region.

use super::MAX_REGION_RANK;

/// The bytes that one side of a copy touches: elements of `size` bytes at `low` plus any sum of multiples of strides.
#[derive(Clone, Debug)]
pub(super) struct Footprint {
    pub(super) low: i64,
    pub(super) end: i64,
    pub(super) size: i64,
    rank: usize,
    // Largest stride first. Strides are positive, and so are the numbers of steps (the number of elements minus one).
    terms: [Term; MAX_REGION_RANK],
}

/// Any multiple of `stride` from 0 to `steps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) stride: i64,
    pub(super) steps: i64,
}

impl Term {
    pub(super) fn reach(self) -> i64 {
        self.stride * self.steps
    }
}

impl Footprint {
    /// The bytes of elements of `size` bytes, the first at `offset`. All lie between 0 and 2⁶⁰.
    pub(super) fn new(size: usize, offset: usize, extents: &[usize], strides: &[isize]) -> Self {
        let mut terms = [Term::default(); MAX_REGION_RANK];
        let mut rank = 0;
        let mut low = offset as i64;
        for (&extent, &stride) in extents.iter().zip(strides) {
            let (stride, steps) = (stride as i64, extent as i64 - 1);
            low += (stride * steps).min(0);
            if stride != 0 && steps != 0 {
                terms[rank] = Term { stride: stride.abs(), steps };
                rank += 1;
            }
        }
        terms[..rank].sort_by_key(|term| std::cmp::Reverse(term.stride));
        let size = size as i64;
        let end = low + size + terms.iter().map(|term| term.reach()).sum::<i64>();
        Self { low, end, size, rank, terms }
    }

    /// The offset past the last byte touched.
    pub(super) fn end(&self) -> i64 {
        self.end
    }

    pub(super) fn terms(&self) -> &[Term] {
        &self.terms[..self.rank]
    }

    /// Number of elements, counting elements at the same position separately. Saturating.
    pub(super) fn elements(&self) -> u64 {
        let counts = self.terms().iter().map(|term| (term.steps + 1).unsigned_abs());
        counts.fold(1, u64::saturating_mul)
    }

    /// Calls `f` with the start and end of byte runs that together make up the footprint. They overlap where its
    /// elements overlap. Stops when `f` fails.
    pub(super) fn for_each_run<E>(
        &self,
        mut f: impl FnMut(i64, i64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (outer, run) = match self.terms().split_last() {
            Some((last, outer)) if last.stride == self.size => (outer, self.size + last.reach()),
            _ => (self.terms(), self.size),
        };
        let mut index = [0_i64; MAX_REGION_RANK];
        let mut start = self.low;
        loop {
            f(start, start + run)?;
            let mut dim = outer.len();
            loop {
                if dim == 0 {
                    return Ok(());
                }
                dim -= 1;
                if index[dim] < outer[dim].steps {
                    index[dim] += 1;
                    start += outer[dim].stride;
                    break;
                }
                start -= outer[dim].reach();
                index[dim] = 0;
            }
        }
    }
}
