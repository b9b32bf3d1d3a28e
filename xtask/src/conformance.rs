//! Running the conformance suite and reading its report.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::{cargo, root};
use crate::{install, opencl};

/// What became of the rules on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    pub(crate) skipped: Vec<String>,
}

impl Tally {
    pub(crate) fn rules(&self) -> usize {
        self.passed + self.failed.len() + self.skipped.len()
    }
}

/// `cargo xtask test-backend NAME`, for OpenCL with a platform, which can be installed if it is Intel's.
pub(crate) fn test_backend(name: &str, platform: Option<&str>, install: bool) -> Result<()> {
    match (name, platform) {
        ("opencl", Some("intel")) if install => install::install_intel()?,
        ("opencl", Some(other)) if install => {
            bail!(
                "no way to install {other}; intel is installed here, PoCL by `cargo xtask test --install`"
            )
        }
        ("opencl", _) | (_, None) => {}
        (_, Some(platform)) => {
            bail!("--platform {platform} is for opencl; {name} has no platforms")
        }
    }
    let mut command = suite(name, platform)?;
    let report = report_file(name)?;
    let ended = watch(&mut command, &report).env("CONFORMANCE_STRICT", "1").status()?;
    let tallies = read(&report)?;
    let mut clean = ended.success() && !tallies.is_empty();
    for (device, tally) in &tallies {
        println!(
            "{device}: {} passed, {} failed, {} skipped of {} rules",
            tally.passed,
            tally.failed.len(),
            tally.skipped.len(),
            tally.rules()
        );
        for line in tally.failed.iter().chain(&tally.skipped) {
            println!("  {line}");
        }
        clean &= tally.rules() > 0 && tally.failed.is_empty() && tally.skipped.is_empty();
    }
    if !clean {
        bail!("{name}: not every rule passed");
    }
    Ok(())
}

/// The conformance test of a backend.
pub(crate) fn suite(name: &str, platform: Option<&str>) -> Result<Command> {
    let mut command = match name {
        "host" | "opencl" | "sim" => {
            let mut command = cargo(&["test", "--package"]);
            command.arg(format!("backend-{name}"));
            command
        }
        "foreign" => cargo(&["test", "--manifest-path", "docs/foreign-device/Cargo.toml"]),
        _ => bail!("no backend {name:?}; there is host, opencl, sim, foreign"),
    };
    command.args(["--all-features", "--test", "conformance"]);
    opencl::two_devices(&mut command);
    if let Some(platform) = platform {
        opencl::choose(&mut command, platform)?;
    }
    Ok(command)
}

/// A fresh file for the suite to report to.
pub(crate) fn report_file(name: &str) -> Result<PathBuf> {
    let folder = root().join("target/conformance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = folder.join(format!("{name}.jsonl"));
    fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Lets the suite report to `file`.
pub(crate) fn watch<'a>(command: &'a mut Command, file: &Path) -> &'a mut Command {
    command.env("CONFORMANCE_REPORT", file)
}

/// Counts a report by device.
pub(crate) fn read(file: &Path) -> Result<BTreeMap<String, Tally>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut tallies = BTreeMap::<String, Tally>::new();
    for line in text.lines() {
        let entry: Value =
            serde_json::from_str(line).with_context(|| format!("{line:?} in the report"))?;
        let word = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let tally = tallies.entry(word("device")).or_default();
        let told = format!("{}: {}", word("rule"), word("reason"));
        match entry["outcome"].as_str() {
            Some("passed") => tally.passed += 1,
            Some("failed") => tally.failed.push(told),
            Some("skipped") => tally.skipped.push(told),
            other => bail!("outcome {other:?} in the report"),
        }
    }
    Ok(tallies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_counted_by_device() {
        let file = report_file("test-of-the-reader").unwrap();
        let line = |device, outcome| {
            format!(
                "{{\"device\":\"{device}\",\"rule\":\"r\",\"outcome\":\"{outcome}\",\"reason\":\"why\"}}\n"
            )
        };
        let text = line("a", "passed") + &line("a", "failed") + &line("b", "skipped");
        fs::write(&file, text).unwrap();
        let tallies = read(&file).unwrap();
        assert_eq!(
            (tallies["a"].passed, tallies["a"].failed.as_slice()),
            (1, &["r: why".to_owned()][..])
        );
        assert_eq!(tallies["b"].rules(), 1);
        fs::write(&file, line("a", "vanished")).unwrap();
        assert!(read(&file).is_err());
        fs::remove_file(file).unwrap();
    }
}
