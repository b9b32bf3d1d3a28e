//! Requests: how messages and receives are matched, and how dropped requests end.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use halo::communicator::{Buffer, Envelope, Request, Way};
use parking_lot::Mutex;
use runtime_core::{Error, Result};

use crate::communicator::Shared;
use crate::library::{Handle, Turn};
use crate::message::{Bytes, Found, Message, find};
use crate::tag::Tags;

/// The open requests and messages of one communicator.
pub(crate) struct Open {
    tags: Tags,
    /// By peer and tag.
    lines: HashMap<(usize, u32), Line>,
    /// The number of receives whose requests were dropped.
    unwanted: usize,
    /// Messages in progress whose requests were dropped.
    abandoned: Vec<Message>,
}

/// Receives or messages without a partner, in order.
#[derive(Default)]
struct Line {
    receives: VecDeque<Arc<Receive>>,
    /// Messages that arrived before their receive.
    found: VecDeque<Found>,
}

/// A receive, shared by its request and its line.
struct Receive {
    envelope: Envelope,
    /// Locked while `Open` is locked, or alone.
    stage: Mutex<Stage>,
}

enum Stage {
    /// No message yet. If there is no buffer, the request was dropped.
    Waiting(Option<Bytes>),
    /// MPI receives a message. With an error, it is the wrong message.
    Arriving(Message, Option<Error>),
    Over,
}

impl Open {
    pub(crate) fn new(tags: Tags) -> Self {
        Self { tags, lines: HashMap::new(), unwanted: 0, abandoned: Vec::new() }
    }

    /// Matches messages that have arrived with the receives of a line.
    fn meet(&mut self, turn: &Turn, on: Handle, (peer, tag): (usize, u32)) -> Result<()> {
        while let Some(found) = find(turn, on, self.tags, peer)? {
            self.lines.entry((peer, found.tag)).or_default().found.push_back(found);
        }
        let Some(Line { receives, found }) = self.lines.get_mut(&(peer, tag)) else {
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
            let (wanted, misfit) = (bytes.is_some(), found.misfit(self.tags, &first.envelope));
            self.unwanted -= usize::from(!wanted);
            let message = Message::receive(turn, &first.envelope, found, bytes)?;
            if wanted {
                *stage = Stage::Arriving(message, misfit);
            } else {
                self.abandoned.push(message);
            }
        }
        Ok(())
    }

    /// Whether no dropped request is still open.
    pub(crate) fn is_swept(&self) -> bool {
        self.unwanted == 0 && self.abandoned.is_empty()
    }

    /// Takes messages whose requests were dropped, and frees those that MPI has finished. Returns how many are still in
    /// progress.
    pub(crate) fn sweep(&mut self, turn: &Turn, on: Handle) -> Result<usize> {
        if self.unwanted > 0 {
            let lines: Vec<_> = self.lines.keys().copied().collect();
            lines.into_iter().try_for_each(|line| self.meet(turn, on, line))?;
        }
        // An error ends a message, too.
        self.abandoned.retain_mut(|message| matches!(message.test(turn), Ok(None)));
        Ok(self.abandoned.len())
    }
}

/// A request of MPI.
pub(crate) struct MpiRequest {
    shared: Arc<Shared>,
    envelope: Envelope,
    kind: Kind,
}

enum Kind {
    Send(Message),
    Receive(Arc<Receive>),
    Over,
}

impl MpiRequest {
    pub(crate) fn start(shared: &Arc<Shared>, envelope: Envelope, bytes: Bytes) -> Result<Self> {
        let kind = match envelope.way {
            Way::Send => {
                let turn = Turn::take(envelope.operation())?;
                Kind::Send(Message::send(
                    &turn,
                    shared.handle,
                    shared.place.tags,
                    &envelope,
                    bytes,
                )?)
            }
            Way::Receive => {
                let stage = Mutex::new(Stage::Waiting(Some(bytes)));
                let receive = Arc::new(Receive { envelope, stage });
                let mut open = shared.open.lock();
                let line = open.lines.entry((envelope.peer, envelope.tag)).or_default();
                line.receives.push_back(Arc::clone(&receive));
                Kind::Receive(receive)
            }
        };
        Ok(Self { shared: Arc::clone(shared), envelope, kind })
    }

    /// As [`Request::test`]; `None` leaves the request as it is.
    fn try_test(&mut self) -> Result<Option<Buffer>> {
        let envelope = &self.envelope;
        match &mut self.kind {
            Kind::Over => Err(envelope.over()),
            Kind::Send(message) => message.test(&Turn::take(envelope.operation())?),
            Kind::Receive(receive) => {
                if matches!(*receive.stage.lock(), Stage::Waiting(_)) {
                    let mut open = self.shared.open.lock();
                    let turn = Turn::take(envelope.operation())?;
                    open.meet(&turn, self.shared.handle, (envelope.peer, envelope.tag))?;
                }
                match &mut *receive.stage.lock() {
                    Stage::Waiting(_) => Ok(None),
                    // A failure of MPI has ended the request, unless it was tested before.
                    Stage::Over => self.shared.check(envelope).and_then(|()| Err(envelope.over())),
                    Stage::Arriving(message, misfit) => {
                        let arrived = message.test(&Turn::take(envelope.operation())?)?;
                        match misfit.take_if(|_| arrived.is_some()) {
                            Some(misfit) => Err(misfit),
                            None => Ok(arrived),
                        }
                    }
                }
            }
        }
    }
}

impl Request for MpiRequest {
    fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn test(&mut self) -> Result<Option<Buffer>> {
        match self.try_test() {
            Ok(None) => self.shared.check(&self.envelope).map(|()| None),
            over => {
                self.kind = Kind::Over;
                self.shared.note_progress();
                over.map_err(|error| self.shared.note(error))
            }
        }
    }
}

impl Drop for MpiRequest {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        match mem::replace(&mut self.kind, Kind::Over) {
            Kind::Over => {}
            Kind::Send(message) => open.abandoned.push(message),
            Kind::Receive(receive) => {
                let mut stage = receive.stage.lock();
                match mem::replace(&mut *stage, Stage::Over) {
                    Stage::Over => {}
                    Stage::Arriving(message, _) => open.abandoned.push(message),
                    Stage::Waiting(_) => {
                        *stage = Stage::Waiting(None);
                        open.unwanted += 1;
                    }
                }
            }
        }
    }
}
