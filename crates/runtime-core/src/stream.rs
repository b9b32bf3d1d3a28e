//! Streams and events, as programs use them.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::capture::{Capture, CaptureStream};
use crate::contract::{DeviceEvent, DeviceStream};
use crate::device::same_device;
use crate::statistics::Counts;
use crate::sync::lock;
use crate::{Device, Error, ErrorKind, NativeHandle, Result, interrupt};

/// An in-order queue of work on a device.
///
/// Work enqueued on one stream runs in that order. Work on different streams is ordered by events: see
/// [`wait`](Self::wait), which does not block the host. Work that uses the same [`Pinned`](crate::Pinned) memory is
/// ordered by events of the runtime. Cheap to clone; clones are the same stream. When the last clone is dropped, the
/// enqueued work still runs to completion.
pub struct Stream {
    pub(crate) core: Arc<StreamCore>,
    device: Device,
}

/// The stream itself, shared by its handles and by the memory used on it.
pub(crate) struct StreamCore {
    pub(crate) raw: Box<dyn DeviceStream>,
    /// Unique in the process, never 0 and never reused.
    pub(crate) id: u64,
    /// The number of handles that can still enqueue.
    handles: AtomicUsize,
    reports: Reports,
    /// Held while the ends of uses are recorded.
    recording: Mutex<()>,
    /// Whether another owner owns the driver's stream. Its use ends when the last handle is dropped.
    foreign: bool,
    /// The capture, if this is a capture's stream.
    pub(crate) capture: Option<Arc<Capture>>,
}

/// How often failures of asynchronous work were reported to the users of a device.
#[derive(Default)]
pub(crate) struct DeviceReports {
    /// Held while a failure is taken from the device and counted. A thread that then finds no failure finds the count.
    taking: Mutex<()>,
    /// The failures that may be of any stream.
    count: AtomicU64,
    /// Whether streams of other owners were adopted. Such a stream may be one that the device already has. Then a
    /// failure that is reported on one may belong to work enqueued on the other.
    shares: AtomicBool,
}

/// The failures that were reported on all streams of the process.
static REPORTED: AtomicU64 = AtomicU64::new(0);

/// The number of failures of asynchronous work that were reported on any stream of the process: it grows whenever
/// [`Stream::failures`] of any stream grows. Never blocks.
#[inline]
pub fn reported_failures() -> u64 {
    REPORTED.load(Ordering::Acquire)
}

/// Counts a failure.
fn count_in(count: &AtomicU64) {
    count.fetch_add(1, Ordering::AcqRel);
    // Releases the count.
    REPORTED.fetch_add(1, Ordering::AcqRel);
}

impl DeviceReports {
    pub(crate) fn count(&self) {
        count_in(&self.count);
    }

    /// Takes the failure of earlier work after a wait, and counts what is reported. A refused wait takes and counts
    /// nothing.
    pub(crate) fn settle(
        &self,
        waited: Result<()>,
        take: impl FnOnce() -> Option<Error>,
        count: impl FnOnce(&Self),
    ) -> Result<()> {
        if waited.as_ref().is_err_and(Error::is_refused_wait) {
            return waited;
        }
        let taking = lock(&self.taking);
        let outcome = take().map_or(waited, |failure| Err(failure.of_earlier_work()));
        if outcome.is_err() {
            count(self);
        }
        drop(taking);
        outcome
    }
}

/// How often failures were reported by the synchronisations and blocking copies of a stream.
struct Reports {
    count: AtomicU64,
    device: Arc<DeviceReports>,
}

impl Reports {
    fn count(&self) {
        if self.device.shares.load(Ordering::Acquire) {
            self.device.count();
        } else {
            count_in(&self.count);
        }
    }

    fn counted(&self) -> u64 {
        self.count.load(Ordering::Acquire) + self.device.count.load(Ordering::Acquire)
    }
}

impl StreamCore {
    /// The default stream. Its device can create handles to it at any time, so it never retires.
    pub(crate) fn lasting(raw: Box<dyn DeviceStream>, device: &Arc<DeviceReports>) -> Arc<Self> {
        let core = Self::new(raw, device);
        core.handles.fetch_add(1, Ordering::Relaxed);
        core
    }

    /// A stream with another owner.
    pub(crate) fn foreign(raw: Box<dyn DeviceStream>, device: &Arc<DeviceReports>) -> Arc<Self> {
        device.shares.store(true, Ordering::Release);
        Arc::new(Self { foreign: true, ..Self::numbered(raw, device) })
    }

    /// The stream of a capture.
    pub(crate) fn capturing(capture: &Arc<Capture>, device: &Arc<DeviceReports>) -> Arc<Self> {
        let raw = Box::new(CaptureStream(Arc::clone(capture)));
        Arc::new(Self { capture: Some(Arc::clone(capture)), ..Self::numbered(raw, device) })
    }

    pub(crate) fn new(raw: Box<dyn DeviceStream>, device: &Arc<DeviceReports>) -> Arc<Self> {
        Arc::new(Self::numbered(raw, device))
    }

    fn numbered(raw: Box<dyn DeviceStream>, device: &Arc<DeviceReports>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let reports = Reports { count: AtomicU64::new(0), device: Arc::clone(device) };
        let (handles, recording) = (AtomicUsize::new(0), Mutex::default());
        Self { raw, id, handles, reports, recording, foreign: false, capture: None }
    }

    /// Excludes other threads from recording the ends of uses on this stream.
    pub(crate) fn recording(&self) -> MutexGuard<'_, ()> {
        lock(&self.recording)
    }

    /// Calls `enqueue` with the driver's stream: this one, or the stream that the backend captures with.
    pub(crate) fn enqueue<R>(
        &self,
        enqueue: impl FnOnce(&dyn DeviceStream) -> Result<R>,
    ) -> Result<R> {
        match &self.capture {
            None => enqueue(&*self.raw),
            Some(capture) => capture.enqueue(enqueue),
        }
    }

    /// Ends the capture, if this is one, with an operation that failed before its work was enqueued.
    pub(crate) fn or_end_capture<R>(&self, done: Result<R>) -> Result<R> {
        if let (Err(_), Some(capture)) = (&done, &self.capture) {
            drop(capture.finish());
        }
        done
    }

    /// Blocks until all work enqueued so far is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.settle(self.raw.synchronize())
    }

    fn settle(&self, waited: Result<()>) -> Result<()> {
        if self.capture.is_some() {
            // Nothing runs on the stream of a capture, so nothing has failed.
            return waited;
        }
        let take = || self.raw.take_failure();
        self.reports.device.settle(waited, take, |_| self.reports.count())
    }

    /// Blocks until all work enqueued so far is done, and leaves its failures to be reported by the stream.
    pub(crate) fn drain(&self) -> Result<()> {
        self.counted(self.raw.synchronize())
    }

    /// The outcome of a blocking copy to the host: a failure of earlier work, which is taken and counted, or that of
    /// the copy itself, which does not count.
    pub(crate) fn copied_from(&self, copied: Result<()>) -> Result<()> {
        self.settle(Ok(())).and_then(|()| self.counted(copied))
    }

    /// The outcome of a call that takes no failure. It is counted if earlier work broke the device.
    pub(crate) fn counted(&self, outcome: Result<()>) -> Result<()> {
        if outcome.as_ref().is_err_and(Error::is_of_earlier_work) {
            self.reports.count();
        }
        outcome
    }

    pub(crate) fn failures(&self) -> u64 {
        self.reports.counted()
    }

    /// Refuses what `operation` has read if a failure was reported to anybody since `failures` were counted. Until the
    /// report, the device may have skipped steps of the operation, and afterwards have run others.
    pub(crate) fn check_since(&self, operation: &'static str, failures: u64) -> Result<()> {
        if self.reports.counted() == failures {
            return Ok(());
        }
        let message = "work before it failed, and the failure was reported to another caller";
        Err(Error::new(ErrorKind::DeviceFault, operation, message).of_earlier_work())
    }

    /// Whether another owner owns the driver's stream.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Whether no more work can be enqueued and all enqueued work is done.
    pub(crate) fn is_retired(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 0 && matches!(self.raw.query(), Ok(true))
    }
}

impl Stream {
    pub(crate) fn new(core: Arc<StreamCore>, device: Device) -> Self {
        core.handles.fetch_add(1, Ordering::Relaxed);
        Self { core, device }
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Blocks until all work enqueued so far is done. There is no limit, because work may run for hours: work that
    /// never ends blocks for ever. [`synchronize_for`](Self::synchronize_for) has a limit.
    ///
    /// # Errors
    ///
    /// The first failure of asynchronous work on this stream that was not reported before. A blocking copy also reports
    /// such failures.
    pub fn synchronize(&self) -> Result<()> {
        self.core.synchronize().map_err(|e| self.device.place(e))
    }

    /// The number of failures that were reported on this stream: by [`synchronize`](Self::synchronize) of the stream or
    /// its device, or by a blocking copy as a failure of work enqueued before it. Once the device has
    /// [adopted a stream of another owner](crate::Interop::stream_from_native), failures on all of its streams count.
    ///
    /// A failure of asynchronous work is reported once, to the first caller. If this number has grown since work was
    /// enqueued, that work may have failed although [`synchronize`](Self::synchronize) returns `Ok`, because another
    /// caller received the error. A caller that finds no failure left finds the number grown. Never blocks.
    pub fn failures(&self) -> u64 {
        self.core.failures()
    }

    /// Reports the first failure that was not reported before, as [`synchronize`](Self::synchronize) does, but of
    /// finished work only: of the work before an event that is reached, for instance. Never blocks.
    ///
    /// # Errors
    ///
    /// That failure. As [`is_done`](Self::is_done).
    pub fn check(&self) -> Result<()> {
        // Some drivers find a failure only when they are asked.
        let asked = self.core.raw.query().map(drop);
        self.core.settle(asked).map_err(|e| self.device.place(e))
    }

    /// As [`synchronize`](Self::synchronize), but waits for at most `timeout`. The work continues after a timeout.
    ///
    /// If another thread enqueues work just as the earlier work is done, the call may wait for the new work too, and
    /// then it may take longer than `timeout`.
    ///
    /// # Errors
    ///
    /// `Timeout`; otherwise as [`synchronize`](Self::synchronize).
    pub fn synchronize_for(&self, timeout: Duration) -> Result<()> {
        poll("synchronize_for", &self.device, timeout, || self.is_done())?;
        self.synchronize()
    }

    /// Whether all work enqueued so far is done, or has failed. Never blocks.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or another error of the driver. Failures of the work itself are reported by
    /// [`synchronize`](Self::synchronize); a program that never synchronises does not see them.
    pub fn is_done(&self) -> Result<bool> {
        self.core.raw.query().map_err(|e| self.device.place(e))
    }

    /// Records the end of all work enqueued so far in `event`. This point replaces the one recorded earlier.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the event belongs to another device. `InvalidArgument` for an event that another library owns
    /// (see [`Interop::event_from_native`](crate::Interop::event_from_native)).
    pub fn record(&self, event: &Event) -> Result<()> {
        self.device.check_same("record", &event.device)?;
        if event.core.foreign {
            let message = format!("{:?} is its owner's to record", event.native());
            return Err(self.device.invalid("record", message));
        }
        self.core.raw.record(&*event.core.raw).map_err(|e| self.device.place(e))?;
        event.core.recorded.store(true, Ordering::Release);
        Ok(())
    }

    /// Creates an event without timing, and records the end of all work enqueued so far in it.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    pub fn record_event(&self) -> Result<Event> {
        let event = self.device.event_create(false)?;
        self.record(&event)?;
        Ok(event)
    }

    /// Makes work enqueued from now on wait, on the device, for the latest recorded point of `event`. Does not block
    /// the host. An event that was never recorded delays nothing.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the event belongs to a device whose events this device cannot wait for (see
    /// [`Device::reaches`]). Use [`Event::wait`] in that case.
    pub fn wait(&self, event: &Event) -> Result<()> {
        if !same_device(&self.device, &event.device) && !self.device.reaches(&event.device) {
            return Err(Error::new(
                ErrorKind::WrongDevice,
                "wait",
                format!(
                    "an event of {} cannot be waited for on the device; use Event::wait",
                    event.device.id()
                ),
            )
            .on(self.device.id()));
        }
        self.core.raw.wait(&*event.core.raw).map_err(|e| self.device.place(e))
    }

    /// The vendor's handle, valid for as long as a clone of this stream lives.
    pub fn native(&self) -> NativeHandle {
        self.core.raw.native()
    }

    /// Whether this is the stream of a capture. Its work runs when the graph is launched, so nothing can wait for it.
    pub fn is_capturing(&self) -> bool {
        self.core.capture.is_some()
    }

    /// The counters for work enqueued on this stream.
    #[inline]
    pub(crate) fn counts(&self) -> &Counts {
        match &self.core.capture {
            None => self.device.counts(),
            Some(capture) => capture.counts(),
        }
    }

    /// A number that no other stream of the process has.
    pub fn id(&self) -> u64 {
        self.core.id
    }
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.core), self.device.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let handles = self.core.handles.fetch_sub(1, Ordering::AcqRel);
        if self.core.foreign && handles == 1 {
            crate::interop::end(&self.core, &self.device);
        }
    }
}

impl PartialEq for Stream {
    /// Whether both are the same stream.
    fn eq(&self, other: &Self) -> bool {
        self.core.id == other.core.id
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} on {})", self.core.id, self.device.id())
    }
}

/// A recorded point in a stream. Other streams and the host can wait until the stream reaches it. Cheap to clone;
/// clones are the same event.
///
/// An event can be recorded again. A wait refers to the point that was the latest when the wait was called.
#[derive(Clone)]
pub struct Event {
    core: Arc<EventCore>,
    device: Device,
}

struct EventCore {
    raw: Box<dyn DeviceEvent>,
    timing: bool,
    /// Whether another owner owns and records it.
    foreign: bool,
    recorded: AtomicBool,
}

impl Event {
    pub(crate) fn new(raw: Box<dyn DeviceEvent>, timing: bool, device: Device) -> Self {
        let (foreign, recorded) = (false, AtomicBool::new(false));
        Self { core: Arc::new(EventCore { raw, timing, foreign, recorded }), device }
    }

    /// An event that another owner owns and records.
    pub(crate) fn foreign(raw: Box<dyn DeviceEvent>, device: Device) -> Self {
        let (timing, foreign, recorded) = (false, true, AtomicBool::new(true));
        Self { core: Arc::new(EventCore { raw, timing, foreign, recorded }), device }
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Blocks until the work before the latest recorded point is done. Returns at once if the event was never recorded.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or another error of the driver. Failures of the work itself are reported by the stream.
    pub fn wait(&self) -> Result<()> {
        self.core.raw.wait().map_err(|e| self.device.place(e))
    }

    /// As [`wait`](Self::wait), but for at most `timeout`. If another thread records the event again just as its point
    /// is reached, the call may wait for the new point, and then it may take longer than `timeout`. On the host device,
    /// this thread first runs copies and fills before the point that no thread has begun, however long these take.
    ///
    /// # Errors
    ///
    /// `Timeout`; otherwise as [`wait`](Self::wait).
    pub fn wait_for(&self, timeout: Duration) -> Result<()> {
        if !timeout.is_zero() && !self.is_done()? {
            self.core.raw.assist();
        }
        poll("wait_for", &self.device, timeout, || self.is_done())?;
        self.wait()
    }

    /// Whether the work before the latest recorded point is done. `true` if the event was never recorded. Never blocks.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn is_done(&self) -> Result<bool> {
        self.core.raw.query().map_err(|e| self.device.place(e))
    }

    /// The time from the latest point of `earlier` to the latest point of this event, by the device's clock. It begins
    /// when the work before the first point is done, and ends when the work before the second point is done. The points
    /// may be in different streams of the device. Zero if this event was reached first.
    ///
    /// The host blocks until both points are reached. Do not record either event meanwhile.
    ///
    /// The resolution is that of the device's clock. CUDA and HIP measure in steps of about half a microsecond and
    /// return milliseconds with seven significant digits. Devices in host memory and embedded devices use the host's
    /// clock.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if either event was created without timing or never recorded. `WrongDevice` if the events
    /// belong to different devices. As [`wait`](Self::wait), and errors of the driver. A failure of the work before the
    /// points is no error here; its stream reports it.
    pub fn elapsed_since(&self, earlier: &Self) -> Result<Duration> {
        self.check_timed(earlier)?;
        earlier.wait()?;
        self.wait()?;
        self.core.raw.elapsed_since(&*earlier.core.raw).map_err(|e| self.device.place(e))
    }

    /// As [`elapsed_since`](Self::elapsed_since), but returns `None` while either point is not reached. Never blocks.
    ///
    /// # Errors
    ///
    /// As [`elapsed_since`](Self::elapsed_since).
    pub fn try_elapsed_since(&self, earlier: &Self) -> Result<Option<Duration>> {
        self.check_timed(earlier)?;
        if !(earlier.is_done()? && self.is_done()?) {
            return Ok(None);
        }
        let elapsed = self.core.raw.elapsed_since(&*earlier.core.raw);
        elapsed.map(Some).map_err(|e| self.device.place(e))
    }

    fn check_timed(&self, earlier: &Self) -> Result<()> {
        self.device.check_same("elapsed_since", &earlier.device)?;
        for event in [earlier, self] {
            let lack = match (event.core.timing, event.core.recorded.load(Ordering::Acquire)) {
                (false, _) => "an event created without timing",
                (true, false) => "an event that was never recorded",
                (true, true) => continue,
            };
            return Err(
                Error::new(ErrorKind::InvalidArgument, "elapsed_since", lack).on(self.device.id())
            );
        }
        Ok(())
    }

    /// The vendor's handle. Valid until the event is recorded again or its last clone is dropped. Some drivers, such as
    /// OpenCL, have no object for an event with nothing to wait for. The handle is then null.
    pub fn native(&self) -> NativeHandle {
        self.core.raw.native()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("device", self.device.id())
            .field("timing", &self.core.timing)
            .finish()
    }
}

/// Polls `done` until it returns `true`: continuously at first, yielding to other threads, then at growing intervals of
/// up to one millisecond. Ends early if it is interrupted.
fn poll(
    operation: &'static str,
    device: &Device,
    timeout: Duration,
    done: impl Fn() -> Result<bool>,
) -> Result<()> {
    // Shorter than the time that the system needs to wake a sleeping thread.
    const AWAKE: Duration = Duration::from_micros(100);
    let start = Instant::now();
    while !done()? {
        let waited = start.elapsed();
        let left = timeout.saturating_sub(waited);
        if left.is_zero() {
            return Err(Error::new(
                ErrorKind::Timeout,
                operation,
                format!("not done after {timeout:?}"),
            )
            .on(device.id()));
        }
        if waited < AWAKE {
            std::thread::yield_now();
        } else {
            // The delay is a small part of the time waited so far.
            interrupt::check()?;
            std::thread::sleep((waited / 8).min(Duration::from_millis(1)).min(left));
        }
    }
    Ok(())
}
