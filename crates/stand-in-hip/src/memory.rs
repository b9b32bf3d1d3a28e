//! Allocations, and queries about addresses.

use std::sync::Arc;

use hip_sys::hiprt::{hipMemoryType, hipPointer_attribute as Attribute};
use stand_in::abi::{Buffer, Out};
use stand_in::{AddressInfo, Code, Context, Engine, Result};

use crate::device::int;
use crate::process::{answer, current, current_to_wait, engine};
use crate::quirks::quirks;
use crate::versions::{HIP_5_7, HIP_6, version};

stand_in::memory_functions! {
    info: hipMemGetInfo, allocate: hipMalloc, managed: hipMallocManaged,
    // Portable, mapped, write-combined; of a NUMA node, coherent, not coherent.
    host: hipHostMalloc with flags in 0xe000_0007, free: hipFree, free_host: hipHostFree,
    register: hipHostRegister with flags in 15, unregister: hipHostUnregister,
}

/// Allocates memory. The address of no bytes is 0.
fn allocate(
    address: Out<u64>,
    bytes: usize,
    allocate: impl FnOnce(&Engine, &Arc<Context>) -> Result<u64>,
) -> Result<()> {
    let (engine, context) = current_to_wait()?;
    context.check()?;
    address.put(if bytes == 0 { 0 } else { allocate(engine, &context)? })
}

/// The number of the kind of memory. HIP 6 changed the numbers. Before HIP 5.7, managed memory counts as host memory.
fn memory_type(memory: &AddressInfo) -> Result<u32> {
    const HOST: u32 = hipMemoryType::hipMemoryTypeHost as u32;
    const DEVICE: u32 = hipMemoryType::hipMemoryTypeDevice as u32;
    const MANAGED: u32 = hipMemoryType::hipMemoryTypeManaged as u32;
    let [host, device, managed] = match if quirks()?.kinds_of_hip_6 { HIP_6 } else { version()? } {
        0..HIP_5_7 => [HOST, DEVICE, HOST],
        HIP_5_7..HIP_6 => [HOST, DEVICE, MANAGED],
        HIP_6.. => [1, 2, 3],
    };
    Ok(match memory {
        AddressInfo { is_pinned: true, .. } => host,
        AddressInfo { is_managed: true, .. } => managed,
        _ => device,
    })
}

/// The size of a signal.
pub(crate) const SIGNAL_BYTES: usize = 8;

stand_in::functions! {
    /// Allocates a signal.
    hipExtMallocWithFlags(address: Out<u64>, bytes: usize, flags: u32) = match (flags, bytes) {
        (2, SIGNAL_BYTES) => {
            allocate(address, bytes, |engine, context| engine.allocate_managed(context, bytes))
        }
        _ => Err(Code::INVALID_VALUE),
    };
    hipMemGetAddressRange(base: Out<u64>, bytes: Out<usize>, address: u64) = {
        let memory = engine()?.memory_at(address).ok_or(Code::NOT_FOUND)?;
        base.offer(memory.base);
        bytes.offer(memory.len);
        Ok(())
    };
    hipPointerGetAttribute(data: Buffer, attribute: u32, address: u64) = {
        const MEMORY_TYPE: u32 = Attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE as u32;
        const IS_MANAGED: u32 = Attribute::HIP_POINTER_ATTRIBUTE_IS_MANAGED as u32;
        const DEVICE_ORDINAL: u32 = Attribute::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32;
        let memory = engine()?.memory_at(address).ok_or(Code::INVALID_VALUE)?;
        match attribute {
            MEMORY_TYPE => data.of::<u32>().put(memory_type(&memory)?),
            // The runtime writes only one byte.
            IS_MANAGED => data.of::<bool>().put(memory.is_managed),
            DEVICE_ORDINAL => data.of::<i32>().put(int(memory.device)),
            _ => Err(Code::INVALID_VALUE),
        }
    };
}
