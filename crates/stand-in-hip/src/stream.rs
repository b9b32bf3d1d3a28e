//! Streams and events.
#![expect(unsafe_code, reason = "exports functions by name, and takes functions of the program's")]

use std::ffi::{c_int, c_uint, c_void};

use stand_in::abi::{Handle, Out};
use stand_in::{Callback, Code, Engine, Result};

use crate::device::{PRIORITIES, int};
use crate::process::{answer, current, engine};
use crate::quirks::can_answer;
use crate::versions::check;

stand_in::stream_functions! {
    destroy: hipStreamDestroy, priority: hipStreamGetPriority, flags: hipStreamGetFlags,
    query: hipStreamQuery, synchronize: hipStreamSynchronize,
    event_destroy: hipEventDestroy, event_record: hipEventRecord,
    event_query: hipEventQuery, event_synchronize: hipEventSynchronize,
    event_elapsed: hipEventElapsedTime,
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamCreate(stream: Out<Handle>) -> u32 {
    hipStreamCreateWithPriority(stream, 0, 0)
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamCreateWithFlags(stream: Out<Handle>, flags: c_uint) -> u32 {
    hipStreamCreateWithPriority(stream, flags, 0)
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamCreateWithPriority(
    stream: Out<Handle>,
    flags: c_uint,
    priority: c_int,
) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let priority = priority.clamp(PRIORITIES[0], PRIORITIES[1]);
        stream.put(engine.stream_create(&context, flags, priority)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamGetDevice(stream: Handle, device: Out<c_int>) -> u32 {
    answer(|| {
        check("hipStreamGetDevice")?;
        can_answer()?;
        device.put(int(engine()?.stream(stream)?.context().device()))
    })
}

/// The handle of a stream, which may be the current device's own.
fn named(engine: &Engine, stream: Handle) -> Result<Handle> {
    engine.stream_of(&current()?.1, stream)
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        engine.stream_wait(&context, stream, event)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipLaunchHostFunc(
    stream: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> u32 {
    answer(|| {
        check("hipLaunchHostFunc")?;
        let (engine, context) = current()?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: callers of the runtime pass what it may call with the data from a thread of its own.
        let callback = unsafe { Callback::new(function, data) };
        // SAFETY: as above.
        unsafe { engine.call(&context, stream, callback) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamAddCallback(
    stream: Handle,
    function: Option<unsafe extern "C" fn(Handle, u32, *mut c_void)>,
    data: *mut c_void,
    flags: c_uint,
) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        let function = function.filter(|_| flags == 0).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: as for `hipLaunchHostFunc`.
        let callback = unsafe { Callback::with_status(function, stream, data) };
        // SAFETY: as above.
        unsafe { engine.call(&context, stream, callback) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipEventCreate(event: Out<Handle>) -> u32 {
    hipEventCreateWithFlags(event, 0)
}

#[unsafe(no_mangle)]
extern "C" fn hipEventCreateWithFlags(event: Out<Handle>, flags: c_uint) -> u32 {
    const DISABLE_TIMING: c_uint = 2;
    /// Waits that yield, no timing; without a fence, with one for the device or the system.
    const FLAGS: c_uint = 0x3 | 0xe000_0000;
    answer(|| {
        let (engine, context) = current()?;
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        event.put(engine.event_create(&context, flags & DISABLE_TIMING == 0)?)
    })
}
