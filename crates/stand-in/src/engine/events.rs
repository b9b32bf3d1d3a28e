//! Events.

use std::sync::Arc;

use super::Engine;
use crate::capture::Capture;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::event::{Event, State};
use crate::fault::Class;

impl Engine {
    /// Creates an event, which can measure times if `timed`.
    ///
    /// # Errors
    ///
    /// A planned fault.
    pub fn event_create(&self, context: &Arc<Context>, timed: bool) -> Result<u64> {
        self.admit(Class::Event, context)?;
        Ok(self.events.insert(Event::new(context, timed)))
    }

    /// Destroys an event. Streams that wait for it still wait.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn event_destroy(&self, event: u64) -> Result<()> {
        self.remove(&self.events, event)?.context.check()
    }

    /// Makes an event stand for the work of a stream so far.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`] if they belong to different contexts.
    pub fn event_record(&self, context: &Arc<Context>, event: u64, stream: u64) -> Result<()> {
        context.check()?;
        let (event, stream) = (self.find(&self.events, event)?, self.stream_in(context, stream)?);
        if !Arc::ptr_eq(&event.context, &stream.context) {
            return Err(Code::INVALID_HANDLE);
        }
        let captured = stream.with_capture(|captured| {
            captured.as_ref().map(|c| State::Captured(Arc::clone(&c.capture), c.last.clone()))
        });
        let state = match captured {
            Some(state) => state,
            None => State::Recorded(stream.mark()?),
        };
        *event.state.lock() = state;
        Ok(())
    }

    /// Checks that the work of an event is finished.
    ///
    /// # Errors
    ///
    /// [`Code::NOT_READY`], or the code of failed work.
    pub fn event_query(&self, event: u64) -> Result<()> {
        let event = self.find(&self.events, event)?;
        event.context.check()?;
        event.context.check_progress()?;
        let state = event.state.lock().clone();
        match state {
            State::Never => Ok(()),
            State::Captured(capture, _) => Err(captured(&capture)),
            State::Recorded(mark) if mark.reached().is_none() => Err(Code::NOT_READY),
            State::Recorded(mark) => {
                self.state.host_saw(&mark.clock);
                mark.context.check()
            }
        }
    }

    /// Waits for the work of an event.
    ///
    /// # Errors
    ///
    /// The code of failed work.
    pub fn event_synchronize(&self, event: u64) -> Result<()> {
        let event = self.find(&self.events, event)?;
        self.admit_wait(&event.context)?;
        let state = event.state.lock().clone();
        match state {
            State::Never => Ok(()),
            State::Captured(capture, _) => Err(captured(&capture)),
            State::Recorded(mark) => {
                mark.wait()?;
                self.state.host_saw(&mark.clock);
                self.trim_pools(&event.context);
                Ok(())
            }
        }
    }

    /// The time between two events in milliseconds.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`] for events without timing or that were never recorded, [`Code::NOT_READY`] until the
    /// work of both is finished.
    pub fn event_elapsed(&self, start: u64, end: u64) -> Result<f32> {
        let time = |handle| {
            let event = self.find(&self.events, handle)?;
            event.context.check()?;
            let state = event.state.lock().clone();
            match state {
                State::Recorded(mark) if event.timed => mark.reached().ok_or(Code::NOT_READY),
                State::Captured(capture, _) if event.timed => Err(captured(&capture)),
                _ => Err(Code::INVALID_HANDLE),
            }
        };
        let (start, end) = (time(start)?, time(end)?);
        let late = start.saturating_duration_since(end).as_secs_f32();
        Ok((end.saturating_duration_since(start).as_secs_f32() - late) * 1e3)
    }
}

/// Returns the code for events that stand for captured work.
fn captured(capture: &Capture) -> Code {
    capture.invalidate();
    Code::CAPTURED_EVENT
}
