//! Events: order between streams, waits by the host, and time.

use std::time::{Duration, Instant};

use runtime_core::ErrorKind;

use super::streams::until;
use crate::Fixture;
use crate::data::elements;
use crate::outcome::{Outcome, best_of_three, check, check_eq, refused, same};

/// Long enough that the other stream would finish first if it did not wait.
const HEAD_START: Duration = Duration::from_millis(40);

/// A consumer that waits for the producer's event reads the produced values.
pub fn an_event_holds_the_consumer_back(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let consumer = setup.new_stream()?;
    for start in [1_u32, 1000, 2000] {
        let mut produced = setup.upload(&[0_u32; 500])?;
        let mut consumed = setup.upload(&[0_u32; 500])?;
        let _busy = setup.spin(&setup.stream, HEAD_START)?;
        setup.kernels.fill_index(&setup.stream, produced.view_mut(), start)?;
        consumer.wait(&setup.stream.record_event()?)?;
        consumed.view_mut().copy_from(&consumer, &produced.view())?;
        setup.kernels.add_one(&consumer, consumed.view_mut())?;
        let expected: Vec<u32> = (start + 1..start + 501).collect();
        let found = consumed.view().to_vec(&consumer)?;
        same(&found, &expected, "the values the consumer read after the event")?;
        setup.stream.synchronize()?;
    }
    Ok(())
}

/// A producer that waits for the consumer's event does not overwrite values that are still to be read.
pub fn an_event_holds_the_next_producer_back(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let consumer = setup.new_stream()?;
    let old = elements::<u32>(1, 500);
    let mut memory = setup.upload(&old)?;
    let mut consumed = setup.upload(&[0_u32; 500])?;
    let _busy = setup.spin(&consumer, HEAD_START)?;
    consumed.view_mut().copy_from(&consumer, &memory.view())?;
    setup.stream.wait(&consumer.record_event()?)?;
    setup.kernels.fill_index(&setup.stream, memory.view_mut(), 3)?;
    let expected: Vec<u32> = (3..503).collect();
    same(&setup.download(&memory)?, &expected, "the values produced next")?;
    same(&consumed.view().to_vec(&consumer)?, &old, "the values read before")
}

/// Two streams that alternate on the same data, ordered by events, never lose a step, over many repetitions.
pub fn events_order_two_streams_under_repetition(fixture: &Fixture) -> Outcome {
    const STEPS: u32 = 150;
    let setup = fixture.setup()?;
    let (ping, pong) = (&setup.stream, setup.new_stream()?);
    let (there, back) = (setup.device.event_create(false)?, setup.device.event_create(false)?);
    let mut x = setup.upload(&[0_u32; 300])?;
    let mut y = setup.upload(&[0_u32; 300])?;
    for step in 0..STEPS {
        setup.kernels.add_one(ping, x.view_mut())?;
        // Events that are recorded again and events that are used once must behave in the same way.
        let reached =
            if step % 2 == 0 { there.clone() } else { setup.device.event_create(false)? };
        ping.record(&reached)?;
        pong.wait(&reached)?;
        y.view_mut().copy_from(&pong, &x.view())?;
        setup.kernels.add_one(&pong, y.view_mut())?;
        pong.record(&back)?;
        ping.wait(&back)?;
        x.view_mut().copy_from(ping, &y.view())?;
    }
    same(&setup.download(&x)?, &[2 * STEPS; 300], "steps taken to and fro")
}

/// A wait refers to the point that was recorded last at the time of the call. Recording the event again elsewhere does
/// not release the wait.
pub fn a_wait_is_for_the_mark_at_the_time_of_the_call(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (consumer, idle) = (setup.new_stream()?, setup.new_stream()?);
    let event = setup.device.event_create(false)?;
    let mut produced = setup.upload(&[0_u32; 100])?;
    let mut consumed = setup.upload(&[0_u32; 100])?;
    let _busy = setup.spin(&setup.stream, HEAD_START)?;
    setup.kernels.fill_index(&setup.stream, produced.view_mut(), 1)?;
    setup.stream.record(&event)?;
    consumer.wait(&event)?;
    idle.record(&event)?;
    consumed.view_mut().copy_from(&consumer, &produced.view())?;
    let expected: Vec<u32> = (1..101).collect();
    let found = consumed.view().to_vec(&consumer)?;
    same(&found, &expected, "the values the consumer read after the event was recorded elsewhere")
}

/// An event that is recorded again stands only for its new point.
pub fn a_recorded_again_event_stands_for_its_new_mark(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let event = setup.stream.record_event()?;
    event.wait()?;
    check!(event.is_done()?, "an event is not done after waiting for it");
    let mut memory = setup.upload(&[0_u32; 100])?;
    let reader = setup.new_stream()?;
    let busy = setup.spin(&setup.stream, HEAD_START)?;
    setup.kernels.fill_index(&setup.stream, memory.view_mut(), 4)?;
    setup.stream.record(&event)?;
    event.wait()?;
    busy.must_be_over("an event recorded again was waited for")?;
    let expected: Vec<u32> = (4..104).collect();
    same(&memory.view().to_vec(&reader)?, &expected, "the values from before the new record")
}

/// An event that was never recorded is complete, and waiting for it does not block.
pub fn a_fresh_event_holds_nothing_up(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for timing in [false, true] {
        let event = setup.device.event_create(timing)?;
        check!(event.is_done()?, "an event that was never recorded is not done");
        event.wait()?;
        event.wait_for(Duration::ZERO)?;
        setup.stream.wait(&event)?;
        setup.stream.synchronize_for(Duration::from_secs(20))?;
    }
    setup.is_usable()
}

/// Waiting for an event on the host returns when the work before it has finished; its results are then visible.
pub fn waiting_for_an_event_waits_for_the_work_before_it(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let reader = setup.new_stream()?;
    for timing in [false, true] {
        let event = setup.device.event_create(timing)?;
        let mut memory = setup.upload(&[0_u32; 100])?;
        let busy = setup.spin(&setup.stream, HEAD_START)?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), 5)?;
        setup.stream.record(&event)?;
        event.wait()?;
        busy.must_be_over("an event was waited for")?;
        check!(event.is_done()?, "an event is not done after waiting for it");
        let expected: Vec<u32> = (5..105).collect();
        same(&memory.view().to_vec(&reader)?, &expected, "the values from before the event")?;
        busy.was_done(&reader)?;
    }
    Ok(())
}

/// An event reports completion once the work before it has finished, never earlier. The query does not block.
pub fn an_event_knows_whether_it_is_done(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let reader = setup.new_stream()?;
    best_of_three(|| {
        let _busy = setup.spin(&setup.stream, Duration::from_millis(200))?;
        let event = setup.stream.record_event()?;
        check!(
            !event.is_done()?,
            "an event is done while the kernel before it runs, or asking blocked"
        );
        setup.stream.synchronize()?;
        check!(event.is_done()?, "an event is not done after its stream's synchronisation");
        Ok(())
    })?;
    let mut memory = setup.upload(&[0_u32; 100])?;
    let busy = setup.spin(&setup.stream, HEAD_START)?;
    setup.kernels.fill_index(&setup.stream, memory.view_mut(), 6)?;
    let event = setup.stream.record_event()?;
    until("an event is done", || event.is_done())?;
    busy.must_be_over("an event said that it was done")?;
    let expected: Vec<u32> = (6..106).collect();
    same(&memory.view().to_vec(&reader)?, &expected, "the values from before the event")
}

/// A wait with a timeout returns `Timeout` when the time is up, and the work continues.
pub fn a_timed_wait_times_out_and_the_work_continues(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    best_of_three(|| {
        let busy = setup.spin(&setup.stream, Duration::from_millis(300))?;
        let event = setup.stream.record_event()?;
        let kind = ErrorKind::Timeout;
        refused(event.wait_for(Duration::from_millis(10)), kind, "10 ms for 300 ms")?;
        refused(event.wait_for(Duration::ZERO), kind, "no time at all")?;
        check!(!event.is_done()?, "the work was over before the time limit was noticed");
        event.wait_for(Duration::from_secs(20))?;
        busy.must_be_over("a timed wait succeeded")?;
        busy.was_done(&setup.stream)
    })
}

/// The elapsed time between two events covers the work between them, and is not longer than the time measured by the
/// host.
pub fn elapsed_time_covers_the_work_between(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (start, end) = (setup.device.event_create(true)?, setup.device.event_create(true)?);
    let clock = Instant::now();
    setup.stream.record(&start)?;
    let busy = setup.spin(&setup.stream, HEAD_START)?;
    setup.stream.record(&end)?;
    let elapsed = end.elapsed_since(&start)?;
    let passed = clock.elapsed();
    let least = busy.at_least();
    check!(elapsed >= least, "{elapsed:?} for work that takes {least:?} or more");
    // The clocks of device and host may differ slightly in rate.
    check!(elapsed <= passed + passed / 20, "{elapsed:?}, while the host saw {passed:?} pass");
    let nothing = start.elapsed_since(&start)?;
    check!(nothing < least, "{nothing:?} from an event to itself");
    Ok(())
}

/// Elapsed time is refused for events without timing, events that were never recorded, and events of two devices.
pub fn elapsed_time_that_has_no_meaning_is_refused(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let (marked, fresh) = (setup.device.event_create(true)?, setup.device.event_create(true)?);
    setup.stream.record(&marked)?;
    let plain = setup.stream.record_event()?;
    let foreign = other.device.event_create(true)?;
    other.stream.record(&foreign)?;
    let kind = ErrorKind::InvalidArgument;
    refused(marked.elapsed_since(&fresh), kind, "since an event that was never recorded")?;
    refused(fresh.elapsed_since(&marked), kind, "to an event that was never recorded")?;
    refused(marked.elapsed_since(&plain), kind, "since an event without timing")?;
    refused(plain.elapsed_since(&marked), kind, "to an event without timing")?;
    refused(marked.elapsed_since(&foreign), ErrorKind::WrongDevice, "since a foreign event")?;
    refused(setup.stream.record(&foreign), ErrorKind::WrongDevice, "recording a foreign event")?;
    marked.elapsed_since(&marked)?;
    Ok(())
}

/// Hundreds of events exist at once, and all are complete when their stream is.
pub fn many_events_live_together(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&[0_u32; 16])?;
    let mut events = Vec::new();
    for _ in 0..300 {
        setup.kernels.add_one(&setup.stream, memory.view_mut())?;
        events.push(setup.stream.record_event()?);
    }
    events[299].wait()?;
    let open = events.iter().filter(|event| !matches!(event.is_done(), Ok(true))).count();
    check_eq!(open, 0, "events before the last one that are not done");
    same(&setup.download(&memory)?, &[300; 16], "the computed values")
}

/// A clone of an event is the same event, in any thread.
pub fn events_are_shared_by_threads(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let event = setup.device.event_create(false)?;
    let mut memory = setup.upload(&[0_u32; 100])?;
    let busy = setup.spin(&setup.stream, HEAD_START)?;
    setup.kernels.fill_index(&setup.stream, memory.view_mut(), 2)?;
    setup.stream.record(&event)?;
    let waits: Vec<_> = std::thread::scope(|scope| {
        let wait = || scope.spawn(|| event.clone().wait());
        [wait(), wait(), wait()].into_iter().map(|thread| thread.join()).collect()
    });
    for wait in waits {
        wait.map_err(|_| crate::Stop::failed("a thread panicked"))??;
    }
    busy.must_be_over("three threads had waited for an event")?;
    let expected: Vec<u32> = (2..102).collect();
    same(&memory.view().to_vec(&setup.new_stream()?)?, &expected, "the values from before it")
}
