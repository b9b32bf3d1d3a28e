//! Requests: which message meets which receive, and what becomes of those that are dropped.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use halo::communicator::{Buffer, Envelope, Request, Way};
use parking_lot::Mutex;
use runtime_core::Result;

use crate::communicator::Shared;
use crate::library::{Handle, Turn};
use crate::message::{Bytes, Message, find};

/// What is not over, of one communicator.
#[derive(Default)]
pub(crate) struct Open {
    /// Receives that wait for their message, in order, by peer and tag.
    lines: HashMap<(usize, u32), VecDeque<Arc<Receive>>>,
    /// How many of them nobody waits for.
    unwanted: usize,
    /// Messages that MPI works on and nobody waits for.
    abandoned: Vec<Message>,
}

/// A receive, known to its request and its line.
struct Receive {
    envelope: Envelope,
    /// Locked while `Open` is, or alone.
    stage: Mutex<Stage>,
}

enum Stage {
    /// No message yet. Without a buffer nobody waits for it.
    Waiting(Option<Bytes>),
    /// MPI receives a message of this length.
    Arriving(Message, usize),
    Over,
}

impl Open {
    /// Lets messages that are there meet the receives of a line.
    fn meet(&mut self, turn: &Turn, on: Handle, line: (usize, u32)) -> Result<()> {
        let Some(line) = self.lines.get_mut(&line) else { return Ok(()) };
        while let Some(first) = line.front() {
            let Some(found) = find(turn, on, &first.envelope)? else { break };
            let Some(first) = line.pop_front() else { break };
            let mut stage = first.stage.lock();
            let bytes = match mem::replace(&mut *stage, Stage::Over) {
                Stage::Waiting(bytes) => bytes,
                Stage::Arriving(..) | Stage::Over => None,
            };
            let (wanted, len) = (bytes.is_some(), found.len);
            self.unwanted -= usize::from(!wanted);
            let message = Message::receive(turn, &first.envelope, found, bytes)?;
            if wanted {
                *stage = Stage::Arriving(message, len);
            } else {
                self.abandoned.push(message);
            }
        }
        Ok(())
    }

    /// Whether somebody waits for everything.
    pub(crate) fn is_swept(&self) -> bool {
        self.unwanted == 0 && self.abandoned.is_empty()
    }

    /// Takes messages that nobody waits for, and frees those that MPI is done with. Gives how many it works on still.
    pub(crate) fn sweep(&mut self, turn: &Turn, on: Handle) -> Result<usize> {
        if self.unwanted > 0 {
            let lines: Vec<_> = self.lines.keys().copied().collect();
            lines.into_iter().try_for_each(|line| self.meet(turn, on, line))?;
        }
        // An error ends a message as well.
        self.abandoned.retain_mut(|message| matches!(message.test(turn), Ok(None)));
        Ok(self.abandoned.len())
    }
}

/// A request to MPI.
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
                Kind::Send(Message::send(&turn, shared.handle, &envelope, bytes)?)
            }
            Way::Receive => {
                let stage = Mutex::new(Stage::Waiting(Some(bytes)));
                let receive = Arc::new(Receive { envelope, stage });
                let mut open = shared.open.lock();
                let line = open.lines.entry((envelope.peer, envelope.tag)).or_default();
                line.push_back(Arc::clone(&receive));
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
                    // A failure of MPI has ended it, if it was not tested before.
                    Stage::Over => self.shared.check(envelope).and_then(|()| Err(envelope.over())),
                    Stage::Arriving(message, len) => {
                        let arrived = message.test(&Turn::take(envelope.operation())?)?;
                        match arrived {
                            Some(_) if *len != envelope.len => Err(envelope.wrong_length(*len)),
                            arrived => Ok(arrived),
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
