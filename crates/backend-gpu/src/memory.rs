//! Device memory.
#![expect(
    unsafe_code,
    reason = "allocates through the library and implements the contract's memory traits"
)]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use runtime_core::contract::{DeviceMemory, DeviceStream, UnifiedMemory};
use runtime_core::contract::{MemoryAdoption, MemoryPool};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, OriginKind, Result};

use crate::allocation::{AlignedAllocation, allocated};
use crate::api::Api;
use crate::device::Device;
use crate::handle::pointer;
use crate::open_device::{OpenDevice, streams};
use crate::raw_stream::RawStream;
use crate::reaper::Object;
use crate::vendor::Vendor;

/// Device memory.
pub(crate) struct Memory<V: Vendor> {
    address: u64,
    bytes: usize,
    origin: Origin,
    vendor: PhantomData<V>,
}

/// The origin of memory, which determines how it is freed.
enum Origin {
    Pool(AlignedAllocation),
    Managed(AlignedAllocation),
    Adopted(Box<dyn Any + Send + Sync>),
}

impl<V: Vendor> Memory<V> {
    /// Allocates memory from the device's pool.
    pub(crate) fn allocate(shared: &OpenDevice<V>, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "memory_allocate";
        shared.check(OPERATION)?;
        let allocate = |bytes| shared.with_allocation(|| shared.pool.allocate(bytes));
        let give_back = |allocation: AlignedAllocation| {
            // Nothing has used it.
            if !shared.pool.free(allocation.address, allocation.bytes, &[]) {
                shared.retire(shared.pool.object(allocation.address), &[]);
            }
        };
        let allocation = AlignedAllocation::new::<V>(bytes, allocate, give_back)
            .map_err(|code| shared.error(OPERATION, code, format_args!("{bytes} bytes")))?;
        Ok(Self::of(allocation.first(), bytes, Origin::Pool(allocation)))
    }

    /// Allocates memory that the host can address too.
    fn managed(shared: &OpenDevice<V>, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "unified_allocate";
        shared.check(OPERATION)?;
        let attempt = |bytes| {
            let managed = shared.context.outside_captures(|api| api.allocate_managed(bytes));
            allocated::<V>(managed, bytes)
        };
        let allocate = |bytes| shared.with_allocation(|| attempt(bytes));
        let give_back =
            |allocation: AlignedAllocation| shared.retire(Object::Memory(allocation.address), &[]);
        let allocation = AlignedAllocation::new::<V>(bytes, allocate, give_back)
            .map_err(|code| shared.error(OPERATION, code, format_args!("{bytes} bytes")))?;
        Ok(Self::of(allocation.first(), bytes, Origin::Managed(allocation)))
    }

    fn of(address: u64, bytes: usize, origin: Origin) -> Self {
        Self { address, bytes, origin, vendor: PhantomData }
    }

    /// Frees the memory once everything enqueued on the streams is done.
    pub(crate) fn free(self, shared: &OpenDevice<V>, after: &[&dyn DeviceStream]) {
        match self.origin {
            Origin::Pool(allocation) if shared.context.fault().is_some() => {
                shared.context.abandon(shared.pool.object(allocation.address));
            }
            Origin::Pool(allocation) => {
                let used: Streams<'_, V> = streams(after).collect();
                if !shared.pool.free(allocation.address, allocation.bytes, &used) {
                    shared.retire(shared.pool.object(allocation.address), after);
                }
            }
            Origin::Managed(allocation) => shared.retire(Object::Memory(allocation.address), after),
            Origin::Adopted(owner) => shared.retire_owner(owner, after),
        }
    }

    /// The address `offset` bytes after the first.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> u64 {
        self.address.wrapping_add(offset as u64)
    }

    /// Whether the memory belongs to the device's own pool.
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self.origin, Origin::Pool(_))
    }
}

/// The streams that used a memory. Usually few.
type Streams<'a, V> = smallvec::SmallVec<[&'a Arc<RawStream<V>>; 8]>;

// SAFETY: memory has the requested length. Managed memory keeps its address, and the host may use the address while
// kernels run, because only devices that report this ability allocate managed memory.
unsafe impl<V: Vendor> DeviceMemory for Memory<V> {
    fn len(&self) -> usize {
        self.bytes
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        match self.origin {
            Origin::Managed(_) => Some(pointer(self.address)),
            Origin::Pool(_) | Origin::Adopted(_) => None,
        }
    }

    fn native(&self) -> NativeHandle {
        let raw = usize::try_from(self.address).unwrap_or(usize::MAX);
        NativeHandle { api: V::WORDS.backend, kind: NativeKind::Pointer, raw }
    }
}

impl<V: Vendor> fmt::Debug for Memory<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.address)
    }
}

impl<V: Vendor> UnifiedMemory for Device<V> {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(Memory::<V>::managed(&self.shared, bytes)?))
    }
}

impl<V: Vendor> MemoryAdoption for Device<V> {
    unsafe fn adopt(
        &self,
        handle: NativeHandle,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Box<dyn DeviceMemory>> {
        let shared = &self.shared;
        shared.check("memory_adopt")?;
        let refuse = |message: String| {
            Err(Error::new(ErrorKind::InvalidArgument, "memory_adopt", message).on(&shared.id))
        };
        if (handle.api, handle.kind) != (V::WORDS.backend, NativeKind::Pointer) {
            return refuse(format!("{handle:?} is no address of {}", V::WORDS.interface));
        }
        let address = handle.raw as u64;
        let Some(known) = V::address_info(&shared.context, address) else {
            let library = V::WORDS.library;
            return refuse(format!("{handle:?} is no memory that the {library} knows"));
        };
        let is_here = usize::try_from(known.device) == Ok(shared.context.ordinal);
        if !is_here && known.kind != OriginKind::Managed {
            return refuse(format!("{handle:?} is memory of device {}", known.device));
        }
        if let Some((start, size)) = known.range {
            let allocation = start.saturating_add(size).saturating_sub(address);
            if allocation < bytes as u64 {
                return refuse(format!("{bytes} bytes at {handle:?}, which has {allocation}"));
            }
        }
        Ok(Box::new(Memory::<V>::of(address, bytes, Origin::Adopted(owner))))
    }
}

impl<V: Vendor> MemoryPool for Device<V> {
    fn reserved_bytes(&self) -> usize {
        self.shared.pool.reserved_bytes()
    }

    fn used_bytes(&self) -> usize {
        self.shared.pool.used_bytes()
    }

    fn trim(&self, keep_bytes: usize) -> Result<()> {
        self.shared.check("trim")?;
        self.shared
            .pool
            .trim(keep_bytes)
            .map_err(|code| self.shared.error("trim", code, format_args!("to {keep_bytes} bytes")))
    }
}
