//! The cost of access to an array, against an uncontended `std::sync::RwLock` in the same run, and its scaling.
//!
//! The device does nothing, so only the array is measured.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Barrier, RwLock};
use std::thread;
use std::time::Instant;

use array_buffer::ArrayBuffer;
use benches::overhead::nanoseconds;
use conformance::NullDevice;
use runtime_core::{Device, Result, Stream};

/// The most nanoseconds for metadata.
const METADATA: f64 = 2.0;
/// The most nanoseconds that a guard may add to making a view.
const VIEW: f64 = 50.0;
/// The most nanoseconds that a miss may add to its copy.
const MISS: f64 = 1000.0;
/// The minimum reads per second of two threads, relative to one thread.
const TWO_THREADS: f64 = 1.6;
/// The minimum reads per second of eight threads, relative to two threads.
const EIGHT_THREADS: f64 = 1.0;

struct Table {
    batch: u32,
    rounds: usize,
    missed: bool,
}

impl Table {
    fn row(&mut self, name: &str, ours: f64, rival: f64, ratio: f64, within: bool) {
        let verdict = if within { "" } else { "  MISSED" };
        self.missed |= !within;
        println!("{name:44} {ours:10.1} {rival:10.1} {ratio:8.2}{verdict}");
    }

    /// Ours must not be slower than the rival.
    fn no_slower(&mut self, name: &str, ours: impl FnMut(), rival: impl FnMut()) {
        let (ours, rival) = nanoseconds(self.batch, self.rounds, ours, rival);
        self.row(name, ours, rival, ours / rival, ours <= rival);
    }

    /// Shows both times, without a limit.
    fn beside(&mut self, name: &str, ours: impl FnMut(), rival: impl FnMut()) {
        let (ours, rival) = nanoseconds(self.batch, self.rounds, ours, rival);
        self.row(name, ours, rival, ours / rival, true);
    }

    /// Ours may take this many nanoseconds more than the rival.
    fn within(&mut self, name: &str, limit: f64, ours: impl FnMut(), rival: impl FnMut()) {
        let (ours, rival) = nanoseconds(self.batch, self.rounds, ours, rival);
        self.row(name, ours, rival, (ours - rival) / limit, ours - rival <= limit);
    }
}

fn main() -> Result<ExitCode> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let check = std::env::args().any(|arg| arg == "--check");
    let mut table = Table {
        batch: if quick { 100 } else { 20_000 },
        rounds: if quick { 3 } else { 101 },
        missed: false,
    };
    println!("{:44} {:>10} {:>10} {:>8}", "ns per call", "array", "rival", "ratio");
    accesses(&mut table)?;
    misses(&mut table)?;
    threads(&mut table, if quick { 2_000 } else { 2_000_000 })?;
    Ok(ExitCode::from(u8::from(check && table.missed)))
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
    table.no_slower("read on a device | RwLock::read", || held(&ours.read(&stream)), read);
    table.no_slower("read on the host | RwLock::read", || held(&ours.read_host()), read);
    let reads = || {
        black_box(ours.version() + ours.len() as u64);
    };
    table.within("metadata | nothing", METADATA, reads, || {
        black_box(());
    });
    // A kernel's caller makes views in any case: the rival makes them of plain memory.
    let memory = device.memory_allocate::<f64>(64)?;
    let plain =
        || drop(black_box(memory.view().reshape(&[8, 8]).and_then(|v| v.on_stream(&stream))));
    let view =
        || drop(black_box(ours.read(&stream).and_then(|guard| guard.view().map(|v| v.len()))));
    table.within("read and view | view", VIEW, view, plain);
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
    table.no_slower("read_write on a device | RwLock::read", || write(false), read);

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
    table.no_slower("read_write on the host | RwLock::read", || write(false), read);
    let update = || {
        let guard = &mut locked.write();
        if let Ok(guard) = guard {
            guard[(0, 0)] += 1.0;
        }
        held(guard);
    };
    table.beside("... and an element | RwLock::write, same", || write(true), update);
    Ok(())
}

fn held<T>(guard: &T) {
    black_box(guard);
}

/// The host writes and a device reads: two accesses that miss, and one copy.
fn misses(table: &mut Table) -> Result<()> {
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let mut ours = array()?;
    let mut memory = device.memory_allocate::<f64>(64)?;
    let mut pinned = device.pinned_allocate::<f64>(64)?;
    let mut host = [0.0; 64];
    table.within(
        "host write, device read | pinned copy",
        2.0 * MISS,
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
fn threads(table: &mut Table, reads: u32) -> Result<()> {
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
    let rate = |threads: usize| {
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
    // The best of each, in turns: other load on the machine affects all of them.
    let (mut one, mut two, mut eight) = (0.0_f64, 0.0_f64, 0.0_f64);
    for _ in 0..15 {
        one = one.max(rate(1));
        two = two.max(rate(2));
        eight = eight.max(rate(8));
    }
    println!("million reads per second");
    let million = |rate: f64| rate / 1e6;
    let ratio = two / one;
    table.row("two threads | one", million(two), million(one), ratio, ratio >= TWO_THREADS);
    let ratio = eight / two;
    table.row("eight threads | two", million(eight), million(two), ratio, ratio >= EIGHT_THREADS);
    Ok(())
}
