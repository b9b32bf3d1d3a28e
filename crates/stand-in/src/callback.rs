//! Host functions that streams call.
#![expect(unsafe_code, reason = "calls functions that a program gave")]

use std::ffi::c_void;

use crate::code::{Code, Result};

/// A function of the host's, with what it is called with.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    function: Kind,
    data: *mut c_void,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Not called once work has failed.
    Plain(unsafe extern "C" fn(*mut c_void)),
    /// Told the stream, and the code of the work that failed first or 0.
    WithStatus(unsafe extern "C" fn(u64, u32, *mut c_void), u64),
}

// SAFETY: whoever made it vouched for calls from any thread.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    /// A function that is called unless work of the context has failed.
    ///
    /// # Safety
    ///
    /// The function may be called with the data from any thread, as often as the work runs.
    pub unsafe fn new(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Self {
        Self { function: Kind::Plain(function), data }
    }

    /// A function that is called in any case, with the stream and whether work of the context has failed.
    ///
    /// # Safety
    ///
    /// As [`new`](Self::new).
    pub unsafe fn with_status(
        function: unsafe extern "C" fn(u64, u32, *mut c_void),
        stream: u64,
        data: *mut c_void,
    ) -> Self {
        Self { function: Kind::WithStatus(function, stream), data }
    }

    pub(crate) fn call(self, status: Result<()>) {
        match (self.function, status) {
            // SAFETY: whoever made it vouched for this.
            (Kind::Plain(function), Ok(())) => unsafe { function(self.data) },
            (Kind::Plain(_), Err(_)) => {}
            (Kind::WithStatus(function, stream), status) => {
                let code = status.map_or_else(|Code(code)| code, |()| 0);
                // SAFETY: as above.
                unsafe { function(stream, code, self.data) };
            }
        }
    }
}
