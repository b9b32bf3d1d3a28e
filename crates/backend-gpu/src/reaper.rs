//! Objects that are released later, once the streams that used them finish.
#![expect(unsafe_code, reason = "gives memory and modules back to the library")]

use std::any::Any;
use std::fmt;
use std::mem;

use backend_support::Reclaim;
use runtime_core::Result;

use crate::api::Api;
use crate::claim::Claim;
use crate::context::Context;
use crate::handle;
use crate::pool::Pooled;
use crate::raw_stream::Mark;
use crate::vendor::{Vendor, error};

/// An object to release.
pub enum Object {
    /// Device memory, plain or managed.
    Memory(u64),
    /// Device memory of a pool that cannot be freed in the order of streams.
    Pooled(Pooled),
    /// The address of page-locked host memory.
    Pinned(u64),
    /// Host memory of the program that is page-locked.
    Registered {
        /// Its address.
        address: u64,
        /// Its pages.
        claim: Claim,
        /// Keeps the memory; dropped after the claim.
        owner: Box<dyn Any + Send + Sync>,
    },
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
            Self::Registered { address, .. } => write!(f, "registered memory at {address:#x}"),
            Self::Module(module) => write!(f, "module {:#x}", module.0),
        }
    }
}

impl<V: Vendor> Reclaim for Context<V> {
    type Object = Object;
    type Mark = Mark<V>;

    fn reclaim(&self, object: Object) -> Result<()> {
        if self.fault().is_some() {
            self.abandon(object);
            return Ok(());
        }
        self.give_back(&object).map_err(|code| {
            self.note(Err::<(), _>(code));
            let what = format!("{object:?} could not be given back");
            self.abandon(object);
            error::<V>(self.api, "release", code, what)
        })
    }
}

impl<V: Vendor> Context<V> {
    /// Leaks an object that the library cannot release. Memory of pools needs a record, because everything else is
    /// released with the context. Registered memory stays allocated: the library would take other memory at its address
    /// for it.
    pub(crate) fn abandon(&self, object: Object) {
        match object {
            Object::Pooled(memory) => V::leave(self, memory),
            Object::Registered { .. } => mem::forget(object),
            Object::Memory(_) | Object::Pinned(_) | Object::Module(_) => {}
        }
    }

    fn give_back(&self, object: &Object) -> Result<(), u32> {
        self.outside_captures(|api| match *object {
            // SAFETY: the memory belongs to this context, and the work that used it is finished.
            Object::Memory(address) | Object::Pooled(Pooled { address, .. }) => unsafe {
                api.free(address)
            },
            // SAFETY: as above.
            Object::Pinned(address) => unsafe { api.free_host(address) },
            // SAFETY: as above.
            Object::Registered { address, .. } => unsafe { api.unregister_host(address) },
            // SAFETY: as above, and the module's kernels are dropped.
            Object::Module(module) => unsafe { api.module_unload(module) },
        })
    }
}
