//! The compiler that does the work: NVRTC.
#![expect(unsafe_code, reason = "calls a C library")]

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::mem;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

use libloading::Library;

/// Where its library is.
const VARIABLE: &str = "BACKEND_CUDA_NVRTC";
/// What it compiles for: the oldest architecture that NVRTC 12 and 13 both know.
const ARCHITECTURE: &CStr = c"--gpu-architecture=compute_75";

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

/// Its functions.
struct Nvrtc {
    create: Create,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    add_name: unsafe extern "C" fn(Program, *const c_char) -> c_int,
    lowered_name: unsafe extern "C" fn(Program, *const c_char, *mut *const c_char) -> c_int,
    log: (Size, Text),
    ptx: (Size, Text),
}

/// A program to be compiled.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: CString,
    pub(crate) text: CString,
    /// Names and texts of what it may include.
    pub(crate) headers: Vec<(CString, CString)>,
    pub(crate) options: Vec<CString>,
    /// Expressions whose values are kernels.
    pub(crate) kernels: Vec<CString>,
}

/// What was made of it.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The text, and the names of the kernels of the expressions; or the compiler's code.
    pub(crate) outcome: Result<(String, Vec<CString>), c_int>,
    pub(crate) log: String,
}

/// The compiler, or why there is none.
fn nvrtc() -> Result<&'static Nvrtc, String> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    NVRTC.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// Whether there is a compiler.
///
/// # Errors
///
/// Why there is none.
pub(crate) fn check() -> Result<(), String> {
    nvrtc().map(drop)
}

/// Compiles a program.
///
/// # Errors
///
/// Why there is no compiler.
pub(crate) fn compile(source: &Source) -> Result<Compiled, String> {
    let nvrtc = nvrtc()?;
    let (names, texts): (Vec<_>, Vec<_>) =
        source.headers.iter().map(|(name, text)| (name.as_ptr(), text.as_ptr())).unzip();
    let mut program = Compiling { nvrtc, program: null_mut() };
    // SAFETY: all texts end with a NUL, and there are as many headers as names of them.
    let mut code = unsafe {
        (nvrtc.create)(
            &mut program.program,
            source.text.as_ptr(),
            source.name.as_ptr(),
            count(&names),
            texts.as_ptr(),
            names.as_ptr(),
        )
    };
    for kernel in &source.kernels {
        if code == 0 {
            // SAFETY: the program is alive, and the text ends with a NUL.
            code = unsafe { (nvrtc.add_name)(program.program, kernel.as_ptr()) };
        }
    }
    if code != 0 {
        return Ok(Compiled { outcome: Err(code), log: String::new() });
    }
    let options: Vec<*const c_char> = source
        .options
        .iter()
        .map(|option| option.as_ptr())
        .chain([ARCHITECTURE.as_ptr()])
        .collect();
    // SAFETY: the program is alive, and there are so many options.
    code = unsafe { (nvrtc.compile)(program.program, count(&options), options.as_ptr()) };
    let log = program.text(nvrtc.log).unwrap_or_default();
    let outcome = if code == 0 { program.result(&source.kernels) } else { Err(code) };
    Ok(Compiled { outcome, log })
}

fn count<T>(all: &[T]) -> c_int {
    c_int::try_from(all.len()).unwrap_or(c_int::MAX)
}

fn load() -> Result<Nvrtc, String> {
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let path = named.ok_or_else(|| {
        format!("{VARIABLE} does not name the library of a compiler, which the stand-in needs")
    })?;
    let path = Path::new(&path);
    // Its own dependency, which it looks for by name alone.
    let beside = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    for file in beside.into_iter().flatten().flatten() {
        if file.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            // SAFETY: the library is data of the compiler, whose loading runs nothing that matters here.
            let builtins = unsafe { Library::new(file.path()) };
            mem::forget(builtins);
        }
    }
    // SAFETY: the variable names an NVRTC, which may be loaded at any time.
    let library = unsafe { Library::new(path) }.map_err(|error| format!("no NVRTC: {error}"))?;
    let bound = bind(&library).map_err(|error| format!("no NVRTC: {error}"));
    mem::forget(library);
    bound
}

fn bind(library: &Library) -> Result<Nvrtc, libloading::Error> {
    /// # Safety
    ///
    /// `T` is the type of that function.
    unsafe fn get<T: Copy>(library: &Library, name: &CStr) -> Result<T, libloading::Error> {
        // SAFETY: the caller vouches for the type.
        unsafe { library.get::<T>(name) }.map(|symbol| *symbol)
    }
    macro_rules! get {
        ($name:literal) => {
            // SAFETY: the functions have these types in every version of NVRTC.
            unsafe { get(library, $name) }?
        };
    }
    Ok(Nvrtc {
        create: get!(c"nvrtcCreateProgram"),
        destroy: get!(c"nvrtcDestroyProgram"),
        compile: get!(c"nvrtcCompileProgram"),
        add_name: get!(c"nvrtcAddNameExpression"),
        lowered_name: get!(c"nvrtcGetLoweredName"),
        log: (get!(c"nvrtcGetProgramLogSize"), get!(c"nvrtcGetProgramLog")),
        ptx: (get!(c"nvrtcGetPTXSize"), get!(c"nvrtcGetPTX")),
    })
}

/// A program of NVRTC's.
struct Compiling<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Compiling<'_> {
    fn text(&self, (size, text): (Size, Text)) -> Result<String, c_int> {
        let mut len = 0;
        // SAFETY: the program is alive, and so is the number.
        ok(unsafe { size(self.program, &mut len) })?;
        let mut bytes = vec![0_u8; len];
        // SAFETY: there is room for as many bytes as the library said.
        ok(unsafe { text(self.program, bytes.as_mut_ptr().cast()) })?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn result(&self, kernels: &[CString]) -> Result<(String, Vec<CString>), c_int> {
        let lowered = |kernel: &CString| {
            let mut name = std::ptr::null();
            // SAFETY: the program is alive, the text ends with a NUL, and the pointer has a place.
            ok(unsafe { (self.nvrtc.lowered_name)(self.program, kernel.as_ptr(), &mut name) })?;
            // SAFETY: the name is text that stays as long as the program.
            Ok(unsafe { CStr::from_ptr(name) }.to_owned())
        };
        Ok((self.text(self.nvrtc.ptx)?, kernels.iter().map(lowered).collect::<Result<_, c_int>>()?))
    }
}

impl Drop for Compiling<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program is this object's own, and is used no more.
            unsafe { (self.nvrtc.destroy)(&mut self.program) };
        }
    }
}

fn ok(code: c_int) -> Result<(), c_int> {
    if code == 0 { Ok(()) } else { Err(code) }
}
