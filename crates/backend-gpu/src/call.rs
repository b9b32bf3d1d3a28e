//! The outcome of a call of a vendor's function.

use std::ffi::c_int;

/// Converts a code to a result.
///
/// # Errors
///
/// The code, if it is not 0.
#[inline]
pub fn ok(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Returns what a call writes to a place.
///
/// # Errors
///
/// The code of the call.
#[inline]
pub fn written<P: Default + Written<R>, R>(call: impl FnOnce(*mut P) -> u32) -> Result<R, u32> {
    let mut place = P::default();
    ok(call(&mut place))?;
    Ok(place.written())
}

/// A place to which a call writes a number, a handle, or an address.
pub trait Written<R> {
    /// The written value, as the methods of [`Api`](crate::Api) return it.
    fn written(self) -> R;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Written<$number> for $number {
            #[inline]
            fn written(self) -> $number {
                self
            }
        }
    )*};
}

numbers! { c_int, f32, u64, usize, [u8; 16] }

impl Written<usize> for c_int {
    #[inline]
    fn written(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

impl<T> Written<usize> for *mut T {
    #[inline]
    fn written(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Written<u64> for *mut T {
    #[inline]
    fn written(self) -> u64 {
        self.expose_provenance() as u64
    }
}
