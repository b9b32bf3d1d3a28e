//! Allocating and freeing.
#![expect(unsafe_code, reason = "makes memory of the program's known to devices")]

use std::ptr::NonNull;
use std::sync::Arc;

use crate::code::{Code, Result};
use crate::context::Context;
use crate::engine::Engine;
use crate::fault::Class;
use crate::host::Host;
use crate::pool::Pool;
use crate::space::{Allocation, FRESH, Kind, to_usize};
use crate::work::Work;

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where its allocation begins.
    pub base: u64,
    /// How many bytes that has.
    pub len: usize,
    /// Number of the device of the context that it was made in.
    pub device: usize,
    /// Handle of that context.
    pub context: u64,
    /// Handle of its pool, if it is of one.
    pub pool: Option<u64>,
    /// Whether it counts as host memory.
    pub is_pinned: bool,
    /// Whether the host addresses it.
    pub is_hosted: bool,
}

impl Engine {
    /// Allocates memory of a device.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for no bytes, or [`Code::OUT_OF_MEMORY`].
    pub fn allocate(&self, context: &Arc<Context>, bytes: usize) -> Result<u64> {
        self.admit_allocation(context, bytes)?;
        let budget = self.budget(context.device())?;
        budget.take(bytes)?;
        Ok(self.shared.space.allocate(bytes, Kind::Device(budget), context)?.range.start)
    }

    /// Allocates memory that host and devices address.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    pub fn allocate_managed(&self, context: &Arc<Context>, bytes: usize) -> Result<u64> {
        self.admit_allocation(context, bytes)?;
        let budget = self.budget(context.device())?;
        let host = Host::map(bytes)?;
        budget.take(bytes)?;
        Ok(self.adopt(host, bytes, Kind::Managed(budget), context))
    }

    /// Allocates host memory that devices address, at the same address.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    pub fn allocate_pinned(&self, context: &Arc<Context>, bytes: usize) -> Result<u64> {
        self.admit_allocation(context, bytes)?;
        // More than a device has, but not so much that somebody takes all of the host's.
        if bytes > self.shared.config.memory.saturating_mul(4) {
            return Err(Code::OUT_OF_MEMORY);
        }
        Ok(self.adopt(Host::map(bytes)?, bytes, Kind::Pinned, context))
    }

    fn admit_allocation(&self, context: &Context, bytes: usize) -> Result<()> {
        self.admit(Class::Alloc, context)?;
        if bytes == 0 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    fn adopt(&self, host: Host, bytes: usize, kind: Kind, context: &Arc<Context>) -> u64 {
        let memory = self.shared.space.adopt(host, bytes, kind, context);
        memory.bytes.fill(0, bytes, &[FRESH]);
        memory.range.start
    }

    /// Makes memory of the program's known to devices.
    ///
    /// # Errors
    ///
    /// [`Code::HOST_MEMORY_ALREADY_REGISTERED`] if some of it is known.
    ///
    /// # Safety
    ///
    /// It stays until [`unregister`](Self::unregister), and all work on it is over then.
    pub unsafe fn register(
        &self,
        context: &Arc<Context>,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<()> {
        self.admit_allocation(context, bytes)?;
        let first = start.addr().get() as u64;
        let last = first.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE)?;
        if self.shared.space.touches(first..last) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        // SAFETY: the caller vouches for the memory.
        let host = unsafe { Host::borrow(start, bytes) };
        self.shared.space.adopt(host, bytes, Kind::Registered, context);
        Ok(())
    }

    /// Devices know memory of the program's no longer.
    ///
    /// # Errors
    ///
    /// [`Code::HOST_MEMORY_NOT_REGISTERED`].
    pub fn unregister(&self, context: &Arc<Context>, address: u64) -> Result<()> {
        context.check()?;
        let registered = |memory: &Allocation| matches!(memory.kind, Kind::Registered);
        self.free_now(context, address, registered, Code::HOST_MEMORY_NOT_REGISTERED)
    }

    /// Frees memory of a device, and waits for all work of the context.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless an allocation begins there.
    pub fn free(&self, context: &Arc<Context>, address: u64) -> Result<()> {
        self.free_now(context, address, |memory| !memory.is_pinned(), Code::INVALID_VALUE)?;
        context.check()
    }

    /// Frees host memory, and waits for all work of the context.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless an allocation begins there.
    pub fn free_pinned(&self, context: &Arc<Context>, address: u64) -> Result<()> {
        let pinned = |memory: &Allocation| matches!(memory.kind, Kind::Pinned);
        self.free_now(context, address, pinned, Code::INVALID_VALUE)?;
        context.check()
    }

    fn free_now(
        &self,
        context: &Arc<Context>,
        address: u64,
        is_meant: impl Fn(&Allocation) -> bool,
        otherwise: Code,
    ) -> Result<()> {
        let memory = self.beginning(address).filter(|memory| is_meant(memory)).ok_or(otherwise)?;
        if memory.pool().is_some() {
            // Unlike memory of a context, it does not go with one that has failed.
            context.check()?;
        }
        if context.check().is_ok() {
            memory.freed(None, &self.known(), &self.shared.report)?;
        }
        self.all_streams(&memory.context).iter().for_each(|stream| stream.drain());
        self.shared.space.remove(&memory);
        Ok(())
    }

    /// The allocation that begins at an address; that there is none is a violation.
    fn beginning(&self, address: u64) -> Option<Arc<Allocation>> {
        let memory = self.shared.space.at(address).filter(|memory| memory.range.start == address);
        if memory.is_none() {
            let message = format!("no allocation begins at {address:#x}");
            self.shared.report.violation("bad free", message);
        }
        memory
    }

    /// Allocates memory of a pool. Work that is ordered after what the stream does may use it.
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
        if let Some(code) = stream.with_capture(|captured| captured.as_ref().map(|c| c.spoil())) {
            return Err(code);
        }
        pool.take(bytes).or_else(|_| {
            // Memory whose free comes before in the stream can be had.
            stream.drain();
            pool.take(bytes)
        })?;
        let memory = self.shared.space.allocate(bytes, Kind::Pool(Arc::clone(&pool)), context)?;
        stream.submit(Work::Allocate(Arc::clone(&memory)), None)?;
        Ok(memory.range.start)
    }

    /// Frees memory of a device after what the stream does.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless an allocation begins there.
    pub fn free_in(&self, context: &Arc<Context>, address: u64, stream: u64) -> Result<()> {
        context.check()?;
        let stream = self.stream_in(context, stream)?;
        let memory = self.beginning(address).ok_or(Code::INVALID_VALUE)?;
        if memory.is_hosted() {
            return Err(Code::INVALID_VALUE);
        }
        stream.submit(Work::Free(memory), None)?;
        context.check()
    }

    /// What an address lies in.
    pub fn memory_at(&self, address: u64) -> Option<Found> {
        let memory = self.shared.space.at(address).filter(|memory| !memory.was_freed())?;
        Some(Found {
            base: memory.range.start,
            len: memory.len(),
            device: memory.context.device(),
            context: memory.context.handle(),
            pool: memory.pool(),
            is_pinned: memory.is_pinned(),
            is_hosted: memory.is_hosted(),
        })
    }

    /// The allocation of a range and where it is in it; memory that is freed cannot be used.
    pub(crate) fn range(&self, address: u64, bytes: usize) -> Result<(Arc<Allocation>, usize)> {
        let found = self.shared.space.at(address);
        let fits = |memory: &Arc<Allocation>| memory.range.end - address >= bytes as u64;
        let found = found.filter(fits).filter(|memory| !memory.was_freed()).ok_or_else(|| {
            let message = format!("{bytes} bytes at {address:#x} are in no allocation");
            self.shared.report.violation("bad range", message);
            Code::INVALID_VALUE
        })?;
        let at = to_usize(address - found.range.start);
        Ok((found, at))
    }

    /// Makes a pool on a device.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn pool_create(&self, device: usize) -> Result<u64> {
        let budget = self.budget(device)?;
        Ok(self.pools.insert_with(|handle| Pool::new(device, handle, &budget, false)).0)
    }

    /// A pool.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn pool(&self, handle: u64) -> Result<Arc<Pool>> {
        self.find(&self.pools, handle)
    }

    /// Ends a pool; memory of it stays until it is freed.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`], or [`Code::INVALID_VALUE`] for the default pool of a device.
    pub fn pool_destroy(&self, handle: u64) -> Result<()> {
        let pool = self.pool(handle)?;
        if pool.is_default {
            return Err(Code::INVALID_VALUE);
        }
        self.forget(&self.pools, handle)?.destroy();
        Ok(())
    }
}
