//! A backend that panics after it has begun to enqueue: the front still tracks the work.
#![expect(unsafe_code, reason = "launches a kernel without arguments, and a graph")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use backend_sim::{SimConfig, SimDevice};
use runtime_core::{
    DType, Device, Grid, HostModule, Launch, Layout, MemoryViewMut, Result, Stream, WriteReport,
    args,
};

use crate::faulty_device::{Broken, FaultyDevice};

const LEN: usize = 1000;

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
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err(), "the backend did not panic");
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
