//! Functions of the host's that streams call.
#![expect(unsafe_code, reason = "calls functions that a program gave")]

use std::ffi::c_void;

/// A function of the host's.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: whoever made it vouched for calls from any thread.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    /// A function and what it is called with.
    ///
    /// # Safety
    ///
    /// The function may be called with the data from any thread, as often as the work runs.
    pub unsafe fn new(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Self {
        Self { function, data }
    }

    pub(crate) fn call(self) {
        // SAFETY: whoever made it vouched for this.
        unsafe { (self.function)(self.data) }
    }
}
