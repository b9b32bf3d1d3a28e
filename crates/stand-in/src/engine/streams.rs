//! Streams, and functions of the program that they call.
#![expect(unsafe_code, reason = "takes functions of the program")]

use std::sync::Arc;
use std::thread;

use super::Engine;
use crate::callback::Callback;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::event::State;
use crate::fault::Class;
use crate::stream::Stream;
use crate::work::Work;

/// The handle of the default stream of each thread. The handles 0 and 1 are the default streams of a context.
const PER_THREAD: u64 = 2;

impl Engine {
    /// Creates a stream.
    ///
    /// # Errors
    ///
    /// A planned fault.
    pub fn stream_create(&self, context: &Arc<Context>) -> Result<u64> {
        self.admit(Class::Stream, context)?;
        Ok(self.streams.insert(self.new_stream(context, false)))
    }

    fn new_stream(&self, context: &Arc<Context>, is_default: bool) -> Stream {
        let mut count = self.stream_count.lock();
        *count += 1;
        Stream::new(*count, context, is_default, &self.state)
    }

    /// The handle of a stream. If default streams are used on purpose, the handles 0 to 2 stand for the default streams
    /// of the context and of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn stream_handle(&self, context: &Arc<Context>, handle: u64) -> Result<u64> {
        if handle > PER_THREAD || !self.state.config.default_streams {
            return Ok(handle);
        }
        let thread = (handle == PER_THREAD).then(|| thread::current().id());
        let mut defaults = self.default_streams.lock();
        let known = defaults.get(&(context.handle(), thread)).copied();
        if let Some(known) = known.filter(|known| self.streams.get(*known).is_ok()) {
            return Ok(known);
        }
        let created = self.streams.insert(self.new_stream(context, true));
        defaults.insert((context.handle(), thread), created);
        Ok(created)
    }

    /// A stream. The handles of default streams are violations.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn stream(&self, handle: u64) -> Result<Arc<Stream>> {
        if handle <= PER_THREAD {
            let message = format!("stream {handle} is a default stream of the driver");
            self.state.report.violation("default stream", message);
            return Err(Code::INVALID_HANDLE);
        }
        self.find(&self.streams, handle)
    }

    /// A stream of the context.
    pub(super) fn stream_in(&self, context: &Arc<Context>, handle: u64) -> Result<Arc<Stream>> {
        let stream = self.stream(self.stream_handle(context, handle)?)?;
        if !Arc::ptr_eq(&stream.context, context) {
            let message = format!("stream {handle:#x} is used while another context is current");
            self.state.report.violation("wrong context", message);
            return Err(Code::INVALID_CONTEXT);
        }
        Ok(stream)
    }

    /// Destroys a stream. Its work still runs.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`], or [`Code::STREAM_CAPTURE_UNSUPPORTED`] while it is captured.
    pub fn stream_destroy(&self, handle: u64) -> Result<()> {
        let stream = self.stream(handle)?;
        if let Some(code) =
            stream.with_capture(|captured| captured.as_ref().map(|captured| captured.invalidate()))
        {
            let message = format!("stream {handle:#x} is destroyed while it is captured");
            self.state.report.violation("unfinished capture", message);
            return Err(code);
        }
        self.remove(&self.streams, handle)?;
        stream.close();
        self.closing.lock().push(Arc::clone(&stream));
        stream.context.check()
    }

    /// Checks that the work of a stream is finished.
    ///
    /// # Errors
    ///
    /// [`Code::NOT_READY`], or the code of failed work.
    pub fn stream_query(&self, handle: u64) -> Result<()> {
        let stream = self.stream(handle)?;
        stream.context.check_progress()?;
        stream.query()
    }

    /// Waits for the work of a stream.
    ///
    /// # Errors
    ///
    /// The code of failed work.
    pub fn stream_synchronize(&self, handle: u64) -> Result<()> {
        let stream = self.stream(handle)?;
        self.admit_wait(&stream.context)?;
        stream.synchronize()?;
        self.trim_pools(&stream.context);
        Ok(())
    }

    /// Makes a stream wait for an event.
    ///
    /// # Errors
    ///
    /// The code of failed work in the context of either; codes of captures, if the stream or the event is captured.
    pub fn stream_wait(&self, context: &Arc<Context>, stream: u64, event: u64) -> Result<()> {
        context.check()?;
        let (stream, event) = (self.stream_in(context, stream)?, self.find(&self.events, event)?);
        event.context.check()?;
        let state = event.state.lock().clone();
        if let State::Captured(capture, _) = &state
            && capture.has_ended()
        {
            return Err(Code::CAPTURED_EVENT);
        }
        let is_captured = stream.with_capture(|captured| match (captured, &state) {
            (captured @ None, State::Captured(capture, after)) => {
                capture.join(&stream.context, captured, after);
                Ok(true)
            }
            (Some(captured), State::Captured(capture, after)) => {
                if !Arc::ptr_eq(&captured.capture, capture) {
                    captured.invalidate();
                    capture.invalidate();
                    return Err(Code::STREAM_CAPTURE_MERGE);
                }
                captured.wait_for(after);
                Ok(true)
            }
            (Some(captured), State::Recorded(_)) => {
                captured.invalidate();
                Err(Code::STREAM_CAPTURE_ISOLATION)
            }
            (captured, _) => Ok(captured.is_some()),
        })?;
        match state {
            State::Recorded(mark) if !is_captured => stream.submit(Work::Wait(mark), None),
            _ => Ok(()),
        }
    }

    /// Makes a stream wait until 4 bytes that the host can write contain a number that is at least `value`.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless the address is aligned, and in memory that host and devices can access.
    pub fn stream_wait_value(
        &self,
        context: &Arc<Context>,
        stream: u64,
        address: u64,
        value: u32,
    ) -> Result<()> {
        context.check()?;
        let stream = self.stream_in(context, stream)?;
        let (memory, at) = self.range(address, 4)?;
        if !address.is_multiple_of(4) || !(memory.is_pinned() || memory.is_managed()) {
            return Err(Code::INVALID_VALUE);
        }
        stream.submit(Work::WaitValue(memory, at, value), None)
    }

    /// Makes a stream call a function of the program.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    ///
    /// # Safety
    ///
    /// As [`Callback::new`], until the work is finished.
    pub unsafe fn call(
        &self,
        context: &Arc<Context>,
        stream: u64,
        function: Callback,
    ) -> Result<()> {
        context.check()?;
        self.stream_in(context, stream)?.submit(Work::Call(function), None)
    }
}
