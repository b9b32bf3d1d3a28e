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
    let rig = fixture.rig()?;
    let stream = &rig.stream;
    let mut memory = rig.device.memory_allocate::<u32>(777)?;
    let mut copy = rig.device.memory_allocate::<u32>(777)?;
    for round in 0..20 {
        rig.kernels.fill_index(stream, memory.view_mut(), round)?;
        for _ in 0..5 {
            rig.kernels.add_one(stream, memory.view_mut())?;
            copy.view_mut().copy_from(stream, &memory.view())?;
            memory.view_mut().fill_zero(stream)?;
            memory.view_mut().copy_from(stream, &copy.view())?;
        }
        let expected: Vec<u32> = (round + 5..round + 5 + 777).collect();
        same(&rig.download(&memory)?, &expected, format_args!("after chain {round}"))?;
    }
    Ok(())
}

/// Enqueuing does not wait for earlier work: kernels, copies, fills, pinned copies, events, waits and region copies.
pub fn enqueueing_does_not_block(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    let mut memory = rig.upload(&[0_u32; 4096])?;
    let mut copy = rig.upload(&[0_u32; 4096])?;
    let source = rig.device.pinned_allocate::<u32>(4096)?;
    let mut target = rig.device.pinned_allocate::<u32>(4096)?;
    let plan = rig.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 4096)])?;
    best_of_three(|| {
        let stream = rig.new_stream()?;
        let busy = rig.spin(&stream, Duration::from_millis(300))?;
        macro_rules! quickly {
            ($($what:literal: $work:expr,)*) => {$(
                $work?;
                check!(!stream.is_done()?, "enqueueing {} waited for work in flight", $what);
            )*};
        }
        quickly! {
            "a kernel": Ok::<(), Stop>(()),
            "a copy from pinned memory": memory.view_mut().copy_from_pinned(&stream, &source),
            "a second kernel": rig.kernels.fill_index(&stream, memory.view_mut(), 1),
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
        let allocated = rig.device.memory_allocate::<u32>(4096)?;
        drop((allocated, rig.device.pinned_allocate::<u32>(64)?));
        check!(!stream.is_done()?, "allocating waited for work in flight");
        busy.was_done(&stream)?;
        let expected: Vec<u32> = (1..4097).collect();
        same(target.as_slice()?, &expected, "what the enqueued work computed")
    })
}

/// A stream reports completion once its work has finished, never earlier. The query does not block.
pub fn is_done_tells_the_truth(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    let reader = rig.new_stream()?;
    let mut memory = rig.upload(&[0_u32; 64])?;
    best_of_three(|| {
        let stream = rig.new_stream()?;
        check!(stream.is_done()?, "a new stream is not done");
        let busy = rig.spin(&stream, Duration::from_millis(200))?;
        check!(!stream.is_done()?, "a stream is done while its kernel runs, or asking blocked");
        busy.was_done(&stream)
    })?;
    let busy = rig.spin(&rig.stream, WHILE)?;
    rig.kernels.fill_index(&rig.stream, memory.view_mut(), 2)?;
    until("a stream is done", || rig.stream.is_done())?;
    busy.must_be_over("a stream said that it was done")?;
    let expected: Vec<u32> = (2..66).collect();
    let found = memory.view().to_vec(&reader)?;
    same(&found, &expected, "what another stream reads when the first is done")?;
    rig.stream.synchronize()?;
    check!(rig.stream.is_done()?, "a stream is not done after its synchronisation");
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
    let rig = fixture.rig()?;
    let reader = rig.new_stream()?;
    for start in 1..3 {
        let mut memory = rig.upload(&[0_u32; 64])?;
        let busy = rig.spin(&rig.stream, WHILE)?;
        rig.kernels.fill_index(&rig.stream, memory.view_mut(), start)?;
        rig.stream.synchronize()?;
        busy.must_be_over("a stream was synchronised")?;
        let expected: Vec<u32> = (start..start + 64).collect();
        same(&memory.view().to_vec(&reader)?, &expected, "what another stream reads")?;
        busy.was_done(&reader)?;
    }
    Ok(())
}

/// Synchronizing a device waits for all its streams; every stream then reads their results.
pub fn synchronizing_the_device_waits_for_every_stream(fixture: &Fixture) -> Outcome {
    // A separate instance: the shared one would also wait for the work of rules that run at the same time.
    let rig = fixture.fresh()?;
    let reader = rig.new_stream()?;
    let streams = [rig.new_stream()?, rig.device.default_stream(), rig.new_stream()?];
    let mut memories = Vec::new();
    let mut busy = Vec::new();
    for (start, stream) in (1..).zip(&streams) {
        let mut memory = rig.upload(&[0_u32; 64])?;
        busy.push(rig.spin(stream, WHILE)?);
        rig.kernels.fill_index(stream, memory.view_mut(), start)?;
        memories.push((memory, start));
    }
    rig.device.synchronize()?;
    for busy in &busy {
        busy.must_be_over("the device was synchronised")?;
        busy.was_done(&reader)?;
    }
    for stream in &streams {
        check!(stream.is_done()?, "a stream is not done after the device's synchronisation");
    }
    for (memory, start) in &memories {
        let expected: Vec<u32> = (*start..*start + 64).collect();
        same(&memory.view().to_vec(&reader)?, &expected, "what another stream reads")?;
    }
    Ok(())
}

/// A synchronization with a timeout returns `Timeout` when the time is up, and the work continues.
pub fn a_timed_synchronisation_gives_up_and_the_work_goes_on(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    let mut memory = rig.upload(&[0_u32; 64])?;
    best_of_three(|| {
        let busy = rig.spin(&rig.stream, Duration::from_millis(300))?;
        rig.kernels.fill_index(&rig.stream, memory.view_mut(), 6)?;
        let start = Instant::now();
        let kind = ErrorKind::Timeout;
        refused(rig.stream.synchronize_for(Duration::from_millis(10)), kind, "10 ms for 300 ms")?;
        let took = start.elapsed();
        refused(rig.stream.synchronize_for(Duration::ZERO), kind, "no time at all")?;
        check!(!rig.stream.is_done()?, "a wait of 10 ms was over after {took:?}, with the work");
        rig.stream.synchronize_for(Duration::from_secs(20))?;
        busy.must_be_over("a timed synchronisation succeeded")?;
        busy.was_done(&rig.stream)
    })?;
    let expected: Vec<u32> = (6..70).collect();
    same(&rig.download(&memory)?, &expected, "what was computed after the timeout")?;
    rig.stream.synchronize_for(Duration::ZERO)?;
    Ok(())
}

/// Copies from or to a host slice have finished on return, whatever work comes before them in the stream.
pub fn host_copies_are_done_on_return(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    for len in [3, 4000, 300_000] {
        let expected = elements::<u32>(7, len);
        let mut memory = rig.device.memory_allocate::<u32>(len)?;
        let mut source = expected.clone();
        let _busy = rig.spin(&rig.stream, Duration::from_millis(20))?;
        memory.view_mut().copy_from_slice(&rig.stream, &source)?;
        source.fill(0);
        same(&rig.download(&memory)?, &expected, "a copy whose source was changed on return")?;

        let busy = rig.spin(&rig.stream, Duration::from_millis(20))?;
        rig.kernels.fill_index(&rig.stream, memory.view_mut(), 1)?;
        let mut out = vec![0; len];
        memory.view().copy_to_slice(&rig.stream, &mut out)?;
        busy.must_be_over("a copy to the host returned")?;
        let index: Vec<u32> = (1_u32..).take(len).collect();
        same(&out, &index, "what a copy to the host found on return")?;
    }
    Ok(())
}

/// The default stream is an ordinary stream: always the same one, in order, and ordered with other streams only by
/// events.
pub fn the_default_stream_is_an_ordinary_stream(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    let default = rig.device.default_stream();
    check!(default == rig.device.default_stream(), "two calls give two default streams");
    check!(default != rig.stream, "a created stream is the default stream");
    check!(default.device().is_same(&rig.device), "the default stream is of another device");
    let mut memory = rig.upload(&[0_u32; 100])?;
    let mut copy = rig.upload(&[0_u32; 100])?;
    let _busy = rig.spin(&default, WHILE)?;
    rig.kernels.fill_index(&default, memory.view_mut(), 8)?;
    rig.stream.wait(&default.record_event()?)?;
    copy.view_mut().copy_from(&rig.stream, &memory.view())?;
    let expected: Vec<u32> = (8..108).collect();
    same(&rig.download(&copy)?, &expected, "what waited for the default stream")
}

/// Streams have unique numbers; clones are the same stream.
pub fn streams_are_told_apart(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    let (one, two) = (rig.new_stream()?, rig.new_stream()?);
    check!(one != two && one.id() != two.id(), "two streams count as one");
    check!(one == one.clone(), "a stream is not the same as its clone");
    check_eq!(one.clone().id(), one.id(), "a clone's number");
    let id = two.id();
    drop(two);
    check!(rig.new_stream()?.id() != id, "a stream's number was used again");
    Ok(())
}

/// Dozens of streams can work on one memory, which is then freed.
pub fn many_streams_share_one_memory(fixture: &Fixture) -> Outcome {
    const STREAMS: usize = 48;
    const PART: usize = 50;
    let rig = fixture.rig()?;
    let mut memory = rig.upload(&[0_u32; STREAMS * PART])?;
    let mut expected = Vec::new();
    let mut streams = Vec::new();
    for (index, start) in (0..STREAMS).zip((0_u32..).step_by(1000)) {
        let stream = rig.new_stream()?;
        let part = memory.view_mut().slice(index * PART..(index + 1) * PART)?;
        rig.kernels.fill_index(&stream, part, start)?;
        expected.extend((start..).take(PART));
        // Half of the streams are dropped before the memory is freed.
        if index % 2 == 0 {
            streams.push(stream);
        } else {
            stream.synchronize()?;
        }
    }
    for stream in &streams {
        rig.stream.wait(&stream.record_event()?)?;
    }
    same(&rig.download(&memory)?, &expected, "what the streams wrote")?;
    let busy = rig.spin(&streams[0], Duration::from_millis(20))?;
    memory.view_mut().fill(&streams[0], 1_u32)?;
    rig.stream.wait(&streams[0].record_event()?)?;
    drop(memory);
    drop(streams);
    busy.was_done(&rig.stream)?;
    rig.is_usable()
}

/// Streams that write one memory without order do no harm: nothing fails, and the device still works. The values are
/// not checked.
pub fn unordered_writers_do_no_harm(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    let streams = [rig.new_stream()?, rig.new_stream()?, rig.new_stream()?];
    let mut memory = rig.upload(&[0_u32; 2000])?;
    let source = rig.upload(&[3_u32; 2000])?;
    for _ in 0..30 {
        memory.view_mut().fill(&streams[0], 1_u32)?;
        rig.kernels.fill_index(&streams[1], memory.view_mut(), 5)?;
        memory.view_mut().copy_from(&streams[2], &source.view())?;
        rig.kernels.add_one(&streams[2], memory.view_mut())?;
        memory.view().to_vec(&streams[0])?;
    }
    for stream in &streams {
        stream.synchronize()?;
    }
    rig.is_usable()
}

/// Priorities within the limits are accepted, and others are refused.
pub fn priorities_are_checked(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    let (least, greatest) = rig.device.info().limits.priorities;
    for priority in [least, 0, greatest] {
        let stream = rig.device.stream_create(&StreamOptions::default().with_priority(priority))?;
        let mut memory = rig.device.memory_allocate::<u8>(10)?;
        memory.view_mut().fill(&stream, 3_u8)?;
        let found = memory.view().to_vec(&stream)?;
        same(&found, &[3; 10], format_args!("work with priority {priority}"))?;
    }
    let outside = [least.checked_sub(1), greatest.checked_add(1), Some(i32::MIN), Some(i32::MAX)];
    for priority in outside.into_iter().flatten() {
        if (least..=greatest).contains(&priority) {
            continue;
        }
        let created = rig.device.stream_create(&StreamOptions::default().with_priority(priority));
        let what = format_args!("priority {priority} outside {least} to {greatest}");
        refused(created, ErrorKind::InvalidArgument, what)?;
    }
    Ok(())
}

/// Several threads can enqueue on one stream at once, and no work is lost.
pub fn threads_enqueue_on_one_stream(fixture: &Fixture) -> Outcome {
    const THREADS: usize = 4;
    const LAUNCHES: usize = 50;
    let rig = fixture.rig()?;
    let mut memory = rig.upload(&[0_u32; THREADS * 32])?;
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
            rig.kernels.add_one(&rig.stream, part.reborrow())?;
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
    same(&rig.download(&memory)?, &expected, "launches that took effect")
}

/// A stream that waits for its own event, and two streams that wait for each other in turn, do not deadlock.
pub fn waiting_in_circles_does_not_lock_up(fixture: &Fixture) -> Outcome {
    let rig = fixture.rig()?;
    let (one, two) = (&rig.stream, rig.new_stream()?);
    let event = rig.device.event_create(false)?;
    let mut memory = rig.upload(&[0_u32; 16])?;
    for _ in 0..50 {
        rig.kernels.add_one(one, memory.view_mut())?;
        one.record(&event)?;
        one.wait(&event)?;
        two.wait(&event)?;
        two.record(&event)?;
        one.wait(&event)?;
    }
    one.synchronize_for(Duration::from_secs(20))?;
    two.synchronize_for(Duration::from_secs(20))?;
    same(&rig.download(&memory)?, &[50; 16], "what the first stream computed")
}
