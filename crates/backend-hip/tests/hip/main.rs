//! What HIP devices do beyond the rules that every device keeps.
#![cfg(feature = "hip")]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "launches the tests' own kernels and takes native handles")]

mod absence;
mod cache;
mod faults;
mod interop;
mod launches;
mod memory;
mod modules;
mod versions;
mod waits;

use std::io::{Write, stderr};
use std::process::{Command, Output};
use std::{env, fmt};

use backend_hip::HipDriver;
use runtime_core::{
    Arg, Device, Driver, ErrorKind, ImageFormat, Kernel, Launch, ModuleImage, Result,
};

/// Says aloud that a test has nothing to test. Not by `eprintln!`, which the test harness hides when the test passes.
fn skip(why: impl fmt::Display) {
    drop(writeln!(stderr(), "skipped: {why}"));
}

/// Opens the first device with these options. `None`, said aloud, where there is no device.
fn open(options: &str) -> Option<Device> {
    open_device(&format!("hip:0{options}"))
}

/// Opens a device. `None`, said aloud, where it is not there.
fn open_device(device: &str) -> Option<Device> {
    match HipDriver::new().open(&device.parse().unwrap()) {
        Ok(device) => Some(device),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip(error);
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// The second device, where there is one.
fn open_second() -> Option<Device> {
    HipDriver::new().open(&"hip:1".parse().unwrap()).ok()
}

/// As [`open`], where HIP C is compiled.
fn open_with_compiler(options: &str) -> Option<Device> {
    let device = open(options)?;
    if device.info().formats.contains(&ImageFormat::HipC) {
        return Some(device);
    }
    skip("no hiprtc");
    None
}

fn source(text: &str) -> ModuleImage<'_> {
    ModuleImage::source(ImageFormat::HipC, text)
}

/// Launches one of the tests' kernels, which touch one element per work-item of the memory they are given.
fn run(kernel: &Kernel, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
    // SAFETY: as above; the callers launch as many work-items as there are elements.
    unsafe { kernel.launch(&kernel.device().default_stream(), launch, args) }
}

/// Lets this process fail after a minute, rather than wait for ever.
fn limit_time() {
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(60));
        drop(writeln!(stderr(), "still waiting after a minute"));
        std::process::exit(1);
    });
}

/// Names what the stand-in does as some versions of the runtime.
const QUIRKS: &str = "STAND_IN_HIP_QUIRKS";

/// Set in the processes that tests start.
const CHILD: &str = "HIP_TEST_CHILD";

/// Whether this process was started by a test.
fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Said by a process that is about to stop a program.
const STOPPING: &str = "stopping a program";

/// Whether the runtime may end the process when a program is stopped: the stand-in does on demand alone.
fn faults_may_end_the_process(variables: &[(&str, &str)]) -> bool {
    let library = env::var("BACKEND_HIP_LIBRARY").unwrap_or_default();
    !library.ends_with("libstandin_hip.so") || variables.contains(&(QUIRKS, "ending-faults"))
}

/// Runs one test in a process of its own, with these variables, and fails if it fails there. Where the process may be ended
/// because a program is stopped, it says so if it is.
fn in_child(test: &str, variables: &[(&str, &str)]) -> String {
    let Output { status, stdout, stderr } = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    if status.code().is_none() && text.contains(STOPPING) && faults_may_end_the_process(variables) {
        skip(format_args!("the fault ended the process, {status}"));
        return text;
    }
    assert!(status.success() && text.contains("1 passed"), "{text}");
    text
}
