//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Smooths terrain by hillslope diffusion on a device of your choice, checks the result and draws it.
#[derive(Debug, Parser)]
#[command(name = "terrain", allow_negative_numbers = true)]
pub(crate) struct Args {
    /// Device to run on, such as host, host:0?threads=1, cuda:0, opencl:0 or sim:0; of several ranks each takes another
    /// one if it has no number, as in cuda [default: $RUNTIME_DEVICE, or host]
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) device: Option<String>,

    /// Ranks that share the terrain, as threads; if mpiexec starts the program, its processes are the ranks [default:
    /// 1]
    #[arg(long, value_name = "N", value_parser = ranks)]
    pub(crate) ranks: Option<usize>,

    /// Time steps, each a quarter of the longest stable one
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,

    /// Repeats the terrain N times each way, every other time mirrored
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) scale: u32,

    /// Elevation in metres as a two-dimensional .npy file of int16, int32, float32 or float64 [default: the Jacksboro
    /// fault, built in]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Draws the terrain every K steps on the way, as progress.png; 0 for never [default: a tenth of the steps]
    #[arg(long, value_name = "K")]
    pub(crate) picture_every: Option<u64>,

    /// Folder for smoothed.npy, terrain.png and progress.png, created if need be
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub(crate) output: PathBuf,

    /// Metres from column to column
    #[arg(long, value_name = "METRES", default_value = "74.4", value_parser = positive)]
    pub(crate) dx: f64,

    /// Metres from row to row
    #[arg(long, value_name = "METRES", default_value = "92.7", value_parser = positive)]
    pub(crate) dy: f64,

    /// How fast soil creeps, in square metres per year
    #[arg(long, value_name = "D", default_value = "0.01", value_parser = positive)]
    pub(crate) diffusivity: f64,

    /// Shows no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl Args {
    pub(crate) fn spacing(&self) -> Spacing {
        Spacing { dx: self.dx, dy: self.dy }
    }

    /// Steps between progress pictures. 0 for no pictures.
    pub(crate) fn picture_every(&self) -> u64 {
        self.picture_every.unwrap_or(self.steps.div_ceil(10))
    }
}

/// Distance in metres between neighbouring columns and rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spacing {
    pub(crate) dx: f64,
    pub(crate) dy: f64,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (1e-6..=1e9).contains(&value) => Ok(value),
        _ => Err("expected a number from 1e-6 to 1e9".to_owned()),
    }
}

/// More threads than this are useless on any machine.
const MAX_RANKS: usize = 1024;

fn ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks) if (1..=MAX_RANKS).contains(&ranks) => Ok(ranks),
        _ => Err(format!("expected a number from 1 to {MAX_RANKS}")),
    }
}
