//! Fields whose values identify their places, and exchanges of them.
#![allow(dead_code, reason = "each test crate uses what it needs")]

pub(crate) mod world;

use std::sync::Arc;
use std::time::Duration;

use halo::communicator::{Communicator, Fault, Faults, FaultyCommunicator, ThreadCommunicator};
use halo::{
    Block, Dim, Field, FieldSpec, HaloExchange, HaloOptions, HaloTransformer, Kind, Link, Quantity,
    Reach, Result, Side, Staging, Symmetry, Topology,
};
use runtime_core::{
    AnyViewMut, Bool, Complex, DType, Device, Element, Memory, Stream, Support, bf16, bytemuck, f16,
};

use world::{Plane, Tile, World, value};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// How often exchanges are repeated.
pub(crate) const STEPS: u64 = 3;

/// The value of elements that must not be written.
const POISON: u8 = 0xa5;
/// The number of guard bytes before and after each field.
const MARGIN: usize = 16;

/// A test case: the places of cells, and the fields on them.
pub(crate) struct Case<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) world: &'a dyn World,
    pub(crate) quantities: Vec<(Kind, Vec<Shape>)>,
    pub(crate) options: HaloOptions,
}

/// A field without its cells, which differ from rank to rank.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) dtype: DType,
    pub(crate) halo: [[usize; 2]; 3],
    pub(crate) allocated: [[usize; 2]; 3],
    pub(crate) staggered: [bool; 3],
    pub(crate) free: Vec<usize>,
    /// The order of dimensions in memory: axes first, then free dimensions.
    pub(crate) order: Vec<usize>,
    /// Whether the fastest dimension runs backwards, with a gap after each element.
    pub(crate) backwards: bool,
}

impl Shape {
    pub(crate) fn new(dtype: DType, width: usize) -> Self {
        let halo = [[width; 2]; 3];
        Self {
            dtype,
            halo,
            allocated: halo,
            staggered: [false; 3],
            free: Vec::new(),
            order: Vec::new(),
            backwards: false,
        }
    }

    pub(crate) fn staggered(self, staggered: [bool; 3]) -> Self {
        Self { staggered, ..self }
    }

    pub(crate) fn spec(&self, axes: usize, block: &Block, name: String) -> Result<FieldSpec> {
        let along = |axis: usize| {
            let [halo, around] = [self.halo[axis], self.allocated[axis]];
            let dim = Dim::axis(axis, block.cells[axis]).halo(halo[0], halo[1]);
            let dim = dim.allocated(around[0], around[1]);
            if self.staggered[axis] { dim.staggered() } else { dim }
        };
        let free = self.free.iter().map(|extent| Dim::free(*extent));
        let dims: Vec<Dim> = (0..axes).map(along).chain(free).collect();
        let mut spec = FieldSpec::new(name, self.dtype, &dims)?;
        if !self.order.is_empty() {
            spec = spec.ordered(&self.order)?;
        }
        if self.backwards {
            let strides = spec.layout().strides();
            let fastest = strides.iter().copied().min().unwrap_or(1);
            let strides: Vec<isize> = strides
                .iter()
                .map(|stride| if *stride == fastest { -2 * stride } else { 2 * stride })
                .collect();
            spec = spec.strided(&strides)?;
        }
        Ok(spec)
    }
}

/// The memory of one field.
pub(crate) struct Store {
    pub(crate) memory: Memory<u8>,
    pub(crate) spec: FieldSpec,
}

impl Store {
    pub(crate) fn view_mut(&mut self) -> AnyViewMut<'_> {
        let offset = MARGIN + self.spec.layout().span_bytes().start.unsigned_abs();
        self.memory.view_mut().reinterpret(offset, self.spec.layout()).unwrap()
    }

    pub(crate) fn field(&mut self) -> Field<'_> {
        self.view_mut().into()
    }
}

impl Case<'_> {
    /// The quantities of all blocks of a rank.
    pub(crate) fn quantities(&self, rank: usize) -> Result<Vec<Quantity>> {
        let mut all = Vec::new();
        for block in self.topology.blocks_of(rank)? {
            all.extend(self.quantities_of(block)?);
        }
        Ok(all)
    }

    fn quantities_of(&self, block: usize) -> Result<Vec<Quantity>> {
        let block = self.topology.block(block)?;
        let axes = self.topology.axes();
        let quantities = self.quantities.iter().enumerate().map(|(number, (kind, shapes))| {
            let component =
                |(c, shape): (usize, &Shape)| shape.spec(axes, &block, format!("q{number}.{c}"));
            Quantity::new(*kind, shapes.iter().enumerate().map(component).collect::<Result<_>>()?)
        });
        quantities.collect()
    }

    /// The bytes of a rank's fields, with ghosts filled as expected after an exchange, or unfilled.
    pub(crate) fn image(&self, rank: usize, exchanged: bool) -> Vec<Vec<u8>> {
        let blocks = self.topology.blocks_of(rank).unwrap();
        blocks.into_iter().flat_map(|block| self.image_of(block, exchanged)).collect()
    }

    fn image_of(&self, block: usize, exchanged: bool) -> Vec<Vec<u8>> {
        let mut images = Vec::new();
        let quantities = self.quantities_of(block).unwrap();
        let block = self.topology.block(block).unwrap();
        for (number, quantity) in quantities.iter().enumerate() {
            for (component, spec) in quantity.components().iter().enumerate() {
                let layout = spec.layout();
                let size = layout.dtype().size();
                let span = layout.span_bytes();
                let mut bytes = vec![POISON; span.len() + 2 * MARGIN];
                let mut index = vec![0; layout.rank()];
                loop {
                    let at = place(spec, &block, &index, exchanged, &self.options);
                    if let Some((at, free)) = at
                        && let Some(place) = self.world.place(block.tile, at)
                    {
                        let number = number * 1000 + free;
                        let value = value(quantity.kind(), component, &place, number, spec.dtype());
                        let from_origin: isize = index
                            .iter()
                            .zip(layout.strides())
                            .map(|(index, stride)| *index as isize * stride)
                            .sum();
                        let start = from_origin * size as isize - span.start;
                        let start = MARGIN + start as usize;
                        bytes[start..start + size].copy_from_slice(&encode(spec.dtype(), value));
                    }
                    if !advance(&mut index, layout.shape()) {
                        break;
                    }
                }
                images.push(bytes);
            }
        }
        images
    }

    pub(crate) fn stores(&self, rank: usize, stream: &Stream) -> Vec<Store> {
        let quantities = self.quantities(rank).unwrap();
        let specs = quantities.iter().flat_map(Quantity::components).cloned();
        let images = self.image(rank, false);
        specs
            .zip(images)
            .map(|(spec, bytes)| {
                let memory = stream.device().memory_from_slice(stream, &bytes).unwrap();
                Store { memory, spec }
            })
            .collect()
    }

    pub(crate) fn check(&self, rank: usize, stores: &[Store], stream: &Stream) {
        for (store, expected) in stores.iter().zip(self.image(rank, true)) {
            let found = store.memory.to_vec(stream).unwrap();
            if found == expected {
                continue;
            }
            let first = found.iter().zip(&expected).position(|(a, b)| a != b).unwrap();
            let element = first - first % store.spec.dtype().size();
            panic!(
                "rank {rank}, {:?}: byte {element}: found {:x?}, expected {:x?}; {} bytes differ",
                store.spec,
                &found[element..][..store.spec.dtype().size()],
                &expected[element..][..store.spec.dtype().size()],
                found.iter().zip(&expected).filter(|(a, b)| a != b).count()
            );
        }
    }

    /// For each field of a rank, the indices of ghosts without a source cell.
    pub(crate) fn unfilled(&self, rank: usize) -> Vec<Vec<Vec<usize>>> {
        let blocks = self.topology.blocks_of(rank).unwrap();
        blocks.into_iter().flat_map(|block| self.unfilled_of(block)).collect()
    }

    fn unfilled_of(&self, block: usize) -> Vec<Vec<Vec<usize>>> {
        let quantities = self.quantities_of(block).unwrap();
        let block = self.topology.block(block).unwrap();
        let unfilled = quantities.iter().flat_map(Quantity::components).map(|spec| {
            let (mut index, mut found) = (vec![0; spec.dims().len()], Vec::new());
            loop {
                let at = |exchanged| place(spec, &block, &index, exchanged, &self.options);
                if let (None, Some((ghost, _))) = (at(false), at(true))
                    && self.world.place(block.tile, ghost).is_none()
                {
                    found.push(index.clone());
                }
                if !advance(&mut index, spec.layout().shape()) {
                    return found;
                }
            }
        });
        unfilled.collect()
    }

    /// Runs the exchange of one rank over any transport, several times.
    pub(crate) fn exchange_over(&self, ranks: Arc<dyn Communicator>, device: &Device) {
        let rank = ranks.rank();
        let quantities = self.quantities(rank).unwrap();
        let stream = device.default_stream();
        let mut exchange =
            HaloExchange::new(ranks, self.topology, &quantities, device, &self.options).unwrap();
        self.check_exchanges(rank, &mut exchange, &stream);
    }

    /// Runs an exchange of a rank [`STEPS`] times, each time with new fields.
    pub(crate) fn check_exchanges(
        &self,
        rank: usize,
        exchange: &mut HaloExchange,
        stream: &Stream,
    ) {
        for _ in 0..STEPS {
            let mut stores = self.stores(rank, stream);
            let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
            exchange.exchange(stream, &mut fields).unwrap();
            drop(fields);
            self.check(rank, &stores, stream);
        }
    }

    /// Runs all ranks one after the other, with messages passed between transformers.
    pub(crate) fn carry(&self, device: &Device) {
        self.carry_in_batches(device, usize::MAX);
    }

    /// As [`carry`](Self::carry), with messages unpacked a few at a time, the last ones first. Each batch takes one
    /// launch. No other code uses the device at the same time.
    pub(crate) fn carry_in_batches(&self, device: &Device, most: usize) {
        let is_native = device.capabilities().region_copy == Support::Native;
        let stream = device.default_stream();
        let mut ranks = Vec::new();
        for rank in 0..self.topology.ranks() {
            let quantities = self.quantities(rank).unwrap();
            let halo =
                HaloTransformer::new(self.topology, rank, &quantities, device, &self.options)
                    .unwrap();
            ranks.push((halo, self.stores(rank, &stream)));
        }
        let mut sent = Vec::new();
        for (rank, (halo, stores)) in ranks.iter_mut().enumerate() {
            let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
            let packed = halo.pack(&stream, &mut fields).unwrap();
            packed.synchronize(TIMEOUT).unwrap();
            for (to, buffer) in packed.messages() {
                sent.push((rank, to, buffer.to_vec().unwrap()));
            }
        }
        for (rank, (halo, stores)) in ranks.iter_mut().enumerate() {
            let mut messages = halo.incoming().unwrap();
            for message in &mut messages {
                let is_it = |(from, to, _): &(usize, usize, Vec<u8>)| {
                    (*from, *to) == (message.rank(), rank)
                };
                let (_, _, bytes) = sent.remove(sent.iter().position(is_it).unwrap());
                message.copy_from_slice(&bytes).unwrap();
            }
            let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
            while !messages.is_empty() {
                let batch = messages.split_off(messages.len().saturating_sub(most));
                let before = device.statistics().on_device.count;
                halo.unpack(&stream, &mut fields, batch).unwrap();
                let launches = device.statistics().on_device.count - before;
                assert!(
                    most == usize::MAX || launches == u64::from(is_native),
                    "{launches} launches"
                );
            }
            drop(fields);
            self.check(rank, stores, &stream);
        }
    }

    /// Runs every rank in its own thread, several times, with messages and without.
    pub(crate) fn exchange(&self, device: &Device) {
        for direct in [false, true] {
            self.with_options(
                device,
                |options| options.direct = direct,
                |rank, mut exchange, stream| self.check_exchanges(rank, &mut exchange, &stream),
            );
        }
    }

    /// Exchanges over faulty transports. An exchange has the right values or an error, and goes on after a reset.
    pub(crate) fn exchange_with_faults(&self, open: impl Fn(u64) -> Device + Sync) {
        let (mut failed, mut succeeded) = (0, 0);
        let all = Fault::ALL.into_iter().flat_map(|fault| (0..3).map(move |seed| (fault, seed)));
        for (fault, seed) in all {
            let timeout = Duration::from_millis(100);
            // Pinned memory needs no measurement, and takes stamps.
            let (direct, staging) = (false, Staging::Pinned);
            let options = HaloOptions { timeout, direct, staging, ..self.options.clone() };
            let outcomes = ThreadCommunicator::run(self.topology.ranks(), |ranks| {
                let faults = Faults::new(seed).with(fault, 0.05);
                let ranks = Arc::new(FaultyCommunicator::new(ranks, faults));
                let rank = ranks.rank();
                let device = open(seed);
                let (stream, quantities) =
                    (device.default_stream(), self.quantities(rank).unwrap());
                let mut exchange =
                    HaloExchange::new(ranks, self.topology, &quantities, &device, &options)
                        .unwrap();
                [0; 4].map(|_| {
                    let mut stores = self.stores(rank, &stream);
                    let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
                    let done = exchange.exchange(&stream, &mut fields);
                    drop(fields);
                    if done.is_ok() {
                        self.check(rank, &stores, &stream);
                    }
                    (0..20).find_map(|_| exchange.reset().ok()).unwrap();
                    done.is_ok()
                })
            });
            for success in outcomes.unwrap().into_iter().flatten() {
                *if success { &mut succeeded } else { &mut failed } += 1;
            }
        }
        assert!(failed > 0 && succeeded > 0, "{failed} failed, {succeeded} succeeded");
    }

    /// Calls `f` for each rank, in its thread, with its exchange and a stream.
    pub(crate) fn with_ranks<R: Send>(
        &self,
        device: &Device,
        f: impl Fn(usize, HaloExchange, Stream) -> R + Sync,
    ) -> Vec<R> {
        self.with_options(device, |_| {}, f)
    }

    /// As [`with_ranks`](Self::with_ranks), with other options.
    pub(crate) fn with_options<R: Send>(
        &self,
        device: &Device,
        change: impl Fn(&mut HaloOptions),
        f: impl Fn(usize, HaloExchange, Stream) -> R + Sync,
    ) -> Vec<R> {
        let mut options = self.options.clone();
        change(&mut options);
        ThreadCommunicator::run(self.topology.ranks(), |ranks| {
            let rank = ranks.rank();
            let stream = device.stream_create(&Default::default()).unwrap();
            let quantities = self.quantities(rank).unwrap();
            let exchange =
                HaloExchange::new(Arc::new(ranks), self.topology, &quantities, device, &options)
                    .unwrap();
            f(rank, exchange, stream)
        })
        .unwrap()
    }
}

/// To the east of a block of `own` cells lies another block of `beyond` cells along the same axes. The symmetry gives
/// the directions of its own axes.
pub(crate) fn two_blocks(
    symmetry: Symmetry,
    own: [usize; 2],
    beyond: [usize; 2],
) -> (Topology, Plane) {
    let unit = |axis: usize, sign: i64| if axis == 0 { [sign, 0] } else { [0, sign] };
    let mut axes = [[0; 2]; 2];
    for axis in 0..2 {
        let (on, against) = symmetry.axis(axis);
        axes[on] = unit(axis, if against { -1 } else { 1 });
    }
    let mut cells = beyond;
    if symmetry.swaps() {
        cells.swap(0, 1);
    }
    // Its corner with the lowest x and y in its own axes.
    let corner = [0, 1].map(|k| {
        let runs_back = axes.iter().any(|axis| axis[k] < 0);
        [own[0] as i64, 0][k] + if runs_back { beyond[k] as i64 } else { 0 }
    });
    let tiles = vec![
        Tile { corner: [0, 0], x: [1, 0], y: [0, 1], cells: own },
        Tile { corner, x: axes[0], y: axes[1], cells },
    ];
    let (on, against) = symmetry.axis(0);
    let mut back = [0; 2];
    back[on] = if against { 1 } else { -1 };
    let side = Side::new(back).unwrap();
    let links = [
        Link { rank: 0, side: Side::EAST, neighbour: 1, symmetry },
        Link { rank: 1, side, neighbour: 0, symmetry: symmetry.inverse() },
    ];
    (Topology::of_blocks(&[own, cells], &links).unwrap(), Plane { tiles })
}

/// The place of an element, in half cells of its tile, and its number among the free dimensions. `None` if the element
/// must not be accessed.
fn place(
    spec: &FieldSpec,
    block: &Block,
    index: &[usize],
    exchanged: bool,
    options: &HaloOptions,
) -> Option<([i64; 3], usize)> {
    let (mut at, mut free, mut outside) = ([1; 3], 0, 0);
    for (dim, &index) in spec.dims().iter().zip(index) {
        let owned = dim.owned();
        let Some(axis) = dim.along() else {
            free = free * dim.allocation() + index;
            continue;
        };
        let halo = dim.widths();
        if !owned.contains(&index) {
            outside += 1;
            let below = owned.start - halo[0];
            if index < below || index >= owned.end + halo[1] {
                return None;
            }
        }
        let cell = block.start[axis] as i64 + index as i64 - owned.start as i64;
        at[axis] = 2 * cell + i64::from(!dim.is_staggered());
    }
    let may = match options.reach {
        _ if outside == 0 => true,
        Reach::Full | Reach::ByAxis => exchanged,
        Reach::Faces => exchanged && outside == 1,
    };
    may.then_some((at, free))
}

fn advance(index: &mut [usize], shape: &[usize]) -> bool {
    for (index, extent) in index.iter_mut().zip(shape).rev() {
        *index += 1;
        if *index < *extent {
            return true;
        }
        *index = 0;
    }
    false
}

pub(crate) fn encode(dtype: DType, value: i64) -> Vec<u8> {
    fn bytes(value: impl Element) -> Vec<u8> {
        bytemuck::bytes_of(&value).to_vec()
    }
    match dtype {
        DType::Bool => bytes(Bool::from(value != 0)),
        DType::I8 => bytes(value as i8),
        DType::I16 => bytes(value as i16),
        DType::I32 => bytes(value as i32),
        DType::I64 => bytes(value),
        DType::U8 => bytes(value as u8),
        DType::U16 => bytes(value as u16),
        DType::U32 => bytes(value as u32),
        DType::U64 => bytes(value as u64),
        DType::F16 => bytes(f16::from_f64(value as f64)),
        DType::BF16 => bytes(bf16::from_f64(value as f64)),
        DType::F32 => bytes(value as f32),
        DType::F64 => bytes(value as f64),
        DType::C64 => bytes(Complex::new(value as f32, 2.0 * value as f32)),
        DType::C128 => bytes(Complex::new(value as f64, -3.0 * value as f64)),
        DType::Record(_) => unreachable!("tests of records have their own values"),
    }
}
