//! The stand-ins for the runtimes of GPUs, which tests run on where there is none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::run::{cargo, messages};

/// A stand-in: its package, its library, and the variable by which the backend is told of it.
#[derive(Debug)]
pub(crate) struct StandIn {
    package: &'static str,
    pub(crate) library: &'static str,
    pub(crate) variable: &'static str,
}

pub(crate) const CUDA: StandIn = StandIn {
    package: "stand-in-cuda",
    library: "libstandin_cuda.so",
    variable: "BACKEND_CUDA_DRIVER",
};
pub(crate) const HIP: StandIn = StandIn {
    package: "stand-in-hip",
    library: "libstandin_hip.so",
    variable: "BACKEND_HIP_LIBRARY",
};

/// Where a stand-in says at its end what was not given back, and what broke a rule.
const REPORT: &str = "STAND_IN_REPORT";

impl StandIn {
    /// Builds its library.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        let mut build = cargo(&["build", "--package", self.package]);
        build.args(["--message-format", "json-render-diagnostics"]);
        let messages = messages(&mut build)?;
        let files = messages.iter().filter_map(|message| message["filenames"].as_array()).flatten();
        let mut files = files.filter_map(Value::as_str).map(PathBuf::from);
        let library = files.find(|file| file.file_name() == Some(self.library.as_ref()));
        library.with_context(|| format!("cargo built no {}", self.library))
    }

    /// Lets tests run on the stand-in, whose library this is, and which reports to `report` at its end.
    pub(crate) fn enable(&self, command: &mut Command, library: &Path, report: &Path) {
        command.env(self.variable, library).env(REPORT, report);
    }
}

/// Makes the file that stand-ins report to, or empties it.
pub(crate) fn clear_report(report: &Path) -> Result<()> {
    fs::write(report, "").with_context(|| format!("cannot write {}", report.display()))
}

/// An error that shows what was not given back to the stand-in, and what the real runtime would not have admitted.
pub(crate) fn check_report(report: &Path) -> Result<()> {
    let text =
        fs::read_to_string(report).with_context(|| format!("cannot read {}", report.display()))?;
    ensure!(!text.trim().is_empty(), "the stand-in has not reported: did anything run on it?");
    let mut complaints = Vec::new();
    for line in text.lines() {
        let entry: Value =
            serde_json::from_str(line).with_context(|| format!("{line:?} in the report"))?;
        if matches!(entry["kind"].as_str(), Some("leak" | "violation")) {
            complaints.push(line);
        }
    }
    if !complaints.is_empty() {
        bail!("the stand-in reports:\n{}", complaints.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

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
