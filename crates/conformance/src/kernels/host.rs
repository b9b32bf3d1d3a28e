//! The kernels as Rust functions.

use std::thread;
use std::time::Duration;

use runtime_core::{Grid, HostModule, ModuleBundle};

use super::spin_value;

/// The number of elements that one core processes at a time.
const CHUNK: usize = 1024;

/// The kernels as Rust functions, for devices that support [`HostFunctions`](runtime_core::ImageFormat::HostFunctions).
pub fn host_functions() -> ModuleBundle<'static> {
    ModuleBundle::new().with(&host_module())
}

/// The same functions as a module with the signatures of the table.
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

/// The elements that have a work-item and are below `n`.
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

#[expect(clippy::too_many_arguments, reason = "this kernel exists to fault")]
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

/// Sleeps one microsecond for each round, so the suite does not load the cores of a host device.
fn spin(_: &Grid<'_>, out: &mut [u32], rounds: u64) {
    thread::sleep(Duration::from_micros(rounds));
    out[0] = spin_value(rounds);
}

fn fault(_: &Grid<'_>, _: &mut [u32]) -> Result<(), String> {
    panic!("a fault on purpose")
}
