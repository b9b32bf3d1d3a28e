//! NVIDIA's driver libraries, which load without a GPU. They are unpacked from Debian packages under `target` and not
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{must, root};

/// Packages with drivers of different ages, and the purpose of each. A Debian release has some of them.
pub(crate) const PACKAGES: &[(&str, &str)] = &[
    ("libcuda1", "the library of a CUDA driver, which loads without a GPU"),
    ("libnvidia-tesla-cuda1", "the library of an older driver"),
];

/// The variable that makes `backend-cuda` load a driver's library.
pub(crate) const VARIABLE: &str = "BACKEND_CUDA_DRIVER";

fn folder() -> PathBuf {
    root().join("target/drivers")
}

/// The libraries that were found, by package.
pub(crate) fn libraries() -> Vec<(&'static str, PathBuf)> {
    let library = |package: &(&'static str, &str)| {
        find(&folder().join(package.0)).map(|library| (package.0, library))
    };
    PACKAGES.iter().filter_map(library).collect()
}

fn find(folder: &Path) -> Option<PathBuf> {
    fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find_map(|path| if path.ends_with("libcuda.so.1") { Some(path) } else { find(&path) })
}

/// Downloads the libraries from the section `non-free` of the installed Debian release. The section need not be among
/// this machine's package sources, which stay unchanged.
pub(crate) fn fetch() -> Result<()> {
    if !libraries().is_empty() {
        return Ok(());
    }
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(CODENAME) $(REPO_URI)"])
        .args(["Created-By: Packages", "Component: main", "Origin: Debian"])
        .output()
        .context("cannot start apt-get")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let releases = text.lines().filter_map(|line| line.split_once(' '));
    let source = releases
        // The release itself, without its updates.
        .filter(|(name, _)| !name.contains('-'))
        .map(|(name, place)| format!("deb {place} {name} non-free\n"))
        .next()
        .context("no Debian")?;
    let folder = folder();
    for state in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(state))?;
    }
    fs::write(folder.join("sources.list"), source)?;
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.current_dir(&folder).args(["--quiet=2", "-oDir::Etc::sourceparts=-"]);
        for (option, file) in
            [("Etc::sourcelist", "sources.list"), ("State::lists", "lists"), ("Cache", "cache")]
        {
            apt.arg(format!("-oDir::{option}={}", folder.join(file).display()));
        }
        apt
    };
    must(apt().arg("update"))?;
    for (package, _) in PACKAGES {
        // The file name consists of the package, version and architecture.
        if !apt().args(["download", package]).output()?.status.success() {
            continue;
        }
        let files = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
        let is_its = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.split('_').next() == Some(package) && name.ends_with(".deb")
        };
        if let Some(file) = files.into_iter().find(is_its) {
            must(Command::new("dpkg").arg("--extract").arg(file).arg(folder.join(package)))?;
        }
    }
    ensure!(!libraries().is_empty(), "Debian has none of them");
    Ok(())
}
