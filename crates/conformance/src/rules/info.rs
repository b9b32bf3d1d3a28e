//! A device's description of itself, and several devices side by side.

use std::collections::HashSet;
use std::thread;

use runtime_core::{Device, ErrorKind, Support};

use crate::data::elements;
use crate::outcome::{Outcome, check, check_eq, needed, refused, same};
use crate::{Ability, Fixture, Stop};

/// A device has a name, a vendor, an architecture and formats, and limits that permit work.
pub fn identity_and_limits_make_sense(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let info = setup.device.info();
    for (what, text) in [
        ("backend", info.id.backend()),
        ("name", &info.name),
        ("vendor", &info.vendor),
        ("architecture", &info.architecture),
        ("driver version", &info.driver_version),
    ] {
        check!(!text.trim().is_empty(), "the {what} is empty");
    }
    check!(info.memory_bytes != Some(0), "memory of 0 bytes; unknown is None");
    check!(info.compute_units > 0, "no compute unit");
    check!(info.subgroup_size > 0, "a subgroup size of 0; none is 1");
    let limits = &info.limits;
    let alignment = limits.allocation_alignment.get();
    check!(alignment.is_power_of_two(), "an alignment of {alignment}");
    check!(alignment >= 8, "an alignment of {alignment}, too little for an f64");
    let alignment = limits.argument_alignment.get();
    check!(alignment.is_power_of_two(), "an alignment of arguments of {alignment}");
    check!(
        limits.max_allocation_bytes >= 1 << 16,
        "allocations of at most {}",
        limits.max_allocation_bytes
    );
    check!(!limits.max_grid.contains(&0), "a grid limit of {:?}", limits.max_grid);
    check!(!limits.max_block.contains(&0), "a block limit of {:?}", limits.max_block);
    check!(limits.max_block_threads > 0, "blocks of no work-item");
    check!(limits.max_arguments >= 12, "only {} arguments", limits.max_arguments);
    check!(
        limits.max_argument_bytes >= 12 * 8,
        "only {} bytes of arguments",
        limits.max_argument_bytes
    );
    let (least, greatest) = limits.priorities;
    check!(least <= 0 && greatest >= 0, "priorities {least} to {greatest} leave out 0");
    let formats: HashSet<_> = info.formats.iter().collect();
    check!(!formats.is_empty(), "it takes no module format");
    check_eq!(formats.len(), info.formats.len(), "formats without repetition");
    for (format, why) in &info.absent_formats {
        check!(!formats.contains(format), "{format} is taken and absent: {why}");
        check!(!why.is_empty(), "{format} is absent for no reason");
    }
    Ok(())
}

/// A device's information is the same at every call, before and after work, and in every instance of the device.
pub fn information_is_stable(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (info, capabilities) = (setup.device.info().clone(), *setup.device.capabilities());
    setup.is_usable()?;
    check_eq!(*setup.device.info(), info, "after work");
    check_eq!(*setup.device.capabilities(), capabilities, "after work");
    let again = fixture.open(0)?;
    check_eq!(*again.info(), info, "opened again");
    check_eq!(*again.capabilities(), capabilities, "opened again");
    Ok(())
}

/// The abilities that a device has when it is used are those that it had when it was opened.
pub fn capabilities_agree_with_the_accessors(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let device = &setup.device;
    let reported = device.capabilities();
    for (what, support, there) in [
        ("graphs", reported.graphs, device.graphs().is_some()),
        ("unified memory", reported.unified_memory, device.unified_memory().is_some()),
        ("gates", reported.gates, has_gates(device)?),
        ("interop", reported.interop, device.interop().is_some()),
        ("memory pool", reported.memory_pool, device.memory_pool().is_some()),
        ("monitor", reported.monitor, device.monitor().is_some()),
        ("counters", reported.counters, device.counters().is_some()),
    ] {
        check_eq!(support == Support::Native, there, "{what} is {support}; its accessor is there");
        check!(support != Support::Emulated, "{what} cannot be emulated");
    }
    for support in [reported.region_copy, reported.peer] {
        check!(support != Support::Absent, "region copies and copies between devices always work");
    }
    let copy = super::regions::row_copy::<u8>(0, 1, 4);
    let plan = device.plan_regions(&[copy])?;
    check_eq!(
        plan.launches() > 0,
        reported.region_copy == Support::Native,
        "region copies are {}; launches of a plan",
        reported.region_copy
    );
    Ok(())
}

/// Whether the device makes gates. If it lacks them, the error says so.
fn has_gates(device: &Device) -> Outcome<bool> {
    match device.gate() {
        Ok((_, opener)) => opener.open(),
        made => return refused(made, ErrorKind::Unsupported, "a gate").map(|_| false),
    }
    Ok(true)
}

/// One device opened twice gives two devices with one name: both work, and each refuses objects of the other.
pub fn two_instances_are_two_devices(fixture: &Fixture) -> Outcome {
    let (one, two) = (fixture.fresh()?, fixture.fresh()?);
    check_eq!(one.device.id(), two.device.id(), "the names of two instances");
    are_independent(&one.device, &two.device)?;
    let mut memory = one.device.memory_allocate::<u32>(4)?;
    refused(
        memory.view_mut().fill(&two.stream, 1_u32),
        ErrorKind::WrongDevice,
        "filling memory of one instance on a stream of another",
    )?;
    drop((one, memory));
    two.is_usable()
}

/// Two devices of one class can be open at once and work independently. If there is no second device, opening it is
/// refused with a typed error.
pub fn two_open_devices_are_independent(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let second = needed(fixture.open_second()?, Ability::SecondDevice)?;
    check!(second.id() != setup.device.id(), "devices 0 and 1 are both called {}", second.id());
    are_independent(&setup.device, &second)?;
    drop(second);
    setup.is_usable()
}

fn are_independent(one: &Device, two: &Device) -> Outcome {
    check!(one.is_same(one) && one.is_same(&one.clone()), "a device is not the same as its clone");
    check!(!one.is_same(two) && !two.is_same(one), "two devices count as the same");
    let (mine, yours) = (elements::<u64>(1, 1000), elements::<u64>(2, 1000));
    let a = one.memory_from_slice(&one.default_stream(), &mine)?;
    let b = two.memory_from_slice(&two.default_stream(), &yours)?;
    same(&a.view().to_vec(&one.default_stream())?, &mine, "memory of the first device")?;
    same(&b.view().to_vec(&two.default_stream())?, &yours, "memory of the second device")
}

/// A device can be opened repeatedly, also after it was dropped.
pub fn opening_is_repeatable(fixture: &Fixture) -> Outcome {
    for _ in 0..4 {
        fixture.fresh()?.is_usable()?;
    }
    Ok(())
}

/// Native handles name the device's interface, do not change, and differ between live objects.
pub fn native_handles_are_stable(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let device = setup.device.native();
    check!(!device.api.is_empty(), "the interface has no name");
    check_eq!(setup.device.clone().native(), device, "the handle of a clone");
    let one = setup.device.memory_allocate::<u8>(256)?;
    let two = setup.device.memory_allocate::<u8>(256)?;
    let (Some(first), Some(second)) = (one.native(), two.native()) else {
        return Err(Stop::failed("memory without a native handle"));
    };
    check!(first.raw != second.raw, "two live memories have the handle {first:?}");
    check_eq!(one.view().native(), Some(first), "the handle of a view");
    check_eq!(setup.device.memory_allocate::<u8>(0)?.native(), None, "the handle of no bytes");
    let stream = setup.new_stream()?;
    check_eq!(stream.clone().native(), stream.native(), "the handle of a stream's clone");
    let event = stream.record_event()?;
    check_eq!(event.clone().native(), event.native(), "the handle of an event's clone");
    setup.is_usable()?;
    for (handle, before) in [(one.native(), first), (two.native(), second)] {
        check_eq!(handle, Some(before), "the handle of memory after work");
    }
    for handle in [first, stream.native(), event.native()] {
        check_eq!(handle.api, device.api, "the interface of {handle:?}");
    }
    Ok(())
}

/// Several threads can use one device at once, each with its own objects, and can pass memory to each other.
pub fn threads_share_a_device(fixture: &Fixture) -> Outcome {
    const THREADS: u64 = 4;
    let setup = fixture.setup()?;
    let work = |seed: u64| -> Outcome<_> {
        let setup = setup.with_stream()?;
        let expected = elements::<u32>(seed, 3000);
        let mut memory = setup.upload(&expected)?;
        for _ in 0..10 {
            let copy = setup.upload(&expected)?;
            memory.view_mut().copy_from(&setup.stream, &copy.view())?;
            setup.kernels.add_one(&setup.stream, memory.view_mut())?;
        }
        setup.stream.synchronize()?;
        Ok((memory, expected))
    };
    let made = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for outcome in made {
        let (memory, before) = outcome.map_err(|_| Stop::failed("a thread panicked"))??;
        let expected: Vec<u32> = before.iter().map(|value| value.wrapping_add(1)).collect();
        same(&setup.download(&memory)?, &expected, "memory made by another thread")?;
    }
    Ok(())
}
