//! Source lines of the program, for messages.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};

/// A source line that made a call.
pub(crate) type CallSite = &'static Location<'static>;

static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Removes source lines from this process's error messages from now on. This is for packages in other languages, whose
/// users have no Rust source lines.
pub fn hide_call_sites() {
    HIDDEN.store(true, Ordering::Relaxed);
}

/// ` at file:line:column`, or nothing if lines are hidden.
pub(crate) struct At(pub(crate) CallSite);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match HIDDEN.load(Ordering::Relaxed) {
            true => Ok(()),
            false => write!(f, " at {}", self.0),
        }
    }
}
