//! Safe code that attempts to read values that were never written, or that are being written.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "the gate launches a kernel")]

mod common;
#[path = "../../interchange/tests/common/gate.rs"]
mod gate;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use array_buffer::{ArrayBuffer, ErrorKind, PartStatus, Partition, Parts};
use backend_sim::{Fault, Operation, SimHandle};
use common::{Rig, counting, set, values, values_on};
use gate::{Gate, start};
use ndarray::{Array2, Ix2};
use runtime_core::Stream;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the stream busy.
fn hold(stream: &Stream) -> Gate {
    start(&mut stream.device().memory_allocate::<f64>(1).unwrap(), stream)
}

#[test]
fn memory_with_work_on_another_stream() {
    for rig in [Rig::peers(), Rig::apart(), Rig::host()] {
        let mut memory = rig.a.memory_from_slice(&rig.s, &[0.0_f64; 4]).unwrap();
        let other = rig.stream();
        let gate = hold(&other);
        memory.fill(&other, 7.0).unwrap();
        let array = ArrayBuffer::from_memory(memory, 4, &rig.s).unwrap();
        assert!(!gate.is_open());
        gate.open_later();
        assert_eq!(values(&array), [7.0; 4]);
    }
}

/// Corners that an exchange over faces leaves out.
#[test]
fn corners_that_nobody_wrote() {
    let rig = Rig::peers();
    let partition = Partition::with_ghosts(&[4, 5], &[(1, 1), (1, 1)]).unwrap();
    let sides = partition.exchanged();
    let mut array = ArrayBuffer::<f64, Ix2>::with_partition(partition).unwrap();
    let [mut own, mut ghosts] = array.split([Parts::one(0), sides]).unwrap();
    set(&mut own.write(&rig.s).unwrap(), &rig.s, 1.0).unwrap();
    let mut arriving = ghosts.write(&rig.s).unwrap();
    // SAFETY: only the elements of each side are filled, one row or column at a time.
    assert_eq!(unsafe { arriving.whole_mut() }.unwrap().len(), 20);
    for side in sides.iter() {
        let mut view = arriving.part_mut(side).unwrap();
        let columns = view.layout().shape()[1];
        for row in 0..view.layout().shape()[0] {
            let row = view.reborrow().region(&[row..row + 1, 0..columns]).unwrap();
            row.reshape(&[columns]).unwrap().fill(&rig.s, 2.0).unwrap();
        }
    }
    arriving.commit().unwrap();
    for error in [array.read_host().unwrap_err(), array.read(&rig.t).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        assert!(error.message().contains("part 5"), "{error}");
    }
    let cross = array.part(Parts::one(0) | sides).unwrap();
    assert_eq!(cross.read(&rig.t).unwrap().parts().len(), 5);
    let west = array.part(Parts::one(3)).unwrap();
    assert_eq!(*west.read_host().unwrap(), Array2::from_elem((2, 1), 2.0));
}

/// The array drops idle streams from its list although their work may have failed.
#[test]
fn a_failed_writer_among_many_streams() {
    for reported in [false, true] {
        let rig = Rig::peers();
        let mut array = ArrayBuffer::<f64, _>::uninit(50).unwrap();
        let failing = rig.stream();
        SimHandle::of(&rig.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
        let mut guard = array.write(&failing).unwrap();
        guard.view_mut().unwrap().fill(&failing, 1.0).unwrap();
        guard.commit().unwrap();
        while !failing.is_done().unwrap() {
            thread::yield_now();
        }
        // Together with the default stream, these fill the array's list of streams.
        let crowd: Vec<Stream> = (0..14).map(|_| rig.stream()).collect();
        for stream in &crowd {
            drop(array.read(stream).unwrap());
        }
        crowd.iter().for_each(|stream| stream.synchronize().unwrap());
        if reported {
            failing.synchronize().unwrap_err();
        }
        let fresh = rig.stream();
        let error = array.read_write(&fresh).unwrap_err();
        let expected = if reported { ErrorKind::Poisoned } else { ErrorKind::Driver };
        assert_eq!(error.kind(), expected, "{error}");
        assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
        set(&mut array.write(&fresh).unwrap(), &fresh, 2.0).unwrap();
        assert_eq!(values(&array), [2.0; 50]);
    }
}

/// A subscriber that panics at every event.
struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        panic!("as planned");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A log subscriber panics after copies were enqueued.
#[test]
fn a_panic_in_the_middle_of_an_access() {
    let rig = Rig::peers();
    let mut array = counting(50);
    let other = rig.stream();
    // Memory on the device, so the first event is that of a copy.
    array.prefetch(&other).unwrap();
    array.write_host().unwrap().fill(-1.0);
    let gate = hold(&rig.s);
    let panicked = tracing::subscriber::with_default(Panics, || {
        catch_unwind(AssertUnwindSafe(|| array.prefetch(&rig.s)))
    });
    assert!(panicked.is_err());
    array.write(&other).unwrap().view_mut().unwrap().fill(&other, 5.0).unwrap();
    // Without ordering, the write has finished by now, and the copy comes later.
    let _late = other.synchronize_for(Duration::from_millis(200));
    gate.open();
    rig.s.synchronize().unwrap();
    assert_eq!(values_on(&array, &other), [5.0; 50]);
    assert_eq!(array.status(0), PartStatus::Valid);
}
