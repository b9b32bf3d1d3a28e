//! Region copies over more memories than one launch can bind.

use runtime_core::{Combine, DType, Memory, RegionCopy, RegionSide, Slot};

use crate::open;

/// An entry that takes one number of `source` to the element `to` of `destination`.
fn entry(source: usize, destination: usize, to: usize) -> RegionCopy {
    let side = |slot, element: usize| RegionSide { slot, offset: element * 4, strides: vec![4] };
    RegionCopy {
        dtype: DType::U32,
        extents: vec![1],
        source: side(source, 0),
        destination: side(destination, to),
        negate: false,
        combine: Combine::Replace,
    }
}

#[test]
fn as_many_launches_as_it_takes() {
    for options in ["?regions=runs", "?regions=lanes"] {
        let Some(device) = open(options) else { return };
        let stream = device.default_stream();
        for (sources, launches) in [(1_u32, 1), (7, 1), (31, 1), (32, 2), (100, 4)] {
            let count = sources as usize;
            let entries: Vec<_> = (0..count).map(|index| entry(index, count, index)).collect();
            let plan = device.plan_regions(&entries).unwrap();
            assert_eq!((plan.phases(), plan.launches()), (1, launches), "{count} sources");
            let memories: Vec<Memory<u32>> = (0..sources)
                .map(|number| device.memory_from_slice(&stream, &[number + 50]).unwrap())
                .collect();
            let mut gathered = device.memory_from_slice(&stream, &vec![0_u32; count]).unwrap();
            for _ in 0..2 {
                let mut bind: Vec<Slot<'_>> =
                    memories.iter().map(|memory| memory.view().into()).collect();
                bind.push(gathered.view_mut().into());
                plan.execute(&stream, &mut bind).unwrap();
                let found = gathered.view().to_vec::<u32>(&stream).unwrap();
                assert_eq!(found, (50..50 + sources).collect::<Vec<_>>(), "{options}");
            }
        }
    }
}

/// What one execution bound is gone at the next, also where a launch binds less than another of the same plan.
#[test]
fn executions_do_not_see_the_memory_of_others() {
    let Some(device) = open("?memory=buffer") else { return };
    let stream = device.default_stream();
    let sum = |source: usize, to: usize, len: usize| RegionCopy {
        extents: vec![len],
        combine: Combine::Sum,
        ..entry(source, 1, to)
    };
    let entries = [sum(0, 0, 8), sum(2, 0, 2), sum(3, 2, 2), sum(4, 4, 2), sum(5, 6, 2)];
    let plan = device.plan_regions(&entries).unwrap();
    assert_eq!((plan.phases(), plan.launches()), (2, 2));
    for round in 0..20 {
        let fresh = |number: u32| {
            device.memory_from_slice(&stream, &vec![number; 8 + round * 1000]).unwrap()
        };
        let mut sums = fresh(1);
        let sources = [0, 2, 3, 4, 5].map(fresh);
        let [first, rest @ ..] = &sources;
        let mut bind: Vec<Slot<'_>> = vec![first.view().into(), sums.view_mut().into()];
        bind.extend(rest.iter().map(|memory| Slot::from(memory.view())));
        plan.execute(&stream, &mut bind).unwrap();
        drop(bind);
        let found = sums.view().to_vec::<u32>(&stream).unwrap();
        assert_eq!(found[..8], [3, 3, 4, 4, 5, 5, 6, 6]);
    }
}
