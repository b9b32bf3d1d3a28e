//! Commands that run a program of the workspace.

use std::process::{Command, exit};

use anyhow::{Context, Result};

use crate::mpi;
use crate::run::{cargo, cargo_here, must};

/// `cargo xtask demo`: the main job.
pub(crate) fn demo(options: &[String]) -> Result<()> {
    pass(example("terrain").args(options))
}

/// `cargo xtask devices`.
pub(crate) fn devices(json: bool) -> Result<()> {
    pass(example("devices").args(json.then_some("--json")))
}

/// `cargo xtask halo-map`.
pub(crate) fn halo_map(options: &[String]) -> Result<()> {
    let map = ["run", "--quiet", "--package", "halo", "--example", "map"];
    pass(cargo_here(&map).arg("--").args(options))
}

/// `cargo xtask bench`.
pub(crate) fn bench(check: bool, quick: bool) -> Result<()> {
    let mut command = benches()?;
    command.arg("--").args(check.then_some("--check")).args(quick.then_some("--quick"));
    must(&mut command)
}

/// Runs the benchmarks, with every feature that can be built here.
pub(crate) fn benches() -> Result<Command> {
    let mut command = cargo(&["bench", "--package", "benches"]);
    command.args(mpi::features(mpi::is_there()?, Some("benches"))?);
    Ok(command)
}

fn example(name: &str) -> Command {
    let quiet = ["run", "--quiet", "--release", "--package", "runtime", "--all-features"];
    let mut command = cargo_here(&quiet);
    command.args(["--example", name, "--"]);
    command
}

/// Ends with the program's own exit code: it has said what was wrong.
fn pass(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start cargo")?;
    if status.success() {
        return Ok(());
    }
    exit(status.code().unwrap_or(1))
}
