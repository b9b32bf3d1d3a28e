//! `cargo xtask test`: everything, with one closing table.

use std::fs;
use std::io::{BufRead, BufReader};
use std::iter;
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::conformance::{On, read, report_file, suite, watch};
use crate::run::{cargo, must, root};
use crate::stand_in;
use crate::{above, cuda, demo, drivers, firmware, hip, install, mpi, mutants, opencl, python};

/// What became of the steps.
#[derive(Default)]
struct Totals {
    rows: Vec<[String; 5]>,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Totals {
    fn add(&mut self, name: &str, passed: usize, failed: usize, skipped: usize, why: &str) {
        let [p, f, s] = [passed, failed, skipped].map(|n| n.to_string());
        self.rows.push([name.to_owned(), p, f, s, why.to_owned()]);
        self.passed += passed;
        self.failed += failed;
        self.skipped += skipped;
    }

    /// A step that passes or fails as a whole.
    fn step(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = step();
        println!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
        match outcome {
            Ok(()) => self.add(name, 1, 0, 0, ""),
            Err(error) => {
                println!("{error:#}");
                self.add(name, 0, 1, 0, &first_line(&error));
            }
        }
    }

    /// A step that runs tests, counted by the test runner and, for the conformance suite, by device.
    /// A required device of which no rule was reported is a failure. `variant` tells rows of one device apart.
    fn tests(&mut self, name: &str, command: &mut Command, required: &[&str], variant: &str) {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = report_file(&name.replace(' ', "-")).and_then(|report| {
            let counts = run_tests(watch(command, &report))?;
            Ok((counts, read(&report)?))
        });
        println!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
        let (counts, tallies) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                println!("{error:#}");
                return self.add(name, 0, 1, 0, &first_line(&error));
            }
        };
        let rules: usize = tallies.values().map(|tally| tally.passed + tally.skipped.len()).sum();
        let broken: usize = tallies.values().map(|tally| tally.failed.len()).sum();
        // The runner counts a rule as one test, and a skipped one as passed.
        let (passed, failed) =
            (counts.passed.saturating_sub(rules), counts.failed.saturating_sub(broken));
        let unseen = usize::from(!counts.clean && failed + broken == 0);
        // Where there are rules and no other test, they have their own rows.
        if passed + failed + unseen + counts.ignored > 0 || rules + broken == 0 {
            let why = if counts.clean { "" } else { "see above" };
            self.add(name, passed, failed + unseen, counts.ignored, why);
        }
        let row = |device: &str| format!("conformance {device}{variant}");
        for device in required.iter().filter(|device| !tallies.contains_key(**device)) {
            self.add(&row(device), 0, 1, 0, "no rule ran");
        }
        for (device, tally) in tallies {
            let why = tally.failed.first().or(tally.skipped.first()).cloned().unwrap_or_default();
            self.add(&row(&device), tally.passed, tally.failed.len(), tally.skipped.len(), &why);
        }
    }

    fn print(&self) {
        let head = ["", "passed", "failed", "skipped", "why"].map(str::to_owned);
        let width = |column: usize| {
            let rows = self.rows.iter().chain([&head]);
            rows.map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: [usize; 4] = std::array::from_fn(width);
        println!();
        for row in [&head].into_iter().chain(&self.rows) {
            let [name, passed, failed, skipped, why] = row;
            let line = format!(
                "{name:0$}  {passed:>1$}  {failed:>2$}  {skipped:>3$}  {why}",
                widths[0], widths[1], widths[2], widths[3]
            );
            println!("{}", line.trim_end());
        }
        println!("\n{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
    }
}

fn first_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or_default().to_owned()
}

/// Counts of cargo's test runner.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    clean: bool,
}

impl Counts {
    /// Adds what a line like `test result: ok. 3 passed; 0 failed; 1 ignored; …` says.
    pub(crate) fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        for part in result.split(['.', ';']) {
            if let Some((number, word)) = part.trim().split_once(' ') {
                let number = number.parse().unwrap_or(0);
                match word {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.ignored += number,
                    _ => {}
                }
            }
        }
    }
}

fn run_tests(command: &mut Command) -> Result<Counts> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut counts = Counts::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        counts.add(&line);
    }
    counts.clean = child.wait()?.success();
    Ok(counts)
}

/// `cargo xtask test`.
pub(crate) fn test(with_install: bool, exhaustive: bool) -> Result<()> {
    let mut totals = Totals::default();
    if with_install && let Err(error) = install::install() {
        println!("{error:#}");
        totals.add("install", 0, 0, 1, &first_line(&error));
    }
    const FOREIGN: [&str; 2] = ["--manifest-path", "docs/foreign-device/Cargo.toml"];
    const STRICT: [&str; 3] = ["--", "--deny", "warnings"];
    totals.step("format", || {
        must(&mut cargo(&["fmt", "--all", "--check"]))?;
        must(cargo(&["fmt", "--check"]).args(FOREIGN))
    });
    let features = all_features(&mut totals)?;
    totals.step("lints", || {
        must(
            cargo(&["clippy", "--quiet", "--workspace", "--all-targets"])
                .args(&features)
                .args(STRICT),
        )?;
        must(cargo(&["clippy", "--quiet", "--all-targets"]).args(FOREIGN).args(STRICT))
    });
    totals.step("no default features", || {
        let bare = ["check", "--quiet", "--package", "runtime", "--no-default-features"];
        must(&mut cargo(&bare))?;
        must(cargo(&bare).args(["--features", "opencl"]))?;
        must(cargo(&bare).args(["--features", "cuda"]))?;
        must(cargo(&bare).args(["--features", "hip"]))?;
        must(cargo(&bare).args(["--features", "embedded"]))
    });
    totals.step("documentation", || {
        let mut doc = cargo(&["doc", "--quiet", "--workspace", "--no-deps"]);
        must(doc.args(&features).env("RUSTDOCFLAGS", "--deny warnings"))
    });
    let mut workspace = cargo(&["test", "--no-fail-fast", "--workspace"]);
    workspace.args(&features);
    let required = ["embedded", "host", "opencl", "sim"];
    totals.tests("workspace", opencl::two_devices(&mut workspace), &required, "");
    if exhaustive {
        let combinations = ["test", "--release", "--package", "halo", "--test", "combinations"];
        let mut all = cargo(&combinations);
        totals.tests("halo, all combinations", all.env("HALO_EXHAUSTIVE", "1"), &[], "");
    }
    if install::intel_library().exists() {
        let intel = On { platform: Some("intel"), stand_in: false };
        match suite("opencl", intel, Path::new("")) {
            Ok(mut suite) => totals.tests("opencl on intel", &mut suite, &["opencl"], " (intel)"),
            Err(error) => totals.add("opencl on intel", 0, 1, 0, &first_line(&error)),
        }
    }
    without_gpu(&mut totals);
    cuda_drivers(&mut totals);
    hip_without_gpu(&mut totals);
    let foreign = ["test", "--no-fail-fast"];
    totals.tests("foreign device", cargo(&foreign).args(FOREIGN), &["foreign"], "");
    match firmware::absence() {
        None => totals.step("firmware", || firmware::firmware(true)),
        Some(why) => totals.add("firmware", 0, 0, 1, &why),
    }
    totals.step("mutants", mutants::mutants);
    totals.step("benchmarks, briefly", || must(demo::benches()?.args(["--", "--quick"])));
    numpy(&mut totals);
    python_package(&mut totals);
    miri(&mut totals);
    totals.print();
    // The table is the last word: no error message follows it.
    if totals.failed > 0 {
        exit(1);
    }
    Ok(())
}

/// What builds the workspace with every feature that can be built here.
fn all_features(totals: &mut Totals) -> Result<Vec<String>> {
    let with_mpi = mpi::is_there()?;
    if !with_mpi {
        let why = "no MPI or no libclang; --install brings both";
        println!("halo-mpi is built without its feature mpi: {why}");
        totals.add("halo-mpi", 0, 0, 1, why);
    }
    mpi::features(with_mpi)
}

/// What can be seen without a GPU: that every CUDA kernel compiles, and that backends, arrays and halos do right on the
/// stand-ins for their runtimes, which compile with NVIDIA's compilers.
fn without_gpu(totals: &mut Totals) {
    let tools = match cuda::tools() {
        Ok(tools) => tools,
        Err(error) => return totals.add("stand-ins", 0, 0, 1, &first_line(&error)),
    };
    for (nvrtc, version) in tools.nvrtc.iter().zip(["12.0", "13.0"]) {
        let mut kernels = cargo(&["test", "--package", "stand-in", "--test", "ptx"]);
        cuda::compile_with(&mut kernels, &tools, nvrtc);
        totals.tests(&format!("CUDA kernels, NVRTC {version}"), &mut kernels, &[], "");
    }
    let nvrtc = &tools.nvrtc[0];
    let backends = [("cuda", stand_in::CUDA), ("hip", stand_in::HIP)];
    for (name, stand_in) in &backends {
        let package = format!("backend-{name}");
        let mut backend = cargo(&["test", "--no-fail-fast", "--all-features", "--package"]);
        backend.arg(&package);
        let required = [*name];
        let above = above::ALL.iter().map(|above| (above.package, above.tests(name), &[][..]));
        let suites = iter::once((package.as_str(), backend, &required[..])).chain(above);
        for (package, mut tests, required) in suites {
            let title = format!("{package} on the stand-in for {name}");
            let complaints = root().join("target/conformance/stand-in.jsonl");
            cuda::compile_with(&mut tests, &tools, nvrtc);
            match stand_in.enable(&mut tests, &complaints) {
                Ok(tests) => totals.tests(&title, tests, required, " on the stand-in"),
                Err(error) => totals.add(&title, 0, 1, 0, &first_line(&error)),
            }
            if let Err(error) = stand_in::check_report(&complaints) {
                println!("{error:#}");
                totals.add(&format!("{title}: what was given back"), 0, 1, 0, &first_line(&error));
            }
        }
    }
}

/// What can be seen of NVIDIA's drivers without a GPU: that they have every function, and are told from broken ones.
fn cuda_drivers(totals: &mut Totals) {
    let libraries = drivers::libraries();
    if libraries.is_empty() {
        return totals.add(
            "CUDA drivers",
            0,
            0,
            1,
            "none in target/drivers; --install brings them",
        );
    }
    for (package, library) in libraries {
        let mut absence = cargo(&["test", "--package", "backend-cuda", "--all-features"]);
        absence.args(["--test", "cuda", "--", "absence::a_driver_without_a_device"]);
        absence.env("BACKEND_CUDA_DRIVER", library);
        totals.tests(&format!("CUDA driver of {package}"), &mut absence, &[], "");
    }
}

/// What can be seen of HIP without a GPU and without a stand-in: that every kernel compiles for two architectures, and
/// that a runtime without a device is told from a broken one.
fn hip_without_gpu(totals: &mut Totals) {
    let mut kernels = cargo(&["test", "--package", "backend-hip", "--all-features", "--lib"]);
    if hip::compile(&mut kernels) {
        totals.tests("HIP kernels", kernels.args(["--", "compiled"]), &[], "");
    } else {
        totals.add("HIP kernels", 0, 0, 1, "no hipcc; --install brings it");
    }
    let absence = ["test", "--package", "backend-hip", "--all-features", "--test", "hip"];
    totals.tests("HIP without a GPU", cargo(&absence).args(["--", "absence"]), &[], "");
}

/// The demo's array, read by NumPy.
fn numpy(totals: &mut Totals) {
    let python = install::python();
    let found = Command::new(&python).args(["-c", "import numpy"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let why = "no NumPy in target/venv; --install brings it";
        return totals.add("numpy reads the demo", 0, 0, 1, why);
    }
    totals.step("numpy reads the demo", || {
        let folder = root().join("target/numpy-check");
        let example =
            ["run", "--quiet", "--release", "--package", "runtime", "--example", "terrain", "--"];
        must(cargo(&example).args(["--steps", "5", "--output"]).arg(&folder))?;
        must(Command::new(python).arg(root().join("xtask/check_demo.py")).arg(&folder))?;
        Ok(fs::remove_dir_all(folder)?)
    });
}

/// The Python package, installed as its users do.
fn python_package(totals: &mut Totals) {
    if let Some(why) = python::absence() {
        return totals.add("python", 0, 0, 1, &why);
    }
    totals.step("python: pip install", python::install_package);
    let mut add = |name: &str, outcome: Result<[usize; 3]>| match outcome {
        Ok([passed, failed, skipped]) => totals.add(name, passed, failed, skipped, ""),
        Err(error) => {
            println!("{error:#}");
            totals.add(name, 0, 1, 0, &first_line(&error));
        }
    };
    add("python", python::run(opencl::two_devices(&mut python::tests(None))));
    if let Ok(tools) = cuda::tools() {
        for (name, stand_in) in [("cuda", stand_in::CUDA), ("hip", stand_in::HIP)] {
            let complaints = root().join("target/conformance/stand-in.jsonl");
            let mut tests = python::tests(Some("test_gpu.py"));
            cuda::compile_with(&mut tests, &tools, &tools.nvrtc[0]);
            // Consumers that name no stream mean the driver's own.
            tests.env("STAND_IN_DEFAULT_STREAMS", "1");
            let on = stand_in.enable(&mut tests, &complaints);
            let name = format!("python on the stand-in for {name}");
            let ran = on.and_then(python::run);
            add(&name, ran.and_then(|counts| stand_in::check_report(&complaints).map(|()| counts)));
        }
    }
    totals.step("python: speed, briefly", || must(python::speed().arg("--quick")));
}

/// Arrays on the host, and capsules that are given back, under Miri.
fn miri(totals: &mut Totals) {
    let nightly = || {
        let mut command = Command::new("cargo");
        command.args([&format!("+{}", install::MIRI), "miri"]).current_dir(root());
        command
    };
    let found = nightly().arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        let why = format!("no Miri of {}; --install brings it", install::MIRI);
        return totals.add("miri", 0, 0, 1, &why);
    }
    let mut arrays = nightly();
    arrays.args(["test", "--package", "array-buffer", "--test", "regressions", "--", "host::"]);
    // Tests forget guards on purpose, so that leaks are no failures.
    arrays.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks");
    totals.tests("miri", &mut arrays, &[], "");
    let mut capsules = nightly();
    capsules.args(["test", "--package", "interchange", "--test", "release", "--test", "fuzz"]);
    // Protocols hand addresses over as numbers, and some tests leak what they look at.
    capsules.env("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-ignore-leaks");
    totals.tests("miri, capsules", &mut capsules, &[], "");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let mut counts = Counts::default();
        counts.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s");
        counts
            .add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.add("test a ... ok");
        assert_eq!(counts, Counts { passed: 4, failed: 2, ignored: 1, clean: false });
    }
}
