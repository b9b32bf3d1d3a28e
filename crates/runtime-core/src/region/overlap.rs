//! Decides exactly which strided regions share bytes, and computes the resulting phases.
//!
//! Two regions overlap if a sum of bounded multiples of their strides can fall into a window of a few bytes. After a
//! test of the byte intervals, this is decided by branch and bound over the strides, largest first. Strides that nest,
//! as those of arrays do, leave one or two candidates each.
//!
//! In the worst case such sums are a knapsack problem. All tests of a batch therefore share a budget of steps: 4 per
//! element, but at least 2²² and at most 2²⁶. Every pair of regions examined counts as one step. When the budget is
//! spent, each remaining slot is decided by listing the bytes of its regions in sorted order. That takes O(n log n)
//! time for n elements and is refused for more than 2²⁴ elements. A batch therefore takes some tens of seconds and half
//! a gigabyte at most. A batch whose intervals rarely meet takes O(n log n) time for n entries.

use super::MAX_REGION_RANK;
use super::footprint::{Footprint, Term};
use super::program::refuse;
use crate::{ErrorKind, Result};

/// The least and the greatest number of steps that the tests of one batch may take.
const STEPS: (u64, u64) = (1 << 22, 1 << 26);

/// The most elements that are listed individually if those steps do not suffice.
const MAX_LISTED: u64 = 1 << 24;

impl Footprint {
    /// Whether the two share no byte. `None` if deciding takes more than a million steps.
    pub(super) fn is_apart(&self, other: &Self) -> Option<bool> {
        self.is_apart_within(other, &mut (1 << 20))
    }

    /// As [`is_apart`](Self::is_apart), with the number of steps that are left, which it reduces.
    pub(super) fn is_apart_within(&self, other: &Self, left: &mut u64) -> Option<bool> {
        let mut search = Search { left: *left };
        let overlap = search.overlap(self, other);
        *left = search.left;
        overlap.map(|overlap| !overlap)
    }
}

/// How a copy uses a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Reads it.
    Source,
    /// Overwrites it.
    Replace,
    /// Accumulates into it.
    Accumulate,
}

/// One side of one entry.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// The entry's number in the batch.
    pub(super) entry: usize,
    pub(super) slot: usize,
    pub(super) role: Role,
    pub(super) footprint: Footprint,
}

impl Span {
    fn is_source(&self) -> bool {
        self.role == Role::Source
    }

    /// Returns an error for two regions that overlap, unless both accumulate.
    fn clash(&self, other: &Self) -> Result<()> {
        if self.role == Role::Accumulate && other.role == Role::Accumulate {
            return Ok(());
        }
        let order = |span: &Self| (span.entry, !span.is_source());
        let (earlier, later) =
            if order(self) <= order(other) { (self, other) } else { (other, self) };
        let name = |span: &Self| match span.role {
            Role::Source => "source",
            Role::Replace => "destination",
            Role::Accumulate => "accumulating destination",
        };
        let whose = if earlier.entry == later.entry {
            "its own".to_owned()
        } else {
            format!("entry {}'s", earlier.entry)
        };
        let message =
            format!("its {} overlaps {whose} {} in slot {}", name(later), name(earlier), self.slot);
        Err(refuse(ErrorKind::InvalidArgument, later.entry, message))
    }

    /// The error for a destination in which two elements overlap.
    fn clash_with_itself(&self) -> Result<()> {
        let message =
            format!("two elements of its destination in slot {} lie on the same bytes", self.slot);
        Err(refuse(ErrorKind::InvalidArgument, self.entry, message))
    }
}

/// Computes the phase of each of `entries` entries so that accumulations into the same bytes run in entry order.
///
/// Fails if regions overlap that must not.
pub(super) fn phases(entries: usize, spans: &[Span]) -> Result<Vec<usize>> {
    let elements = spans.iter().map(|span| span.footprint.elements()).fold(0, u64::saturating_add);
    phases_within(entries, spans, elements.saturating_mul(4).clamp(STEPS.0, STEPS.1))
}

/// [`phases`] with the given number of steps before regions are listed.
fn phases_within(entries: usize, spans: &[Span], steps: u64) -> Result<Vec<usize>> {
    let mut search = Search { left: steps };
    let mut phases = vec![0; entries];
    let mut order: Vec<&Span> = spans.iter().collect();
    order.sort_by_key(|span| (span.slot, span.footprint.low, span.entry));
    for group in order.chunk_by(|a, b| a.slot == b.slot) {
        if group.iter().all(|span| span.is_source()) {
            continue;
        }
        match search.meetings(group)? {
            Some(mut meetings) => {
                meetings.sort_unstable();
                for (later, earlier) in meetings {
                    phases[later] = phases[later].max(phases[earlier] + 1);
                }
            }
            None => list(group, &mut phases)?,
        }
    }
    Ok(phases)
}

/// Finds the phases in one slot by listing the bytes of every region.
fn list(group: &[&Span], phases: &mut [usize]) -> Result<()> {
    let elements = group.iter().map(|span| span.footprint.elements()).fold(0, u64::saturating_add);
    let Some(last) = group.iter().max_by_key(|span| span.entry) else { return Ok(()) };
    if elements > MAX_LISTED {
        let message = format!(
            "cannot decide whether regions in slot {} overlap: {elements} elements, limit {MAX_LISTED}",
            last.slot
        );
        return Err(refuse(ErrorKind::InvalidArgument, last.entry, message));
    }
    // All bytes between two neighbouring `bounds` are touched in the same way.
    let mut bounds = Vec::new();
    for span in group {
        let Ok(()) = span.footprint.for_each_run(|start, end| {
            bounds.extend([start, end]);
            Ok::<_, std::convert::Infallible>(())
        });
    }
    bounds.sort_unstable();
    bounds.dedup();
    // The span that last touched them, as an index into `group`.
    let mut readers = vec![u32::MAX; bounds.len()];
    let mut writers = vec![u32::MAX; bounds.len()];
    let known = |index: u32| group.get(index as usize);
    let mut in_order: Vec<(u32, &Span)> = (0..).zip(group.iter().copied()).collect();
    in_order.sort_by_key(|(_, span)| (!span.is_source(), span.entry));
    for (index, span) in in_order {
        let mut phase = 0;
        span.footprint.for_each_run(|start, end| {
            let first = bounds.partition_point(|bound| *bound < start);
            let cells = bounds[first..].iter().take_while(|bound| **bound < end).count();
            for cell in first..first + cells {
                if span.is_source() {
                    readers[cell] = index;
                    continue;
                }
                if writers[cell] == index {
                    span.clash_with_itself()?;
                }
                if let Some(reader) = known(readers[cell]) {
                    span.clash(reader)?;
                }
                if let Some(writer) = known(writers[cell]) {
                    span.clash(writer)?;
                    phase = phase.max(phases[writer.entry] + 1);
                }
                writers[cell] = index;
            }
            Ok::<_, crate::Error>(())
        })?;
        if !span.is_source() {
            phases[span.entry] = phase;
        }
    }
    Ok(())
}

/// Overlap tests with a shared budget. `None` means that the budget did not suffice.
struct Search {
    left: u64,
}

impl Search {
    fn step(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    /// All pairs (later entry, earlier entry) of accumulations that overlap in one slot. `group` is sorted by start.
    fn meetings(&mut self, group: &[&Span]) -> Result<Option<Vec<(usize, usize)>>> {
        let mut meetings = Vec::new();
        // The spans whose interval may reach the current start.
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        for &span in group {
            let rivals: &mut [&mut Vec<&Span>] = if span.is_source() {
                &mut [&mut writers]
            } else {
                &mut [&mut writers, &mut readers]
            };
            for rivals in rivals {
                let mut next = 0;
                while let Some(&rival) = rivals.get(next) {
                    if rival.footprint.end <= span.footprint.low {
                        rivals.swap_remove(next);
                        continue;
                    }
                    next += 1;
                    match self.overlap(&span.footprint, &rival.footprint) {
                        None => return Ok(None),
                        Some(false) => {}
                        Some(true) => {
                            span.clash(rival)?;
                            let pair = (span.entry.max(rival.entry), span.entry.min(rival.entry));
                            meetings.push(pair);
                        }
                    }
                }
            }
            if span.is_source() {
                readers.push(span);
                continue;
            }
            match self.overlaps_itself(&span.footprint) {
                None => return Ok(None),
                Some(true) => span.clash_with_itself()?,
                Some(false) => writers.push(span),
            }
        }
        Ok(Some(meetings))
    }

    /// Whether two footprints share a byte.
    fn overlap(&mut self, a: &Footprint, b: &Footprint) -> Option<bool> {
        self.step()?;
        if a.end <= b.low || b.end <= a.low {
            return Some(false);
        }
        // The difference of two starts is `a.low - b.low + Σ a.strides - Σ b.strides`. The footprints overlap if it
        // lies strictly between `-a.size` and `b.size`. Counting the steps of `b` from their end makes every term
        // positive.
        let reach: i64 = b.terms().iter().map(|term| term.reach()).sum();
        let base = a.low - b.low - reach;
        let mut sum = Terms::default();
        for term in a.terms().iter().chain(b.terms()) {
            sum.push(*term);
        }
        self.meets(sum, 1 - a.size - base, b.size - 1 - base)
    }

    /// Whether two elements of one footprint share a byte.
    fn overlaps_itself(&mut self, a: &Footprint) -> Option<bool> {
        self.step()?;
        let terms = a.terms();
        let mut below = 0;
        let nested = terms.iter().rev().all(|term| {
            let clear = term.stride >= below + a.size;
            below += term.reach();
            clear
        });
        if nested {
            return Some(false);
        }
        // Two different indices first differ in some dimension. The difference there can be taken as positive; in later
        // dimensions it may have either sign.
        for (first, leading) in terms.iter().enumerate() {
            let mut sum = Terms::default();
            let mut base = leading.stride;
            sum.push(Term { steps: leading.steps - 1, ..*leading });
            for term in &terms[first + 1..] {
                sum.push(Term { steps: 2 * term.steps, ..*term });
                base -= term.reach();
            }
            if self.meets(sum, 1 - a.size - base, a.size - 1 - base)? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Whether some sum of the terms lies in `low..=high`.
    fn meets(&mut self, mut sum: Terms, mut low: i64, high: i64) -> Option<bool> {
        sum.sort();
        // Steps no longer than the window cover everything between the first and last position.
        while let Some(term) = sum.as_slice().last().filter(|term| term.stride <= high - low + 1) {
            low -= term.reach();
            sum.len -= 1;
        }
        let mut tails = [Tail::default(); 2 * MAX_REGION_RANK + 1];
        for (index, term) in sum.as_slice().iter().enumerate().rev() {
            let tail = tails[index + 1];
            tails[index] = Tail {
                reach: tail.reach + term.reach(),
                divisor: divisor(term.stride, tail.divisor),
            };
        }
        self.descend(sum.as_slice(), &tails, low, high)
    }

    fn descend(&mut self, terms: &[Term], tails: &[Tail], low: i64, high: i64) -> Option<bool> {
        self.step()?;
        let Tail { reach, divisor } = tails[0];
        if high < 0 || low > reach {
            return Some(false);
        }
        if low <= 0 || high >= reach {
            return Some(true);
        }
        // Here `0 < low <= high < reach`, so there is a term.
        let Some((term, rest)) = terms.split_first() else { return Some(false) };
        if high / divisor * divisor < low {
            return Some(false);
        }
        let least = low - tails[1].reach;
        let from = if least <= 0 { 0 } else { (least - 1) / term.stride + 1 };
        let to = term.steps.min(high / term.stride);
        if rest.is_empty() {
            return Some(from <= to);
        }
        for steps in (from..=to).rev() {
            let taken = steps * term.stride;
            if self.descend(rest, &tails[1..], low - taken, high - taken)? {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Properties of the terms from a given index on.
#[derive(Clone, Copy, Default)]
struct Tail {
    reach: i64,
    divisor: i64,
}

/// The terms of two footprints.
#[derive(Default)]
struct Terms {
    terms: [Term; 2 * MAX_REGION_RANK],
    len: usize,
}

impl Terms {
    fn push(&mut self, term: Term) {
        if term.steps > 0 {
            self.terms[self.len] = term;
            self.len += 1;
        }
    }

    fn as_slice(&self) -> &[Term] {
        &self.terms[..self.len]
    }

    /// Sorts by stride, largest first, and joins terms with the same stride.
    fn sort(&mut self) {
        let terms = &mut self.terms[..self.len];
        terms.sort_unstable_by_key(|term| std::cmp::Reverse(term.stride));
        let mut kept = 0;
        for index in 0..terms.len() {
            if kept > 0 && terms[kept - 1].stride == terms[index].stride {
                terms[kept - 1].steps += terms[index].steps;
            } else {
                terms[kept] = terms[index];
                kept += 1;
            }
        }
        self.len = kept;
    }
}

/// The greatest common divisor. With 0 it is the other number.
fn divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Extents, strides in elements, and the place of the lowest element.
    #[derive(Clone, Debug)]
    struct Region {
        size: usize,
        dims: Vec<(usize, isize)>,
        low: usize,
    }

    impl Region {
        fn footprint(&self) -> Footprint {
            let (extents, strides): (Vec<_>, Vec<_>) = self.dims.iter().copied().unzip();
            let below =
                |(extent, stride): &(usize, isize)| (extent - 1) * stride.min(&0).unsigned_abs();
            let offset = self.low + self.dims.iter().map(below).sum::<usize>();
            Footprint::new(self.size, offset, &extents, &strides)
        }

        /// The first byte of every element, as often as it occurs.
        fn starts(&self) -> Vec<i64> {
            let mut starts = vec![self.low as i64];
            for (extent, stride) in &self.dims {
                let steps = (0..*extent as i64).map(|step| step * stride.unsigned_abs() as i64);
                starts = steps.flat_map(|step| starts.iter().map(move |s| s + step)).collect();
            }
            starts
        }

        fn bytes(&self) -> BTreeSet<i64> {
            self.starts().iter().flat_map(|start| *start..start + self.size as i64).collect()
        }
    }

    fn region() -> impl Strategy<Value = Region> {
        let strides = prop_oneof![
            -40..40_isize,
            prop::sample::select(vec![1, 2, 3, 6, 8, 12, 24, 30, 36, -6, -8, -36_isize])
        ];
        let dims = prop::collection::vec((1..6_usize, strides), 0..5);
        (prop::sample::select(vec![1, 2, 4, 8_usize]), dims, 0..60_usize)
            .prop_map(|(size, dims, low)| Region { size, dims, low })
    }

    fn span(entry: usize, role: Role, region: &Region) -> Span {
        Span { entry, slot: 0, role, footprint: region.footprint() }
    }

    fn role() -> impl Strategy<Value = Role> {
        prop_oneof![
            2 => Just(Role::Source),
            1 => Just(Role::Replace),
            2 => Just(Role::Accumulate)
        ]
    }

    /// The expected result of `phases`, computed from sets of bytes. `None` for an error.
    fn oracle(spans: &[(Role, Region)]) -> Option<Vec<usize>> {
        let mut phases = vec![0; spans.len()];
        let sets: Vec<_> = spans.iter().map(|(_, region)| region.bytes()).collect();
        for (later, (role, region)) in spans.iter().enumerate() {
            let bytes = region.starts().len() * region.size;
            if *role != Role::Source && bytes != sets[later].len() {
                return None;
            }
            for earlier in 0..later {
                let roles = (spans[earlier].0, *role);
                if roles == (Role::Source, Role::Source) || sets[earlier].is_disjoint(&sets[later])
                {
                    continue;
                }
                if roles != (Role::Accumulate, Role::Accumulate) {
                    return None;
                }
                phases[later] = phases[later].max(phases[earlier] + 1);
            }
        }
        Some(phases)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn overlaps_are_those_of_the_sets_of_bytes(a in region(), b in region()) {
            let mut search = Search { left: u64::MAX };
            let (of_a, of_b) = (a.footprint(), b.footprint());
            let expected = !a.bytes().is_disjoint(&b.bytes());
            prop_assert_eq!(search.overlap(&of_a, &of_b), Some(expected));
            prop_assert_eq!(search.overlap(&of_b, &of_a), Some(expected));
            let expected = a.starts().len() * a.size != a.bytes().len();
            // A stride of zero is refused before it gets here.
            if a.dims.iter().all(|(extent, stride)| *extent == 1 || *stride != 0) {
                prop_assert_eq!(search.overlaps_itself(&of_a), Some(expected));
            }
        }

        #[test]
        fn runs_are_the_set_of_bytes(region in region()) {
            let mut bytes = BTreeSet::new();
            let Ok(()) = region.footprint().for_each_run(|start, end| {
                bytes.extend(start..end);
                Ok::<_, std::convert::Infallible>(())
            });
            prop_assert_eq!(bytes, region.bytes());
        }

        #[test]
        fn phases_follow_from_the_sets_of_bytes(
            mut spans in prop::collection::vec((role(), region()), 1..5),
            apart in any::<bool>(),
        ) {
            for (index, (_, region)) in spans.iter_mut().enumerate() {
                region.dims.retain(|(_, stride)| *stride != 0);
                if apart {
                    region.low += index * 100;
                }
            }
            let expected = oracle(&spans);
            let spans: Vec<Span> =
                spans.iter().enumerate().map(|(n, (role, region))| span(n, *role, region)).collect();
            // Searched, and listed.
            for steps in [u64::MAX, 0, 7] {
                let phases = phases_within(spans.len(), &spans, steps);
                prop_assert_eq!(phases.as_ref().ok(), expected.as_ref(), "{} steps: {:?}", steps, phases);
            }
        }
    }

    #[test]
    fn interleaved_regions_take_few_steps() {
        // 64 components of a structure of 8-byte numbers, each a region of its own.
        let spans: Vec<Span> = (0..64)
            .map(|n| {
                let region = Region { size: 8, dims: vec![(10_000, 512)], low: n * 8 };
                span(n, Role::Replace, &region)
            })
            .collect();
        assert_eq!(phases_within(64, &spans, 10_000).unwrap(), vec![0; 64]);
    }

    #[test]
    fn regions_one_after_the_other_are_hardly_compared() {
        let spans: Vec<Span> = (0..5000)
            .map(|n| {
                let region = Region { size: 8, dims: vec![(10, 1600), (100, 8)], low: n * 16_000 };
                span(n, Role::Accumulate, &region)
            })
            .collect();
        assert_eq!(phases_within(5000, &spans, 20_000).unwrap(), vec![0; 5000]);
    }

    #[test]
    fn hard_sums_are_decided_by_listing_and_refused_when_too_large() {
        // Strides that share no divisor and cover one another many times.
        let strides = [99_991, 99_989, 99_971, 99_961, 99_929, 99_923];
        let region = |extent: usize| {
            let dims = strides.iter().map(|stride| (extent, *stride)).collect();
            Region { size: 1, dims, low: 0 }
        };
        let small = [span(0, Role::Replace, &region(4))];
        assert_eq!(
            phases_within(1, &small, 10).unwrap_err().kind(),
            phases(1, &small).unwrap_err().kind()
        );
        let error = phases_within(1, &[span(0, Role::Replace, &region(40))], 1000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("4096000000 elements, limit 16777216"), "{error}");
    }
}
