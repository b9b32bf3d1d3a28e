//! How tests start jobs.

use std::env;
use std::io::{ErrorKind, Write, stderr};
use std::process::{Command, Output};

/// `mpiexec` ends a job after this many seconds.
const LIMIT: &str = "120";

/// The launcher, `mpiexec` or the one that `HALO_MPI_MPIEXEC` names, for this number of ranks.
pub(crate) fn mpiexec(ranks: usize) -> Command {
    let mut command = Command::new(env::var_os("HALO_MPI_MPIEXEC").unwrap_or("mpiexec".into()));
    command
        .args(["-n", &ranks.to_string()])
        .env("MPIEXEC_TIMEOUT", LIMIT)
        // For containers, and for more ranks than cores. Only Open MPI needs these variables: version 4, and version 5.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command
}

/// Runs a job for a test with this name. `None` without a launcher.
pub(crate) fn output(job: &mut Command, name: &str) -> Option<Output> {
    match job.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Not by a macro, whose output is hidden when a test passes.
            stderr().write_all(format!("{name}: skipped: no mpiexec\n").as_bytes()).unwrap();
            None
        }
        Err(error) => panic!("cannot start mpiexec: {error}"),
    }
}
