//! The free parts of a device's memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use backend_support::lock;

/// A range of addresses from which parts are taken, the highest that fits first: the start of memory stays free for
/// programs that are linked to it.
#[derive(Debug)]
pub(crate) struct Heap {
    /// The start and length of each free range; no two ranges are adjacent.
    free: Mutex<BTreeMap<u64, u64>>,
}

/// A range that is taken while this value lives.
#[derive(Debug)]
pub(crate) struct Range {
    heap: Arc<Heap>,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Heap {
    pub(crate) fn new(address: u64, bytes: u64) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(BTreeMap::from([(address, bytes)])) })
    }

    /// Takes `bytes` at a multiple of `alignment`, a power of two. Returns `None` if there is no such range.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64, alignment: u64) -> Option<Range> {
        let mut free = self.lock();
        let address = free.iter().rev().find_map(|(start, length)| {
            let address = (start + length.checked_sub(bytes)?) & !(alignment - 1);
            (address >= *start).then_some(address)
        })?;
        self.split(&mut free, address, bytes)
    }

    /// Takes `bytes` at `address`. Returns `None` unless all of them are free.
    pub(crate) fn take_at(self: &Arc<Self>, address: u64, bytes: u64) -> Option<Range> {
        self.split(&mut self.lock(), address, bytes)
    }

    fn split(
        self: &Arc<Self>,
        free: &mut BTreeMap<u64, u64>,
        address: u64,
        bytes: u64,
    ) -> Option<Range> {
        let (start, length) = free.range(..=address).next_back().map(|(s, l)| (*s, *l))?;
        let end = address.checked_add(bytes).filter(|end| *end <= start + length)?;
        free.remove(&start);
        if start < address {
            free.insert(start, address - start);
        }
        if end < start + length {
            free.insert(end, start + length - end);
        }
        Some(Range { heap: Arc::clone(self), address, bytes })
    }

    /// The total number of free bytes in all ranges.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.lock().values().sum()
    }

    fn give_back(&self, mut start: u64, mut length: u64) {
        let mut free = self.lock();
        if let Some(next) = free.remove(&(start + length)) {
            length += next;
        }
        if let Some((before, bytes)) = free.range(..start).next_back().map(|(s, l)| (*s, *l))
            && before + bytes == start
        {
            start = before;
            length += bytes;
        }
        free.insert(start, length);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        lock(&self.free)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        self.heap.give_back(self.address, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_disjoint_and_merge_when_freed() {
        let heap = Heap::new(0x1008, 0x1000);
        let mut ranges: Vec<_> = (1..20).filter_map(|i| heap.take(i * 8, 64)).collect();
        assert_eq!(ranges.len(), 19);
        let mut ends: Vec<_> = ranges.iter().map(|r| (r.address, r.address + r.bytes)).collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ends:x?}");
        assert!(ends.iter().all(|(start, _)| start % 64 == 0));
        assert!(heap.take(0x1000, 1).is_none());
        while !ranges.is_empty() {
            ranges.swap_remove(ranges.len() / 2);
        }
        assert_eq!(heap.free_bytes(), 0x1000);
        assert!(heap.take(0x1000, 8).is_some());
    }

    #[test]
    fn a_range_can_be_taken_where_it_must_be() {
        let heap = Heap::new(0x1000, 0x1000);
        let range = heap.take_at(0x1800, 0x100).unwrap();
        assert!(heap.take_at(0x18F0, 8).is_none());
        assert!(heap.take_at(0x1FFF, 2).is_none());
        assert!(heap.take_at(0xFFF, 2).is_none());
        assert!(heap.take_at(u64::MAX, 2).is_none());
        drop(range);
        assert!(heap.take_at(0x1000, 0x1000).is_some());
    }
}
