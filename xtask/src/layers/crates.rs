//! The allowed dependencies between crates.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo::cargo;

/// Each crate and its allowed normal and build dependencies within the workspace. Dev-dependencies are not restricted.
/// `docs/architecture.md` has the same table with the reasons.
const LAYERS: &[(&str, &[&str])] = &[
    ("runtime-core", &[]),
    ("coherence", &[]),
    ("array-buffer", &["runtime-core", "coherence"]),
    ("halo", &["runtime-core"]),
    ("halo-mpi", &["runtime-core", "halo", "backend-support"]),
    ("backend-support", &["runtime-core"]),
    ("backend-host", &["runtime-core", "backend-support"]),
    ("backend-sim", &["runtime-core", "backend-support"]),
    ("backend-gpu", &["runtime-core", "backend-support"]),
    ("backend-cuda", &["runtime-core", "backend-support", "backend-gpu"]),
    ("backend-hip", &["runtime-core", "backend-support", "backend-gpu"]),
    ("backend-opencl", &["runtime-core", "backend-support"]),
    ("backend-embedded", &["runtime-core", "backend-support"]),
    ("interchange", &["runtime-core", "array-buffer"]),
    ("conformance", &["runtime-core"]),
    ("compile-fail", &[]),
    ("stand-in", &[]),
    ("stand-in-cuda", &["stand-in"]),
    ("stand-in-hip", &["stand-in"]),
    ("stencil", &["runtime-core", "array-buffer", "halo", "stencil-macros"]),
    ("stencil-macros", &["stencil-translator"]),
    ("stencil-translator", &[]),
    ("python", &["runtime"]),
    (
        "runtime",
        &[
            "runtime-core",
            "array-buffer",
            "halo",
            "halo-mpi",
            "backend-support",
            "backend-host",
            "backend-sim",
            "backend-cuda",
            "backend-hip",
            "backend-opencl",
            "backend-embedded",
            "interchange",
            "stencil",
        ],
    ),
];

/// External crates that these crates must not depend on.
const FORBIDDEN_EXTERNALS: &[(&str, &[&str])] = &[
    ("runtime-core", &["ndarray", "mpi", "rayon", "cudarc", "hip-sys", "opencl3"]),
    ("halo", &["ndarray", "mpi", "cudarc", "hip-sys", "opencl3"]),
    ("conformance", &["cudarc", "hip-sys", "opencl3"]),
    ("backend-gpu", &["cudarc", "hip-sys", "opencl3"]),
];

/// Crates that may depend on any crate, and on which no crate may depend.
const TOP_CRATES: &[&str] = &["xtask", "benches"];

/// The packages of the workspace, as cargo describes them.
pub(super) fn metadata() -> Result<Value> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {errors}");
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

/// Returns dependencies that the tables do not allow, and crates that they lack.
pub(super) fn violations(metadata: &Value) -> Vec<String> {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let packages = all(&metadata["packages"]);
    let names: Vec<String> = packages.iter().map(name).collect();
    let mut found = Vec::new();
    for package in &packages {
        let crate_name = name(package);
        let allowed = LAYERS.iter().find(|layer| layer.0 == crate_name).map(|layer| layer.1);
        if allowed.is_none() && !TOP_CRATES.contains(&&*crate_name) {
            found.push(format!("{crate_name} is in no layer"));
        }
        for dependency in all(&package["dependencies"]) {
            let on = name(&dependency);
            let is_allowed = allowed.is_none_or(|allowed| allowed.contains(&&*on));
            let is_forbidden = FORBIDDEN_EXTERNALS
                .iter()
                .any(|(of, externals)| *of == crate_name && externals.contains(&&*on));
            let is_ours = names.contains(&on);
            if dependency["kind"] != "dev"
                && (is_forbidden || is_ours && (!is_allowed || TOP_CRATES.contains(&&*on)))
            {
                found.push(format!("{crate_name} depends on {on}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_its_layers() {
        assert_eq!(violations(&metadata().unwrap()), Vec::<String>::new());
    }

    #[test]
    fn a_forbidden_dependency_is_found() {
        let mut metadata = metadata().unwrap();
        let packages = metadata["packages"].as_array_mut().unwrap();
        let core = packages.iter_mut().find(|p| p["name"] == "runtime-core").unwrap();
        let edge = serde_json::json!({"name": "backend-host", "kind": null});
        core["dependencies"].as_array_mut().unwrap().push(edge);
        let array = serde_json::json!({"name": "ndarray", "kind": null});
        core["dependencies"].as_array_mut().unwrap().push(array);
        let dev = serde_json::json!({"name": "conformance", "kind": "dev"});
        core["dependencies"].as_array_mut().unwrap().push(dev);
        packages.push(
            serde_json::json!({"name": "stray", "dependencies": [{"name": "xtask", "kind": null}]}),
        );
        assert_eq!(
            violations(&metadata),
            [
                "runtime-core depends on backend-host",
                "runtime-core depends on ndarray",
                "stray is in no layer",
                "stray depends on xtask"
            ]
        );
    }
}
