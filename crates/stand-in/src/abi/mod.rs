//! The types of arguments and results of a driver's functions.
//!
//! Pointers of these types come from callers of exported functions, or from memory to which such pointers lead. Callers
//! guarantee that the memory can be read or written, as they must for the driver itself.
#![expect(unsafe_code, reason = "reads and writes memory of callers")]

mod functions;
mod names;
mod pool;

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::code::{Code, Result};
use crate::ptx::Param;

pub use names::name_of;
pub use pool::{Access, Location, Properties};

/// A handle of an object. Callers see it as a pointer; it is never dereferenced.
pub type Handle = u64;

/// A place for a result.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn put(self, value: T) -> Result<()> {
        let place = NonNull::new(self.0).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller passed a place for the result, which need not be aligned.
        unsafe { place.as_ptr().write_unaligned(value) };
        Ok(())
    }

    /// As [`put`](Self::put), for a result that is optional for the caller.
    pub fn offer(self, value: T) {
        let _unwanted = self.put(value);
    }
}

/// Values of the caller.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The first value.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn get(self) -> Result<T> {
        self.at(0)
    }

    /// The value at an index, which must be below the count that the caller passed.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn at(self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller passed more values than the index.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// The first `count` values.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn take(self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

impl In<*const c_void> {
    /// The bytes of a launch's arguments. The caller passes a pointer to each argument.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn arguments(self, params: &[Param]) -> Result<Box<[u8]>> {
        let len = params.iter().map(|param| param.offset + param.size).max().unwrap_or(0);
        let mut bytes = vec![0; len];
        for (index, param) in params.iter().enumerate() {
            let argument = self.at(index)?;
            if argument.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            let to = &mut bytes[param.offset..param.offset + param.size];
            // SAFETY: each pointer is to as many bytes as the parameter has.
            unsafe { argument.cast::<u8>().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        }
        Ok(bytes.into())
    }
}

/// Text of the caller that ends with a NUL.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The bytes before the NUL.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn bytes<'a>(self) -> Result<&'a [u8]> {
        let start = NonNull::new(self.0.cast_mut()).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller passed text that lives while the function runs.
        Ok(unsafe { CStr::from_ptr(start.as_ptr()) }.to_bytes())
    }
}

/// Memory of the caller.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Buffer(*mut c_void);

impl Buffer {
    /// Its start.
    pub fn start(self) -> *mut c_void {
        self.0
    }

    /// Writes text and a NUL. The text is cut to the caller's room.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer or no room.
    pub fn put_text(self, text: &str, room: usize) -> Result<()> {
        let text = &text.as_bytes()[..text.len().min(room.saturating_sub(1))];
        if room == 0 {
            return Err(Code::INVALID_VALUE);
        }
        self.put_bytes(&[text, &[0]].concat())
    }

    /// Writes bytes, for which the caller must have room.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn put_bytes(self, bytes: &[u8]) -> Result<()> {
        let place = NonNull::new(self.0.cast::<u8>()).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller has the room.
        unsafe { place.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// As a place for a value.
    pub fn of<T>(self) -> Out<T> {
        Out(self.0.cast())
    }

    /// As a value.
    pub fn holding<T>(self) -> In<T> {
        In(self.0.cast())
    }
}

/// Returns the code of an exported function. A panic becomes [`Code::UNKNOWN`].
pub fn answer(call: impl FnOnce() -> Result<()>) -> u32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}
