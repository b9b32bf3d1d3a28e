//! Safe code that uses the views lent by guards.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use array_buffer::{ArrayBuffer, ErrorKind, PartStatus, Partition, Parts};
use common::Setup;
use ndarray::Array2;
use runtime_core::{
    Combine, DType, Grid, HostModule, Launch, RegionCopy, RegionSide, Slot, WriteReport, args,
};

/// The stream binding holds. Otherwise work could run that the array does not track, here behind a kernel that waits.
#[test]
fn a_view_of_a_guard_stays_bound_to_its_stream() {
    static GO: AtomicBool = AtomicBool::new(false);
    fn wait(_: &Grid<'_>) {
        while !GO.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }
    let setup = Setup::host();
    let (own, other) = (&setup.s, setup.stream());
    let module = setup.a.module_load(&HostModule::new().with("wait", wait)).unwrap();
    let kernel = module.kernel("wait").unwrap();
    kernel.launch_checked(&other, &Launch::cover(1, 1), args![]).unwrap();
    let mut values = ndarray::array![1.0, 2.0];
    let filled = array_buffer::lend(values.view_mut(), |mut array| {
        let mut guard = array.write(own)?;
        guard.view_mut()?.fill(own, 3.0)?;
        guard.view_mut()?.on_stream(&other)?.fill(&other, 7.0)
    });
    let before = values[0];
    GO.store(true, Ordering::Release);
    other.synchronize().unwrap();
    assert_eq!((before, values[0]), (3.0, 3.0));
    assert_eq!(filled.unwrap().unwrap_err().kind(), ErrorKind::WrongStream);
}

/// A plan bound to one part does not touch the others, also if they lie in its gaps.
#[test]
fn a_plan_stays_in_the_elements_of_a_part() {
    let setup = Setup::host();
    let partition = Partition::new(&[4, 6], &[&[0..4, 0..3], &[0..4, 3..6]], &[]).unwrap();
    let mut array = ArrayBuffer::from_array_with(Array2::<i32>::zeros((4, 6)), partition).unwrap();
    let [mut left, right] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
    let one = setup.a.memory_from_slice(&setup.s, &[5_i32]).unwrap();
    let entry = RegionCopy {
        dtype: DType::I32,
        extents: vec![],
        source: RegionSide { slot: 0, offset: 0, strides: vec![] },
        destination: RegionSide { slot: 1, offset: 12, strides: vec![] },
        negate: false,
        combine: Combine::Replace,
    };
    let plan = setup.a.plan_regions(&[entry]).unwrap();
    let mut guard = left.write(&setup.s).unwrap();
    let held = right.read_host().unwrap();
    let part = guard.part_mut(0).unwrap();
    let executed = plan.execute(&setup.s, &mut [one.view().into(), Slot::from(part)]);
    setup.s.synchronize().unwrap();
    assert_eq!(held[[0, 0]], 0, "the element held on the host");
    assert_eq!(executed.unwrap_err().kind(), ErrorKind::OutOfBounds);
}

/// A caller's own write report does not hide writes from the array.
#[test]
fn a_commit_knows_what_was_written() {
    let setup = Setup::peers();
    let mut array = ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap();
    let mut guard = array.read_write(&setup.s).unwrap();
    let report = WriteReport::new();
    let other = guard.view_mut().unwrap().reporting_to(&report);
    assert_eq!(other.map(drop).unwrap_err().kind(), ErrorKind::Conflict);
    guard.view_mut().unwrap().fill(&setup.s, 7.0).unwrap();
    guard.commit().unwrap();
    assert_eq!(array.read_host().unwrap()[0], 7.0);
}

/// The values are usable only if the write has ended, even if its last operation succeeded.
#[test]
fn a_write_of_several_operations_that_did_not_end_poisons() {
    let setup = Setup::peers();
    for ends in [true, false] {
        let mut array = ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap();
        let mut guard = array.read_write(&setup.s).unwrap();
        let mut view = guard.view_mut().unwrap();
        let write = view.begin_write();
        view.fill(&setup.s, 7.0).unwrap();
        if ends {
            write.end();
        }
        assert_eq!(guard.commit().is_ok(), ends);
        let expected = if ends { PartStatus::Valid } else { PartStatus::Poisoned };
        assert_eq!(array.status(0), expected);
    }
}

/// The columns of a part are filled, read and overwritten, and the other columns do not change.
#[test]
fn a_part_with_gaps_is_filled_and_read() {
    for setup in [Setup::host(), Setup::peers(), Setup::apart()] {
        let partition = Partition::new(&[4, 6], &[&[0..4, 0..3], &[0..4, 3..6]], &[]).unwrap();
        let start = Array2::from_elem((4, 6), 1.0);
        let mut array = ArrayBuffer::from_array_with(start, partition).unwrap();
        let [mut left, _] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
        let mut guard = left.read_write(&setup.s).unwrap();
        let mut part = guard.part_mut(0).unwrap();
        part.fill(&setup.s, 7.0).unwrap();
        assert_eq!(part.as_view().to_vec(&setup.s).unwrap(), [7.0; 12]);
        part.region(&[1..2, 0..3]).unwrap().copy_from_slice(&setup.s, &[8.0; 3]).unwrap();
        guard.commit().unwrap();
        let expected = Array2::from_shape_fn((4, 6), |at| match at {
            (_, 3..) => 1.0,
            (1, _) => 8.0,
            _ => 7.0,
        });
        assert_eq!(array.read_host().unwrap().view(), expected);
    }
}
