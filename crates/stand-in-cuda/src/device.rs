//! Devices and their properties.

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use stand_in::abi::{Buffer, Out};
use stand_in::{BLOCK, BLOCK_THREADS, Code, GRID, MULTIPROCESSORS, Result, SHARED_BYTES, process};

use crate::process::{answer, current, engine, initialise};

/// The compute capability: major and minor number.
const CAPABILITY: (u32, u32) = (9, 0);
/// The compute capability in the form of PTX.
pub(crate) const TARGET: u32 = CAPABILITY.0 * 10 + CAPABILITY.1;

/// The version of the driver.
pub(crate) fn version() -> Result<u32> {
    process::number("STAND_IN_VERSION", 12_040, 99_999)
}

stand_in::device_functions! {
    get: cuDeviceGet, name: cuDeviceGetName = "stand-in for a CUDA device (no GPU)",
    uuid: cuDeviceGetUuid_v2, memory: cuDeviceTotalMem_v2, attribute: cuDeviceGetAttribute,
    can_access: cuDeviceCanAccessPeer, priorities: cuCtxGetStreamPriorityRange = [-5, 0],
}

stand_in::functions! {
    cuInit(flags: u32) = if flags == 0 { initialise().map(drop) } else { Err(Code::INVALID_VALUE) };
    cuDriverGetVersion(number: Out<i32>) = number.put(int(version()?));
    cuDeviceGetCount(count: Out<i32>) = count.put(int(engine()?.config().devices));
}

/// The value of an attribute. Attributes that are not in the table are 0.
fn attribute(attribute: u32, device: usize) -> Result<u64> {
    const LAST: u32 = 145;
    const TABLE: &[(Attribute, u64)] = &[
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, BLOCK_THREADS as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, BLOCK[0] as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, BLOCK[1] as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, BLOCK[2] as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, GRID[0] as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, GRID[1] as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, GRID[2] as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED_BYTES[0] as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SHARED_BYTES[1] as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        (Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, MULTIPROCESSORS as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CAPABILITY.0 as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CAPABILITY.1 as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
    ];
    if attribute == Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID as u32 {
        return Ok(device as u64 + 1);
    }
    let found = TABLE.iter().find(|(known, _)| *known as u32 == attribute);
    match found {
        Some((_, value)) => Ok(*value),
        None if (1..=LAST).contains(&attribute) => Ok(0),
        None => Err(Code::INVALID_VALUE),
    }
}
