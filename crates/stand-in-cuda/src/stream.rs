//! Streams and events.

use stand_in::abi::{Handle, Out};
use stand_in::{Code, Engine, Result};

use crate::process::{answer, current, current_to_wait, engine};

stand_in::stream_functions! {
    create: cuStreamCreateWithPriority by current_to_wait, destroy: cuStreamDestroy_v2,
    query: cuStreamQuery, synchronize: cuStreamSynchronize,
    wait: cuStreamWaitEvent with flags up to 1,
    event_create: cuEventCreate with flags in 3, event_destroy: cuEventDestroy_v2,
    event_record: cuEventRecord, event_query: cuEventQuery,
    event_synchronize: cuEventSynchronize, event_elapsed: cuEventElapsedTime,
}

stand_in::functions! {
    cuStreamCreate(stream: Out<Handle>, flags: u32) =
        match cuStreamCreateWithPriority(stream, flags, 0) {
            0 => Ok(()),
            code => Err(Code(code)),
        };
    cuStreamWaitValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) = {
        let (engine, context) = current()?;
        match flags {
            0 => engine.stream_wait_value(&context, stream, address, value),
            _ => Err(Code::INVALID_VALUE),
        }
    };
    cuStreamGetCtx(stream: Handle, context: Out<Handle>) = {
        let engine = engine()?;
        context.put(engine.stream(current_handle(engine, stream)?)?.context().handle())
    };
}

/// The handle of a stream, which may be a default stream of the current context.
fn current_handle(engine: &Engine, stream: Handle) -> Result<Handle> {
    current().map_or(Ok(stream), |(_, context)| engine.stream_handle(&context, stream))
}
