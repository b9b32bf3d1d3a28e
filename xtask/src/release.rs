//! Checks that the crates could be published.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo::{cargo, must, root};
use crate::test::totals::Totals;

/// The steps of `cargo xtask test`.
pub(crate) fn test(totals: &mut Totals) {
    totals.step("packages", packages);
    match cargo_deny() {
        Some(program) => totals.step("licences and sources", || {
            let mut deny = Command::new(program);
            must(deny.args(["check", "bans", "licenses", "sources"]).current_dir(root()))
        }),
        None => totals.skip("licences and sources", "no cargo-deny; --install installs it"),
    }
}

/// Makes the packages of all crates that are to be published, in their order, and builds none.
fn packages() -> Result<()> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let all = metadata["packages"].as_array().context("no packages")?;
    let public = all.iter().filter(|package| package["publish"].is_null());
    let names: Vec<&str> = public.filter_map(|package| package["name"].as_str()).collect();
    ensure!(names.contains(&"runtime"), "{names:?} are to be published");
    let mut package = cargo(&["package", "--no-verify", "--allow-dirty", "--offline", "--quiet"]);
    package.args(names.iter().flat_map(|name| ["--package", name]));
    must(package.arg("--target-dir").arg(root().join("target/packages")))
}

/// The program that checks dependencies: one that is installed, or that of the virtual environment.
fn cargo_deny() -> Option<PathBuf> {
    let works = |program: &PathBuf| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let ours = root().join("target/venv/bin/cargo-deny");
    ["cargo-deny".into(), ours].into_iter().find(works)
}
