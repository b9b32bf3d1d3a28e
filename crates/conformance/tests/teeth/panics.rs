//! A backend that panics after it has begun an enqueue: what the front knows of the work is not lost.
#![expect(unsafe_code, reason = "launches a kernel without arguments, and a graph")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use backend_sim::{SimConfig, SimDevice};
use runtime_core::{Device, Grid, HostModule, Launch, Result, Stream};

use crate::saboteur::{Broken, Saboteur};

const LEN: usize = 1000;

/// A device that panics, and a stream of it that is busy for a while.
fn busy(broken: Broken) -> Result<(Device, Stream)> {
    let device = Device::new(Saboteur::new(SimDevice::new(0, SimConfig::new()), broken))?;
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

#[test]
fn a_launch_of_a_graph_that_panicked_is_waited_for() {
    let (device, stream) = busy(Broken::GraphLaunchPanics).unwrap();
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    memory.fill(&stream, 4).unwrap();
    let mut pinned = device.pinned_allocate::<u32>(LEN).unwrap();
    let graphs = device.graphs().unwrap();
    let graph = graphs.capture(|to| memory.view().copy_to_pinned(to, &mut pinned)).unwrap();
    // SAFETY: nobody has a slice of the pinned memory, and the stream orders the fill and the launch.
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
