//! Events.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::code::Result;
use crate::context::Context;
use crate::graph::Capture;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Arc<Context>,
    pub(crate) timed: bool,
    pub(crate) state: Mutex<State>,
}

/// What an event stands for.
#[derive(Clone, Debug, Default)]
pub(crate) enum State {
    #[default]
    Never,
    Recorded(Arc<Mark>),
    /// Nodes of a graph that is being captured.
    Captured(Arc<Capture>, Vec<usize>),
}

impl Event {
    pub(crate) fn new(context: &Arc<Context>, timed: bool) -> Self {
        Self { context: Arc::clone(context), timed, state: Mutex::default() }
    }
}

/// A place in a stream: one record of an event.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) context: Arc<Context>,
    /// What the place comes after, itself included.
    pub(crate) clock: Clock,
    reached: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Mark {
    pub(crate) fn new(context: &Arc<Context>, clock: Clock) -> Self {
        let (reached, changed) = (Mutex::default(), Condvar::new());
        Self { context: Arc::clone(context), clock, reached, changed }
    }

    pub(crate) fn reach(&self) {
        self.reached.lock().get_or_insert_with(Instant::now);
        self.changed.notify_all();
    }

    pub(crate) fn reached(&self) -> Option<Instant> {
        *self.reached.lock()
    }

    pub(crate) fn wait(&self) -> Result<()> {
        let mut reached = self.reached.lock();
        self.changed.wait_while(&mut reached, |reached| reached.is_none());
        self.context.check()
    }
}
