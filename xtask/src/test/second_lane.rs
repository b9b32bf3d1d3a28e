//! The second lane of `cargo xtask test`: a second process of this program, which runs at the same time as the first.
//! Its steps need only one core, or build folders of their own.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::programs::{Programs, TestRun};
use super::totals::Totals;
use crate::cargo::{DENY_WARNINGS, foreign, must, root};
use crate::gpu::steps;
use crate::sanitize::{self, Tool};
use crate::{firmware, guide, install, mpi, mutants, opencl, python, release};

/// The file with the output of the process, and the file with its results.
const OUTPUT: &str = "output.txt";
const TOTALS: &str = "totals.json";

/// The process. Its output is shown when it has ended.
pub(super) struct SecondLane {
    process: Child,
    folder: PathBuf,
}

impl SecondLane {
    pub(super) fn start() -> Result<Self> {
        let folder = root().join("target/test");
        fs::create_dir_all(&folder)?;
        drop(fs::remove_file(folder.join(TOTALS)));
        let output = File::create(folder.join(OUTPUT))?;
        let process = Command::new(env::current_exe()?)
            .args(["test", "--second-lane"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start the second lane")?;
        Ok(Self { process, folder })
    }

    /// Waits for its end, shows its output and adds its results.
    pub(super) fn finish(mut self, totals: &mut Totals) {
        match self.read() {
            Ok(others) => totals.append(others),
            Err(error) => totals.fail("second lane", &error),
        }
    }

    fn read(&mut self) -> Result<Totals> {
        let status = self.process.wait()?;
        print!("{}", String::from_utf8_lossy(&fs::read(self.folder.join(OUTPUT))?));
        let totals = fs::read(self.folder.join(TOTALS))
            .with_context(|| format!("the second lane ended with {status}"))?;
        Ok(serde_json::from_slice(&totals)?)
    }
}

/// Runs the steps, in the process that [`SecondLane::start`] starts. Writes the results to a file in `folder`.
pub(crate) fn run(folder: &Path) -> Result<()> {
    ensure!(folder.is_dir(), "no folder {}", folder.display());
    let mut totals = Totals::default();
    steps(&mut totals);
    Ok(fs::write(folder.join(TOTALS), serde_json::to_vec(&totals)?)?)
}

fn steps(totals: &mut Totals) {
    sanitize::brief(totals, Tool::Miri);
    sanitize::brief(totals, Tool::Thread);
    sanitize::brief(totals, Tool::Address);
    totals.step("foreign device, lints", || {
        must(foreign(&["clippy", "--all-targets"]).args(DENY_WARNINGS))
    });
    let device = || Ok(TestRun::of([foreign(&["test", "--no-fail-fast"])]));
    totals.tests("foreign device", device, &["foreign"], "");
    totals.step("mutants", || mutants::mutants(mutants::Target::Rules, &[], false));
    match firmware::absence() {
        None => totals.step("firmware", || firmware::firmware(true)),
        Some(why) => totals.skip("firmware", &why),
    }
    guide::test(totals);
    release::test(totals);
    python_package(totals);
    // The other lane may be building them.
    match Programs::build() {
        Ok(programs) => with_programs(totals, &programs),
        Err(error) => totals.fail("programs of the workspace", &error),
    }
}

/// Steps that run programs of the workspace's build.
fn with_programs(totals: &mut Totals, programs: &Programs) {
    steps::python_on_stand_ins(totals, programs);
    mpi::jobs(totals, programs);
    steps::kernels(totals, programs);
    totals.step("benchmarks, briefly", || {
        for (name, mut benchmark) in programs.benchmarks() {
            must(benchmark.arg("--quick"))?;
            if name == "front_overhead" {
                must(Command::new(benchmark.get_program()).arg("--test"))?;
            }
        }
        Ok(())
    });
    numpy(totals, programs);
}

/// Tests the Python package, installed as users do.
fn python_package(totals: &mut Totals) {
    if let Some(why) = python::absence() {
        return totals.skip("python", &why);
    }
    totals.step("python: pip install", python::install_package);
    totals.counted("python", || python::run(opencl::two_devices(&mut python::tests(None))));
    mpi::python_jobs(totals);
    totals.step("python: speed, briefly", || must(python::speed().arg("--quick")));
}

/// Reads the demo's array with NumPy.
fn numpy(totals: &mut Totals, programs: &Programs) {
    let python = install::python();
    let found = Command::new(&python).args(["-c", "import numpy"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let why = "no NumPy in target/venv; --install installs it";
        return totals.skip("numpy reads the demo", why);
    }
    totals.step("numpy reads the demo", || {
        let folder = root().join("target/numpy-check");
        let mut terrain = Command::new(programs.example("terrain")?);
        must(terrain.args(["--steps", "5", "--output"]).arg(&folder))?;
        must(Command::new(python).arg(root().join("xtask/check_demo.py")).arg(&folder))?;
        Ok(fs::remove_dir_all(folder)?)
    });
}
