//! What is given back to the driver late: once the streams that used it have come to their end.
#![expect(unsafe_code, reason = "gives memory and modules back to the driver")]

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use backend_support::Reclaim;
use cudarc::driver::sys::{CUdeviceptr, CUmodule};
use runtime_core::Result;

use crate::codes;
use crate::context::{Context, ok};
use crate::left::Pooled;
use crate::raw_stream::Mark;

/// What is given back.
pub(crate) enum Object {
    /// Device memory, plain or managed.
    Memory(CUdeviceptr),
    /// Device memory of a pool, where it cannot be freed in the order of streams.
    Pooled(Pooled),
    /// The address of page-locked host memory.
    Pinned(usize),
    /// The handle of a module.
    Module(usize),
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(address) | Self::Pooled(Pooled { address, .. }) => {
                write!(f, "memory at {address:#x}")
            }
            Self::Pinned(address) => write!(f, "pinned memory at {address:#x}"),
            Self::Module(handle) => write!(f, "module {handle:#x}"),
        }
    }
}

impl Reclaim for Context {
    type Object = Object;
    type Mark = Mark;

    fn reclaim(&self, object: Object) -> Result<()> {
        if self.fault().is_some() {
            self.abandon(&object);
            return Ok(());
        }
        self.give_back(&object).map_err(|code| {
            self.note(code);
            self.abandon(&object);
            let what = format_args!("{object:?} could not be given back");
            codes::error(self.driver, "free", code, what)
        })
    }
}

impl Context {
    /// Gives up what the driver does not take back: all but memory of pools goes with the context.
    pub(crate) fn abandon(&self, object: &Object) {
        if let Object::Pooled(memory) = object {
            self.leave(*memory);
        }
    }

    fn give_back(&self, object: &Object) -> Result<(), u32> {
        ok(self.apart(|driver| match *object {
            // SAFETY: the memory is of this context, and the work that used it is over.
            Object::Memory(address) | Object::Pooled(Pooled { address, .. }) => unsafe {
                (driver.cuMemFree_v2)(address)
            },
            Object::Pinned(address) => {
                let pointer = ptr::with_exposed_provenance_mut::<c_void>(address);
                // SAFETY: as above.
                unsafe { (driver.cuMemFreeHost)(pointer) }
            }
            Object::Module(handle) => {
                let module: CUmodule = ptr::with_exposed_provenance_mut(handle);
                // SAFETY: as above, and its kernels are dropped.
                unsafe { (driver.cuModuleUnload)(module) }
            }
        }))
    }
}
