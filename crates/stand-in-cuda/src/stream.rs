//! Streams and events.
#![expect(unsafe_code, reason = "exports functions by name, and takes functions of the program's")]

use std::ffi::{c_int, c_uint, c_void};

use stand_in::{Callback, Code, Result};

use crate::context::PRIORITIES;
use crate::process::{current, current_to_wait, engine};
use stand_in::abi::{Handle, Out, answer};

stand_in::stream_functions! {
    destroy: cuStreamDestroy_v2, priority: cuStreamGetPriority, flags: cuStreamGetFlags,
    query: cuStreamQuery, synchronize: cuStreamSynchronize,
    event_destroy: cuEventDestroy_v2, event_record: cuEventRecord,
    event_query: cuEventQuery, event_synchronize: cuEventSynchronize,
    event_elapsed: cuEventElapsedTime,
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: Out<Handle>, flags: c_uint) -> u32 {
    cuStreamCreateWithPriority(stream, flags, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(
    stream: Out<Handle>,
    flags: c_uint,
    priority: c_int,
) -> u32 {
    answer(|| {
        let (engine, context) = current_to_wait()?;
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let priority = priority.clamp(PRIORITIES[0], PRIORITIES[1]);
        stream.put(engine.stream_create(&context, flags, priority)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) -> u32 {
    answer(|| {
        let engine = engine()?;
        context.put(engine.stream(named(engine, stream)?)?.context().handle())
    })
}

/// The handle of a stream, which may be one of the current context's own, where there is one.
fn named(engine: &stand_in::Engine, stream: Handle) -> Result<Handle> {
    current().map_or(Ok(stream), |(_, context)| engine.stream_of(&context, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        engine.stream_wait(&context, stream, event)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(
    stream: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: callers of the driver pass what it may call with the data from a thread of its own.
        let callback = unsafe { Callback::new(function, data) };
        // SAFETY: as above.
        unsafe { engine.call(&context, stream, callback) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: Out<Handle>, flags: c_uint) -> u32 {
    const DISABLE_TIMING: c_uint = 2;
    answer(|| {
        let (engine, context) = current()?;
        if flags > 3 {
            return Err(Code::INVALID_VALUE);
        }
        event.put(engine.event_create(&context, flags & DISABLE_TIMING == 0)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) -> u32 {
    cuEventElapsedTime(milliseconds, start, end)
}
