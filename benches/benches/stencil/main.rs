//! Stencils against hand-written loops in Rust and C, columns against loops in Rust, launches of stencils against
//! launches of kernels, and steps of two ranks against exchanges and launches by hand.
//!
//! Both sides use the same number of threads, run in turns, and end each call when the work is done. It is checked that
//! all compute the same bits.
#![expect(unsafe_code, reason = "loops with features of the processor, and launches of kernels")]

mod gcc;
mod plain;
mod ranks;
mod rows;
mod thomas;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use backend_host::HostDevice;
use benches::{Bench, Rival};
use runtime_core::{Device, Grid as Cores, HostModule, Launch, Result, Stream, args};
use stencil::{Boundary, Field, Grid, In, InOut, Number, Out, stencil, stencils};

use crate::gcc::Gcc;
use crate::plain::{Plain, Threads};
use crate::rows::Compute;

/// The minimum speed of a stencil, relative to the hand-written loop.
const SPEED: f64 = 0.95;

/// The most seconds that a launch of a stencil may take beyond one of a kernel.
const LAUNCH: f64 = 1e-6;

/// Launches between two waits.
const LAUNCHES: u32 = 64;

/// Steps on small grids between two waits: programs wait at the end of many steps.
const STEPS: usize = 256;

#[stencil]
fn add(x: InOut<f64, 1>, y: In<f64, 1>, a: f64) {
    x.set(x.at(0) + a * y.at(0));
}

#[stencil]
fn copy(next: Out<f64, 2>, t: In<f64, 2>) {
    next.set(t.at(0, 0));
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

/// Stencils of the gallery.
#[stencils]
mod gallery {
    use stencil::{In, Out};

    #[stencil_fn]
    fn laplacian(q: In<f64, 3>) -> f64 {
        4.0 * q.at(0, 0, 0) - (q.at(0, 0, 1) + q.at(0, 0, -1) + (q.at(0, 1, 0) + q.at(0, -1, 0)))
    }

    #[stencil_fn]
    fn limited(flux: f64, slope: f64) -> f64 {
        if flux * slope > 0.0 { 0.0 } else { flux }
    }

    #[stencil_fn]
    fn flux_1(q: In<f64, 3>) -> f64 {
        limited(laplacian(q.shift(0, 1, 0)) - laplacian(q), q.at(0, 1, 0) - q.at(0, 0, 0))
    }

    #[stencil_fn]
    fn flux_2(q: In<f64, 3>) -> f64 {
        limited(laplacian(q.shift(0, 0, 1)) - laplacian(q), q.at(0, 0, 1) - q.at(0, 0, 0))
    }

    #[stencil]
    pub(super) fn hdiff(next: Out<f64, 3>, q: In<f64, 3>, coefficient: In<f64, 3>) {
        let along_1 = flux_1(q) - flux_1(q.shift(0, -1, 0));
        let along_2 = flux_2(q) - flux_2(q.shift(0, 0, -1));
        next.set(q.at(0, 0, 0) - coefficient.at(0, 0, 0) * (along_2 + along_1));
    }

    #[stencil_fn]
    fn laplacian_9(f: In<f32, 2>) -> f32 {
        let sides = f.at(-1, 0) + f.at(1, 0) + f.at(0, -1) + f.at(0, 1);
        let corners = f.at(-1, -1) + f.at(-1, 1) + f.at(1, -1) + f.at(1, 1);
        0.2 * sides + 0.05 * corners - f.at(0, 0)
    }

    #[rustfmt::skip]
    #[stencil]
    pub(super) fn gray_scott(
        u_next: Out<f32, 2>, v_next: Out<f32, 2>, u: In<f32, 2>, v: In<f32, 2>, feed: f32, kill: f32,
    ) {
        let eaten = u.at(0, 0) * v.at(0, 0) * v.at(0, 0);
        u_next.set(u.at(0, 0) + laplacian_9(u) - eaten + feed * (1.0 - u.at(0, 0)));
        v_next.set(v.at(0, 0) + 0.5 * laplacian_9(v) + eaten - (feed + kill) * v.at(0, 0));
    }
}

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    launches(&mut bench)?;
    if has_level_v3() {
        let gcc = Gcc::compile();
        if gcc.is_none() {
            println!("stencil: left out: no gcc");
        }
        for threads in [1, 2] {
            let machine = Machine::new(threads, gcc.as_ref())?;
            machine.loops(&mut bench)?;
            thomas::solutions(&machine, &mut bench)?;
        }
        ranks::steps(&mut bench)?;
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

/// The enqueue of a launch whose ghosts are fresh against that of a kernel with as many memories. The stream has other
/// work meanwhile.
fn launches(bench: &mut Bench) -> Result<()> {
    if !bench.group("launches of stencils against launches of kernels, each 64 times") {
        return Ok(());
    }
    let device = Device::new(HostDevice::with_threads(0, 1)?)?;
    let stream = device.default_stream();
    let grid = Grid::cartesian([16]).build(&device)?;
    let mut x = grid.field("x").filled(1.0)?;
    let y = grid.field("y").filled(1.0)?;
    let gate = Arc::new(Mutex::new(()));
    let closed = Arc::clone(&gate);
    let hold = move |_: &Cores<'_>| drop(locked(&closed));
    let kernel = |_: &Cores<'_>, x: &mut [f64], y: &[f64], a: f64| {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += a * y);
    };
    let module = device.module_load(&HostModule::new().with("hold", hold).with("add", kernel))?;
    let (hold, kernel) = (module.kernel("hold")?, module.kernel("add")?);
    let mut raw_x = device.memory_from_slice(&stream, &[1.0; 16])?;
    let raw_y = device.memory_from_slice(&stream, &[1.0; 16])?;
    let one = Launch::cover(16, 16);
    // Other programs on the machine's host double the time of some calls. The least one shows what a launch costs.
    let least = |calls: u32, launch: &mut dyn FnMut() -> Result<()>| -> f64 {
        let mut least = f64::INFINITY;
        for _ in 0..calls {
            let closed = locked(&gate);
            // SAFETY: the kernel is safe Rust.
            unsafe { hold.launch(&stream, &one, &[]) }.expect("a launch");
            let start = Instant::now();
            (0..LAUNCHES).try_for_each(|_| launch()).expect("a launch");
            least = least.min(start.elapsed().as_secs_f64());
            drop(closed);
            stream.synchronize().expect("launches");
        }
        least
    };
    bench.compare_timed(
        "two fields, nothing stale",
        f64::from(LAUNCHES) * LAUNCH,
        &mut |calls| least(calls, &mut || add(&mut x, &y, 0.5).run(&stream)),
        ("Kernel::launch", 1.0, &mut |calls| {
            least(calls, &mut || {
                let args = args![&mut raw_x, &raw_y, 0.5_f64];
                // SAFETY: the kernel is safe Rust.
                unsafe { kernel.launch(&stream, &one, args) }
            })
        }),
    );
    Ok(())
}

/// A device and a pool of as many threads, and the compiled rivals.
struct Machine<'a> {
    threads: usize,
    stream: Stream,
    pool: Threads,
    gcc: Option<&'a Gcc>,
}

impl<'a> Machine<'a> {
    fn new(threads: usize, gcc: Option<&'a Gcc>) -> Result<Self> {
        let device = Device::new(HostDevice::with_threads(0, threads)?)?;
        Ok(Self { threads, stream: device.default_stream(), pool: Threads::new(threads), gcc })
    }

    /// Each stencil on small grids, and on grids of about a gigabyte.
    fn loops(&self, bench: &mut Bench) -> Result<()> {
        let (stream, quick) = (&self.stream, bench.is_quick());
        let device = stream.device();
        let planes = [[256, 256], if quick { [512, 512] } else { [8192, 8192] }];
        if self.group(bench, "copy, f64") {
            for cells in planes {
                let grid = Grid::cartesian(cells).build(device)?;
                let t = grid.field("t").from_fn(value)?;
                let plain = Plain::new(cells, 0, [0; 2], 1, &[&value], [0.0; 2]);
                let rival = Case { cells, arrays: 2, row: ("copy", rows::copy), plain };
                let ours = |next: &mut [Field<f64, 2>]| copy(&mut next[0], &t).run(stream);
                self.against(bench, rival, vec![t.like("next")?], &ours)?;
            }
        }
        if self.group(bench, "five-point, f64") {
            for cells in planes {
                let grid = Grid::cartesian(cells).build(device)?;
                let t = grid.field("t").boundary(Boundary::Clamp).from_fn(value)?;
                let plain = Plain::new(cells, 1, [0; 2], 1, &[&value], [0.1; 2]);
                let row: (_, Compute<f64>) = ("five_point", rows::five_point);
                let rival = Case { cells, arrays: 2, row, plain };
                let ours =
                    |next: &mut [Field<f64, 2>]| five_point(&mut next[0], &t, 0.1).run(stream);
                self.against(bench, rival, vec![t.like("next")?], &ours)?;
            }
        }
        if self.group(bench, "seven-point, f64") {
            for cells in [[48; 3], if quick { [64; 3] } else { [400; 3] }] {
                let grid = Grid::cartesian(cells).build(device)?;
                let t = grid.field("t").boundary(Boundary::Clamp).from_fn(value)?;
                let plain = Plain::new(cells, 1, [0; 3], 1, &[&value], [0.1; 2]);
                let row: (_, Compute<f64>) = ("seven_point", rows::seven_point);
                let rival = Case { cells, arrays: 2, row, plain };
                let ours =
                    |next: &mut [Field<f64, 3>]| seven_point(&mut next[0], &t, 0.1).run(stream);
                self.against(bench, rival, vec![t.like("next")?], &ours)?;
            }
        }
        if self.group(bench, "hdiff, f64") {
            for cells in [[8, 64, 128], if quick { [8, 128, 128] } else { [40, 1024, 1024] }] {
                let grid = Grid::cartesian(cells).halo(2).build(device)?;
                let q = grid.field("q").from_fn(value)?;
                let coefficient = grid.field("coefficient").from_fn(|at| value(at) / 1e5)?;
                let coefficients = |at: [usize; 3]| value(at) / 1e5;
                let values: [&dyn Fn([usize; 3]) -> f64; 2] = [&value, &coefficients];
                let plain = Plain::new(cells, 0, [0, 2, 2], 1, &values, [0.0; 2]);
                let row: (_, Compute<f64>) = ("hdiff", rows::hdiff);
                let rival = Case { cells, arrays: 3, row, plain };
                let inner = [2..cells[1] - 2, 2..cells[2] - 2];
                let ours = |next: &mut [Field<f64, 3>]| {
                    let hdiff = gallery::hdiff(&mut next[0], &q, &coefficient);
                    hdiff.over(1, inner[0].clone()).over(2, inner[1].clone()).run(stream)
                };
                let next = grid.field("next").from_fn(value)?;
                self.against(bench, rival, vec![next], &ours)?;
            }
        }
        if self.group(bench, "Gray-Scott, f32") {
            let [u_value, v_value] = [1e-3, 2e-4].map(|by| move |at| f32::from(number(at)) * by);
            for cells in planes {
                let grid = Grid::cartesian(cells).build(device)?;
                let u = grid.field("u").boundary(Boundary::Clamp).from_fn(u_value)?;
                let v = grid.field("v").boundary(Boundary::Clamp).from_fn(v_value)?;
                let (feed, kill) = (0.055, 0.062);
                let plain = Plain::new(cells, 1, [0; 2], 2, &[&u_value, &v_value], [feed, kill]);
                let row: (_, Compute<f32>) = ("gray_scott", rows::gray_scott);
                let rival = Case { cells, arrays: 4, row, plain };
                let ours = |next: &mut [Field<f32, 2>]| {
                    let [u_next, v_next] = next else { return Ok(()) };
                    gallery::gray_scott(u_next, v_next, &u, &v, feed, kill).run(stream)
                };
                self.against(bench, rival, vec![u.like("u_next")?, v.like("v_next")?], &ours)?;
            }
        }
        Ok(())
    }

    fn group(&self, bench: &mut Bench, title: &str) -> bool {
        bench.group(format!("{title}, {} threads, against loops by hand", self.threads))
    }

    /// Checks that a stencil and its rivals compute the same bits, and compares their times.
    fn against<T: Number + PartialEq, const N: usize>(
        &self,
        bench: &mut Bench,
        Case { cells, arrays, row: (name, row), plain }: Case<T, N>,
        mut outputs: Vec<Field<T, N>>,
        run: Run<'_, T, N>,
    ) -> Result<()> {
        let (points, steps) = (cells.iter().product::<usize>(), steps(bench, cells));
        let mut ours = || {
            for _ in 0..steps {
                run(&mut outputs).expect("a launch");
            }
            self.stream.synchronize().expect("launches");
        };
        ours();
        // SAFETY: the functions of `rows.c` have the names and parameters of those in `rows.rs`.
        let gcc = self.gcc.map(|gcc| unsafe { gcc.row::<T>(name) });
        let plain = Mutex::new(plain);
        let step = |row: Compute<T>| locked(&plain).step(row, &self.pool);
        let bytes = steps * arrays * points * size_of::<T>();
        let mut rust = || (0..steps).for_each(|_| step(row));
        let mut c = gcc.map(|row| move || (0..steps).for_each(|_| step(row)));
        let mut rivals = vec![Rival { name: "Rust", target: SPEED, run: &mut rust }];
        rivals.extend(c.as_mut().map(|run| Rival { name: "gcc", target: SPEED, run }));
        for rival in &mut rivals {
            (rival.run)();
        }
        let title = format!("{cells:?} points, {steps} times");
        bench.compare(title, bytes as u64, &mut ours, &mut rivals);
        for row in [Some(row), gcc].into_iter().flatten() {
            step(row);
            for (number, output) in outputs.iter_mut().enumerate() {
                let same = output.read_host()?.iter().copied().eq(locked(&plain).values(number));
                assert!(same, "{name} computes other values");
            }
        }
        Ok(())
    }
}

/// The steps between two waits on a grid.
fn steps<const N: usize>(bench: &Bench, cells: [usize; N]) -> usize {
    let is_small = cells.iter().product::<usize>() < 1 << 18;
    if is_small && !bench.is_quick() { STEPS } else { 1 }
}

/// What a stencil is compared with.
struct Case<T, const N: usize> {
    cells: [usize; N],
    /// The arrays that are read or written once.
    arrays: usize,
    row: (&'static str, Compute<T>),
    plain: Plain<T, N>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A launch of a stencil.
type Run<'a, T, const N: usize> = &'a dyn Fn(&mut [Field<T, N>]) -> Result<()>;

/// Numbers without a pattern that a loop could use.
fn number<const N: usize>(at: [usize; N]) -> u16 {
    let place = at.iter().fold(0, |place: usize, i| place.wrapping_mul(31).wrapping_add(*i));
    u16::try_from(place % 977).unwrap_or_default()
}

fn value<const N: usize>(at: [usize; N]) -> f64 {
    number(at).into()
}
