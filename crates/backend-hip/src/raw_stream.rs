//! Streams of the runtime, this backend's own and others', and places in them.
#![expect(unsafe_code, reason = "uses streams and events through the runtime")]

use std::sync::{Arc, Mutex};

use backend_support::{PATIENCE, outlast};
use hip_sys::hiprt::{hipEvent_t, hipStream_t};

use crate::codes;
use crate::context::{Context, ok};
use crate::lock;

/// A stream of the runtime.
#[derive(Debug)]
pub(crate) struct RawStream {
    raw: hipStream_t,
    context: Arc<Context>,
    /// For a stream that others own.
    lent: Option<Mutex<Lent>>,
}

// SAFETY: streams may be used from any thread, and by several at once.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

/// What is known of a stream that others own. The lock is held while its handle is used, so that the handle is not touched
/// after the end.
#[derive(Debug, Default)]
struct Lent {
    /// Whether the use of the stream is over.
    ended: bool,
    /// The place of its end, unless the work before it is known to be over by then.
    last: Option<Arc<Event>>,
}

impl RawStream {
    /// A stream of this backend's own.
    pub(crate) fn own(raw: hipStream_t, context: &Arc<Context>) -> Self {
        Self { raw, context: Arc::clone(context), lent: None }
    }

    /// A stream that others own, until [`end`](Self::end).
    pub(crate) fn lent(raw: hipStream_t, context: &Arc<Context>) -> Self {
        Self { raw, context: Arc::clone(context), lent: Some(Mutex::default()) }
    }

    #[inline]
    pub(crate) fn raw(&self) -> hipStream_t {
        self.raw
    }

    #[inline]
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Whether memory can be freed in its order: not where others own it and may have destroyed it.
    pub(crate) fn is_own(&self) -> bool {
        self.lent.is_none()
    }

    /// Ends the use of a stream that others own: its handle is not touched from here on.
    pub(crate) fn end(&self) {
        let Some(lent) = &self.lent else { return };
        let mut lent = lock(lent);
        if lent.ended {
            return;
        }
        match self.record() {
            Ok(event) => lent.last = Some(event),
            Err(_) => {
                // Without an event nobody could wait later.
                let _ = self.wait_for_all();
            }
        }
        lent.ended = true;
    }

    /// Blocks until everything enqueued so far is done.
    pub(crate) fn synchronize(&self) -> Result<(), u32> {
        if self.is_own() {
            return self.wait_for_all();
        }
        // Not by the handle, which others may give up meanwhile.
        self.event()?.map_or(Ok(()), |event| event.synchronize())
    }

    fn wait_for_all(&self) -> Result<(), u32> {
        // SAFETY: the stream is alive.
        let code = self.context.apart(|hip| unsafe { (hip.hipStreamSynchronize)(self.raw) });
        self.context.note(code);
        ok(code)
    }

    /// As [`synchronize`](Self::synchronize), for what must not be touched while work is under way: where the runtime does
    /// not wait, it is asked until it tells that the work is over. A stream that does nothing but fail for [`PATIENCE`] has
    /// come to its end, and its device is of no use any more.
    pub(crate) fn settle(&self) -> Result<(), u32> {
        let outcome = self.synchronize();
        // Of a stream that others capture nothing runs, and it can be asked nothing.
        if let Err(code) = outcome
            && !codes::is_of_capture(code)
            && !outlast(PATIENCE, || self.told())
        {
            let Context { hip, ordinal, .. } = &*self.context;
            let error = hip.name(code);
            tracing::error!(
                device = ordinal,
                error,
                "a stream does not come to its end; its device is given up"
            );
            self.context.give_up(code);
        }
        outcome
    }

    /// Whether everything enqueued so far is done.
    pub(crate) fn is_idle(&self) -> Result<bool, u32> {
        match self.query() {
            0 => Ok(true),
            codes::NOT_READY => Ok(false),
            code => {
                self.context.note(code);
                Err(code)
            }
        }
    }

    /// Whether everything enqueued so far is over, if the runtime tells.
    pub(crate) fn told(&self) -> Option<bool> {
        self.context.told(self.query())
    }

    fn query(&self) -> u32 {
        let ask = || {
            // SAFETY: the stream is alive.
            self.context.apart(|hip| unsafe { (hip.hipStreamQuery)(self.raw) })
        };
        let Some(lent) = &self.lent else { return ask() };
        let lent = lock(lent);
        if lent.ended { lent.last.as_ref().map_or(0, |last| last.query()) } else { ask() }
    }

    /// Lets what is enqueued from here on wait for an event, of whatever device.
    fn wait(&self, event: &Event) -> Result<(), u32> {
        self.context.bind()?;
        // SAFETY: both are alive; the runtime looks at the event's state now.
        ok(unsafe { (self.context.hip.hipStreamWaitEvent)(self.raw, event.raw, 0) })
    }

    /// Lets what is enqueued from here on wait for everything enqueued on another stream so far, of whatever device.
    pub(crate) fn follow(&self, other: &Self) -> Result<(), u32> {
        other.event().and_then(|event| event.map_or(Ok(()), |event| self.wait(&event)))
    }

    /// An event at the end of everything enqueued so far, unless that is known to be over.
    fn event(&self) -> Result<Option<Arc<Event>>, u32> {
        let Some(lent) = &self.lent else { return self.record().map(Some) };
        let lent = lock(lent);
        if lent.ended { Ok(lent.last.clone()) } else { self.record().map(Some) }
    }

    /// Marks the end of everything enqueued so far: where there is no event to be had, by the end of the stream.
    pub(crate) fn mark(self: &Arc<Self>) -> Mark {
        match self.event() {
            Ok(Some(event)) => Mark::Event(event),
            Ok(None) | Err(_) => Mark::Stream(Arc::clone(self)),
        }
    }

    fn record(&self) -> Result<Arc<Event>, u32> {
        let recorded = || {
            let raw = self.context.take_event()?;
            let event = Event { raw, context: Arc::clone(&self.context) };
            self.context.bind()?;
            // SAFETY: event and stream are alive and of this device.
            ok(unsafe { (self.context.hip.hipEventRecord)(raw, self.raw) })?;
            Ok(Arc::new(event))
        };
        recorded().inspect_err(|code| self.context.note(*code))
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        if !self.is_own() || self.context.fault().is_some() || self.context.bind().is_err() {
            return;
        }
        // SAFETY: nobody has the stream any more; the runtime lets its work run to the end.
        let code = unsafe { (self.context.hip.hipStreamDestroy)(self.raw) };
        if code != 0 {
            self.context.note(code);
        }
    }
}

/// An event at a place in a stream, until it is dropped.
#[derive(Debug)]
pub(crate) struct Event {
    raw: hipEvent_t,
    context: Arc<Context>,
}

// SAFETY: events may be used from any thread, and by several at once.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    fn query(&self) -> u32 {
        // SAFETY: the event is alive.
        self.context.apart(|hip| unsafe { (hip.hipEventQuery)(self.raw) })
    }

    fn synchronize(&self) -> Result<(), u32> {
        // SAFETY: the event is alive.
        let code = self.context.apart(|hip| unsafe { (hip.hipEventSynchronize)(self.raw) });
        self.context.note(code);
        ok(code)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.context.keep_event(self.raw);
    }
}

/// A place in a stream.
#[derive(Debug)]
pub(crate) enum Mark {
    Event(Arc<Event>),
    /// The end of a stream, wherever that is when it is asked for.
    Stream(Arc<RawStream>),
}

impl Mark {
    /// Whether the work before the mark is over, if the runtime tells.
    fn told(&self) -> Option<bool> {
        match self {
            Self::Event(event) => event.context.told(event.query()),
            Self::Stream(stream) => stream.told(),
        }
    }
}

impl backend_support::Mark for Mark {
    fn wait(&self) -> bool {
        let waited = match self {
            Self::Event(event) => event.synchronize(),
            Self::Stream(stream) => stream.synchronize(),
        };
        waited.is_ok() || outlast(PATIENCE, || self.told())
    }

    fn is_over(&self) -> bool {
        self.told() == Some(true)
    }
}
