//! Calls that every rank takes part in, made of messages.
//!
//! What one rank sends another in these calls is a row of frames, each with a head that says what it is. A rank whose call
//! fails says so in a frame of its own, so that a rank which comes late does not take what it finds for an answer. A reset
//! discards the frames before its own: nothing of an earlier call meets a later one.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use runtime_core::{Error, ErrorKind, Result, bytemuck};

use super::{Buffer, COLLECTIVE_TAG, Communicator, Request, deadline};
use crate::topology::MOST_RANKS;

/// One rank's state in the collective calls of its communicator. A transport makes one for each communicator, by `default`,
/// and keeps it; one that wraps another gives out that one's.
#[derive(Default)]
pub struct Collectives {
    state: Mutex<State>,
    /// Exchanges that this rank has begun to make.
    exchanges: AtomicU64,
    /// Resets that this rank has got through.
    resets: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Ranks that frames come from, at the distances 1, 2, 4, … behind this one.
    sources: Vec<Source>,
    /// Calls since the latest reset: the same on every rank that has come so far.
    calls: u64,
    /// Why calls are refused.
    failed: Option<Error>,
    /// A reset that waited in vain.
    reset: Option<Gather>,
}

impl Collectives {
    /// Whether no call was made.
    pub(super) fn are_unused(&self) -> bool {
        self.state.try_lock().is_some_and(|state| state.sources.is_empty())
    }

    /// A number for an exchange that this rank makes, at least 1: larger than those before.
    pub(crate) fn next_exchange(&self) -> u64 {
        self.exchanges.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How often the ranks have reset: the same on all of them in a collective call.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// The state for one call.
    fn begin<C: Communicator + ?Sized>(
        &self,
        operation: &'static str,
        ranks: &C,
    ) -> Result<MutexGuard<'_, State>> {
        let (rank, size) = (ranks.rank(), ranks.size());
        let Some(mut state) = self.state.try_lock() else {
            let message = format!(
                "another thread of rank {rank} is in a collective call of its communicator"
            );
            return Err(Error::new(ErrorKind::Conflict, operation, message));
        };
        if rank >= size || size > MOST_RANKS {
            let message = format!("rank {rank} of {size}; at most {MOST_RANKS} ranks");
            return Err(Error::new(ErrorKind::InvalidArgument, operation, message));
        }
        if state.sources.is_empty() {
            let at = |distance| Source::new((rank + distance) % size);
            state.sources = distances(size).map(at).collect();
        }
        Ok(state)
    }
}

impl fmt::Debug for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collectives")
    }
}

/// 1, 2, 4, …, all below `size`.
fn distances(size: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1_usize), |distance| distance.checked_mul(2))
        .take_while(move |distance| *distance < size)
}

/// As [`Communicator::all_gather`].
pub(super) fn all_gather<C: Communicator + ?Sized>(
    ranks: &C,
    operation: &'static str,
    mine: &[u8],
    timeout: Duration,
) -> Result<Vec<u8>> {
    let mut state = ranks.collectives().begin(operation, ranks)?;
    if let Some(failed) = &state.failed {
        let message = format!(
            "rank {}: a collective call failed before, and Communicator::reset on every rank begins anew: {failed}",
            ranks.rank()
        );
        return Err(Error::new(ErrorKind::Conflict, operation, message));
    }
    // Unless the call comes to its end, which a panic of the transport prevents.
    state.failed = Some(Error::new(ErrorKind::Driver, operation, "the call panicked"));
    state.calls += 1;
    let mut gather = Gather::new(Kind::Data, state.calls, mine);
    let gathered = state.finish(ranks, operation, &mut gather, timeout);
    state.failed = gathered.as_ref().err().cloned();
    if let Err(error) = &gathered {
        let (rank, size) = (ranks.rank(), ranks.size());
        for distance in distances(size) {
            // A rank that is gone need not know.
            let to = (rank + size - distance) % size;
            let head = Head { kind: Kind::Failed, call: state.calls, number: code(error.kind()) };
            let _told = head.send(ranks, to);
        }
    }
    gathered.map(|()| gather.into_bytes(ranks.rank()))
}

/// What ranks reset together: each says what it resets, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    /// [`COMMUNICATOR`](Self::COMMUNICATOR), or a channel.
    pub(crate) what: u64,
    pub(crate) number: u64,
}

impl Reset {
    pub(crate) const COMMUNICATOR: u64 = u64::MAX;
    const BYTES: usize = 16;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        bytemuck::cast([self.what.to_le(), self.number.to_le()])
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let [what, number]: [u64; 2] = bytemuck::pod_read_unaligned(bytes);
        Self { what: u64::from_le(what), number: u64::from_le(number) }
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            Self::COMMUNICATOR => f.write_str("the communicator"),
            channel => write!(f, "an exchange of channel {channel}"),
        }
    }
}

/// Makes collective calls possible again; gives what all ranks reset, in their order. A call that waited in vain goes on
/// where it ended when it is made again.
pub(crate) fn reset<C: Communicator + ?Sized>(
    ranks: &C,
    own: Reset,
    timeout: Duration,
) -> Result<Vec<Reset>> {
    const OPERATION: &str = "reset";
    let mut state = ranks.collectives().begin(OPERATION, ranks)?;
    let mut gather = match state.reset.take() {
        None => Gather::new(Kind::Reset, state.calls, &own.to_bytes()),
        Some(earlier) => {
            // Ranks that came meanwhile have read what this one resets.
            let begun = Reset::from_bytes(earlier.mine());
            if own.what != begun.what && own.what != Reset::COMMUNICATOR {
                let message = format!(
                    "rank {}: {own}, while a reset of {begun} waits for other ranks: repeat that, or reset the communicator",
                    ranks.rank()
                );
                state.reset = Some(earlier);
                return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
            }
            earlier
        }
    };
    let done = state.finish(ranks, OPERATION, &mut gather, timeout);
    state.failed = done.as_ref().err().cloned();
    match done {
        Ok(()) => {
            state.calls = 0;
            ranks.collectives().resets.fetch_add(1, Ordering::Relaxed);
            let all = gather.into_bytes(ranks.rank());
            Ok(all.as_chunks().0.iter().map(Reset::from_bytes).collect())
        }
        Err(error) => {
            state.reset = (error.kind() == ErrorKind::Timeout).then_some(gather);
            Err(error)
        }
    }
}

impl State {
    /// Blocks until the bytes of all ranks are there.
    fn finish<C: Communicator + ?Sized>(
        &mut self,
        ranks: &C,
        operation: &'static str,
        gather: &mut Gather,
        timeout: Duration,
    ) -> Result<()> {
        let deadline = deadline(timeout);
        loop {
            let seen = ranks.progress();
            let done = gather.advance(ranks, operation, &mut self.sources)?;
            if gather.kind == Kind::Data {
                self.hear(ranks, operation)?;
            }
            if done {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let awaited = gather.awaited(&self.sources);
                let message =
                    format!("rank {} waited {timeout:?} for rank {awaited}", ranks.rank());
                return Err(Error::new(ErrorKind::Timeout, operation, message));
            }
            ranks.wait_beyond(seen, deadline);
        }
    }

    /// An error if a rank that frames come from has failed in this call or one before, or resets without having made it.
    fn hear<C: Communicator + ?Sized>(&mut self, ranks: &C, operation: &'static str) -> Result<()> {
        let rank = ranks.rank();
        for source in &mut self.sources {
            match source.poll(ranks) {
                // It may have nothing left to say. Whoever needs its bytes finds the error again.
                Err(error) if error.kind() == ErrorKind::PeerLost => {}
                polled => polled?,
            }
            let peer = source.rank;
            match source.frame {
                Some(Frame::Failed { call, kind }) if call <= self.calls => {
                    let message = format!("rank {rank}: a collective call of rank {peer} failed");
                    return Err(Error::new(kind, operation, message));
                }
                Some(Frame::Reset { calls, .. }) if calls < self.calls => {
                    let message = format!("rank {rank}: rank {peer} calls reset meanwhile");
                    return Err(Error::new(ErrorKind::Conflict, operation, message));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Bytes of a call.
    Data,
    /// A call failed.
    Failed,
    /// Bytes of a reset.
    Reset,
}

const KINDS: [Kind; 3] = [Kind::Data, Kind::Failed, Kind::Reset];

/// The beginning of a frame.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    /// The number of the call; for a reset, of the latest before it.
    call: u64,
    /// The length of the bytes that follow, or the code of an error.
    number: usize,
}

impl Head {
    const BYTES: usize = 24;
    /// What messages of others hardly begin with.
    const MAGIC: u64 = u64::from_le_bytes(*b"halofrm\0");

    /// Starts sending it.
    fn send<C: Communicator + ?Sized>(self, ranks: &C, to: usize) -> Result<Box<dyn Request>> {
        let words = [Self::MAGIC | self.kind as u64, self.call, self.number as u64];
        let bytes: [u8; Self::BYTES] = bytemuck::cast(words.map(u64::to_le));
        ranks.send(to, COLLECTIVE_TAG, Buffer::host(bytes.to_vec()))
    }

    /// `None` for bytes that are no head.
    fn read(bytes: &[u8]) -> Option<Self> {
        let words = bytemuck::try_pod_read_unaligned::<[u64; 3]>(bytes).ok()?;
        let [start, call, number] = words.map(u64::from_le);
        let kind = KINDS.into_iter().find(|kind| start == Self::MAGIC | *kind as u64)?;
        Some(Self { kind, call, number: usize::try_from(number).ok()? })
    }
}

/// Errors that have a code of their own. Any other is a `Driver` to the ranks that hear of it.
const CODES: [ErrorKind; 6] = [
    ErrorKind::Driver,
    ErrorKind::Timeout,
    ErrorKind::PeerLost,
    ErrorKind::InvalidArgument,
    ErrorKind::Conflict,
    ErrorKind::OutOfMemory,
];

fn code(kind: ErrorKind) -> usize {
    CODES.iter().position(|known| *known == kind).unwrap_or(0)
}

/// A rank that frames come from.
struct Source {
    rank: usize,
    /// The receive of a head, or of the bytes after it.
    request: Option<Box<dyn Request>>,
    /// The head of the bytes that are awaited.
    head: Option<Head>,
    /// A frame that nothing has used yet.
    frame: Option<Frame>,
}

enum Frame {
    Data(Vec<u8>),
    Failed { call: u64, kind: ErrorKind },
    Reset { calls: u64, bytes: Vec<u8> },
}

impl Source {
    fn new(rank: usize) -> Self {
        Self { rank, request: None, head: None, frame: None }
    }

    /// Receives the next frame, as far as it is there.
    fn poll<C: Communicator + ?Sized>(&mut self, ranks: &C) -> Result<()> {
        while self.frame.is_none() {
            let request = match &mut self.request {
                Some(request) => request,
                None => {
                    let len = self.head.map_or(Head::BYTES, |head| head.number);
                    let room = bytemuck::try_zeroed_vec(len).map_err(|()| {
                        self.head = None;
                        let message = format!("{len} bytes from rank {}", self.rank);
                        Error::new(ErrorKind::OutOfMemory, "receive", message)
                    })?;
                    let receive = ranks.receive(self.rank, COLLECTIVE_TAG, Buffer::host(room))?;
                    self.request.insert(receive)
                }
            };
            let tested = request.test();
            if let Ok(None) = tested {
                return Ok(());
            }
            self.request = None;
            let head = self.head.take();
            let bytes = tested?.map_or_else(|| Ok(Vec::new()), |buffer| buffer.to_vec())?;
            match head {
                Some(head) => self.take(head, bytes),
                None => self.begin(&bytes)?,
            }
        }
        Ok(())
    }

    /// Begins a frame with its head.
    fn begin(&mut self, bytes: &[u8]) -> Result<()> {
        match Head::read(bytes) {
            Some(head) if head.kind != Kind::Failed && head.number > 0 => self.head = Some(head),
            Some(head) => self.take(head, Vec::new()),
            None => {
                let message = format!(
                    "a message from rank {} with tag {COLLECTIVE_TAG}, which is for collective calls",
                    self.rank
                );
                return Err(Error::new(ErrorKind::InvalidArgument, "receive", message));
            }
        }
        Ok(())
    }

    fn take(&mut self, head: Head, bytes: Vec<u8>) {
        let Head { kind, call, number } = head;
        self.frame = Some(match kind {
            Kind::Data => Frame::Data(bytes),
            Kind::Failed => {
                let kind = CODES.get(number).copied().unwrap_or(ErrorKind::Driver);
                Frame::Failed { call, kind }
            }
            Kind::Reset => Frame::Reset { calls: call, bytes },
        });
    }
}

/// One call by Bruck's algorithm: in each round, ranks have the bytes of twice as many ranks as before, beginning with their
/// own. It can be waited for again after a timeout: each frame is sent once, and met once.
struct Gather {
    kind: Kind,
    call: u64,
    /// The bytes of ranks that are there, beginning with this rank's.
    all: Vec<u8>,
    /// Bytes of each rank.
    len: usize,
    /// Ranks whose bytes are there.
    held: usize,
    /// Whether the frame of this round was sent.
    is_sent: bool,
    sends: Vec<Box<dyn Request>>,
}

impl Gather {
    fn new(kind: Kind, call: u64, mine: &[u8]) -> Self {
        Self {
            kind,
            call,
            all: mine.to_vec(),
            len: mine.len(),
            held: 1,
            is_sent: false,
            sends: Vec::new(),
        }
    }

    /// What this rank brings to a reset.
    fn mine(&self) -> &[u8; Reset::BYTES] {
        self.all.first_chunk().unwrap_or(&[0; Reset::BYTES])
    }

    /// Does what can be done without waiting; whether that was all.
    fn advance<C: Communicator + ?Sized>(
        &mut self,
        ranks: &C,
        operation: &'static str,
        sources: &mut [Source],
    ) -> Result<bool> {
        let (rank, size) = (ranks.rank(), ranks.size());
        while self.held < size {
            let more = self.held.min(size - self.held);
            let bytes = more * self.len;
            if !mem::replace(&mut self.is_sent, true) {
                let to = (rank + size - self.held) % size;
                let head = Head { kind: self.kind, call: self.call, number: bytes };
                self.sends.push(head.send(ranks, to)?);
                if bytes > 0 {
                    let buffer = Buffer::host(self.all[..bytes].to_vec());
                    self.sends.push(ranks.send(to, COLLECTIVE_TAG, buffer)?);
                }
            }
            let source = &mut sources[self.held.ilog2() as usize];
            match source.poll(ranks) {
                // Whatever it was, it came before the reset.
                Err(error) if self.discards(&error) => continue,
                polled => polled?,
            }
            let received = match (source.frame.take(), self.kind) {
                (Some(Frame::Data(received)), Kind::Data)
                | (Some(Frame::Reset { bytes: received, .. }), Kind::Reset) => received,
                // What came before the reset.
                (Some(Frame::Data(_) | Frame::Failed { .. }), Kind::Reset) => continue,
                (frame, _) => {
                    source.frame = frame;
                    break;
                }
            };
            if received.len() != bytes {
                let message = format!(
                    "{} bytes of {more} ranks came from rank {}; rank {rank} brings {}",
                    received.len(),
                    source.rank,
                    self.len
                );
                return Err(Error::new(ErrorKind::InvalidArgument, operation, message));
            }
            self.all.extend(received);
            self.held += more;
            self.is_sent = false;
        }
        let mut open = Vec::new();
        for mut send in self.sends.drain(..) {
            if send.test()?.is_none() {
                open.push(send);
            }
        }
        self.sends = open;
        // Ranks that gave up read the rest when they reset again.
        let are_sent = self.kind == Kind::Reset || self.sends.is_empty();
        Ok(self.held >= size && are_sent)
    }

    fn discards(&self, error: &Error) -> bool {
        self.kind == Kind::Reset && error.kind() == ErrorKind::InvalidArgument
    }

    /// A rank that it waits for.
    fn awaited(&self, sources: &[Source]) -> usize {
        match sources.get(self.held.ilog2() as usize) {
            Some(source) if self.is_sent => source.rank,
            _ => self.sends.first().map_or(0, |send| send.envelope().peer),
        }
    }

    /// The bytes of all ranks, in their order.
    fn into_bytes(mut self, rank: usize) -> Vec<u8> {
        // They begin with this rank's.
        self.all.rotate_right(rank * self.len);
        self.all
    }
}
