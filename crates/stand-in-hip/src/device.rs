//! Devices and their properties.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{c_int, c_uint};

use hip_sys::hiprt::hipDeviceAttribute_t as Attribute;
use stand_in::abi::{Buffer, Out};
use stand_in::{
    BLOCK, BLOCK_THREADS, Code, GRID, MULTIPROCESSOR_THREADS, MULTIPROCESSORS, Result,
    SHARED_BYTES, process,
};

use crate::process::{answer, current, current_to_wait, device, engine, last_error, set_device};
use crate::versions::answers;

/// What every device is called.
pub(crate) const NAME: &str = "stand-in for a HIP device (no GPU)";
/// Major and minor number of the architecture.
pub(crate) const CAPABILITY: (u32, u32) = (10, 3);
/// Threads of a wavefront.
pub(crate) const WAVEFRONT: u32 = 32;
/// The most urgent and the least urgent priority of streams.
pub(crate) const PRIORITIES: [c_int; 2] = [-1, 1];

/// Version of the runtime.
pub(crate) fn version() -> Result<u32> {
    process::number("STAND_IN_HIP_VERSION", 60_000_000, 999_999_999)
}

/// A device's number, if there is one.
pub(crate) fn ordinal(device: c_int) -> Result<usize> {
    let devices = engine()?.config().devices;
    usize::try_from(device).ok().filter(|device| *device < devices).ok_or(Code::INVALID_DEVICE)
}

/// A number as the runtime tells it.
pub(crate) fn int(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

/// The identity of a device: where others have numbers of their own.
pub(crate) fn uuid(device: usize) -> [u8; 16] {
    let mut bytes = *b"stand-in device ";
    bytes[15] = u8::try_from(device).unwrap_or(u8::MAX);
    bytes
}

#[unsafe(no_mangle)]
extern "C" fn hipInit(flags: c_uint) -> u32 {
    answer(|| if flags == 0 { engine().map(drop) } else { Err(Code::INVALID_VALUE) })
}

#[unsafe(no_mangle)]
extern "C" fn hipDriverGetVersion(number: Out<c_int>) -> u32 {
    answer(|| number.put(int(version()?)))
}

#[unsafe(no_mangle)]
extern "C" fn hipRuntimeGetVersion(number: Out<c_int>) -> u32 {
    hipDriverGetVersion(number)
}

#[unsafe(no_mangle)]
extern "C" fn hipGetLastError() -> u32 {
    last_error(true)
}

#[unsafe(no_mangle)]
extern "C" fn hipPeekAtLastError() -> u32 {
    last_error(false)
}

#[unsafe(no_mangle)]
extern "C" fn hipGetDeviceCount(count: Out<c_int>) -> u32 {
    answer(|| {
        let devices = engine().map(|engine| engine.config().devices);
        count.put(int(devices.unwrap_or(0)))?;
        devices.map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipGetDevice(number: Out<c_int>) -> u32 {
    answer(|| {
        engine()?;
        number.put(int(device()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipSetDevice(number: c_int) -> u32 {
    answer(|| {
        set_device(ordinal(number)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceSynchronize() -> u32 {
    answer(|| {
        let (engine, context) = current_to_wait()?;
        engine.synchronize(&context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceReset() -> u32 {
    answer(|| engine()?.reset(device()))
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceGet(device: Out<c_int>, number: c_int) -> u32 {
    answer(|| device.put(int(ordinal(number)?)))
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceGetName(name: Buffer, room: c_int, device: c_int) -> u32 {
    answer(|| {
        ordinal(device)?;
        name.put_text(NAME, usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) -> u32 {
    answer(|| uuid.put(self::uuid(ordinal(device)?)))
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceGetPCIBusId(text: Buffer, room: c_int, device: c_int) -> u32 {
    answer(|| {
        let id = format!("0000:{:02x}:00.0", ordinal(device)? + 1);
        text.put_text(&id, usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceTotalMem(bytes: Out<usize>, device: c_int) -> u32 {
    answer(|| {
        ordinal(device)?;
        bytes.put(engine()?.config().memory)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceComputeCapability(
    major: Out<c_int>,
    minor: Out<c_int>,
    device: c_int,
) -> u32 {
    answer(|| {
        ordinal(device)?;
        major.put(int(CAPABILITY.0))?;
        minor.put(int(CAPABILITY.1))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> u32 {
    answer(|| {
        current()?.1.check()?;
        greatest.offer(PRIORITIES[0]);
        least.offer(PRIORITIES[1]);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) -> u32 {
    answer(|| can.put((ordinal(device)? != ordinal(peer)?).into()))
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> u32 {
    answer(|| {
        let (_, context) = current()?;
        context.check()?;
        match flags {
            0 => context.enable_peer(ordinal(peer)?),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceDisablePeerAccess(peer: c_int) -> u32 {
    answer(|| {
        let (_, context) = current()?;
        context.check()?;
        context.disable_peer(ordinal(peer)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, device: c_int) -> u32 {
    answer(|| {
        let device = ordinal(device)?;
        if !answers(version()?, attribute) {
            return Err(Code::INVALID_VALUE);
        }
        value.put(int(self::attribute(attribute, device)))
    })
}

/// What a device answers for an attribute that the version has. Those of hardware that the stand-in has not are 0.
fn attribute(attribute: c_uint, device: usize) -> u64 {
    const TABLE: &[(Attribute, u64)] = &[
        (Attribute::hipDeviceAttributeMaxThreadsPerBlock, BLOCK_THREADS as u64),
        (Attribute::hipDeviceAttributeMaxBlockDimX, BLOCK[0] as u64),
        (Attribute::hipDeviceAttributeMaxBlockDimY, BLOCK[1] as u64),
        (Attribute::hipDeviceAttributeMaxBlockDimZ, BLOCK[2] as u64),
        (Attribute::hipDeviceAttributeMaxGridDimX, GRID[0] as u64),
        (Attribute::hipDeviceAttributeMaxGridDimY, GRID[1] as u64),
        (Attribute::hipDeviceAttributeMaxGridDimZ, GRID[2] as u64),
        (Attribute::hipDeviceAttributeMaxSharedMemoryPerBlock, SHARED_BYTES[0] as u64),
        (Attribute::hipDeviceAttributeSharedMemPerBlockOptin, SHARED_BYTES[0] as u64),
        (Attribute::hipDeviceAttributeSharedMemPerMultiprocessor, SHARED_BYTES[1] as u64),
        (Attribute::hipDeviceAttributeMaxSharedMemoryPerMultiprocessor, SHARED_BYTES[1] as u64),
        (Attribute::hipDeviceAttributeTotalConstantMemory, 64 << 10),
        (Attribute::hipDeviceAttributeWarpSize, WAVEFRONT as u64),
        (Attribute::hipDeviceAttributeMaxPitch, 0x7fff_ffff),
        (Attribute::hipDeviceAttributeMaxRegistersPerBlock, 65536),
        (Attribute::hipDeviceAttributeMaxRegistersPerMultiprocessor, 65536),
        (Attribute::hipDeviceAttributeClockRate, 1_000_000),
        (Attribute::hipDeviceAttributeWallClockRate, 1_000_000),
        (Attribute::hipDeviceAttributeMemoryClockRate, 1_000_000),
        (Attribute::hipDeviceAttributeMemoryBusWidth, 64),
        (Attribute::hipDeviceAttributeL2CacheSize, 1 << 20),
        (Attribute::hipDeviceAttributeTextureAlignment, 256),
        (Attribute::hipDeviceAttributeMultiprocessorCount, MULTIPROCESSORS as u64),
        (Attribute::hipDeviceAttributePhysicalMultiProcessorCount, MULTIPROCESSORS as u64),
        (Attribute::hipDeviceAttributeMaxThreadsPerMultiProcessor, MULTIPROCESSOR_THREADS as u64),
        (Attribute::hipDeviceAttributeMaxBlocksPerMultiProcessor, 32),
        (Attribute::hipDeviceAttributeCanMapHostMemory, 1),
        (Attribute::hipDeviceAttributeCanUseHostPointerForRegisteredMem, 1),
        (Attribute::hipDeviceAttributeConcurrentKernels, 1),
        (Attribute::hipDeviceAttributeAsyncEngineCount, 2),
        (Attribute::hipDeviceAttributeUnifiedAddressing, 1),
        (Attribute::hipDeviceAttributeComputeCapabilityMajor, CAPABILITY.0 as u64),
        (Attribute::hipDeviceAttributeComputeCapabilityMinor, CAPABILITY.1 as u64),
        (Attribute::hipDeviceAttributeStreamPrioritiesSupported, 1),
        (Attribute::hipDeviceAttributeManagedMemory, 1),
        (Attribute::hipDeviceAttributeConcurrentManagedAccess, 1),
        (Attribute::hipDeviceAttributeCooperativeLaunch, 1),
        (Attribute::hipDeviceAttributeMemoryPoolsSupported, 1),
    ];
    if attribute == Attribute::hipDeviceAttributePciBusId as c_uint {
        return device as u64 + 1;
    }
    TABLE.iter().find(|(known, _)| *known as c_uint == attribute).map_or(0, |(_, value)| *value)
}
