//! The exchange itself: packing, messages, unpacking.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use runtime_core::{Combine, Device, Error, ErrorKind, Event, MemoryView, Result, Stream};

use crate::agreement::{Agreement, Brought, agree, all_made};
use crate::communicator::{
    Buffer, Communicator, Declined, Request, Reset, Storage, deadline, reset,
};
use crate::direct::DirectRoute;
use crate::options::HaloOptions;
use crate::route::Peer;
use crate::stamp;
use crate::statistics::{HaloStatistics, Moved};
use crate::transfer::{Edge, refuse};
use crate::transformer::{Direction, HaloTransformer};
use crate::{Dim, Field, Quantity, Topology};

/// Fills the halos of a set of fields with what the neighbours own there, again and again.
///
/// Made once for the fields of a program; every rank makes it, and calls it for the same exchanges in the same order, by
/// the same methods. Each exchange packs all fields in one launch, sends one message to each neighbour rank, or
/// [several](HaloOptions::messages), and unpacks messages as they arrive, in one launch for all that are there. What a rank
/// exchanges with itself is copied as it packs and never sent. Where memories are arguments of launches, which
/// [`RegionPlan::launches`](runtime_core::RegionPlan::launches) tells of, more than one launch may be needed for many of them.
///
/// Ranks that are threads of one process, with fields on clones of one [`Device`], need no messages in
/// [`exchange`](Self::exchange) and [`overlap`](Self::overlap): one launch copies from what the neighbours own to the ghosts.
/// See [`HaloOptions::direct`].
///
/// Work is enqueued on the caller's stream: packing comes after everything enqueued there before, and what is enqueued
/// after [`finish`](InFlight::finish) comes after unpacking. The host waits for messages, and for packing where messages
/// go through host memory, but not for unpacking. Where the device does not copy regions itself, each launch blocks until it
/// is done: see [`RegionPlan`](runtime_core::RegionPlan).
///
/// If work of a rank fails on its device before its values are packed or read, its stream reports that, and no other rank
/// does: the ghosts that neighbours get from it are unspecified.
pub struct HaloExchange {
    pub(crate) transformer: HaloTransformer,
    /// Where ranks read each other's fields.
    pub(crate) direct: Option<DirectRoute>,
    pub(crate) communicator: Arc<dyn Communicator>,
    /// Whether all messages of all ranks end with their mark.
    stamps: bool,
    pub(crate) state: State,
    /// Counts exchanges; the same on every rank.
    pub(crate) number: u64,
    /// What tells it from others of the communicator: a number of each rank.
    serials: Vec<u64>,
    /// Which of the channel's tags it uses; the same on every rank, and another one after each reset.
    epoch: u32,
}

#[derive(Debug)]
pub(crate) enum State {
    Idle,
    Running(Flight),
    /// An exchange failed half-way.
    Broken,
}

/// An exchange on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    route: usize,
    stream: Stream,
    packed: Event,
    /// Packed messages that were not sent yet.
    outgoing: Vec<(usize, Buffer)>,
    sends: Vec<Option<Box<dyn Request>>>,
    receives: Vec<Option<Box<dyn Request>>>,
    /// Messages that wait for others to be unpacked with them.
    arrived: Vec<(usize, Storage)>,
    is_unpacked: bool,
    /// What tells ranks that wait for this one's fields instead.
    _declined: Option<Declined>,
}

/// Tags of a channel. After each reset others are used, so that messages from before are not taken for later ones.
const EPOCHS: u32 = 16;
/// Tags of an epoch. Exchanges take turns, so that messages of two of them do not overtake each other.
const TURNS: u32 = 4;
const CHANNEL_TAGS: u32 = EPOCHS * TURNS;

impl HaloExchange {
    /// The exchange of this rank for fields on `device`. All ranks call it at once, with the same topology, quantities
    /// and options, and compare what they planned.
    ///
    /// Blocks until all ranks are there, and until they have [chosen](crate::Staging::Auto) the way of their messages.
    ///
    /// This is a [collective call](Communicator#collective-calls). If a rank is late, all ranks call
    /// [`Communicator::reset`], and make the exchange again. If the ranks are told what does not fit, they may make it again
    /// at once.
    ///
    /// # Errors
    ///
    /// Those of [`HaloTransformer::new`]; `InvalidArgument`, on every rank, if the topology has not as many ranks as the
    /// communicator, if the ranks' topologies, options or fields do not fit together, with the attribute that differs and
    /// its values, or if another rank failed to make its plan or to measure its messages; those of [`Communicator::all_gather`], `Timeout`, `PeerLost` and `Conflict` among
    /// them.
    pub fn new(
        communicator: Arc<dyn Communicator>,
        topology: &Topology,
        quantities: &[Quantity],
        device: &Device,
        options: &HaloOptions,
    ) -> Result<Self> {
        let own = Self::plan(&*communicator, topology, quantities, device, options);
        let may_read = options.direct && communicator.direct().is_some();
        let is_direct = may_read && !own.as_ref().is_ok_and(HaloTransformer::prefers_messages);
        let own = own.and_then(|mut own| match is_direct {
            true => Ok(own),
            false => own.route(Direction::Fill).map(|_| own),
        });
        // Within a process, each opened device has a default stream of its own.
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
        // Its own failure tells a rank more than that ranks disagree.
        let mut transformer = own?;
        let Agreement { device, mut stamps, measures, serials } = agreed?;
        // Another one than that of exchanges that failed before the ranks reset.
        let epoch = epoch(communicator.collectives().resets());
        let direct = if device { transformer.direct(&*communicator)? } else { None };
        if direct.is_none() {
            if measures {
                // Ranks that could not measure may have left messages, without a reset.
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

    /// Begins to fill the halos. Does not block, unless the pool has no room left.
    ///
    /// Owned values must not change until the packing is done, which work enqueued on `stream` later waits for; ghosts
    /// belong to the exchange until it is finished.
    ///
    /// # Errors
    ///
    /// `Conflict` if an earlier exchange was dropped or failed: see [`reset`](Self::reset). `InvalidArgument`,
    /// `WrongDevice` and `LimitExceeded` as [`HaloTransformer::pack`]: nothing has happened then. Otherwise what the
    /// device or the transport reports.
    pub fn start<'a, 'f>(
        &'a mut self,
        stream: &Stream,
        fields: &'a mut [Field<'f>],
    ) -> Result<InFlight<'a, 'f>> {
        self.launch(Direction::Fill, stream, fields)
    }

    /// Begins the reverse: each owned element is combined with all ghosts that are copies of it. Ghosts stay as they are.
    ///
    /// Contributions come in a fixed order, by the rank that holds the ghost, side and field, so that results do not
    /// depend on which message is first. Vectors are turned and negated as on their way out. With
    /// [`Combine::Replace`] the last contribution stays.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); `InvalidArgument` if a field's elements do not admit the operation, `Conflict` for a
    /// field whose owned values are lent to read.
    pub fn start_reduce<'a, 'f>(
        &'a mut self,
        stream: &Stream,
        fields: &'a mut [Field<'f>],
        combine: Combine,
    ) -> Result<InFlight<'a, 'f>> {
        self.launch(Direction::Reduce(combine), stream, fields)
    }

    /// The reverse: [`start_reduce`](Self::start_reduce) and [`finish`](InFlight::finish).
    ///
    /// # Errors
    ///
    /// Theirs.
    pub fn reduce(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        combine: Combine,
    ) -> Result<()> {
        self.start_reduce(stream, fields, combine)?.finish()
    }

    /// Makes the points that two ranks share the same on both, for fields staggered along one axis: the rank that has
    /// them at the high end of its block takes those of its neighbour, which has them at the low end. Where two like
    /// ends meet, the later rank takes them.
    ///
    /// Other fields are left alone.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); `InvalidArgument` if a field is staggered along more than one axis, or a block is joined
    /// to itself so that its points have no owner; `Conflict` for a field whose owned values are lent to read.
    pub fn synchronize_shared(&mut self, stream: &Stream, fields: &mut [Field<'_>]) -> Result<()> {
        self.launch(Direction::Shared, stream, fields)?.finish()
    }

    /// Makes exchanges possible again after one that was dropped or failed, and
    /// [collective calls](Communicator#collective-calls) with them. All ranks call it at once.
    ///
    /// Blocks until all ranks are there, for at most twice the timeout: others may have to wait for the exchange to fail
    /// before they come. Ghosts of the exchange that was given up are unspecified.
    ///
    /// Messages of that exchange that met no receive, and receives that met no message, keep their tag, which comes again after
    /// 16 resets of the communicator or of its exchanges. The later exchange that meets one is an error then, and to be reset in turn.
    ///
    /// # Errors
    ///
    /// `Timeout`: call it again, which goes on where this one ended, also if others got through meanwhile. `PeerLost`;
    /// `Conflict` if a reset of another exchange waits for other ranks; `InvalidArgument` if another rank resets something
    /// else. Exchanges are not possible then.
    pub fn reset(&mut self) -> Result<()> {
        if let State::Running(_) | State::Broken = self.state {
            self.transformer.forget_buffers();
        }
        // Until all ranks have got through.
        self.state = State::Broken;
        // Some may have got further than others.
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
        // The same everywhere, also if a rank finished an earlier reset of this exchange as one of the communicator.
        self.epoch = epoch(self.communicator.collectives().resets());
        self.state = State::Idle;
        Ok(())
    }

    /// What exchanges moved so far, and how long that took as far as the device is done with it. Does not block.
    ///
    /// Times are there if the [options](HaloOptions::timing) ask for them; at most 64 launches are measured at a time.
    ///
    /// # Errors
    ///
    /// What the device reports.
    pub fn statistics(&self) -> Result<HaloStatistics> {
        self.transformer.recorder.lock().statistics()
    }

    /// As [`HaloTransformer::edges`].
    pub fn edges(&self) -> &[Edge] {
        self.transformer.edges()
    }

    /// Packing and unpacking, to ask it for its messages and its memory.
    pub fn transformer(&self) -> &HaloTransformer {
        &self.transformer
    }

    /// What a rank marks this exchange with: no other exchange of the communicator has the same mark of that rank.
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
        // From here on other ranks take notice.
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

    /// Checks that an exchange of these fields can begin.
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

    /// Does what can be done without waiting; whether that was all.
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

    /// The buffer of a request that is complete: the one that it got, or one like it.
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

    /// What tells a message from others: the mark of its sender, and which of its messages it is.
    fn message_mark(&self, sender: usize, part: usize) -> u64 {
        const PART: u32 = 48;
        self.mark(sender) ^ (part as u64) << PART
    }

    /// Refuses a message whose bytes the transport gave out before they were there, or that it took for another, where the
    /// host sees that.
    fn check_stamp(&self, buffer: &Buffer, route: usize, message: usize) -> Result<()> {
        if !self.stamps {
            return Ok(());
        }
        let Peer { rank, part, .. } = self.transformer.routes(route).receives[message];
        let read = stamp::read(buffer);
        let stamp = read.map_err(|error| {
            self.failed(error.about(format_args!("the message from rank {rank}")))
        })?;
        // Its sender's mark, and not this rank's: what was recorded holds for every replay.
        if stamp.is_none_or(|stamp| stamp == self.message_mark(rank, part).to_le_bytes()) {
            return Ok(());
        }
        let message = format!("the bytes from rank {rank} are not those of part {part}");
        Err(self.failed(Error::new(ErrorKind::Driver, "exchange", message)))
    }

    /// What the transport reports, and of which exchange.
    #[cold]
    pub(crate) fn failed(&self, error: Error) -> Error {
        let (number, rank) = (self.number, self.communicator.rank());
        error.about(format_args!("exchange {number} of rank {rank}"))
    }

    /// Blocks until there may be more to do.
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
    // Tag 0 is that of collective calls.
    1 + channel * CHANNEL_TAGS + epoch * TURNS + turn
}

/// What marks the messages of a rank's exchange.
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

/// An exchange on its way: [`finish`](Self::finish) it.
///
/// If it is dropped or forgotten before it is finished or [polled](Self::poll) to its end, the next exchange is a `Conflict`
/// until [`HaloExchange::reset`].
#[must_use = "halos are filled by finish()"]
#[derive(Debug)]
pub struct InFlight<'a, 'f> {
    exchange: &'a mut HaloExchange,
    fields: &'a mut [Field<'f>],
    /// Messages it receives.
    messages: usize,
    /// Where corners may have to be averaged.
    corners: Option<Stream>,
}

impl InFlight<'_, '_> {
    /// Sends what is packed, unpacks what has arrived; whether that was all. Does not block, unless it sets the last ghosts to
    /// [averages](crate::MissingCorners::Average).
    ///
    /// Where messages go through host memory they leave with the first call after packing is done: call it now and then
    /// while other work runs.
    ///
    /// # Errors
    ///
    /// What the device or the transport reports; the exchange has failed then.
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
            // Only now: an exchange that its caller did not see done was given up.
            self.exchange.state = State::Idle;
        }
        Ok(done)
    }

    /// What the rank owns of a field, if there is such a field.
    pub(crate) fn owned(&self, field: usize) -> Option<Result<MemoryView<'_>>> {
        let spec = self.exchange.transformer.specs().get(field)?;
        let owned: Vec<Range<usize>> = spec.dims().iter().map(Dim::owned).collect();
        Some(self.fields.get(field)?.view().region(&owned))
    }

    /// Messages of which the unpacking is enqueued.
    pub fn unpacked(&self) -> usize {
        match &self.exchange.state {
            State::Running(flight) => {
                flight.receives.iter().filter(|place| place.is_none()).count()
                    - flight.arrived.len()
            }
            _ => self.messages,
        }
    }

    /// Blocks until all messages are there and unpacking is enqueued. Work enqueued on the stream from now on sees the
    /// halos.
    ///
    /// # Errors
    ///
    /// `Timeout`, `PeerLost`; `InvalidArgument` for a message of another exchange, which ranks that use several in unlike
    /// orders send; what the device or the transport reports. The exchange has failed then.
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
