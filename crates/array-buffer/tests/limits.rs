//! Arrays with as many parts, devices and streams as there may be, and with one more.
#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;

use array_buffer::{ArrayBuffer, Parts};
use backend_sim::SimBackend;
use coherence::{LANES, PARTS, REPLICAS};
use common::{Setup, add_part, quick, row};
use ndarray::{Array1, Ix1};
use runtime_core::{Device, DeviceRegistry, ErrorKind, Stream};

/// An array of two elements in each part: `[0, 1, 2, …]`.
fn parted(parts: usize) -> array_buffer::Result<ArrayBuffer<f64, Ix1>> {
    let partition = row(&(0..=parts).map(|part| 2 * part).collect::<Vec<_>>())?;
    let values = Array1::from_iter((0..2 * parts).map(|value| value as f64));
    ArrayBuffer::from_array_with(values, partition)
}

fn devices(count: usize) -> Vec<Device> {
    let mut registry = DeviceRegistry::new();
    let configs = (0..count).map(|index| quick().seed(index as u64));
    registry.register(SimBackend::with_devices(configs)).unwrap();
    (0..count).map(|index| registry.open(&format!("sim:{index}")).unwrap()).collect()
}

#[test]
fn every_part_of_as_many_as_there_may_be_is_its_own() {
    let setup = Setup::peers();
    let mut array = parted(PARTS).unwrap();
    for part in 0..PARTS {
        let stream = if part % 2 == 0 { &setup.s } else { &setup.t };
        add_part(&mut array, part, stream, part as f64).unwrap();
    }
    // Each part moves alone.
    let last = Parts::one(PARTS - 1);
    let before = array.transfers().total().bytes;
    assert_eq!(array.part(last).unwrap().read_host().unwrap().len(), 2);
    assert_eq!(array.transfers().total().bytes, before + 16);
    let expected: Vec<f64> = (0..2 * PARTS).map(|at| (at + at / 2) as f64).collect();
    assert_eq!(array.read_host().unwrap().iter().copied().collect::<Vec<_>>(), expected);
    assert_eq!((last | Parts::one(64)).len(), 2);
    assert!(!last.contains(64));
}

#[test]
fn as_many_parts_as_there_may_be_become_two_and_are_many_again() {
    let setup = Setup::peers();
    let expected: Vec<f64> = (0..2 * PARTS).map(|at| at as f64).collect();
    let mut array = parted(PARTS).unwrap();
    // No place has all values of the first part of two.
    add_part(&mut array, 0, &setup.s, 0.0).unwrap();
    add_part(&mut array, 1, &setup.t, 0.0).unwrap();
    for cuts in [vec![0, PARTS, 2 * PARTS], (0..=PARTS).map(|part| 2 * part).collect()] {
        array.repartition(row(&cuts).unwrap()).unwrap();
        assert_eq!(array.partition().count(), cuts.len() - 1);
        assert_eq!(array.read_host().unwrap().as_slice().unwrap(), expected);
    }
}

#[test]
fn more_parts_than_there_may_be_are_refused() {
    let error = parted(PARTS + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let words = format!("{0} parts, {0} of them owned; a partition has 1 to {PARTS}", PARTS + 1);
    assert!(error.message().contains(&words), "{error}");
}

#[test]
fn numbers_that_no_partition_has_are_refused() {
    let mut array = parted(4).unwrap();
    for parts in [Parts::one(4), Parts::one(PARTS), Parts::one(0) | Parts::one(PARTS + 44)] {
        let part = array.part(parts).unwrap_err();
        let split = array.split([parts]).unwrap_err();
        let write = array.write_local(parts, |_| Ok(())).unwrap_err();
        for error in [part, split, write] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let last = parts.iter().last().unwrap().to_string();
            assert!(error.message().contains(&last), "{error}");
        }
    }
    assert!(!Parts::one(PARTS).is_empty() && Parts::one(PARTS).contains(PARTS));
}

/// The values go around all devices, and each device changes them.
#[test]
fn as_many_devices_as_there_may_be_pass_an_array_on() {
    let devices = devices(REPLICAS);
    let (last, used) = devices.split_last().unwrap();
    let mut array = parted(2).unwrap();
    for round in 1..4 {
        for device in used {
            add_part(&mut array, round % 2, &device.default_stream(), 1.0).unwrap();
        }
        // All have a valid replica.
        for device in used {
            drop(array.read(&device.default_stream()).unwrap());
        }
    }
    let refused = array.read_write(&last.default_stream()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    let words = format!("an array has {REPLICAS}");
    assert!(refused.message().contains(&words), "{refused}");
    let count = used.len() as f64;
    assert_eq!(
        array.read_host().unwrap().as_slice().unwrap(),
        [count, 1.0 + count, 2.0 + 2.0 * count, 3.0 + 2.0 * count]
    );
}

/// Streams take turns, with different parts each, and none waits on the host.
#[test]
fn as_many_streams_as_there_may_be_share_an_array() {
    let [a, b] = <[Device; 2]>::try_from(devices(2)).unwrap();
    let others = LANES - 2;
    let streams: Vec<Stream> = (0..others)
        .map(|index| if index % 2 == 0 { &a } else { &b }.stream_create(&Default::default()))
        .collect::<Result<_, _>>()
        .unwrap();
    let mut array = parted(5).unwrap();
    let mut expected = [0.0, 2.0, 4.0, 6.0, 8.0];
    for turn in 0..6 * others {
        let (part, by) = (turn * 3 % 5, (turn % 7) as f64);
        add_part(&mut array, part, &streams[turn * 11 % others], by).unwrap();
        expected[part] += by;
        drop(array.part(Parts::one(turn % 5)).unwrap().read(&streams[turn * 7 % others]).unwrap());
    }
    let values = array.read_host().unwrap();
    assert_eq!(values.iter().step_by(2).copied().collect::<Vec<_>>(), expected);
}
