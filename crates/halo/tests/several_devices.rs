//! Ranks whose blocks are on several devices.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;
mod devices;

use std::sync::Arc;
use std::time::Duration;

use common::world::{Cube, Flat, World};
use common::{Case, Shape, Store};
use devices::{copies_in_one_launch, emulated, host, sim};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Combine, ErrorKind, Field, HaloExchange, HaloOptions, Kind, MissingCorners, Reach, Result,
    Staging, Topology,
};
use runtime_core::{DType, Device, Stream};

/// Streams of the device and of two simulated ones, one of which copies no regions.
fn streams(device: &Device) -> Vec<Stream> {
    [device.clone(), sim(3), emulated()]
        .map(|device| device.stream_create(&Default::default()).unwrap())
        .into()
}

/// The fields of a rank, each with the stream of its block.
struct Placed {
    stores: Vec<Store>,
    streams: Vec<Stream>,
}

impl Placed {
    /// `streams` has the stream of each block.
    fn new(case: &Case<'_>, rank: usize, streams: &[Stream]) -> Self {
        let (mut stores, mut of_fields) = (Vec::new(), Vec::new());
        for (place, stream) in streams.iter().enumerate() {
            let all = case.stores(rank, stream);
            let of_block = all.len() / streams.len();
            stores.extend(all.into_iter().skip(place * of_block).take(of_block));
            of_fields.resize(stores.len(), stream.clone());
        }
        Self { stores, streams: of_fields }
    }

    fn fields(&mut self) -> Vec<Field<'_>> {
        self.stores.iter_mut().map(Store::field).collect()
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        let all = self.stores.iter().zip(&self.streams);
        all.map(|(store, stream)| store.memory.to_vec(stream).unwrap()).collect()
    }
}

/// Runs `f` on each rank. The blocks of rank 0 are on three devices in turn, those of other ranks on the first.
fn on_ranks<R: Send>(
    case: &Case<'_>,
    device: &Device,
    f: impl Fn(usize, HaloExchange, Vec<Stream>) -> R + Sync,
) -> Vec<R> {
    ThreadCommunicator::run(case.topology.ranks(), |ranks| {
        let rank = ranks.rank();
        let quantities = case.quantities(rank).unwrap();
        let (ranks, all) = (Arc::new(ranks), streams(device));
        let blocks = case.topology.blocks_of(rank).unwrap().len();
        let (halo, streams) = if rank == 0 {
            let streams: Vec<Stream> = (0..blocks).map(|place| all[place % 3].clone()).collect();
            let (topology, options) = (case.topology, &case.options);
            (HaloExchange::on_streams(ranks, topology, &quantities, &streams, options), streams)
        } else {
            let halo = HaloExchange::new(ranks, case.topology, &quantities, device, &case.options);
            (halo, vec![all[0].clone(); blocks])
        };
        f(rank, halo.unwrap(), streams)
    })
    .unwrap()
}

fn case<'a>(topology: &'a Topology, world: &'a dyn World) -> Case<'a> {
    let on = |staggered| Shape::new(DType::F64, 2).staggered(staggered);
    let quantities = vec![
        (Kind::Scalar, vec![Shape::new(DType::I16, 2)]),
        (Kind::Vector, vec![on([true, false, false]), on([false, true, false])]),
    ];
    Case { topology, world, quantities, options: HaloOptions::default() }
}

fn every_ghost_is_filled(device: &Device) {
    let sphere = Topology::cubed_sphere(4, [1, 2]).unwrap();
    let (cells, periodic) = ([6, 6, 1], [true, false, false]);
    let flat = Topology::cartesian(&cells[..2], &[3, 3], &periodic[..2]).unwrap();
    let owners = [0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1];
    let (cube, plane) = (Cube { cells: 4 }, Flat { cells, periodic });
    let tiles = |ranks| sphere.clone().on_ranks(ranks).unwrap();
    let boxes = || flat.clone().on_ranks(&owners[..9]).unwrap();
    let worlds: [(Topology, &dyn World, Reach, Staging); 4] = [
        (tiles(&owners), &cube, Reach::Full, Staging::Pinned),
        (tiles(&[0; 12]), &cube, Reach::Full, Staging::Auto),
        (boxes(), &plane, Reach::Full, Staging::Auto),
        (boxes(), &plane, Reach::ByAxis, Staging::Pinned),
    ];
    for (topology, world, reach, staging) in worlds {
        let options = HaloOptions { reach, staging, ..Default::default() };
        let case = Case { options, ..case(&topology, world) };
        on_ranks(&case, device, |rank, mut halo, streams| {
            assert!(!halo.is_direct());
            for _ in 0..2 {
                let mut placed = Placed::new(&case, rank, &streams);
                halo.exchange(&streams[0], &mut placed.fields()).unwrap();
                assert_eq!(placed.bytes(), case.image(rank, true), "rank {rank}");
            }
        });
    }
}

/// The bits of a reduction are those on one device.
fn reductions_do_not_depend_on_the_devices(device: &Device) {
    let topology = Topology::cartesian(&[6, 6], &[3, 3], &[true, true]).unwrap();
    let topology = topology.on_ranks(&[0, 1, 0, 0, 0, 1, 0, 0, 1]).unwrap();
    let world = Flat { cells: [6, 6, 1], periodic: [true, true, false] };
    let case = case(&topology, &world);
    for combine in [Combine::Sum, Combine::Replace] {
        // Ghosts have bytes of their own, as numbers of all magnitudes.
        let reduced = |halo: &mut HaloExchange, mut placed: Placed| {
            for (field, (store, stream)) in
                placed.stores.iter_mut().zip(&placed.streams).enumerate()
            {
                let (mut rng, bytes) = (fastrand::Rng::with_seed(field as u64), store.memory.len());
                let noise: Vec<u8> = (0..bytes)
                    .map(|place| rng.u8(..) & if place % 8 == 7 { 63 } else { 255 })
                    .collect();
                store.memory.copy_from_slice(stream, &noise).unwrap();
            }
            let first = placed.streams[0].clone();
            halo.reduce(&first, &mut placed.fields(), combine).unwrap();
            placed.bytes()
        };
        let expected = case.with_ranks(device, |rank, mut halo, stream| {
            let blocks = topology.blocks_of(rank).unwrap().len();
            reduced(&mut halo, Placed::new(&case, rank, &vec![stream; blocks]))
        });
        let found = on_ranks(&case, device, |rank, mut halo, streams| {
            reduced(&mut halo, Placed::new(&case, rank, &streams))
        });
        assert_eq!(found, expected, "{combine:?}");
    }
}

/// One message each way, and one launch to pack and one to unpack for each device that copies regions itself.
fn each_device_has_one_launch_each_way(device: &Device) {
    let topology = Topology::cartesian(&[6, 4], &[3, 2], &[true, true]).unwrap();
    let topology = topology.on_ranks(&[0, 1, 0, 0, 1, 0]).unwrap();
    let world = Flat { cells: [6, 4, 1], periodic: [true, true, false] };
    let case = case(&topology, &world);
    on_ranks(&case, device, |rank, mut halo, streams| {
        assert_eq!(halo.sends().map(|(to, _)| to).collect::<Vec<_>>(), [1 - rank]);
        let mut placed = Placed::new(&case, rank, &streams);
        halo.exchange(&streams[0], &mut placed.fields()).unwrap();
        assert_eq!(placed.bytes(), case.image(rank, true));
        let statistics = halo.statistics().unwrap();
        let other = statistics.neighbours.iter().find(|other| other.rank != rank).unwrap();
        assert_eq!((other.sent.count, other.received.count), (1, 1));
        let is_native = copies_in_one_launch(device);
        if is_native {
            // The third device of rank 0 emulates region copies, without a launch.
            assert_eq!(statistics.launches, if rank == 0 { 4 } else { 2 });
        }
    });
}

on_all_devices!(
    every_ghost_is_filled,
    reductions_do_not_depend_on_the_devices,
    each_device_has_one_launch_each_way,
);

#[test]
fn what_makes_no_sense_is_refused() {
    let topology = || Topology::cartesian(&[4], &[2], &[true]).unwrap().on_ranks(&[0, 0]).unwrap();
    let world = Flat { cells: [4, 1, 1], periodic: [true, false, false] };
    let topology_of_all = topology();
    let quantities = vec![(Kind::Scalar, vec![Shape::new(DType::F32, 1)])];
    let options = HaloOptions::default();
    let case = Case { topology: &topology_of_all, world: &world, quantities, options };
    let make = |streams: &[Stream], missing_corners| -> Result<HaloExchange> {
        let options = HaloOptions { missing_corners, ..Default::default() };
        let [ranks] = ThreadCommunicator::group(1)?.try_into().unwrap();
        let quantities = case.quantities(0)?;
        HaloExchange::on_streams(Arc::new(ranks), &topology(), &quantities, streams, &options)
    };
    let (one, two) = (sim(1), sim(2));
    let stream = |device: &Device| device.stream_create(&Default::default()).unwrap();
    let untouched = MissingCorners::Untouched;
    for (streams, corners, words) in [
        (vec![], untouched, "0 streams of rank 0"),
        (vec![stream(&one)], untouched, "1 streams of rank 0, which has 2 blocks"),
        (vec![stream(&one), stream(&one)], untouched, "rank 0: streams "),
        (
            vec![stream(&one), stream(&two)],
            MissingCorners::Fill(1.0),
            "rank 0: blocks on several devices, and Fill(1.0)",
        ),
    ] {
        let error = make(&streams, corners).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with(words), "{error}");
    }
    let streams = [stream(&one), stream(&two)];
    let mut halo = make(&streams, untouched).unwrap();
    // Both fields on the first device.
    let mut placed = Placed::new(&case, 0, &[streams[0].clone(), streams[0].clone()]);
    let before = placed.bytes();
    let error = halo.exchange(&streams[0], &mut placed.fields()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDevice);
    assert!(error.message().starts_with("field q0.0 of block 1 of rank 0: "), "{error}");
    assert_eq!(placed.bytes(), before);
    let mut placed = Placed::new(&case, 0, &streams);
    let error = halo.exchange(&streams[1], &mut placed.fields()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDevice);
    halo.exchange(&streams[0], &mut placed.fields()).unwrap();
    assert_eq!(placed.bytes(), case.image(0, true));
}

#[test]
fn a_rank_without_streams_is_an_error_on_all_ranks() {
    let topology = Topology::cartesian(&[4], &[2], &[true]).unwrap();
    let world = Flat { cells: [4, 1, 1], periodic: [true, false, false] };
    let quantities = vec![(Kind::Scalar, vec![Shape::new(DType::F32, 1)])];
    let options = HaloOptions { timeout: Duration::from_secs(30), ..Default::default() };
    let case = Case { topology: &topology, world: &world, quantities, options };
    let errors = ThreadCommunicator::run(2, |ranks| {
        let (rank, quantities) = (ranks.rank(), case.quantities(ranks.rank()).unwrap());
        let streams = Vec::from_iter((rank == 0).then(|| host().default_stream()));
        let ranks = Arc::new(ranks);
        let made = HaloExchange::on_streams(ranks, &topology, &quantities, &streams, &case.options);
        made.unwrap_err().message().to_owned()
    });
    let expected = ["ranks [1] could not make their plans", "0 streams of rank 1"];
    assert_eq!(errors.unwrap(), expected);
}
