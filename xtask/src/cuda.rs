//! What tests of CUDA devices use on a machine without a GPU: NVIDIA's compilers, and the stand-in for the driver.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::run::{cargo, must, root};

/// The variables that `backend-cuda` and its tests read, instead of looking for these where systems have them.
const DRIVER: &str = "BACKEND_CUDA_DRIVER";
const NVRTC: &str = "BACKEND_CUDA_NVRTC";
const PTXAS: &str = "BACKEND_CUDA_PTXAS";
/// Where the stand-in says at its end what was not given back, and what broke a rule of the driver.
const REPORT: &str = "STAND_IN_REPORT";

/// The compilers, as the wheels that [`install`](crate::install) names put them under `target/venv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tools {
    /// The oldest run-time compiler that devices must work with, and the newest that is tested.
    pub(crate) nvrtc: [PathBuf; 2],
    ptxas: PathBuf,
}

/// The compilers, or what is missing.
pub(crate) fn tools() -> Result<Tools> {
    tools_in(&root().join("target/venv/lib"))
}

fn tools_in(lib: &Path) -> Result<Tools> {
    let packages = fs::read_dir(lib).into_iter().flatten().filter_map(|entry| {
        let folder = entry.ok()?.path();
        let name = folder.file_name()?.to_str()?;
        name.starts_with("python").then(|| folder.join("site-packages/nvidia"))
    });
    let known: Vec<PathBuf> = packages.collect();
    let find = |file: &str| {
        known.iter().map(|folder| folder.join(file)).find(|path| path.exists()).with_context(|| {
            format!("no {file} in target/venv; `cargo xtask test --install` brings it")
        })
    };
    Ok(Tools {
        nvrtc: [find("cuda_nvrtc/lib/libnvrtc.so.12")?, find("cu13/lib/libnvrtc.so.13")?],
        ptxas: find("cu13/bin/ptxas")?,
    })
}

/// Lets tests compile with one of the compilers, unless the caller has chosen another.
pub(crate) fn compile_with<'a>(
    command: &'a mut Command,
    tools: &Tools,
    nvrtc: &Path,
) -> &'a mut Command {
    for (variable, path) in [(NVRTC, nvrtc), (PTXAS, &tools.ptxas)] {
        if env::var_os(variable).is_none() {
            command.env(variable, path);
        }
    }
    command
}

/// Lets tests run on the stand-in, built for that, which reports to `report` at its end.
pub(crate) fn stand_in<'a>(command: &'a mut Command, report: &Path) -> Result<&'a mut Command> {
    must(&mut cargo(&["build", "--quiet", "--package", "stand-in-cuda"]))?;
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let library = target.join("debug/libstandin_cuda.so");
    ensure!(library.exists(), "{} was not built", library.display());
    fs::write(report, "").with_context(|| format!("cannot write {}", report.display()))?;
    Ok(command.env(DRIVER, library).env(REPORT, report))
}

/// An error that shows what was not given back to the stand-in, and what a driver would not have admitted.
pub(crate) fn check_report(report: &Path) -> Result<()> {
    let text =
        fs::read_to_string(report).with_context(|| format!("cannot read {}", report.display()))?;
    ensure!(
        !text.trim().is_empty(),
        "the stand-in for the driver has not reported: did anything run on it?"
    );
    let mut complaints = Vec::new();
    for line in text.lines() {
        let entry: Value =
            serde_json::from_str(line).with_context(|| format!("{line:?} in the report"))?;
        if matches!(entry["kind"].as_str(), Some("leak" | "violation")) {
            complaints.push(line);
        }
    }
    if !complaints.is_empty() {
        bail!("the stand-in for the driver reports:\n{}", complaints.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_compilers_are_told_with_the_way_to_get_them() {
        let error = tools_in(Path::new("/nowhere")).unwrap_err().to_string();
        for part in ["libnvrtc.so.12", "--install"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn leaks_and_an_empty_report_are_errors() {
        let file = env::temp_dir().join(format!("stand-in-report-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        assert!(check_report(&file).is_err());
        let calls = "{\"kind\":\"calls\",\"class\":\"copy\",\"count\":3}\n";
        fs::write(&file, calls).unwrap();
        check_report(&file).unwrap();
        fs::write(&file, format!("{calls}{{\"kind\":\"leak\",\"object\":\"stream\"}}\n")).unwrap();
        assert!(check_report(&file).unwrap_err().to_string().contains("stream"));
        fs::remove_file(file).unwrap();
    }
}
