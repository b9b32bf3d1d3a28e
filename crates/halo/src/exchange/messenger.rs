//! The steps of an exchange by messages, whatever it exchanges.

use std::iter;
use std::ops::Range;
use std::time::Instant;

use runtime_core::{AnyView, Error, ErrorKind, Result, Stream};

use super::channel::Channel;
use super::flight::{Flight, error_of};
use crate::communicator::{Reset, deadline, reset};
use crate::engine::Engine;
use crate::engine::route::Direction;
use crate::field::{Dim, Field, end_writes, footprints};

/// An engine with the messages of its exchanges, which take place one after the other.
#[derive(Debug)]
pub(super) struct Messenger {
    pub(super) engine: Engine,
    pub(super) channel: Channel,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Idle,
    Running(Flight),
    /// An exchange failed before it was finished.
    Broken,
}

impl Messenger {
    pub(super) const fn new(engine: Engine, channel: Channel) -> Self {
        Self { engine, channel, state: State::Idle }
    }

    /// Packs the fields and starts to receive. [`run`](Self::run) comes next.
    pub(super) fn begin(
        &mut self,
        route: usize,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<Flight> {
        self.check(self.engine.routes(route).direction(), stream, fields)?;
        // From here on other ranks are affected.
        self.state = State::Broken;
        self.channel.begin(footprints(fields), &self.engine)?;
        let flight = Flight::new(&mut self.engine, route, stream, fields);
        let mut flight = flight.inspect_err(|_| {
            self.channel.undo_begin();
            self.state = State::Idle;
        })?;
        flight.receive(&self.engine, &self.channel)?;
        Ok(flight)
    }

    /// Advances an exchange that has begun, as far as possible without waiting.
    pub(super) fn run<'a, 'f>(
        &'a mut self,
        flight: Flight,
        stream: &Stream,
        fields: &'a mut [Field<'f>],
    ) -> Result<InFlight<'a, 'f>> {
        let engine = &self.engine;
        let steps = || iter::successors(Some(flight.route()), |route| engine.next_route(*route));
        let messages = steps().map(|route| engine.routes(route).receives.len()).sum();
        let fills = engine.routes(flight.route()).direction() == Direction::Fill;
        let corners = fills.then(|| stream.clone());
        self.state = State::Running(flight);
        self.advance(fields)?;
        Ok(InFlight { exchange: self, fields, messages, corners })
    }

    /// As [`HaloExchange::reset`](super::HaloExchange::reset).
    pub(super) fn reset(&mut self) -> Result<()> {
        if let State::Running(_) | State::Broken = self.state {
            self.engine.forget_buffers();
        }
        // This state remains until all ranks have completed the reset.
        self.state = State::Broken;
        let timeout = self.engine.settings.timeout;
        // Some ranks may have started more exchanges than others.
        let own = Reset { what: self.channel.identity(), number: self.channel.exchanges };
        let channel = &self.channel;
        let before = || channel.discard_before_reset();
        let all = reset(&*channel.communicator, own, timeout.saturating_mul(2), before)
            .map_err(|error| channel.failed(error).about("reset"))?;
        if let Some(rank) = all.iter().position(|other| other.what != own.what) {
            let (own_rank, other) = (self.engine.rank, all[rank]);
            let message = format!("rank {own_rank} resets {own}, rank {rank} resets {other}");
            return Err(Error::new(ErrorKind::InvalidArgument, "reset", message));
        }
        let most = all.iter().map(|rank| rank.number).max();
        self.channel.exchanges = most.unwrap_or(self.channel.exchanges);
        self.channel.begin_epoch();
        self.state = State::Idle;
        Ok(())
    }

    /// Checks that an exchange of these fields can start.
    pub(super) fn check(
        &self,
        direction: Direction,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<()> {
        let conflict = match self.state {
            State::Idle => None,
            State::Running(_) => Some("the exchange before was not finished"),
            State::Broken => Some("the exchange before failed"),
        };
        if let Some(why) = conflict {
            let message = format!("{why}; call reset() on every rank");
            return Err(error_of(&self.engine, ErrorKind::Conflict, &message));
        }
        self.engine.check(direction, stream, fields)
    }

    /// Advances the exchange as far as possible without waiting. Returns whether it is complete.
    fn advance(&mut self, fields: &mut [Field<'_>]) -> Result<bool> {
        let State::Running(mut flight) = std::mem::replace(&mut self.state, State::Broken) else {
            return Err(error_of(&self.engine, ErrorKind::Conflict, "the exchange failed before"));
        };
        self.channel.check_claims().map_err(|error| self.channel.failed(error))?;
        let (engine, channel) = (&mut self.engine, &self.channel);
        let mut done = flight.advance(engine, channel, fields)?;
        while done && flight.next_route(engine, fields)? {
            flight.receive(engine, channel)?;
            done = flight.advance(engine, channel, fields)?;
        }
        self.state = State::Running(flight);
        Ok(done)
    }
}

/// An exchange in progress, of a [`HaloExchange`](crate::HaloExchange) or of a [`Forest`](crate::Forest). Call
/// [`finish`](Self::finish) to complete it.
///
/// If it is dropped or forgotten before it is finished or [polled](Self::poll) to completion, the exchange has failed:
/// see [`HaloExchange`](crate::HaloExchange). The next exchange is a `Conflict` until a reset:
/// see [`HaloExchange::reset`](crate::HaloExchange::reset) and [`Forest::reset`](crate::Forest::reset).
#[must_use = "fields are written by finish()"]
#[derive(Debug)]
pub struct InFlight<'a, 'f> {
    exchange: &'a mut Messenger,
    pub(super) fields: &'a mut [Field<'f>],
    /// The number of messages that this rank receives.
    messages: usize,
    /// The stream on which corners may have to be averaged.
    corners: Option<Stream>,
}

impl InFlight<'_, '_> {
    /// Sends messages that are packed and unpacks messages that have arrived. Returns whether the exchange is complete.
    /// Blocks only to set the last ghosts to [averages](crate::MissingCorners::Average), and where the transport does:
    /// see [`ThreadCommunicator`](crate::communicator::ThreadCommunicator).
    ///
    /// If messages go through host memory, the first call after packing is done sends them: call this from time to time
    /// while other work runs.
    ///
    /// # Errors
    ///
    /// `DeviceFault` if a failure of the stream was reported to another caller since the exchange began. Messages that
    /// were not sent before are then never sent, and the neighbours get a `Timeout`. The errors that the device or the
    /// transport reports. After any error the exchange has failed.
    pub fn poll(&mut self) -> Result<bool> {
        if let State::Idle = self.exchange.state {
            return Ok(true);
        }
        let done = self.exchange.advance(self.fields)?;
        if done {
            let state = std::mem::replace(&mut self.exchange.state, State::Broken);
            let engine = &mut self.exchange.engine;
            if let Some(stream) = &self.corners {
                engine.average_corners(stream, self.fields)?;
            }
            if let State::Running(flight) = state {
                flight.check(engine)?;
            }
            // Only now: if the caller never saw that the exchange is complete, it counts as abandoned.
            end_writes(self.fields);
            self.exchange.state = State::Idle;
        }
        Ok(done)
    }

    /// Returns the values of a field that the rank owns, if the field exists.
    pub(super) fn owned(&self, field: usize) -> Option<Result<AnyView<'_>>> {
        let spec = self.exchange.engine.specs().get(field)?;
        let owned: Vec<Range<usize>> = spec.dims().iter().map(Dim::owned).collect();
        Some(self.fields.get(field)?.view().region(&owned))
    }

    /// Returns the number of messages whose unpacking is enqueued.
    pub fn unpacked(&self) -> usize {
        match &self.exchange.state {
            State::Running(flight) => flight.unpacked(),
            _ => self.messages,
        }
    }

    /// Blocks until all messages have arrived and unpacking is enqueued. Work enqueued on the stream from now on sees
    /// the result.
    ///
    /// # Errors
    ///
    /// `Timeout`, `PeerLost`. `InvalidArgument` for a message of another exchange or of another method: ranks that use
    /// exchanges or call methods in different orders send such messages. `InvalidArgument` if another rank found that
    /// it shares elements of its fields with a rank, as for [`start`](crate::HaloExchange::start). As
    /// for [`poll`](Self::poll).
    pub fn finish(mut self) -> Result<()> {
        let deadline = deadline(self.exchange.engine.settings.timeout);
        loop {
            let seen = self.exchange.channel.communicator.progress();
            if self.poll()? {
                return Ok(());
            }
            let Messenger { engine, channel, state, .. } = &mut *self.exchange;
            let State::Running(flight) = state else { continue };
            if Instant::now() >= deadline {
                let error = flight.late(engine);
                *state = State::Broken;
                return Err(error);
            }
            flight.wait(channel, seen, deadline)?;
        }
    }
}
