//! A backend that panics: the front still tracks work that the backend may have begun to enqueue, and work that it did
//! not wait for.
#![expect(unsafe_code, reason = "launches a kernel without arguments, and a graph")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use backend_sim::{SimConfig, SimDevice};
use runtime_core::{
    Combine, DType, Device, Grid, HostModule, Launch, Layout, MemoryViewMut, RegionCopy,
    RegionSide, Result, Stream, StreamOptions, WriteReport, args,
};

use crate::faulty_device::{Broken, FaultyDevice, arm, released_after};

const LEN: usize = 1000;
/// More streams than the front keeps for an object once they are done.
const MANY: usize = 20;

/// A device that panics, and one of its streams, which is busy for a while.
fn busy(broken: Broken) -> Result<(Device, Stream)> {
    let device = Device::new(FaultyDevice::new(SimDevice::new(0, SimConfig::new()), broken))?;
    let sleep = |_: &Grid<'_>| thread::sleep(Duration::from_millis(100));
    let kernel = device.module_load(&HostModule::new().with("sleep", sleep))?.kernel("sleep")?;
    let stream = device.default_stream();
    // SAFETY: the kernel has no arguments.
    unsafe { kernel.launch(&stream, &Launch::cover(1, 1), &[]) }?;
    Ok((device, stream))
}

fn panics(work: impl FnOnce() -> Result<()>) {
    arm(true);
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err(), "the backend did not panic");
    arm(false);
}

#[test]
fn a_copy_whose_enqueue_panicked_is_waited_for() {
    let (device, stream) = busy(Broken::PinnedCopyPanics).unwrap();
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    memory.fill(&stream, 3).unwrap();
    let mut pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    panics(|| memory.view().copy_to_pinned(&stream, &mut pinned));
    assert_eq!(pinned.as_slice().unwrap(), [3; LEN]);
}

/// The lender of a view must not treat the new values as the old ones.
#[test]
fn a_write_whose_enqueue_panicked_has_failed() {
    let sim = |index| SimDevice::new(index, SimConfig::new());
    let faulty = |index| Device::new(FaultyDevice::new(sim(index), Broken::WritesPanic));
    let (device, other) = (faulty(0).unwrap(), faulty(1).unwrap());
    let stream = device.default_stream();
    let failed = |what: &str, write: &dyn Fn(&mut MemoryViewMut<'_, u32>) -> Result<()>| {
        let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
        let report = WriteReport::new();
        let mut view = memory.view_mut().reporting_to(&report).unwrap();
        panics(|| write(&mut view));
        assert!(report.failed() && !report.wrote(), "{what}: {report:?}");
    };
    let source = device.memory_allocate::<u32>(LEN).unwrap();
    let foreign = other.memory_allocate::<u32>(LEN).unwrap();
    let pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    let write = |_: &Grid<'_>, _: &mut [u32]| {};
    let module = device.module_load(&HostModule::new().with("write", write)).unwrap();
    let kernel = module.kernel("write").unwrap();
    failed("fill", &|view| view.fill(&stream, 1_u32));
    failed("from the host", &|view| view.copy_from_slice(&stream, &[1_u32; LEN]));
    failed("from pinned memory", &|view| view.copy_from_pinned(&stream, &pinned));
    failed("on the device", &|view| view.copy_from(&stream, &source.view()));
    failed("from a device", &|view| {
        view.copy_from_device(&stream, &foreign.view(), &other.default_stream())
    });
    failed("with gaps", &|view| {
        let layout = Layout::new(DType::U32, &[LEN / 2], &[2])?;
        let source = source.view().with_layout(0, &layout)?;
        view.reborrow().with_layout(0, &layout)?.copy_from(&stream, &source)
    });
    failed("a kernel", &|view| {
        // SAFETY: the kernel takes one slice and accesses nothing.
        unsafe { kernel.launch(&stream, &Launch::cover(1, 1), args![view.reborrow()]) }
    });
}

#[test]
fn a_launch_of_a_graph_that_panicked_is_waited_for() {
    let (device, stream) = busy(Broken::GraphLaunchPanics).unwrap();
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    memory.fill(&stream, 4).unwrap();
    let mut pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    let graphs = device.graphs().unwrap();
    let graph = graphs.capture(|to| memory.view().copy_to_pinned(to, &mut pinned)).unwrap();
    // SAFETY: no slice of the pinned memory exists, and the stream orders the fill and the launch.
    panics(|| unsafe { graph.launch(&stream) });
    assert_eq!(pinned.as_slice().unwrap(), [4; LEN]);
}

#[test]
fn a_capture_in_which_an_enqueue_panicked_is_over() {
    let (device, _) = busy(Broken::PinnedCopyPanics).unwrap();
    let memory = device.memory_allocate::<u32>(LEN).unwrap();
    let mut pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    let captured = device.graphs().unwrap().capture(|to| {
        panics(|| memory.view().copy_to_pinned(to, &mut pinned));
        Ok(())
    });
    assert!(captured.is_err(), "a graph of an operation that panicked");
}

#[test]
fn a_copy_whose_end_is_not_recorded_is_waited_for() {
    let (device, stream) = busy(Broken::RecordPanics).unwrap();
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    memory.fill(&stream, 3).unwrap();
    let mut pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    panics(|| memory.view().copy_to_pinned(&stream, &mut pinned));
    assert_eq!(pinned.as_slice().unwrap(), [3; LEN]);
}

#[test]
fn a_copy_that_could_not_be_ordered_changes_nothing() {
    let (device, stream) = busy(Broken::WaitPanics).unwrap();
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    memory.fill(&stream, 3).unwrap();
    let mut pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    memory.view().copy_to_pinned(&stream, &mut pinned).unwrap();
    let other = device.stream_create(&StreamOptions::default()).unwrap();
    let fives = device.memory_from_slice(&other, &[5_u32; LEN]).unwrap();
    panics(|| fives.view().copy_to_pinned(&other, &mut pinned));
    assert_eq!(pinned.as_slice().unwrap(), [3; LEN]);
}

#[test]
fn a_wait_of_the_host_that_panicked_is_made_again() {
    let (device, stream) = busy(Broken::EventWaitPanics).unwrap();
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    memory.fill(&stream, 3).unwrap();
    let mut pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    memory.view().copy_to_pinned(&stream, &mut pinned).unwrap();
    panics(|| pinned.as_slice().map(drop));
    assert_eq!(pinned.as_slice().unwrap(), [3; LEN]);
}

#[test]
fn a_synchronisation_that_panicked_takes_no_failure() {
    let (device, stream) = busy(Broken::SynchronizePanics).unwrap();
    let fail = |_: &Grid<'_>| Err("on purpose".to_owned());
    let module = device.module_load(&HostModule::new().with("fail", fail)).unwrap();
    // SAFETY: the kernel has no arguments.
    unsafe { module.kernel("fail").unwrap().launch(&stream, &Launch::cover(1, 1), &[]) }.unwrap();
    panics(|| stream.synchronize());
    assert_eq!(stream.failures(), 0);
    assert!(stream.synchronize().is_err(), "the failure is lost");
    assert_eq!(stream.failures(), 1);
    stream.synchronize().unwrap();
}

/// Its staging memory still has copies in flight when the plan runs again.
#[test]
fn an_emulated_plan_runs_again_after_a_panic() {
    let sim = SimDevice::new(0, SimConfig::new().region_copies(false));
    let device = Device::new(FaultyDevice::new(sim, Broken::SynchronizePanics)).unwrap();
    let stream = device.default_stream();
    let every_other = |slot| RegionSide { slot, offset: 0, strides: vec![8] };
    let copy = RegionCopy {
        dtype: DType::U32,
        extents: vec![LEN / 2],
        source: every_other(0),
        destination: every_other(1),
        negate: false,
        combine: Combine::Replace,
    };
    let plan = device.plan_regions(&[copy]).unwrap();
    let from = device.memory_from_slice(&stream, &[3_u32; LEN]).unwrap();
    let mut to = device.memory_from_slice(&stream, &[5_u32; LEN]).unwrap();
    let mut execute = || plan.execute(&stream, &mut [from.view().into(), to.view_mut().into()]);
    panics(&mut execute);
    execute().unwrap();
    let found = to.view().to_vec(&stream).unwrap();
    assert!(found.chunks(2).all(|pair| pair == [3, 5]), "{found:?}");
}

#[test]
fn copies_are_waited_for_after_a_query_of_an_event_that_panicked() {
    let (device, stream) = busy(Broken::EventQueryPanics).unwrap();
    let [mut memory, mut rest] = [0; 2].map(|_| device.memory_allocate::<u32>(LEN).unwrap());
    let mut pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    memory.view_mut().copy_from_pinned(&stream, &pinned).unwrap();
    let mut elsewhere = || {
        let other = device.stream_create(&StreamOptions::default())?;
        rest.view_mut().copy_from_pinned(&other, &pinned)
    };
    panics(|| (0..MANY).try_for_each(|_| elsewhere()));
    pinned.as_mut_slice().unwrap().fill(9);
    assert_eq!(memory.view().to_vec(&stream).unwrap(), [0; LEN]);
}

#[test]
fn memory_waits_for_its_uses_after_a_query_of_a_stream_that_panicked() {
    let (device, stream) = busy(Broken::QueryPanics).unwrap();
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    memory.fill(&stream, 3).unwrap();
    let mut elsewhere = || {
        let other = device.stream_create(&StreamOptions::default())?;
        memory.view_mut().fill(&other, 5_u32)
    };
    panics(|| (0..MANY).try_for_each(|_| elsewhere()));
    drop(memory);
    assert!(released_after().contains(&stream.native()), "freed while a stream uses it");
}
