//! The compiler, where `BACKEND_CUDA_NVRTC` names its library.
#![expect(unsafe_code, reason = "calls a C library")]

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::ptr::null_mut;

use libloading::{Library, Symbol};

type Status = c_int;
type Program = *mut c_void;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Status;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status;
type Size = unsafe extern "C" fn(Program, *mut usize) -> Status;
type Fetch = unsafe extern "C" fn(Program, *mut c_char) -> Status;

/// A loaded compiler.
#[derive(Debug)]
pub(super) struct Nvrtc {
    library: Library,
    /// Its own dependency, which it looks for by name alone.
    _builtins: Option<Library>,
    pub(super) version: (c_int, c_int),
}

impl Nvrtc {
    /// The compiler that the environment names; says so where it names none.
    pub(super) fn named() -> Option<Self> {
        let Some(path) = env::var_os("BACKEND_CUDA_NVRTC") else {
            eprintln!("skipped: BACKEND_CUDA_NVRTC does not name the library of a compiler");
            return None;
        };
        let path = Path::new(&path);
        let beside = path.parent().and_then(|folder| fs::read_dir(folder).ok());
        let builtins =
            beside.into_iter().flatten().flatten().map(|entry| entry.path()).find(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                name.starts_with("libnvrtc-builtins.so")
            });
        // SAFETY: the library is data of the compiler, whose loading runs nothing that matters here.
        let builtins = builtins.and_then(|path| unsafe { Library::new(path) }.ok());
        // SAFETY: the variable names an NVRTC, which may be loaded at any time.
        let library = unsafe { Library::new(path) }.expect("the library of the compiler loads");
        let (mut major, mut minor) = (0, 0);
        {
            // SAFETY: the function has this type in every version.
            let version: Symbol<'_, Version> = unsafe { library.get(b"nvrtcVersion\0") }.unwrap();
            // SAFETY: both pointers are to live integers.
            assert_eq!(unsafe { version(&raw mut major, &raw mut minor) }, 0);
        }
        Some(Self { library, _builtins: builtins, version: (major, minor) })
    }

    /// The oldest architecture that this version compiles for.
    pub(super) fn architecture(&self) -> &'static str {
        if self.version.0 < 13 { "compute_60" } else { "compute_75" }
    }

    /// PTX of a source. Panics with the log of the compiler if there are errors.
    pub(super) fn compile(&self, source: &str, options: &[&str]) -> String {
        let source = CString::new(source).unwrap();
        let mut program: Program = null_mut();
        // SAFETY: the function has this type in every version.
        let create: Symbol<'_, Create> = unsafe { self.get("nvrtcCreateProgram") };
        let (count, none) = (0, null_mut());
        // SAFETY: the source ends with a zero, and there are no headers.
        let status = unsafe {
            create(&raw mut program, source.as_ptr(), c"kernels.cu".as_ptr(), count, none, none)
        };
        assert_eq!(status, 0, "nvrtcCreateProgram");
        let options: Vec<CString> = options.iter().map(|o| CString::new(*o).unwrap()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: the function has this type in every version.
        let compile: Symbol<'_, Compile> = unsafe { self.get("nvrtcCompileProgram") };
        let count = c_int::try_from(pointers.len()).unwrap();
        // SAFETY: the program is alive, and there are so many options.
        let status = unsafe { compile(program, count, pointers.as_ptr()) };
        assert_eq!(status, 0, "{}", self.text(program, "nvrtcGetProgramLog"));
        let ptx = self.text(program, "nvrtcGetPTX");
        // SAFETY: the function has this type in every version.
        let destroy: Symbol<'_, unsafe extern "C" fn(*mut Program) -> Status> =
            unsafe { self.get("nvrtcDestroyProgram") };
        // SAFETY: the program is alive, and is used no more.
        assert_eq!(unsafe { destroy(&raw mut program) }, 0);
        ptx
    }

    /// A text of a program, whose size comes from the function with that name and `Size`.
    fn text(&self, program: Program, function: &str) -> String {
        let mut size = 0;
        // SAFETY: the function has this type in every version.
        let of: Symbol<'_, Size> = unsafe { self.get(&format!("{function}Size")) };
        // SAFETY: the program is alive, and so is the integer.
        assert_eq!(unsafe { of(program, &raw mut size) }, 0, "{function}Size");
        let mut text = vec![0_u8; size];
        // SAFETY: the function has this type in every version.
        let fetch: Symbol<'_, Fetch> = unsafe { self.get(function) };
        // SAFETY: there is room for as many bytes as the library said.
        assert_eq!(unsafe { fetch(program, text.as_mut_ptr().cast()) }, 0, "{function}");
        text.pop();
        String::from_utf8(text).unwrap()
    }

    /// # Safety
    ///
    /// `T` is the type of that function.
    unsafe fn get<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: the caller knows the type.
        unsafe { self.library.get(name.as_bytes()) }.unwrap()
    }
}
