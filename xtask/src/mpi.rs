//! Detects MPI, the only package that a feature needs at build time, and starts MPI jobs.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::cargo;

/// The feature that needs MPI and libclang. All crates that have it use this name.
const FEATURE: &str = "mpi";

/// Whether the MPI binding can be built: whether its build script finds MPI and libclang.
pub(crate) fn is_there() -> Result<bool> {
    eprintln!("checks whether halo-mpi can be built with its feature {FEATURE}");
    let check = ["check", "--quiet", "--package", "halo-mpi", "--features", FEATURE];
    let output = cargo(&check)
        .args(["--message-format", "json"])
        // Errors in our own code show up elsewhere.
        .stderr(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().any(|line| {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let package = message["package_id"].as_str().unwrap_or_default();
        message["reason"] == "build-script-executed" && package.contains("mpi-sys")
    }))
}

/// The cargo arguments for a workspace build with every feature, or with every feature except [`FEATURE`].
pub(crate) fn features(with_mpi: bool) -> Result<Vec<String>> {
    chosen(with_mpi, None)
}

/// The same for one package.
pub(crate) fn features_of(package: &str, with_mpi: bool) -> Result<Vec<String>> {
    features_of_all(&[package], with_mpi)
}

/// The same for several packages.
pub(crate) fn features_of_all(packages: &[&str], with_mpi: bool) -> Result<Vec<String>> {
    let words = packages.iter().flat_map(|package| ["--package", package]);
    let mut words: Vec<_> = words.map(str::to_owned).collect();
    words.extend(chosen(with_mpi, Some(packages))?);
    Ok(words)
}

/// Whether one of these packages has [`FEATURE`].
pub(crate) fn is_used_by(packages: &[&str]) -> Result<bool> {
    let metadata = metadata()?;
    let mut all = metadata["packages"].as_array().into_iter().flatten();
    Ok(all.any(|package| {
        let named = package["name"].as_str().is_some_and(|name| packages.contains(&name));
        named && !package["features"][FEATURE].is_null()
    }))
}

fn chosen(with_mpi: bool, only: Option<&[&str]>) -> Result<Vec<String>> {
    if with_mpi {
        return Ok(vec!["--all-features".to_owned()]);
    }
    Ok(vec!["--features".to_owned(), without_mpi(&metadata()?, only).join(",")])
}

/// `mpiexec` for this number of ranks. It also works as root, for containers, and on machines with fewer cores.
pub(crate) fn mpiexec(ranks: u32) -> Command {
    let mut command = Command::new("mpiexec");
    command
        .args(["-n", &ranks.to_string()])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

fn metadata() -> Result<Value> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

/// Every feature of all packages, or of some packages, except [`FEATURE`].
fn without_mpi(metadata: &Value, only: Option<&[&str]>) -> Vec<String> {
    let mut all = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        if only.is_some_and(|only| !only.contains(&name)) {
            continue;
        }
        let features = package["features"].as_object().into_iter().flatten();
        let kept = features.map(|(feature, _)| feature).filter(|feature| *feature != FEATURE);
        all.extend(kept.map(|feature| format!("{name}/{feature}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mpi_is_left_out() {
        let metadata = serde_json::json!({"packages": [
            {"name": "a", "features": {"default": ["fast"], "fast": [], "mpi": ["b/mpi"]}},
            {"name": "b", "features": {"mpi": ["dep:mpi"], "other": []}},
            {"name": "c", "features": {}},
        ]});
        assert_eq!(without_mpi(&metadata, None), ["a/default", "a/fast", "b/other"]);
        assert_eq!(without_mpi(&metadata, Some(&["b", "c"])), ["b/other"]);
    }

    #[test]
    fn no_other_feature_needs_mpi() {
        let mut mpi = 0;
        for package in metadata().unwrap()["packages"].as_array().unwrap() {
            for (feature, needs) in package["features"].as_object().unwrap() {
                let needs = needs.as_array().unwrap().iter().filter_map(Value::as_str);
                let brings = needs.map(|need| need.rsplit(['/', ':']).next().unwrap());
                if brings.into_iter().any(|need| need == FEATURE) {
                    assert_eq!(feature, FEATURE, "of {}", package["name"]);
                    mpi += 1;
                }
            }
        }
        assert!(mpi > 0);
    }
}
