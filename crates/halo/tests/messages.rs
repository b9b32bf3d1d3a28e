//! Fields that share messages, and fields with their own messages.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;
mod devices;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::world::{Cube, Flat};
use common::{Case, Shape, Store};
use devices::{host, sim};
use halo::communicator::{
    Communicator, Fault, Faults, FaultyCommunicator, Recorder, Replay, ThreadCommunicator,
};
use halo::{
    Dim, Field, FieldSpec, HaloExchange, HaloOptions, HaloStatistics, HaloTransformer, Kind,
    Messages, Quantity, Result, Staging, Topology,
};
use runtime_core::{DType, Support};

/// Three fields on a ring of three ranks. The middle field is large.
#[test]
fn a_field_goes_with_others_or_by_itself() {
    const STEPS: u64 = 3;
    let topology = Topology::cartesian(&[9], &[3], &[true]).unwrap();
    let world = Flat { cells: [9, 1, 1], periodic: [true, false, false] };
    let large = Shape { free: vec![Messages::LARGE + 1], ..Shape::new(DType::U8, 1) };
    let small = Shape { free: vec![Messages::LARGE / 8], ..Shape::new(DType::F64, 1) };
    let quantities = [small.clone(), large, small].map(|shape| (Kind::Scalar, vec![shape]));
    let [less, more] = [Messages::LARGE, Messages::LARGE + 1];
    // Each a multiple of 16, except for the last field, plus a stamp of 8 bytes.
    for (messages, expected) in [
        (Messages::Aggregate, vec![less + (more + 15) + less + 8]),
        (Messages::Separate, vec![less + 8, more + 7 + 8, less + 8]),
        (Messages::Auto, vec![2 * less + 8, more + 7 + 8]),
    ] {
        let options = HaloOptions { messages, direct: false, ..Default::default() };
        let quantities = quantities.to_vec();
        let case = Case { topology: &topology, world: &world, quantities, options };
        case.with_ranks(&host(), |rank, mut exchange, stream| {
            let peers = (0..3).filter(|peer| *peer != rank);
            let all: Vec<(usize, usize)> =
                peers.flat_map(|peer| expected.iter().map(move |bytes| (peer, *bytes))).collect();
            assert_eq!(exchange.sends().collect::<Vec<_>>(), all, "{messages:?}");
            assert_eq!(exchange.receives().collect::<Vec<_>>(), all);
            for _ in 0..STEPS {
                let mut stores = case.stores(rank, &stream);
                let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
                exchange.exchange(&stream, &mut fields).unwrap();
                drop(fields);
                case.check(rank, &stores, &stream);
            }
            for neighbour in exchange.statistics().unwrap().neighbours {
                let bytes = STEPS * expected.iter().sum::<usize>() as u64;
                for traffic in [neighbour.sent, neighbour.received] {
                    let count = STEPS * expected.len() as u64;
                    assert_eq!((traffic.count, traffic.bytes), (count, bytes));
                }
            }
        });
    }
}

/// Fields of 5 and of 16 bytes for each neighbour.
#[test]
fn the_bound_of_a_message_can_be_set() {
    let topology = Topology::cartesian(&[9], &[3], &[true]).unwrap();
    let field = |name, dtype, free| {
        let dims = [Dim::axis(0, 3).halo(1, 1), Dim::free(free)];
        Quantity::scalar(FieldSpec::new(name, dtype, &dims).unwrap())
    };
    let quantities = [field("f", DType::F64, 2), field("g", DType::U8, 5)];
    let same = |one, other| {
        let sends = |messages| -> Vec<(usize, usize)> {
            let options = HaloOptions { messages, ..Default::default() };
            let made = HaloTransformer::new(&topology, 0, &quantities, &host(), &options);
            made.unwrap().sends().collect()
        };
        assert_eq!(sends(one), sends(other));
        sends(one)
    };
    let (one, each) = (vec![(1, 32), (2, 32)], vec![(1, 24), (1, 16), (2, 24), (2, 16)]);
    assert_eq!(same(Messages::Above(16), Messages::Aggregate), one);
    assert_eq!(same(Messages::Above(0), Messages::Separate), each);
    assert_eq!(same(Messages::Above(Messages::LARGE), Messages::Auto), one);
    // The message for combined fields contains only the smaller field here. It comes first.
    let reversed = vec![(1, 16), (1, 24), (2, 16), (2, 24)];
    assert_eq!(same(Messages::Above(15), Messages::Above(5)), reversed);
}

/// On every device, staged and not, by an exchange and with a custom transport.
fn halos_do_not_depend_on_messages(device: &runtime_core::Device) {
    let topology = Topology::cubed_sphere(6, [1, 2]).unwrap();
    let on = |staggered| Shape::new(DType::F64, 2).staggered(staggered);
    let (x, y) = ([true, false, false], [false, true, false]);
    let quantities = vec![
        (Kind::Scalar, vec![Shape::new(DType::U8, 1)]),
        (Kind::Vector, vec![on(x), on(y)]),
        (Kind::Vector, vec![Shape::new(DType::F32, 2), Shape::new(DType::F32, 2)]),
    ];
    for staging in [Staging::Pinned, Staging::Device] {
        let messages = Messages::Separate;
        let options = HaloOptions { messages, staging, ..Default::default() };
        let quantities = quantities.clone();
        let case = Case { topology: &topology, world: &Cube { cells: 6 }, quantities, options };
        case.exchange(device);
        case.carry(device);
    }
}

/// Eight fields with 26 neighbours: 34 memories by messages, 216 if ranks read each other's fields.
fn launches_do_not_grow_with_neighbours(device: &runtime_core::Device) {
    let topology = Topology::cartesian(&[3; 3], &[3; 3], &[true; 3]).unwrap();
    let world = Flat { cells: [3; 3], periodic: [true; 3] };
    let shape = Shape::new(DType::F64, 1);
    let quantities = vec![(Kind::Scalar, vec![shape]); 8];
    // The kind of OpenCL memory cannot be queried here: the OpenCL tests cover it.
    let is_native =
        device.capabilities().region_copy == Support::Native && device.id().backend() != "opencl";
    for direct in [false, true] {
        let staging = Staging::Device;
        let options = HaloOptions { direct, staging, timing: true, ..Default::default() };
        let quantities = quantities.clone();
        let case = Case { topology: &topology, world: &world, quantities, options };
        case.with_ranks(device, |rank, mut exchange, stream| {
            let mut stores = case.stores(rank, &stream);
            let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
            exchange.exchange(&stream, &mut fields).unwrap();
            drop(fields);
            stream.synchronize().unwrap();
            case.check(rank, &stores, &stream);
            let statistics = exchange.statistics().unwrap();
            assert_eq!(statistics.neighbours.len(), 26);
            // Packing, unpacking any messages that have arrived, or copying directly from other ranks' fields.
            let HaloStatistics { pack, unpack, copy, launches, .. } = statistics;
            assert_eq!((pack.count, copy.count), if direct { (0, 1) } else { (1, 0) });
            if is_native {
                assert_eq!(launches, pack.count + unpack.count + copy.count, "{direct}");
            }
        });
    }
}

on_all_devices!(halos_do_not_depend_on_messages, launches_do_not_grow_with_neighbours);

fn fields() -> Vec<Quantity> {
    let field = |name| {
        FieldSpec::new(name, DType::F64, &[Dim::axis(0, 3).halo(1, 1)]).map(Quantity::scalar)
    };
    ["f", "g"].map(|name| field(name).unwrap()).to_vec()
}

/// Exchanges two fields of a ring of three ranks a few times. Returns the values of both afterwards, or an error.
fn steps(
    ranks: Arc<dyn Communicator>,
    options: &HaloOptions,
    check: impl Fn(usize, f64, &[Vec<f64>; 2]),
) -> Result<[Vec<f64>; 2]> {
    let topology = Topology::cartesian(&[9], &[3], &[true])?;
    let (rank, device) = (ranks.rank(), sim(3));
    let stream = device.default_stream();
    let mut halo = HaloExchange::new(ranks, &topology, &fields(), &device, options)?;
    let mut last = [Vec::new(), Vec::new()];
    for step in 0..12 {
        let first = 3.0 * rank as f64 + f64::from(100 * step);
        let values = [-1.0, first, first + 1.0, first + 2.0, -1.0];
        let mut f = device.memory_from_slice(&stream, &values)?;
        let mut g = device.memory_from_slice(&stream, &values.map(|value| value + 1e6))?;
        halo.exchange(&stream, &mut [f.view_mut().into(), g.view_mut().into()])?;
        last = [f.to_vec(&stream)?, g.to_vec(&stream)?];
        check(rank, f64::from(100 * step), &last);
    }
    Ok(last)
}

fn is_right(rank: usize, added: f64, found: &[Vec<f64>; 2]) {
    for (values, shift) in found.iter().zip([0.0, 1e6]) {
        let expected: Vec<f64> =
            (0..5).map(|i| ((3 * rank + 9 + i - 1) % 9) as f64 + added + shift).collect();
        assert_eq!(values, &expected);
    }
}

/// Two messages of equal length from one rank: with any fault, neither is mistaken for the other.
#[test]
fn faults_never_let_fields_change_places() {
    for fault in Fault::ALL {
        let mut happened = 0;
        for seed in 0..3 {
            let counts = ThreadCommunicator::run(3, |ranks| {
                let faults = Faults::new(seed + 100 * ranks.rank() as u64).with(fault, 0.2);
                let ranks = Arc::new(FaultyCommunicator::new(ranks, faults));
                // Late messages still arrive within this timeout.
                let timeout = Duration::from_secs(if fault == Fault::Delay { 20 } else { 1 });
                let (messages, staging) = (Messages::Separate, Staging::Pinned);
                let options = HaloOptions { messages, staging, timeout, ..Default::default() };
                let start = Instant::now();
                let done = steps(Arc::clone(&ranks) as Arc<dyn Communicator>, &options, is_right);
                assert!(start.elapsed() < Duration::from_secs(20));
                if fault == Fault::Delay {
                    done.unwrap();
                }
                ranks.count(fault)
            });
            happened += counts.unwrap().into_iter().sum::<u64>();
        }
        assert!(happened > 0, "{fault:?} never happened");
    }
}

#[test]
fn several_messages_of_a_rank_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank 1");
    for staging in [Staging::Auto, Staging::Pinned] {
        let options = HaloOptions { messages: Messages::Separate, staging, ..Default::default() };
        let among = ThreadCommunicator::run(3, |ranks| match ranks.rank() {
            1 => steps(Arc::new(Recorder::create(ranks, &file).unwrap()), &options, is_right),
            _ => steps(Arc::new(ranks), &options, is_right),
        });
        let among = among.unwrap().into_iter().map(Result::unwrap).nth(1).unwrap();
        let replay = Arc::new(Replay::open(&file).unwrap());
        assert_eq!(steps(replay, &options, is_right).unwrap(), among);
    }
}

#[test]
fn ranks_that_share_messages_otherwise_are_told() {
    let device = host();
    let topology = Topology::cartesian(&[9], &[3], &[true]).unwrap();
    let errors = ThreadCommunicator::run(3, |ranks| {
        let messages = if ranks.rank() == 2 { Messages::Auto } else { Messages::Aggregate };
        let options = HaloOptions { messages, ..Default::default() };
        HaloExchange::new(Arc::new(ranks), &topology, &fields(), &device, &options).unwrap_err()
    });
    for error in errors.unwrap() {
        let expected = "ranks [2] have another limit of fields that share a message than rank 0";
        assert!(error.message().contains(expected), "{error}");
    }
}
