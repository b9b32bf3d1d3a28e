//! The current device of each thread, and the results of functions.

use std::cell::Cell;
use std::sync::Arc;

use stand_in::process::{fault, initialise, keep_fault, mode};
use stand_in::{Code, Context, Engine, Result, abi};

use crate::quirks::quirks;

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
}

/// Returns the code of an exported function.
pub(crate) fn answer(call: impl FnOnce() -> Result<()>) -> u32 {
    let code = fault().unwrap_or_else(|| Code(abi::answer(call)));
    let code = match code {
        // HIP does not distinguish these.
        Code::ILLEGAL_INSTRUCTION | Code::MISALIGNED_ADDRESS => Code::LAUNCH_FAILED,
        code => code,
    };
    if code.is_late()
        && let Ok(quirks) = quirks()
    {
        if quirks.ending_faults {
            eprintln!("stand-in: work failed with code {}", code.0);
            std::process::abort();
        }
        if quirks.lasting_faults {
            keep_fault(code);
        }
    }
    code.0
}

/// The engine. The first call initialises it.
pub(crate) fn engine() -> Result<&'static Engine> {
    quirks()?;
    initialise()
}

/// The number of the current device of the thread.
pub(crate) fn device() -> usize {
    DEVICE.get()
}

pub(crate) fn set_device(device: usize) {
    DEVICE.set(device);
}

/// The engine and the context of the thread's current device.
pub(crate) fn current() -> Result<(&'static Engine, Arc<Context>)> {
    let engine = engine()?;
    Ok((engine, engine.primary(device())?))
}

/// As [`current`], for a call that may wait or use a stream implicitly.
pub(crate) fn current_to_wait() -> Result<(&'static Engine, Arc<Context>)> {
    let (engine, context) = current()?;
    engine.may_wait(mode())?;
    Ok((engine, context))
}
