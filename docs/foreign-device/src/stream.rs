//! Streams: threads that run closures in order. Events: marks that those closures set.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use runtime_core::contract::{
    DeviceEvent, DeviceKernel, DeviceMemory, DevicePinned, DeviceStream, KernelAbilities, MemoryAt,
    ParamInfo, PinnedAt, RawArg, own,
};
use runtime_core::{
    Error, ErrorKind, Grid, HostArg, HostKernel, Launch, NativeHandle, NativeKind, Result,
};

use crate::memory::{Memory, Pinned, Storage};

type Task = Box<dyn FnOnce() -> Result<()> + Send>;

/// In the number of a thread that drops a retired object, which counts as a stream with one task.
const RETIRED: usize = 1 << (usize::BITS - 1);

thread_local! {
    /// Whether this thread drops a retired object, which may wait for streams, but not for retired objects.
    static RETIRES: Cell<bool> = const { Cell::new(false) };
}

/// A device's streams: how far each has got, and what went wrong.
#[derive(Default)]
pub(crate) struct Progress {
    ids: AtomicUsize,
    streams: Mutex<BTreeMap<usize, Tasks>>,
    changed: Condvar,
    failures: Mutex<Vec<(usize, Error)>>,
}

/// How many tasks a stream was given, and how many have run.
#[derive(Default)]
struct Tasks {
    given: u64,
    done: u64,
}

impl Progress {
    fn new_id(&self) -> usize {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn given(&self, stream: usize) -> u64 {
        lock(&self.streams).get(&stream).map_or(0, |tasks| tasks.given)
    }

    fn is_done(&self, stream: usize, given: u64) -> bool {
        lock(&self.streams).get(&stream).is_none_or(|tasks| tasks.done >= given)
    }

    fn add(&self, stream: usize) {
        lock(&self.streams).entry(stream).or_default().given += 1;
    }

    fn finish(&self, stream: usize, outcome: Result<()>) {
        if let Err(error) = outcome {
            lock(&self.failures).push((stream, error));
        }
        lock(&self.streams).entry(stream).or_default().done += 1;
        self.changed.notify_all();
    }

    /// Forgets a stream that was dropped and has run to its end.
    fn end(&self, stream: usize) {
        lock(&self.streams).remove(&stream);
        self.changed.notify_all();
    }

    /// Waits for everything that a stream was given so far.
    fn wait(&self, stream: usize) {
        self.wait_for(stream, self.given(stream));
    }

    fn wait_for(&self, stream: usize, given: u64) {
        let busy = |streams: &mut BTreeMap<usize, Tasks>| {
            streams.get(&stream).is_some_and(|tasks| tasks.done < given)
        };
        drop(self.changed.wait_while(lock(&self.streams), busy));
    }

    /// Waits for all streams and retired objects.
    pub(crate) fn synchronize(&self) {
        let end = if RETIRES.get() { RETIRED } else { usize::MAX };
        let streams: Vec<usize> = lock(&self.streams).range(..end).map(|(id, _)| *id).collect();
        streams.into_iter().for_each(|stream| self.wait(stream));
    }

    /// Drops an object that may wait for streams when it is dropped, once the streams have run what they were given so
    /// far. No stream drops it.
    pub(crate) fn retire<T: Send + 'static>(
        self: &Arc<Self>,
        object: T,
        after: &[&dyn DeviceStream],
    ) {
        let streams = after.iter().filter_map(|stream| own::<Stream>(*stream, "release").ok());
        let mut places: Vec<_> = streams.map(|stream| (stream.id, self.given(stream.id))).collect();
        places.retain(|&(stream, given)| !self.is_done(stream, given));
        if places.is_empty() {
            return drop(object);
        }
        let id = RETIRED | self.new_id();
        self.add(id);
        let progress = Arc::clone(self);
        thread::spawn(move || {
            RETIRES.set(true);
            places.iter().for_each(|&(stream, given)| progress.wait_for(stream, given));
            drop(object);
            progress.end(id);
        });
    }

    /// Takes the first failure of the streams that `of` selects.
    pub(crate) fn take_failure(&self, of: impl Fn(usize) -> bool) -> Option<Error> {
        let mut failures = lock(&self.failures);
        let first = failures.iter().position(|(stream, _)| of(*stream))?;
        Some(failures.remove(first).1)
    }
}

pub(crate) struct Stream {
    id: usize,
    queue: Sender<Task>,
    progress: Arc<Progress>,
}

impl Stream {
    pub(crate) fn new(progress: &Arc<Progress>) -> Self {
        let id = progress.new_id();
        let (queue, tasks) = channel::<Task>();
        let done = Arc::clone(progress);
        // The thread ends when the stream is dropped and its queue is empty.
        thread::spawn(move || {
            for task in tasks {
                let outcome = catch_unwind(AssertUnwindSafe(task)).unwrap_or_else(|payload| {
                    // Its destructor may panic again, and then nobody would finish the task.
                    std::mem::forget(payload);
                    Err(panicked())
                });
                done.finish(id, outcome);
            }
            done.end(id);
        });
        Self { id, queue, progress: Arc::clone(progress) }
    }

    fn enqueue(&self, task: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.progress.add(self.id);
        let lost = |_| Error::new(ErrorKind::DeviceLost, "enqueue", "the stream's thread ended");
        self.queue.send(Box::new(task)).map_err(lost)
    }

    fn mark(&self) -> Result<Arc<Mark>> {
        let mark = Arc::new(Mark::default());
        let reached = Arc::clone(&mark);
        self.enqueue(move || {
            *lock(&reached.time) = Some(Instant::now());
            reached.changed.notify_all();
            Ok(())
        })?;
        Ok(mark)
    }
}

/// A place in a stream: the time when it was reached.
#[derive(Default)]
struct Mark {
    time: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Mark {
    fn wait(&self) {
        drop(self.changed.wait_while(lock(&self.time), |time| time.is_none()));
    }
}

#[derive(Default)]
pub(crate) struct Event(Mutex<Option<Arc<Mark>>>);

impl Event {
    fn mark(&self) -> Option<Arc<Mark>> {
        lock(&self.0).clone()
    }
}

// SAFETY: a mark is reached when everything enqueued before it has run; the lock makes its writes visible.
unsafe impl DeviceEvent for Event {
    fn wait(&self) -> Result<()> {
        if let Some(mark) = self.mark() {
            mark.wait();
        }
        Ok(())
    }

    fn assist(&self) {}

    fn query(&self) -> Result<bool> {
        Ok(self.mark().is_none_or(|mark| lock(&mark.time).is_some()))
    }

    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration> {
        let time = |event: &Self| event.mark().and_then(|mark| *lock(&mark.time));
        let (start, end) = (time(own(earlier, "elapsed_since")?), time(self));
        Ok(end.zip(start).map(|(end, start)| end.duration_since(start)).unwrap_or_default())
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: "foreign", kind: NativeKind::Event, raw: (&raw const self.0).addr() }
    }
}

pub(crate) struct Kernel(pub(crate) HostKernel);

impl DeviceKernel for Kernel {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        Some(self.0.parameters())
    }

    fn abilities(&self) -> KernelAbilities<'_> {
        KernelAbilities::none()
    }
}

/// A kernel argument that outlives the call that enqueued it.
enum Argument {
    Memory { storage: Arc<Storage>, start: usize, bytes: usize },
    Value(Vec<u8>),
    Empty,
}

impl Argument {
    fn new(arg: &RawArg<'_>) -> Result<Self> {
        Ok(match *arg {
            RawArg::Memory { memory, start, bytes, .. } => {
                Self::Memory { storage: storage(memory)?, start, bytes }
            }
            RawArg::Value { bytes, .. } => Self::Value(bytes.to_vec()),
            RawArg::Empty { .. } => Self::Empty,
        })
    }

    fn storage(&self) -> Option<&Arc<Storage>> {
        if let Self::Memory { storage, .. } = self { Some(storage) } else { None }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::DeviceFault, "launch", "a kernel panicked")
        .with_driver("FOREIGN_PANIC", 1)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn storage(memory: &dyn DeviceMemory) -> Result<Arc<Storage>> {
    Ok(Arc::clone(&own::<Memory>(memory, "memory")?.0))
}

// SAFETY: tasks run one after the other and touch the ranges they name, under the lock of each memory.
unsafe impl DeviceStream for Stream {
    unsafe fn memory_copy(&self, src: MemoryAt<'_>, dst: MemoryAt<'_>, bytes: usize) -> Result<()> {
        let (from, to) = (src.offset, dst.offset);
        let (src, dst) = (storage(src.object)?, storage(dst.object)?);
        self.enqueue(move || {
            let copy = src.with(|src| src[from..][..bytes].to_vec());
            dst.with(|dst| dst[to..][..bytes].copy_from_slice(&copy));
            Ok(())
        })
    }

    unsafe fn memory_copy_to(&self, dst: MemoryAt<'_>, src: &[u8]) -> Result<()> {
        let (dst, to, src) = (storage(dst.object)?, dst.offset, src.to_vec());
        self.enqueue(move || {
            dst.with(|dst| dst[to..][..src.len()].copy_from_slice(&src));
            Ok(())
        })?;
        self.progress.wait(self.id);
        Ok(())
    }

    unsafe fn memory_copy_from(&self, src: MemoryAt<'_>, dst: &mut [u8]) -> Result<()> {
        self.progress.wait(self.id);
        let from = src.offset;
        storage(src.object)?.with(|src| dst.copy_from_slice(&src[from..][..dst.len()]));
        Ok(())
    }

    unsafe fn pinned_copy_to(
        &self,
        src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (from, to) = (src.offset, dst.offset);
        let (src, dst) = (own::<Pinned>(src.object, "pinned")?.clone(), storage(dst.object)?);
        self.enqueue(move || {
            // SAFETY: the range lies inside the pinned memory, which nobody writes meanwhile: the front sees to that.
            let src = unsafe { std::slice::from_raw_parts(src.ptr().add(from), bytes) };
            dst.with(|dst| dst[to..][..bytes].copy_from_slice(src));
            Ok(())
        })
    }

    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (from, to) = (src.offset, dst.offset);
        let (src, dst) = (storage(src.object)?, own::<Pinned>(dst.object, "pinned")?.clone());
        self.enqueue(move || {
            // SAFETY: the range lies inside the pinned memory, which nobody touches meanwhile: the front sees to that.
            let dst = unsafe { std::slice::from_raw_parts_mut(dst.ptr().add(to), bytes) };
            src.with(|src| dst.copy_from_slice(&src[from..][..bytes]));
            Ok(())
        })
    }

    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()> {
        let to = dst.offset;
        let (dst, pattern) = (storage(dst.object)?, pattern.to_vec());
        self.enqueue(move || {
            let fill = |part: &mut [u8]| part.copy_from_slice(&pattern);
            dst.with(|dst| dst[to..][..bytes].chunks_exact_mut(pattern.len()).for_each(fill));
            Ok(())
        })
    }

    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let (kernel, launch) = (own::<Kernel>(kernel, "launch")?.0.clone(), *launch);
        let args = args.iter().map(Argument::new).collect::<Result<Vec<_>>>()?;
        self.enqueue(move || {
            // Each memory is locked once, in the order of addresses, so that two launches cannot wait for each other.
            let mut memories: Vec<&Arc<Storage>> =
                args.iter().filter_map(Argument::storage).collect();
            memories.sort_by_key(|memory| Arc::as_ptr(memory));
            memories.dedup_by_key(|memory| Arc::as_ptr(memory));
            let mut locked: Vec<_> = memories.iter().map(|memory| memory.lock()).collect();
            let bases: Vec<*mut u8> =
                locked.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
            let host: Vec<HostArg<'_>> = args
                .iter()
                .map(|arg| match arg {
                    Argument::Empty => HostArg::Memory { pointer: std::ptr::null_mut(), bytes: 0 },
                    Argument::Value(bytes) => HostArg::Value(bytes),
                    Argument::Memory { storage, start, bytes } => {
                        let same = |memory: &&Arc<Storage>| Arc::ptr_eq(memory, storage);
                        let base = memories
                            .iter()
                            .position(same)
                            .map_or(std::ptr::null_mut(), |i| bases[i]);
                        HostArg::Memory { pointer: base.wrapping_add(*start), bytes: *bytes }
                    }
                })
                .collect();
            let serial = |count: usize, f: &(dyn Fn(usize) + Sync)| (0..count).for_each(f);
            // SAFETY: every memory is locked until the kernel returns, and the front checked the ranges.
            unsafe { kernel.run(&Grid::new(launch, &serial), &host) }
        })
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        *lock(&own::<Event>(event, "record")?.0) = Some(self.mark()?);
        Ok(())
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<()> {
        let Some(mark) = own::<Event>(event, "wait")?.mark() else { return Ok(()) };
        self.enqueue(move || {
            mark.wait();
            Ok(())
        })
    }

    fn query(&self) -> Result<bool> {
        Ok(self.progress.is_done(self.id, self.progress.given(self.id)))
    }

    fn synchronize(&self) -> Result<()> {
        self.progress.wait(self.id);
        Ok(())
    }

    fn take_failure(&self) -> Option<Error> {
        self.progress.take_failure(|stream| stream == self.id)
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: "foreign", kind: NativeKind::Stream, raw: self.id }
    }
}
