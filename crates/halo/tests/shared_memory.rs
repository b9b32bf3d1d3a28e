//! Fields of two ranks in one memory, which both ranks adopted: fields that share elements are refused.
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]
#![expect(unsafe_code, reason = "adopts memory")]

mod ring;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use backend_host::HostDevice;
use backend_sim::{Fault, Operation, SimConfig, SimDevice, SimHandle};
use halo::communicator::{Communicator, Faults, FaultyCommunicator, ThreadCommunicator};
use halo::{
    Combine, Error, ErrorKind, Field, HaloExchange, HaloOptions, Quantity, Result, Staging,
    Topology,
};
use ring::{expected, join, spec, values};
use runtime_core::{Device, Memory, NativeHandle, Stream};

/// The timeout of the exchanges. No rank waits that long.
const LONG: Duration = Duration::from_secs(60);

type Use = fn(&mut HaloExchange, &Stream, &mut [Field<'_>]) -> Result<()>;

fn host() -> Device {
    Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap()
}

fn sim() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new().jitter(Duration::from_micros(100)))).unwrap()
}

fn options(direct: bool, staging: Staging) -> HaloOptions {
    HaloOptions { direct, staging, timeout: LONG, ..Default::default() }
}

/// Adopts five elements of a memory, starting with this one.
fn adopted(device: &Device, memory: &Arc<Memory<f64>>, first: usize) -> Memory<f64> {
    let native = memory.native().unwrap();
    let raw = native.raw + first * size_of::<f64>();
    let handle = NativeHandle { api: device.native().api, raw, ..native };
    // SAFETY: the memory is freed after its owners. Ranks access elements at the same time only if these are apart,
    // which is what the tests show.
    unsafe { device.memory_adopt(handle, 5, Arc::clone(memory)) }.unwrap()
}

fn exchange(halo: &mut HaloExchange, memory: &mut Memory<f64>) -> Result<()> {
    let stream = halo.device().default_stream();
    halo.exchange(&stream, &mut [memory.view_mut().into()])
}

/// The next allocation fails.
fn refuse_memory(device: &Device) {
    let sim = SimHandle::of(device).unwrap();
    let next = sim.counts().allocations + sim.counts().pinned_allocations + 1;
    sim.inject(Fault::fail(Operation::Allocation, next));
}

/// Counts ranks. A rank that waits for others sends them nothing.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn raise(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn wait_for(&self, count: usize) {
        let start = Instant::now();
        while self.0.load(Ordering::SeqCst) < count {
            assert!(start.elapsed() < LONG / 4, "another rank waits or has failed");
            thread::yield_now();
        }
    }
}

/// Whether the error names the fields of these ranks.
fn check(error: &Error, ranks: [usize; 2]) {
    let words =
        |[a, b]: [usize; 2]| format!("field f of rank {a} and field f of rank {b} share elements");
    let [one, other] = [ranks, [ranks[1], ranks[0]]].map(words);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().ends_with(&one) || error.message().ends_with(&other), "{error}");
}

/// Both ranks get the error, soon. After a reset they exchange other fields.
fn refuse(
    devices: &[Device; 2],
    first: usize,
    options: &HaloOptions,
    one_use: Use,
    wrap: fn(ThreadCommunicator) -> Arc<dyn Communicator>,
) {
    let memory = Arc::new(devices[0].memory_allocate(10).unwrap());
    let refused = Count::default();
    ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let device = &devices[rank];
        let stream = device.stream_create(&Default::default()).unwrap();
        let mut halo = join(wrap(ranks), device, options).unwrap();
        let mut own = adopted(device, &memory, rank * first);
        let used = one_use(&mut halo, &stream, &mut [own.view_mut().into()]);
        check(&used.unwrap_err(), [0, 1]);
        refused.raise();
        refused.wait_for(2);
        let again = one_use(&mut halo, &stream, &mut [own.view_mut().into()]);
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict, "no reset");
        halo.reset().unwrap();
        let mut good = values(rank, &stream);
        for _ in 0..3 {
            halo.exchange(&stream, &mut [good.view_mut().into()]).unwrap();
            assert_eq!(good.to_vec(&stream).unwrap(), expected(rank, 2));
        }
    })
    .unwrap();
}

/// For every operation and path, on one device and on two. Owned values, or ghosts only, are shared.
#[test]
fn fields_of_two_ranks_that_share_elements_are_refused_on_every_path() {
    let uses: [Use; 5] = [
        |halo, stream, fields| halo.exchange(stream, fields),
        |halo, stream, fields| halo.start(stream, fields)?.finish(),
        |halo, stream, fields| {
            let mut flight = halo.start(stream, fields)?;
            while !flight.poll()? {}
            Ok(())
        },
        |halo, stream, fields| halo.reduce(stream, fields, Combine::Sum),
        |halo, stream, fields| {
            halo.overlap(stream, fields, |progress| {
                while !progress.poll()? {
                    thread::yield_now();
                }
                Ok(())
            })
        },
    ];
    let paths = [Staging::Pinned, Staging::Device, Staging::Auto].map(|way| options(false, way));
    for (open, other) in [(host as fn() -> Device, sim as fn() -> Device), (sim, host)] {
        let one = open();
        for devices in [[one.clone(), one], [open(), open()], [open(), other()]] {
            for options in paths.iter().chain(&[options(true, Staging::Auto)]) {
                for (one_use, first) in uses.into_iter().zip([0, 3, 4, 1, 3]) {
                    refuse(&devices, first, options, one_use, |ranks| Arc::new(ranks));
                }
                refuse(&devices, 4, options, uses[0], |ranks| Arc::new(ranks));
            }
            refuse(&devices, 3, &paths[0], uses[0], |ranks| {
                Arc::new(FaultyCommunicator::new(ranks, Faults::new(1)))
            });
        }
    }
}

/// A rank uses its own memory, and gave out its address.
#[test]
fn a_rank_cannot_use_adopted_memory_that_is_a_field_of_another_rank() {
    for direct in [false, true] {
        let device = sim();
        let memory = device.memory_allocate::<f64>(5).unwrap();
        let handle = memory.native().unwrap();
        // SAFETY: all work is done before the memory is dropped, and at most one rank enqueues any.
        let adopted = unsafe { device.memory_adopt(handle, 5, ()) }.unwrap();
        let both = [memory, adopted].map(Mutex::new);
        ThreadCommunicator::run(2, |ranks| {
            let mut own = both[ranks.rank()].lock().unwrap();
            let mut halo = join(Arc::new(ranks), &device, &options(direct, Staging::Auto)).unwrap();
            check(&exchange(&mut halo, &mut own).unwrap_err(), [0, 1]);
        })
        .unwrap();
        device.synchronize().unwrap();
    }
}

#[test]
fn fields_of_two_ranks_that_are_apart_in_one_memory_are_accepted() {
    for (open, direct) in [(host as fn() -> Device, false), (host, true), (sim, false), (sim, true)]
    {
        let device = open();
        let stream = device.default_stream();
        let memory = Arc::new(device.memory_from_slice(&stream, &[0.0_f64; 10]).unwrap());
        stream.synchronize().unwrap();
        ThreadCommunicator::run(2, |ranks| {
            let rank = ranks.rank();
            let stream = device.default_stream();
            let mut own = adopted(&device, &memory, 5 * rank);
            let mut halo = join(Arc::new(ranks), &device, &options(direct, Staging::Auto)).unwrap();
            for _ in 0..5 {
                own.view_mut().copy_from(&stream, &values(rank, &stream).view()).unwrap();
                exchange(&mut halo, &mut own).unwrap();
                assert_eq!(own.to_vec(&stream).unwrap(), expected(rank, 2));
            }
        })
        .unwrap();
    }
}

/// Three ranks in a line. The first and the last are no neighbours, and the first is done before the last starts.
fn in_a_line(direct: bool, f: impl Fn(usize, &mut HaloExchange, &Count, &Arc<Memory<f64>>) + Sync) {
    let device = sim();
    let memory = Arc::new(device.memory_allocate(5).unwrap());
    let done = Count::default();
    let topology = Topology::cartesian(&[9], &[3], &[false]).unwrap();
    ThreadCommunicator::run(3, |ranks| {
        let rank = ranks.rank();
        let options = options(direct, Staging::Device);
        let fields = [Quantity::scalar(spec("f"))];
        let mut halo =
            HaloExchange::new(Arc::new(ranks), &topology, &fields, &device, &options).unwrap();
        f(rank, &mut halo, &done, &memory);
    })
    .unwrap();
}

#[test]
fn a_rank_that_is_ahead_learns_that_it_shared_elements() {
    in_a_line(false, |rank, halo, done, memory| {
        let device = halo.device().clone();
        let mut own = match rank {
            1 => device.memory_allocate(5).unwrap(),
            _ => adopted(&device, memory, 0),
        };
        match rank {
            0 => {
                exchange(halo, &mut own).unwrap();
                done.raise();
            }
            1 => {}
            _ => done.wait_for(1),
        }
        check(&exchange(halo, &mut own).unwrap_err(), [0, 2]);
        // No rank wakes the others by leaving.
        done.raise();
        done.wait_for(4);
    });
}

#[test]
fn elements_may_pass_to_another_rank_when_the_first_has_dropped_its_memory() {
    in_a_line(false, |rank, halo, done, memory| {
        let device = halo.device().clone();
        if rank == 2 {
            done.wait_for(1);
        }
        let mut own = match rank {
            1 => device.memory_allocate(5).unwrap(),
            _ => adopted(&device, memory, 0),
        };
        exchange(halo, &mut own).unwrap();
        drop(own);
        if rank == 0 {
            done.raise();
        }
    });
}

#[test]
fn an_exchange_that_did_not_start_uses_no_elements() {
    let device = sim();
    let memory = Arc::new(device.memory_allocate(5).unwrap());
    let both = Count::default();
    ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let options = options(false, Staging::Device);
        let mut halo = join(Arc::new(ranks), &device, &options).unwrap();
        let mut own = adopted(&device, &memory, 0);
        let stream = device.default_stream();
        both.raise();
        both.wait_for(2 + rank);
        if rank == 0 {
            refuse_memory(&device);
        }
        let started = halo.start(&stream, &mut [own.view_mut().into()]).map(drop);
        let kind = started.err().map(|error| error.kind());
        assert_eq!(kind, (rank == 0).then_some(ErrorKind::OutOfMemory));
        both.raise();
        // No rank drops its memory before the other has started.
        both.wait_for(4);
    })
    .unwrap();
}

/// All ranks have compared their fields when the start of the second fails.
#[test]
fn a_rank_whose_start_failed_cannot_start_with_elements_of_another_rank() {
    let device = sim();
    let memory = Arc::new(device.memory_allocate(5).unwrap());
    let both = Count::default();
    ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let options = options(false, Staging::Device);
        let mut halo = join(Arc::new(ranks), &device, &options).unwrap();
        let stream = device.default_stream();
        let mut own = adopted(&device, &memory, 0);
        let refused = if rank == 0 {
            let mut fields = [own.view_mut().into()];
            let flight = halo.start(&stream, &mut fields).unwrap();
            both.raise();
            both.wait_for(2);
            flight.finish().unwrap_err()
        } else {
            both.wait_for(1);
            let mut other = values(1, &stream);
            refuse_memory(&device);
            let started = halo.start(&stream, &mut [other.view_mut().into()]).map(drop);
            assert_eq!(started.unwrap_err().kind(), ErrorKind::OutOfMemory);
            let started = halo.start(&stream, &mut [own.view_mut().into()]).map(drop);
            both.raise();
            started.unwrap_err()
        };
        check(&refused, [0, 1]);
        // No rank wakes the other by leaving.
        both.raise();
        both.wait_for(4);
    })
    .unwrap();
}
