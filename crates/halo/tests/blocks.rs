//! Several blocks on a rank, and ghosts in boxes that the user gives.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;
mod devices;

use std::ops::Range;
use std::sync::Arc;

use common::world::{Cube, Flat, World};
use common::{Case, Shape, Store};
use devices::{copies_in_one_launch, host, sim};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Combine, Dim, ErrorKind, Field, FieldSpec, HaloExchange, HaloOptions, HaloTransformer, Kind,
    Quantity, Reach, Region, Result, Staging, Symmetry, Topology,
};
use proptest::prelude::*;
use runtime_core::{DType, Device};

/// The blocks of a topology on this number of ranks, in no order.
fn spread(topology: &Topology, ranks: usize, seed: u64) -> Topology {
    let blocks = topology.block_count();
    let mut owners: Vec<usize> = (0..blocks).map(|block| block % ranks).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut owners);
    topology.clone().on_ranks(&owners).unwrap()
}

fn case<'a>(topology: &'a Topology, world: &'a dyn World, width: usize) -> Case<'a> {
    let on = |staggered| Shape::new(DType::F64, width).staggered(staggered);
    let quantities = vec![
        (Kind::Scalar, vec![Shape::new(DType::I16, width)]),
        (Kind::Vector, vec![on([true, false, false]), on([false, true, false])]),
    ];
    Case { topology, world, quantities, options: HaloOptions::default() }
}

/// Tiles of the sphere and boxes of a level, by messages through both paths, directly, and with another transport.
fn every_ghost_is_filled(device: &Device) {
    let (cells, periodic) = ([6, 4, 2], [true, false, true]);
    let (cube, box_of_cells) = (Cube { cells: 4 }, Flat { cells, periodic });
    let sphere = Topology::cubed_sphere(4, [1, 2]).unwrap();
    let flat = Topology::cartesian(&cells, &[3, 2, 1], &periodic).unwrap();
    let worlds: [(&Topology, usize, &dyn World); 3] =
        [(&sphere, 1, &cube), (&sphere, 3, &cube), (&flat, 2, &box_of_cells)];
    for (topology, ranks, world) in worlds {
        let topology = spread(topology, ranks, 3);
        for staging in [Staging::Pinned, Staging::Device] {
            let options = HaloOptions { staging, ..Default::default() };
            Case { options, ..case(&topology, world, 2) }.exchange(device);
        }
        case(&topology, world, 2).carry(device);
    }
    let options = HaloOptions { reach: Reach::ByAxis, ..Default::default() };
    let topology = spread(&flat, 3, 4);
    Case { options, ..case(&topology, &box_of_cells, 2) }.exchange(device);
}

/// Two ranks with 32 boxes each, joined in 416 places.
fn two_ranks_have_one_message_each_way(device: &Device) {
    let topology = Topology::cartesian(&[8; 3], &[4; 3], &[true; 3]).unwrap();
    let topology = spread(&topology, 2, 5);
    let world = Flat { cells: [8; 3], periodic: [true; 3] };
    let quantities = vec![(Kind::Scalar, vec![Shape::new(DType::F64, 1)])];
    let is_native = copies_in_one_launch(device);
    let options = HaloOptions { direct: false, timing: true, ..Default::default() };
    let case = Case { topology: &topology, world: &world, quantities, options };
    case.with_ranks(device, |rank, mut exchange, stream| {
        assert_eq!(exchange.sends().map(|(to, _)| to).collect::<Vec<_>>(), [1 - rank]);
        assert_eq!(exchange.receives().map(|(from, _)| from).collect::<Vec<_>>(), [1 - rank]);
        let mut stores = case.stores(rank, &stream);
        let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
        exchange.exchange(&stream, &mut fields).unwrap();
        drop(fields);
        stream.synchronize().unwrap();
        case.check(rank, &stores, &stream);
        let statistics = exchange.statistics().unwrap();
        let [own, other] = [rank, 1 - rank].map(|rank| statistics.neighbours[rank]);
        assert_eq!((other.sent.count, other.received.count, own.copied.count), (1, 1, 1));
        if is_native {
            assert_eq!(statistics.launches, 2);
        }
    });
}

/// Sums over ghosts have the same bits, whichever rank has which block.
fn reductions_do_not_depend_on_the_ranks(device: &Device) {
    let whole = Topology::cartesian(&[6, 6], &[3, 2], &[true, true]).unwrap();
    let world = Flat { cells: [6, 6, 1], periodic: [true, true, false] };
    let quantities = vec![(Kind::Scalar, vec![Shape::new(DType::F64, 2)])];
    let sums = |topology: &Topology, combine| {
        let options = HaloOptions::default();
        let case = Case { topology, world: &world, quantities: quantities.clone(), options };
        let ranks = case.with_ranks(device, |rank, mut exchange, stream| {
            let (blocks, mut stores) =
                (topology.blocks_of(rank).unwrap(), case.stores(rank, &stream));
            for (block, store) in blocks.iter().zip(&mut stores) {
                let noise = |index: usize| 3.0_f64.powi(((block * 77 + index * 31) % 23) as i32);
                let values: Vec<f64> = (0..store.spec.layout().len()).map(noise).collect();
                store.view_mut().typed().unwrap().copy_from_slice(&stream, &values).unwrap();
            }
            let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
            exchange.reduce(&stream, &mut fields, combine).unwrap();
            drop(fields);
            let values = stores.iter_mut().map(|store| {
                let view = store.view_mut();
                view.typed::<f64>().unwrap().as_view().to_vec(&stream).unwrap()
            });
            blocks.into_iter().zip(values).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = ranks.into_iter().flatten().collect();
        all.sort_by_key(|(block, _)| *block);
        all
    };
    for combine in [Combine::Sum, Combine::Replace] {
        let expected = sums(&whole, combine);
        for ranks in [1, 2, 4] {
            assert_eq!(sums(&spread(&whole, ranks, 6), combine), expected, "{ranks} ranks");
        }
    }
}

/// A block of the plane with random regions of ghosts.
struct Plane {
    blocks: Vec<[usize; 2]>,
    regions: Vec<Region<2>>,
}

impl Plane {
    fn random(rng: &mut fastrand::Rng) -> Self {
        let blocks: Vec<_> =
            (0..rng.usize(1..6)).map(|_| [rng.usize(1..7), rng.usize(1..7)]).collect();
        let mut regions: Vec<Region<2>> = Vec::new();
        for _ in 0..40 {
            let (block, neighbour) = (rng.usize(0..blocks.len()), rng.usize(0..blocks.len()));
            let symmetry = Symmetry::ALL[rng.usize(0..8)];
            let (own, theirs) = (blocks[block], blocks[neighbour]);
            let extents = [0, 1].map(|axis| rng.usize(1..=theirs[symmetry.axis(axis).0].min(4)));
            let ghosts = [0, 1].map(|axis| {
                let extent = extents[axis] as isize;
                let start = rng.isize(-4..=own[axis] as isize + 4 - extent);
                start..start + extent
            });
            let mut cells = [0..0, 0..0];
            for (axis, extent) in extents.into_iter().enumerate() {
                let (on, _) = symmetry.axis(axis);
                let start = rng.usize(0..=theirs[on] - extent);
                cells[on] = start..start + extent;
            }
            let meets = |other: &[Range<isize>; 2]| {
                (0..2).all(|a| ghosts[a].start < other[a].end && other[a].start < ghosts[a].end)
            };
            let is_taken = |other: &Region<2>| other.block == block && meets(&other.ghosts);
            if !meets(&own.map(|cells| 0..cells as isize)) && !regions.iter().any(is_taken) {
                regions.push(Region { block, ghosts, neighbour, cells, symmetry });
            }
        }
        Self { blocks, regions }
    }

    /// The block and the cell that a ghost is a copy of, and the directions of its axes there.
    fn source(&self, block: usize, at: [isize; 2]) -> Option<(usize, [usize; 2], Symmetry)> {
        let holds = |region: &&Region<2>| {
            region.block == block && (0..2).all(|axis| region.ghosts[axis].contains(&at[axis]))
        };
        let Region { ghosts, neighbour, cells, symmetry, .. } = self.regions.iter().find(holds)?;
        let mut cell = [0; 2];
        for axis in 0..2 {
            let ((on, against), after) =
                (symmetry.axis(axis), (at[axis] - ghosts[axis].start) as usize);
            cell[on] = if against { cells[on].end - 1 - after } else { cells[on].start + after };
        }
        Some((*neighbour, cell, *symmetry))
    }
}

/// A component of a field at a cell.
fn value(block: usize, component: usize, cell: [usize; 2]) -> f64 {
    (1 + cell[0] + 8 * (cell[1] + 8 * (component + 4 * block))) as f64
}

/// A scalar with a wide halo in x and y, and a vector with an unlike one.
fn fields(cells: [usize; 2], [wide, narrow]: [[usize; 2]; 2]) -> Vec<Quantity> {
    let spec = |name: &str, below: usize, above: usize| {
        let dims = [1, 0].map(|axis| Dim::axis(axis, cells[axis]).halo(below, above));
        FieldSpec::new(name, DType::F64, &dims).unwrap()
    };
    vec![
        Quantity::scalar(spec("h", wide[0], wide[1])),
        Quantity::vector(spec("u", narrow[0], narrow[1]), spec("v", narrow[0], narrow[1])).unwrap(),
    ]
}

/// Random regions against a loop over all ghosts.
fn random_regions_copy_as_the_loop_does(device: &Device) {
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let plane = Plane::random(&mut rng);
        let widths = [[4, 3], [rng.usize(0..3), 2]];
        let topology = Topology::of_regions(&plane.blocks, &plane.regions).unwrap();
        let ranks = rng.usize(1..=plane.blocks.len());
        let topology = spread(&topology, ranks, seed);
        for direct in [false, true] {
            let options = HaloOptions { direct, ..Default::default() };
            ThreadCommunicator::run(ranks, |ranks| {
                let blocks = topology.blocks_of(ranks.rank()).unwrap();
                let quantities: Vec<_> =
                    blocks.iter().flat_map(|block| fields(plane.blocks[*block], widths)).collect();
                let stream = device.stream_create(&Default::default()).unwrap();
                let mut halo =
                    HaloExchange::new(Arc::new(ranks), &topology, &quantities, device, &options)
                        .unwrap();
                let specs: Vec<_> = quantities.iter().flat_map(Quantity::components).collect();
                let start = |field: usize, exchanged| {
                    let (block, component) = (blocks[field / 3], field % 3);
                    expected(&plane, block, component, specs[field], exchanged)
                };
                let mut memories: Vec<_> = (0..specs.len())
                    .map(|field| device.memory_from_slice(&stream, &start(field, false)).unwrap())
                    .collect();
                let mut views: Vec<Field<'_>> = memories
                    .iter_mut()
                    .zip(&specs)
                    .map(|(memory, spec)| {
                        memory.view_mut().reshape(spec.layout().shape()).unwrap().into()
                    })
                    .collect();
                halo.exchange(&stream, &mut views).unwrap();
                drop(views);
                for (field, memory) in memories.iter().enumerate() {
                    let found = memory.to_vec(&stream).unwrap();
                    assert_eq!(found, start(field, true), "seed {seed}, {}", specs[field].name());
                }
                check_edges(&halo, &plane, &blocks, &specs);
            })
            .unwrap();
        }
    }
}

/// All elements of a field: cells, and ghosts with what an exchange brings, or −1.
fn expected(
    plane: &Plane,
    block: usize,
    component: usize,
    spec: &FieldSpec,
    exchanged: bool,
) -> Vec<f64> {
    let element = |at: [isize; 2]| {
        let is_owned =
            (0..2).all(|axis| (0..plane.blocks[block][axis] as isize).contains(&at[axis]));
        match plane.source(block, at) {
            _ if is_owned => value(block, component, at.map(|at| at as usize)),
            Some((from, cell, symmetry)) if exchanged => match component {
                0 => value(from, 0, cell),
                _ => {
                    let (on, against) = symmetry.axis(component - 1);
                    value(from, 1 + on, cell) * if against { -1.0 } else { 1.0 }
                }
            },
            _ => -1.0,
        }
    };
    places(spec).map(|(_, at)| element(at)).collect()
}

/// The elements of a field in memory: the indices, and the cell.
fn places(spec: &FieldSpec) -> impl Iterator<Item = ([usize; 2], [isize; 2])> {
    let [rows, columns] = [0, 1].map(|dim| spec.layout().shape()[dim]);
    let below = [0, 1].map(|dim| spec.dims()[dim].owned().start as isize);
    (0..rows).flat_map(move |j| {
        (0..columns).map(move |i| ([j, i], [i as isize - below[1], j as isize - below[0]]))
    })
}

/// The edges are the ghosts in no region, each once.
fn check_edges(halo: &HaloExchange, plane: &Plane, blocks: &[usize], specs: &[&FieldSpec]) {
    for (field, spec) in specs.iter().enumerate() {
        let block = blocks[field / 3];
        for (index, at) in places(spec) {
            let holds = |dim: usize, range: &Range<usize>| range.contains(&index[dim]);
            let edges = halo.edges().iter().filter(|edge| edge.field == field);
            let listed =
                edges.filter(|edge| edge.ranges.iter().enumerate().all(|(d, r)| holds(d, r)));
            let is_owned = (0..2).all(|a| (0..plane.blocks[block][a] as isize).contains(&at[a]));
            let is_open = !is_owned && plane.source(block, at).is_none();
            assert_eq!(listed.count(), usize::from(is_open), "{} {at:?}", spec.name());
        }
    }
}

on_all_devices!(
    every_ghost_is_filled,
    two_ranks_have_one_message_each_way,
    reductions_do_not_depend_on_the_ranks,
    random_regions_copy_as_the_loop_does,
);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_blocks_on_random_ranks(
        layout in prop::array::uniform2(1..4_usize),
        ranks in 1..7_usize,
        width in 1..4_usize,
        is_sphere in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (sphere, flat) = (
            Topology::cubed_sphere(9, layout).unwrap(),
            Topology::cartesian(&[9, 10], &layout, &[true, false]).unwrap(),
        );
        let (cube, plane) = (Cube { cells: 9 }, Flat { cells: [9, 10, 1], periodic: [true, false, false] });
        let (topology, world): (_, &dyn World) = if is_sphere { (&sphere, &cube) } else { (&flat, &plane) };
        let topology = spread(topology, ranks.min(topology.block_count()), seed);
        let device = if seed % 4 == 0 { sim(seed) } else { host() };
        let case = case(&topology, world, width);
        case.exchange(&device);
        case.carry(&device);
    }
}

#[test]
fn faulty_transports_give_no_wrong_values() {
    let (cells, periodic) = ([4, 4, 1], [true, true, false]);
    let topology = Topology::cartesian(&cells[..2], &[2, 2], &periodic[..2]).unwrap();
    let topology = topology.on_ranks(&[0, 1, 1, 0]).unwrap();
    case(&topology, &Flat { cells, periodic }, 2).exchange_with_faults(sim);
}

/// The message of the error of each rank.
fn errors(ranks: usize, f: impl Fn(usize) -> (Topology, Vec<Quantity>) + Sync) -> Vec<String> {
    let errors = ThreadCommunicator::run(ranks, |ranks| {
        let (topology, quantities) = f(ranks.rank());
        let options = HaloOptions::default();
        HaloExchange::new(Arc::new(ranks), &topology, &quantities, &host(), &options).unwrap_err()
    });
    let message = |error: halo::Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    };
    errors.unwrap().into_iter().map(message).collect()
}

fn scalar(cells: usize, name: &str, dtype: DType) -> Quantity {
    Quantity::scalar(FieldSpec::new(name, dtype, &[Dim::axis(0, cells).halo(1, 1)]).unwrap())
}

#[test]
fn ranks_that_differ_in_their_blocks_get_an_error() {
    let ring = |owners: &[usize]| {
        Topology::cartesian(&[8], &[4], &[true]).unwrap().on_ranks(owners).unwrap()
    };
    let two = || vec![scalar(2, "f", DType::F32), scalar(2, "f", DType::F32)];
    let found = errors(2, |rank| (ring([&[0, 0, 1, 1], &[0, 1, 0, 1]][rank]), two()));
    let message = "ranks [1] have another rank of block 1 than rank 0: 1 on rank 1, 0 on rank 0";
    assert_eq!(found, [message; 2]);
    let found = errors(2, |rank| {
        let (ghosts, symmetry) = ([-1..0, 2..3][rank].clone(), Symmetry::IDENTITY);
        let cells = 0..1;
        let region = Region { block: 0, ghosts: [ghosts], neighbour: 1, cells: [cells], symmetry };
        (Topology::of_regions(&[[2], [2]], &[region]).unwrap(), two()[..1].to_vec())
    });
    for message in found {
        let words = "ranks [1] have another box of ghosts, number 0 than rank 0: block 0, from block 1: [2..3";
        assert!(message.starts_with(words), "{message}");
    }
    // Each rank has the block with its number in one topology, and the same ranks are given in the other.
    let found = errors(2, |rank| {
        let plain = Topology::cartesian(&[4], &[2], &[true]).unwrap();
        let given = plain.clone().on_ranks(&[0, 1]).unwrap();
        ([plain, given][rank].clone(), two()[..1].to_vec())
    });
    let message = "ranks [1] have another number of blocks than rank 0: 2 on 2 ranks on rank 1, one on each rank on rank 0";
    assert_eq!(found[0], message);
}

#[test]
fn blocks_of_a_rank_have_the_same_fields() {
    let topology = || {
        let ring = Topology::cartesian(&[7], &[3], &[true]).unwrap();
        ring.on_ranks(&[0, 1, 0]).unwrap()
    };
    let (f, d) = (DType::F32, DType::F64);
    let cells = |block: usize| topology().block(block).unwrap().cells[0];
    let (first, last) = (|name, dtype| scalar(cells(0), name, dtype), cells(2));
    for (quantities, message) in [
        (
            vec![first("f", f)],
            "1 quantities on rank 0, which has 2 blocks with the same quantities",
        ),
        (
            vec![first("f", f), scalar(last, "f", d)],
            "block 2 of rank 0 has another element type of field 0, f than block 0: f64 in block 2, f32 in block 0",
        ),
        (
            vec![first("f", f), scalar(last, "g", f)],
            "block 2 of rank 0 has another name of field 0 than block 0: g in block 2, f in block 0",
        ),
        (
            vec![first("f", f), scalar(9, "f", f)],
            "field f of block 2 of rank 0 has 9 cells along axis 0; its block (Topology::block) has 3",
        ),
        (
            vec![first("f", f), first("f", f), scalar(last, "f", f), scalar(last, "g", f)],
            "fields 0 and 1 of rank 0 are both named f of block 0",
        ),
    ] {
        let made = HaloTransformer::new(&topology(), 0, &quantities, &host(), &Default::default());
        let error = made.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidArgument, message));
        // The other rank gets an error, too.
        let found = errors(2, |rank| {
            let own = if rank == 0 { quantities.clone() } else { vec![scalar(cells(1), "f", f)] };
            (topology(), own)
        });
        assert_eq!(found, [message, "ranks [0] could not make their plans"]);
    }
    let vector = Quantity::vector(
        first("u", f).components()[0].clone(),
        first("v", f).components()[0].clone(),
    );
    let quantities = [vector.unwrap(), scalar(last, "u", f)];
    let made = HaloTransformer::new(&topology(), 0, &quantities, &host(), &Default::default());
    assert_eq!(made.unwrap_err().message(), "rank 0: 1 fields of block 2, 2 of block 0");
}

#[test]
fn errors_name_the_block() {
    let topology = Topology::cartesian(&[5], &[5], &[true]).unwrap().on_ranks(&[1, 0, 0, 1, 0]);
    let topology = topology.unwrap();
    let wide = |_| {
        let dims = [Dim::axis(0, 1).halo(2, 0)];
        Quantity::scalar(FieldSpec::new("f", DType::F32, &dims).unwrap())
    };
    let quantities = [0, 1].map(wide);
    let made = HaloTransformer::new(&topology, 1, &quantities, &host(), &Default::default());
    assert_eq!(
        made.unwrap_err().message(),
        "field f of block 0, side west of rank 1: a halo of 2 cells; its neighbour, block 4 of rank 0, has 1"
    );
    let made = HaloTransformer::new(&topology, 2, &quantities, &host(), &Default::default());
    assert_eq!(made.unwrap_err().message(), "rank 2 of a topology of 2");
}

#[test]
fn points_that_ranks_share_need_sides() {
    let topology = Topology::of_regions(&[[2]], &[]).unwrap();
    let result: Vec<Result<()>> = ThreadCommunicator::run(1, |ranks| {
        let dims = [Dim::axis(0, 2).staggered()];
        let quantities = [Quantity::scalar(FieldSpec::new("f", DType::F32, &dims)?)];
        let device = host();
        let options = HaloOptions::default();
        let mut halo =
            HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;
        let mut memory = device.memory_allocate::<f32>(3)?;
        halo.synchronize_shared(&device.default_stream(), &mut [memory.view_mut().into()])
    })
    .unwrap();
    let error = result[0].clone().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("Topology::of_regions"), "{error}");
}
