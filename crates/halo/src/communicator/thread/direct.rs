//! From one rank's memory straight into another's.
#![expect(unsafe_code, reason = "lends views to other threads for as long as these read them")]

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, slice};

use parking_lot::Mutex;
use runtime_core::{Error, ErrorKind, Event, MemoryView, Result};

use super::group::Group;
use crate::communicator::deadline;

/// The way from one rank's memory straight into another's, where ranks share an address space.
///
/// Instead of packing, sending and unpacking, each rank reads what its neighbours own and copies it to where it belongs:
/// one copy instead of two or three.
pub struct Direct<'c> {
    group: &'c Arc<Group>,
    rank: usize,
}

/// What another rank lends.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    /// The rank.
    pub rank: usize,
    /// Its views, in its order.
    pub views: &'a [MemoryView<'a>],
    /// After which their elements may be read.
    pub ready: &'a Event,
}

impl<'c> Direct<'c> {
    pub(super) fn new(group: &'c Arc<Group>, rank: usize) -> Self {
        Self { group, rank }
    }

    /// Lends `views` to `peers`, and runs `f` with what they lend, in the order of `peers`. Every one of them names this rank
    /// among its own, and calls it for the same exchange.
    ///
    /// `f` enqueues the work that reads, which waits for [`Lent::ready`], and gives an event recorded after it. Gives the events
    /// of the peers: work that changes what `views` show waits for them.
    ///
    /// Blocks until all peers have come, for at most `timeout`, and until those that came have run their `f`: for as long as
    /// that takes, also if `f` panics here or there.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a peer that does not exist, is this rank or is named twice; `Conflict` if this rank lends
    /// already; `Timeout`; `PeerLost`; what `f` gives. Peers fail as well then if they have not come yet.
    pub fn lend(
        &self,
        peers: &[usize],
        views: &[MemoryView<'_>],
        ready: &Event,
        timeout: Duration,
        f: impl FnOnce(&[Lent<'_>]) -> Result<Event>,
    ) -> Result<Vec<Event>> {
        self.check(peers)?;
        let mut visit = Visit::begin(self, peers, views, ready)?;
        visit.meet(timeout)?;
        let lent: Vec<Lent<'_>> = visit.taken.iter().map(Taken::lent).collect();
        let read = f(&lent)?;
        drop(lent);
        Ok(visit.end(&read))
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
            return Err(Error::new(ErrorKind::InvalidArgument, "lend", why));
        }
        Ok(())
    }
}

impl fmt::Debug for Direct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Direct(rank {} of {})", self.rank, self.group.size())
    }
}

/// Where a rank puts what it lends.
#[derive(Default)]
pub(super) struct Shelf(Mutex<Option<Loan>>);

/// What a rank lends at the moment.
struct Loan {
    views: *const MemoryView<'static>,
    count: usize,
    ready: Event,
    readers: Vec<(usize, Reading)>,
}

// SAFETY: views can be read by every thread, and `Visit` keeps them where they are while others may.
unsafe impl Send for Loan {}

/// How far a peer has got with a loan.
enum Reading {
    NotYet,
    Now,
    /// With the event after which it does not read any more, unless it failed.
    Over(Option<Event>),
}

/// A rank's part in one exchange. While it lives the rank's views are lent; it ends, also by a panic, when nobody reads them.
struct Visit<'a> {
    direct: &'a Direct<'a>,
    peers: &'a [usize],
    /// Of the peers that came, in the order of `peers`.
    taken: Vec<Taken>,
    is_over: bool,
}

/// A loan that this rank reads.
struct Taken {
    from: usize,
    views: *const MemoryView<'static>,
    count: usize,
    ready: Event,
}

impl Taken {
    fn lent(&self) -> Lent<'_> {
        // SAFETY: the peer lends them until this rank says that it does not read any more, which takes the visit that the
        // result borrows.
        let views = unsafe { slice::from_raw_parts(self.views, self.count) };
        Lent { rank: self.from, views, ready: &self.ready }
    }
}

impl<'a> Visit<'a> {
    fn begin(
        direct: &'a Direct<'a>,
        peers: &'a [usize],
        views: &'a [MemoryView<'a>],
        ready: &Event,
    ) -> Result<Self> {
        let loan = Loan {
            views: views.as_ptr().cast(),
            count: views.len(),
            ready: ready.clone(),
            readers: peers.iter().map(|peer| (*peer, Reading::NotYet)).collect(),
        };
        let mut shelf = direct.group.shelf(direct.rank).0.lock();
        if shelf.is_some() {
            // Somebody may be reading it.
            let message = format!("rank {} lends already", direct.rank);
            return Err(Error::new(ErrorKind::Conflict, "lend", message));
        }
        *shelf = Some(loan);
        drop(shelf);
        peers.iter().for_each(|peer| direct.group.signal(*peer).raise());
        Ok(Self { direct, peers, taken: Vec::with_capacity(peers.len()), is_over: false })
    }

    /// Takes what each peer lends.
    fn meet(&mut self, timeout: Duration) -> Result<()> {
        let Direct { group, rank } = *self.direct;
        let deadline = deadline(timeout);
        for peer in self.peers {
            loop {
                let seen = group.signal(rank).count();
                // Before looking: what was lent before the peer left is none to wait for.
                let lost = group.lost("lend", *peer, &format_args!("rank {rank} waits for it"));
                if let Some(taken) = self.take(*peer) {
                    self.taken.push(taken);
                    break;
                }
                if let Some(lost) = lost {
                    return Err(lost);
                }
                if Instant::now() >= deadline {
                    let message = format!("rank {rank} waited {timeout:?} for rank {peer}");
                    return Err(Error::new(ErrorKind::Timeout, "lend", message));
                }
                group.signal(rank).wait_beyond(seen, deadline);
            }
        }
        Ok(())
    }

    fn take(&self, peer: usize) -> Option<Taken> {
        let mut shelf = self.direct.group.shelf(peer).0.lock();
        let loan = shelf.as_mut()?;
        let own = |reader: &&mut (usize, Reading)| reader.0 == self.direct.rank;
        let reading = &mut loan.readers.iter_mut().find(own)?.1;
        // Otherwise it is that of the exchange before.
        matches!(reading, Reading::NotYet).then(|| *reading = Reading::Now)?;
        let (views, count, ready) = (loan.views, loan.count, loan.ready.clone());
        Some(Taken { from: peer, views, count, ready })
    }

    /// Ends reading after an event. Gives the peers' events.
    fn end(mut self, read: &Event) -> Vec<Event> {
        self.is_over = true;
        self.give_back(Some(read));
        self.take_back()
    }

    /// Says to the peers that this rank reads no more.
    fn give_back(&mut self, read: Option<&Event>) {
        let Direct { group, rank } = *self.direct;
        self.taken.clear();
        for peer in self.peers {
            if let Some(loan) = &mut *group.shelf(*peer).0.lock() {
                // The loan of the exchange before may be there still, which this rank has read.
                let open = |reader: &&mut (usize, Reading)| {
                    reader.0 == rank && !matches!(reader.1, Reading::Over(_))
                };
                let open = loan.readers.iter_mut().filter(open);
                open.for_each(|reader| reader.1 = Reading::Over(read.cloned()));
            }
            group.signal(*peer).raise();
        }
    }

    /// Waits until nobody reads. Gives the peers' events.
    fn take_back(&self) -> Vec<Event> {
        let Direct { group, rank } = *self.direct;
        loop {
            let seen = group.signal(rank).count();
            let mut shelf = group.shelf(rank).0.lock();
            let readers = shelf.as_ref().map_or(&[][..], |loan| &loan.readers);
            if readers.iter().all(|(_, reading)| matches!(reading, Reading::Over(_))) {
                let loan = shelf.take();
                let readers = loan.into_iter().flat_map(|loan| loan.readers);
                let event = |(_, reading)| match reading {
                    Reading::Over(event) => event,
                    Reading::NotYet | Reading::Now => None,
                };
                return readers.filter_map(event).collect();
            }
            drop(shelf);
            group.signal(rank).wait_beyond(seen, deadline(Duration::MAX));
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Direct { group, rank } = *self.direct;
        self.give_back(None);
        if let Some(loan) = &mut *group.shelf(rank).0.lock() {
            // Nobody begins to read now.
            let waiting = |reader: &&mut (usize, Reading)| matches!(reader.1, Reading::NotYet);
            loan.readers.iter_mut().filter(waiting).for_each(|r| r.1 = Reading::Over(None));
        }
        self.take_back();
    }
}
