//! What tests of HIP devices use on a machine without a GPU: the compilers of ROCm, as Debian and Ubuntu package them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The variable by which the tests are told of the compiler to try.
const HIPCC: &str = "BACKEND_HIP_HIPCC";
/// Where the package puts it.
const INSTALLED: &str = "/usr/bin/hipcc";

/// The compiler that tests compile with: the caller's choice, or the package's where it is installed.
pub(crate) fn compiler() -> Option<OsString> {
    let installed = || Path::new(INSTALLED).exists().then(|| INSTALLED.into());
    env::var_os(HIPCC).or_else(installed)
}

/// Lets tests compile with `compiler`.
pub(crate) fn compile_with<'a>(command: &'a mut Command, compiler: &OsStr) -> &'a mut Command {
    command.env(HIPCC, compiler)
}
