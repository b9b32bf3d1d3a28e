//! Memory pools, and memory that is allocated and freed in the order of a stream.

use std::sync::Arc;

use super::Engine;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::pool::Pool;
use crate::space::Kind;
use crate::work::Work;

impl Engine {
    /// The handle of the default pool of a device.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn default_pool(&self, device: usize) -> Result<u64> {
        Ok(self.device(device)?.pool)
    }

    /// Creates a pool on a device.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn pool_create(&self, device: usize) -> Result<u64> {
        let budget = &self.device(device)?.budget;
        Ok(self.pools.insert_with(|handle| Pool::new(device, handle, budget, false)).0)
    }

    /// A pool.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn pool(&self, handle: u64) -> Result<Arc<Pool>> {
        self.find(&self.pools, handle)
    }

    /// Destroys a pool. Its memory stays until it is freed.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`], or [`Code::INVALID_VALUE`] for the default pool of a device.
    pub fn pool_destroy(&self, handle: u64) -> Result<()> {
        let pool = self.pool(handle)?;
        if pool.is_default {
            return Err(Code::INVALID_VALUE);
        }
        self.remove(&self.pools, handle)?.destroy();
        Ok(())
    }

    /// Allocates memory of a pool. Work that is ordered after this point of the stream may use it.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    pub fn allocate_in(
        &self,
        context: &Arc<Context>,
        pool: u64,
        bytes: usize,
        stream: u64,
    ) -> Result<u64> {
        self.admit_allocation(context, bytes)?;
        let (pool, stream) = (self.pool(pool)?, self.stream_in(context, stream)?);
        if let Some(code) =
            stream.with_capture(|captured| captured.as_ref().map(|captured| captured.invalidate()))
        {
            return Err(code);
        }
        pool.take(bytes).or_else(|_| {
            // Frees that come earlier in the stream may make room.
            stream.drain();
            pool.take(bytes)
        })?;
        let memory = self.state.space.allocate(bytes, Kind::Pool(Arc::clone(&pool)), context)?;
        stream.submit(Work::Allocate(Arc::clone(&memory)), None)?;
        Ok(memory.range.start)
    }

    /// Frees device memory at this point of the stream.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless an allocation starts at the address.
    pub fn free_in(&self, context: &Arc<Context>, address: u64, stream: u64) -> Result<()> {
        context.check()?;
        let stream = self.stream_in(context, stream)?;
        let memory = self.allocation(address).ok_or(Code::INVALID_VALUE)?;
        if memory.is_pinned() || memory.is_managed() {
            return Err(Code::INVALID_VALUE);
        }
        stream.submit(Work::Free(memory), None)?;
        context.check()
    }
}
