//! The contexts of each thread, and the results of functions.

use std::cell::RefCell;
use std::env;
use std::sync::{Arc, OnceLock};

use stand_in::abi::{self, Handle};
use stand_in::process::{complain, fault, keep_fault};
pub(crate) use stand_in::process::{engine, initialise, mode};
use stand_in::{Code, Context, Engine, Result};

/// The variable that selects behaviour of some drivers.
const VARIABLE: &str = "STAND_IN_CUDA_QUIRKS";

thread_local! {
    /// The handles of the thread's contexts. The last one is current.
    static CONTEXTS: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// Returns the code of an exported function.
pub(crate) fn answer(call: impl FnOnce() -> Result<()>) -> u32 {
    let lasting = match has_lasting_faults() {
        Ok(lasting) => lasting,
        Err(code) => return code.0,
    };
    let code = fault().unwrap_or_else(|| Code(abi::answer(call)));
    if code.is_late() && lasting {
        keep_fault(code);
    }
    code.0
}

/// Whether the environment selects `lasting-faults`.
fn has_lasting_faults() -> Result<bool> {
    static QUIRKS: OnceLock<String> = OnceLock::new();
    match QUIRKS.get_or_init(|| env::var(VARIABLE).unwrap_or_default()).as_str() {
        "" => Ok(false),
        "lasting-faults" => Ok(true),
        other => Err(complain(&format!("{VARIABLE}: '{other}' is not lasting-faults"))),
    }
}

/// The engine and the current context of the thread.
pub(crate) fn current() -> Result<(&'static Engine, Arc<Context>)> {
    let engine = engine()?;
    let handle = handle().ok_or(Code::INVALID_CONTEXT)?;
    Ok((engine, engine.context(handle)?))
}

/// As [`current`], for a call that may wait or use a stream implicitly.
pub(crate) fn current_to_wait() -> Result<(&'static Engine, Arc<Context>)> {
    let (engine, context) = current()?;
    engine.may_wait(mode())?;
    Ok((engine, context))
}

/// The engine, for a call that may wait or use a stream implicitly.
pub(crate) fn engine_to_wait() -> Result<&'static Engine> {
    let engine = engine()?;
    engine.may_wait(mode())?;
    Ok(engine)
}

/// The handle of the thread's current context.
pub(crate) fn handle() -> Option<Handle> {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied())
}

/// Changes the contexts of the thread.
pub(crate) fn change_contexts<R>(change: impl FnOnce(&mut Vec<Handle>) -> R) -> R {
    CONTEXTS.with_borrow_mut(change)
}
