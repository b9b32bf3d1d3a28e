//! `cargo xtask demo`.

use anyhow::{Context, Result, ensure};

use crate::cargo::programs;
use crate::examples::{example, pass};
use crate::mpi;

/// `cargo xtask demo`: the main demo or the mesh, as an MPI job if a number of ranks is given; or the sphere.
pub(crate) fn demo(mpi_ranks: Option<u32>, options: &[String]) -> Result<()> {
    let (name, options) = match options.split_first() {
        Some((first, others)) if first == "sphere" => ("sphere", others),
        Some((first, others)) if first == "mesh" => ("mesh", others),
        _ => ("terrain", options),
    };
    let Some(ranks) = mpi_ranks else {
        return pass(example("run", name).arg("--").args(options));
    };
    ensure!(name != "sphere", "ranks of the {name} are threads: leave out --mpi");
    let mut build = example("build", name);
    build.args(["--message-format", "json-render-diagnostics"]);
    let programs = programs(&mut build)?;
    let (_, program) = programs.first().context("cargo built no demo")?;
    pass(mpi::mpiexec(ranks).arg(program).args(options))
}
