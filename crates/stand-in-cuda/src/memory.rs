//! Allocations, and queries about addresses.

use std::sync::Arc;

use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute as Attribute};
use stand_in::abi::{Buffer, Handle, Out};
use stand_in::{Code, Context, Engine, Result};

use crate::device::int;
use crate::process::{answer, current, current_to_wait, engine};

stand_in::memory_functions! {
    info: cuMemGetInfo_v2, allocate: cuMemAlloc_v2, managed: cuMemAllocManaged,
    host: cuMemHostAlloc with flags in 7, free: cuMemFree_v2, free_host: cuMemFreeHost,
    register: cuMemHostRegister_v2 with flags in 15, unregister: cuMemHostUnregister,
}

fn allocate(
    address: Out<u64>,
    _bytes: usize,
    allocate: impl FnOnce(&Engine, &Arc<Context>) -> Result<u64>,
) -> Result<()> {
    let (engine, context) = current_to_wait()?;
    address.put(allocate(engine, &context)?)
}

stand_in::functions! {
    cuPointerGetAttribute(data: Buffer, attribute: u32, address: u64) = {
        const MEMORY_TYPE: u32 = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32;
        const IS_MANAGED: u32 = Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32;
        const DEVICE_ORDINAL: u32 = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32;
        const RANGE_START: u32 = Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as u32;
        const RANGE_SIZE: u32 = Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as u32;
        const CONTEXT: u32 = Attribute::CU_POINTER_ATTRIBUTE_CONTEXT as u32;
        const POOL: u32 = Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as u32;
        const HOST: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_HOST;
        const DEVICE: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let memory = engine()?.memory_at(address).ok_or(Code::INVALID_VALUE)?;
        match attribute {
            CONTEXT => data.of::<Handle>().put(memory.context),
            POOL => data.of::<Handle>().put(memory.pool.unwrap_or_default()),
            MEMORY_TYPE => {
                data.of::<u32>().put(if memory.is_pinned { HOST } else { DEVICE } as u32)
            }
            IS_MANAGED => data.of::<u32>().put(memory.is_managed.into()),
            DEVICE_ORDINAL => data.of::<i32>().put(int(memory.device)),
            RANGE_START => data.of::<u64>().put(memory.base),
            RANGE_SIZE => data.of::<usize>().put(memory.len),
            _ => Err(Code::INVALID_VALUE),
        }
    };
}
