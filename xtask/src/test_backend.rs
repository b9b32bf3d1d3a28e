//! `cargo xtask test-backend`: every conformance rule on one backend.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::backends::{BACKENDS, Backend, Gpu, gpus};
use crate::cargo::{cargo, foreign, must};
use crate::conformance::{read, report_file, report_to};
use crate::gpu::{nvidia_compilers, stand_in, suites};
use crate::{install, opencl};

/// A backend and the driver that its tests use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) backend: &'static Backend,
    driver: Driver<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Driver<'a> {
    Default,
    /// The OpenCL platform with this word in its name.
    Platform(&'a str),
    StandIn(&'static Gpu),
}

impl<'a> Target<'a> {
    /// The backend with this name, on a platform or on its stand-in if one is requested.
    pub(crate) fn new(name: &str, platform: Option<&'a str>, stand_in: bool) -> Result<Self> {
        let backend = Backend::named(name)?;
        let driver = match (platform, &backend.gpu) {
            (None, Some(gpu)) if stand_in => Driver::StandIn(gpu),
            _ if stand_in => bail!("--stand-in is for {}; {name} has none", gpu_names()),
            (Some(word), _) if backend.has_platforms => Driver::Platform(word),
            (Some(word), _) => bail!("--platform {word} is for opencl; {name} has no platforms"),
            (None, _) => Driver::Default,
        };
        Ok(Self { backend, driver })
    }

    /// The backend on a machine that need not have a GPU: GPU backends use their stand-ins.
    pub(crate) fn without_gpu(backend: &'static Backend) -> Self {
        let driver = backend.gpu.as_ref().map_or(Driver::Default, Driver::StandIn);
        Self { backend, driver }
    }

    pub(crate) fn is_stand_in(&self) -> bool {
        matches!(self.driver, Driver::StandIn(_))
    }

    /// Installs what the run needs.
    fn install(&self) -> Result<()> {
        match self.driver {
            Driver::Platform("intel") => install::install_intel(),
            Driver::StandIn(_) => install::install_python(),
            _ => bail!(
                "--install is for `opencl --platform intel`, and for {} with `--stand-in`; \
                 `cargo xtask test --install` installs the rest",
                gpu_names()
            ),
        }
    }

    /// The conformance test of the backend. A stand-in writes its report to `stand_in_report`.
    pub(crate) fn suite(&self, stand_in_report: &Path) -> Result<Command> {
        let mut command = if self.backend.is_foreign() {
            foreign(&["test"])
        } else {
            cargo(&["test", "--package", self.backend.package()])
        };
        command.args(["--all-features", "--test", "conformance"]);
        opencl::two_devices(&mut command);
        self.choose_driver(&mut command, stand_in_report)?;
        Ok(command)
    }

    /// Makes tests run on the driver. The compiler of a stand-in is the oldest that devices must support.
    fn choose_driver(&self, command: &mut Command, stand_in_report: &Path) -> Result<()> {
        match self.driver {
            Driver::Default => {}
            Driver::Platform(word) => drop(opencl::choose(command, word)?),
            Driver::StandIn(gpu) => {
                let tools = nvidia_compilers::tools()?;
                nvidia_compilers::compile_with(command, &tools, &tools.nvrtc[0]);
                stand_in::clear_report(stand_in_report)?;
                gpu.stand_in.enable(command, &gpu.stand_in.build()?, stand_in_report);
            }
        }
        Ok(())
    }

    fn check_stand_in(&self, report: &Path) -> Result<()> {
        if self.is_stand_in() { stand_in::check_report(report) } else { Ok(()) }
    }
}

fn gpu_names() -> String {
    gpus().map(|(backend, _)| backend.name).collect::<Vec<_>>().join(" and ")
}

/// Runs the rules, and on a GPU also the tests of the packages above the backend.
pub(crate) fn test_backend(target: Target<'_>, install: bool) -> Result<()> {
    if install {
        target.install()?;
    }
    let name = target.backend.name;
    let report = report_file(name)?;
    let stand_in_report = report.with_extension("stand-in.jsonl");
    let mut suite = target.suite(&stand_in_report)?;
    let status = report_to(&mut suite, &report).env("CONFORMANCE_STRICT", "1").status()?;
    let tallies = read(&report)?;
    let place = if target.is_stand_in() { " on the stand-in (no GPU)" } else { "" };
    let mut clean = status.success() && !tallies.is_empty();
    for (device, tally) in &tallies {
        println!("{device}{place}: {tally}");
        match tally.only_reason() {
            Some(reason) => println!("  every rule: {reason}"),
            None => tally.problems().for_each(|line| println!("  {line}")),
        }
        clean &= tally.is_clean();
    }
    let hint = match &target.backend.gpu {
        Some(_) if !target.is_stand_in() => "; on a machine without a GPU add --stand-in",
        _ => "",
    };
    ensure!(clean, "{name}: not every rule passed{hint}");
    target.check_stand_in(&stand_in_report)?;
    if target.backend.gpu.is_none() {
        // `cargo test` runs the other packages on the devices that every machine has.
        return Ok(());
    }
    for suite in &suites::ALL {
        println!("\n{} on {name}", suite.package);
        let mut tests = suite.tests(name);
        target.choose_driver(&mut tests, &stand_in_report)?;
        must(&mut tests)?;
        target.check_stand_in(&stand_in_report)?;
    }
    Ok(())
}

/// The backends that have no GPU and are in the workspace: `cargo test --workspace` must run their rules.
pub(crate) fn required() -> Vec<&'static str> {
    let required = BACKENDS.iter().filter(|backend| backend.gpu.is_none() && !backend.is_foreign());
    required.map(|backend| backend.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_the_backend_lacks_is_an_error() {
        let error = |name, platform, stand_in| {
            Target::new(name, platform, stand_in).unwrap_err().to_string()
        };
        assert!(error("sim", None, true).contains("cuda and hip; sim has none"));
        assert!(error("opencl", Some("pocl"), true).contains("opencl has none"));
        assert!(error("cuda", Some("pocl"), false).contains("--platform pocl"));
        assert!(Target::new("cuda", None, true).unwrap().is_stand_in());
        let unneeded = Target::new("host", None, false).unwrap().install().unwrap_err();
        assert!(unneeded.to_string().contains("cargo xtask test --install"));
    }
}
