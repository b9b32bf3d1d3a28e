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
