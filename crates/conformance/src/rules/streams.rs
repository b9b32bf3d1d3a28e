//! Order within a stream and between streams, and calls that block the host.

use std::thread;
use std::time::{Duration, Instant};

use runtime_core::{ErrorKind, Slot, StreamOptions};

use crate::data::elements;
use crate::outcome::{Outcome, best_of_three, check, check_eq, refused, same};
use crate::{Fixture, Stop};

/// Long enough to distinguish operations that wait for the work from those that do not.
const WHILE: Duration = Duration::from_millis(60);

/// Work that is enqueued on one stream runs in that order.
pub fn streams_run_in_order(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let mut memory = setup.device.memory_allocate::<u32>(777)?;
    let mut copy = setup.device.memory_allocate::<u32>(777)?;
    for round in 0..20 {
        setup.kernels.fill_index(stream, memory.view_mut(), round)?;
        for _ in 0..5 {
            setup.kernels.add_one(stream, memory.view_mut())?;
            copy.view_mut().copy_from(stream, &memory.view())?;
            memory.view_mut().fill_zero(stream)?;
            memory.view_mut().copy_from(stream, &copy.view())?;
        }
        let expected: Vec<u32> = (round + 5..round + 5 + 777).collect();
        same(&setup.download(&memory)?, &expected, format_args!("after chain {round}"))?;
    }
    Ok(())
}

/// Enqueuing does not wait for earlier work: kernels, copies, fills, pinned copies, events, waits and region copies.
pub fn enqueueing_does_not_block(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&[0_u32; 4096])?;
    let mut copy = setup.upload(&[0_u32; 4096])?;
    let source = setup.device.pinned_allocate::<u32>(4096)?;
    let mut target = setup.device.pinned_allocate::<u32>(4096)?;
    let plan = setup.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 4096)])?;
    best_of_three(|| {
        let stream = setup.new_stream()?;
        let busy = setup.spin(&stream, Duration::from_millis(300))?;
        macro_rules! quickly {
            ($($what:literal: $work:expr,)*) => {$(
                $work?;
                check!(!stream.is_done()?, "enqueueing {} waited for work in flight", $what);
            )*};
        }
        quickly! {
            "a kernel": Ok::<(), Stop>(()),
            "a copy from pinned memory": memory.view_mut().copy_from_pinned(&stream, &source),
            "a second kernel": setup.kernels.fill_index(&stream, memory.view_mut(), 1),
            "a copy": copy.view_mut().copy_from(&stream, &memory.view()),
            "a fill": memory.view_mut().fill(&stream, 9_u32),
            "a copy to pinned memory": copy.view().copy_to_pinned(&stream, &mut target),
            "an event": stream.record_event(),
            "a wait": stream.wait(&stream.record_event()?),
        }
        if plan.launches() > 0 {
            let bind = &mut [Slot::from(copy.view()), Slot::from(memory.view_mut())];
            plan.execute(&stream, bind)?;
            check!(!stream.is_done()?, "enqueueing region copies waited for work in flight");
        }
        let allocated = setup.device.memory_allocate::<u32>(4096)?;
        drop((allocated, setup.device.pinned_allocate::<u32>(64)?));
        check!(!stream.is_done()?, "allocating waited for work in flight");
        busy.was_done(&stream)?;
        let expected: Vec<u32> = (1..4097).collect();
        same(target.as_slice()?, &expected, "the values that the enqueued work computed")
    })
}

/// A stream reports completion once its work has finished, never earlier. The query does not block.
pub fn is_done_is_reported_correctly(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let reader = setup.new_stream()?;
    let mut memory = setup.upload(&[0_u32; 64])?;
    best_of_three(|| {
        let stream = setup.new_stream()?;
        check!(stream.is_done()?, "a new stream is not done");
        let busy = setup.spin(&stream, Duration::from_millis(200))?;
        check!(!stream.is_done()?, "a stream is done while its kernel runs, or asking blocked");
        busy.was_done(&stream)
    })?;
    let busy = setup.spin(&setup.stream, WHILE)?;
    setup.kernels.fill_index(&setup.stream, memory.view_mut(), 2)?;
    until("a stream is done", || setup.stream.is_done())?;
    busy.must_be_over("a stream said that it was done")?;
    let expected: Vec<u32> = (2..66).collect();
    let found = memory.view().to_vec(&reader)?;
    same(&found, &expected, "the values another stream reads after the first is done")?;
    setup.stream.synchronize()?;
    check!(setup.stream.is_done()?, "a stream is not done after its synchronisation");
    Ok(())
}

/// Repeats the query until it returns true; fails after a few seconds.
pub(super) fn until(what: &str, mut ask: impl FnMut() -> runtime_core::Result<bool>) -> Outcome {
    const PATIENCE: Duration = Duration::from_secs(5);
    let start = Instant::now();
    while !ask()? {
        check!(start.elapsed() < PATIENCE, "{what}: still not after {PATIENCE:?}");
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Synchronizing a stream waits for its work; every stream then reads the results.
pub fn synchronizing_a_stream_waits_for_its_work(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let reader = setup.new_stream()?;
    for start in 1..3 {
        let mut memory = setup.upload(&[0_u32; 64])?;
        let busy = setup.spin(&setup.stream, WHILE)?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), start)?;
        setup.stream.synchronize()?;
        busy.must_be_over("a stream was synchronised")?;
        let expected: Vec<u32> = (start..start + 64).collect();
        same(&memory.view().to_vec(&reader)?, &expected, "the values another stream reads")?;
        busy.was_done(&reader)?;
    }
    Ok(())
}

/// Synchronizing a device waits for all its streams; every stream then reads their results.
pub fn synchronizing_the_device_waits_for_every_stream(fixture: &Fixture) -> Outcome {
    // A separate instance: the shared one would also wait for the work of rules that run at the same time.
    let setup = fixture.fresh()?;
    let reader = setup.new_stream()?;
    let streams = [setup.new_stream()?, setup.device.default_stream(), setup.new_stream()?];
    let mut memories = Vec::new();
    let mut busy = Vec::new();
    for (start, stream) in (1..).zip(&streams) {
        let mut memory = setup.upload(&[0_u32; 64])?;
        busy.push(setup.spin(stream, WHILE)?);
        setup.kernels.fill_index(stream, memory.view_mut(), start)?;
        memories.push((memory, start));
    }
    setup.device.synchronize()?;
    for busy in &busy {
        busy.must_be_over("the device was synchronised")?;
        busy.was_done(&reader)?;
    }
    for stream in &streams {
        check!(stream.is_done()?, "a stream is not done after the device's synchronisation");
    }
    for (memory, start) in &memories {
        let expected: Vec<u32> = (*start..*start + 64).collect();
        same(&memory.view().to_vec(&reader)?, &expected, "the values another stream reads")?;
    }
    Ok(())
}

/// A synchronization with a timeout returns `Timeout` when the time is up, and the work continues.
pub fn a_timed_synchronize_times_out_and_the_work_continues(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&[0_u32; 64])?;
    best_of_three(|| {
        let busy = setup.spin(&setup.stream, Duration::from_millis(300))?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), 6)?;
        let start = Instant::now();
        let kind = ErrorKind::Timeout;
        refused(setup.stream.synchronize_for(Duration::from_millis(10)), kind, "10 ms for 300 ms")?;
        let took = start.elapsed();
        refused(setup.stream.synchronize_for(Duration::ZERO), kind, "no time at all")?;
        check!(!setup.stream.is_done()?, "a wait of 10 ms was over after {took:?}, with the work");
        setup.stream.synchronize_for(Duration::from_secs(20))?;
        busy.must_be_over("a timed synchronisation succeeded")?;
        busy.was_done(&setup.stream)
    })?;
    let expected: Vec<u32> = (6..70).collect();
    same(&setup.download(&memory)?, &expected, "the values computed after the timeout")?;
    setup.stream.synchronize_for(Duration::ZERO)?;
    Ok(())
}

/// Copies from or to a host slice have finished on return, whatever work comes before them in the stream.
pub fn host_copies_are_done_on_return(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for len in [3, 4000, 300_000] {
        let expected = elements::<u32>(7, len);
        let mut memory = setup.device.memory_allocate::<u32>(len)?;
        let mut source = expected.clone();
        let _busy = setup.spin(&setup.stream, Duration::from_millis(20))?;
        memory.view_mut().copy_from_slice(&setup.stream, &source)?;
        source.fill(0);
        same(&setup.download(&memory)?, &expected, "a copy whose source was changed on return")?;

        let busy = setup.spin(&setup.stream, Duration::from_millis(20))?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), 1)?;
        let mut out = vec![0; len];
        memory.view().copy_to_slice(&setup.stream, &mut out)?;
        busy.must_be_over("a copy to the host returned")?;
        let index: Vec<u32> = (1_u32..).take(len).collect();
        same(&out, &index, "the values of a copy to the host on its return")?;
    }
    Ok(())
}

/// The default stream is an ordinary stream: always the same one, in order, and ordered with other streams only by
/// events.
pub fn the_default_stream_is_an_ordinary_stream(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let default = setup.device.default_stream();
    check!(default == setup.device.default_stream(), "two calls give two default streams");
    check!(default != setup.stream, "a created stream is the default stream");
    check!(default.device().is_same(&setup.device), "the default stream belongs to another device");
    let mut memory = setup.upload(&[0_u32; 100])?;
    let mut copy = setup.upload(&[0_u32; 100])?;
    let _busy = setup.spin(&default, WHILE)?;
    setup.kernels.fill_index(&default, memory.view_mut(), 8)?;
    setup.stream.wait(&default.record_event()?)?;
    copy.view_mut().copy_from(&setup.stream, &memory.view())?;
    let expected: Vec<u32> = (8..108).collect();
    same(&setup.download(&copy)?, &expected, "the work that waited for the default stream")
}

/// Streams have unique numbers; clones are the same stream.
pub fn streams_have_unique_ids(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (one, two) = (setup.new_stream()?, setup.new_stream()?);
    check!(one != two && one.id() != two.id(), "two streams count as one");
    check!(one == one.clone(), "a stream is not the same as its clone");
    check_eq!(one.clone().id(), one.id(), "a clone's number");
    let id = two.id();
    drop(two);
    check!(setup.new_stream()?.id() != id, "a stream's number was used again");
    Ok(())
}

/// Dozens of streams can work on one memory, which is then freed.
pub fn many_streams_share_one_memory(fixture: &Fixture) -> Outcome {
    const STREAMS: usize = 48;
    const PART: usize = 50;
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&[0_u32; STREAMS * PART])?;
    let mut expected = Vec::new();
    let mut streams = Vec::new();
    for (index, start) in (0..STREAMS).zip((0_u32..).step_by(1000)) {
        let stream = setup.new_stream()?;
        let part = memory.view_mut().slice(index * PART..(index + 1) * PART)?;
        setup.kernels.fill_index(&stream, part, start)?;
        expected.extend((start..).take(PART));
        // Half of the streams are dropped before the memory is freed.
        if index % 2 == 0 {
            streams.push(stream);
        } else {
            stream.synchronize()?;
        }
    }
    for stream in &streams {
        setup.stream.wait(&stream.record_event()?)?;
    }
    same(&setup.download(&memory)?, &expected, "the values that the streams wrote")?;
    let busy = setup.spin(&streams[0], Duration::from_millis(20))?;
    memory.view_mut().fill(&streams[0], 1_u32)?;
    setup.stream.wait(&streams[0].record_event()?)?;
    drop(memory);
    drop(streams);
    busy.was_done(&setup.stream)?;
    setup.is_usable()
}

/// Streams that write one memory without order do no harm: nothing fails, and the device still works. The values are
/// not checked.
pub fn unordered_writers_do_no_harm(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let streams = [setup.new_stream()?, setup.new_stream()?, setup.new_stream()?];
    let mut memory = setup.upload(&[0_u32; 2000])?;
    let source = setup.upload(&[3_u32; 2000])?;
    for _ in 0..30 {
        memory.view_mut().fill(&streams[0], 1_u32)?;
        setup.kernels.fill_index(&streams[1], memory.view_mut(), 5)?;
        memory.view_mut().copy_from(&streams[2], &source.view())?;
        setup.kernels.add_one(&streams[2], memory.view_mut())?;
        memory.view().to_vec(&streams[0])?;
    }
    for stream in &streams {
        stream.synchronize()?;
    }
    setup.is_usable()
}

/// Priorities within the limits are accepted, and others are refused.
pub fn priorities_are_checked(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (least, greatest) = setup.device.info().limits.priorities;
    for priority in [least, 0, greatest] {
        let stream =
            setup.device.stream_create(&StreamOptions::default().with_priority(priority))?;
        let mut memory = setup.device.memory_allocate::<u8>(10)?;
        memory.view_mut().fill(&stream, 3_u8)?;
        let found = memory.view().to_vec(&stream)?;
        same(&found, &[3; 10], format_args!("work with priority {priority}"))?;
    }
    let outside = [least.checked_sub(1), greatest.checked_add(1), Some(i32::MIN), Some(i32::MAX)];
    for priority in outside.into_iter().flatten() {
        if (least..=greatest).contains(&priority) {
            continue;
        }
        let created = setup.device.stream_create(&StreamOptions::default().with_priority(priority));
        let what = format_args!("priority {priority} outside {least} to {greatest}");
        refused(created, ErrorKind::InvalidArgument, what)?;
    }
    Ok(())
}

/// Several threads can enqueue on one stream at once, and no work is lost.
pub fn threads_enqueue_on_one_stream(fixture: &Fixture) -> Outcome {
    const THREADS: usize = 4;
    const LAUNCHES: usize = 50;
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&[0_u32; THREADS * 32])?;
    let mut parts = Vec::new();
    let mut rest = memory.view_mut();
    for _ in 1..THREADS {
        let (part, others) = rest.split_at(32)?;
        parts.push(part);
        rest = others;
    }
    parts.push(rest);
    let work = |mut part: runtime_core::MemoryViewMut<'_, u32>| -> Outcome {
        for _ in 0..LAUNCHES {
            setup.kernels.add_one(&setup.stream, part.reborrow())?;
        }
        Ok(())
    };
    thread::scope(|scope| -> Outcome {
        let work = &work;
        let threads: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Stop::failed("a thread panicked"))?)
    })?;
    let expected = [u32::try_from(LAUNCHES).unwrap_or(0); THREADS * 32];
    same(&setup.download(&memory)?, &expected, "launches that took effect")
}

/// A stream that waits for its own event, and two streams that wait for each other in turn, do not deadlock.
pub fn waiting_in_circles_does_not_lock_up(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (one, two) = (&setup.stream, setup.new_stream()?);
    let event = setup.device.event_create(false)?;
    let mut memory = setup.upload(&[0_u32; 16])?;
    for _ in 0..50 {
        setup.kernels.add_one(one, memory.view_mut())?;
        one.record(&event)?;
        one.wait(&event)?;
        two.wait(&event)?;
        two.record(&event)?;
        one.wait(&event)?;
    }
    one.synchronize_for(Duration::from_secs(20))?;
    two.synchronize_for(Duration::from_secs(20))?;
    same(&setup.download(&memory)?, &[50; 16], "the values that the first stream computed")
}
