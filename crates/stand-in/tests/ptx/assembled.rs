//! Every kernel of the repository compiles, and assembles for real hardware.
//!
//! Runs where `BACKEND_CUDA_NVRTC` names a compiler and `BACKEND_CUDA_PTXAS` an assembler. Neither needs a GPU.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use backend_support::{Binding, Dialect, Mapping, RegionKernel};

use crate::nvrtc::{compile, compiler};

/// Turing, Ampere, Hopper.
const ARCHITECTURES: [u32; 3] = [75, 80, 90];
/// Kernels in files of their own.
const FILES: [&str; 5] = [
    "conformance/src/kernels/kernels.cu",
    "runtime/examples/kernels/saxpy.cu",
    "backend-cuda/src/fill.cu",
    "stand-in/tests/ptx/data/diffusion.cu",
    "stand-in/tests/ptx/data/threads.cu",
];
/// PTX that is shipped.
const SHIPPED: [&str; 9] = [
    "conformance/src/kernels/kernels.ptx",
    "runtime/examples/kernels/saxpy.ptx",
    "stand-in/tests/ptx/data/diffusion.ptx",
    "backend-cuda/src/ptx/fill.ptx",
    "backend-cuda/src/ptx/region_copy_8.ptx",
    "backend-cuda/src/ptx/region_copy_32.ptx",
    "backend-cuda/src/ptx/region_copy_448.ptx",
    "backend-cuda/src/ptx/region_copy_any.ptx",
    "backend-cuda/src/ptx/region_table.ptx",
];

/// Assembles PTX, and returns the messages of the assembler. Panics with them if it refuses.
fn assemble(assembler: &Path, name: &str, ptx: &str, architecture: u32) -> String {
    let architecture_option = format!("--gpu-name=sm_{architecture}");
    let mut child = Command::new(assembler)
        .args([&architecture_option, "--verbose", "--output-file=/dev/null", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the assembler starts");
    child.stdin.take().unwrap().write_all(ptx.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} for sm_{architecture}: {messages}");
    messages.into_owned()
}

fn assembler() -> Option<std::path::PathBuf> {
    let named = env::var_os("BACKEND_CUDA_PTXAS").map(Into::into);
    if named.is_none() {
        eprintln!("skipped: BACKEND_CUDA_PTXAS does not name an assembler");
    }
    named
}

fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn every_kernel_compiles_and_assembles() {
    let (Some(nvrtc), Some(assembler)) = (compiler(), assembler()) else { return };
    let mut sources: Vec<(String, String)> = FILES
        .iter()
        .map(|file| ((*file).to_owned(), fs::read_to_string(crates().join(file)).unwrap()))
        .collect();
    let lanes = RegionKernel::BY_ADDRESS.map(|binding| (Mapping::Lanes, binding));
    for (mapping, binding) in lanes.into_iter().chain([
        (Mapping::Lanes, Binding::Parameters(RegionKernel::MAX_SLOTS)),
        (Mapping::Runs, Binding::Parameters(2)),
    ]) {
        let kernel = RegionKernel::new(mapping, binding, true).unwrap();
        let name = format!("region copies, {mapping:?}, {binding:?}");
        sources.push((name, kernel.source(Dialect::CudaC)));
    }
    sources.push(("tables of region copies".to_owned(), RegionKernel::setter_source()));
    for architecture in ARCHITECTURES {
        for (name, source) in &sources {
            let ptx =
                compile(nvrtc, source, &[&format!("--gpu-architecture=compute_{architecture}")]);
            assemble(&assembler, name, &ptx, architecture);
        }
    }
}

#[test]
fn shipped_ptx_assembles() {
    let Some(assembler) = assembler() else { return };
    for architecture in ARCHITECTURES {
        for file in SHIPPED {
            let ptx = fs::read_to_string(crates().join(file)).unwrap();
            assemble(&assembler, file, &ptx, architecture);
        }
    }
}

/// A multiprocessor has 65536 registers: with 64 for each thread it holds four blocks of 256, whose reads are under way
/// together.
#[test]
fn region_copies_leave_registers_for_more_blocks() {
    let Some(assembler) = assembler() else { return };
    for memories in ["8", "32", "448", "any"] {
        let file = format!("backend-cuda/src/ptx/region_copy_{memories}.ptx");
        let ptx = fs::read_to_string(crates().join(&file)).unwrap();
        for architecture in ARCHITECTURES {
            let messages = assemble(&assembler, &file, &ptx, architecture);
            let (before, _) = messages.split_once(" registers").unwrap();
            let used: u32 = before.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(used <= 64, "{file} for sm_{architecture}: {messages}");
            // Addresses are read where they are, and not from a copy in each thread's own memory.
            let nothing = " 0 bytes stack frame, 0 bytes spill stores";
            assert!(messages.contains(nothing), "{file} for sm_{architecture}: {messages}");
        }
    }
}
