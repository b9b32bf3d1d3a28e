//! What tests of HIP devices use on a machine without a GPU: the compilers of ROCm, as Debian and Ubuntu package them.

use std::env;
use std::path::Path;
use std::process::Command;

/// The variable by which the tests are told of the compiler to try.
const HIPCC: &str = "BACKEND_HIP_HIPCC";
/// Where the package puts it.
const INSTALLED: &str = "/usr/bin/hipcc";

/// Lets tests compile with hipcc, where it is installed and the caller has chosen no other. Returns whether there is one.
pub(crate) fn compile(command: &mut Command) -> bool {
    if env::var_os(HIPCC).is_some() {
        return true;
    }
    let is_there = Path::new(INSTALLED).exists();
    if is_there {
        command.env(HIPCC, INSTALLED);
    }
    is_there
}
