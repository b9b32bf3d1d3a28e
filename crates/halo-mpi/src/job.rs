//! The job as one rank sees it: what lives on with the requests after the communicator is dropped.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use halo::communicator::Envelope;
use parking_lot::Mutex;
use runtime_core::{Error, ErrorKind, Result};

use crate::library::{Comm, LONG, Pending, Place, Turn};
use crate::matching::Matching;
use crate::message::DeviceMemory;
use crate::tag::Tags;

const NO_WAIT: u64 = u64::MAX;

/// The state that the communicator and its requests share.
pub(crate) struct Job {
    pub(crate) comm: Comm,
    pub(crate) matching: Mutex<Matching>,
    pub(crate) place: Place,
    pub(crate) tags: Tags,
    /// Whether there is a core for each rank of the node.
    pub(crate) has_core: bool,
    pub(crate) device_memory: DeviceMemory,
    /// The number of waits of this rank since a request completed.
    pub(crate) idle_waits: AtomicU32,
    /// The number of tests that found a request incomplete.
    tests: AtomicU32,
    /// When the latest wait of this rank times out, in nanoseconds since `since`; `NO_WAIT` once a request completed.
    waits_until: AtomicU64,
    since: Instant,
    /// The first failure of MPI.
    failure: OnceLock<String>,
}

impl Job {
    pub(crate) fn new(comm: Comm, place: Place) -> Result<Self> {
        let turn = Turn::take("communicator")?;
        let tags = Tags::up_to(comm.max_tag(&turn)?);
        Ok(Self {
            comm,
            matching: Mutex::new(Matching::new(tags)),
            place,
            tags,
            has_core: thread::available_parallelism()
                .is_ok_and(|cores| place.local_size <= cores.get()),
            device_memory: DeviceMemory::of(&turn),
            idle_waits: AtomicU32::new(0),
            tests: AtomicU32::new(0),
            waits_until: AtomicU64::new(NO_WAIT),
            since: Instant::now(),
            failure: OnceLock::new(),
        })
    }

    /// Refuses calls after a failure of MPI.
    pub(crate) fn check(&self, envelope: &Envelope) -> Result<()> {
        let Some(failure) = self.failure.get() else { return Ok(()) };
        let message = format!("{envelope}, after: {failure}");
        Err(Error::new(ErrorKind::PeerLost, envelope.operation(), message))
    }

    /// Stores a failure of MPI. The state of MPI is unknown after it.
    pub(crate) fn record_failure(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Driver {
            // The first failure is the cause.
            let _first = self.failure.set(error.to_string());
        }
        error
    }

    /// Records that a request is over.
    pub(crate) fn record_progress(&self) {
        self.idle_waits.store(0, Ordering::Relaxed);
        self.waits_until.store(NO_WAIT, Ordering::Relaxed);
    }

    /// Records that this rank waits until then.
    pub(crate) fn record_wait(&self, deadline: Instant) {
        self.waits_until.store(self.nanoseconds(deadline), Ordering::Relaxed);
    }

    /// Whether the latest wait of this rank timed out.
    fn has_timed_out(&self) -> bool {
        self.waits_until.load(Ordering::Relaxed) <= self.nanoseconds(Instant::now())
    }

    fn nanoseconds(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.since).as_nanos();
        since.try_into().unwrap_or(NO_WAIT)
    }

    /// Counts a test that found a request incomplete. One of several lets receives make progress that this rank does
    /// not test. They are rarely what delays it.
    pub(crate) fn tested(&self) {
        const PERIOD: u32 = 64;
        if self.tests.fetch_add(1, Ordering::Relaxed).is_multiple_of(PERIOD) {
            self.advance_receives();
        }
    }

    /// Lets all receives make progress: a peer may need that their messages are taken.
    pub(crate) fn advance_receives(&self) {
        let mut matching = self.matching.lock();
        let matched = Turn::take("wait").and_then(|turn| matching.match_all(&turn, &self.comm));
        // The requests report it.
        let _stored = matched.map_err(|error| self.record_failure(error));
    }

    /// Receives the messages of dropped requests. Returns how many are in progress.
    pub(crate) fn receive_abandoned(&self) -> Result<usize> {
        let mut matching = self.matching.lock();
        if matching.has_no_abandoned() {
            return Ok(0);
        }
        let turn = Turn::take("wait")?;
        matching.receive_abandoned(&turn, &self.comm).map_err(|error| self.record_failure(error))
    }

    /// Waits for messages whose requests were dropped: sends must find their receive.
    ///
    /// # Errors
    ///
    /// `Timeout`. The errors that MPI reports.
    pub(crate) fn wait_for_abandoned(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let open = self.receive_abandoned()?;
            if open == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let message = format!(
                    "after {timeout:?}, {open} messages of dropped requests are in transit"
                );
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
    pub(crate) fn wait_for_all_ranks(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let mut barrier = Pending::barrier(&Turn::take("run")?, &self.comm)?;
        while !barrier.test(&Turn::take("run")?)? {
            if self.has_timed_out() && Instant::now() >= deadline {
                let message = format!("after {timeout:?}, other ranks have not reached their end");
                return Err(Error::new(ErrorKind::Timeout, "run", message));
            }
            thread::sleep(LONG);
        }
        Ok(())
    }
}
