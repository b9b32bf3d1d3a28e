//! Packing and unpacking, for programs with their own transport.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use runtime_core::{
    Combine, Device, DeviceKind, Error, ErrorKind, Event, Memory, Result, Stream, bytemuck,
};

use crate::communicator::{Buffer, Communicator, Storage, deadline};
use crate::engine::corner::Corners;
use crate::engine::direct::{DirectRoute, neighbours, share_lines};
use crate::engine::pool::Pool;
use crate::engine::route::{Action, CONSTANT_BYTES, Route};
use crate::engine::stamp;
use crate::engine::statistics::{Part, Recorder};
use crate::exchange::agreement::{PlanFingerprint, gather};
use crate::exchange::staging::{StagingTimes, Trial};
use crate::field::stranger;
use crate::options::{HaloOptions, MissingCorners, Staging, element};
use crate::packed::{Incoming, Packed};
use crate::plan::attributes::{Attribute, attributes};
use crate::plan::fingerprint::Fingerprint;
use crate::plan::transfer::{Edge, Fields, Pattern, refuse};
use crate::plan::{Plan, fingerprints};
use crate::{Field, FieldSpec, Quantity, Topology};

/// Packs the halos of any fields into one buffer for each neighbour, or several as the [options](HaloOptions::messages)
/// specify, and unpacks the buffers that neighbours sent.
///
/// This is an exchange without the transport; [`HaloExchange`](crate::HaloExchange) includes one. Data that a rank
/// exchanges with itself is copied when it packs, in the same launch, and is in no buffer.
///
/// ```
/// use std::time::Duration;
/// use backend_sim::{SimConfig, SimDevice};
/// use halo::{Dim, FieldSpec, HaloTransformer, Quantity, Topology};
/// use runtime_core::{DType, Device};
///
/// // A ring of six cells on two ranks, with one ghost at either end.
/// let topology = Topology::cartesian(&[6], &[2], &[true])?;
/// let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 3).halo(1, 1)])?;
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let stream = device.default_stream();
/// let mut ranks = Vec::new();
/// for rank in 0..2 {
///     let quantities = [Quantity::scalar(field.clone())];
///     let halo = HaloTransformer::new(&topology, rank, &quantities, &device, &Default::default())?;
///     let first = 3.0 * rank as f64;
///     let values = [f64::NAN, first, first + 1.0, first + 2.0, f64::NAN];
///     ranks.push((halo, device.memory_from_slice(&stream, &values)?));
/// }
///
/// let mut sent = Vec::new();
/// for (halo, values) in &mut ranks {
///     let packed = halo.pack(&stream, &mut [values.view_mut().into()])?;
///     packed.synchronize(Duration::from_secs(10))?;
///     for (to, buffer) in packed.messages() {
///         sent.push((to, buffer.to_vec()?)); // your transport
///     }
/// }
/// for (rank, (halo, values)) in ranks.iter_mut().enumerate() {
///     let mut messages = halo.incoming()?;
///     for message in &mut messages {
///         let (_, bytes) = sent.iter().find(|(to, _)| *to == rank).unwrap();
///         message.copy_from_slice(bytes)?;
///     }
///     halo.unpack(&stream, &mut [values.view_mut().into()], messages)?;
/// }
/// assert_eq!(ranks[0].1.to_vec(&stream)?, [5.0, 0.0, 1.0, 2.0, 3.0]);
/// # Ok::<(), halo::Error>(())
/// ```
pub struct HaloTransformer {
    topology: Topology,
    rank: usize,
    fields: Fields,
    plan: Plan,
    device: Device,
    options: HaloOptions,
    staged: bool,
    /// Whether the host cannot address the device's memory.
    is_far: bool,
    /// Whether the other staging is possible, too.
    staging_is_open: bool,
    routes: Vec<(Direction, Route)>,
    corners: Option<Corners>,
    pub(crate) recorder: Mutex<Recorder>,
    pool: Arc<Mutex<Pool>>,
    /// The stream of the latest launch, and the event at the end of that launch.
    last: Option<(Stream, Event)>,
}

/// The direction of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Fill,
    Reduce(Combine),
    Shared,
}

impl HaloTransformer {
    /// Makes the transformer of one rank for fields on `device`. Every rank uses the same quantities, options and
    /// topology.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, with the field, side and rank concerned: a rank that the topology does not have; two fields
    /// with the same name; a field whose cells are not those of the rank's block; a halo wider than the neighbour's
    /// block; a field staggered along one axis without a partner where axes change places; or elements without a sign
    /// that would have to change it. `OutOfMemory`. Other errors that the device reports.
    pub fn new(
        topology: &Topology,
        rank: usize,
        quantities: &[Quantity],
        device: &Device,
        options: &HaloOptions,
    ) -> Result<Self> {
        let mut transformer =
            Self::with_transport(topology, rank, quantities, device, options, false)?;
        transformer.route(Direction::Fill)?;
        Ok(transformer)
    }

    /// As [`new`](Self::new), for a transport that may pass the device's memory, and without making the launches.
    pub(crate) fn with_transport(
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
        let is_far = !stamp::reaches(device)?;
        let (staged, staging_is_open) = match options.staging {
            Staging::Pinned => (true, false),
            Staging::Device => (false, false),
            Staging::Auto => (is_far && !passes_memory, is_far && passes_memory),
        };
        let messages = plan.sends.iter().chain(&plan.receives);
        let once = messages.map(|message| message.bytes).fold(0, usize::saturating_add);
        let limit = options.pool_bytes.unwrap_or(once.saturating_mul(4));
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
            is_far,
            staging_is_open,
            routes: Vec::new(),
            corners,
            recorder: Mutex::new(Recorder::new(device, options.timing)),
            pool: Arc::new(Mutex::new(Pool::new(device, staged, limit))),
            last: None,
        })
    }

    /// Whether messages are cheaper than reading the fields of other ranks directly, if the ranks are threads.
    pub(crate) fn prefers_messages(&self) -> bool {
        self.device.info().kind == DeviceKind::Host && share_lines(self.fields.specs(), &self.plan)
    }

    /// Makes the exchange of ranks that read each other's fields, if all ranks can. Blocks until all ranks have called
    /// it.
    pub(crate) fn direct(&self, communicator: &dyn Communicator) -> Result<Option<DirectRoute>> {
        let specs = self.fields.specs();
        let HaloOptions { channel, timeout, .. } = self.options;
        let gather = |mine: &[u8]| gather(communicator, channel, mine, timeout);
        let placements: Vec<[i64; 3]> = specs.iter().flat_map(FieldSpec::placement).collect();
        let all = gather(bytemuck::cast_slice(&placements))?;
        let own = neighbours(&self.topology, specs, &self.plan, &all).and_then(|neighbours| {
            let constants = self.constants()?;
            DirectRoute::new(self.rank, &self.device, specs, &self.plan, &neighbours, constants)
        });
        let all = gather(&[u8::from(own.is_ok())])?;
        Ok(own.ok().filter(|_| !all.contains(&0)))
    }

    /// Chooses the faster path for messages. All ranks call this together; it blocks until all ranks have called it.
    pub(crate) fn measure_staging(
        &mut self,
        communicator: &dyn Communicator,
        tag: u32,
        serials: &[u64],
    ) -> Result<()> {
        let stream = self.device.default_stream();
        let trial = Trial::new(communicator, stream, tag, serials, self.options.timeout);
        let (choice, times) = trial.run(&self.plan)?;
        let StagingTimes { pinned, device } = times;
        tracing::debug!(rank = self.rank, ?choice, ?pinned, ?device, "staging measured");
        self.recorder.lock().staging_measured(times);
        if choice == Staging::Pinned {
            self.staged = true;
            self.routes.clear();
            let limit = self.pool.lock().limit();
            self.pool = Arc::new(Mutex::new(Pool::new(&self.device, true, limit)));
        }
        Ok(())
    }

    /// Enqueues packing the messages to all neighbours, and copying the data that the rank exchanges with itself. Does
    /// not block.
    ///
    /// Packing is one launch in the order of the stream: it runs after all work enqueued before.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of fields differs from the plan, or if a field has a different shape, strides or
    /// element type. `WrongDevice`, `WrongStream`. `LimitExceeded` if the pool has no room. Nothing was enqueued in
    /// these cases. Other errors that the device reports.
    pub fn pack(&mut self, stream: &Stream, fields: &mut [Field<'_>]) -> Result<Packed> {
        let route = self.route(Direction::Fill)?;
        self.check(false, stream, fields)?;
        self.pool.lock().show();
        let (messages, event) = self.pack_route(route, stream, fields)?;
        let messages = messages.into_iter().map(|(rank, buffer)| (rank, Some(buffer))).collect();
        Ok(Packed { messages, event, pool: Arc::clone(&self.pool) })
    }

    /// Returns a buffer for each message that this rank receives. The buffers for one sender are in the order in which
    /// the sender [packs](Packed::messages) them.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if the pool has no room. `OutOfMemory`. `Timeout` if buffers are still in use.
    pub fn incoming(&mut self) -> Result<Vec<Incoming>> {
        let route = self.route(Direction::Fill)?;
        self.pool.lock().show();
        let buffers = self.receive_buffers(route)?;
        let incoming = buffers.into_iter().enumerate().map(|(index, (rank, buffer))| Incoming {
            index,
            rank,
            buffer: Some(buffer),
            is_filled: AtomicBool::new(false),
            pool: Arc::clone(&self.pool),
        });
        Ok(incoming.collect())
    }

    /// Enqueues unpacking messages: all messages of [`incoming`](Self::incoming) or some of them. Does not block.
    ///
    /// Unpacking takes one launch, or several if there are many memories: see
    /// [`RegionPlan::launches`](runtime_core::RegionPlan::launches).
    ///
    /// # Errors
    ///
    /// As for [`pack`](Self::pack). `InvalidArgument` if a message occurs twice, belongs to another transformer, or if
    /// its memory was never requested, which means that nothing can have been received into it.
    pub fn unpack(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        messages: Vec<Incoming>,
    ) -> Result<()> {
        let route = self.route(Direction::Fill)?;
        self.check(false, stream, fields)?;
        let refuse = |message| Err(of_rank(self.rank, refuse(message)));
        let stranger = |message: &&Incoming| !Arc::ptr_eq(&message.pool, &self.pool);
        if let Some(message) = messages.iter().find(stranger) {
            return refuse(format!("a message of rank {} of another transformer", message.rank));
        }
        let mut numbers: Vec<usize> = messages.iter().map(|message| message.index).collect();
        numbers.sort_unstable();
        if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            let rank = self.routes[route].1.receives[twice[0]].rank;
            return refuse(format!("the message of rank {rank} twice"));
        }
        let is_empty = |message: &&Incoming| !message.is_filled.load(Ordering::Relaxed);
        if let Some(message) = messages.iter().find(is_empty) {
            return refuse(format!("the message of rank {} was not received", message.rank));
        }
        let batch = messages
            .into_iter()
            .filter_map(|mut message| Some((message.index, message.buffer.take()?.into_storage())));
        let batch = batch.collect();
        self.unpack_route(route, stream, fields, batch)
    }

    /// Sets corners without cells to [averages](MissingCorners::Average), if the options specify this. Call it after
    /// all messages are unpacked. Blocks until the device is done.
    ///
    /// # Errors
    ///
    /// As [`pack`](Self::pack).
    pub fn average_corners(&mut self, stream: &Stream, fields: &mut [Field<'_>]) -> Result<()> {
        if self.corners.is_none() {
            return Ok(());
        }
        self.check(false, stream, fields)?;
        self.follow(stream)?;
        let Some(corners) = &mut self.corners else { return Ok(()) };
        corners.fill(stream, fields)?;
        self.last = Some((stream.clone(), stream.record_event()?));
        Ok(())
    }

    /// How messages get to the transport: [`Pinned`](Staging::Pinned) or [`Device`](Staging::Device).
    pub fn staging(&self) -> Staging {
        if self.staged { Staging::Pinned } else { Staging::Device }
    }

    /// Whether there is a choice of staging to [measure](Self::measure_staging).
    pub(crate) fn staging_is_open(&self) -> bool {
        self.staging_is_open
    }

    /// The ghosts that no neighbour fills: ghosts beyond physical boundaries, and ghosts at corners without cells,
    /// which the [options](HaloOptions::missing_corners) may have set. Set them after the exchange is finished, by a
    /// kernel on the same stream: boxes may have gaps between their rows, which fills do not support.
    ///
    /// With [`Reach::Faces`](crate::Reach::Faces) only boxes beyond one side are listed. Ghosts beyond two or three
    /// sides are then never filled, even if a neighbour has cells there.
    ///
    /// ```
    /// # use backend_host::HostDevice;
    /// # use halo::{Dim, FieldSpec, HaloTransformer, Quantity, Topology};
    /// # use runtime_core::{DType, Device, Grid, HostModule, Launch, args};
    /// # let device = Device::new(HostDevice::new(0))?;
    /// # let stream = device.default_stream();
    /// /// Sets a box of rows.
    /// fn set(_: &Grid<'_>, f: &mut [f64], first: u64, rows: u64, columns: u64, value: f64) {
    ///     for row in f[first as usize..].chunks_mut(4).take(rows as usize) {
    ///         row[..columns as usize].fill(value);
    ///     }
    /// }
    /// let module = device.module_load(&HostModule::new().with("set", set))?;
    /// let kernel = module.kernel("set")?;
    ///
    /// // Walls in the west and in the east; periodic from north to south.
    /// let topology = Topology::cartesian(&[2, 2], &[1, 1], &[false, true])?;
    /// let field = FieldSpec::new("f", DType::F64, &[Dim::axis(1, 2).halo(1, 1), Dim::axis(0, 2).halo(1, 1)])?;
    /// let quantities = [Quantity::scalar(field)];
    /// let mut halo = HaloTransformer::new(&topology, 0, &quantities, &device, &Default::default())?;
    /// let cells: Vec<f64> = (0..16).map(f64::from).collect();
    /// let mut values = device.memory_from_slice(&stream, &cells)?;
    /// halo.pack(&stream, &mut [values.view_mut().reshape(&[4, 4])?.into()])?;
    /// for edge in halo.edges() {
    ///     let [rows, columns] = [0, 1].map(|dim| edge.ranges[dim].clone());
    ///     let first = (4 * rows.start + columns.start) as u64;
    ///     let args = args![values.view_mut(), first, rows.len() as u64, columns.len() as u64, -1.0];
    ///     // SAFETY: the kernel is safe Rust.
    ///     unsafe { kernel.launch(&stream, &Launch::cover(1, 1), args) }?;
    /// }
    /// let (low, high) = ([-1.0, 5.0, 6.0, -1.0], [-1.0, 9.0, 10.0, -1.0]);
    /// assert_eq!(values.to_vec(&stream)?, [high, low, high, low].concat());
    /// # Ok::<(), halo::Error>(())
    /// ```
    pub fn edges(&self) -> &[Edge] {
        &self.plan.edges
    }

    /// The destination rank and the number of bytes of each message to send.
    pub fn sends(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.plan.sends.iter().map(|message| (message.peer, message.bytes))
    }

    /// The source rank and the number of bytes of each message to receive.
    pub fn receives(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.plan.receives.iter().map(|message| (message.peer, message.bytes))
    }

    /// The number of bytes that message buffers have now, and the most that they may have.
    pub fn pool_bytes(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.held(), pool.limit())
    }

    /// The hashes that ranks [compare](PlanFingerprint::compare) to check that their plans match.
    ///
    /// Messages do not describe themselves: ranks with different plans would mistake elements of one field for those of
    /// another. The caller's transport carries the hashes once.
    pub fn fingerprint(&self) -> PlanFingerprint {
        let HaloOptions { reach, missing_corners, messages, channel, .. } = &self.options;
        let mut options = Fingerprint::new();
        options.text(&format!("{reach:?} {missing_corners:?}"));
        options.number(messages.limit());
        options.number(*channel as usize);
        let each = fingerprints(&self.fields);
        let mut fields = Fingerprint::new();
        each.iter().for_each(|field| fields.bytes(&field.to_le_bytes()));
        PlanFingerprint {
            topology: self.topology.fingerprint().value(),
            options: options.value(),
            count: each.len() as u128,
            fields: fields.value(),
            balance: self.plan.balance(self.specs(), self.rank),
        }
    }

    /// The device of the fields.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn specs(&self) -> &[FieldSpec] {
        self.fields.specs()
    }

    pub(crate) fn options(&self) -> &HaloOptions {
        &self.options
    }

    /// Whether messages can end with a stamp.
    pub(crate) fn stamps(&self) -> bool {
        self.staged || !self.is_far
    }

    /// Everything that must be the same on other ranks, in readable form.
    pub(crate) fn attributes(&self) -> Vec<Attribute> {
        attributes(&self.topology, &self.options, &self.fields)
    }

    /// Returns the index of a route, which is made on first use.
    pub(crate) fn route(&mut self, direction: Direction) -> Result<usize> {
        if let Some(index) = self.routes.iter().position(|(of, _)| *of == direction) {
            return Ok(index);
        }
        let specs = self.fields.specs();
        let make = |plan: &Plan, action, constants| {
            let route = Route::new(&self.device, specs, plan, action, self.staged, constants);
            route.map_err(|error| of_rank(self.rank, error))
        };
        let route = match direction {
            Direction::Fill => make(&self.plan, Action::Fill, self.constants()?)?,
            Direction::Reduce(combine) => make(&self.plan, Action::Reduce(combine), None)?,
            Direction::Shared => {
                let (fields, sharing) = (&self.fields, self.options.messages);
                let plan = Plan::new(&self.topology, fields, self.rank, Pattern::Shared, sharing)?;
                make(&plan, Action::Share, None)?
            }
        };
        self.routes.push((direction, route));
        Ok(self.routes.len() - 1)
    }

    pub(crate) fn routes(&self, route: usize) -> &Route {
        &self.routes[route].1
    }

    /// The values of missing corners, if the options set any.
    fn constants(&self) -> Result<Option<Memory<u8>>> {
        let MissingCorners::Fill(value) = self.options.missing_corners else { return Ok(None) };
        if !self.plan.edges.iter().any(|edge| edge.missing_corner) {
            return Ok(None);
        }
        let values: Vec<u8> =
            self.fields.specs().iter().flat_map(|spec| element(spec.dtype(), value)).collect();
        debug_assert_eq!(values.len(), self.fields.specs().len() * CONSTANT_BYTES);
        self.device.memory_from_slice(&self.device.default_stream(), &values).map(Some)
    }

    /// Checks a stream and fields before anything is enqueued: each field matches its plan, can be used on the stream,
    /// and shares no elements with another field.
    pub(crate) fn check(
        &self,
        writes_owned: bool,
        stream: &Stream,
        fields: &[Field<'_>],
    ) -> Result<()> {
        let (specs, rank) = (self.fields.specs(), self.rank);
        let refuse =
            |kind, message| Err(Error::new(kind, "exchange", message).on(self.device.id()));
        if !self.device.is_same(stream.device()) {
            let stranger = stranger(stream.device(), &self.device);
            return refuse(ErrorKind::WrongDevice, format!("rank {rank}: a stream of {stranger}"));
        }
        if stream.is_capturing() {
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
        Ok(())
    }

    /// Enqueues packing. Returns the ranks and buffers of the messages, and the event after packing.
    pub(crate) fn pack_route(
        &mut self,
        route: usize,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<(Vec<(usize, Buffer)>, Event)> {
        self.follow(stream)?;
        let deadline = deadline(self.options.timeout);
        let route = &mut self.routes[route].1;
        let mut buffers = Vec::with_capacity(route.sends.len());
        for peer in &route.sends {
            let taken = self.pool.lock().take_for(stream, peer.bytes, deadline);
            match taken {
                Ok(buffer) => buffers.push(buffer),
                Err(error) => {
                    let mut pool = self.pool.lock();
                    buffers.into_iter().for_each(|buffer| pool.give(buffer, None));
                    return Err(of_rank(self.rank, error));
                }
            }
        }
        let pack = || route.pack(stream, fields, &mut buffers);
        let packed = self.recorder.lock().measure(Part::Pack, stream, pack);
        let event = stream.record_event();
        let after = event.as_ref().ok().cloned();
        match packed.and(event) {
            Ok(event) => {
                self.last = Some((stream.clone(), event.clone()));
                let ranks = route.sends.iter().map(|peer| peer.rank);
                Ok((ranks.zip(buffers.into_iter().map(wrap)).collect(), event))
            }
            Err(error) => {
                let mut pool = self.pool.lock();
                buffers.into_iter().for_each(|buffer| pool.give(buffer, after.clone()));
                Err(of_rank(self.rank, error))
            }
        }
    }

    /// Returns the source ranks of the messages, and buffers for them that are not in use.
    pub(crate) fn receive_buffers(&mut self, route: usize) -> Result<Vec<(usize, Buffer)>> {
        let deadline = deadline(self.options.timeout);
        let mut pool = self.pool.lock();
        let mut buffers = Vec::new();
        for peer in &self.routes[route].1.receives {
            match pool.take(peer.bytes, deadline) {
                Ok(buffer) => buffers.push((peer.rank, wrap(buffer))),
                Err(error) => {
                    buffers
                        .into_iter()
                        .for_each(|(_, buffer)| pool.give(buffer.into_storage(), None));
                    return Err(of_rank(self.rank, error));
                }
            }
        }
        Ok(buffers)
    }

    /// Enqueues unpacking of the messages with these numbers, which all differ.
    pub(crate) fn unpack_route(
        &mut self,
        route: usize,
        stream: &Stream,
        fields: &mut [Field<'_>],
        mut batch: Vec<(usize, Storage)>,
    ) -> Result<()> {
        batch.sort_by_key(|(index, _)| *index);
        self.follow(stream)?;
        let route = &mut self.routes[route].1;
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

    /// Whether this buffer fits a message of this number of bytes.
    pub(crate) fn is_like_own(&self, buffer: &Buffer, bytes: usize) -> bool {
        let is_of_kind = match buffer.storage() {
            Storage::Host(_) => false,
            Storage::Pinned(_) => self.staged,
            Storage::Device(_) => !self.staged,
        };
        is_of_kind
            && buffer.owner().is_some_and(|owner| owner.is_same(&self.device))
            && (buffer.len(), buffer.capacity()) == (bytes, bytes)
    }

    /// Returns a buffer that is not in use to the pool.
    pub(crate) fn recycle(&self, buffer: Buffer) {
        self.pool.lock().give(buffer.into_storage(), None);
    }

    /// Drops the account of buffers that are lent.
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
fn of_rank(rank: usize, error: Error) -> Error {
    error.about(format_args!("rank {rank}"))
}

fn wrap(buffer: Storage) -> Buffer {
    match buffer {
        Storage::Host(bytes) => Buffer::host(bytes),
        Storage::Pinned(pinned) => Buffer::pinned(pinned),
        Storage::Device(memory) => Buffer::device(memory),
    }
}

impl fmt::Debug for HaloTransformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HaloTransformer")
            .field("rank", &self.rank)
            .field("fields", &self.fields.specs().len())
            .field("sends", &self.plan.sends.len())
            .field("receives", &self.plan.receives.len())
            .field("device", self.device.id())
            .field("staged", &self.staged)
            .finish()
    }
}
