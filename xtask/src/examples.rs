//! Runs examples of the workspace for users.

use std::process::{Command, exit};

use anyhow::{Context, Result};

use crate::cargo::cargo_here;

/// A cargo command that runs or builds an example of the facade, with every feature.
pub(crate) fn example(verb: &str, name: &str) -> Command {
    let mut command = cargo_here(&[verb, "--release", "--example", name]);
    command.args(["--package", "runtime", "--all-features"]);
    command
}

/// Exits with the program's own exit code: the program has already printed its error.
pub(crate) fn pass(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if status.success() {
        return Ok(());
    }
    exit(status.code().unwrap_or(1))
}
