//! The messages of one exchange while they are in transit.

use std::mem;
use std::time::Instant;

use runtime_core::{Error, ErrorKind, Event, Result, Stream, interrupt};

use super::channel::Channel;
use crate::communicator::{Buffer, Request, Storage};
use crate::engine::route::{Direction, Peer};
use crate::engine::statistics::Moved;
use crate::engine::{Engine, stamp};
use crate::field::Field;

/// An exchange in progress.
#[derive(Debug)]
pub(super) struct Flight {
    /// The route that is in progress.
    route: usize,
    /// The number of messages of earlier routes, which are unpacked.
    received: usize,
    stream: Stream,
    /// The failures of the stream that were reported before the exchange.
    failures: u64,
    packed: Event,
    /// Messages to send once they are packed.
    outgoing: Vec<(usize, Buffer)>,
    /// Buffers of messages whose receives are not yet started.
    incoming: Vec<(usize, Buffer)>,
    sends: Vec<Option<Box<dyn Request>>>,
    receives: Vec<Option<Box<dyn Request>>>,
    /// Messages that arrived and wait to be unpacked together with others.
    arrived: Vec<(usize, Storage)>,
    is_unpacked: bool,
    /// An error that is returned when this rank has sent its messages.
    failed: Option<Error>,
}

impl Flight {
    /// Takes buffers for all messages of the route, and enqueues packing. If it fails, nothing is left behind.
    pub(super) fn new(
        engine: &mut Engine,
        route: usize,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<Self> {
        let failures = engine.failures(stream);
        let incoming = engine.receive_buffers(route)?;
        let (outgoing, packed) = match engine.pack(route, stream, fields) {
            Ok(packed) => packed,
            Err(error) => {
                incoming.into_iter().for_each(|(_, buffer)| engine.recycle(buffer));
                return Err(error);
            }
        };
        Ok(Self {
            route,
            received: 0,
            stream: stream.clone(),
            failures,
            packed,
            outgoing,
            is_unpacked: incoming.is_empty() && engine.routes(route).takes_any_order(),
            incoming,
            sends: Vec::new(),
            receives: Vec::new(),
            arrived: Vec::new(),
            failed: None,
        })
    }

    /// After a route is complete, begins the next one as [`new`](Self::new) does. Returns whether there is one.
    pub(super) fn next_route(
        &mut self,
        engine: &mut Engine,
        fields: &mut [Field<'_>],
    ) -> Result<bool> {
        let Some(next) = engine.next_route(self.route) else { return Ok(false) };
        let received = self.received + self.receives.len();
        let flight = Self::new(engine, next, &self.stream, fields)?;
        *self = Self { received, failures: self.failures, ..flight };
        Ok(true)
    }

    pub(super) const fn route(&self) -> usize {
        self.route
    }

    /// Starts to receive all messages.
    pub(super) fn receive(&mut self, engine: &Engine, channel: &Channel) -> Result<()> {
        let route = engine.routes(self.route);
        let mut recorder = engine.recorder();
        recorder.begin();
        if route.own_bytes > 0 {
            recorder.moved(engine.rank, Moved::Copied, route.own_bytes);
        }
        drop(recorder);
        for ((rank, buffer), peer) in self.incoming.drain(..).zip(&route.receives) {
            let buffer = channel.label(buffer, rank, route.direction(), peer.part);
            let request = channel.communicator.receive(rank, channel.tag(), buffer);
            self.receives.push(Some(request.map_err(|error| channel.failed(error))?));
        }
        Ok(())
    }

    /// Fails if steps of the exchange may have been skipped behind a failure that was reported since it began.
    pub(super) fn check(&self, engine: &Engine) -> Result<()> {
        engine.check_since(&self.stream, self.failures)
    }

    /// Advances as far as possible without waiting. Returns whether the exchange is complete.
    ///
    /// If a receive fails before this rank has sent its messages, it returns the error only after that. Otherwise the
    /// neighbours would wait for these messages.
    pub(super) fn advance(
        &mut self,
        engine: &mut Engine,
        channel: &Channel,
        fields: &mut [Field<'_>],
    ) -> Result<bool> {
        let is_packed = !self.outgoing.is_empty() && self.packed.is_done()?;
        // Packing may have left old values in a message.
        self.check(engine)?;
        if is_packed {
            self.send(engine, channel)?;
        }
        let advanced = match self.failed.take() {
            Some(error) => Err(error),
            None => self.receive_arrived(engine, channel, fields),
        };
        match advanced {
            Err(error) if !self.outgoing.is_empty() => {
                self.failed = Some(error);
                Ok(false)
            }
            advanced => advanced,
        }
    }

    /// Unpacks the messages that have arrived, and takes back the buffers of those that are sent. Returns whether the
    /// exchange is complete.
    fn receive_arrived(
        &mut self,
        engine: &mut Engine,
        channel: &Channel,
        fields: &mut [Field<'_>],
    ) -> Result<bool> {
        for (index, place) in self.receives.iter_mut().enumerate() {
            let route = engine.routes(self.route);
            let peer = route.receives[index];
            if let Some(buffer) = complete(engine, channel, place, peer.bytes)? {
                check_stamp(channel, &buffer, route.direction(), peer)?;
                engine.recorder().moved(peer.rank, Moved::Received, peer.bytes);
                self.arrived.push((index, buffer.into_storage()));
            }
        }
        let all_arrived = self.receives.iter().all(Option::is_none);
        if all_arrived {
            engine.recorder().all_received();
        }
        let has_work = match engine.routes(self.route).takes_any_order() {
            true => !self.arrived.is_empty(),
            false => all_arrived && !self.is_unpacked,
        };
        if has_work {
            engine.unpack(self.route, &self.stream, fields, mem::take(&mut self.arrived))?;
            self.is_unpacked = all_arrived;
        }
        for (index, place) in self.sends.iter_mut().enumerate() {
            let bytes = engine.routes(self.route).sends[index].bytes;
            if let Some(buffer) = complete(engine, channel, place, bytes)? {
                engine.recycle(buffer);
            }
        }
        let all_sent = self.outgoing.is_empty() && self.sends.iter().all(Option::is_none);
        Ok(self.is_unpacked && all_sent)
    }

    /// Starts to send all messages, which are packed.
    fn send(&mut self, engine: &Engine, channel: &Channel) -> Result<()> {
        engine.recorder().sending();
        let route = engine.routes(self.route);
        for ((rank, buffer), peer) in self.outgoing.drain(..).zip(&route.sends) {
            engine.recorder().moved(rank, Moved::Sent, buffer.len());
            let mut buffer = channel.label(buffer, engine.rank, route.direction(), peer.part);
            let stamp = buffer.message_id().to_le_bytes();
            let stamped = stamp::write(&mut buffer, stamp);
            let request =
                stamped.and_then(|()| channel.communicator.send(rank, channel.tag(), buffer));
            self.sends.push(Some(request.map_err(|error| channel.failed(error))?));
        }
        Ok(())
    }

    /// The number of messages whose unpacking is enqueued.
    pub(super) fn unpacked(&self) -> usize {
        let arrived = self.receives.iter().filter(|place| place.is_none()).count();
        self.received + arrived - self.arrived.len()
    }

    /// Blocks until more can be done.
    pub(super) fn wait(&self, channel: &Channel, seen: u64, deadline: Instant) -> Result<()> {
        if !self.outgoing.is_empty() {
            let packed = self.packed.wait_for(deadline.saturating_duration_since(Instant::now()));
            return packed.map_err(|error| self.failed.clone().unwrap_or(error));
        }
        channel.communicator.wait_beyond(seen, deadline);
        interrupt::check()
    }

    /// The error after the timeout.
    #[cold]
    pub(super) fn late(&self, engine: &Engine) -> Error {
        let route = engine.routes(self.route);
        let open = |requests: &[Option<Box<dyn Request>>], peers: &[Peer]| -> Vec<usize> {
            let open = requests.iter().zip(peers).filter(|(request, _)| request.is_some());
            let mut ranks: Vec<usize> = open.map(|(_, peer)| peer.rank).collect();
            ranks.dedup();
            ranks
        };
        let message = format!(
            "waited {:?} for messages from ranks {:?} and to ranks {:?}",
            engine.settings.timeout,
            open(&self.receives, &route.receives),
            open(&self.sends, &route.sends)
        );
        self.failed.clone().unwrap_or_else(|| error_of(engine, ErrorKind::Timeout, &message))
    }
}

/// Returns the buffer of a request that is complete: the buffer of `bytes` that the request got, or an equal one.
fn complete(
    engine: &Engine,
    channel: &Channel,
    place: &mut Option<Box<dyn Request>>,
    bytes: usize,
) -> Result<Option<Buffer>> {
    let Some(request) = place else { return Ok(None) };
    let tested = request.test().map_err(|error| channel.failed(error))?;
    if let Some(buffer) = &tested {
        let envelope = request.envelope();
        if !engine.is_like_own(buffer, bytes) {
            let message = format!("{:?} came back from the {envelope}", buffer.storage());
            return Err(channel.failed(envelope.invalid(message)));
        }
        *place = None;
    }
    Ok(tested)
}

/// Refuses a message if the host can see that the transport returned it before its bytes had arrived, or that it is a
/// different message.
fn check_stamp(
    channel: &Channel,
    buffer: &Buffer,
    direction: Direction,
    Peer { rank, part, .. }: Peer,
) -> Result<()> {
    if !channel.stamps {
        return Ok(());
    }
    let stamp = stamp::read(buffer).map_err(|error| {
        channel.failed(error.about(format_args!("the message from rank {rank}")))
    })?;
    let id = channel.message_id(rank, direction, part);
    if stamp.is_none_or(|stamp| stamp == id.to_le_bytes()) {
        return Ok(());
    }
    let message = format!("the bytes from rank {rank} are not those of part {part}");
    Err(channel.failed(Error::new(ErrorKind::Driver, "exchange", message)))
}

/// An error of an exchange of the engine's rank.
#[cold]
pub(super) fn error_of(engine: &Engine, kind: ErrorKind, message: &str) -> Error {
    let message = format!("rank {}: {message}", engine.rank);
    Error::new(kind, "exchange", message).on(engine.device.id())
}
