//! Streams, events and waits.
#![expect(unsafe_code, reason = "takes functions of the program's")]

use std::sync::Arc;
use std::thread;

use crate::callback::Callback;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::engine::Engine;
use crate::event::{Event, State};
use crate::fault::Class;
use crate::graph::Capture;
use crate::stream::Stream;
use crate::work::Work;

/// The number of the default stream that each thread has of its own; 0 and 1 are those of a context.
const PER_THREAD: u64 = 2;

impl Engine {
    /// Makes a stream.
    ///
    /// # Errors
    ///
    /// A planned fault.
    pub fn stream_create(&self, context: &Arc<Context>, flags: u32, priority: i32) -> Result<u64> {
        self.admit(Class::Stream, context)?;
        let stream = Stream::new(self.number(), context, flags, priority, &self.shared);
        Ok(self.streams.insert(stream))
    }

    /// The handle of a stream: for a number of those that a driver makes by itself, that of the context's, or for 2 of the
    /// calling thread's own. Their use is a violation, unless it is on purpose.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn stream_of(&self, context: &Arc<Context>, handle: u64) -> Result<u64> {
        if handle > PER_THREAD || !self.shared.config.default_streams {
            return Ok(handle);
        }
        let thread = (handle == PER_THREAD).then(|| thread::current().id());
        let mut defaults = self.defaults.lock();
        let known = defaults.get(&(context.handle(), thread)).copied();
        if let Some(known) = known.filter(|known| self.streams.get(*known).is_ok()) {
            return Ok(known);
        }
        let mut stream = Stream::new(self.number(), context, 0, 0, &self.shared);
        stream.is_default = true;
        let made = self.streams.insert(stream);
        defaults.insert((context.handle(), thread), made);
        Ok(made)
    }

    /// A stream. The numbers of streams that a driver makes by itself are violations.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn stream(&self, handle: u64) -> Result<Arc<Stream>> {
        if handle <= PER_THREAD {
            let message = format!("stream {handle} is the driver's own");
            self.shared.report.violation("default stream", message);
            return Err(Code::INVALID_HANDLE);
        }
        self.find(&self.streams, handle)
    }

    /// A stream of the context.
    pub(crate) fn stream_in(&self, context: &Arc<Context>, handle: u64) -> Result<Arc<Stream>> {
        let stream = self.stream(self.stream_of(context, handle)?)?;
        if !Arc::ptr_eq(&stream.context, context) {
            let message = format!("stream {handle:#x} is used where another context is current");
            self.shared.report.violation("wrong context", message);
            return Err(Code::INVALID_CONTEXT);
        }
        Ok(stream)
    }

    /// Ends a stream; its work is done.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`], or [`Code::STREAM_CAPTURE_UNSUPPORTED`] while it is captured.
    pub fn stream_destroy(&self, handle: u64) -> Result<()> {
        let stream = self.stream(handle)?;
        if let Some(code) = stream.with_capture(|captured| captured.as_ref().map(|c| c.spoil())) {
            let message = format!("stream {handle:#x} is destroyed while it is captured");
            self.shared.report.violation("unfinished capture", message);
            return Err(code);
        }
        self.forget(&self.streams, handle)?;
        stream.close();
        self.closing.lock().push(Arc::clone(&stream));
        stream.context.check()
    }

    /// Whether the work of a stream is over.
    ///
    /// # Errors
    ///
    /// [`Code::NOT_READY`], or how work has failed.
    pub fn stream_query(&self, handle: u64) -> Result<()> {
        let stream = self.stream(handle)?;
        stream.query()
    }

    /// Waits for the work of a stream.
    ///
    /// # Errors
    ///
    /// How work has failed.
    pub fn stream_synchronize(&self, handle: u64) -> Result<()> {
        let stream = self.stream(handle)?;
        self.admit(Class::Sync, &stream.context)?;
        stream.synchronize()?;
        self.settle(&stream.context);
        Ok(())
    }

    /// Lets a stream wait for an event.
    ///
    /// # Errors
    ///
    /// How work has failed in the context of either; codes of captures, where the stream is captured or the event is.
    pub fn stream_wait(&self, context: &Arc<Context>, stream: u64, event: u64) -> Result<()> {
        context.check()?;
        let (stream, event) = (self.stream_in(context, stream)?, self.find(&self.events, event)?);
        // As of a device in whose context work has failed.
        event.context.check()?;
        let state = event.state.lock().clone();
        if let State::Captured(capture, _) = &state
            && capture.has_ended()
        {
            return Err(Code::CAPTURED_EVENT);
        }
        let is_captured = stream.with_capture(|captured| match (captured, &state) {
            (captured @ None, State::Captured(capture, after)) => {
                capture.join(&stream, captured, after);
                Ok(true)
            }
            (Some(captured), State::Captured(capture, after)) => {
                if !Arc::ptr_eq(&captured.capture, capture) {
                    captured.spoil();
                    capture.spoil();
                    return Err(Code::STREAM_CAPTURE_MERGE);
                }
                captured.last.extend(after);
                captured.last.sort_unstable();
                captured.last.dedup();
                Ok(true)
            }
            (Some(captured), State::Recorded(_)) => {
                captured.spoil();
                Err(Code::STREAM_CAPTURE_ISOLATION)
            }
            (captured, _) => Ok(captured.is_some()),
        })?;
        match state {
            State::Recorded(mark) if !is_captured => stream.submit(Work::Wait(mark), None),
            _ => Ok(()),
        }
    }

    /// Lets a stream call a function of the program's.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    ///
    /// # Safety
    ///
    /// As [`Callback::new`], until the work is over.
    pub unsafe fn call(
        &self,
        context: &Arc<Context>,
        stream: u64,
        function: Callback,
    ) -> Result<()> {
        context.check()?;
        self.stream_in(context, stream)?.submit(Work::Call(function), None)
    }

    /// Makes an event, which may tell times.
    ///
    /// # Errors
    ///
    /// A planned fault.
    pub fn event_create(&self, context: &Arc<Context>, timed: bool) -> Result<u64> {
        self.admit(Class::Event, context)?;
        Ok(self.events.insert(Event::new(context, timed)))
    }

    /// Ends an event; what waits for it still does.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn event_destroy(&self, event: u64) -> Result<()> {
        self.forget(&self.events, event)?.context.check()
    }

    /// Lets an event stand for the work of a stream so far.
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

    /// Whether the work that an event stands for is over.
    ///
    /// # Errors
    ///
    /// [`Code::NOT_READY`], or how work has failed.
    pub fn event_query(&self, event: u64) -> Result<()> {
        let event = self.find(&self.events, event)?;
        event.context.check()?;
        let state = event.state.lock().clone();
        match state {
            State::Never => Ok(()),
            State::Captured(capture, _) => Err(captured(&capture)),
            State::Recorded(mark) if mark.reached().is_none() => Err(Code::NOT_READY),
            State::Recorded(mark) => {
                self.shared.learn(&mark.clock);
                mark.context.check()
            }
        }
    }

    /// Waits for the work that an event stands for.
    ///
    /// # Errors
    ///
    /// How work has failed.
    pub fn event_synchronize(&self, event: u64) -> Result<()> {
        let event = self.find(&self.events, event)?;
        self.admit(Class::Sync, &event.context)?;
        let state = event.state.lock().clone();
        match state {
            State::Never => Ok(()),
            State::Captured(capture, _) => Err(captured(&capture)),
            State::Recorded(mark) => {
                mark.wait()?;
                self.shared.learn(&mark.clock);
                self.settle(&event.context);
                Ok(())
            }
        }
    }

    /// Milliseconds between two events.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`] for events that tell no times or were never recorded, [`Code::NOT_READY`] before both are over.
    pub fn event_elapsed(&self, start: u64, end: u64) -> Result<f32> {
        let time = |handle| {
            let event = self.find(&self.events, handle)?;
            event.context.check()?;
            let state = event.state.lock().clone();
            match state {
                _ if !event.timed => Err(Code::INVALID_HANDLE),
                State::Never => Err(Code::INVALID_HANDLE),
                State::Captured(capture, _) => Err(captured(&capture)),
                State::Recorded(mark) => mark.reached().ok_or(Code::NOT_READY),
            }
        };
        let (start, end) = (time(start)?, time(end)?);
        let late = start.saturating_duration_since(end).as_secs_f32();
        Ok((end.saturating_duration_since(start).as_secs_f32() - late) * 1e3)
    }
}

/// The code for events that stand for captured work.
fn captured(capture: &Capture) -> Code {
    capture.spoil();
    Code::CAPTURED_EVENT
}
