//! Messages between ranks: the transport that an exchange goes over.
//!
//! [`Communicator`] is what a transport implements and what an exchange uses. [`ThreadCommunicator`] runs ranks as threads
//! of one process; the crate `halo-mpi` has one on MPI. For tests, [`FaultyCommunicator`] lets messages go wrong, and a
//! [`Recorder`] writes those of one rank to a file, from which [`Replay`] runs that rank alone.
//!
//! ```
//! use std::time::Duration;
//! use halo::communicator::{Buffer, Communicator, ThreadCommunicator};
//!
//! let second = Duration::from_secs(1);
//! let sums = ThreadCommunicator::run(3, |ranks| {
//!     let right = (ranks.rank() + 1) % ranks.size();
//!     let left = (ranks.rank() + ranks.size() - 1) % ranks.size();
//!     let mut requests = [
//!         Some(ranks.send(right, 7, Buffer::host(vec![ranks.rank() as u8]))?),
//!         Some(ranks.receive(left, 7, Buffer::host(vec![0]))?),
//!     ];
//!     while let Some((index, buffer)) = ranks.wait_any(&mut requests, second)? {
//!         if index == 1 {
//!             assert_eq!(buffer.to_vec()?, [left as u8]);
//!         }
//!     }
//!     let all = ranks.all_gather(&[ranks.rank() as u8], second)?;
//!     Ok::<u8, halo::Error>(all.iter().sum())
//! })?;
//! assert!(sums.into_iter().all(|sum| sum.unwrap() == 3));
//! # Ok::<(), halo::Error>(())
//! ```

mod buffer;
mod collective;
mod envelope;
mod faulty;
mod record;
mod thread;

use std::fmt;
use std::time::{Duration, Instant};

use runtime_core::{Device, Error, ErrorKind, Result};

pub use buffer::{Buffer, Storage};
pub use collective::Collectives;
pub(crate) use collective::{Reset, reset};
pub use envelope::{Envelope, Way};
pub use faulty::{Fault, Faults, FaultyCommunicator};
pub use record::{Recorder, Replay};
pub(crate) use thread::Declined;
pub use thread::{Direct, Lent, Loan, Marks, Meeting, ThreadCommunicator};

/// The tag of the messages of collective calls: not for others.
pub const COLLECTIVE_TAG: u32 = 0;

/// A group of ranks that send each other messages, seen from one of them.
///
/// A message has a source, a tag, a [mark](Buffer::marked) and bytes. A receive gets the earliest message with its source and
/// tag that no receive before it got; source and tag are always given. Its buffer must be exactly as long as the message, and
/// have its mark.
///
/// `send` and `receive` do not block, and take their buffer until the request is complete. A send may be incomplete
/// until its receive is there. Requests make progress while this rank calls [`Request::test`] or
/// [`wait_any`](Self::wait_any), and perhaps without.
///
/// # Collective calls
///
/// Every rank makes them, in one order: [`all_gather`](Self::all_gather), [`barrier`](Self::barrier),
/// [`reset`](Self::reset), and what is made of these, such as [`HaloExchange::new`](crate::HaloExchange::new) and
/// [`HaloExchange::reset`](crate::HaloExchange::reset). A rank makes one at a time.
///
/// One that fails on some rank fails on all that are in it or come to it later, in most cases at once. From then on
/// collective calls are refused with `Conflict`, until every rank has called [`reset`](Self::reset). A rank that was on its
/// way out of the call when another one failed may see it succeed, and the next one fail.
///
/// ```
/// use std::time::Duration;
/// use halo::ErrorKind;
/// use halo::communicator::{Communicator, ThreadCommunicator};
///
/// ThreadCommunicator::run(2, |ranks| {
///     if ranks.rank() == 0 {
///         // The other one is late, or resets by now.
///         let error = ranks.barrier(Duration::ZERO).unwrap_err();
///         assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Conflict));
///         assert_eq!(ranks.barrier(Duration::MAX).unwrap_err().kind(), ErrorKind::Conflict);
///     }
///     ranks.reset(Duration::from_secs(10))?;
///     ranks.barrier(Duration::from_secs(10))
/// })?
/// .into_iter()
/// .collect::<halo::Result<()>>()?;
/// # Ok::<(), halo::Error>(())
/// ```
///
/// # What implementors must do, and users may rely on
///
/// - A message that arrives is what was sent, or its receive is an error.
/// - Marks go with messages in any memory, and nobody waits for them. A transport that has not room for all of a mark compares
///   as much of it as it can.
/// - A request gives back the buffer that it got, or another of the same kind of memory, device and length.
/// - A dropped request is abandoned, its message is not: it still goes out, or matches and is thrown away, so that later
///   messages meet later receives. Its buffer lives until then.
/// - What can never complete ends: when a peer is gone, requests that need it are `PeerLost`, now and later.
/// - Nothing panics or blocks for longer than its timeout.
pub trait Communicator: fmt::Debug + Send + Sync {
    /// The number of this rank, less than [`size`](Self::size).
    fn rank(&self) -> usize;

    /// The number of ranks, at least 1.
    fn size(&self) -> usize;

    /// The largest tag, at least 32767.
    fn max_tag(&self) -> u32;

    /// Whether buffers in memory of this device can be sent and received even if the host cannot address it.
    fn passes_memory_of(&self, device: &Device) -> bool;

    /// The state of this rank's [collective calls](Communicator#collective-calls), which the provided methods make of messages in host
    /// memory with the tag [`COLLECTIVE_TAG`]. A transport keeps one in a field, made by [`Collectives::default`], and gives
    /// out the same each time; one that wraps another communicator gives out that one's.
    fn collectives(&self) -> &Collectives;

    /// The way straight to the memory of other ranks, where they share an address space.
    fn direct(&self) -> Option<Direct<'_>>;

    /// Starts sending the bytes of `buffer`.
    ///
    /// The bytes are there already: the work that writes them is done. A rank may send to itself.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a rank or tag that does not exist, or memory that is not
    /// [passed](Self::passes_memory_of); `PeerLost`.
    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>>;

    /// Starts receiving a message of exactly as many bytes as `buffer` is long.
    ///
    /// No work uses the buffer any more.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send). A message of another length or mark is an `InvalidArgument` of the request; it is thrown
    /// away.
    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>>;

    /// A count of what happened to the requests of this rank, to give to [`wait_beyond`](Self::wait_beyond).
    fn progress(&self) -> u64;

    /// Blocks until more has happened than `seen`, but not beyond `deadline`. May return earlier.
    fn wait_beyond(&self, seen: u64, deadline: Instant);

    /// Blocks until one of the requests is complete; its place becomes `None`. Gives its index and its buffer, or `None` if
    /// there is no request left.
    ///
    /// Of several that are complete, the first one is taken: call it again for the others.
    ///
    /// # Errors
    ///
    /// `Timeout` leaves all requests as they were: wait again, or drop them. Any other error is that of one request, whose
    /// place becomes `None`.
    fn wait_any(
        &self,
        requests: &mut [Option<Box<dyn Request>>],
        timeout: Duration,
    ) -> Result<Option<(usize, Buffer)>> {
        let deadline = deadline(timeout);
        loop {
            let seen = self.progress();
            let mut left = 0;
            for (index, place) in requests.iter_mut().enumerate() {
                let Some(request) = place else { continue };
                left += 1;
                let tested = request.test().transpose();
                if let Some(outcome) = tested {
                    *place = None;
                    return outcome.map(|buffer| Some((index, buffer)));
                }
            }
            if left == 0 {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                return Err(late("wait_any", timeout, self.rank(), requests));
            }
            self.wait_beyond(seen, deadline);
        }
    }

    /// Blocks until the request is complete, and gives its buffer.
    ///
    /// # Errors
    ///
    /// Those of [`wait_any`](Self::wait_any); the request is dropped.
    fn wait(&self, mut request: Box<dyn Request>, timeout: Duration) -> Result<Buffer> {
        let deadline = deadline(timeout);
        loop {
            let seen = self.progress();
            if let Some(buffer) = request.test()? {
                return Ok(buffer);
            }
            if Instant::now() >= deadline {
                return Err(late("wait", timeout, self.rank(), &[Some(request)]));
            }
            self.wait_beyond(seen, deadline);
        }
    }

    /// Blocks until every rank has called it. Gives the bytes of all ranks in their order; each brings equally many.
    ///
    /// Meant for small data: every rank gets everything, in about log2([`size`](Self::size)) messages.
    ///
    /// # Errors
    ///
    /// `Timeout`; `PeerLost`; `InvalidArgument` if a rank brought another number of bytes. The same if the call failed so on
    /// another rank. `Conflict` if a [collective call](Communicator#collective-calls) failed before, if another rank calls
    /// [`reset`](Self::reset), or if another thread of this rank is in one; what the transport reports.
    fn all_gather(&self, mine: &[u8], timeout: Duration) -> Result<Vec<u8>> {
        collective::all_gather(self, "all_gather", mine, timeout)
    }

    /// Blocks until every rank has called it.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    fn barrier(&self, timeout: Duration) -> Result<()> {
        collective::all_gather(self, "barrier", &[], timeout).map(drop)
    }

    /// Makes [collective calls](Communicator#collective-calls) possible again after one that failed. All ranks call it, also
    /// those where none failed. What was sent in calls before is thrown away.
    ///
    /// Blocks until every rank has called it.
    ///
    /// # Errors
    ///
    /// `Timeout`: call it again, which goes on where this one ended, also if others got through meanwhile. `PeerLost`;
    /// `Conflict` if another thread of this rank is in a collective call; what the transport reports.
    fn reset(&self, timeout: Duration) -> Result<()> {
        reset(self, Reset { what: Reset::COMMUNICATOR, number: 0 }, timeout).map(drop)
    }
}

/// A message on its way.
#[must_use = "a dropped request is abandoned, and its buffer lost"]
pub trait Request: Send {
    /// Which message it is for.
    fn envelope(&self) -> Envelope;

    /// Gives the buffer back if the request is complete: what was sent, or what was received. No work that was enqueued on a
    /// device uses it any more. Does not block.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a message of another length or mark than the buffer's, or if the buffer was given back before;
    /// `PeerLost`; what the transport reports. The request is over then, and its buffer freed.
    fn test(&mut self) -> Result<Option<Buffer>>;
}

/// A request that is complete from the beginning.
struct Complete {
    envelope: Envelope,
    outcome: Option<Result<Buffer>>,
}

fn complete(envelope: Envelope, outcome: Result<Buffer>) -> Box<dyn Request> {
    Box::new(Complete { envelope, outcome: Some(outcome) })
}

impl Request for Complete {
    fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn test(&mut self) -> Result<Option<Buffer>> {
        self.outcome.take().unwrap_or_else(|| Err(self.envelope.over())).map(Some)
    }
}

impl fmt::Debug for dyn Request + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.envelope().fmt(f)
    }
}

/// When a timeout is over.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
    Instant::now() + timeout.min(FOREVER)
}

#[cold]
fn late(
    operation: &'static str,
    timeout: Duration,
    rank: usize,
    requests: &[Option<Box<dyn Request>>],
) -> Error {
    let open: Vec<String> =
        requests.iter().flatten().map(|open| open.envelope().to_string()).collect();
    let message = format!("rank {rank} waited {timeout:?} for {}", open.join(", "));
    Error::new(ErrorKind::Timeout, operation, message)
}
