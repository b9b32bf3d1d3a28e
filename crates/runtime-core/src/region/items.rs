//! The items of an indexed copy in the form that devices execute.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Combine;
use super::footprint::Footprint;
use crate::DType;

/// A checked copy of items whose places are in lists, in its simplest form.
///
/// Every item has [`components`](Self::components), and every component is [`parts`](Self::parts) adjacent elements.
/// Each item that is written is combined with one item that is read, or, in a [fold](Self::fold), with several in
/// order. No two items that are written share a byte.
#[derive(Clone, Debug)]
pub struct LoweredItems {
    pub(super) dtype: DType,
    pub(super) combine: Combine,
    pub(super) parts: usize,
    pub(super) components: usize,
    pub(super) count: usize,
    pub(super) destination: ItemsEnd,
    pub(super) sources: Vec<ItemsEnd>,
    pub(super) fold: Option<ItemsFold>,
}

/// The items on one side of [`LoweredItems`].
#[derive(Clone, Debug)]
pub struct ItemsEnd {
    /// The slot.
    pub slot: usize,
    /// Byte offset of the first element of the item with index 0.
    pub offset: usize,
    /// Distance in bytes from one index to the next.
    pub stride: isize,
    /// Distance in bytes from one component to the next.
    pub component_stride: isize,
    /// The index of each item. `None` if item `i` has index `i`, and for the sources of a fold.
    pub indices: Option<Arc<[u32]>>,
}

impl ItemsEnd {
    /// The distance in bytes from the item with index 0 to an item.
    pub fn distance(&self, item: usize) -> isize {
        let index = self.indices.as_ref().map_or(item, |indices| indices[item] as usize);
        index.cast_signed() * self.stride
    }
}

/// Which items are read for each item that is written.
#[derive(Clone, Debug)]
pub struct ItemsFold {
    /// For each item that is written, the first of its [`reads`](Self::reads). The last number is their total.
    pub starts: Arc<[u32]>,
    /// The source and the index there of each item that is read, in the order of the fold. The sources of an item
    /// ascend.
    pub reads: Arc<[[u32; 2]]>,
}

impl ItemsFold {
    /// The items that are read for one item that is written.
    pub fn reads_of(&self, item: usize) -> &[[u32; 2]] {
        &self.reads[self.starts[item] as usize..self.starts[item + 1] as usize]
    }
}

impl LoweredItems {
    /// Type of the elements on both sides. It is never a record, whose units are parts.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How an item that is read is combined with the item already at the destination.
    pub fn combine(&self) -> Combine {
        self.combine
    }

    /// Number of adjacent elements of a component.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Number of components of an item.
    pub fn components(&self) -> usize {
        self.components
    }

    /// Number of items that are written. At least 1.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The items that are written.
    pub fn destination(&self) -> &ItemsEnd {
        &self.destination
    }

    /// The items that are read: one side, or those that the [fold](Self::fold) numbers.
    pub fn sources(&self) -> &[ItemsEnd] {
        &self.sources
    }

    /// The items that are read for each item that is written. `None` if each is combined with the item of the same
    /// number.
    pub fn fold(&self) -> Option<&ItemsFold> {
        self.fold.as_ref()
    }

    /// Bytes of an item.
    pub(super) fn item_bytes(&self) -> usize {
        self.dtype.size() * self.parts * self.components
    }

    /// The number of bytes that it moves from slots that satisfy `is_bound`. Each item that is read counts once.
    pub(super) fn bytes_among(&self, is_bound: impl Fn(usize) -> bool) -> u64 {
        if !is_bound(self.destination.slot) {
            return 0;
        }
        let is_read = |source: usize| is_bound(self.sources[source].slot);
        let items = match &self.fold {
            None => {
                if is_read(0) {
                    self.count
                } else {
                    0
                }
            }
            Some(fold) => {
                let read: SmallVec<[bool; 16]> = (0..self.sources.len()).map(is_read).collect();
                fold.reads.iter().filter(|[source, _]| read[*source as usize]).count()
            }
        };
        (items * self.item_bytes()) as u64
    }

    /// Whether it writes anything if only slots that satisfy `is_bound` have memory.
    pub(super) fn writes_among(&self, is_bound: impl Fn(usize) -> bool) -> bool {
        is_bound(self.destination.slot) && self.sources.iter().any(|source| is_bound(source.slot))
    }

    /// Calls `f` with the elements of each item that is written. Stops when `f` fails.
    pub(super) fn for_each_target<E>(
        &self,
        f: impl FnMut(Footprint) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = &self.destination;
        (0..self.count).map(|item| self.footprint(end, end.distance(item))).try_for_each(f)
    }

    /// Calls `f` with the slot and the elements of each item that is read. Stops when `f` fails.
    pub(super) fn for_each_read<E>(
        &self,
        mut f: impl FnMut(usize, Footprint) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.fold {
            None => {
                let end = &self.sources[0];
                (0..self.count)
                    .try_for_each(|item| f(end.slot, self.footprint(end, end.distance(item))))
            }
            Some(fold) => fold.reads.iter().try_for_each(|&[source, index]| {
                let end = &self.sources[source as usize];
                f(end.slot, self.footprint(end, end.distance(index as usize)))
            }),
        }
    }

    fn footprint(&self, end: &ItemsEnd, distance: isize) -> Footprint {
        let size = self.dtype.size();
        Footprint::new(
            size,
            end.offset.wrapping_add_signed(distance),
            &[self.components, self.parts],
            &[end.component_stride, size.cast_signed()],
        )
    }

    /// Ranges of items whose work costs about `cost` bytes of memory traffic each, if a cache line costs `line` bytes.
    pub(super) fn shares(
        &self,
        cost: u64,
        line: u64,
        most: u64,
    ) -> impl Iterator<Item = Range<usize>> {
        let reads = self.fold.as_ref().map_or(self.count, |fold| fold.reads.len()) as u64;
        let side =
            |components: u64| components * line.max((self.item_bytes() as u64) / components.max(1));
        let per_item = side(self.components as u64);
        let total = per_item.saturating_mul(reads.saturating_add(self.count as u64));
        let pieces = usize::try_from((total / cost).clamp(1, most)).unwrap_or(1);
        let step = self.count.div_ceil(pieces);
        let count = self.count;
        (0..count).step_by(step).map(move |start| start..count.min(start + step))
    }
}
