//! What the process has of the driver: the engine, and each thread's contexts.
#![expect(unsafe_code, reason = "asks to be called at the end of the process")]

use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};

use stand_in::{CaptureMode, Code, Config, Context, Engine, Result};

use crate::abi::Handle;

static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();

thread_local! {
    /// Handles of contexts, the current one last.
    static CONTEXTS: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    /// What this thread is forbidden while a graph is captured.
    static MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// What the environment asks for. That it asks for what is not possible is told on standard error.
pub(crate) fn config() -> Result<Config> {
    Config::from_env().map_err(|why| {
        eprintln!("stand-in: {why}");
        Code::UNKNOWN
    })
}

/// Makes the devices, unless they are there.
pub(crate) fn initialise() -> Result<()> {
    let engine = ENGINE.get_or_init(|| {
        // SAFETY: the function takes nothing, and the library stays until the process ends.
        if unsafe { libc::atexit(at_exit) } != 0 {
            return Err("there will be no report at the end".to_owned());
        }
        Engine::new(Config::from_env()?)
    });
    match engine {
        Ok(engine) if engine.config().devices == 0 => Err(Code::NO_DEVICE),
        Ok(_) => Ok(()),
        Err(why) => {
            eprintln!("stand-in: {why}");
            Err(Code::UNKNOWN)
        }
    }
}

extern "C" fn at_exit() {
    if let Some(Ok(engine)) = ENGINE.get()
        && let Err(error) = engine.write_report()
    {
        eprintln!("stand-in: the report was not written: {error}");
    }
}

/// The devices.
pub(crate) fn engine() -> Result<&'static Engine> {
    ENGINE.get().and_then(|engine| engine.as_ref().ok()).ok_or(Code::NOT_INITIALIZED)
}

/// The devices and the thread's current context.
pub(crate) fn current() -> Result<(&'static Engine, Arc<Context>)> {
    let engine = engine()?;
    let handle = handle().ok_or(Code::INVALID_CONTEXT)?;
    Ok((engine, engine.context(handle)?))
}

/// As [`current`], for a call that may wait or use a stream behind the scenes.
pub(crate) fn current_to_wait() -> Result<(&'static Engine, Arc<Context>)> {
    let (engine, context) = current()?;
    engine.may_wait(mode())?;
    Ok((engine, context))
}

/// Handle of the thread's current context.
pub(crate) fn handle() -> Option<Handle> {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied())
}

/// Changes the thread's contexts.
pub(crate) fn contexts<R>(change: impl FnOnce(&mut Vec<Handle>) -> R) -> R {
    CONTEXTS.with_borrow_mut(change)
}

pub(crate) fn mode() -> CaptureMode {
    MODE.get()
}

pub(crate) fn set_mode(mode: CaptureMode) {
    MODE.set(mode);
}
