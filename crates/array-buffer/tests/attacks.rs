//! Safe code that attempts to read values that were never written, or that are being written.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(
    unsafe_code,
    reason = "the gate launches a kernel, and a stream is taken up by its handle"
)]

mod common;
#[path = "../../interchange/tests/common/gate.rs"]
mod gate;

use std::cell::RefCell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use array_buffer::{
    ArrayBuffer, Direction, ErrorKind, Exchange, PartStatus, Partition, Parts, Reduce,
    TransferBudget, here, offload,
};
use backend_sim::{Fault, Operation, SimConfig, SimDevice, SimHandle};
use coherence::LANES;
use common::{Setup, add_part, counting, fail_late, row, set, values, values_on};
use gate::{Gate, start};
use ndarray::{Array1, Array2, Dimension, Ix1, Ix2, IxDyn};
use runtime_core::{
    Combine, DType, Device, Grid, HostModule, Launch, MemoryViewMut, RegionCopy, RegionSide, Slot,
    Stream, StreamOptions, args,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// A second subscriber. With a single one, `tracing` disables events that a thread without a subscriber emits first.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Runs `work` with a subscriber.
fn with_subscriber<T>(subscriber: impl Subscriber + Send + Sync, work: impl FnOnce() -> T) -> T {
    LazyLock::force(&SECOND);
    tracing::subscriber::with_default(subscriber, work)
}

/// Keeps the stream busy.
fn hold(stream: &Stream) -> Gate {
    start(&mut stream.device().memory_allocate::<f64>(1).unwrap(), stream)
}

#[test]
fn a_duplicate_on_a_second_host_device_is_waited_for() {
    let setup = Setup::host();
    let other = setup.b.stream_create(&Default::default()).unwrap();
    let mut array = ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap();
    // The first host device shares the host's replica, so the second has one of its own.
    drop(array.read(&setup.s).unwrap());
    array.write(&other).unwrap().view_mut().unwrap().fill(&other, 7.0).unwrap();
    let gate = hold(&setup.t);
    gate.open_after(Duration::from_millis(100));
    let copy = array.duplicate().unwrap();
    assert_eq!(copy.read_host().unwrap().to_vec(), [7.0; 4]);
}

#[test]
fn memory_with_work_on_another_stream() {
    for setup in [Setup::peers(), Setup::apart(), Setup::host()] {
        let mut memory = setup.a.memory_from_slice(&setup.s, &[0.0_f64; 4]).unwrap();
        let other = setup.stream();
        let gate = hold(&other);
        memory.fill(&other, 7.0).unwrap();
        let array = ArrayBuffer::from_memory(memory, 4, &setup.s).unwrap();
        assert!(!gate.is_open());
        gate.open_later();
        assert_eq!(values(&array), [7.0; 4]);
    }
}

/// The writer's failure is reported, although the memory does not know its stream.
#[test]
fn memory_of_an_array_with_a_late_failure() {
    for is_last in [false, true] {
        let setup = Setup::sim(SimConfig::new().jitter(Duration::from_millis(2)));
        let other = setup.stream();
        let mut array = counting(4);
        SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
        array.write(&other).unwrap().view_mut().unwrap().fill(&other, 7.0).unwrap();
        let other = Some(other).filter(|_| !is_last);
        let failed = array.into_memory(&setup.s).unwrap_err();
        assert_eq!(failed.error().kind(), ErrorKind::Driver, "{failed}");
        assert_eq!(failed.into_inner().read_host().unwrap_err().kind(), ErrorKind::Poisoned);
        drop(other);
    }
}

/// Corners that an exchange over faces leaves out.
#[test]
fn unwritten_corners() {
    let setup = Setup::peers();
    let partition = Partition::with_ghosts(&[4, 5], &[(1, 1), (1, 1)]).unwrap();
    let sides = partition.exchanged();
    let mut array = ArrayBuffer::<f64, Ix2>::with_partition(partition).unwrap();
    let [mut own, mut ghosts] = array.split([Parts::one(0), sides]).unwrap();
    set(&mut own.write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    let mut arriving = ghosts.write(&setup.s).unwrap();
    // SAFETY: only the elements of each side are filled, one row or column at a time.
    assert_eq!(unsafe { arriving.whole_mut() }.unwrap().len(), 20);
    for side in sides.iter() {
        let mut view = arriving.part_mut(side).unwrap();
        let columns = view.layout().shape()[1];
        for row in 0..view.layout().shape()[0] {
            let row = view.reborrow().region(&[row..row + 1, 0..columns]).unwrap();
            row.reshape(&[columns]).unwrap().fill(&setup.s, 2.0).unwrap();
        }
    }
    arriving.commit().unwrap();
    for error in [array.read_host().unwrap_err(), array.read(&setup.t).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        assert!(error.message().contains("part 5"), "{error}");
    }
    let cross = array.part(Parts::one(0) | sides).unwrap();
    assert_eq!(cross.read(&setup.t).unwrap().parts().len(), 5);
    let west = array.part(Parts::one(3)).unwrap();
    assert_eq!(*west.read_host().unwrap(), Array2::from_elem((2, 1), 2.0));
}

/// The array drops idle streams from its list although their work may have failed.
#[test]
fn a_failed_writer_among_many_streams() {
    for reported in [false, true] {
        let setup = Setup::peers();
        let mut array = ArrayBuffer::<f64, _>::uninit(50).unwrap();
        let failing = setup.stream();
        SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
        let mut guard = array.write(&failing).unwrap();
        guard.view_mut().unwrap().fill(&failing, 1.0).unwrap();
        guard.commit().unwrap();
        while !failing.is_done().unwrap() {
            thread::yield_now();
        }
        // Together with the default stream, these fill the array's list of streams.
        let crowd: Vec<Stream> = (0..LANES - 2).map(|_| setup.stream()).collect();
        for stream in &crowd {
            drop(array.read(stream).unwrap());
        }
        crowd.iter().for_each(|stream| stream.synchronize().unwrap());
        if reported {
            failing.synchronize().unwrap_err();
        }
        let fresh = setup.stream();
        let error = array.read_write(&fresh).unwrap_err();
        let expected = if reported { ErrorKind::Poisoned } else { ErrorKind::Driver };
        assert_eq!(error.kind(), expected, "{error}");
        assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
        set(&mut array.write(&fresh).unwrap(), &fresh, 2.0).unwrap();
        assert_eq!(values(&array), [2.0; 50]);
    }
}

/// A subscriber that does something at every event.
struct Acts<F>(F);

/// The message of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl<F: Fn(&str) + Send + Sync + 'static> Subscriber for Acts<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        (self.0)(&message.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A call copies without the lock. Another caller receives the failure of the copy before the call has noted it.
#[test]
fn a_failed_copy_whose_error_another_caller_received_before_it_was_noted() {
    let setup = Setup::peers();
    let mut array =
        ArrayBuffer::from_array_with(Array1::zeros(20), row(&[0, 10, 20]).unwrap()).unwrap();
    let other = setup.stream();
    let stream_of_first = other.clone();
    // Part 0 has old values on the device. Part 1 is on the other device.
    add_part(&mut array, 0, &other, 1.0).unwrap();
    array.write_host().unwrap().fill(5.0);
    add_part(&mut array, 1, &setup.t, 0.0).unwrap();
    setup.a.synchronize().unwrap();
    fail_late(&setup, 1);
    let [(copied, is_copied), (locked, is_locked), (go, may_go)] =
        [(); 3].map(|()| mpsc::channel());
    // Each of both threads stops once, at one of its events.
    let stops = |at: &'static str, reached: Sender<()>, goes_on: Receiver<()>| {
        let ends = Mutex::new(Some((reached, goes_on)));
        Acts(move |message: &str| {
            if message.contains(at)
                && let Some((reached, goes_on)) = ends.lock().unwrap().take()
            {
                reached.send(()).unwrap();
                let _ended = goes_on.recv();
            }
        })
    };
    thread::scope(|scope| {
        let read = |part: usize, stream: &Stream| {
            array.part(Parts::one(part)).unwrap().read(stream).map(drop)
        };
        let copying = stops("copy from pinned memory enqueued", copied, is_locked);
        let holding = stops("copied between devices", locked, may_go);
        let first = scope.spawn(move || with_subscriber(copying, || read(0, &other)));
        is_copied.recv().unwrap();
        let stream = &setup.s;
        let second = scope.spawn(move || with_subscriber(holding, || read(1, stream)));
        thread::sleep(Duration::from_millis(100));
        stream_of_first.synchronize().unwrap_err();
        go.send(()).unwrap();
        second.join().unwrap().unwrap();
        let _copied_again_or_failed = first.join().unwrap();
    });
    assert_eq!(values_on(&array, &setup.s), [5.0; 20]);
}

/// A failed copy to the host provides no values, even if another caller received its failure. The next access copies
/// again, because the writer is known to have succeeded.
#[test]
fn a_failed_copy_whose_error_another_caller_received() {
    for setup in [Setup::peers(), Setup::apart()] {
        let mut array = ArrayBuffer::<f64, _>::uninit(50).unwrap();
        let mut guard = array.write(&setup.s).unwrap();
        guard.view_mut().unwrap().fill(&setup.s, 1.0).unwrap();
        guard.commit().unwrap();
        setup.s.synchronize().unwrap();
        SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 2));
        let reported = Arc::<AtomicUsize>::default();
        let (device, count) = (setup.a.clone(), reported.clone());
        let asks = Acts(move |_: &str| {
            if device.synchronize().is_err() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let read = with_subscriber(asks, || array.read_host().map(|values| values[0]));
        assert_eq!(reported.load(Ordering::Relaxed), 1);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::DeviceFault);
        assert_eq!(values(&array), [1.0; 50]);
    }
}

/// A copy to the device fails. The reader receives the failure, so its next access copies the values again.
#[test]
fn a_read_after_a_reported_failure_copies_the_values_again() {
    for setup in [Setup::peers(), Setup::apart()] {
        let array = ArrayBuffer::from_vec(vec![7.0; 50], 50).unwrap();
        SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
        let read = || array.read(&setup.s)?.view()?.to_vec(&setup.s);
        assert_eq!(read().unwrap_err().kind(), ErrorKind::Driver);
        assert!(!array.is_valid_on(&setup.a));
        assert_eq!(read().unwrap(), [7.0; 50]);
        assert_eq!(array.transfers().total().count, 2);
    }
}

/// Every access learns of a reported failure, also one that needs no copy.
#[test]
fn a_reported_failure_is_known_to_accesses_that_need_no_copy() {
    let failed = |access: &dyn Fn(&mut ArrayBuffer<f64, Ix1>, &Stream) -> ErrorKind| {
        let setup = Setup::peers();
        let mut array = ArrayBuffer::<f64, _>::uninit(50).unwrap();
        SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
        for value in [1.0, 2.0] {
            let mut guard = array.write(&setup.s).unwrap();
            guard.view_mut().unwrap().fill(&setup.s, value).unwrap();
            guard.commit().unwrap();
        }
        assert_eq!(setup.s.synchronize().unwrap_err().kind(), ErrorKind::Driver);
        assert_eq!(access(&mut array, &setup.s), ErrorKind::Poisoned);
    };
    failed(&|array, stream| array.read(stream).unwrap_err().kind());
    failed(&|array, stream| array.read_write(stream).unwrap_err().kind());
    failed(&|array, stream| array.prefetch(stream).unwrap_err().kind());
    failed(&|array, _| array.duplicate().map(drop).unwrap_err().kind());
    failed(&|array, _| {
        assert_eq!(array.status(0), PartStatus::Poisoned);
        array.read_host().unwrap_err().kind()
    });
}

/// The failure of earlier work is reported while a guard is held that needed no action.
#[test]
fn a_failure_that_is_reported_during_a_write_fails_its_commit() {
    let setup = Setup::peers();
    let mut array = ArrayBuffer::from_vec(vec![7.0; 50], 50).unwrap();
    let mut change = |stream: &Stream, is_last: bool| {
        if is_last {
            SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 4));
        }
        let mut guard = array.read_write(stream).unwrap();
        guard.view_mut().unwrap().fill(stream, 1.0).unwrap();
        if is_last {
            assert_eq!(stream.synchronize().unwrap_err().kind(), ErrorKind::Driver);
        }
        guard.commit()
    };
    change(&setup.s, false).unwrap();
    change(&setup.s, false).unwrap();
    assert_eq!(change(&setup.s, true).unwrap_err().kind(), ErrorKind::Poisoned);
}

/// The writer of `check_write` puts half of its guard in the place of the whole.
#[test]
fn a_guard_of_some_parts_is_no_complete_write() {
    let setup = Setup::peers();
    let array = || {
        let rows = Partition::new(&[2, 4], &[&[0..1, 0..4], &[1..2, 0..4]], &[]).unwrap();
        ArrayBuffer::from_array_with(Array2::<f64>::zeros((2, 4)), rows).unwrap()
    };
    let stream: &'static Stream = Box::leak(Box::new(setup.s.clone()));
    let mut checked = array();
    let outcome = checked.check_write(stream, |guard| {
        let other: &'static mut ArrayBuffer<f64, Ix2> = Box::leak(Box::new(array()));
        let (first, _second) =
            std::mem::replace(guard, other.write(stream)?).split_off(Parts::one(0));
        *guard = first;
        guard.view_mut()?.fill(stream, 1.0)
    });
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!([checked.status(0), checked.status(1)], [PartStatus::Poisoned; 2]);
}

/// A blocking copy of other memory reports the failure of the write.
#[test]
fn a_failed_write_whose_error_a_copy_received() {
    let setup = Setup::peers();
    let other = setup.a.memory_from_slice(&setup.s, &[0_u8; 4]).unwrap();
    let mut array = ArrayBuffer::<f64, _>::uninit(50).unwrap();
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 2));
    let mut guard = array.write(&setup.s).unwrap();
    guard.view_mut().unwrap().fill(&setup.s, 1.0).unwrap();
    guard.commit().unwrap();
    assert_eq!(other.to_vec(&setup.s).unwrap_err().kind(), ErrorKind::Driver);
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
}

/// A stream, and the stream made of its native handle, are one queue of work.
#[test]
fn a_failed_write_whose_error_another_handle_received() {
    let setup = Setup::peers();
    let mut array = ArrayBuffer::<f64, _>::uninit(50).unwrap();
    let interop = setup.a.interop().unwrap();
    // SAFETY: the handle is of a stream of this device, which outlives the other.
    let same = unsafe { interop.stream_from_native(setup.s.native()) }.unwrap();
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
    let mut guard = array.write(&setup.s).unwrap();
    guard.view_mut().unwrap().fill(&setup.s, 1.0).unwrap();
    guard.commit().unwrap();
    same.synchronize().unwrap_err();
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
}

/// A log subscriber panics after copies were enqueued.
#[test]
fn a_panic_in_the_middle_of_an_access() {
    let setup = Setup::peers();
    let mut array = counting(50);
    let other = setup.stream();
    // Memory on the device, so the first event is that of a copy.
    array.prefetch(&other).unwrap();
    array.write_host().unwrap().fill(-1.0);
    let gate = hold(&setup.s);
    let panicked = with_subscriber(Acts(|_: &str| panic!("as planned")), || {
        catch_unwind(AssertUnwindSafe(|| array.prefetch(&setup.s)))
    });
    assert!(panicked.is_err());
    array.write(&other).unwrap().view_mut().unwrap().fill(&other, 5.0).unwrap();
    // Without ordering, the write has finished by now, and the copy comes later.
    let _late = other.synchronize_for(Duration::from_millis(200));
    gate.open();
    setup.s.synchronize().unwrap();
    assert_eq!(values_on(&array, &other), [5.0; 50]);
    assert_eq!(array.status(0), PartStatus::Valid);
}

/// The pattern of a check would be what is read where nothing was written.
#[test]
fn a_checks_pattern_never_becomes_values() {
    let setup = Setup::peers();
    let stream: &'static Stream = Box::leak(Box::new(setup.s.clone()));
    let other = Box::leak(Box::new(ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap()));
    let mut array = ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap();
    let mut theirs = Some(other.read_write(stream).unwrap());
    let checked = array.check_write(stream, |guard| {
        guard.view_mut()?.slice(0..1)?.fill(stream, 3.0)?;
        if let Some(theirs) = theirs.take() {
            drop(std::mem::replace(guard, theirs));
        }
        Ok(())
    });
    assert_eq!(checked.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(array.status(0), PartStatus::Poisoned);
}

/// Otherwise an access that may be tried again is refused because of one that had failed.
#[test]
fn a_budget_counts_what_was_moved() {
    let setup = Setup::sim(common::quick().memory_bytes(1000));
    let full = setup.a.memory_allocate::<u8>(900).unwrap();
    let array = ArrayBuffer::from_vec(vec![1.0_f64; 20], 20).unwrap();
    let budget = TransferBudget::bytes(160, Direction::ToDevice);
    assert_eq!(array.read(&setup.s).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(budget.used(), 0);
    drop(full);
    array.read(&setup.s).unwrap();
    assert_eq!(budget.used(), 160);
}

#[test]
fn too_many_streams_are_refused_until_some_are_idle() {
    let setup = Setup::peers();
    let mut array = ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap();
    // The device's default stream is one of them.
    let streams: Vec<Stream> = (0..LANES - 1).map(|_| setup.stream()).collect();
    let gates: Vec<Gate> = streams.iter().map(hold).collect();
    streams.iter().for_each(|stream| drop(array.read_write(stream).unwrap()));
    let last = setup.stream();
    let refused = array.read_write(&last).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    assert!(refused.message().contains("until an exclusive access finds them idle"), "{refused}");
    gates.iter().for_each(Gate::open);
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    array.read_write(&last).unwrap();
}

#[test]
fn writes_on_the_host_forget_idle_streams() {
    let setup = Setup::peers();
    let mut array = ArrayBuffer::from_vec(vec![1.0; 4], 4).unwrap();
    for _ in 0..10 {
        let read_all = |array: &ArrayBuffer<f64, Ix1>| {
            for _ in 0..5 {
                let stream = setup.stream();
                drop(array.read(&stream).unwrap());
                stream.synchronize().unwrap();
            }
        };
        read_all(&array);
        array.write_host().unwrap().fill(1.0);
        read_all(&array);
        array.read_write_host().unwrap().fill(2.0);
        read_all(&array);
        array.accumulate_host(Reduce::Sum).unwrap().fill(3.0);
    }
}

#[test]
fn no_parts_need_no_memory() {
    let setup = Setup::peers();
    let mut array = ArrayBuffer::<f64, Ix1>::uninit(4).unwrap();
    assert!(array.part(Parts::NONE).unwrap().read_host().unwrap().is_empty());
    array.write(&setup.s).unwrap().view_mut().unwrap().fill(&setup.s, 1.0).unwrap();
    array.evict(&setup.a).unwrap();
    let [mut none] = array.split([Parts::NONE]).unwrap();
    assert!(none.read(&setup.s).unwrap().view().unwrap().is_empty());
    assert!(none.write(&setup.s).unwrap().view_mut().unwrap().is_empty());
    assert!(none.write_host().unwrap().is_empty());
}

#[test]
fn a_part_of_an_array_without_elements_is_read_and_written() {
    fn check<D: Dimension>(shape: &[usize]) {
        let setup = Setup::peers();
        let all: Vec<_> = shape.iter().map(|extent| 0..*extent).collect();
        let partition = Partition::new(shape, &[&all], &[&all]).unwrap();
        let mut array = ArrayBuffer::<f64, D>::with_partition(partition).unwrap();
        let [mut part] = array.split([Parts::one(0)]).unwrap();
        assert_eq!(part.write_host().unwrap().shape(), shape);
        assert_eq!(part.read_host().unwrap().shape(), shape);
        assert_eq!(part.write(&setup.s).unwrap().view_mut().unwrap().layout().shape(), shape);
        assert_eq!(part.read(&setup.s).unwrap().view().unwrap().layout().shape(), shape);
    }
    for shape in [[4, 0], [0, 4], [2, 0], [1 << 61, 0], [0, 1 << 61]] {
        check::<Ix2>(&shape);
    }
    for shape in [[2, 3, 0], [2, 0, 3], [0, 2, 3], [1 << 61, 3, 0]] {
        check::<IxDyn>(&shape);
    }
}

/// Does something when the thread that has it ends.
struct AtEnd(Box<dyn FnMut()>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A panic there would end the process: in destructors of thread-local values, when other such values are gone.
#[test]
fn threads_that_end_use_arrays() {
    thread_local! {
        static LAST: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }
    for setup in [Setup::peers(), Setup::host()] {
        let (sender, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let stream = setup.s.clone();
            // It is made first, and so dropped last.
            LAST.set(Some(AtEnd(Box::new(move || {
                let _scope = offload(&stream);
                let _budget = TransferBudget::forbid();
                let mut array = ArrayBuffer::from_vec(vec![1.0_f64; 4], 4).unwrap();
                let mut guard = array.read_write(&stream).unwrap();
                guard.view_mut().unwrap().fill(&stream, 2.0).unwrap();
                drop(guard);
                stream.synchronize().unwrap();
                let sum = array.read_host().unwrap().sum();
                sender.send((sum, here().is_none())).unwrap();
            }))));
            let _scope = offload(&setup.s);
            let _budget = TransferBudget::forbid();
            setup.s.synchronize().unwrap();
        });
        thread.join().unwrap();
        assert_eq!(ended.recv().unwrap(), (8.0, true));
    }
}

/// One `f64` column from slot 0 to slot 1.
fn five_from_slot_0_to_1() -> RegionCopy {
    let side = |slot| RegionSide { slot, offset: 0, strides: [8].into_iter().collect() };
    RegionCopy {
        dtype: DType::F64,
        extents: vec![5],
        source: side(0),
        destination: side(1),
        negate: false,
        combine: Combine::Replace,
    }
}

#[test]
fn a_write_of_no_element_is_no_write() {
    for setup in [Setup::apart(), Setup::host()] {
        let (device, s) = (&setup.a, &setup.s);
        let (other, t) = (&setup.b, &setup.t);
        let none = device.memory_allocate::<f64>(0).unwrap();
        let elsewhere = other.memory_allocate::<f64>(0).unwrap();
        let pinned = device.pinned_allocate::<f64>(0).unwrap();
        let plan = device.plan_regions(&[five_from_slot_0_to_1()]).unwrap();
        let kernels = device.module_load(&HostModule::new().with("none", none_of)).unwrap();
        let kernel = kernels.kernel("none").unwrap();
        type Write<'a> = &'a dyn Fn(MemoryViewMut<'_, f64>) -> runtime_core::Result<()>;
        let writes: [(&str, Write<'_>); 9] = [
            ("nothing", &|_| Ok(())),
            ("fill", &|view| view.slice(0..0)?.fill(s, 1.0)),
            ("fill_zero", &|view| view.slice(0..0)?.fill_zero(s)),
            ("from a slice", &|view| view.slice(0..0)?.copy_from_slice(s, &[])),
            ("from memory", &|view| view.slice(0..0)?.copy_from(s, &none.view())),
            ("from a device", &|view| view.slice(0..0)?.copy_from_device(s, &elsewhere.view(), t)),
            ("from pinned memory", &|view| view.slice(0..0)?.copy_from_pinned(s, &pinned)),
            ("a plan without its source", &|view| {
                plan.execute(s, &mut [Slot::Absent, view.into()])
            }),
            ("a launch", &|view| {
                let view = view.slice(0..0)?;
                // SAFETY: the kernel is safe Rust.
                unsafe { kernel.launch(s, &Launch::cover(1, 1), args![view]) }
            }),
        ];
        for (name, write) in writes {
            let mut array = ArrayBuffer::<f64, Ix1>::uninit(5).unwrap();
            let mut guard = array.write(s).unwrap();
            write(guard.view_mut().unwrap()).unwrap();
            let error = guard.commit().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{name}");
            assert!(error.to_string().contains("nothing was written"), "{name}: {error}");
        }
    }
}

fn none_of(_: &Grid<'_>, _: &mut [f64]) {}

#[test]
fn a_broadcast_that_fills_no_element_of_a_ghost_part_fails() {
    let setup = Setup::apart();
    let partition = Partition::with_ghosts(&[5], &[(1, 1)]).unwrap();
    let start = ndarray::arr1(&[-7.0, 1.0, 2.0, 3.0, -7.0]);
    let mut array = ArrayBuffer::from_array_with(start, partition).unwrap();
    let mut flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
    for ghost in [1, 2] {
        flight.target(ghost).unwrap().slice(0..0).unwrap().fill(&setup.s, 0.0).unwrap();
    }
    assert_eq!(flight.finish().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn an_array_made_of_memory_in_a_capture_ends_it() {
    let setup = Setup::apart();
    let mut memory = Some(setup.a.memory_from_slice(&setup.s, &[0.0_f64; 4]).unwrap());
    let graphs = setup.a.graphs().unwrap();
    let adopted = graphs.capture(|stream| {
        assert!(ArrayBuffer::from_memory(memory.take().unwrap(), 4, stream).is_err());
        Ok(())
    });
    assert_eq!(adopted.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_wait_that_a_kernel_is_refused_loses_no_values() {
    for setup in [Setup::apart(), Setup::host()] {
        let (device, s) = (&setup.a, &setup.s);
        let mut array = ArrayBuffer::from_vec(vec![0.0; 4], 4).unwrap();
        set(&mut array.write(s).unwrap(), s, 7.0).unwrap();
        let (stream, whole) = (s.clone(), device.clone());
        let waits = move |_: &Grid<'_>| {
            assert!(stream.synchronize().unwrap_err().is_refused_wait());
            assert!(whole.synchronize().unwrap_err().is_refused_wait());
        };
        let module = device.module_load(&HostModule::new().with("waits", waits)).unwrap();
        let kernel = module.kernel("waits").unwrap();
        // SAFETY: the kernel is safe Rust.
        unsafe { kernel.launch(s, &Launch::cover(1, 1), args![]) }.unwrap();
        s.synchronize().unwrap();
        assert_eq!(s.failures(), 0);
        assert_eq!(values(&array), [7.0; 4]);
    }
}

#[test]
fn a_subscriber_that_panics_again_while_a_loan_ends() {
    let setup = Setup::apart();
    let s = &setup.s;
    let mut lent = Array1::<f64>::zeros(8);
    let ended = with_subscriber(Acts(|_: &str| panic!("a subscriber panics")), || {
        catch_unwind(AssertUnwindSafe(|| {
            array_buffer::lend(lent.view_mut(), |mut array| {
                // Without events: those of the access would panic before the loan ends.
                tracing::subscriber::with_default(NoSubscriber::default(), || {
                    set(&mut array.write(s).unwrap(), s, 7.0).unwrap();
                });
            })
        }))
    });
    assert!(ended.is_err());
}

/// The kernel's frame owns the memory, and the fill would run after it.
#[cfg_attr(miri, ignore = "Miri cannot start processes")]
#[test]
fn a_kernel_that_lends_to_its_own_stream_ends_the_process() {
    const CHILD: &str = "ARRAY_BUFFER_TEST_LENDS_IN_A_KERNEL";
    if std::env::var_os(CHILD).is_none() {
        let name = "a_kernel_that_lends_to_its_own_stream_ends_the_process";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success());
        assert!(printed.contains("lend: a kernel enqueued work on a lent array"), "{printed}");
        return;
    }
    let setup = Setup::host();
    let (device, s) = (&setup.a, &setup.s);
    let stream = s.clone();
    let lends = move |_: &Grid<'_>| {
        let mut lent = Array1::<f64>::zeros(8);
        let _ = array_buffer::lend(lent.view_mut(), |mut array| {
            array.write(&stream)?.view_mut()?.fill(&stream, 7.0)
        });
    };
    let module = device.module_load(&HostModule::new().with("lends", lends)).unwrap();
    let kernel = module.kernel("lends").unwrap();
    // SAFETY: the kernel is safe Rust.
    unsafe { kernel.launch(s, &Launch::cover(1, 1), args![]) }.unwrap();
    let _ = s.synchronize();
}

/// While an array is duplicated, another thread receives the failure of its last writer.
#[test]
fn a_failure_that_is_reported_during_a_duplication_reaches_the_copy() {
    const N: usize = 60;
    fn set(_: &Grid<'_>, x: &mut [f64], value: f64) {
        x[N + 1..N * (N - 1) - 1].fill(value);
    }
    // Region copies are emulated, so the copy takes a while.
    let config = SimConfig::new().region_copies(false);
    let hang = Fault::hang(1, Duration::from_millis(30));
    let config = config.fault(hang).fault(Fault::fail_late(Operation::Launch, 2));
    let device = Device::new(SimDevice::new(0, config)).unwrap();
    let (first, second) =
        (device.default_stream(), device.stream_create(&StreamOptions::default()));
    let second = second.unwrap();
    let module = device.module_load(&HostModule::new().with("set", set)).unwrap();
    let kernel = module.kernel("set").unwrap();
    let partition = Partition::with_ghosts(&[N, N], &[(1, 1), (1, 1)]).unwrap();
    let zeros = Array2::<f64>::zeros((N, N));
    let mut array = ArrayBuffer::from_array_with(zeros, partition).unwrap();
    let owned = array.partition().owned();
    array.prefetch(&first).unwrap();
    first.synchronize().unwrap();
    let [mut part] = array.split([owned]).unwrap();
    let mut guard = part.read_write(&second).unwrap();
    for value in [1.0, 2.0] {
        // SAFETY: the kernel writes only elements of the part that the guard holds.
        let whole = unsafe { guard.whole_mut() }.unwrap();
        let args = args![whole, value];
        // SAFETY: as above.
        unsafe { kernel.launch(&second, &Launch::cover(1, 1), args) }.unwrap();
    }
    guard.commit().unwrap();
    let copy = thread::scope(|scope| {
        let copy = scope.spawn(|| array.duplicate());
        thread::sleep(Duration::from_millis(5));
        second.synchronize().unwrap_err();
        assert_eq!(array.status(0), PartStatus::Poisoned);
        copy.join().unwrap()
    });
    if let Ok(copy) = copy {
        copy.part(owned).unwrap().read_host().unwrap_err();
    }
}

/// Failures of work on other memory are reported by the streams of that work.
#[test]
fn lending_leaves_the_failures_of_other_work_to_its_streams() {
    let setup = Setup::peers();
    let (s, t) = (&setup.s, &setup.t);
    let [mut a, mut b] =
        [&setup.a, &setup.b].map(|device| device.memory_allocate::<f64>(4).unwrap());
    let mut values = ndarray::array![1.0, 2.0];
    array_buffer::lend(values.view_mut(), |array| {
        array.read(s).unwrap();
        array.read(t).unwrap();
        for (stream, memory) in [(s, &mut a), (t, &mut b)] {
            let sim = SimHandle::of(stream.device()).unwrap();
            let fills = sim.counts().on_device.count;
            let copies = sim.counts().to_device.count + sim.counts().from_device.count;
            let next = fills + copies + sim.counts().from_peers.count + 1;
            sim.inject(Fault::fail_late(Operation::Copy, next));
            memory.fill(stream, 1.0).unwrap();
        }
    })
    .unwrap();
    s.synchronize().unwrap_err();
    t.synchronize().unwrap_err();
    assert_eq!(values.to_vec(), [1.0, 2.0]);
}
