//! Fields that share messages, and fields with their own messages.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;
mod devices;

use std::env;

use common::world::{Cube, Flat};
use common::{Case, STEPS, Shape, Store};
use devices::{copies_in_one_launch, host};
use halo::{
    Dim, Field, FieldSpec, HaloOptions, HaloStatistics, HaloTransformer, Kind, Messages, Quantity,
    Staging, Topology,
};
use runtime_core::{DType, Support};

/// Three fields on a ring of three ranks. The middle field is large.
#[test]
fn fields_share_messages_as_the_options_say() {
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
            case.check_exchanges(rank, &mut exchange, &stream);
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
fn the_limit_of_shared_messages_can_be_set() {
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

/// Whether launches must not be skipped here. HIP compiles its kernels: it copies regions where it has a compiler, as
/// the stand-in has if the environment names one.
fn must_copy_regions(device: &runtime_core::Device) -> bool {
    let names = |variable, end: &str| env::var(variable).is_ok_and(|value| value.ends_with(end));
    match device.id().backend() {
        "host" | "cuda" => true,
        "hip" => {
            names("BACKEND_HIP_LIBRARY", "libstandin_hip.so") && names("BACKEND_CUDA_NVRTC", "")
        }
        _ => false,
    }
}

/// Eight fields with 26 neighbours: 34 memories by messages, 216 if ranks read each other's fields.
fn launches_do_not_grow_with_neighbours(device: &runtime_core::Device) {
    let topology = Topology::cartesian(&[3; 3], &[3; 3], &[true; 3]).unwrap();
    let world = Flat { cells: [3; 3], periodic: [true; 3] };
    let shape = Shape::new(DType::F64, 1);
    let quantities = vec![(Kind::Scalar, vec![shape]); 8];
    let copies_regions = device.capabilities().region_copy == Support::Native;
    assert!(copies_regions || !must_copy_regions(device), "{}", device.id());
    let is_native = copies_in_one_launch(device);
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
