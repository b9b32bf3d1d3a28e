//! One line for each rule, for whoever counts them.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Appends `{"device":…, "rule":…, "outcome":…, "reason":…}` as one line.
///
/// The line is written by a single call to a file opened for appending, so that lines of several processes do not mix.
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
