//! Run-time compilers with the interface that NVRTC and hiprtc share.
#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use backend_support::headline;
use runtime_core::{Error, Result};

use crate::call::{ok, written};
use crate::program::refused;

/// Writes the length of a result.
pub type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> u32;
/// Writes a result.
pub type Content = unsafe extern "C" fn(*mut c_void, *mut c_char) -> u32;
type Texts = *const *const c_char;

/// A compiler's functions, the names of its codes, and its name for a source.
#[derive(Clone, Copy, Debug)]
pub struct Rtc {
    /// Creates a program from a text.
    pub create: unsafe extern "C" fn(
        *mut *mut c_void,
        *const c_char,
        *const c_char,
        c_int,
        Texts,
        Texts,
    ) -> u32,
    /// Destroys a program.
    pub destroy: unsafe extern "C" fn(*mut *mut c_void) -> u32,
    /// Compiles a program.
    pub compile: unsafe extern "C" fn(*mut c_void, c_int, Texts) -> u32,
    /// Return the log of a compilation: its length and its text.
    pub log: (Size, Content),
    /// Returns the symbolic name of a code.
    pub name: unsafe extern "C" fn(u32) -> *const c_char,
    /// The name of the source in logs.
    pub file: &'static CStr,
}

/// A compiled program.
#[derive(Debug)]
pub struct Program {
    raw: *mut c_void,
    rtc: Rtc,
}

impl Program {
    /// Compiles a source. Returns the program and the compiler's log.
    ///
    /// # Errors
    ///
    /// `InvalidModule` with the compiler's log.
    ///
    /// # Safety
    ///
    /// The functions belong to a compiler that does what its headers say.
    pub unsafe fn compile(rtc: Rtc, source: &CStr, options: &[CString]) -> Result<(Self, String)> {
        let mut program = Self { raw: ptr::null_mut(), rtc };
        let (text, name) = (source.as_ptr(), rtc.file.as_ptr());
        // SAFETY: both texts end with a NUL and are copied; there are no headers to read.
        let created =
            unsafe { (rtc.create)(&mut program.raw, text, name, 0, ptr::null(), ptr::null()) };
        ok(created).map_err(|code| rtc.error(code, "the compiler does not take the source"))?;
        let words: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(words.len()).unwrap_or(c_int::MAX);
        // SAFETY: the program is alive. The call reads `count` options, and each ends with a NUL.
        let compiled = ok(unsafe { (rtc.compile)(program.raw, count, words.as_ptr()) });
        // SAFETY: these functions return the log.
        let log = unsafe { program.bytes(rtc.log) };
        let log = text_of(&log.map_err(|code| rtc.error(code, "no compiler log"))?);
        match compiled {
            Ok(()) => Ok((program, log)),
            Err(code) => Err(rtc.error(code, headline(&log)).with_log(log)),
        }
    }

    /// Returns a result of the compiler.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if there is no such result.
    ///
    /// # Safety
    ///
    /// The functions return a result of this program's compiler.
    pub unsafe fn result(&self, of: (Size, Content)) -> Result<Vec<u8>> {
        // SAFETY: the caller vouches for the functions.
        let bytes = unsafe { self.bytes(of) };
        bytes.map_err(|code| self.rtc.error(code, "the compiler gives no program"))
    }

    /// # Safety
    ///
    /// As [`result`](Self::result).
    unsafe fn bytes(&self, (size, content): (Size, Content)) -> Result<Vec<u8>, u32> {
        // SAFETY: the program is alive, and the number is written to a valid place.
        let bytes = written(|bytes| unsafe { size(self.raw, bytes) })?;
        let mut buffer = vec![0_u8; bytes];
        if bytes > 0 {
            // SAFETY: as above; the buffer has room for the whole result.
            ok(unsafe { content(self.raw, buffer.as_mut_ptr().cast()) })?;
        }
        Ok(buffer)
    }
}

impl Rtc {
    fn error(&self, code: u32, about: &str) -> Error {
        // SAFETY: the function takes any code.
        let name = unsafe { (self.name)(code) };
        // SAFETY: the text stays as long as the compiler, which is never unloaded.
        let name = unsafe { text_at(name) };
        refused(about).with_driver(name.unwrap_or("unknown code"), code.into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: only this object uses the program. A failure only leaks memory.
            unsafe { (self.rtc.destroy)(&mut self.raw) };
        }
    }
}

/// The text at an address, if there is one.
///
/// # Safety
///
/// The address is null or that of a text that ends with a NUL and is never freed.
pub unsafe fn text_at(address: *const c_char) -> Option<&'static str> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees the text.
    unsafe { CStr::from_ptr(address) }.to_str().ok()
}

/// Converts text that may end with a NUL.
pub fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
