//! Graphs of simulated devices: their counts, and faults planned for their work.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "launches graphs, of memory that no slice shows")]

use backend_sim::{Fault, Operation, SimConfig, SimDevice, SimHandle};
use runtime_core::{
    Device, ErrorKind, Graph, Memory, MemoryViewMut, Result, Stream, StreamOptions, Support,
};

fn open(config: SimConfig) -> (Device, SimHandle) {
    let sim = SimDevice::new(0, config);
    let handle = sim.handle();
    (Device::new(sim).unwrap(), handle)
}

/// A graph that fills two halves.
fn halves(device: &Device, memory: &mut Memory<u8>) -> Graph {
    let graphs = device.graphs().unwrap();
    let captured = graphs.capture(|capture| {
        let (mut low, mut high) = memory.view_mut().split_at(4)?;
        low.fill(capture, 1_u8)?;
        high.fill(capture, 2_u8)
    });
    captured.unwrap()
}

fn launch(graph: &Graph, stream: &Stream) -> Result<()> {
    // SAFETY: simulated memory is never lent as a slice, no test takes one of pinned memory, and the graph has no
    // kernel.
    unsafe { graph.launch(stream) }
}

#[test]
fn captured_work_counts_when_it_is_launched() {
    let (device, seen) = open(SimConfig::new());
    let mut memory = device.memory_allocate::<u8>(8).unwrap();
    let graph = halves(&device, &mut memory);
    assert_eq!((seen.counts().on_device.count, seen.counts().synchronizations), (0, 0));
    let stream = device.default_stream();
    (0..3).for_each(|_| launch(&graph, &stream).unwrap());
    assert_eq!((seen.counts().on_device.count, seen.counts().on_device.bytes), (6, 24));
    // The graph keeps the objects that it uses, but not after it is dropped.
    drop(memory);
    stream.synchronize().unwrap();
    assert_eq!(seen.used_bytes(), 8);
    drop(graph);
    stream.synchronize().unwrap();
    assert_eq!(seen.used_bytes(), 0);
}

#[test]
fn a_fault_in_a_graph_fails_its_launch_or_its_stream() {
    let config = SimConfig::new()
        .fault(Fault::fail(Operation::Copy, 4))
        .fault(Fault::fail_late(Operation::Copy, 5));
    let (device, _) = open(config);
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<u8>(8).unwrap();
    let graph = halves(&device, &mut memory);
    launch(&graph, &stream).unwrap();
    // The second fill of the second launch fails at once, so nothing of that launch is done.
    assert_eq!(launch(&graph, &stream).unwrap_err().kind(), ErrorKind::Driver);
    stream.synchronize().unwrap();
    // The first fill of the third launch fails when it runs. The fill behind it is done.
    launch(&graph, &stream).unwrap();
    assert_eq!(stream.synchronize().unwrap_err().kind(), ErrorKind::Driver);
    stream.synchronize().unwrap();
    launch(&graph, &stream).unwrap();
    assert_eq!(memory.to_vec(&stream).unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn a_lost_device_captures_and_launches_nothing() {
    let (device, seen) = open(SimConfig::new());
    let mut memory = device.memory_allocate::<u8>(8).unwrap();
    let graph = halves(&device, &mut memory);
    let graphs = device.graphs().unwrap();
    let lost = graphs.capture(|capture| {
        seen.lose();
        memory.view_mut().fill(capture, 3_u8)
    });
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(graphs.capture(|_| Ok(())).unwrap_err().kind(), ErrorKind::DeviceLost);
    let launched = launch(&graph, &device.default_stream());
    assert_eq!(launched.unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn graphs_can_be_switched_off() {
    let (device, _) = open(SimConfig::new().graphs(false));
    assert!(device.graphs().is_none());
    assert_eq!(device.capabilities().graphs, Support::Absent);
}

#[test]
fn a_capture_that_is_over_keeps_nothing() {
    let (device, seen) = open(SimConfig::new());
    let use_and_drop = |stream: &Stream| {
        let mut memory = device.memory_allocate::<u8>(8).unwrap();
        let mut pinned = device.pinned_allocate::<u8>(8).unwrap();
        let _ = memory.view().copy_to_pinned(stream, &mut pinned);
        memory.fill(stream, 1_u8)
    };
    let mut saved = None;
    let graph = device.graphs().unwrap().capture(|capture| {
        saved = Some(capture.clone());
        Ok(())
    });
    use_and_drop(&saved.unwrap()).unwrap_err();
    assert_eq!(seen.used_bytes(), 0, "kept by the stream of a capture that is over");
    let failed = device.graphs().unwrap().capture(|capture| {
        use_and_drop(capture).unwrap();
        assert_eq!(seen.used_bytes(), 8);
        capture.synchronize().unwrap_err();
        assert_eq!(seen.used_bytes(), 0, "kept by a capture that has failed");
        Ok(())
    });
    failed.unwrap_err();
    drop(graph);
}

/// Even if the work ignores the error: a graph without the operation would be wrong.
#[test]
fn a_capture_ends_with_an_operation_that_gets_no_temporary_memory() {
    type Attempt = fn(&Stream, &mut MemoryViewMut<'_, u32>) -> Result<()>;
    let attempts: [(&str, bool, Attempt); 4] = [
        ("a fill through gaps", true, |capture, columns| columns.fill(capture, 5)),
        ("a fill with zero through gaps", true, |capture, columns| columns.fill_zero(capture)),
        ("a copy through gaps to the host", true, |capture, columns| {
            columns.as_view().to_vec(capture).map(drop)
        }),
        ("an emulated region copy", false, |capture, columns| {
            let (mut upper, lower) = columns.reborrow().split_at(2)?;
            upper.copy_from(capture, &lower.as_view())
        }),
    ];
    for (what, region_copies, attempt) in attempts {
        let (device, handle) = open(SimConfig::new().region_copies(region_copies));
        let mut memory = device.memory_allocate::<u32>(16).unwrap();
        let counts = handle.counts();
        let allocations = counts.allocations + counts.pinned_allocations;
        handle.inject(Fault::fail(Operation::Allocation, allocations + 1));
        let captured = device.graphs().unwrap().capture(|capture| {
            let columns = memory.view_mut().reshape(&[4, 4])?;
            let failed = attempt(capture, &mut columns.region(&[0..4, 0..2])?);
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::OutOfMemory, "{what}");
            Ok(())
        });
        let error = captured.map(drop).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}");
    }
}

/// The source cannot be read on its own stream.
#[test]
fn a_capture_ends_with_a_staged_copy_that_fails_before_it_is_refused() {
    let apart = || SimConfig::new().peers(false);
    let (source, _) = open(apart().fault(Fault::fail(Operation::Copy, 1)));
    let (device, _) = open(apart());
    let values = source.memory_allocate::<u32>(4).unwrap();
    let mut memory = device.memory_allocate::<u32>(4).unwrap();
    let captured = device.graphs().unwrap().capture(|capture| {
        let (values, from) = (values.view(), source.default_stream());
        let failed = memory.view_mut().copy_from_device(capture, &values, &from);
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Driver);
        Ok(())
    });
    assert_eq!(captured.map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// One event for each pinned memory and stream, recorded again by each launch.
#[test]
fn launches_of_a_graph_keep_their_events() {
    const LAUNCHES: u64 = 10;
    let (device, seen) = open(SimConfig::new());
    let mut memory = device.memory_allocate::<u32>(8).unwrap();
    let [source, mut result] = [0; 2].map(|_| device.pinned_allocate::<u32>(8).unwrap());
    let graph = device.graphs().unwrap().capture(|to| {
        memory.view_mut().copy_from_pinned(to, &source)?;
        memory.view().copy_to_pinned(to, &mut result)
    });
    let graph = graph.unwrap();
    for (stream, created) in [
        (device.default_stream(), 2),
        (device.stream_create(&StreamOptions::default()).unwrap(), 4),
    ] {
        let before = seen.counts();
        for _ in 0..LAUNCHES {
            launch(&graph, &stream).unwrap();
        }
        let counts = seen.counts();
        assert_eq!(counts.records - before.records, 2 * LAUNCHES);
        assert_eq!(counts.events, created);
    }
}
