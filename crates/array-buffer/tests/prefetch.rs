//! Prefetches of ordinary host memory: a thread prepares the copies, and the host waits for none of them.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "the gate launches a kernel")]
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

mod common;
#[path = "../../interchange/tests/common/gate.rs"]
mod gate;

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use array_buffer::{ArrayBuffer, Partition, Parts};
use backend_sim::{Fault, Operation, SimConfig, SimHandle};
use common::{
    Setup, add, copies, counting, fail_late, fails_after_the_drop, quick, set, values, values_on,
};
use gate::{Gate, start};
use ndarray::{Array1, Array2, Ix1};
use runtime_core::{
    Capabilities, Combine, DType, Grid, HostModule, Launch, RegionCopy, RegionSide, Result, Slot,
    Statistics, Stream, Support, args,
};

/// More than the pieces of one stream, which have 4 MiB for this length.
const LARGE: u32 = 7 << 17;
/// Longer than any call that does not wait.
const LONG: Duration = Duration::from_secs(20);

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

/// A kernel that is enqueued at once sees the new values, on the stream of the prefetch and on others, although the
/// copies are not prepared yet. Values arrive on the host, too.
fn work_that_follows_at_once_sees_the_new_values(setup: &Setup) {
    let other = setup.stream();
    for len in [1, 100, LARGE] {
        let mut array = counting(len);
        let last = f64::from(len - 1);
        for round in 1..4 {
            let stream = if round % 2 == 0 { &setup.s } else { &other };
            array.prefetch(stream).unwrap();
            add(&mut array.read_write(stream).unwrap(), stream, 1.0).unwrap();
            array.prefetch_host().unwrap();
            let value = last + f64::from(2 * round) - 1.0;
            assert_eq!(array.read_host().unwrap().last(), Some(&value));
            array.read_write_host().unwrap().iter_mut().for_each(|value| *value += 1.0);
        }
        // Another device.
        array.prefetch(&setup.t).unwrap();
        add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
        array.prefetch_host().unwrap();
        array.prefetch(&setup.s).unwrap();
        assert_eq!(values_on(&array, &setup.s).last(), Some(&(last + 7.0)));
        assert_eq!(array.into_inner().unwrap().last(), Some(&(last + 7.0)));
    }
}

/// Parts of few and of many rows, and a host that writes one part while another is copied.
fn parts_with_gaps_arrive(setup: &Setup) {
    let halves: [&[_]; 2] = [&[0..400, 0..2], &[0..400, 2..5]];
    let quarters: [&[_]; 3] = [&[0..30, 0..2], &[0..30, 2..5], &[30..400, 0..5]];
    for parts in [&halves[..], &quarters[..]] {
        let partition = Partition::new(&[400, 5], parts, &[]).unwrap();
        let start = Array2::from_shape_fn((400, 5), |(i, j)| (5 * i + j) as f64);
        let mut array = ArrayBuffer::from_array_with(start.clone(), partition).unwrap();
        for part in 0..parts.len() {
            array.part(Parts::one(part)).unwrap().prefetch(&setup.s).unwrap();
            let [mut part] = array.split([Parts::one(part)]).unwrap();
            add(&mut part.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
            part.prefetch_host().unwrap();
            part.read_write_host().unwrap().mapv_inplace(|value| value + 1.0);
            part.prefetch(&setup.s).unwrap();
        }
        assert_eq!(array.read_host().unwrap().to_owned(), start + 2.0);
        let seen = array.read(&setup.s).unwrap();
        drop(seen);
    }
}

/// An array may be dropped, and its host memory freed, while its copies are prepared.
fn arrays_are_dropped_in_flight(setup: &Setup) {
    for _ in 0..5 {
        let mut array = counting(LARGE);
        array.prefetch(&setup.s).unwrap();
        drop(array);
        array = counting(LARGE);
        set(&mut array.write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
        array.prefetch_host().unwrap();
        drop(array);
        let mut array = counting(LARGE);
        array.prefetch(&setup.s).unwrap();
        if !setup.shares() {
            array.evict_host().unwrap();
            assert_eq!(values(&array).last(), Some(&f64::from(LARGE - 1)));
        }
        let mut lent = Array1::<f64>::ones(LARGE as usize);
        array_buffer::lend(lent.view_mut(), |mut array| {
            array.prefetch(&setup.s).unwrap();
            add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
            array.prefetch_host().unwrap();
        })
        .unwrap();
        assert_eq!(lent, Array1::from_elem(LARGE as usize, 2.0));
    }
    setup.a.synchronize().unwrap();
}

/// What changes where the host's values are waits for the copies that are prepared.
fn the_hosts_memory_moves_after_its_copies(setup: &Setup) {
    let mut array = counting(LARGE);
    array.prefetch(&setup.s).unwrap();
    array.page_lock(&setup.a).unwrap();
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert_eq!(values(&array).last(), Some(&f64::from(LARGE)));
    if setup.a.unified_memory().is_some() && !setup.shares() {
        let mut array = counting(LARGE);
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        array.prefetch_host().unwrap();
        array.unify(&setup.a).unwrap();
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        assert_eq!(values(&array).last(), Some(&f64::from(LARGE + 1)));
    }
    let mut array = counting(LARGE);
    array.prefetch(&setup.s).unwrap();
    array.write_host().unwrap().fill(5.0);
    assert_eq!(array.into_inner().unwrap().last(), Some(&5.0));
}

/// Threads prefetch many arrays on one stream and on several.
fn threads_prefetch_at_once(setup: &Setup) {
    let shared = setup.stream();
    thread::scope(|scope| {
        for number in 0..4_u32 {
            let (shared, own) = (&shared, setup.stream());
            scope.spawn(move || {
                for round in 0..3 {
                    let mut array = counting(1 << 16);
                    array.prefetch(shared).unwrap();
                    let by = f64::from(number + round);
                    add(&mut array.read_write(&own).unwrap(), &own, by).unwrap();
                    array.prefetch_host().unwrap();
                    assert_eq!(values(&array)[9], 9.0 + by);
                }
            });
        }
    });
}

/// A loop over tiles that are copied to the device, changed there and copied back: all of it is enqueued while the
/// streams wait at a gate, so the host has waited for nothing.
fn a_loop_over_tiles_is_enqueued_without_a_wait(setup: &Setup) {
    const TILES: usize = 8;
    const LEN: u32 = 1 << 14;
    let Capabilities { gates, region_copy, .. } = setup.a.capabilities();
    // Emulated region copies wait.
    if [gates, region_copy].iter().any(|has| **has != Support::Native) || setup.shares() {
        return;
    }
    let streams = [setup.s.clone(), setup.stream()];
    let one = setup.a.memory_from_slice(&setup.s, &[1.0]).unwrap();
    let side = |slot, stride| RegionSide { slot, offset: 0, strides: vec![stride] };
    let increment = setup.a.plan_regions(&[RegionCopy {
        dtype: DType::F64,
        extents: vec![LEN as usize],
        source: side(1, 0),
        destination: side(0, 8),
        negate: false,
        combine: Combine::Sum,
    }]);
    let increment = increment.unwrap();
    let run = |tiles: &mut [ArrayBuffer<f64, Ix1>]| {
        for (tile, stream) in tiles.iter_mut().zip(streams.iter().cycle()) {
            tile.prefetch(stream).unwrap();
            let mut guard = tile.read_write(stream).unwrap();
            let slots = &mut [Slot::from(guard.view_mut().unwrap()), one.view().into()];
            increment.execute(stream, slots).unwrap();
            guard.commit().unwrap();
            tile.prefetch_host().unwrap();
        }
    };
    for locks in [true, false] {
        let mut tiles: Vec<_> = (0..TILES).map(|_| counting(LEN)).collect();
        if locks {
            tiles.iter_mut().for_each(|tile| tile.page_lock(&setup.a).unwrap());
        }
        // Makes replicas and pinned memory.
        run(&mut tiles);
        for tile in &mut tiles {
            tile.read_write_host().unwrap()[0] += 1.0;
        }
        setup.a.synchronize().unwrap();
        let before = setup.a.statistics();
        let (gate, opener) = setup.a.gate().unwrap();
        streams.iter().for_each(|stream| stream.hold_until(&gate).unwrap());
        let (done, is_done) = mpsc::channel();
        let watch = thread::spawn(move || {
            let in_time = is_done.recv_timeout(LONG).is_ok();
            opener.open();
            in_time
        });
        run(&mut tiles);
        let after = setup.a.statistics();
        done.send(()).ok();
        assert!(watch.join().unwrap(), "the loop waited");
        let counts =
            |at: Statistics| [at.to_device, at.on_device, at.from_device].map(|of| of.count);
        let enqueued: Vec<_> = counts(after)
            .iter()
            .zip(counts(before))
            .map(|(after, before)| after - before)
            .collect();
        assert_eq!(enqueued, [TILES as u64; 3], "copies, changes, copies");
        for tile in &tiles {
            assert_eq!(values(tile)[..2], [3.0, 3.0]);
            assert_eq!(tile.transfers().prefetches_that_waited(), 0);
        }
    }
}

on_all_devices! {
    also_with_gates:
    work_that_follows_at_once_sees_the_new_values,
    parts_with_gaps_arrive,
    arrays_are_dropped_in_flight,
    the_hosts_memory_moves_after_its_copies,
    threads_prefetch_at_once,
    a_loop_over_tiles_is_enqueued_without_a_wait,
}

#[test]
fn prefetches_do_not_wait_whatever_their_length() {
    let setup = Setup::peers();
    let s = &setup.s;
    for len in [100, LARGE] {
        let array = counting(len);
        does_not_wait(s, || array.prefetch(s).unwrap());
        assert_eq!(array.transfers().prefetches_that_waited(), 0);
        let mut array = counting(len);
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
    // The host may write again as soon as the values are in pinned memory.
    let mut array = counting(100);
    does_not_wait(s, || {
        for value in 1..3 {
            array.prefetch(s).unwrap();
            array.write_host().unwrap().fill(f64::from(value));
        }
    });
    assert_eq!(values_on(&array, s), [2.0; 100]);
}

/// The host waits for the copies of its own part, and neither for those of other parts nor for later work.
#[test]
fn an_access_waits_for_its_own_part_alone() {
    let orders = [[0, 1], [1, 0]];
    for (order, locks) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
        let setup = Setup::peers();
        let partition = Partition::new(&[10], &[&[0..5], &[5..10]], &[]).unwrap();
        let mut array = ArrayBuffer::<f64, Ix1>::with_partition(partition).unwrap();
        if locks {
            array.page_lock(&setup.a).unwrap();
        }
        let (s, other) = (&setup.s, setup.stream());
        for (part, stream) in [s, &other].into_iter().enumerate() {
            let [mut part] = array.split([Parts::one(part)]).unwrap();
            set(&mut part.write(stream).unwrap(), stream, 4.0).unwrap();
        }
        s.synchronize().unwrap();
        let parts = |part| array.part(Parts::one(part)).unwrap();
        let gate = hold(&other);
        for part in order {
            parts(part).prefetch_host().unwrap();
        }
        does_not_wait(s, || assert_eq!(parts(0).read_host().unwrap()[0], 4.0));
        assert!(!gate.is_open());
        gate.open();
        assert_eq!(parts(1).read_host().unwrap()[0], 4.0);
    }
}

/// A device without gates copies while the caller waits, and reports say so.
#[test]
fn devices_without_gates_hold_the_caller() {
    let setup = Setup::sim(quick().gates(false));
    assert_eq!(setup.a.capabilities().gates, Support::Absent);
    let mut array = counting(LARGE);
    array.prefetch(&setup.s).unwrap();
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    array.prefetch_host().unwrap();
    assert_eq!(array.transfers().prefetches_that_waited(), 2);
    assert_eq!(values(&array).last(), Some(&f64::from(LARGE)));
}

/// A copy that fails after it was enqueued is an error of the next access, once, and loses nothing.
#[test]
fn failures_of_copies_are_errors_of_the_next_access() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = counting(LARGE);
    fail_late(&setup, 2);
    array.prefetch(s).unwrap();
    s.synchronize().unwrap_err();
    assert!(!array.is_valid_on(&setup.a));
    assert_eq!(values_on(&array, s).last(), Some(&f64::from(LARGE - 1)));
    set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
    fail_late(&setup, 2);
    array.prefetch_host().unwrap();
    let error = array.read_host().unwrap_err();
    assert_eq!(error.device(), Some(setup.a.id()), "{error}");
    s.synchronize().unwrap();
    assert_eq!(values(&array).last(), Some(&3.0));
    assert_eq!(values_on(&array, s).last(), Some(&3.0));
}

/// The next access on any stream returns the failure of a prefetch, once, although no call has waited for its stream.
#[test]
fn the_next_access_on_any_stream_returns_the_failure_of_a_prefetch() {
    for (locks, is_own) in [(false, false), (false, true), (true, false), (true, true)] {
        let setup = Setup::peers();
        let (s, other) = (&setup.s, setup.stream());
        let mut array = counting(LARGE);
        if locks {
            array.page_lock(&setup.a).unwrap();
        }
        fail_late(&setup, 1);
        array.prefetch(s).unwrap();
        s.record_event().unwrap().wait().unwrap();
        let stream = if is_own { s } else { &other };
        let error = array.read(stream).map(drop).unwrap_err();
        assert_eq!(error.device(), Some(setup.a.id()), "{error}");
        let part = "the 7340032 bytes of part 0 of an array of f64 [917504]";
        assert!(error.message().contains(part), "{error}");
        s.synchronize().unwrap();
        assert_eq!(values_on(&array, stream).last(), Some(&f64::from(LARGE - 1)));
    }
}

#[test]
fn the_stream_reports_the_failed_copy_of_an_array_that_was_dropped() {
    for (len, to_host) in [(100, false), (100, true), (LARGE, false), (LARGE, true)] {
        let setup = Setup::peers();
        let s = &setup.s;
        let mut array = counting(len);
        if to_host {
            set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
        }
        fails_after_the_drop(&setup, s, to_host, || {
            let gate = hold(s);
            fail_late(&setup, 1);
            if to_host { array.prefetch_host() } else { array.prefetch(s) }.unwrap();
            drop(array);
            gate.open();
        });
    }
}

/// The stream of the device whose copy failed reports it.
#[test]
fn streams_report_the_failed_copies_between_devices_of_an_array_that_was_dropped() {
    for len in [100, LARGE] {
        for at_source in [false, true] {
            let (setup, array) = on_first(quick(), len, 2.0);
            let Setup { a, b, s, t } = &setup;
            let failing = if at_source { s } else { t };
            fails_after_the_drop(&setup, failing, at_source, || {
                let gate = hold(s);
                let sim = SimHandle::of(if at_source { a } else { b }).unwrap();
                sim.inject(Fault::fail_late(Operation::Copy, copies(&sim) + 1));
                array.prefetch(t).unwrap();
                drop(array);
                gate.open();
            });
            assert_eq!(values_on(&counting(2), t), [0.0, 1.0]);
        }
    }
}

/// A copy that cannot be enqueued is an error of the prefetch, which loses nothing, and the stream goes on.
#[test]
fn copies_that_cannot_be_enqueued_lose_nothing() {
    for number in 1..5 {
        let setup = Setup::peers();
        let s = &setup.s;
        let sim = SimHandle::of(&setup.a).unwrap();
        let mut array = counting(LARGE);
        sim.inject(Fault::fail(Operation::Copy, number));
        array.prefetch(s).unwrap_err();
        s.synchronize().unwrap();
        assert_eq!(values_on(&array, s).last(), Some(&f64::from(LARGE - 1)));
        set(&mut array.write(s).unwrap(), s, 3.0).unwrap();
        s.synchronize().unwrap();
        sim.inject(Fault::fail(Operation::Copy, copies(&sim) + 1 + number));
        array.prefetch_host().unwrap_err();
        s.synchronize().unwrap();
        assert_eq!(values(&array).last(), Some(&3.0));
    }
}

/// A lost device ends the copies, and the host keeps its values.
#[test]
fn a_lost_device_ends_the_copies() {
    let setup = Setup::sim(quick().peers(false));
    let s = &setup.s;
    let mut array = counting(LARGE);
    let gate = hold(s);
    array.prefetch(s).unwrap();
    SimHandle::of(&setup.a).unwrap().lose();
    gate.open();
    array.read_write_host().map(|mut guard| guard[0] = 7.0).unwrap_or_default();
    array.read_write_host().unwrap()[0] = 8.0;
    assert_eq!(values_on(&array, &setup.t)[..2], [8.0, 1.0]);
}

/// With replica and pinned memory in place, a prefetch takes less than a millisecond, whatever its length.
fn prefetch_takes_less_than_a_millisecond(lens: &[usize]) {
    let setup = Setup::sim(SimConfig::new().memory_bytes(3 << 30));
    let s = &setup.s;
    for len in lens {
        let mut array = ArrayBuffer::<f64, _>::uninit(*len).unwrap();
        array.write_host().unwrap().fill(0.0);
        array.prefetch(s).unwrap();
        let mut times: Vec<Duration> = (0..20)
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
        println!("{len}: {times:?}");
        assert_eq!(values_on(&array, s)[0], 20.0);
    }
}

#[test]
fn a_prefetch_behind_work_takes_less_than_a_millisecond() {
    prefetch_takes_less_than_a_millisecond(&[1 << 17, 1 << 21]);
}

#[test]
#[ignore = "3 GiB of memory"]
fn a_prefetch_of_a_gibibyte_behind_work_takes_less_than_a_millisecond() {
    prefetch_takes_less_than_a_millisecond(&[1 << 27]);
}

/// Streams wait for each other on the device, but a thread reads the host's memory.
#[test]
fn a_prefetch_to_the_device_follows_one_to_the_host_on_another_stream() {
    let setup = Setup::sim(SimConfig::new());
    let other = setup.stream();
    for len in [200, 1 << 20] {
        for round in 0..20 {
            let mut array = ArrayBuffer::from_vec(vec![1.0_f64; len], len).unwrap();
            let mut guard = array.write(&setup.s).unwrap();
            guard.view_mut().unwrap().fill(&setup.s, 7.0).unwrap();
            guard.commit().unwrap();
            array.prefetch_host().unwrap();
            array.evict(&setup.a).unwrap();
            array.prefetch(&other).unwrap();
            let found = array.read(&other).unwrap().view().unwrap().to_vec(&other).unwrap();
            assert!(found.iter().all(|value| *value == 7.0), "{len} elements, round {round}");
        }
    }
}

#[test]
fn streams_that_are_dropped_leave_no_threads() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let setup = Setup::sim(SimConfig::new());
    let mut array = ArrayBuffer::from_vec(vec![1.0_f64; 1 << 15], 1 << 15).unwrap();
    let mut most = 0;
    for step in 0..200 {
        let stream = setup.stream();
        array.prefetch(&stream).unwrap();
        let mut guard = array.read_write(&stream).unwrap();
        guard.view_mut().unwrap().fill(&stream, f64::from(step)).unwrap();
        guard.commit().unwrap();
        stream.synchronize().unwrap();
        let mut guard = array.write_host().unwrap();
        guard.fill(f64::from(step));
        guard.commit().unwrap();
        most = most.max(threads());
    }
    // Other tests of this program have threads, too.
    assert!(most < 300, "{most} threads");
}

/// The destructor may wait for a gate that the thread opens.
#[test]
#[expect(unsafe_code, reason = "adopts host memory")]
fn the_owner_of_host_memory_may_wait_for_the_stream_of_a_prefetch() {
    struct Waits(Stream, #[expect(dead_code, reason = "is only dropped")] Vec<f64>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.synchronize().unwrap();
        }
    }
    let setup = Setup::sim(SimConfig::new());
    let mut values = vec![1.0_f64; 1 << 16];
    let first = std::ptr::NonNull::new(values.as_mut_ptr()).unwrap();
    let owner = Waits(setup.s.clone(), values);
    // SAFETY: the owner has the elements.
    let array = unsafe { ArrayBuffer::from_host_memory(first, 1 << 16, owner) }.unwrap();
    array.prefetch(&setup.s).unwrap();
    drop(array);
    setup.s.synchronize().unwrap();
}

/// Calls `f` with an array in a kernel on the stream, and returns the array.
fn in_a_kernel(
    stream: &Stream,
    array: ArrayBuffer<f64, Ix1>,
    f: impl Fn(&mut ArrayBuffer<f64, Ix1>) + Send + Sync + 'static,
) -> ArrayBuffer<f64, Ix1> {
    let shared = Arc::new(Mutex::new(Some(array)));
    let inside = Arc::clone(&shared);
    let call = move |_: &Grid<'_>| {
        f(inside.lock().unwrap_or_else(PoisonError::into_inner).as_mut().unwrap());
    };
    let module = stream.device().module_load(&HostModule::new().with("call", call)).unwrap();
    let kernel = module.kernel("call").unwrap();
    kernel.launch_checked(stream, &Launch::cover(1, 1), args![]).unwrap();
    stream.synchronize_for(LONG).unwrap();
    shared.lock().unwrap().take().unwrap()
}

/// The kernel would wait for itself. Afterwards the host waits, and finds the values.
#[test]
fn a_kernel_is_refused_to_wait_for_prefetches_of_its_own_stream() {
    type Call = fn(&mut ArrayBuffer<f64, Ix1>, &Setup) -> Result<()>;
    let waits: [Call; 4] = [
        |array, _| array.write_host()?.commit(),
        |array, _| array.read_write_host().map(drop),
        |array, setup| array.page_lock(&setup.a),
        |array, setup| array.unify(&setup.a),
    ];
    for wait in waits {
        let setup = Setup::sim(quick().peers(false));
        let s = setup.s.clone();
        let array = in_a_kernel(&s, counting(LARGE), move |array| {
            array.prefetch(&setup.s).unwrap();
            let error = wait(array, &setup).unwrap_err();
            assert!(error.is_refused_wait(), "{error}");
        });
        assert_eq!(values(&array).last(), Some(&f64::from(LARGE - 1)));
        assert_eq!(values_on(&array, &s).last(), Some(&f64::from(LARGE - 1)));
    }
}

/// The copies of one part wait for the kernel, and those of the other part come after them on another stream.
#[test]
fn a_kernel_is_refused_to_wait_for_copies_behind_it_on_any_stream() {
    let setup = Setup::sim(quick().peers(false));
    let (s, t) = (setup.s.clone(), setup.t.clone());
    let half = LARGE as usize / 2;
    let partition = Partition::new(&[2 * half], &[&[0..half], &[half..2 * half]], &[]).unwrap();
    let array = ArrayBuffer::from_array_with(Array1::zeros(2 * half), partition).unwrap();
    let array = in_a_kernel(&s, array, move |array| {
        let [mut first, mut second] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
        let mut guard = first.write(&setup.s).unwrap();
        guard.view_mut().unwrap().fill(&setup.s, 7.0).unwrap();
        guard.commit().unwrap();
        first.prefetch_host().unwrap();
        second.prefetch(&setup.t).unwrap();
        for _ in 0..2 {
            for part in [&mut first, &mut second] {
                let error = part.write_host().map(drop).unwrap_err();
                assert!(error.is_refused_wait(), "{error}");
            }
        }
    });
    let expected = |found: Vec<f64>| (found[half - 1], found[half]) == (7.0, 0.0);
    assert!(expected(values_on(&array, &t)));
    assert!(expected(values(&array)));
}

/// Devices that do not reach each other, and an array with values on the first one only.
fn on_first(config: SimConfig, len: u32, value: f64) -> (Setup, ArrayBuffer<f64, Ix1>) {
    let setup = Setup::sim(config.peers(false));
    let mut array = counting(len);
    array.write_host().unwrap().fill(value);
    array.prefetch(&setup.s).unwrap();
    array.evict_host().unwrap();
    (setup, array)
}

/// A thread copies between devices that do not reach each other. The caller waits for neither.
#[test]
fn prefetches_between_devices_do_not_wait() {
    for len in [1, 100, LARGE] {
        let (setup, mut array) = on_first(quick(), len, 3.0);
        let (s, t) = (&setup.s, &setup.t);
        for (from, to) in [(s, t), (t, s), (s, t)] {
            let before = array.transfers().total().bytes;
            // Also behind work of the target.
            let behind = hold(to);
            does_not_wait(from, || array.prefetch(to).unwrap());
            assert!(!behind.is_open());
            behind.open();
            add(&mut array.read_write(to).unwrap(), to, 1.0).unwrap();
            assert_eq!(array.transfers().total().bytes - before, 8 * u64::from(len));
        }
        assert_eq!(array.transfers().prefetches_that_waited(), 0);
        assert_eq!(values(&array), vec![6.0; len as usize]);
    }
}

/// The source may be written again at once, and the target sees the values from before.
#[test]
fn the_source_of_a_prefetch_between_devices_may_change_at_once() {
    let (setup, mut array) = on_first(quick(), LARGE, 1.0);
    let (s, t) = (&setup.s, &setup.t);
    for round in 1..5 {
        array.prefetch(t).unwrap();
        let seen = array.read(t).unwrap();
        let view = seen.view().unwrap();
        let mut copy = setup.b.memory_allocate::<f64>(view.len()).unwrap();
        copy.view_mut().copy_from_device(t, &view, t).unwrap();
        drop(seen);
        set(&mut array.write(s).unwrap(), s, f64::from(round + 1)).unwrap();
        assert_eq!(copy.to_vec(t).unwrap(), vec![f64::from(round); LARGE as usize]);
    }
}

/// Many arrays are copied both ways at once, and to and from the host meanwhile.
#[test]
fn prefetches_between_devices_cross() {
    let setup = Setup::sim(quick().peers(false));
    let streams = [setup.stream(), setup.stream(), setup.t.clone()];
    thread::scope(|scope| {
        for number in 0..4_usize {
            let streams = &streams;
            scope.spawn(move || {
                let mut array = counting(LARGE);
                for round in 0..6 {
                    let stream = &streams[(number + round) % 3];
                    array.prefetch(stream).unwrap();
                    add(&mut array.read_write(stream).unwrap(), stream, 1.0).unwrap();
                    if round % 3 == number % 3 {
                        array.prefetch_host().unwrap();
                    }
                }
                let found = values(&array);
                assert_eq!((found[0], found[7]), (6.0, 13.0));
                assert_eq!(found.last(), Some(&f64::from(LARGE + 5)));
            });
        }
    });
}

/// If one device is lost during the copies, the other one works on. Values that only the lost device had are lost.
#[test]
fn a_lost_device_does_not_stop_the_other_one() {
    for source in [true, false] {
        let (setup, array) = on_first(quick(), LARGE, 2.0);
        let (lost, other) = if source { (&setup.a, &setup.t) } else { (&setup.b, &setup.s) };
        let (at_source, at_target) = (hold(&setup.s), hold(&setup.t));
        array.prefetch(&setup.t).unwrap();
        SimHandle::of(lost).unwrap().lose();
        at_source.open();
        at_target.open();
        let mut fresh = counting(10);
        let again = |array: &mut ArrayBuffer<f64, Ix1>| {
            add(&mut array.read_write(other)?, other, 1.0)?;
            array.read_host().map(|values| values[9])
        };
        if source {
            // The stream reports once that the copies were given up.
            other.synchronize().unwrap_err();
            array.read_host().map(drop).unwrap_err();
        } else {
            other.synchronize().unwrap();
            // The failure of the prefetch, unless the loss is found first.
            if let Err(error) = array.read_host().map(drop) {
                assert_eq!(error.device(), Some(setup.b.id()), "{error}");
            }
            assert_eq!(values(&array).last(), Some(&2.0));
        }
        assert_eq!(again(&mut fresh).unwrap(), 10.0);
    }
}

/// A copy that cannot be enqueued, or that fails later, loses nothing, and the source's stream goes on.
#[test]
fn failures_between_devices_lose_nothing() {
    for number in 1..5 {
        for (at_source, late) in [(true, false), (false, false), (true, true), (false, true)] {
            let (setup, array) = on_first(quick(), LARGE, 2.0);
            setup.s.synchronize().unwrap();
            let Setup { a, b, s, t } = &setup;
            let sim = SimHandle::of(if at_source { a } else { b }).unwrap();
            let which = copies(&sim) + number;
            let fault = if late { Fault::fail_late } else { Fault::fail };
            sim.inject(fault(Operation::Copy, which));
            let copied = array.prefetch(t);
            assert_eq!(copied.is_err(), !late, "copy {number}: {copied:?}");
            assert_eq!(t.synchronize().is_err(), late && !at_source, "copy {number}");
            if late && at_source {
                // No stream of the program has failed.
                let error = array.read(t).map(drop).unwrap_err();
                assert_eq!(error.device(), Some(a.id()), "{error}");
            }
            assert!(!array.is_valid_on(b), "copy {number}");
            assert_eq!(values_on(&array, t).last(), Some(&2.0));
            assert_eq!(values_on(&array, s).last(), Some(&2.0));
            assert_eq!(array.into_inner().unwrap().last(), Some(&2.0));
        }
    }
}

/// The kernel would wait for the copies behind it, on whatever device they end.
#[test]
fn a_kernel_is_refused_to_wait_for_copies_between_devices_behind_it() {
    let (setup, array) = on_first(quick(), LARGE, 2.0);
    let (s, t) = (setup.s.clone(), setup.t.clone());
    let array = in_a_kernel(&s, array, move |array| {
        let mut guard = array.read_write(&setup.s).unwrap();
        guard.view_mut().unwrap().slice(1..2).unwrap().fill(&setup.s, 4.0).unwrap();
        guard.commit().unwrap();
        array.prefetch(&setup.t).unwrap();
        let error = array.evict(&setup.a).unwrap_err();
        assert!(error.is_refused_wait(), "{error}");
        let mut guard = array.read_write(&setup.t).unwrap();
        guard.view_mut().unwrap().slice(0..1).unwrap().fill(&setup.t, 3.0).unwrap();
        guard.commit().unwrap();
        let error = array.read_host().map(drop).unwrap_err();
        assert!(error.is_refused_wait(), "{error}");
    });
    assert_eq!(values_on(&array, &t)[..3], [3.0, 4.0, 2.0]);
    assert_eq!(values(&array)[..3], [3.0, 4.0, 2.0]);
}

#[test]
fn a_kernel_may_drop_what_it_has_prefetched() {
    let setup = Setup::sim(quick().peers(false));
    let s = setup.s.clone();
    let array = in_a_kernel(&s, counting(LARGE), move |array| {
        array.prefetch(&setup.s).unwrap();
        drop(std::mem::replace(array, counting(1)));
    });
    assert_eq!(values(&array), [0.0]);
}

/// A part without elements needs no copy, so the host waits for none of its streams.
#[test]
fn parts_without_elements_hold_up_no_access_of_the_host() {
    let setup = Setup::peers();
    let partition = Partition::new(&[8], &[&[0..8], &[8..8]], &[]).unwrap();
    let mut array = ArrayBuffer::<f64, Ix1>::with_partition(partition).unwrap();
    let mut guard = array.write(&setup.s).unwrap();
    for part in 0..2 {
        guard.part_mut(part).unwrap().fill(&setup.s, 3.0).unwrap();
    }
    guard.commit().unwrap();
    array.prefetch_host().unwrap();
    does_not_wait(&setup.s, || assert_eq!(values(&array), [3.0; 8]));

    let mut array = counting(0);
    array.prefetch(&setup.s).unwrap();
    does_not_wait(&setup.s, || drop(array.write_host().unwrap()));
}
