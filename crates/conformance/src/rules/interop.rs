//! Streams, events and addresses that other code owns. The rules use the device's own objects, imported by their native
//! handles.
#![expect(unsafe_code, reason = "adopts streams and events of the device itself by their handles")]

use std::time::Duration;

use runtime_core::{
    Device, ErrorKind, Event, Interop, NativeHandle, NativeKind, Origin, OriginKind, Stream,
};

use super::streams::until;
use crate::data::elements;
use crate::outcome::{Outcome, best_of_three, check, check_eq, needed, refused, same};
use crate::{Ability, Fixture, Stop};

/// Long enough to distinguish operations that must wait for it from those that need not.
const HEAD_START: Duration = Duration::from_millis(40);

/// Imports a stream by the handle of `theirs`.
fn take_stream(interop: &Interop<'_>, theirs: &Stream) -> Outcome<Stream> {
    // SAFETY: it is a stream of this device, and every caller keeps it for longer than the result.
    Ok(unsafe { interop.stream_from_native(theirs.native()) }?)
}

/// Imports an event by the handle of `theirs`.
fn take_event(interop: &Interop<'_>, theirs: &Event) -> Outcome<Event> {
    // SAFETY: it is a recorded event of this device, and every caller keeps it for longer than the result.
    Ok(unsafe { interop.event_from_native(theirs.native()) }?)
}

/// A stream imported by its handle is the same stream: work through both is in one order, and events order it with
/// other streams, in both directions.
pub fn a_stream_of_others_keeps_its_order(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let interop = needed(setup.device.interop(), Ability::Interop)?;
    let theirs = setup.new_stream()?;
    let taken = take_stream(&interop, &theirs)?;
    let mut x = setup.upload(&[0_u32; 300])?;
    let mut y = setup.upload(&[0_u32; 300])?;
    let mut expected = 0;
    for _ in 0..3 {
        let busy = setup.spin(&theirs, HEAD_START)?;
        // First the owner's work, then this runtime's, on the same stream.
        setup.kernels.add_one(&theirs, x.view_mut())?;
        setup.kernels.add_one(&taken, x.view_mut())?;
        // This runtime's work after the owner's.
        setup.stream.wait(&taken.record_event()?)?;
        y.view_mut().copy_from(&setup.stream, &x.view())?;
        setup.kernels.add_one(&setup.stream, y.view_mut())?;
        // The owner's work after this runtime's.
        let _later = setup.spin(&setup.stream, HEAD_START / 4)?;
        setup.kernels.add_one(&setup.stream, y.view_mut())?;
        taken.wait(&setup.stream.record_event()?)?;
        x.view_mut().copy_from(&theirs, &y.view())?;
        expected += 4;
        let found = x.view().to_vec(&theirs)?;
        same(&found, &[expected; 300], "steps of four that two streams took in turn")?;
        busy.must_be_over("the owner read behind work of its stream")?;
        setup.stream.synchronize()?;
    }
    let busy = setup.spin(&theirs, HEAD_START)?;
    taken.synchronize()?;
    busy.must_be_over("the host waited for an adopted stream")?;
    best_of_three(|| {
        let _busy = setup.spin(&theirs, Duration::from_millis(200))?;
        check!(!taken.is_done()?, "an adopted stream is done before its owner's work");
        theirs.synchronize()?;
        check!(taken.is_done()?, "an adopted stream is not done after its owner's work");
        Ok(())
    })?;
    check_eq!(taken.native(), theirs.native(), "the handle of an adopted stream");
    Ok(())
}

/// A stream keeps working after its import is dropped, and work enqueued through the import is done.
pub fn a_stream_of_others_outlives_its_use(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let interop = needed(setup.device.interop(), Ability::Interop)?;
    let theirs = setup.new_stream()?;
    let mut memory = setup.upload(&[0_u32; 100])?;
    for step in 0..5_u32 {
        let taken = take_stream(&interop, &theirs)?;
        let busy = setup.spin(&taken, HEAD_START / 8)?;
        let again = taken.clone();
        drop(taken);
        setup.kernels.add_one(&again, memory.view_mut())?;
        drop(again);
        setup.kernels.add_one(&theirs, memory.view_mut())?;
        let found = memory.view().to_vec(&theirs)?;
        same(&found, &[2 * step + 2; 100], "the values computed during and after the adoption")?;
        busy.must_be_over("work of a released stream was read")?;
        until("the stream is done", || theirs.is_done())?;
    }
    Ok(())
}

/// Memory used on an imported stream is freed only after that use, even if the stream no longer exists by then.
pub fn memory_outlasts_its_use_on_a_stream_of_others(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let interop = needed(setup.device.interop(), Ability::Interop)?;
    let data = elements::<u32>(5, 400);
    for _ in 0..5 {
        let theirs = setup.new_stream()?;
        let (source, mut copy) = (setup.upload(&data)?, setup.upload(&[0_u32; 400])?);
        let mut pinned = setup.device.pinned_allocate::<u32>(400)?;
        let taken = take_stream(&interop, &theirs)?;
        let busy = setup.spin(&taken, HEAD_START / 4)?;
        copy.view_mut().copy_from(&taken, &source.view())?;
        source.view().copy_to_pinned(&taken, &mut pinned)?;
        drop((taken, theirs));
        drop(source);
        // A new allocation in its place must not change the copies.
        let mut other = setup.device.memory_allocate::<u32>(400)?;
        other.fill(&setup.stream, 0xDEAD_BEEF)?;
        same(pinned.as_slice()?, &data, "a copy to pinned memory on a released stream")?;
        busy.must_be_over("pinned memory that a foreign stream writes was read")?;
        setup.device.synchronize()?;
        same(&setup.download(&copy)?, &data, "a copy on a released stream")?;
    }
    Ok(())
}

/// An imported event makes streams and the host wait. Only its owner can record it.
pub fn an_event_of_others_is_waited_for(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let interop = needed(setup.device.interop(), Ability::Interop)?;
    let theirs = setup.new_stream()?;
    let mut produced = setup.upload(&[0_u32; 200])?;
    let mut consumed = setup.upload(&[0_u32; 200])?;
    let busy = setup.spin(&theirs, HEAD_START)?;
    setup.kernels.fill_index(&theirs, produced.view_mut(), 7)?;
    let event = theirs.record_event()?;
    let taken = take_event(&interop, &event)?;
    setup.stream.wait(&taken)?;
    consumed.view_mut().copy_from(&setup.stream, &produced.view())?;
    let expected: Vec<u32> = (7..207).collect();
    same(&setup.download(&consumed)?, &expected, "the values after a foreign event")?;
    busy.must_be_over("work after a foreign event was read")?;
    let busy = setup.spin(&theirs, HEAD_START)?;
    let event = theirs.record_event()?;
    let taken = take_event(&interop, &event)?;
    taken.wait()?;
    busy.must_be_over("the host waited for a foreign event")?;
    check_eq!(taken.native(), event.native(), "the handle of an adopted event");
    check!(taken.is_done()?, "a foreign event is not done after waiting for it");
    best_of_three(|| {
        let _busy = setup.spin(&theirs, Duration::from_millis(200))?;
        let event = theirs.record_event()?;
        let taken = take_event(&interop, &event)?;
        check!(!taken.is_done()?, "a foreign event is done before the work");
        theirs.synchronize()?;
        check!(taken.is_done()?, "a foreign event is not done after the work");
        Ok(())
    })?;
    let what = "recording a foreign event";
    refused(setup.stream.record(&taken), ErrorKind::InvalidArgument, what)?;
    let what = "the time of a foreign event";
    refused(taken.elapsed_since(&taken), ErrorKind::InvalidArgument, what)?;
    drop(taken);
    event.wait()?;
    setup.stream.wait(&event)?;
    setup.is_usable()
}

/// Handles of other kinds or other interfaces are refused as streams and events, and so are null events.
pub fn handles_of_others_are_checked(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let interop = needed(setup.device.interop(), Ability::Interop)?;
    let event = setup.stream.record_event()?;
    let (stream, event) = (setup.stream.native(), event.native());
    let foreign = |handle| NativeHandle { api: "no such interface", ..handle };
    for (what, handle) in [("an event", event), ("another interface", foreign(stream))] {
        // SAFETY: the handle is refused before it is used.
        let taken = unsafe { interop.stream_from_native(handle) };
        refused(taken, ErrorKind::InvalidArgument, format_args!("a stream of {what}"))?;
    }
    let null = NativeHandle { raw: 0, ..event };
    let cases = [("a stream", stream), ("another interface", foreign(event)), ("nothing", null)];
    for (what, handle) in cases {
        // SAFETY: as above.
        let taken = unsafe { interop.event_from_native(handle) };
        refused(taken, ErrorKind::InvalidArgument, format_args!("an event of {what}"))?;
    }
    let address = NativeHandle { kind: NativeKind::Pointer, ..stream };
    for (what, handle) in [("a stream", stream), ("another interface", foreign(address))] {
        // SAFETY: as above.
        let origin = unsafe { interop.origin(handle) };
        refused(origin, ErrorKind::InvalidArgument, format_args!("the origin of {what}"))?;
    }
    setup.is_usable()
}

/// For the device's own memory, interop reports where the allocation begins and ends. A driver that names memory by
/// address may report this for none of its memory. For an address that is not device memory it reports nothing.
pub fn origins_are_reported_correctly(fixture: &Fixture) -> Outcome {
    /// The amount by which pools may round up an allocation.
    const SLACK: usize = 2 << 20;
    let setup = fixture.setup()?;
    let interop = needed(setup.device.interop(), Ability::Interop)?;
    let first = setup.device.memory_allocate::<u32>(10)?;
    let handle = handle_of(first.native())?;
    let reported = origin(&interop, handle)?.is_some();
    check!(reported || handle.kind == NativeKind::Pointer, "nothing is known of {handle:?}");
    for len in [1_usize, 100, 300_000] {
        let memory = setup.device.memory_allocate::<u32>(len)?;
        let handle = handle_of(memory.native())?;
        let found = origin(&interop, handle)?;
        check_eq!(
            found.is_some(),
            reported,
            "whether the origin of memory of {len} elements is known"
        );
        let Some(Origin { base, offset, bytes, device, kind, .. }) = found else { continue };
        check_eq!((base, offset), (handle.raw, 0), "where memory of {len} elements begins");
        let least = memory.bytes();
        check!(
            (least..=2 * least + SLACK).contains(&bytes),
            "{bytes} bytes in an allocation of {least}"
        );
        check_eq!(kind, OriginKind::Device, "the kind of memory");
        on(&setup.device, device)?;
        if handle.kind == NativeKind::Pointer {
            let within = NativeHandle { raw: handle.raw + memory.bytes() - 1, ..handle };
            let expected = Origin::new(kind, base, memory.bytes() - 1, bytes).with_device(device);
            check_eq!(origin(&interop, within)?, Some(expected), "the origin of the last byte");
        }
    }
    if let Some(unified) = setup.device.unified_memory() {
        let memory = unified.allocate::<u32>(100)?;
        let handle = handle_of(memory.native())?;
        if let Some(found) = origin(&interop, handle)? {
            check_eq!((found.base, found.offset), (handle.raw, 0), "where unified memory begins");
            check_eq!(found.kind, OriginKind::Managed, "the kind of unified memory");
        }
    }
    let host = [0_u32; 4];
    let rubbish = [host.as_ptr().addr(), 0, 1, usize::MAX - 7];
    for raw in rubbish {
        let handle =
            NativeHandle { api: setup.device.native().api, kind: NativeKind::Pointer, raw };
        check_eq!(origin(&interop, handle)?, None, "the origin of {handle:?}");
    }
    setup.is_usable()
}

fn handle_of(native: Option<NativeHandle>) -> Outcome<NativeHandle> {
    native.ok_or_else(|| Stop::failed("memory without a native handle"))
}

fn origin(interop: &Interop<'_>, handle: NativeHandle) -> Outcome<Option<Origin>> {
    // SAFETY: every caller's handle is an address, or of memory of the device that is alive.
    Ok(unsafe { interop.origin(handle) }?)
}

/// Fails if the memory is reported to be on a different device.
fn on(device: &Device, found: Option<usize>) -> Outcome {
    let expected = device.id().index();
    check!(
        found.is_none_or(|found| found == expected),
        "memory is on device {found:?}, expected {expected}"
    );
    Ok(())
}
