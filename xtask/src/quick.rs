//! `cargo xtask test --quick`: the checks that a change of a few packages is most likely to break, within minutes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::conformance::{On, suite};
use crate::programs::TestRun;
use crate::run::{cargo, foreign, must, root};
use crate::test::STRICT;
use crate::totals::Totals;
use crate::{cuda, mpi};

/// A folder outside the workspace, an example of a third-party device.
const FOREIGN: &str = "foreign-device";

/// Runs the checks of these packages, or of the packages that differ from the last commit.
pub(crate) fn quick(packages: Vec<String>) -> Result<()> {
    let start = Instant::now();
    let all = members()?;
    for package in &packages {
        ensure!(all.contains(package), "no package {package:?}; there are {}", listed(&all));
    }
    let named = !packages.is_empty();
    let touched =
        if named { packages.into_iter().collect() } else { touched(&changed_files()?, &all) };
    ensure!(
        !touched.is_empty(),
        "no package differs from the last commit; name one with `--package`, or run the whole `cargo xtask test`"
    );
    println!("checks {}", listed(&touched));
    let mut totals = Totals::default();
    let ours: Vec<&str> =
        touched.iter().map(String::as_str).filter(|package| *package != FOREIGN).collect();
    totals.step("format", || {
        must(&mut cargo(&["fmt", "--all", "--check"]))?;
        must(&mut foreign(&["fmt", "--check"]))
    });
    if !ours.is_empty() {
        let with_mpi = !mpi::is_used_by(&ours)? || mpi::is_there()?;
        if !with_mpi {
            totals.skip(
                "feature mpi",
                "no MPI or no libclang; `cargo xtask test --install` brings both",
            );
        }
        let chosen = mpi::features_of_all(&ours, with_mpi)?;
        totals
            .step("lints", || must(cargo(&["clippy", "--all-targets"]).args(&chosen).args(STRICT)));
        totals.step("documentation", || {
            let mut doc = cargo(&["doc", "--no-deps"]);
            must(doc.args(&chosen).env("RUSTDOCFLAGS", "--deny warnings"))
        });
        let mut units = cargo(&["test", "--no-fail-fast", "--lib", "--bins"]);
        units.args(&chosen);
        totals.tests("units", || Ok(TestRun::of([units]).or_none()), &[], "");
    }
    for (device, on, place) in devices(&touched) {
        if on.stand_in
            && let Err(error) = cuda::tools()
        {
            totals.skip(&format!("conformance {device}{place}"), &error.to_string());
            continue;
        }
        let complaints = root().join("target/conformance/quick.stand-in.jsonl");
        let run = || Ok(TestRun::of([suite(device, on, &complaints)?]));
        totals.tests(&format!("rules on {device}"), run, &[device], place);
    }
    totals.close(start)
}

/// The devices whose rules a change of these packages may break.
///
/// Changes of code that all devices use are tested on `host`, `sim` and the foreign device, which need no installed
/// software.
fn devices(touched: &BTreeSet<String>) -> Vec<(&str, On<'static>, &'static str)> {
    const COMMON: [&str; 3] = ["runtime-core", "backend-support", "conformance"];
    let common = touched.iter().any(|package| COMMON.contains(&package.as_str()));
    let mut devices = BTreeSet::new();
    if common {
        devices.extend(["host", "sim", "foreign"]);
    }
    for package in touched {
        match package.as_str() {
            "stand-in" | "backend-gpu" => devices.extend(["cuda", "hip"]),
            FOREIGN => drop(devices.insert("foreign")),
            other => {
                let of = ["backend-", "stand-in-"].iter().find_map(|kind| other.strip_prefix(kind));
                devices.extend(of.filter(|name| *name != "support"));
            }
        }
    }
    let on = |device| match device {
        "cuda" | "hip" => (device, On { stand_in: true, ..On::default() }, " on the stand-in"),
        _ => (device, On::default(), ""),
    };
    devices.into_iter().map(on).collect()
}

/// The workspace's packages, whose folders have the same names, and the foreign device.
fn members() -> Result<BTreeSet<String>> {
    let mut members: BTreeSet<String> =
        ["xtask", "benches", FOREIGN].iter().map(ToString::to_string).collect();
    for entry in fs::read_dir(root().join("crates"))? {
        members.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(members)
}

/// The files that differ from the last commit, including new files, by their paths from the root.
fn changed_files() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["status", "--porcelain", "--untracked-files=all", "--no-renames"]);
    let output = git
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start git; name packages with `--package`")?;
    ensure!(
        output.status.success(),
        "git ended with {}; name packages with `--package`",
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| Some(line.get(3..)?.trim_matches('"').to_owned())).collect())
}

/// The packages that files belong to.
fn touched(files: &[String], all: &BTreeSet<String>) -> BTreeSet<String> {
    let package = |file: &String| {
        let path = Path::new(file);
        let folders = path.parent()?.iter().filter_map(|folder| folder.to_str());
        folders.map(str::to_owned).find(|folder| all.contains(folder))
    };
    files.iter().filter_map(package).collect()
}

fn listed(packages: &BTreeSet<String>) -> String {
    packages.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_belong_to_packages() {
        let files = [
            "README.md",
            "crates/halo/src/plan.rs",
            "docs/foreign-device/src/lib.rs",
            "xtask/run.sh",
        ];
        let files: Vec<_> = files.iter().map(ToString::to_string).collect();
        assert_eq!(touched(&files, &members().unwrap()), set(&["foreign-device", "halo", "xtask"]));
    }

    #[test]
    fn a_package_has_the_rules_that_it_can_break() {
        let names = |packages: &[&str]| -> Vec<String> {
            devices(&set(packages)).iter().map(|device| device.0.to_owned()).collect()
        };
        assert_eq!(names(&["backend-opencl"]), ["opencl"]);
        assert_eq!(names(&["halo", "xtask"]), [""; 0]);
        assert_eq!(names(&["stand-in-hip", "backend-support"]), ["foreign", "hip", "host", "sim"]);
        assert_eq!(names(&["stand-in"]), ["cuda", "hip"]);
        assert_eq!(names(&["backend-gpu"]), ["cuda", "hip"]);
    }

    #[test]
    fn an_unknown_package_is_an_error_that_lists_all() {
        let error = quick(vec!["hallo".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("\"hallo\"") && error.contains("halo-mpi"), "{error}");
    }
}
