//! Streams and events.
#![expect(unsafe_code, reason = "exports functions by name, and takes functions of the program's")]

use std::ffi::{c_int, c_uint, c_void};

use stand_in::{Callback, Code, Result};

use crate::context::PRIORITIES;
use crate::process::{current, current_to_wait, engine, mode};
use stand_in::abi::{Handle, Out, answer};

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
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> u32 {
    answer(|| engine()?.stream_destroy(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: Handle, priority: Out<c_int>) -> u32 {
    answer(|| priority.put(engine()?.stream(stream)?.priority))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetFlags(stream: Handle, flags: Out<c_uint>) -> u32 {
    answer(|| flags.put(engine()?.stream(stream)?.flags))
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

/// Asks or waits, unless a graph is captured.
fn waiting(call: impl FnOnce(&stand_in::Engine) -> Result<()>) -> u32 {
    answer(|| {
        let engine = engine()?;
        engine.may_wait(mode())?;
        call(engine)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> u32 {
    waiting(|engine| engine.stream_query(named(engine, stream)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> u32 {
    waiting(|engine| engine.stream_synchronize(named(engine, stream)?))
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
extern "C" fn cuEventDestroy_v2(event: Handle) -> u32 {
    answer(|| engine()?.event_destroy(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        engine.event_record(&context, event, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> u32 {
    waiting(|engine| engine.event_query(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> u32 {
    waiting(|engine| engine.event_synchronize(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) -> u32 {
    answer(|| milliseconds.put(engine()?.event_elapsed(start, end)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) -> u32 {
    cuEventElapsedTime(milliseconds, start, end)
}
