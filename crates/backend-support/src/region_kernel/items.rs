//! Converts an indexed copy to the pieces that the kernel runs. The lists of a piece contain byte offsets of 32 bits.

use std::collections::HashMap;

use runtime_core::{Combine, ItemsEnd, ItemsFold, LoweredItems};

use super::piece::{LINE, MAX_UNIT, Rule};

/// Items to copy or to combine. Each has `components`, of `parts` adjacent units.
#[derive(Clone, Debug)]
pub(super) struct ItemsPiece {
    pub(super) rule: Rule,
    /// As for a [`Piece`](super::piece::Piece).
    pub(super) unit: u64,
    pub(super) word: u64,
    pub(super) parts: u64,
    pub(super) components: u64,
    /// Number of items that are written.
    pub(super) count: u64,
    pub(super) to: End,
    /// One, unless it is a fold.
    pub(super) from: Vec<End>,
    pub(super) fold: Option<Reads>,
    /// Pieces that write the same items have ascending stages. A stage must end before the next begins.
    pub(super) stage: usize,
}

/// Items on one side.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) slot: usize,
    pub(super) offset: u64,
    pub(super) component_stride: i64,
    pub(super) places: Places,
}

#[derive(Clone, Debug)]
pub(super) enum Places {
    /// Item `i` lies `i` times this many bytes behind the offset.
    Strided(i64),
    /// Each item lies this many bytes behind the offset.
    Listed(Vec<u32>),
}

/// The items that are read for each item that is written.
#[derive(Clone, Debug)]
pub(super) struct Reads {
    pub(super) starts: Vec<u32>,
    /// The number of the side, and the bytes behind its offset.
    pub(super) reads: Vec<(u32, u32)>,
}

/// The greatest distance of two items of a piece in bytes, so that the distance of any two of their bytes fits a slab.
/// A multiple of every unit.
fn window(slab: u64) -> i64 {
    (slab / 2 / MAX_UNIT * MAX_UNIT).max(MAX_UNIT).cast_signed()
}

impl ItemsPiece {
    /// Adds the pieces of an indexed copy. A launch can bind `slots` slots.
    pub(super) fn add(items: &LoweredItems, slab: u64, slots: usize, pieces: &mut Vec<Self>) {
        let window = window(slab);
        let run = items.parts() * items.dtype().size();
        let span = |end: &ItemsEnd| {
            let steps = (items.components() - 1) as u64;
            steps
                .saturating_mul(end.component_stride.unsigned_abs() as u64)
                .saturating_add(run as u64)
        };
        let is_near = |end: &ItemsEnd| span(end) <= window.unsigned_abs();
        let near = is_near(items.destination()) && items.sources().iter().all(is_near);
        // Far components are pieces of their own.
        let (of, components) = if near { (1, items.components()) } else { (items.components(), 1) };
        for component in 0..of {
            let start =
                |end: &ItemsEnd| end.offset as i64 + component as i64 * end.component_stride as i64;
            let source = Source { items, components, window, start: &start };
            match items.fold() {
                None => source.add_pairs(pieces),
                Some(fold) => source.add_folds(fold, slots, pieces),
            }
        }
    }

    /// The slots that it uses.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        [&self.to].into_iter().chain(&self.from).map(|end| end.slot)
    }

    /// Elements of all items that are written.
    pub(super) fn elements(&self) -> u64 {
        self.count * self.components * self.parts
    }

    /// Bytes of memory traffic for each item that is written.
    pub(super) fn cost(&self) -> u64 {
        let reads = self.fold.as_ref().map_or(self.count, |fold| fold.reads.len() as u64);
        let side = self.components * (self.parts * self.unit).next_multiple_of(LINE);
        side * (1 + reads.div_ceil(self.count))
    }

    /// Joins elements that are adjacent on both sides into larger elements, as far as all addresses are aligned for
    /// them. The byte offsets of lists are multiples of `steps`.
    fn widen(&mut self, steps: u64) {
        let strides = [&self.to].into_iter().chain(&self.from).map(|end| {
            let between = if self.components > 1 { end.component_stride.unsigned_abs() } else { 0 };
            end.offset | between
        });
        let run = self.parts * self.word;
        let bits = strides.fold(run | steps | MAX_UNIT, |bits, stride| bits | stride);
        self.unit = 1 << bits.trailing_zeros();
        self.parts = run / self.unit;
    }
}

/// Items whose first component, or only one, begins at `start` of a side.
struct Source<'a> {
    items: &'a LoweredItems,
    components: usize,
    window: i64,
    start: &'a dyn Fn(&ItemsEnd) -> i64,
}

impl Source<'_> {
    fn piece(&self, count: usize, to: End, from: Vec<End>) -> ItemsPiece {
        let dtype = self.items.dtype();
        let word = dtype.align() as u64;
        ItemsPiece {
            rule: Rule::new(dtype, self.items.combine(), false),
            unit: word,
            word,
            parts: self.items.parts() as u64 * (dtype.size() as u64 / word),
            components: self.components as u64,
            count: count as u64,
            to,
            from,
            fold: None,
            stage: 0,
        }
    }

    fn end(&self, end: &ItemsEnd, behind: i64, places: Places) -> End {
        let offset = ((self.start)(end) + behind).cast_unsigned();
        End { slot: end.slot, offset, component_stride: end.component_stride as i64, places }
    }

    /// All items of a side that lie in one window, unless they do not: the lowest distance, and the places.
    fn near(&self, end: &ItemsEnd) -> Option<End> {
        let last = self.items.count() - 1;
        let Some(indices) = &end.indices else {
            let reach = end.distance(last).unsigned_abs() as i64;
            return (reach <= self.window)
                .then(|| self.end(end, 0, Places::Strided(end.stride as i64)));
        };
        let [low, high] =
            [indices.iter().min(), indices.iter().max()].map(|index| index.copied().unwrap_or(0));
        // A listed side has a positive stride.
        let at = |index: u32| i64::from(index) * end.stride as i64;
        if at(high) - at(low) > self.window {
            return None;
        }
        let list = indices.iter().map(|index| short(at(*index) - at(low)));
        Some(self.end(end, at(low), Places::Listed(list.collect())))
    }

    fn add_pairs(&self, pieces: &mut Vec<ItemsPiece>) {
        let (to, from) = (self.items.destination(), &self.items.sources()[0]);
        let count = self.items.count();
        let first = pieces.len();
        if let (Some(to), Some(from)) = (self.near(to), self.near(from)) {
            pieces.push(self.piece(count, to, vec![from]));
        } else {
            let window_of =
                |end: &ItemsEnd, item| (end.distance(item) as i64).div_euclid(self.window);
            let mut order: Vec<(i64, i64, usize)> =
                (0..count).map(|item| (window_of(to, item), window_of(from, item), item)).collect();
            order.sort_unstable();
            for same in order.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)) {
                let listed = |end: &ItemsEnd| {
                    let distances = same.iter().map(|(.., item)| end.distance(*item) as i64);
                    let behind = distances.min().unwrap_or(0);
                    let list =
                        same.iter().map(|(.., item)| short(end.distance(*item) as i64 - behind));
                    self.end(end, behind, Places::Listed(list.collect()))
                };
                let (to, from) = (listed(to), listed(from));
                pieces.push(self.piece(same.len(), to, vec![from]));
            }
        }
        if self.items.combine() == Combine::Replace {
            let steps = (to.stride.unsigned_abs() | from.stride.unsigned_abs()) as u64;
            pieces[first..].iter_mut().for_each(|piece| piece.widen(steps));
        }
    }

    /// Adds the items of each window. If a launch cannot bind all slots, the items that are read are divided among
    /// stages in their order.
    fn add_folds(&self, fold: &ItemsFold, slots: usize, pieces: &mut Vec<ItemsPiece>) {
        let (to, sources) = (self.items.destination(), self.items.sources());
        let (mut stages, mut bound, mut stage) = (Vec::new(), vec![to.slot], 0);
        for source in sources {
            if !bound.contains(&source.slot) {
                if bound.len() == slots {
                    bound = vec![to.slot];
                    stage += 1;
                }
                bound.push(source.slot);
            }
            stages.push(stage);
        }
        // The least distance of an item of each source.
        let mut lows = vec![i64::MAX; sources.len()];
        for &[source, index] in fold.reads.iter() {
            let low = &mut lows[source as usize];
            *low = (*low).min(i64::from(index) * sources[source as usize].stride as i64);
        }
        let window_of = |item| (to.distance(item) as i64).div_euclid(self.window);
        let mut order: Vec<(i64, usize)> =
            (0..self.items.count()).map(|item| (window_of(item), item)).collect();
        order.sort_unstable();
        for same in order.chunk_by(|one, next| one.0 == next.0) {
            let distances = same.iter().map(|(_, item)| to.distance(*item) as i64);
            let behind = distances.min().unwrap_or(0);
            for stage in 0..=stage {
                let (mut list, mut starts, mut reads) = (Vec::new(), vec![0], Vec::new());
                let (mut known, mut from) = (HashMap::new(), Vec::new());
                for &(_, item) in same {
                    let of_stage = fold
                        .reads_of(item)
                        .iter()
                        .filter(|[source, _]| stages[*source as usize] == stage);
                    for &[source, index] in of_stage {
                        let end = &sources[source as usize];
                        let distance = i64::from(index) * end.stride as i64 - lows[source as usize];
                        let window = distance / self.window;
                        let number = *known.entry((source, window)).or_insert_with(|| {
                            let behind = lows[source as usize] + window * self.window;
                            from.push(self.end(end, behind, Places::Strided(0)));
                            count(from.len() - 1)
                        });
                        reads.push((number, short(distance - window * self.window)));
                    }
                    if starts.last() != Some(&count(reads.len())) {
                        list.push(short(to.distance(item) as i64 - behind));
                        starts.push(count(reads.len()));
                    }
                }
                if list.is_empty() {
                    continue;
                }
                let number = list.len();
                let to = self.end(to, behind, Places::Listed(list));
                let mut piece = self.piece(number, to, from);
                (piece.fold, piece.stage) = (Some(Reads { starts, reads }), stage);
                pieces.push(piece);
            }
        }
    }
}

/// A byte offset in a window.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "smaller than a window"
)]
fn short(offset: i64) -> u32 {
    debug_assert!(u32::try_from(offset).is_ok());
    offset as u32
}

/// A number of reads, which an indexed copy limits.
#[expect(clippy::cast_possible_truncation, reason = "no more than an indexed copy has")]
fn count(number: usize) -> u32 {
    debug_assert!(u32::try_from(number).is_ok());
    number as u32
}
