//! Random programs.

use runtime_core::{Combine, DType, RegionCopy, RegionSide};

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
        let slots = ends.map(|end| {
            let mut bytes = self.bytes(end);
            if sums {
                // With this mask, no exponent of a float has all bits set.
                bytes.iter_mut().for_each(|byte| *byte &= 0xbb);
            }
            bytes
        });
        (entries, slots.to_vec())
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
}
