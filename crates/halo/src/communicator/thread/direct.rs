//! Direct copies from the memory of one rank to the memory of another.
#![expect(unsafe_code, reason = "lends views to other threads for as long as these read them")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, slice};

use runtime_core::{AnyView, Error, ErrorKind, Event, Result, Stream, interrupt};
use smallvec::SmallVec;

use super::group::Group;
use super::loans::{FEW, OpenLoan, ReadState, is_open};
use crate::communicator::deadline;

/// Direct access from one rank to the memory of others, if the ranks share an address space.
///
/// Instead of packing, sending and unpacking, each rank reads its neighbours' owned values and copies them to their
/// destination: one copy instead of two or three.
pub struct Direct<'c> {
    group: &'c Arc<Group>,
    rank: usize,
    /// The name of the operation in errors.
    operation: &'static str,
    /// Returns an error if waiting for loans is in vain.
    check: Option<Check<'c>>,
    /// The token of the exchange.
    token: u64,
}

type Check<'c> = &'c dyn Fn() -> Result<()>;

/// The views that a rank lends to its peers, and the terms of the loan.
#[derive(Clone, Copy, Debug)]
pub struct Loan<'a> {
    /// Distinguishes loans that a rank makes at the same time, and the loans of successive exchanges. A
    /// [`HaloExchange`](crate::HaloExchange) uses tags that need more than 32 bits.
    pub tag: u64,
    /// The ranks that read the views, and whose views this rank reads.
    pub peers: &'a [usize],
    /// The views that the peers read.
    pub views: &'a [AnyView<'a>],
    /// The stream that last wrote the views, and on which this rank reads the peers' views, with its events.
    pub events: &'a LoanEvents,
    /// The timeout for the peers' loans in [`LoanSession::read`], and, separately, for their reading at the end.
    pub timeout: Duration,
}

/// A stream with two events: after the first, its views may be read; after the second, it has read the peers' views.
///
/// The same events serve for all loans of the stream, and only loans can record them. A later record on the same stream
/// includes an earlier one.
#[derive(Debug)]
pub struct LoanEvents {
    stream: Stream,
    ready: Event,
    read: Event,
}

impl LoanEvents {
    /// The events for loans of `stream`.
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn new(stream: &Stream) -> Result<Self> {
        let event = || stream.device().event_create(false);
        Ok(Self { stream: stream.clone(), ready: event()?, read: event()? })
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// The views that another rank lends.
#[derive(Clone, Copy, Debug)]
pub struct LentViews<'a> {
    /// The rank that lends them.
    pub rank: usize,
    views: &'a [AnyView<'a>],
    /// The stream of the reader's loan.
    stream: &'a Stream,
}

impl<'a> LentViews<'a> {
    /// The views of the other rank, in its order, for the stream of this rank's own loan.
    pub fn views(&self) -> impl ExactSizeIterator<Item = AnyView<'a>> + use<'a> {
        let Self { views, stream, .. } = *self;
        // SAFETY: before it reads, the stream waits for the lender's event, which covers work that the view depends on.
        // Before the loan ends, the lender's stream waits for the event after the work that this one enqueued.
        views.iter().map(move |view| unsafe { view.rebound_to(stream) })
    }
}

impl<'c> Direct<'c> {
    pub(super) fn new(group: &'c Arc<Group>, rank: usize) -> Self {
        Self { group, rank, operation: "lend", check: None, token: 0 }
    }

    /// The number of this rank and the number of ranks, in the group whose memory it accesses.
    pub(crate) fn numbers(&self) -> (usize, usize) {
        (self.rank, self.group.size())
    }

    /// Sets the name of the operation in errors.
    pub(crate) fn called(self, operation: &'static str) -> Self {
        Self { operation, ..self }
    }

    /// Sets a check to make while a loan is missing.
    pub(crate) fn checked(self, check: Check<'c>) -> Self {
        Self { check: Some(check), ..self }
    }

    /// Sets the token that peers must have, too.
    pub(crate) fn with_token(self, token: u64) -> Self {
        Self { token, ..self }
    }

    /// Lends views to peers while `f` runs; `f` reads the views that they lend. Each peer lists this rank among its own
    /// peers, with the same tag.
    ///
    /// Work enqueued on the loan's stream before this call runs before the peers' reading, and work enqueued after it
    /// runs after the peers' reading. This order holds on the device; the host does not wait for it.
    ///
    /// Blocks until all peers have read, for at most the timeout after `f` returns. A peer that is late then reads
    /// nothing. A peer that has started to read is always waited for, until the function that it gave to
    /// [`LoanSession::read`] returns. However `f` ends, even by a panic, no peer starts to read the views after this
    /// call, and work enqueued later runs after the peers' reading.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a peer that does not exist, is this rank or is listed twice. `Conflict` if this rank
    /// already has a loan with this tag. `WrongStream` for a view that cannot be used on the loan's stream. `Timeout`.
    /// `PeerLost`. The errors of `f` and of the device.
    pub fn lend<R>(
        &self,
        loan: &Loan<'_>,
        f: impl FnOnce(&LoanSession<'_>) -> Result<R>,
    ) -> Result<R> {
        self.check(loan.peers)?;
        let LoanEvents { stream, ready, .. } = loan.events;
        let is_usable = |view: &AnyView<'_>| view.is_usable_on(stream);
        if let Some(index) = loan.views.iter().position(|view| !is_usable(view)) {
            let stream = stream.id();
            let message = format!("view {index} cannot be used on the loan's stream {stream}");
            return Err(Error::new(ErrorKind::WrongStream, "lend", message));
        }
        stream.record(ready)?;
        let session = LoanSession::begin(self, loan)?;
        let result = f(&session);
        // If this rank has begun to read, all peers finish their reading, even if this rank's reading failed.
        let is_expected = result.is_ok() || session.reading.get() != Reading::NotYet;
        let ended = if is_expected { session.end() } else { Ok(()) };
        let closed = session.close();
        result.and_then(|result| ended.and(closed).map(|()| result))
    }

    /// Declares that this rank makes no more loans with this tag and the `before` tags before it, until the result is
    /// dropped. A peer that waits for such a loan gets an error.
    pub(crate) fn decline(&self, tag: u64, before: u64, peers: &[usize]) -> Result<Declined> {
        self.check(peers)?;
        self.group.loans(self.rank).declined.lock().tags.push((tag, before));
        peers.iter().for_each(|peer| self.group.raise(*peer));
        Ok(Declined { group: Arc::clone(self.group), rank: self.rank, tag })
    }

    fn check(&self, peers: &[usize]) -> Result<()> {
        let size = self.group.size();
        for (index, peer) in peers.iter().enumerate() {
            let why = if *peer >= size {
                format!("rank {peer} of {size}")
            } else if *peer == self.rank {
                format!("rank {peer} lends to itself")
            } else if peers[..index].contains(peer) {
                format!("rank {peer} is named twice")
            } else {
                continue;
            };
            return Err(Error::new(ErrorKind::InvalidArgument, self.operation, why));
        }
        Ok(())
    }
}

impl fmt::Debug for Direct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Direct(rank {} of {})", self.rank, self.group.size())
    }
}

/// Loans that a rank does not make while this value lives. The last of them has this tag.
pub(crate) struct Declined {
    group: Arc<Group>,
    rank: usize,
    tag: u64,
}

impl Drop for Declined {
    fn drop(&mut self) {
        self.group.loans(self.rank).declined.lock().tags.retain(|(tag, _)| *tag != self.tag);
    }
}

impl fmt::Debug for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Declined(loans of rank {} up to {})", self.rank, self.tag)
    }
}

/// One loan of a rank. The rank's views are lent while it lives. It ends, even by a panic, only when no peer reads
/// them.
pub struct LoanSession<'a> {
    group: &'a Arc<Group>,
    rank: usize,
    operation: &'static str,
    check: Option<Check<'a>>,
    token: u64,
    loan: &'a Loan<'a>,
    reading: Cell<Reading>,
    /// Whether the loan has ended. Another one may have its tag then.
    is_closed: Cell<bool>,
}

/// How far this rank is with the peers' views.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    NotYet,
    /// The loans of all peers were there.
    Now,
    /// It no longer reads.
    Failed,
    Done,
}

/// Ends the reading, also if it fails or panics: peers wait for the end.
struct EndOfReading<'a>(&'a LoanSession<'a>);

impl Drop for EndOfReading<'_> {
    fn drop(&mut self) {
        self.0.finish_reading();
    }
}

/// The views of a peer while this rank reads them.
struct BorrowedViews {
    views: *const AnyView<'static>,
    count: usize,
    ready: Event,
}

impl<'a> LoanSession<'a> {
    fn begin(direct: &Direct<'a>, loan: &'a Loan<'a>) -> Result<Self> {
        let Direct { group, rank, operation, check, token } = *direct;
        let open = OpenLoan {
            tag: loan.tag,
            token,
            views: loan.views.as_ptr().cast(),
            count: loan.views.len(),
            ready: loan.events.ready.clone(),
            readers: loan.peers.iter().map(|peer| (*peer, ReadState::NotYet)).collect(),
        };
        let mut loans = group.loans(rank).open.lock();
        if loans.iter().any(|other| other.tag == loan.tag) {
            // A peer may be reading that loan.
            let message = format!("rank {rank} lends already");
            return Err(Error::new(ErrorKind::Conflict, operation, message));
        }
        loans.push(open);
        drop(loans);
        loan.peers.iter().for_each(|peer| group.raise(*peer));
        let (reading, is_closed) = (Cell::new(Reading::NotYet), Cell::new(false));
        Ok(Self { group, rank, operation, check, token, loan, reading, is_closed })
    }

    /// Whether this rank has read the peers' views.
    pub fn has_read(&self) -> bool {
        self.reading.get() == Reading::Done
    }

    /// Calls `f` with the peers' views, in the order of peers, if all peers have lent theirs. Returns whether `f` was
    /// called, now or earlier. Work that `f` enqueues on the loan's stream runs after the work that the peers enqueued
    /// before. Does not block.
    ///
    /// # Errors
    ///
    /// `Conflict` if an earlier reading failed. `PeerLost`. The errors of `f` and of the device.
    pub fn try_read(&self, f: impl FnOnce(&[LentViews<'_>]) -> Result<()>) -> Result<bool> {
        if let Reading::Now | Reading::Failed = self.reading.get() {
            let message = format!("rank {} reads already, or failed to read before", self.rank);
            return Err(Error::new(ErrorKind::Conflict, self.operation, message));
        }
        if !self.has_read()
            && let Some(borrowed) = self.borrow_all()?
        {
            self.reading.set(Reading::Now);
            let end = EndOfReading(self);
            let Loan { peers, events: LoanEvents { stream, read, .. }, .. } = *self.loan;
            for BorrowedViews { ready, .. } in &borrowed {
                stream.wait(ready)?;
            }
            let views: SmallVec<[LentViews<'_>; FEW]> = peers
                .iter()
                .zip(&borrowed)
                .map(|(&rank, borrowed)| {
                    // SAFETY: the peer lends the views until this rank declares that it no longer reads, which happens
                    // below or when this session is dropped.
                    let views = unsafe { slice::from_raw_parts(borrowed.views, borrowed.count) };
                    LentViews { rank, views, stream }
                })
                .collect();
            f(&views)?;
            stream.record(read)?;
            self.reading.set(Reading::Done);
            self.end_read(Some(read));
            drop(end);
        }
        Ok(self.has_read())
    }

    /// As [`try_read`](Self::try_read), but blocks until all peers have lent their views, for at most the timeout of
    /// the loan.
    ///
    /// # Errors
    ///
    /// As for [`try_read`](Self::try_read), and `Timeout`.
    pub fn read(&self, f: impl FnOnce(&[LentViews<'_>]) -> Result<()>) -> Result<()> {
        let deadline = deadline(self.loan.timeout);
        let mut f = Some(f);
        loop {
            let seen = self.group.progress(self.rank);
            if self.try_read(|views| f.take().map_or(Ok(()), |f| f(views)))? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let missing = |peer: &&usize| self.with_loan(**peer, |_| ()).is_none();
                let missing = self.loan.peers.iter().find(missing);
                return Err(self.late(missing.copied().unwrap_or(self.rank)));
            }
            self.group.wait_beyond(self.rank, seen, deadline);
            interrupt::check()?;
        }
    }

    /// Borrows the views of all peers, or of none unless all have lent theirs.
    fn borrow_all(&self) -> Result<Option<SmallVec<[BorrowedViews; FEW]>>> {
        let mut borrowed = SmallVec::new();
        for peer in self.loan.peers {
            // Checked before the loan: a loan that was made before the peer left can still be read.
            let lost = self.declined(*peer).or_else(|| self.lost(*peer));
            let one = self.borrow(*peer);
            if let Ok(Some(one)) = one {
                borrowed.push(one);
                continue;
            }
            for earlier in &self.loan.peers[..borrowed.len()] {
                self.undo_borrow(*earlier);
            }
            one?;
            self.check.map_or(Ok(()), |check| check())?;
            let later = &self.loan.peers[borrowed.len() + 1..];
            let lost = lost.or_else(|| later.iter().find_map(|peer| self.declined(*peer)));
            return lost.map_or(Ok(None), Err);
        }
        Ok(Some(borrowed))
    }

    /// Why a peer does not lend its views, if that is known.
    fn declined(&self, peer: usize) -> Option<Error> {
        let tag = self.loan.tag;
        let is_this = |(last, before): &(u64, u64)| last.wrapping_sub(tag) <= *before;
        let declined = self.group.loans(peer).declined.lock();
        let other = declined.token(tag).filter(|token| *token != self.token);
        if let Some(other) = other {
            drop(declined);
            return Some(self.refuse_token(peer, other));
        }
        let message =
            || format!("rank {peer} exchanges by messages what rank {} reads directly", self.rank);
        let is_declined = declined.tags.iter().any(is_this);
        is_declined.then(|| Error::new(ErrorKind::Conflict, self.operation, message()))
    }

    fn lost(&self, peer: usize) -> Option<Error> {
        self.group.lost(self.operation, peer, &format_args!("rank {} waits for it", self.rank))
    }

    fn with_loan<R>(&self, rank: usize, f: impl FnOnce(&mut OpenLoan) -> R) -> Option<R> {
        let mut loans = self.group.loans(rank).open.lock();
        loans.iter_mut().find(|loan| loan.tag == self.loan.tag).map(f)
    }

    /// Borrows the views of a peer, if it has lent them. Refuses those of an exchange with another token.
    fn borrow(&self, peer: usize) -> Result<Option<BorrowedViews>> {
        let borrow = |loan: &mut OpenLoan| {
            let other = loan.token;
            let Some(reading @ ReadState::NotYet) = loan.reading(self.rank) else {
                // Any other state belongs to an earlier exchange.
                return Ok(None);
            };
            if other != self.token {
                return Err(other);
            }
            *reading = ReadState::Now;
            let OpenLoan { views, count, ready, .. } = loan;
            Ok(Some(BorrowedViews { views: *views, count: *count, ready: ready.clone() }))
        };
        self.with_loan(peer, borrow)
            .unwrap_or(Ok(None))
            .map_err(|other| self.refuse_token(peer, other))
    }

    /// The error of a peer with another token. Lets the peers know, also those that have the token of that peer.
    #[cold]
    fn refuse_token(&self, peer: usize, other: u64) -> Error {
        // Before the loan ends: peers find the one or the other.
        self.group.loans(self.rank).declined.lock().refuse(self.loan.tag, self.token);
        self.loan.peers.iter().for_each(|peer| self.group.raise(*peer));
        let Self { rank, token, .. } = self;
        let message =
            format!("rank {peer} exchanges with token {other}, and rank {rank} with token {token}");
        Error::new(ErrorKind::InvalidArgument, self.operation, message)
    }

    fn undo_borrow(&self, peer: usize) {
        let undo_borrow = |loan: &mut OpenLoan| {
            if let Some(reading @ ReadState::Now) = loan.reading(self.rank) {
                *reading = ReadState::NotYet;
            }
        };
        self.with_loan(peer, undo_borrow);
        // The peer may have timed out meanwhile.
        self.group.raise(peer);
    }

    /// Declares to the peers that this rank no longer reads.
    fn end_read(&self, read: Option<&Event>) {
        for peer in self.loan.peers {
            let end_read = |loan: &mut OpenLoan| match loan.reading(self.rank) {
                // The loan of an earlier exchange, which this rank has read, may still be there.
                None | Some(ReadState::Over(_)) => {}
                Some(reading) => *reading = ReadState::Over(read.cloned()),
            };
            self.with_loan(*peer, end_read);
            self.group.raise(*peer);
        }
    }

    /// Waits until all peers have read.
    fn end(&self) -> Result<()> {
        self.finish_reading();
        let deadline = deadline(self.loan.timeout);
        loop {
            let seen = self.group.progress(self.rank);
            let Some(open) = self.open_reader() else { return Ok(()) };
            if let Some(lost) = self.lost(open)
                // The peer may have read before it left.
                && self.open_reader() == Some(open)
            {
                return Err(lost);
            }
            if Instant::now() >= deadline {
                return Err(self.late(open));
            }
            self.group.wait_beyond(self.rank, seen, deadline);
            interrupt::check()?;
        }
    }

    /// The first peer that has not finished reading.
    fn open_reader(&self) -> Option<usize> {
        let open =
            |loan: &mut OpenLoan| Some(loan.readers.iter().find(|reader| is_open(reader))?.0);
        self.with_loan(self.rank, open).flatten()
    }

    fn finish_reading(&self) {
        let before = self.reading.get();
        if let Reading::NotYet | Reading::Now = before {
            self.reading.set(Reading::Failed);
            // A reading that failed may still have enqueued copies.
            let LoanEvents { stream, read, .. } = self.loan.events;
            let has_begun = before == Reading::Now;
            let is_recorded = has_begun && stream.record(read).is_ok();
            if has_begun && !is_recorded {
                // Peers would have nothing to wait for. A failure of the work is no use of their memory.
                let _done = stream.synchronize();
            }
            self.end_read(is_recorded.then_some(read));
        }
    }

    /// Ends the loan when no peer reads, and makes the stream wait for the work that the readers enqueued.
    fn close(&self) -> Result<()> {
        if self.is_closed.replace(true) {
            return Ok(());
        }
        self.finish_reading();
        let stream = &self.loan.events.stream;
        let mut closed = Ok(());
        for (_, reading) in self.withdraw() {
            if let ReadState::Over(Some(event)) = reading {
                // If the device cannot wait, the host waits: peers read until then.
                let waited = stream.wait(&event).or_else(|_| event.wait());
                closed = closed.and(waited);
            }
        }
        closed
    }

    /// Takes back the views when no peer reads them.
    fn withdraw(&self) -> SmallVec<[(usize, ReadState); FEW]> {
        loop {
            let seen = self.group.progress(self.rank);
            let mut loans = self.group.loans(self.rank).open.lock();
            let Some(index) = loans.iter().position(|loan| loan.tag == self.loan.tag) else {
                return SmallVec::new();
            };
            let readers = &mut loans[index].readers;
            // From now on no peer starts to read.
            let waiting = readers.iter_mut().filter(|reader| matches!(reader.1, ReadState::NotYet));
            waiting.for_each(|reader| reader.1 = ReadState::Over(None));
            if !readers.iter().any(is_open) {
                return loans.swap_remove(index).readers;
            }
            drop(loans);
            // Without a limit, because these peers use the views. They only enqueue copies, so it does not take long.
            self.group.wait_beyond(self.rank, seen, deadline(Duration::MAX));
        }
    }

    #[cold]
    fn late(&self, peer: usize) -> Error {
        let message = format!("rank {} waited {:?} for rank {peer}", self.rank, self.loan.timeout);
        Error::new(ErrorKind::Timeout, self.operation, message)
    }
}

impl Drop for LoanSession<'_> {
    fn drop(&mut self) {
        // If `lend` has not done this, the drop is due to a panic, which is the more useful error.
        let _closed = self.close();
    }
}

impl fmt::Debug for LoanSession<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoanSession(rank {} with {:?})", self.rank, self.loan.peers)
    }
}
