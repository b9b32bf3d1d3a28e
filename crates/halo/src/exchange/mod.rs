//! The exchange: packing, messages, unpacking.

pub(crate) mod agreement;
mod channel;
mod flight;
pub(crate) mod overlap;
mod staging;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use runtime_core::{AnyView, Combine, Device, Error, ErrorKind, Result, Stream};

use self::agreement::{Agreement, Contribution, Ranks, agree, all_made, direct_route};
use self::channel::Channel;
use self::flight::{Flight, error_of};
use self::staging::Trial;
use crate::communicator::{Communicator, Declined, Reset, deadline, reset};
use crate::engine::Engine;
use crate::engine::direct::DirectRoute;
use crate::engine::route::Direction;
use crate::engine::statistics::HaloStatistics;
use crate::field::{Dim, Field, Quantity, end_writes, footprints};
use crate::options::{HaloOptions, Staging};
use crate::plan::transfer::{Edge, refuse};
use crate::topology::Topology;

/// Fills the halos of a set of fields with the values that the neighbours own, repeatedly.
///
/// A program creates one `HaloExchange` for its fields. Every rank creates it. All ranks call the same methods of the
/// same exchanges in the same order. Each exchange packs all fields in one launch and sends one message to each
/// neighbour rank, or [several](HaloOptions::messages). It unpacks messages as they arrive: one launch unpacks all
/// messages that are there. Data that a rank exchanges with itself is copied while packing and never sent. On devices
/// where memories are launch arguments, many memories may need more than one launch: see
/// [`RegionPlan::launches`](runtime_core::RegionPlan::launches).
///
/// Ranks that are threads of one process, with fields on clones of one [`Device`], need no messages in
/// [`exchange`](Self::exchange) and [`overlap`](Self::overlap): one launch copies the neighbours' owned values to the
/// ghosts. See [`HaloOptions::direct`].
///
/// Work is enqueued on the caller's stream. Packing runs after all work enqueued there before, and work enqueued after
/// [`finish`](InFlight::finish) runs after unpacking. The host waits for messages, and for packing if messages go
/// through host memory, but not for unpacking. If the device does not copy regions itself, each launch blocks until it
/// is done: see [`RegionPlan`](runtime_core::RegionPlan).
///
/// If an exchange fails, or is dropped or forgotten before it is complete, the elements that it writes are unspecified:
/// some may have new values, and others old ones. If it wrote any, it reports to the lenders of the fields that it
/// wrote that [the write failed](runtime_core::MemoryViewMut::begin_write), and a later exchange does not change that.
/// An array then poisons the parts. An exchange that wrote nothing leaves the fields as they were.
///
/// Work of a rank may fail on its device before the values of the rank are packed or read. Then only the stream of that
/// rank reports the failure, and the ghosts that its neighbours get from it are unspecified.
///
/// Behind a failure, a device may skip steps of an exchange, and run the later ones once the failure was reported. If
/// it was reported during the exchange, to any caller, the exchange fails. But the steps may still run when the
/// exchange returns. A program that can go on after a failure reads [`Stream::failures`] before the exchange, and again
/// after [`Stream::synchronize`]: if the number has grown, all elements that the exchange wrote are unspecified.
pub struct HaloExchange {
    engine: Engine,
    channel: Channel,
    /// Set if ranks read each other's fields directly.
    direct: Option<DirectRoute>,
    /// An error for ranks that wait to read the fields of an exchange that this rank did by messages.
    declined: Option<Declined>,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    Running(Flight),
    /// An exchange failed before it was finished.
    Broken,
}

impl HaloExchange {
    /// Makes the exchange of this rank for fields on `device`. All ranks call this together, with the same topology,
    /// quantities and options, and compare their plans.
    ///
    /// Blocks until all ranks have called it, and until they have [chosen](crate::Staging::Auto) the path of their
    /// messages.
    ///
    /// This is a [collective call](Communicator#collective-calls). If a rank is late or cannot measure its messages,
    /// all ranks call [`Communicator::reset`] and make the exchange again. If the error says what does not match, the
    /// ranks may make the exchange again without a reset.
    ///
    /// # Errors
    ///
    /// The errors of [`HaloTransformer::new`](crate::HaloTransformer::new). `InvalidArgument`, on every rank, if the
    /// number of ranks of the topology differs from that of the communicator; if the ranks' topologies, options or
    /// fields do not match, with the attribute that differs and its values; or if another rank failed to make its plan
    /// or to measure its messages. The errors of [`Communicator::all_gather`], including `Timeout`, `PeerLost` and
    /// `Conflict`.
    pub fn new(
        communicator: Arc<dyn Communicator>,
        topology: &Topology,
        quantities: &[Quantity],
        device: &Device,
        options: &HaloOptions,
    ) -> Result<Self> {
        let transport = Arc::clone(&communicator);
        let (rank, size) = (transport.rank(), transport.size());
        let ranks = Ranks { communicator: &*transport, rank, size };
        let own = Self::plan(ranks, topology, quantities, device, options);
        let may_read = options.direct
            && transport.direct().is_some_and(|access| access.numbers() == (rank, size));
        let is_direct = may_read && !own.as_ref().is_ok_and(Engine::prefers_messages);
        let own = own.and_then(|mut own| match is_direct {
            true => Ok(own),
            false => own.route(Direction::Fill).map(|_| own),
        });
        let contribution = own.as_ref().ok().map(|engine| Contribution {
            engine,
            // Within a process, each opened device has its own default stream.
            device: if is_direct { device.default_stream().id() } else { 0 },
            measures: engine.staging_is_open && size > 1,
        });
        let serial = transport.collectives().next_exchange();
        let agreed = agree(ranks, contribution, serial, options);
        // A rank's own error says more than the error that ranks disagree.
        let mut engine = own?;
        let Agreement { same_device, stamps, measures, serials } = agreed?;
        ranks.check()?;
        let mut channel = Channel::new(communicator, rank, options.channel, serials, stamps);
        let direct = if same_device { direct_route(ranks, &engine, options)? } else { None };
        if direct.is_none() {
            if measures {
                let trial = Trial::new(ranks, &channel, device, options.timeout);
                let (choice, times) = trial.run(&engine.plan)?;
                tracing::debug!(rank, ?choice, ?times, "staging measured");
                engine.choose_staging(choice, times);
                channel.stamps = engine.stamps();
            }
            let made = engine.route(Direction::Fill);
            all_made(ranks, made, options.timeout)?;
        }
        Ok(Self { engine, channel, direct, declined: None, state: State::Idle })
    }

    fn plan(
        ranks: Ranks<'_>,
        topology: &Topology,
        quantities: &[Quantity],
        device: &Device,
        options: &HaloOptions,
    ) -> Result<Engine> {
        let Ranks { communicator, rank, size } = ranks;
        if topology.ranks() != size {
            let planned = topology.ranks();
            let message =
                format!("rank {rank}: a topology of {planned} ranks for a communicator of {size}");
            return Err(refuse(message));
        }
        Channel::check(communicator, options.channel)?;
        Channel::discard_old(communicator, options.channel)?;
        let passes = communicator.passes_memory_of(device);
        let engine = Engine::new(topology, rank, quantities, device, options, passes)?;
        engine.check_messages(passes)?;
        Ok(engine)
    }

    /// Starts to fill the halos. Blocks only if the pool is full and must wait for a buffer that is still in use.
    ///
    /// Owned values must not change until packing is done: work enqueued on `stream` later runs after packing. The
    /// ghosts belong to the exchange until it is finished.
    ///
    /// # Errors
    ///
    /// `Conflict` if an earlier exchange was dropped or failed: see [`reset`](Self::reset). `InvalidArgument`,
    /// `WrongDevice` and `LimitExceeded` as for [`HaloTransformer::pack`](crate::HaloTransformer::pack); the exchange
    /// has not started then. `InvalidArgument` also if fields of two ranks that are threads of one group share
    /// elements, here or in an earlier exchange: the exchange has failed then, on all ranks. `DeviceFault` if a failure
    /// of the stream was reported to another caller during the call: see [`InFlight::poll`]. Any other error comes from
    /// the device or the transport.
    pub fn start<'a, 'f>(
        &'a mut self,
        stream: &Stream,
        fields: &'a mut [Field<'f>],
    ) -> Result<InFlight<'a, 'f>> {
        self.launch(Direction::Fill, stream, fields)
    }

    /// Starts the reverse exchange: combines each owned element with all ghosts that are copies of it. Ghosts do not
    /// change.
    ///
    /// Contributions are combined in a fixed order, by the rank that holds the ghost, then by side and field. The
    /// result does not depend on which message arrives first. Vector components are permuted and negated as in the
    /// forward exchange. With [`Combine::Replace`] the last contribution stays.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start). `InvalidArgument` if a field's element type does not support the operation.
    /// `Conflict` for a field whose owned values are lent for reading.
    pub fn start_reduce<'a, 'f>(
        &'a mut self,
        stream: &Stream,
        fields: &'a mut [Field<'f>],
        combine: Combine,
    ) -> Result<InFlight<'a, 'f>> {
        self.launch(Direction::Reduce(combine), stream, fields)
    }

    /// Runs the reverse exchange: [`start_reduce`](Self::start_reduce), then [`finish`](InFlight::finish).
    ///
    /// # Errors
    ///
    /// As for [`start_reduce`](Self::start_reduce) and [`finish`](InFlight::finish).
    pub fn reduce(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        combine: Combine,
    ) -> Result<()> {
        self.start_reduce(stream, fields, combine)?.finish()
    }

    /// Makes the points that two ranks share equal on both ranks, for fields staggered along one axis. The rank that
    /// has the points at the high end of its block takes the values of the neighbour, which has them at the low end. If
    /// two low ends or two high ends meet, the rank with the higher number takes the values.
    ///
    /// Does not change other fields.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start). `InvalidArgument` if a field is staggered along more than one axis, or if a block
    /// is joined to itself so that its points have no owner. `Conflict` for a field whose owned values are lent for
    /// reading.
    pub fn synchronize_shared(&mut self, stream: &Stream, fields: &mut [Field<'_>]) -> Result<()> {
        self.launch(Direction::Shared, stream, fields)?.finish()
    }

    /// Sets a token of this rank for all exchanges from now on; it is 0 at first. An exchange fails on ranks that have
    /// different tokens and exchange values with each other, and no value passes between them. So a program can check
    /// that ranks agree on what they exchange: for example on a step, or on the number of writes. The token costs no
    /// message and no launch.
    ///
    /// The error is `InvalidArgument`. It names both tokens if the transport carries them, as that of threads does, or
    /// if ranks read each other's fields directly. Otherwise it says that another message came.
    pub fn set_token(&mut self, token: u64) {
        self.channel.token = token;
    }

    /// Makes exchanges and [collective calls](Communicator#collective-calls) possible again after an exchange was
    /// dropped or failed. All ranks call this together.
    ///
    /// Blocks until all ranks have called it, for at most twice the timeout: other ranks may first have to wait until
    /// their exchange fails. The ghosts of the abandoned exchange are unspecified.
    ///
    /// Messages of that exchange without a matching receive do not disturb later exchanges: they keep their tag. A tag
    /// is used again after 16 resets of the communicator or of its exchanges. Before, each reset of an exchange of the
    /// channel, and the making of one, discards what failed exchanges have left, as far as it has arrived. Only a
    /// message that arrives after these can meet a receive of a later exchange, which then fails and must be reset too.
    ///
    /// # Errors
    ///
    /// After any error but `InvalidArgument`, call this again: it continues where the earlier call ended, even if other
    /// ranks completed it meanwhile. `Timeout`. `PeerLost`. `Conflict` if a reset of another exchange waits for other
    /// ranks. `InvalidArgument` if another rank resets something else. After an error, exchanges are not possible.
    pub fn reset(&mut self) -> Result<()> {
        if let State::Running(_) | State::Broken = self.state {
            self.engine.forget_buffers();
        }
        // This state remains until all ranks have completed the reset.
        self.state = State::Broken;
        let timeout = self.engine.options.timeout;
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

    /// Returns the traffic of the exchanges so far, and the times of all work that the device has finished. Does not
    /// block.
    ///
    /// Times are measured if the [options](HaloOptions::timing) request them; at most 64 launches are measured at a
    /// time.
    ///
    /// # Errors
    ///
    /// The errors that the device reports.
    pub fn statistics(&self) -> Result<HaloStatistics> {
        self.engine.recorder().statistics()
    }

    /// Returns the same as [`HaloTransformer::edges`](crate::HaloTransformer::edges).
    pub fn edges(&self) -> &[Edge] {
        &self.engine.plan.edges
    }

    /// Whether [`exchange`](Self::exchange) and [`overlap`](Self::overlap) copy from the fields of other ranks, without
    /// messages: see [`HaloOptions::direct`].
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The destination rank and the number of bytes of each message to send.
    pub fn sends(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.engine.sends()
    }

    /// The source rank and the number of bytes of each message to receive.
    pub fn receives(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.engine.receives()
    }

    /// How messages get to the transport: [`Pinned`](Staging::Pinned) or [`Device`](Staging::Device).
    pub fn staging(&self) -> Staging {
        self.engine.staging()
    }

    /// The number of bytes that message buffers have now, and the most that they may have.
    pub fn pool_bytes(&self) -> (usize, usize) {
        self.engine.pool_bytes()
    }

    /// The device of the fields.
    pub fn device(&self) -> &Device {
        &self.engine.device
    }

    fn launch<'a, 'f>(
        &'a mut self,
        direction: Direction,
        stream: &Stream,
        fields: &'a mut [Field<'f>],
    ) -> Result<InFlight<'a, 'f>> {
        let route = self.engine.route(direction)?;
        self.check(self.engine.routes(route).writes_owned(), stream, fields)?;
        // From here on other ranks are affected.
        self.state = State::Broken;
        self.channel.begin(footprints(fields), &self.engine)?;
        let flight = Flight::new(&mut self.engine, route, stream, fields);
        let mut flight = flight.inspect_err(|_| {
            self.channel.undo_begin();
            self.state = State::Idle;
        })?;
        flight.receive(&self.engine, &self.channel)?;
        if let Some((route, access)) = self.direct.as_ref().zip(self.channel.direct()) {
            let Channel { exchanges, .. } = self.channel;
            let access = access.called("exchange");
            let declined = access.decline(self.channel.exchange_id(0), exchanges, &route.peers);
            self.declined = Some(declined.map_err(|error| self.channel.failed(error))?);
        }
        self.state = State::Running(flight);
        self.advance(fields)?;
        let messages = self.engine.routes(route).receives.len();
        let corners = (direction == Direction::Fill).then(|| stream.clone());
        Ok(InFlight { exchange: self, fields, messages, corners })
    }

    /// Checks that an exchange of these fields can start.
    fn check(&self, writes_owned: bool, stream: &Stream, fields: &mut [Field<'_>]) -> Result<()> {
        let conflict = match self.state {
            State::Idle => None,
            State::Running(_) => Some("the exchange before was not finished"),
            State::Broken => Some("the exchange before failed"),
        };
        if let Some(why) = conflict {
            let message = format!("{why}; call reset() on every rank");
            return Err(error_of(&self.engine, ErrorKind::Conflict, &message));
        }
        self.engine.check(writes_owned, stream, fields)
    }

    /// Advances the exchange as far as possible without waiting. Returns whether it is complete.
    fn advance(&mut self, fields: &mut [Field<'_>]) -> Result<bool> {
        let State::Running(mut flight) = std::mem::replace(&mut self.state, State::Broken) else {
            return Err(error_of(&self.engine, ErrorKind::Conflict, "the exchange failed before"));
        };
        self.channel.check_claims().map_err(|error| self.channel.failed(error))?;
        let done = flight.advance(&mut self.engine, &self.channel, fields)?;
        self.state = State::Running(flight);
        Ok(done)
    }
}

impl fmt::Debug for HaloExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HaloExchange")
            .field("engine", &self.engine)
            .field("communicator", &self.channel.communicator)
            .field("state", &self.state)
            .finish()
    }
}

/// An exchange in progress. Call [`finish`](Self::finish) to complete it.
///
/// If it is dropped or forgotten before it is finished or [polled](Self::poll) to completion, the exchange has failed:
/// see [`HaloExchange`]. The next exchange is a `Conflict` until [`HaloExchange::reset`].
#[must_use = "halos are filled by finish()"]
#[derive(Debug)]
pub struct InFlight<'a, 'f> {
    exchange: &'a mut HaloExchange,
    fields: &'a mut [Field<'f>],
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
    fn owned(&self, field: usize) -> Option<Result<AnyView<'_>>> {
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
    /// the halos.
    ///
    /// # Errors
    ///
    /// `Timeout`, `PeerLost`. `InvalidArgument` for a message of another exchange or of another method: ranks that use
    /// exchanges or call methods in different orders send such messages. `InvalidArgument` if another rank found that
    /// it shares elements of its fields with a rank, as for [`start`](HaloExchange::start). As for
    /// [`poll`](Self::poll).
    pub fn finish(mut self) -> Result<()> {
        let deadline = deadline(self.exchange.engine.options.timeout);
        loop {
            let seen = self.exchange.channel.communicator.progress();
            if self.poll()? {
                return Ok(());
            }
            let HaloExchange { engine, channel, state, .. } = &mut *self.exchange;
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
