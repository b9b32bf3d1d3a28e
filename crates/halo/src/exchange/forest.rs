//! Star forests: leaves that point to roots on any rank.

use std::ops::Range;
use std::sync::Arc;

use runtime_core::{Combine, Device, Result, Stream};

use super::agreement::{Agreement, Contribution, Ranks, agree, find, share};
use super::channel::Channel;
pub use super::leaves::{ForestSize, Leaf};
use super::leaves::{check_roots, exchange_lists, group, locate};
use super::messenger::{InFlight, Messenger};
use super::staging::choose_staging;
use crate::communicator::Communicator;
use crate::engine::lists::ForestSource;
use crate::engine::route::{Direction, check_combine};
use crate::engine::statistics::HaloStatistics;
use crate::engine::{Engine, Source};
use crate::field::{Field, FieldSpec};
use crate::options::{ForestOptions, Settings, Staging};
use crate::plan::attributes::{Attributes, reductions};
use crate::plan::lists::{Group, Lists, arrays};
use crate::plan::transfer::refuse;

/// Copies values from roots to the leaves that point to them, and combines values of leaves in their roots, repeatedly.
///
/// Each rank has an array of roots and an array of leaves. A [`Leaf`] is an item of the array of leaves, and points to
/// a root of any rank. A root may have any number of leaves. This describes any pattern of exchange: for an
/// unstructured mesh, roots are the values that a rank owns, and leaves are its copies of values that other ranks own.
///
/// A program creates one `Forest` for its fields, and calls it many times. Every rank creates it, and all ranks call
/// the same methods of the same forests in the same order. [`broadcast`](Self::broadcast) goes from roots to leaves,
/// [`reduce`](Self::reduce) from leaves to roots. Each packs all fields in one launch, sends one message to each rank
/// that needs one, and unpacks in one launch. A broadcast may take more launches if it unpacks messages that have
/// arrived while others are in transit. Leaves whose roots are on the same rank need no message. The lists of indices
/// go to the device once, when the forest is created.
///
/// ```
/// use std::sync::Arc;
///
/// use backend_host::HostDevice;
/// use halo::communicator::{Communicator, ThreadCommunicator};
/// use halo::{Combine, Dim, FieldSpec, Forest, ForestOptions, ForestSize, Leaf};
/// use runtime_core::{DType, Device, StreamOptions};
///
/// // Two ranks, which are threads here, with three roots each.
/// let device = Device::new(HostDevice::new(0))?;
/// let ranks = ThreadCommunicator::run(2, |ranks| -> halo::Result<()> {
///     let (rank, stream) = (ranks.rank(), device.stream_create(&StreamOptions::default())?);
///     let other = 1 - rank;
///     // Two leaves point to root 2 of the other rank, and one to root 0 of this rank.
///     let leaves = [
///         Leaf { at: 0, rank: other, root: 2 },
///         Leaf { at: 1, rank, root: 0 },
///         Leaf { at: 2, rank: other, root: 2 },
///     ];
///     let size = ForestSize { roots: 3, leaves: 3 };
///     // An item is a pair of numbers.
///     let fields = [FieldSpec::new("flux", DType::F64, &[Dim::free(2)])?];
///     let options = ForestOptions { reductions: vec![Combine::Sum], ..Default::default() };
///     let mut forest = Forest::new(Arc::new(ranks), size, &leaves, &fields, &device, &options)?;
///
///     let first = 10.0 * rank as f64;
///     let own = [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]].map(|pair| pair.map(|value| first + value));
///     let mut roots = device.memory_from_slice(&stream, own.as_flattened())?;
///     let mut leaves = device.memory_from_slice(&stream, &[0.0; 6])?;
///
///     forest.broadcast(&stream, &mut [[
///         roots.view().reshape(&[3, 2])?.into(),
///         leaves.view_mut().reshape(&[3, 2])?.into(),
///     ]])?;
///     let far = 10.0 * other as f64 + 2.0;
///     assert_eq!(leaves.to_vec(&stream)?, [far, far + 0.5, first, first + 0.5, far, far + 0.5]);
///
///     leaves.copy_from_slice(&stream, &[1.0, 2.0, 30.0, 40.0, 5.0, 6.0])?;
///     let fields = &mut [[
///         roots.view_mut().reshape(&[3, 2])?.into(),
///         leaves.view().reshape(&[3, 2])?.into(),
///     ]];
///     let flight = forest.start_reduce(&stream, fields, Combine::Sum)?;
///     // … other work, then:
///     flight.finish()?;
///     let sums = [30.0, 40.5, 1.0, 1.5, 2.0 + 6.0, 2.5 + 8.0].map(|sum| first + sum);
///     assert_eq!(roots.to_vec(&stream)?, sums);
///     Ok(())
/// })?;
/// ranks.into_iter().collect::<halo::Result<()>>()?;
/// # Ok::<(), halo::Error>(())
/// ```
///
/// # Fields
///
/// A [`FieldSpec`] describes one item: its element type and its dimensions, all [free](crate::Dim::free) and without
/// gaps. A field without dimensions has one element for each item. The arrays of a field have one more dimension, the
/// items, which is the slowest: their shapes are `[roots, …]` and `[leaves, …]` with the numbers of [`ForestSize`]. A
/// call gets both arrays of each field, `[roots, leaves]`. The array that it only reads may be a [`Field::read`].
/// Arrays share no elements. They may be parts of one memory, as [`split_at`](runtime_core::MemoryViewMut::split_at)
/// makes them: owned values first, then copies of other values.
///
/// # Order
///
/// A reduction combines the values of a root one after the other: first the value that the root has, then those of its
/// leaves, in ascending order of their ranks, and for each rank of [`Leaf::at`]. Leaves of the same rank take part in
/// this order. It does not depend on the order of the list of leaves, on the arrival of messages or on the device, so
/// sums have the same bits in every run, apart from the bits of a NaN. With [`Combine::Replace`], the value of the last
/// leaf in this order stays.
///
/// Sums also have the same bits on any number of ranks, if the ranks divide one list of leaves into contiguous pieces,
/// in ascending order of ranks, and each rank has its piece in the order of the list. To sum leaves alone, set the roots
/// to zero first.
///
/// # Several forests
///
/// Forests may share a communicator and a [channel](ForestOptions::channel), if each broadcast or reduction is finished
/// before the next begins. Those that are in flight at the same time need different channels.
///
/// Any rank may have no roots, no leaves, or neither.
///
/// Work is enqueued on the caller's stream, and ordered with other work as for a [`HaloExchange`](crate::HaloExchange),
/// which also states what a failure leaves behind. The elements that are no roots with leaves, and no leaves, never
/// change.
#[derive(Debug)]
pub struct Forest {
    messenger: Messenger,
    size: ForestSize,
    reductions: Vec<Combine>,
}

impl Forest {
    /// Makes the forest of this rank for fields on `device`. All ranks call this together, each with its own leaves, in
    /// any order, and with the same fields and options.
    ///
    /// Blocks until all ranks have called it, and have received the lists of the roots that other ranks need. It waits
    /// several times, each time at most twice the [timeout](ForestOptions::timeout).
    ///
    /// This is a [collective call](Communicator#collective-calls). If the error says what is wrong with leaves, fields
    /// or options, the ranks may make the forest again without a reset. After another error, all ranks call
    /// [`Communicator::reset`] first.
    ///
    /// # Errors
    ///
    /// If a rank has an error, all ranks get one, and no values are exchanged. `InvalidArgument`, with the rank, the
    /// leaf, the value and the limit, if
    ///
    /// - the rank of a root does not exist, or that rank has no such root;
    /// - a leaf is outside the array of leaves, or occurs twice;
    /// - a rank has more than 2³¹ leaves;
    /// - an item has gaps or a dimension along an axis, or two fields have one name;
    /// - the ranks' fields, reductions or channels differ;
    /// - the elements of a field do not support a reduction;
    /// - the channel does not exist, `pool_bytes` is too small, or the transport does not pass the memory of the
    ///   device;
    /// - the device refuses the lists: see [`RegionProgram::indexed`](runtime_core::RegionProgram::indexed).
    ///
    /// `Driver` if the lists that arrive are not those that were sent. `OutOfMemory`. The errors of
    /// [`Communicator::all_gather`] and of messages, including `Timeout`, `PeerLost` and `Conflict`.
    pub fn new(
        communicator: Arc<dyn Communicator>,
        size: ForestSize,
        leaves: &[Leaf],
        fields: &[FieldSpec],
        device: &Device,
        options: &ForestOptions,
    ) -> Result<Self> {
        let grouped = |ranks: Ranks<'_>| Ok((size, group(ranks, size, leaves)?));
        Self::build(communicator, fields, device, options, grouped)
    }

    /// Makes the forest of this rank from global numbers, which each belong to one rank. The roots of a rank are the
    /// numbers that it owns, in ascending order. Leaf `i` points to the root with the number `needed[i]`. Numbers may
    /// occur several times in `needed`, and be among those that the rank owns. Otherwise as [`new`](Self::new).
    ///
    /// Each rank owns a range. If a mesh has other numbers, number its items anew: first those of rank 0, then those of
    /// rank 1, and so on.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use backend_host::HostDevice;
    /// # use halo::communicator::{Communicator, ThreadCommunicator};
    /// # use halo::{FieldSpec, Forest, ForestOptions};
    /// # use runtime_core::{DType, Device, StreamOptions};
    /// # let device = Device::new(HostDevice::new(0))?;
    /// // Five cells of a mesh: rank 0 owns 0 to 2, and rank 1 owns 3 and 4.
    /// let ranks = ThreadCommunicator::run(2, |ranks| -> halo::Result<()> {
    /// #   let stream = device.stream_create(&StreamOptions::default())?;
    ///     let rank = ranks.rank();
    ///     let owned = [0..3, 3..5][rank].clone();
    ///     let needed = [&[4, 3][..], &[1]][rank];
    ///     let fields = [FieldSpec::new("height", DType::F64, &[])?];
    ///     let options = ForestOptions::default();
    ///     let mut forest =
    ///         Forest::from_global(Arc::new(ranks), owned.clone(), needed, &fields, &device, &options)?;
    ///
    ///     // Owned values, then copies of others.
    ///     let mut values: Vec<f64> = owned.map(|number| number as f64).collect();
    ///     let count = values.len();
    ///     values.resize(count + needed.len(), f64::NAN);
    ///     let mut values = device.memory_from_slice(&stream, &values)?;
    ///     let (roots, leaves) = values.view_mut().split_at(count)?;
    ///     forest.broadcast(&stream, &mut [[roots.into(), leaves.into()]])?;
    ///     let expected = [&[0.0, 1.0, 2.0, 4.0, 3.0][..], &[3.0, 4.0, 1.0]][rank];
    ///     assert_eq!(values.to_vec(&stream)?, expected);
    ///     Ok(())
    /// })?;
    /// ranks.into_iter().collect::<halo::Result<()>>()?;
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new). `InvalidArgument`, on all ranks, if a range ends before it starts, if two ranks own
    /// the same number, or if no rank owns a number that is needed.
    pub fn from_global(
        communicator: Arc<dyn Communicator>,
        owned: Range<u64>,
        needed: &[u64],
        fields: &[FieldSpec],
        device: &Device,
        options: &ForestOptions,
    ) -> Result<Self> {
        let grouped = |ranks: Ranks<'_>| {
            let (size, leaves) = locate(ranks, &owned, needed, options.timeout)?;
            Ok((size, group(ranks, size, &leaves)?))
        };
        Self::build(communicator, fields, device, options, grouped)
    }

    /// `grouped` returns the size, and the leaves by the ranks of their roots.
    fn build(
        communicator: Arc<dyn Communicator>,
        fields: &[FieldSpec],
        device: &Device,
        options: &ForestOptions,
        grouped: impl FnOnce(Ranks<'_>) -> Result<(ForestSize, Vec<Group>)>,
    ) -> Result<Self> {
        let transport = Arc::clone(&communicator);
        let (rank, size) = (transport.rank(), transport.size());
        let ranks = Ranks { communicator: &*transport, rank, size };
        let (timeout, number) = (options.timeout, options.channel);
        let declared = reductions(options);
        let serial = transport.collectives().next_exchange();

        // Every rank takes part in each of these steps, whatever it finds wrong.
        let own = grouped(ranks).and_then(|(size, groups)| {
            let arrays = arrays(rank, fields, [size.roots, size.leaves])?;
            declared.iter().try_for_each(|combine| check_combine(fields, *combine))?;
            Channel::check(ranks.communicator, number)?;
            Channel::discard_old(ranks.communicator, number)?;
            Ok(((size, groups, arrays), [size.roots as u64, serial]))
        });
        let ((size, groups, arrays), all) = share(ranks, own, timeout)?;
        ranks.check()?;
        let roots: Vec<u64> = all.iter().map(|[roots, _]| *roots).collect();
        let serials = all.iter().map(|[_, serial]| *serial).collect();
        share(ranks, check_roots(rank, &groups, &roots).map(|()| ((), [])), timeout)?;
        // The plans are compared later, when lists have been sent.
        let attributes = Attributes::of_forest(options, fields).into_all();
        find(ranks, &attributes, number, timeout)?.map_or(Ok(()), Err)?;

        let mut channel = Channel::new(communicator, rank, number, serials, false);
        let others = exchange_lists(ranks, &channel, &groups, size.roots, timeout)?;
        let own = Lists::new(rank, fields, arrays, groups, others).and_then(|lists| {
            let source = Source::Forest(Box::new(ForestSource::new(lists, options)));
            let passes = ranks.communicator.passes_memory_of(device);
            let engine = Engine::new(source, rank, device, options.into(), passes)?;
            engine.check_messages(passes)?;
            Ok((engine, []))
        });
        let (mut engine, _) = share(ranks, own, timeout)?;
        let measures = engine.staging_is_open && ranks.size > 1;
        let contribution = Contribution { engine: &engine, device: 0, measures };
        let agreed = agree(ranks, Some(contribution), serial, &Settings::from(options))?;
        let Agreement { stamps, measures, .. } = agreed;
        ranks.check()?;
        channel.stamps = stamps;
        if measures {
            choose_staging(ranks, &mut engine, &mut channel)?;
        }
        let reduced = declared.iter().map(|combine| Direction::Reduce(*combine));
        let mut directions = [Direction::Fill].into_iter().chain(reduced);
        let made = directions.try_for_each(|direction| engine.route(direction).map(drop));
        share(ranks, made.map(|()| ((), [])), timeout)?;
        let messenger = Messenger::new(engine, channel);
        Ok(Self { messenger, size, reductions: declared })
    }

    /// Starts to copy each root to all leaves that point to it. Blocks only if the pool is full and must wait for a
    /// buffer that is still in use.
    ///
    /// `fields` holds the arrays of each field, `[roots, leaves]`. Roots must not change until packing is done: work
    /// enqueued on `stream` later runs after packing. The leaves belong to the broadcast until it is
    /// [finished](InFlight::finish).
    ///
    /// # Errors
    ///
    /// As for [`HaloExchange::start`](crate::HaloExchange::start). `Conflict` also if the leaves are lent for reading,
    /// or if a broadcast or reduction before was dropped or failed: see [`reset`](Self::reset).
    pub fn start_broadcast<'a, 'f>(
        &'a mut self,
        stream: &Stream,
        fields: &'a mut [[Field<'f>; 2]],
    ) -> Result<InFlight<'a, 'f>> {
        self.launch(Direction::Fill, stream, fields)
    }

    /// Copies each root to all leaves that point to it: [`start_broadcast`](Self::start_broadcast), then
    /// [`finish`](InFlight::finish). Blocks until all messages have arrived, and does not wait for unpacking.
    ///
    /// # Errors
    ///
    /// As for [`start_broadcast`](Self::start_broadcast) and [`finish`](InFlight::finish).
    pub fn broadcast(&mut self, stream: &Stream, fields: &mut [[Field<'_>; 2]]) -> Result<()> {
        self.start_broadcast(stream, fields)?.finish()
    }

    /// Starts to combine each root with all leaves that point to it, in a fixed [order](Self#order) that begins with
    /// the value of the root. Leaves do not change. Blocks only as [`start_broadcast`](Self::start_broadcast) does.
    ///
    /// The roots belong to the reduction until it is finished. They are changed after all messages have arrived.
    ///
    /// # Errors
    ///
    /// As for [`start_broadcast`](Self::start_broadcast), with roots in the place of leaves. `InvalidArgument` if the
    /// options did not declare the [reduction](ForestOptions::reductions).
    pub fn start_reduce<'a, 'f>(
        &'a mut self,
        stream: &Stream,
        fields: &'a mut [[Field<'f>; 2]],
        combine: Combine,
    ) -> Result<InFlight<'a, 'f>> {
        self.launch(Direction::Reduce(combine), stream, fields)
    }

    /// Combines each root with all leaves that point to it: [`start_reduce`](Self::start_reduce), then
    /// [`finish`](InFlight::finish). Blocks until all messages have arrived, and does not wait for unpacking.
    ///
    /// # Errors
    ///
    /// As for [`start_reduce`](Self::start_reduce) and [`finish`](InFlight::finish).
    pub fn reduce(
        &mut self,
        stream: &Stream,
        fields: &mut [[Field<'_>; 2]],
        combine: Combine,
    ) -> Result<()> {
        self.start_reduce(stream, fields, combine)?.finish()
    }

    /// Sets a token of this rank for all broadcasts and reductions from now on:
    /// see [`HaloExchange::set_token`](crate::HaloExchange::set_token).
    pub fn set_token(&mut self, token: u64) {
        self.messenger.channel.token = token;
    }

    /// Makes broadcasts, reductions and [collective calls](Communicator#collective-calls) possible again after one was
    /// dropped or failed: see [`HaloExchange::reset`](crate::HaloExchange::reset). All ranks call this together.
    ///
    /// Blocks until all ranks have called it, for at most twice the timeout.
    ///
    /// # Errors
    ///
    /// As for [`HaloExchange::reset`](crate::HaloExchange::reset).
    pub fn reset(&mut self) -> Result<()> {
        self.messenger.reset()
    }

    /// Returns the traffic of the broadcasts and reductions so far, and the times of all work that the device has
    /// finished: see [`HaloExchange::statistics`](crate::HaloExchange::statistics). Does not block.
    ///
    /// # Errors
    ///
    /// The errors that the device reports.
    pub fn statistics(&self) -> Result<HaloStatistics> {
        self.messenger.engine.recorder().statistics()
    }

    /// The numbers of items of this rank's arrays.
    pub fn size(&self) -> ForestSize {
        self.size
    }

    /// The destination rank and the number of bytes of each message that a broadcast sends, by rank, including the stamp
    /// of 8 bytes. A reduction receives messages of these sizes.
    pub fn sends(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.messenger.engine.sends()
    }

    /// The source rank and the number of bytes of each message that a broadcast receives, by rank, including the stamp
    /// of 8 bytes. A reduction sends messages of these sizes.
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
        fields: &'a mut [[Field<'f>; 2]],
    ) -> Result<InFlight<'a, 'f>> {
        let Some(route) = self.messenger.engine.known_route(direction) else {
            let (rank, declared) = (self.messenger.engine.rank, &self.reductions);
            let combine = direction.reduction().unwrap_or_default();
            let message = format!(
                "rank {rank}: a reduction by {combine:?}; the options declare {declared:?}"
            );
            return Err(refuse(message));
        };
        let fields = fields.as_flattened_mut();
        let flight = self.messenger.begin(route, stream, fields)?;
        self.messenger.run(flight, stream, fields)
    }
}
