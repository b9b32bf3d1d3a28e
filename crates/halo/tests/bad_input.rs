//! What is refused: before anything is sent, by errors that name what they are about.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use backend_sim::{SimConfig, SimDevice};
use halo::communicator::{Buffer, Communicator, Direct, Request, ThreadCommunicator};
use halo::{
    Dim, Error, ErrorKind, Field, FieldSpec, HaloExchange, HaloOptions, HaloTransformer, Link,
    Quantity, Result, Side, Symmetry, Topology,
};
use runtime_core::{DType, Device, Memory, Stream};

fn device() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new())).unwrap()
}

fn ring() -> Topology {
    Topology::cartesian(&[6], &[2], &[true]).unwrap()
}

fn field(halo: usize) -> Quantity {
    let dims = [Dim::axis(0, 3).halo(halo, halo), Dim::free(2)];
    Quantity::scalar(FieldSpec::new("height", DType::F64, &dims).unwrap())
}

fn plan(topology: &Topology, rank: usize, quantities: &[Quantity]) -> Result<HaloTransformer> {
    HaloTransformer::new(topology, rank, quantities, &device(), &HaloOptions::default())
}

fn refused<T>(outcome: Result<T>, message: &str) {
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(error.message(), message);
}

#[test]
fn a_halo_wider_than_the_neighbour() {
    refused(
        plan(&ring(), 1, &[field(4)]),
        "field height, side west of rank 1: a halo of 4 cells; its neighbour, rank 0, has 3",
    );
}

/// Elements that lie at one place would be written twice.
#[test]
fn overlapping_regions() {
    let field = FieldSpec::new("height", DType::F64, &[Dim::axis(0, 3).halo(2, 2), Dim::free(2)]);
    refused(
        field.unwrap().strided(&[1, 1]),
        "field height: strides [1, 1] let elements of [7, 2] overlap",
    );
}

/// Two fields in one memory, by their numbers.
#[test]
fn one_memory_for_two_fields() {
    let device = device();
    let field = FieldSpec::new("height", DType::F64, &[Dim::axis(0, 3).halo(1, 1)]).unwrap();
    let quantities = [Quantity::scalar(field.clone()), Quantity::scalar(field)];
    let options = HaloOptions::default();
    let mut halo = HaloTransformer::new(&ring(), 1, &quantities, &device, &options).unwrap();
    let mut memory = device.memory_allocate::<f64>(10).unwrap();
    let (one, two) = memory.view_mut().split_at(5).unwrap();
    refused(
        halo.pack(&device.default_stream(), &mut [one.into(), two.into()]),
        "slots 0 and 1 are bound to one memory",
    );
}

#[test]
fn a_rank_that_the_topology_does_not_have() {
    refused(plan(&ring(), 2, &[field(1)]), "rank 2 of a topology of 2");
}

#[test]
fn no_ranks() {
    refused(Topology::cartesian(&[6], &[0], &[true]), "0 ranks along an axis");
    refused(Topology::cubed_sphere(6, [0, 1]), "0 ranks along an axis");
    refused(Topology::of_blocks::<2>(&[], &[]), "0 blocks with 2 axes; 1 to 3");
    refused(ThreadCommunicator::group(0), "0 ranks; at least 1");
}

/// Sides of four cells and of six are no neighbours, which a turn of a block that is not square makes of them.
#[test]
fn a_rotation_of_what_is_not_square() {
    let link = |rank, side, neighbour, symmetry| Link { rank, side, neighbour, symmetry };
    let links = [
        link(0, Side::EAST, 1, Symmetry::QUARTER),
        link(1, Side::SOUTH, 0, Symmetry::THREE_QUARTERS),
    ];
    refused(
        Topology::of_blocks(&[[6, 4], [6, 4]], &links),
        "block 0, side east, joined to 1 by quarter: the sides differ in length, [6, 4] cells and [6, 4]",
    );
    Topology::of_blocks(&[[6, 4], [4, 6]], &links).unwrap();
}

/// Counts messages.
#[derive(Debug)]
struct Counter(ThreadCommunicator, AtomicUsize);

impl Communicator for Counter {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn max_tag(&self) -> u32 {
        self.0.max_tag()
    }
    fn passes_memory_of(&self, device: &Device) -> bool {
        self.0.passes_memory_of(device)
    }
    /// None: what is lent is not counted.
    fn direct(&self) -> Option<Direct<'_>> {
        None
    }
    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.send(to, tag, buffer)
    }
    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        self.0.receive(from, tag, buffer)
    }
    fn progress(&self) -> u64 {
        self.0.progress()
    }
    fn wait_beyond(&self, seen: u64, deadline: Instant) {
        self.0.wait_beyond(seen, deadline);
    }
}

/// What rank 1 of two is told of its fields, without having sent a message; the exchange works before and after.
fn told(
    exchange: impl Fn(&mut HaloExchange, &Stream, &mut Memory<f64>) -> Result<()> + Sync,
) -> Error {
    let errors = ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let (device, ranks) = (device(), Arc::new(Counter(ranks, AtomicUsize::new(0))));
        let stream = device.default_stream();
        let shared = Arc::clone(&ranks) as Arc<dyn Communicator>;
        let options = HaloOptions::default();
        let mut halo = HaloExchange::new(shared, &ring(), &[field(1)], &device, &options).unwrap();
        let mut values = device.memory_from_slice(&stream, &[rank as f64; 10]).unwrap();
        let sent = ranks.1.load(Ordering::Relaxed);
        let error = (rank == 1).then(|| exchange(&mut halo, &stream, &mut values).unwrap_err());
        assert_eq!(ranks.1.load(Ordering::Relaxed), sent);
        let view = values.view_mut().reshape(&[5, 2]).unwrap();
        halo.exchange(&stream, &mut [view.into()]).unwrap();
        let (own, other) = (rank as f64, 1.0 - rank as f64);
        let halos = [other, other, own, own, own, own, own, own, other, other];
        assert_eq!(values.to_vec(&stream).unwrap(), halos);
        assert!(ranks.1.load(Ordering::Relaxed) > sent);
        error
    });
    errors.unwrap().swap_remove(1).unwrap()
}

fn telling(kind: ErrorKind, words: &[&str], error: &Error) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(words.iter().all(|word| error.message().contains(word)), "{words:?} in {error}");
}

/// `field_must_match_spec`: what is planned for one element type and shape takes no other.
#[test]
fn field_must_match_spec() {
    let error = told(|halo, stream, _| {
        let mut integers = stream.device().memory_allocate::<i32>(10)?;
        halo.exchange(stream, &mut [integers.view_mut().reshape(&[5, 2])?.into()])
    });
    let words = ["field height of rank 1", "elements of i32, planned f64"];
    telling(ErrorKind::InvalidArgument, &words, &error);
    let error = told(|halo, stream, _| {
        let mut wide = stream.device().memory_allocate::<f64>(12)?;
        halo.exchange(stream, &mut [wide.view_mut().reshape(&[6, 2])?.into()])
    });
    let words = ["field height of rank 1", "shape [6, 2]", "planned [5, 2]"];
    telling(ErrorKind::InvalidArgument, &words, &error);
}

#[test]
fn another_number_of_fields() {
    for count in [0, 2] {
        let error = told(|halo, stream, _| {
            let allocate = |_| stream.device().memory_allocate::<f64>(10);
            let mut others = (0..count).map(allocate).collect::<Result<Vec<_>>>()?;
            let views = others.iter_mut().map(|m| Ok(m.view_mut().reshape(&[5, 2])?.into()));
            halo.exchange(stream, &mut views.collect::<Result<Vec<Field<'_>>>>()?)
        });
        let words = format!("{count} fields of rank 1; 1 are planned");
        telling(ErrorKind::InvalidArgument, &[&words], &error);
    }
}

#[test]
fn fields_of_another_device() {
    let error = told(|halo, stream, _| {
        let other = Device::new(SimDevice::new(1, SimConfig::new()))?;
        let mut abroad = other.memory_allocate::<f64>(10)?;
        halo.exchange(stream, &mut [abroad.view_mut().reshape(&[5, 2])?.into()])
    });
    telling(ErrorKind::WrongDevice, &["field height of rank 1", "memory of sim:1"], &error);
    let error = told(|halo, stream, _| {
        let mut abroad = device().memory_allocate::<f64>(10)?;
        halo.exchange(stream, &mut [abroad.view_mut().reshape(&[5, 2])?.into()])
    });
    let words = ["field height of rank 1", "memory of another opening of sim:0"];
    telling(ErrorKind::WrongDevice, &words, &error);
    let error = told(|halo, _, values| {
        let stream = device().default_stream();
        halo.exchange(&stream, &mut [values.view_mut().reshape(&[5, 2])?.into()])
    });
    telling(ErrorKind::WrongDevice, &["a stream of another opening of sim:0"], &error);
}
