//! Memory pools, and memory in the order of streams.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::CUmemPool_attribute as Attribute;
use stand_in::{Code, Result};

use crate::abi::{Buffer, Handle, In, Out, answer};
use crate::device::ordinal;
use crate::process::{current, engine};

/// The head of `CUmemPoolProps`: the kind of allocation, the kinds of handles, the place.
#[derive(Clone, Copy)]
#[repr(C)]
struct Properties {
    kind: c_uint,
    handles: c_uint,
    place: Location,
}

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Location {
    kind: c_uint,
    id: c_int,
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Access {
    place: Location,
    flags: c_uint,
}

impl Location {
    /// The device that it is.
    fn device(self) -> Result<usize> {
        if self.kind == 1 { ordinal(self.id) } else { Err(Code::INVALID_VALUE) }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(pool: Out<Handle>, properties: In<Properties>) -> u32 {
    answer(|| {
        let properties = properties.get()?;
        match properties {
            Properties { kind: 1, handles: 0, place } => {
                pool.put(engine()?.pool_create(place.device()?)?)
            }
            _ => Err(Code::NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: Handle) -> u32 {
    answer(|| engine()?.pool_destroy(pool))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: c_int) -> u32 {
    answer(|| pool.put(engine()?.default_pool(ordinal(device)?)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetMemPool(pool: Out<Handle>, device: c_int) -> u32 {
    cuDeviceGetDefaultMemPool(pool, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: Buffer) -> u32 {
    const THRESHOLD: u32 = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32;
    const RESERVED: u32 = Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as u32;
    const RESERVED_HIGH: u32 = Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH as u32;
    const USED: u32 = Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT as u32;
    const USED_HIGH: u32 = Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH as u32;
    answer(|| {
        let state = engine()?.pool(pool)?.state();
        match attribute {
            // No memory is used again, which all of these allow.
            1..=3 => value.of::<c_int>().put(1),
            THRESHOLD => value.of::<usize>().put(state.threshold),
            RESERVED => value.of::<usize>().put(state.reserved),
            RESERVED_HIGH => value.of::<usize>().put(state.reserved_high),
            USED => value.of::<usize>().put(state.used),
            USED_HIGH => value.of::<usize>().put(state.used_high),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: Buffer) -> u32 {
    const THRESHOLD: u32 = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32;
    const RESERVED_HIGH: u32 = Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH as u32;
    const USED_HIGH: u32 = Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH as u32;
    answer(|| {
        let pool = engine()?.pool(pool)?;
        match attribute {
            1..=3 => {
                value.holding::<c_int>().get()?;
            }
            THRESHOLD => pool.set_threshold(value.holding::<usize>().get()?),
            RESERVED_HIGH | USED_HIGH if value.holding::<u64>().get()? == 0 => {
                pool.reset_high(attribute == USED_HIGH);
            }
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAccess(pool: Handle, accesses: In<Access>, count: usize) -> u32 {
    answer(|| {
        let pool = engine()?.pool(pool)?;
        for index in 0..count {
            let Access { place, flags } = accesses.at(index)?;
            match flags {
                0 | 3 => pool.open_to(place.device()?, flags == 3),
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: Handle, keep: usize) -> u32 {
    answer(|| {
        engine()?.pool(pool)?.trim(keep);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(
    address: Out<u64>,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        address.put(engine.allocate_in(&context, pool, bytes, stream)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: Handle) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        let pool = engine.default_pool(context.device())?;
        address.put(engine.allocate_in(&context, pool, bytes, stream)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        engine.free_in(&context, address, stream)
    })
}
