//! A loop over tiles that are copied to a device, changed there and copied back, by prefetches with page-locked host
//! memory, beside the same loop by calls that hold the host, with ordinary host memory, and beside the least time that
//! the link and the kernels need.
//!
//! Then sweeps over an array of four times the memory that it may have on the device: as a recorded step that repeats,
//! beside the same sweeps with the parts leaving that were used least recently, and beside the least time.
//!
//! With the feature `opencl`, host and an OpenCL device take turns on an array: in one replica that both share, beside
//! two replicas.
//!
//! Prefetches of ordinary memory, and between devices that do not reach each other, beside reads that copy the same
//! values in the calling thread.
//!
//! First, `page_lock` of arrays that have values, beside copies of them.
//!
//! With the feature `opencl`, the loop over tiles also runs on an OpenCL device: by prefetches with page-locked and
//! with ordinary memory, beside calls that hold the host; and where StarPU is installed, beside the same loop by
//! StarPU.
//!
//! The other device is simulated. Its link has a rate, and its kernels run one after the other.
#![expect(clippy::single_range_in_vec_init, reason = "boxes of one dimension")]

#[cfg(feature = "opencl")]
mod opencl;
#[cfg(feature = "opencl")]
mod starpu;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use array_buffer::{ArrayBuffer, LeastRecentlyUsed, MemoryBudget, Partition, Parts};
use backend_sim::{SimConfig, SimDevice};
use benches::Bench;
use ndarray::{Array1, Ix1};
use runtime_core::{Device, Grid, HostModule, Kernel, Launch, MemoryViewMut, Result, Stream, args};

/// The rate of each direction of the link.
const BYTES_PER_SECOND: u64 = 1 << 30;
/// The elements of a tile: 4 MiB, which take 3.9 ms each way.
const TILE: usize = 1 << 19;
const TILES: u32 = 24;
/// The tiles that have room on the device in the sweeps.
const ROOM: u32 = 6;
/// The part of the least time that the loop may lose.
const LEAST: f64 = 0.9;
/// The same for sweeps.
const LEAST_SWEEP: f64 = 0.7;
/// The same for copies between devices, whose first and last piece no other copy hides.
const LEAST_RELAY: f64 = 0.85;

/// The least gain of locking an array's values where they are. The simulated device takes no time for it.
const LEAST_LOCK: f64 = 100.0;

/// A device, streams for tiles in flight, and a kernel that takes some time.
struct Setup {
    device: Device,
    streams: Vec<Stream>,
    kernel: Kernel,
    time: Duration,
}

impl Setup {
    fn new(time: Duration) -> Result<Self> {
        let config = SimConfig::new().jitter(Duration::ZERO).link(BYTES_PER_SECOND);
        let device = Device::new(SimDevice::new(0, config))?;
        let streams =
            (0..4).map(|_| device.stream_create(&Default::default())).collect::<Result<_>>()?;
        let processor = Arc::new(Mutex::new(()));
        let change = move |_: &Grid<'_>, x: &mut [f64]| {
            let _one_at_a_time = processor.lock().unwrap_or_else(PoisonError::into_inner);
            thread::sleep(time);
            x[0] += 1.0;
        };
        let kernel =
            device.module_load(&HostModule::new().with("change", change))?.kernel("change")?;
        Ok(Self { device, streams, kernel, time })
    }

    fn tiles(&self, page_lock: bool) -> Result<Vec<ArrayBuffer<f64, Ix1>>> {
        (0..TILES)
            .map(|_| {
                let mut tile = ArrayBuffer::uninit(TILE)?;
                if page_lock {
                    tile.page_lock(&self.device)?;
                }
                tile.write_host()?.fill(0.0);
                Ok(tile)
            })
            .collect()
    }

    fn run(&self, tiles: &mut [ArrayBuffer<f64, Ix1>], copies: Copies) -> Result<()> {
        let launch = Launch::cover(1, 1);
        up_changed_down(tiles, &self.streams, copies, |stream, tile| {
            // SAFETY: the kernel is safe Rust that accesses only its argument.
            unsafe { self.kernel.launch(stream, &launch, args![tile]) }
        })
    }

    /// The time of a copy of one tile.
    fn copy(&self) -> Duration {
        Duration::from_secs_f64((TILE * size_of::<f64>()) as f64 / BYTES_PER_SECOND as f64)
    }

    /// The least time: the copies of one direction one after the other, or the kernels, and the other two steps of one
    /// tile.
    fn least(&self) -> Duration {
        let copy = self.copy();
        let steps = [copy, self.time, copy];
        let longest = copy.max(self.time);
        longest * (TILES - 1) + steps.iter().sum::<Duration>()
    }
}

/// How a loop over tiles copies them.
#[derive(Clone, Copy)]
enum Copies {
    /// By prefetches, which return at once.
    Enqueued,
    /// By accesses, which return when the values are there, or on their way from pinned memory.
    HoldTheHost,
}

/// Changes all tiles on the device by this launch, and then one element of each on the host.
fn up_changed_down(
    tiles: &mut [ArrayBuffer<f64, Ix1>],
    streams: &[Stream],
    copies: Copies,
    change: impl Fn(&Stream, MemoryViewMut<'_, f64>) -> Result<()>,
) -> Result<()> {
    for (tile, stream) in tiles.iter_mut().zip(streams.iter().cycle()) {
        if let Copies::Enqueued = copies {
            tile.prefetch(stream)?;
        }
        let mut guard = tile.read_write(stream)?;
        change(stream, guard.view_mut()?)?;
        guard.commit()?;
        match copies {
            Copies::Enqueued => tile.prefetch_host()?,
            Copies::HoldTheHost => {
                tile.read_host()?;
            }
        }
    }
    tiles.iter_mut().try_for_each(|tile| {
        tile.read_write_host()?[0] += 1.0;
        Ok(())
    })
}

/// An array in tiles, of which few have room on the device.
struct Sweep<'a> {
    setup: &'a Setup,
    array: ArrayBuffer<f64, Ix1>,
    budget: MemoryBudget,
}

impl<'a> Sweep<'a> {
    fn new(setup: &'a Setup, budget: MemoryBudget) -> Result<Self> {
        let tiles: Vec<_> = (0..TILES as usize).map(|i| [i * TILE..(i + 1) * TILE]).collect();
        let tiles: Vec<_> = tiles.iter().map(|ranges| &ranges[..]).collect();
        let partition = Partition::new(&[TILE * TILES as usize], &tiles, &[])?;
        let mut array = ArrayBuffer::with_partition(partition)?;
        array.page_lock(&setup.device)?;
        array.write_host()?.fill(0.0);
        array.set_memory_budget(&budget)?;
        Ok(Self { setup, array, budget })
    }

    /// Changes all tiles on the device.
    fn run(&mut self) -> Result<()> {
        let Setup { streams, kernel, .. } = self.setup;
        for tile in 0..TILES as usize {
            let [mut tile] = self.array.split([Parts::one(tile)])?;
            let mut guard = tile.read_write(&streams[0])?;
            let launch = Launch::cover(1, 1);
            // SAFETY: the kernel is safe Rust that accesses only its argument.
            unsafe { kernel.launch(&streams[0], &launch, args![guard.view_mut()?]) }?;
            guard.commit()?;
        }
        Ok(())
    }

    /// The number of tiles that one sweep copies in both directions.
    fn copies(&mut self) -> Result<u64> {
        let before = self.array.transfers().total().bytes;
        self.run()?;
        Ok((self.array.transfers().total().bytes - before) / (TILE * size_of::<f64>()) as u64)
    }
}

fn sweeps(bench: &mut Bench) -> Result<()> {
    if !bench.group("sweeps over 24 tiles of 4 MiB with room for 6") {
        return Ok(());
    }
    for (case, time) in [("kernels of 2 ms", 2), ("kernels of 4 ms", 4), ("kernels of 8 ms", 8)] {
        let setup = Setup::new(Duration::from_millis(time))?;
        let bytes = (TILE * size_of::<f64>()) as u64 * u64::from(ROOM);
        let mut ours = Sweep::new(&setup, MemoryBudget::new(&setup.device, bytes))?;
        let budget = MemoryBudget::with_policy(&setup.device, Some(bytes), LeastRecentlyUsed);
        let mut plain = Sweep::new(&setup, budget)?;
        let recording = ours.budget.record()?;
        ours.run()?;
        let step = recording.finish();
        let _expected = ours.budget.repeat(&step)?;
        plain.run()?;
        // All but one of the tiles with room stay from sweep to sweep. Each other tile is copied in both directions.
        let moved = TILES - (ROOM - 1);
        let copy = setup.copy();
        let least = (setup.time * TILES).max(copy * moved).as_secs_f64();
        let (mut run, mut run_plain) = (
            || ours.run().unwrap_or_else(|error| panic!("{error}")),
            || plain.run().unwrap_or_else(|error| panic!("{error}")),
        );
        let contestants: &mut [(&str, &mut benches::turns::Contestant<'_>)] = &mut [
            ("recorded", &mut |calls| benches::turns::time(calls, &mut run)),
            ("least recently used", &mut |calls| benches::turns::time(calls, &mut run_plain)),
        ];
        let good = |seconds: &[f64]| least / seconds[0] >= LEAST_SWEEP;
        if let Some(seconds) = bench.medians(case, contestants, good) {
            bench.measured(case, 0, seconds[0], ("the least time", least), LEAST_SWEEP);
            bench.measured(case, 0, seconds[0], ("least recently used", seconds[1]), 1.0);
        }
        println!(
            "{case}: {} tiles copied in a sweep, {} least recently used, {} at least",
            ours.copies()?,
            plain.copies()?,
            2 * moved
        );
    }
    Ok(())
}

/// An array that is page-locked and taken out again, where its values are or by copies of them.
struct Locks {
    device: Device,
    values: Option<Array1<f64>>,
}

impl Locks {
    fn new(in_place: bool, len: usize) -> Result<Self> {
        let config = SimConfig::new().registration(in_place);
        let device = Device::new(SimDevice::new(0, config))?;
        Ok(Self { device, values: Some(Array1::ones(len)) })
    }

    fn run(&mut self) -> Result<()> {
        let Some(values) = self.values.take() else { return Ok(()) };
        let mut array = ArrayBuffer::from_array(values)?;
        array.page_lock(&self.device)?;
        self.values = Some(array.into_inner()?);
        Ok(())
    }
}

fn locks(bench: &mut Bench) -> Result<()> {
    if !bench.group("page_lock of an array with values, and into_inner") {
        return Ok(());
    }
    for (case, bytes) in [("4 MiB", 4 << 20), ("64 MiB", 64 << 20)] {
        let len = bytes / size_of::<f64>();
        let (mut ours, mut copied) = (Locks::new(true, len)?, Locks::new(false, len)?);
        let run = |locks: &mut Locks| locks.run().unwrap_or_else(|error| panic!("{error}"));
        let (mut ours, mut copied) = (|| run(&mut ours), || run(&mut copied));
        let contestants: &mut [(&str, &mut benches::turns::Contestant<'_>)] = &mut [
            ("in place", &mut |calls| benches::turns::time(calls, &mut ours)),
            ("by copies", &mut |calls| benches::turns::time(calls, &mut copied)),
        ];
        let good = |seconds: &[f64]| seconds[1] / seconds[0] >= LEAST_LOCK;
        if let Some(seconds) = bench.medians(case, contestants, good) {
            bench.measured(case, 0, seconds[0], ("copies", seconds[1]), LEAST_LOCK);
        }
    }
    Ok(())
}

/// Copies an array to a stream's device by a prefetch, or by a read. Returns how long the call takes, and how long it
/// is until the values are there.
fn bring(
    array: &ArrayBuffer<f64, Ix1>,
    stream: &Stream,
    prefetches: bool,
) -> Result<[Duration; 2]> {
    let began = Instant::now();
    if prefetches {
        array.prefetch(stream)?;
    } else {
        drop(array.read(stream)?);
    }
    let call = began.elapsed();
    stream.synchronize()?;
    Ok([call, began.elapsed()])
}

/// How long a call holds the host that copies an array to the device, on an idle stream: the median of 20. Replica and
/// pinned memory are in place. The time of the first call, which makes them, is reported beside it.
fn prefetches(bench: &mut Bench) -> Result<()> {
    if !bench.group("a prefetch of ordinary memory holds the host") {
        return Ok(());
    }
    let config = SimConfig::new().jitter(Duration::ZERO).memory_bytes(2 << 30);
    let device = Device::new(SimDevice::new(0, config))?;
    let stream = device.default_stream();
    let cases = [("1 MiB", 1 << 20), ("64 MiB", 64 << 20), ("1 GiB", 1 << 30)];
    for (case, bytes) in cases.into_iter().take(if bench.is_quick() { 1 } else { 3 }) {
        let mut array = ArrayBuffer::<f64, _>::uninit(bytes / size_of::<f64>())?;
        array.write_host()?.fill(0.0);
        let mut time = |prefetches: bool| -> Result<Duration> {
            array.read_write_host()?[0] += 1.0;
            stream.synchronize()?;
            bring(&array, &stream, prefetches).map(|[call, _]| call)
        };
        let first = time(true)?;
        let mut median = |prefetches| -> Result<f64> {
            let mut times = (0..20).map(|_| time(prefetches)).collect::<Result<Vec<_>>>()?;
            times.sort();
            Ok(times[10].as_secs_f64())
        };
        let (ours, reads) = (median(true)?, median(false)?);
        println!("{case}: the first prefetch takes {first:?}");
        bench.limited(case, "ms", ours * 1e3, 1.0);
        bench.measured(case, 0, ours, ("a read that copies", reads), 0.0);
    }
    Ok(())
}

/// Copies between devices that do not reach each other, beside the time of the copy on one link: both links are busy at
/// once. For prefetches also how long the call holds the host.
fn relays(bench: &mut Bench) -> Result<()> {
    if !bench.group("values of a device that this one does not reach") {
        return Ok(());
    }
    let config = SimConfig::new().jitter(Duration::ZERO).peers(false).link(BYTES_PER_SECOND);
    let [from, to] = [0, 1].map(|index| Device::new(SimDevice::new(index, config.clone())));
    let (from, to) = (from?.default_stream(), to?.default_stream());
    let cases = [("4 MiB", 4 << 20), ("64 MiB", 64 << 20)];
    for (case, bytes) in cases {
        let mut array = ArrayBuffer::<f64, _>::uninit(bytes / size_of::<f64>())?;
        let mut time = |prefetches: bool| -> Result<[Duration; 2]> {
            let mut guard = array.write(&from)?;
            guard.view_mut()?.fill(&from, 1.0)?;
            guard.commit()?;
            from.synchronize()?;
            bring(&array, &to, prefetches)
        };
        let _first = (time(true)?, time(false)?);
        // Those of the call, and of the copy.
        let mut medians = |prefetches| -> Result<[f64; 2]> {
            let times = (0..9).map(|_| time(prefetches)).collect::<Result<Vec<_>>>()?;
            Ok([0, 1].map(|which| {
                let mut times: Vec<Duration> = times.iter().map(|times| times[which]).collect();
                times.sort();
                times[4].as_secs_f64()
            }))
        };
        let ([call, ours], [_, reads]) = (medians(true)?, medians(false)?);
        let least = bytes as f64 / BYTES_PER_SECOND as f64;
        // Of short copies, the first piece is a large part, and no other one is copied meanwhile.
        let target = if bytes > 32 << 20 { LEAST_RELAY } else { 0.0 };
        bench.limited(case, "ms", call * 1e3, 1.0);
        bench.measured(case, 0, ours, ("the least time", least), target);
        bench.measured(case, 0, ours, ("a read that copies", reads), 0.0);
    }
    Ok(())
}

/// Host and device change all elements of an array in turns.
#[cfg(feature = "opencl")]
mod turns {
    use array_buffer::ArrayBuffer;
    use backend_opencl::OpenClBackend;
    use benches::Bench;
    use ndarray::Ix1;
    use runtime_core::{
        Backend, Device, ErrorKind, ImageFormat, Kernel, Launch, ModuleImage, Result, args,
    };

    const CHANGE: &str = "kernel void change(global double *x, ulong n) { if (get_global_id(0) < n) x[get_global_id(0)] += 1; }";
    /// The least gain of sharing where the array is as large as here and both change it each time.
    const LEAST: f64 = 1.2;

    struct Turns<'a> {
        device: &'a Device,
        kernel: &'a Kernel,
        kernels: u32,
        array: ArrayBuffer<f64, Ix1>,
    }

    impl Turns<'_> {
        fn run(&mut self) -> Result<()> {
            let (stream, len) = (self.device.default_stream(), self.array.len());
            for _ in 0..self.kernels {
                let mut guard = self.array.read_write(&stream)?;
                let launch = Launch::cover(len, 64);
                // SAFETY: the kernel changes the elements below `len`, which is the number of elements.
                unsafe {
                    self.kernel.launch(&stream, &launch, args![guard.view_mut()?, len as u64])
                }?;
                guard.commit()?;
            }
            self.array.read_write_host()?.mapv_inplace(|value| value + 1.0);
            Ok(())
        }
    }

    pub(crate) fn compare(bench: &mut Bench) -> Result<()> {
        if !bench.group("host and OpenCL device change an array in turns") {
            return Ok(());
        }
        let device = match OpenClBackend::new().open(&"opencl:0".parse()?) {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                println!("turns: left out: {error}");
                return Ok(());
            }
            device => device?,
        };
        let module = device.module_load(ModuleImage::source(ImageFormat::OpenClC, CHANGE))?;
        let kernel = &module.kernel("change")?;
        for (case, bytes, kernels, target) in [
            ("64 KiB", 64 << 10, 1, 0.0),
            ("4 MiB", 4 << 20, 1, LEAST),
            ("64 MiB", 64 << 20, 1, LEAST),
            ("4 MiB, 10 kernels each", 4 << 20, 10, 0.0),
        ] {
            let turns = || -> Result<Turns<'_>> {
                let array =
                    ArrayBuffer::from_array(ndarray::Array1::ones(bytes / size_of::<f64>()))?;
                Ok(Turns { device: &device, kernel, kernels, array })
            };
            let (mut ours, mut theirs) = (turns()?, turns()?);
            if let Err(error) = ours.array.unify(&device) {
                println!("turns: left out: {error}");
                return Ok(());
            }
            let run = |turns: &mut Turns<'_>| turns.run().unwrap_or_else(|error| panic!("{error}"));
            let (mut ours, mut theirs) = (|| run(&mut ours), || run(&mut theirs));
            let contestants: &mut [(&str, &mut benches::turns::Contestant<'_>)] = &mut [
                ("shared", &mut |calls| benches::turns::time(calls, &mut ours)),
                ("two replicas", &mut |calls| benches::turns::time(calls, &mut theirs)),
            ];
            let good = |seconds: &[f64]| seconds[1] / seconds[0] >= target;
            if let Some(seconds) = bench.medians(case, contestants, good) {
                bench.measured(case, 0, seconds[0], ("two replicas", seconds[1]), target);
            }
        }
        Ok(())
    }
}

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    #[cfg(feature = "opencl")]
    turns::compare(&mut bench)?;
    locks(&mut bench)?;
    prefetches(&mut bench)?;
    relays(&mut bench)?;
    sweeps(&mut bench)?;
    if bench.group("tiles of 4 MiB, up, changed, down") {
        for (case, time) in [("kernels of 2 ms", 2), ("kernels of 4 ms", 4), ("kernels of 8 ms", 8)]
        {
            let setup = Setup::new(Duration::from_millis(time))?;
            let (mut ours, mut plain) = (setup.tiles(true)?, setup.tiles(false)?);
            let run = |tiles: &mut [_], copies| {
                setup.run(tiles, copies).unwrap_or_else(|error| panic!("{error}"))
            };
            let mut ours = || run(&mut ours, Copies::Enqueued);
            let mut plain = || run(&mut plain, Copies::HoldTheHost);
            let contestants: &mut [(&str, &mut benches::turns::Contestant<'_>)] = &mut [
                ("page-locked", &mut |calls| benches::turns::time(calls, &mut ours)),
                ("calls that hold the host", &mut |calls| benches::turns::time(calls, &mut plain)),
            ];
            let least = setup.least().as_secs_f64();
            let good = |seconds: &[f64]| least / seconds[0] >= LEAST;
            if let Some(seconds) = bench.medians(case, contestants, good) {
                bench.measured(case, 0, seconds[0], ("the least time", least), LEAST);
                bench.measured(case, 0, seconds[0], ("calls that hold the host", seconds[1]), 0.0);
            }
        }
    }
    #[cfg(feature = "opencl")]
    {
        opencl::compare(&mut bench)?;
        starpu::compare(&mut bench)?;
    }
    Ok(bench.finish())
}
