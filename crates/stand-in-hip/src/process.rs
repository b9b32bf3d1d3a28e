//! Each thread's device and last error, and the results of functions.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stand_in::process::{initialise, mode};
use stand_in::{Code, Context, Engine, Result, abi};

use crate::quirks::quirks;

/// What every call answers, where faults last; 0 until work has failed.
static FAULT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// What an exported function answers. It is the thread's last error, unless it is none.
pub(crate) fn answer(call: impl FnOnce() -> Result<()>) -> u32 {
    let code = match FAULT.load(Ordering::Acquire) {
        0 => abi::answer(call),
        fault => fault,
    };
    let code = match Code(code) {
        // HIP does not tell these apart.
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
            FAULT.store(code.0, Ordering::Release);
        }
    }
    if !matches!(code, Code(0) | Code::NOT_READY) {
        LAST.set(code.0);
    }
    code.0
}

/// The thread's last error, which is none from here on if it is taken.
pub(crate) fn last_error(take: bool) -> u32 {
    if take { LAST.take() } else { LAST.get() }
}

/// The devices. There is no need to initialise them.
pub(crate) fn engine() -> Result<&'static Engine> {
    quirks()?;
    initialise()
}

/// Number of the thread's device.
pub(crate) fn device() -> usize {
    DEVICE.get()
}

pub(crate) fn set_device(device: usize) {
    DEVICE.set(device);
}

/// The devices, and what belongs to the thread's one.
pub(crate) fn current() -> Result<(&'static Engine, Arc<Context>)> {
    let engine = engine()?;
    Ok((engine, engine.primary(device())?))
}

/// As [`current`], for a call that may wait or use a stream behind the scenes.
pub(crate) fn current_to_wait() -> Result<(&'static Engine, Arc<Context>)> {
    let (engine, context) = current()?;
    engine.may_wait(mode())?;
    Ok((engine, context))
}
