//! Optional capabilities. A capability that exists works fully; one that does not is reported as absent.
#![expect(
    unsafe_code,
    reason = "adopts memory of the device itself, and reads memory where the host addresses it"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runtime_core::contract::DeviceLoad;
use runtime_core::{
    DeviceKind, ErrorKind, Event, Memory, NativeHandle, NativeKind, Stream, Support,
};

use crate::data::elements;
use crate::outcome::{Outcome, best_of_three, check, check_eq, needed, refused, same};
use crate::setup::Setup;
use crate::{Ability, Fixture, Stop};

/// Long enough to distinguish operations that must wait for it from those that need not.
const IN_FLIGHT: Duration = Duration::from_millis(40);

/// Unified memory lets the host read device writes and the device read host writes, and waits for unfinished work.
pub fn unified_memory_is_shared_with_the_host(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let unified = needed(setup.device.unified_memory(), Ability::UnifiedMemory)?;
    let mut memory = unified.allocate::<u32>(200)?;
    check!(memory.is_host_visible(), "unified memory is hidden from the host");
    is_shared(&setup, &mut memory)?;
    let none = unified.allocate::<u32>(0)?;
    check_eq!(none.as_slice()?.len(), 0, "elements of unified memory without any");
    let native = memory.native();
    check!(native.is_some(), "unified memory without a native handle");
    Ok(())
}

/// Ordinary memory is visible to the host either always or never. If it is visible, host and device read each other's
/// writes. If it is not, slices of it are refused as unsupported.
pub fn host_visible_memory_is_lent_to_the_host(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&elements::<u32>(1, 200))?;
    let shown = memory.is_host_visible();
    check_eq!(memory.view().is_host_visible(), shown, "whether a view of it is shown");
    check_eq!(memory.host_ptr().is_some(), shown, "whether it has an address");
    let other = setup.device.memory_allocate::<u32>(10)?;
    check_eq!(other.is_host_visible(), shown, "whether other memory is shown");
    if shown {
        return is_shared(&setup, &mut memory);
    }
    let kind = ErrorKind::Unsupported;
    refused(memory.as_slice(), kind, "a slice of hidden memory")?;
    refused(memory.as_mut_slice(), kind, "a slice to write hidden memory")?;
    refused(memory.try_as_slice(), kind, "a slice of hidden memory, without waiting")?;
    refused(memory.try_as_mut_slice(), kind, "a slice to write, without waiting").map(drop)
}

fn is_shared(setup: &Setup, memory: &mut Memory<u32>) -> Outcome {
    let data = elements::<u32>(2, memory.len());
    memory.as_mut_slice()?.copy_from_slice(&data);
    same(&setup.download(memory)?, &data, "the values the device reads after the host wrote")?;
    let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
    setup.kernels.add_one(&setup.stream, memory.view_mut())?;
    let expected: Vec<u32> = data.iter().map(|value| value.wrapping_add(1)).collect();
    same(memory.as_slice()?, &expected, "the values the host reads after a kernel wrote")?;
    busy.must_be_over("memory that a kernel writes was read")?;
    let mut copy = setup.device.memory_allocate::<u32>(memory.len())?;
    let busy = setup.spin(&setup.stream, IN_FLIGHT)?;
    copy.view_mut().copy_from(&setup.stream, &memory.view())?;
    memory.as_mut_slice()?.fill(0);
    busy.must_be_over("memory that is being read was opened for writing")?;
    same(&setup.download(&copy)?, &expected, "the values copied before the host wrote")
}

/// Access by the host to visible memory waits for the work on this memory, and not for later work on its streams.
pub fn showing_memory_waits_for_its_own_work_alone(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut memory = needed(visible(&setup, 300)?, Ability::HostVisibleMemory)?;
    best_of_three(|| {
        for stream in [&setup.stream, &setup.new_stream()?] {
            setup.spin(stream, IN_FLIGHT)?;
            setup.kernels.fill_index(stream, memory.view_mut(), 5)?;
            let behind = setup.spin(stream, Duration::from_millis(200))?;
            let expected: Vec<u32> = (5..305).collect();
            same(memory.as_slice()?, &expected, "the values the host reads")?;
            memory.as_mut_slice()?.fill(0);
            check!(!stream.is_done()?, "showing memory waited for work that does not touch it");
            behind.was_done(stream)?;
        }
        Ok(())
    })
}

/// When a stream or event reports completion, the host reads what was written, without another wait.
pub fn finished_work_is_visible_to_the_host(fixture: &Fixture) -> Outcome {
    const LEN: usize = 1 << 14;
    let setup = fixture.setup()?;
    let mut memory = needed(visible(&setup, LEN)?, Ability::HostVisibleMemory)?;
    type Wait<'a> = &'a dyn Fn(&Event) -> Outcome;
    let ways: [(&str, Wait<'_>); 4] = [
        ("Stream::is_done", &|_| super::streams::until("done", || setup.stream.is_done())),
        ("Event::is_done", &|event| super::streams::until("done", || event.is_done())),
        ("Stream::synchronize", &|_| Ok(setup.stream.synchronize()?)),
        ("Event::wait", &|event| Ok(event.wait()?)),
    ];
    for (start, (what, wait)) in (1..).zip(ways) {
        setup.spin(&setup.stream, IN_FLIGHT)?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), start)?;
        let event = setup.stream.record_event()?;
        wait(&event)?;
        let first = memory.host_ptr().ok_or_else(|| Stop::failed("memory lost its address"))?;
        // SAFETY: the memory has `LEN` initialised elements at this address, and the only work on it has finished.
        let found = unsafe { std::slice::from_raw_parts(first.as_ptr(), LEN) };
        let expected: Vec<u32> = (start..).take(LEN).collect();
        same(found, &expected, format_args!("the values the host reads after {what}"))?;
    }
    Ok(())
}

/// Memory that the host can address: unified memory, or ordinary memory if the host can address that.
fn visible(setup: &Setup, len: usize) -> Outcome<Option<Memory<u32>>> {
    let memory = match setup.device.unified_memory() {
        Some(unified) => unified.allocate(len)?,
        None => setup.device.memory_allocate(len)?,
    };
    let shown = memory.is_host_visible();
    Ok(shown.then_some(memory))
}

/// Counts how often it is dropped, and records when.
struct Owner {
    _memory: Option<Memory<u32>>,
    drops: Arc<Drops>,
}

#[derive(Default)]
struct Drops(Mutex<Vec<Instant>>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.drops.times().push(Instant::now());
    }
}

impl Drops {
    fn times(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        self.times().len()
    }
}

/// Adopted memory is the owner's memory, also if it is adopted twice. The owner is dropped exactly once, when the last
/// work on the memory has finished.
pub fn adopted_memory_gives_its_owner_back(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let data = elements::<u32>(3, 100);
    for in_flight in [false, true] {
        let memory = setup.upload(&data)?;
        let Some(handle) = memory.native() else {
            return Err(Stop::failed("memory without a native handle"));
        };
        let drops = Arc::new(Drops::default());
        let stream = setup.new_stream()?;
        let owner = Owner { _memory: Some(memory), drops: drops.clone() };
        // SAFETY: the handle belongs to a memory of this device and length, which the owner keeps alive. No other work
        // uses the memory meanwhile.
        let adopted = unsafe { setup.device.memory_adopt::<u32>(handle, 100, owner) };
        let reported = setup.device.capabilities().memory_adoption;
        if reported == Support::Absent {
            refused(adopted, ErrorKind::Unsupported, "adoption, which is absent")?;
            check_eq!(drops.count(), 1, "drops of the owner of memory not adopted");
            return Ok(());
        }
        let mut adopted = adopted?;
        check_eq!(adopted.native().map(|handle| handle.raw), Some(handle.raw), "the handle");
        same(&setup.download(&adopted)?, &data, "adopted memory")?;
        // SAFETY: as above; the first adoption keeps the owner until this one is dropped.
        let again = unsafe { setup.device.memory_adopt::<u32>(handle, 100, ()) }?;
        let mut target = adopted.view_mut().slice(0..60)?;
        let done = target.copy_from(&stream, &again.view().slice(30..90)?);
        refused(done, ErrorKind::InvalidArgument, "a copy onto its source by another name")?;
        drop(again);
        let mut copy = setup.device.memory_allocate::<u32>(100)?;
        let busy = in_flight.then(|| setup.spin(&stream, IN_FLIGHT)).transpose()?;
        setup.kernels.add_one(&stream, adopted.view_mut())?;
        copy.view_mut().copy_from(&stream, &adopted.view())?;
        check_eq!(drops.count(), 0, "drops of the owner while the memory lives");
        drop(adopted);
        setup.device.synchronize()?;
        check_eq!(drops.count(), 1, "drops of the owner when its device is synchronised");
        let expected: Vec<u32> = data.iter().map(|value| value.wrapping_add(1)).collect();
        same(&copy.view().to_vec(&stream)?, &expected, "the values computed on it")?;
        if let Some(busy) = busy {
            busy.must_be_over_at(drops.times()[0], "the owner was dropped")?;
        }
    }
    Ok(())
}

fn adopts(setup: &Setup) -> bool {
    setup.device.capabilities().memory_adoption == Support::Native
}

/// The owner of adopted memory may wait, in its drop, for the streams that used the memory and for the device.
pub fn an_owner_may_wait_for_its_streams(fixture: &Fixture) -> Outcome {
    struct Waits {
        streams: [Stream; 2],
        waited: Arc<Mutex<Option<runtime_core::Result<()>>>>,
        owner: Owner,
    }
    impl Drop for Waits {
        fn drop(&mut self) {
            // The device outlives this owner.
            let waited = self.streams.iter().try_for_each(Stream::synchronize);
            let waited = waited.and_then(|()| self.streams[0].device().synchronize());
            *self.waited.lock().unwrap_or_else(PoisonError::into_inner) = Some(waited);
            self.owner._memory = None;
        }
    }
    // A separate instance, because its streams may hang forever.
    let setup = fixture.fresh()?;
    for in_flight in [true, false] {
        let memory = setup.upload(&elements::<u32>(5, 100))?;
        let Some(handle) = memory.native() else {
            return Err(Stop::failed("memory without a native handle"));
        };
        let streams = [setup.new_stream()?, setup.new_stream()?];
        let drops = Arc::new(Drops::default());
        let owner = Owner { _memory: Some(memory), drops: drops.clone() };
        let waited = Arc::default();
        let owner = Waits { streams: streams.clone(), waited: Arc::clone(&waited), owner };
        // SAFETY: the handle belongs to a memory of this device and length, which the owner keeps alive. No other work
        // uses the memory meanwhile.
        let adopted = unsafe { setup.device.memory_adopt::<u32>(handle, 100, owner) };
        needed(adopts(&setup).then_some(()), Ability::MemoryAdoption)?;
        let mut adopted = adopted?;
        let [first, second] = &streams;
        let busy = in_flight.then(|| setup.spin(first, IN_FLIGHT)).transpose()?;
        setup.kernels.add_one(first, adopted.view_mut())?;
        second.wait(&first.record_event()?)?;
        setup.kernels.add_one(second, adopted.view_mut())?;
        if !in_flight {
            second.synchronize()?;
        }
        drop(adopted);
        // This thread does not wait for a stream here; otherwise it could run the work, and with it the owner's drop.
        super::streams::until("an owner that waits for its streams is dropped", || {
            Ok(drops.count() > 0)
        })?;
        let waited = waited.lock().unwrap_or_else(PoisonError::into_inner).take();
        waited.ok_or_else(|| Stop::failed("the owner has not waited"))??;
        if let Some(busy) = busy {
            busy.must_be_over_at(drops.times()[0], "the owner was dropped")?;
        }
    }
    setup.is_usable()
}

/// Handles of another interface, of another kind, or not aligned are refused. Their owner is dropped nevertheless. For
/// memory of no elements the owner is dropped too.
pub fn adoption_is_checked(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let memory = setup.upload(&elements::<u32>(4, 10))?;
    let Some(handle) = memory.native() else {
        return Err(Stop::failed("memory without a native handle"));
    };
    let foreign = NativeHandle { api: "no such interface", ..handle };
    let misaligned = NativeHandle { kind: NativeKind::Pointer, raw: handle.raw + 1, ..handle };
    let wrong_kind = NativeHandle { kind: NativeKind::Stream, ..handle };
    let cases = [
        ("of an unknown interface", foreign, 10),
        ("not aligned", misaligned, 2),
        ("of a stream", wrong_kind, 10),
        ("for no element", handle, 0),
    ];
    for (what, handle, len) in cases {
        let drops = Arc::new(Drops::default());
        let owner = Owner { _memory: None, drops: drops.clone() };
        // SAFETY: the handle is refused before it is used, or names no element.
        let adopted = unsafe { setup.device.memory_adopt::<u32>(handle, len, owner) };
        needed(adopts(&setup).then_some(()), Ability::MemoryAdoption)?;
        if len == 0 {
            check_eq!(adopted?.len(), 0, "elements of memory without any");
        } else {
            refused(adopted, ErrorKind::InvalidArgument, format_args!("a handle {what}"))?;
        }
        setup.device.synchronize()?;
        check_eq!(drops.count(), 1, "drops of the owner of a handle {what}");
    }
    Ok(())
}

/// A memory pool counts used and reserved bytes, and trimming frees unused bytes.
pub fn the_memory_pool_accounts_for_its_bytes(fixture: &Fixture) -> Outcome {
    const BYTES: usize = 3 << 20;
    let setup = fixture.fresh()?;
    let pool = needed(setup.device.memory_pool(), Ability::MemoryPool)?;
    let consistent = |when: &str| -> Outcome<usize> {
        let (used, reserved) = (pool.used_bytes(), pool.reserved_bytes());
        check!(used <= reserved, "{used} bytes used of {reserved} reserved, {when}");
        Ok(used)
    };
    setup.device.synchronize()?;
    let before = consistent("at first")?;
    let reserved = pool.reserved_bytes();
    let mut memory = setup.device.memory_allocate::<u8>(BYTES)?;
    let during = consistent("with memory allocated")?;
    // The driver may have taken one block, which it returns whole or not at all.
    let most = BYTES.max(pool.reserved_bytes().saturating_sub(reserved));
    check!(during >= before + BYTES, "{before} bytes used, and {during} after {BYTES} more");
    memory.view_mut().fill(&setup.stream, 1_u8)?;
    drop(memory);
    setup.device.synchronize()?;
    let after = consistent("after it was dropped")?;
    check!(
        after < before + BYTES,
        "{after} bytes used after {BYTES} were dropped, {before} before"
    );
    pool.trim(BYTES)?;
    let beyond = pool.reserved_bytes().saturating_sub(consistent("after a trim")?);
    check!(beyond <= most, "{beyond} bytes kept beyond those used, {most} were allowed");
    pool.trim(0)?;
    let beyond = pool.reserved_bytes().saturating_sub(consistent("after a trim to nothing")?);
    check_eq!(beyond, 0, "bytes kept beyond those used after a trim to nothing");
    pool.trim(usize::MAX)?;
    setup.is_usable()
}

/// Memory that is dropped with work in flight counts as used until the work has finished, and not after that.
pub fn memory_in_flight_is_given_back_to_the_pool(fixture: &Fixture) -> Outcome {
    const BYTES: usize = 1 << 20;
    let setup = fixture.fresh()?;
    let pool = needed(setup.device.memory_pool(), Ability::MemoryPool)?;
    setup.device.synchronize()?;
    let before = pool.used_bytes();
    for _ in 0..5 {
        let busy = setup.spin(&setup.stream, Duration::from_millis(5))?;
        let mut memory = setup.device.memory_allocate::<u8>(BYTES)?;
        memory.view_mut().fill(&setup.stream, 1_u8)?;
        drop((memory, busy));
    }
    setup.device.synchronize()?;
    let after = pool.used_bytes();
    check!(after < before + BYTES, "{after} bytes used after all was dropped, {before} before");
    Ok(())
}

/// A monitor reports at least one value, and no impossible ones. Memory of a device of its own that is allocated counts
/// as used.
pub fn the_monitor_is_plausible(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let monitor = needed(setup.device.monitor(), Ability::Monitor)?;
    let memory = setup.device.memory_allocate::<u8>(100_000)?;
    let is_host = setup.device.info().kind == DeviceKind::Host;
    for _ in 0..3 {
        let load = monitor.load()?;
        if let (Some(used), false) = (load.memory_used, is_host) {
            let bytes = memory.bytes();
            check!(used >= bytes as u64, "{used} bytes used, of which {bytes} were allocated here");
        }
        check!(load != DeviceLoad::default(), "a monitor that reports nothing");
        for (what, share) in [("processor", load.processor_busy), ("memory", load.memory_busy)] {
            let possible = share.is_none_or(|share| (0.0..=1.0).contains(&share));
            check!(possible, "the {what} is busy {share:?} of the time");
        }
        if let (Some(free), Some(total)) = (load.memory_free, setup.device.info().memory_bytes) {
            check!(free <= total, "{free} bytes free of {total}");
        }
        if let (Some(free), Some(used)) = (load.memory_free, load.memory_used) {
            check!(free.checked_add(used).is_some_and(|sum| sum > 0), "{free} free, {used} used");
        }
        setup.is_usable()?;
    }
    Ok(())
}

/// Counters open by name, alone and in pairs. A read sets every entry, the values never decrease, and at least one of
/// them grows with the work of the device, and can be read after the device was dropped. Unknown names are refused.
pub fn counters_count(fixture: &Fixture) -> Outcome {
    const UNTOUCHED: u64 = 0xDEAD_BEEF_DEAD_BEEF;
    let setup = fixture.fresh()?;
    let counters = needed(setup.device.counters(), Ability::Counters)?;
    let names = counters.names();
    check!(!names.is_empty(), "counters without a name");
    for wrong in ["no such counter", ""] {
        match counters.open(&[wrong]) {
            Ok(_) => return Err(Stop::failed(format_args!("a counter {wrong:?} was opened"))),
            Err(error) => {
                check_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}; its kind");
                check!(error.message().contains(wrong), "{error} does not name {wrong:?}");
            }
        }
    }
    let one_by_one = names.iter().map(|name| vec![name.as_str()]);
    let pairs = names.windows(2).map(|pair| vec![pair[1].as_str(), pair[0].as_str()]);
    for set in one_by_one.chain(pairs) {
        let mut open = counters.open(&set)?;
        let mut before = vec![UNTOUCHED; set.len()];
        open.read(&mut before)?;
        check!(!before.contains(&UNTOUCHED), "{set:?} were not all read: {before:x?}");
        setup.is_usable()?;
        let mut after = vec![UNTOUCHED; set.len()];
        open.read(&mut after)?;
        check!(!after.contains(&UNTOUCHED), "{set:?} were not all read: {after:x?}");
        let grows = before.iter().zip(&after).all(|(before, after)| before <= after);
        check!(grows, "{set:?} went from {before:?} to {after:?}");
    }
    for name in &names {
        let mut open = counters.open(&[name])?;
        let mut growth = |rounds: usize| -> Outcome<u64> {
            let (mut before, mut after) = ([0], [0]);
            open.read(&mut before)?;
            (0..rounds).try_for_each(|_| setup.is_usable())?;
            open.read(&mut after)?;
            Ok(after[0].saturating_sub(before[0]))
        };
        if growth(1)? < growth(20)? {
            let (mut before, mut after) = ([0], [UNTOUCHED]);
            open.read(&mut before)?;
            drop(setup);
            open.read(&mut after)?;
            let is_kept = (before[0]..UNTOUCHED).contains(&after[0]);
            check!(is_kept, "{name:?} went from {before:?} to {after:?} with the device");
            return Ok(());
        }
    }
    Err(Stop::failed(format_args!("none of {names:?} grows with the work of the device")))
}
