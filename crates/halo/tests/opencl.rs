//! The number of launches of an exchange on a device where memories are launch arguments.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;
mod devices;

use std::sync::Arc;

use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{Dim, Field, FieldSpec, HaloExchange, HaloOptions, Quantity, Staging, Topology};
use runtime_core::{Combine, DType, Memory, RegionCopy, RegionSide};

/// The most memories in one launch.
const MEMORIES: usize = 32;

/// All fields of a rank and the memory of its messages take one launch for packing and one for unpacking.
#[test]
fn one_launch_per_direction_for_32_memories() {
    const RANKS: usize = 2;
    const STEPS: u64 = 3;
    let Some(device) = devices::opencl("buffer") else { return };

    let side = |slot| RegionSide { slot, offset: 0, strides: vec![8] };
    let copies: Vec<RegionCopy> = (1..MEMORIES)
        .map(|slot| RegionCopy {
            dtype: DType::F64,
            extents: vec![4],
            source: side(0),
            destination: side(slot),
            negate: false,
            combine: Combine::Replace,
        })
        .collect();
    assert_eq!(device.plan_regions(&copies).unwrap().launches(), 1, "one execution, one launch");

    let topology = Topology::cartesian(&[3 * RANKS], &[RANKS], &[true]).unwrap();
    let dims = [Dim::axis(0, 3).halo(1, 1)];
    let field =
        |number| Quantity::scalar(FieldSpec::new(format!("f{number}"), DType::F64, &dims).unwrap());
    let quantities: Vec<Quantity> = (1..MEMORIES).map(field).collect();
    let options = HaloOptions { staging: Staging::Pinned, direct: false, ..Default::default() };
    let executions = ThreadCommunicator::run(RANKS, |ranks| {
        let rank = ranks.rank();
        let stream = device.stream_create(&Default::default()).unwrap();
        let ranks: Arc<dyn Communicator> = Arc::new(ranks);
        let shared = Arc::clone(&ranks);
        let mut halo =
            HaloExchange::new(shared, &topology, &quantities, &device, &options).unwrap();
        let values = |rank: usize| {
            let first = (3 * rank) as f64;
            [f64::NAN, first, first + 1.0, first + 2.0, f64::NAN]
        };
        let mut memories: Vec<Memory<f64>> = (1..MEMORIES)
            .map(|_| device.memory_from_slice(&stream, &values(rank)).unwrap())
            .collect();
        ranks.barrier(common::TIMEOUT).unwrap();
        let before = device.statistics().on_device.count;
        ranks.barrier(common::TIMEOUT).unwrap();
        for _ in 0..STEPS {
            let views = memories.iter_mut().map(|memory| memory.view_mut());
            let mut fields: Vec<Field<'_>> = views.map(Field::from).collect();
            halo.exchange(&stream, &mut fields).unwrap();
        }
        stream.synchronize().unwrap();
        ranks.barrier(common::TIMEOUT).unwrap();
        let after = device.statistics().on_device.count;
        let [_, low, middle, high, _] = values(rank);
        let (below, above) = (values(1 - rank)[3], values(1 - rank)[1]);
        for memory in &memories {
            assert_eq!(memory.to_vec(&stream).unwrap(), [below, low, middle, high, above]);
        }
        after - before
    });
    // On both ranks: packing and unpacking, in every step.
    assert_eq!(executions.unwrap(), vec![2 * RANKS as u64 * STEPS; RANKS]);
}

/// Rows that start at addresses to which kernel pointers may point.
#[test]
fn dimensions_are_aligned_for_a_device() {
    for memory in ["buffer", "svm"] {
        let Some(device) = devices::opencl(memory) else { return };
        let align = device.info().limits.argument_alignment.get();
        for dtype in [DType::U8, DType::F64, DType::C128] {
            for dim in [Dim::axis(0, 100).halo(3, 3), Dim::axis(0, 100).halo(2, 1).allocated(5, 9)]
            {
                let aligned = dim.aligned(&device, dtype);
                let [size, before] = [dtype.size(), dim.allocation()];
                assert_eq!(aligned.owned().len(), 100);
                assert!((aligned.owned().start * size).is_multiple_of(align));
                assert!((aligned.allocation() * size).is_multiple_of(align));
                let most = before + 2 * align.div_ceil(size);
                assert!((before..most).contains(&aligned.allocation()), "{aligned:?}");
                assert_eq!(aligned.allocation() == before, memory == "svm", "{aligned:?}");
            }
        }
    }
}
