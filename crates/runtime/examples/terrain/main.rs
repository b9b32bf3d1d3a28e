//! Smooths real terrain on the selected device, checks the result, and draws it.
//!
//! The model is hillslope diffusion, `dz/dt = D ∇²z`: soil creeps downhill, summits sink and hollows fill. `model.rs`
//! has the stencil and the loop over steps, for any device and any number of ranks. The other files check and draw.
//!
//! ```text
//! cargo run --release --package runtime --features npy,picture --example terrain -- --device host --scale 4 --ranks 2
//! ```
#![forbid(unsafe_code)]

mod args;
mod check;
mod model;
mod output;
mod picture;
mod progress;

use std::fs::File;
use std::io::{Cursor, Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use comfy_table::{Table, presets};
use ndarray::Array2;
use runtime::ranks::{self, Rank};
use runtime::stencil::{Grid, npy};

use crate::args::Args;
use crate::output::Folder;

fn main() -> ExitCode {
    let args = Args::parse();
    let (count, device) = (args.ranks.map(usize::from), args.device.as_deref());
    let run = |tile| ranks::run(count, device, |rank| work(&args, &tile, rank));
    match read(args.input.as_deref()).and_then(run) {
        Ok(report) => {
            // The results are written. If standard output was closed, that is not a failure.
            report.flatten().iter().for_each(|report| drop(writeln!(stdout(), "{report}")));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("terrain: {}", format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Reads elevations: at least 3 × 3, all finite.
fn read(path: Option<&Path>) -> Result<Array2<f64>> {
    let name = path.map_or("the built-in terrain".into(), |path| path.display().to_string());
    let values = match path {
        Some(path) => npy::read(File::open(path).with_context(|| name.clone())?),
        None => npy::read(Cursor::new(include_bytes!("data/jacksboro_fault_dem.npy"))),
    };
    let values = values.with_context(|| name.clone())?;
    let (shape, wanted) = (values.shape(), "terrain has 2 dimensions of at least 3 cells each");
    let is_terrain = shape.len() == 2 && shape.iter().all(|extent| *extent > 2);
    ensure!(is_terrain, "{name} has shape {shape:?}; {wanted}");
    let tile: Array2<f64> = values.into_dimensionality()?;
    if let Some(((row, column), z)) = tile.indexed_iter().find(|(_, z)| !z.is_finite()) {
        bail!("{name} has {z} in row {row}, column {column}; elevations must be finite");
    }
    Ok(tile)
}

/// The place in the tile of a cell of the terrain: copies of the tile, every other one mirrored, so that heights stay
/// continuous. No soil crosses a mirror line, so every copy evolves like a single tile.
fn mirrored(tile: &Array2<f64>, cell: [usize; 2]) -> [usize; 2] {
    [0, 1].map(|axis| {
        let (cells, at) = (tile.shape()[axis], cell[axis] % tile.shape()[axis]);
        if (cell[axis] / cells).is_multiple_of(2) { at } else { cells - 1 - at }
    })
}

/// The work of every rank. The first rank returns the report.
fn work(args: &Args, tile: &Array2<f64>, rank: &Rank) -> Result<Option<String>> {
    let scale = || format!("scale {}", args.scale);
    let cells = [tile.nrows(), tile.ncols()].map(|n| n.checked_mul(args.scale as usize));
    let [Some(rows), Some(columns)] = cells else { bail!("{} is too large", scale()) };
    let grid = Grid::cartesian([rows, columns]).ranks(rank.communicator.clone());
    let grid = grid.build(&rank.device).with_context(scale)?;
    let is_first = rank.number() == 0;
    let mut folder = is_first.then(|| Folder::create(&args.output)).transpose()?;
    let range = check::heights(tile.iter());
    let height = |cell| tile[mirrored(tile, cell)];
    let run = model::run((rank, &grid), height, args, |heights| {
        let Some(folder) = &mut folder else { return Ok(()) };
        let picture = picture::draw(&heights.into_dimensionality()?, &range, args)?;
        folder.show(("progress.png", &|file| Ok(picture.write(file)?)))
    });
    let run = run.with_context(scale)?;
    let [launches, transfers, moved, messages, sent] = check::traffic(rank, &grid, &run, args)?;
    let (Some(terrain), Some(mut folder)) = (&run.heights, folder) else { return Ok(None) };
    let clock = Instant::now();
    let reference = model::reference(tile, args);
    let [now, mass, apart] = check::result(terrain, [tile, &reference], &range, args.steps)?;
    let checked = clock.elapsed();
    let after = Array2::from_shape_fn(tile.dim(), |(row, column)| terrain[[row, column]]);
    let (picture, deepest) = picture::compare([tile, &after], &range, args)?;
    let written = folder.save(&[
        ("smoothed.npy", &|file| Ok(npy::write(file, terrain)?)),
        ("terrain.png", &|file| Ok(picture.write(file)?)),
    ])?;

    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let mut row = |what: &str, text: String| {
        table.add_row([what.to_owned(), text]);
    };
    let seconds = |time: Duration| format!("{time:.2?}");
    let [to, steps, pictures, from] = run.times.map(seconds);
    row("device", format!("{}, {}", rank.device.id(), rank.device.info().name));
    if grid.ranks() > 1 {
        let kind =
            if rank.is_process { "processes of an MPI job" } else { "threads of this process" };
        let [down, across] = grid.blocks();
        row("ranks", format!("{}, {kind}, in {down} x {across} blocks", grid.ranks()));
        row("sent between ranks", format!("{sent} bytes in {messages} messages"));
    }
    row("terrain", format!("{rows} x {columns} cells of {} m x {} m", args.dy, args.dx));
    let years = args.scheme()[0];
    let all = years * args.steps as f64;
    row("model", format!("{} steps of {years:.3e} years, {all:.3e} years in all", args.steps));
    let rate = all / years * (rows * columns) as f64 / run.times[1].as_secs_f64() / 1e6;
    row("cells per second", format!("{rate:.0} million"));
    row("time", format!("{steps} for the steps, {to} to the device, {from} back"));
    row("pictures on the way", format!("{} in {pictures}", args.pictures()));
    row("launches", launches.to_string());
    row("moved", format!("{moved} bytes in {transfers} transfers: the fewest that will do"));
    let then = format!("{:.1} m to {:.1} m", range.start(), range.end());
    row("heights", format!("{then}, now {now}: no new extremes"));
    row("mass kept", format!("relative change {mass}"));
    row("equals reference", format!("to {apart}, checked in {}", seconds(checked)));
    row("picture", format!("before, after, change up to {deepest:.1} m (red: lower)"));
    written.iter().for_each(|path| row("written", path.display().to_string()));
    match run.transfers.total().count {
        0 => Ok(Some(table.to_string())),
        _ => Ok(Some(format!("{table}\ntransfers of rank 0:\n{}", run.transfers))),
    }
}
