//! A loop over tiles that are copied to a device, changed there and copied back, with page-locked host memory, beside
//! the same loop with ordinary host memory, and beside the least time that the link and the kernels need.
//!
//! The device is simulated. Its link has a rate, and its kernels run one after the other.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use array_buffer::ArrayBuffer;
use backend_sim::{SimConfig, SimDevice};
use benches::Bench;
use ndarray::Ix1;
use runtime_core::{Device, Grid, HostModule, Kernel, Launch, Result, Stream, args};

/// The rate of each direction of the link.
const BYTES_PER_SECOND: u64 = 1 << 30;
/// The elements of a tile: 4 MiB, which take 3.9 ms each way.
const TILE: usize = 1 << 19;
const TILES: u32 = 24;
/// The part of the least time that the loop may lose.
const LEAST: f64 = 0.9;

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

    /// Changes all tiles on the device, and then one element of each on the host.
    fn run(&self, tiles: &mut [ArrayBuffer<f64, Ix1>]) -> Result<()> {
        for (tile, stream) in tiles.iter_mut().zip(self.streams.iter().cycle()) {
            let mut guard = tile.read_write(stream)?;
            let launch = Launch::cover(1, 1);
            // SAFETY: the kernel is safe Rust that accesses only its argument.
            unsafe { self.kernel.launch(stream, &launch, args![guard.view_mut()?]) }?;
            guard.commit()?;
            tile.prefetch_host()?;
        }
        tiles.iter_mut().try_for_each(|tile| {
            tile.read_write_host()?[0] += 1.0;
            Ok(())
        })
    }

    /// The least time: the copies of one direction one after the other, or the kernels, and the other two steps of one
    /// tile.
    fn least(&self) -> Duration {
        let copy =
            Duration::from_secs_f64((TILE * size_of::<f64>()) as f64 / BYTES_PER_SECOND as f64);
        let steps = [copy, self.time, copy];
        let longest = copy.max(self.time);
        longest * (TILES - 1) + steps.iter().sum::<Duration>()
    }
}

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    if bench.group("tiles of 4 MiB, up, changed, down") {
        for (case, time) in [("kernels of 2 ms", 2), ("kernels of 4 ms", 4), ("kernels of 8 ms", 8)]
        {
            let setup = Setup::new(Duration::from_millis(time))?;
            let (mut ours, mut plain) = (setup.tiles(true)?, setup.tiles(false)?);
            let run = |tiles: &mut [_]| setup.run(tiles).unwrap_or_else(|error| panic!("{error}"));
            let (mut ours, mut plain) = (|| run(&mut ours), || run(&mut plain));
            let contestants: &mut [(&str, &mut benches::turns::Contestant<'_>)] = &mut [
                ("page-locked", &mut |calls| benches::turns::time(calls, &mut ours)),
                ("ordinary", &mut |calls| benches::turns::time(calls, &mut plain)),
            ];
            let least = setup.least().as_secs_f64();
            let good = |seconds: &[f64]| least / seconds[0] >= LEAST;
            if let Some(seconds) = bench.medians(case, contestants, good) {
                bench.measured(case, 0, seconds[0], ("the least time", least), LEAST);
                bench.measured(case, 0, seconds[0], ("ordinary memory", seconds[1]), 0.0);
            }
        }
    }
    Ok(bench.finish())
}
