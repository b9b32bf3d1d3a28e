//! Region copies. Every result is compared with the definition, element by element, including gaps.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use runtime_core::{
    AnyViewMut, Combine, DType, Element, ErrorKind, Layout, Memory, MemoryViewMut, RegionCopy,
    RegionPlan, RegionSide, Result, Slot, Support, bf16, bytemuck, f16,
};

use crate::data::{Random, elements};
use crate::oracle;
use crate::outcome::{Outcome, best_of_three, check, check_eq, refused, refused_as, same};
use crate::setup::Setup;
use crate::{Fixture, Stop};

/// A copy of `len` elements from the start of one slot to the start of another.
pub(super) fn row_copy<T: Element>(source: usize, destination: usize, len: usize) -> RegionCopy {
    let stride = [T::DTYPE.size().cast_signed()];
    copy(T::DTYPE, &[len], side(source, 0, &stride), side(destination, 0, &stride))
}

fn copy(
    dtype: DType,
    extents: &[usize],
    source: RegionSide,
    destination: RegionSide,
) -> RegionCopy {
    RegionCopy {
        dtype,
        extents: extents.to_vec(),
        source,
        destination,
        negate: false,
        combine: Combine::Replace,
    }
}

fn side(slot: usize, offset: usize, strides: &[isize]) -> RegionSide {
    RegionSide { slot, offset, strides: strides.to_vec() }
}

/// Binds each memory to the slot with its number; for writing if the plan writes that slot.
pub(super) fn bind<'a>(plan: &RegionPlan, memories: &'a mut [Memory<u8>]) -> Vec<Slot<'a>> {
    let bind = memories.iter_mut().zip(plan.slots());
    bind.map(|(memory, used)| match used.written {
        true => Slot::from(memory.view_mut()),
        false => Slot::from(memory.view()),
    })
    .collect()
}

/// Executes the entries on memories with these bytes, and compares every byte with the definition.
#[track_caller]
fn prove(setup: &Setup, entries: &[RegionCopy], slots: &[Vec<u8>], what: impl Display) -> Outcome {
    let plan = setup.device.plan_regions(entries)?;
    let mut memories = slots.iter().map(|bytes| setup.upload(bytes)).collect::<Result<Vec<_>>>()?;
    plan.execute(&setup.stream, &mut bind(&plan, &mut memories))?;
    let mut expected = slots.to_vec();
    oracle::run(entries, &mut expected);
    for (slot, (memory, expected)) in memories.iter().zip(&expected).enumerate() {
        same(&setup.download(memory)?, expected, format_args!("{what}: slot {slot}"))?;
    }
    Ok(())
}

/// Contiguous copies work at odd offsets, for every length up to a few words, and for some KiB.
pub fn contiguous_regions_are_copied(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let source = elements::<u8>(1, 9000);
    let target = elements::<u8>(2, 9000);
    for bytes in (1..40).chain([127, 4096, 8999]) {
        let mut entry = row_copy::<u8>(0, 1, bytes);
        entry.source.offset = 9000 - bytes;
        entry.destination.offset = (bytes * 7) % (9001 - bytes);
        let slots = [source.clone(), target.clone()];
        prove(&setup, &[entry], &slots, format_args!("{bytes} bytes"))?;
    }
    Ok(())
}

/// Random plans match the definition in every byte: all element types and ranks, strides in any order and sign, sources
/// that repeat elements. Bytes between the regions do not change.
pub fn random_regions_agree_with_the_definition(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut entries = Vec::new();
        let mut ends = [0, 0];
        for _ in 0..1 + random.below(4) {
            let dtype = DType::ALL[random.below(DType::ALL.len())];
            let rank = random.below(7);
            let largest = if rank > 3 { 3 } else { 6 };
            let extents: Vec<usize> = (0..rank)
                .map(|_| if random.below(20) == 0 { 0 } else { 1 + random.below(largest) })
                .collect();
            let repeats = random.chance();
            let (source, end) = place(&mut random, dtype, &extents, 0, repeats);
            ends[0] = ends[0].max(end);
            let (destination, end) = place(&mut random, dtype, &extents, ends[1], false);
            ends[1] = end;
            let mut entry = copy(dtype, &extents, source, destination);
            entry.destination.slot = 1;
            entry.negate = dtype.admits_negate() && random.chance();
            entries.push(entry);
        }
        let slots = ends.map(|end| elements::<u8>(seed + 100, end + 16)).to_vec();
        prove(&setup, &entries, &slots, format_args!("{entries:?}"))?;
    }
    Ok(())
}

/// A side for a box of `extents` somewhere after byte `start`, and the first byte after the box. The dimensions are in
/// any order, with gaps, forwards or backwards.
fn place(
    random: &mut Random,
    dtype: DType,
    extents: &[usize],
    start: usize,
    repeats: bool,
) -> (RegionSide, usize) {
    let mut order: Vec<usize> = (0..extents.len()).collect();
    random.shuffle(&mut order);
    let start = start.next_multiple_of(dtype.size()) + dtype.size() * random.below(3);
    let mut strides = vec![0; extents.len()];
    let (mut offset, mut step) = (start, dtype.size());
    for dim in order {
        let extent = extents[dim].max(1);
        if repeats && random.below(4) == 0 {
            continue;
        }
        let stride = step * if random.below(4) == 0 { 2 } else { 1 };
        step = stride * extent;
        strides[dim] = stride.cast_signed();
        if random.chance() {
            offset += (extent - 1) * stride;
            strides[dim] = -strides[dim];
        }
    }
    (RegionSide { slot: 0, offset, strides }, start + step)
}

/// The eight symmetries of the square move every element to its geometric position, for several element sizes.
pub fn the_symmetries_of_the_square_are_exact(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (rows, columns) = (5_usize, 7_usize);
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64, DType::C128] {
        let size = dtype.size();
        let bytes = elements::<u8>(3, rows * columns * size);
        for symmetry in 0..8 {
            // The position of element [i, j] of the source in the result is computed without strides.
            let (transposed, up, left) = (symmetry & 4 != 0, symmetry & 2 != 0, symmetry & 1 != 0);
            let (height, width) = if transposed { (columns, rows) } else { (rows, columns) };
            let mut expected = vec![0; bytes.len()];
            for i in 0..rows {
                for j in 0..columns {
                    let (mut y, mut x) = if transposed { (j, i) } else { (i, j) };
                    if up {
                        y = height - 1 - y;
                    }
                    if left {
                        x = width - 1 - x;
                    }
                    let (from, to) = ((i * columns + j) * size, (y * width + x) * size);
                    expected[to..to + size].copy_from_slice(&bytes[from..from + size]);
                }
            }
            let size = size.cast_signed();
            let pitch = width.cast_signed() * size;
            let (dy, dx) = (if up { -pitch } else { pitch }, if left { -size } else { size });
            let strides = if transposed { [dx, dy] } else { [dy, dx] };
            let offset = if up { (height - 1) * width * dtype.size() } else { 0 }
                + if left { (width - 1) * dtype.size() } else { 0 };
            let entry = copy(
                dtype,
                &[rows, columns],
                side(0, 0, &[columns.cast_signed() * size, size]),
                side(1, offset, &strides),
            );
            let plan = setup.device.plan_regions(&[entry])?;
            let mut memories = [setup.upload(&bytes)?, setup.upload(&vec![0_u8; bytes.len()])?];
            plan.execute(&setup.stream, &mut bind(&plan, &mut memories))?;
            let what = format_args!("symmetry {symmetry} of {rows} × {columns} {dtype}");
            same(&setup.download(&memories[1])?, &expected, what)?;
        }
    }
    Ok(())
}

/// Permuted three-dimensional arrays, thin faces of them, and large planes are copied in any orientation.
pub fn large_regions_are_copied_in_any_orientation(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let shape = [30_usize, 41, 52];
    let dtype = DType::F32;
    let strides = |shape: [usize; 3]| {
        [shape[1] * shape[2], shape[2], 1].map(|stride| (stride * dtype.size()).cast_signed())
    };
    let bytes = shape.iter().product::<usize>() * dtype.size();
    let slots = [elements::<u8>(4, bytes), elements::<u8>(5, bytes)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        // The destination has the dimensions in a different order.
        let there = strides(order.map(|dim| shape[dim]));
        let mut destination = [0; 3];
        order.iter().zip(there).for_each(|(dim, stride)| destination[*dim] = stride);
        for thin in 0..4 {
            let mut extents = shape;
            if let Some(extent) = extents.get_mut(thin) {
                *extent = 3;
            }
            let entry =
                copy(dtype, &extents, side(0, 0, &strides(shape)), side(1, 0, &destination));
            let what = format_args!("{extents:?} of {shape:?} in order {order:?}");
            prove(&setup, &[entry], &slots, what)?;
        }
    }
    let (width, bytes) = (300_isize, 300 * 300 * 8);
    let slots = [elements::<u8>(6, bytes), elements::<u8>(7, bytes)];
    let turned = side(1, (300 - 1) * 8, &[-8, width * 8]);
    let entry = copy(DType::F64, &[300, 300], side(0, 0, &[width * 8, 8]), turned);
    prove(&setup, &[entry], &slots, "a plane of 300² f64 turned by 90°")
}

/// A plan without elements does nothing, whichever extent is zero.
pub fn empty_regions_do_nothing(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let slots = [elements::<u8>(8, 64), elements::<u8>(9, 64)];
    for extents in [&[0][..], &[0, 4], &[4, 0], &[2, 0, 2]] {
        let strides = vec![4; extents.len()];
        let entry = copy(DType::F32, extents, side(0, 0, &strides), side(1, 0, &strides));
        let plan = setup.device.plan_regions(std::slice::from_ref(&entry))?;
        check_eq!((plan.bytes(), plan.phases()), (0, 0), "bytes and phases of {extents:?}");
        prove(&setup, &[entry], &slots, format_args!("{extents:?}"))?;
    }
    Ok(())
}

/// Negation works for every type that supports it, and is refused for others.
pub fn negation_is_exact_where_it_is_admitted(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for dtype in DType::ALL {
        let size = dtype.size().cast_signed();
        let mut entry =
            copy(dtype, &[50], side(0, 0, &[size]), side(1, 49 * dtype.size(), &[-size]));
        entry.negate = true;
        if !dtype.admits_negate() {
            let plan = setup.device.plan_regions(&[entry]);
            refused(plan, ErrorKind::InvalidArgument, format_args!("negating {dtype}"))?;
            continue;
        }
        // Arbitrary bits, including NaNs, infinities, zeros of both signs and the smallest integers.
        let mut source = elements::<u8>(10, 50 * dtype.size());
        source[..8 * dtype.size()].fill(0);
        source[dtype.size() * 2 - 1] = 0x80;
        let slots = [source, elements::<u8>(11, 50 * dtype.size())];
        prove(&setup, &[entry], &slots, format_args!("negating {dtype}"))?;
    }
    Ok(())
}

/// Sum, minimum and maximum are exact for every type that supports them, and refused for others.
pub fn accumulation_is_exact_where_it_is_admitted(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for dtype in DType::ALL {
        let size = dtype.size().cast_signed();
        for combine in [Combine::Sum, Combine::Min, Combine::Max] {
            for negate in [false, true] {
                let mut entry = copy(
                    dtype,
                    &[7, 9],
                    side(0, 0, &[9 * size, size]),
                    side(1, 0, &[size, 7 * size]),
                );
                (entry.combine, entry.negate) = (combine, negate && dtype.admits_negate());
                let admitted = match combine {
                    Combine::Sum => dtype.admits_sum(),
                    _ => dtype.admits_order(),
                };
                let what = format!("{combine:?} of {dtype}, negate: {negate}");
                if !admitted {
                    let plan = setup.device.plan_regions(&[entry]);
                    refused(plan, ErrorKind::InvalidArgument, what)?;
                    continue;
                }
                let slots = [oracle::numbers(dtype, 12, 63), oracle::numbers(dtype, 13, 63)];
                prove(&setup, &[entry], &slots, what)?;
            }
        }
    }
    Ok(())
}

/// Zeros of both signs, infinities and NaN combine as documented for the element types.
pub fn special_values_combine_as_documented(fixture: &Fixture) -> Outcome {
    const SPECIAL: [f32; 8] =
        [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 2.0];
    let setup = fixture.setup()?;
    let bytes = |dtype: DType, value: f32| match dtype {
        DType::F16 => f16::from_f32(value).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value).to_ne_bytes().to_vec(),
        DType::F64 => f64::from(value).to_ne_bytes().to_vec(),
        _ => value.to_ne_bytes().to_vec(),
    };
    let value = |dtype: DType, bytes: &[u8]| -> f64 {
        match dtype {
            DType::F16 => bytemuck::pod_read_unaligned::<f16>(bytes).to_f64(),
            DType::BF16 => bytemuck::pod_read_unaligned::<bf16>(bytes).to_f64(),
            DType::F64 => bytemuck::pod_read_unaligned(bytes),
            _ => bytemuck::pod_read_unaligned::<f32>(bytes).into(),
        }
    };
    let pairs: Vec<_> = SPECIAL.iter().flat_map(|a| SPECIAL.map(|b| (*a, b))).collect();
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let size = dtype.size().cast_signed();
        let old: Vec<u8> = pairs.iter().flat_map(|pair| bytes(dtype, pair.0)).collect();
        let new: Vec<u8> = pairs.iter().flat_map(|pair| bytes(dtype, pair.1)).collect();
        for combine in [Combine::Sum, Combine::Min, Combine::Max] {
            let mut entry = copy(dtype, &[pairs.len()], side(0, 0, &[size]), side(1, 0, &[size]));
            entry.combine = combine;
            let plan = setup.device.plan_regions(&[entry])?;
            let mut memories = [setup.upload(&new)?, setup.upload(&old)?];
            plan.execute(&setup.stream, &mut bind(&plan, &mut memories))?;
            let found = setup.download(&memories[1])?;
            for ((old, new), found) in pairs.iter().zip(found.chunks(dtype.size())) {
                let (old, new, found) = (f64::from(*old), f64::from(*new), value(dtype, found));
                let expected = match combine {
                    Combine::Sum => old + new,
                    Combine::Min if new < old || new.is_nan() => new,
                    Combine::Max if new > old || new.is_nan() => new,
                    _ => old,
                };
                // The processor chooses which NaN results from a sum.
                let right =
                    (found.is_nan() && expected.is_nan()) || found.to_bits() == expected.to_bits();
                check!(
                    right,
                    "{combine:?} of {old} and {new} as {dtype} is {found}, expected {expected}"
                );
            }
        }
    }
    Ok(())
}

/// One plan can use several memories and element types; one byte buffer can hold all of them.
pub fn one_plan_serves_many_slots_and_types(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    // Packs four fields into one buffer, as for a message, and unpacks them into other fields.
    let types = [DType::F64, DType::I16, DType::C64, DType::U8];
    let buffer = types.len();
    let (mut pack, mut unpack) = (Vec::new(), Vec::new());
    let mut end: usize = 0;
    for (slot, dtype) in types.into_iter().enumerate() {
        let size = dtype.size().cast_signed();
        let start = end.next_multiple_of(dtype.size());
        let strided = side(slot, dtype.size(), &[10 * size, 2 * size]);
        pack.push(copy(dtype, &[4, 5], strided.clone(), side(buffer, start, &[5 * size, size])));
        unpack.push(copy(dtype, &[4, 5], side(buffer, start, &[5 * size, size]), strided));
        end = start + 20 * dtype.size();
    }
    let field = |seed: u64, dtype: DType| elements::<u8>(seed, 50 * dtype.size());
    for (entries, what) in [(pack, "packing"), (unpack, "unpacking")] {
        let mut slots: Vec<_> = (20..).zip(types).map(|(seed, dtype)| field(seed, dtype)).collect();
        slots.push(elements::<u8>(30, end));
        prove(&setup, &entries, &slots, what)?;
    }
    // More memories than fit into one launch on any device.
    let entries: Vec<_> = (0..40).map(|slot| row_copy::<u8>(2 * slot, 2 * slot + 1, 17)).collect();
    let slots: Vec<_> = (0..80).map(|seed| elements::<u8>(seed, 20)).collect();
    prove(&setup, &entries, &slots, "eighty memories")
}

/// Typed views can be bound if the type matches. They are bound by their lowest byte.
pub fn views_are_bound_by_their_first_byte(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let data = elements::<f32>(14, 60);
    let source = setup.upload(&data)?;
    let mut target = setup.upload(&[0.0_f32; 60])?;
    let entry = copy(DType::F32, &[6], side(0, 4, &[8]), side(1, 20, &[-4]));
    let plan = setup.device.plan_regions(&[entry])?;
    let mut expected = vec![0.0_f32; 60];
    for (from, to) in [(0, 0), (7, 30), (48, 54)] {
        let mut slots = [
            Slot::from(source.view().slice(from..from + 12)?),
            Slot::from(target.view_mut().slice(to..to + 6)?),
        ];
        plan.execute(&setup.stream, &mut slots)?;
        for i in 0..6 {
            expected[to + 5 - i] = data[from + 1 + 2 * i];
        }
    }
    same(&setup.download(&target)?, &expected, "three executions on parts of two memories")?;
    let shaped = source.view().reshape(&[6, 10])?.region(&[1..4, 2..5])?;
    let mut row = setup.upload(&[0.0_f32; 9])?;
    let contiguous = row.view().reshape(&[3, 3])?.region_side(1);
    let gather = copy(DType::F32, &[3, 3], shaped.region_side(0), contiguous);
    let plan = setup.device.plan_regions(&[gather])?;
    plan.execute(&setup.stream, &mut [Slot::from(shaped), Slot::from(row.view_mut())])?;
    let expected: Vec<f32> = (0..9).map(|i| data[(1 + i / 3) * 10 + 2 + i % 3]).collect();
    same(&setup.download(&row)?, &expected, "a box gathered by its own layout")
}

/// Overlapping destinations, and destinations that overlap a source, are refused. Interleaved ones are accepted.
pub fn overlap_is_decided_exactly(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let f32s = |offset: usize, stride: isize| {
        copy(DType::F32, &[8], side(0, 0, &[4]), side(1, offset, &[stride]))
    };
    let refuse = |entries: &[RegionCopy], what: &str| -> Outcome {
        refused(setup.device.plan_regions(entries), ErrorKind::InvalidArgument, what)?;
        Ok(())
    };
    refuse(&[f32s(0, 4), f32s(0, 4)], "two entries to one place")?;
    refuse(&[f32s(0, 8), f32s(56, -8)], "two entries to one place, one backwards")?;
    refuse(&[f32s(0, 4), f32s(28, 4)], "two entries that share an element")?;
    refuse(&[f32s(0, 0)], "an entry whose elements all go to one place")?;
    let shared = copy(DType::F32, &[4, 4], side(0, 0, &[16, 4]), side(1, 0, &[8, 4]));
    refuse(&[shared], "an entry whose rows share elements")?;
    let mut half = f32s(0, 4);
    half.dtype = DType::I16;
    half.source.strides = vec![2];
    half.destination = side(1, 30, &[2]);
    refuse(&[f32s(0, 4), half.clone()], "two types that share two bytes")?;
    let mut sum = f32s(28, 4);
    sum.combine = Combine::Sum;
    refuse(&[f32s(0, 4), sum], "a replacement and a sum in one place")?;
    let onto_itself = copy(DType::F32, &[8], side(0, 0, &[4]), side(0, 28, &[4]));
    refuse(&[onto_itself], "a source that its own destination overlaps")?;
    let chained = copy(DType::F32, &[8], side(1, 28, &[4]), side(2, 0, &[4]));
    refuse(&[f32s(0, 4), chained], "a source that another destination overlaps")?;

    let slots = [elements::<u8>(15, 64), elements::<u8>(16, 128)];
    half.destination.offset = 32;
    prove(&setup, &[f32s(0, 4), half], &slots, "destinations that touch")?;
    prove(&setup, &[f32s(0, 8), f32s(4, 8)], &slots, "interleaved destinations")?;
    let combs: Vec<_> = [0, 4, 8, 12].map(|offset| f32s(offset, 16)).to_vec();
    prove(&setup, &combs, &slots, "four interleaved destinations")?;
    let within = copy(DType::F32, &[8], side(1, 0, &[16]), side(1, 8, &[16]));
    prove(&setup, &[within], &slots, "source and destination interleaved in one memory")
}

/// Accumulations into the same element happen in the order of the entries.
pub fn overlapping_accumulations_happen_in_entry_order(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    // The order is visible: a large number absorbs earlier terms before it is subtracted again.
    let terms = [1.0_f64, 1.0e17, 3.0, -1.0e17, 5.0];
    let source: Vec<u8> = terms.iter().flat_map(|x| [*x; 6]).flat_map(f64::to_ne_bytes).collect();
    let entries: Vec<_> = (0..terms.len())
        .map(|term| {
            let mut entry = copy(DType::F64, &[6], side(0, term * 48, &[8]), side(1, 0, &[8]));
            entry.combine = Combine::Sum;
            entry
        })
        .collect();
    let zeros: Vec<u8> = [0.5_f64; 6].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let slots = [source, zeros];
    let plan = setup.device.plan_regions(&entries)?;
    check!(plan.phases() > 1, "sums into one element take {} phase", plan.phases());
    for turn in 0..terms.len() {
        let mut turned = entries.clone();
        turned.rotate_left(turn);
        prove(&setup, &turned, &slots, format_args!("sums in order, turned by {turn}"))?;
    }
    // Destinations that overlap partly, as of neighbours that share a line of elements, with different accumulations.
    let mut shared: Vec<_> = (0..4)
        .map(|i| copy(DType::F64, &[3], side(0, i * 24, &[8]), side(1, i * 8, &[8])))
        .collect();
    for (entry, combine) in
        shared.iter_mut().zip([Combine::Sum, Combine::Max, Combine::Min, Combine::Sum])
    {
        entry.combine = combine;
    }
    prove(&setup, &shared, &slots, "overlapping accumulations of different kinds")?;
    let apart: Vec<_> = (0..2)
        .map(|i| {
            let mut entry = copy(DType::F64, &[3], side(0, i * 24, &[8]), side(1, i * 24, &[8]));
            entry.combine = Combine::Sum;
            entry
        })
        .collect();
    let plan = setup.device.plan_regions(&apart)?;
    check_eq!(plan.phases(), 1, "phases of sums that do not overlap");
    Ok(())
}

/// A slot that is read and written can be bound to two parts of one memory, or to all of it.
pub fn two_parts_of_one_memory_share_a_slot(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let data = elements::<u8>(17, 100);
    for (read_first, from, to) in [(true, 0, 60), (false, 60, 0)] {
        let entry = copy(DType::U8, &[40], side(0, from, &[1]), side(0, to, &[1]));
        let plan = setup.device.plan_regions(&[entry])?;
        let mut memory = setup.upload(&data)?;
        let (low, high) = memory.view_mut().split_at(50)?;
        // The upper part begins where the copy needs it; offsets count from the lower start.
        let high = high.slice(10..50)?;
        let (read, write) = if read_first { (low, high) } else { (high, low) };
        let mut slots = [Slot::Both { read: read.as_view().erase(), write: write.erase() }];
        plan.execute(&setup.stream, &mut slots)?;
        let mut expected = data.clone();
        expected.copy_within(from..from + 40, to);
        same(&setup.download(&memory)?, &expected, format_args!("40 bytes from {from} to {to}"))?;
        let mut whole = setup.upload(&data)?;
        plan.execute(&setup.stream, &mut [Slot::from(whole.view_mut())])?;
        same(&setup.download(&whole)?, &expected, "the same with the whole memory bound")?;
    }
    let entry = copy(DType::U8, &[4], side(0, 0, &[1]), side(0, 8, &[1]));
    let plan = setup.device.plan_regions(&[entry])?;
    let (one, mut two) = (setup.upload(&data)?, setup.upload(&data)?);
    let mut slots = [Slot::Both { read: one.view().erase(), write: two.view_mut().erase() }];
    let executed = plan.execute(&setup.stream, &mut slots);
    refused(executed, ErrorKind::InvalidArgument, "two parts of different memories")?;
    same(&setup.download(&two)?, &data, "memory after a refused execution")
}

/// A plan touches nothing between the elements of its bound views; other work may use these gaps at the same time. A
/// plan that would touch a gap is refused. Regions of any shape within the elements are accepted.
pub fn plans_stay_within_the_elements_of_views(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut expected = elements::<u32>(23, 48);
    let mut memory = setup.upload(&expected)?;
    let values = elements::<u32>(24, 16);
    // Regions in rows 1 to 4 of six and columns 2 to 5 of eight, and whether the whole region lies in them.
    let cases: [(&[usize], usize, &[isize], bool); 11] = [
        (&[4, 4], 0, &[32, 4], true),
        (&[4, 4], 12, &[32, -4], true),
        (&[2, 2], 0, &[64, 8], true),
        (&[2, 2], 4, &[36, 4], true),
        (&[4], 0, &[36], true),
        (&[4], 12, &[28], true),
        (&[], 16, &[], false),
        (&[5], 0, &[4], false),
        (&[2, 4], 0, &[16, 4], false),
        (&[3, 5], 0, &[32, 4], false),
        (&[2, 2], 8, &[36, 4], false),
    ];
    for (extents, offset, strides, inside) in cases {
        let len = extents.iter().product();
        let packed = if let [_, columns] = extents {
            vec![4 * columns.cast_signed(), 4]
        } else {
            vec![4; extents.len()]
        };
        let (near, wire) = (side(0, offset, strides), side(1, 0, &packed));
        let entry = |source: &RegionSide, destination: &RegionSide| {
            copy(DType::U32, extents, source.clone(), destination.clone())
        };
        let reads = setup.device.plan_regions(&[entry(&near, &wire)])?;
        let writes = setup.device.plan_regions(&[entry(&wire, &near)])?;
        let place = |index: usize| {
            let inner = extents.last().copied().unwrap_or(1);
            let steps = [index / inner, index % inner].map(usize::cast_signed);
            let steps = &steps[2 - extents.len()..];
            let bytes: isize = steps.iter().zip(strides).map(|(step, stride)| step * stride).sum();
            10 + (offset.cast_signed() + bytes).cast_unsigned() / 4
        };
        // Views of bytes fit any type. Each case runs twice, to test what a plan caches.
        for as_bytes in [false, true, false, true] {
            let what = format!("{extents:?} at byte {offset} by {strides:?}, bytes: {as_bytes}");
            let mut row = setup.upload(&[0_u32; 16])?;
            let from = boxed(memory.view_mut(), as_bytes)?;
            let read =
                reads.execute(&setup.stream, &mut [from.as_view().into(), row.view_mut().into()]);
            let mut to = setup.upload(&values)?;
            let to = to.view_mut();
            let from = boxed(memory.view_mut(), as_bytes)?;
            let written = writes.execute(&setup.stream, &mut [from.into(), to.as_view().into()]);
            if !inside {
                refused(read, ErrorKind::OutOfBounds, format_args!("reading {what}"))?;
                refused(written, ErrorKind::OutOfBounds, format_args!("writing {what}"))?;
                continue;
            }
            read?;
            written?;
            let mut picked: Vec<u32> = (0..len).map(|index| expected[place(index)]).collect();
            picked.resize(16, 0);
            same(&setup.download(&row)?, &picked, format_args!("the values read from {what}"))?;
            (0..len).for_each(|index| expected[place(index)] = values[index]);
            same(
                &setup.download(&memory)?,
                &expected,
                format_args!("the values written to {what}"),
            )?;
        }
    }
    same(&setup.download(&memory)?, &expected, "memory after refused executions")
}

/// Rows 1 to 4 and columns 2 to 5 of a view of 6 × 8 words.
fn boxed(view: MemoryViewMut<'_, u32>, as_bytes: bool) -> Result<AnyViewMut<'_>> {
    if !as_bytes {
        return Ok(view.reshape(&[6, 8])?.region(&[1..5, 2..6])?.erase());
    }
    let bytes = Layout::row(DType::U8, 192)?;
    view.reinterpret(0, &bytes)?.reshape(&[6, 32])?.region(&[1..5, 8..24])
}

/// Two parts of one memory that lie in each other's gaps can share a slot. The plan writes only one of them, and reads
/// only these two.
pub fn parts_in_the_gaps_of_each_other_share_a_slot(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut expected = elements::<u8>(25, 60);
    let mut memory = setup.upload(&expected)?;
    // Columns 1 to 4 and 5 to 8 of six rows of ten.
    let layout = Layout::new(DType::U8, &[10, 6], &[1, 10])?;
    for (from, to, inside) in [
        (0, 4, true),
        (5, 4, true),
        (3, 7, true),
        (4, 0, false),
        (4, 3, false),
        (8, 5, false),
        (3, 8, false),
    ] {
        let plan = setup.device.plan_regions(&[copy(
            DType::U8,
            &[6],
            side(0, from, &[10]),
            side(0, to, &[10]),
        )])?;
        let columns = memory.view_mut().with_layout(0, &layout)?.region(&[1..9, 0..6])?;
        let (read, write) = columns.split_at(4)?;
        let (read, write) = (read.as_view().erase(), write.erase());
        let done = plan.execute(&setup.stream, &mut [Slot::Both { read, write }]);
        let what = format!("column {from} to {to}");
        if inside {
            done?;
            (0..6).for_each(|row| expected[10 * row + to + 1] = expected[10 * row + from + 1]);
        } else {
            refused(done, ErrorKind::OutOfBounds, &what)?;
        }
        same(&setup.download(&memory)?, &expected, what)?;
    }
    // The elements of a view outside a box, and an element beyond the view.
    let plan = |to| {
        let plan = setup.device.plan_regions(&[copy(
            DType::U8,
            &[],
            side(1, 0, &[]),
            side(0, to, &[]),
        )])?;
        plan.with_split(0, 11, &Layout::contiguous(DType::U8, &[1, 1])?)
    };
    let one = setup.upload(&[77_u8])?;
    let (at, beyond) = (plan(13)?, plan(18)?);
    for (plan, inside) in [(at, true), (beyond, false)] {
        let part = memory.view_mut().reshape(&[6, 10])?.region(&[1..5, 2..9])?;
        let (_, outside) = part.split_off_box(&[1..2, 1..2])?;
        let done = plan.execute(&setup.stream, &mut [outside.into(), one.view().into()]);
        match inside {
            true => done?,
            false => drop(refused(done, ErrorKind::OutOfBounds, "outside a box, beyond the view")?),
        }
    }
    expected[12 + 13] = 77;
    same(&setup.download(&memory)?, &expected, "the memory outside the box")
}

/// Several slots can be bound to parts of one memory for reading.
pub fn slots_that_are_read_share_a_memory(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let data = elements::<u8>(22, 64);
    let source = setup.upload(&data)?;
    let mut target = setup.upload(&[0_u8; 64])?;
    let entries: Vec<_> = (0..3)
        .map(|slot| copy(DType::U8, &[20], side(slot, 0, &[1]), side(3, 20 * slot, &[1])))
        .collect();
    let plan = setup.device.plan_regions(&entries)?;
    // Adjacent parts, and overlapping parts.
    for step in [20, 7] {
        let part = |slot: usize| source.view().slice(step * slot..step * slot + 20);
        let [a, b, c] = [part(0)?, part(1)?, part(2)?].map(Slot::from);
        plan.execute(&setup.stream, &mut [a, b, c, target.view_mut().into()])?;
        let parts = (0..3).flat_map(|slot| data[step * slot..step * slot + 20].to_vec());
        let expected: Vec<u8> = parts.chain([0; 4]).collect();
        same(&setup.download(&target)?, &expected, format_args!("parts {step} bytes apart"))?;
    }
    Ok(())
}

/// Slots that are read and written can be bound to parts of one memory that share no elements: adjacent parts, and
/// interleaved parts.
pub fn slots_that_are_written_share_a_memory(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let data = elements::<i32>(23, 32);
    // The stride within a part, and the distance from one part to the other.
    for (stride, parts) in [(1_usize, 16_usize), (2, 1)] {
        let layout = [parts.cast_signed(), stride.cast_signed()];
        let layout = Layout::new(DType::I32, &[2, 16], &layout)?;
        let bytes = 4 * stride.cast_signed();
        let entries = [
            copy(DType::I32, &[15], side(0, 0, &[bytes]), side(1, 4 * stride, &[bytes])),
            copy(DType::I32, &[1], side(2, 0, &[4]), side(1, 0, &[bytes])),
        ];
        let plan = setup.device.plan_regions(&entries)?;
        let mut memory = setup.upload(&data)?;
        let other = setup.upload(&[-7_i32])?;
        let whole = memory.view_mut().with_layout(0, &layout)?;
        let (from, to) = whole.split_at(1)?;
        let mut slots = [Slot::from(from.as_view()), Slot::from(to), Slot::from(other.view())];
        plan.execute(&setup.stream, &mut slots)?;
        let mut expected = data.clone();
        expected[parts] = -7;
        for i in 1..16 {
            expected[parts + i * stride] = data[(i - 1) * stride];
        }
        same(&setup.download(&memory)?, &expected, format_args!("parts {parts} elements apart"))?;
    }
    Ok(())
}

/// Copies that read or write an absent slot are left out, and all others are made, whichever slots are absent.
pub fn copies_of_absent_slots_are_left_out(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    // Sums into one element, and copies to separate memories.
    let mut entries = Vec::new();
    for source in 0..3 {
        let mut sum = copy(DType::I32, &[5, 3], side(source, 0, &[12, 4]), side(3, 56, &[-4, -20]));
        (sum.combine, sum.negate) = (Combine::Sum, source == 1);
        entries.push(sum);
        entries.push(copy(DType::I32, &[15], side(source, 0, &[4]), side(4, source * 60, &[4])));
    }
    let mut slots: Vec<_> = (0..3).map(|seed| elements::<u8>(seed, 60)).collect();
    slots.extend([elements::<u8>(3, 60), elements::<u8>(4, 180)]);
    for absent in 0..1 << slots.len() {
        prove_without(&setup, &entries, &slots, |slot| absent >> slot & 1 != 0)?;
    }
    // More memories than fit into one launch on any device.
    let entries: Vec<_> = (0..40).map(|slot| row_copy::<u8>(2 * slot, 2 * slot + 1, 17)).collect();
    let slots: Vec<_> = (0..80).map(|seed| elements::<u8>(seed, 20)).collect();
    prove_without(&setup, &entries, &slots, |slot| slot % 3 == 0)?;
    let plan = setup.device.plan_regions(&entries[..1])?;
    let few = plan.execute(&setup.stream, &mut [Slot::Absent]);
    refused(few, ErrorKind::InvalidArgument, "one absent slot for two")?;
    Ok(())
}

/// As [`prove`], with the slots absent for which `is_absent` returns true. Executes the plan twice; the second time,
/// all slots are present.
#[track_caller]
fn prove_without(
    setup: &Setup,
    entries: &[RegionCopy],
    slots: &[Vec<u8>],
    is_absent: impl Fn(usize) -> bool,
) -> Outcome {
    let plan = setup.device.plan_regions(entries)?;
    let mut memories = slots.iter().map(|bytes| setup.upload(bytes)).collect::<Result<Vec<_>>>()?;
    let mut bound = bind(&plan, &mut memories);
    let absent: Vec<usize> = (0..slots.len()).filter(|slot| is_absent(*slot)).collect();
    absent.iter().for_each(|slot| bound[*slot] = Slot::Absent);
    plan.execute(&setup.stream, &mut bound)?;
    let mut expected = slots.to_vec();
    let is_left_out =
        |entry: &&RegionCopy| is_absent(entry.source.slot) || is_absent(entry.destination.slot);
    let executed: Vec<_> = entries.iter().filter(|entry| !is_left_out(entry)).cloned().collect();
    oracle::run(&executed, &mut expected);
    for (slot, (memory, expected)) in memories.iter().zip(&expected).enumerate() {
        let what = format_args!("slot {slot} without the slots {absent:?}");
        same(&setup.download(memory)?, expected, what)?;
    }
    plan.execute(&setup.stream, &mut bind(&plan, &mut memories))?;
    oracle::run(entries, &mut expected);
    for (slot, (memory, expected)) in memories.iter().zip(&expected).enumerate() {
        let what = format_args!("slot {slot} after the slots {absent:?} were absent");
        same(&setup.download(memory)?, expected, what)?;
    }
    Ok(())
}

/// A memory is split by a box: one stream copies out of the box, another stream writes the memory outside it. The
/// two are not ordered.
pub fn a_box_is_read_while_the_elements_outside_are_written(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    // Ten rows of 8. The first and last rows, and the ends of the others, are outside the box.
    let bytes = elements::<u8>(21, 80);
    let mut memory = setup.upload(&bytes)?;
    let mut copied = setup.upload(&[0; 48])?;
    let (inside, mut outside) =
        memory.view_mut().reshape(&[10, 8])?.split_off_box(&[1..9, 1..7])?;
    // The split survives both conversions.
    let part = inside.erase().typed::<u8>()?;
    let strides = [8, 1];
    let inwards = copy(DType::U8, &[8, 6], side(0, 0, &strides), side(1, 0, &[6, 1]));
    let read = setup.device.plan_regions(&[inwards])?.with_split(0, 0, part.layout())?;
    let ends = [(9, 0), (14, 7)]
        .map(|(from, to)| copy(DType::U8, &[8], side(0, from, &[8]), side(0, to + 8, &[8])));
    let write = setup.device.plan_regions(&ends)?.with_split(0, 9, part.layout())?;
    let other = setup.device.stream_create(&Default::default())?;
    other.wait(&setup.stream.record_event()?)?;
    for _ in 0..20 {
        read.execute(&other, &mut [part.into(), Slot::from(copied.view_mut())])?;
        write.execute(&setup.stream, &mut [outside.reborrow().into()])?;
    }
    other.synchronize()?;
    let inside = (1..9).flat_map(|row| bytes[8 * row + 1..8 * row + 7].to_vec());
    same(&setup.download(&copied)?, &inside.collect::<Vec<_>>(), "the values read from the box")?;
    let other_plan = setup.device.plan_regions(&ends)?;
    let refused_plan = other_plan.execute(&setup.stream, &mut [outside.reborrow().into()]);
    refused(refused_plan, ErrorKind::InvalidArgument, "a plan that was not made for the box")?;
    let into = copy(DType::U8, &[1], side(0, 0, &[1]), side(0, 9, &[1]));
    let into = setup.device.plan_regions(&[into])?.with_split(0, 9, part.layout());
    refused(into, ErrorKind::InvalidArgument, "a plan that writes into the box")?;
    let beyond = copy(DType::U8, &[2], side(0, 5, &[1]), side(1, 0, &[1]));
    let beyond = setup.device.plan_regions(&[beyond])?.with_split(0, 0, part.layout());
    refused(beyond, ErrorKind::InvalidArgument, "a plan that reads beyond the box")?;
    let mut expected = bytes.clone();
    for row in 1..9 {
        expected[8 * row] = bytes[8 * row + 1];
        expected[8 * row + 7] = bytes[8 * row + 6];
    }
    same(&setup.download(&memory)?, &expected, "the memory outside the box")
}

/// One plan can be executed many times, with different memory each time.
pub fn a_plan_is_bound_to_memory_at_each_execution(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let entry = copy(DType::U32, &[10], side(0, 0, &[8]), side(1, 36, &[-4]));
    let plan = setup.device.plan_regions(&[entry])?;
    check!(plan.device().is_same(&setup.device), "a plan names another device");
    check_eq!(plan.bytes(), 40, "the bytes it moves");
    for seed in 0..30 {
        let data = elements::<u32>(seed, 19);
        let expected: Vec<u32> = data.iter().step_by(2).rev().copied().collect();
        let source = setup.upload(&data)?;
        let mut target = setup.device.memory_allocate::<u32>(10)?;
        let mut slots = [Slot::from(source.view()), Slot::from(target.view_mut())];
        plan.execute(&setup.stream, &mut slots)?;
        same(&setup.download(&target)?, &expected, format_args!("execution {seed}"))?;
    }
    Ok(())
}

/// More slots than a launch has arguments, or than fit into one argument list.
pub(super) const MANY: usize = 500;

/// Copies of one number from each of `slots` slots to the slot after them, in reverse order.
pub(super) fn gather(slots: usize) -> Vec<RegionCopy> {
    let number = |index| {
        copy(DType::U32, &[1], side(index, 0, &[4]), side(slots, 4 * (slots - 1 - index), &[4]))
    };
    (0..slots).map(number).collect()
}

/// Binds a slot of [`gather`] to each number of `source`.
pub(super) fn bind_numbers<'a>(
    source: &'a Memory<u32>,
    target: &'a mut Memory<u32>,
) -> Result<Vec<Slot<'a>>> {
    let number = |index| source.view().slice(index..index + 1).map(Slot::from);
    (0..source.len()).map(number).chain([Ok(Slot::from(target.view_mut()))]).collect()
}

/// A plan over hundreds of slots can be bound to other memory while earlier executions on two streams are in flight.
pub fn executions_in_flight_keep_their_memories(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let other = setup.new_stream()?;
    let is_native = setup.device.capabilities().region_copy == Support::Native;
    // In emulation, each slot is read by a separate copy.
    let count = if is_native { MANY } else { 40 };
    let plan = setup.device.plan_regions(&gather(count))?;
    let sources = [20, 21, 22].map(|seed| elements::<u32>(seed, count));
    let memories = sources.iter().map(|data| setup.upload(data)).collect::<Result<Vec<_>>>()?;
    let mut targets = Vec::new();
    for _ in 0..6 {
        targets.push(setup.upload(&vec![0_u32; count])?);
    }
    let _busy = setup.spin(&setup.stream, Duration::from_millis(40))?;
    for (round, target) in targets.iter_mut().enumerate() {
        let stream = [&setup.stream, &other][round % 2];
        plan.execute(stream, &mut bind_numbers(&memories[round / 2], target)?)?;
    }
    setup.stream.wait(&other.record_event()?)?;
    for (round, target) in targets.iter().enumerate() {
        let expected: Vec<u32> = sources[round / 2].iter().rev().copied().collect();
        same(&setup.download(target)?, &expected, format_args!("execution {round}"))?;
    }
    Ok(())
}

/// Several threads can execute one plan on their own streams at once.
pub fn threads_execute_one_plan(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let entry = copy(DType::F64, &[40, 50], side(0, 0, &[400, 8]), side(1, 0, &[8, 320]));
    let plan = setup.device.plan_regions(std::slice::from_ref(&entry))?;
    let work = |seed: u64| -> Outcome {
        let setup = setup.with_stream()?;
        for round in 0..8 {
            let slots = [elements::<u8>(seed + round, 16_000), vec![0; 16_000]];
            let mut memories = [setup.upload(&slots[0])?, setup.upload(&slots[1])?];
            plan.execute(&setup.stream, &mut bind(&plan, &mut memories))?;
            let mut expected = slots.to_vec();
            oracle::run(std::slice::from_ref(&entry), &mut expected);
            same(
                &setup.download(&memories[1])?,
                &expected[1],
                "the values that one of several threads copied",
            )?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let work = &work;
        let threads = [0, 100, 200].map(|seed| scope.spawn(move || work(seed)));
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Stop::failed("a thread panicked"))?)
    })
}

/// Plans on two streams write into each other's gaps without order, and do not disturb each other.
pub fn bytes_between_the_regions_may_change_meanwhile(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let other = setup.new_stream()?;
    let (even, odd) = (
        copy(DType::U32, &[500], side(0, 0, &[4]), side(1, 0, &[8])),
        copy(DType::U32, &[500], side(0, 0, &[4]), side(1, 4, &[8])),
    );
    let plans = [setup.device.plan_regions(&[even])?, setup.device.plan_regions(&[odd])?];
    let (ones, twos) = (setup.upload(&[1_u32; 500])?, setup.upload(&[2_u32; 500])?);
    for _ in 0..20 {
        let mut target = setup.upload(&[0_u32; 1000])?;
        let streams = [&setup.stream, &other];
        for ((plan, stream), source) in plans.iter().zip(streams).zip([&ones, &twos]) {
            let mut slots = [Slot::from(source.view()), Slot::from(target.view_mut())];
            plan.execute(stream, &mut slots)?;
        }
        setup.stream.wait(&other.record_event()?)?;
        let expected: Vec<u32> = [1, 2].into_iter().cycle().take(1000).collect();
        same(&setup.download(&target)?, &expected, "two plans in the gaps of each other")?;
    }
    Ok(())
}

/// An execution runs after earlier work on its stream and before later work.
pub fn region_copies_run_in_stream_order(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let entry = copy(DType::U32, &[200], side(0, 0, &[4]), side(1, 199 * 4, &[-4]));
    let plan = setup.device.plan_regions(&[entry])?;
    for start in [0, 1000] {
        let mut source = setup.upload(&[0_u32; 200])?;
        let mut target = setup.upload(&[0_u32; 200])?;
        let _busy = setup.spin(&setup.stream, Duration::from_millis(30))?;
        setup.kernels.fill_index(&setup.stream, source.view_mut(), start)?;
        let mut slots = [Slot::from(source.view()), Slot::from(target.view_mut())];
        plan.execute(&setup.stream, &mut slots)?;
        setup.kernels.fill_index(&setup.stream, source.view_mut(), 5)?;
        setup.kernels.add_one(&setup.stream, target.view_mut())?;
        let expected: Vec<u32> = (start + 1..start + 201).rev().collect();
        same(&setup.download(&target)?, &expected, "the values copied between two kernels")?;
    }
    Ok(())
}

/// If the device copies regions natively, launches are counted and an execution does not block. If region copies are
/// emulated, there are no launches.
pub fn launches_agree_with_the_capability(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let entry = copy(DType::F32, &[100], side(0, 0, &[8]), side(1, 0, &[4]));
    let plan = setup.device.plan_regions(&[entry])?;
    check_eq!(plan.phases(), 1, "phases of one copy");
    if setup.device.capabilities().region_copy != Support::Native {
        check_eq!(plan.launches(), 0, "launches of an emulated plan");
        return Ok(());
    }
    check!(plan.launches() > 0, "a copy by the device without a launch");
    let source = setup.upload(&[1.0_f32; 200])?;
    let mut target = setup.upload(&[0.0_f32; 100])?;
    best_of_three(|| {
        let busy = setup.spin(&setup.stream, Duration::from_millis(200))?;
        let mut slots = [Slot::from(source.view()), Slot::from(target.view_mut())];
        plan.execute(&setup.stream, &mut slots)?;
        check!(!setup.stream.is_done()?, "an execution waited for work in flight");
        busy.was_done(&setup.stream)
    })?;
    same(&setup.download(&target)?, &[1.0; 100], "the copied values")
}

/// Memory that does not fit the plan is refused before anything is copied.
pub fn memory_that_does_not_fit_the_plan_is_refused(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let entry = copy(DType::F32, &[8], side(0, 0, &[8]), side(1, 0, &[4]));
    let plan = setup.device.plan_regions(std::slice::from_ref(&entry))?;
    let source = setup.upload(&[1.0_f32; 16])?;
    let mut target = setup.upload(&[2.0_f32; 8])?;
    let mut integers = setup.upload(&[3_i32; 16])?;
    let bytes = setup.upload(&[0_u8; 65])?;
    let mut foreign = other.upload(&[4.0_f32; 16])?;
    let stream = &setup.stream;
    let invalid = ErrorKind::InvalidArgument;
    let attempt = |kind: ErrorKind, what: &str, slots: &mut [Slot<'_>]| -> Outcome {
        refused(plan.execute(stream, slots), kind, what)?;
        Ok(())
    };
    attempt(invalid, "no memory", &mut [])?;
    attempt(invalid, "a memory too few", &mut [source.view().into()])?;
    let three = &mut [source.view().into(), target.view_mut().into(), bytes.view().into()];
    attempt(invalid, "a memory too many", three)?;
    let read_only = &mut [source.view().into(), target.view().into()];
    attempt(invalid, "a written slot bound to a view to read", read_only)?;
    let short = &mut [source.view().slice(0..14)?.into(), target.view_mut().into()];
    attempt(ErrorKind::OutOfBounds, "a source that is too short", short)?;
    let short = &mut [source.view().into(), target.view_mut().slice(0..7)?.into()];
    attempt(ErrorKind::OutOfBounds, "a destination that is too short", short)?;
    let typed = &mut [source.view().into(), integers.view_mut().into()];
    attempt(invalid, "memory of i32 for f32", typed)?;
    let unaligned = &mut [bytes.view().slice(1..65)?.into(), target.view_mut().into()];
    attempt(invalid, "bytes that are not aligned", unaligned)?;
    let mixed = &mut [source.view().into(), foreign.view_mut().into()];
    attempt(ErrorKind::WrongDevice, "memory of another device", mixed)?;
    let theirs =
        plan.execute(&other.stream, &mut [foreign.view().into(), target.view_mut().into()]);
    refused(theirs, ErrorKind::WrongDevice, "a stream of another device")?;
    same(&setup.download(&target)?, &[2.0; 8], "the destination after refused executions")?;
    same(&other.download(&foreign)?, &[4.0; 16], "foreign memory")?;
    same(&setup.download(&integers)?, &[3; 16], "memory of another type")
}

/// Entries that no device could execute are refused at once, whatever their numbers.
pub fn hostile_entries_are_refused(fixture: &Fixture) -> Outcome {
    const KINDS: &[ErrorKind] = &[ErrorKind::InvalidArgument, ErrorKind::OutOfBounds];
    let setup = fixture.setup()?;
    let plain = copy(DType::F64, &[4], side(0, 0, &[8]), side(1, 0, &[8]));
    let change = |f: &dyn Fn(&mut RegionCopy)| {
        let mut entry = plain.clone();
        f(&mut entry);
        entry
    };
    let hostile = [
        ("the most elements", change(&|e| e.extents = vec![usize::MAX])),
        ("half the most elements", change(&|e| e.extents = vec![usize::MAX / 2])),
        ("the least stride", change(&|e| e.source.strides = vec![isize::MIN])),
        ("the least destination stride", change(&|e| e.destination.strides = vec![isize::MIN])),
        ("the largest stride", change(&|e| e.source.strides = vec![isize::MAX - 7])),
        ("the largest offset", change(&|e| e.source.offset = usize::MAX - 7)),
        ("a large offset", change(&|e| e.destination.offset = isize::MAX.cast_unsigned() - 7)),
        ("the last slot", change(&|e| e.source.slot = usize::MAX)),
        ("the last slot, written", change(&|e| e.destination.slot = usize::MAX)),
        ("bytes before the start", change(&|e| e.source.strides = vec![-8])),
        ("bytes before the start, written", change(&|e| e.destination.strides = vec![-8])),
        ("an unaligned offset", change(&|e| e.source.offset = 4)),
        ("an unaligned destination", change(&|e| e.destination.offset = 4)),
        ("an unaligned stride", change(&|e| e.source.strides = vec![12])),
        ("an unaligned destination stride", change(&|e| e.destination.strides = vec![12])),
        ("a stride too few", change(&|e| e.source.strides = vec![])),
        ("a stride too many", change(&|e| e.destination.strides = vec![8, 8])),
        (
            "seven dimensions",
            change(&|e| {
                e.extents = vec![1; 7];
                e.source.strides = vec![8; 7];
                e.destination.strides = vec![8; 7];
            }),
        ),
        (
            "sizes whose product overflows",
            change(&|e| {
                e.extents = vec![1 << 33, 1 << 33];
                e.source.strides = vec![0, 0];
                e.destination.strides = vec![8, 8 << 33];
            }),
        ),
        (
            "a product that overflows to zero",
            change(&|e| {
                e.extents = vec![1 << 32, 1 << 32];
                e.source.strides = vec![0, 0];
                e.destination.strides = vec![8 << 32, 8];
            }),
        ),
    ];
    // Adding a correct entry with another destination does not make the plan acceptable.
    let right = change(&|e| e.destination.slot = 2);
    let start = Instant::now();
    for (what, entry) in hostile {
        refused_as(setup.device.plan_regions(&[right.clone(), entry.clone()]), KINDS, what)?;
        refused_as(setup.device.plan_regions(&[entry]), KINDS, what)?;
    }
    let took = start.elapsed();
    check!(took < Duration::from_secs(5), "refusing them took {took:?}");
    setup.is_usable()
}
