#![expect(unsafe_code, reason = "runs programs in host memory")]

use super::indexed::check_length;
use super::{Combine, HostSlot, IndexedCopy, IndexedSide, Indices, RegionProgram};
use crate::{DType, ErrorKind};

fn side(slot: usize, items: u64, indices: impl Into<Indices>) -> IndexedSide {
    let indices = indices.into();
    IndexedSide { slot, offset: 0, items, stride: 4, component_stride: 4, indices }
}

/// Copies of `i32` from slot 0 to slot 1, both of 10 000 items.
fn copy(sources: impl Into<Indices>, targets: impl Into<Indices>) -> IndexedCopy {
    IndexedCopy {
        dtype: DType::I32,
        components: 1,
        source: side(0, 10_000, sources),
        destination: side(1, 10_000, targets),
        combine: Combine::Replace,
        repeats: false,
    }
}

fn adding(entry: IndexedCopy) -> IndexedCopy {
    IndexedCopy { combine: Combine::Sum, repeats: true, ..entry }
}

/// The numbers of strided copies and of items that have lists.
fn shape(entries: &[IndexedCopy]) -> (usize, Vec<usize>) {
    let program = RegionProgram::indexed(entries).unwrap();
    let [phase] = program.phases() else { panic!("{} phases", program.phases().len()) };
    (phase.copies().len(), phase.items().iter().map(|items| items.count()).collect())
}

/// Numbers in an order without runs.
fn scattered(len: u64) -> Vec<u64> {
    (0..len).map(|n| n * n % 9973).collect()
}

/// The values of both slots after the program has run, whole or in parts.
fn run(program: &RegionProgram, in_parts: bool) -> Vec<i32> {
    let (mut source, mut target) = ((0..10_000).collect::<Vec<i32>>(), vec![1_i32; 10_000]);
    let slots = [source.as_mut_ptr(), target.as_mut_ptr()];
    let slots = slots.map(|base| HostSlot { base: base.cast(), len: 40_000 });
    if in_parts {
        for part in (0..program.parts(0)).rev() {
            // SAFETY: the slots are separate and as long as the program may need.
            unsafe { program.run_part(0, part, &slots) };
        }
    } else {
        // SAFETY: as above.
        unsafe { program.run(&slots) };
    }
    target
}

#[test]
fn constant_strides_take_no_list() {
    let numbers = |range: std::ops::Range<u64>| range.collect::<Vec<u64>>();
    assert_eq!(shape(&[copy(numbers(0..9000), 1000..10_000)]), (1, vec![]));
    assert_eq!(shape(&[copy(vec![9, 6, 3], vec![0, 5, 10])]), (1, vec![]));
    assert_eq!(shape(&[copy(vec![7; 500], numbers(0..500))]), (1, vec![]));
    assert_eq!(shape(&[adding(copy(0..500, numbers(100..600)))]), (1, vec![]));
    // Runs between items without order.
    let list = [numbers(100..300), vec![7, 3, 9], numbers(400..464), vec![5, 1, 99]].concat();
    let (copies, items) = shape(&[copy(list, 0..270)]);
    assert_eq!((copies, items.iter().sum::<usize>()), (2, 6));
}

/// Items without a list on either side would be neither strided copies nor indexed ones.
#[test]
fn what_is_left_beside_long_runs_may_be_a_run() {
    for rest in [vec![5], vec![500, 501, 502], vec![900, 890, 880]] {
        let list = [(0..100).collect(), rest.clone()].concat();
        let entry = copy(list, 0..100 + rest.len() as u64);
        assert_eq!(shape(std::slice::from_ref(&entry)), (2, vec![]), "{rest:?}");
        let values = run(&RegionProgram::indexed(&[entry]).unwrap(), false);
        let expected: Vec<u64> = (0..100).chain(rest.iter().copied()).collect();
        let is_right = |(found, index): (&i32, &u64)| u64::try_from(*found) == Ok(*index);
        assert!(values.iter().zip(&expected).all(is_right), "{rest:?}");
    }
}

#[test]
fn only_targets_that_repeat_are_folded() {
    let targets: Vec<u64> = (0..1000).chain([5, 7, 5]).collect();
    let entries = [adding(copy(0..1003, targets))];
    let program = RegionProgram::indexed(&entries).unwrap();
    let [alone, items] = program.phases()[0].items() else { panic!("a list and a fold") };
    // Those before and between the targets that repeat.
    assert_eq!((alone.count(), items.count()), (6, 2));
    let fold = items.fold().unwrap();
    assert_eq!(fold.reads_of(0), [[0, 5], [0, 1000], [0, 1002]]);
    assert_eq!(fold.reads_of(1), [[0, 7], [0, 1001]]);
    assert_eq!(program.bytes(), 1003 * 4);
}

#[test]
fn the_last_of_several_replacements_is_written() {
    let entry = |sources: Vec<u64>, targets: Vec<u64>| IndexedCopy {
        repeats: true,
        ..copy(sources, targets)
    };
    let entries = [entry(vec![10, 20, 30], vec![2, 2, 4]), entry(vec![40, 50], vec![4, 9])];
    let program = RegionProgram::indexed(&entries).unwrap();
    let values = run(&program, false);
    assert_eq!([2, 4, 9].map(|index| values[index]), [20, 40, 50]);
    assert_eq!(program.bytes(), 3 * 4);
}

#[test]
fn parts_do_what_the_whole_does() {
    let gather = copy(scattered(10_000), 0..10_000);
    let sum = adding(copy(0..9_000, scattered(9_000)));
    for entry in [gather, sum] {
        let program = RegionProgram::indexed(&[entry]).unwrap();
        assert!(program.parts(0) > 1, "{} parts", program.parts(0));
        assert_eq!(run(&program, true), run(&program, false));
    }
}

#[test]
fn long_ranges_take_no_time() {
    let long = |slot, stride| IndexedSide { stride, ..side(slot, 1 << 50, 0..1 << 50) };
    let entry = IndexedCopy { source: long(0, 4), destination: long(1, 8), ..copy(0..0, 0..0) };
    assert_eq!(shape(std::slice::from_ref(&entry)), (1, vec![]));
    let again = [adding(entry.clone()), adding(entry.clone())];
    let error = RegionProgram::indexed(&again).unwrap_err();
    assert!(error.message().contains("items that repeat, limit 4294967295"), "{error}");
    let far = IndexedSide { stride: 1 << 20, ..entry.destination.clone() };
    let error = RegionProgram::indexed(&[IndexedCopy { destination: far, ..entry }]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfBounds);
}

#[test]
fn lists_beyond_32_bits_are_refused() {
    assert!(check_length(3, (1 << 32) - 1).is_ok());
    let error = check_length(3, 1 << 32).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.message(), "entry 3: a list of 4294967296 indices, limit 4294967295");
}

#[test]
fn layouts_in_which_items_overlap_are_refused() {
    // The components of an item reach into the next item.
    let mut wide = copy(scattered(50), scattered(50));
    (wide.components, wide.destination.component_stride) = (2, 4);
    let error = RegionProgram::indexed(&[wide.clone()]).unwrap_err();
    assert!(error.message().contains("overlaps item"), "{error}");
    wide.destination.stride = 8;
    RegionProgram::indexed(&[wide.clone()]).unwrap();
    // Sources may overlap.
    wide.source.stride = 0;
    RegionProgram::indexed(&[wide.clone()]).unwrap();
    wide.components = 1 << 30;
    let error = RegionProgram::indexed(&[wide]).unwrap_err();
    assert!(error.message().contains("limit 1073741824 bytes"), "{error}");
}

#[test]
fn targets_on_one_place_are_refused() {
    let same = |stride, component_stride, components, repeats| {
        let mut entry = copy(scattered(1000), 0..1000);
        entry.source.stride = 4 * components;
        (entry.destination.stride, entry.destination.component_stride) = (stride, component_stride);
        (entry.components, entry.repeats) = (components, repeats);
        [Combine::Replace, Combine::Sum].map(|combine| {
            let entry = IndexedCopy { combine, ..entry.clone() };
            RegionProgram::indexed(&[entry]).unwrap_err().message().to_owned()
        })
    };
    for repeats in [false, true] {
        let items = "entry 0: 1000 items of the destination lie on one place (stride 0)";
        assert_eq!(same(0, 4, 1, repeats), [items; 2]);
        let components =
            "entry 0: 3 components of an item of the destination lie on one place (stride 0)";
        assert_eq!(same(12, 0, 3, repeats), [components; 2]);
    }
}

#[test]
fn empty_lists_do_nothing() {
    let program = RegionProgram::indexed(&[copy(0..0, vec![])]).unwrap();
    assert!(program.phases().is_empty());
    assert_eq!((program.bytes(), program.slots().len()), (0, 2));
}
