//! Device memory.
#![expect(
    unsafe_code,
    reason = "allocates through the driver and implements the contract's memory traits"
)]

use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUmemAttach_flags};
use runtime_core::contract::{DeviceMemory, DeviceStream, UnifiedMemory};
use runtime_core::contract::{MemoryAdoption, MemoryPool};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, OriginKind, Result};

use crate::context::ok;
use crate::device::CudaDevice;
use crate::interop::Known;
use crate::raw_stream::RawStream;
use crate::reaper::Object;
use crate::shared::{Shared, streams};

/// Device memory: an address.
pub(crate) struct CudaMemory {
    address: CUdeviceptr,
    bytes: usize,
    origin: Origin,
}

/// Where memory is from, and so where it goes.
enum Origin {
    Pool,
    Managed,
    Adopted(Box<dyn Any + Send + Sync>),
}

impl CudaMemory {
    /// New memory of the device's pool.
    pub(crate) fn allocate(shared: &Shared, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "memory_allocate";
        shared.check(OPERATION)?;
        let address = shared
            .with_room(|| shared.pool.allocate(bytes))
            .map_err(|code| shared.error(OPERATION, code, format_args!("{bytes} bytes")))?;
        Ok(Self { address, bytes, origin: Origin::Pool })
    }

    /// New memory that the host addresses too.
    fn managed(shared: &Shared, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "unified_allocate";
        shared.check(OPERATION)?;
        let attempt = || {
            let mut address = 0;
            let flags = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
            let allocate = shared.context.driver.cuMemAllocManaged;
            // SAFETY: the address is written to where it may be.
            let code = shared.context.apart(|_| unsafe { allocate(&mut address, bytes, flags) });
            ok(code)?;
            Ok(address)
        };
        let address = shared
            .with_room(attempt)
            .map_err(|code| shared.error(OPERATION, code, format_args!("{bytes} bytes")))?;
        Ok(Self { address, bytes, origin: Origin::Managed })
    }

    /// Gives the memory back once everything enqueued on the streams is done.
    pub(crate) fn free(self, shared: &Shared, after: &[&dyn DeviceStream]) {
        match self.origin {
            Origin::Pool if shared.context.fault().is_some() => {
                shared.context.abandon(&shared.pool.object(self.address));
            }
            Origin::Pool => {
                let used: Streams<'_> = streams(after).collect();
                if !shared.pool.free(self.address, self.bytes, &used) {
                    shared.retire(shared.pool.object(self.address), after);
                }
            }
            Origin::Managed => shared.retire(Object::Memory(self.address), after),
            Origin::Adopted(owner) => shared.retire_owner(owner, after),
        }
    }

    /// The address `offset` bytes behind the first.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> CUdeviceptr {
        self.address.wrapping_add(offset as u64)
    }

    /// Whether it is of the device's own pool.
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self.origin, Origin::Pool)
    }
}

/// The streams a memory was used on, few as a rule.
type Streams<'a> = smallvec::SmallVec<[&'a Arc<RawStream>; 8]>;

// SAFETY: memory has the length asked for; managed memory keeps its address, which the host may follow while kernels
// run, as the device was asked.
unsafe impl DeviceMemory for CudaMemory {
    fn len(&self) -> usize {
        self.bytes
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        match self.origin {
            Origin::Managed => {
                Some(ptr::with_exposed_provenance_mut(usize::try_from(self.address).ok()?))
            }
            Origin::Pool | Origin::Adopted(_) => None,
        }
    }

    fn native(&self) -> NativeHandle {
        let raw = usize::try_from(self.address).unwrap_or(usize::MAX);
        NativeHandle { api: "cuda", kind: NativeKind::Pointer, raw }
    }
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.address)
    }
}

impl UnifiedMemory for CudaDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(CudaMemory::managed(&self.shared, bytes)?))
    }
}

impl MemoryAdoption for CudaDevice {
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
        if (handle.api, handle.kind) != ("cuda", NativeKind::Pointer) {
            return refuse(format!("{handle:?} is no address of CUDA"));
        }
        let address = handle.raw as CUdeviceptr;
        let Some(known) = Known::at(&shared.context, address) else {
            return refuse(format!("{handle:?} is no memory that the driver knows"));
        };
        if known.ordinal != shared.context.ordinal && known.kind != OriginKind::Managed {
            return refuse(format!("{handle:?} is memory of device {}", known.ordinal));
        }
        if let Some((start, size)) = known.range {
            let room = start.saturating_add(size).saturating_sub(address);
            if room < bytes as u64 {
                return refuse(format!("{bytes} bytes at {handle:?}, which has {room}"));
            }
        }
        Ok(Box::new(CudaMemory { address, bytes, origin: Origin::Adopted(owner) }))
    }
}

impl MemoryPool for CudaDevice {
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
