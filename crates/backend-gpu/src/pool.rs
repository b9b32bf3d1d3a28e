//! The source of device memory: a memory pool of the library, or a cache of plain allocations.
#![expect(unsafe_code, reason = "allocates through the library")]

use std::sync::{Arc, Mutex};

use backend_support::{BlockCache, Heap, lock};

use crate::allocation::allocated;
use crate::api::Api;
use crate::context::Context;
use crate::handle;
use crate::raw_stream::{Mark, RawStream};
use crate::reaper::Object;
use crate::vendor::Vendor;

/// The source of device memory.
#[derive(Debug)]
pub(crate) enum Pool<V: Vendor> {
    Driver(DriverPool<V>),
    Cache(BlockCache<Context<V>>),
}

/// A memory pool of the library. Frees are ordered in streams; allocations are ready when they return.
#[derive(Debug)]
pub(crate) struct DriverPool<V: Vendor> {
    raw: handle::Pool,
    /// The device's own stream. A wait for it is short, and after the wait the memory can be used on any stream.
    allocating: Arc<RawStream<V>>,
    /// The stream that frees memory used by several streams: it waits for them first.
    freeing: Arc<RawStream<V>>,
    /// The numbers of the devices that can access the pool's memory.
    reached: Mutex<Vec<usize>>,
}

/// An allocation of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    /// The address of its first byte.
    pub address: u64,
    /// Its pool.
    pub pool: handle::Pool,
}

impl<V: Vendor> DriverPool<V> {
    /// Creates a pool that keeps freed memory until it is trimmed.
    pub(crate) fn new(
        service: &Arc<RawStream<V>>,
        freeing: Arc<RawStream<V>>,
    ) -> Result<Self, u32> {
        let context = service.context();
        let raw = context.outside_captures(|api| api.pool_create(context.device))?;
        let pool =
            Self { raw, allocating: Arc::clone(service), freeing, reached: Mutex::default() };
        context.outside_captures(|api| {
            // SAFETY: the pool is alive.
            unsafe { api.pool_set_threshold(raw, u64::MAX) }?;
            // Otherwise an allocation could wait, in its stream, for other work that must finish before its memory is
            // free.
            // SAFETY: as above.
            unsafe { api.pool_set_internal_dependencies(raw, 0) }
        })?;
        Ok(pool)
    }

    /// A number that the library reported about the pool; 0 if it reported an error.
    fn number(&self, reported: Result<u64, u32>) -> usize {
        self.context().note(reported);
        usize::try_from(reported.unwrap_or(0)).unwrap_or(usize::MAX)
    }

    fn reserved(&self) -> usize {
        // SAFETY: the pool is alive.
        self.number(unsafe { self.context().api.pool_reserved(self.raw) })
    }

    fn used(&self) -> usize {
        // SAFETY: the pool is alive.
        self.number(unsafe { self.context().api.pool_used(self.raw) })
    }

    fn context(&self) -> &Arc<Context<V>> {
        self.allocating.context()
    }

    fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        let stream = self.allocating.raw();
        // A pool that grows makes calls that captures forbid.
        // SAFETY: pool and stream are alive and of one device.
        let allocate = |api: &V::Api| unsafe { api.pool_allocate(self.raw, bytes, stream) };
        let address = allocated::<V>(self.context().outside_captures(allocate), bytes)?;
        match self.allocating.synchronize() {
            Ok(()) => Ok(address),
            Err(code) => {
                // This free comes after the allocation, because it is on the same stream.
                if self.free(address, &[]).is_err() {
                    self.context().abandon(self.object(address));
                }
                Err(code)
            }
        }
    }

    fn free(&self, address: u64, after: &[&Arc<RawStream<V>>]) -> Result<(), u32> {
        let stream = match after {
            [] => &*self.allocating,
            [stream] if stream.is_owned() && Arc::ptr_eq(stream.context(), self.context()) => {
                stream
            }
            _ => {
                for stream in after {
                    match self.freeing.follow(stream) {
                        // The work of a broken context does not go on, so there is nothing to wait for.
                        Err(code) if stream.context().fault().is_none() => return Err(code),
                        _ => {}
                    }
                }
                &*self.freeing
            }
        };
        // SAFETY: the memory belongs to this pool, and all work that uses it comes earlier in the stream.
        self.context().outside_captures(|api| unsafe { api.pool_free(address, stream.raw()) })
    }

    fn trim(&self, keep: usize) -> Result<(), u32> {
        let used = if V::TRIM_COUNTS_USED { self.used() } else { 0 };
        let least = used.saturating_add(keep);
        // SAFETY: the pool is alive.
        self.context().outside_captures(|api| unsafe { api.pool_trim(self.raw, least) })
    }

    /// The object to release memory without a stream.
    fn object(&self, address: u64) -> Object {
        Object::Pooled(Pooled { address, pool: self.raw })
    }

    /// Gives another device's copies direct access to the pool's memory, if the hardware supports it.
    pub(crate) fn let_reach(&self, peer: &Context<V>) {
        let mut reached = lock(&self.reached);
        if reached.contains(&peer.ordinal) {
            return;
        }
        // SAFETY: the pool is alive.
        let set = |api: &V::Api| unsafe { api.pool_let_reach(self.raw, peer.device) };
        let allowed = self.context().outside_captures(set);
        reached.push(peer.ordinal);
        // A subscriber may copy between these devices.
        drop(reached);
        if let Err(code) = allowed {
            // The library then stages copies.
            let error = self.context().api.name(code);
            tracing::debug!(peer = peer.ordinal, error, "a pool is not reached directly");
        }
    }
}

impl<V: Vendor> Drop for DriverPool<V> {
    fn drop(&mut self) {
        if !V::POOLS_OUTLIVE_FAULTS && self.context().fault().is_some() {
            return;
        }
        // SAFETY: the pool makes no more allocations, and the library keeps its memory until that is freed.
        let destroyed =
            self.context().outside_captures(|api| unsafe { api.pool_destroy(self.raw) });
        self.context().note(destroyed);
    }
}

impl<V: Vendor> Heap for Context<V> {
    type Mark = Mark<V>;

    fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        allocated::<V>(self.outside_captures(|api| api.allocate(bytes)), bytes)
    }

    fn free(&self, address: u64) -> Result<(), u32> {
        if self.fault().is_some() {
            // The memory is released with the context.
            return Ok(());
        }
        // SAFETY: the cache frees only its own memory, after the work that used it is finished.
        let freed = self.outside_captures(|api| unsafe { api.free(address) });
        self.note(freed);
        freed
    }
}

impl<V: Vendor> Pool<V> {
    /// Allocates memory that any stream can use at once.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        match self {
            Self::Driver(pool) => pool.allocate(bytes),
            Self::Cache(cache) => cache.allocate(bytes),
        }
    }

    /// Frees memory once everything enqueued on the streams is done. Does not block. Returns `false` if this order is
    /// impossible; the memory is then not freed.
    pub(crate) fn free(&self, address: u64, bytes: usize, after: &[&Arc<RawStream<V>>]) -> bool {
        match self {
            Self::Driver(pool) => pool.free(address, after).is_ok(),
            Self::Cache(cache) => {
                let after = after.iter().map(|stream| stream.mark()).collect();
                // If the library refuses to free a block, the block stays in the cache.
                let _ = cache.free(address, bytes, after);
                true
            }
        }
    }

    /// The object to release memory that cannot be freed in the order of streams.
    pub(crate) fn object(&self, address: u64) -> Object {
        match self {
            Self::Driver(pool) => pool.object(address),
            Self::Cache(_) => Object::Memory(address),
        }
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        match self {
            Self::Driver(pool) => pool.reserved(),
            Self::Cache(cache) => cache.reserved_bytes(),
        }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        match self {
            Self::Driver(pool) => pool.used(),
            Self::Cache(cache) => cache.used_bytes(),
        }
    }

    pub(crate) fn trim(&self, keep: usize) -> Result<(), u32> {
        match self {
            Self::Driver(pool) => pool.trim(keep),
            Self::Cache(cache) => cache.shrink(keep),
        }
    }
}
