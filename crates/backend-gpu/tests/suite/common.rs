//! Helpers of the tests that `backend-cuda` and `backend-hip` have in common. Each has a module `vendor` with the names
//! that differ.

use std::io::{Write, stderr};
use std::process::{Command, Output};
use std::{env, fmt};

use runtime_core::{Arg, Backend, Device, ErrorKind, Kernel, Launch, ModuleImage, Result};

use crate::vendor;

/// Says aloud that a test has nothing to test. Not by `eprintln!`, which the test harness hides when the test passes.
pub(crate) fn skip(why: impl fmt::Display) {
    drop(writeln!(stderr(), "skipped: {why}"));
}

/// Opens the first device with these options. `None`, said aloud, where there is no device.
pub(crate) fn open(options: &str) -> Option<Device> {
    open_device(&format!("{}:0{options}", vendor::NAME))
}

/// Opens a device. `None`, said aloud, where it is not there.
pub(crate) fn open_device(device: &str) -> Option<Device> {
    match vendor::backend().open(&device.parse().unwrap()) {
        Ok(device) => Some(device),
        Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::UnknownDevice) => {
            skip(error);
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// The second device, where there is one.
pub(crate) fn open_second() -> Option<Device> {
    vendor::backend().open(&format!("{}:1", vendor::NAME).parse().unwrap()).ok()
}

/// As [`open`], where source is compiled.
pub(crate) fn open_with_compiler(options: &str) -> Option<Device> {
    let device = open(options)?;
    if device.info().formats.contains(&vendor::SOURCE) {
        return Some(device);
    }
    skip("no compiler");
    None
}

pub(crate) fn source(text: &str) -> ModuleImage<'_> {
    ModuleImage::source(vendor::SOURCE, text)
}

/// Launches one of the tests' kernels, which touch one element per work-item of the memory they are given.
pub(crate) fn run(kernel: &Kernel, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
    // SAFETY: as above; the callers launch as many work-items as there are elements.
    unsafe { kernel.launch(&kernel.device().default_stream(), launch, args) }
}

/// Lets this process fail after a minute, rather than wait for ever.
pub(crate) fn limit_time() {
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(60));
        drop(writeln!(stderr(), "still waiting after a minute"));
        std::process::exit(1);
    });
}

/// Set in the processes that tests start.
pub(crate) const CHILD: &str = "GPU_TEST_CHILD";

/// Whether this process was started by a test.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Said by a process that is about to stop a program.
pub(crate) const STOPPING: &str = "stopping a program";

/// Runs one test in a process of its own, with these variables, and fails if it fails there. Where the process may be
/// ended because a program is stopped, it says so if it is.
pub(crate) fn in_child(test: &str, variables: &[(&str, &str)]) -> String {
    let Output { status, stdout, stderr } = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let stopped = status.code().is_none() && text.contains(STOPPING);
    if stopped && vendor::faults_may_end_the_process(variables) {
        skip(format_args!("the fault ended the process, {status}"));
        return text;
    }
    assert!(status.success() && text.contains("1 passed"), "{text}");
    text
}
