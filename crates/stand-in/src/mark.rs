//! Positions in streams for which other streams and the host can wait.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::code::Result;
use crate::context::Context;

/// A position in a stream: one record of an event.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) context: Arc<Context>,
    /// The work that is ordered before the end of this position.
    pub(crate) clock: Clock,
    reached: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Mark {
    pub(crate) fn new(context: &Arc<Context>, clock: Clock) -> Self {
        let (reached, changed) = (Mutex::default(), Condvar::new());
        Self { context: Arc::clone(context), clock, reached, changed }
    }

    /// Notes that the stream has reached it.
    pub(crate) fn reach(&self) {
        self.reached.lock().get_or_insert_with(Instant::now);
        self.changed.notify_all();
    }

    /// The time when the stream reached it.
    pub(crate) fn reached(&self) -> Option<Instant> {
        *self.reached.lock()
    }

    /// Blocks until the stream has reached it.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut reached = self.reached.lock();
        self.changed.wait_while(&mut reached, |reached| reached.is_none());
        self.context.check()
    }
}
