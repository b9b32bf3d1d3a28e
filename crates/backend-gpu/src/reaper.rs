//! What is given back to the library late: once the streams that used it have come to their end.
#![expect(unsafe_code, reason = "gives memory and modules back to the library")]

use std::fmt;

use backend_support::Reclaim;
use runtime_core::Result;

use crate::api::Api;
use crate::context::Context;
use crate::handle;
use crate::pool::Pooled;
use crate::raw_stream::Mark;
use crate::vendor::{Vendor, error};

/// What is given back.
pub enum Object {
    /// Device memory, plain or managed.
    Memory(u64),
    /// Device memory of a pool, where it cannot be freed in the order of streams.
    Pooled(Pooled),
    /// The address of page-locked host memory.
    Pinned(u64),
    /// A module.
    Module(handle::Module),
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(address) | Self::Pooled(Pooled { address, .. }) => {
                write!(f, "memory at {address:#x}")
            }
            Self::Pinned(address) => write!(f, "pinned memory at {address:#x}"),
            Self::Module(module) => write!(f, "module {:#x}", module.0),
        }
    }
}

impl<V: Vendor> Reclaim for Context<V> {
    type Object = Object;
    type Mark = Mark<V>;

    fn reclaim(&self, object: Object) -> Result<()> {
        if self.fault().is_some() {
            self.abandon(&object);
            return Ok(());
        }
        self.give_back(&object).map_err(|code| {
            self.note(Err::<(), _>(code));
            self.abandon(&object);
            let what = format_args!("{object:?} could not be given back");
            error::<V>(self.api, "free", code, what)
        })
    }
}

impl<V: Vendor> Context<V> {
    /// Gives up what the library does not take back: all but memory of pools goes with the context.
    pub(crate) fn abandon(&self, object: &Object) {
        if let Object::Pooled(memory) = object {
            V::leave(self, *memory);
        }
    }

    fn give_back(&self, object: &Object) -> Result<(), u32> {
        self.apart(|api| match *object {
            // SAFETY: the memory is of this context, and the work that used it is over.
            Object::Memory(address) | Object::Pooled(Pooled { address, .. }) => unsafe {
                api.free(address)
            },
            // SAFETY: as above.
            Object::Pinned(address) => unsafe { api.free_host(address) },
            // SAFETY: as above, and its kernels are dropped.
            Object::Module(module) => unsafe { api.module_unload(module) },
        })
    }
}
