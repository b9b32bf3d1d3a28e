//! Installing what the tests use.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::run::{must, root};

/// Debian and Ubuntu packages, and what each is for.
const PACKAGES: &[(&str, &str)] =
    &[("python3-venv", "the virtual environment for the Python checks")];

/// Python packages, and what each is for. They go into a virtual environment under `target`.
const PYTHON: &[(&str, &str)] = &[("numpy", "reads the demo's output independently")];

/// Installs what is missing; where it cannot, says what to install.
pub(crate) fn install() -> Result<()> {
    for component in ["rustfmt", "clippy"] {
        // Machines without rustup bring both with their toolchain.
        drop(Command::new("rustup").args(["component", "add", component]).status());
    }
    let packages: Vec<&str> = PACKAGES.iter().map(|package| package.0).collect();
    for (package, why) in PACKAGES.iter().chain(PYTHON) {
        println!("the tests use {package}: {why}");
    }
    if !Path::new("/usr/bin/apt-get").exists() || !is_root() {
        println!("install these packages or their like: {}", packages.join(" "));
    } else if !packages.iter().all(|package| is_installed(package)) {
        let apt = || {
            let mut command = Command::new("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command
        };
        must(apt().args(["update", "--quiet=2"]))?;
        must(
            apt()
                .args(["install", "--yes", "--quiet=2", "--no-install-recommends"])
                .args(&packages),
        )?;
    }
    let python = python();
    let works = Command::new(&python).args(["-m", "pip", "--version"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        must(
            Command::new("python3").args(["-m", "venv", "--clear"]).arg(root().join("target/venv")),
        )?;
    }
    let wanted = PYTHON.iter().map(|package| package.0);
    must(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(wanted),
    )
}

/// The virtual environment's Python, which exists once [`install`] ran.
pub(crate) fn python() -> PathBuf {
    root().join("target/venv/bin/python")
}

fn is_root() -> bool {
    let id = Command::new("id").arg("--user").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .output();
    status.is_ok_and(|output| output.stdout == b"installed")
}
