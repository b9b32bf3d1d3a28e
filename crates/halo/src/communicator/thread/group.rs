//! The state that the ranks of a group share: messages, signals, loans, and which ranks have left.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use std::{fmt, hint, mem, thread};

use parking_lot::{Condvar, Mutex};
use runtime_core::{Error, ErrorKind, Result, interrupt};

use super::claims::ClaimTable;
use super::loans::LoanTable;
use crate::communicator::{Buffer, Envelope, Request, Way};

/// The ranks of one process.
pub(in crate::communicator) struct Group {
    ranks: Box<[Rank]>,
    /// The first rank that panicked.
    panicked: OnceLock<usize>,
    /// The number of times that a rank left. It counts as progress of every rank.
    departures: AtomicU64,
    /// The ranks of which a thread has slept. Few of many ranks may have threads.
    sleepers: Mutex<Vec<usize>>,
    /// For the exchanges of one object each, with its number.
    claims: Mutex<Vec<(u64, Weak<ClaimTable>)>>,
}

#[derive(Default)]
struct Rank {
    /// Messages to this rank without a matching receive, and its receives without a matching message.
    messages: Mutex<HashMap<(usize, u32), Queue>>,
    signal: Signal,
    loans: LoanTable,
    has_left: AtomicBool,
}

/// The requests that wait for a partner, in order, for one source and tag. All of them are sends, or all are receives.
struct Queue {
    way: Way,
    waiting: VecDeque<Waiting>,
}

/// One end of a message, with its buffer.
struct Waiting {
    envelope: Envelope,
    buffer: Buffer,
    ticket: Arc<Ticket>,
}

/// The place of a request's result.
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
        Self {
            ranks: (0..size).map(|_| Rank::default()).collect(),
            panicked: OnceLock::new(),
            departures: AtomicU64::new(0),
            sleepers: Mutex::default(),
            claims: Mutex::default(),
        }
    }

    pub(in crate::communicator) fn size(&self) -> usize {
        self.ranks.len()
    }

    /// A count of the events that a thread of the rank may wait for.
    pub(super) fn progress(&self, rank: usize) -> u64 {
        self.ranks[rank].signal.count.load(Ordering::SeqCst)
            + self.departures.load(Ordering::SeqCst)
    }

    /// Raises the count of a rank.
    pub(super) fn raise(&self, rank: usize) {
        let signal = &self.ranks[rank].signal;
        signal.count.fetch_add(1, Ordering::SeqCst);
        signal.wake_all();
    }

    /// Blocks until the count of a rank exceeds `seen`, but not beyond `deadline`.
    pub(super) fn wait_beyond(&self, rank: usize, seen: u64, deadline: Instant) {
        for check in 0..SPINS + YIELDS {
            if self.progress(rank) != seen {
                return;
            }
            if check < SPINS { hint::spin_loop() } else { thread::yield_now() }
        }
        let deadline = interrupt::limit(deadline);
        let signal = &self.ranks[rank].signal;
        if !signal.is_listed.load(Ordering::Acquire) {
            let mut sleepers = self.sleepers.lock();
            if !signal.is_listed.swap(true, Ordering::Release) {
                sleepers.push(rank);
            }
        }
        let mut guard = signal.lock.lock();
        signal.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.progress(rank) == seen
            && !signal.wake.wait_until(&mut guard, deadline).timed_out()
        {}
        signal.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn loans(&self, rank: usize) -> &LoanTable {
        &self.ranks[rank].loans
    }

    /// The claims of all ranks for the exchanges of the object with this number.
    pub(super) fn claim_table(&self, object: u64) -> Arc<ClaimTable> {
        let mut tables = self.claims.lock();
        tables.retain(|(_, table)| table.strong_count() > 0);
        let existing = tables.iter().find(|(number, _)| *number == object);
        existing.and_then(|(_, table)| table.upgrade()).unwrap_or_else(|| {
            let table = Arc::new(ClaimTable::new(self.size()));
            tables.push((object, Arc::downgrade(&table)));
            table
        })
    }

    /// The first rank that panicked.
    pub(super) fn panicked(&self) -> Option<usize> {
        self.panicked.get().copied()
    }

    /// Records that a rank ends, and wakes the ranks that wait.
    pub(super) fn leave(&self, rank: usize, panicking: bool) {
        if panicking {
            // Other ranks panic because this rank did.
            let _first = self.panicked.set(rank);
        }
        self.ranks[rank].has_left.store(true, Ordering::Release);
        // Either this thread sees a sleeper in the list, or the sleeper sees this count.
        self.departures.fetch_add(1, Ordering::SeqCst);
        for sleeper in &*self.sleepers.lock() {
            self.ranks[*sleeper].signal.wake_all();
        }
    }

    /// Returns why no more messages of the peer will come, if that is so. Everything that the peer did before is
    /// visible then.
    pub(super) fn lost(
        &self,
        operation: &'static str,
        peer: usize,
        what: &dyn fmt::Display,
    ) -> Option<Error> {
        let message = match self.panicked() {
            Some(who) => format!("rank {who} panicked: {what}"),
            None if self.ranks[peer].has_left.load(Ordering::Acquire) => {
                format!("rank {peer} has left: {what}")
            }
            None => return None,
        };
        Some(Error::new(ErrorKind::PeerLost, operation, message))
    }

    /// Places one end of a message of `rank` where the other end finds it, or completes both.
    pub(super) fn post(
        self: &Arc<Self>,
        rank: usize,
        envelope: Envelope,
        buffer: Buffer,
    ) -> ThreadRequest {
        let Envelope { way, peer, tag, .. } = envelope;
        let (source, destination) = if way == Way::Send { (rank, peer) } else { (peer, rank) };
        let ticket = Arc::<Ticket>::default();
        let own = Waiting { envelope, buffer, ticket: Arc::clone(&ticket) };
        let posted = ThreadRequest { group: Arc::clone(self), envelope, ticket };
        let partner = {
            let mut messages = self.ranks[destination].messages.lock();
            let queue = messages
                .entry((source, tag))
                .or_insert_with(|| Queue { way, waiting: VecDeque::new() });
            let partner = if queue.way == way { None } else { queue.waiting.pop_front() };
            let Some(partner) = partner else {
                queue.way = way;
                queue.waiting.push_back(own);
                return posted;
            };
            partner
        };
        // The bytes are moved without the lock: the match is already made.
        let (sent, received) = if way == Way::Send { (own, partner) } else { (partner, own) };
        deliver(sent, received);
        self.raise(peer);
        posted
    }

    /// Ends messages to a rank without a receive, and its dropped receives, with these tags.
    pub(super) fn discard(&self, rank: usize, tags: &Range<u32>) {
        let mut sent = Vec::new();
        // Dropped without the lock: the owners of buffers may use the communicator.
        let mut dropped: Vec<VecDeque<Waiting>> = Vec::new();
        self.ranks[rank].messages.lock().retain(|(source, tag), queue| {
            if tags.contains(tag) {
                let waiting = mem::take(&mut queue.waiting).into_iter();
                match queue.way {
                    Way::Send => sent.extend(waiting.map(|send| (*source, send))),
                    Way::Receive => {
                        // The request has the other share of the ticket.
                        let is_open = |own: &Waiting| Arc::strong_count(&own.ticket) > 1;
                        let (open, over) = waiting.partition(is_open);
                        queue.waiting = open;
                        dropped.push(over);
                    }
                }
            }
            !queue.waiting.is_empty()
        });
        for (source, Waiting { buffer, ticket, .. }) in sent {
            ticket.complete(Ok(buffer));
            self.raise(source);
        }
    }
}

/// Moves the bytes of a message and completes both ends.
fn deliver(mut sent: Waiting, mut received: Waiting) {
    let moved = if sent.envelope.message_id != received.envelope.message_id {
        Err(match sent.envelope.token {
            token if token != received.envelope.token => received.envelope.wrong_token(token),
            _ => received.envelope.wrong_message_id(),
        })
    } else if sent.envelope.len != received.envelope.len {
        Err(received.envelope.wrong_length(sent.envelope.len))
    } else {
        received.buffer.exchange_or_copy(&mut sent.buffer)
    };
    received.ticket.complete(moved.map(|()| received.buffer));
    sent.ticket.complete(Ok(sent.buffer));
}

/// A request of a rank.
pub(super) struct ThreadRequest {
    group: Arc<Group>,
    envelope: Envelope,
    ticket: Arc<Ticket>,
}

impl Request for ThreadRequest {
    fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn test(&mut self) -> Result<Option<Buffer>> {
        if !self.ticket.is_done() {
            let Envelope { peer, .. } = self.envelope;
            let lost = self.group.lost(self.envelope.operation(), peer, &self.envelope);
            let Some(lost) = lost else { return Ok(None) };
            // The request may have completed before the peer left.
            if !self.ticket.is_done() {
                return Err(lost);
            }
        }
        let outcome = self.ticket.outcome.lock().take();
        outcome.unwrap_or_else(|| Err(self.envelope.over())).map(Some)
    }
}

/// A count of events of one rank, and its threads that wait for more.
#[derive(Default)]
struct Signal {
    count: AtomicU64,
    sleepers: AtomicUsize,
    /// Whether the rank is in the group's list of sleepers.
    is_listed: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// The number of checks before a waiting thread yields its core, and the number of yields before it sleeps.
const SPINS: u32 = 200;
const YIELDS: u32 = 20;

impl Signal {
    /// Wakes the threads that sleep, after a count was raised.
    fn wake_all(&self) {
        // Either this thread sees the sleeper, or the sleeper sees the count: each writes its own value before it reads
        // the other's.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A sleeper that has checked the count is waiting once the lock is free.
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }
}
