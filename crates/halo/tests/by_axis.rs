//! Exchanges whose messages go axis by axis.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]
#![expect(unsafe_code, reason = "lends parts of a memory")]

mod common;
mod devices;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::world::{Flat, World};
use common::{Case, Shape, Store};
use devices::{host, sim};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Combine, Dim, ErrorKind, Field, FieldSpec, HaloExchange, HaloOptions, HaloTransformer, Kind,
    Messages, Quantity, Reach, Staging, Topology,
};
use proptest::prelude::*;
use runtime_core::{DType, Device};

fn by_axis() -> HaloOptions {
    HaloOptions { reach: Reach::ByAxis, direct: false, ..Default::default() }
}

fn case<'a>(
    topology: &'a Topology,
    world: &'a dyn World,
    shapes: impl IntoIterator<Item = Shape>,
) -> Case<'a> {
    let quantities = shapes.into_iter().map(|shape| (Kind::Scalar, vec![shape])).collect();
    Case { topology, world, quantities, options: by_axis() }
}

/// Cells, and points that are staggered along one and along all axes.
fn shapes() -> [Shape; 3] {
    [[false; 3], [true, false, false], [true; 3]]
        .map(|staggered| Shape::new(DType::F64, 2).staggered(staggered))
}

/// With ranks that are their own neighbours along some axes, and with open ends.
fn every_ghost_is_filled(device: &Device) {
    for (ranks, periodic) in
        [([2, 1, 2], [true, false, true]), ([3, 2, 1], [false, true, true]), ([1; 3], [true; 3])]
    {
        let cells = [6, 5, 4];
        let (topology, world) =
            (Topology::cartesian(&cells, &ranks, &periodic).unwrap(), Flat { cells, periodic });
        for staging in [Staging::Pinned, Staging::Device] {
            let options = HaloOptions { staging, ..by_axis() };
            Case { options, ..case(&topology, &world, shapes()) }.exchange(device);
        }
    }
}

/// Of 26 neighbours, six send messages. There is one launch to pack for each axis.
fn only_neighbours_beyond_sides_have_messages(device: &Device) {
    let topology = Topology::cartesian(&[3; 3], &[3; 3], &[true; 3]).unwrap();
    let world = Flat { cells: [3; 3], periodic: [true; 3] };
    let options = HaloOptions { timing: true, ..by_axis() };
    let case = Case { options, ..case(&topology, &world, [Shape::new(DType::F64, 1)]) };
    case.with_ranks(device, |rank, mut exchange, stream| {
        let mut bytes: Vec<usize> = exchange.sends().map(|(_, bytes)| bytes).collect();
        bytes.sort_unstable();
        // 1, 3 and 9 elements, with a stamp.
        assert_eq!(bytes, [1, 1, 3, 3, 9, 9].map(|elements| 8 * elements + 8));
        let mut stores = case.stores(rank, &stream);
        let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
        let mut flight = exchange.start(&stream, &mut fields).unwrap();
        while !flight.poll().unwrap() {
            assert!(flight.unpacked() <= 6);
            // The threads of 27 ranks leave the cores to the devices.
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(flight.unpacked(), 6);
        flight.finish().unwrap();
        drop(fields);
        stream.synchronize().unwrap();
        case.check(rank, &stores, &stream);
        let statistics = exchange.statistics().unwrap();
        assert_eq!((statistics.pack.count, statistics.neighbours.len()), (3, 6));
        assert!((3..=6).contains(&statistics.unpack.count), "{statistics:?}");
        // Reductions combine all 26 contributions at once, as without axes.
        stores = case.stores(rank, &stream);
        for store in &mut stores {
            store.view_mut().typed::<f64>().unwrap().copy_from_slice(&stream, &[1.0; 27]).unwrap();
            exchange.reduce(&stream, &mut [store.field()], Combine::Sum).unwrap();
            let sums = store.view_mut().typed::<f64>().unwrap().as_view().to_vec(&stream).unwrap();
            assert_eq!((sums[13], sums[0]), (27.0, 1.0));
        }
    });
}

on_all_devices!(every_ghost_is_filled, only_neighbours_beyond_sides_have_messages);

prop_compose! {
    fn shape()(
        dtype in prop::sample::select(vec![DType::U8, DType::F16, DType::I32, DType::F64, DType::C128]),
        halo in prop::array::uniform3(prop::array::uniform2(0..3_usize)),
        padding in prop::array::uniform3(prop::array::uniform2(0..3_usize)),
        staggered in prop::array::uniform3(any::<bool>()),
        free in prop::collection::vec(1..3_usize, 0..2),
        backwards in any::<bool>(),
        turn in 0..3_usize,
    ) -> Shape {
        let allocated = std::array::from_fn(|a| [halo[a][0] + padding[a][0], halo[a][1] + padding[a][1]]);
        let mut order: Vec<usize> = (0..3 + free.len()).collect();
        order.rotate_left(turn);
        Shape { dtype, halo, allocated, staggered, free, order, backwards }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_fields_on_random_boxes(
        ranks in prop::array::uniform3(1..3_usize),
        cells in prop::array::uniform3(4..7_usize),
        periodic in prop::array::uniform3(any::<bool>()),
        shapes in prop::collection::vec(shape(), 1..4),
        separate in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let topology = Topology::cartesian(&cells, &ranks, &periodic).unwrap();
        let device = if seed % 4 == 0 { sim(seed) } else { host() };
        let messages = if separate { Messages::Separate } else { Messages::Aggregate };
        let options = HaloOptions { messages, ..by_axis() };
        Case { options, ..case(&topology, &Flat { cells, periodic }, shapes) }.exchange(&device);
    }
}

/// Ranks that read each other's fields copy all ghosts at once.
#[test]
fn direct_copies_need_no_axes() {
    let (cells, periodic) = ([4, 4, 4], [true; 3]);
    let topology = Topology::cartesian(&cells, &[2, 2, 1], &periodic).unwrap();
    let world = Flat { cells, periodic };
    let options = HaloOptions { direct: true, ..by_axis() };
    let case = Case { options, ..case(&topology, &world, shapes()) };
    case.with_ranks(&sim(1), |rank, mut exchange, stream| {
        assert!(exchange.is_direct());
        case.check_exchanges(rank, &mut exchange, &stream);
        assert_eq!(exchange.statistics().unwrap().launches, common::STEPS);
    });
}

/// The later axes read ghosts, which are not in the view of the owned values.
#[test]
fn owned_values_may_be_lent() {
    let topology = Topology::cartesian(&[4, 2], &[2, 1], &[true; 2]).unwrap();
    ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let device = sim(rank as u64);
        let stream = device.default_stream();
        let dims = [Dim::axis(1, 2).halo(1, 1), Dim::axis(0, 2).halo(1, 1)];
        let field = FieldSpec::new("f", DType::F64, &dims).unwrap();
        let quantities = [Quantity::scalar(field)];
        let mut halo =
            HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &by_axis())
                .unwrap();
        let value = |j: usize, i: usize| ((j + 1) % 2 * 4 + (2 * rank + i + 3) % 4) as f64;
        let all = || (0..4).flat_map(|j| (0..4).map(move |i| (j, i)));
        let is_owned = |(j, i)| (1..3).contains(&j) && (1..3).contains(&i);
        let start: Vec<f64> =
            all().map(|at| if is_owned(at) { value(at.0, at.1) } else { -1.0 }).collect();
        let values = device.memory_from_slice(&stream, &start).unwrap();
        // SAFETY: the exchange writes only ghosts, and the view below contains only owned cells.
        let ghosts = unsafe { values.view_mut_shared() }.reshape(&[4, 4]).unwrap();
        let owned = values.view().reshape(&[4, 4]).unwrap().region(&[1..3, 1..3]).unwrap();
        halo.exchange(&stream, &mut [Field::split(owned, ghosts).unwrap()]).unwrap();
        let expected: Vec<f64> = all().map(|(j, i)| value(j, i)).collect();
        assert_eq!(values.to_vec(&stream).unwrap(), expected);
    })
    .unwrap();
}

#[test]
fn other_topologies_and_transformers_are_refused() {
    let dims = [Dim::axis(0, 4).halo(1, 1), Dim::axis(1, 4).halo(1, 1)];
    let quantities = [Quantity::scalar(FieldSpec::new("f", DType::F64, &dims).unwrap())];
    let cube = Topology::cubed_sphere(4, [1, 1]).unwrap();
    let errors = ThreadCommunicator::run(6, |ranks| {
        HaloExchange::new(Arc::new(ranks), &cube, &quantities, &host(), &by_axis()).unwrap_err()
    });
    for error in errors.unwrap() {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let message = "Reach::ByAxis for a topology that is not of Topology::cartesian";
        assert_eq!(error.message(), message);
    }
    let flat = Topology::cartesian(&[4, 4], &[1, 1], &[true; 2]).unwrap();
    let error = HaloTransformer::new(&flat, 0, &quantities, &host(), &by_axis()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().starts_with("Reach::ByAxis for a transformer"), "{error}");
}

#[test]
fn ranks_that_differ_in_the_reach_are_refused() {
    let topology = Topology::cartesian(&[4, 4], &[2, 1], &[true; 2]).unwrap();
    let dims = [Dim::axis(0, 2).halo(1, 1), Dim::axis(1, 4).halo(1, 1)];
    let quantities = [Quantity::scalar(FieldSpec::new("f", DType::F64, &dims).unwrap())];
    let errors = ThreadCommunicator::run(2, |ranks| {
        let options = [by_axis(), HaloOptions::default()][ranks.rank()].clone();
        HaloExchange::new(Arc::new(ranks), &topology, &quantities, &host(), &options).unwrap_err()
    });
    for error in errors.unwrap() {
        let message = "ranks [1] have another reach than rank 0: Full on rank 1, ByAxis on rank 0";
        assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidArgument, message));
    }
}

/// An exchange has the right values or an error, and goes on after a reset.
#[test]
fn faulty_transports_give_no_wrong_values() {
    let (cells, periodic) = ([4, 4, 1], [true, true, false]);
    let topology = Topology::cartesian(&cells[..2], &[2, 2], &periodic[..2]).unwrap();
    case(&topology, &Flat { cells, periodic }, shapes()).exchange_with_faults(sim);
}
