//! A machine-readable report, with one line for each rule.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Appends `{"device":…, "rule":…, "outcome":…, "reason":…}` as one line.
///
/// A single call writes the line to a file opened for appending, so lines of several processes do not mix.
pub(crate) fn append(
    file: &Path,
    device: &str,
    rule: &str,
    outcome: &str,
    reason: &str,
) -> io::Result<()> {
    let line = serde_json::json!({
        "device": device, "rule": rule, "outcome": outcome, "reason": reason,
    });
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{line}\n").as_bytes())
}
