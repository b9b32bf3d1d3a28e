//! The compiler of CUDA C, if it is installed.
#![expect(unsafe_code, reason = "binds and calls a C library")]
#![expect(non_snake_case, reason = "functions have the names of the library's headers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;
use std::{fmt, fs};

use backend_gpu::{Program, Rtc, ok, text_of};
use backend_support::{file_of, function_table, load, named, stamp};
use runtime_core::{Error, ErrorKind, Result};

use crate::library::Version;

/// The variable that names the library's file, instead of a search by the system.
const VARIABLE: &str = "BACKEND_CUDA_NVRTC";

const OPERATION: &str = "module_load";

function_table! {
    /// The functions of the compiler.
    pub(crate) Functions:
    every version {
        nvrtcGetErrorString(code: u32) -> *const c_char;
        nvrtcVersion(major: *mut c_int, minor: *mut c_int);
        nvrtcGetNumSupportedArchs(count: *mut c_int);
        nvrtcGetSupportedArchs(architectures: *mut c_int);
        nvrtcCreateProgram(
            program: *mut *mut c_void, source: *const c_char, name: *const c_char,
            headers: c_int, texts: *const *const c_char, names: *const *const c_char,
        );
        nvrtcDestroyProgram(program: *mut *mut c_void);
        nvrtcCompileProgram(program: *mut c_void, count: c_int, options: *const *const c_char);
        nvrtcGetProgramLogSize(program: *mut c_void, bytes: *mut usize);
        nvrtcGetProgramLog(program: *mut c_void, log: *mut c_char);
        nvrtcGetPTXSize(program: *mut c_void, bytes: *mut usize);
        nvrtcGetPTX(program: *mut c_void, ptx: *mut c_char);
        nvrtcGetCUBINSize(program: *mut c_void, bytes: *mut usize);
        nvrtcGetCUBIN(program: *mut c_void, cubin: *mut c_char);
    }
    newer versions {}
}

/// A loaded compiler.
pub(crate) struct Compiler {
    functions: Functions,
    pub(crate) version: Version,
    /// The identity of its file, because updates of one release have the same version.
    pub(crate) file: String,
    /// The architectures that it compiles for, in ascending order: 90 is `sm_90`.
    architectures: Vec<u32>,
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVRTC {}", self.version)
    }
}

/// The output of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// PTX for a virtual architecture. The driver translates it for the device.
    Ptx(u32),
    /// A binary for one architecture.
    Cubin(u32),
}

/// A compiled program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    pub(crate) ptx: String,
    /// Empty if no binary was requested.
    pub(crate) cubin: Vec<u8>,
    pub(crate) log: String,
}

/// The compiler that fits a driver, or the reason why there is none. The search runs once per process.
pub(crate) fn compiler(driver: Version) -> Result<&'static Compiler, &'static str> {
    static LOADED: OnceLock<Result<Compiler, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| match named(VARIABLE) {
        Some(path) => {
            load_beside(Path::new(&path));
            Compiler::load(&[&path], driver).map_err(|why| format!("{VARIABLE}={path}: {why}"))
        }
        None => {
            let names = names(driver);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Compiler::load(&names, driver)
                .map_err(|why| format!("{why} ({VARIABLE} can name the library)"))
        }
    });
    loaded.as_ref().map_err(String::as_str)
}

/// Checks whether a driver accepts a compiler's output. It accepts neither PTX nor binaries of a later major version.
fn suits(compiler: Version, driver: Version) -> Result<(), String> {
    if compiler.major() <= driver.major() {
        return Ok(());
    }
    Err(format!(
        "NVRTC {compiler} makes programs that a driver for CUDA {driver} does not take; one of CUDA {} does",
        driver.major()
    ))
}

/// Loads the libraries that the compiler loads later. The compiler loads them by a name that the system may not find,
/// although the files are in the same folder.
fn load_beside(library: &Path) {
    let Some(Ok(folder)) = library.parent().map(fs::read_dir) else { return };
    for file in folder.flatten() {
        if file.file_name().to_string_lossy().starts_with("libnvrtc-builtins.")
            && let Some(path) = file.path().to_str()
            && let Ok(library) = load(&[path])
        {
            std::mem::forget(library);
        }
    }
}

/// Names of the library. A library newer than the driver is unusable; its name comes last, so that the error can say
/// so.
fn names(driver: Version) -> Vec<String> {
    let mut versions = [13, 12];
    versions.sort_by_key(|major| (*major > driver.major(), -major));
    let name = |major: c_int| {
        if cfg!(windows) {
            format!("nvrtc64_{major}0_0.dll")
        } else {
            format!("libnvrtc.so.{major}")
        }
    };
    let mut names: Vec<String> = versions.into_iter().map(name).collect();
    if !cfg!(windows) {
        names.push("libnvrtc.so".to_owned());
    }
    names
}

impl Compiler {
    fn load(names: &[&str], driver: Version) -> Result<Self, String> {
        let library = load(names).map_err(|why| format!("no NVRTC: {why}"))?;
        let functions = Functions::bind(&library)
            .map_err(|symbol| format!("the NVRTC that was found has no function {symbol}"))?;
        let file = file_of(&library, "nvrtcVersion").map(|file| stamp(&file)).unwrap_or_default();
        std::mem::forget(library);
        let refused = |code| format!("the NVRTC that was found does not work: code {code}");
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the numbers are written to valid places.
        ok(unsafe { (functions.nvrtcVersion)(&mut major, &mut minor) }).map_err(refused)?;
        let version = Version(major * 1000 + minor * 10);
        suits(version, driver)?;
        // SAFETY: as above.
        ok(unsafe { (functions.nvrtcGetNumSupportedArchs)(&mut count) }).map_err(refused)?;
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the list has room for as many numbers as there are.
        ok(unsafe { (functions.nvrtcGetSupportedArchs)(numbers.as_mut_ptr()) }).map_err(refused)?;
        let mut architectures: Vec<u32> =
            numbers.into_iter().filter_map(|number| number.try_into().ok()).collect();
        architectures.sort_unstable();
        Ok(Self { functions, version, file, architectures })
    }

    /// The output to compile to, for a device of that architecture under that driver.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if the compiler supports no architecture whose code the device can run.
    pub(crate) fn target(&self, device: u32, driver: Version) -> Result<Target> {
        target(&self.architectures, self.version, device, driver).ok_or_else(|| {
            let message = format!(
                "the device is an sm_{device}; NVRTC {} compiles for sm_{} and later",
                self.version,
                self.architectures.first().copied().unwrap_or(0)
            );
            Error::new(ErrorKind::InvalidModule, OPERATION, message)
        })
    }

    /// Whether the driver may refuse the compiler's PTX but accept its binaries.
    pub(crate) fn is_newer_than(&self, driver: Version) -> bool {
        is_newer(self.version, driver)
    }

    /// Compiles a program.
    ///
    /// # Errors
    ///
    /// `InvalidModule` with the compiler's log.
    pub(crate) fn compile(
        &self,
        source: &CStr,
        options: &[CString],
        wants_cubin: bool,
    ) -> Result<Compiled> {
        let functions = &self.functions;
        let rtc = Rtc {
            create: functions.nvrtcCreateProgram,
            destroy: functions.nvrtcDestroyProgram,
            compile: functions.nvrtcCompileProgram,
            log: (functions.nvrtcGetProgramLogSize, functions.nvrtcGetProgramLog),
            name: functions.nvrtcGetErrorString,
            file: c"program.cu",
        };
        // SAFETY: these are the functions of NVRTC.
        let (program, log) = unsafe { Program::compile(rtc, source, options) }?;
        // SAFETY: as above.
        let ptx = unsafe { program.result((functions.nvrtcGetPTXSize, functions.nvrtcGetPTX)) }?;
        let cubin = if wants_cubin {
            // SAFETY: as above.
            unsafe { program.result((functions.nvrtcGetCUBINSize, functions.nvrtcGetCUBIN)) }?
        } else {
            Vec::new()
        };
        Ok(Compiled { ptx: text_of(&ptx), cubin, log })
    }
}

/// Whether a driver refuses the compiler's PTX for being newer, but accepts its binaries. A driver accepts binaries of
/// every compiler of its own major version.
fn is_newer(compiler: Version, driver: Version) -> bool {
    compiler > driver && compiler.major() == driver.major()
}

/// PTX for the device's architecture, or for the nearest earlier one that the compiler supports. A binary if the driver
/// would refuse the PTX.
fn target(known: &[u32], compiler: Version, device: u32, driver: Version) -> Option<Target> {
    let nearest = *known.iter().rev().find(|architecture| **architecture <= device)?;
    let wants_cubin = is_newer(compiler, driver) && nearest == device;
    Some(if wants_cubin { Target::Cubin(device) } else { Target::Ptx(nearest) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V12: Version = Version(12_040);

    #[test]
    fn ptx_is_for_the_nearest_architecture_that_both_know() {
        let known = [50, 60, 70, 80, 90];
        let to = |device| target(&known, Version(12_000), device, V12);
        assert_eq!(to(90), Some(Target::Ptx(90)));
        assert_eq!(to(86), Some(Target::Ptx(80)));
        assert_eq!(to(120), Some(Target::Ptx(90)));
        assert_eq!(to(35), None);
    }

    #[test]
    fn a_newer_compiler_of_the_drivers_major_version_makes_binaries() {
        let to = |compiler, device| target(&[80, 90], Version(compiler), device, V12);
        assert_eq!(to(12_080, 90), Some(Target::Cubin(90)));
        assert_eq!(to(12_080, 86), Some(Target::Ptx(80)));
    }

    #[test]
    fn a_compiler_of_a_later_major_version_suits_no_driver() {
        assert_eq!(suits(Version(12_080), Version(12_000)), Ok(()));
        assert_eq!(suits(Version(12_000), Version(13_000)), Ok(()));
        let why = suits(Version(13_000), V12).unwrap_err();
        assert!(why.contains("NVRTC 13.0") && why.contains("driver for CUDA 12.4"), "{why}");
    }

    #[cfg(not(windows))]
    #[test]
    fn the_compiler_of_the_drivers_own_version_is_the_first() {
        assert_eq!(names(V12), ["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"]);
        assert_eq!(names(Version(13_000)), ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]);
    }
}
