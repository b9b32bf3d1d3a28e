//! `cargo xtask test`: runs everything, in two lanes, and prints one closing table.
//!
//! Steps that need only one core, or a separate build folder, run in a second process at the same time as the rest.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, iter};

use anyhow::{Context, Result, ensure};

use crate::conformance::{On, suite};
use crate::programs::{Programs, TestRun};
use crate::run::{cargo, foreign, must, root};
use crate::totals::Totals;
use crate::{
    above, cuda, demo, drivers, firmware, hip, install, mpi, mutants, opencl, python, sanitize,
    stand_in,
};

/// The clippy arguments.
pub(crate) const STRICT: [&str; 3] = ["--", "--deny", "warnings"];

/// `cargo xtask test`.
pub(crate) fn test(with_install: bool, exhaustive: bool) -> Result<()> {
    let start = Instant::now();
    let mut totals = Totals::default();
    if with_install {
        totals.optional("install", install::install);
    }
    let beside = Beside::start()?;
    workspace(&mut totals, exhaustive);
    beside.finish(&mut totals);
    totals.close(start)
}

/// Steps that are built with every feature and share one build folder: lints, documentation, and all tests of the
/// workspace.
fn workspace(totals: &mut Totals, exhaustive: bool) {
    totals.step("format", || {
        must(&mut cargo(&["fmt", "--all", "--check"]))?;
        must(foreign(&["fmt"]).arg("--check"))
    });
    let features = match all_features(totals) {
        Ok(features) => features,
        Err(error) => return totals.fail("features", &error),
    };
    totals.step("lints", || {
        let clippy = ["clippy", "--workspace", "--all-targets"];
        must(cargo(&clippy).args(&features).args(STRICT))
    });
    totals.step("no default features", || {
        for feature in ["", "opencl", "cuda", "hip", "embedded"] {
            let bare = ["check", "--package", "runtime", "--no-default-features"];
            must(cargo(&bare).args(["--features", feature]))?;
        }
        Ok(())
    });
    totals.step("documentation", || {
        let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
        must(doc.args(&features).env("RUSTDOCFLAGS", "--deny warnings"))
    });
    let mut built = None;
    totals.step("build", || {
        built = Some(Programs::build(&features)?);
        Ok(())
    });
    // Without the programs nothing else can run.
    let Some(programs) = built else { return };
    let required = ["embedded", "host", "opencl", "sim"];
    let all = || Ok(programs.all().each(opencl::two_devices));
    totals.tests("workspace", all, &required, "");
    examples(totals, &features, &programs);
    if exhaustive {
        let combinations = ["test", "--release", "--package", "halo", "--test", "combinations"];
        let mut all = cargo(&combinations);
        all.env("HALO_EXHAUSTIVE", "1");
        totals.tests("halo, all combinations", || Ok(TestRun::of([all])), &[], "");
    }
    if install::intel_library().exists() {
        let intel = On { platform: Some("intel"), stand_in: false };
        let run = || Ok(TestRun::of([suite("opencl", intel, Path::new(""))?]));
        totals.tests("opencl on intel", run, &["opencl"], " (intel)");
    }
    without_gpu(totals, &programs);
    cuda_drivers(totals, &programs);
    hip_without_gpu(totals, &programs);
}

/// Steps with their own build folders.
fn apart(totals: &mut Totals) {
    sanitize::briefly(totals);
    totals
        .step("foreign device, lints", || must(foreign(&["clippy", "--all-targets"]).args(STRICT)));
    let device = || Ok(TestRun::of([foreign(&["test", "--no-fail-fast"])]));
    totals.tests("foreign device", device, &["foreign"], "");
    totals.step("mutants", mutants::mutants);
    match firmware::absence() {
        None => totals.step("firmware", || firmware::firmware(true)),
        Some(why) => totals.skip("firmware", &why),
    }
    python_package(totals);
    totals.step("benchmarks, briefly", || must(demo::benches()?.args(["--", "--quick"])));
    numpy(totals);
}

/// The second lane: a second process of this program. Its output is shown when it has ended.
struct Beside {
    process: Child,
    folder: PathBuf,
}

impl Beside {
    const OUTPUT: &str = "output.txt";
    const TOTALS: &str = "totals.json";

    fn start() -> Result<Self> {
        let folder = root().join("target/test");
        fs::create_dir_all(&folder)?;
        drop(fs::remove_file(folder.join(Self::TOTALS)));
        let output = File::create(folder.join(Self::OUTPUT))?;
        let process = Command::new(env::current_exe()?)
            .args(["test", "--apart"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start the second lane")?;
        Ok(Self { process, folder })
    }

    /// Waits for its end, shows its output and adds its results.
    fn finish(mut self, totals: &mut Totals) {
        match self.read() {
            Ok(others) => totals.append(others),
            Err(error) => totals.fail("second lane", &error),
        }
    }

    fn read(&mut self) -> Result<Totals> {
        let status = self.process.wait()?;
        print!("{}", String::from_utf8_lossy(&fs::read(self.folder.join(Self::OUTPUT))?));
        let totals = fs::read(self.folder.join(Self::TOTALS))
            .with_context(|| format!("the second lane ended with {status}"))?;
        Ok(serde_json::from_slice(&totals)?)
    }
}

/// The second lane, in the process that [`test()`] starts. Its results are written to a file in `folder`.
pub(crate) fn test_apart(folder: &Path) -> Result<()> {
    ensure!(folder.is_dir(), "no folder {}", folder.display());
    let mut totals = Totals::default();
    apart(&mut totals);
    Ok(fs::write(folder.join(Beside::TOTALS), serde_json::to_vec(&totals)?)?)
}

/// The cargo arguments for a workspace build with every feature that can be built here.
fn all_features(totals: &mut Totals) -> Result<Vec<String>> {
    let with_mpi = mpi::is_there()?;
    if !with_mpi {
        let why = "no MPI or no libclang; --install brings both";
        println!("halo-mpi is built without its feature mpi: {why}");
        totals.skip("halo-mpi", why);
    }
    mpi::features(with_mpi)
}

/// Checks of GPU backends without a GPU: every CUDA kernel compiles, and backends, arrays and halos pass their tests on
/// the stand-ins for the GPU runtimes, which use NVIDIA's compilers.
fn without_gpu(totals: &mut Totals, programs: &Programs) {
    let tools = match cuda::tools() {
        Ok(tools) => tools,
        Err(error) => return totals.skip("stand-ins", &error.to_string()),
    };
    for (nvrtc, version) in tools.nvrtc.iter().zip(["12.0", "13.0"]) {
        let kernels = || {
            let ptx = programs.of("stand-in", &["ptx"])?;
            Ok(ptx.each(|program| cuda::compile_with(program, &tools, nvrtc)))
        };
        totals.tests(&format!("CUDA kernels, NVRTC {version}"), kernels, &[], "");
    }
    let nvrtc = &tools.nvrtc[0];
    let backends = [("cuda", stand_in::CUDA), ("hip", stand_in::HIP)];
    for (name, stand_in) in &backends {
        let package = format!("backend-{name}");
        let required = [*name];
        let above = above::ALL.iter().map(|above| (above.package, above.programs, &[][..]));
        let suites = iter::once((package.as_str(), &[][..], &required[..])).chain(above);
        for (package, names, required) in suites {
            let title = format!("{package} on the stand-in for {name}");
            let complaints = root().join("target/conformance/stand-in.jsonl");
            let run = || {
                let library = programs.library(stand_in.library)?;
                stand_in::clear_report(&complaints)?;
                Ok(programs.of(package, names)?.each(|program| {
                    cuda::compile_with(program, &tools, nvrtc);
                    stand_in.enable(program, library, &complaints);
                    // Programs with these names have a module for each device.
                    program.args((!names.is_empty()).then(|| format!("{name}::")))
                }))
            };
            totals.tests(&title, run, required, " on the stand-in");
            given_back(totals, &title, &complaints);
        }
    }
}

/// Examples in documentation, which run on the stand-ins for GPUs if these can compile.
fn examples(totals: &mut Totals, features: &[String], programs: &Programs) {
    let mut examples = cargo(&["test", "--no-fail-fast", "--workspace", "--doc"]);
    examples.args(features);
    let Ok(tools) = cuda::tools() else {
        return totals.tests("examples in docs", || Ok(TestRun::of([examples])), &[], "");
    };
    let complaints = root().join("target/conformance/stand-in-docs.jsonl");
    let run = || {
        cuda::compile_with(&mut examples, &tools, &tools.nvrtc[0]);
        stand_in::clear_report(&complaints)?;
        for stand_in in [stand_in::CUDA, stand_in::HIP] {
            stand_in.enable(&mut examples, programs.library(stand_in.library)?, &complaints);
        }
        Ok(TestRun::of([examples]))
    };
    totals.tests("examples in docs", run, &[], "");
    given_back(totals, "examples in docs", &complaints);
}

/// Fails if the stand-in has complaints.
fn given_back(totals: &mut Totals, title: &str, complaints: &Path) {
    if let Err(error) = stand_in::check_report(complaints) {
        totals.fail(&format!("{title}: what was given back"), &error);
    }
}

/// Checks of NVIDIA's drivers without a GPU: they have every function, and are distinguished from broken drivers.
fn cuda_drivers(totals: &mut Totals, programs: &Programs) {
    let libraries = drivers::libraries();
    if libraries.is_empty() {
        return totals.skip("CUDA drivers", "none in target/drivers; --install brings them");
    }
    for (package, library) in libraries {
        let absence = || {
            Ok(programs.of("backend-cuda", &["cuda"])?.each(|program| {
                let test = "own::a_driver_without_a_device";
                program.arg(test).env(stand_in::CUDA.variable, &library)
            }))
        };
        totals.tests(&format!("CUDA driver of {package}"), absence, &[], "");
    }
}

/// Checks of HIP with neither a GPU nor a stand-in: every kernel compiles for two architectures, and a runtime without
/// a device is distinguished from a broken runtime.
fn hip_without_gpu(totals: &mut Totals, programs: &Programs) {
    if let Some(compiler) = hip::compiler() {
        let kernels = || {
            Ok(programs
                .of("backend-hip", &["backend_hip"])?
                .each(|program| hip::compile_with(program.arg("compiled"), &compiler)))
        };
        totals.tests("HIP kernels", kernels, &[], "");
    } else {
        totals.skip("HIP kernels", "no hipcc; --install brings it");
    }
    let absence = || {
        let program = programs.of("backend-hip", &["hip"])?;
        Ok(program.each(|program| program.arg("absence")))
    };
    totals.tests("HIP without a GPU", absence, &[], "");
}

/// Reads the demo's array with NumPy.
fn numpy(totals: &mut Totals) {
    let python = install::python();
    let found = Command::new(&python).args(["-c", "import numpy"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let why = "no NumPy in target/venv; --install brings it";
        return totals.skip("numpy reads the demo", why);
    }
    totals.step("numpy reads the demo", || {
        let folder = root().join("target/numpy-check");
        let example = ["run", "--release", "--package", "runtime", "--example", "terrain", "--"];
        must(cargo(&example).args(["--steps", "5", "--output"]).arg(&folder))?;
        must(Command::new(python).arg(root().join("xtask/check_demo.py")).arg(&folder))?;
        Ok(fs::remove_dir_all(folder)?)
    });
}

/// Tests the Python package, installed as users do.
fn python_package(totals: &mut Totals) {
    if let Some(why) = python::absence() {
        return totals.skip("python", &why);
    }
    totals.step("python: pip install", python::install_package);
    totals.counted("python", || python::run(opencl::two_devices(&mut python::tests(None))));
    totals.step("python: speed, briefly", || must(python::speed().arg("--quick")));
    if let Ok(tools) = cuda::tools() {
        // The workspace build, which may be running in the other lane, contains the libraries.
        let build = || Programs::build(&mpi::features(mpi::is_there()?)?);
        let programs = match build() {
            Ok(programs) => programs,
            Err(error) => return totals.fail("python on the stand-ins", &error),
        };
        for (name, stand_in) in [("cuda", stand_in::CUDA), ("hip", stand_in::HIP)] {
            totals.counted(&format!("python on the stand-in for {name}"), || {
                let complaints = root().join("target/conformance/stand-in-python.jsonl");
                let mut tests = python::tests(Some("test_gpu.py"));
                cuda::compile_with(&mut tests, &tools, &tools.nvrtc[0]);
                // Consumers that name no stream mean the driver's default stream.
                tests.env("STAND_IN_DEFAULT_STREAMS", "1");
                stand_in::clear_report(&complaints)?;
                stand_in.enable(&mut tests, programs.library(stand_in.library)?, &complaints);
                let counts = python::run(&mut tests)?;
                stand_in::check_report(&complaints)?;
                Ok(counts)
            });
        }
    }
}
