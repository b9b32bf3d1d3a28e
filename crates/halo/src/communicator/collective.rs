//! Collective calls: every rank takes part in them. They are implemented with messages.
//!
//! In these calls, one rank sends another a sequence of frames. Each frame has a head that states its kind. A rank
//! whose call fails sends a frame of its own kind: a rank that comes late then does not mistake earlier frames for an
//! answer. A reset discards the frames before its own, so nothing of an earlier call meets a later call.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use runtime_core::{Error, ErrorKind, Result, bytemuck};

use super::thread::Group;
use super::{Buffer, COLLECTIVE_TAG, Claims, Communicator, MAX_RANKS, Request, deadline};

/// The state of one rank in the collective calls of its communicator. Each transport makes one for each communicator,
/// by `default`, and keeps it. A communicator that wraps another returns that of the other. That of a
/// [`ThreadCommunicator`](super::ThreadCommunicator) also shows exchanges which memory other threads use.
#[derive(Default)]
pub struct Collectives {
    state: Mutex<State>,
    /// The number of exchanges that this rank has started to make.
    exchanges: AtomicU64,
    /// The number of resets that this rank has completed.
    resets: AtomicU64,
    /// The ranks of this process, and this rank's number among them, if there may be several.
    group: Option<(Arc<Group>, usize)>,
}

#[derive(Default)]
struct State {
    /// This rank's number, and the number of ranks, since the first call.
    numbers: Option<(usize, usize)>,
    /// The ranks from which frames come, at the distances 1, 2, 4, … before this rank.
    sources: Vec<Source>,
    /// The number of calls since the latest reset: the same on every rank that has come this far.
    calls: u64,
    /// The error because of which calls are refused.
    failed: Option<Error>,
    /// A reset that timed out.
    reset: Option<Gather>,
}

impl Collectives {
    pub(super) fn of_group(group: &Arc<Group>, rank: usize) -> Self {
        Self { group: Some((Arc::clone(group), rank)), ..Self::default() }
    }

    /// The claims of a rank on memory for the exchanges of the object with this number, if it has the same number among
    /// as many ranks in this process.
    pub(crate) fn claims(&self, object: u64, numbers: (usize, usize)) -> Option<Claims> {
        let (group, rank) = self.group.as_ref()?;
        ((*rank, group.size()) == numbers).then(|| Claims::new(group, *rank, object))
    }

    /// Refuses collective calls because of this error until a reset. All ranks do this together.
    pub(crate) fn fail(&self, error: &Error) {
        // Another thread of this rank may be in a call, against the rules. It is not waited for.
        if let Some(mut state) = self.state.try_lock() {
            state.failed.get_or_insert_with(|| error.clone());
        }
    }

    /// The next serial number for an exchange that this rank makes: at least 1, and larger than earlier ones.
    pub(crate) fn next_exchange(&self) -> u64 {
        self.exchanges.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of completed resets: in a collective call it is the same on all ranks.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Locks the state for one call.
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
        if rank >= size || size > MAX_RANKS {
            let message = format!("rank {rank} of {size}; at most {MAX_RANKS} ranks");
            return Err(Error::new(ErrorKind::InvalidArgument, operation, message));
        }
        let (own, ranks) = *state.numbers.get_or_insert((rank, size));
        if (own, ranks) != (rank, size) {
            let message = format!("rank {own} of {ranks} now calls itself rank {rank} of {size}");
            return Err(Error::new(ErrorKind::Driver, operation, message));
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

/// The distances 1, 2, 4, … below `size`.
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
            "rank {}: a collective call failed before, and must be reset by Communicator::reset on every rank: {failed}",
            ranks.rank()
        );
        return Err(Error::new(ErrorKind::Conflict, operation, message));
    }
    // Replaced when the call returns. It remains if the transport panics.
    state.failed = Some(Error::new(ErrorKind::Driver, operation, "the call panicked"));
    state.calls += 1;
    let mut gather = Gather::new(Kind::Data, state.calls, mine, state.numbers());
    let gathered = state.finish(ranks, operation, &mut gather, timeout);
    state.failed = gathered.as_ref().err().cloned();
    if let Err(error) = &gathered {
        let (rank, size) = state.numbers();
        for distance in distances(size) {
            // A rank that has left needs no notice.
            let to = (rank + size - distance) % size;
            let head = Head { kind: Kind::Failed, call: state.calls, number: code(error.kind()) };
            let _sent = head.send(ranks, to);
        }
    }
    gathered.map(|()| gather.into_bytes())
}

/// The contribution of a rank to a common reset: what it resets, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    /// [`COMMUNICATOR`](Self::COMMUNICATOR), or an exchange: its channel and the low half of its number.
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
            exchange => {
                let (channel, number) = (exchange >> u32::BITS, exchange & u64::from(u32::MAX));
                write!(f, "exchange number {number} of channel {channel}")
            }
        }
    }
}

/// Makes collective calls possible again. Returns the contributions of all ranks, in their order. After a timeout, a
/// repeated call continues where the earlier call ended. `before` is called unless the call continues: no rank has
/// completed the reset then.
pub(crate) fn reset<C: Communicator + ?Sized>(
    ranks: &C,
    own: Reset,
    timeout: Duration,
    before: impl FnOnce() -> Result<()>,
) -> Result<Vec<Reset>> {
    const OPERATION: &str = "reset";
    let mut state = ranks.collectives().begin(OPERATION, ranks)?;
    let mut gather = match state.reset.take() {
        None => {
            before()?;
            Gather::new(Kind::Reset, state.calls, &own.to_bytes(), state.numbers())
        }
        Some(earlier) => {
            // Other ranks may have read the earlier contribution of this rank.
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
            let all = gather.into_bytes();
            Ok(all.as_chunks().0.iter().map(Reset::from_bytes).collect())
        }
        Err(error) => {
            state.reset = (error.kind() == ErrorKind::Timeout).then_some(gather);
            Err(error)
        }
    }
}

impl State {
    /// This rank's number, and the number of ranks. A call has begun.
    fn numbers(&self) -> (usize, usize) {
        self.numbers.unwrap_or((0, 1))
    }

    /// Blocks until the bytes of all ranks have arrived.
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
            let done = gather.advance(ranks, operation, &mut self.sources, deadline)?;
            if gather.kind == Kind::Data {
                self.check_sources(ranks, operation)?;
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

    /// Returns an error if a source has failed in this call or an earlier one, or has started a reset without making
    /// this call.
    fn check_sources<C: Communicator + ?Sized>(
        &mut self,
        ranks: &C,
        operation: &'static str,
    ) -> Result<()> {
        let rank = ranks.rank();
        for source in &mut self.sources {
            match source.poll(ranks) {
                // The peer may have sent everything it had to. A rank that needs more bytes of it gets the error again.
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
                    let message = format!("rank {rank}: rank {peer} calls reset");
                    return Err(Error::new(ErrorKind::Conflict, operation, message));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The kind of a frame.
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

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    /// The number of the call. For a reset, the number of the latest call before it.
    call: u64,
    /// The length of the bytes that follow, or the code of an error.
    number: usize,
}

impl Head {
    const BYTES: usize = 24;
    /// A start that other messages are unlikely to have.
    const MAGIC: u64 = u64::from_le_bytes(*b"halofrm\0");

    /// Starts sending the head.
    fn send<C: Communicator + ?Sized>(self, ranks: &C, to: usize) -> Result<Box<dyn Request>> {
        let words = [Self::MAGIC | self.kind as u64, self.call, self.number as u64];
        let bytes: [u8; Self::BYTES] = bytemuck::cast(words.map(u64::to_le));
        ranks.send(to, COLLECTIVE_TAG, Buffer::host(bytes.to_vec()))
    }

    /// Returns `None` if the bytes are not a head.
    fn read(bytes: &[u8]) -> Option<Self> {
        let words = bytemuck::try_pod_read_unaligned::<[u64; 3]>(bytes).ok()?;
        let [start, call, number] = words.map(u64::from_le);
        let kind = KINDS.into_iter().find(|kind| start == Self::MAGIC | *kind as u64)?;
        Some(Self { kind, call, number: usize::try_from(number).ok()? })
    }
}

/// Errors with their own code. Other ranks see any other error as `Driver`.
const CODES: [ErrorKind; 6] = [
    ErrorKind::Driver,
    ErrorKind::Timeout,
    ErrorKind::PeerLost,
    ErrorKind::InvalidArgument,
    ErrorKind::Conflict,
    ErrorKind::OutOfMemory,
];

fn code(kind: ErrorKind) -> usize {
    CODES.iter().position(|listed| *listed == kind).unwrap_or(0)
}

/// A rank from which frames come.
struct Source {
    rank: usize,
    /// The receive of a head, or of the bytes after it.
    request: Option<Box<dyn Request>>,
    /// The head of the bytes to receive next.
    head: Option<Head>,
    /// A frame that no call has used yet.
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

    /// Receives the next frame, as far as it has arrived.
    fn poll<C: Communicator + ?Sized>(&mut self, ranks: &C) -> Result<()> {
        while self.frame.is_none() {
            let request = match &mut self.request {
                Some(request) => request,
                None => {
                    let len = self.head.map_or(Head::BYTES, |head| head.number);
                    let bytes = bytemuck::try_zeroed_vec(len).map_err(|()| {
                        self.head = None;
                        let message = format!("{len} bytes from rank {}", self.rank);
                        Error::new(ErrorKind::OutOfMemory, "receive", message)
                    })?;
                    let receive = ranks.receive(self.rank, COLLECTIVE_TAG, Buffer::host(bytes))?;
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

    /// Whether the result of a poll is that of a message from before a reset.
    fn is_before_reset(&self, polled: &Result<()>) -> bool {
        match polled {
            Ok(()) => matches!(self.frame, Some(Frame::Data(_) | Frame::Failed { .. })),
            Err(error) => error.kind() == ErrorKind::InvalidArgument,
        }
    }

    /// Starts a frame with its head.
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

/// One call by Bruck's algorithm: in each round, every rank has the bytes of twice as many ranks as before, starting
/// with its own. After a timeout the wait can be repeated: each frame is sent once and received once.
struct Gather {
    kind: Kind,
    call: u64,
    /// The bytes of the ranks received so far, starting with this rank's.
    all: Vec<u8>,
    /// The number of bytes of each rank.
    len: usize,
    /// The number of this rank, and of all ranks, when the call began.
    rank: usize,
    size: usize,
    /// The number of ranks whose bytes have arrived.
    gathered: usize,
    /// Whether the frame of this round was sent.
    is_sent: bool,
    sends: Vec<Box<dyn Request>>,
}

impl Gather {
    fn new(kind: Kind, call: u64, mine: &[u8], (rank, size): (usize, usize)) -> Self {
        Self {
            rank,
            size,
            kind,
            call,
            all: mine.to_vec(),
            len: mine.len(),
            gathered: 1,
            is_sent: false,
            sends: Vec::new(),
        }
    }

    /// This rank's contribution to a reset.
    fn mine(&self) -> &[u8; Reset::BYTES] {
        self.all.first_chunk().unwrap_or(&[0; Reset::BYTES])
    }

    /// Advances as far as possible without waiting. Returns whether the call is complete. A reset discards what came
    /// before it, until the deadline at most.
    fn advance<C: Communicator + ?Sized>(
        &mut self,
        ranks: &C,
        operation: &'static str,
        sources: &mut [Source],
        deadline: Instant,
    ) -> Result<bool> {
        let Self { rank, size, .. } = *self;
        while self.gathered < size {
            let more = self.gathered.min(size - self.gathered);
            let bytes = more * self.len;
            if !mem::replace(&mut self.is_sent, true) {
                let to = (rank + size - self.gathered) % size;
                let head = Head { kind: self.kind, call: self.call, number: bytes };
                self.sends.push(head.send(ranks, to)?);
                if bytes > 0 {
                    let buffer = Buffer::host(self.all[..bytes].to_vec());
                    self.sends.push(ranks.send(to, COLLECTIVE_TAG, buffer)?);
                }
            }
            let source = &mut sources[self.gathered.ilog2() as usize];
            let polled = source.poll(ranks);
            if self.kind == Kind::Reset && source.is_before_reset(&polled) {
                source.frame = None;
                // More may come without end.
                if Instant::now() >= deadline {
                    break;
                }
                continue;
            }
            polled?;
            let received = match (source.frame.take(), self.kind) {
                (Some(Frame::Data(received)), Kind::Data)
                | (Some(Frame::Reset { bytes: received, .. }), Kind::Reset) => received,
                (frame, _) => {
                    source.frame = frame;
                    break;
                }
            };
            if received.len() != bytes {
                let message = format!(
                    "{} bytes of {more} ranks came from rank {}; rank {rank} contributes {}",
                    received.len(),
                    source.rank,
                    self.len
                );
                return Err(Error::new(ErrorKind::InvalidArgument, operation, message));
            }
            self.all.extend(received);
            self.gathered += more;
            self.is_sent = false;
        }
        let mut open = Vec::new();
        for mut send in self.sends.drain(..) {
            if send.test()?.is_none() {
                open.push(send);
            }
        }
        self.sends = open;
        // Ranks that timed out read the rest when they reset again.
        let are_sent = self.kind == Kind::Reset || self.sends.is_empty();
        Ok(self.gathered >= size && are_sent)
    }

    /// A rank that the call waits for.
    fn awaited(&self, sources: &[Source]) -> usize {
        match sources.get(self.gathered.ilog2() as usize) {
            Some(source) if self.is_sent => source.rank,
            _ => self.sends.first().map_or(0, |send| send.envelope().peer),
        }
    }

    /// Returns the bytes of all ranks, in their order.
    fn into_bytes(mut self) -> Vec<u8> {
        // The stored bytes start with this rank's.
        self.all.rotate_right(self.rank * self.len);
        self.all
    }
}
