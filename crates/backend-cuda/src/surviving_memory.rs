//! Memory of pools that could not be freed because of a fault. It belongs to the device and outlives the broken
//! context. It is freed in the device's next working context.
#![expect(unsafe_code, reason = "queries memory and frees it through the driver")]

use std::ffi::c_void;
use std::mem;
use std::sync::Mutex;

use backend_gpu::handle::Pool;
use backend_gpu::{Api, Pooled, written};
use backend_support::lock;
use cudarc::driver::sys::CUpointer_attribute;

use crate::cuda::Cuda;

type Context = backend_gpu::Context<Cuda>;

/// The memory left on each device, by the device's number.
static SURVIVING: Mutex<Vec<(usize, Pooled)>> = Mutex::new(Vec::new());

/// Leaves memory to the next context of the device.
pub(crate) fn keep(context: &Context, memory: Pooled) {
    lock(&SURVIVING).push((context.ordinal, memory));
}

/// Frees the memory that broken contexts have left on the device.
pub(crate) fn free(context: &Context) {
    let all = mem::take(&mut *lock(&SURVIVING));
    let (here, elsewhere) =
        all.into_iter().partition::<Vec<_>, _>(|(ordinal, _)| *ordinal == context.ordinal);
    lock(&SURVIVING).extend(elsewhere);
    for (_, memory) in here {
        // A driver that freed the memory with the context may have reused the address for other memory.
        if pool_of(context, memory.address) != Ok(memory.pool) {
            continue;
        }
        // SAFETY: the memory belongs to a pool of this crate, and the work that used it ended with its context.
        if let Err(code) = context.outside_captures(|api| unsafe { api.free(memory.address) }) {
            let error = context.api.name(code);
            tracing::warn!(
                device = context.ordinal,
                error,
                "memory of a broken context could not be freed"
            );
        }
    }
}

/// The pool that an address belongs to; null if it belongs to none.
fn pool_of(context: &Context, address: u64) -> Result<Pool, u32> {
    let ask = context.api.functions.cuPointerGetAttribute;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    context.bind()?;
    // SAFETY: the attribute is a handle, which is written to a valid place.
    written(|pool: *mut *mut c_void| unsafe { ask(pool.cast(), attribute, address) })
}
