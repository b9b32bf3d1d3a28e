//! Arrays whose host memory is page-locked: the host waits for no copy that it does not need.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "the gate launches a kernel; arrays have memory of the tests")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

mod common;
#[path = "../../interchange/tests/common/gate.rs"]
mod gate;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use array_buffer::{ArrayBuffer, PartMut, Partition, Parts, lend_page_locked};
use backend_sim::{Fault, Operation, SimConfig, SimHandle};
use common::{Setup, add, counting, fail_late, fails_after_the_drop, set, values, values_on};
use gate::{Gate, start};
use ndarray::{Array2, ArrayViewMut1, Ix1};
use runtime_core::{ErrorKind, Stream, Support};

/// Longer than the two pinned buffers of one device, which hold 4 MiB.
const LARGE: u32 = 3 << 19;
/// Longer than any call that does not wait.
const LONG: Duration = Duration::from_secs(20);

/// `[0, 1, 2, …]`, page-locked for the setup's first device.
fn locked(setup: &Setup, len: u32) -> ArrayBuffer<f64, Ix1> {
    let mut array = counting(len);
    array.page_lock(&setup.a).unwrap();
    array
}

/// Keeps the stream busy until the gate opens, which it does after a long time.
fn hold(stream: &Stream) -> Gate {
    let gate = start(&mut stream.device().memory_allocate::<f64>(1).unwrap(), stream);
    gate.open_after(LONG);
    gate
}

/// Makes a call behind work on the stream, which must not wait for that work.
#[track_caller]
fn does_not_wait<R>(stream: &Stream, call: impl FnOnce() -> R) -> R {
    let gate = hold(stream);
    let result = call();
    assert!(!gate.is_open(), "the call waited");
    gate.open();
    result
}

fn values_arrive_on_both_sides(setup: &Setup) {
    for len in [1, 100, LARGE] {
        let mut array = locked(setup, len);
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        let other = setup.stream();
        add(&mut array.read_write(&other).unwrap(), &other, 1.0).unwrap();
        array.prefetch_host().unwrap();
        let mut last = f64::from(len - 1) + 2.0;
        assert_eq!(values(&array).last(), Some(&last));
        array.read_write_host().unwrap().mapv_inplace(|value| value + 1.0);
        last += 1.0;
        // The second device's copies go through the host.
        assert_eq!(values_on(&array, &setup.t).last(), Some(&last));
        assert_eq!(values_on(&array, &setup.s).last(), Some(&last));
        add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
        array.evict(&setup.b).unwrap();
        assert_eq!(values_on(&array, &setup.s).last(), Some(&(last + 1.0)));
        assert_eq!(array.into_inner().unwrap().last(), Some(&(last + 1.0)));
    }
}

/// Parts with few rows are copied row by row; parts with many rows go through a contiguous copy.
fn parts_with_gaps_arrive(setup: &Setup) {
    let halves: [&[_]; 2] = [&[0..100, 0..2], &[0..100, 2..5]];
    let quarters: [&[_]; 3] = [&[0..30, 0..2], &[0..30, 2..5], &[30..100, 0..5]];
    for parts in [&halves[..], &quarters[..]] {
        let partition = Partition::new(&[100, 5], parts, &[]).unwrap();
        let start = Array2::from_shape_fn((100, 5), |(i, j)| (5 * i + j) as f64);
        let mut array = ArrayBuffer::from_array_with(start.clone(), partition).unwrap();
        array.page_lock(&setup.a).unwrap();
        for part in 0..parts.len() {
            let [mut part] = array.split([Parts::one(part)]).unwrap();
            add(&mut part.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        }
        array.prefetch_host().unwrap();
        assert_eq!(array.read_host().unwrap().to_owned(), start + 1.0);
    }
}

/// The host's memory moves once, and keeps its values.
fn existing_values_are_kept(setup: &Setup) {
    let mut array = counting(10);
    assert_eq!(values_on(&array, &setup.s)[9], 9.0);
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 3.0).unwrap();
    array.page_lock(&setup.a).unwrap();
    array.page_lock(&setup.a).unwrap();
    assert_eq!(values(&array), [3.0; 10]);
    array.evict(&setup.b).unwrap();
    assert_eq!(values_on(&array, &setup.s), [3.0; 10]);
    if !setup.shares() {
        array.evict_host().unwrap();
        assert_eq!(values(&array), [3.0; 10]);
    }
}

/// Where the device can, the array's own vector is locked, and is the one that comes out. Otherwise the values are
/// copied.
fn values_that_exist_stay_in_place(setup: &Setup) {
    let can_lock = setup.a.capabilities().host_registration == Support::Native;
    for len in [0, 1, LARGE] {
        let elements: Vec<f64> = (0..len).map(f64::from).collect();
        let (address, capacity) = (elements.as_ptr(), elements.capacity());
        let mut array = ArrayBuffer::from_vec(elements, len as usize).unwrap();
        array.page_lock(&setup.a).unwrap();
        let is_in_place = array.read_host().unwrap().as_ptr() == address;
        // A short vector may share a page with a vector of another test.
        if len == LARGE {
            assert_eq!(is_in_place, can_lock || setup.shares(), "{len}");
        }
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        array.prefetch_host().unwrap();
        let (elements, _) = array.into_inner().unwrap().into_raw_vec_and_offset();
        if is_in_place {
            assert_eq!((elements.as_ptr(), elements.capacity()), (address, capacity), "{len}");
        }
        let expected: Vec<f64> = (0..len).map(|value| f64::from(value) + 1.0).collect();
        assert_eq!(elements, expected);
    }
}

fn one_device_locks_the_memory(setup: &Setup) {
    if setup.shares() {
        return;
    }
    let mut array = locked(setup, 4);
    if !setup.a.is_same(&setup.b) {
        let error = array.page_lock(&setup.b).unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Conflict, "page_lock"));
        assert!(error.message().contains(&setup.a.id().to_string()), "{error}");
    }
    assert_eq!(values_on(&array, &setup.s), [0.0, 1.0, 2.0, 3.0]);
}

/// An array may be dropped while copies from and to its host memory wait to run.
fn arrays_are_dropped_in_flight(setup: &Setup) {
    for _ in 0..5 {
        let mut array = locked(setup, LARGE);
        array.prefetch(&setup.s).unwrap();
        drop(array);
        array = locked(setup, LARGE);
        set(&mut array.write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
        array.prefetch_host().unwrap();
    }
    setup.a.synchronize().unwrap();
}

/// Elements that begin at a memory page, of any size. They send their last value when they are dropped.
struct Pages {
    elements: Vec<f64>,
    len: usize,
    dropped: mpsc::Sender<f64>,
}

impl Pages {
    const ALIGNMENT: usize = 1 << 16;

    /// `[0, 1, 2, …]`, and what receives their last value.
    fn counting(len: u32) -> (Self, mpsc::Receiver<f64>) {
        let (dropped, last) = mpsc::channel();
        let len = len as usize;
        let elements = vec![0.0; len + Self::ALIGNMENT / size_of::<f64>()];
        let mut pages = Self { elements, len, dropped };
        pages.slice().iter_mut().enumerate().for_each(|(index, value)| *value = index as f64);
        (pages, last)
    }

    fn slice(&mut self) -> &mut [f64] {
        let address = self.elements.as_ptr().addr();
        let skip = (address.next_multiple_of(Self::ALIGNMENT) - address) / size_of::<f64>();
        &mut self.elements[skip..skip + self.len]
    }

    /// An array over the elements, without the first `skip` ones.
    fn array(mut self, skip: usize) -> ArrayBuffer<f64, Ix1> {
        let slice = &mut self.slice()[skip..];
        let (first, len) = (NonNull::from(&mut *slice).cast(), slice.len());
        // SAFETY: the owner keeps the elements, and no other code uses them.
        unsafe { ArrayBuffer::from_host_memory(first, len, self) }.unwrap()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let last = *self.slice().last().unwrap();
        self.dropped.send(last).ok();
        self.elements.fill(f64::NAN);
    }
}

/// Memory of another owner is locked where it is, or not at all. Its owner is dropped once, after all copies.
fn memory_of_another_owner_is_locked_in_place(setup: &Setup) {
    let can_lock = setup.a.capabilities().host_registration == Support::Native;
    for len in [1, 100, 1 << 16] {
        let (mut pages, dropped) = Pages::counting(len);
        let address = pages.slice().as_ptr();
        let mut array = pages.array(0);
        let locked = array.page_lock(&setup.a);
        if !can_lock && !setup.shares() {
            let error = locked.unwrap_err();
            assert_eq!(
                (error.kind(), error.device()),
                (ErrorKind::Unsupported, Some(setup.a.id()))
            );
        }
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        assert_eq!(values(&array).last(), Some(&f64::from(len)));
        assert_eq!(array.read_host().unwrap().as_ptr(), address);
        array.read_write_host().unwrap().mapv_inplace(|value| value + 1.0);
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        array.prefetch_host().unwrap();
        drop(array);
        assert_eq!(dropped.recv_timeout(LONG), Ok(f64::from(len + 2)));

        let (pages, dropped) = Pages::counting(len);
        let mut array = pages.array(0);
        drop(array.page_lock(&setup.a));
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        let taken = array.into_inner().unwrap();
        assert_ne!(taken.as_ptr(), address);
        assert_eq!(taken.last(), Some(&f64::from(len)));
        dropped.recv_timeout(LONG).unwrap();
    }
}

/// Neighbours in a page could be locked, too. The array is as before, and its owner stays.
fn memory_of_another_owner_that_begins_within_a_page_is_refused(setup: &Setup) {
    if setup.shares() {
        return;
    }
    let (pages, dropped) = Pages::counting(1002);
    let mut array = pages.array(2);
    let error = array.page_lock(&setup.a).unwrap_err();
    if setup.a.capabilities().host_registration == Support::Native {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let address = array.read_host().unwrap().as_ptr().addr();
        for part in [&format!("8000 bytes at {address:#x}"), "a multiple of 16,", "memory page"] {
            assert!(error.message().contains(part), "{error}");
        }
    }
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert_eq!(values(&array)[999], 1002.0);
    assert!(dropped.try_recv().is_err());
}

/// CUDA and HIP lock a page once.
fn memory_that_is_locked_already_is_refused(setup: &Setup) {
    if !["cuda", "hip"].contains(&setup.a.native().api) {
        return;
    }
    let (mut pages, _) = Pages::counting(1 << 14);
    let first: NonNull<f64> = NonNull::from(pages.slice()).cast();
    // SAFETY: `pages` keeps the elements for longer, and nothing uses them by this array but the check of its values.
    let mut second = unsafe { ArrayBuffer::from_host_memory(first, 1000, ()) }.unwrap();
    let mut array = pages.array(0);
    array.page_lock(&setup.a).unwrap();
    let error = second.page_lock(&setup.a).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let address = first.as_ptr().addr();
    for part in [
        format!("8000 bytes at {address:#x}"),
        format!("{} registered bytes at {address:#x}", 8 << 14),
    ] {
        assert!(error.message().contains(&part), "{error}");
    }
    // When the first array has left the host, its memory is free to be locked.
    let (mut pages, _) = Pages::counting(1 << 14);
    let first = NonNull::from(pages.slice()).cast();
    // SAFETY: as above; the first array is dropped before the second one is locked.
    let locked = unsafe { ArrayBuffer::<f64, Ix1>::from_host_memory(first, 1 << 14, ()) };
    let mut locked = locked.unwrap();
    locked.page_lock(&setup.a).unwrap();
    drop(locked);
    setup.a.synchronize().unwrap();
    let mut again = pages.array(0);
    again.page_lock(&setup.a).unwrap();
    assert_eq!(values_on(&again, &setup.s)[99], 99.0);
}

/// The memory is locked during the call alone, and has the values afterwards, also after a panic.
fn lent_memory_is_locked_during_the_call(setup: &Setup) {
    if setup.a.capabilities().host_registration == Support::Absent && !setup.shares() {
        return;
    }
    const LEN: u32 = 1 << 16;
    let (mut pages, _) = Pages::counting(LEN);
    for round in 1..4 {
        let view = ArrayViewMut1::from(pages.slice());
        let lent = catch_unwind(AssertUnwindSafe(|| {
            lend_page_locked(view, &setup.a, |mut array| {
                array.prefetch(&setup.s).unwrap();
                add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
                if round == 2 {
                    resume_unwind(Box::new("on purpose"));
                }
                array.prefetch_host().unwrap();
            })
        }));
        assert_eq!(lent.map(Result::unwrap).is_err(), round == 2);
        assert_eq!(pages.slice().last(), Some(&f64::from(LEN - 1 + round)));
    }
    if !setup.shares() {
        let within = ArrayViewMut1::from(&mut pages.slice()[1..]);
        let error = lend_page_locked(within, &setup.a, |_| panic!("it was lent")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

on_all_devices! {
    also_with_gates:
    values_arrive_on_both_sides,
    parts_with_gaps_arrive,
    existing_values_are_kept,
    values_that_exist_stay_in_place,
    one_device_locks_the_memory,
    arrays_are_dropped_in_flight,
    memory_of_another_owner_is_locked_in_place,
    memory_of_another_owner_that_begins_within_a_page_is_refused,
    memory_that_is_locked_already_is_refused,
    lent_memory_is_locked_during_the_call,
}

/// The device copies memory of another owner by itself, also if it has no gates. The owner stays until then.
#[test]
fn prefetches_of_memory_of_another_owner_do_not_wait() {
    let setup = Setup::sim(common::quick().gates(false));
    let s = &setup.s;
    let (pages, dropped) = Pages::counting(LARGE);
    let mut array = pages.array(0);
    array.page_lock(&setup.a).unwrap();
    does_not_wait(s, || array.prefetch(s).unwrap());
    set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
    s.synchronize().unwrap();
    let gate = hold(s);
    array.prefetch_host().unwrap();
    assert_eq!(array.transfers().prefetches_that_waited(), 0);
    drop(array);
    assert!(dropped.try_recv().is_err(), "the owner was dropped before the copy ran");
    gate.open();
    assert_eq!(dropped.recv_timeout(LONG), Ok(3.0));
    let counts = SimHandle::of(&setup.a).unwrap().counts();
    assert_eq!((counts.registrations, counts.pinned_allocations), (1, 0));
}

/// An array that cannot be locked keeps its owner, and can be locked later.
#[test]
fn memory_of_another_owner_stays_when_it_cannot_be_locked() {
    let setup = Setup::sim(SimConfig::new().fault(Fault::fail(Operation::Allocation, 1)));
    let (pages, dropped) = Pages::counting(100);
    let mut array = pages.array(0);
    assert_eq!(array.page_lock(&setup.a).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert!(dropped.try_recv().is_err());
    assert_eq!(values(&array)[99], 99.0);
    array.page_lock(&setup.a).unwrap();
    assert_eq!(values_on(&array, &setup.s)[99], 99.0);
    // The host's memory is freed, and locked memory takes its place.
    array.evict_host().unwrap();
    assert_eq!(dropped.recv_timeout(LONG), Ok(99.0));
    assert_eq!(values(&array)[99], 99.0);
}

/// The destructor runs in a thread of the device, which does not wait for it when it waits for a stream.
#[test]
fn the_owner_of_locked_memory_may_wait_for_the_device() {
    struct Waits(Stream, #[expect(dead_code, reason = "is only dropped")] Pages);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.synchronize().unwrap();
            self.0.device().synchronize().unwrap();
        }
    }
    let setup = Setup::peers();
    let (mut pages, dropped) = Pages::counting(100);
    let first = NonNull::from(pages.slice()).cast();
    let owner = Waits(setup.s.clone(), pages);
    // SAFETY: the owner has the elements.
    let array = unsafe { ArrayBuffer::from_host_memory(first, 100, owner) };
    let mut array: ArrayBuffer<f64, Ix1> = array.unwrap();
    array.page_lock(&setup.a).unwrap();
    let gate = hold(&setup.s);
    array.prefetch(&setup.s).unwrap();
    drop(array);
    gate.open();
    setup.s.synchronize_for(LONG).unwrap();
    assert_eq!(dropped.recv_timeout(LONG), Ok(99.0));
}

/// The call ends with an error, and does not hang.
#[test]
fn a_lost_device_ends_a_call_with_lent_memory() {
    let setup = Setup::peers();
    let (mut pages, _) = Pages::counting(100);
    let lent = lend_page_locked(ArrayViewMut1::from(pages.slice()), &setup.a, |mut array| {
        set(&mut array.write(&setup.s).unwrap(), &setup.s, 5.0).unwrap();
        SimHandle::of(&setup.a).unwrap().lose();
    });
    assert_eq!(lent.unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn prefetches_do_not_wait_whatever_their_length() {
    let setup = Setup::peers();
    let s = &setup.s;
    for len in [100, LARGE] {
        let array = locked(&setup, len);
        does_not_wait(s, || array.prefetch(s).unwrap());
        let mut array = locked(&setup, len);
        does_not_wait(s, || {
            let mut guard = array.write(s).unwrap();
            guard.view_mut().unwrap().fill(s, 3.0).unwrap();
            guard.commit().unwrap();
            array.prefetch_host().unwrap();
            array.prefetch_host().unwrap();
        });
        assert_eq!(values(&array).last(), Some(&3.0));
        assert_eq!(array.transfers().total().bytes, 8 * u64::from(len));
    }
}

/// The host can write values again as soon as they are copied, while kernels still use the copy.
#[test]
fn a_write_waits_for_the_copy_and_not_for_the_kernels_behind_it() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = locked(&setup, 100);
    let mut copy = setup.a.memory_allocate::<f64>(100).unwrap();
    array.prefetch(s).unwrap();
    let gate = hold(s);
    let read = array.read(s).unwrap();
    copy.view_mut().copy_from_device(s, &read.view().unwrap(), s).unwrap();
    drop(read);
    array.write_host().unwrap().fill(5.0);
    assert!(!gate.is_open(), "the write waited");
    gate.open();
    assert_eq!(copy.to_vec(s).unwrap()[99], 99.0);
    assert_eq!(values_on(&array, s), [5.0; 100]);
}

/// A copy that fails after it was enqueued is an error of the next access, once, and loses nothing.
#[test]
fn failures_of_copies_are_errors_of_the_next_access() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = locked(&setup, 100);
    fail_late(&setup, 1);
    array.prefetch(s).unwrap();
    s.synchronize().unwrap_err();
    assert!(!array.is_valid_on(&setup.a));
    assert_eq!(values_on(&array, s)[99], 99.0);
    set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
    fail_late(&setup, 1);
    array.prefetch_host().unwrap();
    let error = array.read_host().unwrap_err();
    assert_eq!(error.device(), Some(setup.a.id()), "{error}");
    assert!(
        error.message().contains("the 800 bytes of part 0 of an array of f64 [100]"),
        "{error}"
    );
    s.synchronize().unwrap();
    assert_eq!(values(&array), [3.0; 100]);
    assert_eq!(values_on(&array, s), [3.0; 100]);
}

#[test]
fn the_stream_reports_the_failed_copy_of_an_array_that_was_dropped() {
    for (is_foreign, to_host) in [(false, false), (false, true), (true, false), (true, true)] {
        let setup = Setup::peers();
        let s = &setup.s;
        let (pages, dropped) = Pages::counting(100);
        let mut array = if is_foreign { pages.array(0) } else { counting(100) };
        array.page_lock(&setup.a).unwrap();
        if to_host {
            set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
        }
        fails_after_the_drop(&setup, s, to_host, || {
            let gate = hold(s);
            fail_late(&setup, 1);
            if to_host { array.prefetch_host() } else { array.prefetch(s) }.unwrap();
            drop(array);
            assert!(!is_foreign || dropped.try_recv().is_err());
            gate.open();
        });
        if is_foreign {
            dropped.recv_timeout(LONG).unwrap();
        }
    }
}

/// The failure of a kernel reaches the host with the copy of its values.
#[test]
fn failures_of_kernels_are_errors_of_the_next_access() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = locked(&setup, 100);
    // The first copy is that of the value, the second writes it to all elements.
    fail_late(&setup, 2);
    set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
    array.prefetch_host().unwrap();
    assert!(array.read_host().is_err());
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
    array.write_host().unwrap().fill(1.0);
    assert_eq!(values_on(&array, s), [1.0; 100]);
}

/// With replica and page-locked memory in place, a prefetch takes less than a millisecond, whatever its length.
#[test]
fn a_prefetch_behind_work_takes_less_than_a_millisecond() {
    let setup = Setup::sim(SimConfig::new());
    let s = &setup.s;
    for len in [1_usize << 17, 1 << 23] {
        let mut array = ArrayBuffer::<f64, _>::uninit(len).unwrap();
        array.page_lock(&setup.a).unwrap();
        let mut times: Vec<Duration> = (0..21)
            .map(|_| {
                array.write_host().unwrap()[0] += 1.0;
                let gate = hold(s);
                let began = Instant::now();
                array.prefetch(s).unwrap();
                let took = began.elapsed();
                gate.open();
                took
            })
            .collect();
        times.sort();
        assert!(times[10] < Duration::from_millis(1), "{len}: {times:?}");
    }
}

/// A stream that only copied values does not lose its own writes when the writer of those values has failed.
#[test]
fn a_failure_of_an_origin_leaves_the_writes_of_others() {
    let setup = Setup::peers();
    let (s, other) = (&setup.s, setup.stream());
    let partition = Partition::new(&[10], &[&[0..5], &[5..10]], &[]).unwrap();
    let mut array = ArrayBuffer::<f64, Ix1>::with_partition(partition).unwrap();
    array.page_lock(&setup.a).unwrap();
    let fill = |part: &mut PartMut<'_, f64, Ix1>, stream: &Stream, value| {
        let mut guard = part.write(stream).unwrap();
        guard.view_mut().unwrap().fill(stream, value).unwrap();
        guard.commit().unwrap();
    };
    let [mut first, mut second] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
    fill(&mut second, &other, 5.0);
    other.synchronize().unwrap();
    fail_late(&setup, 1);
    fill(&mut first, s, 4.0);
    add(&mut first.read_write(&other).unwrap(), &other, 1.0).unwrap();
    assert!(first.read_host().is_err());
    assert_eq!(second.read_host().unwrap()[0], 5.0);
    other.synchronize().unwrap();
}

/// If the device cannot lock memory when the host's replica is made, the host's memory is ordinary.
#[test]
fn a_lost_device_does_not_keep_values_of_others_from_the_host() {
    for peers in [false, true] {
        let setup = Setup::sim(SimConfig::new().peers(peers));
        let mut array = ArrayBuffer::<f64, Ix1>::uninit(10).unwrap();
        array.page_lock(&setup.a).unwrap();
        set(&mut array.write(&setup.t).unwrap(), &setup.t, 3.0).unwrap();
        SimHandle::of(&setup.a).unwrap().lose();
        array.prefetch_host().unwrap();
        assert_eq!(values(&array), [3.0; 10]);
        array.evict(&setup.b).unwrap();
        assert_eq!(values_on(&array, &setup.t), [3.0; 10]);
        assert_eq!(array.into_inner().unwrap().to_vec(), [3.0; 10]);
    }
}

/// Eviction waits until the values are on the host: nothing is freed if that fails.
#[test]
fn an_eviction_waits_for_its_copies() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = locked(&setup, 100);
    set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
    let gate = start(&mut setup.a.memory_allocate::<f64>(1).unwrap(), s);
    gate.open_later();
    array.evict(&setup.a).unwrap();
    assert!(gate.is_open(), "the eviction did not wait");
    assert_eq!(values(&array), [3.0; 100]);
    set(&mut array.write(s).unwrap(), s, 4.0).unwrap();
    fail_late(&setup, 1);
    assert!(array.evict(&setup.a).is_err());
}

/// Values leave a replica when the copy of them elsewhere has arrived, and stay if it fails.
#[test]
fn an_eviction_waits_for_the_copy_that_keeps_the_values() {
    for is_locked in [true, false] {
        let setup = Setup::sim(SimConfig::new().peers(false));
        let s = &setup.s;
        let mut array = if is_locked { locked(&setup, 100) } else { counting(100) };
        set(&mut array.write(s).unwrap(), s, 5.0).unwrap();
        // The host has seen that the values are good.
        assert_eq!(values(&array), [5.0; 100]);
        fail_late(&setup, 1);
        array.evict_host().unwrap();
        let brought = array.prefetch_host().and_then(|()| array.evict(&setup.a));
        brought.unwrap_err();
        assert_eq!(values(&array), [5.0; 100]);
        array.evict(&setup.a).unwrap();
        fail_late(&setup, 1);
        array.prefetch(s).unwrap();
        array.evict_host().unwrap_err();
        assert_eq!(values(&array), [5.0; 100]);
        assert_eq!(values_on(&array, s), [5.0; 100]);
    }
}

#[test]
fn the_host_writes_on_when_the_device_is_lost() {
    for waits in [true, false] {
        let setup = Setup::sim(SimConfig::new());
        let mut array = locked(&setup, 10);
        array.prefetch(&setup.s).unwrap();
        array.prefetch(&setup.stream()).unwrap();
        if waits {
            setup.a.synchronize().unwrap();
        }
        SimHandle::of(&setup.a).unwrap().lose();
        array.write_host().unwrap().fill(2.0);
        assert_eq!(values_on(&array, &setup.t), [2.0; 10]);
        assert_eq!(array.into_inner().unwrap().to_vec(), [2.0; 10]);
    }
}

#[test]
fn memory_is_locked_after_idle_streams_were_forgotten() {
    let setup = Setup::peers();
    let mut array = counting(10);
    let streams: Vec<Stream> = (0..15).map(|_| setup.stream()).collect();
    streams.iter().for_each(|stream| array.prefetch(stream).unwrap());
    setup.a.synchronize().unwrap();
    array.page_lock(&setup.b).unwrap();
    assert_eq!(values_on(&array, &setup.t)[9], 9.0);
}

#[test]
fn memory_that_could_not_be_locked_is_locked_later() {
    let config = SimConfig::new().fault(Fault::fail(Operation::Allocation, 1));
    let setup = Setup::sim(config);
    let mut array = ArrayBuffer::<f64, Ix1>::uninit(10).unwrap();
    array.page_lock(&setup.a).unwrap();
    array.write_host().unwrap().fill(1.0);
    array.prefetch(&setup.s).unwrap();
    array.evict_host().unwrap();
    assert_eq!(values(&array), [1.0; 10]);
    array.page_lock(&setup.a).unwrap();
    array.write_host().unwrap().fill(2.0);
    does_not_wait(&setup.s, || array.prefetch(&setup.s).unwrap());
    assert_eq!(values_on(&array, &setup.s), [2.0; 10]);
}

/// Locking in place copies nothing and allocates nothing; the fallback is one allocation.
#[test]
fn values_are_copied_only_if_they_cannot_be_locked_in_place() {
    let refuse = Fault::fail(Operation::Allocation, 1);
    for (config, registered, allocated) in [
        (SimConfig::new(), 1, 0),
        (SimConfig::new().registration(false), 0, 1),
        (SimConfig::new().fault(refuse), 0, 1),
    ] {
        let setup = Setup::sim(config);
        let elements = vec![1.0; 100];
        let address = elements.as_ptr();
        let mut array = ArrayBuffer::from_vec(elements, 100).unwrap();
        array.page_lock(&setup.a).unwrap();
        let counts = SimHandle::of(&setup.a).unwrap().counts();
        assert_eq!((counts.registrations, counts.pinned_allocations), (registered, allocated));
        assert_eq!(array.read_host().unwrap().as_ptr() == address, registered == 1);
        does_not_wait(&setup.s, || array.prefetch(&setup.s).unwrap());
        assert_eq!(values_on(&array, &setup.s), [1.0; 100]);
        let array = array.into_inner().unwrap();
        // A copy may be where the first vector was, which is gone.
        assert!(array.as_ptr() == address || registered == 0);
        assert_eq!(array.to_vec(), [1.0; 100]);
    }
}

/// An array that cannot be page-locked in any way is as before.
#[test]
fn an_array_that_cannot_be_locked_keeps_its_values_in_place() {
    let refuse = |number| Fault::fail(Operation::Allocation, number);
    let setup = Setup::sim(SimConfig::new().fault(refuse(1)).fault(refuse(2)));
    let elements = vec![1.0; 100];
    let address = elements.as_ptr();
    let mut array = ArrayBuffer::from_vec(elements, 100).unwrap();
    let error = array.page_lock(&setup.a).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(array.read_host().unwrap().as_ptr(), address);
    array.page_lock(&setup.a).unwrap();
    assert_eq!(array.into_inner().unwrap().as_ptr(), address);
}

/// The vector is freed, or comes out, after the copies that use it.
#[test]
fn a_locked_vector_stays_until_its_copies_are_done() {
    let setup = Setup::peers();
    let s = &setup.s;
    let array = locked(&setup, 1000);
    let mut copy = setup.a.memory_allocate::<f64>(1000).unwrap();
    let gate = hold(s);
    array.prefetch(s).unwrap();
    copy.view_mut().copy_from_device(s, &array.read(s).unwrap().view().unwrap(), s).unwrap();
    drop(array);
    let other = vec![9.0; 1000];
    gate.open();
    assert_eq!(copy.to_vec(s).unwrap()[999], 999.0);
    assert_eq!(other, [9.0; 1000]);
    let array = locked(&setup, 1000);
    let gate = start(&mut setup.a.memory_allocate::<f64>(1).unwrap(), s);
    array.prefetch(s).unwrap();
    gate.open_later();
    assert_eq!(array.into_inner().unwrap()[999], 999.0);
    assert!(gate.is_open(), "the vector came out before it was copied");
}

/// The host waits for the copies of parts that were divided anew, and not for work behind the copies.
#[test]
fn other_parts_hold_up_no_access_of_the_host() {
    let setup = Setup::peers();
    let cut = |at| Partition::new(&[8], &[&[0..at], &[at..8]], &[]).unwrap();
    let mut array = ArrayBuffer::<f64, Ix1>::with_partition(cut(4)).unwrap();
    array.page_lock(&setup.a).unwrap();
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 3.0).unwrap();
    array.prefetch_host().unwrap();
    array.repartition(cut(2)).unwrap();
    let gate = hold(&setup.s);
    assert_eq!(values(&array), [3.0; 8]);
    assert!(!gate.is_open(), "the host waited for later work");
    gate.open();
}
