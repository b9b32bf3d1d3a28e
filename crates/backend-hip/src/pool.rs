//! Where device memory comes from: a memory pool of the runtime, or a cache over plain allocations.
#![expect(unsafe_code, reason = "allocates through the runtime")]

use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::{mem, ptr};

use backend_support::{BlockCache, Heap};
use hip_sys::hiprt::{
    hipMemAccessDesc, hipMemAccessFlags, hipMemAllocationType, hipMemLocation, hipMemLocationType,
    hipMemPool_t, hipMemPoolAttr, hipMemPoolProps,
};

use crate::codes;
use crate::context::{Context, allocated, ok, pointer};
use crate::library::PoolFunctions;
use crate::lock;
use crate::raw_stream::{Mark, RawStream};

/// Where device memory comes from.
#[derive(Debug)]
pub(crate) enum Pool {
    Driver(DriverPool),
    Cache(BlockCache<Context>),
}

/// A memory pool of the runtime. Frees are ordered in streams; allocations are ready when they return.
#[derive(Debug)]
pub(crate) struct DriverPool {
    raw: hipMemPool_t,
    functions: &'static PoolFunctions,
    /// The device's own stream. Waiting for it costs next to nothing, and then memory can be used on any stream.
    allocating: Arc<RawStream>,
    /// Where memory is freed that several streams used: it waits for them.
    freeing: Arc<RawStream>,
    /// Devices, by number, that reach the pool's memory.
    reached: Mutex<Vec<usize>>,
}

// SAFETY: the runtime's functions on pools may be called from any thread.
unsafe impl Send for DriverPool {}
// SAFETY: as above.
unsafe impl Sync for DriverPool {}

impl DriverPool {
    /// A pool of its own, which keeps what is freed until it is trimmed.
    pub(crate) fn new(service: &Arc<RawStream>, freeing: Arc<RawStream>) -> Result<Self, u32> {
        let context = service.context();
        let functions = context.library.pools.as_ref().ok_or(codes::NOT_SUPPORTED)?;
        context.bind()?;
        // SAFETY: every field may be 0: none, invalid, null.
        let mut properties: hipMemPoolProps = unsafe { mem::zeroed() };
        properties.allocType = hipMemAllocationType::hipMemAllocationTypePinned;
        properties.location = location(context);
        let mut raw = ptr::null_mut();
        // SAFETY: the properties are read by the call, and the handle is written to where it may be.
        ok(unsafe { (functions.hipMemPoolCreate)(&mut raw, &properties) })?;
        let (allocating, reached) = (Arc::clone(service), Mutex::default());
        let pool = Self { raw, functions, allocating, freeing, reached };
        pool.set(hipMemPoolAttr::hipMemPoolAttrReleaseThreshold, u64::MAX)?;
        // Otherwise an allocation could wait, in its stream, for whatever holds up the memory it gets.
        pool.set(hipMemPoolAttr::hipMemPoolReuseAllowInternalDependencies, 0_i32)?;
        Ok(pool)
    }

    fn set<T>(&self, attribute: hipMemPoolAttr, mut value: T) -> Result<(), u32> {
        let value = (&raw mut value).cast::<c_void>();
        // SAFETY: the value has the type that the attribute has, and is read by the call.
        ok(unsafe { (self.functions.hipMemPoolSetAttribute)(self.raw, attribute, value) })
    }

    fn get(&self, attribute: hipMemPoolAttr) -> usize {
        let mut value = 0_u64;
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: the attributes asked for are numbers of 64 bits, which are written to where they may be.
        let code = unsafe { (self.functions.hipMemPoolGetAttribute)(self.raw, attribute, place) };
        self.context().note(code);
        usize::try_from(value).unwrap_or(usize::MAX)
    }

    fn context(&self) -> &Arc<Context> {
        self.allocating.context()
    }

    fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        let functions = self.functions;
        let (mut memory, stream) = (ptr::null_mut(), self.allocating.raw());
        self.context().bind()?;
        // SAFETY: pool and stream are alive and of one device; the address is written to where it may be.
        ok(unsafe { (functions.hipMallocFromPoolAsync)(&mut memory, bytes, self.raw, stream) })?;
        let address = allocated(memory, bytes)?;
        match self.allocating.synchronize() {
            Ok(()) => Ok(address),
            Err(code) => {
                // On the same stream, and so once it is allocated.
                let _ = self.free(address, &[]);
                Err(code)
            }
        }
    }

    fn free(&self, address: u64, after: &[&Arc<RawStream>]) -> Result<(), u32> {
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
        ok(unsafe { (self.functions.hipFreeAsync)(pointer(address), stream.raw()) })
    }

    fn trim(&self, keep: usize) -> Result<(), u32> {
        self.context().bind()?;
        // The runtime counts what is free alone, where CUDA's driver counts all that is reserved.
        // SAFETY: the pool is alive.
        ok(unsafe { (self.functions.hipMemPoolTrimTo)(self.raw, keep) })
    }

    /// Lets another device's copies reach the pool's memory directly, where the hardware can.
    pub(crate) fn let_reach(&self, peer: &Context) {
        let mut reached = lock(&self.reached);
        if reached.contains(&peer.ordinal) {
            return;
        }
        let access = hipMemAccessDesc {
            location: location(peer),
            flags: hipMemAccessFlags::hipMemAccessFlagsProtReadWrite,
        };
        // SAFETY: the pool is alive, and the one description is read by the call.
        let code = unsafe { (self.functions.hipMemPoolSetAccess)(self.raw, &access, 1) };
        if code != 0 {
            // The runtime stages copies then.
            let error = self.context().hip.name(code);
            tracing::debug!(peer = peer.ordinal, error, "a pool is not reached directly");
        }
        reached.push(peer.ordinal);
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        // After a fault it goes when the device is reset.
        if self.context().fault().is_none() && self.context().bind().is_ok() {
            // SAFETY: nobody allocates any more; the runtime keeps what is not free yet for as long.
            let code = unsafe { (self.functions.hipMemPoolDestroy)(self.raw) };
            self.context().note(code);
        }
    }
}

fn location(context: &Context) -> hipMemLocation {
    hipMemLocation { type_: hipMemLocationType::hipMemLocationTypeDevice, id: context.device }
}

impl Heap for Context {
    type Mark = Mark;

    fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        let mut memory = ptr::null_mut();
        // SAFETY: the address is written to where it may be.
        ok(self.apart(|hip| unsafe { (hip.hipMalloc)(&mut memory, bytes) }))?;
        allocated(memory, bytes)
    }

    fn free(&self, address: u64) -> Result<(), u32> {
        if self.fault().is_some() {
            // It goes when the device is reset.
            return Ok(());
        }
        // SAFETY: the cache gives up memory of its own, and the work that used it is over.
        let code = self.apart(|hip| unsafe { (hip.hipFree)(pointer(address)) });
        self.note(code);
        ok(code)
    }
}

impl Pool {
    /// Memory that any stream can use at once.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        match self {
            Self::Driver(pool) => pool.allocate(bytes),
            Self::Cache(cache) => cache.allocate(bytes),
        }
    }

    /// Gives memory back once everything enqueued on the streams is done. Does not block. `false` where that cannot be
    /// ordered, and nothing has become of the memory.
    pub(crate) fn free(&self, address: u64, bytes: usize, after: &[&Arc<RawStream>]) -> bool {
        match self {
            Self::Driver(pool) => pool.free(address, after).is_ok(),
            Self::Cache(cache) => {
                let after = after.iter().map(|stream| stream.mark()).collect();
                // A block that the runtime does not take stays in the cache.
                let _ = cache.free(address, bytes, after);
                true
            }
        }
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        match self {
            Self::Driver(pool) => pool.get(hipMemPoolAttr::hipMemPoolAttrReservedMemCurrent),
            Self::Cache(cache) => cache.reserved_bytes(),
        }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        match self {
            Self::Driver(pool) => pool.get(hipMemPoolAttr::hipMemPoolAttrUsedMemCurrent),
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
