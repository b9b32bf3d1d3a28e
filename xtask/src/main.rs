//! The commands of this workspace: `cargo xtask --help` lists them.

mod backends;
mod bench;
mod cargo;
mod conformance;
mod demo;
mod devices;
mod examples;
mod firmware;
mod gpu;
mod guide;
mod halo_map;
mod install;
mod layers;
mod mpi;
mod mutants;
mod opencl;
mod python;
mod release;
mod sanitize;
mod stencils;
mod test;
mod test_backend;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use gpu::{bundle, run_bundle};
use test::quick;
use test_backend::Target;

/// Commands of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Smooths real terrain on a device and shows the result. `demo sphere` moves a hill around a sphere
    /// instead, and `demo mesh` solves Laplace's equation on a mesh of triangles. `--help` as the last word lists the
    /// options of each.
    #[command(disable_help_flag = true)]
    Demo {
        /// Runs it in an MPI job with this number of ranks, started by mpiexec. Must come before options of the demo.
        #[arg(long, value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..))]
        mpi: Option<u32>,
        /// Options of the demo.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Lists every device that can be opened, and the reason if a backend has none.
    Devices {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Builds the guide as a book and opens it. Installs mdBook into `target/tools` if there is none.
    #[command(subcommand_required = false)]
    Guide {
        #[command(subcommand)]
        action: Option<guide::Action>,
    },
    /// Draws a decomposition of `halo` as SVG, with ranks, neighbours and rotations. `-- --help` lists its options.
    #[command(disable_help_flag = true)]
    HaloMap {
        /// Options of the picture, such as `--topology cube:2x3`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Runs everything: format, lints, docs, tests, and the conformance suite of every backend that this machine can
    /// run.
    Test {
        /// First installs the tools that the tests use. On Debian and Ubuntu as root it asks no questions; otherwise it
        /// prints what to install.
        #[arg(long)]
        install: bool,
        /// Also tests the exchange of every kind of field on every decomposition, which takes long.
        #[arg(long)]
        exhaustive: bool,
        /// A run of a few minutes: format, lints, unit tests, documentation and conformance of the packages that a
        /// change touches.
        #[arg(long, conflicts_with_all = ["install", "exhaustive"])]
        quick: bool,
        /// With --quick: checks this package, instead of those that differ from the last commit. Can be given several
        /// times.
        #[arg(long = "package", short, value_name = "CRATE", requires = "quick")]
        packages: Vec<String>,
        /// Runs the second lane of tests; `cargo xtask test` calls this.
        #[arg(long, hide = true, value_name = "FOLDER")]
        second_lane: Option<PathBuf>,
    },
    /// Runs every conformance rule on one backend; a skipped rule is a failure. On GPUs, then runs the tests of arrays
    /// and halos.
    TestBackend {
        /// The backend: cuda, embedded, hip, host, opencl, sim, or foreign for the device in `docs/foreign-device`.
        name: String,
        /// For cuda and hip: uses the stand-in for the runtime, which needs no GPU and is not a GPU.
        #[arg(long)]
        stand_in: bool,
        /// For opencl: a word of the platform's name, such as intel or pocl, to use instead of the first platform.
        #[arg(long, value_name = "WORD")]
        platform: Option<String>,
        /// First installs what the run needs into target/venv: the runtime for `opencl --platform intel`, compilers for
        /// `cuda --stand-in` and `hip --stand-in`.
        #[arg(long)]
        install: bool,
    },
    /// Creates a folder of tests, the demo and benchmarks for a machine that has the vendor's driver, but neither Rust
    /// nor a network.
    Bundle {
        /// The backend: cuda or hip.
        name: String,
    },
    /// Runs a bundle; the bundle's script `run` calls this.
    #[command(hide = true, override_usage = "run [OPTIONS] [WORD]...")]
    RunBundle(run_bundle::Options),
    /// Compiles the programs for embedded processors, whose binaries are kept in the repository.
    Firmware {
        /// Only checks that the binaries in the repository match their source.
        #[arg(long)]
        check: bool,
    },
    /// Prints what devices get of the stencils in a Rust file.
    Stencil {
        /// The file.
        file: PathBuf,
        /// The stencil; all of them by default.
        name: Option<String>,
        /// The text to print.
        #[arg(long, value_enum, default_value = "opencl")]
        format: stencils::Format,
    },
    /// Checks the dependencies between crates, and that files of a crate do not import each other in circles.
    Layers,
    /// Runs tests under Miri, ThreadSanitizer and AddressSanitizer. `cargo xtask test` runs a part of them.
    Sanitize {
        /// The tools to run; all of them by default.
        tools: Vec<sanitize::Tool>,
    },
    /// Breaks code in many ways, and checks that its tests fail.
    Mutants {
        /// The code to break.
        #[arg(value_enum, default_value = "rules")]
        target: mutants::Target,
        /// Checks only the rules or the mutants whose description contains one of these words.
        words: Vec<String>,
        /// Checks the rules and all mutants of every target.
        #[arg(long)]
        all: bool,
    },
    /// Compares this code with its rivals in the same run. `cargo bench` measures absolute times.
    Bench {
        /// Exits with an error if a target is missed.
        #[arg(long)]
        check: bool,
        /// Runs each benchmark briefly, to check that it works.
        #[arg(long)]
        quick: bool,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Demo { mpi, options } => demo::demo(mpi, &options),
        Command::Devices { json } => devices::devices(json),
        Command::Guide { action } => guide::guide(action),
        Command::HaloMap { options } => halo_map::halo_map(&options),
        Command::Test { second_lane: Some(folder), .. } => test::run_second_lane(&folder),
        Command::Test { quick: true, packages, .. } => quick::quick(packages),
        Command::Test { install, exhaustive, .. } => test::test(install, exhaustive),
        Command::TestBackend { name, stand_in, platform, install } => {
            let target = Target::new(&name, platform.as_deref(), stand_in)?;
            test_backend::test_backend(target, install)
        }
        Command::Bundle { name } => bundle::bundle(&name),
        Command::RunBundle(options) => run_bundle::run(&options),
        Command::Firmware { check } => firmware::firmware(check),
        Command::Sanitize { tools } => sanitize::sanitize(&tools),
        Command::Stencil { file, name, format } => stencils::print(&file, name.as_deref(), format),
        Command::Layers => layers::layers(),
        Command::Mutants { target, words, all } => mutants::mutants(target, &words, all),
        Command::Bench { check, quick } => bench::bench(check, quick),
    }
}
