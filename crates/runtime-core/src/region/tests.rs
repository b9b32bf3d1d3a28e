//! Execution of whole programs against an oracle that goes element by element.
#![expect(unsafe_code, reason = "runs programs on memory that the tests own")]

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use proptest::prelude::*;

use super::{Combine, HostSlot, RegionCopy, RegionProgram, RegionSide};
use crate::DType;

/// Memory of one slot, aligned for every element type.
#[derive(Clone, PartialEq)]
struct Bytes(Vec<u128>);

impl Bytes {
    fn new(bytes: usize, mut fill: impl FnMut(usize) -> u8) -> Self {
        let mut words = vec![0_u128; bytes.div_ceil(16)];
        let slice: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        for (index, byte) in slice.iter_mut().enumerate() {
            *byte = fill(index);
        }
        Self(words)
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    fn get<T: Pod>(&self, at: usize) -> T {
        bytemuck::pod_read_unaligned(&self.bytes()[at..at + size_of::<T>()])
    }

    fn set<T: Pod>(&mut self, at: usize, value: T) {
        let slice: &mut [u8] = bytemuck::cast_slice_mut(&mut self.0);
        slice[at..at + size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
    }
}

/// How a test runs a program.
#[derive(Clone, Copy, Debug)]
enum Way {
    Whole,
    PartsBackwards,
}

fn run(program: &RegionProgram, memory: &mut [Bytes], way: Way) {
    for (used, bytes) in program.slots().iter().zip(memory.iter()) {
        assert!(used.bytes <= bytes.bytes().len());
    }
    let slots: Vec<HostSlot> = memory
        .iter_mut()
        .map(|bytes| HostSlot { base: bytes.0.as_mut_ptr().cast(), len: bytes.0.len() * 16 })
        .collect();
    match way {
        // SAFETY: the slots are long enough, aligned, distinct, and owned by this thread.
        Way::Whole => unsafe { program.run(&slots) },
        Way::PartsBackwards => {
            for phase in 0..program.phases().len() {
                for part in (0..program.parts(phase)).rev() {
                    // SAFETY: as above.
                    unsafe { program.run_part(phase, part, &slots) };
                }
            }
        }
    }
}

/// What the arithmetic table of `DType` says, for one element.
fn combine(memory: &mut [Bytes], entry: &RegionCopy, to: usize, from: usize) {
    macro_rules! real {
        ($type:ty, $negated:expr, $sum:expr, $is_nan:expr) => {{
            let new: $type = memory[entry.source.slot].get(from);
            let negated: fn($type) -> $type = $negated;
            let new = if entry.negate { negated(new) } else { new };
            let old: $type = memory[entry.destination.slot].get(to);
            let (sum, is_nan): (fn($type, $type) -> $type, fn($type) -> bool) = ($sum, $is_nan);
            let value = match entry.combine {
                Combine::Replace => new,
                Combine::Sum => sum(old, new),
                Combine::Min if new < old || is_nan(new) => new,
                Combine::Max if new > old || is_nan(new) => new,
                Combine::Min | Combine::Max => old,
            };
            memory[entry.destination.slot].set(to, value);
        }};
    }
    macro_rules! complex {
        ($type:ty) => {{
            let new: Complex<$type> = memory[entry.source.slot].get(from);
            let new = if entry.negate { Complex::new(-new.re, -new.im) } else { new };
            let old: Complex<$type> = memory[entry.destination.slot].get(to);
            let sum = Complex::new(old.re + new.re, old.im + new.im);
            let value = if entry.combine == Combine::Sum { sum } else { new };
            memory[entry.destination.slot].set(to, value);
        }};
    }
    macro_rules! integer {
        ($type:ty) => {
            real!($type, |v| <$type>::wrapping_sub(0, v), |a, b| a.wrapping_add(b), |_| false)
        };
    }
    match entry.dtype {
        DType::Bool | DType::U8 => integer!(u8),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::I32 => integer!(i32),
        DType::I64 => integer!(i64),
        DType::U16 => integer!(u16),
        DType::U32 => integer!(u32),
        DType::U64 => integer!(u64),
        DType::F16 => real!(
            f16,
            |v| f16::from_bits(v.to_bits() ^ 0x8000),
            |a, b| f16::from_f32(f32::from(a) + f32::from(b)),
            f16::is_nan
        ),
        DType::BF16 => real!(
            bf16,
            |v| bf16::from_bits(v.to_bits() ^ 0x8000),
            |a, b| bf16::from_f32(f32::from(a) + f32::from(b)),
            bf16::is_nan
        ),
        DType::F32 => {
            real!(f32, |v| f32::from_bits(v.to_bits() ^ 1 << 31), |a, b| a + b, f32::is_nan);
        }
        DType::F64 => {
            real!(f64, |v| f64::from_bits(v.to_bits() ^ 1 << 63), |a, b| a + b, f64::is_nan);
        }
        DType::C64 => complex!(f32),
        DType::C128 => complex!(f64),
    }
}

fn oracle(entries: &[RegionCopy], memory: &mut [Bytes]) {
    for entry in entries {
        let count: usize = entry.extents.iter().product();
        for mut flat in 0..count {
            let (mut to, mut from) = (entry.destination.offset, entry.source.offset);
            for (dim, extent) in entry.extents.iter().enumerate().rev() {
                let index = (flat % extent).cast_signed();
                flat /= extent;
                to = to.wrapping_add_signed(index.wrapping_mul(entry.destination.strides[dim]));
                from = from.wrapping_add_signed(index.wrapping_mul(entry.source.strides[dim]));
            }
            combine(memory, entry, to, from);
        }
    }
}

/// One dimension of a generated entry.
#[derive(Clone, Debug)]
struct Axis {
    extent: usize,
    rank: [u8; 2],
    pad: [usize; 2],
    flip: [bool; 2],
    repeat: bool,
}

#[derive(Clone, Debug)]
struct Spec {
    dtype: DType,
    combine: Combine,
    negate: bool,
    axes: Vec<Axis>,
    // Accumulations go where the one before went.
    again: bool,
}

fn axis() -> impl Strategy<Value = Axis> {
    (
        prop_oneof![4 => 1..6_usize, 1 => 15..19_usize, 1 => 30..70_usize],
        any::<[u8; 2]>(),
        [prop_oneof![3 => Just(0), 1 => 1..4_usize], prop_oneof![3 => Just(0), 1 => 1..4_usize]],
        any::<[bool; 2]>(),
        prop::bool::weighted(0.05),
    )
        .prop_map(|(extent, rank, pad, flip, repeat)| Axis { extent, rank, pad, flip, repeat })
}

fn spec() -> impl Strategy<Value = Spec> {
    let combines = prop_oneof![
        3 => Just(Combine::Replace),
        1 => Just(Combine::Sum),
        1 => Just(Combine::Min),
        1 => Just(Combine::Max)
    ];
    (
        prop::sample::select(&DType::ALL[..]),
        combines,
        any::<bool>(),
        prop::collection::vec(axis(), 0..=6),
        any::<bool>(),
    )
        .prop_map(|(dtype, combine, negate, mut axes, again)| {
            while axes.iter().map(|axis| axis.extent).product::<usize>() > 6000 {
                axes.pop();
            }
            let admitted = match combine {
                Combine::Replace => true,
                Combine::Sum => dtype.admits_sum(),
                Combine::Min | Combine::Max => dtype.admits_order(),
            };
            let combine = if admitted { combine } else { Combine::Replace };
            Spec { dtype, combine, negate: negate && dtype.admits_negate(), axes, again }
        })
}

/// Strides for one side, the offset of the first element, and the bytes spanned.
fn layout(spec: &Spec, side: usize) -> (Vec<isize>, usize, usize) {
    let mut order: Vec<usize> = (0..spec.axes.len()).collect();
    order.sort_by_key(|&dim| spec.axes[dim].rank[side]);
    let size = spec.dtype.size();
    let (mut stride, mut offset) = (size, 0);
    let mut strides = vec![0; order.len()];
    for dim in order {
        let axis = &spec.axes[dim];
        if side == 0 && axis.repeat {
            continue;
        }
        stride += axis.pad[side] * spec.dtype.align().max(size / 2);
        let reach = stride * (axis.extent - 1);
        strides[dim] = stride.cast_signed();
        if axis.flip[side] {
            offset += reach;
            strides[dim] = -strides[dim];
        }
        stride *= axis.extent;
    }
    (strides, offset, stride.max(size))
}

/// Entries with disjoint destinations, apart from accumulations that follow one another; two slots of which either may
/// be read or written.
fn entries(specs: &[Spec]) -> (Vec<RegionCopy>, [usize; 2]) {
    let mut used = [0_usize; 2];
    let mut entries: Vec<RegionCopy> = Vec::new();
    for (number, spec) in specs.iter().enumerate() {
        let mut place = |slot: usize, bytes: usize| {
            let start = used[slot].next_multiple_of(spec.dtype.align());
            used[slot] = start + bytes;
            start
        };
        let (from_strides, from_offset, from_bytes) = layout(spec, 0);
        let (to_strides, to_offset, to_bytes) = layout(spec, 1);
        let from = place(number % 2, from_bytes);
        let source =
            RegionSide { slot: number % 2, offset: from + from_offset, strides: from_strides };
        let mut copy = RegionCopy {
            dtype: spec.dtype,
            extents: spec.axes.iter().map(|axis| axis.extent).collect(),
            source,
            destination: RegionSide { slot: 1, offset: 0, strides: to_strides },
            negate: spec.negate,
            combine: spec.combine,
        };
        match entries.last() {
            // The same entry once more, with another operation, so that the order shows.
            Some(last) if spec.again && last.combine != Combine::Replace => {
                let negate = copy.negate && last.dtype.admits_negate();
                copy = RegionCopy { negate, ..last.clone() };
                if last.dtype.admits_order() {
                    copy.combine =
                        if last.combine == Combine::Sum { Combine::Max } else { Combine::Sum };
                }
            }
            _ => copy.destination.offset = place(1, to_bytes) + to_offset,
        }
        entries.push(copy);
    }
    (entries, used)
}

/// Memory whose every float is a small finite number, so that sums are exact whichever instructions do them.
fn memory(entries: &[RegionCopy], used: [usize; 2]) -> Vec<Bytes> {
    let mut memory: Vec<Bytes> = used
        .iter()
        .map(|bytes| {
            Bytes::new(bytes + 64, |at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        })
        .collect();
    for entry in entries {
        let finite = Some(entry.combine == Combine::Sum).filter(|finite| *finite);
        if finite.is_none() {
            continue;
        }
        for side in [&entry.source, &entry.destination] {
            let ones = Bytes::new(memory[side.slot].bytes().len(), |at| {
                memory[side.slot].bytes()[at] & 0x3B
            });
            memory[side.slot] = ones;
        }
    }
    memory
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn programs_do_what_the_oracle_does(specs in prop::collection::vec(spec(), 1..6)) {
        let (entries, used) = entries(&specs);
        let program = RegionProgram::new(&entries).unwrap();
        let start = memory(&entries, used);
        let mut expected = start.clone();
        oracle(&entries, &mut expected);
        for way in [Way::Whole, Way::PartsBackwards] {
            let mut actual = start.clone();
            run(&program, &mut actual, way);
            for (slot, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                let wrong = (0..actual.bytes().len()).find(|&at| actual.bytes()[at] != expected.bytes()[at]);
                prop_assert_eq!(wrong, None, "first wrong byte of slot {} running {:?}", slot, way);
            }
        }
    }
}
