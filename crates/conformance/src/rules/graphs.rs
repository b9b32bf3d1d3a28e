//! Graphs: work captured once and launched many times.
//!
//! On a device without graphs, which `capabilities_agree_with_the_accessors` checks, these rules pass without a check.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use runtime_core::{DType, Error, ErrorKind, Layout, Result, Slot, Stream};

use crate::data::elements;
use crate::outcome::{Outcome, best_of_three, check, check_eq, needed, refused, same};
use crate::rules::regions::{MANY, bind_numbers, gather};
use crate::setup::{attempt, replay};
use crate::{Ability, Fixture, Stop};

/// Long enough that work enqueued behind it is still in flight when the host continues.
const IN_FLIGHT: Duration = Duration::from_millis(40);

/// A graph does all the captured work, in order, at every launch and not before.
pub fn graphs_do_what_was_captured(fixture: &Fixture) -> Outcome {
    const LEN: usize = 300;
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let mut there = setup.device.pinned_allocate::<u32>(LEN)?;
    let mut back = setup.device.pinned_allocate::<u32>(LEN)?;
    let mut words = setup.upload(&[7_u32; LEN])?;
    let mut sum = setup.upload(&[0_u32; LEN])?;
    let mut total = setup.device.memory_allocate::<u32>(LEN)?;
    there.as_mut_slice()?.fill(10);
    let graph = graphs.capture(|capture| {
        words.view_mut().copy_from_pinned(capture, &there)?;
        setup.kernels.add_one(capture, words.view_mut())?;
        words.view_mut().slice(0..100)?.fill(capture, 5_u32)?;
        let (mut low, high) = words.view_mut().split_at(150)?;
        low.reborrow().slice(100..110)?.copy_from(capture, &high.as_view().slice(0..10)?)?;
        setup.kernels.add_one(capture, low.slice(100..120)?)?;
        setup.kernels.add(capture, total.view_mut(), sum.view(), words.view())?;
        sum.view_mut().copy_from(capture, &total.view())?;
        sum.view().copy_to_pinned(capture, &mut back)
    })?;
    check!(graph.device().is_same(&setup.device), "a graph names another device");
    setup.device.synchronize()?;
    same(&setup.download(&words)?, &[7; LEN], "memory before the first launch")?;
    same(back.as_slice()?, &[0; LEN], "pinned memory before the first launch")?;
    for launch in 1..5_u32 {
        replay(&graph, &setup.stream)?;
        let mut once = vec![11_u32; LEN];
        once[..100].fill(5);
        once[100..120].fill(12);
        same(&setup.download(&words)?, &once, format_args!("launch {launch}"))?;
        let all: Vec<u32> = once.iter().map(|value| value * launch).collect();
        same(back.as_slice()?, &all, format_args!("the sum of {launch} launches"))?;
    }
    Ok(())
}

/// Native region copies can be captured like other work. Emulated region copies, which wait, are refused.
pub fn region_copies_are_captured_where_they_are_native(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let plan = setup.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 500)])?;
    let mut source = setup.upload(&[0_u32; 500])?;
    let mut target = setup.upload(&[9_u32; 500])?;
    let native = plan.launches() > 0;
    let captured = graphs.capture(|capture| {
        setup.kernels.add_one(capture, source.view_mut())?;
        plan.execute(capture, &mut [source.view().into(), target.view_mut().into()])
    });
    drop(plan);
    if !native {
        refused(captured, ErrorKind::InvalidArgument, "an emulated region copy in a capture")?;
        return same(&setup.download(&target)?, &[9; 500], "memory after a refused region copy");
    }
    let graph = captured?;
    for launch in 1..4 {
        replay(&graph, &setup.stream)?;
        same(&setup.download(&target)?, &[launch; 500], format_args!("launch {launch}"))?;
    }
    Ok(())
}

/// A captured plan can be executed with other memory outside the graph. The graph keeps copying the memory of the
/// capture.
pub fn a_graph_keeps_the_memories_of_its_region_copies(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let plan = setup.device.plan_regions(&gather(MANY))?;
    needed((plan.launches() > 0).then_some(()), Ability::RegionCopy)?;
    let data = [23, 24, 25].map(|seed| elements::<u32>(seed, MANY));
    let sources = data.iter().map(|data| setup.upload(data)).collect::<Result<Vec<_>>>()?;
    let mut targets = Vec::new();
    for _ in 0..3 {
        targets.push(setup.upload(&[0_u32; MANY])?);
    }
    let graph = graphs.capture(|capture| {
        plan.execute(capture, &mut bind_numbers(&sources[0], &mut targets[0])?)?;
        plan.execute(capture, &mut bind_numbers(&sources[1], &mut targets[1])?)
    })?;
    for launch in 0..3 {
        targets.iter_mut().try_for_each(|target| target.view_mut().fill(&setup.stream, 0_u32))?;
        replay(&graph, &setup.stream)?;
        plan.execute(&setup.stream, &mut bind_numbers(&sources[2], &mut targets[2])?)?;
        for (data, target) in data.iter().zip(&targets) {
            let expected: Vec<u32> = data.iter().rev().copied().collect();
            same(&setup.download(target)?, &expected, format_args!("launch {launch}"))?;
        }
    }
    Ok(())
}

/// A graph launch runs after earlier work on its stream and before later work.
pub fn launches_of_a_graph_run_in_stream_order(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let mut memory = setup.upload(&[0_u32; 400])?;
    let mut copy = setup.device.memory_allocate::<u32>(400)?;
    let graph = graphs.capture(|capture| {
        setup.kernels.add_one(capture, memory.view_mut())?;
        setup.kernels.add_one(capture, memory.view_mut())
    })?;
    for start in [3, 1000] {
        let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), start)?;
        replay(&graph, &setup.stream)?;
        setup.kernels.add_one(&setup.stream, memory.view_mut())?;
        replay(&graph, &setup.stream)?;
        copy.view_mut().copy_from(&setup.stream, &memory.view())?;
        memory.view_mut().fill(&setup.stream, 0_u32)?;
        replay(&graph, &setup.stream)?;
        let expected: Vec<u32> = (start + 5..start + 405).collect();
        same(&setup.download(&copy)?, &expected, "work around two launches")?;
        same(&setup.download(&memory)?, &[2; 400], "a launch behind a fill")?;
        busy.must_be_over("a graph behind the work")?;
    }
    Ok(())
}

/// Events order graph launches with other streams, and one graph can be launched on many streams.
pub fn events_order_launches_of_a_graph(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let streams = [setup.new_stream()?, setup.new_stream()?, setup.new_stream()?];
    let mut memory = setup.upload(&[0_u32; 2000])?;
    let graph = graphs.capture(|capture| setup.kernels.add_one(capture, memory.view_mut()))?;
    let busy = setup.spin(&streams[0], IN_FLIGHT)?;
    memory.view_mut().fill(&streams[0], 100_u32)?;
    for round in 0..20 {
        let (now, next) = (&streams[round % 3], &streams[(round + 1) % 3]);
        replay(&graph, now)?;
        next.wait(&now.record_event()?)?;
    }
    let last = &streams[20 % 3];
    same(&memory.view().to_vec(last)?, &[120; 2000], "twenty launches on three streams")?;
    busy.must_be_over("launches behind the work")
}

/// Argument values are those at the capture. Pinned memory is read when the graph is launched.
pub fn captured_values_are_frozen(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let mut memory = setup.device.memory_allocate::<u32>(200)?;
    let mut pinned = setup.device.pinned_allocate::<u32>(100)?;
    let mut start = 5_u32;
    let graph = {
        let kernel = setup.kernels.kernel("fill_index")?;
        let launch = setup.kernels.cover(200);
        graphs.capture(|capture| {
            let arguments = runtime_core::args![&mut memory, start, 200_u32];
            attempt(&kernel, capture, &launch, arguments)?;
            memory.view_mut().slice(100..200)?.copy_from_pinned(capture, &pinned)
        })?
    };
    for round in 0..3_u64 {
        let data = elements::<u32>(round, 100);
        pinned.as_mut_slice()?.copy_from_slice(&data);
        replay(&graph, &setup.stream)?;
        let expected: Vec<u32> = (5..105).chain(data).collect();
        same(&setup.download(&memory)?, &expected, format_args!("launch {round}"))?;
        start += 1;
    }
    check_eq!(start, 8, "the value that was captured as 5");
    Ok(())
}

/// Operations that wait for, query or order streams are refused on a capture's stream. They end the capture with an
/// error, even if the work ignores their error. They do not count as failures of work.
pub fn blocking_calls_cannot_be_captured(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let mut memory = setup.upload(&[4_u32; 50])?;
    let mut target = setup.upload(&[4_u32; 50])?;
    let mut gaps = setup.upload(&[4_u32; 50])?;
    let source = setup.upload(&[6_u32; 50])?;
    let (event, marked) = (setup.device.event_create(false)?, setup.stream.record_event()?);
    let empty = graphs.capture(|_| Ok(()))?;
    type Attempt<'a> = &'a mut dyn FnMut(&Stream) -> Result<()>;
    let unused = setup.device.memory_allocate::<u32>(50)?;
    let every_other = Layout::new(DType::U32, &[25], &[2])?;
    let attempts: [(&str, Attempt<'_>); 12] = [
        ("synchronising", &mut |stream| stream.synchronize()),
        ("waiting for a time", &mut |stream| stream.synchronize_for(IN_FLIGHT)),
        ("asking whether it is done", &mut |stream| stream.is_done().map(drop)),
        ("asking for failures", &mut |stream| stream.check()),
        ("recording an event", &mut |stream| stream.record(&event)),
        ("waiting for an event", &mut |stream| stream.wait(&marked)),
        ("a copy to a slice", &mut |stream| source.view().to_vec(stream).map(drop)),
        ("a copy from a slice", &mut |stream| memory.copy_from_slice(stream, &[1; 50])),
        ("a copy from a slice to a view with gaps", &mut |stream| {
            gaps.view_mut().with_layout(0, &every_other)?.copy_from_slice(stream, &[1; 25])
        }),
        ("a copy ordered with another stream", &mut |stream| {
            target.view_mut().copy_from_device(stream, &source.view(), &setup.stream)
        }),
        ("launching a graph", &mut |stream| replay(&empty, stream)),
        ("ordering after unused memory", &mut |stream| unused.order_before(stream)),
    ];
    for (what, attempt) in attempts {
        let mut seen = None;
        let captured = graphs.capture(|capture| {
            // The error is ignored.
            seen = Some((attempt(capture), capture.failures()));
            Ok(())
        });
        let (outcome, failures) =
            seen.ok_or_else(|| Stop::failed("a capture did not call its work"))?;
        refused(outcome, ErrorKind::InvalidArgument, format_args!("{what} in a capture"))?;
        refused(captured, ErrorKind::InvalidArgument, format_args!("a capture after {what}"))?;
        check_eq!(failures, 0, "failures of work after {what} was refused");
    }
    check!(event.is_done()?, "an event that a capture was refused is marked");
    for memory in [&memory, &target, &gaps] {
        same(&setup.download(memory)?, &[4; 50], "memory after refused operations")?;
    }
    replay(&empty, &setup.stream)?;
    setup.stream.synchronize()?;
    setup.is_usable()
}

/// A capture whose work fails or panics has no effect, and its stream refuses work afterwards.
pub fn an_abandoned_capture_leaves_nothing_behind(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let mut memory = setup.upload(&[1_u32; 100])?;
    let mut kept = Vec::new();
    let failed = graphs.capture(|capture| {
        kept.push(capture.clone());
        memory.view_mut().fill(capture, 2_u32)?;
        Err(Error::new(ErrorKind::Conflict, "test", "on purpose"))
    });
    match failed {
        Err(error) => check_eq!(error.kind(), ErrorKind::Conflict, "{error}; its kind"),
        Ok(_) => return Err(Stop::failed("a capture whose work failed made a graph")),
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        graphs.capture(|capture| {
            kept.push(capture.clone());
            memory.view_mut().fill(capture, 3_u32)?;
            // Does not print a panic message.
            resume_unwind(Box::new("on purpose"))
        })
    }));
    check!(panicked.is_err(), "a panic in a capture was swallowed");
    let graph = graphs.capture(|capture| {
        kept.push(capture.clone());
        setup.kernels.add_one(capture, memory.view_mut())
    })?;
    for stream in &kept {
        check!(stream.is_capturing(), "the stream of a capture became another");
        let late = memory.view_mut().fill(stream, 4_u32);
        refused(late, ErrorKind::InvalidArgument, "a fill after the capture")?;
        refused(stream.synchronize(), ErrorKind::InvalidArgument, "synchronising after it")?;
    }
    check!(!setup.stream.is_capturing(), "an ordinary stream is taken for a capture's");
    replay(&graph, &setup.stream)?;
    same(
        &setup.download(&memory)?,
        &[2; 100],
        "the values after a launch of the successful capture",
    )?;
    drop((memory, graph));
    setup.device.synchronize()?;
    setup.is_usable()
}

/// Other work continues during a capture, also in the capturing thread, and does not become part of the graph.
pub fn a_capture_does_not_affect_other_streams(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let other = setup.with_stream()?;
    let mut memory = setup.upload(&[0_u32; 100])?;
    let mut apart = setup.upload(&[0_u32; 100])?;
    let mut inner = None;
    let outer = graphs.capture(|capture| {
        setup.kernels.add_one(capture, memory.view_mut())?;
        let mut passing = other.device.memory_allocate::<u32>(100)?;
        other.kernels.fill_index(&other.stream, passing.view_mut(), 1)?;
        other.stream.record_event()?.wait()?;
        let found = passing.view().to_vec(&other.stream)?;
        drop(passing);
        let mut pinned = other.device.pinned_allocate::<u32>(100)?;
        pinned.as_mut_slice()?.copy_from_slice(&found);
        apart.view_mut().copy_from_pinned(&other.stream, &pinned)?;
        inner = Some(graphs.capture(|nested| setup.kernels.add_one(nested, apart.view_mut()))?);
        other.device.synchronize()?;
        setup.kernels.add_one(capture, memory.view_mut())
    })?;
    let inner = inner.ok_or_else(|| Stop::failed("a capture did not call its work"))?;
    let once: Vec<u32> = (1..101).collect();
    same(&setup.download(&apart)?, &once, "the values during the capture")?;
    same(&setup.download(&memory)?, &[0; 100], "the captured values")?;
    replay(&outer, &setup.stream)?;
    same(&setup.download(&memory)?, &[2; 100], "the values after the outer graph")?;
    same(&setup.download(&apart)?, &once, "the values that the outer graph must not change")?;
    replay(&inner, &setup.stream)?;
    let twice: Vec<u32> = (2..102).collect();
    same(&setup.download(&apart)?, &twice, "the values after the inner graph")
}

/// Several threads can enqueue on one capture, and can capture and launch their own graphs at the same time.
pub fn threads_capture_and_launch(fixture: &Fixture) -> Outcome {
    const THREADS: u32 = 4;
    const OPERATIONS: u32 = 50;
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let parts = (0..THREADS).map(|_| setup.upload(&[0_u32; 30]));
    let mut parts = parts.collect::<Result<Vec<_>>>()?;
    let work = |capture: &Stream, memory: &mut runtime_core::Memory<u32>| -> Result<()> {
        (0..OPERATIONS).try_for_each(|_| setup.kernels.add_one(capture, memory.view_mut()))
    };
    let shared = graphs.capture(|capture| {
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                parts.iter_mut().map(|part| scope.spawn(move || work(capture, part))).collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => resume_unwind(panic),
            })
        })
    })?;
    thread::scope(|scope| -> Outcome {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (setup, shared, work) = (&setup, &shared, &work);
                scope.spawn(move || -> Outcome {
                    let setup = setup.with_stream()?;
                    let mut memory = setup.upload(&[0_u32; 30])?;
                    let absent = || Stop::failed("an accessor that changes its mind");
                    let graphs = setup.device.graphs().ok_or_else(absent)?;
                    let own = graphs.capture(|capture| work(capture, &mut memory))?;
                    for _ in 0..5 {
                        replay(&own, &setup.stream)?;
                        replay(shared, &setup.stream)?;
                    }
                    let expected = [5 * OPERATIONS; 30];
                    same(&setup.download(&memory)?, &expected, "a thread's own graph")
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Stop::failed("a thread panicked"))?)
    })?;
    // Launches on several streams were not ordered. Launches on one stream are.
    setup.device.synchronize()?;
    for part in &mut parts {
        part.fill(&setup.stream, 0)?;
    }
    replay(&shared, &setup.stream)?;
    for part in &parts {
        same(&setup.download(part)?, &[OPERATIONS; 30], "a graph that threads captured together")?;
    }
    Ok(())
}

/// A graph keeps the memory, pinned memory, modules and plans that its work uses.
pub fn a_graph_keeps_what_it_uses(fixture: &Fixture) -> Outcome {
    const LEN: usize = 1 << 12;
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let mut result = setup.upload(&[0_u32; LEN])?;
    let graph = {
        let mut pinned = setup.device.pinned_allocate::<u32>(LEN)?;
        pinned.as_mut_slice()?.fill(20);
        let mut first = setup.device.memory_allocate::<u32>(LEN)?;
        let mut second = setup.device.memory_allocate::<u32>(LEN)?;
        let plan = setup.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, LEN)])?;
        let module = setup.device.module_load_bundle(fixture.kernels())?;
        let kernel = module.kernel("add_one")?;
        drop(module);
        graphs.capture(|capture| {
            first.view_mut().copy_from_pinned(capture, &pinned)?;
            let count = u32::try_from(LEN).unwrap_or(u32::MAX);
            let arguments = runtime_core::args![&mut first, count];
            attempt(&kernel, capture, &setup.kernels.cover(LEN), arguments)?;
            if plan.launches() > 0 {
                let bind = &mut [Slot::from(first.view()), Slot::from(second.view_mut())];
                plan.execute(capture, bind)?;
            } else {
                second.view_mut().copy_from(capture, &first.view())?;
            }
            result.view_mut().copy_from(capture, &second.view())
        })?
    };
    for _ in 0..3 {
        // A new allocation that reused this memory would change what the graph computes.
        let mut fresh = Vec::new();
        for _ in 0..3 {
            let mut pinned = setup.device.pinned_allocate::<u32>(LEN)?;
            pinned.as_mut_slice()?.fill(0x55);
            fresh.push((setup.upload(&[0x55_u32; LEN])?, pinned));
        }
        result.fill(&setup.stream, 0)?;
        replay(&graph, &setup.stream)?;
        same(
            &setup.download(&result)?,
            &[21; LEN],
            "the values that a graph computed with dropped objects",
        )?;
        for (memory, pinned) in &fresh {
            same(&setup.download(memory)?, &[0x55; LEN], "memory allocated meanwhile")?;
            same(pinned.as_slice()?, &[0x55; LEN], "pinned memory allocated meanwhile")?;
        }
    }
    Ok(())
}

/// A graph and everything it uses can be dropped, or leaked by `mem::forget`, with launches in flight. The drop does
/// not wait for the launches.
pub fn graphs_dropped_in_flight_run_to_the_end(fixture: &Fixture) -> Outcome {
    const LEN: usize = 1 << 14;
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let other = setup.with_stream()?;
    for forget in [false, true] {
        let data = elements::<u8>(1, LEN);
        let source = setup.upload(&data)?;
        let mut target = setup.device.memory_allocate::<u8>(LEN)?;
        let mut incoming = setup.device.pinned_allocate::<u8>(LEN)?;
        let graph = graphs.capture(|capture| {
            target.view_mut().copy_from(capture, &source.view())?;
            source.view().copy_to_pinned(capture, &mut incoming)
        })?;
        let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
        replay(&graph, &setup.stream)?;
        if forget {
            std::mem::forget(graph);
        } else {
            drop(graph);
        }
        drop((source, incoming));
        let mut fresh = Vec::new();
        for seed in 10..14 {
            let expected = elements::<u8>(seed, LEN);
            let mut pinned = setup.device.pinned_allocate::<u8>(LEN)?;
            pinned.as_mut_slice()?.copy_from_slice(&expected);
            fresh.push((other.upload(&expected)?, pinned, expected));
        }
        busy.was_done(&setup.stream)?;
        same(&setup.download(&target)?, &data, "the values that a dropped graph copied")?;
        for (memory, pinned, expected) in &fresh {
            same(&other.download(memory)?, expected, "memory allocated meanwhile")?;
            same(pinned.as_slice()?, expected, "pinned memory allocated meanwhile")?;
        }
    }
    best_of_three(|| {
        let mut memory = setup.upload(&[0_u32; 100])?;
        let graph = graphs.capture(|capture| setup.kernels.add_one(capture, memory.view_mut()))?;
        let stream = setup.new_stream()?;
        let busy = setup.spin(&stream, Duration::from_millis(400))?;
        replay(&graph, &stream)?;
        check!(!stream.is_done()?, "launching a graph waited for work in flight");
        drop((graph, memory));
        check!(!stream.is_done()?, "dropping a graph waited for work in flight");
        busy.was_done(&stream)
    })
}

/// Host access to pinned memory waits for graph launches: reading waits for launches that write it, writing waits for
/// all launches that use it.
pub fn pinned_memory_waits_for_launches_of_a_graph(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let mut memory = setup.upload(&[0_u32; 100])?;
    let mut there = setup.device.pinned_allocate::<u32>(100)?;
    let mut back = setup.device.pinned_allocate::<u32>(100)?;
    let graph = graphs.capture(|capture| {
        memory.view_mut().copy_from_pinned(capture, &there)?;
        setup.kernels.add_one(capture, memory.view_mut())?;
        memory.view().copy_to_pinned(capture, &mut back)
    })?;
    for value in [3, 30] {
        there.as_mut_slice()?.fill(value);
        let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
        replay(&graph, &setup.stream)?;
        there.as_mut_slice()?.fill(0);
        busy.must_be_over("pinned memory that a graph reads was opened for writing")?;
        same(back.as_slice()?, &[value + 1; 100], "the values that the graph wrote")?;
        let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
        replay(&graph, &setup.stream)?;
        same(back.as_slice()?, &[1; 100], "the values that the next launch wrote")?;
        busy.must_be_over("pinned memory that a graph writes was read")?;
    }
    Ok(())
}

/// Graph launches and copies on other streams that use the same pinned memory run in the order of their calls.
pub fn launches_of_a_graph_are_ordered_with_copies_of_pinned_memory(fixture: &Fixture) -> Outcome {
    const LEN: usize = 1 << 14;
    let setup = fixture.setup()?;
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let slow = setup.new_stream()?;
    let mut read = setup.upload(&[0_u32; LEN])?;
    let written = setup.upload(&[1_u32; LEN])?;
    let other = setup.upload(&[2_u32; LEN])?;
    let mut pinned = setup.device.pinned_allocate::<u32>(LEN)?;
    let reads = graphs.capture(|capture| read.view_mut().copy_from_pinned(capture, &pinned))?;
    let writes = graphs.capture(|capture| written.view().copy_to_pinned(capture, &mut pinned))?;
    setup.stream.synchronize()?;
    for value in [7, 8] {
        pinned.as_mut_slice()?.fill(value);
        setup.spin(&slow, IN_FLIGHT)?;
        replay(&reads, &slow)?;
        other.view().copy_to_pinned(&setup.stream, &mut pinned)?;
        same(&read.view().to_vec(&slow)?, &[value; LEN], "the values that a launch read")?;

        setup.spin(&slow, IN_FLIGHT)?;
        replay(&writes, &slow)?;
        other.view().copy_to_pinned(&setup.stream, &mut pinned)?;
        same(pinned.as_slice()?, &[2; LEN], "a copy behind a launch that writes")?;
        slow.synchronize()?;
        same(pinned.as_slice()?, &[2; LEN], "it, when the launch has run")?;

        setup.spin(&slow, IN_FLIGHT)?;
        other.view().copy_to_pinned(&slow, &mut pinned)?;
        replay(&writes, &setup.stream)?;
        same(pinned.as_slice()?, &[1; LEN], "a launch behind a copy that writes")?;
    }
    Ok(())
}

/// A graph can be launched only on streams of its own device. Its native handle does not change. The statistics count
/// the work that its launches do.
pub fn graphs_belong_to_their_device(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.fresh()?, fixture.other()?);
    let graphs = needed(setup.device.graphs(), Ability::Graphs)?;
    let mut memory = setup.upload(&[0_u32; 100])?;
    let mut foreign = other.upload(&[5_u32; 100])?;
    let kind = ErrorKind::WrongDevice;
    let crossed = graphs.capture(|capture| foreign.view_mut().fill(capture, 1_u32));
    refused(crossed, kind, "capturing work on foreign memory")?;
    let before = setup.device.statistics();
    let graph = graphs.capture(|capture| {
        setup.kernels.add_one(capture, memory.view_mut())?;
        memory.view_mut().slice(0..10)?.fill(capture, 4_u32)
    })?;
    check_eq!(graph.native(), graph.native(), "the handle of a graph");
    refused(replay(&graph, &other.stream), kind, "a launch on a foreign stream")?;
    check_eq!(setup.device.statistics(), before, "statistics without a launch");
    for launches in 1..4 {
        replay(&graph, &setup.stream)?;
        let now = setup.device.statistics();
        check_eq!(now.launches - before.launches, launches, "kernels of {launches} launches");
        let filled = (
            now.on_device.count - before.on_device.count,
            now.on_device.bytes - before.on_device.bytes,
        );
        check_eq!(filled, (launches, launches * 40), "fills of {launches} launches, and bytes");
    }
    let expected: Vec<u32> = [4; 10].into_iter().chain([3; 90]).collect();
    same(&setup.download(&memory)?, &expected, "three launches")?;
    same(&other.download(&foreign)?, &[5; 100], "foreign memory")
}
