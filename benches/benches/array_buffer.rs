//! The cost of access to an array, beside an uncontended `std::sync::RwLock` in the same run, and its scaling.
//!
//! The device does nothing, so only the array is measured.

use std::hint::black_box;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Barrier, RwLock};
use std::thread;
use std::time::Instant;

use array_buffer::{ArrayBuffer, Partition, Parts};
use benches::overhead::{Limit, Table, Unit};
use benches::turns::Contestant;
use conformance::NullDevice;
use ndarray::Array1;
use runtime_core::{Device, Result, Stream};

/// The most reference calls for an access to valid values.
const ACCESS: Limit = Limit::Takes(1.5);
/// The most for metadata.
const METADATA: f64 = 0.1;
/// The most that a guard may add to making a view.
const VIEW: f64 = 2.5;
/// The most that a miss may add to its copy.
const MISS: f64 = 40.0;
/// The minimum reads per second of two threads, relative to one thread.
const TWO_THREADS: f64 = 1.6;
/// The minimum reads per second of eight threads, relative to two threads.
const EIGHT_THREADS: f64 = 1.0;

/// The maximum number of parts of an array.
const PARTS: usize = 256;
/// The name of the rival that is a lock.
const READ: &str = "RwLock::read";

fn main() -> Result<ExitCode> {
    let mut table = Table::from_args(20_000, 101, Unit::ReferenceCall);
    accesses(&mut table)?;
    parts(&mut table)?;
    misses(&mut table)?;
    threads(&mut table)?;
    Ok(table.finish())
}

fn array() -> Result<ArrayBuffer<f64, ndarray::Ix2>> {
    ArrayBuffer::from_vec(vec![0.0; 64], (8, 8))
}

fn accesses(table: &mut Table) -> Result<()> {
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let lock = RwLock::new([0.0_f64; 64]);
    // Guards are used in place: passing one through `black_box` would measure the cost of moving it.
    let read = || held(&lock.read());

    let mut ours = array()?;
    ours.read(&stream)?;
    table.row("read on a device", READ, ACCESS, || held(&ours.read(&stream)), read);
    table.row("read on the host", READ, ACCESS, || held(&ours.read_host()), read);
    let reads = || {
        black_box(ours.version() + ours.len() as u64);
    };
    table.row("metadata", "nothing", Limit::Adds(METADATA), reads, || {
        black_box(());
    });
    // A kernel's caller makes views in any case: the rival makes them of plain memory.
    let memory = device.memory_allocate::<f64>(64)?;
    let plain =
        || drop(black_box(memory.view().reshape(&[8, 8]).and_then(|v| v.on_stream(&stream))));
    let view =
        || drop(black_box(ours.read(&stream).and_then(|guard| guard.view().map(|v| v.len()))));
    table.row("read and view", "view", Limit::Adds(VIEW), view, plain);
    // A single call, because the array records the writer; written once, so that only the device has the values.
    let mut write = |fill: bool| {
        let guard = &mut ours.read_write(&stream);
        if let Ok(guard) = guard
            && fill
            && let Ok(mut view) = guard.view_mut()
        {
            drop(black_box(view.fill(&stream, 1.0)));
        }
        held(guard);
    };
    write(true);
    table.row("read_write on a device", READ, ACCESS, || write(false), read);

    let mut ours = array()?;
    let locked = RwLock::new(ndarray::Array2::<f64>::zeros((8, 8)));
    let mut write = |update: bool| {
        let guard = &mut ours.read_write_host();
        if let Ok(guard) = guard
            && update
        {
            guard[(0, 0)] += 1.0;
        }
        held(guard);
    };
    write(true);
    table.row("read_write on the host", READ, ACCESS, || write(false), read);
    let update = || {
        let guard = &mut locked.write();
        if let Ok(guard) = guard {
            guard[(0, 0)] += 1.0;
        }
        held(guard);
    };
    table.row("... and an element", "RwLock::write, same", Limit::None, || write(true), update);
    Ok(())
}

fn held<T>(guard: &T) {
    black_box(guard);
}

/// An array of as many parts as there may be.
fn parts(table: &mut Table) -> Result<()> {
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let lock = RwLock::new([0.0_f64; 64]);
    let rows: Vec<Range<usize>> = (0..PARTS).map(|part| 8 * part..8 * part + 8).collect();
    let boxes: Vec<_> = rows.iter().map(std::slice::from_ref).collect();
    let partition = Partition::new(&[8 * PARTS], &boxes, &[])?;
    let mut ours = ArrayBuffer::from_array_with(Array1::<f64>::zeros(8 * PARTS), partition)?;
    ours.read(&stream)?;
    let last = Parts::one(PARTS - 1);
    let read = || held(&lock.read());
    let one = || held(&ours.part(last).and_then(|part| part.read(&stream)));
    table.row("read of one of 256 parts", READ, ACCESS, one, read);
    table.row("read of 256 parts", READ, Limit::None, || held(&ours.read(&stream)), read);
    let mut memory = device.memory_allocate::<f64>(8)?;
    let mut pinned = device.pinned_allocate::<f64>(8)?;
    let mut host = [0.0; 8];
    table.row(
        "host write, device read of one of 256",
        "pinned copy",
        Limit::None,
        || {
            if let Ok([mut part]) = ours.split([last]) {
                if let Ok(mut guard) = part.read_write_host() {
                    guard[0] += 1.0;
                }
                drop(black_box(part.read(&stream)));
            }
        },
        || {
            host[0] += 1.0;
            if let Ok(slice) = pinned.as_mut_slice() {
                slice.copy_from_slice(&host);
            }
            drop(black_box(memory.view_mut().copy_from_pinned(&stream, &pinned)));
        },
    );
    Ok(())
}

/// The host writes and a device reads: two accesses that miss, and one copy.
fn misses(table: &mut Table) -> Result<()> {
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let mut ours = array()?;
    let mut memory = device.memory_allocate::<f64>(64)?;
    let mut pinned = device.pinned_allocate::<f64>(64)?;
    let mut host = [0.0; 64];
    table.row(
        "host write, device read",
        "pinned copy",
        Limit::Adds(2.0 * MISS),
        || {
            if let Ok(mut guard) = ours.read_write_host() {
                guard[(0, 0)] += 1.0;
            }
            drop(black_box(ours.read(&stream)));
        },
        || {
            host[0] += 1.0;
            if let Ok(slice) = pinned.as_mut_slice() {
                slice.copy_from_slice(&host);
            }
            drop(black_box(memory.view_mut().copy_from_pinned(&stream, &pinned)));
        },
    );
    Ok(())
}

/// Threads that read one valid array, each on its own stream.
fn threads(table: &mut Table) -> Result<()> {
    let device = Device::new(NullDevice::default())?;
    let ours = array()?;
    let streams = (0..8)
        .map(|_| {
            let stream = device.stream_create(&Default::default())?;
            ours.read(&stream)?;
            Ok(stream)
        })
        .collect::<Result<Vec<Stream>>>()?;
    // Measured from the first read of the first thread to the last read of the last thread, by the threads' own clocks:
    // on a machine without a free core, a separate observer thread would be late.
    let rate = |threads: usize, reads: u32| {
        let barrier = Barrier::new(threads);
        let work = |stream: &Stream| {
            barrier.wait();
            let begun = Instant::now();
            for _ in 0..reads {
                drop(black_box(ours.read(stream)));
            }
            (begun, Instant::now())
        };
        let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
            let started: Vec<_> =
                streams[..threads].iter().map(|stream| scope.spawn(move || work(stream))).collect();
            started.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let begun = times.iter().map(|(begun, _)| *begun).min();
        let ended = times.iter().map(|(_, ended)| *ended).max();
        let seconds =
            begun.zip(ended).map_or(f64::NAN, |(begun, ended)| (ended - begun).as_secs_f64());
        f64::from(reads) * threads as f64 / seconds
    };
    if table.has_statistics() {
        // The time per read of all threads together.
        let times = |threads| move |reads: u32| 1.0 / rate(threads, reads);
        let (mut one, mut two, mut eight) = (times(1), times(2), times(8));
        let runs: &mut [(&str, &mut Contestant<'_>)] = &mut [
            ("one thread", &mut one),
            ("two threads", &mut two),
            ("eight threads", &mut eight),
        ];
        table.times("reads of one array", runs);
        return Ok(());
    }
    let reads = if table.is_quick() { 2_000 } else { 2_000_000 };
    // The best of each, in turns: other load on the machine affects all of them.
    let (mut one, mut two, mut eight) = (0.0_f64, 0.0_f64, 0.0_f64);
    for _ in 0..15 {
        one = one.max(rate(1, reads));
        two = two.max(rate(2, reads));
        eight = eight.max(rate(8, reads));
    }
    table.ratio("reads of two threads | of one", two / one, TWO_THREADS);
    table.ratio("reads of eight threads | of two", eight / two, EIGHT_THREADS);
    Ok(())
}
