//! The loop over tiles on an OpenCL device: its copies are enqueued, or hold the host.

use array_buffer::ArrayBuffer;
use backend_opencl::OpenClBackend;
use benches::Bench;
use ndarray::{Array1, Ix1};
use runtime_core::{
    Backend, Device, ErrorKind, ImageFormat, Kernel, Launch, ModuleImage, Result, Stream, args,
};

use crate::{Copies, TILE, TILES, up_changed_down};

pub(crate) const CHANGE: &str = r"
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

kernel void change(global double *x, ulong n, uint rounds)
{
    size_t i = get_global_id(0);
    if (i >= n)
        return;
    double value = x[i];
    for (uint round = 0; round < rounds; round++)
        value = value * 0.99 + 0.5;
    x[i] = value;
}
";

/// The elements of a tile, and the work of the kernel: a multiplication and an addition for each element and round.
pub(crate) const CASES: [(&str, usize, u32); 4] = [
    ("32 KiB, 1 round", 1 << 12, 1),
    ("4 MiB, 1 round", TILE, 1),
    ("4 MiB, 8 rounds", TILE, 8),
    ("4 MiB, 24 rounds", TILE, 24),
];
/// The runs of each way after which their values are compared.
const RUNS: usize = 3;
/// The least speed of enqueued copies of page-locked memory, relative to copies that hold the host. Both use the same
/// cores as the kernels.
const LEAST: f64 = 0.95;

/// The first OpenCL device, or the reason why there is none.
pub(crate) fn open() -> Result<std::result::Result<Device, String>> {
    match OpenClBackend::new().open(&"opencl:0".parse()?) {
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Err(error.to_string())),
        device => device.map(Ok),
    }
}

/// The values of all tiles of this many elements.
pub(crate) fn values(tile: usize) -> Vec<f64> {
    (0..tile * TILES as usize).map(|i| (i % 977) as f64).collect()
}

/// A device, streams for tiles in flight, and the kernel.
pub(crate) struct Setup {
    pub(crate) device: Device,
    streams: Vec<Stream>,
    kernel: Kernel,
}

impl Setup {
    pub(crate) fn new(device: Device) -> Result<Self> {
        let kernel = device
            .module_load(ModuleImage::source(ImageFormat::OpenClC, CHANGE))?
            .kernel("change")?;
        let streams = (0..4).map(|_| device.stream_create(&Default::default()));
        let streams = streams.collect::<Result<_>>()?;
        Ok(Self { device, streams, kernel })
    }
}

/// Arrays that a loop changes.
pub(crate) struct Tiles<'a> {
    setup: &'a Setup,
    tiles: Vec<ArrayBuffer<f64, Ix1>>,
    rounds: u32,
    copies: Copies,
}

impl<'a> Tiles<'a> {
    pub(crate) fn new(
        setup: &'a Setup,
        values: &[f64],
        rounds: u32,
        (is_page_locked, copies): (bool, Copies),
    ) -> Result<Self> {
        let tiles = values.chunks(values.len() / TILES as usize).map(|values| {
            let mut tile = ArrayBuffer::from_array(Array1::from(values.to_vec()))?;
            if is_page_locked {
                tile.page_lock(&setup.device)?;
            }
            Ok(tile)
        });
        Ok(Self { setup, tiles: tiles.collect::<Result<_>>()?, rounds, copies })
    }

    pub(crate) fn run(&mut self) -> Result<()> {
        let len = self.tiles[0].len();
        let launch = Launch::cover(len, 64);
        let Setup { streams, kernel, .. } = self.setup;
        up_changed_down(&mut self.tiles, streams, self.copies, |stream, tile| {
            let args = args![tile, len as u64, self.rounds];
            // SAFETY: the kernel changes the elements below their number.
            unsafe { kernel.launch(stream, &launch, args) }
        })
    }

    /// The bytes that these runs copy in both directions.
    pub(crate) fn bytes(&mut self, runs: usize) -> Result<u64> {
        let total = |tiles: &[ArrayBuffer<f64, Ix1>]| -> u64 {
            tiles.iter().map(|tile| tile.transfers().total().bytes).sum()
        };
        let before = total(&self.tiles);
        (0..runs).try_for_each(|_| self.run())?;
        Ok(total(&self.tiles) - before)
    }

    pub(crate) fn values(&self) -> Result<Vec<f64>> {
        let mut values = Vec::new();
        for tile in &self.tiles {
            values.extend(tile.read_host()?.iter());
        }
        Ok(values)
    }
}

pub(crate) fn compare(bench: &mut Bench) -> Result<()> {
    if !bench.group("tiles on an OpenCL device, enqueued copies and calls that hold the host") {
        return Ok(());
    }
    let device = match open()? {
        Err(why) => {
            println!("tiles: left out: {why}");
            return Ok(());
        }
        Ok(device) => device,
    };
    let setup = Setup::new(device)?;
    let cases = if bench.is_quick() { 1 } else { CASES.len() };
    for (case, tile, rounds) in CASES.into_iter().take(cases) {
        let start = values(tile);
        let tiles = |way| Tiles::new(&setup, &start, rounds, way);
        let mut ways = [
            tiles((true, Copies::Enqueued))?,
            tiles((false, Copies::Enqueued))?,
            tiles((false, Copies::HoldTheHost))?,
        ];
        for tiles in &mut ways {
            (0..RUNS).try_for_each(|_| tiles.run())?;
        }
        let [locked, prefetched, held] = &mut ways;
        let computed = held.values()?;
        assert!(
            locked.values()? == computed && prefetched.values()? == computed,
            "all compute the same"
        );
        assert_ne!(computed, start);
        let run = |tiles: &mut Tiles<'_>| tiles.run().unwrap_or_else(|error| panic!("{error}"));
        let (mut locked, mut prefetched, mut held) =
            (|| run(locked), || run(prefetched), || run(held));
        let contestants: &mut [(&str, &mut benches::turns::Contestant<'_>)] = &mut [
            ("page-locked", &mut |calls| benches::turns::time(calls, &mut locked)),
            ("ordinary", &mut |calls| benches::turns::time(calls, &mut prefetched)),
            ("calls that hold the host", &mut |calls| benches::turns::time(calls, &mut held)),
        ];
        // Each copy of ordinary memory to the host wakes a thread, which needs a core as the kernels do.
        let targets = [LEAST, 0.0];
        let good = |at: &[f64]| at[2] / at[0] >= LEAST;
        if let Some(seconds) = bench.medians(case, contestants, good) {
            let rival = ("calls that hold the host", seconds[2]);
            let memories = ["page-locked", "ordinary"].into_iter().zip(targets);
            for ((memory, target), ours) in memories.zip(&seconds) {
                bench.measured(format!("{case}, {memory}"), 0, *ours, rival, target);
            }
        }
    }
    Ok(())
}
