//! The exchange itself: packing, messages, unpacking.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use runtime_core::{AnyView, Combine, Device, Error, ErrorKind, Event, Result, Stream};

use crate::agreement::{Agreement, Brought, agree, all_made};
use crate::communicator::{
    Buffer, Communicator, Declined, Direct, Request, Reset, Storage, deadline, reset,
};
use crate::direct::DirectRoute;
use crate::options::HaloOptions;
use crate::route::Peer;
use crate::stamp;
use crate::statistics::{HaloStatistics, Moved};
use crate::transfer::{Edge, refuse};
use crate::transformer::{Direction, HaloTransformer};
use crate::{Dim, Field, Quantity, Topology};

/// Fills the halos of a set of fields with the values that the neighbours own, repeatedly.
///
/// A program makes one exchange for its fields. Every rank makes it, and calls the same methods for the same exchanges
/// in the same order. Each exchange packs all fields in one launch and sends one message to each neighbour rank, or
/// [several](HaloOptions::messages). It unpacks messages as they arrive, all that are there in one launch. Data that a
/// rank exchanges with itself is copied while packing and never sent. On devices where memories are launch arguments,
/// many memories may need more than one launch: see [`RegionPlan::launches`](runtime_core::RegionPlan::launches).
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
/// If work of a rank fails on its device before its values are packed or read, only the stream of that rank reports the
/// failure. The ghosts that its neighbours get from it are unspecified.
pub struct HaloExchange {
    pub(crate) transformer: HaloTransformer,
    /// Set if ranks read each other's fields directly.
    pub(crate) direct: Option<DirectRoute>,
    pub(crate) communicator: Arc<dyn Communicator>,
    /// Whether all messages of all ranks end with a stamp.
    stamps: bool,
    pub(crate) state: State,
    /// The number of exchanges so far; the same on every rank.
    pub(crate) number: u64,
    /// The serial number of this exchange object on each rank. It distinguishes this one from others of the
    /// communicator.
    serials: Vec<u64>,
    /// Selects the channel's tags that are in use. It is the same on every rank, and changes with each reset.
    epoch: u32,
}

#[derive(Debug)]
pub(crate) enum State {
    Idle,
    Running(Flight),
    /// An exchange failed before it was finished.
    Broken,
}

/// An exchange in progress.
#[derive(Debug)]
pub(crate) struct Flight {
    route: usize,
    stream: Stream,
    packed: Event,
    /// Messages to send once they are packed.
    outgoing: Vec<(usize, Buffer)>,
    sends: Vec<Option<Box<dyn Request>>>,
    receives: Vec<Option<Box<dyn Request>>>,
    /// Messages that arrived and wait to be unpacked together with others.
    arrived: Vec<(usize, Storage)>,
    is_unpacked: bool,
    /// Makes an error for ranks that wait to read this rank's fields directly.
    _declined: Option<Declined>,
}

/// The number of tag sets of a channel. Each reset moves to the next set, so that late messages from before a reset are
/// not mistaken for new ones.
const EPOCHS: u32 = 16;
/// Tags per epoch. Successive exchanges use different tags, so that their messages do not overtake each other.
const TURNS: u32 = 4;
const CHANNEL_TAGS: u32 = EPOCHS * TURNS;

impl HaloExchange {
    /// Makes the exchange of this rank for fields on `device`. All ranks call this together, with the same topology,
    /// quantities and options, and compare their plans.
    ///
    /// Blocks until all ranks have called it, and until they have [chosen](crate::Staging::Auto) the path of their
    /// messages.
    ///
    /// This is a [collective call](Communicator#collective-calls). If a rank is late, all ranks call
    /// [`Communicator::reset`] and make the exchange again. If the error says what does not match, the ranks may make
    /// the exchange again without a reset.
    ///
    /// # Errors
    ///
    /// The errors of [`HaloTransformer::new`]. `InvalidArgument`, on every rank, if the number of ranks of the topology
    /// differs from that of the communicator; if the ranks' topologies, options or fields do not match, with the
    /// attribute that differs and its values; or if another rank failed to make its plan or to measure its messages.
    /// The errors of [`Communicator::all_gather`], including `Timeout`, `PeerLost` and `Conflict`.
    pub fn new(
        communicator: Arc<dyn Communicator>,
        topology: &Topology,
        quantities: &[Quantity],
        device: &Device,
        options: &HaloOptions,
    ) -> Result<Self> {
        let own = Self::plan(&*communicator, topology, quantities, device, options);
        let numbers = (communicator.rank(), communicator.size());
        let is_same = |way: Direct<'_>| way.numbers() == numbers;
        let may_read = options.direct && communicator.direct().is_some_and(is_same);
        let is_direct = may_read && !own.as_ref().is_ok_and(HaloTransformer::prefers_messages);
        let own = own.and_then(|mut own| match is_direct {
            true => Ok(own),
            false => own.route(Direction::Fill).map(|_| own),
        });
        // Within a process, each opened device has its own default stream.
        let shared = if is_direct { device.default_stream().id() } else { 0 };
        let brought = own.as_ref().ok().map(|own| Brought {
            plan: own.fingerprint(),
            transformer: own,
            device: shared,
            stamps: own.stamps(),
            measures: own.staging_is_open() && communicator.size() > 1,
        });
        let serial = communicator.collectives().next_exchange();
        let agreed = agree(&*communicator, brought.as_ref(), serial, options);
        // A rank's own error says more than the error that ranks disagree.
        let mut transformer = own?;
        let Agreement { device, mut stamps, measures, serials } = agreed?;
        // Differs from the epoch of exchanges that failed before the ranks reset.
        let epoch = epoch(communicator.collectives().resets());
        let direct = if device { transformer.direct(&*communicator)? } else { None };
        if direct.is_none() {
            if measures {
                // Ranks that failed to measure may have left messages behind, without a reset.
                let tag = tag(options.channel, self::epoch(serials[0]), 0);
                transformer.measure_staging(&*communicator, tag, &serials)?;
                stamps = transformer.stamps();
            }
            let made = transformer.route(Direction::Fill);
            all_made(&*communicator, made, options.timeout)?;
        }
        Ok(Self {
            transformer,
            direct,
            communicator,
            stamps,
            state: State::Idle,
            number: 0,
            serials,
            epoch,
        })
    }

    fn plan(
        communicator: &dyn Communicator,
        topology: &Topology,
        quantities: &[Quantity],
        device: &Device,
        options: &HaloOptions,
    ) -> Result<HaloTransformer> {
        let (rank, ranks) = (communicator.rank(), communicator.size());
        if topology.ranks() != ranks {
            let planned = topology.ranks();
            let message =
                format!("rank {rank}: a topology of {planned} ranks for a communicator of {ranks}");
            return Err(refuse(message));
        }
        let last = (u64::from(options.channel) + 1) * u64::from(CHANNEL_TAGS);
        if last > communicator.max_tag().into() {
            let channels = communicator.max_tag() / CHANNEL_TAGS;
            let message = format!("rank {rank}: channel {}; there are {channels}", options.channel);
            return Err(refuse(message));
        }
        let passes = communicator.passes_memory_of(device);
        HaloTransformer::with_transport(topology, rank, quantities, device, options, passes)
    }

    /// Starts to fill the halos. Blocks only if the pool is full and must wait for a buffer that is still in use.
    ///
    /// Owned values must not change until packing is done: work enqueued on `stream` later runs after packing. The
    /// ghosts belong to the exchange until it is finished.
    ///
    /// # Errors
    ///
    /// `Conflict` if an earlier exchange was dropped or failed: see [`reset`](Self::reset). `InvalidArgument`,
    /// `WrongDevice` and `LimitExceeded` as for [`HaloTransformer::pack`]; the exchange has not started then. Any other
    /// error comes from the device or the transport.
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

    /// Makes exchanges and [collective calls](Communicator#collective-calls) possible again after an exchange was
    /// dropped or failed. All ranks call this together.
    ///
    /// Blocks until all ranks have called it, for at most twice the timeout: other ranks may first have to wait until
    /// their exchange fails. The ghosts of the abandoned exchange are unspecified.
    ///
    /// Messages of that exchange without a matching receive, and receives without a matching message, keep their tag. A
    /// tag is used again after 16 resets of the communicator or of its exchanges. A later exchange that meets such a
    /// message or receive then fails and must be reset too.
    ///
    /// # Errors
    ///
    /// `Timeout`: call this again; it continues where the earlier call ended, even if other ranks completed it
    /// meanwhile. `PeerLost`. `Conflict` if a reset of another exchange waits for other ranks. `InvalidArgument` if
    /// another rank resets something else. After an error, exchanges are not possible.
    pub fn reset(&mut self) -> Result<()> {
        if let State::Running(_) | State::Broken = self.state {
            self.transformer.forget_buffers();
        }
        // This state remains until all ranks have completed the reset.
        self.state = State::Broken;
        // Some ranks may have started more exchanges than others.
        let own = Reset { what: self.transformer.options().channel.into(), number: self.number };
        let timeout = self.transformer.options().timeout.saturating_mul(2);
        let all = reset(&*self.communicator, own, timeout)
            .map_err(|error| self.failed(error).about("reset"))?;
        if let Some(rank) = all.iter().position(|other| other.what != own.what) {
            let (own_rank, other) = (self.communicator.rank(), all[rank]);
            let message = format!("rank {own_rank} resets {own}, rank {rank} resets {other}");
            return Err(Error::new(ErrorKind::InvalidArgument, "reset", message));
        }
        self.number = all.iter().map(|rank| rank.number).max().unwrap_or(self.number);
        // The same on all ranks, even if a rank completed an earlier reset of this exchange as a reset of the
        // communicator.
        self.epoch = epoch(self.communicator.collectives().resets());
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
        self.transformer.recorder.lock().statistics()
    }

    /// Returns the same as [`HaloTransformer::edges`].
    pub fn edges(&self) -> &[Edge] {
        self.transformer.edges()
    }

    /// Returns the part that packs and unpacks, for its message sizes and its memory use.
    pub fn transformer(&self) -> &HaloTransformer {
        &self.transformer
    }

    /// Returns the number with which a rank marks this exchange. No other exchange of the communicator has the same
    /// mark of that rank.
    pub(crate) fn mark(&self, rank: usize) -> u64 {
        mark(self.serials[rank], self.number)
    }

    fn tag(&self) -> u32 {
        tag(self.transformer.options().channel, self.epoch, self.number)
    }

    fn launch<'a, 'f>(
        &'a mut self,
        direction: Direction,
        stream: &Stream,
        fields: &'a mut [Field<'f>],
    ) -> Result<InFlight<'a, 'f>> {
        let route = self.transformer.route(direction)?;
        let writes_owned = self.transformer.routes(route).writes_owned();
        self.check(writes_owned, stream, fields)?;
        let buffers = self.transformer.receive_buffers(route)?;
        let (outgoing, packed) = match self.transformer.pack_route(route, stream, fields) {
            Ok(packed) => packed,
            Err(error) => {
                buffers.into_iter().for_each(|(_, buffer)| self.transformer.recycle(buffer));
                return Err(error);
            }
        };
        // From here on other ranks are affected.
        self.state = State::Broken;
        self.number += 1;
        let own = self.transformer.routes(route).own_bytes;
        let mut recorder = self.transformer.recorder.lock();
        recorder.begin();
        if own > 0 {
            recorder.moved(self.transformer.rank(), Moved::Copied, own);
        }
        drop(recorder);
        let tag = self.tag();
        let mut receives = Vec::with_capacity(buffers.len());
        let peers = &self.transformer.routes(route).receives;
        for ((rank, buffer), peer) in buffers.into_iter().zip(peers) {
            let buffer = buffer.marked(self.message_mark(rank, peer.part));
            let request = self.communicator.receive(rank, tag, buffer);
            receives.push(Some(request.map_err(|error| self.failed(error))?));
        }
        let takes_any_order = self.transformer.routes(route).takes_any_order();
        let declined = self.direct.as_ref().zip(self.communicator.direct());
        let declined = declined.map(|(route, way)| {
            let declined = way.called("exchange").decline(self.mark(0), &route.peers);
            declined.map_err(|error| self.failed(error))
        });
        let flight = Flight {
            route,
            stream: stream.clone(),
            packed,
            outgoing,
            sends: Vec::new(),
            is_unpacked: takes_any_order && receives.is_empty(),
            receives,
            arrived: Vec::new(),
            _declined: declined.transpose()?,
        };
        self.state = State::Running(flight);
        self.advance(fields)?;
        let messages = self.transformer.routes(route).receives.len();
        let corners = (direction == Direction::Fill).then(|| stream.clone());
        Ok(InFlight { exchange: self, fields, messages, corners })
    }

    /// Checks that an exchange of these fields can start.
    pub(crate) fn check(
        &self,
        writes_owned: bool,
        stream: &Stream,
        fields: &[Field<'_>],
    ) -> Result<()> {
        let conflict = match self.state {
            State::Idle => None,
            State::Running(_) => Some("the exchange before was not finished"),
            State::Broken => Some("the exchange before failed"),
        };
        if let Some(why) = conflict {
            let message = format!("{why}; reset() on every rank begins anew");
            return Err(self.error(ErrorKind::Conflict, message));
        }
        self.transformer.check(writes_owned, stream, fields)
    }

    /// Advances the exchange as far as possible without waiting. Returns whether it is complete.
    fn advance(&mut self, fields: &mut [Field<'_>]) -> Result<bool> {
        let State::Running(mut flight) = std::mem::replace(&mut self.state, State::Broken) else {
            return Err(self.error(ErrorKind::Conflict, "the exchange failed before".to_owned()));
        };
        let done = self.advance_flight(&mut flight, fields)?;
        self.state = State::Running(flight);
        Ok(done)
    }

    fn advance_flight(&mut self, flight: &mut Flight, fields: &mut [Field<'_>]) -> Result<bool> {
        if !flight.outgoing.is_empty() && flight.packed.is_done()? {
            let tag = self.tag();
            self.transformer.recorder.lock().sending();
            let peers = &self.transformer.routes(flight.route).sends;
            for ((rank, mut buffer), peer) in flight.outgoing.drain(..).zip(peers) {
                self.transformer.recorder.lock().moved(rank, Moved::Sent, buffer.len());
                let mark = self.message_mark(self.communicator.rank(), peer.part);
                stamp::write(&mut buffer, mark.to_le_bytes())
                    .map_err(|error| self.failed(error))?;
                let request = self.communicator.send(rank, tag, buffer.marked(mark));
                flight.sends.push(Some(request.map_err(|error| self.failed(error))?));
            }
        }
        for (index, place) in flight.receives.iter_mut().enumerate() {
            if let Some(buffer) = self.complete(place)? {
                self.check_stamp(&buffer, flight.route, index)?;
                let peer = self.transformer.routes(flight.route).receives[index];
                self.transformer.recorder.lock().moved(peer.rank, Moved::Received, peer.bytes);
                flight.arrived.push((index, buffer.into_storage()));
            }
        }
        let are_all_there = flight.receives.iter().all(Option::is_none);
        if are_all_there {
            self.transformer.recorder.lock().all_received();
        }
        let takes_any_order = self.transformer.routes(flight.route).takes_any_order();
        let has_work = match takes_any_order {
            true => !flight.arrived.is_empty(),
            false => are_all_there && !flight.is_unpacked,
        };
        if has_work {
            let batch = std::mem::take(&mut flight.arrived);
            self.transformer.unpack_route(flight.route, &flight.stream, fields, batch)?;
            flight.is_unpacked = are_all_there;
        }
        for place in &mut flight.sends {
            if let Some(buffer) = self.complete(place)? {
                self.transformer.recycle(buffer);
            }
        }
        let are_all_sent = flight.outgoing.is_empty() && flight.sends.iter().all(Option::is_none);
        Ok(flight.is_unpacked && are_all_sent)
    }

    /// Returns the buffer of a request that is complete: the buffer that the request got, or an equal one.
    fn complete(&self, place: &mut Option<Box<dyn Request>>) -> Result<Option<Buffer>> {
        let Some(request) = place else { return Ok(None) };
        let tested = request.test().map_err(|error| self.failed(error))?;
        if let Some(buffer) = &tested {
            let envelope = request.envelope();
            if !self.transformer.is_like_own(buffer, envelope.len) {
                let message = format!("{:?} came back from the {envelope}", buffer.storage());
                return Err(self.failed(envelope.invalid(message)));
            }
            *place = None;
        }
        Ok(tested)
    }

    /// The number that identifies a message: the mark of its sender, and the number of the message among the sender's.
    fn message_mark(&self, sender: usize, part: usize) -> u64 {
        const PART: u32 = 48;
        self.mark(sender) ^ (part as u64) << PART
    }

    /// Refuses a message if the host can see that the transport returned it before its bytes had arrived, or that it is
    /// a different message.
    fn check_stamp(&self, buffer: &Buffer, route: usize, message: usize) -> Result<()> {
        if !self.stamps {
            return Ok(());
        }
        let Peer { rank, part, .. } = self.transformer.routes(route).receives[message];
        let read = stamp::read(buffer);
        let stamp = read.map_err(|error| {
            self.failed(error.about(format_args!("the message from rank {rank}")))
        })?;
        // Compares with the sender's mark, not with this rank's: the sender's mark in a record is valid for every
        // replay.
        if stamp.is_none_or(|stamp| stamp == self.message_mark(rank, part).to_le_bytes()) {
            return Ok(());
        }
        let message = format!("the bytes from rank {rank} are not those of part {part}");
        Err(self.failed(Error::new(ErrorKind::Driver, "exchange", message)))
    }

    /// Adds the number of the exchange and the rank to an error of the transport.
    #[cold]
    pub(crate) fn failed(&self, error: Error) -> Error {
        let (number, rank) = (self.number, self.communicator.rank());
        error.about(format_args!("exchange {number} of rank {rank}"))
    }

    /// Blocks until more can be done.
    fn wait(&self, seen: u64, deadline: Instant) -> Result<()> {
        let State::Running(flight) = &self.state else { return Ok(()) };
        if !flight.outgoing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            return flight.packed.wait_for(left);
        }
        self.communicator.wait_beyond(seen, deadline);
        Ok(())
    }

    #[cold]
    fn late(&self) -> Error {
        let State::Running(flight) = &self.state else {
            return self.error(ErrorKind::Timeout, "nothing was left to wait for".to_owned());
        };
        let route = self.transformer.routes(flight.route);
        let open = |requests: &[Option<Box<dyn Request>>], peers: &[Peer]| -> Vec<usize> {
            let open = requests.iter().zip(peers).filter(|(request, _)| request.is_some());
            let mut ranks: Vec<usize> = open.map(|(_, peer)| peer.rank).collect();
            ranks.dedup();
            ranks
        };
        let timeout = self.transformer.options().timeout;
        let message = format!(
            "waited {timeout:?} for messages from ranks {:?} and to ranks {:?}",
            open(&flight.receives, &route.receives),
            open(&flight.sends, &route.sends)
        );
        self.error(ErrorKind::Timeout, message)
    }

    fn error(&self, kind: ErrorKind, message: String) -> Error {
        let message = format!("rank {}: {message}", self.transformer.rank());
        Error::new(kind, "exchange", message).on(self.transformer.device().id())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder of a small number")]
fn epoch(number: u64) -> u32 {
    (number % u64::from(EPOCHS)) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder of a small number")]
fn tag(channel: u32, epoch: u32, number: u64) -> u32 {
    let turn = (number % u64::from(TURNS)) as u32;
    // Tag 0 belongs to collective calls.
    1 + channel * CHANNEL_TAGS + epoch * TURNS + turn
}

/// The mark of the messages of a rank's exchange.
pub(crate) fn mark(serial: u64, number: u64) -> u64 {
    (serial << u32::BITS).wrapping_add(number)
}

impl fmt::Debug for HaloExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HaloExchange")
            .field("transformer", &self.transformer)
            .field("communicator", &self.communicator)
            .field("state", &self.state)
            .finish()
    }
}

/// An exchange in progress. Call [`finish`](Self::finish) to complete it.
///
/// If it is dropped or forgotten before it is finished or [polled](Self::poll) to completion, the next exchange is a
/// `Conflict` until [`HaloExchange::reset`].
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
    /// Blocks only to set the last ghosts to [averages](crate::MissingCorners::Average).
    ///
    /// If messages go through host memory, the first call after packing is done sends them: call this from time to time
    /// while other work runs.
    ///
    /// # Errors
    ///
    /// The errors that the device or the transport reports; the exchange has then failed.
    pub fn poll(&mut self) -> Result<bool> {
        if let State::Idle = self.exchange.state {
            return Ok(true);
        }
        let done = self.exchange.advance(self.fields)?;
        if done {
            if let Some(stream) = &self.corners {
                self.exchange.state = State::Broken;
                self.exchange.transformer.average_corners(stream, self.fields)?;
            }
            // Only now: if the caller never saw that the exchange is complete, it counts as abandoned.
            self.exchange.state = State::Idle;
        }
        Ok(done)
    }

    /// Returns the values of a field that the rank owns, if the field exists.
    pub(crate) fn owned(&self, field: usize) -> Option<Result<AnyView<'_>>> {
        let spec = self.exchange.transformer.specs().get(field)?;
        let owned: Vec<Range<usize>> = spec.dims().iter().map(Dim::owned).collect();
        Some(self.fields.get(field)?.view().region(&owned))
    }

    /// Returns the number of messages whose unpacking is enqueued.
    pub fn unpacked(&self) -> usize {
        match &self.exchange.state {
            State::Running(flight) => {
                flight.receives.iter().filter(|place| place.is_none()).count()
                    - flight.arrived.len()
            }
            _ => self.messages,
        }
    }

    /// Blocks until all messages have arrived and unpacking is enqueued. Work enqueued on the stream from now on sees
    /// the halos.
    ///
    /// # Errors
    ///
    /// `Timeout`, `PeerLost`. `InvalidArgument` for a message of another exchange: ranks that use several exchanges in
    /// different orders send such messages. The errors that the device or the transport reports. After any error the
    /// exchange has failed.
    pub fn finish(mut self) -> Result<()> {
        let deadline = deadline(self.exchange.transformer.options().timeout);
        loop {
            let seen = self.exchange.communicator.progress();
            if self.poll()? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let error = self.exchange.late();
                self.exchange.state = State::Broken;
                return Err(error);
            }
            self.exchange.wait(seen, deadline)?;
        }
    }
}
