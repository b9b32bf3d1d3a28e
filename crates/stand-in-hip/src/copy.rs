//! Copies and fills.
#![expect(unsafe_code, reason = "exports functions by name, and copies where callers say")]

use std::ffi::{c_int, c_uint, c_void};

use stand_in::abi::{Handle, In};
use stand_in::process::mode;
use stand_in::{Code, End, Pitch, Result};

use crate::device::ordinal;
use crate::process::{answer, current, engine};

/// The null stream, which functions without a stream use.
const NULL: Handle = 0;

stand_in::copy_functions! {
    to: hipMemcpyHtoDAsync, from: hipMemcpyDtoHAsync, within: hipMemcpyDtoDAsync,
    fill_8: hipMemsetD8Async, fill_16: hipMemsetD16Async, fill_32: hipMemsetD32Async,
}

/// Where a copy goes to and comes from, for a kind of copy.
fn ends(to: *mut c_void, from: *mut c_void, kind: c_uint) -> Result<[End; 2]> {
    let device = |pointer: *mut c_void| End::Device(pointer.addr() as u64);
    let host = |pointer: *mut c_void| End::Host(pointer.cast());
    let any = |pointer: *mut c_void| -> Result<End> {
        let is_known = engine()?.memory_at(pointer.addr() as u64).is_some();
        Ok(if is_known { device(pointer) } else { host(pointer) })
    };
    Ok(match kind {
        0 => [host(to), host(from)],
        1 => [device(to), host(from)],
        2 => [host(to), device(from)],
        3 => [device(to), device(from)],
        4 => [any(to)?, any(from)?],
        _ => return Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMemcpyAsync(
    to: *mut c_void,
    from: *mut c_void,
    len: usize,
    kind: c_uint,
    stream: Handle,
) -> u32 {
    answer(|| {
        let [to, from] = ends(to, from, kind)?;
        bytes(to, from, len, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMemcpyWithStream(
    to: *mut c_void,
    from: *mut c_void,
    len: usize,
    kind: c_uint,
    stream: Handle,
) -> u32 {
    answer(|| {
        let engine = engine()?;
        engine.may_wait(mode())?;
        let [to, from] = ends(to, from, kind)?;
        bytes(to, from, len, stream)?;
        engine.stream_synchronize(stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMemcpy(to: *mut c_void, from: *mut c_void, len: usize, kind: c_uint) -> u32 {
    hipMemcpyWithStream(to, from, len, kind, NULL)
}

#[unsafe(no_mangle)]
extern "C" fn hipMemcpyPeerAsync(
    to: u64,
    to_device: c_int,
    from: u64,
    from_device: c_int,
    len: usize,
    stream: Handle,
) -> u32 {
    answer(|| {
        let engine = engine()?;
        for (address, device) in [(to, to_device), (from, from_device)] {
            let device = ordinal(device)?;
            let found = engine.memory_at(address).filter(|_| len > 0);
            if found.is_some_and(|found| !found.is_hosted && found.device != device) {
                return Err(Code::INVALID_VALUE);
            }
        }
        bytes(End::Device(to), End::Device(from), len, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *mut c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_uint,
    stream: Handle,
) -> u32 {
    answer(|| {
        let [to, from] = ends(to, from, kind)?;
        let extent = [width, height, 1];
        let pitch = |pitch| Ok(Pitch::of([0; 3], [pitch, 0], extent)?.0);
        rows((to, pitch(to_pitch)?), (from, pitch(from_pitch)?), extent, stream)
    })
}

/// `hipPitchedPtr`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pitched {
    start: *mut c_void,
    pitch: usize,
    width: usize,
    height: usize,
}

/// `hipMemcpy3DParms`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy3 {
    from_array: Handle,
    from_origin: [usize; 3],
    from: Pitched,
    to_array: Handle,
    to_origin: [usize; 3],
    to: Pitched,
    extent: [usize; 3],
    kind: c_uint,
}

#[unsafe(no_mangle)]
extern "C" fn hipMemcpy3DAsync(copy: In<Copy3>, stream: Handle) -> u32 {
    answer(|| {
        let copy = copy.get()?;
        if (copy.from_array, copy.to_array) != (0, 0) {
            return Err(Code::NOT_SUPPORTED);
        }
        let resolve = |memory: Pitched, origin| {
            let (pitch, first) = Pitch::of(origin, [memory.pitch, memory.height], copy.extent)?;
            Ok((memory.start.wrapping_byte_add(first), pitch))
        };
        let (to, to_pitch) = resolve(copy.to, copy.to_origin)?;
        let (from, from_pitch) = resolve(copy.from, copy.from_origin)?;
        let [to, from] = ends(to, from, copy.kind)?;
        rows((to, to_pitch), (from, from_pitch), copy.extent, stream)
    })
}

/// Fills with the lowest byte of the value.
#[unsafe(no_mangle)]
extern "C" fn hipMemsetAsync(address: u64, value: c_int, bytes: usize, stream: Handle) -> u32 {
    answer(|| fill(address, &value.to_le_bytes()[..1], bytes, stream))
}

#[unsafe(no_mangle)]
extern "C" fn hipMemset(address: u64, value: c_int, bytes: usize) -> u32 {
    hipMemsetAsync(address, value, bytes, NULL)
}
