//! Devices and their properties.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use stand_in::{
    BLOCK, BLOCK_THREADS, Code, GRID, MULTIPROCESSOR_THREADS, MULTIPROCESSORS, Result,
    SHARED_BYTES, process,
};

use crate::process::{engine, initialise};
use stand_in::abi::{Buffer, Out, answer};

/// What every device is called.
pub(crate) const NAME: &str = "stand-in for a CUDA device (no GPU)";
/// Compute capability: major, minor.
const CAPABILITY: (u32, u32) = (9, 0);

/// The compute capability as PTX has it.
pub(crate) const TARGET: u32 = CAPABILITY.0 * 10 + CAPABILITY.1;

/// Version of the driver.
pub(crate) fn version() -> Result<u32> {
    process::number("STAND_IN_VERSION", 12_040, 99_999)
}

/// A device's number, if there is one.
pub(crate) fn ordinal(device: c_int) -> Result<usize> {
    let devices = engine()?.config().devices;
    usize::try_from(device).ok().filter(|device| *device < devices).ok_or(Code::INVALID_DEVICE)
}

/// A number as the driver tells it.
pub(crate) fn int(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> u32 {
    answer(|| if flags == 0 { initialise().map(drop) } else { Err(Code::INVALID_VALUE) })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> u32 {
    answer(|| {
        // It can be asked before anything else.
        version.put(int(self::version()?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<c_int>) -> u32 {
    answer(|| count.put(int(engine()?.config().devices)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<c_int>, number: c_int) -> u32 {
    answer(|| device.put(int(ordinal(number)?)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: Buffer, room: c_int, device: c_int) -> u32 {
    answer(|| {
        ordinal(device)?;
        name.put_text(NAME, usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) -> u32 {
    answer(|| {
        let mut bytes = *b"stand-in device ";
        bytes[15] = u8::try_from(ordinal(device)?).unwrap_or(u8::MAX);
        uuid.put(bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) -> u32 {
    cuDeviceGetUuid_v2(uuid, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(text: Buffer, room: c_int, device: c_int) -> u32 {
    answer(|| {
        let id = format!("0000:{:02X}:00.0", ordinal(device)? + 1);
        text.put_text(&id, usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) -> u32 {
    answer(|| {
        ordinal(device)?;
        bytes.put(engine()?.config().memory)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) -> u32 {
    answer(|| can.put((ordinal(device)? != ordinal(peer)?).into()))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, device: c_int) -> u32 {
    answer(|| {
        let device = ordinal(device)?;
        value.put(int(self::attribute(attribute, device).ok_or(Code::INVALID_VALUE)?))
    })
}

/// What a device answers for an attribute. Those that it has not are 0.
fn attribute(attribute: c_uint, device: usize) -> Option<u64> {
    const LAST: c_uint = 145;
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
        (
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            SHARED_BYTES[1] as u64 + 1024,
        ),
        (Attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10),
        (Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fff_ffff),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
        (Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1_000_000),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1_000_000),
        (Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64),
        (Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20),
        (Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512),
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, MULTIPROCESSORS as u64),
        (
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            MULTIPROCESSOR_THREADS as u64,
        ),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2),
        (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CAPABILITY.0 as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CAPABILITY.1 as u64),
        (Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
    ];
    if attribute == Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID as c_uint {
        return Some(device as u64 + 1);
    }
    let found = TABLE.iter().find(|(known, _)| *known as c_uint == attribute);
    found.map(|(_, value)| *value).or_else(|| (1..=LAST).contains(&attribute).then_some(0))
}
