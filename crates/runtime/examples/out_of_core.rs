//! Smooths a terrain on a device that has memory for a quarter of it.
//!
//! The terrain is one array in tiles of rows. A memory budget gives each part of a tile memory of its own on the
//! device. The first two steps are recorded. Then the budget knows which parts are used next: it copies them to the
//! device, and the results to the host, while the device computes.
//!
//! `cargo run --release --package runtime --features sim --example out_of_core`

use std::mem::swap;
use std::time::{Duration, Instant};

use ndarray::{Array2, Ix2};
use runtime::array::{ArrayBuffer, MemoryBudget, Partition, Parts};
use runtime::sim::{SimConfig, SimDevice};
use runtime::{Device, Grid, HostModule, Kernel, Launch, Result, Stream, args};

const TILES: usize = 20;
const ROWS: usize = 64 * TILES;
const COLUMNS: usize = 1024;
const BYTES: usize = ROWS * COLUMNS * size_of::<f32>();
/// The memory of the device.
const MEMORY: usize = BYTES / 4;
const STEPS: usize = 8;

/// The parts of a tile: its first row, its last row, and the rows between. Neighbours read the first and the last row.
const FIRST: usize = 0;
const INSIDE: usize = 1;
const LAST: usize = 2;

fn part(tile: usize, which: usize) -> usize {
    3 * tile + which
}

fn partition() -> Result<Partition> {
    let rows = ROWS / TILES;
    let parts = (0..TILES).flat_map(|tile| {
        let start = tile * rows;
        let ends = [start, start + 1, start + rows - 1, start + rows];
        [0, 1, 2].map(|which| [ends[which]..ends[which + 1], 0..COLUMNS])
    });
    let parts: Vec<_> = parts.collect();
    Partition::new(&[ROWS, COLUMNS], &parts.iter().map(|part| &part[..]).collect::<Vec<_>>(), &[])
}

/// The mean of a cell and its four neighbours. Cells beyond the edge have the value of the cell itself.
fn mean(above: &[f32], here: &[f32], below: &[f32], column: usize) -> f32 {
    let left = here[column.saturating_sub(1)];
    let right = here[(column + 1).min(here.len() - 1)];
    (here[column] + above[column] + below[column] + left + right) / 5.0
}

/// The kernel: smooths one tile, given the rows next to it.
#[expect(clippy::too_many_arguments, reason = "each part of a tile is an argument")]
fn smooth(
    _: &Grid<'_>,
    above: &[f32],
    first: &[f32],
    inside: &[f32],
    last: &[f32],
    below: &[f32],
    new_first: &mut [f32],
    new_inside: &mut [f32],
    new_last: &mut [f32],
) {
    let columns = first.len();
    let rows: Vec<&[f32]> =
        [above, first].into_iter().chain(inside.chunks(columns)).chain([last, below]).collect();
    let new = [new_first].into_iter().chain(new_inside.chunks_mut(columns)).chain([new_last]);
    for (rows, new) in rows.windows(3).zip(new) {
        for (column, new) in new.iter_mut().enumerate() {
            *new = mean(rows[0], rows[1], rows[2], column);
        }
    }
}

/// Smooths all tiles, one after the other.
fn step(
    now: &ArrayBuffer<f32, Ix2>,
    next: &mut ArrayBuffer<f32, Ix2>,
    smooth: &Kernel,
    stream: &Stream,
) -> Result<()> {
    for tile in 0..TILES {
        let own = [FIRST, INSIDE, LAST].map(|which| part(tile, which));
        let above = if tile == 0 { own[0] } else { part(tile - 1, LAST) };
        let below = if tile == TILES - 1 { own[2] } else { part(tile + 1, FIRST) };
        let read = own.into_iter().chain([above, below]).map(Parts::one);
        let old = now.part(read.fold(Parts::NONE, |all, part| all | part))?.read(stream)?;
        let [mut first, mut inside, mut last] = next.split(own.map(Parts::one))?;
        let (mut first, mut inside, mut last) =
            (first.write(stream)?, inside.write(stream)?, last.write(stream)?);
        let args = args![
            old.part(above)?,
            old.part(own[0])?,
            old.part(own[1])?,
            old.part(own[2])?,
            old.part(below)?,
            first.view_mut()?,
            inside.view_mut()?,
            last.view_mut()?,
        ];
        smooth.launch_checked(stream, &Launch::cover(1, 1), args)?;
    }
    Ok(())
}

/// The same on the host, in one piece.
fn expected(mut terrain: Array2<f32>) -> Array2<f32> {
    for _ in 0..STEPS {
        let row = |row: usize| terrain.row(row).to_vec();
        let smoothed = |row_of: usize| {
            let (above, below) = (row(row_of.saturating_sub(1)), row((row_of + 1).min(ROWS - 1)));
            let here = row(row_of);
            (0..COLUMNS).map(|column| mean(&above, &here, &below, column)).collect::<Vec<_>>()
        };
        let cells: Vec<f32> = (0..ROWS).flat_map(smoothed).collect();
        terrain = Array2::from_shape_fn((ROWS, COLUMNS), |(i, j)| cells[i * COLUMNS + j]);
    }
    terrain
}

fn main() -> Result<()> {
    let config = SimConfig::new().jitter(Duration::ZERO).memory_bytes(MEMORY).link(1 << 30);
    let device = Device::new(SimDevice::new(0, config))?;
    let stream = device.default_stream();
    let kernel = device.module_load(&HostModule::new().with("smooth", smooth))?.kernel("smooth")?;

    let terrain = Array2::from_shape_fn((ROWS, COLUMNS), |(i, j)| {
        let (x, y) = (j as f32 / 40.0, i as f32 / 25.0);
        1000.0 + 300.0 * (x.sin() * y.cos()) + ((7 * i + 13 * j) % 17) as f32
    });
    let budget = MemoryBudget::new(&device, MEMORY as u64);
    let mut now = ArrayBuffer::with_partition(partition()?)?;
    let mut next = ArrayBuffer::with_partition(partition()?)?;
    for array in [&mut now, &mut next] {
        array.page_lock(&device)?;
        array.set_memory_budget(&budget)?;
    }
    now.write_host()?.assign(&terrain);

    let began = Instant::now();
    let mut smooth_twice = || -> Result<()> {
        step(&now, &mut next, &kernel, &stream)?;
        swap(&mut now, &mut next);
        step(&now, &mut next, &kernel, &stream)?;
        swap(&mut now, &mut next);
        Ok(())
    };
    let recording = budget.record()?;
    smooth_twice()?;
    let recorded = recording.finish();
    let expects = budget.repeat(&recorded)?;
    for _ in 1..STEPS / 2 {
        smooth_twice()?;
    }
    drop(expects);
    let result = now.read_host()?.to_owned();
    let took = began.elapsed();

    let report = now.transfers() + next.transfers();
    let (up, down) = (report.between("host", "sim:0").bytes, report.between("sim:0", "host").bytes);
    // Each step reads one array and writes the other. What the device has room for may stay there from step to step.
    let bound = (STEPS * (BYTES - MEMORY)) as u64;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("terrain {:.0} MiB, device {:.0} MiB", mib(BYTES as u64), mib(MEMORY as u64));
    println!("{STEPS} steps in {:.0} ms", took.as_secs_f64() * 1e3);
    println!("to the device   {:6.1} MiB, at least {:.1} MiB", mib(up), mib(bound));
    println!("to the host     {:6.1} MiB, at least {:.1} MiB", mib(down), mib(bound));
    println!("parts that left {:6}", budget.evicted().count);
    assert_eq!(result, expected(terrain), "the result is that of the host");
    Ok(())
}
