//! Tests of a stand-in's library: how it is loaded, how its functions are called, and tests in processes of their own.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use libloading::Library;

/// Names the test that a new process runs.
const ROLE: &str = "STAND_IN_TEST_ROLE";

/// The path of the library that cargo built next to this test.
pub(crate) fn library_path(name: &str) -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    folder.join(libloading::library_filename(name))
}

pub(crate) fn load(name: &str) -> Library {
    // SAFETY: loading the library has no effect.
    unsafe { Library::new(library_path(name)) }.unwrap()
}

/// Calls a function of the library, and returns its code.
macro_rules! call {
    ($library:expr, $name:ident($($arg:expr => $type:ty),* $(,)?)) => {{
        // SAFETY: the types are those of the function, and pointers are valid during the call.
        unsafe {
            let function: libloading::Symbol<'_, unsafe extern "C" fn($($type),*) -> u32> =
                $library.get(stringify!($name)).unwrap();
            function($($arg),*)
        }
    }};
}

/// As `call`. The code must be 0.
macro_rules! must {
    ($library:expr, $name:ident($($args:tt)*)) => {
        assert_eq!(call!($library, $name($($args)*)), 0, stringify!($name))
    };
}

pub(crate) use {call, must};

/// Runs a test of this file in a process of its own. Returns its report and its standard error.
pub(crate) fn in_a_process(test: &str, variables: &[(&str, &str)]) -> (String, String) {
    let report = env::temp_dir().join(format!("stand-in-{test}-{}", std::process::id()));
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, test)
        .env("STAND_IN_REPORT", &report)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let text = fs::read_to_string(&report).unwrap_or_default();
    let _absent = fs::remove_file(&report);
    (text, errors)
}

/// Whether this process runs only this test.
pub(crate) fn has_role(test: &str) -> bool {
    env::var(ROLE).is_ok_and(|role| role == test)
}
