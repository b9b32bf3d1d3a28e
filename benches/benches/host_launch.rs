//! Launches on the host device against plain rayon: an empty kernel, and a diffusion step.
//!
//! Both sides use the same number of threads, run in turns, and end each call when the work is done.

use std::hint::black_box;
use std::process::ExitCode;

use backend_host::HostDevice;
use benches::{Bench, Rival};
use rayon::prelude::*;
use runtime_core::{Device, Grid, HostModule, Launch, Result, args};

/// The minimum speed of a step on the device, relative to the plain loop.
const WITHIN: f64 = 1.0 / 1.10;

/// One explicit diffusion step in the inner rows: `next = z + a (z_w + z_e + z_n + z_s − 4 z)`.
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

/// The number of rows of one task.
const BAND: usize = 64;

fn diffuse(grid: &Grid<'_>, next: &mut [f64], z: &[f64], width: u64, a: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "a width of memory that exists")]
    let width = width as usize;
    grid.chunks_mut(next, BAND * width, |band, next| rows(width, band * BAND, next, z, a));
}

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    let device = Device::new(HostDevice::new(0))?;
    let stream = device.default_stream();
    let pool = rayon::ThreadPoolBuilder::new().build().expect("a thread pool");
    let module = HostModule::new().with("diffuse", diffuse).with("nothing", |_: &Grid<'_>| {});
    let module = device.module_load(&module)?;

    if bench.group("launch and synchronise, host device against rayon") {
        let nothing = module.kernel("nothing")?;
        let one = Launch::cover(1, 1);
        bench.compare(
            "empty kernel",
            0,
            &mut || {
                nothing.launch_checked(&stream, &one, &[]).expect("an empty launch");
                stream.synchronize().expect("an empty launch");
            },
            &mut [Rival {
                name: "install",
                target: 0.0,
                run: &mut || pool.install(|| _ = black_box(0)),
            }],
        );
        for side in [256_usize, 1024, 2048] {
            let z: Vec<f64> =
                (0..side * side).map(|i| f64::from(u32::try_from(i % 977).unwrap_or(0))).collect();
            let field = device.memory_from_slice(&stream, &z)?;
            let mut next = device.memory_from_slice(&stream, &z)?;
            let mut plain = z.clone();
            let kernel = module.kernel("diffuse")?;
            let launch = Launch::cover_2d(side, side, [32, 32]);
            let bytes = 2 * size_of_val(z.as_slice()) as u64;
            let bands = |(band, next): (usize, &mut [f64])| rows(side, band * BAND, next, &z, 0.1);
            bench.compare(
                format!("diffusion {side}²"),
                bytes,
                &mut || {
                    let args = args![&mut next, &field, side as u64, 0.1];
                    kernel.launch_checked(&stream, &launch, args).expect("a step");
                    stream.synchronize().expect("a step");
                },
                &mut [Rival {
                    name: "rayon",
                    target: if side >= 1024 { WITHIN } else { 0.0 },
                    run: &mut || {
                        pool.install(|| {
                            plain.par_chunks_mut(BAND * side).enumerate().for_each(bands)
                        });
                    },
                }],
            );
            assert_eq!(next.view().to_vec(&stream)?, plain, "both loops compute the same");
        }
    }
    Ok(bench.finish())
}
