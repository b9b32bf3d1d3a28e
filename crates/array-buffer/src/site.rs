//! Lines of the program, in messages.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};

/// A line that made a call.
pub(crate) type Site = &'static Location<'static>;

static HIDDEN: AtomicBool = AtomicBool::new(false);

/// From now on the messages of this process do not say which line of the program made an access: for packages in other languages,
/// whose users have no such lines.
pub fn hide_sites() {
    HIDDEN.store(true, Ordering::Relaxed);
}

/// ` at file:line:column`, or nothing where lines are hidden.
pub(crate) struct At(pub(crate) Site);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match HIDDEN.load(Ordering::Relaxed) {
            true => Ok(()),
            false => write!(f, " at {}", self.0),
        }
    }
}
