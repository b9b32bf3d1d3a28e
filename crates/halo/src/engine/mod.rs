//! The engine of an exchange: it packs the fields of one rank into messages, and unpacks the messages that the rank
//! received.

pub(crate) mod corner;
pub(crate) mod devices;
pub(crate) mod direct;
pub(crate) mod halo;
pub(crate) mod launches;
pub(crate) mod lists;
pub(crate) mod pool;
pub(crate) mod route;
pub(crate) mod stamp;
pub(crate) mod statistics;

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use runtime_core::{Device, Error, ErrorKind, Event, Result, Stream};
use smallvec::{SmallVec, smallvec};

use self::corner::Corners;
use self::halo::HaloSource;
use self::lists::ForestSource;
use self::pool::Pool;
use self::route::{Direction, Route};
use self::statistics::{Part, Recorder, StagingTimes};
use crate::communicator::{Buffer, Storage, deadline};
use crate::field::{Access, Field, FieldSpec, abandon_writes, describe_other};
use crate::options::{Settings, Staging};
use crate::plan::attributes::Attributes;
use crate::plan::fingerprint::PlanFingerprint;
use crate::plan::transfer::refuse;
use crate::plan::{Message, Plan};

/// Packs and unpacks the fields of one rank.
pub(crate) struct Engine {
    pub(crate) rank: usize,
    source: Source,
    pub(crate) device: Device,
    pub(crate) settings: Settings,
    /// Whether messages go through pinned memory.
    staged: bool,
    /// Whether the host can address the device's memory.
    is_addressable: bool,
    /// Whether the other staging is possible, too.
    pub(crate) staging_is_open: bool,
    routes: Vec<Route>,
    corners: Option<Corners>,
    recorder: Mutex<Recorder>,
    pub(crate) pool: Arc<Mutex<Pool>>,
    /// The stream of the latest launch, and the event at the end of that launch.
    last: Option<(Stream, Event)>,
}

/// What an engine exchanges.
#[derive(Debug)]
pub(crate) enum Source {
    Halo(Arc<HaloSource>),
    Forest(Box<ForestSource>),
}

impl Source {
    fn specs(&self) -> &[FieldSpec] {
        match self {
            Self::Halo(halo) => halo.specs(),
            Self::Forest(forest) => &forest.lists.arrays,
        }
    }

    /// The rank and the number of bytes of each message to send.
    fn sends(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let plans = self.halo().into_iter().flat_map(|halo| halo.filling());
        let lists = self.forest().into_iter().flat_map(|forest| sizes(&forest.lists.sends));
        plans.flat_map(|(_, plan)| sizes(&plan.sends)).chain(lists)
    }

    /// The rank and the number of bytes of each message to receive.
    fn receives(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let plans = self.halo().into_iter().flat_map(|halo| halo.filling());
        let lists = self.forest().into_iter().flat_map(|forest| sizes(&forest.lists.receives));
        plans.flat_map(|(_, plan)| sizes(&plan.receives)).chain(lists)
    }

    fn halo(&self) -> Option<&HaloSource> {
        match self {
            Self::Halo(halo) => Some(halo),
            Self::Forest(_) => None,
        }
    }

    fn forest(&self) -> Option<&ForestSource> {
        match self {
            Self::Halo(_) => None,
            Self::Forest(forest) => Some(forest),
        }
    }

    /// The bytes of the messages that fill halos, or of those of a reduction if these are more.
    fn message_bytes(&self) -> usize {
        let whole = self.halo().map_or(0, |HaloSource { plan, .. }| of_plan(plan));
        sum(self.sends().chain(self.receives())).max(whole)
    }

    /// How an exchange uses a field.
    fn access(&self, field: usize, direction: Direction) -> Access {
        match (self, direction) {
            (Self::Halo(_), Direction::Fill | Direction::Axis(_)) => Access::WriteGhosts,
            (Self::Halo(_), _) => Access::Write,
            (Self::Forest(_), direction) => ForestSource::access(field, direction),
        }
    }
}

impl Engine {
    /// Makes no launches yet. `passes_memory` says whether the transport may pass the device's memory.
    pub(crate) fn new(
        source: Source,
        rank: usize,
        device: &Device,
        settings: Settings,
        passes_memory: bool,
    ) -> Result<Self> {
        let is_addressable = stamp::is_addressable(device)?;
        let (staged, staging_is_open) = match settings.staging {
            Staging::Pinned => (true, false),
            Staging::Device => (false, false),
            Staging::Auto if is_addressable => (false, false),
            Staging::Auto => (!passes_memory, passes_memory),
        };
        let limit = settings.pool_bytes.unwrap_or_else(|| default_limit(source.message_bytes()));
        let corners = match &source {
            Source::Halo(halo) => halo.corners(device).map_err(|error| of_rank(rank, error))?,
            Source::Forest(_) => None,
        };
        Ok(Self {
            rank,
            source,
            device: device.clone(),
            staged,
            is_addressable,
            staging_is_open,
            routes: Vec::new(),
            corners,
            recorder: Mutex::new(Recorder::new(device, settings.timing)),
            pool: Arc::new(Mutex::new(Pool::new(device, staged, limit))),
            last: None,
            settings,
        })
    }

    /// Refuses options under which no exchange could pass its messages.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`.
    pub(crate) fn check_messages(&self, passes_memory: bool) -> Result<()> {
        let (rank, device, bytes) = (self.rank, self.device.id(), self.source.message_bytes());
        let limit = self.pool.lock().limit();
        if bytes > limit {
            return Err(refuse(format!(
                "rank {rank}: pool_bytes is {limit}, and the messages of one exchange have {bytes}"
            )));
        }
        let is_device = self.settings.staging == Staging::Device;
        if is_device && bytes > 0 && !passes_memory && !self.is_addressable {
            return Err(refuse(format!(
                "rank {rank}: Staging::Device, and the transport passes no memory of {device}"
            )));
        }
        Ok(())
    }

    /// Uses the staging that was chosen by these times.
    pub(crate) fn choose_staging(&mut self, choice: Staging, times: StagingTimes) {
        self.recorder.lock().staging_measured(times);
        if choice == Staging::Pinned {
            self.staged = true;
            self.routes.clear();
            let limit = self.pool.lock().limit();
            self.pool = Arc::new(Mutex::new(Pool::new(&self.device, true, limit)));
        }
    }

    pub(crate) fn staging(&self) -> Staging {
        if self.staged { Staging::Pinned } else { Staging::Device }
    }

    /// Whether messages can end with a stamp.
    pub(crate) fn stamps(&self) -> bool {
        self.staged || self.is_addressable
    }

    pub(crate) fn sends(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.source.sends()
    }

    pub(crate) fn receives(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.source.receives()
    }

    /// The bytes of the pool, and their limit.
    pub(crate) fn pool_bytes(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.bytes(), pool.limit())
    }

    pub(crate) fn fingerprint(&self) -> PlanFingerprint {
        match &self.source {
            Source::Halo(halo) => halo.fingerprint(),
            Source::Forest(forest) => forest.fingerprint(),
        }
    }

    pub(crate) fn attributes(&self) -> Attributes {
        match &self.source {
            Source::Halo(halo) => halo.attributes(),
            Source::Forest(forest) => forest.attributes(),
        }
    }

    /// The error if the plans of ranks differ, and their attributes do not.
    pub(crate) fn unexplained(&self, difference: Error) -> Error {
        match &self.source {
            Source::Halo(_) => difference,
            Source::Forest(_) => {
                let message = "the lists of leaves that arrived are not those that were sent";
                of_rank(self.rank, Error::new(ErrorKind::Driver, "forest", message))
            }
        }
    }

    pub(crate) fn specs(&self) -> &[FieldSpec] {
        self.source.specs()
    }

    pub(crate) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock()
    }

    /// Returns the index of the route of a direction, which is made on first use.
    pub(crate) fn route(&mut self, direction: Direction) -> Result<usize> {
        if let Some(index) = self.known_route(direction) {
            return Ok(index);
        }
        let (device, staged) = (&self.device, self.staged);
        let made = match &self.source {
            Source::Forest(forest) => forest.route(device, direction, staged),
            Source::Halo(halo) if direction == Direction::Shared => {
                let shared = halo.shared()?;
                if self.settings.pool_bytes.is_none() {
                    self.pool.lock().raise_limit(default_limit(of_plan(&shared)));
                }
                halo.route(device, &shared, direction, staged)
            }
            Source::Halo(halo) => halo.route(device, halo.plan_of(direction), direction, staged),
        };
        self.routes.push(made.map_err(|error| of_rank(self.rank, error))?);
        Ok(self.routes.len() - 1)
    }

    /// Makes the routes that carry out a direction, and returns the index of the first.
    pub(crate) fn first_route(&mut self, direction: Direction) -> Result<usize> {
        let steps: SmallVec<[Direction; 3]> = match &self.source {
            Source::Halo(halo) if direction == Direction::Fill => {
                halo.filling().map(|(direction, _)| direction).collect()
            }
            _ => smallvec![direction],
        };
        for step in &steps {
            self.route(*step)?;
        }
        self.route(steps[0])
    }

    /// The route that an exchange takes after this one, if any.
    pub(crate) fn next_route(&self, route: usize) -> Option<usize> {
        let (halo, this) = (self.source.halo()?, self.routes[route].direction());
        let steps = halo.filling().map(|(direction, _)| direction);
        self.known_route(steps.skip_while(|step| *step != this).nth(1)?)
    }

    /// The route of a direction, if it was made.
    pub(crate) fn known_route(&self, direction: Direction) -> Option<usize> {
        self.routes.iter().position(|route| route.direction() == direction)
    }

    pub(crate) fn routes(&self, route: usize) -> &Route {
        &self.routes[route]
    }

    /// Checks a stream and fields before anything is enqueued: each field matches its plan, can be used on the stream,
    /// and shares no elements with another field. Then gives up writes of earlier exchanges of the fields.
    pub(crate) fn check(
        &self,
        direction: Direction,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<()> {
        let (specs, rank) = (self.specs(), self.rank);
        let refuse =
            |kind, message| Err(Error::new(kind, "exchange", message).on(self.device.id()));
        if !self.device.is_same(stream.device()) {
            let other = describe_other(stream.device(), &self.device);
            return refuse(ErrorKind::WrongDevice, format!("rank {rank}: a stream of {other}"));
        }
        if stream.is_capturing() {
            // As any operation that a capture refuses, this ends it.
            let _ = stream.is_done();
            let message =
                format!("rank {rank}: a stream that captures, which nothing can wait for");
            return refuse(ErrorKind::InvalidArgument, message);
        }
        if fields.len() != specs.len() {
            let (given, planned) = (fields.len(), specs.len());
            let message = format!("{given} fields of rank {rank}; {planned} are planned");
            return refuse(ErrorKind::InvalidArgument, message);
        }
        let halo = self.source.halo();
        if let Some(halo) = halo {
            halo.devices.check(rank)?;
        }
        for (index, field) in fields.iter().enumerate() {
            let own = halo.and_then(|halo| halo.stream_of(index)).unwrap_or(stream);
            field.check(&specs[index], rank, own, self.source.access(index, direction))?;
            let shared = |other: &Field<'_>| other.view().overlaps(&field.view());
            if let Some(other) = fields[..index].iter().position(shared) {
                let (one, two) = (specs[other].name(), specs[index].name());
                let message = format!("fields {one} and {two} of rank {rank} share elements");
                return refuse(ErrorKind::InvalidArgument, message);
            }
        }
        abandon_writes(fields);
        Ok(())
    }

    /// Enqueues packing. Returns the ranks and buffers of the messages, and the event after packing.
    pub(crate) fn pack(
        &mut self,
        route: usize,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<(Vec<(usize, Buffer)>, Event)> {
        self.follow(stream)?;
        let deadline = deadline(self.settings.timeout);
        let route = &mut self.routes[route];
        let sizes = route.sends.iter().map(|peer| peer.bytes);
        let taken = self.pool.lock().take_all(sizes, Some(stream), deadline);
        let mut buffers = taken.map_err(|error| of_rank(self.rank, error))?;
        let pack = || route.pack(stream, fields, &mut buffers);
        let packed = self.recorder.lock().measure(Part::Pack, stream, pack);
        let event = stream.record_event();
        let after = event.as_ref().ok().cloned();
        match packed.and(event) {
            Ok(event) => {
                self.last = Some((stream.clone(), event.clone()));
                let ranks = route.sends.iter().map(|peer| peer.rank);
                Ok((ranks.zip(buffers.into_iter().map(Buffer::from)).collect(), event))
            }
            Err(error) => {
                let mut pool = self.pool.lock();
                buffers.into_iter().for_each(|buffer| pool.give(buffer, after.clone()));
                Err(of_rank(self.rank, error))
            }
        }
    }

    /// Returns the source ranks of the messages, and buffers for them that are not in use.
    pub(crate) fn receive_buffers(&self, route: usize) -> Result<Vec<(usize, Buffer)>> {
        let deadline = deadline(self.settings.timeout);
        let peers = &self.routes[route].receives;
        let sizes = peers.iter().map(|peer| peer.bytes);
        let taken = self.pool.lock().take_all(sizes, None, deadline);
        let buffers = taken.map_err(|error| of_rank(self.rank, error))?;
        Ok(peers.iter().map(|peer| peer.rank).zip(buffers.into_iter().map(Buffer::from)).collect())
    }

    /// Sets corners without cells to averages, if the options specify this. Blocks until the device is done. The fields
    /// were checked.
    pub(crate) fn average_corners(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<()> {
        if self.corners.is_none() {
            return Ok(());
        }
        self.follow(stream)?;
        let Some(corners) = &mut self.corners else { return Ok(()) };
        corners.fill(stream, fields, self.settings.timeout)?;
        self.last = Some((stream.clone(), stream.record_event()?));
        Ok(())
    }

    /// Enqueues unpacking of the messages with these numbers, which all differ.
    pub(crate) fn unpack(
        &mut self,
        route: usize,
        stream: &Stream,
        fields: &mut [Field<'_>],
        mut batch: Vec<(usize, Storage)>,
    ) -> Result<()> {
        batch.sort_by_key(|(index, _)| *index);
        self.follow(stream)?;
        let route = &mut self.routes[route];
        let unpack = || route.unpack(stream, fields, &batch);
        let unpacked = self.recorder.lock().measure(Part::Unpack, stream, unpack);
        let event = stream.record_event();
        let mut pool = self.pool.lock();
        for (_, buffer) in batch {
            pool.give(buffer, event.as_ref().ok().cloned());
        }
        unpacked.map_err(|error| of_rank(self.rank, error))?;
        self.last = Some((stream.clone(), event?));
        Ok(())
    }

    /// The failures that were reported of a stream, and of those of the rank's other devices.
    pub(crate) fn failures(&self, stream: &Stream) -> u64 {
        let others = self.source.halo().map_or(0, |halo| halo.devices.failures());
        stream.failures().wrapping_add(others)
    }

    /// Fails if a failure of the stream was reported, to anybody, since `failures` were counted. Until the report, the
    /// device may have skipped steps, and afterwards have run others.
    pub(crate) fn check_since(&self, stream: &Stream, failures: u64) -> Result<()> {
        if self.failures(stream) == failures {
            return Ok(());
        }
        let message = "work before it or a part of it failed, which was reported to another caller";
        let error = Error::new(ErrorKind::DeviceFault, "exchange", message);
        Err(of_rank(self.rank, error.on(self.device.id())))
    }

    /// Whether this buffer fits a message of this number of bytes.
    pub(crate) fn is_like_own(&self, buffer: &Buffer, bytes: usize) -> bool {
        let is_of_kind = match buffer.storage() {
            Storage::Host(_) => false,
            Storage::Pinned(_) => self.staged,
            Storage::Device(_) => !self.staged,
        };
        is_of_kind
            && buffer.owner().is_some_and(|owner| owner.is_same(&self.device))
            && buffer.len() == bytes
    }

    /// Returns a buffer that is not in use to the pool.
    pub(crate) fn recycle(&self, buffer: Buffer) {
        self.pool.lock().give(buffer.into_storage(), None);
    }

    /// Forgets buffers that are in use: they will not return.
    pub(crate) fn forget_buffers(&mut self) {
        self.pool.lock().clear();
    }

    /// Makes the stream wait for earlier launches on another stream, because they share staging memory.
    fn follow(&self, stream: &Stream) -> Result<()> {
        match &self.last {
            Some((last, event)) if last != stream => stream.wait(event),
            _ => Ok(()),
        }
    }
}

#[cold]
pub(crate) fn of_rank(rank: usize, error: Error) -> Error {
    error.about(format_args!("rank {rank}"))
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("rank", &self.rank)
            .field("fields", &self.specs().len())
            .field("sends", &self.sends().count())
            .field("receives", &self.receives().count())
            .field("device", self.device.id())
            .field("staged", &self.staged)
            .finish()
    }
}

/// Four times the bytes of the messages of one exchange.
const fn default_limit(message_bytes: usize) -> usize {
    message_bytes.saturating_mul(4)
}

/// The rank and the number of bytes of each message.
fn sizes<B>(messages: &[Message<B>]) -> impl Iterator<Item = (usize, usize)> {
    messages.iter().map(|message| (message.peer, message.bytes))
}

/// The bytes of the messages of a plan.
fn of_plan(plan: &Plan) -> usize {
    sum(sizes(&plan.sends).chain(sizes(&plan.receives)))
}

fn sum(sizes: impl Iterator<Item = (usize, usize)>) -> usize {
    sizes.map(|(_, bytes)| bytes).fold(0, usize::saturating_add)
}
