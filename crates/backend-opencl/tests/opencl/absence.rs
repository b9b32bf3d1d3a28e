//! Machines without a loader, a platform or a device: the error says what is missing.

use std::{env, fs, process};

use backend_opencl::OpenClBackend;
use runtime_core::{Backend, ErrorKind};

/// Set in the processes that a test starts, because platforms are looked up only once.
const CHILD: &str = "OPENCL_TEST_ABSENCE";

/// The backend's report in a process with these variables.
fn run(test: &str, variables: &[(&str, &str)]) -> String {
    let output = process::Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .env_remove("OPENCL_DYLIB_PATH")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// In the started process, prints the driver's report. Returns whether this is that process.
fn print_devices() -> bool {
    if env::var_os(CHILD).is_none() {
        return false;
    }
    match OpenClBackend::new().devices() {
        Ok(devices) => println!("{} devices", devices.len()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let opened = OpenClBackend::new().open(&"opencl:0".parse().unwrap()).unwrap_err();
            assert_eq!(opened.to_string(), error.to_string());
            println!("{error}");
        }
    }
    true
}

#[test]
#[cfg(target_os = "linux")]
fn no_loader() {
    if print_devices() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("libOpenCL.so.1"), "no library").unwrap();
    let text = run("absence::no_loader", &[("LD_LIBRARY_PATH", folder.path().to_str().unwrap())]);
    assert!(text.contains("no OpenCL loader"), "{text}");
    assert!(text.contains("DLOPEN_RUNTIME_LOAD_FAILED (-2000)"), "{text}");
}

#[test]
fn no_platform() {
    if print_devices() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = run("absence::no_platform", &[("OCL_ICD_VENDORS", folder.path().to_str().unwrap())]);
    // A machine without a loader has no platform either, and the first missing part is reported.
    let expected = ["an OpenCL loader, but no platform", "no OpenCL loader"];
    assert!(expected.iter().any(|part| text.contains(part)), "{text}");
}

#[test]
fn no_device() {
    if print_devices() {
        return;
    }
    // PoCL provides the requested devices; other platforms ignore the variable.
    let text = run("absence::no_device", &[("POCL_DEVICES", "no-such-device")]);
    let expected = ["no OpenCL device", "no platform", "no OpenCL loader", " devices"];
    assert!(expected.iter().any(|part| text.contains(part)), "{text}");
}
