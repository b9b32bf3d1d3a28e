//! The stand-ins for GPU runtimes, which tests use on machines without a GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cargo::{cargo, messages};

/// A stand-in: its package, its library, and the variable that points the backend to it.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) package: &'static str,
    pub(crate) library: &'static str,
    pub(crate) variable: &'static str,
}

/// The variable for the file in which a stand-in reports leaks and broken rules at its end.
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

    /// Makes tests use this stand-in with this library. The stand-in writes its report to `report` at its end.
    pub(crate) fn enable(&self, command: &mut Command, library: &Path, report: &Path) {
        command.env(self.variable, library).env(REPORT, report);
    }
}

/// Creates the file for reports of stand-ins, or empties it.
pub(crate) fn clear_report(report: &Path) -> Result<()> {
    fs::write(report, "").with_context(|| format!("cannot write {}", report.display()))
}

/// Returns an error with the objects that were not returned to the stand-in, and the calls that the real runtime would
/// not accept.
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
