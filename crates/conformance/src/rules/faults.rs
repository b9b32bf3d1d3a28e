//! Programs that the device stops. Each rule runs in its own process, because some drivers recover only in a new
//! process, and others end the process.

use std::thread;
use std::time::Duration;

use runtime_core::{Device, ErrorKind, Memory, Result};

use crate::outcome::{Outcome, check, check_eq, needed, refused};
use crate::run::announce_fault;
use crate::setup::{Setup, is_fault};
use crate::{Ability, Fixture, Stop};

/// Launches `fault` after other work that takes a moment, so more work can be enqueued behind it. If the bundle has no
/// such kernel, checks that the kernel is not found and returns `None`.
fn provoke(setup: &Setup) -> Outcome<Option<Memory<u32>>> {
    let kernel = setup.kernels.kernel("fault");
    if kernel.is_err() {
        refused(kernel, ErrorKind::KernelNotFound, "a kernel that the bundle leaves out")?;
        return Ok(None);
    }
    let mut memory = setup.upload(&[0_u32; 16])?;
    setup.spin(&setup.stream, Duration::from_millis(10))?;
    announce_fault();
    if let Some(launched) = setup.kernels.fault(&setup.stream, memory.view_mut()) {
        launched?;
    }
    Ok(Some(memory))
}

/// Fails unless the outcome is a fault that names the device and has the driver's code.
#[track_caller]
fn must_be_a_fault(outcome: Result<()>, device: &Device, what: &str) -> Outcome<ErrorKind> {
    let Err(error) = outcome else { return Err(Stop::failed(format_args!("{what} succeeded"))) };
    check!(is_fault(&error), "{what}: {error}, which is no fault");
    check_eq!(error.device(), Some(device.id()), "{what}: {error}; its device");
    check!(
        error.driver().is_some_and(|driver| !driver.name.is_empty()),
        "{what}: {error} has no driver code with a name"
    );
    Ok(error.kind())
}

/// If the device stops a program, its stream reports a fault once. Only a lost device keeps reporting it, on every
/// stream.
pub fn a_fault_is_reported_once_by_its_stream(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let other = setup.new_stream()?;
    let memory = needed(provoke(&setup)?, Ability::Fault)?;
    let kind =
        must_be_a_fault(setup.stream.synchronize(), &setup.device, "synchronising the stream")?;
    drop(memory);
    if kind == ErrorKind::DeviceLost {
        // A lost device reports this always, on every stream.
        must_be_a_fault(setup.stream.synchronize(), &setup.device, "synchronising it again")?;
        must_be_a_fault(other.synchronize(), &setup.device, "synchronising another stream")?;
        return Ok(());
    }
    for (what, outcome) in [
        ("the stream", setup.stream.synchronize()),
        ("another stream", other.synchronize()),
        ("the device", setup.device.synchronize()),
    ] {
        let lost = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::DeviceLost);
        check!(outcome.is_ok() || lost, "{what} reports the fault once more: {outcome:?}");
    }
    Ok(())
}

/// A blocking copy to the host reports an earlier fault on its stream, because the copied values would be unreliable.
pub fn a_blocking_read_reports_the_fault_before_it(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let memory = needed(provoke(&setup)?, Ability::Fault)?;
    let mut back = [0_u32; 16];
    let read = memory.view().copy_to_slice(&setup.stream, &mut back);
    must_be_a_fault(read, &setup.device, "reading behind the fault")?;
    Ok(())
}

/// The device reports a fault that happened on a dropped stream.
pub fn a_fault_of_a_dropped_stream_is_reported_by_the_device(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let device = setup.device.clone();
    let memory = needed(provoke(&setup)?, Ability::Fault)?;
    drop((setup, memory));
    must_be_a_fault(device.synchronize(), &device, "synchronising the device")?;
    Ok(())
}

/// Of several threads that wait for a stream, one receives the fault. Another thread that then receives none finds that
/// [`Stream::failures`](runtime_core::Stream::failures) has grown.
pub fn a_fault_that_one_thread_receives_is_known_to_the_others(fixture: &Fixture) -> Outcome {
    const THREADS: usize = 3;
    let setup = fixture.fresh()?;
    let before = setup.stream.failures();
    let memory = needed(provoke(&setup)?, Ability::Fault)?;
    let wait = || {
        let waited = setup.stream.synchronize();
        (waited, setup.stream.failures())
    };
    let outcomes: Outcome<Vec<_>> = thread::scope(|scope| {
        let waits: Vec<_> = (0..THREADS).map(|_| scope.spawn(wait)).collect();
        let end = |wait: thread::ScopedJoinHandle<'_, _>| {
            wait.join().map_err(|_| Stop::failed("a thread panicked"))
        };
        waits.into_iter().map(end).collect()
    });
    let outcomes = outcomes?;
    check!(outcomes.iter().any(|(waited, _)| waited.is_err()), "no thread received the fault");
    for (waited, failures) in outcomes {
        check!(failures > before, "a thread received {waited:?} and counts {failures} failures");
    }
    drop(memory);
    Ok(())
}

/// Once an event behind the fault is reached, `Stream::check` reports the fault, unless the wait for the event did.
pub fn a_fault_before_a_reached_event_is_found_without_a_wait(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let memory = needed(provoke(&setup)?, Ability::Fault)?;
    let waited = setup.stream.record_event().and_then(|event| event.wait());
    must_be_a_fault(waited.and_then(|()| setup.stream.check()), &setup.device, "the check")?;
    drop(memory);
    Ok(())
}

/// Work enqueued behind a fault ends, waits return, and everything can be dropped.
pub fn work_behind_a_fault_ends(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let other = setup.new_stream()?;
    let mut pinned = setup.device.pinned_allocate::<u32>(16)?;
    let mut memory = needed(provoke(&setup)?, Ability::Fault)?;
    // Each of these may be refused or fail, because the fault may be known already. None may hang.
    let _ = setup.kernels.add_one(&setup.stream, memory.view_mut());
    let _ = memory.view().copy_to_pinned(&setup.stream, &mut pinned);
    if let Ok(event) = setup.stream.record_event() {
        let _ = other.wait(&event);
        let _ = event.wait();
        let _ = event.is_done();
    }
    let _ = pinned.as_slice();
    let _ = other.synchronize();
    let copied = memory.view().to_vec(&setup.stream);
    if let Err(error) = &copied {
        check!(is_fault(error), "reading behind a fault: {error}, which is no fault");
    }
    let synchronized = setup.stream.synchronize();
    let reported = copied.is_err() || synchronized.is_err() || setup.device.synchronize().is_err();
    check!(reported, "no call reported the fault");
    drop((memory, pinned, other));
    Ok(())
}

/// After a fault the device still works, or reports that it is lost. Opening it again in the same process gives a
/// working device, or the error says that the driver works again in a new process.
pub fn a_fault_leaves_a_device_that_can_be_opened_again(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let memory = needed(provoke(&setup)?, Ability::Fault)?;
    must_be_a_fault(setup.stream.synchronize(), &setup.device, "synchronising the stream")?;
    drop(memory);
    if let Err(stop) = setup.is_usable() {
        let lost = setup.device.synchronize();
        let lost = lost.is_err_and(|error| error.kind() == ErrorKind::DeviceLost);
        check!(lost, "after a fault the device neither works nor is lost: {stop}");
    }
    drop(setup);
    match fixture.try_open(0) {
        Err(lost) if lost.kind() == ErrorKind::DeviceLost => {
            check!(lost.message().contains("in a new process"), "the device does not open: {lost}");
            Ok(())
        }
        _ => fixture.fresh()?.is_usable(),
    }
}
