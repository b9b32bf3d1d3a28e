//! The exchange: packing, messages, unpacking.

pub(crate) mod agreement;
mod channel;
mod flight;
pub(crate) mod forest;
mod leaves;
mod messenger;
pub(crate) mod overlap;
mod staging;

use std::fmt;
use std::sync::Arc;

use runtime_core::{Combine, Device, Result, Stream};

use self::agreement::{Agreement, Contribution, Ranks, agree, all_made, direct_route};
use self::channel::Channel;
pub use self::messenger::InFlight;
use self::messenger::Messenger;
use self::staging::choose_staging;
use crate::communicator::{Communicator, Declined};
use crate::engine::devices::Devices;
use crate::engine::direct::DirectRoute;
use crate::engine::halo::HaloSource;
use crate::engine::route::Direction;
use crate::engine::statistics::HaloStatistics;
use crate::engine::{Engine, Source};
use crate::field::{Field, Quantity};
use crate::options::{HaloOptions, Settings, Staging};
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
/// If a rank has [several blocks](Topology::on_ranks), its quantities and its fields are those of its first block, then
/// those of its second block, and so on. All blocks have the same quantities, with their own cells and memory layouts.
/// Two ranks still send each other one message, and blocks of one rank are copied while packing.
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
    halo: Arc<HaloSource>,
    messenger: Messenger,
    /// Set if ranks read each other's fields directly.
    direct: Option<DirectRoute>,
    /// An error for ranks that wait to read the fields of an exchange that this rank did by messages.
    declined: Option<Declined>,
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
    /// The errors of [`HaloTransformer::new`](crate::HaloTransformer::new); [`Reach::ByAxis`](crate::Reach::ByAxis) is
    /// refused only for topologies that are not of [`Topology::cartesian`]. `InvalidArgument`, on every rank, if the
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
        Self::make(communicator, topology, quantities, (device, None), options)
    }

    /// As [`new`](Self::new), for a rank whose blocks are on several devices of the process. `streams` has a stream of
    /// the device of each block; blocks on one device have the same stream. The first block's device has the messages.
    ///
    /// Calls take a stream of the first block's device, and work on the other streams, too: on each device, packing runs
    /// after earlier work on its stream, and later work there runs after unpacking. Each device has one launch to pack
    /// and one to unpack, and one copy between devices each way. If two devices do not
    /// [reach](Device::reaches) each other, these copies go through the host, and calls block until they are done.
    /// Messages are unpacked when all have arrived.
    ///
    /// Other ranks may have one device or several. If any has several, all ranks send messages.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use backend_sim::{SimConfig, SimDevice};
    /// # use halo::communicator::ThreadCommunicator;
    /// # use halo::{Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Topology};
    /// # use runtime_core::{DType, Device};
    /// # let devices = [0, 1].map(|number| Device::new(SimDevice::new(number, SimConfig::new())).unwrap());
    /// # let [ranks] = ThreadCommunicator::group(1)?.try_into().unwrap();
    /// // A ring of two blocks, each on its own device.
    /// let topology = Topology::cartesian(&[4], &[2], &[true])?.on_ranks(&[0, 0])?;
    /// let streams = devices.map(|device| device.default_stream());
    /// let field = FieldSpec::new("f", DType::I32, &[Dim::axis(0, 2).halo(1, 1)])?;
    /// let quantities = vec![Quantity::scalar(field); 2];
    /// let options = HaloOptions::default();
    /// let mut halo = HaloExchange::on_streams(Arc::new(ranks), &topology, &quantities, &streams, &options)?;
    ///
    /// let mut one = streams[0].device().memory_from_slice(&streams[0], &[-1, 0, 1, -1])?;
    /// let mut two = streams[1].device().memory_from_slice(&streams[1], &[-1, 2, 3, -1])?;
    /// halo.exchange(&streams[0], &mut [one.view_mut().into(), two.view_mut().into()])?;
    /// assert_eq!(one.to_vec(&streams[0])?, [3, 0, 1, 2]);
    /// assert_eq!(two.to_vec(&streams[1])?, [1, 2, 3, 0]);
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new). `InvalidArgument` unless there is one stream for each block; for two streams of one
    /// device; or, with several devices, if missing corners are set.
    pub fn on_streams(
        communicator: Arc<dyn Communicator>,
        topology: &Topology,
        quantities: &[Quantity],
        streams: &[Stream],
        options: &HaloOptions,
    ) -> Result<Self> {
        // Without a stream this rank has an error, which the others must get, too.
        let first = streams.first().map(Stream::device);
        let Some(device) = first else { return Self::refuse_all(&*communicator, options) };
        Self::make(communicator, topology, quantities, (device, Some(streams)), options)
    }

    /// Takes part in the agreement of a rank that has no stream.
    fn refuse_all(communicator: &dyn Communicator, options: &HaloOptions) -> Result<Self> {
        let (rank, size) = (communicator.rank(), communicator.size());
        let ranks = Ranks { communicator, rank, size };
        let serial = communicator.collectives().next_exchange();
        let _others = agree(ranks, None, serial, &Settings::from(options));
        Err(refuse(format!("0 streams of rank {rank}")))
    }

    fn make(
        communicator: Arc<dyn Communicator>,
        topology: &Topology,
        quantities: &[Quantity],
        (device, streams): (&Device, Option<&[Stream]>),
        options: &HaloOptions,
    ) -> Result<Self> {
        let transport = Arc::clone(&communicator);
        let (rank, size) = (transport.rank(), transport.size());
        let ranks = Ranks { communicator: &*transport, rank, size };
        let settings = Settings::from(options);
        let own = Self::plan(ranks, topology, quantities, (device, streams), options);
        let may_read = options.direct
            && transport.direct().is_some_and(|access| access.numbers() == (rank, size));
        let prefers = |(halo, _): &(Arc<HaloSource>, _)| halo.prefers_messages(device);
        let has_several = |(halo, _): &(Arc<HaloSource>, _)| halo.devices.others() > 0;
        let is_direct = may_read && !own.as_ref().is_ok_and(|own| prefers(own) || has_several(own));
        let own = own.and_then(|(halo, mut engine)| match is_direct {
            true => Ok((halo, engine)),
            false => engine.first_route(Direction::Fill).map(|_| (halo, engine)),
        });
        let contribution = own.as_ref().ok().map(|(_, engine)| Contribution {
            engine,
            // Within a process, each opened device has its own default stream.
            device: if is_direct { device.default_stream().id() } else { 0 },
            measures: engine.staging_is_open && size > 1,
        });
        let serial = transport.collectives().next_exchange();
        let agreed = agree(ranks, contribution, serial, &settings);
        // A rank's own error says more than the error that ranks disagree.
        let (halo, mut engine) = own?;
        let Agreement { same_device, stamps, measures, serials } = agreed?;
        ranks.check()?;
        let mut channel = Channel::new(communicator, rank, settings.channel, serials, stamps);
        let direct = match same_device {
            true => direct_route(ranks, &halo, device, &settings)?,
            false => None,
        };
        if direct.is_none() {
            if measures {
                choose_staging(ranks, &mut engine, &mut channel)?;
            }
            let made = engine.first_route(Direction::Fill);
            all_made(ranks, made, settings.timeout)?;
        }
        let messenger = Messenger::new(engine, channel);
        Ok(Self { halo, messenger, direct, declined: None })
    }

    fn plan(
        ranks: Ranks<'_>,
        topology: &Topology,
        quantities: &[Quantity],
        (device, streams): (&Device, Option<&[Stream]>),
        options: &HaloOptions,
    ) -> Result<(Arc<HaloSource>, Engine)> {
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
        let devices = match streams {
            None => Devices::default(),
            Some(streams) => Devices::new(streams, topology.blocks_of(rank)?.len(), rank)?,
        };
        let halo = Arc::new(HaloSource::new(topology, rank, quantities, devices, options)?);
        let source = Source::Halo(Arc::clone(&halo));
        let engine = Engine::new(source, rank, device, options.into(), passes)?;
        engine.check_messages(passes)?;
        Ok((halo, engine))
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
    /// Contributions are combined in a fixed order, by the block that holds the ghost, then by side and field. The
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
    /// two low ends or two high ends meet, the block with the higher number takes the values.
    ///
    /// Does not change other fields.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start). `InvalidArgument` if a field is staggered along more than one axis, if a block is
    /// joined to itself so that its points have no owner, or for a topology of [regions](Topology::of_regions). `Conflict` for a field whose owned values are lent for
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
        self.messenger.channel.token = token;
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
        self.messenger.reset()
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
        self.messenger.engine.recorder().statistics()
    }

    /// Returns the same as [`HaloTransformer::edges`](crate::HaloTransformer::edges).
    pub fn edges(&self) -> &[Edge] {
        &self.halo.plan.edges
    }

    /// Whether [`exchange`](Self::exchange) and [`overlap`](Self::overlap) copy from the fields of other ranks, without
    /// messages: see [`HaloOptions::direct`].
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The destination rank and the number of bytes of each message to send.
    pub fn sends(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.messenger.engine.sends()
    }

    /// The source rank and the number of bytes of each message to receive.
    pub fn receives(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.messenger.engine.receives()
    }

    /// How messages get to the transport: [`Pinned`](Staging::Pinned) or [`Device`](Staging::Device).
    pub fn staging(&self) -> Staging {
        self.messenger.engine.staging()
    }

    /// The number of bytes that message buffers have now, and the most that they may have.
    pub fn pool_bytes(&self) -> (usize, usize) {
        self.messenger.engine.pool_bytes()
    }

    /// The device of the fields.
    pub fn device(&self) -> &Device {
        &self.messenger.engine.device
    }

    fn launch<'a, 'f>(
        &'a mut self,
        direction: Direction,
        stream: &Stream,
        fields: &'a mut [Field<'f>],
    ) -> Result<InFlight<'a, 'f>> {
        let Self { messenger, direct, declined, .. } = self;
        let route = messenger.engine.first_route(direction)?;
        let flight = messenger.begin(route, stream, fields)?;
        let channel = &messenger.channel;
        if let Some((route, access)) = direct.as_ref().zip(channel.direct()) {
            let (id, access) = (channel.exchange_id(0), access.called("exchange"));
            let refusal = access.decline(id, channel.exchanges, &route.peers);
            *declined = Some(refusal.map_err(|error| channel.failed(error))?);
        }
        messenger.run(flight, stream, fields)
    }
}

impl fmt::Debug for HaloExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Messenger { engine, channel, state } = &self.messenger;
        f.debug_struct("HaloExchange")
            .field("engine", engine)
            .field("communicator", &channel.communicator)
            .field("state", state)
            .finish()
    }
}
