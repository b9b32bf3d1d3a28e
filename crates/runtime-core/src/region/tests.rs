//! Execution of whole programs, compared with an oracle that works element by element.
#![expect(unsafe_code, reason = "runs programs on memory that the tests own")]

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use proptest::prelude::*;

use super::{Combine, HostSlot, RegionCopy, RegionProgram, RegionSide, SlotUse, loops};
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

fn bind(memory: &mut [Bytes]) -> Vec<HostSlot> {
    let slot =
        |bytes: &mut Bytes| HostSlot { base: bytes.0.as_mut_ptr().cast(), len: bytes.0.len() * 16 };
    memory.iter_mut().map(slot).collect()
}

/// The way in which a test runs a program.
#[derive(Clone, Copy, Debug)]
enum Way {
    Whole,
    PartsBackwards,
}

fn run(program: &RegionProgram, memory: &mut [Bytes], way: Way) {
    for (used, bytes) in program.slots().iter().zip(memory.iter()) {
        assert!(used.bytes <= bytes.bytes().len());
    }
    let slots = bind(memory);
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

/// The arithmetic table of `DType`, for one element.
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
        DType::Record(record) => {
            for byte in 0..record.size() {
                let value: u8 = memory[entry.source.slot].get(from + byte);
                memory[entry.destination.slot].set(to + byte, value);
            }
        }
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
    // The entry accumulates into the destination of the previous entry.
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

/// Records whose units are of every type.
mod records {
    use crate::{Bool, Element, bf16, record};

    record! { struct Bytes { a: [Bool; 3], b: u8, c: i8 } }
    record! { struct Halves { a: bf16, b: [u8; 4] } }
    record! { struct Words { a: [f32; 2], b: u32 } }
    record! { struct Pairs { a: [u32; 3], b: Words } }
    record! { struct Longs { a: u64, b: [Words; 2], c: [i64; 2], d: f64 } }
    record! { struct Wide { a: f64, b: Pairs } }

    pub(super) const ALL: [crate::DType; 6] =
        [Bytes::DTYPE, Halves::DTYPE, Words::DTYPE, Pairs::DTYPE, Longs::DTYPE, Wide::DTYPE];
}

fn spec() -> impl Strategy<Value = Spec> {
    let combines = prop_oneof![
        3 => Just(Combine::Replace),
        1 => Just(Combine::Sum),
        1 => Just(Combine::Min),
        1 => Just(Combine::Max)
    ];
    (
        prop::sample::select([&DType::ALL[..], &records::ALL].concat()),
        combines,
        any::<bool>(),
        prop::collection::vec(axis(), 0..=6),
        any::<bool>(),
    )
        .prop_map(|(dtype, combine, negate, mut axes, again)| {
            while axes.iter().map(|axis| axis.extent).product::<usize>() > 6000 {
                axes.pop();
            }
            if matches!(dtype, DType::Record(_)) {
                axes.truncate(5);
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

/// Strides for one side, the offset of the first element, and the number of bytes spanned.
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
        stride += axis.pad[side] * spec.dtype.align();
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

/// Entries with disjoint destinations, except for accumulations that follow one another. There are two slots; either
/// may be read or written.
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
            // The same entry again, with another operation, so that the order is visible.
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

/// Memory in which every float is a small finite number if it is summed, so that no NaN hides the order of operands.
fn memory(entries: &[RegionCopy], used: [usize; 2]) -> Vec<Bytes> {
    let sums = entries.iter().any(|entry| entry.combine == Combine::Sum);
    let mask = if sums { 0x3B } else { 0xFF };
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0] & mask;
    used.iter().map(|bytes| Bytes::new(bytes + 64, byte)).collect()
}

/// Checks that a program of these entries gives the oracle's result, run in every way.
#[track_caller]
fn check(entries: &[RegionCopy], start: &[Bytes]) {
    let mut expected = start.to_vec();
    oracle(entries, &mut expected);
    for (base, way) in [(false, Way::Whole), (false, Way::PartsBackwards), (true, Way::Whole)] {
        loops::PREFER_BASE.set(base);
        let program = RegionProgram::new(entries);
        loops::PREFER_BASE.set(false);
        let mut actual = start.to_vec();
        run(&program.unwrap(), &mut actual, way);
        for (slot, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
            let (actual, expected) = (actual.bytes(), expected.bytes());
            let wrong = (0..actual.len()).find(|&at| actual[at] != expected[at]);
            assert_eq!(wrong, None, "first wrong byte of slot {slot}, run {way:?}, base: {base}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn programs_agree_with_the_oracle(specs in prop::collection::vec(spec(), 1..6)) {
        let (entries, used) = entries(&specs);
        check(&entries, &memory(&entries, used));
    }
}

/// The halos of boxes that are their own neighbours on all sides. For each field, which is a slot, the ghost cells of
/// every side, edge and corner come from the opposite cells.
fn periodic(dtype: DType, cells: &[usize], halo: usize, fields: usize) -> Vec<RegionCopy> {
    let size = dtype.size();
    let mut strides = vec![size; cells.len()];
    for dim in (1..cells.len()).rev() {
        strides[dim - 1] = strides[dim] * (cells[dim] + 2 * halo);
    }
    let mut entries = Vec::new();
    let regions: usize = cells.iter().map(|_| 3).product();
    for (slot, mut region) in
        (0..fields).flat_map(|slot| (0..regions).map(move |region| (slot, region)))
    {
        let mut ends = vec![0; cells.len()];
        for end in &mut ends {
            (*end, region) = (region % 3, region / 3);
        }
        if ends.iter().all(|end| *end == 1) {
            continue;
        }
        let pick = |choose: &dyn Fn(usize) -> [usize; 3]| -> Vec<usize> {
            ends.iter().enumerate().map(|(dim, end)| choose(cells[dim])[*end]).collect()
        };
        let side = |at: Vec<usize>| RegionSide {
            slot,
            offset: at.iter().zip(&strides).map(|(at, stride)| at * stride).sum(),
            strides: strides.iter().map(|stride| stride.cast_signed()).collect(),
        };
        entries.push(RegionCopy {
            dtype,
            extents: pick(&|n| [halo, n, halo]),
            source: side(pick(&|n| [n, halo, halo])),
            destination: side(pick(&|n| [0, halo, n + halo])),
            negate: false,
            combine: Combine::Replace,
        });
    }
    entries
}

#[test]
fn interleaved_copies_agree_with_the_oracle() {
    for (cells, halo) in [(&[5, 4, 6][..], 3), (&[70, 3, 9], 1), (&[300, 20], 2), (&[6, 200, 5], 4)]
    {
        for dtype in [DType::U8, DType::F16, DType::F32, DType::F64, DType::C128] {
            let entries = periodic(dtype, cells, halo, 3);
            let used: usize = cells.iter().map(|n| n + 2 * halo).product::<usize>() * dtype.size();
            let start: Vec<Bytes> = (0..3)
                .map(|slot| Bytes::new(used, |at| (at * 7 + at / 251 + slot).to_le_bytes()[0]))
                .collect();
            check(&entries, &start);
            // If a field is absent, nothing of it is touched.
            let program = RegionProgram::new(&entries).unwrap();
            let (mut actual, mut expected) = (start.clone(), start);
            oracle(&periodic(dtype, cells, halo, 1), &mut expected);
            let mut slots = bind(&mut actual);
            slots[1..].fill(HostSlot::ABSENT);
            // SAFETY: the slot is long enough, aligned, and owned by this thread.
            unsafe { program.run(&slots) };
            assert!(actual == expected);
        }
    }
}

/// A matrix of `rows` by `columns`, turned in one of eight ways into another slot.
fn turned(
    dtype: DType,
    rows: usize,
    columns: usize,
    pad: usize,
    turn: usize,
) -> (RegionCopy, [usize; 2]) {
    let size = dtype.size();
    let from_pitch = (columns + pad) * size;
    let transposed = turn & 4 != 0;
    let to_pitch = (if transposed { rows } else { columns } + pad) * size;
    let mut from = [from_pitch.cast_signed(), size.cast_signed()];
    let to = if transposed { [size, to_pitch] } else { [to_pitch, size] };
    let mut offset = 0;
    for (dim, extent) in [rows, columns].into_iter().enumerate() {
        if turn & (1 << dim) != 0 {
            offset += from[dim].unsigned_abs() * (extent - 1);
            from[dim] = -from[dim];
        }
    }
    let copy = RegionCopy {
        dtype,
        extents: vec![rows, columns],
        source: RegionSide { slot: 0, offset, strides: from.to_vec() },
        destination: RegionSide {
            slot: 1,
            offset: 0,
            strides: to.map(usize::cast_signed).to_vec(),
        },
        negate: false,
        combine: Combine::Replace,
    };
    (copy, [rows * from_pitch, (if transposed { columns } else { rows }) * to_pitch])
}

#[test]
fn matrices_turn_every_way() {
    for dtype in [DType::U8, DType::F16, DType::F32, DType::C64, DType::F64, DType::C128] {
        for (rows, columns) in
            [(2, 70), (3, 67), (4, 9), (5, 5), (7, 40), (16, 17), (33, 66), (70, 2)]
        {
            for (turn, pad) in (0..8).flat_map(|turn| [(turn, 0), (turn, 3)]) {
                let (copy, used) = turned(dtype, rows, columns, pad, turn);
                let start = memory(std::slice::from_ref(&copy), used);
                check(std::slice::from_ref(&copy), &start);
                if dtype.admits_negate() {
                    check(&[RegionCopy { negate: true, ..copy }], &start);
                }
            }
        }
    }
}

#[test]
fn rows_of_any_length_are_copied() {
    for length in (1..200).chain([255, 256, 257, 1000, 20_000]) {
        let (mut copy, used) = turned(DType::U8, 3, length, 5, 0);
        check(std::slice::from_ref(&copy), &memory(&[], used));
        copy.extents[0] = 1;
        check(std::slice::from_ref(&copy), &memory(&[], used));
    }
}

#[test]
fn blocked_loops_leave_nothing_out() {
    // Pitches at which few lines stay in a cache, and planes too large for it.
    let strided = |extents: &[usize], from: &[isize], to: &[isize]| {
        let span = |strides: &[isize]| -> usize {
            extents.iter().zip(strides).map(|(n, s)| (n - 1) * s.unsigned_abs()).sum()
        };
        let copy = RegionCopy {
            dtype: DType::F32,
            extents: extents.to_vec(),
            source: RegionSide { slot: 0, offset: 0, strides: from.to_vec() },
            destination: RegionSide { slot: 1, offset: 0, strides: to.to_vec() },
            negate: false,
            combine: Combine::Replace,
        };
        check(&[copy], &memory(&[], [span(from) + 4, span(to) + 4]));
    };
    strided(&[20, 30, 3], &[4, 4096, 122_880], &[360, 12, 4]);
    strided(&[20, 30, 3], &[12, 8192, 4], &[120, 4, 2400]);
    strided(&[200, 190], &[80, 16_384], &[760, 4]);
    strided(&[200, 190], &[4, 800], &[160_000, 80]);
    strided(&[3, 19, 70], &[4, 65_536, 16], &[20_000, 560, 8]);
}

#[test]
fn parts_touch_each_element_once() {
    // Each element is increased by one, so that an omitted element is detected as well as one that is touched twice.
    for (dims, dtype) in [
        (vec![(600_000, 4_isize, 4_isize)], DType::I32),
        (vec![(700, 4, 2800), (700, 2800, 4)], DType::I32),
        (vec![(3, 1_000_000, 4), (300, 2400, 12), (300, 8, 3600)], DType::I32),
        (vec![(90_000, 24, 24), (3, 8, 8)], DType::I64),
    ] {
        let strides = |side: usize| dims.iter().map(|(_, to, from)| [*to, *from][side]).collect();
        let one = RegionCopy {
            dtype,
            extents: dims.iter().map(|(extent, ..)| *extent).collect(),
            source: RegionSide { slot: 0, offset: 0, strides: strides(1) },
            destination: RegionSide { slot: 1, offset: 0, strides: strides(0) },
            negate: false,
            combine: Combine::Sum,
        };
        // A few small copies are grouped in a part next to the large one.
        let small = |slot: usize, extent: usize| {
            let side = |slot: usize| RegionSide { slot, offset: 0, strides: vec![1] };
            RegionCopy {
                dtype: DType::U8,
                extents: vec![extent],
                source: side(0),
                destination: side(slot),
                ..one.clone()
            }
        };
        let entries = [small(2, 100), one.clone(), small(3, 70), small(4, 1)];
        let program = RegionProgram::new(&entries).unwrap();
        assert!(program.parts(0) > 3, "{} parts", program.parts(0));
        let ones = |used: &SlotUse| Bytes::new(used.bytes, |at| u8::from(at % dtype.size() == 0));
        let mut memory: Vec<Bytes> = program.slots().iter().map(ones).collect();
        for zero in &mut memory[1..] {
            zero.0.fill(0);
        }
        let mut expected = memory.clone();
        oracle(&entries, &mut expected);
        let slots = bind(&mut memory);
        std::thread::scope(|scope| {
            let (program, slots) = (&program, &slots);
            for first in 0..2 {
                scope.spawn(move || {
                    for part in (first..program.parts(0)).step_by(2) {
                        // SAFETY: the slots are long enough, aligned and distinct; each part is run once.
                        unsafe { program.run_part(0, part, slots) };
                    }
                });
            }
        });
        assert!(memory == expected);
        assert_eq!((program.parts(1), program.parts(usize::MAX)), (0, 0));
    }
}

#[test]
fn parts_that_are_not_there_do_nothing() {
    let (copy, used) = turned(DType::U8, 2, 3, 0, 4);
    let program = RegionProgram::new(&[copy]).unwrap();
    let mut memory = memory(&[], used);
    let before = memory.clone();
    let slots = bind(&mut memory);
    for (phase, part) in [(0, 1), (1, 0), (usize::MAX, usize::MAX)] {
        // SAFETY: the slots are long enough, aligned and distinct.
        unsafe { program.run_part(phase, part, &slots) };
    }
    assert!(memory == before);
}

/// The result of combining `new` into `old`.
fn combined<T: crate::Element + Copy>(combine: Combine, negate: bool, old: T, new: T) -> T {
    let side = |slot| RegionSide { slot, offset: 0, strides: vec![] };
    let entry = RegionCopy {
        dtype: T::DTYPE,
        extents: vec![],
        source: side(0),
        destination: side(1),
        negate,
        combine,
    };
    let program = RegionProgram::new(&[entry]).unwrap();
    let mut memory = vec![Bytes::new(16, |_| 0); 2];
    memory[0].set(0, new);
    memory[1].set(0, old);
    run(&program, &mut memory, Way::Whole);
    memory[1].get(0)
}

#[test]
fn integers_wrap() {
    assert_eq!(combined(Combine::Sum, false, 250_u8, 10), 4);
    assert_eq!(combined(Combine::Sum, false, i64::MAX, 1), i64::MIN);
    assert_eq!(combined(Combine::Sum, true, 0_u8.cast_signed(), i8::MIN), i8::MIN);
    assert_eq!(combined(Combine::Replace, true, 0, i32::MIN), i32::MIN);
    assert_eq!(combined(Combine::Sum, true, 5_i16, 7), -2);
    assert_eq!(combined(Combine::Min, false, 200_u8, 100), 100);
    assert_eq!(combined(Combine::Min, false, -100_i8, 100), -100);
    assert_eq!(combined(Combine::Max, true, -100_i8, 99), -99);
}

#[test]
fn negation_flips_sign_bits() {
    let nan = f64::from_bits(0x7FF8_0000_0000_1234);
    assert_eq!(combined(Combine::Replace, true, 0.0, nan).to_bits(), nan.to_bits() | 1 << 63);
    assert_eq!(combined(Combine::Replace, true, 1.0, 0.0_f32).to_bits(), 1 << 31);
    assert_eq!(
        combined(Combine::Replace, true, f16::ONE, f16::NAN).to_bits(),
        f16::NAN.to_bits() | 0x8000
    );
    let pair = combined(Combine::Replace, true, Complex::default(), Complex::new(0.0_f32, -2.0));
    assert_eq!((pair.re.to_bits(), pair.im), (1 << 31, 2.0));
}

#[test]
fn either_nan_is_the_minimum_and_the_maximum() {
    for combine in [Combine::Min, Combine::Max] {
        assert!(combined(combine, false, 1.0, f64::NAN).is_nan());
        assert!(combined(combine, false, f32::NAN, 1.0).is_nan());
        assert!(combined(combine, true, bf16::ONE, bf16::NAN).is_nan());
        // Of two zeros, the old one is kept.
        assert!(combined(combine, false, -0.0, 0.0_f64).is_sign_negative());
        assert!(combined(combine, false, 0.0, -0.0_f64).is_sign_positive());
    }
    assert_eq!(combined(Combine::Min, true, 1.0_f32, 2.0), -2.0);
    assert_eq!(combined(Combine::Max, false, f16::NEG_INFINITY, f16::ONE), f16::ONE);
}

#[test]
fn halves_are_summed_in_single_precision() {
    // 2048 + 1 lies between two halves and is rounded to the even one.
    assert_eq!(
        combined(Combine::Sum, false, f16::from_f32(2048.0), f16::ONE),
        f16::from_f32(2048.0)
    );
    assert_eq!(
        combined(Combine::Sum, false, f16::from_f32(2050.0), f16::ONE),
        f16::from_f32(2052.0)
    );
    assert_eq!(combined(Combine::Sum, true, bf16::from_f32(3.0), bf16::ONE), bf16::from_f32(2.0));
    assert!(combined(Combine::Sum, false, f64::INFINITY, f64::NEG_INFINITY).is_nan());
    let sum = combined(Combine::Sum, true, Complex::new(1.0, 2.0), Complex::new(10.0_f64, 20.0));
    assert_eq!(sum, Complex::new(-9.0, -18.0));
}

#[test]
fn accumulations_follow_entry_order() {
    let at = |offset: usize, combine, negate| RegionCopy {
        dtype: DType::F64,
        extents: vec![3],
        source: RegionSide { slot: 0, offset, strides: vec![8] },
        destination: RegionSide { slot: 1, offset: 0, strides: vec![8] },
        negate,
        combine,
    };
    // ((0 + 5) max 7) - 1, then in the reverse order.
    let (add, most, less) =
        (at(0, Combine::Sum, false), at(24, Combine::Max, false), at(48, Combine::Sum, true));
    for (entries, expected) in [([&add, &most, &less], 6.0), ([&less, &most, &add], 12.0)] {
        let entries = entries.map(Clone::clone);
        let program = RegionProgram::new(&entries).unwrap();
        assert_eq!(program.phases().len(), 3);
        let mut memory = vec![Bytes::new(72, |_| 0), Bytes::new(24, |_| 0)];
        for index in 0..3 {
            for (offset, value) in [(0, 5.0_f64), (24, 7.0), (48, 1.0)] {
                memory[0].set(offset + index * 8, value);
            }
        }
        run(&program, &mut memory, Way::PartsBackwards);
        assert_eq!([0, 8, 16].map(|at| memory[1].get::<f64>(at)), [expected; 3]);
    }
}

#[test]
fn bytes_are_those_of_copies_between_bound_slots() {
    let (copy, _) = turned(DType::U8, 2, 3, 0, 4);
    let mut other = copy.clone();
    (other.source.slot, other.destination.slot) = (2, 3);
    let program = RegionProgram::new(&[copy, other]).unwrap();
    assert_eq!(program.bytes(), 12);
    for (bound, bytes) in
        [(&[0, 1, 2, 3][..], 12), (&[0, 1, 2], 6), (&[1, 2, 3], 6), (&[0, 2], 0), (&[], 0)]
    {
        assert_eq!(program.bytes_among(|slot| bound.contains(&slot)), bytes, "{bound:?}");
    }
}

#[test]
fn records_with_gaps_have_at_most_five_dimensions() {
    let strides: Vec<isize> = (0..6).map(|dim| 16 << (2 * dim)).collect();
    let side = |slot: usize| RegionSide { slot, offset: 0, strides: strides.clone() };
    let entry = |dtype: DType| RegionCopy {
        dtype,
        extents: vec![2; 6],
        source: side(0),
        destination: side(1),
        negate: false,
        combine: Combine::Replace,
    };
    RegionProgram::new(&[entry(DType::F32)]).unwrap();
    let [.., words, _, _, _] = records::ALL;
    let error = RegionProgram::new(&[entry(words)]).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
    let message = "entry 0: records along 6 dimensions with gaps, at most 5";
    assert_eq!(error.message(), message);
}
