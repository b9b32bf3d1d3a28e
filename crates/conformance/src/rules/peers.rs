//! Two devices: copies between them, and waits for each other's events.

use std::fmt::Debug;
use std::time::Duration;

use runtime_core::{Device, Element, ErrorKind, Support};

use crate::data::{each_element, elements};
use crate::outcome::{Outcome, check, check_eq, refused, same};
use crate::setup::Setup;
use crate::{Fixture, NullDevice, Stop};

/// Long enough that work behind it is late if it is not ordered.
const HEAD_START: Duration = Duration::from_millis(40);

/// Memory can be copied from one device to another, for every element type, at offsets, of any size, and in both
/// directions.
pub fn memory_is_copied_between_devices(fixture: &Fixture) -> Outcome {
    fn there_and_back<T: Element + Debug>(setup: &Setup, other: &Setup) -> Outcome {
        let expected = elements::<T>(1, 500);
        let source = setup.upload(&expected)?;
        let mut there = other.device.memory_allocate::<T>(500)?;
        let mut back = setup.device.memory_allocate::<T>(500)?;
        let (own, their) = (&setup.stream, &other.stream);
        there.view_mut().copy_from_device(their, &source.view(), own)?;
        back.view_mut().copy_from_device(own, &there.view(), their)?;
        same(&other.download(&there)?, &expected, format_args!("500 {} there", T::DTYPE))?;
        same(&setup.download(&back)?, &expected, format_args!("500 {} and back", T::DTYPE))
    }
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    each_element!(there_and_back(&setup, &other))?;
    let data = elements::<u8>(2, (9 << 20) + 5);
    let source = setup.upload(&data)?;
    let mut expected = elements::<u8>(3, data.len());
    let mut target = other.upload(&expected)?;
    for (from, to, len) in [(0, 1, 1), (5, 77, 1001), (1, 3, 9 << 20)] {
        let part = source.view().slice(from..from + len)?;
        let mut view = target.view_mut().slice(to..to + len)?;
        view.copy_from_device(&other.stream, &part, &setup.stream)?;
        expected[to..to + len].copy_from_slice(&data[from..from + len]);
        let found = other.download(&target)?;
        check!(found == expected, "{len} bytes from {from} to {to} differ, or others changed");
    }
    Ok(())
}

/// A copy between devices reads the values that earlier work on the source's stream has produced. Later work on the
/// target's stream reads the copied values.
pub fn copies_between_devices_wait_for_the_producer(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    for start in [1, 100] {
        let mut source = setup.upload(&[0_u32; 400])?;
        let mut target = other.upload(&[0_u32; 400])?;
        let _busy = setup.spin(&setup.stream, HEAD_START)?;
        setup.kernels.fill_index(&setup.stream, source.view_mut(), start)?;
        target.view_mut().copy_from_device(&other.stream, &source.view(), &setup.stream)?;
        other.kernels.add_one(&other.stream, target.view_mut())?;
        let expected: Vec<u32> = (start + 1..start + 401).collect();
        same(
            &other.download(&target)?,
            &expected,
            "the values after producing, copying and using",
        )?;
    }
    Ok(())
}

/// Work enqueued on the source's stream after a copy between devices does not change the copied values.
pub fn copies_between_devices_are_done_before_the_next_producer(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let mut source = setup.upload(&[0_u32; 400])?;
    let mut sum = other.upload(&[0_u32; 400])?;
    let mut target = other.upload(&[0_u32; 400])?;
    let mut total = vec![0_u32; 400];
    for step in 1..40_u32 {
        // The copy is late only sometimes, but it must always be ordered.
        let _busy = (step % 20 == 1).then(|| other.spin(&other.stream, HEAD_START)).transpose()?;
        setup.kernels.fill_index(&setup.stream, source.view_mut(), step * 1000)?;
        target.view_mut().copy_from_device(&other.stream, &source.view(), &setup.stream)?;
        source.view_mut().fill(&setup.stream, 7_u32)?;
        // target = target + sum, sum = target: one wrong copy makes all later results wrong.
        let copy = &mut other.device.memory_allocate::<u32>(400)?;
        other.kernels.add(&other.stream, copy.view_mut(), target.view(), sum.view())?;
        sum.view_mut().copy_from(&other.stream, &copy.view())?;
        total.iter_mut().zip(step * 1000..).for_each(|(t, value)| *t = t.wrapping_add(value));
    }
    same(&other.download(&sum)?, &total, "the sum of all that was copied")?;
    same(&setup.download(&source)?, &[7; 400], "the source, written after the copies")
}

/// Copies between streams of one device are ordered in the same way.
pub fn copies_between_streams_of_one_device_are_ordered_likewise(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let other = setup.with_stream()?;
    let mut source = setup.upload(&[0_u32; 300])?;
    let mut target = setup.upload(&[0_u32; 300])?;
    let _produce = setup.spin(&setup.stream, HEAD_START)?;
    setup.kernels.fill_index(&setup.stream, source.view_mut(), 3)?;
    target.view_mut().copy_from_device(&other.stream, &source.view(), &setup.stream)?;
    let expected: Vec<u32> = (3..303).collect();
    same(&other.download(&target)?, &expected, "a copy that waited for its producer")?;
    let _consume = setup.spin(&other.stream, HEAD_START)?;
    target.view_mut().copy_from_device(&other.stream, &source.view(), &setup.stream)?;
    source.view_mut().fill(&setup.stream, 0_u32)?;
    same(&setup.download(&source)?, &[0; 300], "the source, written after the copy")?;
    same(&other.download(&target)?, &expected, "a copy before the source was written again")
}

/// Copies between devices with different lengths or types, or with streams of the wrong device, are refused.
pub fn copies_between_devices_are_checked(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let source = setup.upload(&[1_u32; 10])?;
    let mut target = other.upload(&[2_u32; 9])?;
    let mut floats = other.upload(&[3.0_f32; 10])?;
    let (own, their) = (&setup.stream, &other.stream);
    let copied = target.view_mut().copy_from_device(their, &source.view(), own);
    refused(copied, ErrorKind::OutOfBounds, "ten elements to nine")?;
    let copied = floats.view_mut().erase().copy_from_device(their, &source.view().erase(), own);
    refused(copied, ErrorKind::InvalidArgument, "u32 to f32")?;
    for (to, from) in [(own, own), (their, their), (own, their)] {
        let part = source.view().slice(0..9)?;
        let copied = target.view_mut().copy_from_device(to, &part, from);
        refused(copied, ErrorKind::WrongDevice, "a stream of the wrong device")?;
    }
    same(&other.download(&target)?, &[2; 9], "the target after refused copies")?;
    same(&other.download(&floats)?, &[3.0; 10], "the target after refused copies")
}

/// A stream can wait for an event of another device if that device can be reached; otherwise the wait is refused. The
/// host can always wait for the event.
pub fn events_of_another_device_are_waited_for_where_it_is_reached(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let mut memory = other.upload(&[0_u32; 200])?;
    let mut copy = other.upload(&[0_u32; 200])?;
    let busy = other.spin(&other.stream, HEAD_START)?;
    other.kernels.fill_index(&other.stream, memory.view_mut(), 6)?;
    let event = other.stream.record_event()?;
    let waited = setup.stream.wait(&event);
    let expected: Vec<u32> = (6..206).collect();
    if setup.device.reaches(&other.device) {
        waited?;
        // A third stream reads the results once this device's stream has waited.
        let third = other.with_stream()?;
        setup.stream.synchronize()?;
        busy.must_be_over("a stream that waits for another device's event was synchronised")?;
        copy.view_mut().copy_from(&third.stream, &memory.view())?;
        same(&third.download(&copy)?, &expected, "the values from before the event")?;
    } else {
        refused(waited, ErrorKind::WrongDevice, "waiting for an event of a device not reached")?;
    }
    event.wait()?;
    busy.must_be_over("an event of another device was waited for")?;
    same(&other.download(&memory)?, &expected, "the values from before the event")
}

/// A device that reports native peer copies reaches the other device, and copies without the host. A device that does
/// not report them copies through the host.
pub fn peer_access_is_reported_correctly(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.fresh()?, fixture.other()?);
    check!(setup.device.reaches(&setup.device.clone()), "a device does not reach itself");
    let direct = setup.device.reaches(&other.device) && other.device.reaches(&setup.device);
    for setup in [&setup, &other] {
        let reported = setup.device.capabilities().peer;
        let what = format_args!("reaching each other, where copies are {reported}");
        check_eq!(direct, reported == Support::Native, "{what}");
    }
    let source = other.upload(&[1_u8; 100])?;
    let mut target = setup.upload(&[0_u8; 100])?;
    let before = setup.device.statistics();
    target.view_mut().copy_from_device(&setup.stream, &source.view(), &other.stream)?;
    let after = setup.device.statistics();
    let peers = after.from_peers.bytes - before.from_peers.bytes;
    let staged = after.to_device.bytes - before.to_device.bytes;
    let expected = if direct { (100, 0) } else { (0, 100) };
    check_eq!((peers, staged), expected, "bytes from peers and from the host; direct: {direct}");
    same(&setup.download(&target)?, &[1; 100], "the copied values")
}

/// A device of an unknown backend is not reached, and its events are refused.
pub fn a_device_of_another_backend_is_not_reached(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let unknown = Device::new(NullDevice::default())?;
    check!(!setup.device.reaches(&unknown), "it claims to reach a device of another backend");
    check!(!setup.device.is_same(&unknown), "it counts as a device of another backend");
    let event = unknown.default_stream().record_event()?;
    let waited = setup.stream.wait(&event);
    refused(waited, ErrorKind::WrongDevice, "waiting for an event of another backend")?;
    let recorded = setup.stream.record(&event);
    refused(recorded, ErrorKind::WrongDevice, "recording an event of another backend")?;
    let nothing = unknown.memory_allocate::<u8>(0)?;
    let mut own = setup.device.memory_allocate::<u8>(0)?;
    let copied = own.view_mut().copy_from(&setup.stream, &nothing.view());
    refused(copied.and(setup.stream.record(&event)), ErrorKind::WrongDevice, "its memory")?;
    setup.is_usable()
}

/// Memory, streams and devices at either end of a copy between devices can be dropped while the copy is in flight.
pub fn ends_of_a_copy_between_devices_can_be_dropped_in_flight(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.fresh()?);
    let data = elements::<u8>(4, 5000);
    let mut target = setup.upload(&vec![0_u8; 5000])?;
    let dropped_target = setup.upload(&vec![0_u8; 5000])?;
    let source = other.upload(&data)?;
    let _busy = setup.spin(&setup.stream, HEAD_START)?;
    target.view_mut().copy_from_device(&setup.stream, &source.view(), &other.stream)?;
    {
        let mut dropped_target = dropped_target;
        let mut view = dropped_target.view_mut();
        view.copy_from_device(&setup.stream, &source.view(), &other.stream)?;
    }
    drop(source);
    let next = other.upload(&vec![0xFF_u8; 5000])?;
    drop(next);
    drop(other);
    same(&setup.download(&target)?, &data, "the values copied from a dropped device")?;
    setup.is_usable()
}

/// Two devices work at the same time for many steps, each on the results of the other.
pub fn two_devices_work_on_each_others_results(fixture: &Fixture) -> Outcome {
    const STEPS: u32 = 30;
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let mut x = setup.upload(&[0_u32; 256])?;
    let mut y = other.upload(&[0_u32; 256])?;
    for _ in 0..STEPS {
        setup.kernels.add_one(&setup.stream, x.view_mut())?;
        y.view_mut().copy_from_device(&other.stream, &x.view(), &setup.stream)?;
        other.kernels.add_one(&other.stream, y.view_mut())?;
        x.view_mut().copy_from_device(&setup.stream, &y.view(), &other.stream)?;
    }
    let found = setup.download(&x)?;
    if found != [2 * STEPS; 256] {
        return Err(Stop::failed(format_args!("{} after {STEPS} steps of two", found[0])));
    }
    Ok(())
}
