//! Draws a decomposition: ranks, their neighbours, and how tiles are joined.

mod describe;
mod net;
mod picture;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use backend_host::HostDevice;
use clap::Parser;
use halo::{Dim, FieldSpec, HaloTransformer, Quantity, Topology};
use runtime_core::{DType, Device};

/// Draws a decomposition as SVG: unfolded tiles, ranks with their numbers, local axes, and the joined sides, in the
/// colour of the symmetry between them.
#[derive(Parser)]
#[command(name = "cargo xtask halo-map", bin_name = "cargo xtask halo-map")]
struct Options {
    /// The decomposition: cube:ROWSxCOLUMNS (ranks on each tile) or cube:CELLS/ROWSxCOLUMNS;
    /// box:CELLSxCELLS/RANKSxRANKS, x first, or the same with one axis; file:PATH for blocks and links as JSON.
    #[arg(long)]
    topology: String,
    /// For boxes: the periodic axes, such as x or xy. The other axes are open.
    #[arg(long, default_value = "")]
    periodic: String,
    /// Adds the bytes that a halo of this width sends to each neighbour, for one field of f64.
    #[arg(long, value_name = "CELLS")]
    halo: Option<usize>,
    /// The output file.
    #[arg(long, default_value = "halo-map.svg")]
    output: PathBuf,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String> {
    let topology = describe::topology(&options.topology, &options.periodic)?;
    let messages = options.halo.map(|halo| messages(&topology, halo)).transpose()?;
    let picture = picture::draw(&topology, &options.topology, messages.as_deref())?;
    let file = &options.output;
    fs::write(file, picture).with_context(|| format!("cannot write {}", file.display()))?;
    let (ranks, tiles) = (topology.ranks(), topology.tiles());
    Ok(format!("{}: {ranks} ranks, {tiles} tiles", file.display()))
}

/// For each rank, the ranks that it sends to and the bytes, for one field of f64 with a halo of this width.
fn messages(topology: &Topology, halo: usize) -> Result<Vec<Vec<(usize, usize)>>> {
    let device = Device::new(HostDevice::with_threads(0, 1)?)?;
    let of_rank = |rank| {
        let cells = topology.block(rank)?.cells;
        let dims = (0..topology.axes()).map(|axis| Dim::axis(axis, cells[axis]).halo(halo, halo));
        let field = FieldSpec::new("field", DType::F64, &dims.collect::<Vec<_>>())?;
        let quantities = [Quantity::scalar(field)];
        let plan = HaloTransformer::new(topology, rank, &quantities, &device, &Default::default())?;
        Ok(plan.sends().collect())
    };
    (0..topology.ranks()).map(of_rank).collect()
}
