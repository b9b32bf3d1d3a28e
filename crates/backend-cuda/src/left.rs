//! Memory of pools that a fault kept from being freed: it is the device's, outlives the context that broke, and is freed in
//! the next one that works.
#![expect(unsafe_code, reason = "asks about memory and frees it through the driver")]

use std::ffi::c_void;
use std::mem;
use std::sync::Mutex;

use backend_gpu::handle::Pool;
use backend_gpu::{Api, Pooled, made};
use backend_support::lock;
use cudarc::driver::sys::CUpointer_attribute;

use crate::vendor::Cuda;

type Context = backend_gpu::Context<Cuda>;

/// What is left of each device, by its number.
static LEFT: Mutex<Vec<(usize, Pooled)>> = Mutex::new(Vec::new());

/// Leaves memory to the next context of the device.
pub(crate) fn leave(context: &Context, memory: Pooled) {
    lock(&LEFT).push((context.ordinal, memory));
}

/// Frees the memory of the device that is left of contexts that broke.
pub(crate) fn free(context: &Context) {
    let all = mem::take(&mut *lock(&LEFT));
    let (here, elsewhere) =
        all.into_iter().partition::<Vec<_>, _>(|(ordinal, _)| *ordinal == context.ordinal);
    lock(&LEFT).extend(elsewhere);
    for (_, memory) in here {
        // A driver that freed it with the context may have given the address to others.
        if pool_of(context, memory.address) != Ok(memory.pool) {
            continue;
        }
        // SAFETY: the memory is of this crate's pool, and the work that used it ended with its context.
        if let Err(code) = context.apart(|api| unsafe { api.free(memory.address) }) {
            let error = context.api.name(code);
            tracing::warn!(device = context.ordinal, error, "memory is left of a broken context");
        }
    }
}

/// The pool that an address is of; null if it is of none.
fn pool_of(context: &Context, address: u64) -> Result<Pool, u32> {
    let ask = context.api.functions.cuPointerGetAttribute;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    context.bind()?;
    // SAFETY: the attribute is a handle, which is written to where it may be.
    made(|pool: *mut *mut c_void| unsafe { ask(pool.cast(), attribute, address) })
}
