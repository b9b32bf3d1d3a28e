//! How arrived messages and receives are matched, and what becomes of the messages of dropped requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use halo::communicator::{Envelope, Way};
use parking_lot::Mutex;
use runtime_core::{Error, Result};

use crate::library::{Comm, Turn};
use crate::message::{Bytes, Found, Message, find};
use crate::tag::Tags;

/// The messages of a peer that are looked for at once. A peer that sends faster does not hold up others.
const AT_ONCE: usize = 1000;

/// The open requests and messages of one communicator.
pub(crate) struct Matching {
    tags: Tags,
    /// By peer and tag.
    queues: BTreeMap<(usize, u32), Queue>,
    /// The number of receives whose requests were dropped.
    pub(crate) dropped_receives: usize,
    /// Messages in progress whose requests were dropped.
    pub(crate) abandoned: Vec<Message>,
}

/// Receives or messages without a partner, in order.
#[derive(Default)]
struct Queue {
    receives: VecDeque<Arc<Receive>>,
    /// Messages that arrived before their receive.
    found: VecDeque<Found>,
}

/// A receive, shared by its request and its queue.
pub(crate) struct Receive {
    envelope: Envelope,
    /// Locked while `Matching` is locked, or alone.
    pub(crate) stage: Mutex<Stage>,
}

pub(crate) enum Stage {
    /// No message yet. If there is no buffer, the request was dropped.
    Waiting(Option<Bytes>),
    /// MPI receives a message. With an error, it is the wrong message.
    Arriving(Message, Option<Error>),
    Over,
}

impl Matching {
    pub(crate) fn new(tags: Tags) -> Self {
        Self { tags, queues: BTreeMap::new(), dropped_receives: 0, abandoned: Vec::new() }
    }

    /// Adds a receive behind earlier receives of its peer and tag.
    pub(crate) fn add(&mut self, envelope: Envelope, bytes: Bytes) -> Arc<Receive> {
        let stage = Mutex::new(Stage::Waiting(Some(bytes)));
        let receive = Arc::new(Receive { envelope, stage });
        let queue = self.queues.entry((envelope.peer, envelope.tag)).or_default();
        queue.receives.push_back(Arc::clone(&receive));
        receive
    }

    /// Puts messages of a peer that have arrived into their queues: all, or at most this number.
    fn find_arrived(&mut self, turn: &Turn, on: &Comm, peer: usize, most: usize) -> Result<()> {
        for _ in 0..most {
            let Some(found) = find(turn, on, self.tags, peer)? else { break };
            self.queues.entry((peer, found.tag)).or_default().found.push_back(found);
        }
        Ok(())
    }

    /// Ends dropped receives with these tags, and takes messages that have arrived and that no receive waits for.
    pub(crate) fn discard(
        &mut self,
        turn: &Turn,
        on: &Comm,
        size: usize,
        tags: &Range<u32>,
    ) -> Result<()> {
        (0..size).try_for_each(|peer| self.find_arrived(turn, on, peer, usize::MAX))?;
        let queues: Vec<_> =
            self.queues.keys().filter(|(_, tag)| tags.contains(tag)).copied().collect();
        for (peer, tag) in queues {
            self.match_arrived(turn, on, (peer, tag))?;
            let Some(Queue { receives, mut found }) = self.queues.remove(&(peer, tag)) else {
                continue;
            };
            let (dropped, open): (VecDeque<_>, VecDeque<_>) = receives
                .into_iter()
                .partition(|receive| matches!(*receive.stage.lock(), Stage::Waiting(None)));
            self.dropped_receives -= dropped.len();
            for found in found.drain(..) {
                let envelope = Envelope {
                    way: Way::Receive,
                    peer,
                    tag,
                    len: found.len,
                    message_id: 0,
                    token: 0,
                };
                self.abandoned.push(Message::receive(turn, &envelope, found, None)?);
            }
            if !open.is_empty() {
                self.queues.insert((peer, tag), Queue { receives: open, found });
            }
        }
        Ok(())
    }

    /// Matches messages that have arrived with the receives of a queue, at least one if there is any.
    pub(crate) fn match_arrived(
        &mut self,
        turn: &Turn,
        on: &Comm,
        (peer, tag): (usize, u32),
    ) -> Result<()> {
        for _ in 0..AT_ONCE {
            let Some(found) = find(turn, on, self.tags, peer)? else { break };
            let is_wanted = found.tag == tag;
            self.queues.entry((peer, found.tag)).or_default().found.push_back(found);
            if is_wanted {
                break;
            }
        }
        self.match_found(turn, (peer, tag))
    }

    /// As `match_arrived`, for all receives.
    pub(crate) fn match_all(&mut self, turn: &Turn, on: &Comm) -> Result<()> {
        let open = self.queues.iter().filter(|(_, queue)| !queue.receives.is_empty());
        let open: Vec<_> = open.map(|(key, _)| *key).collect();
        let peers: BTreeSet<_> = open.iter().map(|(peer, _)| *peer).collect();
        peers.into_iter().try_for_each(|peer| self.find_arrived(turn, on, peer, AT_ONCE))?;
        open.into_iter().try_for_each(|queue| self.match_found(turn, queue))
    }

    /// Matches messages that were found with the receives of a queue.
    fn match_found(&mut self, turn: &Turn, queue: (usize, u32)) -> Result<()> {
        let Some(Queue { receives, found }) = self.queues.get_mut(&queue) else {
            return Ok(());
        };
        while !found.is_empty()
            && let Some(first) = receives.pop_front()
            && let Some(found) = found.pop_front()
        {
            let mut stage = first.stage.lock();
            let bytes = match mem::replace(&mut *stage, Stage::Over) {
                Stage::Waiting(bytes) => bytes,
                Stage::Arriving(..) | Stage::Over => None,
            };
            let (wanted, mismatch) = (bytes.is_some(), found.mismatch(self.tags, &first.envelope));
            self.dropped_receives -= usize::from(!wanted);
            let message = Message::receive(turn, &first.envelope, found, bytes)?;
            if wanted {
                *stage = Stage::Arriving(message, mismatch);
            } else {
                self.abandoned.push(message);
            }
        }
        Ok(())
    }

    /// Whether no dropped request is still open.
    pub(crate) fn has_no_abandoned(&self) -> bool {
        self.dropped_receives == 0 && self.abandoned.is_empty()
    }

    /// Takes messages whose requests were dropped, and frees those that MPI has finished. Returns how many are still in
    /// progress.
    pub(crate) fn receive_abandoned(&mut self, turn: &Turn, on: &Comm) -> Result<usize> {
        if self.dropped_receives > 0 {
            self.match_all(turn, on)?;
        }
        // An error ends a message, too.
        self.abandoned.retain_mut(|message| matches!(message.test(turn), Ok(None)));
        Ok(self.abandoned.len())
    }
}
