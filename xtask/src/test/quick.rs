//! `cargo xtask test --quick`: the checks that a change of a few packages is most likely to break, within minutes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::programs::TestRun;
use super::totals::Totals;
use crate::backends::{BACKENDS, Backend, FOREIGN};
use crate::cargo::{DENY_WARNINGS, cargo, foreign, must, root};
use crate::gpu::nvidia_compilers;
use crate::test_backend::Target;

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
        let named = ours.iter().flat_map(|package| ["--package", package]);
        let chosen: Vec<&str> = named.chain(["--all-features"]).collect();
        totals.step("lints", || {
            must(cargo(&["clippy", "--all-targets"]).args(&chosen).args(DENY_WARNINGS))
        });
        totals.step("documentation", || {
            let mut doc = cargo(&["doc", "--no-deps"]);
            must(doc.args(&chosen).env("RUSTDOCFLAGS", "--deny warnings"))
        });
        let mut units = cargo(&["test", "--no-fail-fast", "--lib", "--bins"]);
        units.args(&chosen);
        totals.tests("units", || Ok(TestRun::of([units]).allow_no_tests()), &[], "");
    }
    for backend in backends(&touched) {
        let (name, target) = (backend.name, Target::without_gpu(backend));
        let place = if target.is_stand_in() { " on the stand-in" } else { "" };
        if target.is_stand_in()
            && let Err(error) = nvidia_compilers::tools()
        {
            totals.skip(&format!("conformance {name}{place}"), &error.to_string());
            continue;
        }
        let report = root().join("target/conformance/quick.stand-in.jsonl");
        let run = || Ok(TestRun::of([target.suite(&report)?]));
        totals.tests(&format!("rules on {name}"), run, &[name], place);
    }
    totals.close(start)
}

/// The backends whose rules a change of these packages may break.
fn backends(touched: &BTreeSet<String>) -> impl Iterator<Item = &'static Backend> {
    BACKENDS
        .iter()
        .filter(|backend| backend.packages.iter().any(|package| touched.contains(*package)))
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
        let names = |packages: &[&str]| -> Vec<_> {
            backends(&set(packages)).map(|backend| backend.name).collect()
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
