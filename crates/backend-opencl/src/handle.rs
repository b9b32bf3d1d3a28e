//! References to OpenCL objects.
#![expect(unsafe_code, reason = "retains and releases objects of the driver")]

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use backend_support::Failures;
use opencl3::types::cl_int;
use opencl3::{command_queue, event, kernel, memory, program};
use runtime_core::Result;

use crate::codes;

/// The kind of object that a handle refers to.
pub(crate) trait Kind {
    const RELEASE: unsafe fn(*mut c_void) -> Result<(), cl_int>;
    const RETAIN: unsafe fn(*mut c_void) -> Result<(), cl_int>;
    const NAME: &'static str;
}

macro_rules! kinds {
    ($($kind:ident: $name:literal, $retain:path, $release:path;)*) => {$(
        pub(crate) struct $kind;

        impl Kind for $kind {
            const RELEASE: unsafe fn(*mut c_void) -> Result<(), cl_int> = $release;
            const RETAIN: unsafe fn(*mut c_void) -> Result<(), cl_int> = $retain;
            const NAME: &'static str = $name;
        }
    )*};
}

kinds! {
    Context: "clReleaseContext", opencl3::context::context::retain_context, opencl3::context::context::release_context;
    CommandQueue: "clReleaseCommandQueue", command_queue::retain_command_queue, command_queue::release_command_queue;
    Mem: "clReleaseMemObject", memory::retain_mem_object, memory::release_mem_object;
    Program: "clReleaseProgram", program::retain_program, program::release_program;
    Kernel: "clReleaseKernel", kernel::retain_kernel, kernel::release_kernel;
    Event: "clReleaseEvent", event::retain_event, event::release_event;
}

/// A reference to an OpenCL object. Dropping it releases the reference; a failure is stored and reported by the
/// device's next synchronization.
///
/// The driver keeps an object alive while enqueued commands need it, so a handle can be dropped with work in flight.
pub(crate) struct Handle<K: Kind> {
    raw: *mut c_void,
    failures: Arc<Failures>,
    kind: PhantomData<K>,
}

// SAFETY: OpenCL functions may be called from any thread. The only exception is setting a kernel's arguments, which is
// done under a lock.
unsafe impl<K: Kind> Send for Handle<K> {}
// SAFETY: as above.
unsafe impl<K: Kind> Sync for Handle<K> {}

impl<K: Kind> Handle<K> {
    /// Takes ownership of a reference.
    ///
    /// # Safety
    ///
    /// `raw` is an object of this kind, and the caller passes on one reference to it.
    pub(crate) unsafe fn own(raw: *mut c_void, failures: &Arc<Failures>) -> Self {
        Self { raw, failures: Arc::clone(failures), kind: PhantomData }
    }

    /// Makes a new reference to an object that other code owns.
    ///
    /// # Safety
    ///
    /// `raw` is a live object of this kind.
    pub(crate) unsafe fn retain(
        raw: *mut c_void,
        failures: &Arc<Failures>,
    ) -> Result<Self, cl_int> {
        // SAFETY: the caller guarantees that the object is valid.
        unsafe { K::RETAIN(raw) }?;
        // SAFETY: the reference was just made.
        Ok(unsafe { Self::own(raw, failures) })
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw
    }
}

impl<K: Kind> Drop for Handle<K> {
    fn drop(&mut self) {
        // SAFETY: the reference belongs to this handle, and is released once.
        if let Err(code) = unsafe { K::RELEASE(self.raw) } {
            self.failures.keep(codes::error(K::NAME, code, "an object could not be released"));
        }
    }
}

impl<K: Kind> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_fails_is_kept_and_does_not_panic() {
        let failures = Arc::<Failures>::default();
        // SAFETY: no driver accepts a null handle: it reports that there is no such object.
        drop(unsafe { Handle::<Mem>::own(std::ptr::null_mut(), &failures) });
        let error = failures.take().unwrap();
        assert_eq!(error.operation(), "clReleaseMemObject");
        assert!(error.driver().is_some_and(|driver| driver.code < 0), "{error}");
    }
}
