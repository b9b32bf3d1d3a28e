//! The report of the conformance suite.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::root;

/// The results of the rules, by device.
pub(crate) type Tallies = BTreeMap<String, Tally>;

/// The results of the rules on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    /// Rules about abilities that the device lacks.
    pub(crate) not_applicable: Vec<String>,
    pub(crate) skipped: Vec<String>,
}

impl Tally {
    pub(crate) fn rules(&self) -> usize {
        self.passed + self.failed.len() + self.not_applicable.len() + self.skipped.len()
    }

    /// Whether rules ran, and all that apply passed.
    pub(crate) fn is_clean(&self) -> bool {
        self.passed > 0 && self.failed.is_empty() && self.skipped.is_empty()
    }

    /// The rules that failed or were skipped, with the reasons.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &String> {
        self.failed.iter().chain(&self.skipped)
    }

    /// The reason why no rule passed, if it is the same for all, such as a missing driver.
    pub(crate) fn only_reason(&self) -> Option<&str> {
        let mut lines = self.problems();
        let (_, first) = lines.next()?.split_once(": ")?;
        let same = lines.all(|line| line.split_once(": ").is_some_and(|(_, why)| why == first));
        (self.passed == 0 && self.rules() > 1 && same).then_some(first)
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        write!(
            f,
            "{} passed, {failed} failed, {} not applicable, {skipped} skipped of {} rules",
            self.passed,
            self.not_applicable.len(),
            self.rules()
        )
    }
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
pub(crate) fn report_to<'a>(command: &'a mut Command, file: &Path) -> &'a mut Command {
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
    let problem = format!("{}: {}", word("rule"), word("reason"));
    match entry["outcome"].as_str() {
        Some("passed") => tally.passed += 1,
        Some("failed") => tally.failed.push(problem),
        Some("not applicable") => tally.not_applicable.push(problem),
        Some("skipped") => tally.skipped.push(problem),
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
