//! Requests of one communicator, and how they end.

use std::mem;
use std::sync::Arc;

use halo::communicator::{Buffer, Envelope, Request, Way};
use runtime_core::Result;

use crate::job::Job;
use crate::library::Turn;
use crate::matching::{Receive, Stage};
use crate::message::{Bytes, Message};

/// A request of MPI.
pub(crate) struct MpiRequest {
    job: Arc<Job>,
    envelope: Envelope,
    kind: Kind,
}

enum Kind {
    Send(Message),
    Receive(Arc<Receive>),
    Over,
}

impl MpiRequest {
    pub(crate) fn start(job: &Arc<Job>, envelope: Envelope, bytes: Bytes) -> Result<Self> {
        let kind = match envelope.way {
            Way::Send => {
                let turn = Turn::take(envelope.operation())?;
                Kind::Send(Message::send(&turn, &job.comm, job.tags, &envelope, bytes)?)
            }
            Way::Receive => Kind::Receive(job.matching.lock().add(envelope, bytes)),
        };
        Ok(Self { job: Arc::clone(job), envelope, kind })
    }

    /// As [`Request::test`]; `None` leaves the request as it is.
    fn try_test(&mut self) -> Result<Option<Buffer>> {
        let envelope = &self.envelope;
        match &mut self.kind {
            Kind::Over => Err(envelope.over()),
            Kind::Send(message) => message.test(&Turn::take(envelope.operation())?),
            Kind::Receive(receive) => {
                let mut turn = None;
                if matches!(*receive.stage.lock(), Stage::Waiting(_)) {
                    let mut matching = self.job.matching.lock();
                    let turn = turn.insert(Turn::take(envelope.operation())?);
                    matching.match_arrived(turn, &self.job.comm, (envelope.peer, envelope.tag))?;
                }
                match &mut *receive.stage.lock() {
                    Stage::Waiting(_) => Ok(None),
                    // A failure of MPI has ended the request, unless it was tested before.
                    Stage::Over => self.job.check(envelope).and_then(|()| Err(envelope.over())),
                    Stage::Arriving(message, mismatch) => {
                        let turn = match turn {
                            Some(turn) => turn,
                            None => Turn::take(envelope.operation())?,
                        };
                        let arrived = message.test(&turn)?;
                        match mismatch.take_if(|_| arrived.is_some()) {
                            Some(mismatch) => Err(mismatch),
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
            Ok(None) => {
                self.job.tested();
                self.job.check(&self.envelope).map(|()| None)
            }
            over => {
                self.kind = Kind::Over;
                self.job.record_progress();
                over.map_err(|error| self.job.record_failure(error))
            }
        }
    }
}

impl Drop for MpiRequest {
    fn drop(&mut self) {
        let kind = mem::replace(&mut self.kind, Kind::Over);
        if matches!(kind, Kind::Over) {
            return;
        }
        let mut matching = self.job.matching.lock();
        match kind {
            Kind::Over => {}
            Kind::Send(message) => matching.abandoned.push(message),
            Kind::Receive(receive) => {
                let mut stage = receive.stage.lock();
                match mem::replace(&mut *stage, Stage::Over) {
                    Stage::Over => {}
                    Stage::Arriving(message, _) => matching.abandoned.push(message),
                    Stage::Waiting(_) => {
                        *stage = Stage::Waiting(None);
                        matching.dropped_receives += 1;
                    }
                }
            }
        }
    }
}
