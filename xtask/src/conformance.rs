//! Runs the conformance suite and reads its report.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::{cargo, foreign, must, root};
use crate::stand_in::{self, StandIn};
use crate::{above, cuda, install, opencl};

/// The results of the rules, by device.
pub(crate) type Tallies = BTreeMap<String, Tally>;

/// The results of the rules on one device.
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

    /// The reason why no rule passed, if it is the same for all, such as a missing driver.
    fn only_reason(&self) -> Option<&str> {
        let mut lines = self.failed.iter().chain(&self.skipped);
        let (_, first) = lines.next()?.split_once(": ")?;
        let same = lines.all(|line| line.split_once(": ").is_some_and(|(_, why)| why == first));
        (self.passed == 0 && self.rules() > 1 && same).then_some(first)
    }
}

/// The driver for a suite, if it is not the default one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct On<'a> {
    /// A word of an OpenCL platform's name.
    pub(crate) platform: Option<&'a str>,
    /// The stand-in for the runtime of a GPU.
    pub(crate) stand_in: bool,
}

/// `cargo xtask test-backend NAME`.
pub(crate) fn test_backend(name: &str, on: On<'_>, install: bool) -> Result<()> {
    match (name, on) {
        ("opencl", On { platform: Some("intel"), .. }) if install => install::install_intel()?,
        ("cuda" | "hip", On { stand_in: true, .. }) if install => install::install_python()?,
        _ if install => {
            bail!(
                "--install is for `opencl --platform intel`, `cuda --stand-in` and `hip --stand-in`; `cargo xtask test --install` brings the rest"
            )
        }
        _ => {}
    }
    let report = report_file(name)?;
    let complaints = report.with_extension("stand-in.jsonl");
    let mut command = suite(name, on, &complaints)?;
    let place = if on.stand_in { " on the stand-in (no GPU)" } else { "" };
    let ended = watch(&mut command, &report).env("CONFORMANCE_STRICT", "1").status()?;
    let tallies = read(&report)?;
    let mut clean = ended.success() && !tallies.is_empty();
    for (device, tally) in &tallies {
        println!(
            "{device}{place}: {} passed, {} failed, {} skipped of {} rules",
            tally.passed,
            tally.failed.len(),
            tally.skipped.len(),
            tally.rules()
        );
        match tally.only_reason() {
            Some(reason) => println!("  every rule: {reason}"),
            None => {
                tally.failed.iter().chain(&tally.skipped).for_each(|line| println!("  {line}"));
            }
        }
        clean &= tally.rules() > 0 && tally.failed.is_empty() && tally.skipped.is_empty();
    }
    if !clean {
        let hint = match (name, on.stand_in) {
            ("cuda", false) => "; on a machine without a GPU add --stand-in",
            _ => "",
        };
        bail!("{name}: not every rule passed{hint}");
    }
    if on.stand_in {
        stand_in::check_report(&complaints)?;
    }
    match name {
        "cuda" | "hip" => above(name, on, &complaints),
        // These are on every machine, and so are their tests among the others.
        _ => Ok(()),
    }
}

/// Runs the tests of packages above the backend on the backend's devices.
fn above(name: &str, on: On<'_>, complaints: &Path) -> Result<()> {
    for above in &above::ALL {
        println!("\n{} on {name}", above.package);
        let mut tests = above.tests(name);
        choose(name, on, &mut tests, complaints)?;
        must(&mut tests)?;
        if on.stand_in {
            stand_in::check_report(complaints)?;
        }
    }
    Ok(())
}

/// The conformance test of a backend. A stand-in writes its complaints to `complaints`.
pub(crate) fn suite(name: &str, on: On<'_>, complaints: &Path) -> Result<Command> {
    let mut command = match name {
        "cuda" | "embedded" | "hip" | "host" | "opencl" | "sim" => {
            let mut command = cargo(&["test", "--package"]);
            command.arg(format!("backend-{name}"));
            command
        }
        "foreign" => foreign(&["test"]),
        _ => bail!("no backend {name:?}; there is cuda, embedded, hip, host, opencl, sim, foreign"),
    };
    command.args(["--all-features", "--test", "conformance"]);
    opencl::two_devices(&mut command);
    choose(name, on, &mut command, complaints)?;
    Ok(command)
}

/// Makes tests run on the requested driver.
fn choose(name: &str, on: On<'_>, command: &mut Command, complaints: &Path) -> Result<()> {
    match (name, on) {
        ("opencl", On { platform: Some(platform), stand_in: false }) => {
            opencl::choose(command, platform)?;
        }
        ("cuda", On { platform: None, stand_in: true }) => {
            on_stand_in(&stand_in::CUDA, command, complaints)?;
        }
        ("hip", On { platform: None, stand_in: true }) => {
            on_stand_in(&stand_in::HIP, command, complaints)?;
        }
        (_, On { platform: None, stand_in: false }) => {}
        (_, On { platform: Some(platform), .. }) => {
            bail!("--platform {platform} is for opencl; {name} has no platforms")
        }
        (_, On { stand_in: true, .. }) => bail!("--stand-in is for cuda and hip; {name} has none"),
    }
    Ok(())
}

/// Makes a suite run on a stand-in. Its compiler is the oldest that devices must support.
fn on_stand_in(stand_in: &StandIn, command: &mut Command, complaints: &Path) -> Result<()> {
    let tools = cuda::tools()?;
    cuda::compile_with(command, &tools, &tools.nvrtc[0]);
    stand_in::clear_report(complaints)?;
    stand_in.enable(command, &stand_in.build()?, complaints);
    Ok(())
}

/// An empty file for the suite's report.
pub(crate) fn report_file(name: &str) -> Result<PathBuf> {
    let folder = root().join("target/conformance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = folder.join(format!("{name}.jsonl"));
    fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Makes the suite write its report to `file`.
pub(crate) fn watch<'a>(command: &'a mut Command, file: &Path) -> &'a mut Command {
    command.env("CONFORMANCE_REPORT", file)
}

/// Counts the results of a report by device.
pub(crate) fn read(file: &Path) -> Result<Tallies> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut tallies = Tallies::new();
    for line in text.lines() {
        let entry = serde_json::from_str(line);
        count(&mut tallies, &entry.with_context(|| format!("{line:?} in the report"))?)?;
    }
    Ok(tallies)
}

/// Counts the result in one line of a report.
pub(crate) fn count(tallies: &mut Tallies, entry: &Value) -> Result<()> {
    let word = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let tally = tallies.entry(word("device")).or_default();
    let told = format!("{}: {}", word("rule"), word("reason"));
    match entry["outcome"].as_str() {
        Some("passed") => tally.passed += 1,
        Some("failed") => tally.failed.push(told),
        Some("skipped") => tally.skipped.push(told),
        other => bail!("outcome {other:?} in the report"),
    }
    Ok(())
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
        assert_eq!(tallies["a"].only_reason(), None);
        fs::write(&file, line("c", "failed") + &line("c", "skipped")).unwrap();
        assert_eq!(read(&file).unwrap()["c"].only_reason(), Some("why"));
        fs::write(&file, line("a", "vanished")).unwrap();
        assert!(read(&file).is_err());
        fs::remove_file(file).unwrap();
    }
}
