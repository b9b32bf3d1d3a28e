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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) ranks: Option<u16>,
    /// Time steps, each a quarter of the longest stable one
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,
    /// Repeats the terrain N times each way, every other time mirrored
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) scale: u32,
    /// Elevation in metres as a two-dimensional .npy file of numbers [default: the Jacksboro fault, built in]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Draws the terrain every K steps on the way, as progress.png; 0 for never [default: a tenth of the steps]
    #[arg(long, value_name = "K")]
    picture_every: Option<u64>,
    /// Folder for smoothed.npy, terrain.png and progress.png, created if need be
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub(crate) output: PathBuf,
    /// Longest side of each panel of terrain.png, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 880, value_parser = clap::value_parser!(u32).range(16..=4096))]
    pub(crate) panel: u32,
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
    /// The years per step, and the coefficients `D dt / dx²` and `D dt / dy²`. A step is a quarter of the longest
    /// stable one, `1 / (2 D (1/dx² + 1/dy²))`. Below the longest, a new height is a weighted mean of old heights with
    /// positive weights. Below half of it, even the roughest terrain decays without changing sign.
    pub(crate) fn scheme(&self) -> [f64; 3] {
        let [x, y] = [self.dx, self.dy].map(|d| 1.0 / (d * d));
        let dt = 0.25 / (2.0 * self.diffusivity * (x + y));
        [dt, self.diffusivity * dt * x, self.diffusivity * dt * y]
    }

    /// Steps between pictures. 0 for no pictures.
    pub(crate) fn picture_every(&self) -> u64 {
        self.picture_every.unwrap_or(self.steps.div_ceil(10))
    }

    /// The number of pictures on the way. There is none after the last step, which gives the result.
    pub(crate) fn pictures(&self) -> u64 {
        (self.steps - 1).checked_div(self.picture_every()).unwrap_or(0)
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (1e-6..=1e9).contains(number));
    number.ok_or_else(|| "expected a number from 1e-6 to 1e9".to_owned())
}
