//! Where device memory comes from: a memory pool of the driver, or a cache over plain allocations.
#![expect(unsafe_code, reason = "allocates through the driver")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{mem, ptr};

use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
};

use crate::context::{Context, Mark, RawStream, ok};
use crate::lock;

/// Most bytes that a cache keeps for later.
const MOST_CACHED: usize = 1 << 30;

/// Where device memory comes from.
#[derive(Debug)]
pub(crate) enum Pool {
    Driver(DriverPool),
    Cache(Cache),
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
        let driver = context.driver;
        context.bind()?;
        // SAFETY: every field may be 0: none, invalid, null.
        let mut properties: CUmemPoolProps = unsafe { mem::zeroed() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location(context);
        let mut raw = ptr::null_mut();
        // SAFETY: the properties are read by the call, and the handle is written to where it may be.
        ok(unsafe { (driver.cuMemPoolCreate)(&mut raw, &properties) })?;
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
        // SAFETY: the stream is alive.
        ok(unsafe { (driver.cuStreamSynchronize)(stream) })?;
        Ok(address)
    }

    fn free(&self, address: CUdeviceptr, after: &[&RawStream]) -> Result<(), u32> {
        let stream = match after {
            [] => &*self.allocating,
            [stream] if Arc::ptr_eq(stream.context(), self.context()) => stream,
            _ => {
                for stream in after {
                    self.freeing.wait(stream.mark()?.raw())?;
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
        self.context().bind()?;
        let least = used.saturating_add(keep);
        // SAFETY: the pool is alive.
        ok(unsafe { (self.context().driver.cuMemPoolTrimTo)(self.raw, least) })
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
        // SAFETY: the pool is alive, and the one description is read by the call.
        let code = unsafe { (self.context().driver.cuMemPoolSetAccess)(self.raw, &access, 1) };
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
        if self.context().bind().is_ok() {
            // SAFETY: nobody allocates any more; the driver keeps what is not free yet for as long.
            let code = unsafe { (self.context().driver.cuMemPoolDestroy)(self.raw) };
            self.context().note(code);
        }
    }
}

fn location(context: &Context) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device }
}

/// Plain allocations, kept to be used again once the work that used them is over: allocating and freeing by the driver
/// waits for the whole device.
#[derive(Debug)]
pub(crate) struct Cache {
    context: Arc<Context>,
    /// Bytes taken from the driver.
    reserved: AtomicUsize,
    /// Oldest first.
    blocks: Mutex<Vec<Block>>,
}

#[derive(Debug)]
struct Block {
    address: CUdeviceptr,
    bytes: usize,
    after: Vec<Mark>,
}

impl Block {
    fn is_over(&self) -> bool {
        self.after.iter().all(Mark::is_over)
    }
}

impl Cache {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let (reserved, blocks) = Default::default();
        Self { context: Arc::clone(context), reserved, blocks }
    }

    /// What is allocated for a request, so that requests of about one size find one another's blocks.
    fn class(bytes: usize) -> usize {
        let step = (1 << bytes.max(1).ilog2()) / 8;
        let step = step.max(512);
        bytes.checked_next_multiple_of(step).unwrap_or(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, u32> {
        let bytes = Self::class(bytes);
        let mut blocks = lock(&self.blocks);
        if let Some(at) = blocks.iter().position(|b| b.bytes == bytes && b.is_over()) {
            return Ok(blocks.remove(at).address);
        }
        drop(blocks);
        self.context.bind()?;
        let mut address = 0;
        // SAFETY: the address is written to where it may be.
        ok(unsafe { (self.context.driver.cuMemAlloc_v2)(&mut address, bytes) })?;
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        Ok(address)
    }

    fn free(&self, address: CUdeviceptr, bytes: usize, after: &[&RawStream]) -> Result<(), u32> {
        let after = after.iter().map(|stream| stream.mark()).collect::<Result<_, _>>()?;
        lock(&self.blocks).push(Block { address, bytes: Self::class(bytes), after });
        self.shrink(MOST_CACHED)
    }

    /// Frees the oldest blocks that nothing uses any more, until they have at most `keep` bytes.
    fn shrink(&self, keep: usize) -> Result<(), u32> {
        let mut blocks = lock(&self.blocks);
        let mut kept = blocks.iter().map(|block| block.bytes).sum::<usize>();
        let gone: Vec<Block> = blocks
            .extract_if(.., |block| {
                let goes = kept > keep && block.is_over();
                kept -= if goes { block.bytes } else { 0 };
                goes
            })
            .collect();
        drop(blocks);
        gone.into_iter().try_for_each(|block| self.give_back(&block))
    }

    fn give_back(&self, block: &Block) -> Result<(), u32> {
        self.reserved.fetch_sub(block.bytes, Ordering::Relaxed);
        self.context.bind()?;
        // SAFETY: the memory is this cache's, and the work that used it is over.
        ok(unsafe { (self.context.driver.cuMemFree_v2)(block.address) })
    }

    /// Bytes that can be used again now.
    fn free_bytes(&self) -> usize {
        lock(&self.blocks).iter().filter(|block| block.is_over()).map(|block| block.bytes).sum()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let blocks = mem::take(self.blocks.get_mut().unwrap_or_else(|e| e.into_inner()));
        for block in blocks {
            block.after.iter().for_each(Mark::wait);
            if self.context.fault().is_none()
                && let Err(code) = self.give_back(&block)
            {
                self.context.note(code);
            }
        }
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

    /// Gives memory back once everything enqueued on the streams is done. Does not block.
    pub(crate) fn free(
        &self,
        address: CUdeviceptr,
        bytes: usize,
        after: &[&RawStream],
    ) -> Result<(), u32> {
        match self {
            Self::Driver(pool) => pool.free(address, after),
            Self::Cache(cache) => cache.free(address, bytes, after),
        }
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        match self {
            Self::Driver(pool) => {
                pool.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
            }
            Self::Cache(cache) => cache.reserved.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        match self {
            Self::Driver(pool) => pool.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
            Self::Cache(cache) => self.reserved_bytes().saturating_sub(cache.free_bytes()),
        }
    }

    pub(crate) fn trim(&self, keep: usize) -> Result<(), u32> {
        match self {
            Self::Driver(pool) => pool.trim(keep),
            Self::Cache(cache) => cache.shrink(keep),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        assert_eq!(Cache::class(1), 512);
        assert_eq!(Cache::class(512), 512);
        for bytes in [5_000, 1 << 20, (1 << 20) + 1, 123_456_789] {
            let class = Cache::class(bytes);
            assert!(class >= bytes && class - bytes <= bytes / 8 + 512, "{bytes} became {class}");
            assert_eq!(Cache::class(class), class);
        }
        assert_eq!(Cache::class(usize::MAX), usize::MAX);
    }
}
