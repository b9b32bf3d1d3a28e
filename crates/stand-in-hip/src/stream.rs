//! Streams and events.

use stand_in::abi::{Handle, Out};
use stand_in::{Code, Engine, Result};

use crate::device::int;
use crate::memory::SIGNAL_BYTES;
use crate::process::{answer, current, engine};
use crate::quirks::check_queries;
use crate::versions::{HIP_5_6, check};

stand_in::stream_functions! {
    create: hipStreamCreateWithPriority by current, destroy: hipStreamDestroy,
    query: hipStreamQuery, synchronize: hipStreamSynchronize,
    wait: hipStreamWaitEvent with flags up to 0,
    // Besides blocking waits and no timing: without a fence, with one for the device or the system.
    event_create: hipEventCreateWithFlags with flags in 0xe000_0003,
    event_destroy: hipEventDestroy, event_record: hipEventRecord, event_query: hipEventQuery,
    event_synchronize: hipEventSynchronize, event_elapsed: hipEventElapsedTime,
}

stand_in::functions! {
    hipStreamCreateWithFlags(stream: Out<Handle>, flags: u32) =
        match hipStreamCreateWithPriority(stream, flags, 0) {
            0 => Ok(()),
            code => Err(Code(code)),
        };
    /// Waits for signals alone, as the runtime does.
    hipStreamWaitValue32(stream: Handle, signal: u64, value: u32, flags: u32, mask: u32) = {
        let (engine, context) = current()?;
        let is_signal = engine
            .memory_at(signal)
            .is_some_and(|at| at.is_managed && (at.base, at.len) == (signal, SIGNAL_BYTES));
        match (flags, mask) {
            (0, u32::MAX) if is_signal => {
                engine.stream_wait_value(&context, stream, signal, value)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    };
    hipStreamGetDevice(stream: Handle, device: Out<i32>) = {
        check(HIP_5_6)?;
        check_queries()?;
        device.put(int(engine()?.stream(stream)?.context().device()))
    };
}

/// The handle of a stream, which may be a default stream of the current device.
fn current_handle(engine: &Engine, stream: Handle) -> Result<Handle> {
    engine.stream_handle(&current()?.1, stream)
}
