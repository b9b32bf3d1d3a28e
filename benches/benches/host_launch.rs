//! Launches on the host device against plain rayon: an empty kernel, and a step of diffusion.
//!
//! Both sides use as many threads, run in turns, and end each call when the work is done.

use std::hint::black_box;
use std::process::ExitCode;

use backend_host::HostDevice;
use benches::overhead::nanoseconds;
use rayon::prelude::*;
use runtime_core::{Device, Grid, HostModule, Launch, Result, args};

/// Most that a step on the device may take, as a share of the plain loop.
const LIMIT: f64 = 1.10;

/// One explicit step of diffusion in the inner rows: `next = z + a (z_w + z_e + z_n + z_s − 4 z)`.
fn row(width: usize, y: usize, next: &mut [f64], z: &[f64], a: f64) {
    let [north, here, south] = [y - 1, y, y + 1].map(|y| &z[y * width..][..width]);
    for x in 1..width - 1 {
        let around = here[x - 1] + here[x + 1] + north[x] + south[x];
        next[x] = here[x] + a * (around - 4.0 * here[x]);
    }
}

fn rows(width: usize, first: usize, next: &mut [f64], z: &[f64], a: f64) {
    let height = z.len() / width;
    for (index, next) in next.chunks_exact_mut(width).enumerate() {
        let y = first + index;
        if y > 0 && y + 1 < height {
            row(width, y, next, z, a);
        }
    }
}

/// Rows that one task takes.
const BAND: usize = 64;

fn diffuse(grid: &Grid<'_>, next: &mut [f64], z: &[f64], width: u64, a: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "a width of memory that exists")]
    let width = width as usize;
    grid.chunks_mut(next, BAND * width, |band, next| rows(width, band * BAND, next, z, a));
}

fn main() -> Result<ExitCode> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let check = std::env::args().any(|arg| arg == "--check");
    let rounds = if quick { 3 } else { 201 };
    let mut missed = false;

    let device = Device::new(HostDevice::new(0))?;
    let stream = device.default_stream();
    let pool = rayon::ThreadPoolBuilder::new().build().expect("a thread pool");
    let module = HostModule::new().with("diffuse", diffuse).with("nothing", |_: &Grid<'_>| {});
    let module = device.module_load(&module)?;

    println!("{:24} {:>10} {:>10} {:>6} {:>6}", "µs per call", "device", "rayon", "ratio", "limit");
    let nothing = module.kernel("nothing")?;
    let one = Launch::cover(1, 1);
    let (ours, rival) = nanoseconds(
        100,
        rounds,
        || {
            // SAFETY: the kernel has no arguments.
            unsafe { nothing.launch(&stream, &one, &[]) }.expect("an empty launch");
            stream.synchronize().expect("an empty launch");
        },
        || pool.install(|| _ = black_box(0)),
    );
    println!(
        "{:24} {:10.2} {:10.2} {:6.2}",
        "empty, synchronised",
        ours / 1e3,
        rival / 1e3,
        ours / rival
    );

    for side in [256_usize, 1024, 2048] {
        let z: Vec<f64> =
            (0..side * side).map(|i| f64::from(u32::try_from(i % 977).unwrap_or(0))).collect();
        let field = device.memory_from_slice(&stream, &z)?;
        let mut next = device.memory_from_slice(&stream, &z)?;
        let mut plain = z.clone();
        let kernel = module.kernel("diffuse")?;
        let launch = Launch::cover_2d(side, side, [32, 32]);
        let (ours, rival) = nanoseconds(
            1,
            rounds,
            || {
                let args = args![&mut next, &field, side as u64, 0.1];
                // SAFETY: the kernel writes its first argument, within its bounds.
                unsafe { kernel.launch(&stream, &launch, args) }.expect("a step");
                stream.synchronize().expect("a step");
            },
            || {
                let bands =
                    |(band, next): (usize, &mut [f64])| rows(side, band * BAND, next, &z, 0.1);
                pool.install(|| plain.par_chunks_mut(BAND * side).enumerate().for_each(bands));
            },
        );
        assert_eq!(next.view().to_vec::<f64>(&stream)?, plain, "both loops compute the same");
        let ratio = ours / rival;
        let bound = side == 1024;
        let verdict = if bound && ratio > LIMIT { "  MISSED" } else { "" };
        missed |= bound && ratio > LIMIT;
        let limit = if bound { format!("{LIMIT:6.2}") } else { String::new() };
        println!(
            "{:24} {:10.1} {:10.1} {ratio:6.2} {limit}{verdict}",
            format!("diffusion {side}²"),
            ours / 1e3,
            rival / 1e3
        );
    }
    Ok(ExitCode::from(u8::from(check && missed)))
}
