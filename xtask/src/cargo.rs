//! Runs cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The root folder of the workspace in which cargo was started: several checkouts may share the build folder of this
/// program.
pub(crate) fn root() -> PathBuf {
    let built_in = || env!("CARGO_MANIFEST_DIR").into();
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(built_in));
    here.parent().unwrap_or(&here).to_owned()
}

/// A cargo command that starts in the root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = started_here(args);
    command.current_dir(root());
    command
}

/// A cargo command for the device outside the workspace. It shares its build folder with the mutants.
pub(crate) fn foreign(args: &[&str]) -> Command {
    let (verb, others) = args.split_at(1);
    let mut command = cargo(verb);
    command.args(["--manifest-path", "docs/foreign-device/Cargo.toml"]).args(others);
    command.env("CARGO_TARGET_DIR", root().join("target/foreign"));
    command
}

/// A cargo command that starts in the user's current folder, for programs that take paths.
pub(crate) fn cargo_here(args: &[&str]) -> Command {
    let mut command = started_here(args);
    command.arg("--manifest-path").arg(root().join("Cargo.toml"));
    command
}

fn started_here(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Arguments of clippy.
pub(crate) const DENY_WARNINGS: [&str; 3] = ["--", "--deny", "warnings"];

/// Runs a command that must succeed.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// The JSON messages of a cargo command.
pub(crate) fn messages(command: &mut Command) -> Result<Vec<Value>> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "{} ended with {}", shown(command), output.status);
    let text = String::from_utf8(output.stdout).context("cargo's messages")?;
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The programs that a cargo command builds: the name of each target, and its file.
pub(crate) fn programs(command: &mut Command) -> Result<Vec<(String, PathBuf)>> {
    let messages = messages(command)?;
    let program = |message: &Value| {
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    };
    let programs: Vec<_> = messages.iter().filter_map(program).collect();
    ensure!(!programs.is_empty(), "{} built no program", shown(command));
    Ok(programs)
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
