//! Allocating and freeing.

use std::sync::Arc;

use super::Engine;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::fault::Class;
use crate::host::Host;
use crate::space::{Allocation, FRESH, Kind, to_usize};

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
        let memory = memory.ok_or(Code::INVALID_VALUE)?;
        if memory.pool().is_some() {
            // Memory of a pool survives a failed context, and must be freed later.
            context.check()?;
        }
        if context.check().is_ok() {
            memory.freed(None, &self.host_clock(), &self.state.report)?;
        }
        self.all_streams(&memory.context).iter().for_each(|stream| stream.drain());
        self.state.space.remove(&memory);
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
