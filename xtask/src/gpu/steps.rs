//! The steps of `cargo xtask test` for GPU backends.

use std::iter;
use std::path::{Path, PathBuf};

use super::nvidia_compilers::{self, Tools};
use super::{cuda_drivers, rocm_compiler, stand_in, suites};
use crate::backends::{Gpu, gpus};
use crate::cargo::{cargo, root};
use crate::python;
use crate::test::programs::{Programs, TestRun};
use crate::test::totals::Totals;

/// The suites on the stand-ins for GPUs, which need NVIDIA's compilers.
pub(crate) fn on_stand_ins(totals: &mut Totals, programs: &Programs) {
    match nvidia_compilers::tools() {
        Ok(tools) => suites_on_stand_ins(totals, programs, &tools),
        Err(error) => totals.skip("stand-ins", &error.to_string()),
    }
}

/// Compiles every CUDA kernel.
pub(crate) fn kernels(totals: &mut Totals, programs: &Programs) {
    match nvidia_compilers::tools() {
        Ok(tools) => cuda_kernels(totals, programs, &tools),
        Err(error) => totals.skip("CUDA kernels", &error.to_string()),
    }
}

/// Every CUDA kernel compiles with the oldest and the newest compiler, and the interpreter of the stand-ins runs it.
fn cuda_kernels(totals: &mut Totals, programs: &Programs, tools: &Tools) {
    for (nvrtc, version) in tools.nvrtc.iter().zip(["12.0", "13.0"]) {
        let kernels = || {
            let ptx = programs.of("stand-in", &["ptx"])?;
            Ok(ptx.each(|program| nvidia_compilers::compile_with(program, tools, nvrtc)))
        };
        totals.tests(&format!("CUDA kernels, NVRTC {version}"), kernels, &[], "");
        let stencils = || {
            let tests = programs.of("stencil-translator", &["differential"])?;
            Ok(tests.each(|program| {
                nvidia_compilers::compile_with(program.arg("cuda::"), tools, nvrtc)
            }))
        };
        totals.tests(&format!("CUDA C of stencils, NVRTC {version}"), stencils, &[], "");
    }
}

/// The backends, arrays and halos pass their tests on the stand-ins.
fn suites_on_stand_ins(totals: &mut Totals, programs: &Programs, tools: &Tools) {
    let nvrtc = &tools.nvrtc[0];
    let report = report_file("stand-in");
    for (backend, Gpu { stand_in, .. }) in gpus() {
        let name = backend.name;
        let required = [name];
        let above = suites::ALL.iter().map(|suite| (suite.package, suite.programs, &[][..]));
        for (package, names, required) in
            iter::once((backend.package(), &[][..], &required[..])).chain(above)
        {
            let title = format!("{package} on the stand-in for {name}");
            let run = || {
                let library = programs.library(stand_in.library)?;
                stand_in::clear_report(&report)?;
                Ok(programs.of(package, names)?.each(|program| {
                    nvidia_compilers::compile_with(program, tools, nvrtc);
                    stand_in.enable(program, library, &report);
                    // Programs with these names have a module for each device.
                    program.args((!names.is_empty()).then(|| format!("{name}::")))
                }))
            };
            totals.tests(&title, run, required, " on the stand-in");
            check_report(totals, &title, &report);
        }
    }
}

/// Runs the examples in documentation. They use the stand-ins for GPUs if these can compile.
pub(crate) fn examples_in_docs(totals: &mut Totals, programs: &Programs) {
    let title = "examples in docs";
    let mut examples = cargo(&["test", "--no-fail-fast", "--workspace", "--doc", "--all-features"]);
    let Ok(tools) = nvidia_compilers::tools() else {
        return totals.tests(title, || Ok(TestRun::of([examples])), &[], "");
    };
    let report = report_file("stand-in-docs");
    let run = || {
        nvidia_compilers::compile_with(&mut examples, &tools, &tools.nvrtc[0]);
        stand_in::clear_report(&report)?;
        for (_, Gpu { stand_in, .. }) in gpus() {
            stand_in.enable(&mut examples, programs.library(stand_in.library)?, &report);
        }
        Ok(TestRun::of([examples]))
    };
    totals.tests(title, run, &[], "");
    check_report(totals, title, &report);
}

/// Runs the tests of the Python package for GPUs.
pub(crate) fn python_on_stand_ins(totals: &mut Totals, programs: &Programs) {
    if python::absence().is_some() {
        return;
    }
    let Ok(tools) = nvidia_compilers::tools() else { return };
    let report = report_file("stand-in-python");
    for (backend, Gpu { stand_in, .. }) in gpus() {
        totals.counted(&format!("python on the stand-in for {}", backend.name), || {
            let mut tests = python::tests(Some("test_gpu.py"));
            nvidia_compilers::compile_with(&mut tests, &tools, &tools.nvrtc[0]);
            // Consumers that name no stream mean the driver's default stream.
            tests.env("STAND_IN_DEFAULT_STREAMS", "1");
            stand_in::clear_report(&report)?;
            stand_in.enable(&mut tests, programs.library(stand_in.library)?, &report);
            let counts = python::run(&mut tests)?;
            stand_in::check_report(&report)?;
            Ok(counts)
        });
    }
}

fn report_file(name: &str) -> PathBuf {
    root().join("target/conformance").join(name).with_extension("jsonl")
}

/// Fails if the stand-in reports leaks or violations.
fn check_report(totals: &mut Totals, title: &str, report: &Path) {
    if let Err(error) = stand_in::check_report(report) {
        totals.fail(&format!("{title}: report of the stand-in"), &error);
    }
}

/// Checks of NVIDIA's drivers without a GPU: they have every function, and are distinguished from broken drivers.
pub(crate) fn cuda_drivers(totals: &mut Totals, programs: &Programs) {
    let libraries = cuda_drivers::libraries();
    if libraries.is_empty() {
        return totals.skip("CUDA drivers", "none in target/drivers; --install installs them");
    }
    for (package, library) in libraries {
        let absence = || {
            Ok(programs.of("backend-cuda", &["cuda"])?.each(|program| {
                let test = "own::a_driver_without_a_device";
                program.arg(test).env(cuda_drivers::VARIABLE, &library)
            }))
        };
        totals.tests(&format!("CUDA driver of {package}"), absence, &[], "");
    }
}

/// Checks of HIP with neither a GPU nor a stand-in: every kernel compiles for two architectures, and a runtime without
/// a device is distinguished from a broken runtime.
pub(crate) fn hip_without_gpu(totals: &mut Totals, programs: &Programs) {
    if let Some(compiler) = rocm_compiler::compiler() {
        let kernels = || {
            Ok(programs
                .of("backend-hip", &["backend_hip"])?
                .each(|program| rocm_compiler::compile_with(program.arg("compiled"), &compiler)))
        };
        totals.tests("HIP kernels", kernels, &[], "");
        let stencils = || {
            let tests = programs.of("stencil-translator", &["differential"])?;
            Ok(tests.each(|program| rocm_compiler::compile_with(program.arg("hip::"), &compiler)))
        };
        totals.tests("HIP C of stencils", stencils, &[], "");
    } else {
        totals.skip("HIP kernels", "no hipcc; --install installs it");
    }
    let absence = || {
        let program = programs.of("backend-hip", &["hip"])?;
        Ok(program.each(|program| program.arg("absence")))
    };
    totals.tests("HIP without a GPU", absence, &[], "");
}
