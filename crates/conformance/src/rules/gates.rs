//! Gates, at which streams wait for the host.
#![expect(unsafe_code, reason = "writes pinned memory that a copy behind a gate is to read")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use runtime_core::{ErrorKind, Gate, Opener, Support};

use crate::data::elements;
use crate::outcome::{Outcome, best_of_three, check, check_eq, needed, refused, same};
use crate::setup::Setup;
use crate::{Ability, Fixture, Stop};

/// Long enough that work that does not wait has run, as a rule.
const HEAD_START: Duration = Duration::from_millis(40);
/// Long enough for work that does not wait, even on a busy machine.
const SOON: Duration = Duration::from_millis(500);
/// A device that needs longer hangs.
const LIMIT: Duration = Duration::from_secs(10);

/// The setup of a device that has gates.
fn setup(fixture: &Fixture) -> Outcome<Setup> {
    with_gates(fixture.setup()?)
}

fn with_gates(setup: Setup) -> Outcome<Setup> {
    let is_there = setup.device.capabilities().gates == Support::Native;
    needed(is_there.then_some(()), Ability::Gates)?;
    Ok(setup)
}

/// A closed gate for which the setup's stream waits.
fn closed(setup: &Setup) -> Outcome<(Gate, Opener)> {
    let (gate, opener) = setup.device.gate()?;
    setup.stream.hold_until(&gate)?;
    Ok((gate, opener))
}

/// Work enqueued behind a closed gate does not run, on any stream that waits for the gate, and enqueueing it does not
/// block. Work enqueued before it runs. When another thread opens the gate, all of it runs. Gates of other devices and
/// captures are refused.
pub fn work_behind_a_closed_gate_does_not_run(fixture: &Fixture) -> Outcome {
    let setup = setup(fixture)?;
    let other = setup.new_stream()?;
    let mut memory = setup.upload(&[0_u32; 300])?;
    let mut copy = setup.upload(&[0_u32; 300])?;
    setup.kernels.fill_index(&setup.stream, memory.view_mut(), 5)?;
    let before = setup.stream.record_event()?;
    let (gate, opener) = closed(&setup)?;
    other.hold_until(&gate.clone())?;
    setup.kernels.add_one(&setup.stream, memory.view_mut())?;
    other.wait(&setup.stream.record_event()?)?;
    copy.view_mut().copy_from(&other, &memory.view())?;
    before.wait_for(LIMIT)?;
    thread::sleep(HEAD_START);
    let ran = [setup.stream.is_done()?, other.is_done()?];
    thread::scope(|scope| scope.spawn(|| opener.open()).join())
        .map_err(|_| Stop::failed("opening a gate panicked"))?;
    other.synchronize_for(LIMIT)?;
    check_eq!(ran, [false; 2], "whether work behind a closed gate was done");
    let expected: Vec<u32> = (6..306).collect();
    same(&copy.view().to_vec(&other)?, &expected, "the values computed behind a gate")?;
    let foreign = fixture.other()?.device.gate();
    if let Ok((foreign, opener)) = foreign {
        refused(setup.stream.hold_until(&foreign), ErrorKind::WrongDevice, "a foreign gate")?;
        opener.open();
    }
    if let Some(graphs) = setup.device.graphs() {
        let captured = graphs.capture(|capture| capture.hold_until(&gate));
        refused(captured, ErrorKind::InvalidArgument, "a gate in a capture")?;
    }
    setup.is_usable()
}

/// A wait with a limit ends in time behind a closed gate, also if there are copies before and behind the gate.
pub fn a_wait_with_a_limit_ends_behind_a_closed_gate(fixture: &Fixture) -> Outcome {
    const LEN: usize = 100_000;
    let setup = setup(fixture)?;
    let expected = elements::<u32>(1, LEN);
    let mut memory = setup.upload(&expected)?;
    let mut copy = setup.upload(&[0_u32; LEN])?;
    copy.view_mut().copy_from(&setup.stream, &memory.view())?;
    let (_, opener) = closed(&setup)?;
    memory.view_mut().copy_from(&setup.stream, &copy.view())?;
    let behind = setup.stream.record_event()?;
    let (end, ended) = mpsc::channel::<()>();
    let waited = thread::scope(|scope| {
        scope.spawn(move || {
            // A wait that does not end by itself ends with the gate.
            let _ended = ended.recv_timeout(LIMIT / 2);
            opener.open();
        });
        let waited = behind.wait_for(HEAD_START);
        drop(end);
        waited
    });
    refused(waited, ErrorKind::Timeout, "waiting behind a closed gate")?;
    behind.wait_for(LIMIT)?;
    same(&setup.download(&memory)?, &expected, "the values copied behind a gate")?;
    setup.is_usable()
}

/// Work behind a gate sees what the host wrote before it opened the gate, time after time.
pub fn work_behind_a_gate_sees_what_the_host_wrote_before_it_opened(fixture: &Fixture) -> Outcome {
    const LEN: usize = 5000;
    let setup = setup(fixture)?;
    let pinned = setup.device.pinned_allocate::<u32>(LEN)?;
    let mut memory = setup.upload(&[0_u32; LEN])?;
    for round in 0..20 {
        let expected = elements::<u32>(round, LEN);
        let (_, opener) = closed(&setup)?;
        // SAFETY: the copy reads the elements when the gate is open, and they are not written after that.
        let part = unsafe { pinned.slice_unordered(0..LEN) }?;
        memory.view_mut().copy_from_pinned(&setup.stream, part)?;
        // SAFETY: there are as many elements. The copy before has run, and the one behind the gate has not begun.
        unsafe {
            pinned.host_ptr().as_ptr().copy_from_nonoverlapping(expected.as_ptr(), expected.len());
        }
        opener.open();
        setup.stream.synchronize_for(LIMIT)?;
        same(&setup.download(&memory)?, &expected, "the values that the host wrote")?;
    }
    Ok(())
}

/// If what is to open a gate is dropped instead, also by a panic, or was dropped before, each stream that waits for the
/// gate ends and reports a fault, once. After that the stream works.
pub fn a_gate_that_is_given_up_fails_its_streams_once(fixture: &Fixture) -> Outcome {
    // Other rules count the failures of their device.
    let setup = with_gates(fixture.fresh()?)?;
    let other = setup.new_stream()?;
    let mut memory = setup.upload(&[0_u32; 300])?;
    for round in 0..3 {
        let (gate, opener) = setup.device.gate()?;
        if round == 2 {
            drop(opener);
            setup.stream.hold_until(&gate)?;
            setup.kernels.add_one(&setup.stream, memory.view_mut())?;
        } else {
            setup.stream.hold_until(&gate)?;
            other.hold_until(&gate)?;
            setup.kernels.add_one(&setup.stream, memory.view_mut())?;
            let given_up = catch_unwind(AssertUnwindSafe(|| {
                let _opener = opener;
                if round == 1 {
                    // Without the panic hook, which would print a message.
                    resume_unwind(Box::new("on purpose"));
                }
            }));
            check_eq!(given_up.is_err(), round == 1, "whether the owner panicked");
        }
        let streams = if round == 2 { vec![&setup.stream] } else { vec![&setup.stream, &other] };
        for stream in streams {
            let before = stream.failures();
            let waited = stream.synchronize_for(LIMIT);
            refused(waited, ErrorKind::DeviceFault, "waiting behind a gate that was given up")?;
            check!(stream.failures() > before, "the failure was not counted");
            stream.synchronize_for(LIMIT)?;
        }
        setup.device.synchronize()?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), round)?;
        let expected: Vec<u32> = (round..round + 300).collect();
        same(&setup.download(&memory)?, &expected, "the values computed after the failure")?;
    }
    // The device reports the failure of a dropped stream.
    let (gate, opener) = setup.device.gate()?;
    setup.new_stream()?.hold_until(&gate)?;
    drop((gate, opener));
    refused(setup.device.synchronize(), ErrorKind::DeviceFault, "waiting for the device")?;
    setup.device.synchronize()?;
    setup.is_usable()
}

/// A gate that was opened before a stream waits for it holds nothing up.
pub fn an_open_gate_holds_nothing_up(fixture: &Fixture) -> Outcome {
    let setup = setup(fixture)?;
    let mut memory = setup.upload(&[0_u32; 300])?;
    best_of_three(|| {
        let (gate, opener) = setup.device.gate()?;
        opener.open();
        for _ in 0..10 {
            setup.stream.hold_until(&gate)?;
        }
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), 8)?;
        let expected: Vec<u32> = (8..308).collect();
        setup.stream.synchronize_for(SOON)?;
        same(&setup.download(&memory)?, &expected, "the values computed behind an open gate")
    })
}
