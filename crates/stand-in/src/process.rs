//! The state of a driver in a process: the engine, and the calls that each thread must not make during captures.
#![expect(unsafe_code, reason = "registers a function for the end of the process")]

use std::cell::Cell;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::capture::CaptureMode;
use crate::code::{Code, Result};
use crate::config::{self, Config};
use crate::engine::Engine;

static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();

/// The code that every call returns, where faults last; 0 until work has failed.
static FAULT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The calls that a capture forbids this thread.
    static MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// Creates the devices that the environment describes, on the first call. Writes the report when the process ends.
///
/// # Errors
///
/// [`Code::NO_DEVICE`] if the environment describes no devices. [`Code::UNKNOWN`] if a setting is invalid, with a line
/// on standard error.
pub fn initialise() -> Result<&'static Engine> {
    let engine = ENGINE.get_or_init(|| {
        // SAFETY: the function has no arguments, and the library stays loaded until the process ends.
        if unsafe { libc::atexit(at_exit) } != 0 {
            return Err("there will be no report at the end".to_owned());
        }
        Engine::new(Config::from_env()?)
    });
    match engine {
        Ok(engine) if engine.config().devices == 0 => Err(Code::NO_DEVICE),
        Ok(engine) => Ok(engine),
        Err(why) => Err(complain(why)),
    }
}

extern "C" fn at_exit() {
    if let Some(Ok(engine)) = ENGINE.get()
        && let Err(error) = engine.write_report()
    {
        eprintln!("stand-in: the report was not written: {error}");
    }
}

/// The code of the failed work after which every call fails, if [`keep_fault`] was called.
pub fn fault() -> Option<Code> {
    match FAULT.load(Ordering::Acquire) {
        0 => None,
        code => Some(Code(code)),
    }
}

/// Lets every later call fail with the code of work that failed.
pub fn keep_fault(code: Code) {
    FAULT.store(code.0, Ordering::Release);
}

/// Returns the devices.
///
/// # Errors
///
/// [`Code::NOT_INITIALIZED`] before [`initialise`].
pub fn engine() -> Result<&'static Engine> {
    ENGINE.get().and_then(|engine| engine.as_ref().ok()).ok_or(Code::NOT_INITIALIZED)
}

/// Reads a number from the environment.
///
/// # Errors
///
/// [`Code::UNKNOWN`] if the value is not a number up to `most`, with a line on standard error.
pub fn number<T>(variable: &str, default: T, most: T) -> Result<T>
where
    T: FromStr + PartialOrd + Display,
{
    config::number(variable, default, most).map_err(|why| complain(&why))
}

/// Writes an error to standard error. Returns the code for the caller.
pub fn complain(why: &str) -> Code {
    eprintln!("stand-in: {why}");
    Code::UNKNOWN
}

/// The calls that a capture forbids the thread.
pub fn mode() -> CaptureMode {
    MODE.get()
}

/// Changes [`mode`].
pub fn set_mode(mode: CaptureMode) {
    MODE.set(mode);
}
