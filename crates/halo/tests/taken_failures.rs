//! Exchanges behind a failure, while another caller takes the failure between two of their steps: what the device
//! skipped before must not become values.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]
#![expect(unsafe_code, reason = "launches a kernel without arguments")]

#[allow(dead_code, reason = "this test needs few of the defects")]
#[path = "../../conformance/tests/planted_defects/faulty_device.rs"]
mod faulty_device;
mod ring;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice};
use faulty_device::{Broken, FaultyDevice, hook_behind};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Combine, Dim, ErrorKind, Field, FieldSpec, HaloExchange, HaloOptions, HaloTransformer,
    InFlight, MissingCorners, Quantity, Result, Staging, Topology,
};
use ring::{expected, join, ring, spec, values};
use runtime_core::{DType, Device, Grid, HostModule, Launch, Stream, WriteReport};

const LONG: Duration = Duration::from_secs(60);

fn host(broken: Broken) -> Device {
    Device::new(FaultyDevice::new(HostDevice::with_threads(0, 2).unwrap(), broken)).unwrap()
}

fn sim(broken: Broken) -> Device {
    Device::new(FaultyDevice::new(SimDevice::new(0, SimConfig::new()), broken)).unwrap()
}

/// Devices with and without region copies, and one that skips also copies from the host.
fn devices() -> [Device; 5] {
    [
        host(Broken::Nothing),
        sim(Broken::Nothing),
        host(Broken::RegionsAreAbsent),
        sim(Broken::RegionsAreAbsent),
        sim(Broken::MemoryCopyToIsSkipped),
    ]
}

fn options(direct: bool, staging: Staging) -> HaloOptions {
    HaloOptions { direct, staging, timeout: LONG, ..Default::default() }
}

/// Enqueues work that fails.
fn fail(stream: &Stream) {
    let fail = |_: &Grid<'_>| -> std::result::Result<(), String> { Err("on purpose".into()) };
    let module = stream.device().module_load(&HostModule::new().with("fail", fail)).unwrap();
    let kernel = module.kernel("fail").unwrap();
    // SAFETY: the kernel has no arguments.
    unsafe { kernel.launch(stream, &Launch::cover(1, 1), &[]) }.unwrap();
}

fn disarm() {
    hook_behind(0, || {});
}

/// Calls `operation` behind a failure. Behind the step of that number, another caller takes the failure. The operation
/// has to fail exactly if anybody took a failure during it. Returns its result, and whether there was such a step.
fn behind_a_failure<R>(
    step: usize,
    stream: &Stream,
    operation: impl FnOnce() -> Result<R>,
) -> (Result<R>, bool) {
    fail(stream);
    let fired = Rc::new(Cell::new(false));
    let (by, of, before) = (Rc::clone(&fired), stream.clone(), stream.failures());
    hook_behind(step, move || {
        by.set(true);
        drop(of.synchronize());
    });
    let done = operation();
    let was_taken = stream.failures() != before;
    disarm();
    let error = done.as_ref().err();
    assert_eq!(error.is_some(), was_taken, "step {step} on {:?}: {error:?}", stream.device());
    assert!(error.is_none_or(|error| error.kind() == ErrorKind::DeviceFault), "{error:?}");
    assert_eq!(stream.synchronize().is_err(), !was_taken);
    (done, fired.get())
}

/// Calls `operation` with each step of an operation, until it says that there is no such step. At least one call fails.
fn for_each_step(mut operation: impl FnMut(usize) -> (bool, bool)) {
    let mut failures = 0;
    for step in 0.. {
        let (is_done, more) = operation(step);
        failures += usize::from(!is_done);
        if !more {
            break;
        }
    }
    assert!(failures > 0, "no failure was taken between steps");
}

#[test]
fn an_exchange_by_messages_is_complete_or_fails() {
    type Begin = for<'a, 'f> fn(
        &'a mut HaloExchange,
        &Stream,
        &'a mut [Field<'f>],
    ) -> Result<InFlight<'a, 'f>>;
    let begins: [Begin; 3] = [
        |halo, stream, fields| halo.start(stream, fields),
        |halo, stream, fields| halo.start_reduce(stream, fields, Combine::Sum),
        |halo, stream, fields| halo.start_reduce(stream, fields, Combine::Replace),
    ];
    for (device, staging, begin) in devices().iter().flat_map(|device| {
        let stagings = [Staging::Pinned, Staging::Device];
        let calls = stagings.into_iter().flat_map(|staging| begins.map(|begin| (staging, begin)));
        calls.map(move |(staging, begin)| (device, staging, begin))
    }) {
        for_each_step(|step| {
            let options = options(false, staging);
            let made = ThreadCommunicator::run(2, |ranks| join(Arc::new(ranks), device, &options));
            let mut halos = made.unwrap().into_iter().map(Result::unwrap);
            let (mut halo, mut other_halo) = (halos.next().unwrap(), halos.next().unwrap());
            let [stream, other] =
                [0, 1].map(|_| device.stream_create(&Default::default()).unwrap());
            let (mut own, mut others) = (values(0, &stream), values(1, &other));
            let report = WriteReport::new();
            let view = own.view_mut().reporting_to(&report).unwrap();
            // One thread runs both ranks in turn.
            let (done, more) = behind_a_failure(step, &stream, || {
                let (mut fields, mut other_fields) = ([view.into()], [others.view_mut().into()]);
                let mut flight = begin(&mut halo, &stream, &mut fields)?;
                let mut other = begin(&mut other_halo, &other, &mut other_fields).unwrap();
                let start = Instant::now();
                while !flight.poll()? {
                    assert!(start.elapsed() < LONG);
                    other.poll().unwrap();
                }
                disarm();
                other.finish().unwrap();
                Ok(())
            });
            assert!(!report.wrote() || report.failed() == done.is_err(), "{report:?}");
            (done.is_ok(), more)
        });
    }
}

/// The launch that packs is skipped, and the copies of the messages to pinned memory run.
#[test]
fn messages_that_were_packed_in_part_are_not_sent() {
    for device in [host(Broken::Nothing), sim(Broken::Nothing)] {
        let timeout = Duration::from_millis(200);
        let options = HaloOptions { timeout, ..options(false, Staging::Pinned) };
        let made = ThreadCommunicator::run(2, |ranks| join(Arc::new(ranks), &device, &options));
        let mut halos = made.unwrap().into_iter().map(Result::unwrap);
        let (mut halo, mut other_halo) = (halos.next().unwrap(), halos.next().unwrap());
        let [stream, other] = [0, 1].map(|_| device.stream_create(&Default::default()).unwrap());
        let (mut own, mut others) = (values(0, &stream), values(1, &other));
        let mut other_fields = [others.view_mut().into()];
        let mut other = other_halo.start(&other, &mut other_fields).unwrap();
        let (done, _) = behind_a_failure(0, &stream, || {
            let mut fields = [own.view_mut().into()];
            let mut flight = halo.start(&stream, &mut fields)?;
            while !flight.poll()? {
                other.poll().unwrap();
            }
            Ok(())
        });
        done.unwrap_err();
        assert_eq!(other.finish().unwrap_err().kind(), ErrorKind::Timeout);
    }
}

#[test]
fn an_exchange_by_direct_reads_is_complete_or_fails() {
    for device in devices() {
        for_each_step(|step| {
            let outcomes = ThreadCommunicator::run(2, |ranks| {
                let rank = ranks.rank();
                let mut halo =
                    join(Arc::new(ranks), &device, &options(true, Staging::Auto)).unwrap();
                let stream = device.stream_create(&Default::default()).unwrap();
                let mut values = values(rank, &stream);
                let report = WriteReport::new();
                let mut fields = [values.view_mut().reporting_to(&report).unwrap().into()];
                let mut exchange = || halo.exchange(&stream, &mut fields);
                if rank == 1 {
                    exchange().unwrap();
                    assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
                    return (true, false);
                }
                let (done, more) = behind_a_failure(step, &stream, exchange);
                assert!(!report.wrote() || report.failed() == done.is_err(), "{report:?}");
                if done.is_err() {
                    let again = halo.exchange(&stream, &mut [values.view_mut().into()]);
                    assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
                }
                (done.is_ok(), more)
            });
            outcomes.unwrap()[0]
        });
    }
}

#[test]
fn packing_and_unpacking_are_complete_or_fail() {
    for (device, staging) in
        devices().iter().flat_map(|device| [(device, Staging::Pinned), (device, Staging::Device)])
    {
        let stream = device.default_stream();
        let options = options(false, staging);
        let quantities = [Quantity::scalar(spec("f"))];
        let mut halo = HaloTransformer::new(&ring(2), 0, &quantities, device, &options).unwrap();
        let mut memory = values(0, &stream);
        for_each_step(|step| {
            let pack = || halo.pack(&stream, &mut [memory.view_mut().into()]);
            let (packed, more) = behind_a_failure(step, &stream, pack);
            (packed.is_ok(), more)
        });
        for_each_step(|step| {
            let mut messages = halo.incoming().unwrap();
            for message in &mut messages {
                let bytes = message.buffer().unwrap().len();
                message.copy_from_slice(&vec![0; bytes]).unwrap();
            }
            let unpack = || halo.unpack(&stream, &mut [memory.view_mut().into()], messages);
            let (unpacked, more) = behind_a_failure(step, &stream, unpack);
            (unpacked.is_ok(), more)
        });
        // All buffers have come back.
        halo.pack(&stream, &mut [memory.view_mut().into()]).unwrap();
    }
}

/// A rank of a cubed sphere, whose corners have no cells, and the length of its field.
fn at_a_corner(device: &Device, missing_corners: MissingCorners) -> (HaloTransformer, [usize; 2]) {
    let dims = [0, 1].map(|axis| Dim::axis(axis, 3).halo(1, 1));
    let quantities = [Quantity::scalar(FieldSpec::new("f", DType::F64, &dims).unwrap())];
    let topology = Topology::cubed_sphere(3, [1, 1]).unwrap();
    let options = HaloOptions { missing_corners, ..options(false, Staging::Auto) };
    (HaloTransformer::new(&topology, 0, &quantities, device, &options).unwrap(), [5, 5])
}

#[test]
fn averages_at_corners_are_complete_or_fail() {
    for device in devices() {
        let stream = device.default_stream();
        let (mut halo, shape) = at_a_corner(&device, MissingCorners::Average);
        let mut memory = device.memory_from_slice(&stream, &[1.0_f64; 25]).unwrap();
        for_each_step(|step| {
            let view = memory.view_mut().reshape(&shape).unwrap();
            let average = || halo.average_corners(&stream, &mut [view.into()]);
            let (averaged, more) = behind_a_failure(step, &stream, average);
            (averaged.is_ok(), more)
        });
    }
}

#[test]
fn constants_for_corners_get_to_the_device_behind_a_failure() {
    for device in devices() {
        let stream = device.default_stream();
        fail(&stream);
        let (mut halo, shape) = at_a_corner(&device, MissingCorners::Fill(7.0));
        stream.synchronize().unwrap_err();
        let mut memory = device.memory_from_slice(&stream, &[1.0_f64; 25]).unwrap();
        halo.pack(&stream, &mut [memory.view_mut().reshape(&shape).unwrap().into()]).unwrap();
        let found = memory.to_vec(&stream).unwrap();
        assert_eq!([found[0], found[4], found[20], found[24]], [7.0; 4], "{device:?}");
    }
}

/// Each rank has opened the device itself, or has another staging, so a thread of one rank copies from and to the memory
/// of the other. It neither waits for work on the streams of that rank's program nor returns its failure.
#[test]
fn other_work_of_a_rank_stays_its_own() {
    let shared = sim(Broken::Nothing);
    for is_shared in [false, true] {
        for busy in [0, 1] {
            let both = Barrier::new(2);
            let outcomes = ThreadCommunicator::run(2, |ranks| {
                let rank = ranks.rank();
                let device = if is_shared { shared.clone() } else { sim(Broken::Nothing) };
                let staging = [Staging::Pinned, Staging::Device][usize::from(!is_shared) | rank];
                let stream = device.stream_create(&Default::default())?;
                let program = device.default_stream();
                let mut halo = join(Arc::new(ranks), &device, &options(false, staging))?;
                let mut own = values(rank, &stream);
                stream.synchronize()?;
                let (gate, opener) = device.gate()?;
                if rank == busy {
                    program.hold_until(&gate)?;
                }
                both.wait();
                ring::exchange(&mut halo, &stream, &mut own)?;
                both.wait();
                opener.open();
                if rank == busy {
                    fail(&program);
                }
                both.wait();
                ring::exchange(&mut halo, &stream, &mut own)?;
                assert_eq!(own.to_vec(&stream)?, expected(rank, 2));
                both.wait();
                // One call gets the failure of a stream that both ranks have.
                if rank == busy || !is_shared {
                    assert_eq!(program.synchronize().is_err(), rank == busy);
                }
                Ok(())
            });
            outcomes.unwrap().into_iter().collect::<Result<()>>().unwrap();
        }
    }
}
