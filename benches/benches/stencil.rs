//! Stencils against hand-written loops with the same features of the processor, and launches of stencils against
//! launches of kernels.
//!
//! Both sides use the same number of threads, run in turns, and end each call when the work is done.
#![expect(unsafe_code, reason = "loops with features of the processor, and launches of kernels")]

use std::process::ExitCode;

use backend_host::HostDevice;
use benches::{Bench, Rival};
use rayon::prelude::*;
use runtime_core::{Device, Grid as Cores, HostModule, Launch, Result, Stream, args};
use stencil::{Boundary, Field, Grid, In, InOut, Out, stencil};

/// The minimum speed of a stencil, relative to the hand-written loop.
const SPEED: f64 = 0.95;

/// The most seconds that a launch of a stencil may take beyond one of a kernel.
const LAUNCH: f64 = 1e-6;

/// Launches between two waits.
const LAUNCHES: u32 = 64;

#[stencil]
fn add(x: InOut<f64, 1>, y: In<f64, 1>, a: f64) {
    x.set(x.at(0) + a * y.at(0));
}

#[stencil]
fn five_point(next: Out<f64, 2>, t: In<f64, 2>, a: f64) {
    let around = t.at(-1, 0) + t.at(1, 0) + t.at(0, -1) + t.at(0, 1);
    next.set(t.at(0, 0) + a * (around - 4.0 * t.at(0, 0)));
}

#[stencil]
fn seven_point(next: Out<f64, 3>, t: In<f64, 3>, a: f64) {
    let across = t.at(-1, 0, 0) + t.at(1, 0, 0) + t.at(0, -1, 0) + t.at(0, 1, 0);
    let around = across + t.at(0, 0, -1) + t.at(0, 0, 1);
    next.set(t.at(0, 0, 0) + a * (around - 6.0 * t.at(0, 0, 0)));
}

/// Rows of a plain loop: the row at `at` of `next` from `t`, whose rows and planes are this far apart.
type Row = unsafe fn(next: &mut [f64], t: &[f64], at: usize, steps: &[usize], a: f64);

/// # Safety
///
/// The processor is of level v3.
#[cfg_attr(
    target_arch = "x86_64",
    target_feature(enable = "avx,avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe")
)]
unsafe fn five_point_row(next: &mut [f64], t: &[f64], at: usize, steps: &[usize], a: f64) {
    let n = next.len();
    let row = |from: usize| &t[from..][..n];
    let (north, south) = (row(at - steps[0]), row(at + steps[0]));
    let (west, here, east) = (row(at - 1), row(at), row(at + 1));
    for x in 0..n {
        let around = north[x] + south[x] + west[x] + east[x];
        next[x] = here[x] + a * (around - 4.0 * here[x]);
    }
}

/// # Safety
///
/// The processor is of level v3.
#[cfg_attr(
    target_arch = "x86_64",
    target_feature(enable = "avx,avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe")
)]
unsafe fn seven_point_row(next: &mut [f64], t: &[f64], at: usize, steps: &[usize], a: f64) {
    let n = next.len();
    let row = |from: usize| &t[from..][..n];
    let (low, high) = (row(at - steps[0]), row(at + steps[0]));
    let (north, south) = (row(at - steps[1]), row(at + steps[1]));
    let (west, here, east) = (row(at - 1), row(at), row(at + 1));
    for x in 0..n {
        let around = low[x] + high[x] + north[x] + south[x] + west[x] + east[x];
        next[x] = here[x] + a * (around - 6.0 * here[x]);
    }
}

/// A grid with one ghost on each side, as a plain loop has it.
struct Plain {
    extents: Vec<usize>,
    steps: Vec<usize>,
    next: Vec<f64>,
    t: Vec<f64>,
}

impl Plain {
    fn new(cells: &[usize]) -> Self {
        let extents: Vec<usize> = cells.iter().map(|n| n + 2).collect();
        let mut steps = vec![1; cells.len()];
        for axis in (0..cells.len() - 1).rev() {
            steps[axis] = steps[axis + 1] * extents[axis + 1];
        }
        let all: usize = extents.iter().product();
        let t: Vec<f64> = (0..all).map(|at| (at % 977) as f64).collect();
        Self { extents, steps, next: t.clone(), t }
    }

    /// Computes the inner points in bands of rows.
    fn step(&mut self, row: Row) {
        let Self { extents, steps, next, t } = self;
        let width = extents[extents.len() - 1];
        let band = (16_384 / width).max(1);
        let inner = |number: usize| match extents[..] {
            [rows, _] => (1..rows - 1).contains(&number),
            [planes, rows, _] => {
                (1..planes - 1).contains(&(number / rows))
                    && (1..rows - 1).contains(&(number % rows))
            }
            _ => false,
        };
        next.par_chunks_mut(band * width).enumerate().for_each(|(chunk, next)| {
            for (index, next) in next.chunks_exact_mut(width).enumerate() {
                let number = chunk * band + index;
                if inner(number) {
                    // SAFETY: the processor was checked.
                    unsafe { row(&mut next[1..width - 1], t, number * width + 1, steps, 0.1) };
                }
            }
        });
    }
}

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    launches(&mut bench)?;
    if has_level_v3() {
        for threads in [1, 2] {
            let sizes = if bench.is_quick() {
                [[256, 256], [512, 512]]
            } else {
                [[256, 256], [8192, 8192]]
            };
            loops(
                &mut bench,
                threads,
                "five-point, f64",
                five_point_row,
                &sizes,
                &|next, t, stream| five_point(next, t, 0.1).run(stream),
            )?;
            let sizes = if bench.is_quick() { [[32; 3], [64; 3]] } else { [[48; 3], [400; 3]] };
            loops(
                &mut bench,
                threads,
                "seven-point, f64",
                seven_point_row,
                &sizes,
                &|next, t, stream| seven_point(next, t, 0.1).run(stream),
            )?;
        }
    }
    Ok(bench.finish())
}

#[cfg(target_arch = "x86_64")]
fn has_level_v3() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_level_v3() -> bool {
    true
}

/// A launch whose ghosts are fresh against a launch of a kernel with as many memories.
fn launches(bench: &mut Bench) -> Result<()> {
    if !bench.group("launches of stencils against launches of kernels, each 64 times") {
        return Ok(());
    }
    let device = Device::new(HostDevice::with_threads(0, 1)?)?;
    let stream = device.default_stream();
    let grid = Grid::cartesian([16]).build(&device)?;
    let mut x = grid.field("x").filled(1.0)?;
    let y = grid.field("y").filled(1.0)?;
    let kernel = |_: &Cores<'_>, x: &mut [f64], y: &[f64], a: f64| {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += a * y);
    };
    let kernel = device.module_load(&HostModule::new().with("add", kernel))?.kernel("add")?;
    let mut raw_x = device.memory_from_slice(&stream, &[1.0; 16])?;
    let raw_y = device.memory_from_slice(&stream, &[1.0; 16])?;
    let one = Launch::cover(16, 16);
    bench.compare_within(
        "two fields, nothing stale",
        f64::from(LAUNCHES) * LAUNCH,
        &mut || {
            for _ in 0..LAUNCHES {
                add(&mut x, &y, 0.5).run(&stream).expect("a launch");
            }
            stream.synchronize().expect("launches");
        },
        Rival {
            name: "Kernel::launch",
            target: 1.0,
            run: &mut || {
                for _ in 0..LAUNCHES {
                    let args = args![&mut raw_x, &raw_y, 0.5_f64];
                    // SAFETY: the kernel is safe Rust.
                    unsafe { kernel.launch(&stream, &one, args) }.expect("a launch");
                }
                stream.synchronize().expect("launches");
            },
        },
    );
    Ok(())
}

/// A launch of a stencil.
type Step<'a, const N: usize> =
    &'a dyn Fn(&mut Field<f64, N>, &Field<f64, N>, &Stream) -> Result<()>;

/// A step of a stencil against a plain loop.
fn loops<const N: usize>(
    bench: &mut Bench,
    threads: usize,
    title: &str,
    row: Row,
    sizes: &[[usize; N]],
    run: Step<'_, N>,
) -> Result<()> {
    if !bench.group(format!("{title}, {threads} threads, against a loop by hand")) {
        return Ok(());
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
    let device = Device::new(HostDevice::with_threads(0, threads)?)?;
    let stream = device.default_stream();
    for cells in sizes {
        let grid = Grid::cartesian(*cells).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Clamp).from_fn(|at| (at[0] % 977) as f64)?;
        let mut next = t.like("next")?;
        let mut plain = Plain::new(cells);
        let points: usize = cells.iter().product();
        bench.compare(
            format!("{cells:?} points"),
            (2 * points * size_of::<f64>()) as u64,
            &mut || {
                run(&mut next, &t, &stream).expect("a launch");
                stream.synchronize().expect("a launch");
            },
            &mut [Rival {
                name: "loop by hand",
                target: SPEED,
                run: &mut || pool.install(|| plain.step(row)),
            }],
        );
    }
    Ok(())
}
