//! Devices and their properties.

use std::ffi::CStr;

use hip_sys::hiprt::hipDeviceAttribute_t as Attribute;
use stand_in::abi::{Buffer, Out};
use stand_in::{BLOCK, BLOCK_THREADS, Code, GRID, MULTIPROCESSORS, Result, SHARED_BYTES};

use crate::code::ARCHITECTURE;
use crate::process::{answer, current, device, engine, set_device};
use crate::versions::{HIP_6, check, has_attribute, version};

/// The number of threads of a wavefront.
pub(crate) const WAVEFRONT: u32 = 32;
const NAME: &CStr = c"stand-in for a HIP device (no GPU)";

stand_in::device_functions! {
    get: hipDeviceGet, name: hipDeviceGetName = &NAME.to_string_lossy(), uuid: hipDeviceGetUuid,
    memory: hipDeviceTotalMem, attribute: hipDeviceGetAttribute,
    can_access: hipDeviceCanAccessPeer, priorities: hipDeviceGetStreamPriorityRange = [-1, 1],
}

stand_in::functions! {
    hipInit(flags: u32) = if flags == 0 { engine().map(drop) } else { Err(Code::INVALID_VALUE) };
    hipRuntimeGetVersion(number: Out<i32>) = number.put(int(version()?));
    hipGetDeviceCount(count: Out<i32>) = {
        let devices = engine().map(|engine| engine.config().devices);
        count.put(int(devices.unwrap_or(0)))?;
        devices.map(drop)
    };
    hipGetDevice(number: Out<i32>) = {
        engine()?;
        number.put(int(device()))
    };
    hipSetDevice(number: i32) = {
        set_device(ordinal(number)?);
        Ok(())
    };
    hipDeviceReset() = engine()?.reset(device());
    hipDeviceGetPCIBusId(text: Buffer, room: i32, device: i32) = {
        let id = format!("0000:{:02x}:00.0", ordinal(device)? + 1);
        text.put_text(&id, usize::try_from(room).unwrap_or(0))
    };
    hipDeviceEnablePeerAccess(peer: i32, flags: u32) = {
        let (_, context) = current()?;
        context.check()?;
        match flags {
            0 => context.enable_peer(ordinal(peer)?),
            _ => Err(Code::INVALID_VALUE),
        }
    };
    /// Writes `hipDeviceProp_tR0600`. Only its members for the names of device and architecture are not zero.
    hipGetDevicePropertiesR0600(properties: Out<[u8; 1472]>, device: i32) = {
        const ARCHITECTURE_OFFSET: usize = 1160;
        check(HIP_6)?;
        ordinal(device)?;
        let mut bytes = [0; 1472];
        bytes[..NAME.count_bytes()].copy_from_slice(NAME.to_bytes());
        bytes[ARCHITECTURE_OFFSET..][..ARCHITECTURE.len()].copy_from_slice(ARCHITECTURE.as_bytes());
        properties.put(bytes)
    };
}

/// The value of an attribute. Attributes that are not in the table are 0.
fn attribute(attribute: u32, device: usize) -> Result<u64> {
    const TABLE: &[(Attribute, u64)] = &[
        (Attribute::hipDeviceAttributeMaxThreadsPerBlock, BLOCK_THREADS as u64),
        (Attribute::hipDeviceAttributeMaxBlockDimX, BLOCK[0] as u64),
        (Attribute::hipDeviceAttributeMaxBlockDimY, BLOCK[1] as u64),
        (Attribute::hipDeviceAttributeMaxBlockDimZ, BLOCK[2] as u64),
        (Attribute::hipDeviceAttributeMaxGridDimX, GRID[0] as u64),
        (Attribute::hipDeviceAttributeMaxGridDimY, GRID[1] as u64),
        (Attribute::hipDeviceAttributeMaxGridDimZ, GRID[2] as u64),
        (Attribute::hipDeviceAttributeMaxSharedMemoryPerBlock, SHARED_BYTES[0] as u64),
        (Attribute::hipDeviceAttributeWarpSize, WAVEFRONT as u64),
        (Attribute::hipDeviceAttributeMultiprocessorCount, MULTIPROCESSORS as u64),
        (Attribute::hipDeviceAttributeManagedMemory, 1),
        (Attribute::hipDeviceAttributeConcurrentManagedAccess, 1),
        (Attribute::hipDeviceAttributeCooperativeLaunch, 1),
        (Attribute::hipDeviceAttributeMemoryPoolsSupported, 1),
        (Attribute::hipDeviceAttributeCanUseStreamWaitValue, 1),
    ];
    if !has_attribute(version()?, attribute) {
        return Err(Code::INVALID_VALUE);
    }
    if attribute == Attribute::hipDeviceAttributePciBusId as u32 {
        return Ok(device as u64 + 1);
    }
    let found = TABLE.iter().find(|(known, _)| *known as u32 == attribute);
    Ok(found.map_or(0, |(_, value)| *value))
}
