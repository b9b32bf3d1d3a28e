//! Builds and installs the Python package as users do, and tests it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo::{must, root};
use crate::install;

fn folder() -> PathBuf {
    root().join("crates/python")
}

/// The reason why the package cannot be tested; `None` if it can.
pub(crate) fn absence() -> Option<String> {
    let found =
        Command::new(install::python()).args(["-c", "import pytest, numpy, pyarrow"]).output();
    let there = found.is_ok_and(|output| output.status.success());
    (!there)
        .then(|| "no pytest, NumPy and pyarrow in target/venv; --install installs them".to_owned())
}

/// Builds the package and installs it into the virtual environment.
pub(crate) fn install_package() -> Result<()> {
    let words =
        ["-m", "pip", "install", "--disable-pip-version-check", "--force-reinstall", "--no-deps"];
    must(Command::new(install::python()).args(words).arg(folder()))
}

/// The tests of the package, or of one file.
pub(crate) fn tests(file: Option<&str>) -> Command {
    let mut command = Command::new(install::python());
    command.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]).current_dir(folder());
    command.args(file.map(|file| Path::new("tests").join(file)));
    command
}

/// Measures the cost of passing arrays, and compares it with that between NumPy arrays.
pub(crate) fn speed() -> Command {
    let mut command = Command::new(install::python());
    command.arg(folder().join("tests/speed.py"));
    command
}

/// Returns how many tests passed, failed and were skipped.
pub(crate) fn run(command: &mut Command) -> Result<[usize; 3]> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot start Python")?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let counts = counts(text.lines().last().unwrap_or_default());
    ensure!(counts[0] > 0, "pytest ended with {}, and nothing passed", output.status);
    ensure!(output.status.success() || counts[1] > 0, "pytest ended with {}", output.status);
    Ok(counts)
}

/// The numbers in a line like `1 failed, 52 passed, 3 skipped in 1.2s`.
fn counts(line: &str) -> [usize; 3] {
    let number = |word: &str| {
        let mut words = line.split([' ', ',']).filter(|word| !word.is_empty()).collect::<Vec<_>>();
        words.reverse();
        let place = words.iter().position(|found| *found == word);
        place.and_then(|place| words.get(place + 1)?.parse().ok()).unwrap_or(0)
    };
    [number("passed"), number("failed") + number("errors") + number("error"), number("skipped")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_pytest_is_parsed() {
        assert_eq!(counts("687 passed, 1 warning in 95.17s (0:01:35)"), [687, 0, 0]);
        assert_eq!(counts("2 failed, 5 passed, 3 skipped, 1 error in 1.2s"), [5, 3, 3]);
        assert_eq!(counts("no tests ran in 0.01s"), [0, 0, 0]);
    }
}
