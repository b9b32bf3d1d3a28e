//! Laplace's equation on a mesh of triangles, divided among ranks: the same bits on any number of ranks.
//!
//! The mesh is a file of Gmsh. On its boundary, values are those of `x² - y²`, which solves the equation. Inside they
//! begin at 0, and damped steps of Jacobi's method change them. Each rank computes what its triangles add to the
//! Laplacian. A `Forest` brings values of nodes to the corners of triangles, and adds what corners have at the nodes.
//! `laplace.rs` has the steps, and `partition.rs` says why the bits do not depend on the ranks.
//!
//! Every rank reads the whole file and puts all triangles in order. Its device has only its own piece. Kernels are Rust
//! functions, so the devices are `host` and `sim`.
//!
//! ```text
//! cargo run --release --package runtime --example mesh -- --ranks 4
//! mpiexec -n 4 target/release/examples/mesh   # built with the feature mpi
//! ```
#![forbid(unsafe_code)]

mod elements;
mod gmsh;
mod laplace;
mod partition;
mod problem;

use std::fs;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use runtime::ranks::{self, Rank};

use crate::gmsh::Mesh;
use crate::laplace::{Laplace, Nodes};
use crate::partition::Ordered;
use crate::problem::{ANNULUS, exact, start};

/// Solves Laplace's equation on a mesh of triangles, on ranks and devices of your choice.
#[derive(Debug, Parser)]
#[command(name = "mesh")]
struct Args {
    /// Device: host or sim; of several ranks each takes another one if it has no number [default: $RUNTIME_DEVICE, or
    /// host]
    #[arg(long, value_name = "SELECTOR")]
    device: Option<String>,
    /// Ranks that share the mesh, as threads; if mpiexec starts the program, its processes are the ranks [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: Option<u16>,
    /// Steps of Jacobi's method
    #[arg(long, value_name = "N", default_value_t = 50)]
    steps: u64,
    /// Mesh of Gmsh, format 4.1, ASCII, with triangles of three nodes and z = 0 [default: an annulus, built in]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (count, device) = (args.ranks.map(usize::from), args.device.as_deref());
    let run = |mesh| {
        let mesh = Ordered::new(&mesh);
        ranks::run(count, device, |rank| work(&mesh, args.steps, rank))
    };
    match read(args.input.as_deref()).and_then(run) {
        Ok(report) => {
            // If standard output was closed, that is not a failure.
            report.flatten().iter().for_each(|report| drop(writeln!(stdout(), "{report}")));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("mesh: {}", format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn read(path: Option<&Path>) -> Result<Mesh> {
    let Some(path) = path else { return Ok(gmsh::read(ANNULUS)?) };
    let name = || path.display().to_string();
    let bytes = fs::read(path).with_context(name)?;
    // The head of a binary file is text, too, and says that the file is binary.
    gmsh::read(&String::from_utf8_lossy(&bytes)).with_context(name)
}

/// The work of every rank. The first rank returns the report.
fn work(mesh: &Ordered, steps: u64, rank: &Rank) -> Result<Option<String>> {
    let mut laplace = Laplace::new(rank, mesh, start(mesh, exact))?;
    let before = laplace.nodes()?;
    for _ in 0..steps {
        laplace.step()?;
    }
    let after = laplace.nodes()?;
    let [messages, bytes] = rank.sum(laplace.sends())?;
    if rank.number() > 0 {
        return Ok(None);
    }
    let (nodes, triangles) = (mesh.nodes.len(), mesh.triangles.len());
    let on_boundary = mesh.on_boundary.iter().filter(|is| **is).count();
    let kind = if rank.is_process { "processes of an MPI job" } else { "threads of this process" };
    let (ranks, device) = (rank.communicator.size(), rank.device.id());
    let [first, last] = [&before, &after].map(|nodes| residual(mesh, nodes));
    let apart = mesh.nodes.iter().zip(&after.values);
    let apart = apart.map(|(place, value)| (value - exact(*place)).abs()).fold(0.0, greatest);
    Ok(Some(format!(
        "mesh: {triangles} triangles, {nodes} nodes, {on_boundary} of them on the boundary
ranks: {ranks}, {kind}, on {device}
sent between ranks in a step: {bytes} bytes in {messages} messages
steps: {steps}
residual: {first:.3e} before, {last:.3e} after
difference from x² - y²: up to {apart:.3e}
checksum of all bits: {:016x}",
        checksum(&after.values)
    )))
}

/// Not `f64::max`, which ignores NaN.
fn greatest(a: f64, b: f64) -> f64 {
    if b <= a || a.is_nan() { a } else { b }
}

/// The norm of the Laplacian at the nodes inside.
fn residual(mesh: &Ordered, nodes: &Nodes) -> f64 {
    let inside = nodes.sums.iter().zip(&mesh.on_boundary).filter(|(_, on_boundary)| !**on_boundary);
    inside.map(|(sum, _)| sum * sum).sum::<f64>().sqrt()
}

/// The hash FNV-1a of the bits of values, in order.
fn checksum(values: &[f64]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
