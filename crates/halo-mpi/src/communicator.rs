//! Ranks as processes of an MPI job.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use halo::communicator::{Buffer, Collectives, Communicator, Direct, Envelope, Request, Way};
use parking_lot::Mutex;
use runtime_core::{Device, DeviceKind, Error, ErrorKind, Result};

use crate::library::{Barrier, Handle, Turn};
use crate::message::Bytes;
use crate::request::{MpiRequest, Open};
use crate::tag::{MAX_TAG, Tags};

/// One of the ranks of an MPI job. [`run`](crate::run) creates it.
///
/// MPI processes messages only during calls, so messages make progress while this rank waits or tests. Calls are
/// serialized: several threads can use the communicator.
///
/// A message has at most 2147483647 bytes. A message that is too long for its receive is an error and is never written
/// beyond the buffer: a receive is passed to MPI only when its message has arrived.
pub struct MpiCommunicator {
    shared: Arc<Shared>,
    collectives: Collectives,
}

/// The state that lives on with the requests after the communicator is dropped.
pub(crate) struct Shared {
    pub(crate) handle: Handle,
    pub(crate) open: Mutex<Open>,
    pub(crate) place: Place,
    device_aware: AtomicBool,
    /// The number of waits of this rank since a request completed.
    idle: AtomicU32,
    /// Whether the latest wait of this rank timed out.
    late: AtomicBool,
    failed: OnceLock<String>,
}

/// The position of a rank in the job and on its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) local_rank: usize,
    pub(crate) local_size: usize,
    pub(crate) tags: Tags,
}

impl MpiCommunicator {
    pub(crate) fn new(handle: Handle, place: Place) -> Self {
        let told = std::env::var("HALO_MPI_DEVICE_AWARE");
        let shared = Arc::new(Shared {
            handle,
            open: Mutex::new(Open::new(place.tags)),
            place,
            device_aware: AtomicBool::new(told.is_ok_and(|value| value == "1")),
            idle: AtomicU32::new(0),
            late: AtomicBool::new(false),
            failed: OnceLock::new(),
        });
        Self { shared, collectives: Collectives::default() }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The number of this rank among those on the same node.
    pub fn local_rank(&self) -> usize {
        self.shared.place.local_rank
    }

    /// The number of ranks on the same node.
    pub fn local_size(&self) -> usize {
        self.shared.place.local_size
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
        devices.get(self.shared.place.local_rank.checked_rem(devices.len())?)
    }

    /// Sets whether this MPI accepts addresses of device memory. Overrides `HALO_MPI_DEVICE_AWARE`.
    ///
    /// # Safety
    ///
    /// If `true`, MPI must accept addresses of all devices whose memory is sent.
    #[expect(unsafe_code, reason = "MPI believes it")]
    pub unsafe fn set_device_aware(&self, device_aware: bool) {
        self.shared.device_aware.store(device_aware, Ordering::Relaxed);
    }

    fn start(&self, way: Way, peer: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, way, peer, tag, &buffer)?;
        self.shared.sweep()?;
        self.shared.check(&envelope)?;
        let device_aware = self.shared.device_aware.load(Ordering::Relaxed);
        let bytes = Bytes::new(&envelope, buffer, device_aware)?;
        let request = MpiRequest::start(&self.shared, envelope, bytes);
        Ok(Box::new(request.map_err(|error| self.shared.note(error))?))
    }
}

impl Shared {
    /// Refuses calls after a failure of MPI.
    pub(crate) fn check(&self, envelope: &Envelope) -> Result<()> {
        let Some(failure) = self.failed.get() else { return Ok(()) };
        let message = format!("{envelope}, after: {failure}");
        Err(Error::new(ErrorKind::PeerLost, envelope.operation(), message))
    }

    /// Stores a failure of MPI. The state of MPI is unknown after it.
    pub(crate) fn note(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Driver {
            // The first failure is the cause.
            let _known = self.failed.set(error.to_string());
        }
        error
    }

    /// Records that a request is over.
    pub(crate) fn note_progress(&self) {
        self.idle.store(0, Ordering::Relaxed);
        self.late.store(false, Ordering::Relaxed);
    }

    fn sweep(&self) -> Result<usize> {
        let mut open = self.open.lock();
        if open.is_swept() {
            return Ok(0);
        }
        let turn = Turn::take("wait")?;
        open.sweep(&turn, self.handle).map_err(|error| self.note(error))
    }

    /// Waits for messages whose requests were dropped: sends must find their receive.
    ///
    /// # Errors
    ///
    /// `Timeout`. The errors that MPI reports.
    pub(crate) fn drain(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let open = self.sweep()?;
            if open == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let message =
                    format!("after {timeout:?}, {open} abandoned messages are on their way");
                return Err(Error::new(ErrorKind::Timeout, "run", message));
            }
            thread::sleep(LONG);
        }
    }

    /// Waits until all ranks have reached their end, as MPI does when it ends. Ends with an error after the timeout if
    /// the latest wait of this rank timed out.
    ///
    /// # Errors
    ///
    /// `Timeout`. The errors that MPI reports.
    pub(crate) fn part(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let mut barrier = Barrier::new(&Turn::take("run")?, self.handle)?;
        while !barrier.test(&Turn::take("run")?)? {
            if self.late.load(Ordering::Relaxed) && Instant::now() >= deadline {
                let message = format!("after {timeout:?}, other ranks have not come to their end");
                return Err(Error::new(ErrorKind::Timeout, "run", message));
            }
            thread::sleep(LONG);
        }
        Ok(())
    }
}

/// The number of waits before a rank sleeps between checks, and before it sleeps longer.
const YIELDS: u32 = 2000;
const NAPS: u32 = YIELDS + 1000;
const SHORT: Duration = Duration::from_micros(20);
const LONG: Duration = Duration::from_millis(1);

impl Communicator for MpiCommunicator {
    fn rank(&self) -> usize {
        self.shared.place.rank
    }

    fn size(&self) -> usize {
        self.shared.place.size
    }

    fn max_tag(&self) -> u32 {
        MAX_TAG
    }

    fn passes_memory_of(&self, device: &Device) -> bool {
        device.info().kind == DeviceKind::Host
            || self.shared.device_aware.load(Ordering::Relaxed)
                && matches!(device.native().api, "cuda" | "hip")
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

    /// Always 0: MPI reports progress only when it is called.
    fn progress(&self) -> u64 {
        0
    }

    fn wait_beyond(&self, _: u64, deadline: Instant) {
        // A failure is stored for the requests.
        let _open = self.shared.sweep();
        // MPI has no wait with a timeout. The longer nothing arrives, the longer this rank sleeps between checks.
        let rounds = self.shared.idle.fetch_add(1, Ordering::Relaxed);
        let left = deadline.saturating_duration_since(Instant::now());
        match rounds {
            0..YIELDS => thread::yield_now(),
            YIELDS..NAPS => thread::sleep(SHORT.min(left)),
            _ => thread::sleep(LONG.min(left)),
        }
        if Instant::now() >= deadline {
            self.shared.late.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for MpiCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiCommunicator(rank {} of {})", self.rank(), self.size())
    }
}
