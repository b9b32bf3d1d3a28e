//! Compilers at run time, whose interface the vendors have alike: NVRTC and hiprtc.
#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use backend_support::headline;
use runtime_core::{Error, Result};

use crate::api::{ok, told};
use crate::program::refused;

/// Tells how long something is.
pub type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> u32;
/// Writes it.
pub type Content = unsafe extern "C" fn(*mut c_void, *mut c_char) -> u32;
type Texts = *const *const c_char;

/// A compiler's functions, the names of its codes, and what it calls a source.
#[derive(Clone, Copy, Debug)]
pub struct Rtc {
    /// Makes a program of a text.
    pub create: unsafe extern "C" fn(
        *mut *mut c_void,
        *const c_char,
        *const c_char,
        c_int,
        Texts,
        Texts,
    ) -> u32,
    /// Destroys it.
    pub destroy: unsafe extern "C" fn(*mut *mut c_void) -> u32,
    /// Compiles it.
    pub compile: unsafe extern "C" fn(*mut c_void, c_int, Texts) -> u32,
    /// The log of that.
    pub log: (Size, Content),
    /// The symbolic name of a code.
    pub name: fn(u32) -> &'static str,
    /// What logs call the source.
    pub file: &'static CStr,
}

/// A compiled program.
#[derive(Debug)]
pub struct Program {
    raw: *mut c_void,
    rtc: Rtc,
}

impl Program {
    /// Compiles a source: the program, and the compiler's log.
    ///
    /// # Errors
    ///
    /// `InvalidModule` with the compiler's log.
    ///
    /// # Safety
    ///
    /// The functions are those of a compiler that does what its headers say.
    pub unsafe fn compile(rtc: Rtc, source: &CStr, options: &[CString]) -> Result<(Self, String)> {
        let mut program = Self { raw: ptr::null_mut(), rtc };
        let (text, name) = (source.as_ptr(), rtc.file.as_ptr());
        // SAFETY: both texts end with a NUL and are copied; there are no headers to read.
        let created =
            unsafe { (rtc.create)(&mut program.raw, text, name, 0, ptr::null(), ptr::null()) };
        ok(created).map_err(|code| rtc.error(code, "the compiler does not take the source"))?;
        let words: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(words.len()).unwrap_or(c_int::MAX);
        // SAFETY: the program is alive; so many options are read, each of which ends with a NUL.
        let compiled = ok(unsafe { (rtc.compile)(program.raw, count, words.as_ptr()) });
        // SAFETY: these are the functions of the log.
        let log = unsafe { program.bytes(rtc.log) };
        let log = text_of(&log.map_err(|code| rtc.error(code, "no compiler log"))?);
        match compiled {
            Ok(()) => Ok((program, log)),
            Err(code) => Err(rtc.error(code, headline(&log)).with_log(log)),
        }
    }

    /// A result of the compiler.
    ///
    /// # Errors
    ///
    /// `InvalidModule` where there is none.
    ///
    /// # Safety
    ///
    /// The functions are those of a result of this program's compiler.
    pub unsafe fn result(&self, of: (Size, Content)) -> Result<Vec<u8>> {
        // SAFETY: the caller vouches for the functions.
        let bytes = unsafe { self.bytes(of) };
        bytes.map_err(|code| self.rtc.error(code, "the compiler gives no program"))
    }

    /// # Safety
    ///
    /// As [`result`](Self::result).
    unsafe fn bytes(&self, (size, content): (Size, Content)) -> Result<Vec<u8>, u32> {
        // SAFETY: the program is alive; the number is written to where it may be.
        let bytes = told(|bytes| unsafe { size(self.raw, bytes) })?;
        let mut buffer = vec![0_u8; bytes];
        if bytes > 0 {
            // SAFETY: as above; the buffer has room for as many bytes as there are.
            ok(unsafe { content(self.raw, buffer.as_mut_ptr().cast()) })?;
        }
        Ok(buffer)
    }
}

impl Rtc {
    fn error(&self, code: u32, about: &str) -> Error {
        refused(about).with_driver((self.name)(code), code.into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the program is this object's own. What could go wrong costs memory alone.
            unsafe { (self.rtc.destroy)(&mut self.raw) };
        }
    }
}

/// Text that may end with a NUL.
pub fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
