//! Ranks as processes of an MPI job.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use halo::communicator::{Buffer, Collectives, Communicator, Direct, Envelope, Request, Way};
use runtime_core::{Device, DeviceKind, Result};

use crate::job::{Job, LONG, Place};
use crate::library::{Handle, Turn};
use crate::message::Bytes;
use crate::request::MpiRequest;
use crate::tag::MAX_TAG;

/// One of the ranks of an MPI job. [`run`](crate::run) creates it.
///
/// MPI processes messages only during calls, so messages make progress while this rank waits or tests. Calls are
/// serialized: several threads can use the communicator.
///
/// A message has at most 2147483647 bytes. A message that is too long for its receive is an error and is never written
/// beyond the buffer: a receive is passed to MPI only when its message has arrived.
pub struct MpiCommunicator {
    job: Arc<Job>,
    collectives: Collectives,
}

impl MpiCommunicator {
    pub(crate) fn new(handle: Handle, place: Place) -> Self {
        Self { job: Arc::new(Job::new(handle, place)), collectives: Collectives::default() }
    }

    pub(crate) fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// The number of this rank among those on the same node.
    pub fn local_rank(&self) -> usize {
        self.job.place.local_rank
    }

    /// The number of ranks on the same node.
    pub fn local_size(&self) -> usize {
        self.job.place.local_size
    }

    /// Chooses this rank's device among those of its node; ranks are assigned in turn. Returns `None` if there are no
    /// devices.
    ///
    /// ```no_run
    /// # fn pick(ranks: &halo_mpi::MpiCommunicator) -> Option<&'static str> {
    /// ranks.choose(&["cuda:0", "cuda:1", "cuda:2", "cuda:3"]).copied()
    /// # }
    /// ```
    pub fn choose<'a, D>(&self, devices: &'a [D]) -> Option<&'a D> {
        devices.get(self.job.place.local_rank.checked_rem(devices.len())?)
    }

    fn start(&self, way: Way, peer: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, way, peer, tag, &buffer)?;
        self.job.receive_abandoned()?;
        self.job.check(&envelope)?;
        let bytes = Bytes::new(&envelope, buffer, self.job.device_aware)?;
        let request = MpiRequest::start(&self.job, envelope, bytes);
        Ok(Box::new(request.map_err(|error| self.job.record_failure(error))?))
    }
}

/// The number of waits before a rank sleeps between checks, and before it sleeps longer.
const YIELDS: u32 = 2000;
const NAPS: u32 = YIELDS + 1000;
const SHORT: Duration = Duration::from_micros(20);

impl Communicator for MpiCommunicator {
    fn rank(&self) -> usize {
        self.job.place.rank
    }

    fn size(&self) -> usize {
        self.job.place.size
    }

    fn max_tag(&self) -> u32 {
        MAX_TAG
    }

    fn passes_memory_of(&self, device: &Device) -> bool {
        device.info().kind == DeviceKind::Host
            || self.job.device_aware && matches!(device.native().api, "cuda" | "hip")
    }

    fn collectives(&self) -> &Collectives {
        &self.collectives
    }

    fn direct(&self) -> Option<Direct<'_>> {
        None
    }

    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        self.start(Way::Send, to, tag, buffer)
    }

    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        self.start(Way::Receive, from, tag, buffer)
    }

    fn discard(&self, tags: Range<u32>) -> Result<()> {
        let mut matching = self.job.matching.lock();
        let turn = Turn::take("discard")?;
        let discarded = matching.discard(&turn, self.job.handle, self.size(), &tags);
        discarded.map_err(|error| self.job.record_failure(error))
    }

    /// Always 0: MPI reports progress only when it is called.
    fn progress(&self) -> u64 {
        0
    }

    fn wait_beyond(&self, _: u64, deadline: Instant) {
        // A failure is stored for the requests.
        let _in_progress = self.job.receive_abandoned();
        // MPI has no wait with a timeout. The longer nothing arrives, the longer this rank sleeps between checks.
        let rounds = self.job.idle_waits.fetch_add(1, Ordering::Relaxed);
        let remaining = deadline.saturating_duration_since(Instant::now());
        if rounds >= YIELDS {
            self.job.advance_receives();
        }
        match rounds {
            0..YIELDS => thread::yield_now(),
            YIELDS..NAPS => thread::sleep(SHORT.min(remaining)),
            _ => thread::sleep(LONG.min(remaining)),
        }
        if Instant::now() >= deadline {
            self.job.has_timed_out.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for MpiCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiCommunicator(rank {} of {})", self.rank(), self.size())
    }
}
