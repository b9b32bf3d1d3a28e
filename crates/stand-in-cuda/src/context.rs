//! Contexts.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{c_int, c_uint};

use stand_in::{Code, Result};

use crate::device::{int, ordinal};
use crate::process::{contexts, current, current_to_wait, engine, handle};
use stand_in::abi::{Handle, Out, answer};

/// The most urgent and the least urgent priority of streams.
pub(crate) const PRIORITIES: [c_int; 2] = [-5, 0];

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) -> u32 {
    answer(|| context.put(engine()?.retain(ordinal(device)?)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    answer(|| engine()?.release(ordinal(device)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> u32 {
    answer(|| engine()?.reset(ordinal(device)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: Out<c_uint>,
    active: Out<c_int>,
) -> u32 {
    answer(|| {
        flags.put(0)?;
        active.put(engine()?.is_active(ordinal(device)?)?.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2(context: Out<Handle>, flags: c_uint, device: c_int) -> u32 {
    /// Every flag that there is.
    const FLAGS: c_uint = 0xff;
    answer(|| {
        if flags > FLAGS {
            return Err(Code::INVALID_VALUE);
        }
        let made = engine()?.context_create(ordinal(device)?)?;
        contexts(|contexts| contexts.push(made));
        context.put(made)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: Handle) -> u32 {
    answer(|| {
        engine()?.context_destroy(context)?;
        contexts(|contexts| {
            contexts.pop_if(|current| *current == context);
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: Out<Handle>) -> u32 {
    answer(|| {
        engine()?;
        context.put(handle().unwrap_or(0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> u32 {
    answer(|| {
        let engine = engine()?;
        if context != 0 {
            engine.context(context)?;
        }
        contexts(|contexts| {
            contexts.pop();
            contexts.extend((context != 0).then_some(context));
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> u32 {
    answer(|| {
        engine()?.context(context)?;
        contexts(|contexts| contexts.push(context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: Out<Handle>) -> u32 {
    answer(|| {
        engine()?;
        context.offer(contexts(Vec::pop).ok_or(Code::INVALID_CONTEXT)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: Out<c_int>) -> u32 {
    answer(|| device.put(int(current()?.1.device())))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    answer(|| {
        let (engine, context) = current_to_wait()?;
        engine.synchronize(&context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> u32 {
    answer(|| {
        current()?.1.check()?;
        greatest.offer(PRIORITIES[0]);
        least.offer(PRIORITIES[1]);
        Ok(())
    })
}

/// Changes which devices' memory the current context reaches.
fn peer(peer: Handle, change: impl FnOnce(&stand_in::Context, usize) -> Result<()>) -> Result<()> {
    let (engine, context) = current()?;
    context.check()?;
    change(&context, engine.context(peer)?.device())
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(context: Handle, flags: c_uint) -> u32 {
    answer(|| match flags {
        0 => peer(context, stand_in::Context::enable_peer),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDisablePeerAccess(context: Handle) -> u32 {
    answer(|| peer(context, stand_in::Context::disable_peer))
}
