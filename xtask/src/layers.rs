//! The allowed dependencies between crates of the workspace, and the cost of adding a device from outside.

/// Each crate and its allowed normal and build dependencies within the workspace. Dev-dependencies are not restricted.
/// `docs/architecture.md` has the same table with the reasons.
#[cfg(test)]
const LAYERS: &[(&str, &[&str])] = &[
    ("runtime-core", &[]),
    ("array-buffer", &["runtime-core"]),
    ("halo", &["runtime-core"]),
    ("halo-mpi", &["runtime-core", "halo"]),
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
        ],
    ),
];

/// External crates that these crates must not depend on, directly or indirectly.
#[cfg(test)]
const STRANGERS: &[(&str, &[&str])] = &[
    ("runtime-core", &["ndarray", "mpi", "rayon", "cudarc", "hip-sys", "opencl3"]),
    ("halo", &["ndarray", "mpi", "cudarc", "hip-sys", "opencl3"]),
    ("conformance", &["cudarc", "hip-sys", "opencl3"]),
    ("backend-gpu", &["cudarc", "hip-sys", "opencl3"]),
];

/// Crates that may depend on any crate, and on which no crate may depend.
#[cfg(test)]
const TOPS: &[&str] = &["xtask", "benches"];

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;
    use crate::run::{cargo, root};

    fn metadata() -> Value {
        let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns dependencies between workspace crates that the table does not allow, and crates that the table lacks.
    fn violations(metadata: &Value) -> Vec<String> {
        let packages = metadata["packages"].as_array().unwrap();
        let names: Vec<&str> = packages.iter().map(|p| p["name"].as_str().unwrap()).collect();
        let mut found = Vec::new();
        for package in packages {
            let name = package["name"].as_str().unwrap();
            let allowed = LAYERS.iter().find(|layer| layer.0 == name).map(|layer| layer.1);
            if allowed.is_none() && !TOPS.contains(&name) {
                found.push(format!("{name} is in no layer"));
            }
            let normal = |d: &&Value| d["kind"].as_str() != Some("dev");
            for dependency in package["dependencies"].as_array().unwrap().iter().filter(normal) {
                let on = dependency["name"].as_str().unwrap();
                let free = allowed.is_none_or(|allowed| allowed.contains(&on));
                let strange = STRANGERS.iter().any(|(of, out)| *of == name && out.contains(&on));
                if strange || names.contains(&on) && (!free || TOPS.contains(&on)) {
                    found.push(format!("{name} depends on {on}"));
                }
            }
        }
        found
    }

    #[test]
    fn the_workspace_keeps_its_layers() {
        assert_eq!(violations(&metadata()), Vec::<String>::new());
    }

    #[test]
    fn the_price_of_a_device_is_stated() {
        let folder = root().join("docs/foreign-device/src");
        let files = fs::read_dir(folder)
            .unwrap()
            .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        let lines: usize = files.map(|text| text.lines().count()).sum();
        let page = fs::read_to_string(root().join("docs/adding-a-device.md")).unwrap();
        assert!(
            page.contains(&format!("has {lines} lines")),
            "the foreign device has {lines} lines"
        );
    }

    #[test]
    fn a_forbidden_edge_is_found() {
        let mut metadata = metadata();
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
