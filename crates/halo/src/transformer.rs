//! Packing and unpacking, for programs with their own transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use runtime_core::{Device, Event, Result, Stream};

use crate::communicator::Buffer;
use crate::engine::devices::Devices;
use crate::engine::halo::HaloSource;
use crate::engine::pool::Pool;
use crate::engine::route::Direction;
use crate::engine::{Engine, Source, of_rank};
use crate::field::{Field, Quantity, end_writes};
use crate::options::{HaloOptions, Reach, Staging};
use crate::plan::fingerprint::PlanFingerprint;
use crate::plan::transfer::{Edge, refuse};
use crate::topology::Topology;

/// Packs the halos of any fields into one buffer for each neighbour, or several as the [options](HaloOptions::messages)
/// specify, and unpacks the buffers that neighbours sent.
///
/// If the rank has [several blocks](Topology::on_ranks), quantities and fields are given block after block.
///
/// This is an exchange without the transport; [`HaloExchange`](crate::HaloExchange) includes one. Data that a rank
/// exchanges with itself is copied when it packs, in the same launch, and is in no buffer.
///
/// Behind a failure, a device may skip steps of a call, and run the later ones once the failure was reported to any
/// caller. The steps may still run when the call returns. A program that can go on after a failure reads
/// [`Stream::failures`] before the call, and again after [`Stream::synchronize`]: if the number has grown, the messages
/// that the call packed, and the elements that it wrote, are unspecified.
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
#[derive(Debug)]
pub struct HaloTransformer {
    halo: Arc<HaloSource>,
    engine: Engine,
}

impl HaloTransformer {
    /// Makes the transformer of one rank for fields on `device`. Every rank uses the same quantities, options and
    /// topology.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, with the field, side and rank concerned: a rank that the topology does not have; two fields
    /// with the same name; a field whose cells are not those of its block; blocks of the rank with different
    /// quantities; a halo wider than the neighbour's block; a field staggered along one axis without a partner where axes change places; elements without a sign that
    /// would have to change it; or [`Reach::ByAxis`]. `OutOfMemory`. Other errors that the device reports.
    pub fn new(
        topology: &Topology,
        rank: usize,
        quantities: &[Quantity],
        device: &Device,
        options: &HaloOptions,
    ) -> Result<Self> {
        if options.reach == Reach::ByAxis {
            let message = "Reach::ByAxis for a transformer, which packs all messages at once";
            return Err(refuse(message.to_owned()));
        }
        let halo =
            Arc::new(HaloSource::new(topology, rank, quantities, Devices::default(), options)?);
        let source = Source::Halo(Arc::clone(&halo));
        let mut engine = Engine::new(source, rank, device, options.into(), false)?;
        engine.route(Direction::Fill)?;
        Ok(Self { halo, engine })
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
    /// these cases. `DeviceFault` if a failure of the stream was reported to another caller during the call. Other
    /// errors that the device reports.
    pub fn pack(&mut self, stream: &Stream, fields: &mut [Field<'_>]) -> Result<Packed> {
        let route = self.engine.route(Direction::Fill)?;
        self.engine.check(Direction::Fill, stream, fields)?;
        let (pool, failures) = (self.pool(), stream.failures());
        let (messages, event) = self.engine.pack(route, stream, fields)?;
        let messages = messages.into_iter().map(|(rank, buffer)| (rank, Some(buffer))).collect();
        let packed = Packed { messages, event, pool };
        self.engine.check_since(stream, failures)?;
        end_writes(fields);
        Ok(packed)
    }

    /// Returns a buffer for each message that this rank receives. The buffers for one sender are in the order in which
    /// the sender [packs](Packed::messages) them.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if the pool has no room. `OutOfMemory`. `Timeout` if buffers are still in use.
    pub fn incoming(&mut self) -> Result<Vec<Incoming>> {
        let route = self.engine.route(Direction::Fill)?;
        let pool = self.pool();
        let buffers = self.engine.receive_buffers(route)?;
        let incoming = buffers.into_iter().enumerate().map(|(index, (rank, buffer))| Incoming {
            index,
            rank,
            buffer: Some(buffer),
            is_filled: AtomicBool::new(false),
            pool: Arc::clone(&pool),
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
        let route = self.engine.route(Direction::Fill)?;
        self.engine.check(Direction::Fill, stream, fields)?;
        let refuse = |message| Err(of_rank(self.engine.rank, refuse(message)));
        let is_foreign = |message: &&Incoming| !Arc::ptr_eq(&message.pool, &self.engine.pool);
        if let Some(message) = messages.iter().find(is_foreign) {
            return refuse(format!("a message of rank {} of another transformer", message.rank));
        }
        let mut numbers: Vec<usize> = messages.iter().map(|message| message.index).collect();
        numbers.sort_unstable();
        if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            let rank = self.engine.routes(route).receives[twice[0]].rank;
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
        let failures = stream.failures();
        self.engine.unpack(route, stream, fields, batch)?;
        self.engine.check_since(stream, failures)?;
        end_writes(fields);
        Ok(())
    }

    /// Sets corners without cells to [averages](crate::MissingCorners::Average), if the options specify this. Call it
    /// after all messages are unpacked. Blocks until the device is done.
    ///
    /// # Errors
    ///
    /// As [`pack`](Self::pack).
    pub fn average_corners(&mut self, stream: &Stream, fields: &mut [Field<'_>]) -> Result<()> {
        self.engine.check(Direction::Fill, stream, fields)?;
        let failures = stream.failures();
        self.engine.average_corners(stream, fields)?;
        self.engine.check_since(stream, failures)?;
        end_writes(fields);
        Ok(())
    }

    /// How messages get to the transport: [`Pinned`](Staging::Pinned) or [`Device`](Staging::Device).
    pub fn staging(&self) -> Staging {
        self.engine.staging()
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
    ///     kernel.launch_checked(&stream, &Launch::cover(1, 1), args)?;
    /// }
    /// let (low, high) = ([-1.0, 5.0, 6.0, -1.0], [-1.0, 9.0, 10.0, -1.0]);
    /// assert_eq!(values.to_vec(&stream)?, [high, low, high, low].concat());
    /// # Ok::<(), halo::Error>(())
    /// ```
    pub fn edges(&self) -> &[Edge] {
        &self.halo.plan.edges
    }

    /// The destination rank and the number of bytes of each message to send.
    pub fn sends(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.engine.sends()
    }

    /// The source rank and the number of bytes of each message to receive.
    pub fn receives(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.engine.receives()
    }

    /// The number of bytes that message buffers have now, and the most that they may have.
    pub fn pool_bytes(&self) -> (usize, usize) {
        self.engine.pool_bytes()
    }

    /// The hashes that ranks [compare](PlanFingerprint::compare) to check that their plans match.
    ///
    /// Messages do not describe themselves: ranks with different plans would mistake elements of one field for those of
    /// another. The caller's transport carries the hashes once.
    pub fn fingerprint(&self) -> PlanFingerprint {
        self.engine.fingerprint()
    }

    /// The device of the fields.
    pub fn device(&self) -> &Device {
        &self.engine.device
    }

    /// The pool of the message buffers. From now on others see the buffers.
    fn pool(&self) -> Arc<Mutex<Pool>> {
        let pool = Arc::clone(&self.engine.pool);
        pool.lock().show();
        pool
    }
}

/// Messages that are packed, or will be packed when the device reaches the launch. Their buffers return to the pool
/// when this is dropped.
#[derive(Debug)]
pub struct Packed {
    messages: Vec<(usize, Option<Buffer>)>,
    event: Event,
    pool: Arc<Mutex<Pool>>,
}

impl Packed {
    /// Whether the messages are packed. Does not block.
    ///
    /// # Errors
    ///
    /// The errors that the device reports.
    pub fn ready(&self) -> Result<bool> {
        self.event.is_done()
    }

    /// Blocks until the messages are packed.
    ///
    /// # Errors
    ///
    /// `Timeout`. Other errors that the device reports.
    pub fn synchronize(&self, timeout: Duration) -> Result<()> {
        self.event.wait_for(timeout)
    }

    /// The messages: destination rank and buffer. The bytes are valid once the messages are packed. Messages to one
    /// rank are in the order of its [`incoming`](crate::HaloTransformer::incoming).
    pub fn messages(&self) -> impl Iterator<Item = (usize, &Buffer)> {
        self.messages.iter().filter_map(|(rank, buffer)| Some((*rank, buffer.as_ref()?)))
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let mut pool = self.pool.lock();
        for (_, buffer) in &mut self.messages {
            if let Some(buffer) = buffer.take() {
                pool.give(buffer.into_storage(), Some(self.event.clone()));
            }
        }
    }
}

/// A message to receive. Its buffer returns to the pool when this is dropped.
#[derive(Debug)]
pub struct Incoming {
    index: usize,
    rank: usize,
    buffer: Option<Buffer>,
    /// Whether bytes were copied into it, or its memory was handed out for writing.
    is_filled: AtomicBool,
    pool: Arc<Mutex<Pool>>,
}

impl Incoming {
    /// The rank that sends the message.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Sets the bytes of the message. Blocks until they are copied.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` unless the number of bytes is that of the message. Errors of the copy to the device.
    pub fn copy_from_slice(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.as_mut().map_or(Ok(()), |buffer| buffer.copy_from_slice(bytes))?;
        *self.is_filled.get_mut() = true;
        Ok(())
    }

    /// Returns the bytes of the message to receive into, if the host can address them.
    ///
    /// # Errors
    ///
    /// Errors of earlier uses of the buffer.
    pub fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        let bytes = self.buffer.as_mut().map_or(Ok(None), Buffer::as_mut_slice)?;
        if bytes.is_some() {
            *self.is_filled.get_mut() = true;
        }
        Ok(bytes)
    }

    /// Returns the buffer, possibly on the device, for transports that identify such memory by its handle.
    pub fn buffer(&self) -> Option<&Buffer> {
        self.is_filled.store(true, Ordering::Relaxed);
        self.buffer.as_ref()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.lock().give(buffer.into_storage(), None);
        }
    }
}
