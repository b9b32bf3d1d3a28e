//! A hill on a rotating sphere: advection on the cubed sphere, with a known exact solution.
//!
//! This is the first test case of Williamson et al. (1992) with a smooth hill. The sphere turns once as a solid body;
//! at the end the hill must be at its starting point. Six tiles meet with rotated axes. `advection.rs` contains the
//! scheme, as two stencils.
//!
//! ```text
//! cargo run --release --package runtime --example sphere -- --cells 48 --layout 2x3
//! ```
#![forbid(unsafe_code)]

mod advection;
mod flow;
mod globe;
mod grid;
mod run;

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::flow::Flow;
use crate::grid::Grid;
use crate::run::{Case, EIGHTHS};

/// Turns a sphere once with a hill on it, compares the hill with where it began, and draws its way.
#[derive(Debug, Parser)]
#[command(name = "sphere")]
struct Args {
    /// Device: host, sim, opencl:0, cuda:0, hip:0
    #[arg(long, value_name = "SELECTOR", default_value = "host")]
    device: String,

    /// Cells along each side of a tile
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u16).range(2..=1024))]
    cells: u16,

    /// Blocks of each tile along y and x; each block is a rank, and each rank a thread
    #[arg(long, value_name = "YxX", default_value = "1x1", value_parser = layout)]
    layout: [usize; 2],

    /// Degrees between the equator and the way of the hill, which leads over four corners of the cube at 45
    #[arg(long, value_name = "DEGREES", default_value_t = 45.0, allow_negative_numbers = true)]
    tilt: f64,

    /// Folder for sphere.png, created if need be
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    output: PathBuf,
}

/// The most blocks of a tile. More threads are useless on any machine.
const MOST: usize = 64;

fn layout(text: &str) -> Result<[usize; 2], String> {
    let parts = text.split_once('x').and_then(|(y, x)| Some([y.parse().ok()?, x.parse().ok()?]));
    match parts {
        Some([y, x]) if (1..=MOST).contains(&y) && (1..=MOST / y).contains(&x) => Ok([y, x]),
        _ => Err(format!("expected two numbers such as 2x3, with a product from 1 to {MOST}")),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match refuse_jobs(|variable| env::var_os(variable).is_some()).and_then(|()| turn(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sphere: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Refuses to run as a process of an MPI job. Each process would do all the work and write the same file.
fn refuse_jobs(is_set: impl Fn(&str) -> bool) -> Result<(), Box<dyn Error>> {
    // Environment variables that Open MPI, MPICH and their derivatives set for the processes that they start.
    let variables = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
    match variables.into_iter().find(|variable| is_set(variable)) {
        Some(variable) => Err(format!(
            "{variable} is set, so that this is a process of an MPI job, but the ranks of this program are threads"
        )
        .into()),
        None => Ok(()),
    }
}

fn turn(args: &Args) -> Result<(), Box<dyn Error>> {
    let device = runtime::registry().open(&args.device)?;
    let grid = Grid { cells: args.cells.into() };
    let case = Case { grid, flow: Flow::tilted(args.tilt), layout: args.layout };
    let clock = Instant::now();
    let outcome = case.run(&device)?;
    let seconds = clock.elapsed().as_secs_f64();

    let [first, .., last] = &outcome.heights[..] else { return Err("no heights".into()) };
    let norms = case.error(last, 1.0);
    let mass = case.mass(first);
    fs::create_dir_all(&args.output)?;
    let path = args.output.join("sphere.png");
    let globes = [0, 1, 2, 4, EIGHTHS]
        .map(|eighth| (case.flow.centre(eighth as f64 / EIGHTHS as f64), &outcome.heights[eighth]));
    globe::draw(BufWriter::new(File::create(&path)?), grid, &globes)?;

    let [y, x] = args.layout;
    println!(
        "{} cells in 6 tiles of {y} x {x} blocks, on {}",
        6 * grid.cells * grid.cells,
        device.id()
    );
    let (steps, sent) = (outcome.steps as u64, outcome.sent);
    println!(
        "{steps} steps in {seconds:.2} s, each with {} messages, {} bytes in all",
        sent.count / steps,
        sent.bytes / steps
    );
    println!(
        "error after a turn: {:.2e} (L1), {:.2e} (L2), {:.2e} (largest), relative",
        norms.l1, norms.l2, norms.most
    );
    println!("mass: relative change {:.1e}", (case.mass(last) - mass).abs() / mass);
    println!(
        "written: {}, the hill after 0, 1/8, 1/4, 1/2 and 1 turn, with the seams of the tiles",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(cells: usize, tilt: f64, layout: [usize; 2]) -> Case {
        Case { grid: Grid { cells }, flow: Flow::tilted(tilt), layout }
    }

    fn device(selector: &str) -> runtime::Device {
        runtime::registry().open(selector).unwrap()
    }

    #[test]
    fn half_the_cell_size_quarters_the_error() {
        let device = device("host");
        // Along the equator, and over corners, where tiles meet at 120 degrees.
        for tilt in [0.0, 45.0] {
            let errors = [16, 32].map(|cells| {
                let case = case(cells, tilt, [1, 1]);
                let outcome = case.run(&device).unwrap();
                case.error(&outcome.heights[EIGHTHS], 1.0)
            });
            let [coarse, fine] = errors;
            println!("tilt {tilt}: {errors:?}");
            let orders = [coarse.l1 / fine.l1, coarse.l2 / fine.l2].map(f64::log2);
            assert!(
                orders.iter().all(|order| *order > 1.8),
                "tilt {tilt}: {orders:?} of {errors:?}"
            );
        }
    }

    #[test]
    fn every_layout_gives_the_same_bits() {
        let device = device("host");
        let expected = case(12, 30.0, [1, 1]).run(&device).unwrap().heights;
        for layout in [[2, 2], [2, 3], [3, 1], [5, 2]] {
            assert!(case(12, 30.0, layout).run(&device).unwrap().heights == expected, "{layout:?}");
        }
        assert!(expected.iter().all(|heights| case(12, 30.0, [1, 1]).mass(heights).is_finite()));
    }

    #[test]
    fn mass_is_conserved_between_tiles() {
        let case = case(12, 45.0, [1, 2]);
        let heights = case.run(&device("host")).unwrap().heights;
        let mass = case.mass(&heights[0]);
        assert!(heights.iter().all(|now| (case.mass(now) - mass).abs() < 1e-12 * mass));
    }

    #[test]
    fn ranks_send_what_is_stale_and_no_more() {
        let outcome = case(12, 45.0, [1, 1]).run(&device("host")).unwrap();
        // Six ranks with four sides: first a height, then a height and two slopes.
        let (steps, sent) = (outcome.steps as u64, outcome.sent);
        assert_eq!(sent.count, steps * 6 * 4 * 2);
        // Each message has a stamp of eight bytes.
        assert_eq!(sent.bytes - 8 * sent.count, steps * 6 * 4 * 12 * 8 * 4);
    }

    #[test]
    fn processes_of_a_job_are_refused() {
        let error = refuse_jobs(|variable| variable == "PMI_RANK").unwrap_err();
        assert!(error.to_string().starts_with("PMI_RANK is set"), "{error}");
        refuse_jobs(|_| false).unwrap();
    }

    #[test]
    fn cells_cover_the_sphere_and_are_found_again() {
        let grid = Grid { cells: 10 };
        let places = || (0..600).map(|n| (n / 100, [n % 10, n / 10 % 10]));
        let area: f64 = places().map(|(tile, place)| grid.area(tile, place)).sum();
        assert!((area - 4.0 * std::f64::consts::PI).abs() < 1e-12, "{area}");
        for (tile, place) in places() {
            assert_eq!(grid.cell(grid.centre(tile, place)), (tile, place));
        }
    }

    #[cfg(feature = "sim")]
    #[test]
    fn a_simulated_device_gives_the_same_bits() {
        let case = case(6, 45.0, [1, 2]);
        let [host, sim] =
            ["host", "sim:0?seed=3"].map(|selector| case.run(&device(selector)).unwrap());
        assert!(host.heights == sim.heights);
    }
}
