//! The contexts of each thread.

use std::cell::RefCell;
use std::sync::Arc;

use stand_in::abi::Handle;
pub(crate) use stand_in::process::{engine, initialise, mode};
use stand_in::{Code, Context, Engine, Result};

thread_local! {
    /// The handles of the thread's contexts. The last one is current.
    static CONTEXTS: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
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
