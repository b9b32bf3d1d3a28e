//! Functions of the program that streams call.
#![expect(unsafe_code, reason = "calls functions of the program")]

use std::ffi::c_void;

/// A function of the program, and its argument. It is not called after work of the context has failed.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: the creator guarantees that the function can be called from any thread.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    /// A function and its argument.
    ///
    /// # Safety
    ///
    /// The function may be called with the data from any thread, each time the work runs.
    pub unsafe fn new(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Self {
        Self { function, data }
    }

    pub(crate) fn call(self) {
        // SAFETY: the creator guarantees this.
        unsafe { (self.function)(self.data) }
    }
}
