//! The host waits for every use of a memory that it can address, in whatever order threads enqueue. Miri explores
//! orders that a machine does not have.

mod device;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread;

use device::{CountingDevice, Counts};
use runtime_core::{Device, Memory, Result, Stream, StreamOptions};

/// Orders that a test tries by itself. Miri tries others with each seed.
const ROUNDS: usize = if cfg!(miri) { 2 } else { 2000 };
/// More streams than have a place of their own in the marks of a memory.
const MANY: usize = 6;

fn device() -> Result<(Device, Arc<Counts>)> {
    let (device, counts) = CountingDevice::new();
    Ok((Device::new(device)?, counts))
}

fn shown(device: &Device) -> Result<Memory<u8>> {
    let Some(unified) = device.unified_memory() else { panic!("no unified memory") };
    unified.allocate(64)
}

fn streams(device: &Device, count: usize) -> Result<Vec<Stream>> {
    (0..count).map(|_| device.stream_create(&StreamOptions::default())).collect()
}

/// Reads the memory on each stream, in a thread of its own, into other memory that the host cannot address.
fn read_at_once(device: &Device, memory: &Memory<u8>, streams: &[Stream]) -> Result<()> {
    let start = Barrier::new(streams.len());
    let read = |stream| {
        let target = device.memory_allocate::<u8>(64);
        start.wait();
        target?.view_mut().copy_from(stream, &memory.view())
    };
    thread::scope(|scope| {
        let readers: Vec<_> =
            streams.iter().map(|stream| scope.spawn(move || read(stream))).collect();
        readers.into_iter().try_for_each(|reader| {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Checks that the host waits for all work.
fn check_slice(memory: &mut Memory<u8>, counts: &Counts) -> Result<()> {
    memory.as_mut_slice()?;
    let work = counts.work();
    assert!(work.iter().all(|(enqueued, waited)| enqueued == waited), "{work:?}");
    assert!(work.iter().any(|(enqueued, _)| *enqueued > 0), "no work was enqueued");
    Ok(())
}

#[test]
fn uses_by_threads_on_one_stream() -> Result<()> {
    for _ in 0..ROUNDS {
        let (device, counts) = device()?;
        let mut memory = shown(&device)?;
        let stream = device.default_stream();
        read_at_once(&device, &memory, &[stream.clone(), stream])?;
        check_slice(&mut memory, &counts)?;
    }
    Ok(())
}

#[test]
fn first_uses_by_threads_on_streams_of_their_own() -> Result<()> {
    for _ in 0..ROUNDS {
        let (device, counts) = device()?;
        let mut memory = shown(&device)?;
        read_at_once(&device, &memory, &streams(&device, 2)?)?;
        check_slice(&mut memory, &counts)?;
    }
    Ok(())
}

#[test]
fn uses_by_threads_on_more_streams_than_have_a_place() -> Result<()> {
    for _ in 0..ROUNDS / 2 {
        let (device, counts) = device()?;
        let mut memory = shown(&device)?;
        let streams = streams(&device, MANY)?;
        for _ in 0..2 {
            read_at_once(&device, &memory, &streams)?;
            check_slice(&mut memory, &counts)?;
        }
    }
    Ok(())
}

#[test]
fn uses_on_streams_that_are_dropped() -> Result<()> {
    let (device, counts) = device()?;
    let mut memory = shown(&device)?;
    for _ in 0..5 * MANY {
        for stream in streams(&device, 2)? {
            memory.view_mut().fill(&stream, 1)?;
        }
        check_slice(&mut memory, &counts)?;
    }
    Ok(())
}

#[test]
fn each_memory_of_a_call_is_marked() -> Result<()> {
    for index in 0..2 {
        let (device, counts) = device()?;
        let mut memories = [shown(&device)?, shown(&device)?];
        let [target, source] = &mut memories;
        target.view_mut().copy_from(&device.default_stream(), &source.view())?;
        check_slice(&mut memories[index], &counts)?;
    }
    Ok(())
}

#[test]
fn a_use_whose_record_failed_is_waited_for() -> Result<()> {
    let (device, counts) = device()?;
    let mut memory = shown(&device)?;
    let stream = device.default_stream();
    memory.fill(&stream, 1)?;
    counts.fails.store(true, Ordering::Relaxed);
    memory.fill(&stream, 2)?;
    counts.fails.store(false, Ordering::Relaxed);
    check_slice(&mut memory, &counts)
}

#[test]
fn a_use_whose_enqueue_panicked_is_waited_for() -> Result<()> {
    for count in [1, MANY] {
        let (device, counts) = device()?;
        let mut memory = shown(&device)?;
        let streams = streams(&device, count)?;
        streams.iter().try_for_each(|stream| memory.fill(stream, 1))?;
        let last = &streams[count - 1];
        counts.panics.store(true, Ordering::Relaxed);
        let fill = AssertUnwindSafe(|| memory.fill(last, 2));
        assert!(catch_unwind(fill).is_err(), "the enqueue did not panic");
        counts.panics.store(false, Ordering::Relaxed);
        check_slice(&mut memory, &counts)?;
    }
    Ok(())
}
