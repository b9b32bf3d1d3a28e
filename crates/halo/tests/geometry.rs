//! Every ghost gets the value of its place in space, and nothing else is changed.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;
mod devices;

use std::sync::Arc;

use common::world::{Cube, Flat, World};
use common::{Case, Shape};
use devices::{host, sim};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Dim, FieldSpec, HaloExchange, HaloOptions, HaloTransformer, Kind, Quantity, Reach, Topology,
};
use proptest::prelude::*;
use runtime_core::DType;

fn case<'a>(
    topology: &'a Topology,
    world: &'a dyn World,
    quantities: Vec<(Kind, Vec<Shape>)>,
) -> Case<'a> {
    Case { topology, world, quantities, options: HaloOptions::default() }
}

/// Every kind, on cells, on corner points, and on the grids A to D.
fn all_kinds(width: usize) -> Vec<(Kind, Vec<Shape>)> {
    let cells = || Shape::new(DType::F64, width);
    let (x, y, both) = ([true, false, false], [false, true, false], [true, true, false]);
    let on = |staggered| cells().staggered(staggered);
    vec![
        (Kind::Scalar, vec![cells()]),
        (Kind::Scalar, vec![on(both)]),
        (Kind::PseudoScalar, vec![Shape::new(DType::F32, width)]),
        (Kind::Vector, vec![cells(), cells()]),
        (Kind::Vector, vec![on(both), on(both)]),
        (Kind::Vector, vec![on(x), on(y)]),
        (Kind::Vector, vec![on(y), on(x)]),
        (Kind::UnsignedPair, vec![on(x), on(y)]),
        (Kind::Tensor, vec![cells(), cells(), cells(), cells()]),
        (Kind::Tensor, vec![on(both), on(both), on(both), on(both)]),
    ]
}

/// The kinds for a topology with one axis.
fn scalars(width: usize) -> Vec<(Kind, Vec<Shape>)> {
    let field = || Shape::new(DType::I32, width);
    vec![
        (Kind::Scalar, vec![field()]),
        (Kind::Scalar, vec![field().staggered([true, false, false])]),
        (Kind::Vector, vec![field(), field()]),
    ]
}

/// All layouts agree with the geometry, so they agree with each other.
#[test]
fn cubed_spheres_of_all_layouts() {
    let device = host();
    for (cells, layout) in [
        (6, [1, 1]),
        (6, [1, 2]),
        (6, [2, 1]),
        (8, [2, 2]),
        (9, [3, 3]),
        (9, [2, 3]),
        (10, [3, 1]),
        (9, [1, 3]),
        (11, [3, 2]),
        (12, [1, 4]),
        (12, [4, 1]),
    ] {
        let topology = Topology::cubed_sphere(cells, layout).unwrap();
        for width in [1, 3] {
            case(&topology, &Cube { cells }, all_kinds(width)).carry(&device);
        }
    }
}

/// Some pairs of ranks share several boundaries.
#[test]
fn boxes_of_one_to_three_axes_and_any_ranks() {
    let device = host();
    for ranks in [[1, 1, 1], [2, 1, 1], [1, 2, 1], [2, 2, 1], [3, 2, 1], [1, 1, 2], [2, 1, 3]] {
        for periodic in [[true; 3], [false; 3], [true, false, true]] {
            let world = Flat { cells: [7, 6, 5], periodic };
            for axes in 1..=3 {
                let flat = Flat {
                    cells: std::array::from_fn(|a| if a < axes { world.cells[a] } else { 1 }),
                    periodic,
                };
                if ranks[axes..].iter().any(|ranks| *ranks > 1) {
                    continue;
                }
                let topology =
                    Topology::cartesian(&world.cells[..axes], &ranks[..axes], &periodic[..axes])
                        .unwrap();
                let kinds = if axes == 1 { scalars(1) } else { all_kinds(1) };
                case(&topology, &flat, kinds).carry(&device);
            }
        }
    }
}

/// Including halos narrower than their allocation.
#[test]
fn halos_of_one_to_four_and_unlike_widths() {
    let device = host();
    let topology = Topology::cubed_sphere(8, [2, 1]).unwrap();
    let world = Cube { cells: 8 };
    for width in 1..=4 {
        case(&topology, &world, all_kinds(width)).carry(&device);
    }
    for halo in [[[2, 1], [2, 1], [0, 0]], [[0, 2], [2, 0], [0, 0]], [[3, 0], [0, 0], [0, 0]]] {
        let field =
            || Shape { halo, allocated: [[3, 4], [4, 3], [0, 0]], ..Shape::new(DType::F32, 0) };
        case(
            &topology,
            &world,
            vec![(Kind::Scalar, vec![field()]), (Kind::Vector, vec![field(), field()])],
        )
        .carry(&device);
    }
}

#[test]
fn all_element_types_and_orders_of_dimensions() {
    let device = host();
    let topology = Topology::cubed_sphere(6, [1, 2]).unwrap();
    let world = Cube { cells: 6 };
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (index, dtype) in DType::ALL.into_iter().enumerate() {
        for (number, order) in orders.into_iter().enumerate() {
            let field = || Shape {
                free: vec![3],
                order: order.to_vec(),
                backwards: (index + number) % 2 == 1,
                ..Shape::new(dtype, 2)
            };
            let mut quantities =
                vec![(Kind::Scalar, vec![field()]), (Kind::UnsignedPair, vec![field(), field()])];
            if dtype.admits_negate() {
                quantities.push((Kind::Vector, vec![field(), field()]));
            }
            case(&topology, &world, quantities).carry(&device);
        }
    }
}

/// Fields of all element types in one message, each aligned.
#[test]
fn mixed_dtypes_in_one_exchange() {
    let topology = Topology::cubed_sphere(5, [1, 1]).unwrap();
    let quantities = DType::ALL.map(|dtype| (Kind::Scalar, vec![Shape::new(dtype, 1)])).to_vec();
    case(&topology, &Cube { cells: 5 }, quantities).carry(&host());
}

#[test]
fn faces_only() {
    let device = host();
    let options = HaloOptions { reach: Reach::Faces, ..Default::default() };
    let sphere = Topology::cubed_sphere(6, [2, 2]).unwrap();
    Case { options: options.clone(), ..case(&sphere, &Cube { cells: 6 }, all_kinds(2)) }
        .carry(&device);
    let flat = Topology::cartesian(&[6, 6, 6], &[2, 1, 3], &[true; 3]).unwrap();
    let world = Flat { cells: [6; 3], periodic: [true; 3] };
    Case { options, ..case(&flat, &world, all_kinds(2)) }.carry(&device);
}

/// Physical boundaries and corners without cells: the ghosts that the program must set, each listed once.
#[test]
fn edges_are_the_ghosts_that_no_rank_fills() {
    let channel = Topology::cartesian(&[5, 6], &[2, 2], &[true, false]).unwrap();
    let flat = Flat { cells: [5, 6, 1], periodic: [true, false, false] };
    let sphere = Topology::cubed_sphere(4, [1, 2]).unwrap();
    let worlds: [(&Topology, &dyn World); 2] = [(&channel, &flat), (&sphere, &Cube { cells: 4 })];
    for (topology, world) in worlds {
        for reach in [Reach::Full, Reach::Faces] {
            let options = HaloOptions { reach, ..Default::default() };
            let case = Case { options, ..case(topology, world, all_kinds(2)) };
            for rank in 0..topology.ranks() {
                let quantities = case.quantities(rank).unwrap();
                let halo =
                    HaloTransformer::new(topology, rank, &quantities, &host(), &case.options)
                        .unwrap();
                let mut listed = vec![Vec::new(); case.unfilled(rank).len()];
                for edge in halo.edges() {
                    assert_eq!(edge.missing_corner, topology.tiles() == 6);
                    for i in edge.ranges[0].clone() {
                        listed[edge.field].extend(edge.ranges[1].clone().map(|j| vec![i, j]));
                    }
                }
                listed.iter_mut().for_each(|indices| indices.sort_unstable());
                assert_eq!(listed, case.unfilled(rank), "rank {rank}");
            }
        }
    }
}

/// Ranks in threads, with the transport.
fn spheres_in_threads(device: &runtime_core::Device) {
    let topology = Topology::cubed_sphere(6, [1, 2]).unwrap();
    case(&topology, &Cube { cells: 6 }, all_kinds(2)).exchange(device);
    for staging in [halo::Staging::Pinned, halo::Staging::Device] {
        let options = HaloOptions { staging, ..Default::default() };
        let quantities = all_kinds(1).into_iter().take(4).collect();
        Case { options, ..case(&topology, &Cube { cells: 6 }, quantities) }.exchange(device);
    }
}

fn boxes_in_threads(device: &runtime_core::Device) {
    let topology = Topology::cartesian(&[5, 6, 4], &[2, 1, 2], &[true, false, true]).unwrap();
    let world = Flat { cells: [5, 6, 4], periodic: [true, false, true] };
    case(&topology, &world, all_kinds(2)).exchange(device);
}

/// Eight messages are unpacked in batches of three, three and two. Each batch takes one launch, in any memory.
fn batches_take_one_launch(device: &runtime_core::Device) {
    let topology = Topology::cartesian(&[6, 6, 1], &[3, 3, 1], &[true, true, false]).unwrap();
    let world = Flat { cells: [6, 6, 1], periodic: [true, true, false] };
    for staging in [halo::Staging::Pinned, halo::Staging::Device] {
        let options = HaloOptions { staging, ..Default::default() };
        let quantities = all_kinds(1).into_iter().take(2).collect();
        Case { options, ..case(&topology, &world, quantities) }.carry_in_batches(device, 3);
    }
}

on_all_devices!(spheres_in_threads, boxes_in_threads, batches_take_one_launch);

prop_compose! {
    fn shape()(
        dtype in prop::sample::select(vec![DType::I8, DType::F16, DType::I32, DType::F64, DType::C128]),
        halo in prop::array::uniform3(prop::array::uniform2(0..3_usize)),
        padding in prop::array::uniform3(prop::array::uniform2(0..3_usize)),
        free in prop::collection::vec(1..4_usize, 0..3),
        backwards in any::<bool>(),
        shuffle in any::<u64>(),
        both in any::<bool>(),
    ) -> Shape {
        let allocated = std::array::from_fn(|a| [halo[a][0] + padding[a][0], halo[a][1] + padding[a][1]]);
        let mut order: Vec<usize> = (0..2 + free.len()).collect();
        let mut left = shuffle;
        for place in (1..order.len()).rev() {
            order.swap(place, (left % (place as u64 + 1)) as usize);
            left /= 7;
        }
        Shape { dtype, halo, allocated, staggered: [both, both, false], free, order, backwards }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn random_fields_on_random_spheres(
        layout in prop::array::uniform2(1..4_usize),
        cells in 6..11_usize,
        kinds in prop::collection::vec(
            (prop::sample::select(vec![Kind::Scalar, Kind::PseudoScalar, Kind::Vector, Kind::UnsignedPair, Kind::Tensor]), shape()),
            1..4,
        ),
        seed in any::<u64>(),
    ) {
        let topology = Topology::cubed_sphere(cells, layout).unwrap();
        let quantities = kinds
            .into_iter()
            .map(|(kind, shape)| (kind, vec![shape; kind.components()]))
            .collect();
        let device = if seed % 4 == 0 { sim(seed) } else { host() };
        case(&topology, &Cube { cells }, quantities).carry(&device);
    }

    #[test]
    fn random_fields_on_random_boxes(
        ranks in prop::array::uniform2(1..4_usize),
        cells in prop::array::uniform2(6..10_usize),
        periodic in prop::array::uniform2(any::<bool>()),
        shapes in prop::collection::vec(shape(), 1..4),
    ) {
        let topology = Topology::cartesian(&cells, &ranks, &periodic).unwrap();
        let world = Flat { cells: [cells[0], cells[1], 1], periodic: [periodic[0], periodic[1], false] };
        let quantities = shapes.into_iter().map(|shape| (Kind::Scalar, vec![shape])).collect();
        case(&topology, &world, quantities).carry(&host());
    }
}

/// On ranks with one element along y, the strides along y and the dimension without an axis are equal.
#[test]
fn the_order_in_memory_does_not_depend_on_the_order_in_which_dimensions_are_listed() {
    let device = host();
    let exchanged = |listed: [usize; 3]| {
        ThreadCommunicator::run(12, |ranks| {
            let topology = Topology::cubed_sphere(3, [2, 1]).unwrap();
            let [x, y, _] = topology.block(ranks.rank()).unwrap().cells;
            let all = [Dim::axis(1, y), Dim::free(2), Dim::axis(0, x).halo(1, 1)];
            // In memory always: the free dimension, then y, then x.
            let order = [1, 0, 2].map(|dim| listed.iter().position(|of| *of == dim).unwrap());
            let spec = FieldSpec::new("f", DType::F64, &listed.map(|dim| all[dim])).unwrap();
            let spec = spec.ordered(&order).unwrap();
            let values: Vec<_> = (0..spec.layout().shape().iter().product())
                .map(|index: usize| (1000 * ranks.rank() + index) as f64)
                .collect();
            let quantities = [Quantity::scalar(spec.clone())];
            let options = HaloOptions { direct: false, ..Default::default() };
            let ranks = Arc::new(ranks);
            let mut halo =
                HaloExchange::new(ranks, &topology, &quantities, &device, &options).unwrap();
            let stream = device.default_stream();
            let mut memory = device.memory_from_slice(&stream, &values).unwrap();
            let view = memory.view_mut().with_layout(0, spec.layout()).unwrap();
            halo.exchange(&stream, &mut [view.into()]).unwrap();
            memory.to_vec(&stream).unwrap()
        })
        .unwrap()
    };
    assert_eq!(exchanged([0, 1, 2]), exchanged([1, 0, 2]));
}
