//! Copies and fills.
#![expect(unsafe_code, reason = "exports functions by name, and copies where callers say")]

use std::ffi::c_uint;

use cudarc::driver::sys::CUmemorytype;
use stand_in::{Code, End, Extent, Pitch, Result};

use crate::process::{current, engine};
use stand_in::abi::{Handle, In, answer};

stand_in::copy_functions! {
    to: cuMemcpyHtoDAsync_v2, from: cuMemcpyDtoHAsync_v2, within: cuMemcpyDtoDAsync_v2,
    fill_8: cuMemsetD8Async, fill_16: cuMemsetD16Async, fill_32: cuMemsetD32Async,
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(to: u64, from: u64, len: usize, stream: Handle) -> u32 {
    answer(|| bytes(End::Device(to), End::Device(from), len, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    len: usize,
    stream: Handle,
) -> u32 {
    answer(|| {
        let engine = engine()?;
        for (address, context) in [(to, to_context), (from, from_context)] {
            let context = engine.context(context)?;
            let found = engine.memory_at(address).filter(|_| len > 0);
            if found.is_some_and(|found| !found.is_hosted && found.device != context.device()) {
                return Err(Code::INVALID_VALUE);
            }
        }
        bytes(End::Device(to), End::Device(from), len, stream)
    })
}

/// One end of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct End2 {
    x: usize,
    y: usize,
    kind: c_uint,
    host: *mut u8,
    device: u64,
    array: Handle,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy2 {
    from: End2,
    to: End2,
    width: usize,
    height: usize,
}

/// One end of `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct End3 {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: c_uint,
    host: *mut u8,
    device: u64,
    array: Handle,
    reserved: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy3 {
    from: End3,
    to: End3,
    width: usize,
    height: usize,
    depth: usize,
}

impl End2 {
    fn with_planes(self) -> End3 {
        let Self { x, y, kind, host, device, array, pitch } = self;
        End3 { x, y, z: 0, level: 0, kind, host, device, array, reserved: 0, pitch, height: 0 }
    }
}

impl End3 {
    /// Where the first byte of an extent is, and how far apart its rows and planes are.
    fn resolve(self, extent: Extent) -> Result<(End, Pitch)> {
        const HOST: u32 = CUmemorytype::CU_MEMORYTYPE_HOST as u32;
        const DEVICE: u32 = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
        const UNIFIED: u32 = CUmemorytype::CU_MEMORYTYPE_UNIFIED as u32;
        if self.level != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (pitch, first) =
            Pitch::of([self.x, self.y, self.z], [self.pitch, self.height], extent)?;
        let end = match self.kind {
            HOST => End::Host(self.host.wrapping_add(first)),
            DEVICE | UNIFIED => End::Device(self.device.wrapping_add(first as u64)),
            _ => return Err(Code::NOT_SUPPORTED),
        };
        Ok((end, pitch))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DAsync_v2(copy: In<Copy2>, stream: Handle) -> u32 {
    answer(|| {
        let Copy2 { from, to, width, height } = copy.get()?;
        let extent = [width, height, 1];
        let resolve = |end: End2| end.with_planes().resolve(extent);
        rows(resolve(to)?, resolve(from)?, extent, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DAsync_v2(copy: In<Copy3>, stream: Handle) -> u32 {
    answer(|| {
        let Copy3 { from, to, width, height, depth } = copy.get()?;
        let extent = [width, height, depth];
        rows(to.resolve(extent)?, from.resolve(extent)?, extent, stream)
    })
}
