//! Exchanges: the links they accept and refuse, and that no ghost is left out.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

use array_buffer::{
    ArrayBuffer, ErrorKind, Exchange, PartStatus, Partition, Parts, Reduce, StarForest,
    TransferBudget,
};
use backend_sim::{SimConfig, SimDevice};
use ndarray::{Array1, Array2, array};
use runtime_core::{Device, Stream};

fn stream() -> Stream {
    Device::new(SimDevice::new(0, SimConfig::new())).unwrap().default_stream()
}

/// Three owned elements with a ghost at either end.
fn ring(values: [i32; 5]) -> ArrayBuffer<i32, ndarray::Ix1> {
    let partition = Partition::with_ghosts(&[5], &[(1, 1)]).unwrap();
    ArrayBuffer::from_array_with(Array1::from_vec(values.to_vec()), partition).unwrap()
}

#[test]
fn one_forest_serves_arrays_of_several_shapes() {
    let stream = stream();
    let mut forest = StarForest::new([(vec![0..1, 0..4], vec![1..2, 0..4])]);
    for columns in [4, 6, 4, 5] {
        let partition = Partition::with_ghosts(&[3, columns], &[(1, 0), (0, 0)]).unwrap();
        let values = Array2::from_shape_fn((3, columns), |(i, j)| (10 * i + j) as i64);
        let mut array = ArrayBuffer::from_array_with(values.clone(), partition).unwrap();
        let mut flight = array.begin_exchange(&stream, Exchange::Broadcast).unwrap();
        flight.run(&mut forest).unwrap();
        if columns > 4 {
            // Not all ghosts are linked.
            let error = flight.finish().unwrap_err();
            assert!(error.message().contains("ghost part 1 was not filled"), "{error}");
            continue;
        }
        flight.finish().unwrap();
        let found = array.into_inner().unwrap();
        assert_eq!(found.row(0), values.row(1));
        assert_eq!(found.row(2), values.row(2));
    }
}

#[test]
fn links_are_of_ghosts_and_owned_elements() {
    let stream = stream();
    for (links, part) in [
        (vec![(vec![1..2], vec![2..3])], "not all ghosts"),
        (vec![(vec![0..2], vec![2..4])], "not all ghosts"),
        (vec![(vec![0..1], vec![4..5])], "not all owned"),
        (vec![(vec![0..1, 0..1], vec![1..2])], "not all ghosts"),
        (vec![(vec![0..1], vec![1..2]), (vec![0..1], vec![2..3])], "in common"),
    ] {
        let mut array = ring([0, 1, 2, 3, 0]);
        let mut flight = array.begin_exchange(&stream, Exchange::Broadcast).unwrap();
        let error = flight.run(&mut StarForest::new(links)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(part), "{error}");
        // Nothing was done, and a correct forest still can be run.
        let links = [(vec![0..1], vec![3..4]), (vec![4..5], vec![1..2])];
        flight.run(&mut StarForest::new(links)).unwrap();
        flight.finish().unwrap();
        assert_eq!(array.into_inner().unwrap().to_vec(), [3, 1, 2, 3, 1]);
    }
}

#[test]
fn a_broadcast_fills_every_ghost_part() {
    let stream = stream();
    let mut array = ring([0, 1, 2, 3, 0]);
    let mut flight = array.begin_exchange(&stream, Exchange::Broadcast).unwrap();
    flight.target(1).unwrap().fill(&stream, 7).unwrap();
    let error = flight.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.message().contains("ghost part 2"), "{error}");
    assert_eq!(array.status(2), PartStatus::Poisoned);
    let mut flight = array.begin_exchange(&stream, Exchange::Broadcast).unwrap();
    flight.target(1).unwrap().fill(&stream, 7).unwrap();
    flight.run(&mut StarForest::new([(vec![4..5], vec![1..2])])).unwrap();
    flight.finish().unwrap();
    assert_eq!(array.into_inner().unwrap().to_vec(), [7, 1, 2, 3, 1]);
}

#[test]
fn a_reduction_takes_every_contribution() {
    let stream = stream();
    let contribute = |array: &mut ArrayBuffer<i32, ndarray::Ix1>| {
        let mut all = array.accumulate(&stream, Reduce::Sum).unwrap();
        for ghost in [1, 2] {
            all.part_mut(ghost).unwrap().fill(&stream, 20).unwrap();
        }
        all.part_mut(0).unwrap().fill(&stream, 1).unwrap();
        all.commit().unwrap();
    };
    let mut array = ring([0, 1, 1, 1, 0]);
    contribute(&mut array);
    let mut flight = array.begin_exchange(&stream, Exchange::Reduce).unwrap();
    flight.run(&mut StarForest::new([(vec![0..1], vec![3..4])])).unwrap();
    let error = flight.finish().unwrap_err();
    assert!(error.message().contains("contributions of ghost part 2"), "{error}");

    let mut array = ring([0, 1, 1, 1, 0]);
    contribute(&mut array);
    let mut flight = array.begin_exchange(&stream, Exchange::Reduce).unwrap();
    let mut forest = StarForest::new([(vec![0..1], vec![3..4]), (vec![4..5], vec![1..2])]);
    flight.run(&mut forest).unwrap();
    flight.finish().unwrap();
    let owned = array.part(Parts::one(0)).unwrap();
    assert_eq!(owned.read_host().unwrap().to_vec(), [21, 1, 21]);
}

/// Values of other ghosts, which may be old or none at all, are no contributions.
#[test]
fn a_reduction_takes_nothing_but_contributions() {
    let stream = stream();
    // Two ghosts of one row, and a link from both.
    let owned: [&[_]; 1] = [&[1..2, 0..3]];
    let partition = Partition::new(&[2, 3], &owned, &[&[0..1, 0..1], &[0..1, 1..3]]).unwrap();
    let mut forest = StarForest::new([(vec![0..1, 0..3], vec![1..2, 0..3])]);
    let start = ndarray::array![[9, 9, 9], [1, 2, 3]];
    for (ghost, sums) in [(1, [21, 2, 3]), (2, [1, 22, 23])] {
        let mut array = ArrayBuffer::from_array_with(start.clone(), partition.clone()).unwrap();
        let [mut one] = array.split([Parts::one(ghost)]).unwrap();
        let mut contribution = one.accumulate(&stream, Reduce::Sum).unwrap();
        contribution.view_mut().unwrap().fill(&stream, 20).unwrap();
        contribution.commit().unwrap();
        let mut flight = array.begin_exchange(&stream, Exchange::Reduce).unwrap();
        let error = flight.source(3 - ghost).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        flight.run(&mut forest).unwrap();
        flight.finish().unwrap();
        let owned = array.part(Parts::one(0)).unwrap();
        assert_eq!(owned.read_host().unwrap().iter().copied().collect::<Vec<i32>>(), sums);
    }
}

/// In every exclusive access, idle streams make room for others.
#[test]
fn exchanges_and_checks_forget_idle_streams() {
    let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
    let mut array = ring([0, 1, 2, 3, 0]);
    let crowd = |array: &mut ArrayBuffer<i32, ndarray::Ix1>| {
        let streams: Vec<Stream> =
            (0..15).map(|_| device.stream_create(&Default::default()).unwrap()).collect();
        for stream in &streams {
            drop(array.read(stream));
        }
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        streams
    };
    let _first = crowd(&mut array);
    let fresh = device.stream_create(&Default::default()).unwrap();
    let mut flight = array.begin_exchange(&fresh, Exchange::Broadcast).unwrap();
    let links = [(vec![0..1], vec![3..4]), (vec![4..5], vec![1..2])];
    flight.run(&mut StarForest::new(links)).unwrap();
    flight.finish().unwrap();
    let _second = crowd(&mut array);
    let fresh = device.stream_create(&Default::default()).unwrap();
    array.check_write(&fresh, |guard| guard.view_mut()?.fill(&fresh, 3)).unwrap();
}

#[test]
fn arrays_and_parts_without_elements_are_written() {
    let mut array = ArrayBuffer::<f32, _>::uninit((0, 3)).unwrap();
    array.write_host().unwrap().commit().unwrap();
    assert_eq!(array.read_host().unwrap().len(), 0);
    let partition = Partition::with_ghosts(&[2], &[(1, 1)]).unwrap();
    let mut array = ArrayBuffer::<f32, ndarray::Ix1>::with_partition(partition).unwrap();
    let [mut owned] = array.split([Parts::one(0)]).unwrap();
    owned.write_host().unwrap().commit().unwrap();
}

#[test]
fn a_partition_of_another_rank_is_refused() {
    let partition = Partition::whole(&[3]).unwrap();
    let error = ArrayBuffer::<f32, ndarray::Ix2>::with_partition(partition).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_checked_writer_that_fails_leaves_no_pattern() {
    let stream = stream();
    let mut array = ArrayBuffer::from_array(array![1.0_f64, 2.0]).unwrap();
    let error = array
        .check_write(&stream, |guard| {
            guard.view_mut()?.slice(0..1)?.fill(&stream, 1.0)?;
            Err(array_buffer::Error::new(ErrorKind::Driver, "writer", "half-way"))
        })
        .unwrap_err();
    assert_eq!(error.message(), "half-way");
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
    let version = array.version();
    array.check_write(&stream, |guard| guard.view_mut()?.fill(&stream, 3.0)).unwrap();
    assert_eq!(array.version(), version + 1);
    assert_eq!(array.into_inner().unwrap().to_vec(), [3.0, 3.0]);
}

#[test]
fn a_failed_into_inner_returns_the_array() {
    let stream = stream();
    let mut array = ArrayBuffer::from_array(array![1, 2]).unwrap();
    array.write(&stream).unwrap().view_mut().unwrap().fill(&stream, 5).unwrap();
    let budget = TransferBudget::forbid();
    let failed = array.into_inner().unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::LimitExceeded);
    drop(budget);
    assert_eq!(failed.into_inner().into_inner().unwrap().to_vec(), [5, 5]);
}

#[test]
fn a_forest_without_links_copies_nothing() {
    let stream = stream();
    let mut array = ArrayBuffer::from_vec(vec![1, 2, 3], 3).unwrap();
    let mut flight = array.begin_exchange(&stream, Exchange::Broadcast).unwrap();
    flight.run(&mut StarForest::new([])).unwrap();
    flight.finish().unwrap();
    assert_eq!(array.into_inner().unwrap().to_vec(), [1, 2, 3]);
}
