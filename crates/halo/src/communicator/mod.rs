//! Messages between ranks: the transport of an exchange.
//!
//! Transports implement [`Communicator`], and exchanges use it. [`ThreadCommunicator`] runs ranks as threads of one
//! process; the crate `halo-mpi` provides a communicator over MPI. For tests, [`FaultyCommunicator`] injects faults
//! into messages.
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
mod thread;

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use runtime_core::{Device, Error, ErrorKind, Result, interrupt};

pub use buffer::{Buffer, Storage};
pub use collective::Collectives;
pub(crate) use collective::{Reset, code, kind_of, reset};
pub use envelope::{Envelope, Way};
pub use faulty::{Fault, Faults, FaultyCommunicator};
pub(crate) use thread::{Claims, Declined};
pub use thread::{Direct, LentViews, Loan, LoanEvents, LoanSession, ThreadCommunicator};

/// The tag of the messages of collective calls. No other message may use it.
pub const COLLECTIVE_TAG: u32 = 0;

/// The most looks at requests before a wait reads the clock.
const MAX_LOOKS: u32 = 1 << 16;

/// An upper limit of the number of ranks, larger than any machine has.
pub(crate) const MAX_RANKS: usize = 1 << 24;

/// A group of ranks that send each other messages, as seen from one of the ranks.
///
/// A message has a source, a tag, a [message ID](Buffer::with_message_id) and bytes. A receive always specifies source
/// and tag. Among the messages with both, it gets the earliest that no earlier receive got. The length and the message
/// ID of its buffer must be exactly those of the message.
///
/// `send` and `receive` wait for no other rank, and own their buffer until the request is complete. A send may stay
/// incomplete until its receive is posted. Requests make progress while this rank calls [`Request::test`] or
/// [`wait_any`](Self::wait_any); they may make progress at other times, too.
///
/// # Collective calls
///
/// Every rank makes the collective calls in the same order. They are [`all_gather`](Self::all_gather),
/// [`barrier`](Self::barrier), [`reset`](Self::reset), and calls that use these, such as
/// [`HaloExchange::new`](crate::HaloExchange::new) and [`HaloExchange::reset`](crate::HaloExchange::reset). A rank
/// makes one collective call at a time.
///
/// If a call fails on one rank, it fails on all ranks that are in the call or start it later, in most cases at once.
/// After that, collective calls return `Conflict` until every rank has called [`reset`](Self::reset). If a rank was
/// about to return from the call when another rank failed, its call may succeed. Then its next call fails.
///
/// ```
/// use std::time::Duration;
/// use halo::ErrorKind;
/// use halo::communicator::{Communicator, ThreadCommunicator};
///
/// ThreadCommunicator::run(2, |ranks| {
///     if ranks.rank() == 0 {
///         // The other rank is late, or has called `reset`.
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
/// # Guarantees that implementors provide
///
/// - A message arrives as it was sent, or its receive returns an error.
/// - Message IDs are sent with messages in any memory, and nothing waits for them. A transport that cannot carry a
///   whole message ID compares as much of it as it can.
/// - A request returns the buffer that it got, or another buffer of the same kind of memory, device and length.
/// - Dropping a request does not drop its message: a send still goes out, and a receive still gets its message, which
///   is discarded. Therefore later messages are matched with later receives. The buffer lives until then. Only
///   [`discard`](Self::discard) ends them before.
/// - A request that can never complete ends with an error: when a peer is gone, all present and later requests that
///   need it return `PeerLost`.
/// - No method panics, or blocks for longer than its timeout.
pub trait Communicator: fmt::Debug + Send + Sync {
    /// The number of this rank, less than [`size`](Self::size).
    fn rank(&self) -> usize;

    /// The number of ranks, at least 1.
    fn size(&self) -> usize;

    /// The largest tag that can be used, at least 32767.
    fn max_tag(&self) -> u32;

    /// Whether buffers in memory of this device can be sent and received if the host cannot address that memory.
    fn passes_memory_of(&self, device: &Device) -> bool;

    /// The state of this rank's [collective calls](Communicator#collective-calls). The provided methods implement these
    /// calls with messages in host memory with the tag [`COLLECTIVE_TAG`]. A transport stores one [`Collectives`], made
    /// by [`Collectives::default`], and returns the same one each time. A communicator that wraps another returns the
    /// `Collectives` of the other.
    fn collectives(&self) -> &Collectives;

    /// Direct access to the memory of other ranks, if they share an address space. An exchange uses it only if this
    /// communicator and the direct access agree on the [number](Self::rank) of this rank and on the number of ranks.
    /// Otherwise the exchange sends messages.
    fn direct(&self) -> Option<Direct<'_>>;

    /// Starts sending the bytes of `buffer`.
    ///
    /// The bytes must be complete: the work that writes them is done. A rank may send to itself.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a rank or tag that does not exist, or for memory that the transport does not
    /// [accept](Self::passes_memory_of). `PeerLost`.
    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>>;

    /// Starts receiving a message whose length is exactly that of `buffer`.
    ///
    /// No work may use the buffer any more.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send). If the message has another length or message ID, the request returns
    /// `InvalidArgument` and the message is discarded.
    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>>;

    /// Discards the messages to this rank with these tags that have arrived and that no receive waits for. A message
    /// has arrived if a later one of the same rank was received. Dropped receives with these tags end, and get no
    /// message any more. Does not block.
    ///
    /// # Errors
    ///
    /// The errors that the transport reports.
    fn discard(&self, tags: Range<u32>) -> Result<()>;

    /// A count of the events on the requests of this rank, to pass to [`wait_beyond`](Self::wait_beyond).
    fn progress(&self) -> u64;

    /// Blocks until the count exceeds `seen`, but not beyond `deadline`. May return earlier, and does so at least every
    /// [`INTERVAL`](interrupt::INTERVAL) if waits are [interrupted](interrupt::limit).
    fn wait_beyond(&self, seen: u64, deadline: Instant);

    /// Whether a wait looks at its requests again, after this number of looks, before it reads the clock and calls
    /// [`wait_beyond`](Self::wait_beyond). A transport that has to be asked for messages may answer `true` for some
    /// microseconds. It is not asked after 65 535 looks.
    fn looks_again(&self, _looks: u32) -> bool {
        false
    }

    /// Blocks until one of the requests is complete and sets its place to `None`. Returns its index and its buffer, or
    /// `None` if no requests are left.
    ///
    /// If several requests are complete, it returns the first: call it again for the others.
    ///
    /// # Errors
    ///
    /// `Timeout`, or an [interrupt], leaves all requests unchanged: wait again, or drop them. Any other error is that
    /// of one
    /// request, whose place becomes `None`.
    fn wait_any(
        &self,
        requests: &mut [Option<Box<dyn Request>>],
        timeout: Duration,
    ) -> Result<Option<(usize, Buffer)>> {
        // A request that is complete at once needs no clock.
        let (mut until, mut looks, mut has_waited) = (None, 0, false);
        loop {
            let seen = self.progress();
            let mut open = 0;
            for (index, place) in requests.iter_mut().enumerate() {
                let Some(request) = place else { continue };
                open += 1;
                let tested = request.test().transpose();
                if let Some(outcome) = tested {
                    *place = None;
                    return outcome.map(|buffer| Some((index, buffer)));
                }
            }
            if open == 0 {
                return Ok(None);
            }
            looks += 1;
            // A transport that always wants to look again must not outlast the timeout.
            if looks < MAX_LOOKS && self.looks_again(looks) {
                continue;
            }
            let deadline = *until.get_or_insert_with(|| deadline(timeout));
            // The transport sees every deadline, even one that has passed.
            if has_waited && Instant::now() >= deadline {
                return Err(late(timeout, self.rank(), requests));
            }
            self.wait_beyond(seen, deadline);
            interrupt::check()?;
            has_waited = true;
        }
    }

    /// Blocks until the request is complete, and returns its buffer.
    ///
    /// # Errors
    ///
    /// As for [`wait_any`](Self::wait_any); the request is dropped.
    fn wait(&self, request: Box<dyn Request>, timeout: Duration) -> Result<Buffer> {
        let waited = self.wait_any(&mut [Some(request)], timeout)?;
        Ok(waited.map_or_else(Buffer::default, |(_, buffer)| buffer))
    }

    /// Blocks until every rank has called it. Returns the bytes of all ranks in the order of ranks. Every rank passes
    /// the same number of bytes.
    ///
    /// Use it for small data: every rank gets all bytes, in about log2([`size`](Self::size)) messages.
    ///
    /// # Errors
    ///
    /// `Timeout`. `PeerLost`. `InvalidArgument` if a rank passed a different number of bytes. The same error if the
    /// call failed with one of these on another rank. `Conflict` if a [collective call](Communicator#collective-calls)
    /// failed before, if another rank calls [`reset`](Self::reset), or if another thread of this rank is in a
    /// collective call; calls of a single rank wait for each other. The errors that the transport reports.
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

    /// Makes [collective calls](Communicator#collective-calls) possible again after a failed call. All ranks call it,
    /// including those on which no call failed. Discards what was sent in earlier calls.
    ///
    /// Blocks until every rank has called it.
    ///
    /// It works even if requests fail and lose messages: this rank sends its part again while it waits, and also in the
    /// first collective call after the reset. If a rank fails to complete a reset that others have completed, it
    /// completes the reset when it calls it again while they are in a collective call. A later call may then fail once
    /// more. So ranks that reset after each error and try again succeed as soon as requests stop failing.
    ///
    /// # Errors
    ///
    /// After any error, call it again: it continues where the earlier call ended, even if other ranks completed it
    /// meanwhile. `Timeout`. `PeerLost`. `Conflict` if another thread of this rank is in a collective call. The errors
    /// that the transport reports.
    fn reset(&self, timeout: Duration) -> Result<()> {
        reset(self, Reset { what: Reset::COMMUNICATOR, number: 0 }, timeout, || Ok(())).map(drop)
    }
}

/// A message in transit.
#[must_use = "a dropped request is abandoned, and its buffer lost"]
pub trait Request: Send {
    /// Describes the message that the request is for.
    fn envelope(&self) -> Envelope;

    /// Returns the buffer, sent or received, if the request is complete. No work that was enqueued on a device still
    /// uses the buffer then. Does not block.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a message whose length or message ID differs from that of the buffer, or if the buffer was
    /// returned before. `PeerLost`. The errors that the transport reports. After an error the request is over, and its
    /// buffer is freed.
    fn test(&mut self) -> Result<Option<Buffer>>;
}

/// A request that is complete from the start.
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

/// The end of a timeout that starts now.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
    Instant::now() + timeout.min(FOREVER)
}

#[cold]
fn late(timeout: Duration, rank: usize, requests: &[Option<Box<dyn Request>>]) -> Error {
    let open: Vec<String> =
        requests.iter().flatten().map(|open| open.envelope().to_string()).collect();
    let message = format!("rank {rank} waited {timeout:?} for {}", open.join(", "));
    Error::new(ErrorKind::Timeout, "wait", message)
}
