//! Pointers that callers of the driver pass, and what functions answer.
#![expect(unsafe_code, reason = "reads and writes where callers say")]

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use stand_in::{Code, Result};

/// A handle of any object; a pointer to its caller, never followed.
pub(crate) type Handle = u64;

/// Where a result is written. Values of this type come from callers of exported functions alone, who must pass what can be
/// written.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn put(self, value: T) -> Result<()> {
        let place = NonNull::new(self.0).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller passed it to have a result written; it need not be aligned.
        unsafe { place.as_ptr().write_unaligned(value) };
        Ok(())
    }

    /// As [`put`](Self::put), where the caller may not want the result.
    pub(crate) fn offer(self, value: T) {
        let _unwanted = self.put(value);
    }
}

/// Values that are read. They come from callers of exported functions alone, who must pass what can be read.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) fn get(self) -> Result<T> {
        self.at(0)
    }

    /// The value of an index below the count that the caller passed.
    pub(crate) fn at(self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller passed so many values.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// Text that ends with a NUL, from a caller.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The bytes before the NUL.
    pub(crate) fn bytes<'a>(self) -> Result<&'a [u8]> {
        let start = NonNull::new(self.0.cast_mut()).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller passed text that stays while the function runs.
        Ok(unsafe { CStr::from_ptr(start.as_ptr()) }.to_bytes())
    }
}

/// Bytes that the caller wants filled.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Buffer(pub(crate) *mut c_void);

impl Buffer {
    /// Writes text and a NUL, cut to the room that the caller has.
    pub(crate) fn put_text(self, text: &str, room: usize) -> Result<()> {
        let text = &text.as_bytes()[..text.len().min(room.saturating_sub(1))];
        if room == 0 {
            return Err(Code::INVALID_VALUE);
        }
        for (index, byte) in text.iter().chain(&[0]).enumerate() {
            Out(self.0.cast::<u8>().wrapping_add(index)).put(*byte)?;
        }
        Ok(())
    }

    /// As a place for a value.
    pub(crate) fn of<T>(self) -> Out<T> {
        Out(self.0.cast())
    }

    /// As a value.
    pub(crate) fn holding<T>(self) -> In<T> {
        In(self.0.cast())
    }
}

/// What an exported function answers. No panic reaches its caller.
pub(crate) fn answer(call: impl FnOnce() -> Result<()>) -> u32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}
