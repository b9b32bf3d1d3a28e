//! The streams that work on a memory.

use std::mem;
use std::sync::Mutex;

use runtime::{Event, Result, Stream};

/// The streams that may have unfinished work on a memory.
#[derive(Default)]
pub(crate) struct Work {
    streams: Mutex<Vec<Stream>>,
    /// The only one that may have any.
    bound: Option<Stream>,
}

/// While this is there, work on a memory is being enqueued on a stream.
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

/// Beyond this many streams, those that are done are forgotten.
const PRUNE_AT: usize = 4;

impl Work {
    /// Of memory that is lent for work on one stream.
    pub(crate) fn bound_to(stream: &Stream) -> Self {
        Self { streams: Mutex::new(vec![stream.clone()]), bound: Some(stream.clone()) }
    }

    /// The stream that the memory is lent for.
    pub(crate) fn bound(&self) -> Option<&Stream> {
        self.bound.as_ref()
    }

    /// Notes work before it is enqueued, and after: whoever looks meanwhile forgets a stream with nothing to do.
    pub(crate) fn enqueuing<'a>(&'a self, stream: &'a Stream) -> Enqueuing<'a> {
        self.used_on(stream);
        Enqueuing { work: self, stream }
    }

    /// Notes that work was enqueued.
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

    /// Marks of the work that is enqueued by now and not done.
    pub(crate) fn unfinished(&self) -> Result<Vec<Event>> {
        self.busy().iter().map(Stream::record_event).collect()
    }

    /// Lets what is enqueued on `stream` from here on come after the work that is enqueued by now.
    pub(crate) fn come_before(&self, stream: &Stream) -> Result<()> {
        for other in self.busy().iter().filter(|other| *other != stream) {
            stream.wait(&other.record_event()?)?;
        }
        Ok(())
    }

    /// The streams that have something to do; others are forgotten.
    fn busy(&self) -> Vec<Stream> {
        let mut streams = crate::lock(&self.streams);
        let is_busy = |stream: &Stream| !matches!(stream.is_done(), Ok(true));
        let (busy, done): (Vec<_>, Vec<_>) =
            mem::take(&mut *streams).into_iter().partition(is_busy);
        streams.clone_from(&busy);
        // Before those that are done: the last of a stream may give back what others keep.
        drop(streams);
        drop(done);
        busy
    }
}
