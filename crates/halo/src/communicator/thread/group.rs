//! What the ranks of a group share: mail, signals, and who is still there.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use std::{fmt, hint, thread};

use parking_lot::{Condvar, Mutex};
use runtime_core::{Error, ErrorKind, Result};

use super::direct::Shelf;
use crate::communicator::{Buffer, Envelope, Request, Way};

/// The ranks of one process.
pub(super) struct Group {
    ranks: Box<[Rank]>,
    /// The first rank that panicked.
    panicked: OnceLock<usize>,
}

#[derive(Default)]
struct Rank {
    /// Messages to this rank that met no receive yet, and its receives that met no message.
    mail: Mutex<HashMap<(usize, u32), Line>>,
    signal: Signal,
    shelf: Shelf,
    left: AtomicBool,
}

/// Those who wait for a partner, in order, for one source and tag: all of them send, or all receive.
struct Line {
    way: Way,
    waiting: VecDeque<Waiting>,
}

/// One end of a message, with its buffer.
struct Waiting {
    envelope: Envelope,
    buffer: Buffer,
    ticket: Arc<Ticket>,
}

/// Where a request finds its outcome.
#[derive(Default)]
struct Ticket {
    done: AtomicBool,
    outcome: Mutex<Option<Result<Buffer>>>,
}

impl Ticket {
    fn complete(&self, outcome: Result<Buffer>) {
        *self.outcome.lock() = Some(outcome);
        self.done.store(true, Ordering::Release);
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

impl Group {
    pub(super) fn new(size: usize) -> Self {
        Self { ranks: (0..size).map(|_| Rank::default()).collect(), panicked: OnceLock::new() }
    }

    pub(super) fn size(&self) -> usize {
        self.ranks.len()
    }

    pub(super) fn signal(&self, rank: usize) -> &Signal {
        &self.ranks[rank].signal
    }

    pub(super) fn shelf(&self, rank: usize) -> &Shelf {
        &self.ranks[rank].shelf
    }

    /// The first rank that panicked.
    pub(super) fn panicked(&self) -> Option<usize> {
        self.panicked.get().copied()
    }

    /// Notes that a rank ends, and wakes whoever waits for it.
    pub(super) fn leave(&self, rank: usize, panicking: bool) {
        if panicking {
            // Others panic because this one did.
            let _known = self.panicked.set(rank);
        }
        self.ranks[rank].left.store(true, Ordering::Release);
        self.ranks.iter().for_each(|rank| rank.signal.raise());
    }

    /// Why nothing will be heard of the peer again, if so. What it did before is visible then.
    pub(super) fn lost(
        &self,
        operation: &'static str,
        peer: usize,
        what: &dyn fmt::Display,
    ) -> Option<Error> {
        let message = match self.panicked() {
            Some(who) => format!("rank {who} panicked: {what}"),
            None if self.ranks[peer].left.load(Ordering::Acquire) => {
                format!("rank {peer} has left: {what}")
            }
            None => return None,
        };
        Some(Error::new(ErrorKind::PeerLost, operation, message))
    }

    /// Puts one end of a message of `rank` where the other end finds it, or completes both.
    pub(super) fn post(
        self: &Arc<Self>,
        rank: usize,
        envelope: Envelope,
        buffer: Buffer,
    ) -> Posted {
        let Envelope { way, peer, tag, .. } = envelope;
        let (source, destination) = if way == Way::Send { (rank, peer) } else { (peer, rank) };
        let ticket = Arc::<Ticket>::default();
        let own = Waiting { envelope, buffer, ticket: Arc::clone(&ticket) };
        let posted = Posted { group: Arc::clone(self), envelope, ticket };
        let partner = {
            let mut mail = self.ranks[destination].mail.lock();
            let line =
                mail.entry((source, tag)).or_insert_with(|| Line { way, waiting: VecDeque::new() });
            let partner = if line.way == way { None } else { line.waiting.pop_front() };
            let Some(partner) = partner else {
                line.way = way;
                line.waiting.push_back(own);
                return posted;
            };
            partner
        };
        // The bytes move without the lock: who meets whom is settled.
        let (sent, received) = if way == Way::Send { (own, partner) } else { (partner, own) };
        deliver(sent, received);
        self.ranks[peer].signal.raise();
        posted
    }
}

/// Moves the bytes of a message and completes both ends.
fn deliver(mut sent: Waiting, mut received: Waiting) {
    let moved = if sent.envelope.mark != received.envelope.mark {
        Err(received.envelope.wrong_mark())
    } else if sent.envelope.len != received.envelope.len {
        Err(received.envelope.wrong_length(sent.envelope.len))
    } else {
        received.buffer.take_from(&mut sent.buffer)
    };
    received.ticket.complete(moved.map(|()| received.buffer));
    sent.ticket.complete(Ok(sent.buffer));
}

/// A request of a rank.
pub(super) struct Posted {
    group: Arc<Group>,
    envelope: Envelope,
    ticket: Arc<Ticket>,
}

impl Request for Posted {
    fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn test(&mut self) -> Result<Option<Buffer>> {
        if !self.ticket.is_done() {
            let Envelope { peer, .. } = self.envelope;
            let lost = self.group.lost(self.envelope.operation(), peer, &self.envelope);
            let Some(lost) = lost else { return Ok(None) };
            // It may have come to this before it left.
            if !self.ticket.is_done() {
                return Err(lost);
            }
        }
        let outcome = self.ticket.outcome.lock().take();
        outcome.unwrap_or_else(|| Err(self.envelope.over())).map(Some)
    }
}

/// A count that others raise, and that one can wait for.
#[derive(Default)]
pub(super) struct Signal {
    count: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

/// How often a waiting thread looks before it offers its core to others, and how often it does that before it sleeps.
const LOOKS: u32 = 200;
const YIELDS: u32 = 20;

impl Signal {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    pub(super) fn raise(&self) {
        // Either this sees the sleeper, or the sleeper sees the count: both come before looking at the other's.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A sleeper that has looked at the count waits by the time the lock is free.
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    pub(super) fn wait_beyond(&self, seen: u64, deadline: Instant) {
        for look in 0..LOOKS + YIELDS {
            if self.count() != seen {
                return;
            }
            if look < LOOKS { hint::spin_loop() } else { thread::yield_now() }
        }
        let mut guard = self.lock.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.count() == seen && !self.wake.wait_until(&mut guard, deadline).timed_out() {}
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
