//! The streams that work on a memory.

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
        let mut streams = crate::lock(&self.streams);
        if streams.contains(stream) {
            return;
        }
        if streams.len() >= PRUNE_AT {
            streams.retain(|stream| !matches!(stream.is_done(), Ok(true)));
        }
        streams.push(stream.clone());
    }

    /// Marks of the work that is enqueued by now and not done.
    pub(crate) fn unfinished(&self) -> Result<Vec<Event>> {
        let mut streams = crate::lock(&self.streams);
        streams.retain(|stream| !matches!(stream.is_done(), Ok(true)));
        streams.iter().map(Stream::record_event).collect()
    }

    /// Lets what is enqueued on `stream` from here on come after the work that is enqueued by now.
    pub(crate) fn come_before(&self, stream: &Stream) -> Result<()> {
        let mut streams = crate::lock(&self.streams);
        streams.retain(|other| other == stream || !matches!(other.is_done(), Ok(true)));
        for other in streams.iter().filter(|other| *other != stream) {
            stream.wait(&other.record_event()?)?;
        }
        Ok(())
    }
}
