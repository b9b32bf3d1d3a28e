//! The first lane of `cargo xtask test`. Its steps share one build folder: lints, documentation, and all tests of the
//! workspace.

use std::path::Path;

use super::programs::{Programs, TestRun};
use super::totals::Totals;
use crate::backends::BACKENDS;
use crate::cargo::{DENY_WARNINGS, cargo, foreign, must};
use crate::gpu::steps;
use crate::test_backend::{Target, required};
use crate::{install, opencl};

/// Runs the steps that are built with every feature.
pub(super) fn run(totals: &mut Totals, exhaustive: bool) {
    totals.step("format", || {
        must(&mut cargo(&["fmt", "--all", "--check"]))?;
        must(foreign(&["fmt"]).arg("--check"))
    });
    totals.step("lints", || {
        let clippy = ["clippy", "--workspace", "--all-targets", "--all-features"];
        must(cargo(&clippy).args(DENY_WARNINGS))
    });
    totals.step("no default features", || {
        let features = BACKENDS.iter().filter_map(|backend| backend.feature);
        for feature in features.chain([""]) {
            let bare = ["check", "--package", "runtime", "--no-default-features"];
            must(cargo(&bare).args(["--features", feature]))?;
        }
        // Only here are backends left out, and their errors name the features.
        let absent = ["test", "--package", "runtime", "--no-default-features"];
        must(cargo(&absent).args(["--test", "registry"]))
    });
    totals.step("documentation", || {
        let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
        must(doc.env("RUSTDOCFLAGS", "--deny warnings"))
    });
    let mut built = None;
    totals.step("build", || {
        built = Some(Programs::build()?);
        Ok(())
    });
    // Without the programs nothing else can run.
    let Some(programs) = built else { return };
    let all = || Ok(programs.all().each(opencl::two_devices));
    totals.tests("workspace", all, &required(), "");
    steps::examples_in_docs(totals, &programs);
    if exhaustive {
        let combinations = ["test", "--release", "--package", "halo", "--test", "combinations"];
        let mut all = cargo(&combinations);
        all.env("HALO_EXHAUSTIVE", "1");
        totals.tests("halo, all combinations", || Ok(TestRun::of([all])), &[], "");
        let large = ["test", "--package", "array-buffer", "--test", "prefetch", "--", "--ignored"];
        totals.tests("arrays of a gibibyte", || Ok(TestRun::of([cargo(&large)])), &[], "");
    }
    if install::intel_library().exists() {
        let run = || {
            let intel = Target::new("opencl", Some("intel"), false)?;
            Ok(TestRun::of([intel.suite(Path::new(""))?]))
        };
        totals.tests("opencl on intel", run, &["opencl"], " (intel)");
    }
    steps::on_stand_ins(totals, &programs);
    steps::cuda_drivers(totals, &programs);
    steps::hip_without_gpu(totals, &programs);
}
