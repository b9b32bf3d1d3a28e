//! Calls that wait for a device. Each call is made behind work that ends only when the test allows it.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "the gate launches a kernel; a stream is taken by its handle")]

mod common;
#[path = "../../interchange/tests/common/gate.rs"]
mod gate;

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use array_buffer::{ArrayBuffer, Exchange, Partition, Parts, Reduce, WriteGuard};
use backend_sim::{SimConfig, SimHandle};
use common::{Setup, counting, row, values};
use gate::{Gate, start};
use ndarray::{Array1, Array2, Ix1};
use runtime_core::{Grid, HostModule, Launch, Stream, args};

/// The number of elements that the pinned buffers of one device hold: 4 MiB.
const PINNED: u32 = (4 << 20) / 8;
/// Longer than any call that does not wait.
const LONG: Duration = Duration::from_secs(20);

/// Keeps the stream busy.
fn hold(stream: &Stream) -> Gate {
    start(&mut stream.device().memory_allocate::<f64>(1).unwrap(), stream)
}

/// Makes the call behind work on the stream, and checks whether the call waits for that work. Returns the result of the
/// call.
#[track_caller]
fn check<R>(waits: bool, stream: &Stream, call: impl FnOnce() -> R) -> R {
    let gate = hold(stream);
    gate.open_after(if waits { Duration::from_millis(100) } else { LONG });
    let result = call();
    assert_eq!(gate.is_open(), waits, "whether it waited");
    gate.open();
    stream.synchronize().unwrap();
    result
}

/// Writes all values, and commits them.
fn fill(mut guard: WriteGuard<'_, f64, Ix1>, stream: &Stream, value: f64) {
    guard.view_mut().unwrap().fill(stream, value).unwrap();
    guard.commit().unwrap();
}

/// An array whose values are only on the stream's device.
fn written(len: usize, stream: &Stream) -> ArrayBuffer<f64, Ix1> {
    let mut array = ArrayBuffer::uninit(len).unwrap();
    fill(array.write(stream).unwrap(), stream, 3.0);
    array
}

#[test]
fn uploads_do_not_block_while_pinned_memory_has_room() {
    let setup = Setup::peers();
    let s = &setup.s;
    for len in [100, PINNED] {
        let array = counting(len);
        check(false, s, || array.prefetch(s).unwrap());
        let array = counting(len);
        check(false, s, || drop(array.read(s).unwrap()));
        let mut array = counting(len);
        check(false, s, || array.read_write(s).unwrap().abort());
    }
    let array = counting(PINNED + 1);
    check(true, s, || drop(array.read(s).unwrap()));
    let mut array = counting(PINNED + 1);
    check(false, s, || fill(array.write(s).unwrap(), s, 1.0));
    // The pinned memory is in use by the previous copy.
    let mut array = counting(100);
    check(true, s, || {
        drop(array.read(s).unwrap());
        array.write_host().unwrap().fill(1.0);
        drop(array.read(s).unwrap());
    });
}

#[test]
fn values_on_a_device_are_used_there_without_blocking() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = written(100, s);
    let other = setup.stream();
    check(false, s, || {
        fill(array.read_write(&other).unwrap(), &other, 1.0);
        drop(array.read(s).unwrap());
        array.prefetch(&other).unwrap();
    });
    let copy = check(false, s, || array.duplicate().unwrap());
    check(false, s, || drop(copy));
    let memory = check(false, s, || array.into_memory(s).unwrap());
    let array = check(false, &other, || ArrayBuffer::from_memory(memory, 100, s).unwrap());
    assert_eq!(values(&array), [1.0; 100]);

    let partition = Partition::with_ghosts(&[5], &[(1, 1)]).unwrap();
    let mut array = ArrayBuffer::from_array_with(Array1::<f64>::zeros(5), partition).unwrap();
    check(false, s, || drop(array.accumulate(s, Reduce::Sum).unwrap()));
    check(false, s, || drop(array.begin_exchange(s, Exchange::Broadcast).unwrap()));
}

#[test]
fn copies_between_devices_wait_where_one_does_not_reach_the_other() {
    let setup = Setup::peers();
    let array = written(100, &setup.s);
    check(false, &setup.s, || drop(array.read(&setup.t).unwrap()));
    let setup = Setup::apart();
    let array = written(100, &setup.s);
    check(true, &setup.s, || drop(array.read(&setup.t).unwrap()));
    let array = written(100, &setup.s);
    check(false, &setup.t, || drop(array.read(&setup.t).unwrap()));
    let array = written(PINNED as usize + 1, &setup.s);
    check(true, &setup.t, || drop(array.read(&setup.t).unwrap()));
}

#[test]
fn the_host_waits_for_values_that_are_elsewhere() {
    let setup = Setup::peers();
    let s = &setup.s;
    let array = written(100, s);
    check(true, s, || assert_eq!(array.read_host().unwrap()[9], 3.0));
    check(false, s, || assert_eq!(array.read_host().unwrap()[9], 3.0));
    let array = written(100, s);
    check(false, s, || array.prefetch_host().unwrap());
    let array = written(100, s);
    check(true, s, || {
        array.prefetch_host().unwrap();
        assert_eq!(array.read_host().unwrap()[9], 3.0);
    });
    let mut array = written(100, s);
    check(true, s, || drop(array.read_write_host().unwrap()));
    let mut array = written(100, s);
    check(false, s, || array.write_host().unwrap().fill(1.0));
    check(false, s, || array.evict(&setup.a).unwrap());
    let mut array = written(100, s);
    check(true, s, || array.evict(&setup.a).unwrap());
    let array = written(100, s);
    check(true, s, || array.into_inner().unwrap());
    let mut values = Array1::<f64>::zeros(100);
    check(true, s, || {
        array_buffer::lend(values.view_mut(), |array| drop(array.read(s).unwrap())).unwrap();
    });
}

/// Values may be in host memory without being written yet.
#[test]
fn the_host_waits_for_devices_that_work_in_its_memory() {
    let setup = Setup::host();
    let s = &setup.s;
    for call in [
        |array: &mut ArrayBuffer<f64, Ix1>| assert_eq!(array.read_host().unwrap()[9], 3.0),
        |array: &mut ArrayBuffer<f64, Ix1>| array.prefetch_host().unwrap(),
        |array: &mut ArrayBuffer<f64, Ix1>| array.write_host().unwrap().abort(),
    ] {
        let mut array = counting(100);
        array.prefetch(s).unwrap();
        check(true, s, || {
            fill(array.write(s).unwrap(), s, 3.0);
            call(&mut array);
        });
    }
}

/// Devices that reach each other, that do not, and that have no gates.
fn setups() -> [Setup; 3] {
    let plain = SimConfig::new().peers(false).gates(false);
    [Setup::peers(), Setup::apart(), Setup::sim(plain)]
}

/// Two parts that are each longer than the pinned buffers.
fn halves() -> ArrayBuffer<f64, Ix1> {
    let half = PINNED as usize + 1;
    let partition = row(&[0, half, 2 * half]).unwrap();
    ArrayBuffer::from_array_with(Array1::zeros(2 * half), partition).unwrap()
}

/// While one call waits for a kernel, or copies behind it, calls on another part copy in all directions.
#[test]
fn a_call_that_waits_holds_up_no_call_on_another_part() {
    type Waits = fn(&ArrayBuffer<f64, Ix1>, &Stream) -> f64;
    let on_host: Waits = |array, _| array.part(Parts::one(0)).unwrap().read_host().unwrap()[9];
    let on_device: Waits = |array, s| {
        array.part(Parts::one(0)).unwrap().read(s).map(drop).unwrap();
        3.0
    };
    for setup in setups() {
        for (first, waits) in [(Some(&setup.s), on_host), (None, on_device)] {
            let mut array = halves();
            let gate = hold(&setup.s);
            gate.open_after(LONG);
            if let Some(stream) = first {
                let [mut part] = array.split([Parts::one(0)]).unwrap();
                fill(part.write(stream).unwrap(), stream, 3.0);
            }
            let other = setup.stream();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| waits(&array, &setup.s));
                thread::sleep(Duration::from_millis(50));
                let part = || array.part(Parts::one(1)).unwrap();
                drop(part().read(&setup.t).unwrap());
                drop(part().read(&other).unwrap());
                part().prefetch_host().unwrap();
                assert_eq!(part().read_host().unwrap()[9], 0.0);
                assert!(array.version() < 2);
                assert!(!waiting.is_finished() && !gate.is_open());
                gate.open();
                assert_eq!(waiting.join().unwrap(), 3.0);
            });
            assert_eq!(values(&array)[..2], [if first.is_some() { 3.0 } else { 0.0 }; 2]);
        }
    }
}

/// Two calls wait for one kernel. Then one of them copies, and the other one waits for it.
#[test]
fn a_part_for_which_several_calls_wait_is_copied_once() {
    for setup in setups() {
        let array = written(PINNED as usize + 1, &setup.s);
        let gate = hold(&setup.s);
        gate.open_after(Duration::from_millis(100));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert_eq!(array.read_host().unwrap()[9], 3.0));
            }
        });
        assert_eq!(array.transfers().total().count, 1);
    }
}

/// Several threads copy the same parts to and from devices at once, some of them behind work.
#[test]
fn threads_copy_the_same_parts_at_once() {
    for setup in setups() {
        for locks in [false, true] {
            let mut array = halves();
            if locks {
                array.page_lock(&setup.a).unwrap();
            }
            for round in 1..4 {
                let value = f64::from(round);
                for (part, stream) in [&setup.s, &setup.t].into_iter().enumerate() {
                    let [mut part] = array.split([Parts::one(part)]).unwrap();
                    fill(part.write(stream).unwrap(), stream, value);
                }
                let streams = [setup.stream(), setup.stream(), setup.t.clone(), setup.s.clone()];
                thread::scope(|scope| {
                    for (index, stream) in streams.iter().enumerate() {
                        let array = &array;
                        scope.spawn(move || {
                            for part in [index % 2, 1 - index % 2] {
                                let part = array.part(Parts::one(part)).unwrap();
                                let guard = part.read(stream).unwrap();
                                assert_eq!(guard.view().unwrap().to_vec(stream).unwrap()[7], value);
                                assert_eq!(part.read_host().unwrap()[7], value);
                            }
                        });
                    }
                });
            }
        }
    }
}

/// A call on an array waits for a kernel, which uses the same array.
#[test]
fn a_kernel_may_use_the_array_for_which_a_call_waits() {
    let setup = Setup::peers();
    let s = &setup.s;
    let mut array = halves();
    fill(array.split([Parts::one(0)]).unwrap()[0].write(s).unwrap(), s, 3.0);
    let array = Arc::new(array);
    let (inner, other) = (Arc::clone(&array), setup.t.clone());
    let found = Arc::new(OnceLock::new());
    let answer = Arc::clone(&found);
    let ask = move |_: &Grid<'_>| {
        thread::sleep(Duration::from_millis(100));
        let part = |part| inner.part(Parts::one(part)).unwrap();
        drop(part(1).read(&other).unwrap());
        let refused = part(0).read_host().map(drop).unwrap_err();
        answer.set((part(1).read_host().unwrap()[0], refused.is_refused_wait())).unwrap();
    };
    let module = setup.a.module_load(&HostModule::new().with("ask", ask)).unwrap();
    let launch = Launch::cover(1, 1);
    module.kernel("ask").unwrap().launch_checked(s, &launch, args![]).unwrap();
    assert_eq!(array.part(Parts::one(0)).unwrap().read_host().unwrap()[0], 3.0);
    assert_eq!(found.get(), Some(&(0.0, true)));
}

/// A call copies a part through the host, behind a kernel that uses the same part.
#[test]
fn a_kernel_is_refused_to_wait_for_copies_that_wait_for_it() {
    let setup = Setup::apart();
    let array = Arc::new(counting(2 * PINNED));
    let (inner, other) = (Arc::clone(&array), setup.t.clone());
    let found = Arc::new(OnceLock::new());
    let answer = Arc::clone(&found);
    let ask = move |_: &Grid<'_>| {
        thread::sleep(Duration::from_millis(100));
        let refused = inner.read(&other).map(drop).unwrap_err();
        answer.set(refused.is_refused_wait()).unwrap();
    };
    let module = setup.a.module_load(&HostModule::new().with("ask", ask)).unwrap();
    let launch = Launch::cover(1, 1);
    module.kernel("ask").unwrap().launch_checked(&setup.s, &launch, args![]).unwrap();
    drop(array.read(&setup.s).unwrap());
    setup.s.synchronize().unwrap();
    assert_eq!(found.get(), Some(&true));
    drop(array.read(&setup.t).unwrap());
}

/// Accesses that need no action overtake a call that waits for a device.
#[test]
fn a_call_that_waits_holds_up_no_reader_of_valid_values() {
    let setup = Setup::peers();
    let array = counting(PINNED + 1);
    let before = setup.a.statistics();
    let gate = hold(&setup.s);
    gate.open_after(LONG);
    thread::scope(|scope| {
        scope.spawn(|| drop(array.read(&setup.s).unwrap()));
        while setup.a.statistics() == before {
            thread::yield_now();
        }
        assert_eq!(array.read_host().unwrap()[7], 7.0);
        assert_eq!(array.version(), 0);
        assert!(!gate.is_open());
        gate.open();
    });
}

/// A copy between devices that do not reach each other goes through pieces: one device sends while the other receives.
#[test]
fn copies_through_the_host_use_both_links_at_once() {
    const LEN: usize = 1 << 21;
    let one_way = Duration::from_millis(250);
    let config = SimConfig::new().jitter(Duration::ZERO).peers(false).link(8 * LEN as u64 * 4);
    let setup = Setup::sim(config);
    let quickest = (0..3)
        .map(|_| {
            let array = written(LEN, &setup.s);
            setup.s.synchronize().unwrap();
            let began = Instant::now();
            array.prefetch(&setup.t).unwrap();
            setup.t.synchronize().unwrap();
            began.elapsed()
        })
        .min();
    let quickest = quickest.unwrap();
    assert!(quickest >= one_way && quickest < one_way * 17 / 10, "{quickest:?}");
}

/// 4 rows of 3 elements in lines of 8.
#[test]
fn a_part_with_gaps_is_copied_row_by_row_where_regions_are_not() {
    for (setup, copies) in [(Setup::peers(), 1), (Setup::apart(), 4)] {
        let (s, seen) = (&setup.s, SimHandle::of(&setup.a).unwrap());
        let partition = Partition::new(&[4, 8], &[&[0..4, 0..3], &[0..4, 3..8]], &[]).unwrap();
        let ones = Array2::<f64>::ones((4, 8));
        let mut array = ArrayBuffer::from_array_with(ones, partition).unwrap();
        let before = seen.counts();
        check(false, s, || array.part(Parts::one(0)).unwrap().prefetch(s).unwrap());
        assert_eq!(seen.counts().to_device.count - before.to_device.count, copies);
        let mut guard = array.read_write(s).unwrap();
        guard.view_mut().unwrap().fill(s, 2.0).unwrap();
        guard.commit().unwrap();
        let before = seen.counts();
        check(false, s, || array.part(Parts::one(0)).unwrap().prefetch_host().unwrap());
        assert_eq!(seen.counts().from_device.count - before.from_device.count, copies);
        assert_eq!(values(&array), [2.0; 32]);
    }
}

/// Nothing can be recorded on a stream of another owner, so the host waits in place of the array's stream.
#[test]
fn an_array_of_memory_waits_for_streams_of_other_owners() {
    let setup = Setup::peers();
    let (s, other) = (&setup.s, setup.stream());
    // SAFETY: the stream outlives its second handle.
    let foreign = unsafe { setup.a.interop().unwrap().stream_from_native(other.native()) };
    let foreign = foreign.unwrap();
    for (stream, waits) in [(&other, false), (&foreign, true)] {
        let mut memory = setup.a.memory_allocate::<f64>(100).unwrap();
        let array = check(waits, &other, || {
            memory.fill(stream, 2.0).unwrap();
            ArrayBuffer::from_memory(memory, 100, s).unwrap()
        });
        assert_eq!(values(&array), [2.0; 100]);
    }
}
