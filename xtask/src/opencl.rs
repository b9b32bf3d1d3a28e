//! The choice of the OpenCL platform for the tests.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::install;

/// The variable that makes `backend-opencl`'s tests use a platform by a word of its name, instead of the first
/// platform.
const TEST_PLATFORM: &str = "OPENCL_TEST_PLATFORM";
/// The variable for where Debian's loader looks for platforms: a folder of `.icd` files, or one platform's library.
const VENDORS: &str = "OCL_ICD_VENDORS";
/// The variable for the devices that PoCL provides.
const POCL_DEVICES: &str = "POCL_DEVICES";

/// Makes PoCL provide two devices, unless the caller has chosen otherwise: rules about copies and waits between devices
/// need two.
pub(crate) fn two_devices(command: &mut Command) -> &mut Command {
    if env::var_os(POCL_DEVICES).is_none() {
        command.env(POCL_DEVICES, "pthread pthread");
    }
    command
}

/// Makes tests use the platform with this word in its name. Intel's platform is loaded from where it is installed.
pub(crate) fn choose<'a>(command: &'a mut Command, platform: &str) -> Result<&'a mut Command> {
    if platform == "intel" && env::var_os(VENDORS).is_none() {
        command.env(VENDORS, installed(&install::intel_library())?);
    }
    Ok(command.env(TEST_PLATFORM, platform))
}

fn installed(at: &Path) -> Result<&Path> {
    if !at.exists() {
        bail!(
            "Intel's CPU runtime for OpenCL is not at {}; add --install to put it there (277 MB to download, 833 MB \
             on disk, under Intel's licence), or set {VENDORS} to the libintelocl.so that you have",
            at.display()
        );
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable<'a>(command: &'a Command, name: &str) -> Option<&'a str> {
        let value = command.get_envs().find(|(key, _)| *key == name);
        value.and_then(|(_, value)| value?.to_str())
    }

    #[test]
    fn the_number_of_devices_can_be_chosen_by_the_caller() {
        let mut command = Command::new("cargo");
        two_devices(&mut command);
        let chosen = env::var_os(POCL_DEVICES).is_some();
        let expected = (!chosen).then_some("pthread pthread");
        assert_eq!(variable(&command, POCL_DEVICES), expected);
    }

    #[test]
    fn a_platform_is_chosen_by_its_word() {
        let mut command = Command::new("cargo");
        choose(&mut command, "pocl").unwrap();
        assert_eq!(variable(&command, TEST_PLATFORM), Some("pocl"));
        assert_eq!(variable(&command, VENDORS), None);
    }

    #[test]
    fn the_error_for_a_missing_runtime_says_how_to_install_it() {
        let error = installed(Path::new("/nowhere/libintelocl.so")).unwrap_err().to_string();
        for part in ["/nowhere/libintelocl.so", "--install", VENDORS] {
            assert!(error.contains(part), "{error}");
        }
    }
}
