//! Allocations, and queries about addresses.
#![expect(unsafe_code, reason = "exports functions by name, and registers memory of the program's")]

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use hip_sys::hiprt::{hipMemoryType, hipPointer_attribute as Attribute};
use stand_in::abi::{Buffer, Out};
use stand_in::{Code, Context, Engine, Found, Result};

use crate::device::{int, version};
use crate::process::{answer, current, current_to_wait, engine};
use crate::quirks::quirks;
use crate::versions::{HIP_5_7, HIP_6};

stand_in::memory_functions! {
    info: hipMemGetInfo, free: hipFree, free_host: hipHostFree,
    register: hipHostRegister, unregister: hipHostUnregister,
    device_pointer: hipHostGetDevicePointer, address_range: hipMemGetAddressRange,
}

/// Allocates, or tells that no bytes are nowhere.
fn allocate(
    address: Out<u64>,
    bytes: usize,
    allocate: impl FnOnce(&Engine, &Arc<Context>) -> Result<u64>,
) -> u32 {
    answer(|| {
        let (engine, context) = current_to_wait()?;
        context.check()?;
        address.put(if bytes == 0 { 0 } else { allocate(engine, &context)? })
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMalloc(address: Out<u64>, bytes: usize) -> u32 {
    allocate(address, bytes, |engine, context| engine.allocate(context, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn hipMallocManaged(address: Out<u64>, bytes: usize, flags: c_uint) -> u32 {
    allocate(address, bytes, |engine, context| match flags {
        1 | 2 => engine.allocate_managed(context, bytes),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipHostMalloc(pointer: Out<u64>, bytes: usize, flags: c_uint) -> u32 {
    /// Portable, mapped, write-combined; of a NUMA node, coherent, not coherent.
    const FLAGS: c_uint = 0x7 | 0xe000_0000;
    allocate(pointer, bytes, |engine, context| match flags & !FLAGS {
        0 => engine.allocate_pinned(context, bytes),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMemPtrGetInfo(address: u64, bytes: Out<usize>) -> u32 {
    answer(|| bytes.put(engine()?.memory_at(address).ok_or(Code::INVALID_VALUE)?.len))
}

/// The kind of memory, whose numbers are others from HIP 6 on; before HIP 5.7 managed memory is the host's.
fn memory_type(found: &Found) -> Result<c_uint> {
    const HOST: c_uint = hipMemoryType::hipMemoryTypeHost as c_uint;
    const DEVICE: c_uint = hipMemoryType::hipMemoryTypeDevice as c_uint;
    const MANAGED: c_uint = hipMemoryType::hipMemoryTypeManaged as c_uint;
    let kinds = match if quirks()?.kinds_of_hip_6 { HIP_6 } else { version()? } {
        0..HIP_5_7 => [HOST, DEVICE, HOST],
        HIP_5_7..HIP_6 => [HOST, DEVICE, MANAGED],
        HIP_6.. => [1, 2, 3],
    };
    Ok(match found {
        Found { is_pinned: true, .. } => kinds[0],
        Found { is_hosted: false, .. } => kinds[1],
        Found { .. } => kinds[2],
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipPointerGetAttribute(data: Buffer, attribute: c_uint, address: u64) -> u32 {
    const MEMORY_TYPE: u32 = Attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE as u32;
    const DEVICE_POINTER: u32 = Attribute::HIP_POINTER_ATTRIBUTE_DEVICE_POINTER as u32;
    const HOST_POINTER: u32 = Attribute::HIP_POINTER_ATTRIBUTE_HOST_POINTER as u32;
    const IS_MANAGED: u32 = Attribute::HIP_POINTER_ATTRIBUTE_IS_MANAGED as u32;
    const DEVICE_ORDINAL: u32 = Attribute::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32;
    const RANGE_START: u32 = Attribute::HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR as u32;
    const RANGE_SIZE: u32 = Attribute::HIP_POINTER_ATTRIBUTE_RANGE_SIZE as u32;
    answer(|| {
        let found = engine()?.memory_at(address).ok_or(Code::INVALID_VALUE)?;
        let is_managed = found.is_hosted && !found.is_pinned;
        match attribute {
            MEMORY_TYPE => data.of::<c_uint>().put(memory_type(&found)?),
            DEVICE_POINTER => data.of::<u64>().put(address),
            HOST_POINTER if found.is_pinned || is_managed && version()? < HIP_6 => {
                data.of::<u64>().put(address)
            }
            IS_MANAGED => data.of::<bool>().put(is_managed),
            DEVICE_ORDINAL => data.of::<c_int>().put(int(found.device)),
            RANGE_START => data.of::<u64>().put(found.base),
            // The runtime writes no more than this.
            RANGE_SIZE => data.of::<c_int>().put(int(found.len)),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

/// `hipPointerAttribute_t`, whose layout stayed when the numbers of kinds changed.
#[repr(C)]
struct Attributes {
    kind: c_uint,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
    is_managed: c_int,
    flags: c_uint,
}

#[unsafe(no_mangle)]
extern "C" fn hipPointerGetAttributes(attributes: Out<Attributes>, address: u64) -> u32 {
    answer(|| {
        let found = engine()?.memory_at(address).ok_or(Code::INVALID_VALUE)?;
        attributes.put(Attributes {
            kind: memory_type(&found)?,
            device: int(found.device),
            device_pointer: address,
            host_pointer: if found.is_hosted { address } else { 0 },
            is_managed: (found.is_hosted && !found.is_pinned).into(),
            flags: 0,
        })
    })
}
