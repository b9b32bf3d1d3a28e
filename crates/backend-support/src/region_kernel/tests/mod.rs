//! Lowered programs, executed by an interpreter of their words, compared with the execution in host memory.
#![expect(unsafe_code, reason = "runs programs in host memory")]

mod interpreter;
mod random;

use std::fmt::Debug;

use runtime_core::bytemuck;
use runtime_core::{
    Combine, DType, ErrorKind, HostSlot, RegionCopy, RegionProgram, RegionSide, Result,
};

use super::{Binding, Dialect, Mapping, RegionKernel, RegionLaunches, RegionLimits, words};
use random::Random;

const LIMITS: RegionLimits = RegionLimits {
    compute_units: 4,
    group_size: 8,
    max_groups: (1 << 31) - 1,
    slab: RegionLimits::MAX_SLAB,
};

fn lower(slots: usize, mapping: Mapping, entries: &[RegionCopy]) -> Result<RegionLaunches> {
    let program = RegionProgram::new(entries).unwrap();
    RegionKernel::new(mapping, Binding::Parameters(slots), true).unwrap().lower(&program, LIMITS)
}

/// A contiguous copy of `len` elements.
fn row(dtype: DType, from: usize, to: usize, len: usize) -> RegionCopy {
    let side = |slot| RegionSide { slot, offset: 0, strides: vec![dtype.size().cast_signed()] };
    RegionCopy {
        dtype,
        extents: vec![len],
        source: side(from),
        destination: side(to),
        negate: false,
        combine: Combine::Replace,
    }
}

fn on_host(program: &RegionProgram, bases: &[Option<usize>], slots: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut aligned: Vec<Vec<u128>> = Vec::new();
    for bytes in slots {
        let mut words = vec![0_u128; bytes.len().div_ceil(16)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        aligned.push(words);
    }
    let bind = |((words, bytes), base): ((&mut Vec<u128>, &Vec<u8>), &Option<usize>)| match base {
        Some(_) => HostSlot { base: words.as_mut_ptr().cast(), len: bytes.len() },
        None => HostSlot::ABSENT,
    };
    let bound: Vec<HostSlot> = aligned.iter_mut().zip(slots).zip(bases).map(bind).collect();
    // SAFETY: each bound slot is a separate buffer, aligned for every type and as long as the program needs.
    unsafe { program.run(&bound[..program.slots().len()]) };
    let bytes = |(words, bytes): (&Vec<u128>, &Vec<u8>)| {
        bytemuck::cast_slice(words)[..bytes.len()].to_vec()
    };
    aligned.iter().zip(slots).map(bytes).collect()
}

fn binding(random: &mut Random) -> Binding {
    match random.below(3) {
        0 => Binding::Table,
        1 => Binding::List(2 + random.below(5)),
        _ => Binding::Parameters(2 + random.below(5)),
    }
}

#[track_caller]
fn compare(random: &mut Random, program: &RegionProgram, slots: &[Vec<u8>], what: &dyn Debug) {
    for mapping in [Mapping::Runs, Mapping::Lanes] {
        let kernel = RegionKernel::new(mapping, binding(random), true).unwrap();
        let limits = RegionLimits {
            compute_units: 1 + random.below(8),
            group_size: 1 + random.below(16),
            max_groups: 1 + random.below(9) as u64,
            slab: random.slab(),
        };
        let lowered = kernel.lower(program, limits).unwrap();
        // Slots begin at multiples of 8 bytes, as the program requires, or of more.
        let mut base = || (random.below(6) > 0).then(|| 8 * random.below(4));
        let bases: Vec<Option<usize>> = slots.iter().map(|_| base()).collect();
        let expected = on_host(program, &bases, slots);
        let mut found = slots.to_vec();
        interpreter::run(&lowered, mapping, &bases, &mut found);
        assert_eq!(found, expected, "{mapping:?}, {limits:?}, {kernel:?}, {what:#?}");
    }
}

#[test]
fn lowered_programs_do_what_the_host_does() {
    for seed in 0..if cfg!(miri) { 4 } else { 400 } {
        let mut random = Random::new(seed);
        let (entries, slots) = random.program();
        compare(&mut random, &RegionProgram::new(&entries).unwrap(), &slots, &(seed, entries));
    }
}

#[test]
fn lowered_indexed_copies_do_what_the_host_does() {
    for seed in 0..if cfg!(miri) { 4 } else { 400 } {
        let mut random = Random::new(seed);
        let (entries, slots) = random.indexed();
        compare(&mut random, &RegionProgram::indexed(&entries).unwrap(), &slots, &(seed, entries));
    }
}

#[test]
fn contiguous_moves_are_of_16_bytes() {
    for mapping in [Mapping::Runs, Mapping::Lanes] {
        let lowered = lower(2, mapping, &[row(DType::U8, 0, 1, 4096)]).unwrap();
        let record = interpreter::records(&lowered, &lowered.launches()[0]).remove(0);
        assert_eq!((record[words::UNIT], record[words::ELEMENTS]), (4, 256));
    }
}

#[test]
fn one_launch_takes_thousands_of_copies() {
    let entries: Vec<RegionCopy> = (0..4000)
        .map(|index| {
            let mut copy = row(DType::F64, index % 5, 5 + index % 3, 1 + index % 40);
            copy.destination.offset = index * 320;
            copy
        })
        .collect();
    let lowered = lower(8, Mapping::Lanes, &entries).unwrap();
    let [launch] = lowered.launches() else { panic!("{} launches", lowered.launches().len()) };
    assert!(launch.groups >= 4000);
    assert_eq!(launch.slots.len(), 8);
}

#[test]
fn slots_beyond_the_kernels_take_more_launches() {
    let entries: Vec<RegionCopy> =
        (0..40).map(|index| row(DType::F32, 0, 1 + index, 100)).collect();
    let lowered = lower(32, Mapping::Runs, &entries).unwrap();
    let slots: Vec<usize> = lowered.launches().iter().map(|launch| launch.slots.len()).collect();
    assert_eq!(slots, [32, 10]);
    assert_eq!(lower(2, Mapping::Runs, &entries).unwrap().launches().len(), 40);
}

#[test]
fn phases_are_launches_in_order() {
    let mut add = row(DType::F32, 0, 1, 100);
    add.combine = Combine::Sum;
    let mut again = add.clone();
    again.source.slot = 2;
    let lowered = lower(8, Mapping::Lanes, &[add, again]).unwrap();
    let slots: Vec<&[usize]> = lowered.launches().iter().map(|launch| &*launch.slots).collect();
    assert_eq!(slots, [[1, 0], [1, 2]]);
}

#[test]
fn nothing_to_copy_takes_no_launch() {
    let lowered = lower(8, Mapping::Runs, &[row(DType::F32, 0, 1, 0)]).unwrap();
    assert!(lowered.launches().is_empty() && lowered.words().is_empty());
}

#[test]
fn copies_beyond_32_bits_stay_small_and_within_the_grid() {
    let copy = row(DType::U8, 0, 1, 1 << 50);
    let program = RegionProgram::new(&[copy]).unwrap();
    for mapping in [Mapping::Runs, Mapping::Lanes] {
        let kernel = RegionKernel::new(mapping, Binding::Parameters(2), true).unwrap();
        let lowered = kernel.lower(&program, LIMITS).unwrap();
        assert!(lowered.words().len() < 64);
        assert_eq!(lowered.launches()[0].groups, LIMITS.max_groups);
    }
}

/// Copies between fields that are far apart, some backwards, and records of one number each.
fn far_fields() -> impl Iterator<Item = RegionCopy> {
    let sizes = [100_usize << 20, 500 << 20, (1 << 30) - 8, 1 << 30, 3 << 30];
    let layouts = sizes.into_iter().flat_map(|field| (2..40).map(move |fields| (field, fields)));
    layouts.flat_map(|(field, fields)| {
        let [size, record] = [field, 4 * fields].map(usize::cast_signed);
        let apart = RegionSide { slot: 0, offset: 0, strides: vec![4, size] };
        let back = RegionSide { slot: 0, offset: field * fields, strides: vec![4, -size] };
        let together = RegionSide { slot: 1, offset: 0, strides: vec![record, 4] };
        [(apart.clone(), together.clone()), (back, together.clone()), (together, apart)].map(
            |(source, destination)| {
                let extents = vec![field / 4, fields];
                RegionCopy { extents, source, destination, ..row(DType::F32, 0, 1, 0) }
            },
        )
    })
}

/// The dimensions of a record: those of a slab, and the others.
fn dims(record: &[u64]) -> (Vec<&[u64]>, Vec<&[u64]>) {
    let [rank, inner] =
        [words::RANK, words::SLAB_RANK].map(|field| interpreter::index(record[field]));
    let dims = record[words::DIMS..].chunks(words::PER_DIM).take(rank);
    let mut slab: Vec<&[u64]> = dims.collect();
    let outer = slab.split_off(inner);
    (slab, outer)
}

#[test]
fn slabs_of_far_fields_are_few() {
    for copy in far_fields() {
        let lowered = lower(2, Mapping::Lanes, std::slice::from_ref(&copy)).unwrap();
        let records = interpreter::records(&lowered, &lowered.launches()[0]);
        let slabs = |record: &&[u64]| dims(record).1.iter().map(|dim| dim[0]).product::<u64>();
        let count: u64 = records.iter().map(slabs).sum();
        assert!(count < 5000, "{count} slabs of {copy:?}");
    }
}

#[test]
fn slabs_reach_no_further_than_32_bits_with_a_sign() {
    for copy in far_fields() {
        let lowered = lower(2, Mapping::Lanes, std::slice::from_ref(&copy)).unwrap();
        for record in interpreter::records(&lowered, &lowered.launches()[0]) {
            let (slab, _) = dims(record);
            for stride in [1, 2] {
                let reach = |dim: &&[u64]| (dim[0] - 1) * dim[stride].cast_signed().unsigned_abs();
                let reach = slab.iter().map(reach).sum::<u64>() + (1 << record[words::UNIT]);
                assert!(reach <= RegionLimits::MAX_SLAB, "{reach} bytes of {copy:?}");
            }
        }
    }
}

#[test]
fn only_sums_of_doubles_need_doubles() {
    let kernel = RegionKernel::new(Mapping::Runs, Binding::Table, false).unwrap();
    for dtype in DType::ALL {
        for combine in [Combine::Replace, Combine::Sum, Combine::Min, Combine::Max] {
            let mut copy = row(dtype, 0, 1, 9);
            (copy.combine, copy.negate) = (combine, dtype.admits_negate());
            let Ok(program) = RegionProgram::new(&[copy]) else { continue };
            let lowered = kernel.lower(&program, LIMITS).map(|_| ()).map_err(|error| error.kind());
            let needs = combine == Combine::Sum && matches!(dtype, DType::F64 | DType::C128);
            let expected = if needs { Err(ErrorKind::InvalidArgument) } else { Ok(()) };
            assert_eq!(lowered, expected, "{combine:?} of {dtype}");
        }
    }
}

#[test]
fn limits_out_of_range_are_refused() {
    let program = RegionProgram::new(&[row(DType::U8, 0, 1, 4)]).unwrap();
    let kernel = RegionKernel::new(Mapping::Runs, Binding::Table, true).unwrap();
    for limits in [
        RegionLimits { compute_units: 0, ..LIMITS },
        RegionLimits { group_size: 0, ..LIMITS },
        RegionLimits { max_groups: 0, ..LIMITS },
        RegionLimits { slab: 0, ..LIMITS },
        RegionLimits { slab: RegionLimits::MAX_SLAB + 1, ..LIMITS },
    ] {
        let error = kernel.lower(&program, limits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn kernels_have_2_slots_to_what_parameters_hold() {
    let new = |binding| RegionKernel::new(Mapping::Lanes, binding, true);
    let refused = |binding| new(binding).unwrap_err().message().to_owned();
    for slots in [0, 1, 33] {
        let message = format!("a kernel of {slots} slots, allowed are 2 to 32");
        assert_eq!(refused(Binding::Parameters(slots)), message);
    }
    for slots in [0, 1, 449] {
        let message = format!("a kernel of {slots} slots, allowed are 2 to 448");
        assert_eq!(refused(Binding::List(slots)), message);
    }
    let source = new(Binding::Parameters(32)).unwrap().source(Dialect::HipC);
    assert!(source.contains("u64 offset_31") && !source.contains("offset_32"));
}

/// Eight fields, each with copies from 26 neighbours.
#[test]
fn a_phase_over_any_number_of_memories_is_one_launch() {
    let entries: Vec<RegionCopy> = (0..26 * 8)
        .map(|index| {
            let mut copy = row(DType::F64, 8 + index, index % 8, 100);
            copy.destination.offset = index / 8 * 800;
            copy
        })
        .collect();
    let program = RegionProgram::new(&entries).unwrap();
    let launches = |binding| {
        let kernel = RegionKernel::new(Mapping::Lanes, binding, true).unwrap();
        let lowered = kernel.lower(&program, LIMITS).unwrap();
        lowered.launches().iter().map(|launch| launch.slots.len()).collect::<Vec<_>>()
    };
    assert_eq!(launches(Binding::Parameters(32)).len(), 9);
    assert_eq!(launches(Binding::List(448)), [216]);
    assert_eq!(launches(Binding::Table), [216]);
}

/// This way a table is set once, however many launches follow.
#[test]
fn places_of_a_table_are_slots() {
    let mut add = row(DType::F32, 2, 1, 100);
    add.combine = Combine::Sum;
    let mut again = add.clone();
    again.source.slot = 3;
    let program = RegionProgram::new(&[add, again]).unwrap();
    let kernel = RegionKernel::new(Mapping::Lanes, Binding::Table, true).unwrap();
    let lowered = kernel.lower(&program, LIMITS).unwrap();
    assert_eq!(lowered.launches().len(), 2);
    for (launch, source) in lowered.launches().iter().zip([2, 3]) {
        let record = interpreter::records(&lowered, launch)[0];
        assert_eq!(launch.slots, [0, 1, 2, 3]);
        assert_eq!([record[words::TO_SLOT], record[words::FROM_SLOT]], [1, source]);
    }
}
