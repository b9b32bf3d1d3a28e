//! MPI jobs, which run this program again.

use std::env;
use std::io::ErrorKind;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::forest::petsc;
use crate::mpi::calls;

/// The variable with the work of a job, for its ranks.
const ROLE: &str = "HALO_BENCH_WORK";

/// What the ranks of a job measure.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Exchanges of boxes with this number of cells along each axis.
    Boxes(usize),
    /// Broadcasts and reductions of forests with this number of leaves on each rank.
    Forest(usize),
    /// Exchanges of many boxes on each of two ranks.
    ManyBoxes,
    /// Messages.
    Messages,
}

/// Returns the work of this process if it is a rank of a job.
pub(crate) fn role() -> Option<Work> {
    serde_json::from_str(&env::var(ROLE).ok()?).ok()
}

/// Returns what rank 0 of a job printed, or the reason why there is no job.
///
/// # Panics
///
/// Panics if the job fails.
pub(crate) fn run(ranks: usize, work: Work) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let calls = folder.path().join("calls.so");
    calls::compile(&calls)?;
    let mut command = Command::new("mpiexec");
    command.args(["-n", &ranks.to_string()]);
    command.arg(env::current_exe().map_err(|error| error.to_string())?).args(env::args().skip(1));
    command.env(ROLE, serde_json::to_string(&work).expect("a number"));
    command.env(calls::VARIABLE, &calls);
    if let Work::Forest(_) = work {
        petsc::prepare(folder.path(), &mut command);
    }
    // Jobs also run as root, in containers. Ranks that are threads need the cores of all processes, so no process is
    // bound to cores. Other MPIs than Open MPI 4 ignore these variables.
    command.env("OMPI_MCA_hwloc_base_binding_policy", "none");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err("no mpiexec".to_owned()),
        output => output.expect("mpiexec"),
    };
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{ranks} ranks: {}\n{said}{errors}", output.status);
    Ok(said.into_owned())
}
