//! Allocations, and queries about addresses.
#![expect(unsafe_code, reason = "exports functions by name, and registers memory of the program's")]

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute as Attribute};
use stand_in::Code;

use crate::device::int;
use crate::process::{current, current_to_wait, engine};
use stand_in::abi::{Buffer, Handle, Out, answer};

stand_in::memory_functions! {
    info: cuMemGetInfo_v2, free: cuMemFree_v2, free_host: cuMemFreeHost,
    register: cuMemHostRegister_v2, unregister: cuMemHostUnregister,
    device_pointer: cuMemHostGetDevicePointer_v2, address_range: cuMemGetAddressRange_v2,
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) -> u32 {
    answer(|| {
        let (engine, context) = current_to_wait()?;
        address.put(engine.allocate(&context, bytes)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: c_uint) -> u32 {
    answer(|| {
        let (engine, context) = current_to_wait()?;
        if !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        address.put(engine.allocate_managed(&context, bytes)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(pointer: Out<u64>, bytes: usize, flags: c_uint) -> u32 {
    answer(|| {
        let (engine, context) = current_to_wait()?;
        if flags > 7 {
            return Err(Code::INVALID_VALUE);
        }
        pointer.put(engine.allocate_pinned(&context, bytes)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(data: Buffer, attribute: c_uint, address: u64) -> u32 {
    const MEMORY_TYPE: u32 = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32;
    const DEVICE_POINTER: u32 = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER as u32;
    const HOST_POINTER: u32 = Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER as u32;
    const IS_MANAGED: u32 = Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32;
    const DEVICE_ORDINAL: u32 = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32;
    const RANGE_START: u32 = Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as u32;
    const RANGE_SIZE: u32 = Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as u32;
    const CONTEXT: u32 = Attribute::CU_POINTER_ATTRIBUTE_CONTEXT as u32;
    const POOL: u32 = Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as u32;
    answer(|| {
        let engine = engine()?;
        let found = engine.memory_at(address).ok_or(Code::INVALID_VALUE)?;
        let is_managed = found.is_hosted && !found.is_pinned;
        match attribute {
            CONTEXT => data.of::<Handle>().put(found.context),
            POOL => data.of::<Handle>().put(found.pool.unwrap_or_default()),
            MEMORY_TYPE if found.is_pinned => {
                data.of::<c_uint>().put(CUmemorytype::CU_MEMORYTYPE_HOST as c_uint)
            }
            MEMORY_TYPE => data.of::<c_uint>().put(CUmemorytype::CU_MEMORYTYPE_DEVICE as c_uint),
            DEVICE_POINTER => data.of::<u64>().put(address),
            HOST_POINTER if found.is_hosted => data.of::<u64>().put(address),
            IS_MANAGED => data.of::<c_uint>().put(is_managed.into()),
            DEVICE_ORDINAL => data.of::<c_int>().put(int(found.device)),
            RANGE_START => data.of::<u64>().put(found.base),
            RANGE_SIZE => data.of::<usize>().put(found.len),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}
