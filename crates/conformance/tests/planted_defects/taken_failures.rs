//! Operations of several steps, while another caller takes a failure between two of the steps: what the device skipped
//! before must not become values.
#![expect(unsafe_code, reason = "launches a kernel without arguments")]

use std::cell::Cell;
use std::rc::Rc;

use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice};
use runtime_core::{
    Device, ErrorKind, Grid, HostModule, Launch, Memory, MemoryView, MemoryViewMut, Result, Stream,
};

use crate::faulty_device::{Broken, FaultyDevice, hook_behind};

const ROWS: usize = 8;
/// The values before each operation. The operations write `NEW`.
const OLD: [u32; ROWS * ROWS] = [1; ROWS * ROWS];
const NEW: u32 = 7;

/// Enqueues work that fails.
fn fail(stream: &Stream) -> Result<()> {
    let fail = |_: &Grid<'_>| -> Result<(), String> { Err("on purpose".into()) };
    let module = stream.device().module_load(&HostModule::new().with("fail", fail))?;
    // SAFETY: the kernel has no arguments.
    unsafe { module.kernel("fail")?.launch(stream, &Launch::cover(1, 1), &[]) }
}

/// Calls `operation` behind a failure, once for each of its steps: behind this step, another caller takes the failure.
/// `operation` gets the first columns of a square, and `check` its result and the square.
fn for_each_step<R>(
    device: FaultyDevice,
    operation: impl Fn(&Stream, MemoryViewMut<'_, u32>) -> Result<R>,
    check: impl Fn(Result<R>, &[u32]),
) -> Result<()> {
    let device = Device::new(device)?;
    let stream = device.default_stream();
    let mut memory = device.memory_from_slice(&stream, &OLD)?;
    let mut taken_before = 0;
    for step in 0.. {
        memory.copy_from_slice(&stream, &OLD)?;
        fail(&stream)?;
        let taken = Rc::new(Cell::new(None));
        let (of, by) = (stream.clone(), Rc::clone(&taken));
        hook_behind(step, move || by.set(Some(of.synchronize().is_err())));
        let columns = memory.view_mut().reshape(&[ROWS, ROWS])?;
        let done = operation(&stream, columns.region(&[0..ROWS, 0..3])?);
        hook_behind(0, || {});
        let _ = stream.synchronize();
        check(done, &memory.to_vec(&stream)?);
        match taken.get() {
            Some(taken) => taken_before += usize::from(taken),
            None => break,
        }
    }
    assert!(taken_before > 0, "no failure was taken between steps");
    Ok(())
}

/// Devices with and without region copies, in memory that the host can address and in other memory, and one that skips
/// also copies from the host.
fn devices() -> Result<[FaultyDevice; 5]> {
    let host = |index| HostDevice::with_threads(index, 2);
    let sim = |index| SimDevice::new(index, SimConfig::new());
    Ok([
        FaultyDevice::new(host(0)?, Broken::Nothing),
        FaultyDevice::new(sim(0), Broken::Nothing),
        FaultyDevice::new(host(1)?, Broken::RegionsAreAbsent),
        FaultyDevice::new(sim(1), Broken::RegionsAreAbsent),
        FaultyDevice::new(sim(2), Broken::MemoryCopyToIsSkipped),
    ])
}

#[test]
fn what_is_read_through_gaps_is_right_or_refused() {
    let right = |read: Result<Vec<u32>>, _: &[u32]| match read {
        Ok(read) => assert_eq!(read, [OLD[0]; 3 * ROWS]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}"),
    };
    for device in devices().unwrap() {
        for_each_step(device, |stream, view| view.as_view().to_vec(stream), right).unwrap();
    }
}

/// A device that leaves copies out behind a failure keeps the contract.
#[test]
fn what_a_skipped_copy_reads_is_refused() {
    let refused = |read: Result<Vec<u32>>, _: &[u32]| assert!(read.is_err(), "{read:?}");
    let row = |stream: &Stream, view: MemoryViewMut<'_, u32>| {
        let row: MemoryView<'_, u32> = view.as_view().region(&[0..1, 0..3])?;
        assert!(row.layout().is_contiguous());
        // The device does not even wait.
        stream.record_event()?.wait()?;
        row.to_vec(stream)
    };
    let device = SimDevice::new(0, SimConfig::new());
    for_each_step(FaultyDevice::new(device, Broken::MemoryCopyFrom), row, refused).unwrap();
}

#[test]
fn what_is_written_through_gaps_was_there_before_or_is_given() {
    type Write = fn(&Stream, MemoryViewMut<'_, u32>) -> Result<()>;
    let writes: [(&str, Write); 3] = [
        ("copy_from_slice", |stream, mut view| view.copy_from_slice(stream, &[NEW; 3 * ROWS])),
        ("fill", |stream, mut view| view.fill(stream, NEW)),
        ("fill_zero", |stream, mut view| view.fill_zero(stream)),
    ];
    for (what, write) in writes {
        let new = if what == "fill_zero" { 0 } else { NEW };
        for (index, device) in devices().unwrap().into_iter().enumerate() {
            for_each_step(device, write, |_, square| {
                let known = |value: &u32| [OLD[0], new].contains(value);
                assert!(square.iter().all(known), "{what} on device {index}: {square:x?}");
            })
            .unwrap();
        }
    }
}

/// Calls `copy`, which overwrites a memory except for `gaps` bytes, once for each of its steps. Behind the step, work
/// of another caller fails, and this caller takes the failure behind the next step, which the device skips.
fn between_steps(
    device: SimDevice,
    len: usize,
    gaps: usize,
    copy: impl Fn(&Stream, &mut Memory<u8>) -> Result<()>,
) -> Result<()> {
    let device = Device::new(FaultyDevice::new(device, Broken::MemoryCopyToIsSkipped))?;
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<u8>(len)?;
    let mut refused = 0;
    for step in 0.. {
        memory.fill(&stream, 1)?;
        stream.synchronize()?;
        let (of, has_failed) = (stream.clone(), Rc::new(Cell::new(false)));
        let failing = Rc::clone(&has_failed);
        hook_behind(step, move || {
            failing.set(fail(&of).is_ok());
            hook_behind(0, move || drop(of.synchronize()));
        });
        let copied = copy(&stream, &mut memory);
        hook_behind(0, || {});
        let _ = stream.synchronize();
        let old = memory.to_vec(&stream)?.iter().filter(|byte| **byte == 1).count();
        match copied {
            Ok(()) => assert_eq!(old, gaps, "behind step {step}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
                refused += 1;
            }
        }
        if !has_failed.get() {
            break;
        }
    }
    assert!(refused > 0, "no failure was taken between steps");
    Ok(())
}

#[test]
fn what_is_copied_between_devices_in_pieces_is_there_or_refused() {
    // More than two pieces.
    const BYTES: usize = 9 << 20;
    let apart = |index| SimDevice::new(index, SimConfig::new().peers(false));
    let source = Device::new(apart(0)).unwrap();
    let from = source.default_stream();
    let values = source.memory_from_slice(&from, &vec![7_u8; BYTES]).unwrap();
    between_steps(apart(1), BYTES, 0, |stream, memory| {
        memory.view_mut().copy_from_device(stream, &values.view(), &from)
    })
    .unwrap();
}

/// Each row is a batch.
#[test]
fn what_an_emulated_region_copy_writes_is_there_or_refused() {
    const ROW: usize = 3 << 20;
    let device = SimDevice::new(0, SimConfig::new().region_copies(false));
    between_steps(device, 3 * (ROW + 8), 3 * 8, |stream, memory| {
        let values = stream.device().memory_from_slice(stream, &vec![7_u8; 3 * ROW])?;
        let rows = memory.view_mut().reshape(&[3, ROW + 8])?;
        let values = values.view().reshape(&[3, ROW])?;
        rows.region(&[0..3, 0..ROW])?.copy_from(stream, &values)
    })
    .unwrap();
}
