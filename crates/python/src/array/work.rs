//! The streams that work on a memory.

use std::mem;
use std::sync::Mutex;

use runtime::{Event, Result, Stream};

/// The streams that may have unfinished work on a memory block.
#[derive(Default)]
pub(crate) struct Work {
    streams: Mutex<Vec<Stream>>,
    /// The only stream that may have unfinished work, if the memory is lent for one.
    bound: Option<Stream>,
}

/// While this exists, work on the memory is being enqueued on a stream.
#[must_use = "the work is noted once more when this is dropped"]
pub(crate) struct Enqueuing<'a> {
    work: &'a Work,
    stream: &'a Stream,
}

impl Drop for Enqueuing<'_> {
    fn drop(&mut self) {
        self.work.used_on(self.stream);
    }
}

/// Above this number of streams, idle streams are dropped from the list.
const PRUNE_AT: usize = 4;

impl Work {
    /// For memory that is lent for work on one stream.
    pub(crate) fn bound_to(stream: &Stream) -> Self {
        Self { streams: Mutex::new(vec![stream.clone()]), bound: Some(stream.clone()) }
    }

    /// The stream that the memory is lent for.
    pub(crate) fn bound(&self) -> Option<&Stream> {
        self.bound.as_ref()
    }

    /// Records work before and after it is enqueued: a check in between drops a stream that is idle.
    pub(crate) fn enqueuing<'a>(&'a self, stream: &'a Stream) -> Enqueuing<'a> {
        self.used_on(stream);
        Enqueuing { work: self, stream }
    }

    /// Records that work was enqueued.
    pub(crate) fn used_on(&self, stream: &Stream) {
        let len = {
            let mut streams = crate::lock(&self.streams);
            if streams.contains(stream) {
                return;
            }
            streams.push(stream.clone());
            streams.len()
        };
        if len > PRUNE_AT {
            self.busy();
        }
    }

    /// Events after the enqueued work that has not finished.
    pub(crate) fn unfinished(&self) -> Result<Vec<Event>> {
        self.busy().iter().map(Stream::record_event).collect()
    }

    /// Orders work that is enqueued on `stream` from now on after the work enqueued so far.
    pub(crate) fn come_before(&self, stream: &Stream) -> Result<()> {
        for other in self.busy().iter().filter(|other| *other != stream) {
            stream.wait(&other.record_event()?)?;
        }
        Ok(())
    }

    /// The streams that have unfinished work; idle streams are dropped from the list.
    fn busy(&self) -> Vec<Stream> {
        let mut streams = crate::lock(&self.streams);
        let is_busy = |stream: &Stream| !matches!(stream.is_done(), Ok(true));
        let (busy, done): (Vec<_>, Vec<_>) =
            mem::take(&mut *streams).into_iter().partition(is_busy);
        streams.clone_from(&busy);
        // The lock is released first: dropping the last handle of a stream may free objects that use other locks.
        drop(streams);
        drop(done);
        busy
    }
}
