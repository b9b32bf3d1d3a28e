//! Smooths real terrain on the device of your choice, checks the result, and draws it.
//!
//! The model is hillslope diffusion, `dz/dt = D ∇²z`: soil creeps downhill, summits sink and hollows fill. What to read
//! first: `diffusion.rs` has the kernel, the arrays and everything that talks to the device, and `queue.rs` keeps the
//! host from running too far ahead of it; the other files read, check and draw.
//!
//! ```text
//! cargo run --release --package runtime --example terrain -- --device host --steps 400 --scale 4
//! ```
#![deny(unsafe_code)]

mod args;
mod check;
mod dem;
mod diffusion;
mod error;
mod hillshade;
mod output;
mod picture;
mod progress;
mod queue;
mod reference;
mod report;
mod resample;

use std::error::Error;
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use ndarray::{ArrayRef2, s};

use crate::args::Args;
use crate::check::Checks;
use crate::diffusion::{Field, Schedule, Scheme};
use crate::error::DemoError;
use crate::output::Folder;
use crate::picture::Compression;
use crate::progress::Progress;
use crate::report::Report;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            let told = error.to_string();
            let line = told.lines().next().unwrap_or_default();
            eprintln!("terrain: {}", line.trim_start_matches("error: "));
            return ExitCode::from(2);
        }
        // The help or the version.
        Err(text) => text.exit(),
    };
    match run(&args) {
        Ok(report) => {
            // The results are written; a reader that has gone away is no failure.
            let _ = writeln!(stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("terrain: {}", one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Report, DemoError> {
    let tile = dem::read(args.input.as_deref())?;
    let registry = runtime::registry();
    let device = match &args.device {
        Some(selector) => registry.open(selector)?,
        None => registry.open_default("host")?,
    };
    let mut folder = Folder::create(&args.output)?;
    let scheme = Scheme::stable(args.spacing(), args.diffusivity);
    let schedule = Schedule { steps: args.steps, picture_every: args.picture_every() };

    let terrain = dem::mirror_tiles(&tile, args.scale, &device)?;
    let before = check::Summary::of(&terrain);
    let mut progress = Progress::new("smoothing", args.steps, terrain.len(), args.quiet);
    let mut show = |heights: &ArrayRef2<f64>| {
        let picture = picture::draw(heights, &before.range(), args.spacing());
        folder.show("progress.png", &|file| picture.write(file, Compression::Fast))
    };
    let mut field = Field::new(terrain)?;
    let timing =
        diffusion::smooth(&device, &mut field, &scheme, schedule, &mut progress, &mut show)?;
    drop(progress);

    let clock = Instant::now();
    let terrain = field.heights()?;
    let from_device = clock.elapsed();
    let transfers = field.transfers();
    check::moved(&transfers, &device, &terrain, schedule.pictures())?;

    let clock = Instant::now();
    let mut progress = Progress::new("checking", args.steps, tile.len(), args.quiet);
    let reference = reference::smooth(&tile, &scheme, args.steps, &mut progress);
    drop(progress);
    let checks = Checks::run(&before, &terrain, &reference, args.steps)?;
    let checking = clock.elapsed();

    let (rows, columns) = tile.dim();
    let after = terrain.slice(s![..rows, ..columns]);
    let (picture, deepest) = picture::compare(&tile, &after, &before.range(), args.spacing());
    let written = folder.save(&[
        ("smoothed.npy", &|file| dem::write(file, &terrain)),
        ("terrain.png", &|file| picture.write(file, Compression::Balanced)),
    ])?;
    Ok(Report {
        shape: terrain.dim(),
        spacing: args.spacing(),
        scheme,
        schedule,
        device: device.info().clone(),
        launches: device.statistics().launches,
        transfers,
        timing,
        from_device,
        checks,
        checking,
        deepest,
        written,
    })
}

/// An error with its causes, leaving out those that an outer message ends with already.
fn one_line(error: &DemoError) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !line.ends_with(&text) {
            line += &format!(": {text}");
        }
        cause = inner.source();
    }
    line.replace('\n', " ")
}
