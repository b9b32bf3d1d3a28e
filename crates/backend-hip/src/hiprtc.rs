//! The compiler of HIP C, if it is installed.
#![expect(unsafe_code, reason = "binds and calls a C library")]
#![expect(non_snake_case, reason = "functions have the names of the library's headers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::{fmt, fs};

use backend_gpu::{Program, Rtc, ok};
use backend_support::{file_of, function_table, libloading, load, lock, named, stamp};
use runtime_core::Result;

use crate::library::{Version, find, load_any};

/// The variable that names the library's file, instead of a search by the system.
const VARIABLE: &str = "BACKEND_HIPRTC_LIBRARY";

function_table! {
    /// The functions of the compiler.
    pub(crate) Functions:
    every version {
        hiprtcGetErrorString(code: u32) -> *const c_char;
        hiprtcVersion(major: *mut c_int, minor: *mut c_int);
        hiprtcCreateProgram(
            program: *mut *mut c_void, source: *const c_char, name: *const c_char,
            headers: c_int, texts: *const *const c_char, names: *const *const c_char,
        );
        hiprtcDestroyProgram(program: *mut *mut c_void);
        hiprtcCompileProgram(program: *mut c_void, count: c_int, options: *const *const c_char);
        hiprtcGetProgramLogSize(program: *mut c_void, bytes: *mut usize);
        hiprtcGetProgramLog(program: *mut c_void, log: *mut c_char);
        hiprtcGetCodeSize(program: *mut c_void, bytes: *mut usize);
        hiprtcGetCode(program: *mut c_void, code: *mut c_char);
    }
    newer versions {}
}

/// A loaded compiler.
#[expect(unnameable_types, reason = "of the implementation of a trait")]
pub struct Compiler {
    functions: Functions,
    /// Locked during a compilation, because the compiler of ROCm 5.2 crashes if two threads use it at once.
    one: Mutex<()>,
    /// The version, in the compiler's format.
    pub(crate) version: (c_int, c_int),
    /// The identity of its files, because many of them have the same version.
    pub(crate) files: String,
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hiprtc {:?}", self.version)
    }
}

/// A compiled program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// A code object.
    pub(crate) code: Vec<u8>,
    pub(crate) log: String,
}

/// The compiler that fits a runtime, or the reason why there is none. The search runs once per process.
pub(crate) fn compiler(runtime: Version) -> Result<&'static Compiler, &'static str> {
    static LOADED: OnceLock<Result<Compiler, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| match named(VARIABLE) {
        Some(path) => Compiler::load(load(&[&path])),
        // In ROCm 5 the compiler is part of the runtime's library; later versions have a separate library.
        None => Compiler::load(find()).or_else(|_| Compiler::load(load_any(&names(runtime)))),
    });
    loaded.as_ref().map_err(String::as_str)
}

/// Names of the library. The name for the runtime's own version comes first.
fn names(runtime: Version) -> Vec<String> {
    let mut versions = [7, 6, 5];
    versions.sort_by_key(|major| *major != runtime.major());
    let mut names: Vec<String> =
        versions.into_iter().map(|major| format!("libhiprtc.so.{major}")).collect();
    names.push("libhiprtc.so".to_owned());
    names
}

/// The identity of the library's file, and of the files of `libamd_comgr` in the same folder, which does the compiling.
fn stamps(library: &Path) -> String {
    const WORKER: &[u8] = b"libamd_comgr";
    let entries = library.parent().and_then(|folder| fs::read_dir(folder).ok());
    let files = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let is_worker = |file: &PathBuf| {
        file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(WORKER))
    };
    let mut stamps: Vec<String> = files.filter(is_worker).map(|file| stamp(&file)).collect();
    stamps.sort();
    stamps.push(stamp(library));
    stamps.join("\n")
}

impl Compiler {
    fn load(found: Result<libloading::Library, String>) -> Result<Self, String> {
        let library = found.map_err(|why| format!("no hiprtc: {why}"))?;
        let functions = Functions::bind(&library)
            .map_err(|symbol| format!("the hiprtc that was found has no function {symbol}"))?;
        let files = file_of(&library, "hiprtcVersion").map(|file| stamps(&file));
        let files = files.unwrap_or_default();
        std::mem::forget(library);
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the numbers are written to valid places.
        ok(unsafe { (functions.hiprtcVersion)(&mut major, &mut minor) })
            .map_err(|code| format!("the hiprtc that was found does not work: code {code}"))?;
        Ok(Self { functions, one: Mutex::default(), version: (major, minor), files })
    }

    /// Compiles a program. If no option names an architecture, the compiler uses that of the thread's current device.
    ///
    /// # Errors
    ///
    /// `InvalidModule` with the compiler's log.
    pub(crate) fn compile(&self, source: &CStr, options: &[CString]) -> Result<Compiled> {
        let _one = lock(&self.one);
        let functions = &self.functions;
        let rtc = Rtc {
            create: functions.hiprtcCreateProgram,
            destroy: functions.hiprtcDestroyProgram,
            compile: functions.hiprtcCompileProgram,
            log: (functions.hiprtcGetProgramLogSize, functions.hiprtcGetProgramLog),
            name: functions.hiprtcGetErrorString,
            file: c"program.hip",
        };
        // SAFETY: these are the functions of hiprtc.
        let (program, log) = unsafe { Program::compile(rtc, source, options) }?;
        // SAFETY: as above.
        let code =
            unsafe { program.result((functions.hiprtcGetCodeSize, functions.hiprtcGetCode)) };
        Ok(Compiled { code: code?, log })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_of_the_runtimes_own_version_is_the_first() {
        assert_eq!(
            names(Version(60_342_134)),
            ["libhiprtc.so.6", "libhiprtc.so.7", "libhiprtc.so.5", "libhiprtc.so"]
        );
        assert_eq!(names(Version(80_000_000))[0], "libhiprtc.so.7");
    }
}
