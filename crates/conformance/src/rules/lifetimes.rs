//! Dropping and leaking objects while the device still uses them.

use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use runtime_core::{Grid, HostModule, ImageFormat, Launch, Slot, Stream};

use crate::data::elements;
use crate::outcome::{Outcome, best_of_three, check, check_eq, needed, same};
use crate::{Ability, Fixture, Stop};

/// Long enough that all work of a rule is still in flight when the rule drops objects.
const IN_FLIGHT: Duration = Duration::from_millis(40);

/// Far more than a drop that waits for that work takes.
const LIMIT: Duration = Duration::from_secs(10);

/// Memory dropped with work in flight is not reused before that work has finished.
pub fn memory_dropped_in_flight_stays_until_the_work_is_done(fixture: &Fixture) -> Outcome {
    const LEN: usize = 1 << 14;
    let setup = fixture.setup()?;
    let other = setup.with_stream()?;
    for round in 0..3_u64 {
        let data = elements::<u8>(round, LEN);
        let source = setup.upload(&data)?;
        let mut target = setup.device.memory_allocate::<u8>(LEN)?;
        let mut written = setup.device.memory_allocate::<u8>(LEN)?;
        let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
        target.view_mut().copy_from(&setup.stream, &source.view())?;
        written.view_mut().fill(&setup.stream, 0xEE_u8)?;
        drop((source, written));
        // If a new allocation gets the dropped memory too early, the copied values change, or the new values are
        // overwritten.
        let mut fresh = Vec::new();
        for seed in 10..14 {
            let expected = elements::<u8>(seed, LEN);
            fresh.push((other.upload(&expected)?, expected));
        }
        busy.was_done(&setup.stream)?;
        same(&setup.download(&target)?, &data, "the values copied from dropped memory")?;
        for (memory, expected) in &fresh {
            same(&other.download(memory)?, expected, "memory allocated meanwhile")?;
        }
    }
    Ok(())
}

/// Memory used on several streams and then dropped stays allocated until all of them have finished with it.
pub fn memory_dropped_in_flight_waits_for_every_stream(fixture: &Fixture) -> Outcome {
    const LEN: usize = 1 << 14;
    let setup = fixture.setup()?;
    let (slow, quick) = (setup.with_stream()?, setup.with_stream()?);
    let data = elements::<u8>(1, LEN);
    let source = setup.upload(&data)?;
    let mut targets =
        [setup.device.memory_allocate::<u8>(LEN)?, setup.device.memory_allocate::<u8>(LEN)?];
    let busy = setup.spin(&slow.stream, IN_FLIGHT)?;
    for (target, stream) in targets.iter_mut().zip([&slow.stream, &quick.stream]) {
        target.view_mut().copy_from(stream, &source.view())?;
    }
    drop(source);
    quick.stream.synchronize()?;
    let expected = elements::<u8>(2, LEN);
    let fresh = [quick.upload(&expected)?, quick.upload(&expected)?];
    busy.was_done(&slow.stream)?;
    same(&slow.download(&targets[0])?, &data, "the copy on the slow stream")?;
    same(&quick.download(&targets[1])?, &data, "the copy on the quick stream")?;
    for memory in &fresh {
        same(&quick.download(memory)?, &expected, "memory allocated meanwhile")?;
    }
    Ok(())
}

/// Pinned memory dropped with copies in flight, in either direction, stays allocated until they have finished.
pub fn pinned_memory_dropped_in_flight_stays_until_the_copies_are_done(
    fixture: &Fixture,
) -> Outcome {
    const LEN: usize = 1 << 14;
    let setup = fixture.setup()?;
    let data = elements::<u8>(3, LEN);
    let mut outgoing = setup.device.pinned_allocate::<u8>(LEN)?;
    outgoing.as_mut_slice()?.copy_from_slice(&data);
    let mut incoming = setup.device.pinned_allocate::<u8>(LEN)?;
    let other = setup.upload(&elements::<u8>(4, LEN))?;
    let mut memory = setup.device.memory_allocate::<u8>(LEN)?;
    let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
    memory.view_mut().copy_from_pinned(&setup.stream, &outgoing)?;
    other.view().copy_to_pinned(&setup.stream, &mut incoming)?;
    drop((outgoing, incoming));
    let mut fresh = Vec::new();
    for _ in 0..3 {
        let mut pinned = setup.device.pinned_allocate::<u8>(LEN)?;
        pinned.as_mut_slice()?.fill(0x55);
        fresh.push(pinned);
    }
    busy.was_done(&setup.stream)?;
    same(&setup.download(&memory)?, &data, "the values copied from dropped pinned memory")?;
    for pinned in &fresh {
        same(pinned.as_slice()?, &[0x55; LEN], "pinned memory allocated meanwhile")?;
    }
    Ok(())
}

/// A kernel and its module can be dropped before their launch has run.
pub fn modules_and_kernels_dropped_in_flight_run_to_the_end(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let expected: Vec<u32> = (5..1005).collect();
    let mut memory = setup.device.memory_allocate::<u32>(1000)?;
    let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
    {
        let module = setup.device.module_load_bundle(fixture.kernels())?;
        let kernel = module.kernel("fill_index")?;
        drop(module);
        let launch = setup.kernels.cover(1000);
        let arguments = runtime_core::args![&mut memory, 5_u32, 1000_u32];
        crate::setup::attempt(&kernel, &setup.stream, &launch, arguments)?;
    }
    busy.was_done(&setup.stream)?;
    same(&setup.download(&memory)?, &expected, "the values that a dropped kernel computed")
}

/// What a kernel owns may wait, in its drop, for the stream on which the kernel was launched and for the device.
pub fn what_a_kernel_owns_may_wait_for_its_streams(fixture: &Fixture) -> Outcome {
    struct Waits(Stream, Sender<runtime_core::Result<()>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            // The device outlives this object.
            let waited = self.0.synchronize().and_then(|()| self.0.device().synchronize());
            let _ = self.1.send(waited);
        }
    }
    // A separate instance, because its streams may hang forever.
    let setup = fixture.fresh()?;
    let takes = setup.device.info().formats.contains(&ImageFormat::HostFunctions);
    needed(takes.then_some(()), Ability::HostFunctions)?;
    for in_flight in [true, false] {
        let stream = setup.new_stream()?;
        let (send, waited) = channel();
        let owned = Waits(stream.clone(), send);
        let functions = HostModule::new().with("nothing", move |_: &Grid<'_>| {
            let _owned = &owned;
        });
        let module = setup.device.module_load(&functions)?;
        let kernel = module.kernel("nothing")?;
        let busy = in_flight.then(|| setup.spin(&stream, IN_FLIGHT)).transpose()?;
        crate::setup::attempt(&kernel, &stream, &Launch::cover(1, 1), &[])?;
        if !in_flight {
            stream.synchronize()?;
        }
        drop((functions, module, kernel));
        // This thread does not wait for the stream here; otherwise it could run the work, and with it the drop.
        let Ok(waited) = waited.recv_timeout(LIMIT) else {
            return Err(Stop::failed(format_args!(
                "what a kernel owns is not dropped, or waits forever: not over after {LIMIT:?}"
            )));
        };
        waited?;
        if let Some(busy) = busy {
            busy.must_be_over("what a kernel owns was dropped")?;
        }
    }
    setup.is_usable()
}

/// Dropping a stream lets its work finish, and synchronizing the device waits for it.
pub fn a_dropped_stream_finishes_its_work(fixture: &Fixture) -> Outcome {
    // A separate instance: with a shared one, this rule and other rules would wait for each other's work.
    let setup = fixture.fresh()?;
    let mut memory = setup.upload(&[0_u32; 500])?;
    let busy = {
        let stream = setup.new_stream()?;
        let busy = setup.spin(&stream, IN_FLIGHT)?;
        setup.kernels.fill_index(&stream, memory.view_mut(), 3)?;
        setup.kernels.add_one(&stream, memory.view_mut())?;
        busy
    };
    setup.device.synchronize()?;
    busy.must_be_over("the device was synchronised")?;
    let expected: Vec<u32> = (4..504).collect();
    same(&setup.download(&memory)?, &expected, "the values that a dropped stream computed")
}

/// Enqueued waits stay effective after the event is dropped, and an event outlives its stream.
pub fn events_dropped_in_flight_keep_their_order(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let consumer = setup.new_stream()?;
    let mut memory = setup.upload(&[0_u32; 300])?;
    let mut copy = setup.device.memory_allocate::<u32>(300)?;
    let expected: Vec<u32> = (9..309).collect();
    let event = {
        let producer = setup.new_stream()?;
        let _busy = setup.spin(&producer, IN_FLIGHT)?;
        setup.kernels.fill_index(&producer, memory.view_mut(), 9)?;
        consumer.wait(&producer.record_event()?)?;
        producer.record_event()?
    };
    copy.view_mut().copy_from(&consumer, &memory.view())?;
    event.wait()?;
    same(&setup.download(&memory)?, &expected, "memory after its dropped stream's event")?;
    consumer.synchronize()?;
    same(&setup.download(&copy)?, &expected, "the values copied after a dropped event")
}

/// A region plan can be dropped before its execution has run.
pub fn plans_dropped_in_flight_run_to_the_end(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let data = elements::<u8>(5, 1000);
    let source = setup.upload(&data)?;
    let mut target = setup.upload(&[0_u8; 1000])?;
    let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
    for _ in 0..3 {
        let plan = setup.device.plan_regions(&[super::regions::row_copy::<u8>(0, 1, 1000)])?;
        let bind = &mut [Slot::from(source.view()), Slot::from(target.view_mut())];
        plan.execute(&setup.stream, bind)?;
    }
    busy.was_done(&setup.stream)?;
    same(&setup.download(&target)?, &data, "the values that a dropped plan copied")
}

/// Memory, pinned memory, modules, plans and graphs that are dropped are released: the pool's account returns to its
/// earlier value, and Rust functions are dropped.
pub fn dropped_objects_are_released(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let used = || setup.device.memory_pool().map_or(0, |pool| pool.used_bytes());
    let make = || -> Outcome {
        let source = setup.upload(&[1_u8; 1000])?;
        let mut memory = setup.upload(&[0_u8; 1000])?;
        let mut pinned = setup.device.pinned_allocate::<u8>(1000)?;
        let plan = setup.device.plan_regions(&[super::regions::row_copy::<u8>(0, 1, 1000)])?;
        let bind = &mut [Slot::from(source.view()), Slot::from(memory.view_mut())];
        plan.execute(&setup.stream, bind)?;
        memory.view().copy_to_pinned(&setup.stream, &mut pinned)?;
        let _module = setup.device.module_load_bundle(fixture.kernels())?;
        if let Some(graphs) = setup.device.graphs() {
            graphs.capture(|stream| memory.view_mut().fill(stream, 2_u8))?;
        }
        Ok(())
    };
    // The device may keep what it made for the first object of a kind.
    make()?;
    setup.device.synchronize()?;
    let before = used();
    for _ in 0..3 {
        make()?;
    }
    setup.device.synchronize()?;
    check_eq!(used(), before, "bytes of the pool in use after objects were dropped");

    if !setup.device.info().formats.contains(&ImageFormat::HostFunctions) {
        return Ok(());
    }
    let kept = Arc::new(());
    let held = Arc::clone(&kept);
    let functions = HostModule::new().with("nothing", move |_: &Grid<'_>| {
        let _held = &held;
    });
    let module = setup.device.module_load(&functions)?;
    drop((functions, module));
    setup.device.synchronize()?;
    check_eq!(Arc::strong_count(&kept), 1, "owners of what a dropped function held");
    Ok(())
}

/// Memory, streams and events keep working after every handle of the device is dropped.
pub fn objects_outlive_the_device_handle(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let data = elements::<u32>(6, 100);
    let mut memory = setup.upload(&data)?;
    let mut pinned = setup.device.pinned_allocate::<u32>(100)?;
    let stream = setup.new_stream()?;
    let event = setup.device.event_create(false)?;
    drop(setup);
    memory.view().copy_to_pinned(&stream, &mut pinned)?;
    stream.record(&event)?;
    event.wait()?;
    same(pinned.as_slice()?, &data, "a copy after the device's handles were dropped")?;
    memory.view_mut().fill(&stream, 4_u32)?;
    same(&memory.view().to_vec(&stream)?, &[4; 100], "a fill")
}

/// A device and all its objects can be dropped at once, in any order, with work in flight.
pub fn everything_dropped_in_flight_is_sound(fixture: &Fixture) -> Outcome {
    for order in 0..4 {
        let setup = fixture.fresh()?;
        let mut memory = setup.upload(&elements::<u32>(order, 5000))?;
        let mut pinned = setup.device.pinned_allocate::<u32>(5000)?;
        let streams = [setup.new_stream()?, setup.new_stream()?];
        let busy = setup.spin(&streams[0], Duration::from_millis(10))?;
        setup.kernels.add_one(&streams[0], memory.view_mut())?;
        streams[1].wait(&streams[0].record_event()?)?;
        memory.view().copy_to_pinned(&streams[1], &mut pinned)?;
        match order {
            0 => drop((setup, memory, pinned, streams, busy)),
            1 => drop((streams, pinned, memory, busy, setup)),
            2 => drop((memory, busy, setup, streams, pinned)),
            _ => drop((pinned, setup, busy, memory, streams)),
        }
    }
    fixture.setup()?.is_usable()
}

/// Leaking any object with `mem::forget`, also with work in flight, is safe.
pub fn forgetting_is_sound(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    for round in 0..2 {
        let mut memory = setup.upload(&elements::<u32>(round, 2000))?;
        let mut pinned = setup.device.pinned_allocate::<u32>(2000)?;
        let mut other = setup.device.pinned_allocate::<u32>(2000)?;
        let stream = setup.new_stream()?;
        let module = setup.device.module_load_bundle(fixture.kernels())?;
        let kernel = module.kernel("add_one")?;
        let plan = setup.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 2000)])?;
        let mut target = setup.device.memory_allocate::<u32>(2000)?;
        mem::forget(setup.spin(&stream, Duration::from_millis(10))?);
        setup.kernels.add_one(&stream, memory.view_mut())?;
        memory.view().copy_to_pinned(&stream, &mut pinned)?;
        memory.view_mut().copy_from_pinned(&stream, &other)?;
        let bind = &mut [Slot::from(memory.view()), Slot::from(target.view_mut())];
        plan.execute(&stream, bind)?;
        let event = stream.record_event()?;
        other.as_mut_slice()?.fill(1);
        mem::forget((memory, pinned, other, target, plan, stream, event, module, kernel));
        mem::forget(setup.device.clone());
    }
    setup.device.synchronize()?;
    setup.is_usable()?;
    mem::forget(setup);
    fixture.setup()?.is_usable()
}

/// Dropping memory, pinned memory, modules, plans, events and streams does not wait for work in flight.
pub fn dropping_does_not_wait_for_the_work(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    best_of_three(|| {
        let source = setup.upload(&[1_u32; 100])?;
        let mut memory = setup.upload(&[0_u32; 100])?;
        let mut words = setup.upload(&[0_u32; 100])?;
        let mut pinned = setup.device.pinned_allocate::<u32>(100)?;
        let plan = setup.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 100)])?;
        let module = setup.device.module_load_bundle(fixture.kernels())?;
        let kernel = module.kernel("add_one")?;
        let stream = setup.new_stream()?;
        let watch = stream.clone();
        let busy = setup.spin(&stream, Duration::from_millis(400))?;
        let arguments = runtime_core::args![&mut words, 100_u32];
        crate::setup::attempt(&kernel, &stream, &setup.kernels.cover(100), arguments)?;
        if plan.launches() > 0 {
            let bind = &mut [Slot::from(source.view()), Slot::from(memory.view_mut())];
            plan.execute(&stream, bind)?;
        }
        memory.view().copy_to_pinned(&stream, &mut pinned)?;
        let event = stream.record_event()?;
        check!(!watch.is_done()?, "enqueueing took longer than the work before it");
        macro_rules! drop_quickly {
            ($($object:ident: $what:literal),* $(,)?) => {$(
                drop($object);
                check!(!watch.is_done()?, "dropping {} waited for work in flight", $what);
            )*};
        }
        drop_quickly! {
            memory: "memory", source: "memory", words: "memory", pinned: "pinned memory",
            plan: "a plan", kernel: "a kernel", module: "a module", event: "an event",
            busy: "memory that a kernel writes", stream: "a stream",
        }
        watch.synchronize()?;
        Ok(())
    })
}
