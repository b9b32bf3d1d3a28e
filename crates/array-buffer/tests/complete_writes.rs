//! Arrays whose writes are checked for completeness.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

mod common;

use std::env;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use array_buffer::{
    ArrayBuffer, Error, ErrorKind, Leased, MemoryBudget, Partition, Parts, SharedArrayBuffer, lend,
};
use backend_sim::{Fault, Operation, SimHandle};
use common::{Setup, counting, set, values};
use ndarray::{Array1, Array2, Dimension, Ix1, Ix2, s};
use proptest::prelude::*;
use runtime_core::bytemuck::cast_slice;
use runtime_core::{Complex, Element, Stream, record};

fn checked<D: Dimension>(mut array: ArrayBuffer<f64, D>) -> ArrayBuffer<f64, D> {
    array.set_check_writes(true);
    array
}

/// Checks the error of an incomplete write.
#[track_caller]
fn assert_left_out(error: Error, line: u32, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    let message = error.message();
    let line = format!("complete_writes.rs:{line}:");
    for words in words.iter().chain([&"was not written", &&*line]) {
        assert!(message.contains(*words), "{message}");
    }
}

fn a_device_write_must_be_complete(setup: &Setup) {
    let (s, place) = (&setup.s, format!("on {}", setup.a.id()));
    let place = if setup.shares() { "on host" } else { &place };
    let mut array = checked(counting(10));
    for committed in [true, false] {
        set(&mut array.write(s).unwrap(), s, 1.0).unwrap();
        assert_eq!(values(&array), [1.0; 10]);
        let (mut guard, line) = (array.write(s).unwrap(), line!());
        let mut first = guard.view_mut().unwrap().slice(0..7).unwrap();
        first.fill(s, 2.0).unwrap();
        match committed {
            true => assert_left_out(guard.commit().unwrap_err(), line, &["element [7] ", place]),
            false => drop(guard),
        }
        let error = array.read(s).unwrap_err();
        assert_left_out(error, line, &["part 0 was lost by the write ", "element [7] ", place]);
    }
    // Values of other accesses may stay.
    set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
    let mut guard = array.read_write(s).unwrap();
    guard.view_mut().unwrap().slice(0..1).unwrap().fill(s, 4.0).unwrap();
    guard.commit().unwrap();
    array.set_check_writes(false);
    let mut guard = array.write(s).unwrap();
    guard.view_mut().unwrap().slice(0..1).unwrap().fill(s, 5.0).unwrap();
    guard.commit().unwrap();
}

fn a_host_write_must_be_complete(setup: &Setup) {
    let mut array = checked(ArrayBuffer::from_array(Array2::zeros((3, 4))).unwrap());
    setup.claim(&array);
    let mut guard = array.write_host().unwrap();
    guard.fill(1.0);
    guard.commit().unwrap();
    let (mut guard, line) = (array.write_host().unwrap(), line!());
    guard.slice_mut(s![.., ..3]).fill(2.0);
    let error = guard.commit().unwrap_err();
    assert_left_out(error, line, &["by the write on host", "element [0, 3] "]);
    assert_left_out(array.read(&setup.s).unwrap_err(), line, &["element [0, 3] "]);
}

fn parts_with_gaps_must_be_complete(setup: &Setup) {
    let s = &setup.s;
    let halves: [&[_]; 2] = [&[0..6, 0..2], &[0..6, 2..5]];
    let partition = Partition::new(&[6, 5], &halves, &[]).unwrap();
    let mut array = checked(ArrayBuffer::<f64, Ix2>::with_partition(partition).unwrap());
    let [mut left, mut right] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
    left.write_host().unwrap().fill(1.0);
    set(&mut right.write(s).unwrap(), s, 2.0).unwrap();
    assert_eq!(values(&array)[..5], [1.0, 1.0, 2.0, 2.0, 2.0]);

    let [mut right] = array.split([Parts::one(1)]).unwrap();
    let (mut guard, line) = (right.write(s).unwrap(), line!());
    let all = guard.view_mut().unwrap();
    all.region(&[0..5, 0..3]).unwrap().fill(s, 3.0).unwrap();
    let error = guard.commit().unwrap_err();
    assert_left_out(error, line, &["parts {1} ", "element [5, 2] "]);
    let (mut guard, line) = (right.write_host().unwrap(), line!());
    guard.slice_mut(s![..4, ..]).fill(3.0);
    drop(guard);
    assert_left_out(array.read_host().unwrap_err(), line, &["part 1 ", "element [4, 2] "]);
    let [left] = array.split([Parts::one(0)]).unwrap();
    assert_eq!(left.read_host().unwrap()[(5, 1)], 1.0);

    // Each half of a guard answers for its own parts.
    let mut guard = array.write(s).unwrap();
    guard.part_mut(0).unwrap().fill(s, 4.0).unwrap();
    let (left, right) = guard.split_off(Parts::one(0));
    left.commit().unwrap();
    assert_eq!(right.commit().unwrap_err().kind(), ErrorKind::Poisoned);
}

fn leases_must_be_complete(setup: &Setup) {
    let shared = SharedArrayBuffer::new(checked(counting(5)));
    for stream in [None, Some(&setup.s)] {
        for complete in [true, false] {
            let lease = shared.lease_write(stream, Duration::ZERO);
            let (mut lease, line) = (lease.unwrap(), line!() - 1);
            let len = if complete { 5 } else { 2 };
            match lease.values().unwrap() {
                Leased::Host(first) => {
                    #[expect(unsafe_code, reason = "foreign code writes by address")]
                    // SAFETY: the lease holds five elements.
                    unsafe {
                        std::slice::from_raw_parts_mut(first.as_ptr(), len).fill(7.0);
                    }
                }
                Leased::Device(_) => {
                    #[expect(unsafe_code, reason = "the view of a lease may be shared")]
                    // SAFETY: no other code has the address.
                    let view = unsafe { lease.view_mut_shared() }.unwrap();
                    view.slice(0..len).unwrap().fill(&setup.s, 7.0).unwrap();
                }
            }
            lease.mark_written();
            match complete {
                true => lease.commit().unwrap(),
                false => assert_left_out(lease.commit().unwrap_err(), line, &["element [2] "]),
            }
            assert_eq!(shared.read(Duration::ZERO).unwrap().read_host().is_ok(), complete);
        }
    }
}

fn parts_under_a_memory_budget_must_be_complete(setup: &Setup) {
    let (s, budget) = (&setup.s, MemoryBudget::new(&setup.a, 32));
    let partition = Partition::new(&[8], &[&[0..4], &[4..8]], &[]).unwrap();
    let start = Array1::from_elem(8, 1.0);
    let mut array = checked(ArrayBuffer::from_array_with(start, partition).unwrap());
    array.set_memory_budget(&budget).unwrap();
    for part in [0, 1, 0] {
        let [mut one] = array.split([Parts::one(part)]).unwrap();
        set(&mut one.write(s).unwrap(), s, 2.0).unwrap();
    }
    assert_eq!(values(&array), [2.0; 8]);
    let [mut second] = array.split([Parts::one(1)]).unwrap();
    let (mut guard, line) = (second.write(s).unwrap(), line!());
    guard.view_mut().unwrap().slice(1..4).unwrap().fill(s, 3.0).unwrap();
    assert_left_out(guard.commit().unwrap_err(), line, &["parts {1} ", "element [4] "]);
    let [first] = array.split([Parts::one(0)]).unwrap();
    assert_eq!(first.read_host().unwrap().to_vec(), [2.0; 4]);
}

fn an_empty_part_is_complete(setup: &Setup) {
    let mut array = checked(ArrayBuffer::<f64, _>::uninit(0).unwrap());
    array.write(&setup.s).unwrap().commit().unwrap();
    array.write_host().unwrap().commit().unwrap();
    assert!(values(&array).is_empty());
}

on_all_devices! {
    a_device_write_must_be_complete,
    a_host_write_must_be_complete,
    parts_with_gaps_must_be_complete,
    leases_must_be_complete,
    parts_under_a_memory_budget_must_be_complete,
    an_empty_part_is_complete,
}

#[test]
fn writes_that_fail_in_another_way_are_reported_as_ever() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = checked(counting(4));
    let refused = |array: &ArrayBuffer<f64, Ix1>, why: &str| {
        let error = array.read_host().unwrap_err();
        assert!(error.message().contains(why), "{error}");
    };
    forget(array.write(s).unwrap());
    refused(&array, "its guard was forgotten");
    drop(array.write(s).unwrap());
    refused(&array, "nothing was written");
    array.write_host().unwrap().abort();
    refused(&array, "it was aborted");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = array.write(s).unwrap();
        panic!("as planned");
    }));
    assert!(panicked.is_err());
    refused(&array, "a panic began under its guard");

    // The first copy is that of the pattern.
    let setup = Setup::peers();
    let s = &setup.s;
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail(Operation::Copy, 1));
    assert_eq!(array.write(s).unwrap_err().kind(), ErrorKind::Driver);
    assert_eq!(array.read(s).unwrap_err().kind(), ErrorKind::Poisoned);

    // The end of a write reports that its work has failed, because it waits for the work.
    let setup = Setup::peers();
    let s = &setup.s;
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 2));
    let mut guard = array.write(s).unwrap();
    guard.view_mut().unwrap().fill(s, 1.0).unwrap();
    assert_eq!(guard.commit().unwrap_err().kind(), ErrorKind::Driver);
    refused(&array, "work on a stream failed");

    // The check of a writer that runs twice has its own patterns.
    array.check_write(s, |guard| guard.view_mut()?.fill(s, 1.0)).unwrap();
    assert_eq!(values(&array), [1.0; 4]);
}

/// The variable with which a test starts this program again.
const CHILD: &str = "COMPLETE_WRITES_CHILD";

#[test]
fn a_variable_checks_all_arrays() {
    if env::var_os(CHILD).is_some() {
        return;
    }
    let run = |on: &str| {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "in_a_child", "--nocapture"]);
        child.env(CHILD, "1").env("ARRAY_BUFFER_CHECK_WRITES", on);
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    };
    assert!(run("1").contains("lend: true, array: true"), "{}", run("1"));
    assert!(run("0").contains("lend: false, array: false"), "{}", run("0"));
}

#[test]
fn in_a_child() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    let setup = Setup::peers();
    let mut values = Array1::<f64>::zeros(4);
    let lent: Result<Result<bool, Error>, Error> = lend(values.view_mut(), |mut part| {
        let mut guard = part.write(&setup.s)?;
        guard.view_mut()?.slice(0..2)?.fill(&setup.s, 1.0)?;
        let found = guard.commit().is_err();
        part.write_host()?.fill(1.0);
        Ok(found)
    });
    let mut array = counting(4);
    let mut guard = array.write_host().unwrap();
    guard[0] = 1.0;
    println!("lend: {}, array: {}", lent.unwrap().unwrap(), guard.commit().is_err());
}

/// Writes values on the host and on a device, and finds them.
fn complete<T: Element>(setup: &Setup, values: &[T]) {
    let mut array = ArrayBuffer::<T, _>::uninit(values.len()).unwrap();
    array.set_check_writes(true);
    let mut guard = array.write_host().unwrap();
    guard.assign(&ndarray::ArrayView1::from(values));
    guard.commit().unwrap();
    let mut guard = array.write(&setup.s).unwrap();
    guard.view_mut().unwrap().copy_from_slice(&setup.s, values).unwrap();
    guard.commit().unwrap();
    let read = array.read(&setup.s).unwrap().view().unwrap().to_vec(&setup.s).unwrap();
    assert_eq!(cast_slice::<T, u8>(&read), cast_slice::<T, u8>(values));
}

proptest! {
    #[test]
    fn complete_writes_are_not_accused(bytes in prop::collection::vec(any::<u8>(), 1..600)) {
        let setup = Setup::peers();
        complete(&setup, &bytes);
        let mut whole = bytes;
        whole.resize(whole.len().next_multiple_of(16), 0);
        let wide: Vec<u64> = whole
            .chunks(8)
            .map(|chunk| chunk.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
            .collect();
        complete(&setup, &wide);
        complete(&setup, &wide.iter().map(|bits| f64::from_bits(*bits)).collect::<Vec<_>>());
        let narrow: Vec<f32> = wide.iter().map(|bits| (bits % 1000) as f32).collect();
        complete(&setup, &narrow);
        let complex: Vec<_> = narrow.iter().map(|part| Complex::new(*part, 0.0)).collect();
        complete(&setup, &complex);
    }

    /// Leaves out two numbers or more in a row.
    #[test]
    fn incomplete_writes_are_found(len in 3_usize..200, first in 0_usize..197, more in 0_usize..9) {
        let setup = Setup::apart();
        let first = first.min(len - 3);
        let end = (first + 2 + more).min(len - 1);
        let mut array = ArrayBuffer::<f32, _>::uninit(len).unwrap();
        array.set_check_writes(true);
        let mut guard = array.write(&setup.s).unwrap();
        for range in [0..first, end..len] {
            guard.view_mut().unwrap().slice(range).unwrap().fill(&setup.s, 0.0).unwrap();
        }
        let error = guard.commit().unwrap_err();
        prop_assert!(error.message().contains(&format!("element [{first}] ")), "{}", error);
    }
}

record! {
    struct Particle {
        position: [f64; 3],
        charge: f32,
        cell: u32,
    }
}

/// Fields of eight bytes in one record, and smaller ones in many.
#[test]
fn fields_of_records_are_found() {
    let setup = Setup::apart();
    let write = |stream: Option<&Stream>, change: fn(usize, &mut Particle)| {
        let mut array = ArrayBuffer::<Particle, _>::uninit(1000).unwrap();
        array.set_check_writes(true);
        let zero = Particle { position: [0.0; 3], charge: 0.0, cell: 0 };
        match stream {
            None => {
                let mut guard = array.write_host().unwrap();
                guard.iter_mut().enumerate().for_each(|(index, particle)| change(index, particle));
                guard.commit()
            }
            Some(stream) => {
                let mut guard = array.write(stream).unwrap();
                guard.view_mut().unwrap().fill(stream, zero).unwrap();
                guard.commit()
            }
        }
    };
    let one = write(None, |index, particle| {
        particle.position[..2].fill(1.0);
        if index != 700 {
            particle.position[2] = 1.0;
        }
        (particle.charge, particle.cell) = (1.0, 7);
    });
    assert_left_out(one.unwrap_err(), line!() - 18, &["[700]"]);
    let many = write(None, |_, particle| (particle.position, particle.charge) = ([1.0; 3], 1.0));
    assert_eq!(many.unwrap_err().kind(), ErrorKind::Poisoned);
    write(Some(&setup.s), |_, _| {}).unwrap();
}

/// A complex number of which one half was left out.
#[test]
fn halves_of_complex_numbers_are_found() {
    let mut array = ArrayBuffer::<Complex<f32>, _>::uninit(9).unwrap();
    array.set_check_writes(true);
    let mut guard = array.write_host().unwrap();
    guard.iter_mut().for_each(|value| value.re = 1.0);
    let error = guard.commit().unwrap_err();
    assert!(error.message().contains("element [0] was not written"), "{error}");
}
