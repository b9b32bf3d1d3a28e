//! Region copies over more memories than one launch can bind.

use opencl3::memory::CL_MEM_READ_WRITE;
use runtime_core::{Combine, DType, Device, Memory, RegionCopy, RegionSide, Slot};

use crate::adoption::{adopt, buffer};
use crate::{open, open_if_it_can};

/// An entry that copies one number of `source` to the element `to` of `destination`.
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

/// A launch takes 32 buffers as arguments; a table holds any number of addresses.
#[test]
fn plans_beyond_the_parameter_limit_take_several_launches() {
    let buffers = [(1_u32, 1), (7, 1), (31, 1), (32, 2), (100, 4)];
    let addresses = [(1_u32, 1), (7, 1), (31, 1), (32, 1), (100, 1)];
    for (memory, expected) in [("buffer", &buffers[..]), ("svm", &addresses), ("usm", &addresses)] {
        for regions in ["runs", "lanes"] {
            let options = format!("?memory={memory}&regions={regions}");
            let Some(device) = open_if_it_can(&options) else { continue };
            for (sources, launches) in expected {
                gather(&device, *sources, *launches);
            }
        }
    }
}

/// Gathers a number of each source, from different memory each time, on two streams.
fn gather(device: &Device, sources: u32, launches: usize) {
    let count = sources as usize;
    let entries: Vec<_> = (0..count).map(|index| entry(index, count, index)).collect();
    let plan = device.plan_regions(&entries).unwrap();
    assert_eq!((plan.phases(), plan.launches()), (1, launches), "{count} sources");
    let streams = [device.default_stream(), device.stream_create(&Default::default()).unwrap()];
    for round in 0..2 {
        let mut enqueued = Vec::new();
        for (stream, first) in streams.iter().zip([50 + round, 5000 + round]) {
            let memories: Vec<Memory<u32>> = (0..sources)
                .map(|number| device.memory_from_slice(stream, &[number + first]).unwrap())
                .collect();
            let mut gathered = device.memory_from_slice(stream, &vec![0_u32; count]).unwrap();
            for _ in 0..2 {
                let mut bind: Vec<Slot<'_>> =
                    memories.iter().map(|memory| memory.view().into()).collect();
                bind.push(gathered.view_mut().into());
                plan.execute(stream, &mut bind).unwrap();
            }
            enqueued.push((gathered, stream, first));
        }
        for (gathered, stream, first) in enqueued {
            let expected: Vec<u32> = (first..first + sources).collect();
            assert_eq!(gathered.to_vec(stream).unwrap(), expected, "{count} sources");
        }
    }
}

/// If memory is by address, an adopted buffer is still an argument, and so are all other memories of the launch.
#[test]
fn adopted_buffers_go_with_addresses() {
    let Some(device) = open_if_it_can("?memory=svm") else { return };
    let stream = device.default_stream();
    let mut adopted = adopt(&device, buffer(&device, CL_MEM_READ_WRITE, 4), 1, ());
    adopted.fill(&stream, 7).unwrap();
    let of_i32 = |index| RegionCopy { dtype: DType::I32, ..entry(index, 100, index) };
    let entries: Vec<_> = (0..100).map(of_i32).collect();
    let plan = device.plan_regions(&entries).unwrap();
    let own: Vec<Memory<i32>> =
        (1..100).map(|number| device.memory_from_slice(&stream, &[number]).unwrap()).collect();
    let mut gathered = device.memory_from_slice(&stream, &[0_i32; 100]).unwrap();
    assert_eq!(plan.launches(), 1);
    for (first, launches) in
        [(Slot::from(adopted.view()), 4), (Slot::Absent, 1), (Slot::from(own[0].view()), 1)]
    {
        let expected = match &first {
            Slot::Read(view) => view.typed::<i32>().unwrap().to_vec(&stream).unwrap()[0],
            _ => 0,
        };
        gathered.fill(&stream, 0).unwrap();
        let mut bind: Vec<Slot<'_>> =
            [first].into_iter().chain(own.iter().map(|memory| memory.view().into())).collect();
        bind.push(gathered.view_mut().into());
        plan.execute(&stream, &mut bind).unwrap();
        assert_eq!(plan.launches(), launches);
        drop(bind);
        let found = gathered.to_vec(&stream).unwrap();
        assert_eq!(found, [expected].into_iter().chain(1..100).collect::<Vec<_>>());
    }
}

/// Memory bound by one execution is released at the next, even if a launch binds fewer memories than another launch of
/// the same plan.
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
        let found = sums.view().to_vec(&stream).unwrap();
        assert_eq!(found[..8], [3, 3, 4, 4, 5, 5, 6, 6]);
    }
}
