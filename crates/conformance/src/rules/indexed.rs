//! Indexed copies: items are gathered, scattered and combined as lists say. Every result is compared with the
//! definition, item by item, including gaps.

use std::fmt::Display;

use runtime_core::{
    Combine, DType, ErrorKind, IndexedCopy, IndexedSide, Indices, RegionPlan, Result, Slot, Support,
};

use super::regions::bind;
use crate::Fixture;
use crate::data::{Random, elements};
use crate::oracle;
use crate::outcome::{Outcome, check, check_eq, refused, same};
use crate::setup::Setup;

/// An array of items whose components are adjacent, from the start of a slot on.
fn side(
    dtype: DType,
    components: usize,
    slot: usize,
    items: u64,
    indices: impl Into<Indices>,
) -> IndexedSide {
    IndexedSide {
        slot,
        offset: 0,
        items,
        stride: components * dtype.size(),
        component_stride: dtype.size(),
        indices: indices.into(),
    }
}

fn copy(
    dtype: DType,
    components: usize,
    source: IndexedSide,
    destination: IndexedSide,
) -> IndexedCopy {
    let (combine, repeats) = (Combine::Replace, false);
    IndexedCopy { dtype, components, source, destination, combine, repeats }
}

/// Executes the entries on memories with these bytes, with the slots absent for which `is_absent` returns true, and
/// compares every byte with the definition. Returns the plan.
#[track_caller]
fn prove(
    setup: &Setup,
    entries: &[IndexedCopy],
    slots: &[Vec<u8>],
    is_absent: impl Fn(usize) -> bool,
    what: impl Display,
) -> Outcome<RegionPlan> {
    let plan = setup.device.plan_indexed(entries)?;
    let mut memories = slots.iter().map(|bytes| setup.upload(bytes)).collect::<Result<Vec<_>>>()?;
    let mut bound = bind(&plan, &mut memories);
    let absent = bound.iter_mut().enumerate().filter(|(slot, _)| is_absent(*slot));
    absent.for_each(|(_, slot)| *slot = Slot::Absent);
    plan.execute(&setup.stream, &mut bound)?;
    let left_out =
        |entry: &IndexedCopy| is_absent(entry.source.slot) || is_absent(entry.destination.slot);
    let executed = entries.iter().filter(|entry| !left_out(entry)).cloned().collect::<Vec<_>>();
    let mut expected = slots.to_vec();
    oracle::run_indexed(&executed, &mut expected);
    for (slot, (memory, expected)) in memories.iter().zip(&expected).enumerate() {
        same(&setup.download(memory)?, expected, format_args!("{what}: slot {slot}"))?;
    }
    Ok(plan)
}

/// An array somewhere behind byte `start`, and the first byte behind it. Components are adjacent, have gaps, or lie in
/// rows of their own.
fn place(
    random: &mut Random,
    dtype: DType,
    components: usize,
    slot: usize,
    start: usize,
) -> (IndexedSide, usize) {
    let items = 1 + random.below(if slot == 0 { 300 } else { 200 });
    let pitch = dtype.size() + if random.chance() { 0 } else { dtype.align() * random.below(3) };
    let (stride, component_stride) = match random.below(3) {
        0 => (pitch, pitch * items),
        _ => (pitch * components, pitch),
    };
    let offset = start.next_multiple_of(dtype.align()) + dtype.align() * random.below(3);
    let indices = Indices::Range(0..0);
    let side = IndexedSide { slot, offset, items: items as u64, stride, component_stride, indices };
    (side, offset + pitch * components * items)
}

/// `count` indices below `items`: random, shuffled a little so that runs remain, or every second.
fn list(random: &mut Random, items: u64, count: usize, repeats: bool) -> Vec<u64> {
    let mut all: Vec<u64> = (0..items).collect();
    match random.below(3) {
        0 => random.shuffle(&mut all),
        1 => {
            let other = random.below(all.len());
            all.swap(0, other);
        }
        _ => all.sort_by_key(|index| (index % 2, *index)),
    }
    if repeats {
        let last = all.len() - 1;
        (0..count)
            .map(|at| all[if random.chance() { at.min(last) } else { random.below(last + 1) }])
            .collect()
    } else {
        all.truncate(count);
        all
    }
}

/// Random gathers and scatters match the definition in every byte: all element types, any number of components in any
/// layout, lists with and without runs, and ranges. Bytes between the items do not change.
pub fn items_are_gathered_and_scattered_as_listed(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (mut entries, mut ends) = (Vec::new(), [0, 0]);
        for _ in 0..1 + random.below(3) {
            let dtype = DType::ALL[random.below(DType::ALL.len())];
            let components = 1 + random.below(4);
            let (source, end) = place(&mut random, dtype, components, 0, 0);
            ends[0] = ends[0].max(end);
            let (destination, end) = place(&mut random, dtype, components, 1, ends[1]);
            ends[1] = end;
            let count = random.below(usize::try_from(destination.items).unwrap_or(0) + 1);
            let gathered = list(&mut random, source.items, count, true);
            let scattered = match random.below(3) {
                0 => Indices::Range(0..count as u64),
                _ => list(&mut random, destination.items, count, false).into(),
            };
            let source = IndexedSide { indices: gathered.into(), ..source };
            let destination = IndexedSide { indices: scattered, ..destination };
            entries.push(copy(dtype, components, source, destination));
        }
        let slots = ends.map(|end| elements::<u8>(seed + 100, end + 16)).to_vec();
        prove(&setup, &entries, &slots, |_| false, format_args!("{entries:?}"))?;
    }
    // A long run, and the rest of the list, which is a run as well.
    for rest in [&[5][..], &[290, 291, 292], &[250, 240, 230, 220]] {
        let sources: Vec<u64> = (0..150).chain(rest.iter().copied()).collect();
        let targets = Indices::Range(0..sources.len() as u64);
        let gathered = side(DType::F64, 1, 0, 300, sources);
        let entry = copy(DType::F64, 1, gathered, side(DType::F64, 1, 1, 300, targets));
        let slots = [1, 2].map(|seed| elements::<u8>(seed, 300 * 8)).to_vec();
        prove(&setup, &[entry], &slots, |_| false, format_args!("a run, and then {rest:?}"))?;
    }
    // Enough items for several parts of a device.
    let dtype = DType::F64;
    let mut random = Random::new(61);
    for (items, components) in [(50_000, 1), (20_000, 3)] {
        let sources = list(&mut random, items, 50_000, true);
        let mut targets: Vec<u64> = (0..50_000).collect();
        random.shuffle(&mut targets);
        let gathered = side(dtype, components, 0, items, sources);
        let entry = copy(dtype, components, gathered, side(dtype, components, 1, 50_000, targets));
        let slots = [items, 50_000].map(|items| {
            elements::<u8>(items, usize::try_from(items).unwrap_or(0) * components * 8)
        });
        prove(&setup, &[entry], &slots, |_| false, format_args!("{components} components"))?;
    }
    Ok(())
}

/// Items that repeat are combined with their target in the order of the entries and of their lists, for every type
/// that admits it. The sources may be in several memories.
pub fn items_that_repeat_are_combined_in_order(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    // The order is visible: a large number absorbs smaller terms before it is subtracted again.
    let terms = [1.0_f64, 1.0e17, 3.0, -1.0e17, 5.0, 0.25];
    let source: Vec<u8> = terms.iter().flat_map(|term| term.to_ne_bytes()).collect();
    let zeros: Vec<u8> = [0.5_f64; 9].iter().flat_map(|x| x.to_ne_bytes()).collect();
    for turn in 0..terms.len() {
        let entries: Vec<_> = (0..3)
            .map(|slot| {
                let mut sources = [0, 1, 2, 3, 4, 5, 1, 3, 2];
                sources.rotate_left(turn + slot);
                let targets = vec![4, 7, 4, 4, 2, 7, 4, 8, 2];
                let source = side(DType::F64, 1, slot, 6, &sources[..]);
                let mut entry = copy(DType::F64, 1, source, side(DType::F64, 1, 3, 9, targets));
                (entry.combine, entry.repeats) = (Combine::Sum, true);
                entry
            })
            .collect();
        let slots = [source.clone(), source.clone(), source.clone(), zeros.clone()];
        let what = format_args!("sums in order, turned by {turn}");
        let plan = prove(&setup, &entries, &slots, |_| false, what)?;
        check_eq!(plan.phases(), 1, "phases of sums of items that repeat");
    }
    for (seed, dtype) in (200..).zip(DType::ALL) {
        let mut random = Random::new(seed);
        for combine in [Combine::Replace, Combine::Sum, Combine::Min, Combine::Max] {
            let admitted = match combine {
                Combine::Replace => true,
                Combine::Sum => dtype.admits_sum(),
                Combine::Min | Combine::Max => dtype.admits_order(),
            };
            let components = 1 + random.below(3);
            let mut entries = Vec::new();
            for slot in 0..2 {
                let sources = list(&mut random, 50, 70, true);
                let targets = list(&mut random, 30, 70, true);
                let source = side(dtype, components, slot, 50, sources);
                let mut entry =
                    copy(dtype, components, source, side(dtype, components, 2, 30, targets));
                (entry.combine, entry.repeats) = (combine, true);
                entries.push(entry);
            }
            let what = format!("{combine:?} of {dtype}");
            if !admitted {
                let plan = setup.device.plan_indexed(&entries);
                refused(plan, ErrorKind::InvalidArgument, what)?;
                continue;
            }
            let slots = [50, 50, 30].map(|items| oracle::numbers(dtype, items, 3 * 50));
            prove(&setup, &entries, &slots, |_| false, what)?;
        }
    }
    Ok(())
}

/// Items of absent slots are left out, also from the items that are combined with one target.
pub fn indexed_copies_of_absent_slots_are_left_out(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut entries = Vec::new();
    for slot in 0..3 {
        let source = |indices| side(DType::I32, 1, slot, 15, indices);
        let mut sum = copy(
            DType::I32,
            1,
            source(vec![14, 2, 3, 9, 4]),
            side(DType::I32, 1, 3, 15, vec![1, 7, 1, 3 + slot as u64, 1]),
        );
        (sum.combine, sum.repeats) = (Combine::Sum, true);
        entries.push(sum);
        let targets = [3, 0, 2, 1, 4].map(|place| 5 * slot as u64 + place);
        entries.push(copy(
            DType::I32,
            1,
            source(vec![5, 9, 9, 1, 0]),
            side(DType::I32, 1, 4, 15, &targets[..]),
        ));
    }
    let slots: Vec<_> = (0..5).map(|seed| elements::<u8>(seed, 60)).collect();
    for absent in 0..1_usize << slots.len() {
        let what = format_args!("absent slots {absent:#b}");
        prove(&setup, &entries, &slots, |slot| absent >> slot & 1 != 0, what)?;
    }
    // More memories than one launch takes on some devices. All add to the same items, in order.
    let entries: Vec<_> = (0..50)
        .map(|slot| {
            let source = side(DType::F32, 1, slot, 15, vec![slot as u64 % 15, 3, 4]);
            let mut entry = copy(DType::F32, 1, source, side(DType::F32, 1, 50, 15, vec![1, 1, 7]));
            (entry.combine, entry.repeats) = (Combine::Sum, true);
            entry
        })
        .collect();
    let slots: Vec<_> = (0..51).map(|seed| oracle::numbers(DType::F32, seed, 15)).collect();
    prove(&setup, &entries, &slots, |slot| slot % 3 == 0, "51 memories")?;
    Ok(())
}

/// Lists that cannot be are refused when the plan is made: the error names the position and the value of an index.
pub fn lists_that_cannot_be_are_refused(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let pair = |sources: Vec<u64>, targets: Vec<u64>| {
        copy(DType::F32, 1, side(DType::F32, 1, 0, 8, sources), side(DType::F32, 1, 1, 8, targets))
    };
    let refuse = |entries: &[IndexedCopy], message: &str| -> Outcome {
        let plan = setup.device.plan_indexed(entries);
        let error = refused(plan, ErrorKind::InvalidArgument, format_args!("{entries:?}"))?;
        check!(error.message().contains(message), "{error}, and not: {message}");
        Ok(())
    };
    refuse(&[pair(vec![1, 8], vec![1, 2])], "index 8 at position 1 of the source")?;
    refuse(&[pair(vec![1, 2, 3], vec![1, 2, 99])], "index 99 at position 2 of the destination")?;
    refuse(&[pair(vec![1, 2], vec![5])], "2 indices of the source for 1")?;
    refuse(&[pair(vec![1, 2, 3], vec![5, 2, 5])], "item 5 at position 2")?;
    refuse(&[pair(vec![1, 2], vec![5, 5])], "item 5 at position 1")?;
    let others = pair(vec![1, 7, 3], vec![0, 2, 3]);
    refuse(&[pair(vec![1, 2, 3], vec![5, 2, 6]), others], "item 2 at position 1")?;
    refuse(&[pair(vec![1, 2, 3], vec![5, 2, 6]), pair(vec![7], vec![2])], "item 2 at position 1")?;
    let mut long = pair(vec![], vec![]);
    (long.source.indices, long.destination.indices) = ((0..9).into(), (0..9).into());
    refuse(&[long], "indices 0 to 9 of the source, which has 8 items")?;
    let mut far = pair(vec![1 << 32], vec![0]);
    far.source.items = 1 << 33;
    refuse(&[far], "index 4294967296 at position 0 of the source, limit 4294967295")?;
    let mut onto_itself = pair(vec![0, 1, 5], vec![4, 6, 1]);
    onto_itself.destination.slot = 0;
    refuse(&[onto_itself], "overlaps")?;
    let mut shifted = pair(vec![0, 3], vec![3, 0]);
    shifted.destination.offset = 2;
    refuse(&[shifted], "the offset of the destination, 2 bytes, is no multiple of 4")?;
    // Two ways to combine with the same items.
    let mut ways = [pair(vec![0, 3], vec![3, 3]), pair(vec![0, 3], vec![0, 3])];
    ways.iter_mut().for_each(|entry| entry.repeats = true);
    ways[0].combine = Combine::Sum;
    refuse(&ways, "item 3 at position 0")?;
    Ok(())
}

/// A plan touches no byte between the elements of the views that are bound, and is executed by one launch, whatever
/// its lists contain.
pub fn an_indexed_plan_stays_within_the_elements_of_views(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    // Rows of three columns in a table of eight.
    let table = |slot, indices: Vec<u64>| IndexedSide {
        slot,
        offset: 0,
        items: 6,
        stride: 32,
        component_stride: 4,
        indices: indices.into(),
    };
    let scatter =
        copy(DType::U32, 3, side(DType::U32, 3, 0, 4, vec![0, 3, 1]), table(1, vec![5, 0, 3]));
    let plan = setup.device.plan_indexed(std::slice::from_ref(&scatter))?;
    let launches = if setup.device.capabilities().region_copy == Support::Native { 1 } else { 0 };
    check_eq!(plan.launches(), launches, "launches of an indexed plan");
    let values = elements::<u32>(1, 12);
    let mut expected = elements::<u32>(2, 48);
    let (source, mut target) = (setup.upload(&values)?, setup.upload(&expected)?);
    for (columns, fits) in [(2..5, true), (2..4, false)] {
        let shaped = target.view_mut().reshape(&[6, 8])?.region(&[0..6, columns.clone()])?;
        let executed = plan.execute(&setup.stream, &mut [source.view().into(), shaped.into()]);
        if fits {
            executed?;
            for (from, to) in [(0, 5), (3, 0), (1, 3)] {
                expected[8 * to + 2..8 * to + 5].copy_from_slice(&values[3 * from..3 * from + 3]);
            }
        } else {
            check!(executed.is_err(), "a plan wrote beside columns {columns:?}");
        }
        same(&setup.download(&target)?, &expected, format_args!("columns {columns:?}"))?;
    }
    Ok(())
}
