//! Ranks as processes of an MPI job.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fmt, hint, thread};

use halo::communicator::{Buffer, Collectives, Communicator, Direct, Envelope, Request, Way};
use runtime_core::{Device, DeviceKind, Error, ErrorKind, Result};

use crate::job::Job;
use crate::library::{Comm, LONG, Place, Setup, Shared, Turn, adopt, adopt_world, is_ours, wait};
use crate::message::Bytes;
use crate::request::MpiRequest;
use crate::tag::MAX_TAG;

/// One of the ranks of an MPI job. [`run`](crate::run) creates it, or [`adopt`](Self::adopt).
///
/// MPI processes messages only during calls, so messages make progress while this rank waits or tests. Calls are
/// serialized: several threads can use the communicator.
///
/// A message has at most 2147483647 bytes. A message that is too long for its receive is an error and is never written
/// beyond the buffer: a receive is passed to MPI only when its message has arrived.
pub struct MpiCommunicator(Arc<Rank>);

/// The state of a communicator, which its adoptions share.
struct Rank {
    job: Arc<Job>,
    collectives: Collectives,
}

impl Rank {
    fn new(comm: Comm, place: Place) -> Result<Self> {
        Ok(Self { job: Arc::new(Job::new(comm, place)?), collectives: Collectives::default() })
    }

    fn shared(comm: Comm, place: Place) -> Result<Shared> {
        Ok(Arc::new(Self::new(comm, place)?))
    }
}

impl MpiCommunicator {
    /// That of all processes. Collective.
    pub(crate) fn world(timeout: Duration) -> Result<Self> {
        if !is_ours() {
            return Self::of(adopt_world(timeout, Rank::shared)?);
        }
        let turn = Turn::take("run")?;
        let mut setup = Setup::begin(&turn, "run", turn.mpi.constants.comm_world)?;
        drop(turn);
        let (comm, place) = wait("run", timeout, || setup.poll(&Turn::take("run")?))?;
        Ok(Self(Arc::new(Rank::new(comm, place)?)))
    }

    fn of(shared: Shared) -> Result<Self> {
        shared.downcast().map(Self).map_err(|_| {
            let message = "the communicator has an attribute of another type";
            Error::new(ErrorKind::Driver, "adopt", message)
        })
    }

    /// Takes the ranks of a communicator that the program has made by other means, such as C or mpi4py. `handle` is the
    /// address of a variable of C's type `MPI_Comm`.
    ///
    /// Messages use a duplicate of the communicator, so they cannot be mistaken for those of the program. A
    /// communicator that is adopted again gives the same ranks, with the same messages in transit. When its owner frees
    /// it, calls that pass messages return `PeerLost`. MPI goes on until the program ends it, or `run` if that
    /// has started it.
    ///
    /// Collective: blocks until all ranks of the communicator have called it, unless it was adopted before. After a
    /// timeout, another call continues; until all ranks have adopted the communicator, the program makes no collective
    /// call on it, as MPI demands while another one is in progress.
    ///
    /// ```no_run
    /// # use std::{ffi::c_void, time::Duration};
    /// # use halo_mpi::MpiCommunicator;
    /// # fn ranks(handle: *const c_void) -> halo::Result<MpiCommunicator> {
    /// // SAFETY: `handle` is the address of an `MPI_Comm`, which is freed after its last use here.
    /// unsafe { MpiCommunicator::adopt(handle, Duration::from_secs(60)) }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` without an MPI library, or if MPI was started without `MPI_THREAD_MULTIPLE`: the program may call
    /// it beside this crate. `PeerLost` unless MPI is running since a call of `MPI_Init`; sessions do not count.
    /// `InvalidArgument` for a null address, for `MPI_COMM_NULL`, and for a communicator between two groups. `Timeout`.
    /// The errors that MPI reports.
    ///
    /// # Safety
    ///
    /// `handle` is null or the address of a valid communicator of the MPI library that is loaded. No thread frees the
    /// communicator or ends MPI while another thread uses the result.
    #[expect(unsafe_code, reason = "reads the handle")]
    pub unsafe fn adopt(handle: *const c_void, timeout: Duration) -> Result<Self> {
        // SAFETY: the caller's.
        Self::of(unsafe { adopt(handle, timeout, Rank::shared) }?)
    }

    pub(crate) fn job(&self) -> &Arc<Job> {
        &self.0.job
    }

    /// The MPI library: its file, how it describes itself, and its ABI.
    ///
    /// # Errors
    ///
    /// `PeerLost` if MPI is no longer running.
    pub fn library(&self) -> Result<String> {
        Ok(Turn::take("library")?.mpi.to_string())
    }

    /// The number of this rank among those on the same node.
    pub fn local_rank(&self) -> usize {
        self.job().place.local_rank
    }

    /// The number of ranks on the same node.
    pub fn local_size(&self) -> usize {
        self.job().place.local_size
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
        devices.get(self.job().place.local_rank.checked_rem(devices.len())?)
    }

    fn start(&self, way: Way, peer: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, way, peer, tag, &buffer)?;
        self.job().receive_abandoned()?;
        self.job().check(&envelope)?;
        let bytes = Bytes::new(&envelope, buffer, self.job().device_memory)?;
        let request = MpiRequest::start(self.job(), envelope, bytes);
        Ok(Box::new(request.map_err(|error| self.job().record_failure(error))?))
    }
}

/// The number of looks of a rank with its own core before it waits.
const LOOKS: u32 = 400;
/// The number of waits before a rank sleeps between checks, and before it sleeps longer.
const YIELDS: u32 = 2000;
const NAPS: u32 = YIELDS + 1000;
const SHORT: Duration = Duration::from_micros(20);

impl Communicator for MpiCommunicator {
    fn rank(&self) -> usize {
        self.job().place.rank
    }

    fn size(&self) -> usize {
        self.job().place.size
    }

    fn max_tag(&self) -> u32 {
        MAX_TAG
    }

    fn passes_memory_of(&self, device: &Device) -> bool {
        device.info().kind == DeviceKind::Host
            || self.job().device_memory.includes(device.native().api)
    }

    fn collectives(&self) -> &Collectives {
        &self.0.collectives
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
        let mut matching = self.job().matching.lock();
        let turn = Turn::take("discard")?;
        let discarded = matching.discard(&turn, &self.job().comm, self.size(), &tags);
        discarded.map_err(|error| self.job().record_failure(error))
    }

    /// Always 0: MPI reports progress only when it is called.
    fn progress(&self) -> u64 {
        0
    }

    fn looks_again(&self, looks: u32) -> bool {
        hint::spin_loop();
        looks < LOOKS && self.job().has_core
    }

    fn wait_beyond(&self, _: u64, deadline: Instant) {
        self.job().record_wait(deadline);
        // A failure is stored for the requests.
        let _in_progress = self.job().receive_abandoned();
        // MPI has no wait with a timeout. The longer nothing arrives, the longer this rank sleeps between checks.
        let rounds = self.job().idle_waits.fetch_add(1, Ordering::Relaxed);
        let remaining = deadline.saturating_duration_since(Instant::now());
        if rounds >= YIELDS {
            self.job().advance_receives();
        }
        match rounds {
            0..YIELDS => thread::yield_now(),
            YIELDS..NAPS => thread::sleep(SHORT.min(remaining)),
            _ => thread::sleep(LONG.min(remaining)),
        }
    }
}

impl fmt::Debug for MpiCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiCommunicator(rank {} of {})", self.rank(), self.size())
    }
}
