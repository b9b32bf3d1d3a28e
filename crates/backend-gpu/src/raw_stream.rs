//! Streams of the library, which this backend or another library owns, and places in them.
#![expect(unsafe_code, reason = "uses streams and events through the library")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backend_support::{Failures, POLL_TIMEOUT, lock, poll_until_finished};

use crate::api::Api;
use crate::context::Context;
use crate::handle;
use crate::vendor::Vendor;

/// A stream of the library.
#[derive(Debug)]
pub(crate) struct RawStream<V: Vendor> {
    raw: handle::Stream,
    context: Arc<Context<V>>,
    /// Failures that the library does not know.
    failures: Arc<Failures>,
    /// The state of a stream that another library owns. `None` for a stream of this backend.
    borrowed: Option<Mutex<Borrowed<V>>>,
}

/// The state of a stream that another library owns. The lock is held while the handle is used, so that the handle is
/// not used after the end.
#[derive(Debug)]
struct Borrowed<V: Vendor> {
    /// Whether the use of the stream has ended.
    ended: bool,
    /// After the end: an event at the end. Before the end, if the handle means a different stream in each thread: the
    /// latest event that comes after all work so far.
    last: Option<Arc<Event<V>>>,
}

impl<V: Vendor> RawStream<V> {
    /// A stream that this backend owns.
    pub(crate) fn owned(raw: handle::Stream, context: &Arc<Context<V>>) -> Self {
        Self::new(raw, context, None)
    }

    fn new(
        raw: handle::Stream,
        context: &Arc<Context<V>>,
        borrowed: Option<Mutex<Borrowed<V>>>,
    ) -> Self {
        Self { raw, context: Arc::clone(context), failures: Arc::default(), borrowed }
    }

    /// A stream that another library owns, to be used until [`end`](Self::end).
    pub(crate) fn borrowed(raw: handle::Stream, context: &Arc<Context<V>>) -> Result<Self, u32> {
        let borrowed = Mutex::new(Borrowed { ended: false, last: None });
        let stream = Self::new(raw, context, Some(borrowed));
        if let Some(borrowed) = &stream.borrowed
            && stream.is_per_thread()
        {
            lock(borrowed).last = Some(stream.record()?);
        }
        Ok(stream)
    }

    /// Whether the handle means a different stream in each thread.
    fn is_per_thread(&self) -> bool {
        V::is_per_thread(self.raw)
    }

    #[inline]
    pub(crate) fn raw(&self) -> handle::Stream {
        self.raw
    }

    pub(crate) fn failures(&self) -> &Arc<Failures> {
        &self.failures
    }

    #[inline]
    pub(crate) fn context(&self) -> &Arc<Context<V>> {
        &self.context
    }

    /// Whether memory can be freed in the stream's order. This is not so if another library owns the stream, because it
    /// may have destroyed it.
    pub(crate) fn is_owned(&self) -> bool {
        self.borrowed.is_none()
    }

    /// Enqueues work by a function of the library. The context must be current.
    #[inline]
    pub(crate) fn enqueue(
        &self,
        call: impl FnOnce(handle::Stream) -> Result<(), u32>,
    ) -> Result<(), u32> {
        match &self.borrowed {
            Some(borrowed) if self.is_per_thread() => self.enqueue_per_thread(borrowed, call),
            _ => call(self.raw),
        }
    }

    /// Orders the work that several threads enqueue, each on its own default stream.
    #[cold]
    fn enqueue_per_thread(
        &self,
        borrowed: &Mutex<Borrowed<V>>,
        call: impl FnOnce(handle::Stream) -> Result<(), u32>,
    ) -> Result<(), u32> {
        let mut borrowed = lock(borrowed);
        let follows = borrowed.last.as_ref().map_or(Ok(()), |last| self.wait(last));
        let outcome = follows.and_then(|()| call(self.raw));
        match self.record() {
            Ok(event) => borrowed.last = Some(event),
            Err(_) => {
                // Without an event, only a wait shows when the work is finished.
                let _ = self.wait_for_all();
            }
        }
        outcome
    }

    /// Records an event after everything on a stream that another library owns, before the end of its use.
    fn record_borrowed(&self, borrowed: &mut Borrowed<V>) -> Result<Arc<Event<V>>, u32> {
        if !self.is_per_thread() {
            return self.record();
        }
        borrowed.last.as_ref().map_or(Ok(()), |last| self.wait(last))?;
        let event = self.record()?;
        borrowed.last = Some(Arc::clone(&event));
        Ok(event)
    }

    /// Ends the use of a stream that another library owns. The handle is not used afterwards.
    pub(crate) fn end(&self) {
        let Some(borrowed) = &self.borrowed else { return };
        let mut borrowed = lock(borrowed);
        if borrowed.ended {
            return;
        }
        match self.record_borrowed(&mut borrowed) {
            Ok(event) => borrowed.last = Some(event),
            Err(_) => {
                // Without an event, a later wait would be impossible.
                let _ = self.wait_for_all();
            }
        }
        borrowed.ended = true;
    }

    /// Blocks until everything enqueued so far is done.
    pub(crate) fn synchronize(&self) -> Result<(), u32> {
        if self.is_owned() {
            return self.wait_for_all();
        }
        // Not by the handle, which its owner may destroy in the meantime.
        self.event()?.map_or(Ok(()), |event| event.synchronize())
    }

    fn wait_for_all(&self) -> Result<(), u32> {
        // SAFETY: the stream is alive.
        let outcome =
            self.context.outside_captures(|api| unsafe { api.stream_synchronize(self.raw) });
        self.context.note(outcome);
        outcome
    }

    /// As [`synchronize`](Self::synchronize), for memory that must not be touched while work is in flight. If the
    /// library's wait fails, polls until the library reports that the work is finished. There is no limit while the
    /// library reports that the work goes on, because the work may still use the memory. If a stream reports only
    /// errors for as long as [`POLL_TIMEOUT`], gives it up and records that its context is broken.
    pub(crate) fn wait_or_give_up(&self) -> Result<(), u32> {
        self.wait_and_poll(POLL_TIMEOUT, || self.finished())
    }

    /// As [`wait_or_give_up`](Self::wait_or_give_up), before the device is closed. If the library's wait fails, gives
    /// up work that is not finished within [`POLL_TIMEOUT`], whatever the library reports. The streams of one context
    /// share this time.
    pub(crate) fn wait_before_close(&self) {
        // The context records failures, and no caller is left to report them to.
        let _ = self
            .wait_and_poll(self.context.poll_timeout(), || self.finished().filter(|done| *done));
    }

    fn wait_and_poll(
        &self,
        timeout: Duration,
        finished: impl FnMut() -> Option<bool>,
    ) -> Result<(), u32> {
        let outcome = self.synchronize();
        // A stream that another library captures runs no work, and cannot be queried.
        if let Err(code) = outcome
            && !V::OF_CAPTURE.contains(&code)
            && !poll_until_finished(timeout, finished)
        {
            let Context { api, ordinal, .. } = &*self.context;
            let error = api.name(code);
            tracing::error!(
                device = ordinal,
                error,
                "a stream does not finish; its device is treated as broken"
            );
            self.context.give_up(code);
        }
        outcome
    }

    /// Whether everything enqueued so far is done.
    pub(crate) fn is_idle(&self) -> Result<bool, u32> {
        match self.query() {
            Ok(()) => Ok(true),
            Err(code) if code == V::NOT_READY => Ok(false),
            Err(code) => {
                self.context.note(Err::<(), _>(code));
                Err(code)
            }
        }
    }

    /// Whether everything enqueued so far is finished. `None` if the library does not report it.
    pub(crate) fn finished(&self) -> Option<bool> {
        self.context.finished(self.query())
    }

    fn query(&self) -> Result<(), u32> {
        let ask = || {
            // SAFETY: the stream is alive.
            self.context.outside_captures(|api| unsafe { api.stream_query(self.raw) })
        };
        let Some(borrowed) = &self.borrowed else { return ask() };
        let mut borrowed = lock(borrowed);
        if borrowed.ended {
            return borrowed.last.as_ref().map_or(Ok(()), |last| last.query());
        }
        if self.is_per_thread() {
            return self.record_borrowed(&mut borrowed).and_then(|event| event.query());
        }
        ask()
    }

    /// Makes work enqueued from now on wait for an event, which may belong to another device.
    fn wait(&self, event: &Event<V>) -> Result<(), u32> {
        self.context.bind()?;
        // SAFETY: both are alive; the library looks at the event's state now.
        unsafe { self.context.api.stream_wait(self.raw, event.raw) }
    }

    /// Makes work enqueued from now on wait for everything enqueued so far on another stream, which may belong to
    /// another device.
    pub(crate) fn follow(&self, other: &Self) -> Result<(), u32> {
        other.event().and_then(|event| event.map_or(Ok(()), |event| self.wait(&event)))
    }

    /// Returns an event at the end of everything enqueued so far. `None` if that is known to be finished.
    fn event(&self) -> Result<Option<Arc<Event<V>>>, u32> {
        let Some(borrowed) = &self.borrowed else { return self.record().map(Some) };
        let mut borrowed = lock(borrowed);
        if borrowed.ended {
            Ok(borrowed.last.clone())
        } else {
            self.record_borrowed(&mut borrowed).map(Some)
        }
    }

    /// Returns a recorded point at the end of everything enqueued so far. If no event can be recorded, returns the end
    /// of the stream.
    pub(crate) fn mark(self: &Arc<Self>) -> Mark<V> {
        match self.event() {
            Ok(Some(event)) => Mark(At::Event(event)),
            Ok(None) | Err(_) => Mark(At::Stream(Arc::clone(self))),
        }
    }

    fn record(&self) -> Result<Arc<Event<V>>, u32> {
        let recorded = || {
            let raw = self.context.take_event()?;
            let event = Event { raw, context: Arc::clone(&self.context) };
            self.context.bind()?;
            // SAFETY: event and stream are alive and belong to this context.
            unsafe { self.context.api.event_record(raw, self.raw) }?;
            Ok(Arc::new(event))
        };
        recorded().inspect_err(|code| self.context.note(Err::<(), _>(*code)))
    }
}

impl<V: Vendor> Drop for RawStream<V> {
    fn drop(&mut self) {
        if !self.is_owned() || self.context.fault().is_some() || self.context.bind().is_err() {
            return;
        }
        // SAFETY: the stream has no other user, and the library lets its work run to completion.
        self.context.note(unsafe { self.context.api.stream_destroy(self.raw) });
    }
}

/// An event at a place in a stream, until it is dropped.
#[derive(Debug)]
pub(crate) struct Event<V: Vendor> {
    raw: handle::Event,
    context: Arc<Context<V>>,
}

impl<V: Vendor> Event<V> {
    fn query(&self) -> Result<(), u32> {
        // SAFETY: the event is alive.
        self.context.outside_captures(|api| unsafe { api.event_query(self.raw) })
    }

    fn synchronize(&self) -> Result<(), u32> {
        // SAFETY: the event is alive.
        let outcome =
            self.context.outside_captures(|api| unsafe { api.event_synchronize(self.raw) });
        self.context.note(outcome);
        outcome
    }
}

impl<V: Vendor> Drop for Event<V> {
    fn drop(&mut self) {
        self.context.keep_event(self.raw);
    }
}

/// A place in a stream.
#[derive(Debug)]
pub struct Mark<V: Vendor>(At<V>);

#[derive(Debug)]
enum At<V: Vendor> {
    Event(Arc<Event<V>>),
    /// The end of a stream at the time of the query or wait.
    Stream(Arc<RawStream<V>>),
}

impl<V: Vendor> Mark<V> {
    fn context(&self) -> &Context<V> {
        match &self.0 {
            At::Event(event) => &event.context,
            At::Stream(stream) => &stream.context,
        }
    }

    /// Whether the work before the recorded point is finished. `None` if the library does not report it.
    fn finished(&self) -> Option<bool> {
        match &self.0 {
            At::Event(event) => event.context.finished(event.query()),
            At::Stream(stream) => stream.finished(),
        }
    }
}

impl<V: Vendor> backend_support::Mark for Mark<V> {
    fn wait(&self) -> bool {
        let waited = match &self.0 {
            At::Event(event) => event.synchronize(),
            At::Stream(stream) => stream.synchronize(),
        };
        let context = self.context();
        // There is no limit while the library reports that the work goes on, until the context is given up.
        let finished = || self.finished().filter(|done| *done || context.fault().is_none());
        waited.is_ok() || poll_until_finished(context.poll_timeout(), finished)
    }

    fn is_over(&self) -> bool {
        self.finished() == Some(true)
    }
}
