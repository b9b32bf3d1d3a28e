//! OpenCL devices beyond the conformance rules.
#![cfg(feature = "opencl")]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "launches the tests' own kernels and takes native handles")]

mod absence;
mod adoption;
mod cache;
mod interop;
mod launches;
mod memory;
mod modules;
mod regions;

use std::io::{Write, stderr};
use std::{env, fmt};

use backend_opencl::OpenClBackend;
use runtime_core::{
    Arg, Backend, Device, ErrorKind, ImageFormat, Kernel, Launch, ModuleImage, Result,
};

/// Prints that a test has nothing to test. Not by `eprintln!`, which the test harness hides when the test passes.
fn skip(why: impl fmt::Display) {
    drop(writeln!(stderr(), "skipped: {why}"));
}

/// Opens the first device, or the first device of the platform in the environment variable, with these options. Returns
/// `None`, and prints why, if there is no device.
fn open(options: &str) -> Option<Device> {
    open_with(&OpenClBackend::new(), 0, options)
}

fn open_with(backend: &OpenClBackend, index: usize, options: &str) -> Option<Device> {
    found(backend, index, options, &[ErrorKind::Unavailable])
}

/// As [`open`]. Also returns `None` if the device refuses the options.
fn open_if_it_can(options: &str) -> Option<Device> {
    let reasons = [ErrorKind::Unavailable, ErrorKind::InvalidArgument];
    found(&OpenClBackend::new(), 0, options, &reasons)
}

/// Opens a device, or prints which of these reasons prevents it.
fn found(
    backend: &OpenClBackend,
    index: usize,
    options: &str,
    why: &[ErrorKind],
) -> Option<Device> {
    let platform = env::var("OPENCL_TEST_PLATFORM").map_or(String::new(), |word| word + ":");
    let selector = format!("opencl:{platform}{index}{options}").parse().unwrap();
    match backend.open(&selector) {
        Ok(device) => Some(device),
        Err(error) if why.contains(&error.kind()) => {
            skip(error);
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn source(text: &str) -> ModuleImage<'_> {
    ModuleImage::source(ImageFormat::OpenClC, text)
}

/// Launches one of the tests' kernels. Each work-item accesses one element of the memory arguments.
fn run(kernel: &Kernel, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
    // SAFETY: as above; the callers launch as many work-items as there are elements.
    unsafe { kernel.launch(&kernel.device().default_stream(), launch, args) }
}
