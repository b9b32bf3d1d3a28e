//! The program with which a chapter begins.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::markdown;
use crate::cargo::{cargo, programs, root};
use crate::examples::pass;
use crate::mpi;

/// Builds and runs the first program of a page. It is in a package of its own, as if a user had pasted it.
pub(super) fn run(mpi_ranks: Option<u32>, page: &str, arguments: &[String]) -> Result<()> {
    let file = root().join("docs/guide").join(page).with_extension("md");
    let text = fs::read_to_string(&file).with_context(|| {
        format!("{page:?} is no page of the guide; there is no file {}", file.display())
    })?;
    let Some(program) = markdown::blocks(&text, "rust").next() else {
        bail!("{page:?} has no program in Rust");
    };
    let package = root().join("target/guide/program");
    write(&package.join("src/main.rs"), &program)?;
    write(&package.join("Cargo.toml"), &manifest(&program))?;
    fs::copy(root().join("Cargo.lock"), package.join("Cargo.lock"))?;
    let manifest = package.join("Cargo.toml").display().to_string();
    let options = ["--quiet", "--manifest-path", &manifest];
    // The configuration of this repository is found from here.
    let from_root = |verb| {
        let mut command = cargo(&[verb]);
        command.args(options).env("CARGO_TARGET_DIR", root().join("target/guide/build"));
        command
    };
    let Some(ranks) = mpi_ranks else {
        return pass(from_root("run").arg("--").args(arguments));
    };
    let mut build = from_root("build");
    let programs = programs(build.args(["--message-format", "json-render-diagnostics"]))?;
    let (_, program) = programs.first().context("cargo built no program")?;
    pass(mpi::mpiexec(ranks).arg(program).args(arguments))
}

/// The features of every program, and those of programs that name them.
const FEATURES: [&str; 7] = ["array", "halo", "host", "mpi", "opencl", "sim", "stencil"];
const MORE: [&str; 4] = ["cuda", "embedded", "hip", "interchange"];

/// The manifest of the program's package.
fn manifest(program: &str) -> String {
    let named = MORE.into_iter().filter(|feature| program.contains(feature));
    let features: Vec<&str> = FEATURES.into_iter().chain(named).collect();
    let runtime = root().join("crates/runtime");
    format!(
        "[package]\nname = \"guide\"\nedition = \"2024\"\n\n[dependencies.runtime]\npath = {runtime:?}\n\
         features = {features:?}\n\n[workspace]\n"
    )
}

/// Writes a file, unless it has this text already: then cargo need not build again.
fn write(file: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::create_dir_all(file.parent().context("no folder")?)?;
    Ok(fs::write(file, text)?)
}
