//! The state that all parts of the engine use.

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::config::Config;
use crate::fault::FaultPlan;
use crate::report::Report;
use crate::space::Space;

/// The state that all parts of the engine use.
#[derive(Debug)]
pub(crate) struct EngineState {
    pub(crate) config: Config,
    pub(crate) faults: FaultPlan,
    pub(crate) report: Report,
    pub(crate) space: Space,
    /// The work that the host knows to be finished.
    pub(crate) host: Mutex<Clock>,
}

impl EngineState {
    /// Notes that the host has seen the end of this work.
    pub(crate) fn host_saw(&self, clock: &Clock) {
        self.host.lock().join(clock);
    }
}
