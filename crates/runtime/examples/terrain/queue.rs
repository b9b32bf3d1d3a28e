//! Limits how far the host runs ahead of the device.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use runtime::{Event, Result, Stream};

use crate::progress::Progress;

/// Cell updates and launches between two events: few enough for a smooth progress bar and a short queue, and enough
/// that events cost almost nothing.
const CELLS_PER_EVENT: usize = 1 << 23;
const LAUNCHES_PER_EVENT: usize = 256;

/// Number of events in flight. The device always has work, and the displayed progress is nearly up to date.
const EVENTS_IN_FLIGHT: usize = 2;

/// Time between two synchronisations. Only these report failures on the device. It is long enough that they cost almost
/// nothing, and short enough to end a failed run early.
const BETWEEN_CHECKS: Duration = Duration::from_millis(200);

/// The steps that a stream still has to run. The host waits only if there are many.
pub(crate) struct Queue<'a> {
    stream: &'a Stream,
    progress: &'a mut Progress,
    steps_per_event: u64,
    /// Number of steps after the last event.
    steps: u64,
    /// Events, each with the number of steps since the previous event.
    events: VecDeque<(Event, u64)>,
    checked: Instant,
}

impl<'a> Queue<'a> {
    /// A queue of steps of this many cells each. It reports to `progress` and starts its clock.
    pub(crate) fn new(stream: &'a Stream, cells: usize, progress: &'a mut Progress) -> Self {
        progress.begin();
        let steps_per_event = CELLS_PER_EVENT.div_ceil(cells).min(LAUNCHES_PER_EVENT) as u64;
        let events = VecDeque::with_capacity(EVENTS_IN_FLIGHT + 1);
        Self { stream, progress, steps_per_event, steps: 0, events, checked: Instant::now() }
    }

    /// Registers an enqueued step, and waits if the queue is full.
    pub(crate) fn pushed(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps < self.steps_per_event {
            return Ok(());
        }
        self.events.push_back((self.stream.record_event()?, self.steps));
        self.steps = 0;
        if self.events.len() > EVENTS_IN_FLIGHT
            && let Some((event, steps)) = self.events.pop_front()
        {
            event.wait()?;
            self.progress.advance(steps);
        }
        if self.checked.elapsed() >= BETWEEN_CHECKS {
            self.stream.synchronize()?;
            self.checked = Instant::now();
        }
        Ok(())
    }

    /// Waits until all steps are done.
    pub(crate) fn finish(&mut self) -> Result<()> {
        while let Some((event, steps)) = self.events.pop_front() {
            event.wait()?;
            self.progress.advance(steps);
        }
        self.stream.synchronize()?;
        self.progress.advance(std::mem::take(&mut self.steps));
        Ok(())
    }
}
