//! Where device memory comes from: a memory pool of the library, or a cache over plain allocations.
#![expect(unsafe_code, reason = "allocates through the library")]

use std::sync::{Arc, Mutex};

use backend_support::{BlockCache, Heap, lock};

use crate::api::Api;
use crate::context::Context;
use crate::handle;
use crate::raw_stream::{Mark, RawStream};
use crate::reaper::Object;
use crate::room::allocated;
use crate::vendor::Vendor;

/// Where device memory comes from.
#[derive(Debug)]
pub(crate) enum Pool<V: Vendor> {
    Driver(DriverPool<V>),
    Cache(BlockCache<Context<V>>),
}

/// A memory pool of the library. Frees are ordered in streams; allocations are ready when they return.
#[derive(Debug)]
pub(crate) struct DriverPool<V: Vendor> {
    raw: handle::Pool,
    /// The device's own stream. Waiting for it costs next to nothing, and then memory can be used on any stream.
    allocating: Arc<RawStream<V>>,
    /// Where memory is freed that several streams used: it waits for them.
    freeing: Arc<RawStream<V>>,
    /// Devices, by number, that reach the pool's memory.
    reached: Mutex<Vec<usize>>,
}

/// An allocation of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    /// Where it begins.
    pub address: u64,
    /// The pool.
    pub pool: handle::Pool,
}

impl<V: Vendor> DriverPool<V> {
    /// A pool of its own, which keeps what is freed until it is trimmed.
    pub(crate) fn new(
        service: &Arc<RawStream<V>>,
        freeing: Arc<RawStream<V>>,
    ) -> Result<Self, u32> {
        let context = service.context();
        let api = context.api;
        let raw = context.apart(|api| api.pool_create(context.device))?;
        let pool =
            Self { raw, allocating: Arc::clone(service), freeing, reached: Mutex::default() };
        // SAFETY: the pool is alive.
        unsafe { api.pool_set_threshold(raw, u64::MAX) }?;
        // Otherwise an allocation could wait, in its stream, for whatever holds up the memory it gets.
        // SAFETY: as above.
        unsafe { api.pool_set_internal_dependencies(raw, 0) }?;
        Ok(pool)
    }

    /// A number that is told of the pool.
    fn number(&self, told: Result<u64, u32>) -> usize {
        self.context().note(told);
        usize::try_from(told.unwrap_or(0)).unwrap_or(usize::MAX)
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
        let (api, stream) = (self.context().api, self.allocating.raw());
        self.context().bind()?;
        // SAFETY: pool and stream are alive and of one device.
        let address = allocated::<V>(unsafe { api.pool_allocate(self.raw, bytes, stream) }, bytes)?;
        match self.allocating.synchronize() {
            Ok(()) => Ok(address),
            Err(code) => {
                // On the same stream, and so once it is allocated.
                if self.free(address, &[]).is_err() {
                    self.context().abandon(&self.object(address));
                }
                Err(code)
            }
        }
    }

    fn free(&self, address: u64, after: &[&Arc<RawStream<V>>]) -> Result<(), u32> {
        let stream = match after {
            [] => &*self.allocating,
            [stream] if stream.is_own() && Arc::ptr_eq(stream.context(), self.context()) => stream,
            _ => {
                for stream in after {
                    match self.freeing.follow(stream) {
                        // What has failed for good does not go on.
                        Err(code) if stream.context().fault().is_none() => return Err(code),
                        _ => {}
                    }
                }
                &*self.freeing
            }
        };
        self.context().bind()?;
        // SAFETY: the memory is of this pool, and whatever uses it comes before in the stream.
        unsafe { self.context().api.pool_free(address, stream.raw()) }
    }

    fn trim(&self, keep: usize) -> Result<(), u32> {
        let used = if V::TRIM_COUNTS_USED { self.used() } else { 0 };
        let least = used.saturating_add(keep);
        // SAFETY: the pool is alive.
        self.context().apart(|api| unsafe { api.pool_trim(self.raw, least) })
    }

    /// How memory is given back without a stream.
    fn object(&self, address: u64) -> Object {
        Object::Pooled(Pooled { address, pool: self.raw })
    }

    /// Lets another device's copies reach the pool's memory directly, where the hardware can.
    pub(crate) fn let_reach(&self, peer: &Context<V>) {
        let mut reached = lock(&self.reached);
        if reached.contains(&peer.ordinal) {
            return;
        }
        // SAFETY: the pool is alive.
        let set = |api: &V::Api| unsafe { api.pool_let_reach(self.raw, peer.device) };
        if let Err(code) = self.context().apart(set) {
            // The library stages copies then.
            let error = self.context().api.name(code);
            tracing::debug!(peer = peer.ordinal, error, "a pool is not reached directly");
        }
        reached.push(peer.ordinal);
    }
}

impl<V: Vendor> Drop for DriverPool<V> {
    fn drop(&mut self) {
        if !V::POOLS_OUTLIVE_FAULTS && self.context().fault().is_some() {
            return;
        }
        // SAFETY: nobody allocates any more; the library keeps what is not free yet for as long.
        let destroyed = self.context().apart(|api| unsafe { api.pool_destroy(self.raw) });
        self.context().note(destroyed);
    }
}

impl<V: Vendor> Heap for Context<V> {
    type Mark = Mark<V>;

    fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        allocated::<V>(self.apart(|api| api.allocate(bytes)), bytes)
    }

    fn free(&self, address: u64) -> Result<(), u32> {
        if self.fault().is_some() {
            // It goes with the context.
            return Ok(());
        }
        // SAFETY: the cache gives up memory of its own, and the work that used it is over.
        let freed = self.apart(|api| unsafe { api.free(address) });
        self.note(freed);
        freed
    }
}

impl<V: Vendor> Pool<V> {
    /// Memory that any stream can use at once.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        match self {
            Self::Driver(pool) => pool.allocate(bytes),
            Self::Cache(cache) => cache.allocate(bytes),
        }
    }

    /// Gives memory back once everything enqueued on the streams is done. Does not block. `false` where that cannot be
    /// ordered, and nothing has become of the memory.
    pub(crate) fn free(&self, address: u64, bytes: usize, after: &[&Arc<RawStream<V>>]) -> bool {
        match self {
            Self::Driver(pool) => pool.free(address, after).is_ok(),
            Self::Cache(cache) => {
                let after = after.iter().map(|stream| stream.mark()).collect();
                // A block that the library does not take stays in the cache.
                let _ = cache.free(address, bytes, after);
                true
            }
        }
    }

    /// How memory is given back where it cannot be freed in the order of streams.
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
