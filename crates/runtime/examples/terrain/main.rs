//! Smooths real terrain on the selected device, checks the result, and draws it.
//!
//! The model is hillslope diffusion, `dz/dt = D ∇²z`: soil creeps downhill, summits sink and hollows fill. Read these
//! files first: `diffusion.rs` contains the arrays, the halo between ranks and the loop over steps; `kernel.rs`
//! contains the code that runs on the device; `blocks.rs` divides the terrain into a block for each rank; `queue.rs`
//! keeps the host from running too far ahead of the device. The other files read, gather, check and draw.
//!
//! ```text
//! cargo run --release --package runtime --example terrain -- --device host --steps 400 --scale 4 --ranks 2
//! ```
#![deny(unsafe_code)]

mod args;
mod blocks;
mod check;
mod dem;
mod diffusion;
mod error;
mod gather;
mod hillshade;
mod kernel;
mod output;
mod picture;
mod progress;
mod queue;
mod ranks;
mod reference;
mod report;
mod resample;
mod traffic;

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use ndarray::{Array2, ArrayRef2, s};

use crate::args::Args;
use crate::blocks::Blocks;
use crate::check::{Checks, Summary};
use crate::diffusion::{Field, Schedule, Scheme};
use crate::error::DemoError;
use crate::gather::Gather;
use crate::output::Folder;
use crate::picture::Compression;
use crate::progress::Progress;
use crate::ranks::Rank;
use crate::report::Report;
use crate::traffic::Totals;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            let reported = error.to_string();
            let line = reported.lines().next().unwrap_or_default();
            eprintln!("terrain: {}", line.trim_start_matches("error: "));
            return ExitCode::from(2);
        }
        // The text of `--help` or `--version`.
        Err(text) => text.exit(),
    };
    let ended = dem::read(args.input.as_deref())
        .and_then(|tile| ranks::run(&args, |rank| work(&args, &tile, rank)));
    match ended {
        Ok(report) => {
            if let Some(report) = report {
                // The results are written. If standard output was closed, that is not a failure.
                let _ = writeln!(stdout(), "{report}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("terrain: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// The work of every rank. The first rank returns the report.
fn work(args: &Args, tile: &Array2<f64>, rank: &Rank) -> Result<Option<Report>, DemoError> {
    let extents = dem::extents(tile, args.scale)?;
    let blocks = Blocks::new(extents, rank.communicator.size())?;
    let block = blocks.of(rank.number())?;
    dem::fit(&rank.device, block.shape(), args.scale)?;
    let is_first = rank.number() == 0;
    let mut folder = is_first.then(|| Folder::create(&args.output)).transpose()?;
    let scheme = Scheme::stable(args.spacing(), args.diffusivity);
    let schedule = Schedule { steps: args.steps, picture_every: args.picture_every() };

    let mut heights = dem::allocate(block.shape(), args.scale)?;
    let [rows, columns] = block.own();
    dem::mirror_tiles(tile, block.first(), heights.slice_mut(s![rows, columns]));
    // If the first rank does not have all cells, it also allocates the whole terrain and gathers the result there.
    let gathers = is_first && rank.communicator.size() > 1;
    let mut whole = dem::allocate(if gathers { extents } else { [0, 0] }, args.scale)?;
    dem::mirror_tiles(tile, [0, 0], whole.view_mut());
    let before = Summary::of(if gathers { &whole } else { &heights });

    let quiet = args.quiet || !is_first;
    let mut progress = Progress::new("smoothing", args.steps, extents[0] * extents[1], quiet);
    let mut show = |heights: &ArrayRef2<f64>| match &mut folder {
        Some(folder) => {
            let picture = picture::draw(heights, &before.range(), args.spacing());
            folder.show("progress.png", &|file| picture.write(file, Compression::Fast))
        }
        None => Ok(()),
    };
    let mut field = Field::new(heights, rank, &blocks)?;
    let mut gather = Gather::new(&rank.communicator, &blocks, whole)?;
    let timing = diffusion::smooth(
        rank,
        &mut field,
        &mut gather,
        &scheme,
        schedule,
        &mut progress,
        &mut show,
    )?;
    drop(progress);

    let clock = Instant::now();
    let terrain = gather.heights(&field)?;
    let from_device = clock.elapsed();
    let totals = Totals::check(rank, &field, block.len(), schedule)?;
    let (Some(terrain), Some(mut folder)) = (terrain, folder) else { return Ok(None) };

    let clock = Instant::now();
    let mut progress = Progress::new("checking", args.steps, tile.len(), args.quiet);
    let reference = reference::smooth(tile, &scheme, args.steps, &mut progress);
    drop(progress);
    let checks = Checks::run(&before, &terrain, &reference, args.steps)?;
    let checking = clock.elapsed();

    let (rows, columns) = tile.dim();
    let after = terrain.slice(s![..rows, ..columns]);
    let (picture, deepest) = picture::compare(tile, &after, &before.range(), args.spacing());
    let written = folder.save(&[
        ("smoothed.npy", &|file| dem::write(file, &terrain)),
        ("terrain.png", &|file| picture.write(file, Compression::Balanced)),
    ])?;
    Ok(Some(Report {
        shape: terrain.dim(),
        spacing: args.spacing(),
        scheme,
        schedule,
        device: rank.device.info().clone(),
        ranks: rank.kind,
        grid: blocks.grid,
        totals,
        transfers: field.transfers(),
        timing,
        from_device,
        checks,
        checking,
        deepest,
        written,
    }))
}
