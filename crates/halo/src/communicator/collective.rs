//! Collective calls: every rank takes part in them. They are implemented with messages.
//!
//! In these calls, one rank sends another a sequence of frames. Each frame has a head that states its kind. A rank
//! whose call fails sends a frame of its own kind: a rank that comes late then does not mistake earlier frames for an
//! answer.
//!
//! A head also states how many resets its rank had completed. A frame from before the receiver's latest reset is
//! discarded, so nothing of an earlier call meets a later call. A rank cannot complete a reset without all others, so
//! the numbers of two ranks differ by at most one.
//!
//! A request may fail and take a message with it. Therefore a rank that waits in a collective call sends the frames of
//! its resets again from time to time: those of the reset that it waits for, and those of the latest one that it
//! completed, until a later call has shown that all ranks completed it. The contributions to a reset do not change, so
//! it makes no difference which copy of a frame arrives. A rank drops copies that it does not need.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use runtime_core::{Error, ErrorKind, Result, bytemuck, interrupt};

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
    /// The number of other objects that it has made together with all ranks.
    objects: AtomicU64,
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
    /// A reset that this rank has begun and not completed.
    reset: Option<Gather>,
    repeats: Repeats,
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

    /// The next serial number for an exchange that this rank makes: larger than earlier ones. Its low half counts the
    /// exchanges of the communicator, from 1. Its high half counts those of the process, because exchanges of two
    /// communicators may read the same memory.
    pub(crate) fn next_exchange(&self) -> u64 {
        static OF_PROCESS: AtomicU64 = AtomicU64::new(0);
        let next = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed) + 1;
        next(&OF_PROCESS) << u32::BITS | next(&self.exchanges) & u64::from(u32::MAX)
    }

    /// Counts an object that all ranks make together, such as a grid. Returns its number, which is the same on all
    /// ranks if they make such objects in the same order. Sends nothing.
    pub fn next_object(&self) -> u64 {
        self.objects.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of resets that this rank has completed, of the communicator or of an exchange. In a collective call
    /// it is the same on all ranks.
    pub fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Locks the state for one call. A single rank's calls need no common order, so they wait for each other.
    fn begin<C: Communicator + ?Sized>(
        &self,
        operation: &'static str,
        ranks: &C,
        timeout: Duration,
    ) -> Result<MutexGuard<'_, State>> {
        let (rank, size) = (ranks.rank(), ranks.size());
        let wait = if size == 1 { timeout } else { Duration::ZERO };
        let Some(mut state) = self.state.try_lock_for(wait) else {
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
    let mut state = ranks.collectives().begin(operation, ranks, timeout)?;
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
    let (resets, numbers) = (ranks.collectives().resets(), state.numbers());
    let State { sources, repeats, failed, calls, .. } = &mut *state;
    let mut gather = Gather::new(Kind::Data, resets, *calls, mine, numbers);
    let gathered = gather.finish(ranks, operation, sources, repeats, timeout);
    *failed = gathered.as_ref().err().cloned();
    if let Err(error) = &gathered {
        let (rank, size) = numbers;
        for distance in distances(size) {
            // A rank that has left needs no notice.
            let to = (rank + size - distance) % size;
            let head =
                Head { kind: Kind::Failed, resets, call: *calls, number: code(error.kind()) };
            let _sent = head.send(ranks, to);
        }
    }
    gathered.map(|()| {
        repeats.completed = None;
        gather.bytes()
    })
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

/// Makes collective calls possible again. Returns the contributions of all ranks, in their order. After an error, a
/// repeated call continues where the earlier call ended. `before` is called unless the call continues: no rank has
/// completed the reset then.
pub(crate) fn reset<C: Communicator + ?Sized>(
    ranks: &C,
    own: Reset,
    timeout: Duration,
    before: impl FnOnce() -> Result<()>,
) -> Result<Vec<Reset>> {
    const OPERATION: &str = "reset";
    let collectives = ranks.collectives();
    let mut state = collectives.begin(OPERATION, ranks, timeout)?;
    if let Some(earlier) = &state.reset {
        // Other ranks may have read the earlier contribution of this rank.
        let begun = Reset::from_bytes(earlier.mine());
        if own.what != begun.what && own.what != Reset::COMMUNICATOR {
            let message = format!(
                "rank {}: {own}, while a reset of {begun} waits for other ranks: repeat that, or reset the communicator",
                ranks.rank()
            );
            return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
        }
    } else {
        before()?;
        state.repeats.begin();
    }
    let (resets, numbers) = (collectives.resets(), state.numbers());
    let State { sources, calls, failed, reset, repeats, .. } = &mut *state;
    let begin = || Gather::new(Kind::Reset, resets, *calls, &own.to_bytes(), numbers);
    let gather = reset.get_or_insert_with(begin);
    // As in `all_gather`.
    *failed = Some(Error::new(ErrorKind::Driver, OPERATION, "the call panicked"));
    let done = gather.finish(ranks, OPERATION, sources, repeats, timeout);
    *failed = done.as_ref().err().cloned();
    done?;
    let all = gather.bytes();
    repeats.completed = reset.take();
    repeats.begin();
    *calls = 0;
    collectives.resets.fetch_add(1, Ordering::Relaxed);
    Ok(all.as_chunks().0.iter().map(Reset::from_bytes).collect())
}

impl State {
    /// This rank's number, and the number of ranks. A call has begun.
    fn numbers(&self) -> (usize, usize) {
        self.numbers.unwrap_or((0, 1))
    }
}

/// When the frames of resets are sent again.
#[derive(Default)]
struct Repeats {
    /// The latest completed reset, until a later call shows that all ranks have completed it.
    completed: Option<Gather>,
    /// The next time, and the interval after it.
    next: Option<(Instant, Duration)>,
}

impl Repeats {
    /// Intervals double from the first to the longest: few frames wait for a rank that is very late.
    const FIRST: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_secs(1);

    /// Starts with the first interval.
    fn begin(&mut self) {
        self.next = Some((Instant::now() + Self::FIRST, Self::FIRST));
    }

    /// Sends the frames of the completed reset and of `current` again if it is time. Returns the next time.
    fn send<C: Communicator + ?Sized>(
        &mut self,
        ranks: &C,
        current: Option<&Gather>,
    ) -> Option<Instant> {
        if self.completed.is_none() && current.is_none() {
            return None;
        }
        let (next, interval) = self.next.as_mut()?;
        let now = Instant::now();
        if now >= *next {
            *interval = Self::LONGEST.min(2 * *interval);
            *next = now + *interval;
            for reset in self.completed.iter().chain(current) {
                // An error matters as little as a lost frame: there are more repetitions.
                reset.rounds().for_each(|round| drop(reset.send(ranks, round)));
            }
        }
        Some(*next)
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
    /// The number of resets that the rank has completed.
    resets: u64,
    /// The number of the call since then. For a reset, the number of the latest call before it.
    call: u64,
    /// The length of the bytes that follow, or the code of an error.
    number: usize,
}

impl Head {
    /// No multiple of the length of a contribution: if a message is lost, no head passes for the bytes of a reset.
    const BYTES: usize = 40;
    /// A start that other messages are unlikely to have.
    const MAGIC: u64 = u64::from_le_bytes(*b"halofrm\0");

    /// Starts sending the head.
    fn send<C: Communicator + ?Sized>(self, ranks: &C, to: usize) -> Result<Box<dyn Request>> {
        let Self { kind, resets, call, number } = self;
        let words = [Self::MAGIC, kind as u64, resets, call, number as u64].map(u64::to_le);
        ranks.send(to, COLLECTIVE_TAG, Buffer::host(bytemuck::bytes_of(&words).to_vec()))
    }

    /// Returns `None` if the bytes are not a head.
    fn read(bytes: &[u8]) -> Option<Self> {
        let words = bytemuck::try_pod_read_unaligned::<[u64; 5]>(bytes).ok()?;
        let [start, kind, resets, call, number] = words.map(u64::from_le);
        let kind = KINDS.into_iter().find(|listed| *listed as u64 == kind)?;
        let number = usize::try_from(number).ok()?;
        (start == Self::MAGIC).then_some(Self { kind, resets, call, number })
    }
}

/// Errors with their own code. Other ranks see any other error as `Driver`.
const CODES: [ErrorKind; 9] = [
    ErrorKind::Driver,
    ErrorKind::Timeout,
    ErrorKind::PeerLost,
    ErrorKind::InvalidArgument,
    ErrorKind::Conflict,
    ErrorKind::OutOfMemory,
    ErrorKind::Unsupported,
    ErrorKind::WrongDevice,
    ErrorKind::OutOfBounds,
];

/// The code by which other ranks know the kind of an error.
pub(crate) fn code(kind: ErrorKind) -> usize {
    CODES.iter().position(|listed| *listed == kind).unwrap_or(0)
}

/// The kind of an error with this code.
pub(crate) fn kind_of(code: usize) -> ErrorKind {
    CODES.get(code).copied().unwrap_or(ErrorKind::Driver)
}

/// A rank from which frames come.
struct Source {
    rank: usize,
    /// The receive of a head, or of the bytes after it.
    request: Option<Box<dyn Request>>,
    /// The head of the bytes to receive next.
    head: Option<Head>,
    /// The frames that no call has used yet.
    frames: VecDeque<Frame>,
}

struct Frame {
    head: Head,
    bytes: Vec<u8>,
}

impl Source {
    fn new(rank: usize) -> Self {
        Self { rank, request: None, head: None, frames: VecDeque::new() }
    }

    /// Receives the next frame, as far as it has arrived. Returns whether it has.
    fn poll<C: Communicator + ?Sized>(&mut self, ranks: &C) -> Result<bool> {
        loop {
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
                return Ok(false);
            }
            self.request = None;
            let head = self.head.take();
            let bytes = tested?.map_or_else(|| Ok(Vec::new()), |buffer| buffer.to_vec())?;
            let head = match head {
                Some(head) => {
                    self.frames.push_back(Frame { head, bytes });
                    return Ok(true);
                }
                None => self.read_head(&bytes)?,
            };
            if head.kind == Kind::Failed || head.number == 0 {
                self.frames.push_back(Frame { head, bytes: Vec::new() });
                return Ok(true);
            }
            self.head = Some(head);
        }
    }

    fn read_head(&self, bytes: &[u8]) -> Result<Head> {
        Head::read(bytes).ok_or_else(|| {
            let message = format!(
                "a message from rank {} with tag {COLLECTIVE_TAG}, which is for collective calls",
                self.rank
            );
            Error::new(ErrorKind::InvalidArgument, "receive", message)
        })
    }
}

/// One call by Bruck's algorithm: in each round, every rank has the bytes of twice as many ranks as before, starting
/// with its own.
struct Gather {
    kind: Kind,
    /// The number of resets that this rank has completed, and of calls since then.
    resets: u64,
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
    fn new(kind: Kind, resets: u64, call: u64, mine: &[u8], (rank, size): (usize, usize)) -> Self {
        Self {
            rank,
            size,
            kind,
            resets,
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

    /// Blocks until the bytes of all ranks have arrived.
    fn finish<C: Communicator + ?Sized>(
        &mut self,
        ranks: &C,
        operation: &'static str,
        sources: &mut [Source],
        repeats: &mut Repeats,
        timeout: Duration,
    ) -> Result<()> {
        let deadline = deadline(timeout);
        loop {
            let seen = ranks.progress();
            let done = self.advance(ranks, operation, sources, deadline)?;
            if self.kind == Kind::Data {
                self.check(ranks, operation, sources, deadline)?;
            }
            if done {
                return Ok(());
            }
            let next = repeats.send(ranks, (self.kind == Kind::Reset).then_some(&*self));
            if Instant::now() >= deadline {
                let awaited = self.awaited(sources);
                let message = format!("rank {} waited {timeout:?} for rank {awaited}", self.rank);
                return Err(Error::new(ErrorKind::Timeout, operation, message));
            }
            ranks.wait_beyond(seen, next.map_or(deadline, |next| next.min(deadline)));
            interrupt::check()?;
        }
    }

    /// Returns an error if a source has failed in this call or an earlier one, or has started a reset without making
    /// this call.
    fn check<C: Communicator + ?Sized>(
        &self,
        ranks: &C,
        operation: &'static str,
        sources: &mut [Source],
        deadline: Instant,
    ) -> Result<()> {
        let Self { rank, call, .. } = *self;
        for source in sources {
            self.discard(source);
            // Old frames may come without end.
            let mut is_first = true;
            while source.frames.is_empty()
                && (mem::take(&mut is_first) || Instant::now() < deadline)
            {
                match source.poll(ranks) {
                    Ok(true) => self.discard(source),
                    Ok(false) => break,
                    // The peer may have sent everything it had to. A rank that needs more bytes of it gets the error
                    // again.
                    Err(error) if error.kind() == ErrorKind::PeerLost => break,
                    Err(error) => return Err(error),
                }
            }
            let peer = source.rank;
            match source.frames.front().map(|frame| frame.head) {
                Some(Head { kind: Kind::Failed, call: failed, number, .. }) if failed <= call => {
                    let kind = kind_of(number);
                    let message = format!("rank {rank}: a collective call of rank {peer} failed");
                    return Err(Error::new(kind, operation, message));
                }
                Some(Head { kind: Kind::Reset, call: latest, .. }) if latest < call => {
                    let message = format!("rank {rank}: rank {peer} calls reset");
                    return Err(Error::new(ErrorKind::Conflict, operation, message));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Discards frames from before the latest reset. A reset also discards those before its own, and all copies of a
    /// frame but one.
    fn discard(&self, source: &mut Source) {
        let mut latest = None;
        source.frames.retain(|Frame { head, .. }| {
            let is_reset = head.kind == Kind::Reset;
            let first = self.resets + u64::from(self.kind == Kind::Reset && !is_reset);
            head.resets >= first && !(is_reset && latest.replace(head.resets) == Some(head.resets))
        });
    }

    /// The bytes of this call from a source, if they have arrived. A reset discards what came before it, until the
    /// deadline at most.
    fn take<C: Communicator + ?Sized>(
        &self,
        ranks: &C,
        source: &mut Source,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>> {
        let mut is_late = false;
        loop {
            self.discard(source);
            let Self { kind, resets, call, rank, .. } = *self;
            let is_own = |Frame { head, .. }: &Frame| {
                let is_same = kind == Kind::Reset || head.call == call;
                (head.kind, head.resets) == (kind, resets) && is_same
            };
            if let Some(index) = source.frames.iter().position(is_own) {
                return Ok(source.frames.remove(index).map(|frame| frame.bytes));
            }
            let is_later = |Frame { head, .. }: &Frame| head.kind == Kind::Data && head.call > call;
            if kind == Kind::Data && source.frames.front().is_some_and(is_later) {
                let peer = source.rank;
                let message = format!("rank {rank}: the transport lost a message of rank {peer}");
                return Err(Error::new(ErrorKind::Driver, "receive", message));
            }
            // More may come without end.
            if is_late {
                return Ok(None);
            }
            match source.poll(ranks) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error)
                    if self.kind == Kind::Reset && error.kind() == ErrorKind::InvalidArgument => {}
                Err(error) => return Err(error),
            }
            is_late = Instant::now() >= deadline;
        }
    }

    /// The rounds whose frames were sent, each as the number of ranks whose bytes had arrived before.
    fn rounds(&self) -> impl Iterator<Item = usize> {
        let sent = self.gathered + usize::from(self.is_sent);
        distances(self.size).take_while(move |round| *round < sent)
    }

    /// Starts sending the frame of a round.
    fn send<C: Communicator + ?Sized>(
        &self,
        ranks: &C,
        round: usize,
    ) -> Result<Vec<Box<dyn Request>>> {
        let Self { kind, resets, call, rank, size, .. } = *self;
        let to = (rank + size - round) % size;
        let number = round.min(size - round) * self.len;
        let mut sends = vec![Head { kind, resets, call, number }.send(ranks, to)?];
        if number > 0 {
            let buffer = Buffer::host(self.all[..number].to_vec());
            sends.push(ranks.send(to, COLLECTIVE_TAG, buffer)?);
        }
        Ok(sends)
    }

    /// Advances as far as possible without waiting. Returns whether the call is complete.
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
                let sends = self.send(ranks, self.gathered)?;
                self.sends.extend(sends);
            }
            let source = &mut sources[self.gathered.ilog2() as usize];
            let Some(received) = self.take(ranks, source, deadline)? else { break };
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
    fn bytes(&self) -> Vec<u8> {
        // The stored bytes start with this rank's.
        let (last, first) = self.all.split_at((self.size - self.rank) * self.len);
        [first, last].concat()
    }
}
