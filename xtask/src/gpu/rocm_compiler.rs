//! ROCm's compiler, for tests on a machine without a GPU. It is in packages of Debian and Ubuntu.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The variable that names the compiler for the tests.
const HIPCC: &str = "BACKEND_HIP_HIPCC";
/// The path of the compiler from the package.
const INSTALLED: &str = "/usr/bin/hipcc";

/// The compiler for the tests: the caller's choice, or the package's compiler if it is installed.
pub(crate) fn compiler() -> Option<OsString> {
    let installed = || Path::new(INSTALLED).exists().then(|| INSTALLED.into());
    env::var_os(HIPCC).or_else(installed)
}

/// Makes tests compile with `compiler`.
pub(crate) fn compile_with<'a>(command: &'a mut Command, compiler: &OsStr) -> &'a mut Command {
    command.env(HIPCC, compiler)
}
