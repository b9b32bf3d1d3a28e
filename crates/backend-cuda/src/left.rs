//! Memory of pools that a fault kept from being freed: it is the device's, outlives the context that broke, and is freed in
//! the next one that works.
#![expect(unsafe_code, reason = "asks about memory and frees it through the driver")]

use std::ffi::c_void;
use std::mem;
use std::sync::Mutex;

use cudarc::driver::sys::{CUdeviceptr, CUpointer_attribute};

use crate::context::{Context, ok};
use crate::lock;

/// An allocation of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooled {
    pub(crate) address: CUdeviceptr,
    /// The handle of the pool.
    pub(crate) pool: usize,
}

/// What is left of each device, by its number.
static LEFT: Mutex<Vec<(usize, Pooled)>> = Mutex::new(Vec::new());

impl Context {
    /// Leaves memory to the next context of the device.
    pub(crate) fn leave(&self, memory: Pooled) {
        lock(&LEFT).push((self.ordinal, memory));
    }

    /// Frees the memory of the device that is left of contexts that broke.
    pub(crate) fn free_left(&self) {
        let all = mem::take(&mut *lock(&LEFT));
        let (here, elsewhere) =
            all.into_iter().partition::<Vec<_>, _>(|(ordinal, _)| *ordinal == self.ordinal);
        lock(&LEFT).extend(elsewhere);
        for (_, memory) in here {
            // A driver that freed it with the context may have given the address to others.
            if self.pool_of(memory.address) != Ok(memory.pool) {
                continue;
            }
            // SAFETY: the memory is of this crate's pool, and the work that used it ended with its context.
            let code = self.apart(|driver| unsafe { (driver.cuMemFree_v2)(memory.address) });
            if code != 0 {
                let error = self.driver.name(code);
                tracing::warn!(device = self.ordinal, error, "memory is left of a broken context");
            }
        }
    }

    /// The handle of the pool that an address is of; 0 if it is of none.
    fn pool_of(&self, address: CUdeviceptr) -> Result<usize, u32> {
        let mut pool = 0_usize;
        let place = (&raw mut pool).cast::<c_void>();
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
        self.bind()?;
        // SAFETY: the attribute is a handle, which is written to where it may be.
        ok(unsafe { (self.driver.cuPointerGetAttribute)(place, attribute, address) })?;
        Ok(pool)
    }
}
