//! Arrays whose memory on a device is limited: parts leave when others need their memory, and no value is lost.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "the gate launches a kernel")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]
#![expect(clippy::cast_precision_loss, reason = "small numbers")]

mod common;
#[path = "../../interchange/tests/common/gate.rs"]
mod gate;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use array_buffer::{
    ArrayBuffer, Candidate, Exchange, Leased, LeastRecentlyUsed, MemoryBudget, Partition, Parts,
    Policy, Priority, Reduce, SharedArrayBuffer, StarForest, TransferBudget,
};
use backend_sim::{Fault, Operation, SimConfig, SimHandle};
use common::{Setup, add, add_to, counting, quick, row, values, values_on};
use gate::{Gate, start};
use ndarray::{Array1, Array2, Ix1, Ix2};
use runtime_core::{ErrorKind, Memory, Stream};

/// The number of elements of a part, and its bytes.
const LEN: usize = 10;
const PART: u64 = 80;

fn partition(parts: usize) -> Partition {
    row(&(0..=parts).map(|part| LEN * part).collect::<Vec<_>>()).unwrap()
}

/// `[0, 1, 2, …]` in parts of ten elements, within the budget.
fn parted(parts: usize, budget: &MemoryBudget) -> ArrayBuffer<f64, Ix1> {
    let start = Array1::from_iter((0..LEN * parts).map(|value| value as f64));
    let mut array = ArrayBuffer::from_array_with(start, partition(parts)).unwrap();
    array.set_memory_budget(budget).unwrap();
    array
}

/// Whether a part has values on the device.
fn is_there(array: &ArrayBuffer<f64, Ix1>, part: usize, stream: &Stream) -> bool {
    let budget = TransferBudget::forbid();
    let part = array.part(Parts::one(part)).unwrap();
    let is_there = part.read(stream).is_ok();
    drop(budget);
    is_there
}

/// Lets a copy of the setup's first device fail: at once, or when its turn comes. The next copy is number 1.
fn fail(setup: &Setup, number: u64, late: bool) {
    let sim = SimHandle::of(&setup.a).unwrap();
    let counts = sim.counts();
    let past = [counts.to_device, counts.from_device, counts.on_device, counts.from_peers];
    let number = past.iter().map(|traffic| traffic.count).sum::<u64>() + number;
    sim.inject(match late {
        true => Fault::fail_late(Operation::Copy, number),
        false => Fault::fail(Operation::Copy, number),
    });
}

/// A sweep over more than fits, with more than one stream, and a second array that needs the same memory.
fn sweeps_over_more_than_fits_have_the_right_values(setup: &Setup) {
    for limit in [PART, 2 * PART, 5 * PART, 100 * PART] {
        let budget = MemoryBudget::new(&setup.a, limit);
        let (mut x, mut y) = (parted(6, &budget), parted(6, &budget));
        let streams = [setup.s.clone(), setup.stream()];
        for sweep in 0..3 {
            for part in 0..6 {
                add_to(&mut x, part, &streams[part % 2]).unwrap();
                add_to(&mut y, part, &streams[sweep % 2]).unwrap();
                add_to(&mut x, part, &setup.t).unwrap();
            }
        }
        if !setup.shares() {
            assert!(budget.used() <= limit, "{budget:?}");
        }
        let expected = |more: f64| (0..60).map(|value| f64::from(value) + more).collect::<Vec<_>>();
        assert_eq!(values(&x), expected(6.0));
        assert_eq!(values(&y), expected(3.0));
    }
}

/// Parts that are not contiguous in the array are contiguous in their own memory.
fn parts_with_gaps_have_the_right_values(setup: &Setup) {
    let quarters: [&[_]; 4] = [&[0..3, 0..2], &[0..3, 2..5], &[3..7, 0..2], &[3..7, 2..5]];
    let start = Array2::from_shape_fn((7, 5), |(i, j)| (5 * i + j) as f64);
    for is_locked in [false, true] {
        let partition = Partition::new(&[7, 5], &quarters, &[]).unwrap();
        let mut array = ArrayBuffer::<f64, Ix2>::from_array_with(start.clone(), partition).unwrap();
        if is_locked {
            array.page_lock(&setup.a).unwrap();
        }
        array.set_memory_budget(&MemoryBudget::new(&setup.a, 12 * 8)).unwrap();
        for part in [0, 1, 2, 3, 2, 1, 0] {
            let [mut only] = array.split([Parts::one(part)]).unwrap();
            let shape = [[3, 2], [3, 3], [4, 2], [4, 3]][part];
            let mut guard = only.read_write(&setup.s).unwrap();
            assert_eq!(guard.view().unwrap().layout().shape(), shape);
            add(&mut guard, &setup.s, 1.0).unwrap();
            drop(guard);
            // A device without a budget has the whole array in one piece.
            add(&mut only.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
        }
        let mut expected = start.clone() + 4.0;
        expected.slice_mut(ndarray::s![3..7, 2..5]).mapv_inplace(|value| value - 2.0);
        assert_eq!(array.read_host().unwrap().to_owned(), expected);
    }
}

/// Ghosts are filled and reduced by exchanges of parts.
fn exchanges_hold_their_parts(setup: &Setup) {
    if setup.shares() {
        return;
    }
    let budget = MemoryBudget::new(&setup.a, 30 * 8);
    let partition = Partition::new(&[20], &[&[0..10]], &[&[10..20]]).unwrap();
    let mut array = ArrayBuffer::from_array_with(Array1::ones(20), partition).unwrap();
    array.set_memory_budget(&budget).unwrap();
    let mut other = parted(2, &budget);
    let mut flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    // Only one part of the other array fits beside the exchange.
    add_to(&mut other, 0, &setup.s).unwrap();
    add_to(&mut other, 1, &setup.s).unwrap();
    let other_again = other.read(&setup.s).map(drop).unwrap_err();
    assert_eq!(other_again.kind(), ErrorKind::OutOfMemory, "{other_again}");
    let mut ring = StarForest::new([(vec![10..20], vec![0..10])]);
    assert_eq!(flight.run(&mut ring).unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(flight);
    array.write_host().unwrap().fill(2.0);
    let mut flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    flight.target(1).unwrap().fill(&setup.s, 5.0).unwrap();
    flight.finish().unwrap();
    let mut expected = vec![2.0; 10];
    expected.extend([5.0; 10]);
    assert_eq!(values(&array), expected);
    for part in 0..2 {
        let [mut part] = array.split([Parts::one(part)]).unwrap();
        let mut guard = part.accumulate(&setup.s, Reduce::Sum).unwrap();
        add(&mut guard, &setup.s, 1.0).unwrap();
    }
    let mut flight = array.begin_exchange(&setup.s, Exchange::Reduce).unwrap();
    flight.source(1).unwrap();
    flight.target(0).unwrap().fill(&setup.s, 4.0).unwrap();
    flight.finish().unwrap();
    add_to(&mut other, 1, &setup.s).unwrap();
    let [owned] = array.split([Parts::one(0)]).unwrap();
    assert_eq!(owned.read_host().unwrap().to_vec(), [4.0; 10]);
}

/// Memory of elements of other types and lengths is freed, and not used again.
fn arrays_of_several_types_share_a_budget(setup: &Setup) {
    let budget = MemoryBudget::new(&setup.a, 100);
    let mut x = counting(10);
    let mut y = ArrayBuffer::from_vec(vec![1_u8; 90], 90).unwrap();
    let mut z = ArrayBuffer::from_vec(vec![2_i64; 10], 10).unwrap();
    x.set_memory_budget(&budget).unwrap();
    y.set_memory_budget(&budget).unwrap();
    z.set_memory_budget(&budget).unwrap();
    for round in 0..3 {
        add(&mut x.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        y.read_write(&setup.s).unwrap().view_mut().unwrap().fill(&setup.s, round).unwrap();
        assert_eq!(z.read(&setup.s).unwrap().view().unwrap().to_vec(&setup.s).unwrap(), [2; 10]);
    }
    assert_eq!(values(&x)[9], 12.0);
    assert_eq!(y.read_host().unwrap().to_vec(), [2; 90]);
}

on_all_devices! {
    also_with_gates:
    sweeps_over_more_than_fits_have_the_right_values,
    parts_with_gaps_have_the_right_values,
    exchanges_hold_their_parts,
    arrays_of_several_types_share_a_budget,
}

/// What fits stays, and moves once.
#[test]
fn nothing_leaves_while_all_fits() {
    let setup = Setup::apart();
    let budget = MemoryBudget::new(&setup.a, 3 * PART);
    let mut array = parted(3, &budget);
    for _ in 0..4 {
        (0..3).for_each(|part| add_to(&mut array, part, &setup.s).unwrap());
    }
    assert_eq!((budget.used(), budget.evicted().count), (3 * PART, 0));
    assert_eq!(array.transfers().total().bytes, 3 * PART);
}

/// A prefetch waits if the values of the part that leaves must be copied to the host, and reports say so.
#[test]
fn making_room_is_counted_where_it_waits() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, PART);
    let mut array = parted(3, &budget);
    array.part(Parts::one(0)).unwrap().prefetch(s).unwrap();
    array.part(Parts::one(1)).unwrap().prefetch(s).unwrap();
    assert_eq!((budget.waits(), array.transfers().prefetches_that_waited()), (0, 0));
    add_to(&mut array, 2, s).unwrap();
    assert_eq!(budget.waits(), 0);
    array.part(Parts::one(0)).unwrap().prefetch(s).unwrap();
    assert_eq!((budget.waits(), array.transfers().prefetches_that_waited()), (1, 1));
    add_to(&mut array, 1, s).unwrap();
    drop(array.part(Parts::one(0)).unwrap().read(s).unwrap());
    assert_eq!((budget.waits(), array.transfers().prefetches_that_waited()), (2, 1));
}

/// While an access of one array waits for a part of another to leave, that array's other parts are used.
#[test]
fn an_array_whose_part_leaves_is_used_meanwhile() {
    let setup = Setup::apart();
    let (s, t) = (&setup.s, setup.stream());
    let budget = MemoryBudget::new(&setup.a, 2 * PART);
    let (mut array, other) = (parted(2, &budget), parted(1, &budget));
    add_to(&mut array, 1, &t).unwrap();
    let gate = start(&mut setup.a.memory_allocate::<f64>(1).unwrap(), s);
    gate.open_after(Duration::from_secs(20));
    {
        let [mut part] = array.split([Parts::one(0)]).unwrap();
        let mut guard = part.write(s).unwrap();
        guard.view_mut().unwrap().fill(s, 1.0).unwrap();
        guard.commit().unwrap();
    }
    thread::scope(|scope| {
        let held = array.part(Parts::one(1)).unwrap().read(&t).unwrap();
        let waiting = scope.spawn(|| values_on(&other, s)[9]);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(array.part(Parts::one(1)).unwrap().read_host().unwrap()[0], 11.0);
        assert!(!waiting.is_finished() && !gate.is_open());
        gate.open();
        assert_eq!(waiting.join().unwrap(), 9.0);
        drop(held);
    });
    assert_eq!(values(&array)[9..11], [1.0, 11.0]);
}

/// While another array's access copies the values of a part to the host, the part's array is changed as a whole.
#[test]
fn calls_on_the_whole_array_wait_for_copies_of_parts_that_leave() {
    type Call = fn(&mut ArrayBuffer<f64, Ix1>, &Setup);
    let calls: [Call; 5] = [
        |array, setup| array.page_lock(&setup.a).unwrap(),
        |array, setup| array.page_lock(&setup.b).unwrap(),
        |array, setup| array.unify(&setup.b).unwrap(),
        |array, setup| array.evict(&setup.a).unwrap(),
        |array, _| array.evict_host().unwrap_or_default(),
    ];
    const LEN: usize = 1 << 16;
    for call in calls {
        // A copy takes 50 ms.
        let config = quick().jitter(Duration::ZERO).peers(false).registration(false);
        let setup = Setup::sim(config.link(20 * 8 * LEN as u64));
        let budget = MemoryBudget::new(&setup.a, 8 * LEN as u64);
        let [mut array, mut other] = [0, 1].map(|_| {
            let mut array = ArrayBuffer::<f64, _>::from_vec(vec![1.0; LEN], LEN).unwrap();
            array.set_memory_budget(&budget).unwrap();
            array
        });
        array.write(&setup.s).unwrap().view_mut().unwrap().fill(&setup.s, 3.0).unwrap();
        setup.s.synchronize().unwrap();
        let stream = setup.stream();
        thread::scope(|scope| {
            let making_room = scope.spawn(|| other.write(&stream).map(drop));
            thread::sleep(Duration::from_millis(25));
            call(&mut array, &setup);
            making_room.join().unwrap().unwrap();
        });
        assert_eq!(values(&array), [3.0; LEN]);
    }
}

#[test]
fn values_that_are_elsewhere_leave_first_and_then_the_least_recently_used() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, 3 * PART);
    let mut array = parted(6, &budget);
    add_to(&mut array, 0, s).unwrap();
    add_to(&mut array, 1, s).unwrap();
    let part = |part| Parts::one(part);
    assert_eq!(array.part(part(2)).unwrap().read(s).unwrap().parts().len(), 1);
    // Part 2 was used last, and its values are on the host.
    add_to(&mut array, 3, s).unwrap();
    assert_eq!([0, 1, 2, 3].map(|part| is_there(&array, part, s)), [true, true, false, true]);
    // That has used part 0 again before part 1.
    add_to(&mut array, 4, s).unwrap();
    assert_eq!([0, 1, 3, 4].map(|part| is_there(&array, part, s)), [false, true, true, true]);
    let report = array.transfers();
    let line = report.evictions()[0].wanted_by.call_site.line();
    assert_eq!(report.evictions().iter().map(|group| group.traffic.count).sum::<u64>(), 2);
    assert_eq!(report.between("sim:0", "host").bytes, PART);
    assert!(line > 0 && report.to_string().contains("evicted"), "{report}");
}

#[test]
fn parts_stay_by_priority() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, 3 * PART);
    let mut array = parted(6, &budget);
    let set = |array: &ArrayBuffer<f64, Ix1>, part, priority| {
        array.set_priority(&setup.a, Parts::one(part), priority)
    };
    set(&array, 0, Priority::Keep).unwrap();
    set(&array, 1, Priority::High).unwrap();
    for part in 0..6 {
        add_to(&mut array, part, s).unwrap();
    }
    assert_eq!([0, 1, 5].map(|part| is_there(&array, part, s)), [true; 3]);
    set(&array, 1, Priority::Low).unwrap();
    add_to(&mut array, 4, s).unwrap();
    assert_eq!([0, 1, 4, 5].map(|part| is_there(&array, part, s)), [true, false, true, true]);
    for part in 1..3 {
        set(&array, part, Priority::Keep).unwrap();
    }
    let error = set(&array, 3, Priority::Keep).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::LimitExceeded, "set_priority"));
    assert!(error.message().contains("320 bytes") && error.message().contains("240"), "{error}");
    set(&array, 0, Priority::Normal).unwrap();
    set(&array, 3, Priority::Keep).unwrap();
    // A refused call changes nothing: the other parts still leave when others need room.
    let error = array.set_priority(&setup.a, array.partition().all(), Priority::Keep).unwrap_err();
    assert!(error.message().contains("480 bytes"), "{error}");
    for part in 1..4 {
        set(&array, part, Priority::Normal).unwrap();
    }
    for part in 0..6 {
        add_to(&mut array, part, s).unwrap();
    }
    let without = counting(3);
    let error = without.set_priority(&setup.a, Parts::one(0), Priority::High).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// The error of an access that finds no room names what uses the parts that stay.
#[test]
fn errors_name_what_uses_the_parts_that_stay() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, 7 * PART);
    let mut array = parted(4, &budget);
    let shared = SharedArrayBuffer::new(parted(1, &budget));
    let partition = Partition::new(&[20], &[&[0..10]], &[&[10..20]]).unwrap();
    let mut ring = ArrayBuffer::from_array_with(Array1::<f64>::zeros(20), partition).unwrap();
    ring.set_memory_budget(&budget).unwrap();
    let mut kept = parted(1, &budget);
    kept.set_priority(&setup.a, Parts::one(0), Priority::Keep).unwrap();
    add_to(&mut kept, 0, s).unwrap();
    add_to(&mut array, 2, s).unwrap();

    let parts = [Parts::one(0), Parts::one(1), Parts::one(2) | Parts::one(3)];
    let [first, mut second, rest] = array.split(parts).unwrap();
    let (read, read_at) = (first.read(s).unwrap(), line!());
    let (write, write_at) = (second.read_write(s).unwrap(), line!());
    let (lease, lease_at) = (shared.lease_read(Some(s), Duration::ZERO).unwrap(), line!());
    let (flight, flight_at) = (ring.begin_exchange(s, Exchange::Broadcast).unwrap(), line!());
    let message = rest.read(s).map(drop).unwrap_err().to_string();
    let at = |line| format!("` at {}:{line}:", file!());
    for part in [
        "80 bytes for part 3: 560 of 560 bytes of the memory budget are in use",
        &format!("; part 0 (80 bytes) is used by a guard (`read{}", at(read_at)),
        &format!("; part 1 (80 bytes) is used by a guard (`read_write{}", at(write_at)),
        &format!("; part 0 of another array (80 bytes) is used by a lease (`read{}", at(lease_at)),
        &format!(
            "; part 0 of another array (80 bytes) is used by an exchange (`broadcast{}",
            at(flight_at)
        ),
        "; 1 other part of 80 bytes is in use",
        "; 1 part of 80 bytes is kept by `Priority::Keep`",
        "; 1 part of 80 bytes is needed by this access",
    ] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    // Part of a guard is a guard, and what is dropped is not named.
    let (half, other) = write.split_off(Parts::one(1));
    drop((read, other, lease, flight));
    let message = {
        let _read = ring.read(s).unwrap();
        let _again = shared.lease_read(Some(s), Duration::ZERO).unwrap();
        kept.read(s).unwrap();
        let (_first, second) = (first.read(s).unwrap(), rest.read(s));
        second.map(drop).unwrap_err().to_string()
    };
    assert!(message.contains(&format!("(`read_write{}", at(write_at))), "{message}");
    assert!(!message.contains(&format!("(`read{}", at(read_at))), "{message}");
    drop(half);
    rest.read(s).unwrap();
}

/// What is in use stays, and the error says what is in the way.
#[test]
fn parts_in_use_stay() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, 2 * PART);
    let mut array = parted(4, &budget);
    let mut other = parted(1, &budget);
    let [first, mut second, mut third] = array.split([0, 1, 2].map(Parts::one)).unwrap();
    let read = first.read(s).unwrap();
    let write = second.read_write(s).unwrap();
    for _ in 0..2 {
        let error = third.read_write(s).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        let message = error.to_string();
        assert!(message.contains("80 bytes for part 2: 160 of 160 bytes"), "{message}");
        assert!(message.contains("memory_budget.rs"), "{message}");
        assert_eq!(add_to(&mut other, 0, s).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    // The guards' values are still there.
    assert_eq!(read.view().unwrap().to_vec(s).unwrap()[1], 1.0);
    assert_eq!(write.view().unwrap().to_vec(s).unwrap()[1], 11.0);
    drop(read);
    add(&mut third.read_write(s).unwrap(), s, 1.0).unwrap();
    drop(write);
    add_to(&mut other, 0, s).unwrap();
    assert_eq!(
        values(&array),
        [
            (0..20).map(f64::from).collect::<Vec<_>>(),
            (20..30).map(|value| f64::from(value) + 1.0).collect(),
            (30..40).map(f64::from).collect(),
        ]
        .concat()
    );
}

#[test]
fn an_access_that_needs_more_than_the_budget_is_refused_and_changes_nothing() {
    let setup = Setup::apart();
    let budget = MemoryBudget::new(&setup.a, 2 * PART - 1);
    let mut array = parted(2, &budget);
    add_to(&mut array, 0, &setup.s).unwrap();
    let error = array.read(&setup.s).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert_eq!(values(&array)[..3], [1.0, 2.0, 3.0]);
    let small = MemoryBudget::new(&setup.a, PART - 1);
    let mut array = parted(1, &small);
    assert_eq!(array.read(&setup.s).map(drop).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!((small.used(), values(&array)[9]), (0, 9.0));
    add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
    assert_eq!(values(&array)[9], 10.0);
}

/// Refused accesses let nothing leave.
#[test]
fn a_refused_access_frees_no_memory() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, PART);
    let mut array = parted(2, &budget);
    add_to(&mut array, 0, s).unwrap();
    {
        let _limit = TransferBudget::forbid();
        assert_eq!(add_to(&mut array, 1, s).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
    let mut empty = ArrayBuffer::<f64, Ix1>::uninit(10).unwrap();
    empty.set_memory_budget(&budget).unwrap();
    assert_eq!(empty.read(s).map(drop).unwrap_err().kind(), ErrorKind::Uninitialized);
    assert_eq!(budget.evicted().count, 0);
    // An overwrite needs no copy for itself, but the values that leave need one.
    let limit = TransferBudget::forbid();
    assert_eq!(empty.write(s).map(drop).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert!(is_there(&array, 0, s));
    // Explicit transfers do not count, and neither do the copies that make room for them.
    let filled = {
        let mut filled = ArrayBuffer::from_vec(vec![1.0_f64; 10], 10).unwrap();
        filled.set_memory_budget(&budget).unwrap();
        filled
    };
    filled.prefetch(s).unwrap();
    assert_eq!((limit.used(), budget.evicted().count), (0, 1));
    assert!(is_there(&filled, 0, s));
}

/// Without a limit of its own, the budget is what the device has.
#[test]
fn a_full_device_makes_room() {
    for memory in [2 * PART, 3 * PART] {
        let setup = Setup::sim(SimConfig::new().memory_bytes(usize::try_from(memory).unwrap()));
        let budget = MemoryBudget::with_policy(&setup.a, None, LeastRecentlyUsed);
        let (mut x, mut y) =
            (parted(5, &budget), ArrayBuffer::from_vec(vec![1.0_f64; 5], 5).unwrap());
        y.set_memory_budget(&budget).unwrap();
        let other = setup.stream();
        for part in [0, 1, 2, 3, 4, 0, 1, 2] {
            add_to(&mut x, part, if part % 2 == 0 { &setup.s } else { &other }).unwrap();
            add(&mut y.read_write(&other).unwrap(), &other, 1.0).unwrap();
        }
        assert!(budget.used() <= memory && budget.limit().is_none(), "{budget:?}");
        assert_eq!(values(&x)[..30], (0..30).map(|v| f64::from(v) + 2.0).collect::<Vec<_>>());
        assert_eq!(values(&y), [9.0; 5]);
    }
}

/// A copy that fails, at once or late, while a part leaves: the access returns the error, and no value is lost.
#[test]
fn a_failed_copy_to_the_host_loses_nothing() {
    for (is_locked, is_known) in [(false, false), (false, true), (true, false), (true, true)] {
        for late in [false, true] {
            let setup = Setup::apart();
            let s = &setup.s;
            let budget = MemoryBudget::new(&setup.a, PART);
            let mut array = ArrayBuffer::from_vec(vec![1.0; 10], 10).unwrap();
            if is_locked {
                array.page_lock(&setup.a).unwrap();
            }
            array.set_memory_budget(&budget).unwrap();
            let mut other = parted(1, &budget);
            add(&mut array.read_write(s).unwrap(), s, 1.0).unwrap();
            if is_known {
                assert_eq!(values(&array), [2.0; 10]);
                array.evict_host().unwrap();
            }
            fail(&setup, 1, late);
            let error = add_to(&mut other, 0, s).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
            let message = error.to_string();
            assert!(
                message.contains("the 80 bytes of part 0 of an array of f64 [10]"),
                "{message}"
            );
            assert_eq!(s.synchronize().map_err(|error| error.to_string()), Ok(()));
            assert_eq!(values(&other)[9], 9.0);
            assert_eq!(values(&array), [2.0; 10], "{is_locked} {is_known} {late}");
            add_to(&mut other, 0, s).unwrap();
            assert_eq!((values(&array)[0], values(&other)[9]), (2.0, 10.0));
        }
    }
}

/// A part whose writer failed leaves without a copy; the writer's stream reports the failure.
#[test]
fn a_part_whose_writer_failed_leaves_with_an_error() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, PART);
    let (mut array, mut other) = (parted(1, &budget), parted(1, &budget));
    let mut guard = array.write(s).unwrap();
    fail(&setup, 1, true);
    guard.view_mut().unwrap().fill(s, 1.0).unwrap();
    drop(guard);
    let error = add_to(&mut other, 0, s).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
    add_to(&mut other, 0, s).unwrap();
    assert_eq!(array.read_host().map(drop).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(values(&other)[9], 10.0);
}

/// Enqueues a copy of the array's values on the device, which runs when the gate opens.
fn read_behind_a_gate(setup: &Setup, array: &ArrayBuffer<f64, Ix1>) -> (Gate, Memory<f64>) {
    let s = &setup.s;
    let mut seen = setup.a.memory_allocate::<f64>(LEN).unwrap();
    array.prefetch(s).unwrap();
    setup.a.synchronize().unwrap();
    let gate = start(&mut setup.a.memory_allocate::<f64>(1).unwrap(), s);
    let guard = array.read(s).unwrap();
    seen.view_mut().copy_from(s, &guard.view().unwrap()).unwrap();
    drop(guard);
    (gate, seen)
}

/// Memory that leaves while work still uses it is used again after that work, on any stream.
#[test]
fn memory_is_used_again_after_the_work_that_uses_it() {
    let setup = Setup::apart();
    let (s, other) = (&setup.s, setup.stream());
    let budget = MemoryBudget::new(&setup.a, PART);
    let (x, mut y) = (parted(1, &budget), parted(1, &budget));
    let (gate, seen) = read_behind_a_gate(&setup, &x);
    y.write(&other).unwrap().view_mut().unwrap().fill(&other, 7.0).unwrap();
    assert!(!gate.is_open(), "the access waited");
    assert_eq!(budget.used(), PART);
    gate.open();
    assert_eq!(values_on(&y, &setup.stream()), [7.0; 10]);
    assert_eq!(seen.to_vec(s).unwrap()[9], 9.0);
}

/// An access that fails after it was given memory leaves no unordered memory behind.
#[test]
fn memory_of_a_failed_access_is_ordered_for_the_next_one() {
    let setup = Setup::apart();
    let (s, other, third) = (&setup.s, setup.stream(), setup.stream());
    let budget = MemoryBudget::new(&setup.a, PART);
    let (x, mut y) = (parted(1, &budget), parted(1, &budget));
    let (gate, seen) = read_behind_a_gate(&setup, &x);
    fail(&setup, 1, false);
    y.prefetch(&other).unwrap_err();
    y.write(&third).unwrap().view_mut().unwrap().fill(&third, 7.0).unwrap();
    assert!(!gate.is_open(), "the access waited");
    gate.open();
    assert_eq!(seen.to_vec(s).unwrap()[9], 9.0);
    assert_eq!(values_on(&y, s)[9], 7.0);
}

/// The memory of a part has no gaps, so it is not in the order of such an array.
#[test]
fn memory_of_a_part_has_no_gaps_and_is_not_passed_off_as_that_of_an_array_with_gaps() {
    let setup = Setup::apart();
    let s = &setup.s;
    let start = Array2::from_shape_fn((3, 5), |(i, j)| (5 * i + j) as f64);
    let gaps = Partition::whole(&[3, 5]).unwrap().with_row_alignment(8).unwrap();
    let array = || {
        let mut array = ArrayBuffer::from_array_with(start.clone(), gaps.clone()).unwrap();
        array.set_memory_budget(&MemoryBudget::new(&setup.a, 120)).unwrap();
        array
    };
    let shared = SharedArrayBuffer::new(array());
    let on_device = shared.lease_read(Some(s), Duration::from_secs(1)).unwrap();
    let Leased::Device(view) = on_device.values().unwrap() else { panic!("on the host") };
    assert_eq!((on_device.strides(), view.layout().strides()), (&[5, 1][..], &[5, 1][..]));
    let on_host = shared.lease_read(None, Duration::from_secs(1)).unwrap();
    assert_eq!(on_host.strides(), [8, 1]);

    let (array, error) = array().into_memory(s).unwrap_err().into_parts();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("strides [8, 1]"), "{error}");
    assert_eq!(array.read_host().unwrap().to_owned(), start);
}

#[test]
fn memory_is_given_back() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, 2 * PART);
    let mut array = parted(3, &budget);
    (0..3).for_each(|part| add_to(&mut array, part, s).unwrap());
    array.evict(&setup.a).unwrap();
    assert_eq!((budget.used(), values(&array)[29]), (0, 30.0));
    add_to(&mut array, 0, s).unwrap();
    let mut single = parted(1, &budget);
    add_to(&mut single, 0, s).unwrap();
    assert_eq!(single.into_memory(s).unwrap().to_vec(s).unwrap()[9], 10.0);
    assert_eq!(budget.used(), PART);
    let error = array.into_memory(s).unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::InvalidArgument);
    let (array, _) = error.into_parts();
    assert_eq!(values(&array)[0], 2.0);
    drop(array);
    assert_eq!(budget.used(), 0);
    let (mut x, mut y) = (parted(2, &budget), ArrayBuffer::from_vec(vec![1_u8; 100], 100).unwrap());
    y.set_memory_budget(&budget).unwrap();
    x.split([Parts::one(0)]).unwrap()[0].read_write(s).unwrap();
    x.split([Parts::one(1)]).unwrap()[0].read_write(s).unwrap();
    drop(y.read(s).unwrap());
    assert_eq!(budget.used(), 100);
    drop((x, y));
    budget.trim();
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_budget_is_set_before_there_is_memory() {
    let setup = Setup::apart();
    let budget = MemoryBudget::new(&setup.a, PART);
    let mut array = counting(10);
    array.prefetch(&setup.s).unwrap();
    assert_eq!(array.set_memory_budget(&budget).unwrap_err().kind(), ErrorKind::Conflict);
    array.evict(&setup.a).unwrap();
    array.set_memory_budget(&budget).unwrap();
    array.set_memory_budget(&budget.clone()).unwrap();
    let another = MemoryBudget::new(&setup.a, PART);
    assert_eq!(array.set_memory_budget(&another).unwrap_err().kind(), ErrorKind::Conflict);
    array.set_memory_budget(&MemoryBudget::new(&setup.b, PART)).unwrap();
    assert_eq!(values_on(&array, &setup.s), values_on(&array, &setup.t));
    // Host devices have no memory of their own.
    let host = Setup::host();
    let budget = MemoryBudget::new(&host.a, 1);
    let mut array = counting(10);
    array.set_memory_budget(&budget).unwrap();
    add(&mut array.read_write(&host.s).unwrap(), &host.s, 1.0).unwrap();
    assert_eq!((values(&array)[9], budget.used()), (10.0, 0));
}

#[test]
fn views_of_several_parts_are_refused() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, 4 * PART);
    let array = parted(2, &budget);
    let guard = array.read(s).unwrap();
    let error = guard.view().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("separate memory"), "{error}");
    assert_eq!(guard.part(1).unwrap().to_vec(s).unwrap()[9], 19.0);
    drop(guard);
    let copy = array.duplicate().unwrap();
    assert_eq!(values(&copy)[19], 19.0);
    let shared = SharedArrayBuffer::new(array);
    let lease = shared.lease_read(Some(s), Duration::ZERO).unwrap();
    assert_eq!(lease.values().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn leases_hold_their_memory() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, PART);
    let shared = SharedArrayBuffer::new(parted(1, &budget));
    let mut other = parted(1, &budget);
    for writes in [false, true] {
        let lease = match writes {
            false => shared.lease_read(Some(s), Duration::ZERO).unwrap(),
            true => shared.lease_read_write(Some(s), Duration::ZERO).unwrap(),
        };
        assert_eq!(add_to(&mut other, 0, s).unwrap_err().kind(), ErrorKind::OutOfMemory);
        drop(lease);
        add_to(&mut other, 0, s).unwrap();
    }
    assert_eq!((values(&other)[0], values(&shared.read(Duration::ZERO).unwrap())[9]), (2.0, 9.0));
}

/// A policy is asked with what it needs to know, and a wrong answer is an error.
#[test]
fn policies_choose() {
    struct Last(Arc<AtomicUsize>);
    impl Policy for Last {
        fn choose(&self, candidates: &[Candidate]) -> usize {
            assert!(candidates.iter().all(|of| of.bytes == PART && of.must_copy));
            let last = candidates.iter().enumerate().max_by_key(|(_, of)| of.last_use);
            last.map_or(0, |(index, _)| index) + self.0.load(Ordering::Relaxed)
        }
    }
    let setup = Setup::apart();
    let wrong = Arc::new(AtomicUsize::new(0));
    let budget = MemoryBudget::with_policy(&setup.a, Some(3 * PART), Last(Arc::clone(&wrong)));
    let mut array = parted(5, &budget);
    (0..5).for_each(|part| add_to(&mut array, part, &setup.s).unwrap());
    assert_eq!([0, 1, 4].map(|part| is_there(&array, part, &setup.s)), [true; 3]);
    wrong.store(7, Ordering::Relaxed);
    let error = add_to(&mut array, 2, &setup.s).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("of 3"), "{error}");
    assert_eq!(values(&array)[49], 50.0);
}

/// Threads with arrays of their own share a budget that holds fewer parts than there are threads.
#[test]
fn threads_share_a_budget() {
    let setup = Setup::apart();
    let budget = MemoryBudget::new(&setup.a, 4 * PART);
    let began = Instant::now();
    let ready = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut array = parted(4, &budget);
                let stream = setup.stream();
                ready.wait();
                for _ in 0..50 {
                    for part in 0..4 {
                        add_to(&mut array, part, &stream).unwrap();
                        let read = array.part(Parts::one(3 - part)).unwrap();
                        let read = read.read_host().unwrap()[0];
                        assert!(read >= (LEN * (3 - part)) as f64);
                    }
                }
                assert_eq!(
                    values(&array),
                    (0..40).map(|v| f64::from(v) + 50.0).collect::<Vec<_>>()
                );
            });
        }
    });
    assert!(budget.used() <= 4 * PART, "{budget:?}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

/// What a use does with a part.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Read,
    Change,
    Overwrite,
}

/// The fewest parts to copy for a sequence of uses of five parts, found by trying all choices of what leaves. A use
/// that writes makes a copy to the host necessary when the part leaves. At the end, all values go to the host.
fn fewest_copies(uses: &[(usize, Does)], room: usize) -> usize {
    use std::collections::BTreeMap;
    // For the parts on the device, and those whose values are only there: the number of copies so far.
    let mut states = BTreeMap::from([((0_u8, 0_u8), 0)]);
    for &(part, does) in uses {
        let bit = 1 << part;
        let (writes, needed) = (does != Does::Read, usize::from(does != Does::Overwrite));
        let mut next = BTreeMap::new();
        let mut reach = |state: (u8, u8), copies: usize| {
            let known = next.entry(state).or_insert(copies);
            *known = copies.min(*known);
        };
        for ((there, dirty), copies) in states {
            let written = |dirty: u8| if writes { dirty | bit } else { dirty };
            if there & bit != 0 {
                reach((there, written(dirty)), copies);
            } else if (there.count_ones() as usize) < room {
                reach((there | bit, written(dirty)), copies + needed);
            } else {
                for leaving in (0..5).map(|part| 1 << part).filter(|leaving| there & leaving != 0) {
                    let back = usize::from(dirty & leaving != 0);
                    let left = (there & !leaving | bit, written(dirty & !leaving));
                    reach(left, copies + needed + back);
                }
            }
        }
        states = next;
    }
    let end = |((_, dirty), copies): ((u8, u8), usize)| copies + dirty.count_ones() as usize;
    states.into_iter().map(end).min().unwrap_or(0)
}

/// Makes the uses several times under a policy, expected after the first time if they are `repeated`, with page-locked
/// host memory if it `locks`. Returns the number of parts that were copied.
fn copies(uses: &[(usize, Does)], room: usize, times: usize, repeated: bool, locks: bool) -> usize {
    let setup = Setup::sim(SimConfig::new().jitter(Duration::ZERO).peers(false));
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, PART * room as u64);
    let mut array =
        ArrayBuffer::from_array_with((0..50).map(f64::from).collect::<Array1<_>>(), partition(5))
            .unwrap();
    if locks {
        array.page_lock(&setup.a).unwrap();
    }
    array.set_memory_budget(&budget).unwrap();
    let mut writes = [0; 5];
    let mut pass = || {
        for &(part, does) in uses {
            match does {
                Does::Read => drop(array.part(Parts::one(part)).unwrap().read(s).unwrap()),
                Does::Change => {
                    add_to(&mut array, part, s).unwrap();
                    writes[part] += 1;
                }
                Does::Overwrite => {
                    writes[part] += 1;
                    let [mut part_mut] = array.split([Parts::one(part)]).unwrap();
                    let start = (10 * part + writes[part]) as f64;
                    let values: Vec<f64> = (0..10).map(|i| start + f64::from(i)).collect();
                    let mut guard = part_mut.write(s).unwrap();
                    guard.view_mut().unwrap().copy_from_slice(s, &values).unwrap();
                }
            }
        }
    };
    let recording = budget.record().unwrap();
    pass();
    let step = recording.finish();
    assert_eq!(step.len(), uses.len());
    let expected = repeated.then(|| budget.repeat(&step).unwrap());
    (1..times).for_each(|_| pass());
    drop(expected);
    let all = (0..5).flat_map(|part| (0..10).map(move |i| (10 * part + i + writes[part]) as f64));
    assert_eq!(values(&array), all.collect::<Vec<_>>());
    usize::try_from(array.transfers().total().bytes / PART).unwrap()
}

#[test]
fn a_repeated_sweep_moves_little_more_than_the_optimum() {
    const TIMES: usize = 20;
    for (does, room) in [Does::Change, Does::Overwrite]
        .into_iter()
        .flat_map(|does| (1..6).map(move |room| (does, room)))
    {
        let sweep: Vec<_> = (0..5).map(|part| (part, does)).collect();
        let all: Vec<_> = sweep.iter().copied().cycle().take(5 * TIMES).collect();
        let best = fewest_copies(&all, room);
        for locks in [false, true] {
            let ours = copies(&sweep, room, TIMES, true, locks);
            assert!(10 * ours <= 11 * best, "{does:?} {room} {locks}: {ours} copies for {best}");
        }
        let unplanned = copies(&sweep, room, TIMES, false, false);
        let all = if does == Does::Change { 10 } else { 5 };
        assert!(room == 5 || unplanned == all * TIMES, "{does:?} {room}: {unplanned}");
    }
}

#[test]
fn repeated_steps_of_any_kind_move_little_more_than_the_optimum() {
    const TIMES: usize = 10;
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let (mut ours, mut locked, mut unplanned, mut best) = (0, 0, 0, 0);
    let kinds = [Does::Read, Does::Change, Does::Change, Does::Overwrite];
    for _ in 0..40 {
        let len = 4 + random(10);
        let uses: Vec<_> = (0..len).map(|_| (random(5), kinds[random(kinds.len())])).collect();
        let room = 2 + random(2);
        let all: Vec<_> = uses.iter().copied().cycle().take(uses.len() * TIMES).collect();
        best += fewest_copies(&all, room);
        ours += copies(&uses, room, TIMES, true, false);
        locked += copies(&uses, room, TIMES, true, true);
        unplanned += copies(&uses, room, TIMES, false, false);
    }
    println!(
        "{ours} copies, {locked} with page-locked memory, {unplanned} unplanned, {best} at best"
    );
    assert!(10 * ours <= 11 * best, "{ours} copies for {best}");
    assert!(10 * locked <= 11 * best, "{locked} copies for {best} with page-locked memory");
    assert!(10 * unplanned > 11 * best, "the steps are too easy: {unplanned} for {best}");
}

/// The values of a part that is copied to the host and used again are not overwritten by the part that gets its memory:
/// the stream that wrote it reads it, or a copy to another device does.
#[test]
fn memory_is_used_again_after_late_reads_of_a_part_that_the_host_has() {
    for to_peer in [false, true] {
        let setup = Setup::sim(SimConfig::new().jitter(Duration::ZERO));
        let budget = MemoryBudget::new(&setup.a, PART);
        let mut array = ArrayBuffer::from_array_with(Array1::zeros(2 * LEN), partition(2)).unwrap();
        array.page_lock(&setup.a).unwrap();
        array.set_memory_budget(&budget).unwrap();
        let (s, other, t) = (&setup.s, setup.stream(), &setup.t);
        let mut scratch = setup.a.memory_allocate::<f64>(1).unwrap();
        let mut peers_scratch = setup.b.memory_allocate::<f64>(1).unwrap();
        let mut seen = setup.a.memory_allocate::<f64>(LEN).unwrap();
        add_to(&mut array, 0, s).unwrap();
        array.part(Parts::one(0)).unwrap().prefetch_host().unwrap();
        s.synchronize().unwrap();
        let part = array.part(Parts::one(0)).unwrap();
        let gate = if to_peer {
            let gate = start(&mut peers_scratch, t);
            part.prefetch(t).unwrap();
            gate
        } else {
            let gate = start(&mut scratch, s);
            let guard = part.read(s).unwrap();
            seen.view_mut().copy_from(s, &guard.view().unwrap()).unwrap();
            gate
        };
        gate.open_later();
        let [mut next] = array.split([Parts::one(1)]).unwrap();
        next.write(&other).unwrap().view_mut().unwrap().fill(&other, 99.0).unwrap();
        other.synchronize().unwrap();
        gate.open();
        let values = if to_peer {
            let part = array.part(Parts::one(0)).unwrap();
            part.read(t).unwrap().view().unwrap().to_vec(t).unwrap()
        } else {
            seen.view().to_vec(s).unwrap()
        };
        assert_eq!(values, [1.0; LEN], "to a peer: {to_peer}");
    }
}

/// Neither the part that leaves nor the copies ahead wait for the latest kernel.
#[test]
fn the_next_part_of_a_repeated_sweep_is_there_while_a_kernel_runs() {
    const PARTS: usize = 24;
    let setup = Setup::sim(SimConfig::new().jitter(Duration::ZERO).peers(false));
    let budget = MemoryBudget::new(&setup.a, PART * 6);
    let start_values = Array1::from_elem(LEN * PARTS, 0.0);
    let mut array = ArrayBuffer::from_array_with(start_values, partition(PARTS)).unwrap();
    array.page_lock(&setup.a).unwrap();
    array.set_memory_budget(&budget).unwrap();
    let streams = [0, 1].map(|_| setup.a.stream_create(&Default::default()).unwrap());
    let mut scratch = [0, 1].map(|_| setup.a.memory_allocate::<f64>(1).unwrap());
    let mut sweep = |array: &mut ArrayBuffer<f64, Ix1>, holds: bool| {
        let mut running: Option<Gate> = None;
        for part in 0..PARTS {
            let stream = &streams[part % 2];
            add_to(array, part, stream).unwrap();
            if let Some(running) = running {
                stream.synchronize().unwrap();
                assert!(!running.is_open(), "part {part} waited for the kernel of another");
                running.open();
            }
            running = holds.then(|| {
                let gate = start(&mut scratch[part % 2], stream);
                gate.open_after(Duration::from_secs(5));
                gate
            });
        }
        running.inspect(Gate::open);
    };
    let recording = budget.record().unwrap();
    sweep(&mut array, false);
    let step = recording.finish();
    let expected = budget.repeat(&step).unwrap();
    sweep(&mut array, false);
    let before = array.transfers().total().count;
    sweep(&mut array, true);
    assert!(array.transfers().total().count > before, "parts were copied");
    drop(expected);
    assert!(values(&array).iter().all(|value| *value == 3.0));
}

/// In sweeps over parts that all change, an unused part is the only one whose values are elsewhere.
#[test]
fn prefetched_parts_stay_until_they_are_used() {
    const PARTS: usize = 12;
    let uploads = |ahead: Option<usize>, room: u64| {
        let setup = Setup::apart();
        let s = &setup.s;
        let budget = MemoryBudget::new(&setup.a, room * PART);
        let mut array = parted(PARTS, &budget);
        for part in (0..PARTS).cycle().take(4 * PARTS) {
            if let Some(ahead) = ahead {
                array.part(Parts::one((part + ahead) % PARTS)).unwrap().prefetch(s).unwrap();
            }
            add_to(&mut array, part, s).unwrap();
        }
        assert_eq!(values(&array)[LEN], LEN as f64 + 4.0);
        array.transfers().between("host", "sim:0").count
    };
    for room in [3, 4, 8] {
        let alone = uploads(None, room);
        for ahead in [1, 2] {
            let ours = uploads(Some(ahead), room);
            // The last prefetches are of parts that no access uses.
            assert!(ours <= alone + 2, "room {room}, {ahead} ahead: {ours} uploads, {alone} alone");
        }
    }
}

/// Prefetched parts that no access uses do not hold memory for ever.
#[test]
fn prefetched_parts_that_no_access_uses_leave() {
    let setup = Setup::apart();
    let s = &setup.s;
    let budget = MemoryBudget::new(&setup.a, 4 * PART);
    let mut array = parted(8, &budget);
    (0..3).for_each(|part| array.part(Parts::one(part)).unwrap().prefetch(s).unwrap());
    for part in (3..7).cycle().take(80) {
        add_to(&mut array, part, s).unwrap();
    }
    let before = array.transfers().total().count;
    (3..7).for_each(|part| add_to(&mut array, part, s).unwrap());
    assert_eq!(array.transfers().total().count, before, "four parts have room");
}

/// Uses that a step does not expect are right, and the step is found again.
#[test]
fn unexpected_uses_are_right() {
    for is_locked in [false, true] {
        let setup = Setup::apart();
        let (s, other) = (&setup.s, setup.stream());
        let budget = MemoryBudget::new(&setup.a, 3 * PART);
        let mut array = ArrayBuffer::from_array_with(Array1::zeros(60), partition(6)).unwrap();
        if is_locked {
            array.page_lock(&setup.a).unwrap();
        }
        array.set_memory_budget(&budget).unwrap();
        let recording = budget.record().unwrap();
        assert_eq!(budget.record().map(drop).unwrap_err().kind(), ErrorKind::Conflict);
        (0..6).for_each(|part| add_to(&mut array, part, s).unwrap());
        let step = recording.finish();
        drop(budget.record().unwrap());
        let foreign = MemoryBudget::new(&setup.a, 1);
        assert_eq!(foreign.repeat(&step).map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let expected = budget.repeat(&step).unwrap();
        assert_eq!(budget.repeat(&step).map(drop).unwrap_err().kind(), ErrorKind::Conflict);
        let mut sums = [1.0; 6];
        let orders: [&[usize]; 6] = [
            &[0, 1, 2, 3, 4, 5],
            &[5, 4, 3, 2, 1, 0],
            &[0, 0, 0],
            &[],
            &[2, 4],
            &[0, 1, 2, 3, 4, 5],
        ];
        let mut late = parted(1, &budget);
        for order in orders {
            for &part in order {
                let stream = if part == 3 { &other } else { s };
                add_to(&mut array, part, stream).unwrap();
                sums[part] += 1.0;
            }
            add_to(&mut late, 0, s).unwrap();
            let [mut part] = array.split([Parts::one(4)]).unwrap();
            part.read_write_host().unwrap().mapv_inplace(|value| value + 1.0);
            sums[4] += 1.0;
        }
        drop(expected);
        let all = sums.iter().flat_map(|sum| [*sum; 10]).collect::<Vec<f64>>();
        assert_eq!(values(&array), all);
        assert_eq!(values(&late)[0], 6.0);
        drop((array, late));
        budget.trim();
        assert_eq!(budget.used(), 0);
    }
}

/// A copy ahead of its use that cannot begin is made later. One that fails is an error of an access. No value is lost.
#[test]
fn copies_ahead_that_fail_lose_nothing() {
    const PARTS: usize = 24;
    let mut repeated = 0;
    for number in 1..12 {
        for late in [false, true] {
            let setup = Setup::apart();
            let s = &setup.s;
            let budget = MemoryBudget::new(&setup.a, 6 * PART);
            let zeros = Array1::zeros(10 * PARTS);
            let mut array = ArrayBuffer::from_array_with(zeros, partition(PARTS)).unwrap();
            array.page_lock(&setup.a).unwrap();
            array.set_memory_budget(&budget).unwrap();
            let recording = budget.record().unwrap();
            let touch = |array: &ArrayBuffer<f64, Ix1>, part| {
                array.part(Parts::one(part)).unwrap().read(s).map(drop)
            };
            (0..PARTS).for_each(|part| touch(&array, part).unwrap());
            let step = recording.finish();
            let _expected = budget.repeat(&step).unwrap();
            setup.a.synchronize().unwrap();
            fail(&setup, number, late);
            let mut failures = 0;
            for part in (0..PARTS).cycle().take(40) {
                failures += usize::from(touch(&array, part).is_err());
                if setup.a.synchronize().is_err() {
                    failures += 1;
                }
            }
            if late {
                assert_eq!(failures, 1, "{number}");
            } else {
                assert!(failures <= 1, "{number}: {failures}");
                repeated += 1 - failures;
            }
            assert_eq!(values(&array), [0.0; 10 * PARTS]);
            add_to(&mut array, 0, s).unwrap();
        }
    }
    assert!(repeated > 0, "some of these copies were made ahead");
}

/// A failure that concerns a part does not free the memory that a guard or a lease still uses.
#[test]
fn a_failure_frees_no_memory_in_use() {
    let setup = Setup::apart();
    let (s, t) = (&setup.s, setup.stream());
    let budget = MemoryBudget::new(&setup.a, PART);
    let mut other = parted(1, &budget);
    let mut array = parted(1, &budget);
    let mut guard = array.read_write(s).unwrap();
    fail(&setup, 1, true);
    guard.view_mut().unwrap().fill(s, 1.0).unwrap();
    s.synchronize().unwrap_err();
    assert_eq!(add_to(&mut other, 0, &t).unwrap_err().kind(), ErrorKind::OutOfMemory);
    guard.view_mut().unwrap().fill(s, 66.0).unwrap();
    let (first, second) = guard.split_off(Parts::one(0));
    drop(second);
    assert_eq!(add_to(&mut other, 0, &t).unwrap_err().kind(), ErrorKind::OutOfMemory);
    drop(first);
    add_to(&mut other, 0, &t).unwrap();
    other.evict(&setup.a).unwrap();
    assert_eq!(array.read_host().map(drop).unwrap_err().kind(), ErrorKind::Poisoned);
    let shared = SharedArrayBuffer::new(parted(1, &budget));
    fail(&setup, 1, true);
    let lease = shared.lease_read_write(Some(s), Duration::ZERO).unwrap();
    s.synchronize().unwrap_err();
    assert_eq!(add_to(&mut other, 0, &t).unwrap_err().kind(), ErrorKind::OutOfMemory);
    lease.values().unwrap();
    drop(lease);
    add_to(&mut other, 0, &t).unwrap();
    assert_eq!(values(&other)[0], 2.0);
}

/// Threads that use one part each find room, however their accesses interleave.
#[test]
fn accesses_that_fit_together_find_room() {
    for threads in 2..5_u64 {
        let setup = Setup::apart();
        let budget = MemoryBudget::new(&setup.a, PART * threads);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut array = parted(3, &budget);
                    let stream = setup.stream();
                    for round in 0..200 {
                        add_to(&mut array, round % 3, &stream).unwrap();
                        let part = array.part(Parts::one((round + 1) % 3)).unwrap();
                        part.prefetch(&stream).unwrap();
                    }
                });
            }
        });
    }
}

/// Each of two accesses needs all of the memory, and gets some of what a third array leaves.
#[test]
fn accesses_that_fit_alone_do_not_wait_for_each_other_with_a_share_of_the_memory() {
    /// Lets both accesses choose what leaves at the same time.
    struct Together(Barrier, AtomicUsize);
    impl Policy for Together {
        fn choose(&self, candidates: &[Candidate]) -> usize {
            let call = self.1.fetch_add(1, Ordering::Relaxed);
            if call < 8 {
                self.0.wait();
            }
            call % candidates.len()
        }
    }
    let setup = Setup::apart();
    let began = Instant::now();
    for _ in 0..20 {
        let policy = Together(Barrier::new(2), AtomicUsize::new(0));
        let budget = MemoryBudget::with_policy(&setup.a, Some(8 * PART), policy);
        let other = parted(8, &budget);
        other.prefetch(&setup.s).unwrap();
        let fetch = || parted(8, &budget).prefetch(&setup.stream());
        thread::scope(|scope| {
            for access in [(); 2].map(|()| scope.spawn(fetch)) {
                access.join().unwrap().unwrap();
            }
        });
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

/// The first part would fit.
#[test]
fn an_access_that_can_never_fit_is_refused_at_once_and_lets_nothing_leave() {
    let setup = Setup::apart();
    let budget = MemoryBudget::new(&setup.a, 2 * PART);
    let mut other = parted(2, &budget);
    (0..2).for_each(|part| add_to(&mut other, part, &setup.s).unwrap());
    let large = Partition::new(&[40], &[&[0..1], &[1..40]], &[]).unwrap();
    let mut array = ArrayBuffer::from_array_with(Array1::<f64>::zeros(40), large).unwrap();
    array.set_memory_budget(&budget).unwrap();
    let error = array.prefetch(&setup.s).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.message().contains("320 bytes for parts {0, 1}"), "{error}");
    assert!(error.message().contains("limit 160"), "{error}");
    assert_eq!(budget.evicted().count, 0);
}

#[test]
fn limits_on_transfers_hold_for_copies_ahead() {
    let setup = Setup::apart();
    let budget = MemoryBudget::new(&setup.a, 4 * PART);
    let mut array = ArrayBuffer::from_array_with(Array1::<f64>::zeros(80), partition(8)).unwrap();
    array.page_lock(&setup.a).unwrap();
    array.set_memory_budget(&budget).unwrap();
    let read = |part| array.part(Parts::one(part)).unwrap().read(&setup.s).map(drop);
    let recording = budget.record().unwrap();
    (0..8).for_each(|part| read(part).unwrap());
    let step = recording.finish();
    let _expected = budget.repeat(&step).unwrap();
    let moved = array.transfers().total().bytes;
    let limit = TransferBudget::forbid();
    for part in 4..8 {
        read(part).unwrap();
    }
    assert_eq!((array.transfers().total().bytes, limit.used()), (moved, 0));
    drop(limit);
    let limit = TransferBudget::bytes(u64::MAX, array_buffer::Direction::Any);
    (0..8).for_each(|part| read(part).unwrap());
    assert_eq!(array.transfers().total().bytes - moved, limit.used());
}

#[test]
fn sizes_that_no_memory_has_are_no_overflow() {
    let setup = Setup::apart();
    let budget = MemoryBudget::with_policy(&setup.a, None, LeastRecentlyUsed);
    let arrays: Vec<_> = (0..5)
        .map(|_| {
            let mut array = ArrayBuffer::<f64, Ix1>::uninit(1 << 59).unwrap();
            array.set_memory_budget(&budget).unwrap();
            array.set_priority(&setup.a, Parts::one(0), Priority::Keep).unwrap();
            array
        })
        .collect();
    assert_eq!((arrays.len(), budget.used()), (5, 0));
}
