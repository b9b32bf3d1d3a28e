//! The table of backends.

use anyhow::{Context, Result};

use crate::gpu::cuda_drivers;
use crate::gpu::stand_in::StandIn;

/// A kind of device on which the conformance suite runs.
#[derive(Debug)]
pub(crate) struct Backend {
    /// The name in selectors and commands.
    pub(crate) name: &'static str,
    /// The packages whose changes can break its rules. The first one has its conformance test.
    pub(crate) packages: &'static [&'static str],
    /// The feature of `runtime` that adds it, if it is not there by default.
    pub(crate) feature: Option<&'static str>,
    /// Whether its driver consists of several platforms, of which a test can choose one.
    pub(crate) has_platforms: bool,
    /// For GPUs, which test machines need not have.
    pub(crate) gpu: Option<Gpu>,
}

/// The library that tests of a GPU backend use on a machine without a GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) stand_in: StandIn,
    /// Whether its bundle includes benchmarks.
    pub(crate) has_benchmarks: bool,
}

/// The folder of the example of a third-party device, which is outside the workspace.
pub(crate) const FOREIGN: &str = "foreign-device";

/// The defaults of the table.
const PLAIN: Backend =
    Backend { name: "", packages: &[], feature: None, has_platforms: false, gpu: None };

pub(crate) const BACKENDS: [Backend; 7] = [
    Backend {
        name: "cuda",
        packages: &["backend-cuda", "backend-gpu", "stand-in", "stand-in-cuda"],
        feature: Some("cuda"),
        gpu: Some(Gpu {
            stand_in: StandIn {
                package: "stand-in-cuda",
                library: "libstandin_cuda.so",
                variable: cuda_drivers::VARIABLE,
            },
            has_benchmarks: true,
        }),
        ..PLAIN
    },
    Backend {
        name: "embedded",
        packages: &["backend-embedded"],
        feature: Some("embedded"),
        ..PLAIN
    },
    Backend {
        name: "foreign",
        packages: &[FOREIGN, "runtime-core", "backend-support", "conformance"],
        ..PLAIN
    },
    Backend {
        name: "hip",
        packages: &["backend-hip", "backend-gpu", "stand-in", "stand-in-hip"],
        feature: Some("hip"),
        gpu: Some(Gpu {
            stand_in: StandIn {
                package: "stand-in-hip",
                library: "libstandin_hip.so",
                variable: "BACKEND_HIP_LIBRARY",
            },
            has_benchmarks: false,
        }),
        ..PLAIN
    },
    Backend {
        name: "host",
        packages: &["backend-host", "runtime-core", "backend-support", "conformance"],
        ..PLAIN
    },
    Backend {
        name: "opencl",
        packages: &["backend-opencl"],
        feature: Some("opencl"),
        has_platforms: true,
        ..PLAIN
    },
    Backend {
        name: "sim",
        packages: &["backend-sim", "runtime-core", "backend-support", "conformance"],
        ..PLAIN
    },
];

impl Backend {
    /// The backend with this name.
    pub(crate) fn named(name: &str) -> Result<&'static Self> {
        let found = BACKENDS.iter().find(|backend| backend.name == name);
        found.with_context(|| {
            let names: Vec<_> = BACKENDS.iter().map(|backend| backend.name).collect();
            format!("no backend {name:?}; there are {}", names.join(", "))
        })
    }

    /// The package with the conformance test.
    pub(crate) fn package(&self) -> &'static str {
        self.packages[0]
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.package() == FOREIGN
    }
}

/// The backends for GPUs.
pub(crate) fn gpus() -> impl Iterator<Item = (&'static Backend, &'static Gpu)> {
    BACKENDS.iter().filter_map(|backend| Some((backend, backend.gpu.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cargo::root;

    /// A backend that is not in the table would never be tested.
    #[test]
    fn every_backend_with_a_conformance_test_is_in_the_table() {
        let mut packages: Vec<_> = fs::read_dir(root().join("crates"))
            .unwrap()
            .map(|package| package.unwrap())
            .filter(|package| package.path().join("tests/conformance.rs").exists())
            .map(|package| package.file_name().to_string_lossy().into_owned())
            .collect();
        packages.push(FOREIGN.to_owned());
        packages.sort();
        let mut listed: Vec<_> = BACKENDS.iter().map(Backend::package).collect();
        listed.sort_unstable();
        assert_eq!(listed, packages);
    }

    #[test]
    fn the_documentation_states_the_size_of_the_foreign_device() {
        let folder = root().join("docs").join(FOREIGN).join("src");
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
    fn an_unknown_backend_is_an_error_that_lists_all() {
        let error = Backend::named("metal").unwrap_err().to_string();
        assert!(error.contains("\"metal\"") && error.contains("opencl, sim"), "{error}");
    }
}
