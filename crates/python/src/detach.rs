//! Work that blocks, from threads that may hold the interpreter's lock.
#![expect(unsafe_code, reason = "checks whether the thread is known to Python")]

use pyo3::{Python, ffi};

/// Whether Python knows this thread.
pub(crate) fn is_known() -> bool {
    // SAFETY: may be called on any thread at any time; it reads only the thread's own state.
    let thread = unsafe { ffi::PyGILState_GetThisThreadState() };
    !thread.is_null()
}

/// Runs work of a destructor that may block, and lets other Python threads run meanwhile. The destructor may or may not
/// have been called from Python.
pub(crate) fn detached(f: impl FnOnce() + Send) {
    let mut work = Some(f);
    // A thread that Python does not know holds no interpreter lock, so it need not attach.
    if is_known() {
        Python::try_attach(|py| work.take().map(|work| py.detach(work)));
    }
    // Also if there is no interpreter any more.
    if let Some(work) = work {
        work();
    }
}
