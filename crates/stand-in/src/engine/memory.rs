//! Allocating and freeing.
#![expect(unsafe_code, reason = "registers memory of the program")]

use std::ptr::NonNull;
use std::sync::Arc;

use super::Engine;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::fault::Class;
use crate::host::Host;
use crate::space::{Allocation, FRESH, Kind, to_usize};

/// The size of a page of host memory.
const PAGE: u64 = 4096;

/// The properties of the allocation that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressInfo {
    /// The start of the allocation.
    pub base: u64,
    /// Its size in bytes.
    pub len: usize,
    /// The number of the device on which it was allocated.
    pub device: usize,
    /// The handle of the context in which it was allocated.
    pub context: u64,
    /// The handle of its pool, if it belongs to one.
    pub pool: Option<u64>,
    /// Whether it is pinned host memory.
    pub is_pinned: bool,
    /// Whether it is unified memory.
    pub is_managed: bool,
}

impl Engine {
    /// Allocates device memory.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for no bytes, or [`Code::OUT_OF_MEMORY`].
    pub fn allocate(&self, context: &Arc<Context>, bytes: usize) -> Result<u64> {
        self.admit_allocation(context, bytes)?;
        let budget = Arc::clone(&self.device(context.device())?.budget);
        budget.take(bytes)?;
        Ok(self.state.space.allocate(bytes, Kind::Device(budget), context)?.range.start)
    }

    /// Allocates memory that the host and devices can access.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    pub fn allocate_managed(&self, context: &Arc<Context>, bytes: usize) -> Result<u64> {
        self.admit_allocation(context, bytes)?;
        let budget = Arc::clone(&self.device(context.device())?.budget);
        let host = Host::map(bytes)?;
        budget.take(bytes)?;
        Ok(self.insert_host(host, bytes, Kind::Managed(budget), context))
    }

    /// Allocates pinned host memory. Devices access it at the same address.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    pub fn allocate_pinned(&self, context: &Arc<Context>, bytes: usize) -> Result<u64> {
        self.admit_allocation(context, bytes)?;
        // More than a device has, but never all memory of the machine.
        if bytes > self.state.config.memory.saturating_mul(4) {
            return Err(Code::OUT_OF_MEMORY);
        }
        Ok(self.insert_host(Host::map(bytes)?, bytes, Kind::Pinned, context))
    }

    /// Page-locks memory of the program: all pages that hold one of the bytes. Devices access it at the same address.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate). [`Code::HOST_MEMORY_ALREADY_REGISTERED`] if a page is locked already.
    ///
    /// # Safety
    ///
    /// The memory stays until it is unregistered.
    pub unsafe fn register(
        &self,
        context: &Arc<Context>,
        start: *mut u8,
        bytes: usize,
    ) -> Result<()> {
        self.admit_allocation(context, bytes)?;
        let start = NonNull::new(start).ok_or(Code::INVALID_VALUE)?;
        if bytes > self.state.config.memory.saturating_mul(4) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let first = start.addr().get() as u64;
        let end = first.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE)?;
        let space = &self.state.space;
        if space.is_reserved(first) {
            return Err(Code::INVALID_VALUE);
        }
        if space.touches(first / PAGE * PAGE..end.next_multiple_of(PAGE)) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        // SAFETY: the caller keeps the memory.
        let host = unsafe { Host::of(start, bytes) };
        space.insert_host(host, bytes, Kind::Registered, context);
        Ok(())
    }

    /// Unlocks memory of the program, after all work of the context is finished.
    ///
    /// # Errors
    ///
    /// [`Code::HOST_MEMORY_NOT_REGISTERED`] for memory that is not registered. [`Code::INVALID_VALUE`] for an address
    /// inside registered memory, and for memory that was allocated.
    pub fn unregister(&self, context: &Arc<Context>, address: u64) -> Result<()> {
        let memory = self.state.space.at(address).ok_or_else(|| {
            let message = format!("no registered memory at {address:#x}");
            self.state.report.violation("bad unregister", message);
            Code::HOST_MEMORY_NOT_REGISTERED
        })?;
        if !memory.is_registered() || memory.range.start != address {
            return Err(Code::INVALID_VALUE);
        }
        self.give_back(context, &memory)
    }

    pub(super) fn admit_allocation(&self, context: &Context, bytes: usize) -> Result<()> {
        self.admit(Class::Alloc, context)?;
        if bytes == 0 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    fn insert_host(&self, host: Host, bytes: usize, kind: Kind, context: &Arc<Context>) -> u64 {
        let memory = self.state.space.insert_host(host, bytes, kind, context);
        memory.bytes.fill(0, bytes, &[FRESH]);
        memory.range.start
    }

    /// Frees device memory, after all work of the context is finished.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless an allocation starts at the address.
    pub fn free(&self, context: &Arc<Context>, address: u64) -> Result<()> {
        self.free_now(context, address, false)
    }

    /// Frees pinned host memory, after all work of the context is finished.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless an allocation starts at the address.
    pub fn free_pinned(&self, context: &Arc<Context>, address: u64) -> Result<()> {
        self.free_now(context, address, true)
    }

    fn free_now(&self, context: &Arc<Context>, address: u64, is_pinned: bool) -> Result<()> {
        let memory = self.allocation(address).filter(|memory| memory.is_pinned() == is_pinned);
        let memory = memory.filter(|memory| !memory.is_registered()).ok_or(Code::INVALID_VALUE)?;
        self.give_back(context, &memory)
    }

    fn give_back(&self, context: &Arc<Context>, memory: &Arc<Allocation>) -> Result<()> {
        if memory.pool().is_some() {
            // Memory of a pool survives a failed context, and must be freed later.
            context.check()?;
        }
        if context.check().is_ok() {
            memory.freed(None, &self.host_clock(), &self.state.report)?;
        }
        self.all_streams(&memory.context).iter().for_each(|stream| stream.drain());
        self.state.space.remove(memory);
        context.check()
    }

    /// The allocation that starts at an address. If there is none, this is a violation.
    pub(super) fn allocation(&self, address: u64) -> Option<Arc<Allocation>> {
        let memory = self.state.space.at(address).filter(|memory| memory.range.start == address);
        if memory.is_none() {
            let message = format!("no allocation begins at {address:#x}");
            self.state.report.violation("bad free", message);
        }
        memory
    }

    /// The allocation that contains an address.
    pub fn memory_at(&self, address: u64) -> Option<AddressInfo> {
        let memory = self.state.space.at(address).filter(|memory| !memory.was_freed())?;
        Some(AddressInfo {
            base: memory.range.start,
            len: memory.len(),
            device: memory.context.device(),
            context: memory.context.handle(),
            pool: memory.pool(),
            is_pinned: memory.is_pinned(),
            is_managed: memory.is_managed(),
        })
    }

    /// The allocation that contains a range, and the offset of the range in it. Freed memory is refused.
    pub(super) fn range(&self, address: u64, bytes: usize) -> Result<(Arc<Allocation>, usize)> {
        let memory = self.state.space.at(address);
        let fits = |memory: &Arc<Allocation>| memory.range.end - address >= bytes as u64;
        let memory = memory.filter(fits).filter(|memory| !memory.was_freed()).ok_or_else(|| {
            let message = format!("{bytes} bytes at {address:#x} are in no allocation");
            self.state.report.violation("bad range", message);
            Code::INVALID_VALUE
        })?;
        let offset = to_usize(address - memory.range.start);
        Ok((memory, offset))
    }
}
