//! Forests against a model, on every device: what a broadcast and a reduction do, and in how many launches.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod devices;
mod forests;

use std::sync::Arc;
use std::time::Duration;

use forests::{Model, Woods, all_reductions, check, check_over, operations, start};
use halo::communicator::{Communicator, Fault, Faults, FaultyCommunicator, ThreadCommunicator};
use halo::{Combine, FieldSpec, Forest, ForestOptions, ForestSize, HaloStatistics, Leaf, Staging};
use runtime_core::{DType, Device, Support};

on_all_devices! {
    random_forests_copy_and_combine_as_the_model_does,
    sums_have_the_bits_of_the_order_of_ranks_and_leaves,
    late_messages_change_no_bit,
    one_launch_packs_all_fields_and_one_unpacks_them,
    roots_and_leaves_may_be_parts_of_one_memory,
    global_numbers_are_found_on_their_ranks,
    long_lists_with_runs_and_strides_are_copied,
}

fn random_forests_copy_and_combine_as_the_model_does(device: &Device) {
    for seed in 0..12 {
        let ranks = 1 + seed as usize % 5;
        let staging = [Staging::Auto, Staging::Pinned][seed as usize / 2 % 2];
        let options = ForestOptions { staging, ..all_reductions() };
        check(&Woods::random(ranks, seed), device, &options, seed);
    }
}

/// Another order gives other bits, so a wrong order is seen.
fn sums_have_the_bits_of_the_order_of_ranks_and_leaves(device: &Device) {
    let seed = 3;
    let leaf = |rank: usize, at: u64| Leaf { at, rank: (rank + at as usize) % 3, root: at % 2 };
    let woods = Woods {
        sizes: vec![ForestSize { roots: 2, leaves: 60 }; 3],
        leaves: (0..3).map(|rank| (0..60).rev().map(|at| leaf(rank, at)).collect()).collect(),
    };
    let (mut forwards, mut backwards) = (Model::new(&woods, seed), Model::new(&woods, seed));
    forwards.reduce(&woods, Combine::Sum);
    backwards.reduce_backwards(&woods, Combine::Sum);
    for rank in 0..3 {
        assert_ne!(forwards.a.roots[rank], backwards.a.roots[rank], "the order has no effect");
    }
    check(&woods, device, &all_reductions(), seed);
}

fn late_messages_change_no_bit(device: &Device) {
    for seed in 20..24 {
        let woods = Woods::random(4, seed);
        let faults = Faults::new(seed).with(Fault::Delay, 0.6).longest(Duration::from_millis(3));
        ThreadCommunicator::run(4, |ranks| {
            let ranks = Arc::new(FaultyCommunicator::new(ranks, faults.clone()));
            check_over(Arc::clone(&ranks) as _, &woods, device, &all_reductions(), seed);
            // The messages of a rank that leaves may still be late.
            ranks.barrier(Duration::from_secs(60)).unwrap();
        })
        .unwrap();
    }
}

/// Three fields on three ranks, each of which has leaves with roots on every rank.
fn one_launch_packs_all_fields_and_one_unpacks_them(device: &Device) {
    let leaves = |_| (0..9).map(|at| Leaf { at, rank: at as usize % 3, root: at / 2 }).collect();
    let woods = Woods {
        sizes: vec![ForestSize { roots: 5, leaves: 9 }; 3],
        leaves: (0..3).map(leaves).collect(),
    };
    let is_native = device.capabilities().region_copy == Support::Native;
    let model = Model::new(&woods, 1);
    let counts = ThreadCommunicator::run(3, |ranks| {
        let (rank, stream) = (ranks.rank(), device.stream_create(&Default::default()).unwrap());
        let mut forest = Forest::new(
            Arc::new(ranks),
            woods.sizes[rank],
            &woods.leaves[rank],
            &model.specs(),
            device,
            &all_reductions(),
        )
        .unwrap();
        let mut stores = model.upload(rank, &stream);
        let mut counts = Vec::new();
        for combine in operations() {
            let before = forest.statistics().unwrap();
            let mut fields = stores.fields(combine);
            start(&mut forest, &stream, &mut fields, combine).unwrap().finish().unwrap();
            let after = forest.statistics().unwrap();
            counts.push((combine, after.launches - before.launches));
            // Items of 8, 12 and 24 bytes: one message each way with every other rank.
            let bytes = 3 * 8 + 8 + 3 * 12 + 12 + 3 * 24 + 8;
            for (peer, others) in traffic(&before, &after) {
                let own = 3 * (8 + 12 + 24);
                let expected = if peer == rank { [0, 0, own] } else { [bytes, bytes, 0] };
                assert_eq!(others, expected, "rank {rank} with rank {peer}");
            }
            assert!(
                forest.sends().eq((0..3).filter(|peer| *peer != rank).map(|p| (p, bytes as usize)))
            );
        }
        counts
    });
    for (combine, launches) in counts.unwrap().into_iter().flatten() {
        match combine {
            _ if !is_native => assert_eq!(launches, 0),
            // Messages of a broadcast are unpacked as they arrive.
            None => assert!((2..=3).contains(&launches), "{launches}"),
            Some(_) => assert_eq!(launches, 2, "{combine:?}"),
        }
    }
}

/// The bytes sent, received and copied by one call, for each rank.
fn traffic(before: &HaloStatistics, after: &HaloStatistics) -> Vec<(usize, [u64; 3])> {
    let bytes = |statistics: &HaloStatistics, rank: usize| {
        let found = statistics.neighbours.iter().find(|neighbour| neighbour.rank == rank);
        found.map_or([0; 3], |n| [n.sent.bytes, n.received.bytes, n.copied.bytes])
    };
    let of = |rank| {
        let [then, now] = [bytes(before, rank), bytes(after, rank)];
        (rank, std::array::from_fn(|kind| now[kind] - then[kind]))
    };
    after.neighbours.iter().map(|neighbour| of(neighbour.rank)).collect()
}

fn roots_and_leaves_may_be_parts_of_one_memory(device: &Device) {
    ThreadCommunicator::run(3, |ranks| {
        let (rank, stream) = (ranks.rank(), device.stream_create(&Default::default()).unwrap());
        let fields = [FieldSpec::new("f", DType::F64, &[]).unwrap()];
        let leaves = [0, 1, 2].map(|at| Leaf { at, rank: at as usize, root: 1 });
        let size = ForestSize { roots: 32, leaves: 4 };
        let options = all_reductions();
        let mut forest =
            Forest::new(Arc::new(ranks), size, &leaves, &fields, device, &options).unwrap();
        let mut values: Vec<f64> = (0..36).map(|at| (100 * rank + at) as f64).collect();
        let mut memory = device.memory_from_slice(&stream, &values).unwrap();
        let (roots, copies) = memory.view_mut().split_at(32).unwrap();
        forest.broadcast(&stream, &mut [[roots.into(), copies.into()]]).unwrap();
        values[32..35].copy_from_slice(&[1.0, 101.0, 201.0]);
        assert_eq!(memory.to_vec(&stream).unwrap(), values);
        let (roots, copies) = memory.view_mut().split_at(32).unwrap();
        forest.reduce(&stream, &mut [[roots.into(), copies.into()]], Combine::Sum).unwrap();
        values[1] *= 4.0;
        assert_eq!(memory.to_vec(&stream).unwrap(), values);
    })
    .unwrap();
}

/// Numbers that a rank owns itself, that it needs twice, and ranks that own nothing or need nothing.
fn global_numbers_are_found_on_their_ranks(device: &Device) {
    let owned = [7..10, 3..3, 0..7, 10..12];
    let needed: [&[u64]; 4] = [&[11, 0, 8, 11], &[6, 7, 3], &[], &[2, 2, 9, 10]];
    ThreadCommunicator::run(4, |ranks| {
        let (rank, stream) = (ranks.rank(), device.stream_create(&Default::default()).unwrap());
        let fields = [FieldSpec::new("f", DType::I32, &[]).unwrap()];
        let options = ForestOptions { reductions: vec![Combine::Sum], ..Default::default() };
        let (own, needed) = (owned[rank].clone(), needed[rank]);
        let mut forest =
            Forest::from_global(Arc::new(ranks), own.clone(), needed, &fields, device, &options)
                .unwrap();
        let size = ForestSize { roots: own.clone().count(), leaves: needed.len() };
        assert_eq!(forest.size(), size);
        let value = |number: u64| 1000 + i32::try_from(number).unwrap();
        let roots: Vec<i32> = own.clone().map(value).collect();
        let mut roots = device.memory_from_slice(&stream, &roots).unwrap();
        let mut leaves = device.memory_from_slice(&stream, &vec![-1; needed.len()]).unwrap();
        forest.broadcast(&stream, &mut [[roots.view().into(), leaves.view_mut().into()]]).unwrap();
        let copies: Vec<i32> = needed.iter().copied().map(value).collect();
        assert_eq!(leaves.to_vec(&stream).unwrap(), copies);
        let mut fields = [[roots.view_mut().into(), leaves.view().into()]];
        forest.reduce(&stream, &mut fields, Combine::Sum).unwrap();
        let times = |number: &u64| {
            [11, 2].contains(number) as i32 + [11, 0, 8, 6, 7, 3, 2, 9, 10].contains(number) as i32
        };
        let sums: Vec<i32> = own.map(|number| value(number) * (1 + times(&number))).collect();
        assert_eq!(roots.to_vec(&stream).unwrap(), sums);
    })
    .unwrap();
}

/// Lists that become strided copies on a device, and lists that do not.
fn long_lists_with_runs_and_strides_are_copied(device: &Device) {
    const COUNT: u64 = 4000;
    let leaf = |rank: usize, at: u64| match at % 4000 {
        0..1000 => Leaf { at, rank: 1 - rank, root: at },
        1000..2000 => Leaf { at, rank: 1 - rank, root: 3 * (at - 1000) },
        2000..2900 => Leaf { at, rank, root: COUNT - at },
        _ => Leaf { at, rank: 1 - rank, root: at * 7919 % COUNT },
    };
    let woods = Woods {
        sizes: vec![ForestSize { roots: 4000, leaves: 4000 }; 2],
        leaves: (0..2).map(|rank| (0..COUNT).map(|at| leaf(rank, at)).collect()).collect(),
    };
    check(&woods, device, &all_reductions(), 5);
}
