//! Arrays that are divided anew: no value is lost, and the fewest bytes move.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

mod common;
#[path = "../../interchange/tests/common/gate.rs"]
mod gate;

use std::mem::forget;
use std::ops::Range;

use array_buffer::{
    ArrayBuffer, Exchange, MemoryBudget, PartStatus, Partition, Parts, Reduce, StarForest,
};
use backend_sim::{Fault, Operation, SimHandle};
use coherence::{LANES, PARTS};
use common::{Setup, add, add_to, counting, fail_late, quick, set, values, values_on};
use gate::start;
use ndarray::{Array2, Ix1, Ix2};
use runtime_core::{ErrorKind, Stream};

const SHAPE: [usize; 2] = [12, 10];

fn row(cuts: &[usize]) -> Partition {
    common::row(cuts).unwrap()
}

/// `[0, 1, 2, …]` in parts that end at the cuts.
fn parted(cuts: &[usize]) -> ArrayBuffer<f64, Ix1> {
    let values = ndarray::Array1::from_iter((0..*cuts.last().unwrap()).map(|value| value as f64));
    ArrayBuffer::from_array_with(values, row(cuts)).unwrap()
}

/// Numbers that depend on the seed alone.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    /// Boxes that tile the array, some without elements.
    fn partition(&mut self) -> Partition {
        let mut boxes = vec![SHAPE.map(|extent| 0..extent)];
        for _ in 0..self.below(6) {
            let index = self.below(boxes.len());
            let dim = self.below(2);
            let Range { start, end } = boxes[index][dim].clone();
            let middle = start + self.below(end - start + 1);
            let mut other = boxes[index].clone();
            boxes[index][dim] = start..middle;
            other[dim] = middle..end;
            boxes.push(other);
        }
        let boxes: Vec<_> = boxes.iter().map(|ranges| &ranges[..]).collect();
        Partition::new(&SHAPE, &boxes, &[]).unwrap()
    }
}

fn write(array: &mut ArrayBuffer<f64, Ix2>, part: usize, stream: Option<&Stream>) {
    let [mut part] = array.split([Parts::one(part)]).unwrap();
    match stream {
        Some(stream) => add(&mut part.read_write(stream).unwrap(), stream, 1.0).unwrap(),
        None => part.read_write_host().unwrap().iter_mut().for_each(|value| *value += 1.0),
    }
}

/// Streams of both devices and the host write parts, which change between the writes.
fn values_survive_any_change_of_parts(setup: &Setup) {
    for seed in 1..=40 {
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let start = Array2::from_shape_fn(SHAPE, |(i, j)| (i * SHAPE[1] + j) as f64);
        let mut expected = start.clone();
        let mut array = ArrayBuffer::from_array(start).unwrap();
        if seed % 3 == 0 {
            array.page_lock(&setup.a).unwrap();
        }
        let other = setup.stream();
        let streams = [Some(&setup.s), Some(&other), Some(&setup.t), None];
        for _ in 0..4 {
            array.repartition(numbers.partition()).unwrap();
            for _ in 0..3 {
                let part = numbers.below(array.partition().count());
                let ranges = array.partition().ranges(part);
                let (rows, columns) = (ranges[0].clone(), ranges[1].clone());
                expected.slice_mut(ndarray::s![rows, columns]).map_inplace(|value| *value += 1.0);
                write(&mut array, part, streams[numbers.below(4)]);
            }
        }
        array.repartition(numbers.partition()).unwrap();
        match streams[numbers.below(4)] {
            Some(stream) => {
                let guard = array.read(stream).unwrap();
                let values = guard.view().unwrap().to_vec(stream).unwrap();
                assert!(values.iter().eq(expected.iter()), "seed {seed}");
            }
            None => assert_eq!(*array.read_host().unwrap(), expected, "seed {seed}"),
        }
        assert_eq!(array.into_inner().unwrap(), expected, "seed {seed}");
    }
}

fn only_elements_that_change_places_are_copied(setup: &Setup) {
    let mut array = parted(&[0, 50, 100]);
    array.part(Parts::one(0)).unwrap().prefetch(&setup.s).unwrap();
    add_to(&mut array, 0, &setup.s).unwrap();
    add_to(&mut array, 1, &setup.t).unwrap();
    let before = array.transfers().total().bytes;

    // Ten elements go from the second device to the first.
    array.repartition(row(&[0, 60, 100])).unwrap();
    let ten = if setup.a.is_same(&setup.b) { 0 } else { 80 };
    assert_eq!(array.transfers().total().bytes - before, ten);
    // Fewer parts of which each is in one place.
    array.repartition(row(&[0, 20, 60, 70, 100])).unwrap();
    array.repartition(row(&[0, 60, 100])).unwrap();
    assert_eq!(array.transfers().total().bytes - before, ten);
    // The 40 elements of the smaller part go to the larger.
    array.repartition(row(&[0, 100])).unwrap();
    assert_eq!(array.transfers().total().bytes - before, 5 * ten);

    let start: Vec<f64> = (1..=100).map(f64::from).collect();
    assert_eq!(values_on(&array, &setup.s), start);
    assert_eq!(array.transfers().total().bytes - before, 5 * ten);
}

/// Twelve rows and ten columns meet in 120 boxes.
fn more_boxes_than_parts_are_copied_as_whole_parts(setup: &Setup) {
    const SHAPE: [usize; 2] = [PARTS / 10, 11];
    let part = |range: Range<usize>, dim: usize| match dim {
        0 => [range, 0..SHAPE[1]],
        _ => [0..SHAPE[0], range],
    };
    let lines = |dim: usize| {
        let parts: Vec<_> = (0..SHAPE[dim]).map(|line| part(line..line + 1, dim)).collect();
        let parts: Vec<_> = parts.iter().map(|ranges| &ranges[..]).collect();
        Partition::new(&SHAPE, &parts, &[]).unwrap()
    };
    let start = Array2::from_shape_fn(SHAPE, |(i, j)| (i * SHAPE[1] + j) as f64);
    let mut array = ArrayBuffer::from_array_with(start.clone(), lines(0)).unwrap();
    for part in 0..SHAPE[0] {
        write(&mut array, part, Some([&setup.s, &setup.t][part % 2]));
    }
    array.repartition(lines(1)).unwrap();
    assert_eq!(array.partition().count(), SHAPE[1]);
    assert_eq!(*array.read_host().unwrap(), start + 1.0);
}

fn ghosts_keep_what_is_known_of_them(setup: &Setup) {
    let ghost = |end: usize| Partition::new(&[10], &[&[end..10]], &[&[0..end]]).unwrap();
    let mut array = counting(10);
    // Owned values that become ghosts stay valid until owned values are written.
    array.repartition(ghost(2)).unwrap();
    assert_eq!(array.status(1), PartStatus::Valid);
    assert_eq!(values_on(&array, &setup.s), (0..10).map(f64::from).collect::<Vec<_>>());
    add_to(&mut array, 0, &setup.s).unwrap();
    assert_eq!(array.status(1), PartStatus::Stale);

    // A stale ghost cannot become owned, and not take owned values with it.
    for partition in [row(&[0, 10]), ghost(3)] {
        let error = array.repartition(partition).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        assert!(error.message().contains("part 1"), "{error}");
    }
    // In pieces it is as stale, and an exchange fills it.
    let pieces = Partition::new(&[10], &[&[2..10]], &[&[0..1], &[1..2]]).unwrap();
    array.repartition(pieces).unwrap();
    assert_eq!([1, 2].map(|part| array.status(part)), [PartStatus::Stale; 2]);
    array.repartition(ghost(2)).unwrap();
    let mut forest = StarForest::new([(vec![0..2], vec![8..10])]);
    let mut flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    flight.run(&mut forest).unwrap();
    flight.finish().unwrap();
    assert_eq!(values(&array)[..3], [9.0, 10.0, 3.0]);
    array.repartition(row(&[0, 10])).unwrap();
    assert_eq!(values(&array)[..3], [9.0, 10.0, 3.0]);

    array.repartition(ghost(2)).unwrap();
    let mut guard = array.accumulate(&setup.s, Reduce::Sum).unwrap();
    add(&mut guard, &setup.s, 1.0).unwrap();
    guard.commit().unwrap();
    let error = array.repartition(row(&[0, 10])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    assert!(error.message().contains("sum"), "{error}");
}

fn parts_that_would_lose_values_are_refused(setup: &Setup) {
    let mut array = ArrayBuffer::<f64, Ix1>::with_partition(row(&[0, 4, 10])).unwrap();
    array.repartition(row(&[0, 5, 10])).unwrap();
    {
        let [mut first] = array.split([Parts::one(0)]).unwrap();
        set(&mut first.write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
    }
    let error = array.repartition(row(&[0, 10])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Uninitialized, "{error}");
    assert!(error.message().contains("part 1"), "{error}");
    array.repartition(row(&[0, 3, 5, 10])).unwrap();
    forget(array.split([Parts::one(0)]).unwrap()[0].read_write(&setup.s).unwrap());
    let error = array.repartition(row(&[0, 4, 10])).unwrap_err();
    assert!([ErrorKind::Poisoned, ErrorKind::Uninitialized].contains(&error.kind()), "{error}");
    // The forgotten write stays where it was.
    array.repartition(row(&[0, 1, 3, 5, 10])).unwrap();
    let statuses: Vec<_> = (0..4).map(|part| array.status(part)).collect();
    let (lost, valid) = (PartStatus::Poisoned, PartStatus::Valid);
    assert_eq!(statuses, [lost, lost, valid, PartStatus::Uninitialized]);

    let error = array.repartition(row(&[0, 11])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("[11]") && error.message().contains("[10]"), "{error}");
}

/// The only owned part has no elements, and the ghosts are in different places.
fn parts_without_elements_have_values(setup: &Setup) {
    let ghosts = Partition::new(&[4], &[&[2..2]], &[&[0..2], &[2..4]]).unwrap();
    let start = ndarray::array![1.0, 2.0, 3.0, 4.0];
    let mut array = ArrayBuffer::from_array_with(start, ghosts).unwrap();
    array.part(Parts::one(1)).unwrap().prefetch(&setup.s).unwrap();
    let [mut other] = array.split([Parts::one(2)]).unwrap();
    add(&mut other.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
    array.repartition(Partition::new(&[4], &[&[0..4], &[1..1]], &[]).unwrap()).unwrap();
    assert_eq!(values(&array), [1.0, 2.0, 4.0, 5.0]);
}

fn memory_budgets_keep_their_parts(setup: &Setup) {
    if setup.shares() {
        return;
    }
    let mut array = parted(&[0, 4, 10]);
    array.set_memory_budget(&MemoryBudget::new(&setup.a, 1 << 20)).unwrap();
    let error = array.repartition(row(&[0, 10])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

fn writes_are_checked_as_before(setup: &Setup) {
    let mut array = counting(10);
    array.set_check_writes(true);
    array.repartition(row(&[0, 4, 10])).unwrap();
    let [mut part] = array.split([Parts::one(1)]).unwrap();
    let mut guard = part.write(&setup.s).unwrap();
    guard.view_mut().unwrap().slice(0..5).unwrap().fill(&setup.s, 1.0).unwrap();
    let error = guard.commit().unwrap_err();
    assert!(error.message().contains("[9]"), "{error}");
}

on_all_devices! {
    parts_without_elements_have_values,
    writes_are_checked_as_before,
    values_survive_any_change_of_parts,
    only_elements_that_change_places_are_copied,
    more_boxes_than_parts_are_copied_as_whole_parts,
    ghosts_keep_what_is_known_of_them,
    parts_that_would_lose_values_are_refused,
    memory_budgets_keep_their_parts,
}

/// Parts that different streams wrote or read become one part, for which everybody waits.
#[test]
fn work_of_all_streams_comes_before_later_accesses() {
    for setup in [Setup::peers(), Setup::host()] {
        let (other, third) = (setup.stream(), setup.stream());
        let mut array = parted(&[0, 10, 20]);
        add_to(&mut array, 0, &setup.s).unwrap();
        let gate = start(&mut setup.a.memory_allocate::<f64>(1).unwrap(), &other);
        array.split([Parts::one(1)]).unwrap()[0]
            .write(&other)
            .unwrap()
            .view_mut()
            .unwrap()
            .fill(&other, 7.0)
            .unwrap();
        array.repartition(row(&[0, 20])).unwrap();
        assert!(!gate.is_open(), "the change of parts waited");
        gate.open_later();
        let expected: Vec<f64> = (1..=10).map(f64::from).chain([7.0; 10]).collect();
        assert_eq!(values_on(&array, &third), expected);

        array.repartition(row(&[0, 10, 20])).unwrap();
        let mut seen = setup.a.memory_allocate::<f64>(10).unwrap();
        add_to(&mut array, 0, &setup.s).unwrap();
        array.part(Parts::one(1)).unwrap().prefetch(&other).unwrap();
        setup.a.synchronize().unwrap();
        let gate = start(&mut setup.a.memory_allocate::<f64>(1).unwrap(), &other);
        {
            let part = array.part(Parts::one(1)).unwrap();
            let guard = part.read(&other).unwrap();
            seen.view_mut().copy_from(&other, &guard.view().unwrap()).unwrap();
        }
        array.repartition(row(&[0, 20])).unwrap();
        array.write(&third).unwrap().view_mut().unwrap().fill(&third, 0.0).unwrap();
        gate.open_later();
        assert_eq!(seen.to_vec(&other).unwrap(), expected[10..]);
        assert_eq!(values(&array), [0.0; 20]);
    }
}

/// Each copy fails in turn, at once or when it runs.
#[test]
fn a_copy_that_fails_leaves_the_array_as_before() {
    for (number, late) in (1..=6).flat_map(|number| [(number, false), (number, true)]) {
        let setup = Setup::sim(quick().peers(false));
        let mut array = parted(&[0, 10, 20, 30, 40]);
        for (part, stream) in [&setup.s, &setup.t, &setup.s, &setup.t].into_iter().enumerate() {
            add_to(&mut array, part, stream).unwrap();
        }
        let expected: Vec<f64> = (1..=40).map(f64::from).collect();
        assert_eq!(values(&array), expected);
        array.evict_host().unwrap();
        let before = array.partition().clone();
        let sim = SimHandle::of(&setup.a).unwrap();
        let counts = sim.counts();
        let past = [counts.to_device, counts.from_device, counts.on_device, counts.from_peers];
        let number = past.iter().map(|traffic| traffic.count).sum::<u64>() + number;
        sim.inject(match late {
            true => Fault::fail_late(Operation::Copy, number),
            false => Fault::fail(Operation::Copy, number),
        });
        let target = row(&[0, 15, 40]);
        if array.repartition(target.clone()).is_err() {
            assert_eq!(*array.partition(), before);
        }
        // This waits for the failed copy and gets its error, or makes the copy.
        drop(array.read_host());
        array.repartition(target).unwrap();
        assert_eq!(values(&array), expected, "copy {number}, late {late}");
    }
}

/// The first part is on the device and is being copied to the host, where the second is.
#[test]
fn values_survive_a_prefetch_that_fails() {
    for locks in [false, true] {
        let setup = Setup::sim(quick());
        let mut array = ArrayBuffer::<f64, Ix1>::with_partition(row(&[0, 4, 8])).unwrap();
        if locks {
            array.page_lock(&setup.a).unwrap();
        }
        set(&mut array.write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        assert_eq!(values(&array), [1.0; 8]);
        array.evict_host().unwrap();
        array.split([Parts::one(1)]).unwrap()[0].write_host().unwrap().fill(2.0);
        fail_late(&setup, 1);
        array.part(Parts::one(0)).unwrap().prefetch_host().unwrap();
        setup.s.synchronize().unwrap();
        array.repartition(row(&[0, 8])).unwrap_err();
        assert_eq!(*array.partition(), row(&[0, 4, 8]));
        array.repartition(row(&[0, 8])).unwrap();
        assert_eq!(values(&array), [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0], "{locks}");
    }
}

/// All but one of the streams are forgotten. The last of them is used again, and then the parts change.
#[test]
fn streams_stay_apart_from_streams_that_were_forgotten() {
    let setup = Setup::sim(quick());
    let mut array = parted(&[0, 4, 8]);
    let touch = |array: &ArrayBuffer<f64, Ix1>, stream: &Stream| drop(array.read(stream).unwrap());
    let fresh = |count: usize| (0..count).map(|_| setup.stream()).collect::<Vec<_>>();
    touch(&array, &setup.s);
    // One more stream makes the array's copies.
    let old = fresh(LANES - 2);
    old.iter().for_each(|stream| touch(&array, stream));
    setup.a.synchronize().unwrap();
    drop(array.read_write(&setup.s).unwrap());
    let again = &old[LANES - 3];
    touch(&array, again);
    array.repartition(row(&[0, 3, 8])).unwrap();

    // The list is full. All streams but one are idle, and are forgotten.
    let new = fresh(LANES - 3);
    let last = &new[LANES - 4];
    new.iter().for_each(|stream| touch(&array, stream));
    setup.a.synchronize().unwrap();
    let gate = start(&mut setup.a.memory_allocate::<f64>(1).unwrap(), last);
    touch(&array, last);
    drop(array.read_write(&setup.s).unwrap());
    gate.open();
    setup.a.synchronize().unwrap();

    for round in 1..4 {
        let value = f64::from(round);
        let gate = start(&mut setup.a.memory_allocate::<f64>(1).unwrap(), again);
        array.write(again).unwrap().view_mut().unwrap().fill(again, value).unwrap();
        gate.open_later();
        assert_eq!(values_on(&array, &setup.s), [value; 8]);
    }
}
