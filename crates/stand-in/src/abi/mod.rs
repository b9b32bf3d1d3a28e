//! The types of arguments and results of a driver's functions.
//!
//! Pointers of these types come from the callers of exported functions, or are among what those point to: nothing makes one of
//! any other pointer. A caller passes what can be read or written, as it must to the driver itself.
#![expect(unsafe_code, reason = "reads and writes where callers say")]

mod like;
mod names;
mod pool;

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::code::{Code, Result};
use crate::ptx::Param;

pub use names::name_of;
pub use pool::{Access, Location, Properties};

/// A handle of any object; a pointer to its caller, never followed.
pub type Handle = u64;

/// Where a result is written.
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
        // SAFETY: the caller passed it to have a result written; it need not be aligned.
        unsafe { place.as_ptr().write_unaligned(value) };
        Ok(())
    }

    /// As [`put`](Self::put), where the caller may not want the result.
    pub fn offer(self, value: T) {
        let _unwanted = self.put(value);
    }
}

/// Values that are read.
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

    /// The value of an index below the count that the caller passed.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn at(self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller passed so many values.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// So many values.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn take(self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }

    /// Whether the caller passed none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl In<*const c_void> {
    /// The bytes of a launch's arguments, which the caller points to one by one.
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
            // SAFETY: the caller points to as many bytes as the kernel's parameter has.
            unsafe { argument.cast::<u8>().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        }
        Ok(bytes.into())
    }
}

/// Text that ends with a NUL, from a caller.
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
        // SAFETY: the caller passed text that stays while the function runs.
        Ok(unsafe { CStr::from_ptr(start.as_ptr()) }.to_bytes())
    }
}

/// Memory of the caller's.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Buffer(*mut c_void);

impl Buffer {
    /// Where it begins.
    pub fn start(self) -> *mut c_void {
        self.0
    }

    /// Writes text and a NUL, cut to the room that the caller has.
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

    /// Writes bytes, for which the caller has the room.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a null pointer.
    pub fn put_bytes(self, bytes: &[u8]) -> Result<()> {
        let place = NonNull::new(self.0.cast::<u8>()).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller has the room, in memory of its own.
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

/// What an exported function answers. No panic reaches its caller.
pub fn answer(call: impl FnOnce() -> Result<()>) -> u32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}
