//! Contexts.

use stand_in::Code;
use stand_in::abi::{Handle, Out};

use crate::device::{int, ordinal};
use crate::process::{answer, change_contexts, current, engine, handle};

stand_in::functions! {
    cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) =
        context.put(engine()?.retain(ordinal(device)?)?);
    cuDevicePrimaryCtxRelease_v2(device: i32) = engine()?.release(ordinal(device)?);
    cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) = {
        flags.put(0)?;
        active.put(engine()?.is_active(ordinal(device)?)?.into())
    };
    cuCtxCreate_v2(context: Out<Handle>, flags: u32, device: i32) = {
        /// All flags of the interface.
        const FLAGS: u32 = 0xff;
        if flags > FLAGS {
            return Err(Code::INVALID_VALUE);
        }
        let created = engine()?.context_create(ordinal(device)?)?;
        change_contexts(|contexts| contexts.push(created));
        context.put(created)
    };
    cuCtxDestroy_v2(context: Handle) = {
        engine()?.context_destroy(context)?;
        change_contexts(|contexts| contexts.pop_if(|current| *current == context));
        Ok(())
    };
    cuCtxGetCurrent(context: Out<Handle>) = {
        engine()?;
        context.put(handle().unwrap_or(0))
    };
    cuCtxSetCurrent(context: Handle) = {
        let engine = engine()?;
        if context != 0 {
            engine.context(context)?;
        }
        change_contexts(|contexts| {
            contexts.pop();
            contexts.extend((context != 0).then_some(context));
        });
        Ok(())
    };
    cuCtxGetDevice(device: Out<i32>) = device.put(int(current()?.1.device()));
    cuCtxEnablePeerAccess(peer: Handle, flags: u32) = {
        let (engine, context) = current()?;
        context.check()?;
        match flags {
            0 => context.enable_peer(engine.context(peer)?.device()),
            _ => Err(Code::INVALID_VALUE),
        }
    };
}
