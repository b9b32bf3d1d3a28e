//! Device memory.
#![expect(
    unsafe_code,
    reason = "allocates through the runtime and implements the contract's memory traits"
)]

use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use hip_sys::hiprt::hipMemAttachGlobal;
use runtime_core::contract::{DeviceMemory, DeviceStream, UnifiedMemory};
use runtime_core::contract::{MemoryAdoption, MemoryPool};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, OriginKind, Result};

use crate::codes;
use crate::context::{Room, allocated, ok, pointer};
use crate::device::HipDevice;
use crate::interop::Known;
use crate::raw_stream::RawStream;
use crate::reaper::Object;
use crate::shared::{Shared, streams};

/// Device memory: an address.
pub(crate) struct HipMemory {
    address: u64,
    bytes: usize,
    origin: Origin,
}

/// Where memory is from, and so where it goes.
enum Origin {
    Pool(Room),
    Managed(Room),
    Adopted(Box<dyn Any + Send + Sync>),
}

impl HipMemory {
    /// New memory of the device's pool.
    pub(crate) fn allocate(shared: &Shared, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "memory_allocate";
        shared.check(OPERATION)?;
        let allocate = |bytes| shared.with_room(|| shared.pool.allocate(bytes));
        let give_back = |room: Room| {
            // Nothing has used it.
            if !shared.pool.free(room.address, room.bytes, &[]) {
                shared.retire(Object::Memory(room.address), &[]);
            }
        };
        let room = Room::new(bytes, allocate, give_back)
            .map_err(|code| shared.error(OPERATION, code, format_args!("{bytes} bytes")))?;
        Ok(Self { address: room.first(), bytes, origin: Origin::Pool(room) })
    }

    /// New memory that the host addresses too.
    fn managed(shared: &Shared, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "unified_allocate";
        shared.check(OPERATION)?;
        let attempt = |bytes| {
            let mut memory = ptr::null_mut();
            let allocate = shared.context.hip.hipMallocManaged.ok_or(codes::NOT_SUPPORTED)?;
            let flags = hipMemAttachGlobal;
            // SAFETY: the address is written to where it may be.
            let code = shared.context.apart(|_| unsafe { allocate(&mut memory, bytes, flags) });
            ok(code)?;
            allocated(memory, bytes)
        };
        let allocate = |bytes| shared.with_room(|| attempt(bytes));
        let give_back = |room: Room| shared.retire(Object::Memory(room.address), &[]);
        let room = Room::new(bytes, allocate, give_back)
            .map_err(|code| shared.error(OPERATION, code, format_args!("{bytes} bytes")))?;
        Ok(Self { address: room.first(), bytes, origin: Origin::Managed(room) })
    }

    /// Gives the memory back once everything enqueued on the streams is done.
    pub(crate) fn free(self, shared: &Shared, after: &[&dyn DeviceStream]) {
        match self.origin {
            Origin::Pool(_) if shared.context.fault().is_some() => {}
            Origin::Pool(room) => {
                let used: Streams<'_> = streams(after).collect();
                if !shared.pool.free(room.address, room.bytes, &used) {
                    shared.retire(Object::Memory(room.address), after);
                }
            }
            Origin::Managed(room) => shared.retire(Object::Memory(room.address), after),
            Origin::Adopted(owner) => shared.retire_owner(owner, after),
        }
    }

    /// The address `offset` bytes behind the first.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> u64 {
        self.address.wrapping_add(offset as u64)
    }

    /// Whether it is of the device's own pool.
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self.origin, Origin::Pool(_))
    }
}

/// The streams a memory was used on, few as a rule.
type Streams<'a> = smallvec::SmallVec<[&'a Arc<RawStream>; 8]>;

// SAFETY: memory has the length asked for; managed memory keeps its address, which the host may follow while kernels
// run, as the device was asked.
unsafe impl DeviceMemory for HipMemory {
    fn len(&self) -> usize {
        self.bytes
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        match self.origin {
            Origin::Managed(_) => Some(pointer(self.address).cast()),
            Origin::Pool(_) | Origin::Adopted(_) => None,
        }
    }

    fn native(&self) -> NativeHandle {
        let raw = usize::try_from(self.address).unwrap_or(usize::MAX);
        NativeHandle { api: "hip", kind: NativeKind::Pointer, raw }
    }
}

impl fmt::Debug for HipMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.address)
    }
}

impl UnifiedMemory for HipDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(HipMemory::managed(&self.shared, bytes)?))
    }
}

impl MemoryAdoption for HipDevice {
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
        if (handle.api, handle.kind) != ("hip", NativeKind::Pointer) {
            return refuse(format!("{handle:?} is no address of HIP"));
        }
        let address = handle.raw as u64;
        let Some(known) = Known::at(&shared.context, address) else {
            return refuse(format!("{handle:?} is no memory that the runtime knows"));
        };
        if known.device != shared.context.device && known.kind != OriginKind::Managed {
            return refuse(format!("{handle:?} is memory of device {}", known.device));
        }
        if let Some((start, size)) = known.range {
            let room = start.saturating_add(size).saturating_sub(handle.raw);
            if room < bytes {
                return refuse(format!("{bytes} bytes at {handle:?}, which has {room}"));
            }
        }
        Ok(Box::new(HipMemory { address, bytes, origin: Origin::Adopted(owner) }))
    }
}

impl MemoryPool for HipDevice {
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
