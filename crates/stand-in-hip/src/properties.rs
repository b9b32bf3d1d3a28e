//! The structures with all properties of a device.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{c_char, c_int};
use std::mem::{offset_of, size_of};

use hip_sys::hiprt::hipDeviceProp_t as Old;
use stand_in::abi::Out;
use stand_in::{BLOCK, BLOCK_THREADS, GRID, MULTIPROCESSOR_THREADS, MULTIPROCESSORS, SHARED_BYTES};

use crate::code::ARCHITECTURE;
use crate::device::{CAPABILITY, NAME, WAVEFRONT, int, ordinal, uuid};
use crate::process::{answer, engine};
use crate::versions::check;

/// `hipDeviceProp_tR0600`, the layout that came with HIP 6.
#[repr(C)]
struct R0600 {
    name: [c_char; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    node_mask: u32,
    memory: usize,
    shared: usize,
    registers: c_int,
    wavefront: c_int,
    pitch: usize,
    block_threads: c_int,
    block: [c_int; 3],
    grid: [c_int; 3],
    clock: c_int,
    constant: usize,
    capability: [c_int; 2],
    texture_alignment: [usize; 2],
    overlap: c_int,
    multiprocessors: c_int,
    /// Much that the stand-in has not, or tells by attributes.
    others: [c_int; 192],
    architecture: [c_char; 256],
    shared_of_multiprocessor: usize,
    others_of_vendor: [c_int; 12],
}

const _: () = assert!(offset_of!(R0600, capability) == 360);
const _: () = assert!(offset_of!(R0600, architecture) == 1160);
const _: () = assert!(size_of::<R0600>() == 1472);

/// Text with NULs behind it.
fn text(text: &str) -> [c_char; 256] {
    let mut chars = [0; 256];
    for (to, byte) in chars.iter_mut().zip(text.bytes()) {
        *to = byte.cast_signed();
    }
    chars
}

#[unsafe(no_mangle)]
extern "C" fn hipGetDevicePropertiesR0600(properties: Out<R0600>, device: c_int) -> u32 {
    answer(|| {
        check("hipGetDevicePropertiesR0600")?;
        let device = ordinal(device)?;
        properties.put(R0600 {
            name: text(NAME),
            uuid: uuid(device),
            luid: [0; 8],
            node_mask: 0,
            memory: engine()?.config().memory,
            shared: SHARED_BYTES[0],
            registers: 65536,
            wavefront: int(WAVEFRONT),
            pitch: 0x7fff_ffff,
            block_threads: int(BLOCK_THREADS),
            block: BLOCK.map(int),
            grid: GRID.map(int),
            clock: 1_000_000,
            constant: 64 << 10,
            capability: [int(CAPABILITY.0), int(CAPABILITY.1)],
            texture_alignment: [256; 2],
            overlap: 1,
            multiprocessors: int(MULTIPROCESSORS),
            others: [0; 192],
            architecture: text(ARCHITECTURE),
            shared_of_multiprocessor: SHARED_BYTES[1],
            others_of_vendor: [0; 12],
        })
    })
}

/// The layout before HIP 6, which libraries of later versions still have under this name.
#[unsafe(no_mangle)]
extern "C" fn hipGetDeviceProperties(properties: Out<Old>, device: c_int) -> u32 {
    answer(|| {
        let device = ordinal(device)?;
        // SAFETY: the structure is of numbers, arrays of them, bits and raw pointers, all of which may be zero.
        let mut old: Old = unsafe { std::mem::zeroed() };
        old.name = text(NAME);
        old.totalGlobalMem = engine()?.config().memory;
        old.sharedMemPerBlock = SHARED_BYTES[0];
        old.regsPerBlock = 65536;
        old.warpSize = int(WAVEFRONT);
        old.maxThreadsPerBlock = int(BLOCK_THREADS);
        old.maxThreadsDim = BLOCK.map(int);
        old.maxGridSize = GRID.map(int);
        old.clockRate = 1_000_000;
        old.memoryClockRate = 1_000_000;
        old.memoryBusWidth = 64;
        old.totalConstMem = 64 << 10;
        (old.major, old.minor) = (int(CAPABILITY.0), int(CAPABILITY.1));
        old.multiProcessorCount = int(MULTIPROCESSORS);
        old.l2CacheSize = 1 << 20;
        old.maxThreadsPerMultiProcessor = int(MULTIPROCESSOR_THREADS);
        old.concurrentKernels = 1;
        old.pciBusID = int(device + 1);
        old.maxSharedMemoryPerMultiProcessor = SHARED_BYTES[1];
        old.canMapHostMemory = 1;
        old.gcnArchName = text(ARCHITECTURE);
        old.cooperativeLaunch = 1;
        old.memPitch = 0x7fff_ffff;
        old.managedMemory = 1;
        old.concurrentManagedAccess = 1;
        properties.put(old)
    })
}
