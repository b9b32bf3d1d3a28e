//! The device against the contract's rules, with either kind of pool.
#![cfg(feature = "hip")]

use std::io::{Write, stderr};
use std::process::Command;
use std::{env, fs};

use backend_hip::HipBackend;
use runtime_core::{Backend, Device, Result, Support};

fn open(index: usize, options: &str) -> Result<Device> {
    HipBackend::new().open(&format!("hip:{index}{options}").parse()?)
}

/// As a device is used by default.
mod defaults {
    conformance::accelerator! {
        name: "hip",
        open: |index| super::open(index, ""),
        kernels: conformance::kernels::hip_c(),
        // Some runtimes have no graphs. The test below requires them of the stand-in.
        abilities: [Fault, HostRegistration, Interop, MemoryAdoption, MemoryPool, Monitor, Parameters, RegionCopy],
        faults: faults_may_end_the_process,
    }
}

/// Plain allocations instead of the runtime's pools.
mod cached {
    conformance::accelerator! {
        name: "hip, pool=cache, gates=on",
        open: |index| super::open(index, "?pool=cache&gates=on"),
        kernels: conformance::kernels::hip_c(),
        // Some runtimes have no graphs. The test below requires them of the stand-in.
        abilities: [Fault, Gates, HostRegistration, Interop, MemoryAdoption, MemoryPool, Monitor, Parameters, RegionCopy],
        faults: faults_may_end_the_process,
    }
}

fn is_stand_in() -> bool {
    let library = env::var("BACKEND_HIP_LIBRARY").unwrap_or_default();
    let is_stand_in = library.ends_with("libstandin_hip.so");
    if !is_stand_in {
        drop(writeln!(stderr(), "skipped: BACKEND_HIP_LIBRARY does not name the stand-in"));
    }
    is_stand_in
}

#[test]
fn graphs_are_native_where_the_runtime_has_them() {
    if is_stand_in() {
        assert_eq!(open(0, "").unwrap().capabilities().graphs, Support::Native);
    }
}

/// On the stand-in, which can do so as many versions of the runtime do.
#[test]
fn rules_about_faults_run_in_a_child_process_where_a_fault_ends_it() {
    if !is_stand_in() {
        return;
    }
    let report = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .arg("defaults::faults::")
        .env("STAND_IN_HIP_QUIRKS", "ending-faults")
        .env("CONFORMANCE_REPORT", report.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let lines = fs::read_to_string(report.path()).unwrap();
    assert_eq!(lines.lines().count(), 7, "{lines}");
    for line in lines.lines() {
        assert!(
            line.contains("\"passed\"") && line.contains("the fault ended the process"),
            "{line}"
        );
    }
}
