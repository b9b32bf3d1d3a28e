//! A transport over threads that answers some calls differently.
#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use halo::Result;
use halo::communicator::{
    Buffer, COLLECTIVE_TAG, Collectives, Communicator, Direct, Envelope, Request,
    ThreadCommunicator,
};
use runtime_core::Device;

pub(crate) struct Altered {
    pub(crate) inner: ThreadCommunicator,
    /// The rank and the number of ranks that it reports.
    pub(crate) place: [usize; 2],
    /// The rank and the number of ranks that it reports after this number of calls of `all_gather`.
    pub(crate) later: (u32, [usize; 2]),
    pub(crate) gathers: AtomicU32,
    /// The number that a rank has inside.
    pub(crate) inside: fn(usize) -> usize,
    pub(crate) passes_memory: bool,
    /// The result of every `all_gather`.
    pub(crate) gathered: Option<Vec<u8>>,
    pub(crate) direct: Access,
    /// Called before each receive.
    pub(crate) before_receive: Box<dyn Fn() -> Result<()> + Send + Sync>,
    /// Called with each message before it is sent, except those of collective calls.
    pub(crate) before_send: fn(&Buffer) -> Result<()>,
    /// Changes each buffer that a receive returns, except those of collective calls.
    pub(crate) received: fn(Buffer) -> Result<Buffer>,
    /// Changes the index that `wait_any` returns.
    pub(crate) completed: fn(usize) -> usize,
    /// The number of messages sent, without those of collective calls, and their largest tag.
    pub(crate) sent: AtomicU32,
    pub(crate) largest_tag: AtomicU32,
}

/// Whose memory the transport can access.
pub(crate) enum Access {
    Own,
    Other(Arc<ThreadCommunicator>),
    None,
}

impl Altered {
    pub(crate) fn new(inner: ThreadCommunicator) -> Self {
        Self {
            place: [inner.rank(), inner.size()],
            inner,
            later: (u32::MAX, [0; 2]),
            gathers: AtomicU32::new(0),
            inside: |rank| rank,
            passes_memory: true,
            gathered: None,
            direct: Access::Own,
            before_receive: Box::new(|| Ok(())),
            before_send: |_| Ok(()),
            received: Ok,
            completed: |index| index,
            sent: AtomicU32::new(0),
            largest_tag: AtomicU32::new(0),
        }
    }

    fn place(&self) -> [usize; 2] {
        let (from, later) = self.later;
        if self.gathers.load(Ordering::Relaxed) < from { self.place } else { later }
    }

    pub(crate) fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Communicator for Altered {
    fn rank(&self) -> usize {
        self.place()[0]
    }
    fn size(&self) -> usize {
        self.place()[1]
    }
    fn max_tag(&self) -> u32 {
        self.inner.max_tag()
    }
    fn collectives(&self) -> &Collectives {
        self.inner.collectives()
    }
    fn passes_memory_of(&self, _: &Device) -> bool {
        self.passes_memory
    }
    fn direct(&self) -> Option<Direct<'_>> {
        match &self.direct {
            Access::Own => self.inner.direct(),
            Access::Other(ranks) => ranks.direct(),
            Access::None => None,
        }
    }
    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        if tag != COLLECTIVE_TAG {
            self.sent.fetch_add(1, Ordering::Relaxed);
            self.largest_tag.fetch_max(tag, Ordering::Relaxed);
            (self.before_send)(&buffer)?;
        }
        self.inner.send((self.inside)(to), tag, buffer)
    }
    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        (self.before_receive)()?;
        let request = self.inner.receive((self.inside)(from), tag, buffer)?;
        match tag {
            COLLECTIVE_TAG => Ok(request),
            _ => Ok(Box::new(Changed(request, self.received))),
        }
    }
    fn wait_any(
        &self,
        requests: &mut [Option<Box<dyn Request>>],
        timeout: Duration,
    ) -> Result<Option<(usize, Buffer)>> {
        let done = self.inner.wait_any(requests, timeout)?;
        Ok(done.map(|(index, buffer)| ((self.completed)(index), buffer)))
    }
    fn all_gather(&self, mine: &[u8], timeout: Duration) -> Result<Vec<u8>> {
        self.gathers.fetch_add(1, Ordering::Relaxed);
        if let Some(gathered) = &self.gathered {
            return Ok(gathered.clone());
        }
        let (all, each) = (self.inner.all_gather(mine, timeout)?, mine.len());
        let of_rank = |rank| &all[each * (self.inside)(rank)..][..each];
        Ok((0..self.inner.size()).flat_map(of_rank).copied().collect())
    }
    fn discard(&self, tags: Range<u32>) -> Result<()> {
        self.inner.discard(tags)
    }
    fn progress(&self) -> u64 {
        self.inner.progress()
    }
    fn wait_beyond(&self, seen: u64, deadline: Instant) {
        self.inner.wait_beyond(seen, deadline);
    }
}

/// A receive that returns a changed buffer.
struct Changed(Box<dyn Request>, fn(Buffer) -> Result<Buffer>);

impl Request for Changed {
    fn envelope(&self) -> Envelope {
        self.0.envelope()
    }
    fn test(&mut self) -> Result<Option<Buffer>> {
        self.0.test()?.map(self.1).transpose()
    }
}
