//! Random programs.

use runtime_core::{Combine, DType, IndexedCopy, IndexedSide, Indices, RegionCopy, RegionSide};

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % limit
    }

    /// The size of a slab in bytes, often small so that copies have several slabs.
    pub(super) fn slab(&mut self) -> u64 {
        match self.below(2) {
            0 => 1 + self.below(600) as u64,
            _ => (1 << 31) - 1,
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        // Bytes of zeros, infinities and NaNs are frequent.
        const SPECIAL: [u8; 6] = [0, 0x80, 0x7f, 0xff, 0x7c, 0xfc];
        let byte = |_| match self.below(3) {
            0 => SPECIAL[self.below(SPECIAL.len())],
            _ => self.next().to_le_bytes()[0],
        };
        (0..len).map(byte).collect()
    }

    /// Entries from slots 0 and 1 to slots 2 to 4, and the bytes of all slots.
    ///
    /// Values to sum are small and finite, because the payload of a NaN is unspecified.
    pub(super) fn program(&mut self) -> (Vec<RegionCopy>, Vec<Vec<u8>>) {
        let sums = self.below(3) == 0;
        let only = DType::ALL[self.below(DType::ALL.len())];
        let mut ends = [0; 5];
        let mut entries = Vec::new();
        for _ in 0..1 + self.below(6) {
            let dtype = if sums { only } else { DType::ALL[self.below(DType::ALL.len())] };
            let rank = self.below(7);
            let largest = [0, 900, 80, 20, 6, 4, 4][rank];
            let extents: Vec<usize> = (0..rank).map(|_| 1 + self.below(largest)).collect();
            let (from, to) = (self.below(2), 2 + self.below(3));
            let (mut source, end) = self.side(dtype, &extents, 0, true);
            source.slot = from;
            ends[from] = end.max(ends[from]);
            let (mut destination, end) = self.side(dtype, &extents, ends[to], false);
            (destination.slot, ends[to]) = (to, end);
            let negate = dtype.admits_negate() && self.below(2) == 0;
            let combine = match self.below(4) {
                _ if sums && dtype.admits_sum() => Combine::Sum,
                0 if dtype.admits_order() => Combine::Min,
                1 if dtype.admits_order() => Combine::Max,
                _ => Combine::Replace,
            };
            entries.push(RegionCopy { dtype, extents, source, destination, negate, combine });
        }
        if sums && only.admits_sum() {
            // The entry again, so that there is a second phase.
            entries.push(entries[0].clone());
        }
        (entries, ends.map(|end| self.slot(end, sums)).to_vec())
    }

    /// The bytes of a slot, of which floats may be added if there are `sums`.
    fn slot(&mut self, len: usize, sums: bool) -> Vec<u8> {
        let mut bytes = self.bytes(len);
        if sums {
            // With this mask, no exponent of a float has all bits set.
            bytes.iter_mut().for_each(|byte| *byte &= 0xbb);
        }
        bytes
    }

    /// A side for a box of `extents` from byte `start` on, and the first byte behind it. Dimensions are in any order
    /// and direction, with gaps, or of stride 0.
    fn side(
        &mut self,
        dtype: DType,
        extents: &[usize],
        start: usize,
        repeats: bool,
    ) -> (RegionSide, usize) {
        let align = dtype.align();
        let start = start.next_multiple_of(align) + align * self.below(4);
        let mut order: Vec<usize> = (0..extents.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last + 1));
        }
        let mut strides = vec![0; extents.len()];
        let (mut offset, mut step) = (start, dtype.size());
        for dim in order {
            if repeats && self.below(8) == 0 {
                continue;
            }
            let stride = step + if self.below(4) == 0 { align * self.below(3) } else { 0 };
            step = stride * extents[dim];
            strides[dim] = stride.cast_signed();
            if self.below(3) == 0 {
                offset += (extents[dim] - 1) * stride;
                strides[dim] = -strides[dim];
            }
        }
        (RegionSide { slot: 0, offset, strides }, start + step)
    }

    /// Indexed copies from slots 0 and 1 to slots 2 to 4, and the bytes of all slots. Values to sum are small and
    /// finite.
    pub(super) fn indexed(&mut self) -> (Vec<IndexedCopy>, Vec<Vec<u8>>) {
        let sums = self.below(2) == 0;
        let mut ends = [0; 5];
        let mut entries = Vec::new();
        for _ in 0..1 + self.below(3) {
            let dtype = DType::ALL[self.below(DType::ALL.len())];
            let components = [1, 1, 2, 3, 5][self.below(5)];
            let combine = match self.below(4) {
                _ if sums && dtype.admits_sum() => Combine::Sum,
                0 if dtype.admits_order() => Combine::Min,
                1 if dtype.admits_order() => Combine::Max,
                _ => Combine::Replace,
            };
            let repeats = self.below(2) == 0;
            let to = 2 + self.below(3);
            let (array, end) = self.array(dtype, components, ends[to]);
            ends[to] = end;
            for _ in 0..if repeats { 1 + self.below(3) } else { 1 } {
                let items = self.below_u64(array.items) + 1;
                let targets = self.indices(array.items, items, repeats);
                let destination =
                    IndexedSide { slot: to, indices: targets.into(), ..array.clone() };
                let from = self.below(2);
                let (source, end) = self.array(dtype, components, 0);
                ends[from] = end.max(ends[from]);
                let indices = match self.below(4) {
                    0 if items <= source.items => {
                        let first = self.below_u64(source.items - items + 1);
                        Indices::Range(first..first + items)
                    }
                    _ => self.indices(source.items, items, true).into(),
                };
                let source = IndexedSide { slot: from, indices, ..source };
                entries.push(IndexedCopy {
                    dtype,
                    components,
                    source,
                    destination,
                    combine,
                    repeats,
                });
            }
        }
        (entries, ends.map(|end| self.slot(end, sums)).to_vec())
    }

    fn below_u64(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// An array of items from byte `start` on, without indices, and the first byte behind it. Components are adjacent,
    /// or have gaps between them, or are in separate rows.
    fn array(&mut self, dtype: DType, components: usize, start: usize) -> (IndexedSide, usize) {
        let (size, align) = (dtype.size(), dtype.align());
        let most = if self.below(3) == 0 { 700 } else { 90 };
        let items = 1 + self.below(most);
        let offset = start.next_multiple_of(align) + align * self.below(4);
        let gap = if self.below(3) == 0 { align * self.below(3) } else { 0 };
        let (stride, component_stride) = match self.below(3) {
            0 => (size + gap, (size + gap) * items),
            _ => ((size + gap) * components, size + gap),
        };
        let side = IndexedSide {
            slot: 0,
            offset,
            items: items as u64,
            stride,
            component_stride,
            indices: Vec::new().into(),
        };
        (side, offset + (size + gap) * components * items)
    }

    /// `count` indices below `items`, with runs in either direction. Distinct unless they may repeat.
    fn indices(&mut self, items: u64, count: u64, repeats: bool) -> Vec<u64> {
        let mut list: Vec<u64> = if repeats {
            (0..count).map(|_| self.below_u64(items)).collect()
        } else {
            (0..items).collect()
        };
        for _ in 0..self.below(200) {
            let [one, other] = [self.below(list.len()), self.below(list.len())];
            list.swap(one, other);
        }
        if repeats && self.below(2) == 0 {
            let (first, step) = (self.below_u64(items), 1 + self.below_u64(3));
            let run = (0..items).map(|n| first + n * step).take_while(|index| *index < items);
            list.iter_mut().zip(run).for_each(|(index, of_run)| *index = of_run);
        }
        list.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        if self.below(3) == 0 {
            list.reverse();
        }
        list
    }
}
