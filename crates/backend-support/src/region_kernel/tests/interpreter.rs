//! An interpreter of the kernel's operations, one element at a time.
#![expect(clippy::cast_possible_truncation, reason = "takes the low bits of words")]

use std::ops::Range;

use runtime_core::{bf16, bytemuck, f16};

use super::super::words::{self, Code};
use super::super::{Mapping, RegionLaunch, RegionLaunches};

/// The records of a launch.
pub(super) fn records<'a>(lowered: &'a RegionLaunches, launch: &RegionLaunch) -> Vec<&'a [u64]> {
    let header = &lowered.words()[index(launch.start)..];
    let (copies, record) = (index(header[words::COPIES]), index(header[words::RECORD]));
    header[words::HEADER + copies..][..copies * record].chunks(record).collect()
}

/// Runs all launches. Each slot begins at an address with the given remainder, or is absent.
pub(super) fn run(
    lowered: &RegionLaunches,
    mapping: Mapping,
    bases: &[Option<usize>],
    slots: &mut [Vec<u8>],
) {
    for launch in lowered.launches() {
        let header = &lowered.words()[index(launch.start)..];
        let chunks = header[words::CHUNKS];
        let firsts = &header[words::HEADER..][..index(header[words::COPIES])];
        let records = records(lowered, launch);
        let workers =
            launch.groups * if mapping == Mapping::Runs { launch.group_size as u64 } else { 1 };
        for worker in 0..workers {
            for chunk in (worker..chunks).step_by(index(workers)) {
                let copy = firsts.partition_point(|first| *first <= chunk) - 1;
                let record = records[copy];
                let (chunks, chunk) = (record[words::SLAB_CHUNKS], chunk - firsts[copy]);
                let first = chunk % chunks * record[words::CHUNK];
                let end = record[words::ELEMENTS].min(first + record[words::CHUNK]);
                assert!(first < end, "an empty chunk");
                let copy = Copy { words: lowered.words(), record, launch, bases };
                match record[words::STARTS] {
                    0 => copy.run(mapping, chunk / chunks, first..end, slots),
                    _ => copy.fold(first..end, slots),
                }
            }
        }
    }
}

struct Copy<'a> {
    words: &'a [u64],
    record: &'a [u64],
    launch: &'a RegionLaunch,
    bases: &'a [Option<usize>],
}

impl Copy<'_> {
    /// Runs a range of elements of a slab.
    fn run(&self, mapping: Mapping, slab: u64, elements: Range<u64>, slots: &mut [Vec<u8>]) {
        let record = self.record;
        let is_listed = record[words::TO_LIST] | record[words::FROM_LIST] != 0;
        if is_listed && mapping == Mapping::Runs {
            // Whole items.
            let item = self.dim(0)[0] * self.dim(1)[0];
            return self.run_elements(slab, elements.start * item..elements.end * item, slots);
        }
        self.run_elements(slab, elements, slots);
    }

    fn run_elements(&self, slab: u64, elements: Range<u64>, slots: &mut [Vec<u8>]) {
        let record = self.record;
        let [to_slot, from_slot] =
            [words::TO_SLOT, words::FROM_SLOT].map(|field| self.launch.slots[index(record[field])]);
        let (Some(to_base), Some(from_base)) = (self.bases[to_slot], self.bases[from_slot]) else {
            return;
        };
        let (to, from) = (index(record[words::TO_OFFSET]), index(record[words::FROM_OFFSET]));
        let unit = record[words::UNIT];
        let is_aligned = |address: usize| address.is_multiple_of(1 << unit);
        let aligned = is_aligned(to_base + to) && is_aligned(from_base + from);
        let narrow = if aligned { 0 } else { unit - record[words::WORD] };
        let size = 1 << (unit - narrow);
        for part in elements.start << narrow..elements.end << narrow {
            let (element, part) = (part >> narrow, index(part % (1 << narrow)) * size);
            let (mut rest, mut to, mut from) = (element, to + part, from + part);
            for dim in 0..index(record[words::RANK]) {
                if dim == index(record[words::SLAB_RANK]) {
                    assert_eq!(rest, 0, "an element beyond the slab");
                    rest = slab;
                }
                let [extent, to_stride, from_stride] = self.dim(dim);
                let step = |stride: u64| index(rest % extent).cast_signed() * stride as isize;
                to = to.wrapping_add_signed(step(to_stride));
                from = from.wrapping_add_signed(step(from_stride));
                rest /= extent;
            }
            if record[words::TO_LIST] | record[words::FROM_LIST] != 0 {
                let [items, to_stride, from_stride] = self.dim(index(record[words::RANK]));
                assert!(rest < items, "an item beyond the last");
                to = to.wrapping_add_signed(self.listed(words::TO_LIST, rest, to_stride));
                from = from.wrapping_add_signed(self.listed(words::FROM_LIST, rest, from_stride));
                rest = 0;
            }
            assert_eq!(rest, 0, "an element beyond the last");
            assert!((to_base + to).is_multiple_of(size));
            assert!((from_base + from).is_multiple_of(size));
            let arriving = slots[from_slot][from..from + size].to_vec();
            self.apply(&mut slots[to_slot][to..to + size], &arriving);
        }
    }

    /// The extent and the strides of a dimension.
    fn dim(&self, dim: usize) -> [u64; 3] {
        let words = &self.record[words::DIMS + dim * words::PER_DIM..][..words::PER_DIM];
        [words[0], words[1], words[2]]
    }

    /// A number of 4 bytes of a list.
    fn number(&self, list: usize, at: usize) -> u32 {
        let pair: [u32; 2] = bytemuck::cast(self.words[index(self.record[list]) + at / 2]);
        pair[at % 2]
    }

    /// The distance of an item in bytes.
    fn listed(&self, list: usize, item: u64, stride: u64) -> isize {
        match self.record[list] {
            0 => index(item).cast_signed() * stride as isize,
            _ => self.number(list, index(item)) as isize,
        }
    }

    /// Runs a range of elements of a fold.
    fn fold(&self, elements: Range<u64>, slots: &mut [Vec<u8>]) {
        let record = self.record;
        let to_slot = self.launch.slots[index(record[words::TO_SLOT])];
        if self.bases[to_slot].is_none() {
            return;
        }
        let size = 1_usize << record[words::UNIT];
        let [[parts, ..], [components, to_stride, _]] = [self.dim(0), self.dim(1)];
        for element in elements {
            let (part, component) = (index(element % parts), element / parts % components);
            let item = index(element / parts / components);
            let [first, end] =
                [item, item + 1].map(|item| self.number(words::STARTS, item) as usize);
            assert!(first < end, "nothing is read for an item");
            let offset = index(record[words::TO_OFFSET]);
            let at = offset + self.number(words::TO_LIST, item) as usize;
            let across = |stride: u64| part * size + index(component * stride);
            let to = at + across(to_stride);
            for read in first..end {
                let read = self.words[index(record[words::FROM_LIST]) + read];
                let source = index(record[words::SOURCES]) + index(read >> 32) * words::PER_SOURCE;
                let [slot, offset, stride] = [0, 1, 2].map(|word| self.words[source + word]);
                let slot = self.launch.slots[index(slot)];
                if self.bases[slot].is_some() {
                    let from = index(offset) + index(read & u64::from(u32::MAX));
                    let from = from + across(stride);
                    let arriving = slots[slot][from..from + size].to_vec();
                    self.apply(&mut slots[to_slot][to..to + size], &arriving);
                }
            }
        }
    }

    fn apply(&self, there: &mut [u8], arriving: &[u8]) {
        let size = there.len();
        let code = self.record[words::CODE];
        if code == Code::Move as u64 {
            return there.copy_from_slice(arriving);
        }
        let bits = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let mask = u64::MAX >> (64 - 8 * size);
        let x = (bits(arriving) ^ self.record[words::FLIP]).wrapping_sub(self.record[words::CARRY])
            & mask;
        let old = bits(there);
        let result = match code {
            _ if code == Code::Negate as u64 => x,
            _ if code == Code::Add as u64 => old.wrapping_add(x),
            _ if code == Code::AddF16 as u64 => {
                let [a, b] = [old, x].map(|bits| f16::from_bits(bits as u16).to_f32());
                f16::from_f32(a + b).to_bits().into()
            }
            _ if code == Code::AddBf16 as u64 => {
                let [a, b] = [old, x].map(|bits| bf16::from_bits(bits as u16).to_f32());
                bf16::from_f32(a + b).to_bits().into()
            }
            _ if code == Code::AddF32 as u64 => {
                (f32::from_bits(old as u32) + f32::from_bits(x as u32)).to_bits().into()
            }
            _ if code == Code::AddF64 as u64 => (f64::from_bits(old) + f64::from_bits(x)).to_bits(),
            _ => self.smaller(old, x, mask),
        };
        there.copy_from_slice(&result.to_le_bytes()[..size]);
    }

    fn smaller(&self, old: u64, x: u64, mask: u64) -> u64 {
        let (bias, infinity) = (self.record[words::BIAS] & mask, self.record[words::INFINITY]);
        let sign = mask ^ (mask >> 1);
        if self.record[words::CODE] == Code::Order as u64 {
            // Signed order, by flipping the sign bit.
            return if (x ^ bias ^ sign) < (old ^ bias ^ sign) { x } else { old };
        }
        let is_nan = |bits: u64| bits & !sign > infinity;
        let key = |bits: u64| {
            let magnitude = (bits & !sign).cast_signed();
            if (bits ^ bias) & sign == 0 { magnitude } else { -magnitude }
        };
        if is_nan(x) || !is_nan(old) && key(x) < key(old) { x } else { old }
    }
}

pub(super) fn index(word: u64) -> usize {
    usize::try_from(word).unwrap()
}
