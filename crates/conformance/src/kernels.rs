//! The kernels that every device brings to the suite.
//!
//! A device's [`ModuleBundle`] has these kernels, under these names, in a format the device takes. Devices that run
//! Rust functions use [`host_functions`]; others bring sources or binaries of their own.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | `fill_index` | `out: u32[]` written, `start: u32`, `n: u32` | `out[i] = start + i` |
//! | `add_one` | `data: u32[]` written, `n: u32` | `data[i] += 1` |
//! | `add` | `out: u32[]` written, `a: u32[]`, `b: u32[]`, `n: u32` | `out[i] = a[i] + b[i]` |
//! | `saxpy` | `y: f32[]` written, `x: f32[]`, `a: f32`, `n: u32` | `y[i] += a * x[i]` |
//! | `scale_f64` | `y: f64[]` written, `x: f64[]`, `a: f64`, `n: u32` | `y[i] = a * x[i]` |
//! | `index_3d` | `out: u32[]` written, `nx: u32`, `ny: u32`, `nz: u32` | `out[(z * ny + y) * nx + x] = x + 1000 * y + 1000000 * z` |
//! | `many_arguments` | `out: f64[]` written, `a: i8`, `b: u8`, `c: i16`, `d: u16`, `e: i32`, `f: u32`, `g: i64`, `h: u64`, `p: f32`, `q: f64`, `x: f64[]` | `out[0..11] = a, b, c, d, e, f, g, h, p, q, x[0]`, each converted to `f64` |
//! | `spin` | `out: u32[]` written, `rounds: u64` | starts with `v = 0`, sets `v = v * 1664525 + 1013904223` as often as `rounds` says, then `out[0] = v` |
//! | `fault` | `out: u32[]` written | makes the device stop the program: a trap, an assertion, a panic |
//!
//! - Here `i` is the index of the work-item along x over the whole grid, block index × block size + index in the
//!   block, and x, y, z are its indices along the three dimensions. Work-items with `i ≥ n` (or `x ≥ nx`, …) do
//!   nothing, and elements for which there is no work-item stay as they are.
//! - Unsigned arithmetic wraps. `saxpy` may fuse its multiplication and addition: the suite gives it numbers for which
//!   that makes no difference.
//! - Parameters come in this order. `u32[]` is a pointer to elements, everything else a value of that type.
//! - `many_arguments` and `spin` are launched with a single work-item. The suite finds out how long a round of `spin`
//!   takes; what matters is that twice the rounds take about twice as long, so it needs no clock.
//! - `fault` may be left out where nothing stops the program, or where stopping it takes the machine down.

use std::thread;
use std::time::Duration;

use runtime_core::{Grid, HostModule, ModuleBundle};

/// Elements that one core works on at a time.
const CHUNK: usize = 1024;

/// The kernels as Rust functions, for devices that take
/// [`HostFunctions`](runtime_core::ImageFormat::HostFunctions).
pub fn host_functions() -> ModuleBundle<'static> {
    ModuleBundle::new().with(&host_module())
}

/// The same functions as a module: its signatures are those of the table.
pub(crate) fn host_module() -> HostModule {
    HostModule::new()
        .with("fill_index", fill_index)
        .with("add_one", add_one)
        .with("add", add)
        .with("saxpy", saxpy)
        .with("scale_f64", scale_f64)
        .with("index_3d", index_3d)
        .with("many_arguments", many_arguments)
        .with("spin", spin)
        .with("fault", fault)
}

/// What `spin` computes: its recurrence is affine, so a power of it takes as many squarings as the number has bits.
pub(crate) fn spin_value(mut rounds: u64) -> u32 {
    let compose = |(a, b): (u32, u32), (c, d): (u32, u32)| {
        (a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b))
    };
    let mut power = (1_664_525, 1_013_904_223);
    let mut total = (1, 0);
    while rounds > 0 {
        if rounds & 1 == 1 {
            total = compose(power, total);
        }
        power = compose(power, power);
        rounds >>= 1;
    }
    total.1
}

/// The elements that have a work-item and lie below `n`.
fn reached<'a, T>(grid: &Grid<'_>, out: &'a mut [T], n: u32) -> &'a mut [T] {
    let count = out.len().min(n as usize).min(grid.threads()[0]);
    &mut out[..count]
}

fn index(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

fn fill_index(grid: &Grid<'_>, out: &mut [u32], start: u32, n: u32) {
    grid.chunks_mut(reached(grid, out, n), CHUNK, |chunk, part| {
        for (i, value) in part.iter_mut().enumerate() {
            *value = start.wrapping_add(index(chunk * CHUNK + i));
        }
    });
}

fn add_one(grid: &Grid<'_>, data: &mut [u32], n: u32) {
    grid.chunks_mut(reached(grid, data, n), CHUNK, |_, part| {
        part.iter_mut().for_each(|value| *value = value.wrapping_add(1));
    });
}

fn add(grid: &Grid<'_>, out: &mut [u32], a: &[u32], b: &[u32], n: u32) {
    grid.chunks_mut(reached(grid, out, n), CHUNK, |chunk, part| {
        let first = chunk * CHUNK;
        for ((out, a), b) in part.iter_mut().zip(&a[first..]).zip(&b[first..]) {
            *out = a.wrapping_add(*b);
        }
    });
}

fn saxpy(grid: &Grid<'_>, y: &mut [f32], x: &[f32], a: f32, n: u32) {
    grid.chunks_mut(reached(grid, y, n), CHUNK, |chunk, part| {
        part.iter_mut().zip(&x[chunk * CHUNK..]).for_each(|(y, x)| *y += a * x);
    });
}

fn scale_f64(grid: &Grid<'_>, y: &mut [f64], x: &[f64], a: f64, n: u32) {
    grid.chunks_mut(reached(grid, y, n), CHUNK, |chunk, part| {
        part.iter_mut().zip(&x[chunk * CHUNK..]).for_each(|(y, x)| *y = a * x);
    });
}

fn index_3d(grid: &Grid<'_>, out: &mut [u32], nx: u32, ny: u32, nz: u32) {
    let [width, height, depth] = [nx, ny, nz].map(|extent| extent as usize);
    let reach = grid.threads();
    for z in 0..depth.min(reach[2]) {
        for y in 0..height.min(reach[1]) {
            for x in 0..width.min(reach[0]) {
                out[(z * height + y) * width + x] = index(x + 1000 * y + 1_000_000 * z);
            }
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "that is what it is for")]
fn many_arguments(
    _: &Grid<'_>,
    out: &mut [f64],
    a: i8,
    b: u8,
    c: i16,
    d: u16,
    e: i32,
    f: u32,
    g: i64,
    h: u64,
    p: f32,
    q: f64,
    x: &[f64],
) {
    #[expect(clippy::cast_precision_loss, reason = "the table says converted")]
    let (g, h) = (g as f64, h as f64);
    let values =
        [a.into(), b.into(), c.into(), d.into(), e.into(), f.into(), g, h, p.into(), q, x[0]];
    out[..values.len()].copy_from_slice(&values);
}

/// Sleeps a microsecond for each round, so that the suite does not heat a machine whose cores are the device.
fn spin(_: &Grid<'_>, out: &mut [u32], rounds: u64) {
    thread::sleep(Duration::from_micros(rounds));
    out[0] = spin_value(rounds);
}

fn fault(_: &Grid<'_>, _: &mut [u32]) -> Result<(), String> {
    panic!("a fault on purpose")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumping_ahead_is_stepping() {
        let mut value = 0_u32;
        for rounds in 0..100 {
            assert_eq!(spin_value(rounds), value, "{rounds} rounds");
            value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        }
    }
}
