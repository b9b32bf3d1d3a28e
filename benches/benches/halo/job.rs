//! MPI jobs, which run this program again.

use std::env;
use std::io::ErrorKind;
use std::process::Command;

use crate::measured::Measured;

/// The variable with the cells of the cases, for the ranks of a job.
const ROLE: &str = "HALO_BENCH_CELLS";

/// Returns the cells of the cases if this process is a rank of a job.
#[cfg(feature = "mpi")]
pub(crate) fn role() -> Option<usize> {
    env::var(ROLE).ok()?.parse().ok()
}

/// Returns the measurements of a job with this number of ranks and cells, or the reason why there is no job.
///
/// # Panics
///
/// Panics if the job fails.
pub(crate) fn results(ranks: usize, cells: usize) -> Result<Vec<Measured>, String> {
    if cfg!(not(feature = "mpi")) {
        return Err("built without the feature mpi".to_owned());
    }
    let mut command = Command::new("mpiexec");
    command.args(["-n", &ranks.to_string()]);
    command.arg(env::current_exe().map_err(|error| error.to_string())?).args(env::args().skip(1));
    // Jobs also run as root, in containers. Ranks that are threads need the cores of all processes, so no process is
    // bound to cores. MPICH ignores these variables.
    command.env(ROLE, cells.to_string()).env("OMPI_MCA_hwloc_base_binding_policy", "none");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err("no mpiexec".to_owned()),
        output => output.expect("mpiexec"),
    };
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{ranks} ranks: {}\n{said}{errors}", output.status);
    Ok(said.lines().filter_map(Measured::parse).collect())
}
