//! Commands that run a program of the workspace.

use std::process::{Command, exit};

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, cargo_here, must, programs};
use crate::{mpi, python};

/// `cargo xtask demo`: the main demo, as an MPI job if a number of ranks is given; or the sphere.
pub(crate) fn demo(mpi_ranks: Option<u32>, options: &[String]) -> Result<()> {
    let (name, options) = match options.split_first() {
        Some((first, others)) if first == "sphere" => ("sphere", others),
        _ => ("terrain", options),
    };
    let Some(ranks) = mpi_ranks else {
        return pass(example("run", name, false)?.arg("--").args(options));
    };
    ensure!(name == "terrain", "ranks of the {name} are threads: leave out --mpi");
    ensure!(
        mpi::is_there()?,
        "no MPI or no libclang to build with; `cargo xtask test --install` brings both"
    );
    let mut build = example("build", name, true)?;
    build.args(["--message-format", "json-render-diagnostics"]);
    let programs = programs(&mut build)?;
    let (_, program) = programs.first().context("cargo built no demo")?;
    pass(mpi::mpiexec(ranks).arg(program).args(options))
}

/// `cargo xtask devices`.
pub(crate) fn devices(json: bool) -> Result<()> {
    pass(example("run", "devices", false)?.arg("--").args(json.then_some("--json")))
}

/// `cargo xtask halo-map`.
pub(crate) fn halo_map(options: &[String]) -> Result<()> {
    let map = ["run", "--package", "halo", "--example", "map"];
    pass(cargo_here(&map).arg("--").args(options))
}

/// `cargo xtask bench`.
pub(crate) fn bench(check: bool, quick: bool) -> Result<()> {
    let mut command = benches()?;
    let flags = || check.then_some("--check").into_iter().chain(quick.then_some("--quick"));
    command.arg("--").args(flags());
    must(&mut command)?;
    if let Some(why) = python::absence() {
        println!("handing arrays over from Python: {why}");
        return Ok(());
    }
    python::install_package()?;
    must(python::speed().args(flags()))
}

/// Runs the benchmarks with every feature that can be built here.
pub(crate) fn benches() -> Result<Command> {
    let mut command = cargo(&["bench"]);
    command.args(mpi::features_of("benches", mpi::is_there()?)?);
    Ok(command)
}

/// A cargo command that runs or builds an example of the facade: with every feature, or with every feature that needs
/// no installed software.
fn example(verb: &str, name: &str, with_mpi: bool) -> Result<Command> {
    let mut command = cargo_here(&[verb, "--release", "--example", name]);
    command.args(mpi::features_of("runtime", with_mpi)?);
    Ok(command)
}

/// Exits with the program's own exit code: the program has already printed its error.
fn pass(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if status.success() {
        return Ok(());
    }
    exit(status.code().unwrap_or(1))
}
