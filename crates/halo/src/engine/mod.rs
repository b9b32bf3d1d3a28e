//! The engine of an exchange: it packs the fields of one rank into messages, and unpacks the messages that the rank
//! received.

pub(crate) mod corner;
pub(crate) mod direct;
pub(crate) mod pool;
pub(crate) mod route;
pub(crate) mod stamp;
pub(crate) mod statistics;

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use runtime_core::{Device, DeviceKind, Error, ErrorKind, Event, Memory, Result, Stream};

use self::corner::Corners;
use self::direct::{DirectRoute, neighbours, share_lines};
use self::pool::Pool;
use self::route::{Direction, Route};
use self::statistics::{Part, Recorder, StagingTimes};
use crate::communicator::{Buffer, Storage, deadline};
use crate::field::{Dim, Field, FieldSpec, Quantity, abandon_writes, describe_other};
use crate::options::{HaloOptions, MissingCorners, Staging};
use crate::plan::Plan;
use crate::plan::attributes::Attributes;
use crate::plan::fingerprint::PlanFingerprint;
use crate::plan::transfer::{Fields, Pattern, refuse};
use crate::topology::Topology;

/// Packs and unpacks the fields of one rank.
pub(crate) struct Engine {
    topology: Topology,
    pub(crate) rank: usize,
    fields: Fields,
    pub(crate) plan: Plan,
    pub(crate) device: Device,
    pub(crate) options: HaloOptions,
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

impl Engine {
    /// Makes the plan of a rank, but no launches. `passes_memory` says whether the transport may pass the device's
    /// memory.
    pub(crate) fn new(
        topology: &Topology,
        rank: usize,
        quantities: &[Quantity],
        device: &Device,
        options: &HaloOptions,
        passes_memory: bool,
    ) -> Result<Self> {
        let fields = Fields::new(quantities, topology, rank)?;
        let plan =
            Plan::new(topology, &fields, rank, Pattern::Halo(options.reach), options.messages)?;
        let is_addressable = stamp::is_addressable(device)?;
        let (staged, staging_is_open) = match options.staging {
            Staging::Pinned => (true, false),
            Staging::Device => (false, false),
            Staging::Auto if is_addressable => (false, false),
            Staging::Auto => (!passes_memory, passes_memory),
        };
        let limit = options.pool_bytes.unwrap_or_else(|| default_limit(&plan));
        let corners = match options.missing_corners {
            MissingCorners::Average => {
                let corners = Corners::new(device, fields.specs(), &plan.edges);
                Some(corners.map_err(|error| of_rank(rank, error))?)
            }
            _ => None,
        };
        Ok(Self {
            topology: topology.clone(),
            rank,
            fields,
            plan,
            device: device.clone(),
            options: options.clone(),
            staged,
            is_addressable,
            staging_is_open,
            routes: Vec::new(),
            corners,
            recorder: Mutex::new(Recorder::new(device, options.timing)),
            pool: Arc::new(Mutex::new(Pool::new(device, staged, limit))),
            last: None,
        })
    }

    /// Refuses options under which no exchange could pass its messages.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`.
    pub(crate) fn check_messages(&self, passes_memory: bool) -> Result<()> {
        let (rank, device, bytes) = (self.rank, self.device.id(), message_bytes(&self.plan));
        let limit = self.pool.lock().limit();
        if bytes > limit {
            return Err(refuse(format!(
                "rank {rank}: pool_bytes is {limit}, and the messages of one exchange have {bytes}"
            )));
        }
        let is_device = self.options.staging == Staging::Device;
        if is_device && bytes > 0 && !passes_memory && !self.is_addressable {
            return Err(refuse(format!(
                "rank {rank}: Staging::Device, and the transport passes no memory of {device}"
            )));
        }
        Ok(())
    }

    /// Whether messages are cheaper than reading the fields of other ranks directly, if the ranks are threads.
    pub(crate) fn prefers_messages(&self) -> bool {
        self.device.info().kind == DeviceKind::Host && share_lines(self.specs(), &self.plan)
    }

    /// The placement of the fields in memory, for the other ranks.
    pub(crate) fn placements(&self) -> Vec<[i64; 3]> {
        self.specs().iter().flat_map(FieldSpec::placement).collect()
    }

    /// Makes the copies from the fields of other ranks. `placements` holds the [placements](Self::placements) of all
    /// ranks.
    pub(crate) fn direct_route(&self, placements: &[u8]) -> Result<DirectRoute> {
        let neighbours = neighbours(&self.topology, self.specs(), &self.plan, placements)?;
        let constants = self.constants()?;
        DirectRoute::new(self.rank, &self.device, self.specs(), &self.plan, &neighbours, constants)
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
        self.plan.sends.iter().map(|message| (message.peer, message.bytes))
    }

    pub(crate) fn receives(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.plan.receives.iter().map(|message| (message.peer, message.bytes))
    }

    /// The bytes of the pool, and their limit.
    pub(crate) fn pool_bytes(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.bytes(), pool.limit())
    }

    pub(crate) fn fingerprint(&self) -> PlanFingerprint {
        let (specs, rank) = (self.specs(), self.rank);
        let balance = self.plan.balance(specs, rank);
        let is_staggered = specs.iter().any(|spec| spec.dims().iter().any(Dim::is_staggered));
        let shared = match is_staggered {
            true => {
                let sharing = self.options.messages;
                Plan::new(&self.topology, &self.fields, rank, Pattern::Shared, sharing).ok()
            }
            false => None,
        };
        let shared = shared.map(|plan| plan.balance(specs, rank));
        PlanFingerprint::new(&self.attributes(), specs.len(), balance, shared)
    }

    pub(crate) fn attributes(&self) -> Attributes {
        Attributes::new(&self.topology, &self.options, &self.fields)
    }

    pub(crate) fn specs(&self) -> &[FieldSpec] {
        self.fields.specs()
    }

    pub(crate) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock()
    }

    /// Returns the index of the route of a direction, which is made on first use.
    pub(crate) fn route(&mut self, direction: Direction) -> Result<usize> {
        if let Some(index) = self.routes.iter().position(|route| route.direction() == direction) {
            return Ok(index);
        }
        let (topology, rank, sharing) = (&self.topology, self.rank, self.options.messages);
        let shared;
        let (plan, constants) = match direction {
            Direction::Fill => (&self.plan, self.constants()?),
            Direction::Reduce(_) => (&self.plan, None),
            Direction::Shared => {
                shared = Plan::new(topology, &self.fields, rank, Pattern::Shared, sharing)?;
                if self.options.pool_bytes.is_none() {
                    self.pool.lock().raise_limit(default_limit(&shared));
                }
                (&shared, None)
            }
        };
        let route = Route::new(&self.device, self.specs(), plan, direction, self.staged, constants);
        self.routes.push(route.map_err(|error| of_rank(rank, error))?);
        Ok(self.routes.len() - 1)
    }

    pub(crate) fn routes(&self, route: usize) -> &Route {
        &self.routes[route]
    }

    /// The values of missing corners, if the options set any.
    fn constants(&self) -> Result<Option<Memory<u8>>> {
        match self.options.missing_corners {
            MissingCorners::Fill(value) => {
                corner::constants(&self.device, self.specs(), &self.plan.edges, value)
            }
            _ => Ok(None),
        }
    }

    /// Checks a stream and fields before anything is enqueued: each field matches its plan, can be used on the stream,
    /// and shares no elements with another field. Then gives up writes of earlier exchanges of the fields.
    pub(crate) fn check(
        &self,
        writes_owned: bool,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<()> {
        let (specs, rank) = (self.fields.specs(), self.rank);
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
        for (index, field) in fields.iter().enumerate() {
            field.check(&specs[index], rank, stream, writes_owned)?;
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
        let deadline = deadline(self.options.timeout);
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
        let deadline = deadline(self.options.timeout);
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
        corners.fill(stream, fields, self.options.timeout)?;
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

    /// Fails if a failure of the stream was reported, to anybody, since `failures` were counted. Until the report, the
    /// device may have skipped steps, and afterwards have run others.
    pub(crate) fn check_since(&self, stream: &Stream, failures: u64) -> Result<()> {
        if stream.failures() == failures {
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
            .field("sends", &self.plan.sends.len())
            .field("receives", &self.plan.receives.len())
            .field("device", self.device.id())
            .field("staged", &self.staged)
            .finish()
    }
}

/// Four times the bytes of the messages of one exchange.
fn default_limit(plan: &Plan) -> usize {
    message_bytes(plan).saturating_mul(4)
}

fn message_bytes(plan: &Plan) -> usize {
    let messages = plan.sends.iter().chain(&plan.receives);
    messages.map(|message| message.bytes).fold(0, usize::saturating_add)
}
