//! The devices example: its output, and the names in its JSON, which other programs rely on.
#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

mod common;

use std::process::Command;

use serde_json::Value;

fn devices(args: &[&str]) -> String {
    let output = Command::new(common::example("devices")).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Backends that have no device if their driver is not installed.
const NEED_A_DRIVER: &[&str] = &["cuda", "embedded", "hip", "opencl"];

#[test]
fn every_backend_is_listed_or_its_absence_explained() {
    let report: Value = serde_json::from_str(&devices(&["--json"])).unwrap();
    let text = devices(&[]);
    for (name, compiled) in runtime::BACKENDS {
        let has = |list: &str, key: &str| {
            report[list].as_array().unwrap().iter().any(|entry| entry[key].as_str() == Some(name))
        };
        // A backend that needs a driver may be compiled in and still be absent, but not broken.
        let found = has("devices", "backend");
        assert!(found || has("absent", "name"), "{name} is neither there nor absent");
        assert!(!found || *compiled, "{name}");
        assert!(
            found || !compiled || NEED_A_DRIVER.contains(name),
            "{name} is compiled in and absent"
        );
        let line = match (found, compiled) {
            (true, _) => format!("{name}:0"),
            (false, true) => format!("{name}: "),
            (false, false) => format!("{name}: not compiled in"),
        };
        assert!(text.contains(&line), "no {line:?} in\n{text}");
    }
    let absent = report["absent"].as_array().unwrap();
    assert!(absent.iter().all(|entry| entry["broken"] == false), "{absent:?}");
}

#[test]
fn the_names_in_the_json_are_stable() {
    let report: Value = serde_json::from_str(&devices(&["--json"])).unwrap();
    assert_eq!(keys(&report), ["absent", "devices"]);
    for device in report["devices"].as_array().unwrap() {
        assert_eq!(
            keys(device),
            [
                "absent_formats",
                "architecture",
                "backend",
                "capabilities",
                "compute_units",
                "driver_version",
                "formats",
                "id",
                "kind",
                "limits",
                "memory_bytes",
                "name",
                "pci",
                "subgroup_size",
                "uuid",
                "vendor",
            ]
        );
        let supports = device["capabilities"].as_object().unwrap();
        assert!(supports.contains_key("region_copy"));
        assert!(
            supports
                .values()
                .all(|s| ["native", "emulated", "absent"].contains(&s.as_str().unwrap()))
        );
        assert!(device["limits"]["max_allocation_bytes"].as_u64().unwrap() > 0);
    }
    for absent in report["absent"].as_array().unwrap() {
        assert_eq!(keys(absent), ["broken", "name", "reason"]);
    }
}

#[test]
fn a_backend_that_is_required_has_a_device() {
    let outcome = |backend| {
        let mut devices = Command::new(common::example("devices"));
        devices.args(["--require", backend]).output().unwrap()
    };
    assert!(outcome("host").status.success());
    let refused = outcome("nowhere");
    let reported = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && reported.contains("nowhere has no device"), "{reported}");
}
