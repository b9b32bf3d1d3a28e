//! State that every part of the engine uses.

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::config::Config;
use crate::fault::FaultPlan;
use crate::report::Report;
use crate::space::Space;

/// State that every part of the engine uses.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) faults: FaultPlan,
    pub(crate) report: Report,
    pub(crate) space: Space,
    /// What the host knows to be over.
    pub(crate) host: Mutex<Clock>,
}

impl Shared {
    /// The host has seen that something is over.
    pub(crate) fn learn(&self, clock: &Clock) {
        self.host.lock().join(clock);
    }
}
