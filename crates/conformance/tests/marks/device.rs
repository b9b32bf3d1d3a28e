//! A device that counts the work of each stream, and the work that the host has waited for.
#![expect(unsafe_code, reason = "implements the unsafe traits of a device")]

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use conformance::NullDevice;
use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, DeviceEvent, DeviceKernel, DeviceMemory,
    DeviceModule, DevicePinned, DeviceStream, EventOptions, MemoryAt, PinnedAt, PinnedOptions,
    RawArg, Released, StreamOptions,
};
use runtime_core::{
    DeviceInfo, Error, ErrorKind, Launch, ModuleImage, NativeHandle, NativeKind, Result,
};

const HANDLE: NativeHandle = NativeHandle { api: "counting", kind: NativeKind::Object, raw: 0 };

/// The work of one stream.
#[derive(Default)]
pub(crate) struct Work {
    enqueued: AtomicUsize,
    waited: AtomicUsize,
}

/// What the test sees of the device.
#[derive(Default)]
pub(crate) struct Counts {
    streams: Mutex<Vec<Arc<Work>>>,
    /// Whether enqueues panic, after they have enqueued their work.
    pub(crate) panics: AtomicBool,
    /// Whether records fail.
    pub(crate) fails: AtomicBool,
}

impl Counts {
    /// For each stream, the work that was enqueued and the part of it that the host has waited for.
    pub(crate) fn work(&self) -> Vec<(usize, usize)> {
        let of = |work: &Arc<Work>| {
            (work.enqueued.load(Ordering::Relaxed), work.waited.load(Ordering::Relaxed))
        };
        self.streams().iter().map(of).collect()
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Arc<Work>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device whose work is done at once. Its events are those of a driver that reads the end of the stream before it
/// writes the event, and does not exclude other threads in between.
pub(crate) struct CountingDevice {
    null: NullDevice,
    counts: Arc<Counts>,
}

impl CountingDevice {
    pub(crate) fn new() -> (Self, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        (Self { null: NullDevice::default(), counts: counts.clone() }, counts)
    }
}

impl CommonRuntime for CountingDevice {
    fn info(&self) -> &DeviceInfo {
        self.null.info()
    }
}

// SAFETY: no byte is ever accessed.
unsafe impl AcceleratorDevice for CountingDevice {
    fn abilities(&self) -> Abilities<'_> {
        Abilities::none().with_unified_memory(&self.null)
    }

    fn native(&self) -> NativeHandle {
        HANDLE
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        self.null.module_load(image)
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        self.null.memory_allocate(bytes)
    }

    fn pinned_allocate(
        &self,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Box<dyn DevicePinned>> {
        self.null.pinned_allocate(bytes, options)
    }

    fn stream_create(&self, _: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        let work = Arc::<Work>::default();
        self.counts.streams().push(work.clone());
        Ok(Box::new(CountingStream { work, counts: self.counts.clone() }))
    }

    fn event_create(&self, _: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        Ok(Box::new(CountingEvent::default()))
    }

    unsafe fn release(&self, _: Released, _: &[&dyn DeviceStream]) {}

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn take_failure(&self) -> Option<Error> {
        None
    }
}

struct CountingStream {
    work: Arc<Work>,
    counts: Arc<Counts>,
}

impl CountingStream {
    fn enqueue(&self) -> Result<()> {
        self.work.enqueued.fetch_add(1, Ordering::Relaxed);
        assert!(!self.counts.panics.load(Ordering::Relaxed), "the enqueue panics");
        Ok(())
    }
}

// SAFETY: no byte is accessed.
unsafe impl DeviceStream for CountingStream {
    unsafe fn memory_copy(&self, _: MemoryAt<'_>, _: MemoryAt<'_>, _: usize) -> Result<()> {
        self.enqueue()
    }

    unsafe fn memory_copy_to(&self, _: MemoryAt<'_>, _: &[u8]) -> Result<()> {
        self.enqueue()
    }

    unsafe fn memory_copy_from(&self, _: MemoryAt<'_>, _: &mut [u8]) -> Result<()> {
        self.enqueue()
    }

    unsafe fn pinned_copy_to(&self, _: PinnedAt<'_>, _: MemoryAt<'_>, _: usize) -> Result<()> {
        self.enqueue()
    }

    unsafe fn pinned_copy_from(&self, _: MemoryAt<'_>, _: PinnedAt<'_>, _: usize) -> Result<()> {
        self.enqueue()
    }

    unsafe fn memory_fill(&self, _: MemoryAt<'_>, _: usize, _: &[u8]) -> Result<()> {
        self.enqueue()
    }

    unsafe fn launch(&self, _: &dyn DeviceKernel, _: &Launch, _: &[RawArg<'_>]) -> Result<()> {
        self.enqueue()
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        if self.counts.fails.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Driver, "record", "records fail"));
        }
        let Some(event) = (event as &dyn Any).downcast_ref::<CountingEvent>() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "record", "a foreign event"));
        };
        let end = self.work.enqueued.load(Ordering::Relaxed);
        thread::yield_now();
        event.work.get_or_init(|| self.work.clone());
        event.end.store(end, Ordering::Relaxed);
        Ok(())
    }

    fn wait(&self, _: &dyn DeviceEvent) -> Result<()> {
        Ok(())
    }

    fn query(&self) -> Result<bool> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        let enqueued = self.work.enqueued.load(Ordering::Relaxed);
        self.work.waited.fetch_max(enqueued, Ordering::Relaxed);
        Ok(())
    }

    fn take_failure(&self) -> Option<Error> {
        None
    }

    fn native(&self) -> NativeHandle {
        HANDLE
    }
}

#[derive(Default)]
struct CountingEvent {
    work: OnceLock<Arc<Work>>,
    end: AtomicUsize,
}

// SAFETY: no byte is accessed.
unsafe impl DeviceEvent for CountingEvent {
    fn wait(&self) -> Result<()> {
        if let Some(work) = self.work.get() {
            work.waited.fetch_max(self.end.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(())
    }

    fn assist(&self) {}

    fn query(&self) -> Result<bool> {
        Ok(true)
    }

    fn elapsed_since(&self, _: &dyn DeviceEvent) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn native(&self) -> NativeHandle {
        HANDLE
    }
}
