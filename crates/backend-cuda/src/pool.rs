//! Where device memory comes from: a memory pool of the driver, or a cache over plain allocations.
#![expect(unsafe_code, reason = "allocates through the driver")]

use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::{mem, ptr};

use backend_support::{BlockCache, Heap};
use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
};

use crate::context::{Context, ok};
use crate::left::Pooled;
use crate::lock;
use crate::raw_stream::{Mark, RawStream};
use crate::reaper::Object;

/// Where device memory comes from.
#[derive(Debug)]
pub(crate) enum Pool {
    Driver(DriverPool),
    Cache(BlockCache<Context>),
}

/// A memory pool of the driver. Frees are ordered in streams; allocations are ready when they return.
#[derive(Debug)]
pub(crate) struct DriverPool {
    raw: CUmemoryPool,
    /// The device's own stream. Waiting for it costs next to nothing, and then memory can be used on any stream.
    allocating: Arc<RawStream>,
    /// Where memory is freed that several streams used: it waits for them.
    freeing: Arc<RawStream>,
    /// Devices, by number, that reach the pool's memory.
    reached: Mutex<Vec<usize>>,
}

// SAFETY: the driver's functions on pools may be called from any thread.
unsafe impl Send for DriverPool {}
// SAFETY: as above.
unsafe impl Sync for DriverPool {}

impl DriverPool {
    /// A pool of its own, which keeps what is freed until it is trimmed.
    pub(crate) fn new(service: &Arc<RawStream>, freeing: Arc<RawStream>) -> Result<Self, u32> {
        let context = service.context();
        // SAFETY: every field may be 0: none, invalid, null.
        let mut properties: CUmemPoolProps = unsafe { mem::zeroed() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location(context);
        let mut raw = ptr::null_mut();
        ok(context.apart(|driver| {
            // SAFETY: the properties are read by the call, and the handle is written to where it may be.
            unsafe { (driver.cuMemPoolCreate)(&mut raw, &properties) }
        }))?;
        let pool =
            Self { raw, allocating: Arc::clone(service), freeing, reached: Mutex::default() };
        pool.set(CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
        // Otherwise an allocation could wait, in its stream, for whatever holds up the memory it gets.
        pool.set(CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0_i32)?;
        Ok(pool)
    }

    fn set<T>(&self, attribute: CUmemPool_attribute, mut value: T) -> Result<(), u32> {
        let value = (&raw mut value).cast::<c_void>();
        // SAFETY: the value has the type that the attribute has, and is read by the call.
        ok(unsafe { (self.context().driver.cuMemPoolSetAttribute)(self.raw, attribute, value) })
    }

    fn get(&self, attribute: CUmemPool_attribute) -> usize {
        let mut value = 0_u64;
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: the attributes asked for are numbers of 64 bits, which are written to where they may be.
        let code =
            unsafe { (self.context().driver.cuMemPoolGetAttribute)(self.raw, attribute, place) };
        self.context().note(code);
        usize::try_from(value).unwrap_or(usize::MAX)
    }

    fn context(&self) -> &Arc<Context> {
        self.allocating.context()
    }

    fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, u32> {
        let driver = self.context().driver;
        let (mut address, stream) = (0, self.allocating.raw());
        self.context().bind()?;
        // SAFETY: pool and stream are alive and of one device; the address is written to where it may be.
        ok(unsafe { (driver.cuMemAllocFromPoolAsync)(&mut address, bytes, self.raw, stream) })?;
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

    fn free(&self, address: CUdeviceptr, after: &[&Arc<RawStream>]) -> Result<(), u32> {
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
        ok(unsafe { (self.context().driver.cuMemFreeAsync)(address, stream.raw()) })
    }

    fn trim(&self, keep: usize) -> Result<(), u32> {
        let used = self.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        let least = used.saturating_add(keep);
        // SAFETY: the pool is alive.
        ok(self.context().apart(|driver| unsafe { (driver.cuMemPoolTrimTo)(self.raw, least) }))
    }

    /// How memory is given back without a stream.
    fn object(&self, address: CUdeviceptr) -> Object {
        Object::Pooled(Pooled { address, pool: self.raw.addr() })
    }

    /// Lets another device's copies reach the pool's memory directly, where the hardware can.
    pub(crate) fn let_reach(&self, peer: &Context) {
        let mut reached = lock(&self.reached);
        if reached.contains(&peer.ordinal) {
            return;
        }
        let access = CUmemAccessDesc {
            location: location(peer),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let code = self.context().apart(|driver| {
            // SAFETY: the pool is alive, and the one description is read by the call.
            unsafe { (driver.cuMemPoolSetAccess)(self.raw, &access, 1) }
        });
        if code != 0 {
            // The driver stages copies then.
            let error = self.context().driver.name(code);
            tracing::debug!(peer = peer.ordinal, error, "a pool is not reached directly");
        }
        reached.push(peer.ordinal);
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        // Even after a fault: a pool is the device's, and does not go with the context.
        // SAFETY: nobody allocates any more; the driver keeps what is not free yet for as long.
        let code = self.context().apart(|driver| unsafe { (driver.cuMemPoolDestroy)(self.raw) });
        self.context().note(code);
    }
}

fn location(context: &Context) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device }
}

impl Heap for Context {
    type Mark = Mark;

    fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        let mut address = 0;
        // SAFETY: the address is written to where it may be.
        ok(self.apart(|driver| unsafe { (driver.cuMemAlloc_v2)(&mut address, bytes) }))?;
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<(), u32> {
        if self.fault().is_some() {
            // It goes with the context.
            return Ok(());
        }
        // SAFETY: the cache gives up memory of its own, and the work that used it is over.
        let code = self.apart(|driver| unsafe { (driver.cuMemFree_v2)(address) });
        self.note(code);
        ok(code)
    }
}

impl Pool {
    /// Memory that any stream can use at once.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, u32> {
        match self {
            Self::Driver(pool) => pool.allocate(bytes),
            Self::Cache(cache) => cache.allocate(bytes),
        }
    }

    /// Gives memory back once everything enqueued on the streams is done. Does not block. `false` where that cannot be
    /// ordered, and nothing has become of the memory.
    pub(crate) fn free(
        &self,
        address: CUdeviceptr,
        bytes: usize,
        after: &[&Arc<RawStream>],
    ) -> bool {
        match self {
            Self::Driver(pool) => pool.free(address, after).is_ok(),
            Self::Cache(cache) => {
                let after = after.iter().map(|stream| stream.mark()).collect();
                // A block that the driver does not take stays in the cache.
                let _ = cache.free(address, bytes, after);
                true
            }
        }
    }

    /// How memory is given back where it cannot be freed in the order of streams.
    pub(crate) fn object(&self, address: CUdeviceptr) -> Object {
        match self {
            Self::Driver(pool) => pool.object(address),
            Self::Cache(_) => Object::Memory(address),
        }
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        match self {
            Self::Driver(pool) => {
                pool.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
            }
            Self::Cache(cache) => cache.reserved_bytes(),
        }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        match self {
            Self::Driver(pool) => pool.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
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
