//! NVIDIA's compiler of CUDA C, which needs no GPU. The variable `BACKEND_CUDA_NVRTC` names its library.
#![expect(unsafe_code, reason = "calls a C library")]

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::mem;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

use libloading::Library;

const VARIABLE: &str = "BACKEND_CUDA_NVRTC";

type Program = *mut c_void;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

/// The loaded compiler.
#[derive(Debug)]
pub struct Nvrtc {
    version: (c_int, c_int),
    create: Create,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log: (Size, Text),
    ptx: (Size, Text),
}

/// A program to compile.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Its name in messages.
    pub name: CString,
    /// Its text.
    pub text: CString,
    /// The names and texts of headers that it may include.
    pub headers: Vec<(CString, CString)>,
    /// Options of the compiler.
    pub options: Vec<CString>,
}

impl Nvrtc {
    /// The compiler that the environment names. It is loaded once per process.
    ///
    /// # Errors
    ///
    /// A message, if the environment names no compiler or it cannot be loaded.
    pub fn named() -> Result<&'static Self, String> {
        static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        NVRTC.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// The version, such as `(12, 0)`.
    pub fn version(&self) -> (c_int, c_int) {
        self.version
    }

    /// Compiles a program to PTX.
    ///
    /// # Errors
    ///
    /// The log of the compiler.
    pub fn compile(&self, source: &Source) -> Result<Compiled, String> {
        let headers = source.headers.iter();
        let (names, texts): (Vec<_>, Vec<_>) =
            headers.map(|(name, text)| (name.as_ptr(), text.as_ptr())).unzip();
        let mut program = Compiling { nvrtc: self, program: null_mut() };
        // SAFETY: all texts end with a NUL, and there are as many headers as names.
        let status = unsafe {
            (self.create)(
                &mut program.program,
                source.text.as_ptr(),
                source.name.as_ptr(),
                count(&names),
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        ok(status).map_err(|status| format!("nvrtcCreateProgram returned {status}"))?;
        let options: Vec<_> = source.options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive, and the options end with a NUL.
        let status = unsafe { (self.compile)(program.program, count(&options), options.as_ptr()) };
        let log = program.text(self.log).unwrap_or_default();
        let ptx = ok(status).and_then(|()| program.text(self.ptx));
        ptx.map(|ptx| Compiled { ptx, log: log.clone() }).map_err(|_| log)
    }
}

/// A compiled program.
#[derive(Debug)]
pub struct Compiled {
    /// Its PTX.
    pub ptx: String,
    /// The log of the compiler.
    pub log: String,
}

fn load() -> Result<Nvrtc, String> {
    let path = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| format!("{VARIABLE} does not name the library of a compiler"))?;
    let path = Path::new(&path);
    // The library looks for its own dependency by name alone.
    let folder = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    for file in folder.into_iter().flatten().flatten() {
        if file.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            // SAFETY: the library is data of the compiler. Loading it has no effect that matters here.
            let builtins = unsafe { Library::new(file.path()) };
            mem::forget(builtins);
        }
    }
    // SAFETY: the variable names an NVRTC, which may be loaded at any time.
    let library = unsafe { Library::new(path) }.map_err(|error| format!("no NVRTC: {error}"))?;
    let nvrtc = bind(&library).map_err(|error| format!("no NVRTC: {error}"));
    mem::forget(library);
    nvrtc
}

fn bind(library: &Library) -> Result<Nvrtc, libloading::Error> {
    macro_rules! get {
        ($name:literal) => {
            // SAFETY: the functions have these types in every version of NVRTC.
            *unsafe { library.get($name) }?
        };
    }
    let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = get!("nvrtcVersion");
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both numbers are written to valid places.
    let _status = unsafe { version(&mut major, &mut minor) };
    Ok(Nvrtc {
        version: (major, minor),
        create: get!("nvrtcCreateProgram"),
        destroy: get!("nvrtcDestroyProgram"),
        compile: get!("nvrtcCompileProgram"),
        log: (get!("nvrtcGetProgramLogSize"), get!("nvrtcGetProgramLog")),
        ptx: (get!("nvrtcGetPTXSize"), get!("nvrtcGetPTX")),
    })
}

/// A program of NVRTC.
struct Compiling<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Compiling<'_> {
    fn text(&self, (size, text): (Size, Text)) -> Result<String, c_int> {
        let mut len = 0;
        // SAFETY: the program is alive, and the number is written to a valid place.
        ok(unsafe { size(self.program, &mut len) })?;
        let mut bytes = vec![0_u8; len];
        // SAFETY: there is room for as many bytes as the library said.
        ok(unsafe { text(self.program, bytes.as_mut_ptr().cast()) })?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

impl Drop for Compiling<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: this object owns the program, which is not used again.
            unsafe { (self.nvrtc.destroy)(&mut self.program) };
        }
    }
}

fn count<T>(all: &[T]) -> c_int {
    c_int::try_from(all.len()).unwrap_or(c_int::MAX)
}

fn ok(status: c_int) -> Result<(), c_int> {
    if status == 0 { Ok(()) } else { Err(status) }
}
