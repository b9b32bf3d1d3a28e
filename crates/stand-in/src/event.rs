//! Events.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::capture::Capture;
use crate::context::Context;
use crate::mark::Mark;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Arc<Context>,
    /// Whether it can measure times.
    pub(crate) timed: bool,
    pub(crate) state: Mutex<State>,
}

/// The work for which an event stands.
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
